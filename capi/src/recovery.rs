//! What each recovery of the job did.

use core::ffi::c_char;

use journal_core::membership::{FailedRank, RecoveryOutcome, RecoveryReport};

use crate::argument::{Out, Versioned, VersionedOut};
use crate::boundary::{Failure, boundary};
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;

/// How a recovery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_recovery_outcome {
    /// The job goes on.
    Recovered = 1,
    /// A further failure; the next report continues.
    Superseded = 2,
    /// The job ended.
    GaveUp = 3,
}

/// How a rank failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_cause {
    /// Its device is lost, its process lives on.
    DeviceLost = 1,
    /// Its process died.
    Died = 2,
    /// Its process did not go on.
    Hung = 3,
    /// It was declared failed for another reason.
    Evicted = 4,
}

/// How communicators were rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_strategy {
    /// Not decided.
    Auto = 1,
    /// A fresh unique id with the original ranks.
    Reinit = 2,
    /// Shrink, then grow by the replacement.
    Grow = 3,
    /// The three new-rank calls.
    NewRank = 4,
}

/// One recovery. Initialise it with REJOIN_RECOVERY_REPORT_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_recovery_report {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Its epoch.
    pub epoch: u32,
    /// How many ranks failed.
    pub failed_total: u32,
    /// The first of them.
    pub failed_rank: u32,
    /// Which process of that rank.
    pub failed_incarnation: u32,
    /// A rejoin_cause.
    pub cause: u32,
    /// A rejoin_strategy.
    pub strategy: u32,
    /// A rejoin_recovery_outcome.
    pub outcome: u32,
    /// Step that the job went on with.
    pub resumed_step: u32,
    /// Rank that gave state; -1: none.
    pub donor: i32,
    /// 1: the total starts at the kill, 0: at its detection.
    pub from_kill: u32,
    /// Requests replayed, by all ranks.
    pub replayed_requests: u64,
    /// Bytes of state restored.
    pub restored_bytes: u64,
    /// From the failure to the next committed step; 0 until then.
    pub total_ns: u64,
    /// The longest of any rank, as the following ones.
    pub detect_ns: u64,
    /// Agreeing on who failed.
    pub agree_ns: u64,
    /// Proving that they are gone.
    pub fence_ns: u64,
    /// Aborting what hung.
    pub quiesce_ns: u64,
    /// Making the communicators again.
    pub rebuild_ns: u64,
    /// Executing recorded requests again.
    pub replay_ns: u64,
    /// Copying state.
    pub restore_ns: u64,
    /// Comparing replicas and the fingerprint.
    pub verify_ns: u64,
    /// From the notice of a death until the replacement took part; beside the stages above, not one of them.
    pub start_ns: u64,
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_recovery_report {
    const NAME: &'static str = "rejoin_recovery_report";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            epoch: 0,
            failed_total: 0,
            failed_rank: 0,
            failed_incarnation: 0,
            cause: 0,
            strategy: 0,
            outcome: 0,
            resumed_step: 0,
            donor: -1,
            from_kill: 0,
            replayed_requests: 0,
            restored_bytes: 0,
            total_ns: 0,
            detect_ns: 0,
            agree_ns: 0,
            fence_ns: 0,
            quiesce_ns: 0,
            rebuild_ns: 0,
            replay_ns: 0,
            restore_ns: 0,
            verify_ns: 0,
            start_ns: 0,
        }
    }
}

impl From<&RecoveryReport> for rejoin_recovery_report {
    fn from(report: &RecoveryReport) -> Self {
        let first = report.failed.first();
        let times = report.times;
        Self {
            epoch: u32::from(report.epoch.0),
            failed_total: report.failed_total,
            failed_rank: first.map_or(0, |failed| failed.rank.0),
            failed_incarnation: first.map_or(0, |failed| failed.incarnation.0),
            cause: first.map_or(0, |failed| failed.cause as u32),
            strategy: report.strategy as u32,
            outcome: match report.outcome {
                RecoveryOutcome::Recovered => rejoin_recovery_outcome::Recovered,
                RecoveryOutcome::Superseded => rejoin_recovery_outcome::Superseded,
                RecoveryOutcome::GaveUp => rejoin_recovery_outcome::GaveUp,
            } as u32,
            resumed_step: report.resumed_step.0,
            donor: report.donor.and_then(|rank| i32::try_from(rank.0).ok()).unwrap_or(-1),
            from_kill: u32::from(report.from_kill),
            replayed_requests: report.replayed_requests,
            restored_bytes: report.restored_bytes,
            total_ns: report.total_ns.unwrap_or(0),
            detect_ns: times.detect_ns,
            agree_ns: times.agree_ns,
            fence_ns: times.fence_ns,
            quiesce_ns: times.quiesce_ns,
            rebuild_ns: times.rebuild_ns,
            replay_ns: times.replay_ns,
            restore_ns: times.restore_ns,
            verify_ns: times.verify_ns,
            start_ns: times.start_ns,
            ..Self::defaults()
        }
    }
}

/**
 * How many recoveries are on record: the last 64 at most.
 *
 * @param session    open
 * @param out_count  set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_recovery_count(session: *const rejoin_session, out_count: *mut u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_count, "out_count") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        out.set(object.session.reports().len() as u32);
        Ok(())
    })
}

/**
 * What a recovery did and where its time went.
 *
 * @param session     open
 * @param index       from 0, the oldest
 * @param out_report  initialised with REJOIN_RECOVERY_REPORT_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_recovery_get(
    session: *const rejoin_session,
    index: u32,
    out_report: *mut rejoin_recovery_report,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_report, "out_report") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let reports = object.session.reports();
        let report = reports.get(index as usize).ok_or_else(|| {
            Failure::new(rejoin_status::NotFound, format!("recovery {index} of {}", reports.len()))
        })?;
        out.set(&report.into());
        Ok(())
    })
}

/// A process that failed in a recovery. Initialise it with REJOIN_FAILED_RANK_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_failed_rank {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Its rank.
    pub rank: u32,
    /// The n-th process that held the rank.
    pub incarnation: u32,
    /// A rejoin_cause.
    pub cause: u32,
    /// 1: the launcher has seen it end, and one of the following says how.
    pub has_exit: u32,
    /// The signal that killed it; 0: none did.
    pub signal: i32,
    /// What it exited with; -1: it did not exit by itself.
    pub exit_code: i32,
    /// The last request of its journal in words, cut; with a terminating zero.
    pub last_request: [c_char; 72],
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_failed_rank {
    const NAME: &'static str = "rejoin_failed_rank";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            rank: 0,
            incarnation: 0,
            cause: 0,
            has_exit: 0,
            signal: 0,
            exit_code: -1,
            last_request: [0; 72],
        }
    }
}

impl From<&FailedRank> for rejoin_failed_rank {
    fn from(failed: &FailedRank) -> Self {
        let mut result = Self {
            rank: failed.rank.0,
            incarnation: failed.incarnation.0,
            cause: failed.cause as u32,
            has_exit: u32::from(failed.exit.is_some()),
            signal: failed.exit.and_then(|exit| exit.signal()).unwrap_or(0),
            exit_code: failed.exit.and_then(|exit| exit.code()).unwrap_or(-1),
            ..Self::defaults()
        };
        // The last byte stays the end.
        let room = result.last_request.len() - 1;
        for (to, from) in result.last_request.iter_mut().zip(failed.last_request.bytes().take(room)) {
            *to = from as c_char;
        }
        result
    }
}

/**
 * A process that failed in a recovery. rejoin_recovery_report has the first of them, and how many failed.
 *
 * @param session     open
 * @param index       of the recovery, as in rejoin_recovery_get()
 * @param nth         from 0; the first 16 are described
 * @param out_failed  initialised with REJOIN_FAILED_RANK_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (no such recovery, or no more of them);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_recovery_get_failed(
    session: *const rejoin_session,
    index: u32,
    nth: u32,
    out_failed: *mut rejoin_failed_rank,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_failed, "out_failed") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let reports = object.session.reports();
        let failed = reports.get(index as usize).and_then(|report| report.failed.get(nth as usize));
        let missing = || Failure::new(rejoin_status::NotFound, format!("failed process {nth} of recovery {index} of {}", reports.len()));
        out.set(&failed.ok_or_else(missing)?.into());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal_core::membership::{Cause, JobStrategy};

    #[test]
    fn numbers_are_the_cores() {
        use {rejoin_cause as C, rejoin_strategy as S};
        let causes = [
            (C::DeviceLost, Cause::DeviceLost),
            (C::Died, Cause::Died),
            (C::Hung, Cause::Hung),
            (C::Evicted, Cause::Evicted),
        ];
        assert!(causes.into_iter().all(|(c, core)| c as u32 == core as u32));
        let strategies = [
            (S::Auto, JobStrategy::Auto),
            (S::Reinit, JobStrategy::Reinit),
            (S::Grow, JobStrategy::Grow),
            (S::NewRank, JobStrategy::NewRank),
        ];
        assert!(strategies.into_iter().all(|(c, core)| c as u32 == core as u32));
    }
}
