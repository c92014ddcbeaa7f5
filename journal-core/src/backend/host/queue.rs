//! A stream: an in-order queue with a worker thread, behind the C struct that host-nccl enqueues on.
//!
//! As with CUDA's legacy default stream, work of the default stream waits for earlier work of the other streams
//! and they wait for it, unless they were created with the flag non-blocking.

use super::engine::{Engine, Fault, lock};
use crate::backend::{DeviceError, DeviceResult};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use rejoin_host_stream::{
    HOST_STREAM_ABI, HOST_STREAM_BUSY, HOST_STREAM_LOST, HOST_STREAM_MAGIC, HOST_STREAM_OK, HostStream, HostWork,
};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long one look at a condition lasts before the next; nothing depends on it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Work of the backend itself; an error is a device fault.
pub(super) type Operation = Box<dyn FnOnce() -> Result<(), String> + Send>;

pub(super) enum Item {
    Own(Operation),
    Native(Native),
    /// Waits for a recorded event.
    Await(Arc<Point>),
    /// Waits until another stream has completed that many items.
    After(Arc<Queue>, u64),
}

/// Work of NCCL. Run once; or, when the stream never runs it, dropped by its own function, if it has one.
pub(super) struct Native {
    work: HostWork,
    drop: Option<HostWork>,
    arg: *mut c_void,
}
// SAFETY: `HostStream::enqueue` hands the argument over to the worker thread.
unsafe impl Send for Native {}

impl Native {
    fn run(self) {
        let native = core::mem::ManuallyDrop::new(self);
        // SAFETY: called once, with the argument given to `enqueue`; never dropped after.
        unsafe { (native.work)(native.arg) };
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: called once, with the argument given to `enqueue_or_drop`, and `work` never runs.
            unsafe { drop(self.arg) };
        }
    }
}

/// A place in a stream: reached when everything before it has run.
#[derive(Debug, Default)]
pub(super) struct Point {
    reached: OnceLock<Instant>,
    abandoned: AtomicBool,
}

impl Point {
    pub(super) fn reach(&self) {
        let _ = self.reached.set(Instant::now());
    }

    /// Its time, once reached.
    pub(super) fn time(&self) -> Option<Instant> {
        self.reached.get().copied()
    }
}

/// Dropped unreached (the stream was lost): nobody may wait for it any more.
pub(super) struct Reach(pub(super) Arc<Point>);

impl Drop for Reach {
    fn drop(&mut self) {
        // SYNC: Release; pairs with the Acquire in `work`.
        self.0.abandoned.store(true, Ordering::Release);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Destroyed: what is queued still runs.
    Draining,
    /// Destroyed, and everything has run.
    Drained,
    /// Lost or reset: nothing runs any more.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    Nothing,
    Own,
    Native,
}

struct Inner {
    items: VecDeque<Item>,
    enqueued: u64,
    completed: u64,
    phase: Phase,
    running: Running,
}

pub(super) struct Queue {
    engine: Arc<Engine>,
    is_default: bool,
    non_blocking: bool,
    inner: Mutex<Inner>,
    wake: Condvar,
    native: OnceLock<NativeStream>,
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let inner = lock(&self.inner);
        write!(f, "Queue({:?}, {:?}, {}/{})", inner.phase, inner.running, inner.completed, inner.enqueued)
    }
}

#[derive(Clone, Copy)]
struct NativeStream(*mut HostStream);
// SAFETY: the struct is constant and never freed; its functions may be called from any thread.
unsafe impl Send for NativeStream {}
// SAFETY: as above.
unsafe impl Sync for NativeStream {}

/// All there ever were: a pointer that NCCL holds stays good, and leak checkers see that it is kept.
static NATIVE_STREAMS: Mutex<Vec<NativeStream>> = Mutex::new(Vec::new());

impl Queue {
    /// Makes a stream and starts its worker.
    pub(super) fn start(engine: &Arc<Engine>, is_default: bool, non_blocking: bool) -> DeviceResult<Arc<Self>> {
        let inner =
            Inner { items: VecDeque::new(), enqueued: 0, completed: 0, phase: Phase::Open, running: Running::Nothing };
        let queue = Arc::new(Self {
            engine: Arc::clone(engine),
            is_default,
            non_blocking,
            inner: Mutex::new(inner),
            wake: Condvar::new(),
            native: OnceLock::new(),
        });
        let worker = Arc::clone(&queue);
        std::thread::Builder::new().name(format!("rejoin-stream{}", engine.ordinal)).spawn(move || worker.work()).map_err(
            |error| DeviceError::Call {
                call: "stream_create",
                code: error.raw_os_error().unwrap_or(-1),
                text: format!("no worker thread: {error}; check ulimit -u"),
            },
        )?;
        // The struct and one reference are never freed: NCCL may hold the pointer longer than the stream
        // lives, and gets HOST_STREAM_LOST then.
        let stream = HostStream {
            magic: HOST_STREAM_MAGIC,
            abi: HOST_STREAM_ABI,
            size: size_of::<HostStream>() as u32,
            enqueue: native_enqueue,
            query: native_query,
            owner: Arc::into_raw(Arc::clone(&queue)).cast_mut().cast(),
            enqueue_or_drop: Some(native_enqueue_or_drop),
            reserved: [0; 2],
        };
        let native = NativeStream(Box::into_raw(Box::new(stream)));
        lock(&NATIVE_STREAMS).push(native);
        let _ = queue.native.set(native);
        Ok(queue)
    }

    /// What NCCL gets.
    pub(super) fn native(&self) -> *mut HostStream {
        self.native.get().map_or(core::ptr::null_mut(), |native| native.0)
    }

    /// Appends. False when the stream is destroyed or lost: the item is given back.
    pub(super) fn enqueue(&self, item: Item) -> Result<(), Item> {
        if self.non_blocking {
            return self.push(item);
        }
        // Held until the item is in: two streams that wait for each other agree on who was first.
        let streams = lock(&self.engine.streams);
        for other in streams.iter().filter(|other| !core::ptr::eq(&***other, self)) {
            let ordered = (self.is_default && !other.non_blocking) || other.is_default;
            if let Some(ticket) = other.outstanding().filter(|_| ordered)
                && self.push(Item::After(Arc::clone(other), ticket)).is_err()
            {
                break;
            }
        }
        self.push(item)
    }

    fn push(&self, item: Item) -> Result<(), Item> {
        let mut inner = lock(&self.inner);
        if inner.phase != Phase::Open {
            return Err(item);
        }
        inner.items.push_back(item);
        inner.enqueued += 1;
        drop(inner);
        self.wake.notify_all();
        Ok(())
    }

    /// Number of the last item enqueued, unless all have completed or never will.
    fn outstanding(&self) -> Option<u64> {
        let inner = lock(&self.inner);
        (inner.phase != Phase::Stopped && inner.completed < inner.enqueued).then_some(inner.enqueued)
    }

    fn has_completed(&self, ticket: u64) -> bool {
        let inner = lock(&self.inner);
        inner.completed >= ticket || inner.phase == Phase::Stopped
    }

    pub(super) fn is_idle(&self) -> bool {
        let inner = lock(&self.inner);
        inner.completed == inner.enqueued || (inner.phase == Phase::Stopped && inner.running == Running::Nothing)
    }

    /// Nothing of it will run any more, or tell others to wait.
    pub(super) fn is_over(&self) -> bool {
        let inner = lock(&self.inner);
        inner.running == Running::Nothing && matches!(inner.phase, Phase::Drained | Phase::Stopped)
            || inner.phase == Phase::Draining && inner.completed == inner.enqueued
    }

    /// Destroys the stream; queued work still runs.
    pub(super) fn drain(&self) {
        let mut inner = lock(&self.inner);
        if inner.phase == Phase::Open {
            inner.phase = Phase::Draining;
        }
        drop(inner);
        self.wake.notify_all();
    }

    /// Drops what is queued. What runs now runs on.
    pub(super) fn stop(&self) {
        let dropped = {
            let mut inner = lock(&self.inner);
            inner.phase = Phase::Stopped;
            core::mem::take(&mut inner.items)
        };
        // Outside the lock: dropping may release a module, or wake who waits for a collective.
        drop(dropped);
        self.wake.notify_all();
    }

    /// For the workers of a hung device after it was healed or lost.
    pub(super) fn look_again(&self) {
        // The lock makes sure that a worker is either before its check or already waiting.
        drop(lock(&self.inner));
        self.wake.notify_all();
    }

    /// Waits for what runs now: the backend's own work until `own`, native work (which may be a collective
    /// that never ends) until `native`. False when something still runs.
    pub(super) fn wait_stopped(&self, own: Instant, native: Instant) -> bool {
        let mut inner = lock(&self.inner);
        loop {
            let deadline = match inner.running {
                Running::Nothing => return true,
                Running::Own => own,
                Running::Native => native,
            };
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            inner = self.wake.wait_timeout(inner, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn next(&self) -> Option<Item> {
        let mut inner = lock(&self.inner);
        loop {
            if inner.phase == Phase::Stopped {
                return None;
            }
            if !self.engine.is_hung() {
                if let Some(item) = inner.items.pop_front() {
                    inner.running = if matches!(item, Item::Native(_)) { Running::Native } else { Running::Own };
                    return Some(item);
                }
                if inner.phase == Phase::Draining {
                    inner.phase = Phase::Drained;
                    return None;
                }
            }
            inner = self.wake.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn work(self: Arc<Self>) {
        while let Some(item) = self.next() {
            let mut outcome = Ok(());
            match item {
                Item::Own(operation) => outcome = operation(),
                Item::Native(native) => native.run(),
                Item::Await(point) => self.wait_until(|| point.time().is_some() || point.abandoned.load(Ordering::Acquire)),
                Item::After(other, ticket) => self.wait_until(|| other.has_completed(ticket)),
            }
            if let Err(reason) = outcome {
                self.engine.fail(Fault::Lost { reason });
            }
            let mut inner = lock(&self.inner);
            inner.running = Running::Nothing;
            inner.completed += 1;
            drop(inner);
            self.wake.notify_all();
            self.engine.bump();
        }
        self.engine.bump();
    }

    fn wait_until(&self, done: impl Fn() -> bool) {
        loop {
            let seen = self.engine.activity();
            if done() || lock(&self.inner).phase == Phase::Stopped {
                return;
            }
            self.engine.activity_wait(seen, LOOK_AGAIN);
        }
    }
}

/// # Safety
/// `stream` is one of ours, which is never freed.
unsafe fn queue_of<'a>(stream: *mut HostStream) -> &'a Queue {
    // SAFETY: as promised.
    let owner = unsafe { (*stream).owner }.cast::<Queue>();
    // SAFETY: `owner` holds a reference that is never given up.
    unsafe { &*owner }
}

fn enqueue_native(queue: &Queue, native: Native) -> i32 {
    match queue.enqueue(Item::Native(native)) {
        Ok(()) => HOST_STREAM_OK,
        Err(refused) => {
            // The caller keeps the argument.
            core::mem::forget(refused);
            HOST_STREAM_LOST
        }
    }
}

unsafe extern "C" fn native_enqueue(stream: *mut HostStream, work: HostWork, arg: *mut c_void) -> i32 {
    // SAFETY: the caller passes a stream of ours.
    enqueue_native(unsafe { queue_of(stream) }, Native { work, drop: None, arg })
}

unsafe extern "C" fn native_enqueue_or_drop(stream: *mut HostStream, work: HostWork, drop: HostWork, arg: *mut c_void) -> i32 {
    // SAFETY: the caller passes a stream of ours.
    enqueue_native(unsafe { queue_of(stream) }, Native { work, drop: Some(drop), arg })
}

unsafe extern "C" fn native_query(stream: *mut HostStream) -> i32 {
    // SAFETY: the caller passes a stream of ours.
    let queue = unsafe { queue_of(stream) };
    let inner = lock(&queue.inner);
    match inner.phase {
        Phase::Stopped => HOST_STREAM_LOST,
        _ if inner.completed == inner.enqueued => HOST_STREAM_OK,
        _ => HOST_STREAM_BUSY,
    }
}
