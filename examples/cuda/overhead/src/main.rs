//! What recording costs a call on a GPU; see README.md.

mod direct;
mod timing;

use anyhow::Context;
use direct::Direct;
use journal_core::backend::cuda::probe;
use journal_core::backend::{DevicePtr, LaunchShape};
use journal_core::handle::VirtualHandle;
use journal_core::nccl::clique::VirtualUniqueId;
use journal_core::nccl::{CommConfig, DataType, ReduceOp};
use journal_core::session::{Decided, Session, SessionOptions, StateKind};
use std::process::ExitCode;
use timing::{Samples, Way, measure};

const LAUNCHES: usize = 200;
const ROUNDS: usize = 31;
const LARGEST: u64 = 64 << 20;
const ONE: LaunchShape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
/// An empty kernel.
const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing(.param .u64 a)\n{\n    ret;\n}\n\0";

/// What one rank measures with.
struct Rank {
    session: Session,
    stream: VirtualHandle,
    communicator: VirtualHandle,
    nothing: VirtualHandle,
    send: DevicePtr,
    recv: DevicePtr,
    direct: Direct,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Err(error) = probe() {
        println!("skipped: {error}");
        return Ok(ExitCode::from(77));
    }
    let rank = Rank::open()?;
    let tells = rank.session.rank().0 == 0;
    let mut step = rank.session.setup_done()?.step;
    if tells {
        println!("{} ranks; medians of {ROUNDS} batches\n", rank.session.nranks());
        println!("| call | bytes | | returns after ns | over non-blocking ns | done after us | ratio to blocking |\n|---|---:|---|---:|---:|---:|---:|");
    }
    let mut rows = vec![("empty kernel", 0, LAUNCHES)];
    rows.extend([1 << 10, 64 << 10, 1 << 20, 8 << 20, LARGEST].map(|bytes: u64| ("all-reduce", bytes, if bytes > 1 << 20 { 4 } else { 20 })));
    for (what, bytes, calls) in rows {
        let mut samples = Samples::default();
        for round in 0..=ROUNDS {
            rank.session.step_begin(step)?;
            for way in [Way::Blocking, Way::NonBlocking, Way::Rejoin] {
                let times = measure(calls, || rank.call(way, bytes), || rank.finish(way))?;
                // The first batch connects and warms up.
                if round > 0 {
                    samples.add(way, times);
                }
            }
            match rank.session.step_end(&[])? {
                Decided::Go => rank.session.step_commit()?,
                Decided::Redo => anyhow::bail!("a rank was lost while measuring"),
            }
            step += 1;
        }
        if tells {
            samples.print(what, bytes);
        }
    }
    rank.session.finalize()?;
    Ok(ExitCode::SUCCESS)
}

impl Rank {
    fn open() -> anyhow::Result<Self> {
        let options = SessionOptions::from_env().context("start this with `rejoin run --backend cuda`")?;
        let library = options.nccl.clone();
        let session = Session::open(options)?;
        let first = session.rank().0 == 0;
        let stream = session.stream_create(1, 0)?;
        let (send, recv) = (session.mem_alloc(LARGEST)?, session.mem_alloc(LARGEST)?);
        for (name, at) in [("send", send), ("recv", recv)] {
            session.state_register(name, at, LARGEST, StateKind::Scratch, None)?;
        }
        let nothing = session.module_function(session.module_load(PTX)?, "nothing")?;
        let id = first.then(|| session.nccl_unique_id()).transpose()?;
        let id = session.exchange("id", id.as_ref().map(|id| id.0.as_slice()))?;
        let id = VirtualUniqueId(id.try_into().map_err(|_| anyhow::anyhow!("a unique id of another size"))?);
        let communicator = session.comm_init_rank(session.nranks(), &id, session.rank().0, &CommConfig::default())?;
        let direct = Direct::open(&session, library.as_deref(), PTX)?;
        Ok(Self { session, stream, communicator, nothing, send, recv, direct })
    }

    fn call(&self, way: Way, bytes: u64) -> anyhow::Result<()> {
        let count = bytes / 4;
        match (way, bytes) {
            (Way::Rejoin, 0) => self.session.launch(self.nothing, ONE, self.stream, &self.send.0.to_le_bytes())?,
            (Way::Rejoin, _) => {
                let (op, datatype) = (ReduceOp::Sum, DataType::Float32);
                self.session.all_reduce(self.send, self.recv, count, datatype, op, self.communicator, self.stream)?;
            }
            (_, 0) => self.direct.launch(self.send)?,
            (_, _) => self.direct.all_reduce(way, self.send, self.recv, count)?,
        }
        Ok(())
    }

    fn finish(&self, way: Way) -> anyhow::Result<()> {
        match way {
            Way::Rejoin => Ok(self.session.stream_synchronize(self.stream)?),
            _ => self.direct.finish(),
        }
    }
}
