//! PREPARED: what a rank needs to begin a step again — the application's blob and its per-rank buffers.
//!
//! Two slots, by the parity of the step they prepare: writing step s + 1 never touches step s, which a redo of s
//! needs however often s + 1 is written. A death while a slot is written leaves that slot without a valid checksum
//! and the other one whole.

use zerocopy::IntoBytes;

use super::append_error::AppendError;
use super::arena::{self, Run};
use super::checksum::{Crc, Hardware, START, Work, finish};
use super::layout::{ChunkClass, ChunkId, OWNER_JOURNAL, PREPARED, PREPARED_SLOTS, PreparedEntry};
use super::store::Store;
use super::{chunk, lane};
use crate::sync::{AtomicU64, Ordering, Words, fence};

/// What was prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The step that begins with it.
    pub step: u32,
    /// The application's bytes.
    pub blob: Vec<u8>,
    /// Per-rank buffers by state id.
    pub parts: Vec<(u32, Vec<u8>)>,
}

/// Bytes that a blob and parts take in a slot.
pub fn bytes_for(blob: usize, parts: impl Iterator<Item = usize>) -> u64 {
    parts.fold(24 + padded(blob), |sum, part| sum + 16 + padded(part))
}

fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(8)
}

/// The slot of a step.
fn entry<W: Words>(store: &Store<W>, step: u32) -> &[AtomicU64] {
    let bytes = size_of::<PreparedEntry>() as u64;
    store.words(PREPARED_SLOTS + u64::from(step & 1) * bytes, bytes as usize / 8)
}

fn run_of(word: u64) -> Option<Run> {
    let id = ChunkId((word as u32).checked_sub(1)?);
    Some(Run { id, count: (word >> 32) as u32 })
}

struct Write<'a> {
    words: &'a [AtomicU64],
    step: u32,
    blob: &'a [u8],
    parts: &'a [(u32, &'a [u8])],
}

impl Work for Write<'_> {
    type Out = u32;
    #[inline(always)]
    fn run<C: Crc>(self, crc: C) -> u32 {
        let mut words = self.words;
        let mut state = START;
        let mut put = |bytes: &[u8]| {
            let (here, rest) = words.split_at(bytes.len().div_ceil(8));
            state = lane::fill(crc, state, here, &[bytes]);
            words = rest;
        };
        put(&u64::from(self.step).to_le_bytes());
        put(&(self.blob.len() as u64).to_le_bytes());
        put(&(self.parts.len() as u64).to_le_bytes());
        put(self.blob);
        for (id, bytes) in self.parts {
            put(&u64::from(*id).to_le_bytes());
            put(&(bytes.len() as u64).to_le_bytes());
            put(bytes);
        }
        finish(state)
    }
}

/// Makes room for `bytes` in both slots, before the first write. One caller at a time (the admin lock).
pub fn reserve<W: Words>(store: &Store<W>, bytes: u64) -> Result<(), AppendError> {
    ensure(store, 0, bytes)?;
    ensure(store, 1, bytes)
}

fn room<W: Words>(store: &Store<W>, run: Run) -> u64 {
    u64::from(run.count) * store.base().chunk_bytes
}

/// Gives the slot of `step` a run of at least `bytes`; a smaller one goes with its content.
fn ensure<W: Words>(store: &Store<W>, step: u32, bytes: u64) -> Result<(), AppendError> {
    let slot = entry(store, step);
    let old = run_of(slot[0].load(Ordering::Relaxed)).filter(|run| store.has_chunk(run.id));
    if old.is_some_and(|run| room(store, run) >= bytes) {
        return Ok(());
    }
    if let Some(old) = old {
        // Unnamed before it is free: a death in between loses the run to this journal, nothing else.
        slot[0].store(0, Ordering::Release);
        chunk::release(store, old.id);
    }
    let run = arena::claim(store, OWNER_JOURNAL, ChunkClass::Prepared, bytes, "PREPARED")?;
    slot[0].store(u64::from(run.id.0) + 1 | u64::from(run.count) << 32, Ordering::Release);
    Ok(())
}

/// Writes the slot of `step`. One caller at a time (the admin lock).
pub fn write<W: Words>(
    store: &Store<W>,
    crc: Option<Hardware>,
    step: u32,
    blob: &[u8],
    parts: &[(u32, &[u8])],
) -> Result<(), AppendError> {
    let bytes = bytes_for(blob.len(), parts.iter().map(|(_, bytes)| bytes.len()));
    let slot = entry(store, step);
    let version = store.word(PREPARED);
    let before = version.load(Ordering::Relaxed);
    slot[3].store(0, Ordering::Relaxed);
    version.store(before + 1, Ordering::Relaxed);
    // SYNC: Release fence; pairs with the Acquire fence in `read`: who sees new bytes sees the version move.
    fence(Ordering::Release);
    ensure(store, step, bytes)?;
    let run = run_of(slot[0].load(Ordering::Relaxed)).expect("ensured above");
    let words = store.words(store.chunk_at(run.id), bytes as usize / 8);
    let checksum = super::checksum::run(crc, Write { words, step, blob, parts });
    slot[1].store(bytes, Ordering::Relaxed);
    slot[2].store(u64::from(checksum), Ordering::Relaxed);
    // SYNC: Release; pairs with the Acquire in `read`. From here on the slot counts.
    slot[3].store(u64::from(step) + 1, Ordering::Release);
    version.store(before + 2, Ordering::Release);
    Ok(())
}

/// Attempts of a reader to find a slot at rest; after them its writer is being rewritten all the time.
const READ_ATTEMPTS: u32 = 1000;

/// The content for `step`; `None` if it was never written, was overwritten by a later step, or is damaged.
pub fn read<W: Words>(store: &Store<W>, step: u32) -> Option<Prepared> {
    let mut words = Vec::new();
    for _ in 0..READ_ATTEMPTS {
        let version = store.word(PREPARED).load(Ordering::Acquire);
        let slot = entry(store, step);
        // SYNC: Acquire; pairs with the Release in `write`.
        if slot[3].load(Ordering::Acquire) != u64::from(step) + 1 {
            return None;
        }
        let slot: [u64; 3] = std::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
        let found = run_of(slot[0]).and_then(|run| {
            let chunks = store.geometry(run.id.segment())?.chunks;
            let inside = u64::from(run.id.index()) + u64::from(run.count) <= u64::from(chunks);
            (inside && slot[1] <= room(store, run) && slot[1] % 8 == 0).then_some(run)
        });
        let sum = found.map(|run| arena::read(store, store.chunk_at(run.id), slot[1], &mut words));
        // SYNC: Acquire fence; pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        if store.word(PREPARED).load(Ordering::Relaxed) == version {
            return (sum.map(u64::from) == Some(slot[2])).then(|| parse(&words)).flatten().filter(|p| p.step == step);
        }
    }
    None
}

/// The steps whose slots say that they count.
pub fn steps<W: Words>(store: &Store<W>) -> Vec<u32> {
    (0..2).filter_map(|parity| u32::try_from(entry(store, parity)[3].load(Ordering::Acquire).checked_sub(1)?).ok()).collect()
}

fn parse(words: &[u64]) -> Option<Prepared> {
    let (&[step, blob_len, parts], mut rest) = words.split_first_chunk::<3>()?;
    let mut take = |len: u64| {
        let len = usize::try_from(len).ok()?;
        let (here, after) = rest.split_at_checked(len.div_ceil(8))?;
        rest = after;
        Some(here.as_bytes()[..len].to_vec())
    };
    let blob = take(blob_len)?;
    let parts = (0..parts)
        .map(|_| {
            let head = take(16)?;
            let id = u32::from_le_bytes(head[..4].try_into().ok()?);
            let len = u64::from_le_bytes(head[8..].try_into().ok()?);
            Some((id, take(len)?))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Prepared { step: u32::try_from(step).ok()?, blob, parts })
}
