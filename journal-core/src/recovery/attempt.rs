//! One attempt to recover, in one epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::report::Clock;
use super::stage;
use crate::agent::poll;
use crate::error::Error;
use crate::membership::{BlobScope, Decision, Epoch, FailedSet, JobStrategy, Membership, Rank, RankSet, ShmMembership, Stage};
use crate::session::core::Core;

/// What all stages of one attempt know.
pub(super) struct Attempt<'a> {
    pub core: &'a Arc<Core>,
    pub epoch: Epoch,
    /// As the epoch began: FAILED_OPEN or FAILED_GO, and the step.
    pub decision: Decision,
    pub failed: FailedSet,
    pub all: RankSet,
    /// Ranks whose process lives on.
    pub survivors: RankSet,
    /// Survivors whose device lives on too: only they can give state.
    pub healthy: RankSet,
    /// This process lives, its device is to be replayed.
    pub device_lost: bool,
    pub me: Rank,
    /// This process replaces a failed one in this recovery.
    pub newcomer: bool,
    /// Writes the report: the lowest survivor, or rank 0 where none is left.
    pub leader: bool,
    pub clock: Clock,
    pub stage_timeout: Duration,
    /// How communicators are rebuilt; becomes *reinit* by a fallback.
    pub strategy: JobStrategy,
}

impl<'a> Attempt<'a> {
    pub fn begin(core: &'a Arc<Core>, decision: Decision) -> Result<Self, Error> {
        let membership = core.membership();
        let failed = membership.failed_set(&decision)?;
        let nranks = membership.nranks();
        let me = core.agent.rank;
        let mut newcomer = false;
        if let Some(failure) = failed.of(me).filter(|f| f.cause.is_fenced()) {
            if failure.incarnation >= core.agent.incarnation {
                return Err(Error::Evicted { rank: me.0, incarnation: core.agent.incarnation.0 });
            }
            newcomer = true;
        }
        let mut survivors = RankSet::all(nranks);
        failed.iter().filter(|f| f.cause.is_fenced()).for_each(|f| survivors.remove(f.rank));
        let mut healthy = survivors.clone();
        failed.iter().for_each(|f| healthy.remove(f.rank));
        let device_lost = failed.of(me).is_some_and(|f| !f.cause.is_fenced());
        let leader = survivors.first().unwrap_or(Rank(0)) == me;
        Ok(Self {
            core,
            epoch: decision.epoch,
            decision,
            all: RankSet::all(nranks),
            survivors,
            healthy,
            device_lost,
            me,
            newcomer,
            leader,
            clock: Clock::start(membership, decision.epoch, &failed, newcomer),
            stage_timeout: membership.options().stage_timeout,
            strategy: usable_strategy(core),
            failed,
        })
    }

    /// The step that the job goes on with.
    pub fn resume_step(&self) -> u32 {
        self.decision.resume_step().0
    }

    /// All stages in order.
    pub fn run(&mut self) -> Result<(), Error> {
        self.agree()?;
        self.clock.end_agree();
        self.fence()?;
        self.clock.end_fence();
        self.quiesce()?;
        self.clock.end_quiesce();
        if self.device_lost {
            let requests = self.replay_setup()?;
            self.clock.end_replay(requests);
        }
        self.rebuild()?;
        self.clock.end_rebuild();
        self.restore()?;
        self.clock.end_restore();
        self.verify()?;
        self.clock.end_verify();
        self.resume()
    }

    fn resume(&mut self) -> Result<(), Error> {
        self.contribute()?;
        // Before the barrier: behind it a replacement removes its predecessor's journal.
        let failed = if self.leader { Some(self.failed_ranks()) } else { None };
        self.barrier(stage::RESUME, true, &self.all)?;
        if let Some(failed) = failed {
            // Before this rank votes, so that the first commit finds the report to add the total to.
            self.write_report(failed)?;
        }
        self.membership().acknowledge(self.epoch)?;
        let step = self.membership().reopen(self.epoch)?;
        let agent = &self.core.agent;
        agent.enter_epoch(self.epoch);
        let replayed = self.replay_step(step.0)?;
        if replayed {
            agent.clear_device_lost();
        }
        agent.gate.open();
        self.core.update(|p| {
            p.recovered = Some((self.epoch, step.0));
            p.replayed = replayed;
            if self.device_lost {
                p.committed = p.committed.max(step.0);
            }
        });
        tracing::info!(epoch = self.epoch.0, step = step.0, "recovered");
        Ok(())
    }

    pub fn membership(&self) -> &'a Arc<ShmMembership> {
        self.core.membership()
    }

    /// When a stage that begins now must be over.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.stage_timeout
    }

    /// An error as soon as the epoch has moved or the job has ended.
    pub fn check(&self) -> Result<(), Error> {
        self.moved().map_or(Ok(()), Err)
    }

    pub fn moved(&self) -> Option<Error> {
        let now = self.membership().decision();
        if now.is_ended() {
            return Some(self.core.agent.doomed());
        }
        (now.epoch != self.epoch).then_some(Error::Redo)
    }

    pub fn barrier(&self, stage: Stage, ok: bool, participants: &RankSet) -> Result<(), Error> {
        Ok(self.membership().barrier(self.epoch, stage, ok, participants, self.deadline())?)
    }

    /// Polls until `done`; ends when the epoch moves.
    pub fn until(&self, what: &str, deadline: Instant, done: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
        let moved = || self.moved().is_some();
        poll::until(&*self.core.agent.device, &|| what.to_owned(), deadline, &moved, done).map_err(|e| match e {
            Error::Redo => self.moved().unwrap_or(Error::Redo),
            other => other,
        })
    }
}

/// Key of the blob that an attempt leaves which failed for another reason than a death.
pub(super) const REINIT_ONLY: &str = "reinit-only";

/// The strategy asked for, as far as the loaded NCCL can do it. All ranks load the same one.
fn usable_strategy(core: &Core) -> JobStrategy {
    let nccl = &core.agent.nccl;
    // Published before the epoch that reads it was proposed, so all ranks see it or none.
    if !matches!(core.membership().find_blob(BlobScope::Permanent, REINIT_ONLY), Ok(None)) {
        return JobStrategy::Reinit;
    }
    match core.membership().options().strategy {
        JobStrategy::Grow if nccl.can_grow() && nccl.can_revoke() => JobStrategy::Grow,
        JobStrategy::NewRank if nccl.can_new_rank() && nccl.can_revoke() => JobStrategy::NewRank,
        _ => JobStrategy::Reinit,
    }
}
