//! Compaction: the owner of a lane copies the set-up records that still count into fresh chunks, under their own
//! sequence numbers, and swaps the head of its chain.
//!
//! ```text
//! head ─> A ─> B ─> C        built: D ─> E, owned, reachable from nowhere
//! head ─────────────> D ─> E swapped: A, B, C owned, reachable from nowhere; then given back, A first
//! ```
//!
//! A death before the swap leaves the old chain, after it the new one; the other one's chunks are owned by the slot
//! and named by nothing, which is what the sweep of [`super::reap`] frees. A reader inside the old chain finds a chunk
//! in another life, or the head moved, and walks the lane again.

use std::collections::HashSet;

use super::append_error::AppendError;
use super::arena::Run;
use super::lane::{Commit, Lane, Tail};
use super::layout::{ChunkClass, ChunkId, END, SLOT_COMPACTED, record_bytes};
use super::record::{Outcome, RecordView};
use super::scan::{self, EndState, Scratch, Visit};
use super::store::Store;
use super::{Region, Sequence, chunk};
use crate::sync::{Ordering, Words, ordered};

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compaction {
    /// Records left out.
    pub dropped: u64,
    /// Chunks of the chain and of its payloads in the arena before.
    pub chunks_before: u32,
    /// And after.
    pub chunks_after: u32,
}

/// What the chain holds.
#[derive(Default)]
struct Chain {
    chunks: Vec<ChunkId>,
    arenas: Vec<(u64, Run)>,
    corrupt: bool,
}

impl Visit for Chain {
    fn enter(&mut self, chunk: ChunkId) -> bool {
        self.chunks.push(chunk);
        true
    }

    fn record(&mut self, record: &RecordView<'_>, arena: Option<Run>) -> bool {
        self.corrupt |= record.outcome == Outcome::Corrupt;
        self.arenas.extend(arena.map(|run| (record.sequence.0, run)));
        true
    }
}

/// A committed record of a chain: address, sequence, bytes.
type Place = (u64, u64, u64);

/// The committed records of a chunk of our own, which a walk has found whole.
fn records<W: Words>(store: &Store<W>, id: ChunkId, out: &mut Vec<Place>) {
    let mut at = store.chunk_at(id);
    while let Commit::Committed(sequence) = Commit::of(store.word(at).load(Ordering::Relaxed)) {
        let bytes = record_bytes(store.word(at + 8).load(Ordering::Relaxed) & 0xFFFF_FFFF);
        out.push((at, sequence, bytes));
        at += bytes;
    }
}

/// A chain that nothing links to yet.
struct Builder<'a, W> {
    store: &'a Store<W>,
    owner: u64,
    chunks: Vec<ChunkId>,
    tail: Tail,
}

impl<W: Words> Builder<'_, W> {
    /// Copies one record; false: no chunk is free.
    fn copy(&mut self, (from, sequence, bytes): Place) -> bool {
        if self.tail.at + bytes + 16 > self.tail.end && !self.next_chunk() {
            return false;
        }
        let count = (bytes / 8) as usize;
        let source = self.store.words(from, count);
        let target = self.store.words(self.tail.at, count + 1);
        for (from, to) in source.iter().zip(target) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        target[count].store(0, Ordering::Relaxed);
        self.tail.at += bytes;
        self.tail.last_seq = sequence;
        true
    }

    fn next_chunk(&mut self) -> bool {
        let Some(id) = chunk::claim(self.store, self.owner, ChunkClass::Compacted, 1) else { return false };
        let link = u64::from(id.0) + 1;
        if let Some(old) = self.chunks.last() {
            let entry = self.store.chunk(*old);
            entry.last_seq().store(self.tail.last_seq, Ordering::Relaxed);
            entry.next().store(link, Ordering::Relaxed);
            self.store.word(self.tail.at).store(END | u64::from(id.0), Ordering::Relaxed);
        }
        self.chunks.push(id);
        let at = self.store.chunk_at(id);
        let end = at + self.store.base().chunk_bytes;
        self.tail = Tail { at, end, vital_end: end, chunk: link, last_seq: 0, sealed: false };
        true
    }

    fn discard(self) {
        self.chunks.into_iter().for_each(|id| chunk::release(self.store, id));
    }
}

/// Leaves `dead` out of the set-up chain of `lane`, if more than half of its bytes are theirs and it has more than one
/// chunk, payloads in the arena included. By the owner of the lane. `None`: it stays as it is.
pub fn compact<W: Words>(store: &Store<W>, lane: &mut Lane, dead: &HashSet<Sequence>) -> Result<Option<Compaction>, AppendError> {
    let mut chain = Chain::default();
    let end = match scan::walk(store, lane.slot, Region::Setup, &mut Scratch::default(), &mut chain) {
        Ok(end) if !chain.corrupt && matches!(end.state, EndState::Empty | EndState::Sealed) => end,
        // Nobody but us writes this chain. It stays as it is for whoever looks into the damage.
        other => {
            let address = other.map_or_else(|_| store.base().slot(lane.slot), |end| end.at);
            return Err(AppendError::Corrupt { slot: lane.slot, address });
        }
    };
    debug_assert_eq!(end.chunk.map_or(0, |id| u64::from(id.0) + 1), lane.tails[Region::Setup as usize].chunk);
    let mut all = Vec::new();
    chain.chunks.iter().for_each(|id| records(store, *id, &mut all));
    let run_bytes = |sequence: u64| {
        let run = chain.arenas.iter().find(|(named, _)| *named == sequence);
        run.map_or(0, |(_, run)| u64::from(run.count) * store.base().chunk_bytes)
    };
    let is_dead = |place: &Place| dead.contains(&Sequence(place.1));
    let bytes = |place: &Place| place.2 + run_bytes(place.1);
    let total: u64 = all.iter().map(bytes).sum();
    let gone: u64 = all.iter().filter(|place| is_dead(place)).map(bytes).sum();
    let chunks_before = chain.chunks.len() as u32 + chain.arenas.iter().map(|(_, run)| run.count).sum::<u32>();
    lane.look_at_chunks = (2 * chunks_before).max(2);
    if chunks_before < 2 || gone * 2 <= total {
        return Ok(None);
    }
    let mut builder = Builder { store, owner: lane.owner(), chunks: Vec::new(), tail: Tail::default() };
    if !all.iter().filter(|place| !is_dead(place)).all(|place| builder.copy(*place)) {
        // A full journal: another time.
        builder.discard();
        return Ok(None);
    }
    let head = builder.chunks.first().map_or(0, |id| u64::from(id.0) + 1);
    // SYNC: Release; pairs with the Acquire of the head in scan.rs. This store is the compaction: the new chain is
    // whole before it, the old one is touched only after it.
    store.head(lane.slot, Region::Setup).store(head, ordered("compaction head", Ordering::Release));
    let kept_arenas = chain.arenas.iter().filter(|(sequence, _)| !dead.contains(&Sequence(*sequence)));
    let done = Compaction {
        dropped: all.iter().filter(|place| is_dead(place)).count() as u64,
        chunks_before,
        chunks_after: builder.chunks.len() as u32 + kept_arenas.map(|(_, run)| run.count).sum::<u32>(),
    };
    lane.tails[Region::Setup as usize] = builder.tail;
    lane.setup_chunks = done.chunks_after;
    lane.look_at_chunks = (2 * done.chunks_after).max(2);
    // From the head on: a reader that finds a later chunk in a new life finds the earlier ones gone too.
    chain.chunks.into_iter().for_each(|id| chunk::release(store, id));
    for (_, run) in chain.arenas.into_iter().filter(|(sequence, _)| dead.contains(&Sequence(*sequence))) {
        chunk::release(store, run.id);
    }
    let counter = store.slot_word(lane.slot, SLOT_COMPACTED);
    counter.store(counter.load(Ordering::Relaxed) + done.dropped, Ordering::Relaxed);
    Ok(Some(done))
}
