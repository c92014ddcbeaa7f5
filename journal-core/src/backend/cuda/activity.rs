//! Waiting between two queries. CUDA tells nobody when work completes, so a wait here is short and its
//! caller queries again; only [`Activity::bump`] (the epoch has moved) ends one early.

use crate::sync::futex;
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Shorter waits burn the processor: a sleep would take longer than asked for (timer slack is 50 µs).
const SPIN_LIMIT: Duration = Duration::from_micros(50);
/// The longest sleep: what a wait for the device is late by, at most.
const SLEEP_LIMIT: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
pub(super) struct Activity {
    word: AtomicU32,
    waiters: AtomicU32,
}

impl Activity {
    pub(super) fn now(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    pub(super) fn bump(&self) {
        // SYNC: SeqCst on both words: a waiter that is not seen here sees the new number.
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) != 0 {
            futex::wake_all(&self.word);
        }
    }

    /// Returns after a bump since `seen`, or after `limit` or less.
    pub(super) fn wait(&self, seen: u32, limit: Duration) {
        if limit <= SPIN_LIMIT {
            let start = Instant::now();
            while self.now() == seen && start.elapsed() < limit {
                core::hint::spin_loop();
                std::thread::yield_now();
            }
            return;
        }
        // SYNC: pairs with `bump`.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if self.now() == seen {
            futex::wait_for(&self.word, seen, limit.min(SLEEP_LIMIT));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bump_is_seen_by_who_waits_with_an_older_number() {
        let activity = Activity::default();
        let seen = activity.now();
        activity.bump();
        assert_ne!(activity.now(), seen);
        // Neither blocks: the number has moved.
        activity.wait(seen, Duration::from_secs(3600));
        activity.wait(seen, SPIN_LIMIT);
    }

    #[test]
    fn a_wait_ends_by_itself_however_long_the_limit() {
        let activity = Activity::default();
        activity.wait(activity.now(), Duration::from_secs(3600));
        activity.wait(activity.now(), Duration::from_micros(20));
        assert_eq!(activity.waiters.load(Ordering::SeqCst), 0);
    }
}
