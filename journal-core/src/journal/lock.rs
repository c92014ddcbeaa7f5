//! The robust mutexes of a segment, and what their lock words say to those who must not lock.

use super::SharedSegment;
use super::store::{Memory, Store};
use crate::sync::robust::{Lock, ROBUST_MUTEX_BYTES, RobustMutex};
use crate::sync::{Ordering, Words};

/// What a lock word shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Nobody holds it.
    Nobody,
    /// A thread that the kernel has not seen die; its id in its own pid namespace.
    Alive(u32),
    /// The kernel marked it when its holder died.
    Died,
}

const TID_MASK: u32 = 0x3FFF_FFFF;
const OWNER_DIED: u32 = 0x4000_0000;

/// The mutex at `offset`. The caller keeps the segment mapped for as long as it uses the mutex.
pub fn mutex(segment: &SharedSegment, offset: u64) -> RobustMutex {
    assert!(segment.is_writable() && offset % 8 == 0 && offset + ROBUST_MUTEX_BYTES <= segment.len());
    // SAFETY: within the mapping, as just checked.
    let at = unsafe { segment.base().add(offset as usize) };
    // SAFETY: aligned, in bounds and mapped while the caller keeps the segment; all mutexes of a segment are
    // initialised before it is published.
    unsafe { RobustMutex::at(at) }
}

/// Offset of the lock word within this libc's mutex, found by locking one: glibc and musl differ.
pub fn futex_offset(segment: &SharedSegment, unused_mutex: u64) -> u8 {
    let lock = mutex(segment, unused_mutex);
    let before = halves(segment, unused_mutex);
    let locked = lock.try_lock();
    let during = halves(segment, unused_mutex);
    if locked == Lock::Acquired {
        lock.unlock();
    }
    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    // glibc stores the thread id twice (lock word, then owner); the first is the futex in both libraries.
    (0..before.len()).find(|i| before[*i] == 0 && during[*i] & TID_MASK == tid).map_or(0, |i| i as u8 * 4)
}

fn halves(segment: &SharedSegment, offset: u64) -> Vec<u32> {
    let words = segment.words(offset, ROBUST_MUTEX_BYTES as usize / 8);
    words.iter().flat_map(|w| { let w = w.load(Ordering::Relaxed); [w as u32, (w >> 32) as u32] }).collect()
}

/// Reads the lock word without touching the mutex; works on a read-only mapping.
pub fn holder(store: &Store<Memory>, mutex_at: u64, futex_offset: u8) -> Holder {
    let word = store.word(mutex_at + u64::from(futex_offset & !7)).load(Ordering::Acquire);
    let word = if futex_offset & 4 == 0 { word as u32 } else { (word >> 32) as u32 };
    if word & OWNER_DIED != 0 {
        Holder::Died
    } else if word & TID_MASK == 0 {
        Holder::Nobody
    } else {
        Holder::Alive(word & TID_MASK)
    }
}
