//! The decision word: what the whole job has decided, in one 64-bit word.
//!
//! ```text
//! 63        32 31     16 15    4 3    0
//! [   step    |  epoch  |  slot | state]
//!
//! OPEN(s) --last vote--> GO(s) --last commit--> OPEN(s+1)
//!    |                     |
//!    propose: epoch+1      propose: epoch+1
//!    v                     v
//! FAILED_OPEN(s)        FAILED_GO(s)            a further proposal keeps which of the two it is
//!    |                     |
//!    reopen -> OPEN(s)     reopen -> OPEN(s+1)
//! ```
//!
//! A change of epoch and GO are swaps of the same word, so of one step either GO stood before the failure,
//! and then every survivor finishes and commits it, or it did not, and then nobody ever writes replicated state.
//! Every value of the word is new (epoch and step only grow), so no swap meets a value it mistakes for another.
//!
//! Pure protocol over [`Words`]: it neither sleeps nor wakes.

use core::fmt;
use core::marker::PhantomData;

use super::failed::FailedSlots;
use super::seat::{SeatState, Seats};
use super::{Epoch, FailedSet, Incarnation, Rank, RankSet, Step};
use crate::sync::{Ordering, Words, fence};

/// What stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DecisionState {
    /// The step runs; votes are counted.
    Open = 1,
    /// All have voted: everybody writes its state and commits.
    Go = 2,
    /// A failure before GO: the step is redone.
    FailedOpen = 3,
    /// A failure after GO: survivors commit, the job resumes with the next step.
    FailedGo = 4,
    /// The job is over.
    Ended = 5,
}

/// The decision word, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decision {
    /// The step it is about.
    pub step: Step,
    /// Epoch.
    pub epoch: Epoch,
    /// Slot with the failed set of this epoch: a rank's number, or nranks for the launcher's;
    /// [`Decision::NO_SLOT`] in epoch 0.
    pub slot: u16,
    /// What stands.
    pub state: DecisionState,
}

impl Decision {
    /// No failed set yet.
    pub const NO_SLOT: u16 = 0xfff;

    /// Where a job starts.
    pub const START: Self = Self { step: Step(0), epoch: Epoch(0), slot: Self::NO_SLOT, state: DecisionState::Open };

    /// As stored.
    pub fn to_word(self) -> u64 {
        u64::from(self.step.0) << 32
            | u64::from(self.epoch.0) << 16
            | u64::from(self.slot & 0xfff) << 4
            | self.state as u64
    }

    /// Takes a word apart. A state that no writer leaves reads as ENDED: a job whose word is damaged is over.
    pub fn from_word(word: u64) -> Self {
        Self {
            step: Step((word >> 32) as u32),
            epoch: Epoch((word >> 16) as u16),
            slot: (word >> 4) as u16 & 0xfff,
            state: match word & 0xf {
                1 => DecisionState::Open,
                2 => DecisionState::Go,
                3 => DecisionState::FailedOpen,
                4 => DecisionState::FailedGo,
                _ => DecisionState::Ended,
            },
        }
    }

    /// A recovery is due or under way.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, DecisionState::FailedOpen | DecisionState::FailedGo)
    }

    /// The job is over.
    pub fn is_ended(&self) -> bool {
        self.state == DecisionState::Ended
    }

    /// GO stands or stood for `step` at this decision.
    pub fn go_stood(&self, step: Step) -> bool {
        self.step == step && matches!(self.state, DecisionState::Go | DecisionState::FailedGo) || self.step > step
    }

    /// The step that the job goes on with after the recovery under way.
    pub fn resume_step(&self) -> Step {
        if self.state == DecisionState::FailedGo { self.step.next() } else { self.step }
    }

    fn with(self, state: DecisionState) -> Self {
        Self { state, ..self }
    }

    fn failed_in(self, epoch: Epoch, slot: u16) -> Self {
        let state = match self.state {
            DecisionState::Go | DecisionState::FailedGo => DecisionState::FailedGo,
            _ => DecisionState::FailedOpen,
        };
        Self { epoch, slot, state, ..self }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            DecisionState::Open => "open",
            DecisionState::Go => "go",
            DecisionState::FailedOpen => "failed before go",
            DecisionState::FailedGo => "failed after go",
            DecisionState::Ended => "ended",
        };
        write!(f, "step {} epoch {} ({state})", self.step, self.epoch)
    }
}

/// What a vote led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoteOutcome {
    /// It was the last one: this call swapped GO in.
    Went,
    /// It is counted; others are missing, or another rank counted it and swapped.
    Counted,
    /// The epoch has moved, or the word is at another step.
    Moved(Decision),
    /// A later process of the rank has voted.
    Superseded,
}

/// What a commit led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It was the last one: this call opened the next step.
    Opened,
    /// It is marked; others are missing, or a recovery counts them.
    Marked,
}

/// What a proposal led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposeOutcome {
    /// This call swapped the epoch; what stands now.
    Won(Decision),
    /// The epoch had moved already, or the job is over; what stands now.
    Lost(Decision),
}

/// What the job decided about a step, seen from a rank that voted for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Finish the step and commit it, even if a failure has been proposed since.
    Go,
    /// The step is redone.
    Moved(Decision),
}

/// Words of all ranks at a fixed distance.
#[derive(Debug, Clone, Copy)]
pub struct Strided {
    /// Offset of rank 0's.
    pub base: u64,
    /// Bytes to the next rank's.
    pub stride: u64,
}

impl Strided {
    /// Offset of `rank`'s.
    pub fn of(&self, rank: Rank) -> u64 {
        self.base + self.stride * u64::from(rank.0)
    }
}

/// Where the words of the protocol are.
#[derive(Debug, Clone, Copy)]
pub struct DecisionPlace {
    /// Ranks of the job.
    pub nranks: u32,
    /// The decision word.
    pub word: u64,
    /// {step + 1, epoch, incarnation} of each rank's last vote; written by the rank.
    pub votes: Strided,
    /// step + 1 of each rank's last commit; written by the rank.
    pub commits: Strided,
    /// Seats, for the incarnation whose vote counts.
    pub seats: Seats,
    /// Proposals.
    pub slots: FailedSlots,
}

/// Stands between the store of a rank's own word and its look at the others'.
pub trait StoreScanFence {
    /// The fence.
    fn store_scan();
}

/// With release and acquire alone the last two voters can both miss each other's vote (a store buffer each),
/// and nobody swaps. The sequentially consistent fence forbids that both looks come first.
pub struct SeqCstFence;

impl StoreScanFence for SeqCstFence {
    fn store_scan() {
        fence(Ordering::SeqCst);
    }
}

/// The protocol over some words.
pub struct Decisions<'a, W, F = SeqCstFence> {
    words: &'a W,
    place: DecisionPlace,
    fence: PhantomData<F>,
}

impl<'a, W: Words> Decisions<'a, W> {
    /// The protocol as it is used.
    pub fn new(words: &'a W, place: DecisionPlace) -> Self {
        Self::with_fence(words, place)
    }
}

fn vote_word(step: Step, epoch: Epoch, incarnation: Incarnation) -> u64 {
    (u64::from(step.0) + 1) << 32 | u64::from(epoch.0) << 16 | u64::from(incarnation.0 as u16)
}

impl<'a, W: Words, F: StoreScanFence> Decisions<'a, W, F> {
    /// With another fence, for models that show what it is good for.
    pub fn with_fence(words: &'a W, place: DecisionPlace) -> Self {
        Self { words, place, fence: PhantomData }
    }

    /// Stores where a job starts. By the creator, before anyone sees the words.
    pub fn init(&self) {
        self.words.word(self.place.word).store(Decision::START.to_word(), Ordering::Release);
    }

    /// The word as it stands.
    pub fn load(&self) -> Decision {
        // SYNC: Acquire; pairs with the swaps below: whoever sees GO sees all votes, whoever sees a new epoch
        // sees its failed set.
        Decision::from_word(self.words.word(self.place.word).load(Ordering::Acquire))
    }

    fn swap(&self, from: Decision, to: Decision) -> Result<(), Decision> {
        // SYNC: AcqRel; pairs with `load`.
        self.words
            .word(self.place.word)
            .compare_exchange(from.to_word(), to.to_word(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(Decision::from_word)
    }

    fn ranks(&self) -> impl Iterator<Item = Rank> {
        (0..self.place.nranks).map(Rank)
    }

    /// Votes for `step` in `epoch`. The rank has proven that its step is complete and wrote PREPARED.
    pub fn vote(&self, rank: Rank, incarnation: Incarnation, epoch: Epoch, step: Step) -> VoteOutcome {
        let now = self.load();
        if now.epoch == epoch && now.step == step && now.state == DecisionState::Go {
            return VoteOutcome::Counted;
        }
        if now.epoch != epoch || now.step != step || now.state != DecisionState::Open {
            return VoteOutcome::Moved(now);
        }
        let vote = vote_word(step, epoch, incarnation);
        let cell = self.words.word(self.place.votes.of(rank));
        let mut seen = cell.load(Ordering::Relaxed);
        loop {
            // A stopped process that wakes up late must not overwrite the vote of its replacement.
            if seen & 0xffff > u64::from(incarnation.0 as u16) {
                return VoteOutcome::Superseded;
            }
            // SYNC: Release; pairs with the Acquire in `all_voted`, so that GO stands on everything before the vote.
            match cell.compare_exchange(seen, vote, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(found) => seen = found,
            }
        }
        F::store_scan();
        if !self.all_voted(epoch, step) {
            return VoteOutcome::Counted;
        }
        match self.swap(now, now.with(DecisionState::Go)) {
            Ok(()) => VoteOutcome::Went,
            // GO cannot have stood without this vote, so it is what the vote led to, whatever was proposed since.
            Err(found) if found.go_stood(step) && !found.is_ended() => VoteOutcome::Counted,
            Err(found) => VoteOutcome::Moved(found),
        }
    }

    fn voted(&self, rank: Rank, epoch: Epoch, step: Step) -> bool {
        let holder = self.place.seats.load(self.words, rank).incarnation;
        // SYNC: Acquire; pairs with the Release in `vote`.
        self.words.word(self.place.votes.of(rank)).load(Ordering::Acquire) == vote_word(step, epoch, holder)
    }

    fn all_voted(&self, epoch: Epoch, step: Step) -> bool {
        self.ranks().all(|rank| self.voted(rank, epoch, step))
    }

    /// Ranks whose vote for `step` in `epoch` is missing.
    pub fn missing_votes(&self, epoch: Epoch, step: Step) -> RankSet {
        self.ranks().filter(|rank| !self.voted(*rank, epoch, step)).collect()
    }

    /// What is decided about `step` for a rank that voted in `epoch`; `None`: nothing yet.
    pub fn verdict(&self, epoch: Epoch, step: Step) -> Option<Verdict> {
        let now = self.load();
        if now.is_ended() {
            return Some(Verdict::Moved(now));
        }
        // After GO the word cannot leave the step before this rank's own commit, unless the rank itself was
        // declared failed, which its caller checks.
        if now.go_stood(step) {
            return Some(Verdict::Go);
        }
        (now.epoch != epoch).then_some(Verdict::Moved(now))
    }

    /// Marks `step`, for which GO stood, as committed by `rank`.
    pub fn commit(&self, rank: Rank, step: Step) -> Result<CommitOutcome, Decision> {
        let now = self.load();
        if !now.go_stood(step) || now.step != step {
            return Err(now);
        }
        // A mark only grows: a later process of the rank never takes it back.
        // SYNC: Release; pairs with the Acquire in `committed`.
        self.words.word(self.place.commits.of(rank)).fetch_max(u64::from(step.0) + 1, Ordering::Release);
        F::store_scan();
        if !self.ranks().all(|rank| self.committed(rank, step)) {
            return Ok(CommitOutcome::Marked);
        }
        // Read again: only the value that stands after all marks may be swapped, and under a recovery none is.
        let now = self.load();
        if now.step != step || now.state != DecisionState::Go {
            return Ok(CommitOutcome::Marked);
        }
        match self.swap(now, Decision { step: step.next(), ..now.with(DecisionState::Open) }) {
            Ok(()) => Ok(CommitOutcome::Opened),
            Err(_) => Ok(CommitOutcome::Marked),
        }
    }

    /// Whether `rank` has committed `step`.
    pub fn committed(&self, rank: Rank, step: Step) -> bool {
        // SYNC: Acquire; pairs with the Release in `commit`.
        self.words.word(self.place.commits.of(rank)).load(Ordering::Acquire) > u64::from(step.0)
    }

    /// Those of `ranks` that have not committed `step`. A look after the word was seen with FAILED_GO.
    pub fn missing_commits(&self, step: Step, ranks: &RankSet) -> RankSet {
        F::store_scan();
        ranks.iter().filter(|rank| !self.committed(*rank, step)).collect()
    }

    /// Writes `set` into `slot` and swaps `expected` to the next epoch, whatever state stands in it.
    /// One thread at a time for each slot. `None`: no epoch is left.
    pub fn propose(&self, slot: u16, expected: Epoch, set: &FailedSet) -> Option<ProposeOutcome> {
        let mut now = self.load();
        if now.epoch != expected || now.is_ended() {
            return Some(ProposeOutcome::Lost(now));
        }
        let epoch = Epoch(expected.0.checked_add(1)?);
        // A reader of epoch - 2 may still copy from this slot: with the look at the word before, its second
        // look at the word sees that its epoch is over.
        // SYNC: Release; pairs with the Acquire fence in `failed_set`.
        fence(Ordering::Release);
        self.place.slots.store(self.words, slot, epoch.0, set);
        loop {
            let next = now.failed_in(epoch, slot);
            match self.swap(now, next) {
                Ok(()) => return Some(ProposeOutcome::Won(next)),
                Err(found) if found.epoch != expected || found.is_ended() => return Some(ProposeOutcome::Lost(found)),
                Err(found) => now = found,
            }
        }
    }

    /// The set that `decision` was proposed with (after reopening: the last one). Empty in epoch 0.
    /// Error: the epoch has moved meanwhile; what stands.
    pub fn failed_set(&self, decision: &Decision) -> Result<FailedSet, Decision> {
        if decision.slot == Decision::NO_SLOT || u32::from(decision.slot) > self.place.nranks {
            return Ok(FailedSet::default());
        }
        let set = self.place.slots.load(self.words, decision.slot, decision.epoch.0);
        // SYNC: Acquire; pairs with the Release fence in `propose`.
        fence(Ordering::Acquire);
        let now = self.load();
        if now.epoch == decision.epoch { Ok(set) } else { Err(now) }
    }

    /// Opens the step that the job resumes with. True: this call did; false: it was open already.
    /// Error: the epoch has moved or no recovery stands.
    pub fn reopen(&self, epoch: Epoch) -> Result<(Step, bool), Decision> {
        let now = self.load();
        if now.epoch != epoch || now.is_ended() {
            return Err(now);
        }
        if !now.is_failed() {
            return Ok((now.step, false));
        }
        let step = now.resume_step();
        match self.swap(now, Decision { step, ..now.with(DecisionState::Open) }) {
            Ok(()) => Ok((step, true)),
            Err(found) if found.epoch == epoch && !found.is_ended() => Ok((step, false)),
            Err(found) => Err(found),
        }
    }

    /// Ends the job in any state. True: this call did.
    pub fn end(&self) -> bool {
        let mut now = self.load();
        while !now.is_ended() {
            match self.swap(now, now.with(DecisionState::Ended)) {
                Ok(()) => return true,
                Err(found) => now = found,
            }
        }
        false
    }

    /// Marks the fenced processes of `set` as dead, unless their seats have been given on.
    pub fn mark_dead(&self, set: &FailedSet) {
        for failure in set.iter().filter(|failure| failure.cause.is_fenced()) {
            self.place.seats.mark(self.words, failure.rank, failure.incarnation, SeatState::Dead);
        }
    }
}
