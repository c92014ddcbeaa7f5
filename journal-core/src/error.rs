//! Status codes of the C ABI and the one error that all stages convert into.

/// Numbers are fixed and never reused; hundreds by stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Status {
    Ok = 0,
    /// The step is doomed or was decided REDO: call resume.
    Redo = 1,
    NullArgument = 100,
    InvalidArgument = 101,
    WrongState = 102,
    Closed = 103,
    Forked = 104,
    Unsupported = 105,
    Panic = 106,
    NotFound = 200,
    Exists = 201,
    Access = 202,
    NoSpace = 203,
    Version = 204,
    Corrupt = 205,
    Io = 206,
    JournalFull = 300,
    StaleHandle = 301,
    Device = 400,
    Nccl = 401,
    Library = 402,
    Timeout = 500,
    Evicted = 501,
    GaveUp = 502,
    NotRecoverable = 503,
    Mismatch = 504,
}

impl Status {
    /// All of them, in order of number.
    pub const ALL: [Self; 26] = [
        Self::Ok,
        Self::Redo,
        Self::NullArgument,
        Self::InvalidArgument,
        Self::WrongState,
        Self::Closed,
        Self::Forked,
        Self::Unsupported,
        Self::Panic,
        Self::NotFound,
        Self::Exists,
        Self::Access,
        Self::NoSpace,
        Self::Version,
        Self::Corrupt,
        Self::Io,
        Self::JournalFull,
        Self::StaleHandle,
        Self::Device,
        Self::Nccl,
        Self::Library,
        Self::Timeout,
        Self::Evicted,
        Self::GaveUp,
        Self::NotRecoverable,
        Self::Mismatch,
    ];

    /// The status with this number.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as i32 == number)
    }
}

/// Any failure of a session. Each part has its own error, which this one carries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The open step is doomed: a rank failed. Not a failure of the program: call `resume`.
    #[error("the step is doomed because a rank failed; call resume and run the step again")]
    Redo,
    /// This process was declared failed while it was alive (stopped, for instance).
    #[error("rank {rank} incarnation {incarnation} was declared failed and replaced; this process must end")]
    Evicted {
        /// Rank.
        rank: u32,
        /// Incarnation.
        incarnation: u32,
    },
    /// The job is over.
    #[error("the job has ended: {reason}")]
    Ended {
        /// Why.
        reason: EndReason,
    },
    /// A call that has no place here.
    #[error("{call} is not possible here: {reason}")]
    WrongState {
        /// The call.
        call: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// An argument is wrong.
    #[error("{what}")]
    InvalidArgument {
        /// Which, and what is expected.
        what: String,
    },
    /// Device memory that no recovery would restore, because it has no state kind.
    #[error("{}", unregistered_text(allocations))]
    Unregistered {
        /// All of it.
        allocations: Vec<UnregisteredMemory>,
    },
    /// Something asked for by name does not exist.
    #[error("{what} not found")]
    NotFound {
        /// What.
        what: String,
    },
    /// This backend or version cannot do it.
    #[error("{what}")]
    Unsupported {
        /// What, and why.
        what: String,
    },
    /// A wait passed its deadline.
    #[error("{what} did not finish within {limit_ms} ms{}", missing_text(missing))]
    Timeout {
        /// What was waited for.
        what: String,
        /// The deadline.
        limit_ms: u64,
        /// Ranks that did not do their part.
        missing: Vec<u32>,
    },
    /// State was lost that nobody holds any more.
    #[error("not recoverable: {what}")]
    NotRecoverable {
        /// What was lost, by name.
        what: String,
    },
    /// Two ranks disagree about what must be the same.
    #[error("{what}")]
    Mismatch {
        /// What, where, and the values.
        what: String,
    },
    /// A segment.
    #[error(transparent)]
    Segment(#[from] crate::journal::SegmentError),
    /// Recording.
    #[error(transparent)]
    Append(#[from] crate::journal::AppendError),
    /// Reading a journal.
    #[error(transparent)]
    Load(#[from] crate::journal::LoadError),
    /// A virtual handle.
    #[error(transparent)]
    Handle(#[from] crate::handle::HandleError),
    /// The device.
    #[error(transparent)]
    Device(#[from] crate::backend::DeviceError),
    /// NCCL.
    #[error(transparent)]
    Nccl(#[from] crate::nccl::NcclError),
    /// The job.
    #[error(transparent)]
    Membership(crate::membership::MembershipError),
}

/// A part of an allocation without a state kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnregisteredMemory {
    /// Where it is.
    pub address: crate::backend::DevicePtr,
    /// Its length.
    pub bytes: u64,
    /// Sequence of the request that allocated it, if the journal holds it.
    pub sequence: Option<u64>,
}

fn unregistered_text(allocations: &[UnregisteredMemory]) -> String {
    const SHOWN: usize = 8;
    let one = |m: &UnregisteredMemory| {
        let request = m.sequence.map(|s| format!(" (request {s})")).unwrap_or_default();
        format!("{} bytes at {:#x}{request}", m.bytes, m.address.0)
    };
    let mut list: Vec<String> = allocations.iter().take(SHOWN).map(one).collect();
    if allocations.len() > SHOWN {
        list.push(format!("{} more", allocations.len() - SHOWN));
    }
    format!(
        "device memory without a state kind, which no recovery restores: {}; register it (as scratch if only a step needs it), \
         free it, or set REJOIN_UNREGISTERED=warn",
        list.join(", ")
    )
}

fn missing_text(missing: &[u32]) -> String {
    match missing {
        [] => String::new(),
        ranks => format!("; missing: rank {}", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl From<crate::membership::MembershipError> for Error {
    fn from(error: crate::membership::MembershipError) -> Self {
        use crate::membership::MembershipError as M;
        match error {
            M::StageFailed { stage, rank, arrived: false, .. } => Self::Timeout {
                what: format!("stage {stage} of recovery"),
                limit_ms: 0,
                missing: vec![rank.0],
            },
            M::Moved { .. } | M::StageFailed { .. } => Self::Redo,
            M::Ended { code } => Self::Ended { reason: EndReason::from_code(code) },
            M::Evicted { rank, incarnation } => Self::Evicted { rank: rank.0, incarnation: incarnation.0 },
            other => Self::Membership(other),
        }
    }
}

/// Code that a process should exit with when it was declared failed and replaced while it lived.
pub const EVICTED_EXIT: i32 = 87;

impl Error {
    /// The step is to be run again; nothing is wrong with the program.
    pub fn is_redo(&self) -> bool {
        matches!(self, Self::Redo)
    }

    /// The status of the C ABI.
    pub fn status(&self) -> Status {
        match self {
            Self::Redo => Status::Redo,
            Self::Evicted { .. } => Status::Evicted,
            Self::Ended { reason } => reason.status(),
            Self::WrongState { .. } | Self::Unregistered { .. } => Status::WrongState,
            Self::InvalidArgument { .. } => Status::InvalidArgument,
            Self::NotFound { .. } => Status::NotFound,
            Self::Unsupported { .. } => Status::Unsupported,
            Self::Timeout { .. } => Status::Timeout,
            Self::NotRecoverable { .. } => Status::NotRecoverable,
            Self::Mismatch { .. } => Status::Mismatch,
            Self::Segment(error) => error.status(),
            Self::Append(error) => error.status(),
            Self::Load(error) => error.status(),
            Self::Handle(error) => error.status(),
            Self::Device(_) => Status::Device,
            Self::Nccl(crate::nccl::NcclError::Timeout { .. }) => Status::Timeout,
            Self::Nccl(crate::nccl::NcclError::Library { .. } | crate::nccl::NcclError::MissingFunction { .. } | crate::nccl::NcclError::TooOld { .. }) => Status::Library,
            Self::Nccl(_) => Status::Nccl,
            Self::Membership(error) => error.status(),
        }
    }
}

/// Why a job ended, as its members segment keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EndReason {
    /// All ranks finalized.
    Finished = 1,
    /// More recoveries than allowed.
    TooManyRecoveries = 2,
    /// The same rank failed twice in the same step.
    SameStepTwice = 3,
    /// The launcher is gone, so nobody starts a replacement.
    NoLauncher = 4,
    /// The last replica of a state buffer, or another thing that nobody holds, is lost.
    StateLost = 5,
    /// A stage of recovery failed for good, or passed its deadline.
    RecoveryFailed = 6,
    /// Replicas or the fingerprint differ.
    Mismatch = 7,
    /// A signal to the launcher.
    Interrupted = 8,
    /// A rank failed before the job had passed set-up; the launcher starts all ranks again.
    SetUpFailed = 9,
    /// A step or another wait for peers passed its deadline.
    PeerTimeout = 10,
    /// A number this version does not know.
    Unknown = 99,
}

impl EndReason {
    /// The reason with this number.
    pub fn from_code(code: u32) -> Self {
        use EndReason::*;
        [
            Finished, TooManyRecoveries, SameStepTwice, NoLauncher, StateLost, RecoveryFailed, Mismatch, Interrupted,
            SetUpFailed, PeerTimeout,
        ]
        .into_iter()
        .find(|r| *r as u32 == code)
        .unwrap_or(Unknown)
    }

    /// The status that ranks return.
    pub fn status(self) -> Status {
        match self {
            Self::StateLost => Status::NotRecoverable,
            Self::Mismatch => Status::Mismatch,
            Self::PeerTimeout => Status::Timeout,
            Self::Finished | Self::Interrupted => Status::Closed,
            _ => Status::GaveUp,
        }
    }
}

impl core::fmt::Display for EndReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Finished => "all ranks finalized",
            Self::TooManyRecoveries => "more recoveries were needed than --max-recoveries allows",
            Self::SameStepTwice => "the same rank failed twice in the same step",
            Self::NoLauncher => "the launcher is gone, so no replacement can be started",
            Self::StateLost => "state was lost that no surviving rank holds (see `rejoin recovery`)",
            Self::RecoveryFailed => "recovery failed (see `rejoin recovery`)",
            Self::Mismatch => "ranks disagree about state that must be the same (see `rejoin recovery`)",
            Self::Interrupted => "the launcher was told to end it",
            Self::SetUpFailed => "a rank failed in set-up; the whole job starts again",
            Self::PeerTimeout => "ranks did not reach the end of a step in time",
            Self::Unknown => "for a reason that this version does not know",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variants by name, which the compiler refuses when one of the enum is missing.
    macro_rules! every {
        ($($variant:ident),* $(,)?) => {{
            fn _exhaustive(status: Status) {
                match status {
                    $(Status::$variant => {})*
                }
            }
            vec![$(Status::$variant),*]
        }};
    }

    #[test]
    fn every_status_is_in_all_and_found_by_its_number() {
        let every = every![
            Ok, Redo, NullArgument, InvalidArgument, WrongState, Closed, Forked, Unsupported, Panic, NotFound, Exists, Access,
            NoSpace, Version, Corrupt, Io, JournalFull, StaleHandle, Device, Nccl, Library, Timeout, Evicted, GaveUp,
            NotRecoverable, Mismatch,
        ];
        assert_eq!(every, Status::ALL);
        assert!(Status::ALL.is_sorted_by_key(|status| *status as i32), "in order of number");
        for status in every {
            assert_eq!(Status::from_number(status as i32), Some(status));
        }
        assert_eq!(Status::from_number(107), None);
    }
}
