//! Walking a lane: every byte is taken as hostile, and the owner goes on writing.
//!
//! A chunk can be recycled under a reader. Like a seqlock, the walk copies first and then asks whether the chunk
//! is still in the same life (owner and opening sequence); if not, the lane is walked again from its head.

use zerocopy::IntoBytes;

use super::arena::{self, ArenaFault, Run};
use super::checksum::{self, Crc, START, Work, finish};
use super::lane::Commit;
use super::layout::{
    ABSENT_DESCRIPTOR, ARENA_DESCRIPTOR, ChunkClass, ChunkId, DONE, FLAG_ABSENT, FLAG_ARENA, RECORD_HEADER, RECORD_VERSION, RESERVED_FLAGS, record_bytes,
};
use super::record::{Outcome, RecordView};
use super::store::{ChunkWords, Store};
use super::{Region, Sequence};
use crate::sync::{Ordering, Words, ordered, ordered_fence};

/// The walk met a chunk that its owner recycled meanwhile: drop what the lane gave and walk it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recycled;

/// Why a walk ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// As above.
    Recycled,
    /// The visitor has seen enough, or its memory is gone.
    Visitor,
}

/// What a walk shows.
pub trait Visit {
    /// Before a chunk is read; false ends the walk.
    fn enter(&mut self, _chunk: ChunkId) -> bool {
        true
    }
    /// A committed, sealed or damaged record; false ends the walk.
    fn record(&mut self, record: &RecordView<'_>, arena: Option<Run>) -> bool;
    /// The last record was taken; a later walk can go on behind it.
    fn passed(&mut self, _position: Position) {}
}

/// Behind a record: where [`walk_on`] goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    chunk: ChunkId,
    /// Life of the chunk; in another one the walk starts again from the head.
    open_seq: u64,
    at: u64,
    last_seq: u64,
}

/// State of a lane's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndState {
    /// Nothing after the last record.
    Empty,
    /// A record is being written, or its writer died over it.
    Pending,
    /// A torn record, sealed, and nothing after it.
    Sealed,
    /// No writer leaves such bytes.
    Damaged,
}

/// Where a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// State.
    pub state: EndState,
    /// Address of the word that ended it.
    pub at: u64,
    /// Last chunk; `None` for a chain without any.
    pub chunk: Option<ChunkId>,
    /// Last sequence in that chunk; 0 = none.
    pub last_seq: u64,
    /// Shape word of the pending record.
    pub shape: u64,
}

struct Life<'a> {
    entry: ChunkWords<'a>,
    owner: u64,
    open_seq: u64,
}

impl<'a> Life<'a> {
    fn of(entry: ChunkWords<'a>) -> Self {
        // SYNC: Acquire; pairs with the stores of chunk.rs before the chunk was linked.
        let (owner, open_seq) = (entry.owner().load(Ordering::Acquire), entry.open_seq().load(Ordering::Acquire));
        Self { entry, owner, open_seq }
    }

    /// Whether everything read since `of` belongs to the same life of the chunk.
    fn goes_on(&self) -> bool {
        // SYNC: Acquire fence; pairs with the Release fence in chunk.rs::reopen.
        ordered_fence("scan life", Ordering::Acquire);
        self.entry.open_seq().load(Ordering::Relaxed) == self.open_seq
            && self.entry.owner().load(Ordering::Relaxed) == self.owner
    }
}

/// Buffers of a walk, kept between walks.
#[derive(Debug, Default)]
pub struct Scratch {
    inline: Vec<u64>,
    arena: Vec<u64>,
}

/// One above the last sequence number taken: every lower one's lane shows PENDING or COMMITTED to a later walk.
pub fn limit<W: Words>(store: &Store<W>) -> u64 {
    // SYNC: Acquire; pairs with the Release half of the fetch_add in lane.rs.
    store.sequence().load(ordered("scan limit", Ordering::Acquire))
}

/// Walks the chain of `slot` in `region` from its head. Bounded by the chunks of the journal.
pub fn walk<W: Words, V: Visit>(
    store: &Store<W>,
    slot: u16,
    region: Region,
    scratch: &mut Scratch,
    visit: &mut V,
) -> Result<End, Stop> {
    let head = store.head(slot, region);
    // SYNC: Acquire; pairs with the Release of the head in lane.rs and compact.rs.
    let first = head.load(ordered("scan head", Ordering::Acquire));
    let life = life_of_link(store, first);
    let end = walk_from(store, slot, region, Start::Chunk(first), scratch, visit)?;
    // A chain entered through a chunk that was given back and linked again further on lacks what lies between. Whoever
    // saw such a chunk's new life acquired what its owner did before: the head has moved, or has come back to a chunk
    // that meanwhile got a new life.
    // SYNC: Acquire; as above.
    let same = head.load(Ordering::Acquire) == first && life_of_link(store, first) == life;
    if same { Ok(end) } else { Err(Stop::Recycled) }
}

/// Walks on behind a record that an earlier walk passed; from the head without one.
pub fn walk_on<W: Words, V: Visit>(
    store: &Store<W>,
    slot: u16,
    region: Region,
    position: Option<Position>,
    scratch: &mut Scratch,
    visit: &mut V,
) -> Result<End, Stop> {
    match position {
        None => walk(store, slot, region, scratch, visit),
        Some(position) => {
            let end = walk_from(store, slot, region, Start::Behind(position), scratch, visit)?;
            // As in `walk`: chains are given back from the head on, so a later chunk in a new life means that this one
            // is gone or has a new one too.
            let life = Life::of(store.chunk(position.chunk));
            let same = life.owner == u64::from(slot) + 1 && life.open_seq == position.open_seq;
            if same { Ok(end) } else { Err(Stop::Recycled) }
        }
    }
}

/// Owner and opening sequence of the chunk that a link leads to.
fn life_of_link<W: Words>(store: &Store<W>, link: u64) -> Option<(u64, u64)> {
    let life = Life::of(store.chunk(store.link(link).ok()??));
    Some((life.owner, life.open_seq))
}

enum Start {
    /// Link to a chunk.
    Chunk(u64),
    Behind(Position),
}

fn walk_from<W: Words, V: Visit>(
    store: &Store<W>,
    slot: u16,
    region: Region,
    start: Start,
    scratch: &mut Scratch,
    visit: &mut V,
) -> Result<End, Stop> {
    let (mut link, mut resume) = match start {
        Start::Chunk(link) => (link, None),
        Start::Behind(position) => (u64::from(position.chunk.0) + 1, Some(position)),
    };
    let mut end = End { state: EndState::Empty, at: 0, chunk: None, last_seq: 0, shape: 0 };
    let mut previous = 0;
    let mut hops = store.chunk_count();
    loop {
        let id = match store.link(link) {
            Ok(None) => return Ok(end),
            Ok(Some(id)) if hops > 0 => id,
            _ => return Ok(End { state: EndState::Damaged, ..end }),
        };
        hops -= 1;
        if !visit.enter(id) {
            return Err(Stop::Visitor);
        }
        let walked = Chunk { store, slot, region, id, previous, resume: resume.take() }.walk(scratch, visit)?;
        (link, previous, end) = (walked.next, walked.end.last_seq.max(previous), walked.end);
    }
}

struct Chunk<'a, W> {
    store: &'a Store<W>,
    slot: u16,
    region: Region,
    id: ChunkId,
    previous: u64,
    resume: Option<Position>,
}

struct Walked {
    end: End,
    /// Link to the next chunk; 0 = the chain ends.
    next: u64,
}

impl<W: Words> Chunk<'_, W> {
    fn walk<V: Visit>(&self, scratch: &mut Scratch, visit: &mut V) -> Result<Walked, Stop> {
        let class = match self.region {
            Region::Setup => ChunkClass::Setup,
            Region::Step => ChunkClass::Step,
        };
        let life = Life::of(self.store.chunk(self.id));
        let found = life.entry.class().load(Ordering::Relaxed) as u32;
        let is_compacted = self.region == Region::Setup && found == ChunkClass::Compacted as u32;
        if life.owner != u64::from(self.slot) + 1 || (found != class as u32 && !is_compacted) {
            return Err(Stop::Recycled);
        }
        // Copied records keep their numbers. Such a chunk is filled before it is linked and never rewound.
        let oldest = if is_compacted { 1 } else { life.open_seq };
        let mut at = self.store.chunk_at(self.id);
        let limit = at + self.store.base().chunk_bytes;
        let mut previous = self.previous;
        let mut last_seq = 0;
        if let Some(resume) = self.resume {
            if resume.open_seq != life.open_seq {
                return Err(Stop::Recycled);
            }
            (at, previous, last_seq) = (resume.at, resume.last_seq, resume.last_seq);
        }
        loop {
            let end = |state, shape| End { state, at, chunk: Some(self.id), last_seq, shape };
            let damaged = || Walked { end: end(EndState::Damaged, 0), next: 0 };
            let words = self.store.words(at, 4.min((limit - at) as usize / 8));
            // SYNC: Acquire; pairs with the Release of the commit in lane.rs: header and payload are whole.
            let commit = words[0].load(ordered("scan commit", Ordering::Acquire));
            let shape = words.get(1).map_or(0, |word| word.load(Ordering::Relaxed));
            match Commit::of(commit) {
                Commit::Committed(sequence) => {
                    if last_seq == 0 && sequence < oldest {
                        // Of an earlier life: the chunk was reopened, and this is where its next record goes.
                        return if life.goes_on() { Ok(Walked { end: end(EndState::Empty, 0), next: 0 }) } else { Err(Stop::Recycled) };
                    }
                    let len = shape & 0xFFFF_FFFF;
                    let fits = at + record_bytes(len) + 8 <= limit;
                    if !fits || sequence <= previous || sequence < oldest {
                        return if life.goes_on() { Ok(damaged()) } else { Err(Stop::Recycled) };
                    }
                    if !self.committed(at, (commit, shape), sequence, &life, scratch, visit)? {
                        return Err(Stop::Visitor);
                    }
                    at += record_bytes(len);
                    (previous, last_seq) = (sequence, sequence);
                    visit.passed(Position { chunk: self.id, open_seq: life.open_seq, at, last_seq });
                }
                _ if !life.goes_on() => return Err(Stop::Recycled),
                Commit::Empty => return Ok(Walked { end: end(EndState::Empty, 0), next: 0 }),
                Commit::Pending => return Ok(Walked { end: end(EndState::Pending, shape), next: 0 }),
                Commit::Sealed => {
                    let torn = self.unfinished(at, limit, shape, Outcome::Torn, scratch);
                    if !visit.record(&torn.view(), None) {
                        return Err(Stop::Visitor);
                    }
                    // SYNC: Acquire; pairs with the Release of `next` in lane.rs.
                    let next = life.entry.next().load(Ordering::Acquire);
                    return Ok(Walked { end: end(EndState::Sealed, shape), next });
                }
                Commit::Jump(chunk) => match chunk.checked_add(1) {
                    Some(next) => return Ok(Walked { end: end(EndState::Empty, 0), next }),
                    None => return Ok(damaged()),
                },
            }
        }
    }

    /// Copies one committed record out and shows it, unless its chunk was recycled.
    fn committed<V: Visit>(
        &self,
        at: u64,
        (commit, shape): (u64, u64),
        sequence: u64,
        life: &Life<'_>,
        scratch: &mut Scratch,
        visit: &mut V,
    ) -> Result<bool, Stop> {
        // The shape is the one whose length was checked: a recycled chunk may hold other bytes by now.
        let header = self.store.words(at, 4);
        let check = header[2].load(Ordering::Relaxed);
        // SYNC: Acquire; pairs with the Release in lane.rs::complete.
        let result = header[3].load(Ordering::Acquire);
        let (len, flags) = (shape & 0xFFFF_FFFF, (shape >> 48) as u16);
        scratch.inline.clear();
        let payload = self.store.words(at + RECORD_HEADER, len.div_ceil(8) as usize);
        scratch.inline.extend(payload.iter().map(|word| word.load(Ordering::Relaxed)));
        if !life.goes_on() {
            return Err(Stop::Recycled);
        }
        let sum = checksum::run(checksum::Hardware::detect(), Verify { words: &scratch.inline, shape, commit });
        let expected = u64::from(sum) | u64::from(self.slot) << 32 | u64::from(RECORD_VERSION) << 48;
        let mut outcome = if check == expected { Outcome::Committed } else { Outcome::Corrupt };
        let mut bytes = &scratch.inline.as_bytes()[..len as usize];
        let mut run = None;
        if outcome == Outcome::Committed && flags & FLAG_ABSENT != 0 {
            outcome = if len >= ABSENT_DESCRIPTOR { Outcome::Absent } else { Outcome::Corrupt };
        }
        if outcome == Outcome::Committed && flags & FLAG_ARENA != 0 {
            let descriptor = if len == ARENA_DESCRIPTOR { &scratch.inline[..] } else { &[] };
            match arena::fetch(self.store, life.owner, self.region, descriptor, &mut scratch.arena) {
                Ok((found, len)) => {
                    bytes = &scratch.arena.as_bytes()[..len as usize];
                    run = Some(found);
                }
                Err(ArenaFault::Recycled) if !life.goes_on() => return Err(Stop::Recycled),
                // After its step's end the run is given back although the naming record may still stand.
                Err(_) if self.region == Region::Step && self.is_over(sequence) => return Ok(true),
                Err(_) => (outcome, bytes) = (Outcome::Corrupt, &[]),
            }
        }
        let view = RecordView {
            sequence: Sequence(sequence),
            kind: (shape >> 32) as u16,
            flags: flags & !RESERVED_FLAGS,
            region: self.region,
            slot: self.slot,
            payload: bytes,
            result: (result & DONE != 0).then_some(result & !DONE),
            outcome,
        };
        Ok(visit.record(&view, run))
    }

    fn is_over(&self, sequence: u64) -> bool {
        sequence < super::step::Boundary::read(self.store).sequence.0
    }

    /// What a record that was never committed holds: unverified.
    fn unfinished<'s>(
        &self,
        at: u64,
        limit: u64,
        shape: u64,
        outcome: Outcome,
        scratch: &'s mut Scratch,
    ) -> Unfinished<'s> {
        unfinished(self.store, self.slot, self.region, at, limit, shape, outcome, scratch)
    }
}

/// A pending or torn record's bytes.
pub struct Unfinished<'s> {
    words: &'s [u64],
    len: usize,
    shape: u64,
    region: Region,
    slot: u16,
    outcome: Outcome,
}

impl Unfinished<'_> {
    /// As a record without a sequence.
    pub fn view(&self) -> RecordView<'_> {
        RecordView {
            sequence: Sequence(0),
            kind: (self.shape >> 32) as u16,
            flags: (self.shape >> 48) as u16 & !RESERVED_FLAGS,
            region: self.region,
            slot: self.slot,
            payload: &self.words.as_bytes()[..self.len],
            result: None,
            outcome: self.outcome,
        }
    }
}

/// Copies what stands after a pending or sealed commit word at `at`.
#[allow(clippy::too_many_arguments)]
pub fn unfinished<'s, W: Words>(
    store: &Store<W>,
    slot: u16,
    region: Region,
    at: u64,
    limit: u64,
    shape: u64,
    outcome: Outcome,
    scratch: &'s mut Scratch,
) -> Unfinished<'s> {
    let len = shape & 0xFFFF_FFFF;
    let len = if at + record_bytes(len) + 8 <= limit && (shape >> 48) as u16 & FLAG_ARENA == 0 { len } else { 0 };
    scratch.inline.clear();
    if len > 0 {
        let words = store.words(at + RECORD_HEADER, len.div_ceil(8) as usize);
        scratch.inline.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
    }
    Unfinished { words: &scratch.inline, len: len as usize, shape, region, slot, outcome }
}

struct Verify<'a> {
    words: &'a [u64],
    shape: u64,
    commit: u64,
}

impl Work for Verify<'_> {
    type Out = u32;
    #[inline(always)]
    fn run<C: Crc>(self, crc: C) -> u32 {
        let state = self.words.iter().fold(START, |state, word| crc.word(state, *word));
        finish(crc.word(crc.word(state, self.shape), self.commit))
    }
}
