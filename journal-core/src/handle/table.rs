//! The table behind virtual handles, in the rank's segment.
//!
//! ```text
//! FREE --reserve--> RESERVED --bind--> LIVE --unbind--> UNBOUND --rebind--> LIVE --retire--> FREE (generation + 1)
//! ```
//!
//! An entry's state word holds state, kind and generation, so one compare tells whether a handle still means
//! this object. A death between two transitions leaves one of these states; a RESERVED entry of a dead process
//! has no object and is only lost as a slot.

use super::virtual_handle::LAST_GENERATION;
use super::{HandleError, HandleKind, VirtualHandle};
use crate::journal::layout::{HANDLE_EPOCH, HANDLE_REAL};
use crate::journal::store::Store;
use crate::sync::{AtomicU64, Ordering, Words, ordered};

const FREE: u64 = 0;
const RESERVED: u64 = 1;
const LIVE: u64 = 2;
const UNBOUND: u64 = 3;

/// {state 8, kind 8, unused 16, generation 24} from the lowest bit.
fn pack(state: u64, kind: HandleKind, generation: u32) -> u64 {
    state | (kind as u64) << 8 | u64::from(generation) << 32
}

fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32 & LAST_GENERATION
}

/// The handle table of one journal.
pub struct HandleTable<'a, W> {
    store: &'a Store<W>,
    /// Where the next search for a free entry starts; a guess, so any value is right.
    hint: &'a core::sync::atomic::AtomicU32,
}

impl<'a, W: Words> HandleTable<'a, W> {
    /// The table of `store`.
    #[inline]
    pub fn new(store: &'a Store<W>, hint: &'a core::sync::atomic::AtomicU32) -> Self {
        Self { store, hint }
    }

    fn capacity(&self) -> u32 {
        self.store.base().handles
    }

    #[inline]
    fn entry(&self, index: u32) -> &'a [AtomicU64] {
        self.store.words(self.store.base().handle(index), 2)
    }

    /// A new handle of `kind`, without an object yet.
    pub fn reserve(&self, kind: HandleKind) -> Result<VirtualHandle, HandleError> {
        let capacity = self.capacity();
        let start = self.hint.load(core::sync::atomic::Ordering::Relaxed);
        for i in 0..capacity {
            let index = (start.wrapping_add(i)) % capacity;
            let state = &self.entry(index)[0];
            let word = state.load(Ordering::Relaxed);
            // A slot that has used up its generations stays free for ever: reusing one would revive old handles.
            if word & 0xff != FREE || generation_of(word) == LAST_GENERATION {
                continue;
            }
            let generation = generation_of(word) + 1;
            // SYNC: AcqRel; pairs with the Release in `retire`: the former object is gone before this one comes.
            if state.compare_exchange(word, pack(RESERVED, kind, generation), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.hint.store(index.wrapping_add(1), core::sync::atomic::Ordering::Relaxed);
                return Ok(VirtualHandle::new(kind, generation, index));
            }
        }
        Err(HandleError::Full { capacity })
    }

    /// The entry of `handle`, its state word, and the kind that it must have.
    #[inline]
    fn find(&self, handle: VirtualHandle) -> Result<(&'a [AtomicU64], u64, HandleKind), HandleError> {
        let kind = handle.kind()?;
        if handle.index() >= self.capacity() {
            return Err(HandleError::OutOfRange { handle, capacity: self.capacity() });
        }
        let entry = self.entry(handle.index());
        // SYNC: Acquire; pairs with the Release in `bind`, `rebind` and `retire`.
        let word = entry[0].load(Ordering::Acquire);
        let found = generation_of(word);
        if found != handle.generation() || word & 0xff == FREE || (word >> 8) as u8 != kind as u8 {
            return Err(HandleError::Stale { handle, found });
        }
        Ok((entry, word, kind))
    }

    /// Gives a reserved (or unbound) handle its object. One binder a handle: its creator, later recovery.
    pub fn bind(&self, handle: VirtualHandle, real: u64) -> Result<(), HandleError> {
        let (entry, word, kind) = self.find(handle)?;
        // SYNC: Release; pairs with the Acquire of `real` in `resolve`.
        entry[1].store(real, ordered("handle bind", Ordering::Release));
        let live = pack(LIVE, kind, handle.generation());
        // SYNC: Release; pairs with the Acquire in `find`: who sees LIVE sees the object.
        match entry[0].compare_exchange(word, live, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(HandleError::Stale { handle, found: generation_of(now) }),
        }
    }

    /// Gives a handle another object; all threads see the old or the new one.
    pub fn rebind(&self, handle: VirtualHandle, real: u64) -> Result<(), HandleError> {
        self.bind(handle, real)?;
        self.store.word(HANDLE_EPOCH).fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The object behind `handle`. Three loads; no lock, no system call.
    #[inline]
    pub fn resolve(&self, handle: VirtualHandle, expected: HandleKind) -> Result<u64, HandleError> {
        let (entry, word, found) = self.find(handle)?;
        if found != expected {
            return Err(HandleError::WrongKind { handle, expected, found });
        }
        if word & 0xff != LIVE {
            return Err(HandleError::Unbound { handle });
        }
        // SYNC: Acquire; pairs with the Release in `bind`, and keeps the second look at the state behind this load.
        let real = entry[1].load(ordered("handle resolve", Ordering::Acquire));
        let again = entry[0].load(Ordering::Relaxed);
        if again != word {
            // Retired, or unbound, while we looked; never another object.
            return Err(match generation_of(again) == handle.generation() && again & 0xff != FREE {
                true => HandleError::Unbound { handle },
                false => HandleError::Stale { handle, found: generation_of(again) },
            });
        }
        Ok(real)
    }

    /// The handle means nothing any more; its slot may be used again.
    pub fn retire(&self, handle: VirtualHandle) -> Result<(), HandleError> {
        let (entry, word, _) = self.find(handle)?;
        let free = FREE | u64::from(handle.generation()) << 32;
        // SYNC: Release; pairs with the AcqRel in `reserve`.
        match entry[0].compare_exchange(word, free, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(HandleError::Stale { handle, found: generation_of(now) }),
        }
    }

    /// Takes the objects of all live handles of `kind` away, until they are rebound.
    pub fn unbind_kind(&self, kind: HandleKind) {
        for index in 0..self.capacity() {
            let state = &self.entry(index)[0];
            let word = state.load(Ordering::Relaxed);
            if word & 0xff == LIVE && (word >> 8) as u8 == kind as u8 {
                // A failure means that the handle was retired meanwhile, which is as good.
                let _ = state.compare_exchange(word, pack(UNBOUND, kind, generation_of(word)), Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        self.store.word(HANDLE_EPOCH).fetch_add(1, Ordering::Release);
    }

    /// Handles that are not free: the handle, and its object where it has one now.
    pub fn live(&self) -> Vec<(VirtualHandle, Option<u64>)> {
        (0..self.capacity())
            .filter_map(|index| {
                let entry = self.entry(index);
                let word = entry[0].load(Ordering::Acquire);
                let kind = HandleKind::from_number((word >> 8) as u8)?;
                let real = entry[(HANDLE_REAL / 8) as usize].load(Ordering::Relaxed);
                (word & 0xff != FREE)
                    .then(|| (VirtualHandle::new(kind, generation_of(word), index), (word & 0xff == LIVE).then_some(real)))
            })
            .collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::journal::layout::Geometry;
    use crate::sync::HeapWords;

    fn store(handles: u32) -> Store<HeapWords> {
        let geometry = Geometry::base(1 << 20, 4096, 2, handles).expect("fits");
        Store::new(HeapWords::zeroed(1 << 20), geometry)
    }

    macro_rules! table {
        ($table:ident, $handles:expr) => {
            let (store, hint) = (store($handles), core::sync::atomic::AtomicU32::new(0));
            let $table = HandleTable::new(&store, &hint);
        };
    }

    #[test]
    fn a_stale_handle_is_an_error_even_when_its_slot_is_used_again() {
        table!(table, 1);
        let first = table.reserve(HandleKind::Stream).expect("free");
        assert_eq!(table.resolve(first, HandleKind::Stream), Err(HandleError::Unbound { handle: first }));
        table.bind(first, 7).expect("reserved");
        assert_eq!(table.resolve(first, HandleKind::Stream), Ok(7));
        assert_eq!(table.reserve(HandleKind::Stream), Err(HandleError::Full { capacity: 1 }));
        table.retire(first).expect("live");
        let second = table.reserve(HandleKind::Stream).expect("free again");
        table.bind(second, 9).expect("reserved");
        assert_eq!(first.index(), second.index());
        assert!(matches!(table.resolve(first, HandleKind::Stream), Err(HandleError::Stale { found: 2, .. })));
        assert!(matches!(table.retire(first), Err(HandleError::Stale { .. })));
        assert_eq!(table.resolve(second, HandleKind::Stream), Ok(9));
    }

    #[test]
    fn pointers_and_handles_of_another_kind_are_told_apart() {
        table!(table, 4);
        let stream = table.reserve(HandleKind::Stream).expect("free");
        table.bind(stream, 7).expect("reserved");
        assert!(matches!(table.resolve(stream, HandleKind::Event), Err(HandleError::WrongKind { .. })));
        assert_eq!(table.resolve(VirtualHandle(0), HandleKind::Stream), Err(HandleError::Null));
        let pointer = VirtualHandle(0x7fff_1234_5678);
        assert_eq!(table.resolve(pointer, HandleKind::Stream), Err(HandleError::NotVirtual { value: pointer.0 }));
        let beyond = VirtualHandle(stream.0 + 100);
        assert!(matches!(table.resolve(beyond, HandleKind::Stream), Err(HandleError::OutOfRange { .. })));
    }

    #[test]
    fn an_unbound_handle_says_so_until_it_is_rebound() {
        table!(table, 4);
        let comm = table.reserve(HandleKind::Communicator).expect("free");
        let stream = table.reserve(HandleKind::Stream).expect("free");
        table.bind(comm, 1).expect("reserved");
        table.bind(stream, 2).expect("reserved");
        table.unbind_kind(HandleKind::Communicator);
        assert_eq!(table.resolve(comm, HandleKind::Communicator), Err(HandleError::Unbound { handle: comm }));
        assert_eq!(table.resolve(stream, HandleKind::Stream), Ok(2));
        table.rebind(comm, 3).expect("unbound");
        assert_eq!(table.resolve(comm, HandleKind::Communicator), Ok(3));
        assert_eq!(table.live(), [(comm, Some(3)), (stream, Some(2))]);
    }

    #[test]
    fn a_slot_without_generations_left_is_not_used_again() {
        table!(table, 2);
        table.entry(0)[0].store(u64::from(LAST_GENERATION - 1) << 32, Ordering::Relaxed);
        let last = table.reserve(HandleKind::User).expect("free");
        assert_eq!((last.index(), last.generation()), (0, LAST_GENERATION));
        table.retire(last).expect("reserved");
        assert_eq!(table.reserve(HandleKind::User).expect("free").index(), 1);
        assert_eq!(table.reserve(HandleKind::User), Err(HandleError::Full { capacity: 2 }));
    }
}
