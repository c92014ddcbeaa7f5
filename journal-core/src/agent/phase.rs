//! Where this rank stands in the life of a job, and what may be asked for there.

use crate::error::Error;
use crate::request::Class;
use crate::sync::{AtomicU64, Ordering};

/// Set by the application's session calls, read by every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before `setup_done`.
    SetUp,
    /// After a commit (or `setup_done`, or `resume`), before the next `step_begin`.
    Between(u32),
    /// Inside this step.
    InStep(u32),
    /// GO was decided for this step; the optimizer runs.
    Decided(u32),
    /// Finalized or given up.
    Ended,
}

/// [`Phase`] as one word, read without a lock.
#[derive(Debug)]
pub struct PhaseCell(AtomicU64);

impl Default for PhaseCell {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl PhaseCell {
    /// The current phase.
    #[inline]
    pub fn get(&self) -> Phase {
        let word = self.0.load(Ordering::Acquire);
        let step = (word >> 8) as u32;
        match word & 0xff {
            0 => Phase::SetUp,
            1 => Phase::Between(step),
            2 => Phase::InStep(step),
            3 => Phase::Decided(step),
            _ => Phase::Ended,
        }
    }

    /// Moves on.
    pub fn set(&self, phase: Phase) {
        let (kind, step) = match phase {
            Phase::SetUp => (0, 0),
            Phase::Between(step) => (1, step),
            Phase::InStep(step) => (2, step),
            Phase::Decided(step) => (3, step),
            Phase::Ended => (4, 0),
        };
        self.0.store(u64::from(step) << 8 | kind, Ordering::Release);
    }
}

/// Uses a communicator, so it may not run once a step is doomed.
pub fn is_communication(class: Class) -> bool {
    matches!(class, Class::Collective | Class::PointToPoint | Class::Group)
}

impl Phase {
    /// Refuses what has no place here, with what to do instead.
    pub fn admit(self, class: Class, name: &'static str, creates_communicator: bool) -> Result<(), Error> {
        let refuse = |reason: &str| Err(Error::WrongState { call: name, reason: reason.to_owned() });
        match self {
            Self::Ended => refuse("the session has ended"),
            Self::SetUp | Self::InStep(_) if !(creates_communicator && self != Self::SetUp) => Ok(()),
            _ if creates_communicator => refuse("communicators are created before setup_done"),
            _ if is_communication(class) => {
                refuse("collectives belong between step_begin and step_end, or in set-up: the optimizer runs after GO and must be local")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_outside_a_step_is_refused_and_local_work_is_not() {
        for phase in [Phase::Between(3), Phase::Decided(3)] {
            let error = phase.admit(Class::Collective, "ncclAllReduce", false).expect_err("outside a step");
            assert!(error.to_string().contains("step_begin"), "{error}");
            phase.admit(Class::Step, "cuLaunchKernel", false).expect("local");
        }
        Phase::SetUp.admit(Class::Setup, "ncclCommSplit", true).expect("in set-up");
        Phase::InStep(0).admit(Class::Setup, "ncclCommSplit", true).expect_err("too late");
        Phase::InStep(0).admit(Class::Collective, "ncclAllReduce", false).expect("in a step");
    }

    #[test]
    fn the_word_keeps_the_phase() {
        let cell = PhaseCell::default();
        for phase in [Phase::SetUp, Phase::Between(7), Phase::InStep(u32::MAX), Phase::Decided(1), Phase::Ended] {
            cell.set(phase);
            assert_eq!(cell.get(), phase);
        }
    }
}
