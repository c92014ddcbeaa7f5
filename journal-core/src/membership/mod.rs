//! Who takes part in a job, what the job has decided, and how ranks meet.
//!
//! ```text
//! layout     where everything stands in the segment `rejoin.<job>.members`
//! seat       who holds a rank: incarnation, process, token, exit evidence
//! decision   the one word {step, epoch, slot, state}: votes, GO, commits, proposals, reopening, the end
//! failed     a failed set and the slots it is proposed in
//! liveness   the kernel's proof of a death, found in a ring
//! barrier    meet at a stage of an epoch, with one common outcome
//! blob       small bytes under (scope, key)
//! clique     the communicators of the job, in creation order
//! report     what happened in each recovery
//! header     what is fixed for a job
//! remove     taking the segments of an ended job away
//! shm        all of it in one shared-memory segment: `ShmMembership`
//! ```
//!
//! Every visible change is followed by a step of one event counter and a wake-up of all its waiters; a waiter
//! reads the counter, looks at its condition, then sleeps on the counter. No wake-up is lost, whatever the
//! condition. A process that dies between its change and the step of the counter wakes everybody by its death.

pub mod barrier;
pub mod blob;
pub mod clique;
pub mod decision;
mod error;
pub mod failed;
mod header;
pub mod layout;
mod liveness;
#[allow(unsafe_code)]
mod memory;
pub mod report;
pub mod seat;
mod protocols;
mod remove;
mod shared;
pub mod shm;

use core::fmt;
use std::time::Instant;

pub use barrier::{BarrierOutcome, STAGES, Stage};
pub use blob::BlobScope;
pub use clique::{Clique, CliqueDescription, CliqueKind};
pub use decision::{CommitOutcome, Decision, DecisionState, ProposeOutcome, Verdict, VoteOutcome};
pub use error::MembershipError;
pub use failed::{Cause, FailedSet, Failure};
pub use header::{JobOptions, JobPolicy, JobStrategy};
pub use liveness::LauncherState;
pub use memory::monotonic_ns;
pub use remove::remove_all;
pub use report::{Contribution, FailedRank, RecoveryOutcome, RecoveryReport, StageTimes};
pub use seat::{ExitEvidence, Identity, Seat, SeatState};
pub use shm::ShmMembership;

/// Most ranks of a job.
pub const MAX_RANKS: u32 = 1024;

/// A number 0..nranks-1 that never changes during the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Rank(pub u32);

/// The n-th process that holds a rank, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Incarnation(pub u32);

/// Grows by one with every change of membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u16);

/// A step of the application, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Step(pub u32);

impl Rank {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Incarnation {
    /// The process that comes after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Step {
    /// The step that comes after this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

macro_rules! display_number {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(Rank, Incarnation, Epoch, Step);

/// A set of ranks.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RankSet(Vec<u64>);

impl RankSet {
    /// Ranks 0..nranks.
    pub fn all(nranks: u32) -> Self {
        (0..nranks).map(Rank).collect()
    }

    /// Adds one.
    pub fn insert(&mut self, rank: Rank) {
        let word = rank.index() / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (rank.0 % 64);
    }

    /// Takes one out.
    pub fn remove(&mut self, rank: Rank) {
        if let Some(word) = self.0.get_mut(rank.index() / 64) {
            *word &= !(1 << (rank.0 % 64));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Whether it is in.
    pub fn contains(&self, rank: Rank) -> bool {
        self.0.get(rank.index() / 64).is_some_and(|word| word & (1 << (rank.0 % 64)) != 0)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            (0..64u32).filter(move |bit| word & (1 << bit) != 0).map(move |bit| Rank(i as u32 * 64 + bit))
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The lowest.
    pub fn first(&self) -> Option<Rank> {
        self.iter().next()
    }
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let mut set = Self::default();
        ranks.into_iter().for_each(|rank| set.insert(rank));
        set
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|rank| rank.0)).finish()
    }
}

/// For texts: `1, 2 and 5`, or `none`.
pub(crate) fn rank_list(ranks: &[Rank]) -> String {
    match ranks {
        [] => "none".to_owned(),
        [one] => one.to_string(),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(ToString::to_string).collect();
            format!("{} and {last}", most.join(", "))
        }
    }
}

/// What a job needs to agree. One implementation today, [`ShmMembership`]; a store across hosts later.
///
/// Methods that write return [`MembershipError::Evicted`] when this process was declared failed, and
/// [`MembershipError::Ended`] when the job is over.
pub trait Membership: Send + Sync {
    /// Ranks of the job.
    fn nranks(&self) -> u32;
    /// This process's rank and incarnation; `None` in the launcher and in observers.
    fn member(&self) -> Option<(Rank, Incarnation)>;

    /// The event counter. Read it before looking at a condition.
    fn event(&self) -> u32;
    /// Sleeps until the counter differs from `seen`, or `deadline`. False: the deadline passed.
    fn wait(&self, seen: u32, deadline: Instant) -> bool;

    /// The decision word.
    fn decision(&self) -> Decision;
    /// Votes that this rank finished `step` in `epoch`; the last vote of all swaps GO in.
    fn vote(&self, epoch: Epoch, step: Step) -> Result<VoteOutcome, MembershipError>;
    /// Waits for what the job decides about `step` after this rank's vote in `epoch`.
    fn await_verdict(&self, epoch: Epoch, step: Step, deadline: Instant) -> Result<Verdict, MembershipError>;
    /// Marks `step` as committed by this rank; the last mark of all opens the next step.
    fn commit(&self, step: Step) -> Result<CommitOutcome, MembershipError>;
    /// Waits until all of `ranks` have committed `step`, or the epoch leaves `epoch`.
    fn await_commits(&self, epoch: Epoch, step: Step, ranks: &RankSet, deadline: Instant) -> Result<(), MembershipError>;

    /// Adds failures to what the job knows: swaps to the next epoch unless they are known or outdated.
    fn report_failures(&self, failures: &[Failure]) -> Result<Decision, MembershipError>;
    /// Swaps `expected` to the next epoch with the failures known in it and `more` (which may be empty:
    /// the recovery itself failed). Lost when the epoch has moved already.
    fn propose(&self, expected: Epoch, more: &[Failure]) -> Result<ProposeOutcome, MembershipError>;
    /// The failed set that `decision` was proposed with; [`MembershipError::Moved`] if the epoch has moved on.
    fn failed_set(&self, decision: &Decision) -> Result<FailedSet, MembershipError>;
    /// After the recovery of `epoch`: opens the step it resumes with, and returns it. Idempotent.
    fn reopen(&self, epoch: Epoch) -> Result<Step, MembershipError>;
    /// Ends the job. The first code stays.
    fn end(&self, code: u32);

    /// Meets `participants` at `stage` of `epoch`; each says whether it is well. One outcome for all.
    fn barrier(
        &self,
        epoch: Epoch,
        stage: Stage,
        ok: bool,
        participants: &RankSet,
        deadline: Instant,
    ) -> Result<(), MembershipError>;

    /// Makes `bytes` visible under `key`.
    fn publish(&self, scope: BlobScope, key: &str, bytes: &[u8]) -> Result<(), MembershipError>;
    /// What any rank published under `key`, if there is something.
    fn find_blob(&self, scope: BlobScope, key: &str) -> Result<Option<Vec<u8>>, MembershipError>;
    /// Waits for it.
    fn await_blob(&self, scope: BlobScope, key: &str, deadline: Instant) -> Result<Vec<u8>, MembershipError>;
}
