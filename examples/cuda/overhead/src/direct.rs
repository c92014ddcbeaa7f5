//! The same calls without Rejoin: the driver's own launch, NCCL's own all-reduce.

use crate::timing::Way;
use anyhow::{Context, ensure};
use cudarc::driver::sys as cuda;
use journal_core::backend::{BackendKind, DevicePtr};
use journal_core::nccl::library::{NcclLibrary, locate};
use journal_core::nccl::{Collective, CommConfig, DataType, Progress, RealCommunicator, ReduceOp, UNIQUE_ID_BYTES};
use journal_core::session::Session;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);

/// A stream, a kernel and two communicators of the driver's and NCCL's own.
pub struct Direct {
    nccl: Arc<NcclLibrary>,
    stream: cuda::CUstream,
    nothing: cuda::CUfunction,
    blocking: cudarc::nccl::sys::ncclComm_t,
    non_blocking: RealCommunicator,
}

fn check(what: &str, code: cuda::CUresult) -> anyhow::Result<()> {
    ensure!(code as i32 == 0, "{what} failed with {}", code as i32);
    Ok(())
}

fn unique_id(session: &Session, nccl: &NcclLibrary, key: &str) -> anyhow::Result<[u8; UNIQUE_ID_BYTES]> {
    let made = (session.rank().0 == 0).then(|| nccl.unique_id()).transpose()?;
    let id = session.exchange(key, made.as_ref().map(<[u8; UNIQUE_ID_BYTES]>::as_slice))?;
    id.try_into().map_err(|_| anyhow::anyhow!("a unique id of another size"))
}

impl Direct {
    /// Everything made; the session's context is the current one.
    pub fn open(session: &Session, library: Option<&Path>, image: &[u8]) -> anyhow::Result<Self> {
        let nccl = Arc::new(NcclLibrary::load(&locate(library, BackendKind::Cuda))?);
        let (mut stream, mut module, mut nothing) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the outputs live; the image ends with a NUL; flag 1 is a non-blocking stream.
        unsafe {
            check("cuStreamCreate", cuda::cuStreamCreate(&raw mut stream, 1))?;
            check("cuModuleLoadData", cuda::cuModuleLoadData(&raw mut module, image.as_ptr().cast()))?;
            check("cuModuleGetFunction", cuda::cuModuleGetFunction(&raw mut nothing, module, c"nothing".as_ptr()))?;
        }
        let (nranks, rank) = (session.nranks() as i32, session.rank().0 as i32);
        let id = unique_id(session, &nccl, "direct.blocking")?.map(|byte| byte as core::ffi::c_char);
        let id = cudarc::nccl::sys::ncclUniqueId { internal: id };
        let mut blocking = std::ptr::null_mut();
        // SAFETY: the output lives; no configuration means a blocking communicator.
        let made = unsafe { nccl.comm_init_rank_config(&raw mut blocking, nranks, id, rank, std::ptr::null_mut()) }?;
        ensure!(made.code == 0, "{} failed with {}", made.call, made.code);
        let id = unique_id(session, &nccl, "direct.non-blocking")?;
        let mut non_blocking = RealCommunicator::init_rank(&nccl, nranks, &id, rank, &CommConfig::default())?;
        let deadline = Instant::now() + WATCHDOG;
        while non_blocking.progress() != Progress::Ready {
            ensure!(Instant::now() < deadline, "the non-blocking communicator is not ready: {:?}", non_blocking.progress());
            std::thread::yield_now();
        }
        Ok(Self { nccl, stream, nothing, blocking, non_blocking })
    }

    /// An empty kernel with one parameter.
    pub fn launch(&self, parameter: DevicePtr) -> anyhow::Result<()> {
        let mut value = parameter.0;
        let mut parameters = [(&raw mut value).cast::<core::ffi::c_void>()];
        // SAFETY: the kernel takes one 8-byte parameter, which is read before the call returns.
        let code = unsafe {
            cuda::cuLaunchKernel(self.nothing, 1, 1, 1, 1, 1, 1, 0, self.stream, parameters.as_mut_ptr(), std::ptr::null_mut())
        };
        check("cuLaunchKernel", code)
    }

    /// `ncclAllReduce` of `count` floats.
    pub fn all_reduce(&self, way: Way, send: DevicePtr, recv: DevicePtr, count: u64) -> anyhow::Result<()> {
        let (datatype, op) = (DataType::Float32 as i32, ReduceOp::Sum as i32);
        if way == Way::Blocking {
            let (from, to) = (send.0 as *const core::ffi::c_void, recv.0 as *mut core::ffi::c_void);
            // SAFETY: both buffers hold `count` floats; communicator and stream live.
            let result = unsafe { self.nccl.all_reduce(from, to, count as usize, datatype, op, self.blocking, self.stream.cast()) }?;
            ensure!(result.code == 0, "ncclAllReduce failed with {}", result.code);
            return Ok(());
        }
        self.non_blocking.enqueue(Collective::AllReduce { send, recv, count, datatype, op }, self.stream.cast())?;
        let started = Instant::now();
        loop {
            match self.non_blocking.state() {
                Progress::Ready => return Ok(()),
                Progress::InProgress => ensure!(started.elapsed() < WATCHDOG, "a launch did not come"),
                Progress::Failed(error) => return Err(error).context("ncclAllReduce"),
            }
        }
    }

    /// Waits for the stream.
    pub fn finish(&self) -> anyhow::Result<()> {
        // SAFETY: the stream lives.
        check("cuStreamSynchronize", unsafe { cuda::cuStreamSynchronize(self.stream) })
    }
}
