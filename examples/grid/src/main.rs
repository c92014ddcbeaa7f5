//! A 2 x N grid of ranks: a row shares the parameters (tensor parallel), a column holds the same ones (data parallel).

use anyhow::{Context, ensure};
use clap::Parser;
use journal_core::error::{EVICTED_EXIT, Error};
use journal_core::backend::{DevicePtr, LaunchShape};
use journal_core::handle::VirtualHandle;
use journal_core::nccl::clique::VirtualUniqueId;
use journal_core::nccl::{CommConfig, DataType, ReduceOp};
use journal_core::session::{Decided, Session, SessionOptions, StateKind};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Ranks of a row.
const WIDTH: u32 = 2;
/// Parameters of a rank.
const ELEMENTS: u64 = 5000;

/// Train a toy on a grid of ranks, under `rejoin run`
#[derive(Debug, Parser)]
struct Arguments {
    /// Steps
    #[arg(long, default_value_t = 60)]
    steps: u32,
    /// Shared object with the kernels of the digits example
    #[arg(long)]
    kernels: Option<PathBuf>,
}

struct Grid {
    session: Session,
    tensor: VirtualHandle,
    data: VirtualHandle,
    stream: VirtualHandle,
    uniform: VirtualHandle,
    add_scaled: VirtualHandle,
    parameters: DevicePtr,
    input: DevicePtr,
    activation: DevicePtr,
    gradient: DevicePtr,
    neighbour: DevicePtr,
}

fn main() -> anyhow::Result<()> {
    let outcome = run();
    if let Some(error @ Error::Evicted { .. }) = outcome.as_ref().err().and_then(|error| error.downcast_ref()) {
        eprintln!("{error}");
        std::process::exit(EVICTED_EXIT);
    }
    outcome
}

fn run() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let session = Session::open(SessionOptions::from_env()?)?;
    ensure!(session.nranks() % WIDTH == 0, "the grid has rows of {WIDTH}: give -n a multiple of {WIDTH}");
    let grid = Grid::create(&session, arguments.kernels)?;
    let hash = grid.train(arguments.steps)?;
    println!("rank {} of the grid: parameters {hash}", session.rank());
    drop(grid);
    session.finalize()?;
    Ok(())
}

impl Grid {
    fn create(session: &Session, kernels: Option<PathBuf>) -> anyhow::Result<Self> {
        let rank = session.rank().0;
        let own = if rank == 0 { Some(session.nccl_unique_id()?) } else { None };
        let id = session.exchange("grid", own.as_ref().map(|id| id.0.as_slice()))?;
        let id = VirtualUniqueId(id.as_slice().try_into().context("a unique id has 128 bytes")?);
        let config = CommConfig::default();
        let world = session.comm_init_rank(session.nranks(), &id, rank, &config)?;
        let tensor = session.comm_split(world, (rank / WIDTH) as i32, rank as i32, &config)?.context("a color was given")?;
        let data = session.comm_split(world, (rank % WIDTH) as i32, rank as i32, &config)?.context("a color was given")?;

        let path = kernels
            .or_else(|| journal_core::nccl::library::find_companion("libdigits_kernels.so"))
            .context("libdigits_kernels.so is not beside this program; give --kernels PATH")?;
        let module = session.module_load(&std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?)?;
        let buffer = |name: &str, elements: u64, kind, clique| -> Result<DevicePtr, Error> {
            let at = session.mem_alloc(4 * elements)?;
            session.state_register(name, at, 4 * elements, kind, Some(clique))?;
            Ok(at)
        };
        let grid = Self {
            session: session.clone(),
            tensor,
            data,
            stream: session.stream_create(0, 0)?,
            uniform: session.module_function(module, "uniform")?,
            add_scaled: session.module_function(module, "add_scaled")?,
            // The same on all ranks of a column, so a donor is found there.
            parameters: buffer("parameters", ELEMENTS, StateKind::Replicated, data)?,
            input: buffer("input", ELEMENTS, StateKind::Scratch, world)?,
            activation: buffer("activation", ELEMENTS, StateKind::Scratch, world)?,
            gradient: buffer("gradient", ELEMENTS, StateKind::Scratch, world)?,
            neighbour: buffer("neighbour", 1, StateKind::Scratch, world)?,
        };
        grid.fill(grid.parameters, 1 + u64::from(rank % WIDTH))?;
        session.stream_synchronize(grid.stream)?;
        Ok(grid)
    }

    fn launch(&self, function: VirtualHandle, parameters: &[&[u8]]) -> Result<(), Error> {
        let shape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
        self.session.launch(function, shape, self.stream, &parameters.concat())
    }

    fn fill(&self, to: DevicePtr, seed: u64) -> Result<(), Error> {
        let (to, limit) = (to.0.to_ne_bytes(), 0.5_f32.to_ne_bytes());
        self.launch(self.uniform, &[&to, &ELEMENTS.to_ne_bytes(), &seed.to_ne_bytes(), &limit])
    }

    fn add(&self, y: DevicePtr, x: DevicePtr, elements: u64, factor: f32) -> Result<(), Error> {
        self.launch(self.add_scaled, &[&y.0.to_ne_bytes(), &x.0.to_ne_bytes(), &elements.to_ne_bytes(), &factor.to_ne_bytes()])
    }

    fn train(&self, steps: u32) -> anyhow::Result<String> {
        let mut step = self.session.setup_done()?.step;
        loop {
            let outcome = if step < steps { self.step(step).map(|()| None) } else { self.hash().map(Some) };
            match outcome {
                Ok(None) => step += 1,
                Ok(Some(hash)) => return Ok(hash),
                Err(Error::Redo) => step = self.session.resume()?.step,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn step(&self, step: u32) -> Result<(), Error> {
        let s = &self.session;
        let (row, rows) = (s.comm_user_rank(self.data)?, s.comm_count(self.data)?);
        s.step_begin(step)?;
        self.fill(self.input, u64::from(step) << 8 | u64::from(row))?;
        self.add(self.activation, self.input, ELEMENTS, 1.0)?;
        self.add(self.activation, self.parameters, ELEMENTS, 1.0)?;
        s.all_reduce(self.activation, self.activation, ELEMENTS, DataType::Float32, ReduceOp::Sum, self.tensor, self.stream)?;
        self.add(self.gradient, self.activation, ELEMENTS, 1.0 / rows as f32)?;
        s.all_reduce(self.gradient, self.gradient, ELEMENTS, DataType::Float32, ReduceOp::Sum, self.data, self.stream)?;
        if rows > 1 {
            s.group_start()?;
            let sent = s.nccl_send(self.gradient, 1, DataType::Float32, (row + 1) % rows, self.data, self.stream);
            let received = s.nccl_recv(self.neighbour, 1, DataType::Float32, (row + rows - 1) % rows, self.data, self.stream);
            s.group_end()?;
            sent.and(received)?;
            self.add(self.gradient, self.neighbour, 1, 0.5)?;
        }
        if s.step_end(&[])? == Decided::Redo {
            return Err(Error::Redo);
        }
        self.add(self.parameters, self.gradient, ELEMENTS, -0.05)?;
        s.step_commit()
    }

    fn hash(&self) -> Result<String, Error> {
        let mut bytes = vec![0; 4 * ELEMENTS as usize];
        self.session.memcpy_dtoh(&mut bytes, self.parameters)?;
        Ok(Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect())
    }
}
