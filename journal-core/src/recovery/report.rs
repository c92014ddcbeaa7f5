//! The report of a recovery: this rank's share of it, and the whole, written by the leader.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::Attempt;
use crate::error::Error;
use crate::journal::{JournalReader, Record, SegmentName};
use crate::membership::{
    Contribution, Epoch, FailedRank, FailedSet, Rank, RecoveryOutcome, RecoveryReport, ShmMembership, Step,
};
use crate::membership::monotonic_ns;
use crate::request;

/// Times this rank's stages.
pub(super) struct Clock {
    share: Contribution,
    mark: Instant,
    killed_ns: Option<u64>,
    proposed_ns: u64,
}

impl Clock {
    /// Detection ends with the proposal; then a survivor agrees by having the set, and a replacement starts.
    pub(super) fn start(membership: &Arc<ShmMembership>, epoch: Epoch, failed: &FailedSet, newcomer: bool) -> Self {
        let mut share = Contribution::default();
        let proposed_ns = membership.proposed_ns(epoch);
        let killed_ns = failed.iter().filter_map(|f| membership.kill_time_ns(f.rank)).min();
        share.times.detect_ns = killed_ns.map_or(0, |killed| proposed_ns.saturating_sub(killed));
        let since = monotonic_ns().saturating_sub(proposed_ns);
        let stage = if newcomer { &mut share.times.start_ns } else { &mut share.times.agree_ns };
        *stage = since;
        Self { share, mark: Instant::now(), killed_ns, proposed_ns }
    }

    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        let lap = now - core::mem::replace(&mut self.mark, now);
        u64::try_from(lap.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn end_agree(&mut self) {
        self.share.times.agree_ns += self.lap();
    }

    pub(super) fn end_fence(&mut self) {
        self.share.times.fence_ns = self.lap();
    }

    pub(super) fn end_quiesce(&mut self) {
        self.share.times.quiesce_ns = self.lap();
    }

    pub(super) fn end_replay(&mut self, requests: u64) {
        self.share.times.replay_ns += self.lap();
        self.share.replayed_requests += requests;
    }

    pub(super) fn end_rebuild(&mut self) {
        self.share.times.rebuild_ns = self.lap();
    }

    pub(super) fn end_restore(&mut self) {
        self.share.times.restore_ns = self.lap();
    }

    pub(super) fn end_verify(&mut self) {
        self.share.times.verify_ns = self.lap();
    }

    pub(super) fn restored(&mut self, donor: Rank, bytes: u64) {
        self.share.donor = Some(donor);
        self.share.restored_bytes += bytes;
    }
}

impl Attempt<'_> {
    /// Stores this rank's share.
    pub(super) fn contribute(&self) -> Result<(), Error> {
        let mut share = self.clock.share;
        if !self.newcomer && !self.device_lost {
            // Both ends of a transfer count it; the report adds the shares up.
            share.restored_bytes = 0;
        }
        Ok(self.membership().contribute(self.epoch, &share)?)
    }

    /// Puts all shares together. By the leader.
    pub(super) fn write_report(&self, failed: Vec<FailedRank>) -> Result<(), Error> {
        let membership = self.membership();
        let all = membership.gather_contributions(self.epoch);
        for failure in self.failed.iter() {
            membership.take_kill_time_ns(failure.rank);
        }
        Ok(membership.write_report(&RecoveryReport {
            epoch: self.epoch,
            failed,
            failed_total: self.failed.len() as u32,
            strategy: self.strategy,
            times: all.times,
            started_ns: self.clock.killed_ns.unwrap_or(self.clock.proposed_ns),
            from_kill: self.clock.killed_ns.is_some(),
            total_ns: None,
            resumed_step: Step(self.resume_step()),
            replayed_requests: all.replayed_requests,
            donor: all.donor,
            restored_bytes: all.restored_bytes,
            outcome: RecoveryOutcome::Recovered,
        })?)
    }

    /// What is known of the failed processes.
    pub(super) fn failed_ranks(&self) -> Vec<FailedRank> {
        let membership = self.membership();
        self.failed
            .iter()
            .map(|failure| FailedRank {
                rank: failure.rank,
                incarnation: failure.incarnation,
                cause: failure.cause,
                exit: membership.exit_evidence(failure.rank, failure.incarnation),
                last_request: self.last_request(failure.rank, failure.incarnation.0).unwrap_or_default(),
            })
            .collect()
    }

    /// The last request in a dead process's journal: what it was doing.
    fn last_request(&self, rank: Rank, incarnation: u32) -> Option<String> {
        let name = SegmentName::journal(&self.core.options.job, rank.0, incarnation).ok()?;
        let snapshot = JournalReader::open(&name).ok()?.snapshot().ok()?;
        let last: &Record = snapshot.step.iter().chain(&snapshot.setup).max_by_key(|record| record.sequence)?;
        let text = request::decode(last.kind, &last.payload).ok()?.as_request().to_string();
        Some(if last.result.is_none() { format!("in {text}") } else { text })
    }
}
