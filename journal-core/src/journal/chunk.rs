//! Claiming and releasing chunks: one compare-and-swap on the owner word, no list, no lock.
//!
//! The pattern is iceoryx2's robust index set: an owner word names who must give the chunk back, so a claimer
//! that dies before it has linked the chunk is found by the sweep of [`super::reap`].

use super::layout::{ChunkClass, ChunkId, OWNER_RESERVE};
use super::store::Store;
use crate::sync::{Ordering, Words, ordered, ordered_fence};

/// Claims `count` consecutive chunks for `owner` (slot + 1, or OWNER_JOURNAL), or says that there are none.
/// Bounded by the number of chunks.
pub fn claim<W: Words>(store: &Store<W>, owner: u64, class: ChunkClass, count: u32) -> Option<ChunkId> {
    store.segments().find_map(|(segment, geometry)| {
        let mut first = 0;
        while count <= geometry.chunks && first <= geometry.chunks - count {
            match claim_run(store, owner, ChunkId::new(segment, first), count) {
                Ok(()) => {
                    let id = ChunkId::new(segment, first);
                    open(store, id, class, count);
                    return Some(id);
                }
                Err(taken) => first = taken + 1,
            }
        }
        None
    })
}

/// Takes one of the chunks kept back for records that must not fail.
pub fn claim_reserve<W: Words>(store: &Store<W>, owner: u64, class: ChunkClass) -> Option<ChunkId> {
    let id = store.chunk_ids().find(|id| {
        let word = store.chunk(*id).owner();
        // SYNC: Acquire; pairs with the Release of its former owner in `free`.
        word.compare_exchange(OWNER_RESERVE, owner, ordered("reserve claim", Ordering::Acquire), Ordering::Relaxed).is_ok()
    })?;
    open(store, id, class, 1);
    Some(id)
}

fn reserved<W: Words>(store: &Store<W>) -> u32 {
    store.chunk_ids().filter(|id| store.chunk(*id).owner().load(Ordering::Relaxed) == OWNER_RESERVE).count() as u32
}

/// Whether chunks of the reserve were used.
pub fn reserve_is_short<W: Words>(store: &Store<W>) -> bool {
    reserved(store) < store.base().reserved_chunks()
}

/// Puts free chunks aside until there are as many as at the beginning, or none is free. Under the admin lock.
pub fn restock<W: Words>(store: &Store<W>) {
    let mut short = store.base().reserved_chunks().saturating_sub(reserved(store));
    for id in store.chunk_ids() {
        if short == 0 {
            break;
        }
        // The owner word alone: from this swap on somebody may take the chunk and describe it. Relaxed, since who takes
        // it acquires what its former owner released: a swap in between breaks no release sequence.
        let word = store.chunk(id).owner();
        if word.compare_exchange(0, OWNER_RESERVE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            short -= 1;
        }
    }
}

/// Claims the run at `first`, or gives back what it got and returns the index of the chunk that was taken.
fn claim_run<W: Words>(store: &Store<W>, owner: u64, first: ChunkId, count: u32) -> Result<(), u32> {
    for i in 0..count {
        let id = ChunkId(first.0 + i);
        // SYNC: Acquire; pairs with the Release in `free`: the former owner's last stores are over.
        let order = ordered("chunk claim", Ordering::Acquire);
        let claimed = store.chunk(id).owner().compare_exchange(0, owner, order, Ordering::Relaxed);
        if claimed.is_err() {
            (0..i).for_each(|k| free(store, ChunkId(first.0 + k)));
            return Err(first.index() + i);
        }
    }
    Ok(())
}

/// Describes a claimed run: class, opening sequence, empty first word. It is not linked yet.
fn open<W: Words>(store: &Store<W>, id: ChunkId, class: ChunkClass, count: u32) {
    // The other chunks of the run name no run of their own, whatever an earlier life left there.
    (1..count).for_each(|i| store.chunk(ChunkId(id.0 + i)).class().store(0, Ordering::Relaxed));
    let entry = store.chunk(id);
    entry.class().store(class as u64 | u64::from(count) << 32, Ordering::Relaxed);
    entry.last_seq().store(0, Ordering::Relaxed);
    entry.next().store(0, Ordering::Relaxed);
    reopen(store, id);
}

/// Gives a chunk a new life: readers that are still in it see the new opening sequence and discard.
pub fn reopen<W: Words>(store: &Store<W>, id: ChunkId) {
    let now = store.sequence().load(Ordering::Acquire);
    // SYNC: Release; pairs with the Acquire in scan.rs: who sees the new life sees that the head has moved.
    store.chunk(id).open_seq().store(now, Ordering::Release);
    // SYNC: Release fence; pairs with the Acquire fence in scan.rs: a reader that saw anything written below
    // sees the new opening sequence.
    ordered_fence("chunk reopen", Ordering::Release);
    store.word(store.chunk_at(id)).store(0, Ordering::Relaxed);
}

/// Gives a run back. Only its owner, or a reaper in its place, after nothing links to it.
pub fn release<W: Words>(store: &Store<W>, id: ChunkId) {
    let count = (store.chunk(id).class().load(Ordering::Relaxed) >> 32).clamp(1, 1 << 20) as u32;
    // The first chunk names the run: it goes last, so that a release cut short is found and repeated.
    for i in (0..count).rev() {
        let part = ChunkId(id.0 + i);
        if store.has_chunk(part) {
            free(store, part);
        }
    }
}

fn free<W: Words>(store: &Store<W>, id: ChunkId) {
    // SYNC: Release; pairs with the Acquire of the next claim.
    store.chunk(id).owner().store(0, ordered("chunk free", Ordering::Release));
}
