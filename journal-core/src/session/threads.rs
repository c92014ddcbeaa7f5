//! The threads of a session besides the application's own, and besides the monitor and the watcher, which
//! belong to the membership.
//!
//! *notifier*: wakes local waiters when the decision moves; never calls CUDA or NCCL. *recovery*: carries out
//! the stages.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::core::Core;
use crate::error::Error;
use crate::membership::Membership;
use crate::recovery;

/// Bound of each wait, so that a closing session is noticed even if its wake-up is lost.
const SLICE: Duration = Duration::from_millis(200);

/// The running threads. Dropped without [`Threads::stop`], they end by themselves: a thread may be in a call
/// that only recovery by others releases, so nobody waits for it.
pub struct Threads {
    core: Arc<Core>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts both.
    pub fn start(core: &Arc<Core>) -> Result<Self, Error> {
        let (for_recovery, for_notifier) = (core.clone(), core.clone());
        let recovery = spawn("rejoin-recovery", move || recovery::run(&for_recovery))?;
        let notifier = spawn("rejoin-notifier", move || notify(&for_notifier))?;
        Ok(Self { core: core.clone(), handles: Mutex::new(vec![recovery, notifier]) })
    }

    /// Ends them and waits for it; after `finalize`, when neither is in a stage.
    pub fn stop(&self) {
        self.signal();
        for handle in core::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner)) {
            let _ = handle.join();
        }
    }

    fn signal(&self) {
        self.core.update(|p| p.stop = true);
        self.core.membership().wake();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.signal();
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|e| Error::Unsupported { what: format!("cannot start thread {name}: {e}; raise `ulimit -u`") })
}

fn notify(core: &Core) {
    let membership = core.membership();
    let mut last = membership.decision();
    while !core.progress().stop {
        let seen = membership.event();
        let now = membership.decision();
        if now != last {
            last = now;
            core.wake();
        }
        membership.wait(seen, Instant::now() + SLICE);
    }
}
