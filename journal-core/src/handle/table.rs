//! The table behind virtual handles, in the rank's segment: binding, resolving, retiring.
//!
//! An entry's state word ([`super::entry`]) holds state, kind and generation, so one compare tells whether a handle
//! still means this object. A death between two transitions leaves one of these states.

use super::blocks::{self, Cut, Entry};
use super::entry::{LIVE, Word};
use super::{HandleError, HandleKind, Seat, VirtualHandle};
use crate::journal::layout::{HANDLE_ENTRY_BYTES, HANDLE_EPOCH, HANDLE_REAL};
use crate::journal::store::Store;
use crate::sync::{Ordering, Words, ordered};

const REAL: usize = (HANDLE_REAL / 8) as usize;

/// The handle table of one journal.
pub struct HandleTable<'a, W> {
    pub(super) store: &'a Store<W>,
    pub(super) seat: &'a dyn Seat,
    /// The entries of the base segment.
    base: &'a [Entry],
}

impl<'a, W: Words> HandleTable<'a, W> {
    /// The table of `store`, as the thread that `seat` tells sees it.
    #[inline]
    pub fn new(store: &'a Store<W>, seat: &'a dyn Seat) -> Self {
        let geometry = store.base();
        let words = geometry.handles as usize * (HANDLE_ENTRY_BYTES / 8) as usize;
        Self { store, seat, base: store.words(geometry.handle(0), words).as_chunks().0 }
    }

    /// Entries of the table now; it grows when they are used up.
    pub fn capacity(&self) -> u32 {
        blocks::capacity(self.store)
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> Option<&'a Entry> {
        match self.base.get(index as usize) {
            Some(entry) => Some(entry),
            None => self.grown_entry(index),
        }
    }

    #[cold]
    #[inline(never)]
    fn grown_entry(&self, index: u32) -> Option<&'a Entry> {
        let cut = Cut::of(self.store);
        blocks::block(self.store, index / cut.block)?.get((index % cut.block) as usize)
    }

    /// The entry of `handle`, its state word, and the kind that it must have.
    fn find(&self, handle: VirtualHandle) -> Result<(&'a Entry, Word, HandleKind), HandleError> {
        let kind = handle.kind()?;
        let Some(entry) = self.entry(handle.index()) else {
            return Err(HandleError::OutOfRange { handle, capacity: self.capacity() });
        };
        // SYNC: Acquire; pairs with the Release in `bind` and `retire`.
        let word = Word(entry[0].load(Ordering::Acquire));
        if word.generation() != handle.generation() || !word.is_taken() || word.kind() != kind as u8 {
            return Err(HandleError::Stale { handle, found: word.generation() });
        }
        Ok((entry, word, kind))
    }

    /// Gives a handle its object: the first one, or another one. One binder a handle at a time: its creator, later
    /// recovery. Other threads see the old object or the new one, and retire the handle when they like.
    pub fn bind(&self, handle: VirtualHandle, real: u64) -> Result<(), HandleError> {
        let owner = self.seat.owner();
        let (entry, mut word, _) = self.find(handle)?;
        loop {
            // From here on nobody else can get this entry, so that the store below hits no other object's.
            match entry[0].compare_exchange(word.0, word.storing(owner).0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    word = word.storing(owner);
                    break;
                }
                // Taken away by `unbind_kind`, or retired: look again.
                Err(_) => word = self.find(handle)?.1,
            }
        }
        // SYNC: Release; pairs with the Acquire of `real` in `resolve`.
        entry[REAL].store(real, ordered("handle bind", Ordering::Release));
        loop {
            // SYNC: Release; pairs with the Acquire in `find` and `resolve`: who sees LIVE sees the object.
            let order = ordered("handle live", Ordering::AcqRel);
            match entry[0].compare_exchange(word.0, word.bound().0, order, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) if Word(now).generation() != handle.generation() => {
                    return Err(HandleError::Stale { handle, found: Word(now).generation() });
                }
                Err(now) if Word(now).is_taken() => word = Word(now),
                Err(now) => {
                    // Retired meanwhile, and nobody stores to it any more. A failure means that it is free already.
                    let _ = entry[0].compare_exchange(now, Word(now).freed().0, Ordering::AcqRel, Ordering::Relaxed);
                    return Err(HandleError::Stale { handle, found: handle.generation() });
                }
            }
        }
    }

    /// [`Self::bind`] for a handle that had an object before: cached translations expire.
    pub fn rebind(&self, handle: VirtualHandle, real: u64) -> Result<(), HandleError> {
        self.bind(handle, real)?;
        self.store.word(HANDLE_EPOCH).fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The object behind `handle`. Three loads; no lock, no system call.
    #[inline]
    pub fn resolve(&self, handle: VirtualHandle, expected: HandleKind) -> Result<u64, HandleError> {
        if let Some(entry) = self.base.get(handle.index() as usize) {
            // Of an entry that leads to the object; a handle of another kind, or no handle at all, gives no such word.
            let live = Word::new(LIVE, expected, 0, handle.generation());
            // SYNC: Acquire; pairs with the Release in `bind`.
            let word = entry[0].load(ordered("handle look", Ordering::Acquire));
            // SYNC: Acquire; pairs with the Release in `bind`, and keeps the second look at the state behind this load.
            let real = entry[REAL].load(ordered("handle resolve", Ordering::Acquire));
            let again = entry[0].load(Ordering::Relaxed);
            if handle.is_of(expected) && word == live.0 && again == live.0 {
                return Ok(real);
            }
        }
        self.resolve_slowly(handle, expected)
    }

    /// Everything but a live entry of the base segment.
    #[cold]
    #[inline(never)]
    fn resolve_slowly(&self, handle: VirtualHandle, expected: HandleKind) -> Result<u64, HandleError> {
        let (entry, word, found) = self.find(handle)?;
        if found != expected {
            return Err(HandleError::WrongKind { handle, expected, found });
        }
        if !word.is_live() {
            return Err(HandleError::Unbound { handle });
        }
        // SYNC: as in `resolve`.
        let real = entry[REAL].load(ordered("handle resolve", Ordering::Acquire));
        let again = Word(entry[0].load(Ordering::Relaxed));
        if !again.is_taken() || again.generation() != handle.generation() {
            // Retired while we looked; never another object.
            return Err(HandleError::Stale { handle, found: again.generation() });
        }
        // Unbound meanwhile, perhaps bound again: what was loaded is its old object or the new one.
        if again.is_live() { Ok(real) } else { Err(HandleError::Unbound { handle }) }
    }

    /// The handle means nothing any more; its entry may be used again.
    pub fn retire(&self, handle: VirtualHandle) -> Result<(), HandleError> {
        loop {
            let (entry, word, _) = self.find(handle)?;
            // SYNC: Release; pairs with the AcqRel in `reserve`. A failure means that it was bound or unbound meanwhile.
            let order = ordered("handle retire", Ordering::AcqRel);
            if entry[0].compare_exchange(word.0, word.retired().0, order, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Every entry with its index.
    fn entries(&self) -> impl Iterator<Item = (u32, &'a Entry)> {
        let (store, cut) = (self.store, Cut::of(self.store));
        (0..blocks::blocks(store)).filter_map(move |number| Some((number, blocks::block(store, number)?))).flat_map(
            move |(number, entries)| entries.iter().enumerate().map(move |(i, entry)| (number * cut.block + i as u32, entry)),
        )
    }

    /// Takes the objects of all live handles of `kind` away, until they are rebound.
    pub fn unbind_kind(&self, kind: HandleKind) {
        for (_, entry) in self.entries() {
            let word = Word(entry[0].load(Ordering::Relaxed));
            if word.state() == LIVE && word.kind() == kind as u8 {
                // A failure means that it was retired meanwhile, or has just got another object, which is as good.
                let _ = entry[0].compare_exchange(word.0, word.unbound().0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        self.store.word(HANDLE_EPOCH).fetch_add(1, Ordering::Release);
    }

    /// Handles that mean something: the handle, and its object where it has one now. Never half of one entry and half
    /// of another.
    pub fn live(&self) -> Vec<(VirtualHandle, Option<u64>)> {
        self.entries()
            .filter_map(|(index, entry)| {
                let mut word = Word(entry[0].load(Ordering::Acquire));
                // A live entry changes only so often while it is looked at; the limit is for a damaged one.
                for _ in 0..8 {
                    let kind = HandleKind::from_number(word.kind())?;
                    let real = entry[REAL].load(Ordering::Acquire);
                    let again = Word(entry[0].load(Ordering::Acquire));
                    if again == word {
                        let handle = VirtualHandle::new(kind, word.generation(), index);
                        return word.is_taken().then_some((handle, word.is_live().then_some(real)));
                    }
                    word = again;
                }
                let kind = HandleKind::from_number(word.kind())?;
                word.is_taken().then_some((VirtualHandle::new(kind, word.generation(), index), None))
            })
            .collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
