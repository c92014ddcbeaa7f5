//! Looking on: what happens to a session, for whoever wants to be told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Session;
use super::core::{Core, Progress};
use crate::handle::VirtualHandle;
use crate::membership::{Epoch, Membership};

/// Where a session stands. Two of them tell what has happened in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The job's epoch.
    pub epoch: Epoch,
    /// The last finished recovery: its epoch and the step to go on with.
    pub recovered: Option<(Epoch, u32)>,
    /// The job is over, or this rank is out of it.
    pub ended: bool,
}

/// Looks at a session without keeping it open.
pub struct Watcher {
    core: Arc<Core>,
}

/// Bound of one wait; a change is told at once, this only bounds what a lost wake-up costs.
const SLICE: Duration = Duration::from_secs(1);

impl Watcher {
    fn look(&self, progress: &Progress) -> Standing {
        let now = self.core.membership().decision();
        Standing { epoch: now.epoch, recovered: progress.recovered, ended: now.is_ended() || progress.failed.is_some() }
    }

    /// Where the session stands now.
    pub fn standing(&self) -> Standing {
        self.look(&self.core.progress())
    }

    /// Waits until it stands elsewhere than `seen`; `None` when the session closes.
    pub fn changed(&self, seen: Standing) -> Option<Standing> {
        loop {
            let found = self.core.wait_progress("a change of the session", Instant::now() + SLICE, || None, |progress| {
                let now = self.look(progress);
                if now != seen {
                    return Some(Some(now));
                }
                progress.stop.then_some(None)
            });
            if let Ok(change) = found {
                return change;
            }
        }
    }

    /// Communicators that are bound.
    pub fn communicators(&self) -> Vec<VirtualHandle> {
        self.core.agent.objects.communicators().into_iter().map(|(_, communicator)| communicator.handle).collect()
    }
}

impl Session {
    /// For a thread that reports what happens.
    pub fn watcher(&self) -> Watcher {
        Watcher { core: self.core.clone() }
    }
}
