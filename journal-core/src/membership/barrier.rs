//! Barriers: the participants of a stage meet, and all of them see the same outcome.
//!
//! Each rank writes {epoch, stage, ok} into its arrival word; the last one to arrive swaps the outcome of the stage
//! in, once. A rank whose deadline passes swaps a failure in, so that nobody goes on without it. A stage is used once
//! an epoch. Whoever leaves a stage has seen its outcome, so an arrival word that has gone on means there is one.

use core::fmt;
use core::marker::PhantomData;

use super::decision::{SeqCstFence, StoreScanFence, Strided};
use super::{Epoch, Rank, RankSet};
use crate::sync::{Ordering, Words};

/// Stages that an epoch can have.
pub const STAGES: u16 = 64;

/// A stage of an epoch, below [`STAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stage(pub u16);

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a stage ended, for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BarrierOutcome {
    /// All arrived and all were well.
    Ok,
    /// All arrived; this is the lowest rank that was not well.
    Failed(Rank),
    /// The deadline of a participant passed; this is the lowest rank that was missing then.
    Late(Rank),
}

const OK: u64 = 1;
const FAILED: u64 = 2;
const LATE: u64 = 3;

impl BarrierOutcome {
    fn to_word(self, epoch: Epoch) -> u64 {
        let (kind, rank) = match self {
            Self::Ok => (OK, Rank(0)),
            Self::Failed(rank) => (FAILED, rank),
            Self::Late(rank) => (LATE, rank),
        };
        u64::from(epoch.0) << 32 | u64::from(rank.0 as u16) << 8 | kind
    }

    /// The outcome in `word`, if it is one of `epoch`.
    fn from_word(word: u64, epoch: Epoch) -> Option<Self> {
        let rank = Rank((word >> 8) as u16 as u32);
        if word >> 32 != u64::from(epoch.0) {
            return None;
        }
        match word & 0xff {
            OK => Some(Self::Ok),
            FAILED => Some(Self::Failed(rank)),
            LATE => Some(Self::Late(rank)),
            _ => None,
        }
    }
}

/// Where the words are.
#[derive(Debug, Clone, Copy)]
pub struct BarrierPlace {
    /// {epoch, stage + 1, ok} of each rank's last arrival; written by the rank.
    pub arrivals: Strided,
    /// [`STAGES`] outcomes {epoch, rank, kind}; swapped in by the last to arrive or the first to give up.
    pub outcomes: u64,
}

/// The protocol over some words.
pub struct Barriers<'a, W, F = SeqCstFence> {
    words: &'a W,
    place: BarrierPlace,
    fence: PhantomData<F>,
}

fn arrival_word(epoch: Epoch, stage: Stage, ok: bool) -> u64 {
    u64::from(epoch.0) << 32 | (u64::from(stage.0) + 1) << 1 | u64::from(ok)
}

impl<'a, W: Words> Barriers<'a, W> {
    /// The protocol as it is used.
    pub fn new(words: &'a W, place: BarrierPlace) -> Self {
        Self::with_fence(words, place)
    }
}

impl<'a, W: Words, F: StoreScanFence> Barriers<'a, W, F> {
    /// With another fence, for models that show what it is good for.
    pub fn with_fence(words: &'a W, place: BarrierPlace) -> Self {
        Self { words, place, fence: PhantomData }
    }

    fn outcome_offset(&self, stage: Stage) -> u64 {
        self.place.outcomes + u64::from(stage.0 % STAGES) * 8
    }

    /// The outcome of a stage, once there is one.
    pub fn outcome(&self, epoch: Epoch, stage: Stage) -> Option<BarrierOutcome> {
        // SYNC: Acquire; pairs with `decide`, so that what all did before they arrived is visible.
        BarrierOutcome::from_word(self.words.word(self.outcome_offset(stage)).load(Ordering::Acquire), epoch)
    }

    /// Swaps an outcome in if there is none of this epoch or a later one. Returns the one that stands.
    fn decide(&self, epoch: Epoch, stage: Stage, outcome: BarrierOutcome) -> (Option<BarrierOutcome>, bool) {
        let cell = self.words.word(self.outcome_offset(stage));
        let mut seen = cell.load(Ordering::Acquire);
        loop {
            if seen >> 32 > u64::from(epoch.0) {
                return (None, false);
            }
            if let Some(stands) = BarrierOutcome::from_word(seen, epoch) {
                return (Some(stands), false);
            }
            // SYNC: AcqRel; pairs with the Acquire in `outcome`.
            match cell.compare_exchange(seen, outcome.to_word(epoch), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (Some(outcome), true),
                Err(found) => seen = found,
            }
        }
    }

    /// True: this call swapped the outcome in; wake the others.
    pub fn arrive(&self, rank: Rank, epoch: Epoch, stage: Stage, ok: bool, participants: &RankSet) -> bool {
        // SYNC: Release; pairs with the Acquire in `arrived`.
        self.words.word(self.place.arrivals.of(rank)).store(arrival_word(epoch, stage, ok), Ordering::Release);
        F::store_scan();
        let mut unwell = None;
        for other in participants.iter() {
            match self.arrived(other, epoch, stage) {
                None => return false,
                Some(true) => {}
                Some(false) => unwell = unwell.or(Some(other)),
            }
        }
        self.decide(epoch, stage, unwell.map_or(BarrierOutcome::Ok, BarrierOutcome::Failed)).1
    }

    fn arrived(&self, rank: Rank, epoch: Epoch, stage: Stage) -> Option<bool> {
        // SYNC: Acquire; pairs with the Release in `arrive`.
        let word = self.words.word(self.place.arrivals.of(rank)).load(Ordering::Acquire);
        (word & !1 == arrival_word(epoch, stage, false)).then_some(word & 1 != 0)
    }

    /// Participants that have not arrived. Only meaningful while there is no outcome.
    pub fn missing(&self, epoch: Epoch, stage: Stage, participants: &RankSet) -> RankSet {
        participants.iter().filter(|rank| self.arrived(*rank, epoch, stage).is_none()).collect()
    }

    /// After a deadline: fails the stage for everybody because of `missing`, unless it has an outcome by now.
    /// Returns what stands (`None`: a later epoch has used the stage) and whether this call did it.
    pub fn give_up(&self, epoch: Epoch, stage: Stage, missing: Rank) -> (Option<BarrierOutcome>, bool) {
        self.decide(epoch, stage, BarrierOutcome::Late(missing))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::HeapWords;

    const PLACE: BarrierPlace = BarrierPlace { arrivals: Strided { base: 0, stride: 8 }, outcomes: 64 };

    fn words() -> HeapWords {
        HeapWords::zeroed(64 + u64::from(STAGES) * 8)
    }

    #[test]
    fn one_unwell_participant_fails_the_stage_for_all_and_is_named() {
        let words = words();
        let barriers = Barriers::new(&words, PLACE);
        let all = RankSet::all(3);
        let (epoch, stage) = (Epoch(1), Stage(2));
        assert!(!barriers.arrive(Rank(2), epoch, stage, true, &all));
        assert!(!barriers.arrive(Rank(0), epoch, stage, true, &all));
        assert_eq!(barriers.outcome(epoch, stage), None);
        assert_eq!(barriers.missing(epoch, stage, &all).iter().collect::<Vec<_>>(), [Rank(1)]);
        assert!(barriers.arrive(Rank(1), epoch, stage, false, &all));
        assert_eq!(barriers.outcome(epoch, stage), Some(BarrierOutcome::Failed(Rank(1))));
    }

    #[test]
    fn the_first_decision_of_a_stage_stays() {
        let words = words();
        let barriers = Barriers::new(&words, PLACE);
        let all = RankSet::all(2);
        let (epoch, stage) = (Epoch(0), Stage(0));
        barriers.arrive(Rank(0), epoch, stage, true, &all);
        assert_eq!(barriers.give_up(epoch, stage, Rank(1)), (Some(BarrierOutcome::Late(Rank(1))), true));
        assert!(!barriers.arrive(Rank(1), epoch, stage, true, &all), "too late to make it good");
        assert_eq!(barriers.outcome(epoch, stage), Some(BarrierOutcome::Late(Rank(1))));
        assert_eq!(barriers.outcome(Epoch(1), stage), None, "another epoch");
    }

    #[test]
    fn an_old_epoch_cannot_overwrite_the_outcome_of_a_later_one() {
        let words = words();
        let barriers = Barriers::new(&words, PLACE);
        let alone: RankSet = [Rank(0)].into_iter().collect();
        assert!(barriers.arrive(Rank(0), Epoch(4), Stage(1), true, &alone));
        assert_eq!(barriers.give_up(Epoch(3), Stage(1), Rank(1)), (None, false));
        assert_eq!(barriers.outcome(Epoch(4), Stage(1)), Some(BarrierOutcome::Ok));
    }
}
