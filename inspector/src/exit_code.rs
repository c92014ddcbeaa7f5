//! Exit codes of `rejoin`. Numbers are fixed; docs/recovery.md has the same table.

use journal_core::error::EndReason;

/// What a `rejoin` process ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode(pub u8);

impl ExitCode {
    /// All is well.
    pub const FINE: Self = Self(0);
    /// Damage or trouble was found: weights differ, a job ended for a reason without a code of its own.
    pub const TROUBLE: Self = Self(1);
    /// Nothing was started: arguments, program, name or space.
    pub const COULD_NOT_RUN: Self = Self(2);
    /// More deaths than `--max-recoveries`.
    pub const GAVE_UP: Self = Self(10);
    /// The same rank died twice in the same step (or twice in set-up).
    pub const SAME_STEP: Self = Self(11);
    /// A recovery was not possible.
    pub const NOT_RECOVERABLE: Self = Self(12);
    /// Something did not answer before its deadline.
    pub const TIMEOUT: Self = Self(13);
    /// A rank exited before it opened a session.
    pub const NOT_A_RANK: Self = Self(14);

    /// Ended by a signal to the launcher, as shells number it.
    pub fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(255))
    }

    /// For a job that ended so.
    pub fn of_end(reason: EndReason) -> Self {
        match reason {
            EndReason::Finished => Self::FINE,
            EndReason::TooManyRecoveries => Self::GAVE_UP,
            EndReason::SameStepTwice => Self::SAME_STEP,
            EndReason::NoLauncher | EndReason::StateLost | EndReason::RecoveryFailed | EndReason::Mismatch => Self::NOT_RECOVERABLE,
            EndReason::PeerTimeout => Self::TIMEOUT,
            EndReason::SetUpFailed => Self::NOT_A_RANK,
            EndReason::Interrupted | EndReason::Unknown => Self::TROUBLE,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.0)
    }
}
