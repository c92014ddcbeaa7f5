//! Payloads larger than a chunk: a run of consecutive chunks, named by a record that carries a descriptor.

use super::append_error::AppendError;
use super::checksum::{self, Crc, Hardware, START, Work, finish};
use super::layout::{ARENA_DESCRIPTOR, ChunkClass, ChunkId};
use super::store::Store;
use super::{Region, chunk, lane};
use crate::sync::{AtomicU64, Ordering, Words, fence};

fn class_of(region: Region) -> ChunkClass {
    match region {
        Region::Setup => ChunkClass::ArenaSetup,
        Region::Step => ChunkClass::ArenaStep,
    }
}

struct Fill<'a> {
    words: &'a [AtomicU64],
    parts: &'a [&'a [u8]],
}

impl Work for Fill<'_> {
    type Out = u32;
    #[inline(always)]
    fn run<C: Crc>(self, crc: C) -> u32 {
        finish(lane::fill(crc, START, self.words, self.parts))
    }
}

/// Copies `parts` to `address` and sums them (zero-padded to a word).
pub fn write<W: Words>(store: &Store<W>, crc: Option<Hardware>, address: u64, len: u64, parts: &[&[u8]]) -> u32 {
    checksum::run(crc, Fill { words: store.words(address, len.div_ceil(8) as usize), parts })
}

/// Copies `len` bytes at `address` out, as words, and gives their sum.
pub fn read<W: Words>(store: &Store<W>, address: u64, len: u64, out: &mut Vec<u64>) -> u32 {
    let words = store.words(address, len.div_ceil(8) as usize);
    out.clear();
    out.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
    checksum::of_words(out.iter().copied())
}

/// A payload placed in the arena, not yet named by a record.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    run: ChunkId,
    /// Payload of the naming record.
    pub descriptor: [u8; ARENA_DESCRIPTOR as usize],
}

/// Copies a payload into a fresh run of chunks.
pub fn place<W: Words>(
    store: &Store<W>,
    crc: Option<Hardware>,
    owner: u64,
    region: Region,
    parts: &[&[u8]],
) -> Result<Placed, AppendError> {
    let len = lane::payload_len(parts);
    let run = claim(store, owner, class_of(region), len, region.name())?;
    let checksum = write(store, crc, store.chunk_at(run.id), len, parts);
    let mut descriptor = [0; ARENA_DESCRIPTOR as usize];
    descriptor[..4].copy_from_slice(&run.id.0.to_le_bytes());
    descriptor[4..8].copy_from_slice(&run.count.to_le_bytes());
    descriptor[8..16].copy_from_slice(&len.to_le_bytes());
    descriptor[16..20].copy_from_slice(&checksum.to_le_bytes());
    Ok(Placed { run: run.id, descriptor })
}

/// The record at `sequence` names the payload now.
pub fn publish<W: Words>(store: &Store<W>, placed: Placed, sequence: u64) {
    store.chunk(placed.run).last_seq().store(sequence, Ordering::Release);
}

/// No record will name it.
pub fn discard<W: Words>(store: &Store<W>, placed: Placed) {
    chunk::release(store, placed.run);
}

/// A run of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First chunk.
    pub id: ChunkId,
    /// Chunks.
    pub count: u32,
}

/// Claims a run for `len` bytes.
pub fn claim<W: Words>(
    store: &Store<W>,
    owner: u64,
    class: ChunkClass,
    len: u64,
    what: &'static str,
) -> Result<Run, AppendError> {
    let chunk_bytes = store.base().chunk_bytes;
    let most = store.segments().map(|(_, g)| u64::from(g.chunks)).max().unwrap_or(0);
    let count = len.div_ceil(chunk_bytes).max(1);
    if count > most {
        return Err(AppendError::NoRun { len, limit: most * chunk_bytes });
    }
    let id = chunk::claim(store, owner, class, count as u32).ok_or(AppendError::Full {
        what,
        needed: count * chunk_bytes,
        capacity: store.chunk_count() * chunk_bytes,
    })?;
    Ok(Run { id, count: count as u32 })
}

/// Frees `owner`'s step runs whose record lies below the boundary; how many stay.
pub fn release_below<W: Words>(store: &Store<W>, owner: u64, boundary: u64) -> u32 {
    let mut kept = 0;
    for id in runs(store, owner, ChunkClass::ArenaStep) {
        match store.chunk(id).last_seq().load(Ordering::Relaxed) {
            named if named != 0 && named < boundary => chunk::release(store, id),
            _ => kept += 1,
        }
    }
    kept
}

/// First chunks of `owner`'s runs of a class.
pub fn runs<W: Words>(store: &Store<W>, owner: u64, class: ChunkClass) -> impl Iterator<Item = ChunkId> {
    store.chunk_ids().filter(move |id| {
        let entry = store.chunk(*id);
        let word = entry.class().load(Ordering::Relaxed);
        entry.owner().load(Ordering::Acquire) == owner && word as u32 == class as u32 && word >> 32 != 0
    })
}

/// Why an arena payload could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaFault {
    /// The run was given back while it was read.
    Recycled,
    /// Descriptor or bytes are not what a writer leaves.
    Damaged,
}

/// Reads the payload that `descriptor` (words of the naming record) stands for; the run and its bytes, as words.
pub fn fetch<W: Words>(
    store: &Store<W>,
    owner: u64,
    region: Region,
    descriptor: &[u64],
    out: &mut Vec<u64>,
) -> Result<(Run, u64), ArenaFault> {
    let &[place, len, sum, _] = descriptor else { return Err(ArenaFault::Damaged) };
    let run = Run { id: ChunkId(place as u32), count: (place >> 32) as u32 };
    let chunks = store.geometry(run.id.segment()).ok_or(ArenaFault::Damaged)?.chunks;
    let within = u64::from(run.id.index()) + u64::from(run.count) <= u64::from(chunks);
    if !within || run.count == 0 || len > u64::from(run.count) * store.base().chunk_bytes {
        return Err(ArenaFault::Damaged);
    }
    let entry = store.chunk(run.id);
    let life = || (entry.owner().load(Ordering::Acquire), entry.open_seq().load(Ordering::Acquire));
    let before = life();
    if before.0 != owner || entry.class().load(Ordering::Relaxed) as u32 != class_of(region) as u32 {
        return Err(ArenaFault::Recycled);
    }
    let found = read(store, store.chunk_at(run.id), len, out);
    // SYNC: Acquire fence; pairs with the Release fence in chunk.rs::reopen.
    fence(Ordering::Acquire);
    if life() != before {
        return Err(ArenaFault::Recycled);
    }
    if u64::from(found) == sum { Ok((run, len)) } else { Err(ArenaFault::Damaged) }
}
