//! Ends communicators on threads of their own.
//!
//! `ncclCommAbort` tells the kernels at once, but returns only when NCCL's proxy thread has ended, which looks
//! up every 500 ms (NVIDIA/nccl#1777), and it can hang for good (#829, #549). A recovery needs only the first
//! half: it waits until all flags are set and leaves the rest to the thread.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{NcclError, NcclLibrary, RealCommunicator};
use crate::backend::Device;

/// The aborts under way in this process.
#[derive(Default)]
pub struct Aborts {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Default)]
struct Running {
    next: u64,
    told: u64,
    since: BTreeMap<u64, Instant>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Aborts {
    /// Aborts `communicators` in one group: a hung stream of one holds up the abort of another. Returns when
    /// NCCL has told all their kernels, at the latest at `deadline`.
    pub fn start(
        &self,
        nccl: &Arc<NcclLibrary>,
        device: &Arc<dyn Device>,
        communicators: Vec<RealCommunicator>,
        deadline: Instant,
    ) -> Result<(), NcclError> {
        if communicators.is_empty() {
            return Ok(());
        }
        let count = communicators.len();
        let begun = Instant::now();
        let (told, all_told) = mpsc::sync_channel(1);
        let number = {
            let mut running = self.shared.lock();
            running.next += 1;
            let number = running.next;
            running.since.insert(number, begun);
            number
        };
        let (shared, nccl, device) = (self.shared.clone(), nccl.clone(), device.clone());
        let thread = std::thread::Builder::new().name("rejoin-abort".into()).spawn(move || {
            if let Err(error) = device.make_current() {
                tracing::warn!(%error, "aborting communicators without a current device");
            }
            let outcome = abort_in_one_group(&nccl, communicators, || { let _ = told.send(()); });
            if let Err(error) = outcome {
                tracing::warn!(%error, "abort of communicators");
            }
            shared.lock().since.remove(&number);
            shared.ended.notify_all();
        });
        if let Err(error) = thread {
            self.shared.lock().since.remove(&number);
            return Err(NcclError::Call {
                call: "ncclCommAbort",
                code: 0,
                text: format!("cannot start its thread: {error}; raise `ulimit -u`"),
            });
        }
        // A thread that ended without telling has told nobody, because the group could not be opened.
        match all_told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(NcclError::Timeout {
                what: format!("the abort of {count} communicators"),
                limit_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    /// The age of each abort that has been running for longer than `limit`; each is told once.
    pub fn overdue(&self, limit: Duration) -> Vec<Duration> {
        let mut running = self.shared.lock();
        let told = running.told;
        let overdue: Vec<_> = running.since.iter().filter(|(n, since)| **n > told && since.elapsed() > limit).collect();
        let ages = overdue.iter().map(|(_, since)| since.elapsed()).collect();
        let last = overdue.last().map_or(told, |(n, _)| **n);
        running.told = last;
        ages
    }

    /// Waits until none is running; false when one still is at `deadline`.
    pub fn wait(&self, deadline: Instant) -> bool {
        let mut running = self.shared.lock();
        while !running.since.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            running = self.shared.ended.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn abort_in_one_group(
    nccl: &NcclLibrary,
    communicators: Vec<RealCommunicator>,
    told: impl FnOnce(),
) -> Result<(), NcclError> {
    nccl.start_group()?;
    let aborted: Vec<_> = communicators.into_iter().map(RealCommunicator::abort).collect();
    told();
    nccl.end_group()?;
    aborted.into_iter().collect()
}
