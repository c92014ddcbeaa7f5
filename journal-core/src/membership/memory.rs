//! The mapped members segment: its mutexes, its event counter, and the clock all ranks share.

use core::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use super::layout::{AT_DECISION, AT_EVENT, AT_LAUNCHER_MUTEX, Layout};
use super::seat::PLACES;
use super::{Incarnation, MembershipError, Rank};
use crate::journal::SharedSegment;
use crate::sync::robust::{Holder, ROBUST_MUTEX_BYTES, RobustMutex};
use crate::sync::{AtomicU64, Ordering, Words, futex};

/// The segment and where everything is in it.
#[derive(Debug)]
pub(super) struct Memory {
    segment: SharedSegment,
    pub(super) layout: Layout,
}

impl Memory {
    /// The segment is at least as long as `layout` says (checked by the caller against its header).
    pub(super) fn new(segment: SharedSegment, layout: Layout) -> Self {
        assert!(segment.len() >= layout.bytes, "a members segment shorter than its layout");
        Self { segment, layout }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.segment.is_writable()
    }

    /// The event counter. Only ever accessed as these 32 bits. A real atomic under loom too: it is a futex.
    fn event_word(&self) -> &AtomicU32 {
        // SAFETY: within the segment (`new` checked its length against the layout).
        let at = unsafe { self.segment.base().add(AT_EVENT as usize) };
        // SAFETY: 4-aligned (the base is page-aligned), mapped for as long as `self` lives; every access of any
        // process is an atomic one of this size.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    pub(super) fn event(&self) -> u32 {
        // SYNC: Acquire; pairs with `signal`: a change whose step is in the value read is visible.
        self.event_word().load(Ordering::Acquire)
    }

    pub(super) fn signal(&self) {
        // SYNC: Release; pairs with `event`.
        self.event_word().fetch_add(1, Ordering::Release);
        futex::wake_all(self.event_word());
    }

    /// False: the deadline passed.
    pub(super) fn wait(&self, seen: u32, deadline: Instant) -> bool {
        if self.event() != seen {
            return true;
        }
        // A waiter that came in vain looks at its condition again.
        futex::wait(self.event_word(), seen, deadline) == futex::Wait::Woken
    }

    /// The low half of the decision word {epoch, slot, state} as a futex. Only ever given to the kernel.
    fn epoch_futex(&self) -> &AtomicU32 {
        // SAFETY: within the segment (`new` checked its length against the layout).
        let at = unsafe { self.segment.base().add(AT_DECISION as usize) };
        // SAFETY: 4-aligned, mapped for as long as `self` lives; never loaded or stored as these 32 bits.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Wakes those who wait for another epoch only, whom votes and commits leave asleep.
    pub(super) fn signal_epoch(&self) {
        futex::wake_all(self.epoch_futex());
    }

    /// Sleeps while the decision word has the low half `seen`, until [`Self::signal_epoch`] or `deadline`.
    pub(super) fn wait_epoch(&self, seen: u32, deadline: Instant) -> bool {
        futex::wait(self.epoch_futex(), seen, deadline) == futex::Wait::Woken
    }

    fn mutex_at(&self, offset: u64) -> RobustMutex {
        assert!(self.is_writable(), "a mutex of a segment that is mapped for reading only");
        assert!(offset + ROBUST_MUTEX_BYTES <= self.layout.bytes);
        // SAFETY: within the segment (just checked).
        let at = unsafe { self.segment.base().add(offset as usize) };
        // SAFETY: ROBUST_MUTEX_BYTES of writable memory, 64-aligned by the layout; the threads that lock hold an Arc
        // of this memory until they have unlocked. `create` initialises every mutex before publication.
        unsafe { RobustMutex::at(at) }
    }

    pub(super) fn mutex(&self, rank: Rank, incarnation: Incarnation) -> RobustMutex {
        self.mutex_at(self.layout.mutex(rank, incarnation))
    }

    /// Who holds a rank's mutex, without touching it.
    pub(super) fn holder(&self, rank: Rank, incarnation: Incarnation) -> Holder {
        self.holder_at(self.layout.mutex(rank, incarnation))
    }

    /// Who holds the launcher's mutex, without touching it.
    pub(super) fn launcher_holder(&self) -> Holder {
        self.holder_at(AT_LAUNCHER_MUTEX)
    }

    fn holder_at(&self, offset: u64) -> Holder {
        let word = self.word(offset).load(Ordering::Acquire).to_ne_bytes();
        Holder::from_word(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
    }

    pub(super) fn launcher_mutex(&self) -> RobustMutex {
        self.mutex_at(AT_LAUNCHER_MUTEX)
    }
}

impl Words for Memory {
    fn word(&self, offset: u64) -> &AtomicU64 {
        self.segment.word(offset)
    }

    fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        self.segment.words(offset, count)
    }
}

/// Initialises every mutex of a segment that is not published yet.
pub(super) fn initialise_mutexes(segment: &SharedSegment, layout: &Layout) -> Result<(), MembershipError> {
    assert!(segment.len() >= layout.bytes, "a members segment shorter than its layout");
    let ranks = (0..layout.nranks).map(Rank);
    let of_ranks = ranks.flat_map(|rank| (0..PLACES).map(move |place| layout.mutex(rank, Incarnation(place))));
    for offset in of_ranks.chain([AT_LAUNCHER_MUTEX]) {
        // SAFETY: within the segment, by the layout whose length was just checked.
        let at = unsafe { segment.base().add(offset as usize) };
        // SAFETY: ROBUST_MUTEX_BYTES of writable memory, 64-aligned by the layout, about to get `init`; used only here.
        let mutex = unsafe { RobustMutex::at(at) };
        mutex.init().map_err(|source| MembershipError::Io { action: "initialise a robust mutex", source })?;
    }
    Ok(())
}

/// Keeps the application's signal handlers off the calling thread.
pub(super) fn block_signals() {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: initialises the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set is initialised; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), core::ptr::null_mut()) };
}

/// Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a host.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0));
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
