//! How a process ended, as its parent saw it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned or called exit.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(status.code().unwrap_or(-1)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => f.write_str(name),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_by_its_name() {
        assert_eq!(Exit::from(ExitStatus::from_raw(9)).to_string(), "SIGKILL");
        assert_eq!(Exit::from(ExitStatus::from_raw(11)).to_string(), "SIGSEGV");
        assert_eq!(Exit::from(ExitStatus::from_raw(3 << 8)).to_string(), "exit code 3");
    }
}
