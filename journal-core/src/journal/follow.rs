//! Following a journal while it is written: every record once, in the journal's order.
//!
//! Each lane is walked on from where the last call stopped, so a call's work is bounded by what it may return and the
//! number of lanes. A number that a live writer has taken and not committed holds later ones back, until it commits or
//! dies. Writers never wait for a follower: one that is slower than the steps are cut is told what it missed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use super::arena::Run;
use super::layout::{ChunkId, SLOT_STATE};
use super::lock::{self, Holder};
use super::record::{Outcome, Record, RecordView};
use super::scan::{self, EndState, Position, Scratch, Stop, Visit};
use super::store::{Memory, Store};
use super::{JournalReader, LoadError, Region, SharedSegment, doorbell};
use crate::sync::Ordering;

/// Walks of one lane that its owner may disturb before a call goes on without it.
const RETRIES: u32 = 8;

/// What a follower is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The next record. Its call may not have returned yet: the result is as it was seen.
    Record(Record),
    /// Sequence numbers that will not come: lost by a death, or their step was over and recycled before they were read.
    Missing(Range<u64>),
}

/// Reads a journal as it is written.
#[derive(Debug)]
pub struct Follower {
    reader: JournalReader,
    /// Writable view of the base, to say that somebody sleeps; without it the follower looks at intervals.
    bell: Option<SharedSegment>,
    lanes: Vec<[Option<Position>; 2]>,
    /// Collected, waiting for a lower number.
    held: BTreeMap<u64, Record>,
    /// Next number to tell.
    next: u64,
    /// Step records below belong to steps that were over at the start.
    start: u64,
    /// Every number below was looked for, and either is held or is in flight or will not come.
    complete_to: u64,
    scratch: Scratch,
}

struct Gather<'a> {
    store: &'a Store<Memory>,
    held: &'a mut BTreeMap<u64, Record>,
    position: &'a mut Option<Position>,
    /// Numbers below are not wanted.
    from: u64,
    left: usize,
}

impl Visit for Gather<'_> {
    fn enter(&mut self, chunk: ChunkId) -> bool {
        self.store.memory().still_holds(chunk)
    }

    fn record(&mut self, record: &RecordView<'_>, _: Option<Run>) -> bool {
        if record.outcome == Outcome::Torn || record.sequence.0 < self.from {
            return true;
        }
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.held.insert(record.sequence.0, record.to_record());
        true
    }

    fn passed(&mut self, position: Position) {
        *self.position = Some(position);
    }
}

impl Follower {
    pub(super) fn new(reader: JournalReader) -> Self {
        let base = reader.store().memory().base();
        let bell = SharedSegment::open_in(base.dir(), base.name()).ok().filter(|bell| bell.len() == base.len());
        let start = reader.boundary().sequence.0;
        let lanes = vec![[None; 2]; reader.store().base().max_slots as usize];
        Self { reader, bell, lanes, held: BTreeMap::new(), next: 1, start, complete_to: 1, scratch: Scratch::default() }
    }

    /// The journal.
    pub fn reader(&self) -> &JournalReader {
        &self.reader
    }

    /// What there is to tell now, at most `most` events. Never waits.
    pub fn poll(&mut self, most: usize) -> Result<Vec<Event>, LoadError> {
        self.reader.check_len()?;
        let mut events = Vec::new();
        self.tell(most, &mut events);
        if events.is_empty() && most > 0 {
            self.gather(most);
            self.tell(most, &mut events);
        }
        self.reader.check_len()?;
        Ok(events)
    }

    /// Like [`Self::poll`], but waits until there is something to tell or `deadline`; empty at the deadline.
    pub fn wait(&mut self, most: usize, deadline: Instant) -> Result<Vec<Event>, LoadError> {
        loop {
            let rung = self.bell.as_ref().map(doorbell::count);
            let events = self.poll(most)?;
            if !events.is_empty() || most == 0 || Instant::now() >= deadline {
                return Ok(events);
            }
            match (&self.bell, rung) {
                (Some(bell), Some(rung)) => {
                    doorbell::arm(bell);
                    if scan::limit(self.reader.store()) <= self.complete_to {
                        doorbell::sleep(bell, rung, deadline);
                    }
                }
                _ => doorbell::pause(deadline),
            }
        }
    }

    fn gather(&mut self, most: usize) {
        let Self { reader, lanes, held, scratch, .. } = self;
        let store = reader.store();
        let limit = scan::limit(store);
        let mut whole = true;
        for (slot, positions) in (0_u16..).zip(lanes) {
            // SYNC: Acquire; pairs with the Release in claim.rs.
            if store.slot_word(slot, SLOT_STATE).load(Ordering::Acquire) == 0 {
                continue;
            }
            for region in Region::ALL {
                let from = if region == Region::Step { self.next.max(self.start) } else { self.next };
                let position = &mut positions[region as usize];
                let mut gather = Gather { store, held, position, from, left: most };
                whole &= gather_lane(&mut gather, slot, region, scratch, reader.futex_offset());
            }
        }
        if whole {
            self.complete_to = self.complete_to.max(limit);
        }
    }

    /// Tells what is next in order, while that is known.
    fn tell(&mut self, most: usize, events: &mut Vec<Event>) {
        while events.len() < most {
            if let Some(record) = self.held.remove(&self.next) {
                self.next += 1;
                events.push(Event::Record(record));
                continue;
            }
            let first = self.held.keys().next().copied().unwrap_or(u64::MAX);
            let end = first.min(self.complete_to);
            if end <= self.next {
                return;
            }
            // What was over before the follower came is no news.
            let from = self.next.max(self.start.min(end));
            self.next = end;
            if from < end {
                events.push(Event::Missing(from..end));
            }
        }
    }
}

/// Walks one chain on; whether all that it had is held now.
fn gather_lane(gather: &mut Gather<'_>, slot: u16, region: Region, scratch: &mut Scratch, futex_offset: u8) -> bool {
    let store = gather.store;
    for _ in 0..RETRIES {
        match scan::walk_on(store, slot, region, *gather.position, scratch, gather) {
            Ok(end) if end.state == EndState::Pending => {
                let holder = lock::holder(store, store.base().slot(slot), futex_offset);
                let still = store.word(end.at).load(Ordering::Acquire) == super::layout::PENDING;
                // A dead owner's number will not come.
                return still && !matches!(holder, Holder::Alive(_));
            }
            // Behind damage nothing can be found.
            Ok(_) => return true,
            Err(Stop::Visitor) => return false,
            Err(Stop::Recycled) => *gather.position = None,
        }
    }
    false
}
