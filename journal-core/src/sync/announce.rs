//! Who runs on which object: each thread writes it down in a place of its own, by a plain store.
//!
//! A call stores the object's address and then looks whether the object is closed; a close marks the object and then
//! looks through all places. Each must see the other's store. Calls are many and closes are few, so a close pays for
//! both: `barrier` has the kernel run a full barrier on every thread of this process (membarrier(2)). A thread that
//! had stored its place before it is seen; one that had not sees the mark.
//!
//! Where the kernel has no such call, or a thread is ending, there is no place, and calls are counted instead.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, compiler_fence};

/// Objects that one thread may run on at once in this way.
const PLACES: usize = 4;

/// The places of a thread. Never freed; used again when its thread has ended.
#[repr(align(128))]
struct Seat {
    taken: AtomicBool,
    /// Addresses of objects, 0 for none. Written by the thread, read by closes.
    places: [AtomicUsize; PLACES],
    /// Set before the seat is in the list.
    next: AtomicPtr<Seat>,
}

/// All seats.
static SEATS: AtomicPtr<Seat> = AtomicPtr::new(core::ptr::null_mut());

fn seats() -> impl Iterator<Item = &'static Seat> {
    // SYNC: Acquire; pairs with the Release in `take_seat`.
    let mut at = SEATS.load(Ordering::Acquire);
    core::iter::from_fn(move || {
        // SAFETY: NULL, or a seat, which is never freed.
        let seat: &'static Seat = unsafe { at.as_ref() }?;
        at = seat.next.load(Ordering::Relaxed);
        Some(seat)
    })
}

/// Gives the seat back when its thread ends.
struct Holder(Cell<Option<&'static Seat>>);

impl Drop for Holder {
    fn drop(&mut self) {
        SEAT.set(None);
        if let Some(seat) = self.0.take() {
            // SYNC: Release; pairs with the Acquire in `take_seat`: the next thread finds its places empty.
            seat.taken.store(false, Ordering::Release);
        }
    }
}

thread_local! {
    /// Without a destructor, so that looking at it is one load.
    static SEAT: Cell<Option<&'static Seat>> = const { Cell::new(None) };
    static HOLDER: Holder = const { Holder(Cell::new(None)) };
}

/// Set before the first seat is.
static HAS_BARRIER: OnceLock<bool> = OnceLock::new();

#[cold]
fn take_seat() -> Option<&'static Seat> {
    if !HAS_BARRIER.get_or_init(|| register() && barrier()) {
        return None;
    }
    HOLDER
        .try_with(|holder| {
            let free = |seat: &&Seat| seat.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
            let seat = seats().find(free).unwrap_or_else(add_seat);
            holder.0.set(Some(seat));
            SEAT.set(Some(seat));
            seat
        })
        .ok()
}

fn add_seat() -> &'static Seat {
    let (taken, next) = (AtomicBool::new(true), AtomicPtr::new(core::ptr::null_mut()));
    let seat: &'static Seat = Box::leak(Box::new(Seat { taken, places: [const { AtomicUsize::new(0) }; PLACES], next }));
    let add = |first: *mut Seat| {
        seat.next.store(first, Ordering::Relaxed);
        Some(core::ptr::from_ref(seat).cast_mut())
    };
    // SYNC: Release; pairs with the Acquire in `seats`.
    let _ = SEATS.fetch_update(Ordering::Release, Ordering::Relaxed, add);
    seat
}

fn membarrier(command: i32) -> bool {
    // SAFETY: takes numbers only, and only orders memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

fn register() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// A full barrier on all threads of this process. False where the kernel refuses.
fn barrier() -> bool {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// A call that is written down; of the thread that wrote it.
#[derive(Debug)]
pub struct Place(&'static AtomicUsize);

impl Place {
    /// Writes down that this thread runs on the object at `address`. None where calls are to be counted.
    #[inline]
    pub fn announce(address: usize) -> Option<Self> {
        let seat = SEAT.get().or_else(take_seat)?;
        let place = seat.places.iter().find(|place| place.load(Ordering::Relaxed) == 0)?;
        place.store(address, Ordering::Relaxed);
        // SYNC: before the look at the object's mark; pairs with `barrier`.
        compiler_fence(Ordering::SeqCst);
        Some(Self(place))
    }

    /// The call has ended. Look at the object's mark after it.
    #[inline]
    pub fn clear(&self) {
        // SYNC: Release; pairs with the Acquire in `is_announced`: what the call did happens before the drop.
        self.0.store(0, Ordering::Release);
        // SYNC: as in `announce`.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Calls that are written down for the object at `address`.
pub fn running(address: usize) -> usize {
    // SYNC: Acquire; pairs with the Release in `clear`.
    let here = |seat: &Seat| seat.places.iter().filter(|place| place.load(Ordering::Acquire) == address).count();
    seats().map(here).sum()
}

fn is_announced(address: usize) -> bool {
    running(address) > 0
}

/// Whether a thread runs on the object at `address`, which was marked as closed before.
pub fn may_run(address: usize) -> bool {
    if barrier() {
        return is_announced(address);
    }
    // Refused before the first seat: who takes one later sees the mark. Refused afterwards (in a forked child of a
    // kernel that forgets): once more, and rather nothing is ever dropped than too early.
    let is_used = HAS_BARRIER.get() == Some(&true);
    is_used && !(register() && barrier() && !is_announced(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_places_for_some_objects_and_gives_its_seat_back() {
        let first = std::thread::spawn(|| {
            let places: Vec<Place> = (1..=PLACES).filter_map(|n| Place::announce(n * 8)).collect();
            assert_eq!(places.len(), PLACES, "this kernel has membarrier");
            assert!(Place::announce(1000).is_none(), "the next one is counted");
            assert!(is_announced(8 * PLACES));
            places.iter().for_each(Place::clear);
            assert!(!is_announced(8 * PLACES));
            core::ptr::from_ref(SEAT.get().expect("taken")).addr()
        });
        let first = first.join().expect("asserts hold");
        assert!(seats().any(|seat| core::ptr::from_ref(seat).addr() == first), "kept for the next thread");
    }
}
