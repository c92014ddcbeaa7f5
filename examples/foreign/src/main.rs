//! A trainer that uses the device by itself; see README.md.

mod own_device;

use anyhow::Context;
use clap::Parser;
use journal_core::Error;
use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;
use journal_core::nccl::clique::VirtualUniqueId;
use journal_core::nccl::{CommConfig, DataType, ReduceOp};
use journal_core::session::{Decided, Session, SessionOptions, StateKind};
use own_device::OwnDevice;
use sha2::{Digest, Sha256};

const ELEMENTS: usize = 5000;
const BYTES: u64 = 4 * ELEMENTS as u64;

/// Train a toy with memory and a stream of its own, under `rejoin run`
#[derive(Debug, Parser)]
struct Arguments {
    /// Steps
    #[arg(long, default_value_t = 60)]
    steps: u32,
}

struct Trainer {
    session: Session,
    device: OwnDevice,
    communicator: VirtualHandle,
    stream: VirtualHandle,
    parameters: DevicePtr,
    gradient: DevicePtr,
    /// How often this rank has been in a gradient: its own, and different on each.
    visits: DevicePtr,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let session = Session::open(SessionOptions::from_env()?)?;
    let trainer = Trainer::create(&session)?;
    let hash = trainer.train(arguments.steps)?;
    println!("rank {}: parameters {hash}", session.rank());
    drop(trainer);
    session.finalize()?;
    Ok(())
}

impl Trainer {
    fn create(session: &Session) -> anyhow::Result<Self> {
        let device = OwnDevice::open()?;
        // Its memory need not be where that of the dead process was, and here it is not.
        for _ in 0..session.incarnation().0 {
            device.alloc(BYTES)?;
        }
        let (parameters, gradient, visits) = (device.alloc(BYTES)?, device.alloc(BYTES)?, device.alloc(4)?);
        device.write(parameters, &vec![0.5; ELEMENTS])?;
        device.write(visits, &[session.rank().0 as f32])?;

        let own = if session.rank().0 == 0 { Some(session.nccl_unique_id()?) } else { None };
        let id = session.exchange("id", own.as_ref().map(|id| id.0.as_slice()))?;
        let id = VirtualUniqueId(id.as_slice().try_into().context("a unique id has 128 bytes")?);
        let communicator = session.comm_init_rank(session.nranks(), &id, session.rank().0, &CommConfig::default())?;
        let clique = Some(communicator);
        // SAFETY: the device and what it gave live until the session is finalized.
        #[allow(unsafe_code)]
        let stream = unsafe {
            session.state_register_foreign("parameters", parameters, BYTES, StateKind::Replicated, clique)?;
            session.state_register_foreign("gradient", gradient, BYTES, StateKind::Scratch, clique)?;
            session.state_register_foreign("visits", visits, 4, StateKind::PerRank, clique)?;
            session.stream_adopt(device.native_stream())?
        };
        Ok(Self { session: session.clone(), device, communicator, stream, parameters, gradient, visits })
    }

    fn train(&self, steps: u32) -> anyhow::Result<String> {
        let mut step = self.session.setup_done()?.step;
        while step < steps {
            match self.step(step) {
                Ok(()) => step += 1,
                Err(error) if error.downcast_ref::<Error>().is_some_and(Error::is_redo) => step = self.session.resume()?.step,
                Err(error) => return Err(error),
            }
        }
        let mut hasher = Sha256::new();
        for buffer in [(self.parameters, ELEMENTS), (self.visits, 1)] {
            self.device.read(buffer.0, buffer.1)?.iter().for_each(|x| hasher.update(x.to_le_bytes()));
        }
        Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    fn step(&self, step: u32) -> anyhow::Result<()> {
        self.session.step_begin(step)?;
        // The application's own work on the device: nothing of it is recorded.
        let visits = self.device.read(self.visits, 1)?[0] + 1.0;
        self.device.write(self.visits, &[visits])?;
        let parameters = self.device.read(self.parameters, ELEMENTS)?;
        let seed = (step + 1) as f32 * (self.session.rank().0 + 1) as f32;
        let gradient: Vec<f32> = parameters.iter().enumerate().map(|(i, p)| p * 0.1 + seed / (i + 7) as f32 + visits * 1e-3).collect();
        self.device.write(self.gradient, &gradient)?;
        let (count, op) = (ELEMENTS as u64, ReduceOp::Sum);
        self.session.all_reduce(self.gradient, self.gradient, count, DataType::Float32, op, self.communicator, self.stream)?;
        if self.session.step_end(&[])? == Decided::Redo {
            return Err(Error::Redo.into());
        }
        let sum = self.device.read(self.gradient, ELEMENTS)?;
        let updated: Vec<f32> = parameters.iter().zip(sum).map(|(p, g)| p - 0.01 * g).collect();
        self.device.write(self.parameters, &updated)?;
        Ok(self.session.step_commit()?)
    }
}
