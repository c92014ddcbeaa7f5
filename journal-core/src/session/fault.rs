//! Faults on purpose: a rank that kills itself inside a given step, at its first all-reduce or, where it has none, at
//! the step's end.
//!
//! `REJOIN_FAULT="kill:RANK@STEP[+US];fail-device:RANK@STEP;kill-at-setup-done:RANK@INCARNATION"`. The first two
//! are for incarnation 0 (`+go` instead of microseconds: after the decision, before the commit), the third kills a replacement right before its state is restored. Once each.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to the own process, `delay` after the step's first all-reduce was enqueued, or after its end.
    Kill {
        /// How much later.
        delay: Duration,
    },
    /// SIGKILL to the own process at `setup_done` of the incarnation that stands for the step.
    KillAtSetupDone,
    /// The device fails as the host backend can be told to.
    FailDevice,
    /// SIGKILL after the job's decision, before the own optimizer and commit.
    KillAfterGo,
    /// The device fails there.
    FailDeviceAfterGo,
}

impl Fault {
    fn is_in_step(self) -> bool {
        matches!(self, Self::Kill { .. } | Self::FailDevice)
    }

    fn is_after_go(self) -> bool {
        matches!(self, Self::KillAfterGo | Self::FailDeviceAfterGo)
    }
}

/// Faults of this rank that are still to come: (step, fault). `None`, the usual case, costs a step's calls nothing.
#[derive(Debug, Default)]
pub struct FaultPlan(Option<Mutex<Vec<(u32, Fault)>>>);

impl FaultPlan {
    /// Reads `REJOIN_FAULT`; entries of other ranks are left out, malformed ones are an error text.
    pub fn from_env(rank: u32, incarnation: u32) -> Result<Self, String> {
        match std::env::var("REJOIN_FAULT") {
            Ok(text) => Self::parse(&text, rank).map(|plan| plan.of_incarnation(incarnation)),
            Err(_) => Ok(Self::default()),
        }
    }

    fn of_incarnation(self, incarnation: u32) -> Self {
        let plan = self.0.map(Mutex::into_inner).transpose().unwrap_or_else(|poisoned| Some(poisoned.into_inner()));
        let mine = |(at, fault): &(u32, Fault)| match fault {
            Fault::KillAtSetupDone => *at == incarnation,
            _ => incarnation == 0,
        };
        Self::of(plan.unwrap_or_default().into_iter().filter(mine).collect())
    }

    fn of(plan: Vec<(u32, Fault)>) -> Self {
        Self((!plan.is_empty()).then(|| Mutex::new(plan)))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Vec<(u32, Fault)>>> {
        self.0.as_ref().map(|plan| plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this process is to die at its `setup_done`.
    pub fn dies_at_setup_done(&self) -> bool {
        self.lock().is_some_and(|plan| plan.iter().any(|(_, fault)| *fault == Fault::KillAtSetupDone))
    }

    /// Parses the text of `REJOIN_FAULT`.
    pub fn parse(text: &str, rank: u32) -> Result<Self, String> {
        let mut plan = Vec::new();
        for entry in text.split(';').filter(|e| !e.is_empty()) {
            let parsed = (|| {
                let (what, rest) = entry.split_once(':')?;
                let (of_rank, rest) = rest.split_once('@')?;
                let (step, delay) = rest.split_once('+').unwrap_or((rest, "0"));
                if delay == "go" {
                    let fault = match what {
                        "kill" => Fault::KillAfterGo,
                        "fail-device" => Fault::FailDeviceAfterGo,
                        _ => return None,
                    };
                    return Some((of_rank.parse::<u32>().ok()?, step.parse::<u32>().ok()?, fault));
                }
                let delay = Duration::from_micros(delay.trim_end_matches("us").parse().ok()?);
                let fault = match what {
                    "kill" => Fault::Kill { delay },
                    "fail-device" => Fault::FailDevice,
                    "kill-at-setup-done" => Fault::KillAtSetupDone,
                    _ => return None,
                };
                Some((of_rank.parse::<u32>().ok()?, step.parse::<u32>().ok()?, fault))
            })();
            let (of_rank, step, fault) = parsed.ok_or_else(|| {
                format!("REJOIN_FAULT has {entry:?}, expected kill:RANK@STEP, kill:RANK@STEP+MICROSECONDS, fail-device:RANK@STEP, either with +go, or kill-at-setup-done:RANK@INCARNATION")
            })?;
            if of_rank == rank {
                plan.push((step, fault));
            }
        }
        Ok(Self::of(plan))
    }

    /// Takes out the fault inside `step`, if there is one.
    pub fn take(&self, step: u32) -> Option<Fault> {
        self.take_where(step, Fault::is_in_step)
    }

    /// Takes out the fault between the decision and the commit of `step`, if there is one.
    pub fn take_after_go(&self, step: u32) -> Option<Fault> {
        self.take_where(step, Fault::is_after_go)
    }

    /// Says which faults the job never came to.
    pub fn tell_the_rest(&self) {
        for (at, fault) in self.lock().iter().flat_map(|plan| plan.iter()) {
            tracing::warn!(?fault, at, "REJOIN_FAULT: the job ended without coming to this fault");
        }
    }

    fn take_where(&self, step: u32, here: fn(Fault) -> bool) -> Option<Fault> {
        let mut plan = self.lock()?;
        let at = plan.iter().position(|(s, fault)| *s == step && here(*fault))?;
        Some(plan.remove(at).1)
    }
}

/// Ends this process as a crash would. `stamp` gets the moment first, for the report's total.
pub fn kill_self(delay: Duration, stamp: impl FnOnce()) -> ! {
    let end = Instant::now() + delay;
    // A busy wait: a scheduler's sleep would blur delays of a few microseconds.
    while Instant::now() < end {
        core::hint::spin_loop();
    }
    stamp();
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_holds_only_this_ranks_faults_and_each_once() {
        let plan = FaultPlan::parse("kill:1@50;kill:0@7+300;fail-device:0@9", 0).expect("well-formed");
        assert_eq!(plan.take(50), None);
        assert_eq!(plan.take(7), Some(Fault::Kill { delay: Duration::from_micros(300) }));
        assert_eq!(plan.take(7), None);
        assert_eq!(plan.take(9), Some(Fault::FailDevice));
        let after = FaultPlan::parse("kill:0@3+go;fail-device:0@4+go;kill:0@3", 0).expect("well-formed");
        assert_eq!((after.take(4), after.take_after_go(4)), (None, Some(Fault::FailDeviceAfterGo)));
        assert_eq!(after.take(3), Some(Fault::Kill { delay: Duration::ZERO }));
        assert_eq!(after.take_after_go(3), Some(Fault::KillAfterGo));
        assert!(FaultPlan::parse("kill:1", 0).expect_err("malformed").contains("kill:RANK@STEP"));
    }
}
