//! A failed set: which (rank, incarnation) failed and why, and the slots it is proposed in.
//!
//! A proposer writes its set into its own slot [proposer][epoch & 1] and then swaps the decision word, which
//! names the slot. The parity keeps the set of epoch e whole while its proposer goes on to e + 1.

use super::{Incarnation, Rank, RankSet};
use crate::sync::{Ordering, Words};

/// How a rank failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Its device is lost, its process lives on. Not fenced.
    DeviceLost = 1,
    /// Its process died.
    Died = 2,
    /// Its process lives but does not go on.
    Hung = 3,
    /// Its process was declared failed for another reason.
    Evicted = 4,
}

impl Cause {
    /// Whether the process is killed and its exit proven before anyone resumes.
    pub fn is_fenced(self) -> bool {
        self != Self::DeviceLost
    }

    /// As printed in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeviceLost => "device_lost",
            Self::Died => "died",
            Self::Hung => "hung",
            Self::Evicted => "evicted",
        }
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::DeviceLost,
            2 => Self::Died,
            3 => Self::Hung,
            4 => Self::Evicted,
            _ => return None,
        })
    }
}

/// One failed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Rank.
    pub rank: Rank,
    /// Which process of it.
    pub incarnation: Incarnation,
    /// How.
    pub cause: Cause,
}

impl Failure {
    fn to_word(self) -> u64 {
        (u64::from(self.incarnation.0) + 1) << 8 | self.cause as u64
    }

    /// A damaged word is no failure: it was never proposed by a writer of this format.
    fn from_word(rank: Rank, word: u64) -> Option<Self> {
        let cause = Cause::from_number(word & 0xff)?;
        let incarnation = Incarnation(u32::try_from((word >> 8).checked_sub(1)?).ok()?);
        Some(Self { rank, incarnation, cause })
    }

    /// Whether knowing `self` is knowing `other` too: same rank, and a later process or no weaker cause.
    fn covers(&self, other: &Self) -> bool {
        self.rank == other.rank
            && (self.incarnation > other.incarnation
                || self.incarnation == other.incarnation && self.cause.is_fenced() >= other.cause.is_fenced())
    }
}

/// Failures of one epoch, at most one a rank, by rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailedSet(Vec<Failure>);

impl FailedSet {
    /// Adds one; of two for a rank the later process stays, of one process the fenced cause.
    /// False: it was known.
    pub fn add(&mut self, failure: Failure) -> bool {
        match self.0.binary_search_by_key(&failure.rank, |f| f.rank) {
            Ok(at) if self.0[at].covers(&failure) => false,
            Ok(at) => {
                self.0[at] = failure;
                true
            }
            Err(at) => {
                self.0.insert(at, failure);
                true
            }
        }
    }

    /// Whether `failure` is known in it.
    pub fn covers(&self, failure: &Failure) -> bool {
        self.of(failure.rank).is_some_and(|known| known.covers(failure))
    }

    /// What is known of `rank`.
    pub fn of(&self, rank: Rank) -> Option<Failure> {
        self.0.binary_search_by_key(&rank, |f| f.rank).ok().map(|at| self.0[at])
    }

    /// By rank.
    pub fn iter(&self) -> impl Iterator<Item = Failure> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their ranks.
    pub fn ranks(&self) -> RankSet {
        self.iter().map(|failure| failure.rank).collect()
    }

    /// Ranks of the job that are not in it.
    pub fn survivors(&self, nranks: u32) -> RankSet {
        (0..nranks).map(Rank).filter(|rank| self.of(*rank).is_none()).collect()
    }
}

impl FromIterator<Failure> for FailedSet {
    fn from_iter<I: IntoIterator<Item = Failure>>(failures: I) -> Self {
        let mut set = Self::default();
        for failure in failures {
            set.add(failure);
        }
        set
    }
}

/// Where the slots are: {incarnation + 1, cause} for each rank, 0 for none.
/// Written by the proposer before its swap; a crash before the swap leaves a set that nobody reads.
#[derive(Debug, Clone, Copy)]
pub struct FailedSlots {
    /// First byte.
    pub base: u64,
    /// Words of one set.
    pub nranks: u32,
}

impl FailedSlots {
    fn offset(&self, slot: u16, parity: u16) -> u64 {
        self.base + (u64::from(slot) * 2 + u64::from(parity & 1)) * u64::from(self.nranks) * 8
    }

    /// Stores a set. Ordered before the reader's look by the swap of the decision word, which releases.
    pub(super) fn store<W: Words>(&self, words: &W, slot: u16, parity: u16, set: &FailedSet) {
        let cells = words.words(self.offset(slot, parity), self.nranks as usize);
        for (cell, rank) in cells.iter().zip(0..) {
            cell.store(set.of(Rank(rank)).map_or(0, Failure::to_word), Ordering::Relaxed);
        }
    }

    /// Copies a set out; the caller checks afterwards that the decision word still names it.
    pub(super) fn load<W: Words>(&self, words: &W, slot: u16, parity: u16) -> FailedSet {
        let cells = words.words(self.offset(slot, parity), self.nranks as usize);
        cells.iter().zip(0..).filter_map(|(cell, rank)| Failure::from_word(Rank(rank), cell.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn failure(rank: u32, incarnation: u32, cause: Cause) -> Failure {
        Failure { rank: Rank(rank), incarnation: Incarnation(incarnation), cause }
    }

    #[test]
    fn a_later_process_and_a_fenced_cause_replace_what_was_known() {
        let mut set = FailedSet::default();
        assert!(set.add(failure(2, 0, Cause::DeviceLost)));
        assert!(!set.add(failure(2, 0, Cause::DeviceLost)));
        assert!(set.add(failure(2, 0, Cause::Died)));
        assert!(!set.add(failure(2, 0, Cause::Hung)), "a dead process cannot hang");
        assert!(!set.add(failure(2, 0, Cause::DeviceLost)));
        assert!(set.add(failure(2, 1, Cause::DeviceLost)));
        assert!(!set.add(failure(2, 0, Cause::Died)));
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn a_set_is_read_back_from_its_own_slot_and_parity_only() {
        let words = crate::sync::HeapWords::zeroed(4 * 2 * 3 * 8);
        let slots = FailedSlots { base: 0, nranks: 3 };
        let set: FailedSet = [failure(0, 7, Cause::Hung), failure(2, 0, Cause::Died)].into_iter().collect();
        slots.store(&words, 1, 5, &set);
        assert_eq!(slots.load(&words, 1, 1), set);
        assert!(slots.load(&words, 1, 0).is_empty());
        assert!(slots.load(&words, 2, 1).is_empty());
        assert_eq!(set.survivors(3), [Rank(1)].into_iter().collect());
    }
}
