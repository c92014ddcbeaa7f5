//! Who is alive: the kernel's own proof, found by watching in a ring.
//!
//! Every process of the job has a *monitor* thread that holds its robust mutex for as long as the process lives. The
//! monitor of a rank also waits for the launcher's mutex; a *watcher* thread waits for that of the next rank alive.
//! When a holder dies, the kernel wakes one waiter with EOWNERDEAD; that one passes the mutex on, so that others that
//! wait for it get it too, looks at all the other mutexes (several may have died at once), proposes what it found and
//! wakes everybody. A mutex that can be locked although its seat says "held" means the same: somebody else was first.
//!
//! Neither thread ever calls CUDA, NCCL or the application, and none of their waits is longer than a slice.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use super::layout::AT_LAUNCHER_STATE;
use super::memory::block_signals;
use super::shared::Shared;
use super::{Cause, Failure, Incarnation, MembershipError, Rank};
use crate::sync::robust::{Lock, RobustMutex};
use crate::sync::{Ordering, Words};

/// Longest a thread stays in one wait: after it, the watcher looks for a nearer rank (a replacement may have joined).
const SLICE: Duration = Duration::from_millis(20);

/// What the segment says of the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LauncherState {
    /// It is about to hold its mutex.
    Starting,
    /// It holds its mutex.
    Alive,
    /// It died. Survivors run on until the next failure, then end the job.
    Gone,
    /// It ended in good order.
    Left,
}

impl LauncherState {
    fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Starting,
            1 => Self::Alive,
            3 => Self::Left,
            _ => Self::Gone,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Starting => 0,
            Self::Alive => 1,
            Self::Gone => 2,
            Self::Left => 3,
        }
    }
}

pub(super) fn launcher_state(shared: &Shared) -> LauncherState {
    LauncherState::from_number(shared.memory.word(AT_LAUNCHER_STATE).load(Ordering::Acquire))
}

/// True: this call changed it.
pub(super) fn move_launcher(shared: &Shared, from: LauncherState, to: LauncherState) -> bool {
    let word = shared.memory.word(AT_LAUNCHER_STATE);
    let moved = word.compare_exchange(from.number(), to.number(), Ordering::AcqRel, Ordering::Acquire).is_ok();
    if moved {
        shared.memory.signal();
    }
    moved
}

/// Keeps the threads of a process going; they end soon after it is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    _stop: Vec<Sender<()>>,
}

fn stopped(stop: &Receiver<()>) -> bool {
    matches!(stop.try_recv(), Err(TryRecvError::Disconnected))
}

/// Starts a thread; `body` gets a receiver that is disconnected when the thread shall end.
fn start(name: &str, body: impl FnOnce(&Receiver<()>) + Send + 'static) -> Result<Sender<()>, MembershipError> {
    let (keep, stop) = mpsc::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            block_signals();
            body(&stop);
        })
        .map_err(|source| MembershipError::Io { action: "start a membership thread", source })?;
    Ok(keep)
}

/// Starts a monitor that holds `mutex`, and returns when it does.
fn start_holding(
    shared: &Arc<Shared>,
    name: &str,
    mutex: RobustMutex,
    limit: Duration,
    then: impl FnOnce(&Shared, &Receiver<()>) + Send + 'static,
) -> Result<Sender<()>, MembershipError> {
    let (report, held) = mpsc::channel();
    let shared = Arc::clone(shared);
    let keep = start(name, move |stop| {
        let lock = mutex.lock_for(limit);
        if lock == Lock::OwnerDied {
            // An earlier holder of this place, or somebody who looked at it.
            mutex.make_consistent();
        }
        let ours = matches!(lock, Lock::Acquired | Lock::OwnerDied);
        let _ = report.send(lock);
        if ours {
            then(&shared, stop);
            mutex.unlock();
        }
    })?;
    match held.recv() {
        Ok(Lock::Acquired | Lock::OwnerDied) => Ok(keep),
        Ok(Lock::Unusable(code)) => Err(MembershipError::Io {
            action: "lock this process's mutex in the members segment",
            source: std::io::Error::from_raw_os_error(code),
        }),
        Ok(Lock::Busy) | Err(_) => Err(MembershipError::Timeout {
            what: "this process's mutex in the members segment, held by another one".to_owned(),
            missing: Vec::new(),
            waited: limit,
        }),
    }
}

/// The launcher's monitor.
pub(super) fn start_launcher(shared: &Arc<Shared>, limit: Duration) -> Result<Threads, MembershipError> {
    let mutex = shared.memory.launcher_mutex();
    let keep = start_holding(shared, "rejoin-monitor", mutex, limit, |_, stop| {
        let _ = stop.recv();
    })?;
    move_launcher(shared, LauncherState::Starting, LauncherState::Alive);
    Ok(Threads { _stop: vec![keep] })
}

/// A rank's monitor; the caller then takes the seat and starts the watcher.
pub(super) fn start_monitor(
    shared: &Arc<Shared>,
    rank: Rank,
    incarnation: Incarnation,
    limit: Duration,
) -> Result<Threads, MembershipError> {
    let mutex = shared.memory.mutex(rank, incarnation);
    let keep = start_holding(shared, "rejoin-monitor", mutex, limit, |shared, stop| {
        watch_launcher(shared, stop);
        let _ = stop.recv();
    })?;
    Ok(Threads { _stop: vec![keep] })
}

/// Adds a rank's watcher.
pub(super) fn start_watcher(shared: &Arc<Shared>, rank: Rank, threads: &mut Threads) -> Result<(), MembershipError> {
    let shared = Arc::clone(shared);
    threads._stop.push(start("rejoin-watcher", move |stop| watch_ring(&shared, rank, stop))?);
    Ok(())
}

fn watch_launcher(shared: &Shared, stop: &Receiver<()>) {
    let mutex = shared.memory.launcher_mutex();
    while !stopped(stop) {
        match launcher_state(shared) {
            LauncherState::Alive => {}
            LauncherState::Starting => {
                shared.memory.wait(shared.memory.event(), Instant::now() + SLICE);
                continue;
            }
            LauncherState::Gone | LauncherState::Left => return,
        }
        match mutex.lock_for(SLICE) {
            Lock::Busy => continue,
            Lock::OwnerDied => mutex.make_consistent(),
            Lock::Acquired => {}
            Lock::Unusable(_) => return,
        }
        move_launcher(shared, LauncherState::Alive, LauncherState::Gone);
        mutex.unlock();
    }
}

/// What holding (or not getting) the mutex of a seat's process says about it.
fn examine(shared: &Shared, rank: Rank, incarnation: Incarnation, mutex: RobustMutex, lock: Lock) -> Option<Failure> {
    match lock {
        Lock::Busy | Lock::Unusable(_) => return None,
        Lock::OwnerDied => mutex.make_consistent(),
        Lock::Acquired => {}
    }
    // A process takes its seat after its mutex and marks it LEFT before it unlocks.
    let seat = shared.memory.layout.seats().load(&shared.memory, rank);
    mutex.unlock();
    (seat.incarnation == incarnation && seat.state.is_held()).then_some(Failure { rank, incarnation, cause: Cause::Died })
}

/// Looks at the mutexes of all held seats but `own`, without waiting.
pub(super) fn scan(shared: &Shared, own: Option<Rank>) -> Vec<Failure> {
    let layout = &shared.memory.layout;
    (0..layout.nranks)
        .map(Rank)
        .filter(|rank| Some(*rank) != own)
        .filter_map(|rank| {
            let seat = layout.seats().load(&shared.memory, rank);
            if !seat.state.is_held() {
                return None;
            }
            let mutex = shared.memory.mutex(rank, seat.incarnation);
            examine(shared, rank, seat.incarnation, mutex, mutex.try_lock())
        })
        .collect()
}

fn watch_ring(shared: &Shared, own: Rank, stop: &Receiver<()>) {
    let layout = &shared.memory.layout;
    while !stopped(stop) {
        let seen = shared.memory.event();
        let next = (1..layout.nranks).map(|k| Rank((own.0 + k) % layout.nranks)).find_map(|rank| {
            let seat = layout.seats().load(&shared.memory, rank);
            seat.state.is_held().then_some((rank, seat.incarnation))
        });
        let Some((rank, incarnation)) = next else {
            shared.memory.wait(seen, Instant::now() + SLICE);
            continue;
        };
        let mutex = shared.memory.mutex(rank, incarnation);
        let lock = mutex.lock_for(SLICE);
        if let Lock::Unusable(_) = lock {
            // Not to be told dead from alive this way; the launcher still sees its exit.
            shared.memory.wait(seen, Instant::now() + SLICE);
            continue;
        }
        let Some(first) = examine(shared, rank, incarnation, mutex, lock) else { continue };
        let mut failures = vec![first];
        failures.extend(scan(shared, Some(own)));
        if let Err(error) = shared.report_failures(u16::try_from(own.0).expect("at most 1024 ranks"), &failures) {
            tracing::debug!(%error, ?failures, "failures not proposed");
            shared.memory.wait(seen, Instant::now() + SLICE);
        }
    }
}
