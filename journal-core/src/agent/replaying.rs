//! The recovery thread while it executes recorded requests again.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handle::VirtualHandle;
use crate::membership::Epoch;
use crate::request::{Call, OwnedRequest};

thread_local! {
    static EPOCH: Cell<Option<Epoch>> = const { Cell::new(None) };
}

/// The epoch that this thread replays in, if it does.
pub(crate) fn epoch() -> Option<Epoch> {
    EPOCH.get()
}

/// While it lives, requests of this thread belong to a replay: the doomed step does not stop them, another
/// epoch does.
pub(crate) struct Replaying(());

impl Replaying {
    pub(crate) fn begin(epoch: Epoch) -> Self {
        EPOCH.set(Some(epoch));
        Self(())
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        EPOCH.set(None);
    }
}

/// Requests whose bytes the device may still read: a replay issues asynchronous copies out of its own copy of the journal.
/// Kept until a recovery has seen all streams empty: of a stream that the step has ended, nobody else will.
#[derive(Debug, Default)]
pub(crate) struct Sources(Mutex<Vec<OwnedRequest>>);

impl Sources {
    pub(crate) fn keep(&self, request: OwnedRequest) {
        if let Call::MemcpyHtoDAsync { .. } = request.call() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        }
    }

    /// All streams are empty.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Objects of handles that were retired since: a recorded request may still need them.
#[derive(Debug, Default)]
pub(crate) struct Substitutes(Mutex<HashMap<VirtualHandle, u64>>);

impl Substitutes {
    fn lock(&self) -> MutexGuard<'_, HashMap<VirtualHandle, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, handle: VirtualHandle, real: u64) {
        self.lock().insert(handle, real);
    }

    pub(crate) fn get(&self, handle: VirtualHandle) -> Option<u64> {
        self.lock().get(&handle).copied()
    }

    pub(crate) fn take(&self, handle: VirtualHandle) -> Option<u64> {
        self.lock().remove(&handle)
    }

    pub(crate) fn take_all(&self) -> HashMap<VirtualHandle, u64> {
        std::mem::take(&mut *self.lock())
    }
}
