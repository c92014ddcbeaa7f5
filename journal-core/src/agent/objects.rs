//! The real objects behind virtual handles that are more than one word: communicators and functions.
//!
//! A handle is bound to an index here; entries stay until the agent goes, so an index is never another
//! object's.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::Function;
use crate::handle::VirtualHandle;
use crate::nccl::clique::CliqueKey;
use crate::nccl::{CommConfig, RealCommunicator};
use crate::sync::append_only::AppendOnly;
use crate::sync::{AtomicU32, Ordering};

/// One communicator of this process through all its real ones.
pub struct Communicator {
    /// What the application holds.
    pub handle: VirtualHandle,
    /// Whose.
    pub clique: CliqueKey,
    /// This process's rank in it; moves only under `--renumber`.
    rank: AtomicU32,
    /// Its size.
    pub nranks: i32,
    /// As given at creation.
    pub config: CommConfig,
    /// Splits made of it so far.
    pub splits: AtomicU32,
    /// The real one; `None` between abort and rebuild. The lock also keeps NCCL calls on it one at a time.
    pub real: Mutex<Option<RealCommunicator>>,
    used: AtomicU32,
}

impl Communicator {
    /// One without a real communicator yet.
    pub fn new(handle: VirtualHandle, clique: CliqueKey, rank: i32, nranks: i32, config: CommConfig) -> Self {
        Self {
            handle,
            clique,
            rank: AtomicU32::new(rank as u32),
            nranks,
            config,
            splits: AtomicU32::new(0),
            real: Mutex::new(None),
            used: AtomicU32::new(0),
        }
    }

    /// This process's rank in it.
    pub fn rank(&self) -> i32 {
        self.rank.load(Ordering::Acquire) as i32
    }

    /// Renumbering has moved it.
    pub fn set_rank(&self, rank: i32) {
        self.rank.store(rank as u32, Ordering::Release);
    }

    /// The real one, locked.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, Option<RealCommunicator>> {
        self.real.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the open step used it.
    pub fn mark_used(&self) {
        self.used.store(1, Ordering::Relaxed);
    }

    /// Whether the step used it; clears the note.
    pub fn take_used(&self) -> bool {
        self.used.swap(0, Ordering::Relaxed) == 1
    }
}

/// Append-only lists behind the handles, read without a lock.
#[derive(Default)]
pub struct Objects {
    communicators: AppendOnly<Arc<Communicator>>,
    functions: AppendOnly<Function>,
    streams: Mutex<Vec<(VirtualHandle, u32)>>,
}

impl Objects {
    /// Adds one; what its handle is to be bound to.
    pub fn add_communicator(&self, communicator: Arc<Communicator>) -> u64 {
        self.communicators.add(communicator)
    }

    /// The communicator that a handle is bound to.
    #[inline]
    pub fn communicator(&self, real: u64) -> Option<&Arc<Communicator>> {
        self.communicators.get(real)
    }

    /// All of them in creation order, with what their handles are bound to.
    pub fn communicators(&self) -> Vec<(u64, Arc<Communicator>)> {
        self.communicators.iter().map(|(place, c)| (place, c.clone())).collect()
    }

    /// Adds one; what its handle is to be bound to.
    pub fn add_function(&self, function: Function) -> u64 {
        self.functions.add(function)
    }

    /// The function that a handle is bound to.
    #[inline]
    pub fn function(&self, real: u64) -> Option<&Function> {
        self.functions.get(real)
    }

    /// Notes a stream with its flags.
    pub fn add_stream(&self, handle: VirtualHandle, flags: u32) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push((handle, flags));
    }

    /// Forgets a stream.
    pub fn remove_stream(&self, handle: VirtualHandle) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).retain(|(h, _)| *h != handle);
    }

    /// Live streams with their flags.
    pub fn streams(&self) -> Vec<(VirtualHandle, u32)> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
