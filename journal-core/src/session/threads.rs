//! The threads of a session besides the application's own.
//!
//! *monitor*: holds the rank's robust mutex, so that its death is the process's; wakes local waiters when the
//! decision moves. *watcher*: proves deaths of peers in a ring and of the launcher. *recovery*: carries out
//! the stages. The monitor and the watcher never call CUDA or NCCL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::core::Core;
use crate::error::Error;
use crate::membership::{Incarnation, Membership, Rank, ShmMembership};
use crate::recovery;

/// How long a thread may take to start or to end.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Bound of each wait, so that a closing session is noticed even if its wake-up is lost.
const SLICE: Duration = Duration::from_millis(200);

/// The monitor, before there is a session to monitor: it only holds the seat.
pub struct Holding {
    session: mpsc::Sender<Arc<Core>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Starts the monitor thread, which takes the rank's robust mutex at once.
pub fn hold_seat(membership: &Arc<ShmMembership>, rank: Rank, incarnation: Incarnation) -> Result<Holding, Error> {
    let (session, on_session) = mpsc::channel::<Arc<Core>>();
    let (held, on_held) = mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let (membership, stopped) = (membership.clone(), stop.clone());
    let thread = spawn("rejoin-monitor", move || {
        let hold = match membership.hold(rank, incarnation) {
            Ok(hold) => hold,
            Err(error) => return drop(held.send(Err(error))),
        };
        let _ = held.send(Ok(()));
        if let Ok(core) = on_session.recv() {
            monitor(&core, &stopped);
        }
        if stopped.load(Ordering::Acquire) {
            hold.release();
        } else {
            // The session went without finalize: let the kernel report this thread's end as a death.
            core::mem::forget(hold);
        }
    })?;
    on_held.recv_timeout(START_LIMIT).map_err(|_| Error::Timeout {
        what: "the monitor thread's start".into(),
        limit_ms: START_LIMIT.as_millis() as u64,
        missing: vec![rank.0],
    })??;
    Ok(Holding { session, stop, thread })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|e| Error::Unsupported { what: format!("cannot start thread {name}: {e}") })
}

fn monitor(core: &Core, stopped: &AtomicBool) {
    let membership = core.membership();
    let mut last = membership.decision();
    loop {
        let seen = membership.event();
        let now = membership.decision();
        if now != last {
            last = now;
            core.wake();
        }
        if stopped.load(Ordering::Acquire) || core.progress().stop {
            return;
        }
        membership.wait(seen, Instant::now() + SLICE);
    }
}

/// The running threads.
pub struct Threads {
    leave: Arc<AtomicBool>,
    core: Arc<Core>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts watcher and recovery beside the monitor.
    pub fn start(core: &Arc<Core>, holding: Holding) -> Result<Self, Error> {
        let _ = holding.session.send(core.clone());
        let (for_recovery, for_watcher) = (core.clone(), core.clone());
        let recovery = spawn("rejoin-recovery", move || recovery::run(&for_recovery))?;
        let watcher = spawn("rejoin-watcher", move || {
            let membership = for_watcher.membership();
            membership.watch(for_watcher.agent.rank, &|| for_watcher.progress().stop);
        })?;
        Ok(Self {
            leave: holding.stop,
            core: core.clone(),
            handles: Mutex::new(vec![holding.thread, recovery, watcher]),
        })
    }

    /// Ends the threads; the seat's mutex is released, so that leaving is not dying.
    pub fn stop(&self, core: &Core) {
        self.leave.store(true, Ordering::Release);
        core.update(|p| p.stop = true);
        core.membership().wake();
        let handles = core::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            let _ = handle.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Not joined: a thread may be in a call that only recovery by others releases.
        self.core.update(|p| p.stop = true);
        self.core.membership().wake();
    }
}
