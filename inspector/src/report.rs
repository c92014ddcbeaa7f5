//! A recovery as `demo --json`, `recovery` and the progress lines show it.

use crate::run::segment::exit_of;
use journal_core::membership::{Cause, FailedRank, Membership, RecoveryReport, ShmMembership};
use serde::Serialize;

/// One recovery. The keys are stable; times are milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecoveryLine {
    /// Epoch that the job reached by it.
    pub epoch: u32,
    /// Ranks that were replaced.
    pub failed: Vec<u32>,
    /// What happened to them, with evidence.
    pub cause: String,
    /// How communicators were rebuilt.
    pub strategy: String,
    /// From the kill (or the first sign of it) until a rank noticed.
    pub detect_ms: f64,
    /// Until all survivors used the same set of failed ranks.
    pub agree_ms: f64,
    /// Until the failed processes were proven gone.
    pub fence_ms: f64,
    /// Until no call was in flight and every communicator was released.
    pub quiesce_ms: f64,
    /// From the death notice until the replacement took part: its process start, libraries and device context. Beside
    /// the stages before and the first part of *rebuild*, where the others wait for it.
    pub start_ms: f64,
    /// Until the communicators were rebuilt.
    pub rebuild_ms: f64,
    /// Until recorded requests were executed again.
    pub replay_ms: f64,
    /// Until state was copied from healthy ranks.
    pub restore_ms: f64,
    /// Until everything was checked.
    pub verify_ms: f64,
    /// From the kill to the next committed step.
    pub total_ms: f64,
    /// Requests executed again.
    pub replayed_requests: u64,
    /// Step at which the job went on.
    pub resumed_step: u32,
    /// Under `--renumber`: the ranks in the order of the first communicator, if no later recovery has moved them again.
    #[serde(skip)]
    pub order: Option<Vec<u32>>,
}

impl RecoveryLine {
    /// From what the ranks wrote. The launcher may have learnt how a process ended only after that.
    pub fn from_report(report: &RecoveryReport, membership: &ShmMembership) -> Self {
        let cause = |failed: &FailedRank| {
            // A process that lived on ends later, for another reason.
            let proven = || failed.exit.or_else(|| membership.exit_evidence(failed.rank, failed.incarnation));
            let exit = failed.cause.is_fenced().then(proven).flatten();
            match exit {
                Some(exit) => format!("{} ({})", failed.cause.as_str(), exit_of(exit)),
                None => failed.cause.as_str().to_owned(),
            }
        };
        let mut causes: Vec<String> = report.failed.iter().map(cause).collect();
        causes.dedup();
        let times = &report.times;
        let in_ms = |ns: u64| ns as f64 / 1e6;
        let mut line = Self {
            epoch: report.epoch.0.into(),
            failed: report.failed.iter().map(|failed| failed.rank.0).collect(),
            cause: causes.join(", "),
            strategy: report.strategy.as_str().to_owned(),
            detect_ms: in_ms(times.detect_ns),
            agree_ms: in_ms(times.agree_ns),
            fence_ms: in_ms(times.fence_ns),
            quiesce_ms: in_ms(times.quiesce_ns),
            start_ms: in_ms(times.start_ns),
            rebuild_ms: in_ms(times.rebuild_ns),
            replay_ms: in_ms(times.replay_ns),
            restore_ms: in_ms(times.restore_ns),
            verify_ms: in_ms(times.verify_ns),
            total_ms: 0.0,
            replayed_requests: report.replayed_requests,
            resumed_step: report.resumed_step.0,
            order: (membership.options().renumber && membership.decision().epoch == report.epoch)
                .then(|| Some(membership.cliques().ok()?.first()?.members.iter().flatten().map(|rank| rank.0).collect()))
                .flatten(),
        };
        // Where no step followed, the recovery itself is all there was.
        let stages: f64 = line.stages().iter().map(|(_, time)| time).sum();
        // The start of a replacement goes on beside other stages.
        line.total_ms = report.total_ns.map_or(stages - line.start_ms, in_ms);
        line
    }

    /// Only devices failed: every process lives on.
    pub fn spared_processes(&self) -> bool {
        self.cause == Cause::DeviceLost.as_str()
    }

    /// Ranks of `nranks` whose processes went on.
    pub fn survivors(&self, nranks: u32) -> Vec<u32> {
        (0..nranks).filter(|rank| self.spared_processes() || !self.failed.contains(rank)).collect()
    }

    /// `0, 1, 3, 2`, where ranks have moved.
    pub fn order_text(&self) -> Option<String> {
        let order: Vec<String> = self.order.as_ref()?.iter().map(u32::to_string).collect();
        Some(format!("the communicator has the ranks in the order {}", order.join(", ")))
    }

    /// Stages in the order in which they happen, with their milliseconds.
    pub fn stages(&self) -> [(&'static str, f64); 9] {
        [
            ("detect", self.detect_ms),
            ("agree", self.agree_ms),
            ("fence", self.fence_ms),
            ("quiesce", self.quiesce_ms),
            ("start", self.start_ms),
            ("rebuild", self.rebuild_ms),
            ("replay", self.replay_ms),
            ("restore", self.restore_ms),
            ("verify", self.verify_ms),
        ]
    }
}

/// `rank 2`, `ranks 1 and 2`, `ranks 0, 1 and 3`.
pub fn name_ranks(ranks: &[u32]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(u32::to_string).collect();
            format!("ranks {} and {last}", first.join(", "))
        }
    }
}

/// Milliseconds with as many digits as matter.
pub fn milliseconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.1} ms") } else { format!("{value:.0} ms") }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A recovery for tests of what prints one.
    pub fn sample() -> RecoveryLine {
        RecoveryLine {
            epoch: 1,
            failed: vec![2],
            cause: "died: SIGKILL".to_owned(),
            strategy: "reinit".to_owned(),
            detect_ms: 0.25,
            agree_ms: 0.25,
            fence_ms: 0.5,
            quiesce_ms: 1.0,
            start_ms: 8.0,
            rebuild_ms: 30.0,
            replay_ms: 0.0,
            restore_ms: 5.0,
            verify_ms: 1.0,
            total_ms: 41.5,
            replayed_requests: 0,
            resumed_step: 100,
            order: None,
        }
    }

    #[test]
    fn the_keys_are_those_of_the_documentation() {
        let json = serde_json::to_value(sample()).expect("serializable");
        let keys: Vec<&String> = json.as_object().expect("object").keys().collect();
        let expected = [
            "epoch", "failed", "cause", "strategy", "detect_ms", "agree_ms", "fence_ms", "quiesce_ms", "start_ms",
            "rebuild_ms", "replay_ms", "restore_ms", "verify_ms", "total_ms", "replayed_requests", "resumed_step",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_failed_device_costs_no_process() {
        assert_eq!(sample().survivors(4), [0, 1, 3]);
        let device = RecoveryLine { cause: "device_lost".to_owned(), ..sample() };
        assert_eq!(device.survivors(4), [0, 1, 2, 3]);
    }

    #[test]
    fn ranks_are_named_as_people_do() {
        assert_eq!(name_ranks(&[2]), "rank 2");
        assert_eq!(name_ranks(&[1, 2]), "ranks 1 and 2");
        assert_eq!(name_ranks(&[0, 1, 3]), "ranks 0, 1 and 3");
    }

    #[test]
    fn small_times_keep_a_decimal() {
        assert_eq!((milliseconds(0.24), milliseconds(61.4)), ("0.2 ms".to_owned(), "61 ms".to_owned()));
    }
}
