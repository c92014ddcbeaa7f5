//! The report of a recovery: this rank's share of it, and the whole, written by the leader.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::Attempt;
use crate::error::Error;
use crate::journal::{JournalReader, Record, SegmentName};
use crate::membership::{Contribution, Epoch, FailedRank, Membership, Rank, ShmMembership};
use crate::request;

/// Times this rank's stages.
pub(super) struct Clock {
    share: Contribution,
    mark: Instant,
}

impl Clock {
    /// Detection ends with the proposal, agreement with this rank having the set.
    pub(super) fn start(membership: &Arc<ShmMembership>, epoch: Epoch) -> Self {
        let mut share = Contribution::default();
        share.times.detect_ns = membership.detect_ns(epoch);
        share.times.agree_ns = membership.since_proposal_ns(epoch);
        Self { share, mark: Instant::now() }
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
        if !self.newcomer {
            // Both ends of a transfer count it; the report adds the shares up.
            share.restored_bytes = 0;
        }
        Ok(self.membership().contribute(self.epoch, &share)?)
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
        let last: &Record = snapshot.step.iter().chain(&snapshot.setup).max_by_key(|record| record.seq)?;
        let text = request::decode(last.kind, &last.payload).ok()?.as_request().to_string();
        Some(if last.result.is_none() { format!("in {text}") } else { text })
    }
}
