//! What all threads of a process share: the segment, the protocols over it, and proposing.

use std::sync::{Mutex, PoisonError};

use super::barrier::Barriers;
use super::blob::Blobs;
use super::clique::Cliques;
use super::decision::{Decisions, ProposeOutcome};
use super::layout::{AT_END, AT_PROPOSED};
use super::memory::{Memory, monotonic_ns};
use super::report::Reports;
use super::{Decision, FailedSet, Failure, JobOptions, MembershipError, Rank, Seat, SeatState};
use crate::sync::{Ordering, Words};

/// What all threads of a process share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: Memory,
    pub(super) options: JobOptions,
    /// One proposal slot a process: one thread proposes at a time.
    pub(super) proposing: Mutex<()>,
    /// One set of blob areas a rank: one thread publishes at a time.
    pub(super) publishing: Mutex<()>,
}

impl Shared {
    pub(super) fn new(memory: Memory, options: JobOptions) -> Self {
        Self { memory, options, proposing: Mutex::new(()), publishing: Mutex::new(()) }
    }

    pub(super) fn decisions(&self) -> Decisions<'_, Memory> {
        Decisions::new(&self.memory, self.memory.layout.decision())
    }

    pub(super) fn barriers(&self) -> Barriers<'_, Memory> {
        Barriers::new(&self.memory, self.memory.layout.barrier())
    }

    pub(super) fn blobs(&self) -> Blobs<'_, Memory> {
        Blobs::new(&self.memory, self.memory.layout.blobs(), self.memory.layout.nranks)
    }

    pub(super) fn cliques(&self) -> Cliques<'_, Memory> {
        Cliques::new(&self.memory, self.memory.layout.cliques(), self.memory.layout.nranks)
    }

    pub(super) fn reports(&self) -> Reports<'_, Memory> {
        let (ring, shares) = self.memory.layout.reports();
        Reports::new(&self.memory, ring, shares, self.memory.layout.nranks)
    }

    pub(super) fn seat(&self, rank: Rank) -> Seat {
        self.memory.layout.seats().load(&self.memory, rank)
    }

    pub(super) fn failed_set(&self, decision: &Decision) -> Result<FailedSet, MembershipError> {
        let moved = |found| MembershipError::Moved { expected: decision.epoch, found };
        self.decisions().failed_set(decision).map_err(moved)
    }

    /// The failed set under recovery: empty when none is.
    pub(super) fn known_failures(&self, decision: &Decision) -> Result<FailedSet, MembershipError> {
        if decision.is_failed() { self.failed_set(decision) } else { Ok(FailedSet::default()) }
    }

    /// Swaps to the next epoch with what is known and `more`.
    pub(super) fn propose(&self, slot: u16, now: Decision, more: &[Failure]) -> Result<ProposeOutcome, MembershipError> {
        let mut set = match self.known_failures(&now) {
            Ok(set) => set,
            Err(MembershipError::Moved { found, .. }) => return Ok(ProposeOutcome::Lost(found)),
            Err(error) => return Err(error),
        };
        for failure in more {
            set.add(*failure);
        }
        let parity = u64::from(now.epoch.0 & 1 ^ 1);
        self.memory.word(AT_PROPOSED + parity * 8).store(monotonic_ns(), Ordering::Relaxed);
        let outcome =
            self.decisions().propose(slot, now.epoch, &set).ok_or(MembershipError::EpochsExhausted)?;
        if let ProposeOutcome::Won(_) = outcome {
            self.decisions().mark_dead(&set);
            self.memory.signal();
            self.memory.signal_epoch();
        }
        Ok(outcome)
    }

    pub(super) fn report_failures(&self, slot: u16, failures: &[Failure]) -> Result<Decision, MembershipError> {
        let _one = self.proposing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.decisions().load();
            if now.is_ended() {
                return Ok(now);
            }
            let known = match self.known_failures(&now) {
                Ok(known) => known,
                Err(MembershipError::Moved { .. }) => continue,
                Err(error) => return Err(error),
            };
            let news: Vec<Failure> = failures.iter().filter(|f| self.is_news(f, &known)).copied().collect();
            if news.is_empty() {
                // Whoever proposed it may have died before it marked the seats.
                self.decisions().mark_dead(&known);
                return Ok(now);
            }
            if let ProposeOutcome::Won(next) = self.propose(slot, now, &news)? {
                return Ok(next);
            }
        }
    }

    /// Neither known, nor of a process that was replaced already (a seat is given on only after its holder's failure
    /// was proposed), nor of one that left.
    pub(super) fn is_news(&self, failure: &Failure, known: &FailedSet) -> bool {
        if failure.rank.0 >= self.memory.layout.nranks || known.covers(failure) {
            return false;
        }
        let seat = self.seat(failure.rank);
        seat.incarnation == failure.incarnation && !matches!(seat.state, SeatState::Empty | SeatState::Left)
    }

    pub(super) fn ended(&self) -> MembershipError {
        MembershipError::Ended { code: self.memory.word(AT_END).load(Ordering::Acquire) as u32 }
    }
}
