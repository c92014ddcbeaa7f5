//! The training loop: what an application does to survive the death of a rank.
//!
//! Set-up creates everything on the device and says which of it must be right after a recovery. Inside a step nothing
//! writes parameters; only after the whole job has decided GO does every rank run the optimizer. REDO, which any call
//! inside a step may return, means: ask where the job stands, and run that step.

use crate::batch::{BATCH, Loader, shard};
use crate::dataset::{CLASSES, Dataset, PIXELS};
use crate::kernels::{Dense, Kernels};
use crate::model::{self, HIDDEN, PARAMETERS, offset};
use anyhow::Context;
use journal_core::Error;
use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;
use journal_core::nccl::clique::VirtualUniqueId;
use journal_core::nccl::{CommConfig, DataType, ReduceOp};
use journal_core::session::{Decided, Session, StateKind};
use std::path::PathBuf;

/// What to train.
#[derive(Debug, Clone)]
pub struct Options {
    /// Steps of 256 samples.
    pub steps: u32,
    /// Of initial parameters and of the order of samples.
    pub seed: u64,
    /// Shared object with the kernels.
    pub kernels: PathBuf,
}

/// Gives between 95 and 96 % after 200 steps.
pub const DEFAULT_SEED: u64 = 2;
const LEARNING_RATE: f32 = 0.3;
const MOMENTUM: f32 = 0.9;

const IMAGE: u32 = PIXELS as u32;
const UNITS: u32 = HIDDEN as u32;
const OUTPUTS: u32 = CLASSES as u32;

/// What training ended with.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// SHA-256 of the final parameters.
    pub weights_sha256: String,
    /// Test images classified as labelled.
    pub correct: u32,
    /// Test images.
    pub tested: u32,
}

/// Device memory of a rank.
struct Buffers {
    images: DevicePtr,
    labels: DevicePtr,
    parameters: DevicePtr,
    velocity: DevicePtr,
    /// As the parameters, and one element for the loss.
    gradient: DevicePtr,
    index: DevicePtr,
    batch_images: DevicePtr,
    batch_labels: DevicePtr,
    hidden: DevicePtr,
    logits: DevicePtr,
    grad_logits: DevicePtr,
    grad_hidden: DevicePtr,
}

/// A rank that is ready to train.
pub struct Trainer {
    session: Session,
    options: Options,
    data: Dataset,
    kernels: Kernels,
    communicator: VirtualHandle,
    stream: VirtualHandle,
    buffers: Buffers,
}

/// Where the job stands.
struct Position {
    step: u32,
    loader: Loader,
}

/// An element of a buffer of 4-byte values.
fn element(buffer: DevicePtr, index: usize) -> DevicePtr {
    DevicePtr(buffer.0 + 4 * index as u64)
}

fn bytes_of<const N: usize, T: Copy>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to_bytes(value)).collect()
}

impl Trainer {
    /// The set-up: module, communicator, memory. A replacement does exactly the same.
    pub fn create(session: &Session, options: Options) -> anyhow::Result<Self> {
        let data = Dataset::load()?;
        let image = std::fs::read(&options.kernels).with_context(|| format!("cannot read {}", options.kernels.display()))?;
        let stream = session.stream_create(0, 0)?;
        let kernels = Kernels::load(session, &image, stream)?;
        let communicator = Self::join(session)?;
        let buffers = Self::allocate(session, communicator, &data, options.seed)?;
        Ok(Self { session: session.clone(), options, data, kernels, communicator, stream, buffers })
    }

    fn join(session: &Session) -> anyhow::Result<VirtualHandle> {
        let own = if session.rank().0 == 0 { Some(session.nccl_unique_id()?) } else { None };
        let id = session.exchange("digits", own.as_ref().map(|id| id.0.as_slice()))?;
        let id = VirtualUniqueId(id.as_slice().try_into().context("a unique id has 128 bytes")?);
        let config = CommConfig { comm_name: Some("digits".to_owned()), ..CommConfig::default() };
        Ok(session.comm_init_rank(session.nranks(), &id, session.rank().0, &config)?)
    }

    fn allocate(session: &Session, communicator: VirtualHandle, data: &Dataset, seed: u64) -> Result<Buffers, Error> {
        let new = |name: &str, elements: usize, kind: StateKind| -> Result<DevicePtr, Error> {
            let bytes = 4 * elements.max(1) as u64;
            let buffer = session.mem_alloc(bytes)?;
            session.state_register(name, buffer, bytes, kind, Some(communicator))?;
            Ok(buffer)
        };
        let (samples, part) = (data.train.len(), (BATCH as usize).div_ceil(session.nranks() as usize));
        let buffers = Buffers {
            images: new("images", samples * PIXELS, StateKind::Constant)?,
            labels: new("labels", samples, StateKind::Constant)?,
            parameters: new("parameters", PARAMETERS, StateKind::Replicated)?,
            velocity: new("velocity", PARAMETERS, StateKind::Replicated)?,
            gradient: new("gradient", PARAMETERS + 1, StateKind::Scratch)?,
            index: new("index", part, StateKind::Scratch)?,
            batch_images: new("batch images", part * PIXELS, StateKind::Scratch)?,
            batch_labels: new("batch labels", part, StateKind::Scratch)?,
            hidden: new("hidden", part * HIDDEN, StateKind::Scratch)?,
            logits: new("logits", part * CLASSES, StateKind::Scratch)?,
            grad_logits: new("gradient of logits", part * CLASSES, StateKind::Scratch)?,
            grad_hidden: new("gradient of hidden", part * HIDDEN, StateKind::Scratch)?,
        };
        session.memcpy_htod(buffers.images, &bytes_of(&data.train.images, f32::to_ne_bytes))?;
        session.memcpy_htod(buffers.labels, &bytes_of(&data.train.labels, u32::to_ne_bytes))?;
        session.memcpy_htod(buffers.parameters, &bytes_of(&model::initial(seed), f32::to_ne_bytes))?;
        session.memcpy_htod(buffers.velocity, &vec![0; 4 * PARAMETERS])?;
        Ok(buffers)
    }

    /// Trains to the last step. The caller finalizes the session afterwards.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let first = self.session.setup_done()?;
        let mut at = self.position(first.step, &first.blob)?;
        loop {
            let result = if at.step < self.options.steps { self.step(&at).map(Some) } else { Ok(None) };
            match result {
                Ok(Some(next)) => at = next,
                Ok(None) => match self.evaluate() {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) => at = self.resume(error)?,
                },
                Err(error) => at = self.resume(error)?,
            }
        }
    }

    /// After REDO: where the job stands. Any other error is one.
    fn resume(&self, error: Error) -> anyhow::Result<Position> {
        if !error.is_redo() {
            return Err(error.into());
        }
        let resumed = self.session.resume()?;
        self.position(resumed.step, &resumed.blob)
    }

    fn position(&self, step: u32, blob: &[u8]) -> anyhow::Result<Position> {
        let loader = if blob.is_empty() { Loader::create(self.options.seed) } else { Loader::from_blob(blob)? };
        Ok(Position { step, loader })
    }

    /// One step; returns the position after it.
    fn step(&self, at: &Position) -> Result<Position, Error> {
        let (batch, loader) = at.loader.next(self.data.train.len() as u32);
        self.session.step_begin(at.step)?;
        self.compute_gradient(&batch)?;
        let (gradient, count) = (self.buffers.gradient, PARAMETERS as u64 + 1);
        self.session.all_reduce(gradient, gradient, count, DataType::Float32, ReduceOp::Sum, self.communicator, self.stream)?;
        if self.session.step_end(&loader.to_blob())? == Decided::Redo {
            return Err(Error::Redo);
        }
        let b = &self.buffers;
        self.kernels.sgd_momentum(b.parameters, b.velocity, b.gradient, PARAMETERS as u32, (LEARNING_RATE, MOMENTUM))?;
        self.session.step_commit()?;
        Ok(Position { step: at.step + 1, loader })
    }

    /// Forward and backward over this rank's part of the batch. Each sample counts 1/256, however many ranks there are.
    fn compute_gradient(&self, batch: &[u32]) -> Result<(), Error> {
        // The rank within the communicator: recovery may be told to renumber.
        let (rank, nranks) = (self.session.comm_user_rank(self.communicator)?, self.session.comm_count(self.communicator)?);
        let part = shard(batch, rank, nranks);
        if part.is_empty() {
            return Ok(());
        }
        let (b, k, n) = (&self.buffers, &self.kernels, part.len() as u32);
        let samples = self.data.train.len() as u32;
        let [w1, b1, w2, b2] = [offset::W1, offset::B1, offset::W2, offset::B2].map(|at| element(b.parameters, at));
        let [gw1, gb1, gw2, gb2, loss] =
            [offset::W1, offset::B1, offset::W2, offset::B2, PARAMETERS].map(|at| element(b.gradient, at));
        let first = Dense { batch: n, inputs: IMAGE, outputs: UNITS };
        let second = Dense { batch: n, inputs: UNITS, outputs: OUTPUTS };
        self.session.memcpy_htod(b.index, &bytes_of(part, u32::to_ne_bytes))?;
        k.gather_rows(b.images, samples, b.index, n, b.batch_images, IMAGE)?;
        k.gather_rows(b.labels, samples, b.index, n, b.batch_labels, 1)?;
        k.dense_forward(b.batch_images, w1, b1, b.hidden, first)?;
        k.relu(b.hidden, n * UNITS)?;
        k.dense_forward(b.hidden, w2, b2, b.logits, second)?;
        k.softmax_cross_entropy(b.logits, b.batch_labels, b.grad_logits, loss, (n, OUTPUTS), 1.0 / BATCH as f32)?;
        k.dense_backward_weights(b.hidden, b.grad_logits, gw2, gb2, second)?;
        k.dense_backward_input(b.grad_logits, w2, b.grad_hidden, second)?;
        k.relu_backward(b.hidden, b.grad_hidden, n * UNITS)?;
        k.dense_backward_weights(b.batch_images, b.grad_hidden, gw1, gb1, first)
    }

    fn evaluate(&self) -> Result<Outcome, Error> {
        let mut bytes = vec![0; 4 * PARAMETERS];
        self.session.memcpy_dtoh(&mut bytes, self.buffers.parameters)?;
        let (words, _) = bytes.as_chunks::<4>();
        let parameters: Vec<f32> = words.iter().map(|word| f32::from_ne_bytes(*word)).collect();
        Ok(Outcome {
            weights_sha256: model::fingerprint(&parameters),
            correct: model::count_correct(&parameters, &self.data.test) as u32,
            tested: self.data.test.len() as u32,
        })
    }
}
