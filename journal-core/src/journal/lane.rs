//! A lane: the records of one thread, appended without lock, loop or system call.
//!
//! One owner writes; everybody may read. The order of the stores in [`Lane::append`] is the protocol:
//! a record is invisible until PENDING, its sequence number is taken while PENDING stands, and COMMITTED
//! comes last. A death leaves nothing, or one PENDING record whose call was never issued.

use core::num::NonZeroU64;

use super::append_error::AppendError;
use super::checksum::{Crc, START, Work, finish};
use super::chunk;
use super::layout::{
    COMMITTED, ChunkClass, ChunkId, END, PENDING, RECORD_HEADER, RECORD_VERSION, RESERVED_FLAGS, SEALED, record_bytes,
    shape,
};
use super::store::Store;
use super::{Region, Sequence};
use crate::sync::{AtomicU64, Ordering, Words, ordered};

/// Names a committed record, to store its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef {
    pub(super) address: u64,
    /// Not 0, so that an optional one fits into two registers.
    pub(super) sequence: NonZeroU64,
}

impl RecordRef {
    /// Its place in the journal's order.
    pub fn sequence(&self) -> Sequence {
        Sequence(self.sequence.get())
    }

    /// Its place in the journal's memory, for [`Journal::record_at`](super::Journal::record_at).
    pub fn position(&self) -> u64 {
        self.address
    }
}

/// Where the next record of a chain goes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tail {
    /// Address of the next record; the word there is 0 unless `sealed`.
    pub at: u64,
    /// Address behind the last byte of the chunk; 0 without a chunk and when sealed, so that nothing fits.
    pub end: u64,
    /// Like `end`, for records that must not fail: a chunk of the reserve is open to them alone.
    pub vital_end: u64,
    /// The open chunk + 1.
    pub chunk: u64,
    /// Last sequence of the open chunk; 0 = it is empty.
    pub last_seq: u64,
    /// The word at `at` is a reaper's seal.
    pub sealed: bool,
}

/// Owner's view of its lane. Plain data: it lives in a page that a fork wipes.
#[derive(Debug)]
pub struct Lane {
    pub(super) slot: u16,
    /// Boundary word up to which step chunks were recycled.
    pub(super) boundary_seen: u64,
    pub(super) tails: [Tail; 2],
    /// Step payloads in the arena since the last sweep of it.
    pub(super) step_arenas: u32,
    /// The record at hand must not fail for space.
    pub(super) vital: bool,
    /// Chunks of the set-up chain, those of its payloads in the arena included.
    pub(super) setup_chunks: u32,
    /// So many of them make it worth looking for records that no replay needs.
    pub(super) look_at_chunks: u32,
}

/// What to append, with the lane and the store it goes to.
pub struct Append<'a, W> {
    /// Lane.
    pub lane: &'a mut Lane,
    /// Journal.
    pub store: &'a Store<W>,
    /// Chain.
    pub region: Region,
    /// Opcode.
    pub kind: u16,
    /// Caller's flags, and the journal's.
    pub flags: u16,
    /// Payload, concatenated.
    pub parts: &'a [&'a [u8]],
}

impl<W: Words> Work for Append<'_, W> {
    type Out = Result<RecordRef, AppendError>;

    #[inline(always)]
    fn run<C: Crc>(self, crc: C) -> Self::Out {
        let (lane, store, region) = (self.lane, self.store, self.region);
        let len = payload_len(self.parts);
        let (shape, need) = (shape(len as u32, self.kind, self.flags), record_bytes(len));
        if !lane.has_room(store, region, need) {
            lane.make_room(store, region, need)?;
        }
        let damaged = AppendError::Corrupt { slot: lane.slot, address: super::layout::SEQUENCE };
        lane.write(crc, store, region, shape, self.parts).ok_or(damaged)
    }
}

/// [`Append`] for the usual case: without a look at anything but the lane's own place. `None`: there is no room, and
/// nothing has happened.
pub struct AppendAtOnce<'a, W>(pub Append<'a, W>);

impl<W: Words> Work for AppendAtOnce<'_, W> {
    type Out = Option<RecordRef>;

    #[inline(always)]
    fn run<C: Crc>(self, crc: C) -> Self::Out {
        let Append { lane, store, region, kind, flags, parts } = self.0;
        let len = payload_len(parts);
        if !lane.has_room(store, region, record_bytes(len)) {
            return None;
        }
        // Below a chunk's bytes, since there is room.
        lane.write(crc, store, region, shape(len as u32, kind, flags), parts)
    }
}

/// Payload bytes of `parts`.
#[inline(always)]
pub fn payload_len(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Refuses flags that the journal sets itself.
#[inline(always)]
pub fn check_flags(flags: u16) -> Result<(), AppendError> {
    if flags & RESERVED_FLAGS == 0 { Ok(()) } else { Err(AppendError::Flags { flags }) }
}

impl Lane {
    /// A lane without chunks, for a slot that was never used.
    pub fn new(slot: u16, boundary_seen: u64) -> Self {
        Self { slot, boundary_seen, tails: [Tail::default(); 2], step_arenas: 0, vital: false, setup_chunks: 0, look_at_chunks: 2 }
    }

    /// Owner word of its chunks.
    pub(super) fn owner(&self) -> u64 {
        u64::from(self.slot) + 1
    }

    /// Whether a record of `need` bytes fits where the lane stands, and no step has ended since it last looked.
    #[inline(always)]
    fn has_room<W: Words>(&self, store: &Store<W>, region: Region, need: u64) -> bool {
        let tail = &self.tails[region as usize];
        // 16: the terminator, and the word that leads to the next chunk.
        store.boundary().load(Ordering::Relaxed) == self.boundary_seen && tail.at + need + 16 <= tail.end
    }

    /// Writes one record, for which there is room. Committed and visible on return. `None` if the sequence word is 0,
    /// which no writer leaves.
    #[inline(always)]
    fn write<C: Crc, W: Words>(
        &mut self,
        crc: C,
        store: &Store<W>,
        region: Region,
        shape: u64,
        parts: &[&[u8]],
    ) -> Option<RecordRef> {
        let need = record_bytes(shape & 0xFFFF_FFFF);
        let tail = &mut self.tails[region as usize];
        let at = tail.at;
        let record = store.words(at, (need / 8) as usize + 1);
        let (header, rest) = record.split_first_chunk::<{ (RECORD_HEADER / 8) as usize }>().expect("asked for more");
        let (terminator, payload) = rest.split_last().expect("asked for one more");

        // Invisible while the commit word is 0.
        header[1].store(shape, Ordering::Relaxed);
        header[3].store(0, Ordering::Relaxed);
        let state = fill(crc, START, payload, parts);
        let state = crc.word(state, shape);
        // What stood here in an earlier life of the chunk is never parsed.
        terminator.store(0, Ordering::Relaxed);
        header[0].store(PENDING, Ordering::Relaxed);
        // SYNC: Release half orders PENDING before the number is taken; pairs with the Acquire load of the limit in
        // scan.rs: whoever sees a higher limit sees this lane PENDING or COMMITTED.
        let sequence = store.sequence().fetch_add(1, ordered("lane sequence", Ordering::AcqRel));
        let commit = COMMITTED | sequence;
        let check = u64::from(finish(crc.word(state, commit))) | u64::from(self.slot) << 32;
        header[2].store(check | u64::from(RECORD_VERSION) << 48, Ordering::Relaxed);
        // SYNC: Release; pairs with the Acquire of the commit word in scan.rs.
        header[0].store(commit, ordered("lane commit", Ordering::Release));

        tail.at = at + need;
        tail.last_seq = sequence;
        Some(RecordRef { address: at, sequence: NonZeroU64::new(sequence)? })
    }

    /// Recycles what earlier steps left, and opens a new chunk if `need` bytes still do not fit.
    #[cold]
    #[inline(never)]
    fn make_room<W: Words>(&mut self, store: &Store<W>, region: Region, need: u64) -> Result<(), AppendError> {
        self.recycle(store);
        let tail = self.tails[region as usize];
        let end = if self.vital { tail.vital_end } else { tail.end };
        if tail.sealed || tail.at + need + 16 > end {
            self.open_chunk(store, region, need)?;
        }
        Ok(())
    }

    /// Claims a chunk and links it to the chain.
    fn open_chunk<W: Words>(&mut self, store: &Store<W>, region: Region, need: u64) -> Result<(), AppendError> {
        let class = match region {
            Region::Setup => ChunkClass::Setup,
            Region::Step => ChunkClass::Step,
        };
        let free = chunk::claim(store, self.owner(), class, 1);
        let reserved = if free.is_none() && self.vital { chunk::claim_reserve(store, self.owner(), class) } else { None };
        let Some(id) = free.or(reserved) else {
            let capacity = store.chunk_count() * store.base().chunk_bytes;
            return Err(AppendError::Full { what: region.name(), needed: need, capacity });
        };
        let link = u64::from(id.0) + 1;
        let slot = self.slot;
        let tail = &mut self.tails[region as usize];
        match tail.chunk.checked_sub(1) {
            // SYNC: Release; pairs with the Acquire of the head in scan.rs. The chunk is empty and described.
            None => store.head(slot, region).store(link, Ordering::Release),
            Some(old) => {
                let old = store.chunk(ChunkId(old as u32));
                // SYNC: Release; whoever sees it closed sees the records before.
                old.last_seq().store(tail.last_seq.max(1), Ordering::Release);
                // SYNC: Release; pairs with the Acquire of `next` after a seal in scan.rs.
                old.next().store(link, Ordering::Release);
                if !tail.sealed {
                    // SYNC: Release; pairs with the Acquire of the commit word in scan.rs.
                    store.word(tail.at).store(END | u64::from(id.0), Ordering::Release);
                }
            }
        }
        let at = store.chunk_at(id);
        let vital_end = at + store.base().chunk_bytes;
        let end = if reserved.is_some() { 0 } else { vital_end };
        *tail = Tail { at, end, vital_end, chunk: link, last_seq: 0, sealed: false };
        if region == Region::Setup {
            self.setup_chunks += 1;
        }
        Ok(())
    }

    /// Frees own step chunks that end below the boundary and rewinds the open one. Old bytes stay: the
    /// terminator of every append makes them unreachable.
    pub(super) fn recycle<W: Words>(&mut self, store: &Store<W>) {
        let boundary = super::step::Boundary::read(store);
        if boundary.word == self.boundary_seen {
            return;
        }
        let below = boundary.sequence.0;
        let tail = &mut self.tails[Region::Step as usize];
        let head = store.head(self.slot, Region::Step);
        while let Ok(Some(id)) = store.link(head.load(Ordering::Relaxed)) {
            if u64::from(id.0) + 1 == tail.chunk {
                if tail.last_seq != 0 && tail.last_seq < below {
                    chunk::reopen(store, id);
                    let at = store.chunk_at(id);
                    let end = at + store.base().chunk_bytes;
                    *tail = Tail { at, end, vital_end: end, last_seq: 0, sealed: false, ..*tail };
                }
                break;
            }
            let entry = store.chunk(id);
            if entry.last_seq().load(Ordering::Relaxed) >= below {
                break;
            }
            // SYNC: Release, before the chunk is given back: a reader that starts now does not enter it.
            head.store(entry.next().load(Ordering::Relaxed), Ordering::Release);
            chunk::release(store, id);
        }
        if self.step_arenas > 0 {
            self.step_arenas = super::arena::release_below(store, self.owner(), below);
        }
        self.boundary_seen = boundary.word;
    }
}

/// Copies `parts` into `payload`, zero-padded to a word, and sums them. A second pad word is left alone: it is
/// neither summed nor read.
#[inline(always)]
pub(super) fn fill<C: Crc>(crc: C, mut state: u64, payload: &[AtomicU64], parts: &[&[u8]]) -> u64 {
    let mut left = payload;
    let mut carry = 0_u64;
    let mut carried = 0_u32;
    for part in parts {
        let (words, rest) = part.as_chunks::<8>();
        // The payload's length was taken from the parts: it is never the shorter one.
        let (here, after) = left.split_at(words.len().min(left.len()));
        left = after;
        if carried == 0 {
            // By fours: the end of a loop of more than about 30 turns is not foreseen by a processor.
            let ((here, last_here), (words, last)) = (here.as_chunks::<4>(), words.as_chunks::<4>());
            let mut copy = |at: &AtomicU64, word: &[u8; 8]| {
                let word = u64::from_le_bytes(*word);
                at.store(word, Ordering::Relaxed);
                state = crc.word(state, word);
            };
            for (here, words) in here.iter().zip(words) {
                here.iter().zip(words).for_each(|(at, word)| copy(at, word));
            }
            last_here.iter().zip(last).for_each(|(at, word)| copy(at, word));
        } else {
            for (at, word) in here.iter().zip(words) {
                let word = u64::from_le_bytes(*word);
                let joined = carry | word << (8 * carried);
                at.store(joined, Ordering::Relaxed);
                state = crc.word(state, joined);
                carry = word >> (64 - 8 * carried);
            }
        }
        let mut put = |word: u64, state: u64| {
            if let Some((at, after)) = left.split_first() {
                at.store(word, Ordering::Relaxed);
                left = after;
            }
            crc.word(state, word)
        };
        for byte in rest {
            carry |= u64::from(*byte) << (8 * carried);
            carried += 1;
            if carried == 8 {
                state = put(carry, state);
                (carry, carried) = (0, 0);
            }
        }
    }
    if carried > 0 {
        if let Some(at) = left.first() {
            at.store(carry, Ordering::Relaxed);
        }
        state = crc.word(state, carry);
    }
    state
}

/// Stores a call's result beside its record. False if the record is gone (its step is over).
#[inline]
pub fn complete<W: Words>(store: &Store<W>, record: RecordRef, result: u64) -> bool {
    let words = store.words(record.address, 4);
    if words[0].load(Ordering::Relaxed) != COMMITTED | record.sequence.get() {
        return false;
    }
    // SYNC: Release; pairs with the Acquire of the result in scan.rs.
    words[3].store(super::layout::DONE | result, Ordering::Release);
    true
}

/// Where `commit` sends a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// Nothing yet.
    Empty,
    /// Being written.
    Pending,
    /// Committed under a sequence number.
    Committed(u64),
    /// A dead owner's torn record; the chunk ends here.
    Sealed,
    /// The chain goes on in a chunk.
    Jump(u64),
}

impl Commit {
    /// Takes a commit word apart.
    pub fn of(word: u64) -> Self {
        let value = word & super::layout::VALUE_MASK;
        match word & END {
            0 if word == 0 => Self::Empty,
            PENDING => Self::Pending,
            COMMITTED => Self::Committed(value),
            _ if word == SEALED => Self::Sealed,
            END => Self::Jump(value),
            // Neither bit, yet not zero: no writer leaves this. It reads as a jump to nowhere.
            _ => Self::Jump(u64::MAX),
        }
    }
}
