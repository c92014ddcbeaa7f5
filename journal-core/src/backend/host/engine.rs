//! What the device and all its streams share: its condition, its activity word, the order between streams.

use super::queue::Queue;
use crate::backend::{DeviceError, DeviceResult};
use crate::sync::futex;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Fault to make a device have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Every call fails from now on, queued work is dropped.
    Lost {
        /// What the error says.
        reason: String,
    },
    /// Calls still enqueue, but no stream makes progress after the work that runs now.
    Hang,
}

#[derive(Debug)]
enum Condition {
    Fine,
    Hung,
    Lost(String),
}

/// Locks although a thread may have panicked while holding it: every critical section leaves whole state.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) ordinal: u32,
    condition: Mutex<Condition>,
    activity: AtomicU32,
    waiters: AtomicU32,
    /// Live streams, the default one first; the lock orders enqueues among streams that wait for each other.
    pub(super) streams: Mutex<Vec<Arc<Queue>>>,
}

impl Engine {
    pub(super) fn new(ordinal: u32) -> Arc<Self> {
        Arc::new(Self {
            ordinal,
            condition: Mutex::new(Condition::Fine),
            activity: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            streams: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn check(&self) -> DeviceResult<()> {
        match &*lock(&self.condition) {
            Condition::Lost(reason) => Err(DeviceError::Lost { ordinal: self.ordinal, reason: reason.clone() }),
            _ => Ok(()),
        }
    }

    pub(super) fn is_hung(&self) -> bool {
        matches!(*lock(&self.condition), Condition::Hung)
    }

    /// The first loss stands; a hang does not undo it.
    pub(super) fn fail(&self, fault: Fault) {
        {
            let mut condition = lock(&self.condition);
            match (&*condition, fault) {
                (Condition::Lost(_), _) => return,
                (_, Fault::Lost { reason }) => *condition = Condition::Lost(reason),
                (_, Fault::Hang) => {
                    *condition = Condition::Hung;
                    return;
                }
            }
        }
        // Without the lock: what is dropped belongs to others.
        let streams = lock(&self.streams).clone();
        streams.iter().for_each(|queue| queue.stop());
        self.bump();
    }

    pub(super) fn heal(&self) {
        *lock(&self.condition) = Condition::Fine;
    }

    pub(super) fn activity(&self) -> u32 {
        self.activity.load(Ordering::SeqCst)
    }

    /// Something completed, or waiters shall look again.
    pub(super) fn bump(&self) {
        // SYNC: SeqCst on both words: a waiter that is not seen here sees the new activity.
        self.activity.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            futex::wake_all(&self.activity);
        }
    }

    pub(super) fn activity_wait(&self, seen: u32, limit: Duration) {
        // SYNC: pairs with `bump`.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if self.activity.load(Ordering::SeqCst) == seen {
            futex::wait_for(&self.activity, seen, limit);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}
