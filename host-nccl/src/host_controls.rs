//! What only this library has: for tests of recovery, and for programs without a host backend.

use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use crate::comm::Comm;
use crate::unique_id::UniqueId;

static HELD: Mutex<bool> = Mutex::new(false);
static RELEASED: Condvar = Condvar::new();
static RENDEZVOUS: Mutex<Option<UniqueId>> = Mutex::new(None);

/// While held, launches of non-blocking communicators stay in progress: shows who does not poll.
pub fn hold_launches(hold: bool) {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = hold;
    RELEASED.notify_all();
}

/// Waits while launches are held, or until one of `comms` is aborted.
pub fn wait_while_held(comms: &[Arc<Comm>]) {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    while *held && !comms.iter().any(|comm| comm.abort.is_set()) {
        // An abort does not notify this condition, so look again now and then. Only tests hold launches.
        let step = Duration::from_millis(5);
        held = RELEASED.wait_timeout(held, step).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Sets the id that the new-rank calls of this process meet under, or clears it.
pub fn set_rendezvous(id: Option<UniqueId>) {
    *RENDEZVOUS.lock().unwrap_or_else(PoisonError::into_inner) = id;
}

/// The id set last.
pub fn rendezvous() -> Option<UniqueId> {
    *RENDEZVOUS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Behaviours of newer NCCL versions that hang or break callers; named in `REJOIN_HOST_NCCL_QUIRKS`, with
/// commas between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quirks {
    /// `destroy-after-shrink`: destroying a communicator that was shrunk with the abort flag hangs
    /// (NCCL >= 2.31.2).
    pub destroy_after_shrink: bool,
    /// `destroy-errored`: destroying a communicator with an error or in progress leaves the thread's group
    /// open, so that its later calls are never launched.
    pub destroy_errored: bool,
    /// `hung-abort`: an abort tells the kernels and never returns (NVIDIA/nccl#829, #549).
    pub hung_abort: bool,
}

/// Those of the environment, read once.
pub fn quirks() -> Quirks {
    static QUIRKS: LazyLock<Quirks> = LazyLock::new(|| {
        let list = std::env::var("REJOIN_HOST_NCCL_QUIRKS").unwrap_or_default();
        let has = |name: &str| list.split(',').any(|item| item.trim() == name);
        Quirks {
            destroy_after_shrink: has("destroy-after-shrink"),
            destroy_errored: has("destroy-errored"),
            hung_abort: has("hung-abort"),
        }
    });
    *QUIRKS
}
