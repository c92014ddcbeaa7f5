//! Ranks as threads of one process, with a watchdog instead of time limits in each test.
#![allow(dead_code, unsafe_code)]

use core::ffi::c_void;
use std::ffi::CStr;
use std::io::Write;
use std::sync::{Once, mpsc};
use std::time::{Duration, Instant};

use rejoin_host_nccl::abi::{CommHandle, IN_PROGRESS, NcclUniqueId, SUCCESS};
use rejoin_host_nccl::capi::*;
use rejoin_host_nccl::config::{NcclConfig, UNDEFINED};
use rejoin_host_stream::HostStream;

/// Far above what any test needs on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Runs `body`; a test that hangs ends the process with its name instead of hanging CI.
pub fn watched<T>(name: &str, body: impl FnOnce() -> T) -> T {
    // The process may end in the middle of a test: its message must not stay captured.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| drop(writeln!(std::io::stderr(), "{info}"))));
    });
    let (done, wait) = mpsc::channel::<()>();
    let text = name.to_owned();
    let watchdog = std::thread::spawn(move || {
        if wait.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = writeln!(std::io::stderr(), "watchdog: {text} did not end within {LIMIT:?}");
            std::process::abort();
        }
    });
    let result = body();
    drop(done);
    watchdog.join().expect("the watchdog does not panic");
    result
}

/// Polls `ready` without sleeping a fixed time; panics with `what` after [`LIMIT`].
pub fn poll_until(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !ready() {
        assert!(Instant::now() < end, "{what} within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// Repeats a call that is refused each time until its text is the last one: the text is one for the whole
/// process, and other tests of it may be refused something in between.
#[track_caller]
pub fn refused_with(text: &str, mut refused: impl FnMut()) {
    poll_until(&format!("{text:?} as the last error"), || {
        refused();
        last_error().contains(text)
    });
}

pub fn last_error() -> String {
    // SAFETY: the text is valid until this thread asks again.
    unsafe { CStr::from_ptr(ncclGetLastError(core::ptr::null_mut())) }.to_string_lossy().into_owned()
}

#[track_caller]
pub fn ok(code: i32) {
    assert_eq!(code, SUCCESS, "{}", last_error());
}

/// Success, now or later.
#[track_caller]
pub fn started(code: i32) {
    assert!(code == SUCCESS || code == IN_PROGRESS, "{code}: {}", last_error());
}

pub fn unique_id() -> NcclUniqueId {
    let mut id = NcclUniqueId { internal: [0; 128] };
    // SAFETY: a writable id.
    ok(unsafe { ncclGetUniqueId(&mut id) });
    id
}

pub fn config(blocking: bool) -> NcclConfig {
    NcclConfig {
        size: size_of::<NcclConfig>(),
        magic: 0xcafe_beef,
        version: 23_007,
        blocking: i32::from(blocking),
        cga_cluster_size: UNDEFINED,
        min_ctas: UNDEFINED,
        max_ctas: UNDEFINED,
        net_name: core::ptr::null(),
        split_share: UNDEFINED,
        traffic_class: UNDEFINED,
        comm_name: core::ptr::null(),
        collnet_enable: UNDEFINED,
        cta_policy: UNDEFINED,
        shrink_share: UNDEFINED,
        nvls_ctas: UNDEFINED,
        n_channels_per_net_peer: UNDEFINED,
        nvlink_centric_sched: UNDEFINED,
        graph_usage_mode: UNDEFINED,
        num_rma_ctx: UNDEFINED,
        max_p2p_peers: UNDEFINED,
        graph_stream_ordering: UNDEFINED,
    }
}

/// A communicator handle that can go to another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comm(pub CommHandle);
// SAFETY: a handle is a number; the library takes it from any thread.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Comm {
    pub fn init(nranks: usize, id: NcclUniqueId, rank: usize, blocking: bool) -> Self {
        let mut comm = core::ptr::null_mut();
        let config = config(blocking);
        // SAFETY: outputs and config live through the call; a non-blocking handle is stored at once.
        let code = unsafe {
            ncclCommInitRankConfig(&mut comm, nranks as i32, id, rank as i32, (&raw const config).cast())
        };
        started(code);
        let comm = Self(comm);
        comm.wait();
        comm
    }

    pub fn result(self) -> i32 {
        let mut result = -1;
        // SAFETY: a writable output.
        ok(unsafe { ncclCommGetAsyncError(self.0, &mut result) });
        result
    }

    /// Polls until the last call is done.
    #[track_caller]
    pub fn wait(self) {
        poll_until("the communicator is ready", || self.result() != IN_PROGRESS);
        ok(self.result());
    }

    pub fn rank(self) -> usize {
        let mut rank = -1;
        // SAFETY: a writable output.
        ok(unsafe { ncclCommUserRank(self.0, &mut rank) });
        rank as usize
    }

    pub fn count(self) -> usize {
        let mut count = -1;
        // SAFETY: a writable output.
        ok(unsafe { ncclCommCount(self.0, &mut count) });
        count as usize
    }

    pub fn abort(self) {
        ok(ncclCommAbort(self.0));
    }

    pub fn destroy(self) {
        ok(ncclCommDestroy(self.0));
    }
}

/// A stream of the library.
pub struct Stream(pub *mut HostStream);
// SAFETY: streams take work from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn create() -> Self {
        let mut stream = core::ptr::null_mut();
        // SAFETY: a writable output.
        ok(unsafe { ncclHostStreamCreate(&mut stream) });
        Self(stream)
    }

    pub fn raw(&self) -> *mut c_void {
        self.0.cast()
    }

    pub fn synchronize(&self) {
        // SAFETY: a live stream.
        ok(unsafe { ncclHostStreamSynchronize(self.0) });
    }

    pub fn is_idle(&self) -> bool {
        // SAFETY: a live stream.
        let code = unsafe { ncclHostStreamQuery(self.0) };
        started(code);
        code == SUCCESS
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after its owner.
        ok(unsafe { ncclHostStreamDestroy(self.0) });
    }
}

/// One rank of a test.
pub struct Rank {
    pub rank: usize,
    pub nranks: usize,
    pub comm: Comm,
    pub stream: Stream,
}

impl Rank {
    /// All-reduce of one f32 a rank; the sum.
    pub fn sum(&self, value: f32) -> f32 {
        sum_on(self.comm, &self.stream, value)
    }
}

/// All-reduce of one f32 on any communicator.
pub fn sum_on(comm: Comm, stream: &Stream, value: f32) -> f32 {
    let mut buffer = [value];
    let at = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: the buffer lives until the stream is idle.
    started(unsafe { ncclAllReduce(at, at, 1, 7, 0, comm.0, stream.raw()) });
    comm.wait();
    stream.synchronize();
    // SAFETY: the buffer of this frame, read after the operation has left the stream.
    unsafe { at.cast::<f32>().read() }
}

/// Runs `body` once a rank, each on a thread of its own, and destroys the communicators afterwards.
pub fn ranks<T: Send>(name: &str, nranks: usize, blocking: bool, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
    threads(name, nranks, |rank, id| {
        let rank = Rank { rank, nranks, comm: Comm::init(nranks, id, rank, blocking), stream: Stream::create() };
        let result = body(&rank);
        rank.stream.synchronize();
        rank.comm.destroy();
        result
    })
}

/// Threads with a common unique id; `body` makes and ends its communicators.
pub fn threads<T: Send>(name: &str, nranks: usize, body: impl Fn(usize, NcclUniqueId) -> T + Sync) -> Vec<T> {
    watched(name, || {
        let id = unique_id();
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..nranks)
                .map(|rank| {
                    let body = &body;
                    s.spawn(move || {
                        let guard = AbortOnPanic(name, rank);
                        let result = body(rank, id);
                        core::mem::forget(guard);
                        result
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("the rank does not panic")).collect()
        })
    })
}

/// The other ranks would wait for a rank that panicked: end the process, after its message.
struct AbortOnPanic<'a>(&'a str, usize);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        let _ = writeln!(std::io::stderr(), "{}: rank {} panicked", self.0, self.1);
        std::process::exit(101);
    }
}
