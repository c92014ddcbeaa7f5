//! Where the entries of the table stand, who takes handles from which block, and how the table grows.
//!
//! Entries stand in blocks of up to 64. The first ones are the table of the base segment; further ones stand in
//! chunks of the journal, named by a directory. A thread takes handles from blocks of its own, so that threads do
//! not meet; a block's owner stands in its first entry and is a slot, so a block is found again as a lane is: by who
//! takes the slot next, or by the reaper. An entry itself is taken by compare-and-swap, so ownership is only about
//! speed, and where nothing else is left a thread takes any free entry.

use super::entry::{FREE, RESERVED, Word};
use super::virtual_handle::LAST_GENERATION;
use super::{HandleError, HandleKind, HandleTable, VirtualHandle};
use crate::journal::chunk;
use crate::journal::layout::{
    ChunkClass, ChunkId, HANDLE_BLOCK_OWNER, HANDLE_DIRECTORY, HANDLE_DIRECTORY_ENTRIES, HANDLE_ENTRY_BYTES,
    OWNER_JOURNAL, SLOT_HANDLE_HINT,
};
use crate::journal::store::Store;
use crate::sync::{AtomicU64, Ordering, Words, ordered};

/// Most entries of a block.
pub const BLOCK_HANDLES: u32 = 64;

/// One entry: a cache line.
pub(super) type Entry = [AtomicU64; (HANDLE_ENTRY_BYTES / 8) as usize];

const OWNER: usize = (HANDLE_BLOCK_OWNER / 8) as usize;

/// How the table is cut into blocks; constant for a journal.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Entries of a block; the last one of the base table may be shorter.
    pub(super) block: u32,
    /// Blocks of the base table.
    pub(super) base_blocks: u32,
    /// Blocks of a chunk.
    pub(super) chunk_blocks: u32,
}

impl Cut {
    pub(super) fn of<W: Words>(store: &Store<W>) -> Self {
        let a_chunk = (store.base().chunk_bytes / HANDLE_ENTRY_BYTES).clamp(1, 1 << 16) as u32;
        let block = a_chunk.min(BLOCK_HANDLES);
        Self { block, base_blocks: store.base().handles.div_ceil(block), chunk_blocks: a_chunk / block }
    }
}

/// The chunk that a word of the directory names; `None` also for what no writer leaves there.
fn chunk_of<W: Words>(store: &Store<W>, place: u32) -> Option<ChunkId> {
    if u64::from(place) >= HANDLE_DIRECTORY_ENTRIES {
        return None;
    }
    let word = store.word(HANDLE_DIRECTORY + 8 * u64::from(place));
    // SYNC: Acquire; pairs with the Release in `grow`: who sees the chunk sees its entries empty.
    store.link(word.load(ordered("handle directory", Ordering::Acquire))).ok().flatten()
}

/// Chunks that the table has taken.
pub(super) fn grown<W: Words>(store: &Store<W>) -> u32 {
    (0..HANDLE_DIRECTORY_ENTRIES as u32).take_while(|place| chunk_of(store, *place).is_some()).count() as u32
}

/// The entries of a block.
pub(super) fn block<W: Words>(store: &Store<W>, number: u32) -> Option<&[Entry]> {
    let cut = Cut::of(store);
    if let Some(number) = number.checked_sub(cut.base_blocks) {
        let chunk = chunk_of(store, number / cut.chunk_blocks)?;
        let at = store.chunk_at(chunk) + u64::from(number % cut.chunk_blocks * cut.block) * HANDLE_ENTRY_BYTES;
        return Some(store.words(at, cut.block as usize * size_of_entry()).as_chunks().0);
    }
    let first = number * cut.block;
    let count = cut.block.min(store.base().handles - first);
    Some(store.words(store.base().handle(first), count as usize * size_of_entry()).as_chunks().0)
}

const fn size_of_entry() -> usize {
    (HANDLE_ENTRY_BYTES / 8) as usize
}

/// Blocks that exist now.
pub(super) fn blocks<W: Words>(store: &Store<W>) -> u32 {
    let cut = Cut::of(store);
    cut.base_blocks + grown(store) * cut.chunk_blocks
}

/// Entries that exist now.
pub(super) fn capacity<W: Words>(store: &Store<W>) -> u32 {
    let cut = Cut::of(store);
    store.base().handles.saturating_add(grown(store) * cut.chunk_blocks * cut.block)
}

/// Chunks that the table may take: a quarter of the journal, so that handles never keep records out.
fn growth_limit<W: Words>(store: &Store<W>) -> u64 {
    store.chunk_count().div_ceil(4).min(HANDLE_DIRECTORY_ENTRIES)
}

/// Takes a chunk for more entries. True if the table is larger than `seen` chunks on return, whoever did it.
fn grow<W: Words>(store: &Store<W>, owner: u64, seen: u32) -> bool {
    if u64::from(seen) >= growth_limit(store) {
        return false;
    }
    let word = store.word(HANDLE_DIRECTORY + 8 * u64::from(seen));
    if word.load(Ordering::Relaxed) != 0 {
        return chunk_of(store, seen).is_some();
    }
    // Until the directory names it the chunk is the thread's own: should it die, the reaper gives it back.
    let claimer = if owner == 0 { OWNER_JOURNAL } else { owner };
    let Some(id) = chunk::claim(store, claimer, ChunkClass::Handles, 1) else { return false };
    for word in store.words(store.chunk_at(id), (store.base().chunk_bytes / 8) as usize) {
        word.store(0, Ordering::Relaxed);
    }
    let link = u64::from(id.0) + 1;
    // SYNC: Release; pairs with the Acquire in `chunk_of`.
    if word.compare_exchange(0, link, ordered("handle growth", Ordering::AcqRel), Ordering::Relaxed).is_ok() {
        store.chunk(id).owner().store(OWNER_JOURNAL, Ordering::Release);
    } else {
        // Another thread was first.
        chunk::release(store, id);
    }
    true
}

/// Takes a free entry of a block.
fn take(entries: &[Entry], from: u32, kind: HandleKind, owner: u64) -> Option<(u32, u32)> {
    let count = entries.len() as u32;
    (0..count).map(|i| (from + i) % count).find_map(|i| {
        let state = &entries[i as usize][0];
        let word = Word(state.load(Ordering::Relaxed));
        // An entry that has used up its generations stays free for ever: reusing it would revive old handles.
        if word.state() != FREE || word.generation() == LAST_GENERATION {
            return None;
        }
        let generation = word.generation() + 1;
        let reserved = Word::new(RESERVED, kind, owner, generation);
        // SYNC: AcqRel; pairs with the Release in `retire`: the former object is gone before this one comes.
        let order = ordered("handle reserve", Ordering::AcqRel);
        state.compare_exchange(word.0, reserved.0, order, Ordering::Relaxed).is_ok().then_some((i, generation))
    })
}

fn hint<W: Words>(store: &Store<W>, owner: u64) -> Option<&AtomicU64> {
    let slot = u16::try_from(owner.checked_sub(1)?).ok()?;
    (u32::from(slot) < store.base().max_slots).then(|| store.slot_word(slot, SLOT_HANDLE_HINT))
}

impl<W: Words> HandleTable<'_, W> {
    /// A new handle of `kind`, without an object yet. Takes from the thread's own blocks, then claims a block, then
    /// lets the table grow, then takes whatever is free anywhere.
    pub fn reserve(&self, kind: HandleKind) -> Result<VirtualHandle, HandleError> {
        let owner = self.seat.owner();
        let hint = hint(self.store, owner);
        // A guess: any value is right.
        let start = hint.map_or(0, |hint| hint.load(Ordering::Relaxed) as u32);
        let cut = Cut::of(self.store);
        loop {
            let seen = grown(self.store);
            let count = blocks(self.store);
            let own = |entries: &[Entry]| owner != 0 && entries[0][OWNER].load(Ordering::Relaxed) == owner;
            let any = |_: &[Entry]| true;
            let claim = |entries: &[Entry]| {
                // SYNC: AcqRel; pairs with the Release in `recover`: what its former owner left is settled.
                let order = ordered("handle block", Ordering::AcqRel);
                owner != 0 && entries[0][OWNER].compare_exchange(0, owner, order, Ordering::Relaxed).is_ok()
            };
            let search = |admit: &dyn Fn(&[Entry]) -> bool| {
                let first = start / cut.block;
                (0..count).map(|i| (first % count.max(1) + i) % count).find_map(|number| {
                    let entries = block(self.store, number).filter(|entries| admit(entries))?;
                    let from = if number == first { start % cut.block } else { 0 };
                    let (index, generation) = take(entries, from, kind, owner)?;
                    Some(VirtualHandle::new(kind, generation, number * cut.block + index))
                })
            };
            let mut found = search(&own).or_else(|| search(&claim));
            if found.is_none() {
                if grow(self.store, owner, seen) {
                    continue;
                }
                found = search(&any);
            }
            return match found {
                Some(handle) => {
                    if let Some(hint) = hint {
                        hint.store(u64::from(handle.index().wrapping_add(1)), Ordering::Relaxed);
                    }
                    Ok(handle)
                }
                None => Err(HandleError::Full { capacity: capacity(self.store) }),
            };
        }
    }
}

/// Settles what the dead holder of a slot left: entries it had reserved or was storing to, its blocks, a chunk it had
/// taken for the table. Under the slot's mutex; may itself die anywhere and be repeated.
pub(crate) fn recover<W: Words>(store: &Store<W>, owner: u64) {
    for place in 0..grown(store) {
        let Some(chunk) = chunk_of(store, place) else { break };
        // It died between naming the chunk and giving it up: the chunk is the table's.
        let word = store.chunk(chunk).owner();
        let _ = word.compare_exchange(owner, OWNER_JOURNAL, Ordering::AcqRel, Ordering::Relaxed);
    }
    for entries in (0..blocks(store)).filter_map(|number| block(store, number)) {
        for entry in entries {
            let word = Word(entry[0].load(Ordering::Relaxed));
            if word.owner() == owner {
                // A failure means that it was retired or bound by another thread meanwhile, which settles it too.
                let _ = entry[0].compare_exchange(word.0, word.settled().0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        // SYNC: Release; pairs with the claim in `reserve`.
        let order = ordered("handle recover", Ordering::AcqRel);
        let _ = entries[0][OWNER].compare_exchange(owner, 0, order, Ordering::Relaxed);
    }
}
