//! The abort flag of a communicator, and how it ends waits.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::region::Region;

/// One flag a communicator and rank. Waits look at it; setting it rings every bell that they sleep on.
#[derive(Debug, Default)]
pub struct AbortFlag {
    set: AtomicBool,
    bells: Mutex<Vec<(Weak<Region>, u32)>>,
    waiting: Condvar,
}

impl AbortFlag {
    /// True between [`AbortFlag::set`] and [`AbortFlag::clear`].
    pub fn is_set(&self) -> bool {
        // SYNC: SeqCst; pairs with set(), which stores before it rings.
        self.set.load(Ordering::SeqCst)
    }

    /// From now on, waits that check this flag are also woken by the bell of `rank`.
    pub fn watch(&self, region: &Arc<Region>, rank: u32) {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|(region, _)| region.strong_count() != 0);
        bells.push((Arc::downgrade(region), rank));
    }

    /// Sets the flag and wakes whoever waits.
    pub fn set(&self) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        self.set.store(true, Ordering::SeqCst);
        self.waiting.notify_all();
        for (region, rank) in bells.iter() {
            if let Some(region) = region.upgrade() {
                region.ring(*rank);
            }
        }
    }

    /// Takes the flag back (shrink and revoke, after everything has left).
    pub fn clear(&self) {
        self.set.store(false, Ordering::SeqCst);
    }

    /// Waits for `limit` or the flag; true if it was the flag.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut guard = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_set() {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return false;
            };
            guard = self.waiting.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
