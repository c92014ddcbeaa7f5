//! The members segment as the launcher uses it: created over provable leftovers only, and always taken away again.

use super::evidence::Exit;
use super::supervisor::Standing;
use crate::cli::RecoveryPolicy;
use crate::report::RecoveryLine;
use crate::run::leftovers;
use anyhow::Context;
use journal_core::error::EndReason;
use journal_core::membership::{
    BlobScope, Cause, Failure, Incarnation, JobOptions, MembershipError, Membership, Rank, RecoveryOutcome, RecoveryReport, ShmMembership,
};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{SystemTime, UNIX_EPOCH};

/// The segment of a running job. Dropped when no rank runs any more: everything of the job is removed.
pub struct JobSegment {
    membership: ShmMembership,
    incarnations: Vec<Incarnation>,
    last_epoch: Option<u16>,
}

/// What the next process of a rank needs to take its seat.
pub struct Admission {
    /// The n-th process of the rank.
    pub incarnation: u32,
    /// Proves that the launcher has started it.
    pub token: u64,
}

/// A name that no other job has.
pub fn free_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("job-{}-{:06x}", std::process::id(), now.as_micros() & 0xff_ffff)
}

/// What the segment is created with.
pub fn options(job: &str, nranks: u32, backend: &str, policy: &RecoveryPolicy) -> anyhow::Result<JobOptions> {
    policy.check()?;
    let mut uuid = [0; 16];
    let filled = rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty()).context("no random bytes")?;
    anyhow::ensure!(filled == uuid.len(), "only {filled} random bytes");
    Ok(JobOptions {
        job: job.to_owned(),
        nranks,
        uuid,
        strategy: policy.strategy.into(),
        policy: policy.policy.into(),
        renumber: policy.renumber,
        max_recoveries: policy.max_recoveries,
        stage_timeout: policy.stage_timeout,
        hang_timeout: policy.hang_timeout,
        backend: backend.to_owned(),
    })
}

impl JobSegment {
    /// What the rank that ended the job had to say about it.
    pub fn end_text(&self) -> Option<String> {
        let found = self.membership.find_blob(BlobScope::Permanent, journal_core::recovery::END_TEXT).ok()??;
        Some(String::from_utf8_lossy(&found).into_owned())
    }

    /// What ranks should have done otherwise in their set-up, once it is complete.
    pub fn warnings(&self) -> anyhow::Result<Vec<String>> {
        let single = journal_core::recovery::states_with_one_holder(&self.membership)?;
        let mut warnings: Vec<String> = single
            .into_iter()
            .map(|(rank, name)| format!("replicated state {name:?} has one holder, rank {rank}: if it dies, the job ends"))
            .collect();
        for rank in (0..self.membership.nranks()).map(Rank) {
            let key = journal_core::recovery::unregistered_key(rank);
            let found = self.membership.find_blob(BlobScope::Permanent, &key)?;
            warnings.extend(found.map(|text| String::from_utf8_lossy(&text).into_owned()));
        }
        Ok(warnings)
    }

    /// Creates it, after removing what a provably dead job of the same name has left.
    pub fn create(options: &JobOptions) -> anyhow::Result<Self> {
        leftovers::clear(&options.job)?;
        let membership = ShmMembership::create(options).map_err(|error| match error {
            MembershipError::Segment(error) => anyhow::Error::from(error),
            error => error.into(),
        })?;
        Ok(Self { membership, incarnations: vec![Incarnation(0); options.nranks as usize], last_epoch: None })
    }

    /// Gives a rank's seat to its next process, whose predecessor has ended.
    pub fn admit(&mut self, rank: u32) -> anyhow::Result<Admission> {
        let (incarnation, token) = self.membership.allocate(Rank(rank))?;
        self.incarnations[rank as usize] = incarnation;
        Ok(Admission { incarnation: incarnation.0, token })
    }

    /// Notes how the process of a rank ended, and returns how far it was.
    pub fn record_exit(&self, rank: u32, status: ExitStatus) -> anyhow::Result<Standing> {
        let incarnation = self.incarnations[rank as usize];
        let joined = self.membership.identity(Rank(rank), incarnation).is_some();
        let failed = self.membership.process_exited(Rank(rank), incarnation, status.into_raw())?;
        Ok(Standing {
            left: !failed,
            joined,
            setup_complete: self.membership.setup_complete(),
            ended: self.membership.end_code().map(EndReason::from_code),
            step: self.step_of(Rank(rank)),
        })
    }

    /// The step that a rank is in: the job's, or the next one if it has committed that already.
    fn step_of(&self, rank: Rank) -> u32 {
        let step = self.membership.decision().step;
        step.0 + u32::from(self.membership.committed(rank, step))
    }

    /// The segment itself.
    pub fn membership(&self) -> &ShmMembership {
        &self.membership
    }

    /// Declares that a rank hangs; its process is killed by the caller.
    pub fn declare_hung(&self, rank: u32) -> anyhow::Result<()> {
        let failure = Failure { rank: Rank(rank), incarnation: self.incarnations[rank as usize], cause: Cause::Hung };
        self.membership.report_failures(&[failure])?;
        Ok(())
    }

    /// Ends the job. If the ranks have ended it already, their reason stays and is returned.
    pub fn end(&self, reason: EndReason) -> EndReason {
        self.membership.end(reason as u32);
        self.membership.end_code().map_or(reason, EndReason::from_code)
    }

    /// The step that is open; none before set-up is complete.
    pub fn open_step(&self) -> Option<u32> {
        self.membership.setup_complete().then(|| self.membership.decision().step.0)
    }

    /// Recoveries that were not returned before. Those whose next step is not committed yet are left for later,
    /// unless the job is at its end.
    pub fn new_recoveries(&mut self, at_end: bool) -> Vec<RecoveryLine> {
        let reports = self.membership.reports();
        let is_new = |report: &&RecoveryReport| self.last_epoch.is_none_or(|last| report.epoch.0 > last);
        let is_whole = |report: &&RecoveryReport| at_end || report.total_ns.is_some();
        let new = reports.iter().filter(|report| report.outcome == RecoveryOutcome::Recovered).filter(is_new);
        let new: Vec<&RecoveryReport> = new.take_while(is_whole).collect();
        let lines = new.iter().map(|report| RecoveryLine::from_report(report, &self.membership)).collect();
        self.last_epoch = new.last().map(|report| report.epoch.0).or(self.last_epoch);
        lines
    }
}

impl Drop for JobSegment {
    fn drop(&mut self) {
        let job = self.membership.options().job.clone();
        let left = self.membership.leave().map_err(anyhow::Error::from).and_then(|()| leftovers::remove_all(&job));
        if let Err(error) = left {
            eprintln!("rejoin: job {job} could not be cleaned up: {error:#}");
        }
    }
}

/// As in the report of a recovery.
pub fn exit_of(evidence: journal_core::membership::ExitEvidence) -> Exit {
    ExitStatus::from_raw(evidence.wait_status).into()
}
