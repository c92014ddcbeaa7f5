//! [`Membership`] of [`ShmMembership`]: every change is followed by a signal, every wait looks at its condition, the
//! epoch and this process's own seat.

use std::sync::PoisonError;
use std::time::Instant;

use super::barrier::{BarrierOutcome, STAGES, Stage};
use super::decision::{ProposeOutcome, Verdict, VoteOutcome};
use super::layout::AT_END;
use super::memory::monotonic_ns;
use super::shm::Role;
use super::{
    BlobScope, CommitOutcome, Decision, Epoch, FailedSet, Failure, Incarnation, Membership, MembershipError, Rank, RankSet,
    ShmMembership, Step,
};
use crate::sync::{Ordering, Words};

impl Membership for ShmMembership {
    fn nranks(&self) -> u32 {
        self.shared.options.nranks
    }

    fn member(&self) -> Option<(Rank, Incarnation)> {
        match self.role {
            Role::Member { rank, incarnation, .. } => Some((rank, incarnation)),
            _ => None,
        }
    }

    fn event(&self) -> u32 {
        self.shared.memory.event()
    }

    fn wait(&self, seen: u32, deadline: Instant) -> bool {
        self.shared.memory.wait(seen, deadline)
    }

    fn decision(&self) -> Decision {
        self.shared.decisions().load()
    }

    fn vote(&self, epoch: Epoch, step: Step) -> Result<VoteOutcome, MembershipError> {
        let (rank, incarnation) = self.check_member("voting")?;
        let outcome = self.shared.decisions().vote(rank, incarnation, epoch, step);
        match outcome {
            VoteOutcome::Went => self.shared.memory.signal(),
            VoteOutcome::Superseded => return Err(MembershipError::Evicted { rank, incarnation }),
            VoteOutcome::Moved(found) if found.is_ended() => return Err(self.shared.ended()),
            VoteOutcome::Moved(found) if found.epoch == epoch => {
                return Err(MembershipError::WrongState { what: format!("a vote for step {step}"), found });
            }
            VoteOutcome::Moved(_) | VoteOutcome::Counted => {}
        }
        Ok(outcome)
    }

    fn await_verdict(&self, epoch: Epoch, step: Step, deadline: Instant) -> Result<Verdict, MembershipError> {
        let started = Instant::now();
        let verdict = self.until(deadline, || {
            self.check_member("waiting for a decision")?;
            Ok(self.shared.decisions().verdict(epoch, step))
        })?;
        match verdict {
            Some(Verdict::Moved(found)) if found.is_ended() => Err(self.shared.ended()),
            Some(verdict) => Ok(verdict),
            None => Err(MembershipError::Timeout {
                what: format!("all votes for step {step}"),
                missing: self.missing_votes(epoch, step).iter().collect(),
                waited: started.elapsed(),
            }),
        }
    }

    fn commit(&self, step: Step) -> Result<CommitOutcome, MembershipError> {
        let (rank, _) = self.check_member("committing")?;
        let outcome = self.shared.decisions().commit(rank, step).map_err(|found| MembershipError::WrongState {
            what: format!("a commit of step {step}, for which no GO stands"),
            found,
        })?;
        if outcome == CommitOutcome::Opened {
            self.shared.reports().complete(self.decision().epoch, monotonic_ns());
        }
        self.shared.memory.signal();
        Ok(outcome)
    }

    fn await_commits(&self, epoch: Epoch, step: Step, ranks: &RankSet, deadline: Instant) -> Result<(), MembershipError> {
        let started = Instant::now();
        let done = self.until(deadline, || {
            self.check_epoch(epoch)?;
            Ok(self.shared.decisions().missing_commits(step, ranks).is_empty().then_some(()))
        })?;
        done.ok_or_else(|| MembershipError::Timeout {
            what: format!("the commit of step {step}"),
            missing: self.shared.decisions().missing_commits(step, ranks).iter().collect(),
            waited: started.elapsed(),
        })
    }

    fn report_failures(&self, failures: &[Failure]) -> Result<Decision, MembershipError> {
        let slot = self.slot("reporting a failure")?;
        if self.member().is_some() {
            self.check_member("reporting a failure")?;
        }
        self.shared.report_failures(slot, failures)
    }

    fn propose(&self, expected: Epoch, more: &[Failure]) -> Result<ProposeOutcome, MembershipError> {
        let slot = self.slot("proposing an epoch")?;
        if self.member().is_some() {
            self.check_member("proposing an epoch")?;
        }
        for failure in more {
            self.check_rank(failure.rank)?;
        }
        let _one = self.shared.proposing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.decision();
        if now.epoch != expected || now.is_ended() {
            return Ok(ProposeOutcome::Lost(now));
        }
        self.shared.propose(slot, now, more)
    }

    fn failed_set(&self, decision: &Decision) -> Result<FailedSet, MembershipError> {
        self.shared.failed_set(decision)
    }

    fn reopen(&self, epoch: Epoch) -> Result<Step, MembershipError> {
        self.check_member("reopening the job")?;
        match self.shared.decisions().reopen(epoch) {
            Ok((step, by_us)) => {
                if by_us {
                    self.shared.memory.signal();
                }
                Ok(step)
            }
            Err(found) if found.is_ended() => Err(self.shared.ended()),
            Err(found) => Err(MembershipError::Moved { expected: epoch, found }),
        }
    }

    fn end(&self, code: u32) {
        if self.writable("ending the job").is_err() {
            return;
        }
        let word = 1 << 32 | u64::from(code);
        // The first code stays.
        let _ = self.shared.memory.word(AT_END).compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
        self.shared.decisions().end();
        self.shared.memory.signal();
    }

    fn barrier(
        &self,
        epoch: Epoch,
        stage: Stage,
        ok: bool,
        participants: &RankSet,
        deadline: Instant,
    ) -> Result<(), MembershipError> {
        let started = Instant::now();
        let (rank, _) = self.check_member("a barrier")?;
        if stage.0 >= STAGES || !participants.contains(rank) || participants.iter().any(|r| r.0 >= self.nranks()) {
            let what = format!("stage {stage} (below {STAGES}) of {participants:?}, entered by rank {rank}");
            return Err(MembershipError::InvalidArgument { what });
        }
        self.check_epoch(epoch)?;
        let barriers = self.shared.barriers();
        if barriers.arrive(rank, epoch, stage, ok, participants) {
            self.shared.memory.signal();
        }
        let outcome = self.until(deadline, || match barriers.outcome(epoch, stage) {
            // A decided stage counts, even when the epoch has moved since.
            Some(outcome) => Ok(Some(outcome)),
            None => self.check_member("a barrier").and_then(|_| self.check_epoch(epoch)).map(|_| None),
        })?;
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => {
                let missing = barriers.missing(epoch, stage, participants);
                // All arrived and the last one died before it decided: nobody in particular is to blame.
                let blamed = missing.first().unwrap_or(rank);
                let (stands, by_us) = barriers.give_up(epoch, stage, blamed);
                if by_us {
                    self.shared.memory.signal();
                    return Err(MembershipError::Timeout {
                        what: format!("stage {stage} of epoch {epoch}"),
                        missing: missing.iter().collect(),
                        waited: started.elapsed(),
                    });
                }
                match stands {
                    Some(outcome) => outcome,
                    None => return Err(MembershipError::Moved { expected: epoch, found: self.decision() }),
                }
            }
        };
        match outcome {
            BarrierOutcome::Ok => Ok(()),
            BarrierOutcome::Failed(rank) => Err(MembershipError::StageFailed { epoch, stage, rank, arrived: true }),
            BarrierOutcome::Late(rank) => Err(MembershipError::StageFailed { epoch, stage, rank, arrived: false }),
        }
    }

    fn publish(&self, scope: BlobScope, key: &str, bytes: &[u8]) -> Result<(), MembershipError> {
        let (rank, _) = self.check_member("publishing")?;
        if let BlobScope::Epoch(epoch) = scope {
            self.check_epoch(epoch)?;
        }
        let published = {
            let _one = self.shared.publishing.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.blobs().publish(rank, scope, key, bytes)?
        };
        match scope {
            BlobScope::Epoch(expected) if !published => {
                Err(MembershipError::Moved { expected, found: self.decision() })
            }
            _ => {
                self.shared.memory.signal();
                Ok(())
            }
        }
    }

    fn find_blob(&self, scope: BlobScope, key: &str) -> Result<Option<Vec<u8>>, MembershipError> {
        Ok(self.shared.blobs().find(scope, key).map(|(_, bytes)| bytes))
    }

    fn await_blob(&self, scope: BlobScope, key: &str, deadline: Instant) -> Result<Vec<u8>, MembershipError> {
        let started = Instant::now();
        let found = self.until(deadline, || {
            if let Some(bytes) = self.find_blob(scope, key)? {
                return Ok(Some(bytes));
            }
            self.check_member("waiting for a blob")?;
            if let BlobScope::Epoch(epoch) = scope {
                self.check_epoch(epoch)?;
            }
            Ok(None)
        })?;
        found.ok_or_else(|| MembershipError::Timeout {
            what: format!("somebody to publish {key:?}"),
            missing: Vec::new(),
            waited: started.elapsed(),
        })
    }
}
