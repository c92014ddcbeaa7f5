//! Streams: the C struct of callers, and streams of this library's own.
//!
//! A stream of this library serves NULL (one default stream a communicator family: the ranks of one
//! process stand for devices of their own) and C programs that have no host backend.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use rejoin_host_stream::{
    HOST_STREAM_ABI, HOST_STREAM_BUSY, HOST_STREAM_LOST, HOST_STREAM_MAGIC, HOST_STREAM_OK, HostStream, HostWork,
};

use crate::abi::StreamHandle;
use crate::error::{Error, Result};

/// Work for a stream. Dropped without being run when the stream refuses it or its device is lost.
pub type Work = Box<dyn FnOnce() + Send>;

/// Where to enqueue: checked, and cheap to copy around.
#[derive(Debug, Clone)]
pub enum Target {
    /// A stream of the caller, by address; it outlives the work it was given.
    Native(usize),
    /// One of ours.
    Own(Arc<OwnStream>),
}

impl Target {
    /// Checks a stream argument. NULL and CUDA's two special values mean `default`.
    pub fn from_handle(handle: StreamHandle, default: &DefaultStream) -> Result<Self> {
        const LEGACY: usize = 1;
        const PER_THREAD: usize = 2;
        let address = handle.expose_provenance();
        if address == 0 || address == LEGACY || address == PER_THREAD {
            return Ok(Self::Own(Arc::clone(&default.0)));
        }
        check(handle.cast()).map(|()| Self::Native(address))
    }

    /// True when both are the same stream.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Native(a), Self::Native(b)) => a == b,
            (Self::Own(a), Self::Own(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// True when the stream drops work that it will never run, so that one may wait for it.
    pub fn drops_lost_work(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Native(address) => {
                let stream = core::ptr::with_exposed_provenance::<HostStream>(*address);
                // SAFETY: checked by from_handle; the caller keeps the stream alive during its call.
                unsafe { (*stream).enqueue_or_drop.is_some() }
            }
        }
    }

    /// Appends `work` to the stream.
    pub fn enqueue(&self, work: Work) -> Result<()> {
        match self {
            Self::Own(stream) => {
                stream.push(work);
                Ok(())
            }
            Self::Native(address) => {
                let stream = core::ptr::with_exposed_provenance_mut::<HostStream>(*address);
                // SAFETY: checked by from_handle; the caller keeps the stream alive during its call.
                let enqueue = unsafe { (*stream).enqueue };
                // SAFETY: as above.
                let enqueue_or_drop = unsafe { (*stream).enqueue_or_drop };
                let arg = Box::into_raw(Box::new(work));
                let code = match enqueue_or_drop {
                    // SAFETY: the stream's own function; run_boxed or drop_boxed takes the ownership of `arg`.
                    Some(enqueue) => unsafe { enqueue(stream, run_boxed, drop_boxed, arg.cast()) },
                    // SAFETY: the stream's own function; run_boxed takes the ownership of `arg`.
                    None => unsafe { enqueue(stream, run_boxed, arg.cast()) },
                };
                if code == HOST_STREAM_OK {
                    return Ok(());
                }
                // SAFETY: a stream that refuses work leaves `arg` with us; it is the box made above.
                drop(unsafe { Box::from_raw(arg) });
                Err(Error::DeviceLost)
            }
        }
    }
}

/// Checks that `stream` is a host stream of this version.
fn check(stream: *mut HostStream) -> Result<()> {
    let address = stream.expose_provenance();
    if address < 4096 || !stream.is_aligned() {
        return Err(Error::argument(format!("stream {address:#x} is not a host stream")));
    }
    // SAFETY: a stream argument is NULL or points to a live host stream: the contract of every call that
    // takes one. The magic catches other objects.
    let magic = unsafe { (*stream).magic };
    if magic != HOST_STREAM_MAGIC {
        return Err(Error::argument(format!("stream {address:#x} is not a host stream (its magic is {magic:#x})")));
    }
    // SAFETY: as above; every version has it there.
    let abi = unsafe { (*stream).abi };
    if abi != HOST_STREAM_ABI {
        return Err(Error::argument(format!("stream {address:#x} has abi {abi}, this library {HOST_STREAM_ABI}")));
    }
    Ok(())
}

/// The [`HostWork`] of this library: `arg` is a boxed [`Work`].
unsafe extern "C" fn run_boxed(arg: *mut c_void) {
    // SAFETY: enqueue gave us the box, once.
    let work = unsafe { Box::from_raw(arg.cast::<Work>()) };
    // A panic must not unwind into the maker's worker.
    let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(work));
}

/// Frees work that is never run.
unsafe extern "C" fn drop_boxed(arg: *mut c_void) {
    // SAFETY: enqueue gave the stream the box, once.
    drop(unsafe { Box::from_raw(arg.cast::<Work>()) });
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    running: bool,
    started: bool,
    closed: bool,
}

/// An in-order queue with one worker thread, started at the first use.
#[derive(Default)]
pub struct OwnStream {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl core::fmt::Debug for OwnStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OwnStream")
    }
}

/// All own streams, for ncclHostStreamSynchronize(NULL).
static ALL: Mutex<Vec<Weak<OwnStream>>> = Mutex::new(Vec::new());
static CREATED: AtomicUsize = AtomicUsize::new(0);

impl OwnStream {
    /// A new stream.
    pub fn create() -> Arc<Self> {
        let stream = Arc::new(Self::default());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|stream| stream.strong_count() != 0);
        all.push(Arc::downgrade(&stream));
        stream
    }

    /// All streams that exist now.
    pub fn all() -> Vec<Arc<Self>> {
        ALL.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// Appends `work`; the worker thread is detached, so that a stuck one never holds up process exit.
    pub fn push(self: &Arc<Self>, work: Work) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(work);
        if !queue.started {
            queue.started = true;
            let stream = Arc::clone(self);
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let named = std::thread::Builder::new().name(format!("hostnccl-strm{number}"));
            if named.spawn(move || stream.work()).is_err() {
                // No thread to be had: keep the order and run it here, late but done.
                queue.started = false;
                drop(queue);
                self.drain();
                return;
            }
        }
        self.changed.notify_all();
    }

    fn drain(&self) {
        loop {
            let next = self.queue.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front();
            let Some(work) = next else { return };
            work();
        }
    }

    /// The worker owns the stream, so what is queued runs even if its maker destroys it at once; it ends
    /// when the stream is closed and the queue is empty.
    fn work(&self) {
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.running = false;
            self.changed.notify_all();
            while queue.waiting.is_empty() && !queue.closed {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(work) = queue.waiting.pop_front() else { return };
            queue.running = true;
            drop(queue);
            let _ = std::panic::catch_unwind(core::panic::AssertUnwindSafe(work));
        }
    }

    /// True when everything pushed so far has run.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.is_empty() && !queue.running
    }

    /// Waits until it is idle. Behind a stuck collective that is for ever, as with CUDA.
    pub fn synchronize(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while !queue.waiting.is_empty() || queue.running {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the worker end after what is queued.
    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }
}

/// The default stream of a family of communicators; its worker ends with the last of them.
#[derive(Debug)]
pub struct DefaultStream(pub Arc<OwnStream>);

impl Default for DefaultStream {
    fn default() -> Self {
        Self(OwnStream::create())
    }
}

impl Drop for DefaultStream {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A stream for a C program: the struct, and behind `owner` the queue.
pub fn create_native() -> *mut HostStream {
    let owner = Arc::into_raw(OwnStream::create());
    Box::into_raw(Box::new(HostStream {
        magic: HOST_STREAM_MAGIC,
        abi: HOST_STREAM_ABI,
        size: size_of::<HostStream>() as u32,
        enqueue: native_enqueue,
        query: native_query,
        owner: owner.cast_mut().cast(),
        enqueue_or_drop: Some(native_enqueue_or_drop),
        reserved: [0; 2],
    }))
}

/// The queue of a stream made by [`create_native`]; an error for streams of other makers.
///
/// # Safety
/// `stream` is NULL or a live host stream.
pub unsafe fn own_of(stream: *mut HostStream) -> Result<Arc<OwnStream>> {
    check(stream)?;
    // SAFETY: from_handle checked it, and the caller keeps it alive.
    let enqueue = unsafe { (*stream).enqueue };
    // SAFETY: as above.
    let owner = unsafe { (*stream).owner };
    if !core::ptr::eq(enqueue as *const (), native_enqueue as *const ()) {
        return Err(Error::argument("the stream was not made by ncclHostStreamCreate"));
    }
    let owner = owner.cast::<OwnStream>().cast_const();
    // SAFETY: `owner` came from Arc::into_raw in create_native and is released by destroy_native only.
    unsafe { Arc::increment_strong_count(owner) };
    // SAFETY: the count added above is ours.
    Ok(unsafe { Arc::from_raw(owner) })
}

/// Asks any host stream.
///
/// # Safety
/// `stream` is NULL or a live host stream.
pub unsafe fn query(stream: *mut HostStream) -> Result<i32> {
    check(stream)?;
    // SAFETY: checked, and the caller keeps it alive.
    let query = unsafe { (*stream).query };
    // SAFETY: the stream's own function.
    Ok(unsafe { query(stream) })
}

/// Frees what [`create_native`] made; queued work still runs.
///
/// # Safety
/// `stream` came from [`create_native`] and is used by nobody afterwards.
pub unsafe fn destroy_native(stream: *mut HostStream) -> Result<()> {
    // SAFETY: the caller's promise.
    let own = unsafe { own_of(stream) }?;
    own.close();
    // SAFETY: the count that create_native left in `owner`.
    unsafe { Arc::decrement_strong_count(Arc::as_ptr(&own)) };
    // SAFETY: made by Box::into_raw in create_native. Its magic goes first, so that a stale use is told.
    let mut stream = unsafe { Box::from_raw(stream) };
    stream.magic = 0;
    Ok(())
}

unsafe extern "C" fn native_enqueue(stream: *mut HostStream, work: HostWork, arg: *mut c_void) -> i32 {
    // SAFETY: called with the stream that it is a field of.
    let Ok(own) = (unsafe { own_of(stream) }) else { return HOST_STREAM_LOST };
    let arg = arg.expose_provenance();
    own.push(Box::new(move || {
        // SAFETY: the contract of HostWork: called once, in order, with the arg given to enqueue.
        unsafe { work(core::ptr::with_exposed_provenance_mut(arg)) };
    }));
    HOST_STREAM_OK
}

/// These streams run everything, so `drop` is never needed.
unsafe extern "C" fn native_enqueue_or_drop(
    stream: *mut HostStream,
    work: HostWork,
    _drop: HostWork,
    arg: *mut c_void,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { native_enqueue(stream, work, arg) }
}

unsafe extern "C" fn native_query(stream: *mut HostStream) -> i32 {
    // SAFETY: called with the stream that it is a field of.
    match unsafe { own_of(stream) } {
        Ok(own) if own.is_idle() => HOST_STREAM_OK,
        Ok(_) => HOST_STREAM_BUSY,
        Err(_) => HOST_STREAM_LOST,
    }
}
