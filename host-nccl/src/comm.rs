//! A communicator of one rank, and the table of live handles.

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use crate::abi::{self, CommHandle, ResultCode};
use crate::abort::AbortFlag;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::redop::RedOps;
use crate::stream::DefaultStream;
use crate::unique_id::UniqueId;

/// What has happened to a communicator, and what is under way on it.
#[derive(Debug, Default)]
pub struct Life {
    /// Calls that run on a thread, or in another caller's.
    pub jobs: u32,
    /// Batches that were launched and have not left their stream.
    pub launched: u32,
    /// Those of them that an abort waits for: begun, or on a stream that drops what it will not run.
    pub holding: u32,
    /// `ncclCommFinalize` was called.
    pub finalize_called: bool,
    /// `ncclCommRevoke` was called.
    pub revoked: bool,
    /// Destroy or abort was called: the handle is about to go.
    pub destroyed: bool,
    /// A shrink with the abort flag reset the abort flag.
    pub shrunk_by_abort: bool,
    /// Splits and grows so far.
    pub children_made: u64,
    /// Children that are being made: an abort of the parent ends that.
    pub children: Vec<Weak<Comm>>,
    /// From ncclCommGetUniqueId on this rank, until the grow takes it.
    pub grow_id: Option<(UniqueId, u64)>,
    /// From ncclCommAddNewRank, until ncclCommSetupNewRank takes it.
    pub joining: Option<Arc<Link>>,
}

/// Numbers given out in launch order.
#[derive(Debug, Default)]
pub struct Launch {
    /// Of the next batch.
    pub next_ticket: u64,
    /// Of the next collective: the same on all ranks.
    pub next_collective: u64,
}

/// A communicator.
#[derive(Debug)]
pub struct Comm {
    /// Value of its `ncclComm_t`.
    pub handle: usize,
    /// As given at its creation.
    pub config: Config,
    /// `ncclCommCuDevice`.
    pub device: i32,
    /// Ends this rank's waits.
    pub abort: Arc<AbortFlag>,
    /// Where NULL streams of this family go.
    pub stream: Arc<DefaultStream>,
    /// Batches run in this order, on whatever streams.
    pub turn: AtomicU64,
    /// Batches below were launched before an abort and never run for real.
    pub aborted_below: AtomicU64,
    /// Launch numbers.
    pub launch: Mutex<Launch>,
    /// User-defined operators.
    pub redops: Mutex<RedOps>,
    /// Registered buffers: handle to (address, bytes).
    pub registrations: Mutex<HashMap<usize, (usize, usize)>>,
    link: RwLock<Option<Arc<Link>>>,
    result: AtomicI32,
    life: Mutex<Life>,
    changed: Condvar,
}

static LIVE: LazyLock<RwLock<HashMap<usize, Arc<Comm>>>> = LazyLock::new(RwLock::default);
/// Looks like an aligned address in a debugger, and is never given twice.
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(0x4e43_0000_0100);

/// A job on a communicator; ends when dropped.
#[derive(Debug)]
pub struct Busy(Arc<Comm>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.life().jobs -= 1;
        self.0.changed.notify_all();
    }
}

impl Comm {
    /// A communicator that is not ready; its handle is not in the table yet.
    pub fn create(config: Config, device: i32, stream: Arc<DefaultStream>) -> Arc<Self> {
        let handle = NEXT_HANDLE.fetch_add(0x100, Ordering::Relaxed);
        Arc::new(Self {
            handle,
            config,
            device,
            abort: Arc::default(),
            stream,
            turn: AtomicU64::new(0),
            aborted_below: AtomicU64::new(0),
            launch: Mutex::default(),
            redops: Mutex::new(RedOps::new(handle)),
            registrations: Mutex::default(),
            link: RwLock::default(),
            result: AtomicI32::new(abi::IN_PROGRESS),
            life: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Puts the handle into the table.
    pub fn publish(self: &Arc<Self>) -> CommHandle {
        LIVE.write().unwrap_or_else(PoisonError::into_inner).insert(self.handle, Arc::clone(self));
        core::ptr::without_provenance_mut(self.handle)
    }

    /// Takes the handle out of the table: later calls with it get `ncclInvalidArgument`.
    pub fn retire(&self) {
        LIVE.write().unwrap_or_else(PoisonError::into_inner).remove(&self.handle);
    }

    /// The communicator of a handle.
    pub fn from_handle(handle: CommHandle) -> Result<Arc<Self>> {
        if handle.is_null() {
            return Err(Error::argument("the communicator is NULL"));
        }
        LIVE.read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle.addr())
            .cloned()
            .ok_or_else(|| Error::argument(format!("{handle:p} is no communicator, or was destroyed or aborted")))
    }

    /// Its state.
    pub fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done`; changes of the state are noticed.
    pub fn wait_life(&self, done: impl Fn(&Life) -> bool) -> MutexGuard<'_, Life> {
        let mut life = self.life();
        while !done(&life) {
            life = self.changed.wait(life).unwrap_or_else(PoisonError::into_inner);
        }
        life
    }

    /// Tells waiters of [`Comm::wait_life`] that something has changed.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Counts a job.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.life().jobs += 1;
        Busy(Arc::clone(self))
    }

    /// `ncclCommGetAsyncError`.
    pub fn result(&self) -> ResultCode {
        self.result.load(Ordering::Acquire)
    }

    /// Sets what `ncclCommGetAsyncError` gives. An error stays.
    pub fn set_result(&self, result: ResultCode) {
        let _ = self.result.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            matches!(old, abi::SUCCESS | abi::IN_PROGRESS).then_some(result)
        });
    }

    /// In progress becomes success; an error stays.
    pub fn finish_progress(&self) {
        let _ = self.result.compare_exchange(abi::IN_PROGRESS, abi::SUCCESS, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The rank's place, once it has joined.
    pub fn link(&self) -> Result<Arc<Link>> {
        let link = self.link.read().unwrap_or_else(PoisonError::into_inner).clone();
        link.ok_or_else(|| Error::argument("the communicator is not initialized"))
    }

    /// Gives it its place: at the end of initialization, and when a rank is added.
    pub fn set_link(&self, link: Arc<Link>) {
        *self.link.write().unwrap_or_else(PoisonError::into_inner) = Some(link);
    }

    /// Ready for a call, or NCCL's errors.
    pub fn ready(&self) -> Result<Arc<Link>> {
        match self.result() {
            abi::SUCCESS => self.link(),
            abi::IN_PROGRESS => Err(Error::argument(
                "Attempt to use communicator before the previous operation returned ncclSuccess: poll \
                 ncclCommGetAsyncError first",
            )),
            code => Err(Error::Sticky(code)),
        }
    }

    /// Ready for a collective, a send or a receive.
    pub fn ready_for_work(&self) -> Result<Arc<Link>> {
        let link = self.ready()?;
        let life = self.life();
        if life.revoked {
            return Err(Error::usage("the communicator was revoked"));
        }
        if life.finalize_called || life.destroyed {
            return Err(Error::usage("the communicator was finalized or destroyed"));
        }
        Ok(link)
    }

    /// Sets the abort flag, here and on children that are being made, and gives up queued batches.
    pub fn raise_abort(&self) {
        let next = self.launch.lock().unwrap_or_else(PoisonError::into_inner).next_ticket;
        self.aborted_below.fetch_max(next, Ordering::SeqCst);
        self.abort.set();
        let children: Vec<_> = self.life().children.iter().filter_map(Weak::upgrade).collect();
        for child in children {
            child.abort.set();
        }
        self.changed.notify_all();
    }

    /// Registers a child in the making, so that it is aborted with this one.
    pub fn adopt(&self, child: &Arc<Self>) {
        let mut life = self.life();
        life.children.retain(|child| child.strong_count() != 0);
        life.children.push(Arc::downgrade(child));
        drop(life);
        if let Ok(link) = self.link() {
            child.abort.watch(&link.region, link.rank);
        }
        if self.abort.is_set() {
            child.abort.set();
        }
    }

    /// The child is made.
    pub fn release_child(&self, child: &Arc<Self>) {
        self.life().children.retain(|other| !core::ptr::eq(other.as_ptr(), Arc::as_ptr(child)));
    }
}
