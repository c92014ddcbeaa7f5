//! One look at a journal: all records that count, in order, and what became of each lane.

use super::layout::{
    DROPPED, FINISHED, INCOMPLETE_FROM, PENDING, SLOT_COMPACTED, SLOT_DEATHS, SLOT_LOST, SLOT_OWNER, SLOT_STATE,
};
use super::lock::{self, Holder};
use super::arena::Run;
use super::layout::ChunkId;
use super::record::{Outcome, Record, RecordView};
use super::scan::{self, EndState, Scratch, Stop, Visit};
use super::store::{Memory, Store};
use super::{Boundary, JournalIdentity, Region, Sequence};
use crate::sync::Ordering;

/// A slot's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Owner {
    /// The last owner gave the slot back.
    None,
    Alive { pid: u32, tid: u32 },
    /// Died, and nobody has taken the slot over.
    Dead { pid: u32, tid: u32 },
}

/// A lane in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReport {
    /// Slot.
    pub slot: u16,
    /// Its owner.
    pub owner: Owner,
    /// Owners that died in it and were reaped.
    pub deaths: u64,
    /// At most so many sequence numbers were lost by them.
    pub lost: u64,
    /// Set-up records that compaction has left out.
    pub compacted: u64,
    /// Where the bytes stop making sense, if they do.
    pub damaged_at: Option<u64>,
    /// Its owner recycled it under every walk, so its records are missing here. Nothing is wrong with them.
    pub disturbed: bool,
}

/// A consistent look at a journal.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Whose journal.
    pub identity: JournalIdentity,
    /// The open step's beginning.
    pub boundary: Boundary,
    /// Every record below was looked for.
    pub limit: Sequence,
    /// Set-up records in order: committed and corrupt ones.
    pub setup: Vec<Record>,
    /// The open step's records in order.
    pub step: Vec<Record>,
    /// In-flight and torn records, one a lane and region at most beside sealed ones. Their calls were never issued.
    pub unfinished: Vec<Record>,
    /// Ranges of sequence numbers of the open step that no record has: taken by unfinished records.
    pub missing: Vec<std::ops::Range<u64>>,
    /// Lanes in use.
    pub lanes: Vec<LaneReport>,
    /// A record from this sequence on was dropped (policy); the journal cannot be replayed.
    pub incomplete_from: Option<Sequence>,
    /// Records dropped.
    pub dropped: u64,
    /// The writer ended in good order.
    pub finished: bool,
}

impl Snapshot {
    /// Sequence numbers nobody has.
    pub fn missing_count(&self) -> u64 {
        self.missing.iter().map(|range| range.end - range.start).sum()
    }

    /// Unfinished records of an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        [&self.setup, &self.step, &self.unfinished].into_iter().flatten().filter(|r| r.outcome == outcome).count()
    }

    /// Lost: missing numbers that no record in flight accounts for, and that dead owners can have taken.
    pub fn lost_count(&self) -> u64 {
        self.missing_count().saturating_sub(self.count(Outcome::InFlight) as u64)
    }

    /// More numbers are missing than all unfinished records and deaths explain: something else wrote here.
    pub fn has_unknown_gap(&self) -> bool {
        let unfinished = self.unfinished.iter().filter(|r| matches!(r.outcome, Outcome::InFlight | Outcome::Torn));
        // A damaged slot may say anything.
        let explained = self.lanes.iter().fold(unfinished.count() as u64, |sum, lane| sum.saturating_add(lane.lost));
        self.missing_count() > explained
    }

    /// Nothing is corrupt, no lane is damaged, no gap unexplained, nothing dropped.
    pub fn is_whole(&self) -> bool {
        self.count(Outcome::Corrupt) == 0
            && self.lanes.iter().all(|lane| lane.damaged_at.is_none())
            && !self.has_unknown_gap()
            && self.incomplete_from.is_none()
    }
}

/// Walks of one lane, or of the whole journal, that a writer may disturb before the reader takes what it has.
const RETRIES: u32 = 64;

struct Collect<'a> {
    store: &'a Store<Memory>,
    from: u64,
    below: u64,
    records: Vec<Record>,
    unfinished: Vec<Record>,
}

impl Visit for Collect<'_> {
    fn enter(&mut self, chunk: ChunkId) -> bool {
        self.store.memory().still_holds(chunk)
    }

    fn record(&mut self, record: &RecordView<'_>, _: Option<Run>) -> bool {
        if record.outcome == Outcome::Torn {
            self.unfinished.push(record.to_record());
        } else if (self.from..self.below).contains(&record.sequence.0) {
            self.records.push(record.to_record());
        }
        true
    }
}

/// Takes a snapshot. Never blocks, never writes.
pub(super) fn take(store: &Store<Memory>, identity: &JournalIdentity, futex_offset: u8) -> Snapshot {
    let mut left = RETRIES;
    loop {
        let boundary = Boundary::read(store);
        let snapshot = take_at(store, identity, futex_offset, boundary);
        let now = Boundary::read(store);
        left -= 1;
        if now == boundary {
            return snapshot;
        }
        if left == 0 {
            // Steps end faster than we can look: what counts by the newest boundary is still right.
            let step: Vec<_> = snapshot.step.into_iter().filter(|r| r.sequence >= now.sequence).collect();
            let missing = gaps(now.sequence.0.max(1), snapshot.limit.0, &snapshot.setup, &step);
            return Snapshot { step, missing, boundary: now, ..snapshot };
        }
    }
}

fn take_at(store: &Store<Memory>, identity: &JournalIdentity, futex_offset: u8, boundary: Boundary) -> Snapshot {
    let limit = scan::limit(store);
    let mut scratch = Scratch::default();
    let mut lanes = Vec::new();
    let mut found = [Vec::new(), Vec::new()];
    let mut unfinished = Vec::new();
    for slot in 0..store.base().max_slots as u16 {
        // SYNC: Acquire; pairs with the Release in claim.rs.
        if store.slot_word(slot, SLOT_STATE).load(Ordering::Acquire) == 0 {
            continue;
        }
        let (mut damaged_at, mut disturbed) = (None, false);
        for region in Region::ALL {
            let from = if region == Region::Step { boundary.sequence.0 } else { 0 };
            let (mut collected, end) = lane(store, slot, region, from, limit, &mut scratch);
            found[region as usize].append(&mut collected.records);
            unfinished.append(&mut collected.unfinished);
            match end {
                Walk::Whole(end) if end.state == EndState::Pending => {
                    // Asked after the walk: an owner that is alive now was alive then. One that is gone may have
                    // finished the record first.
                    let holder = lock::holder(store, store.base().slot(slot), futex_offset);
                    let still = store.word(end.at).load(Ordering::Acquire) == PENDING;
                    let outcome = match holder {
                        Holder::Died | Holder::Nobody if still => Outcome::Torn,
                        _ => Outcome::InFlight,
                    };
                    let limit = end.chunk.map_or(0, |id| store.chunk_at(id) + store.base().chunk_bytes);
                    let torn =
                        scan::unfinished(store, slot, region, end.at, limit, end.shape, outcome, &mut scratch);
                    unfinished.push(torn.view().to_record());
                }
                Walk::Whole(end) if end.state == EndState::Damaged => damaged_at = Some(end.at),
                Walk::Whole(_) => {}
                Walk::Unreadable => damaged_at = damaged_at.or(Some(store.base().slot(slot))),
                Walk::Disturbed => disturbed = true,
            }
        }
        lanes.push(report(store, slot, futex_offset, (damaged_at, disturbed)));
    }
    let [mut setup, mut step] = found;
    setup.sort_unstable_by_key(|record| record.sequence);
    step.sort_unstable_by_key(|record| record.sequence);
    let missing = gaps(boundary.sequence.0.max(1), limit, &setup, &step);
    let incomplete_from = store.word(INCOMPLETE_FROM).load(Ordering::Acquire);
    Snapshot {
        identity: identity.clone(),
        boundary,
        limit: Sequence(limit),
        setup,
        step,
        unfinished,
        missing,
        lanes,
        incomplete_from: (incomplete_from != u64::MAX).then_some(Sequence(incomplete_from)),
        dropped: store.word(DROPPED).load(Ordering::Relaxed),
        finished: store.word(FINISHED).load(Ordering::Acquire) == 1,
    }
}

/// How the walks of a chain ended.
enum Walk {
    Whole(scan::End),
    /// Its memory is gone.
    Unreadable,
    /// Its owner never left it alone.
    Disturbed,
}

/// Walks one chain until its owner leaves it alone.
fn lane<'a>(
    store: &'a Store<Memory>,
    slot: u16,
    region: Region,
    from: u64,
    below: u64,
    scratch: &mut Scratch,
) -> (Collect<'a>, Walk) {
    let mut collect = Collect { store, from, below, records: Vec::new(), unfinished: Vec::new() };
    for _ in 0..RETRIES {
        match scan::walk(store, slot, region, scratch, &mut collect) {
            Ok(end) => return (collect, Walk::Whole(end)),
            Err(Stop::Visitor) => return (collect, Walk::Unreadable),
            Err(Stop::Recycled) => {
                collect.records.clear();
                collect.unfinished.clear();
            }
        }
    }
    (collect, Walk::Disturbed)
}

fn report(store: &Store<Memory>, slot: u16, futex_offset: u8, (damaged_at, disturbed): (Option<u64>, bool)) -> LaneReport {
    let owner = store.slot_word(slot, SLOT_OWNER).load(Ordering::Relaxed);
    let (pid, tid) = (owner as u32, (owner >> 32) as u32);
    LaneReport {
        slot,
        owner: match lock::holder(store, store.base().slot(slot), futex_offset) {
            Holder::Nobody => Owner::None,
            Holder::Alive(_) => Owner::Alive { pid, tid },
            Holder::Died => Owner::Dead { pid, tid },
        },
        deaths: store.slot_word(slot, SLOT_DEATHS).load(Ordering::Relaxed),
        lost: store.slot_word(slot, SLOT_LOST).load(Ordering::Acquire),
        compacted: store.slot_word(slot, SLOT_COMPACTED).load(Ordering::Relaxed),
        damaged_at,
        disturbed,
    }
}

/// Numbers in `from..below` that neither list has. Both are sorted.
fn gaps(from: u64, below: u64, setup: &[Record], step: &[Record]) -> Vec<std::ops::Range<u64>> {
    let mut gaps = Vec::new();
    let mut next = from;
    let first = setup.partition_point(|record| record.sequence.0 < from);
    let (mut a, mut b) = (setup[first..].iter().peekable(), step.iter().peekable());
    loop {
        let heads = (a.peek().map(|r| r.sequence.0), b.peek().map(|r| r.sequence.0));
        let sequence = match heads {
            (Some(x), Some(y)) if x < y => a.next().map(|_| x),
            (Some(x), None) => a.next().map(|_| x),
            (_, Some(y)) => b.next().map(|_| y),
            (None, None) => None,
        };
        let Some(sequence) = sequence else { break };
        if sequence > next {
            gaps.push(next..sequence);
        }
        next = next.max(sequence + 1);
    }
    if below > next {
        gaps.push(next..below);
    }
    gaps
}
