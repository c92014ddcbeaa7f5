//! Waking readers and blocked writers: a shared futex that writers touch only when somebody has said that it sleeps.
//!
//! A writer pays one relaxed load an append. No correctness depends on it: a writer that reads the mark before the
//! sleeper set it costs that sleeper one [`SLICE`]. A sleeper that died leaves a mark for one needless wake.

use std::time::{Duration, Instant};

use super::SharedSegment;
use super::layout::{DOORBELL, WAITERS};
use crate::sync::futex;
use crate::sync::{Ordering, Words, ordered};

/// Longest sleep without a look.
const SLICE: Duration = Duration::from_millis(10);

/// The low half of the bell's word, as the kernel compares it.
fn futex_word(base: &SharedSegment) -> &core::sync::atomic::AtomicU32 {
    const { assert!(cfg!(target_endian = "little") && DOORBELL % 8 == 0) };
    assert!(base.len() >= DOORBELL + 8);
    // SAFETY: within the mapping, as just checked.
    let at = unsafe { base.base().add(DOORBELL as usize) };
    // SAFETY: aligned and mapped while `base` is borrowed; all accesses of any process are atomic.
    unsafe { &*at.cast() }
}

/// Wakes whoever sleeps on this journal.
#[cold]
#[inline(never)]
pub(super) fn ring(base: &SharedSegment) {
    count_ring(base);
    futex::wake_all(futex_word(base));
}

/// Counts a ring, after the mark is taken away: a mark set from now on is the next ring's.
pub fn count_ring<W: Words>(base: &W) {
    base.word(WAITERS).store(0, Ordering::Relaxed);
    // SYNC: Release; pairs with the Acquire in `count`: who hears the ring sees what it was rung for.
    base.word(DOORBELL).fetch_add(1, ordered("doorbell ring", Ordering::Release));
}

/// How often it rang, to be handed to [`sleep`].
pub fn count<W: Words>(base: &W) -> u32 {
    base.word(DOORBELL).load(ordered("doorbell count", Ordering::Acquire)) as u32
}

/// Says that somebody is about to sleep: look once more at what you wait for, then [`sleep`].
pub fn arm<W: Words>(base: &W) {
    base.word(WAITERS).store(1, Ordering::SeqCst);
}

/// Sleeps until a ring after `seen`, for at most a slice and not beyond `deadline`.
pub(super) fn sleep(base: &SharedSegment, seen: u32, deadline: Instant) {
    futex::wait(futex_word(base), seen, deadline.min(Instant::now() + SLICE));
}

/// For a reader that may not write: looks again after a slice.
pub(super) fn pause(deadline: Instant) {
    let nobody_wakes = core::sync::atomic::AtomicU32::new(0);
    futex::wait(&nobody_wakes, 0, deadline.min(Instant::now() + SLICE));
}
