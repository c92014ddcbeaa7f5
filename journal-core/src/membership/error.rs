//! Why something about membership failed.

use std::time::Duration;

use super::{Decision, Epoch, Incarnation, Rank, Stage, rank_list};
use crate::Status;
use crate::journal::SegmentError;

/// Errors of [`super::Membership`] and [`super::ShmMembership`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// The segment could not be created or opened.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// This process was declared failed and must end.
    #[error("incarnation {incarnation} of rank {rank} was declared failed; this process must end, its replacement goes on")]
    Evicted {
        /// Rank.
        rank: Rank,
        /// The process that was declared failed.
        incarnation: Incarnation,
    },
    /// This process may not take the seat.
    #[error("rank {rank} incarnation {incarnation} refused: {reason}")]
    Access {
        /// Rank.
        rank: Rank,
        /// Incarnation asked for.
        incarnation: Incarnation,
        /// Why.
        reason: &'static str,
    },
    /// The epoch has moved.
    #[error("epoch {expected} is over: the job is at {found}")]
    Moved {
        /// The caller's epoch.
        expected: Epoch,
        /// What stands now.
        found: Decision,
    },
    /// The job has ended.
    #[error("the job has ended with code {code}")]
    Ended {
        /// As given to `end`.
        code: u32,
    },
    /// A wait passed its deadline.
    #[error("waited {waited:?} for {what}; missing: rank {}", rank_list(missing))]
    Timeout {
        /// What was waited for.
        what: String,
        /// Ranks that did not do their part; empty if no rank in particular.
        missing: Vec<Rank>,
        /// How long.
        waited: Duration,
    },
    /// A barrier failed for all of its participants.
    #[error("stage {stage} of epoch {epoch} failed: rank {rank} {}", if *arrived { "is not well" } else { "did not arrive in time" })]
    StageFailed {
        /// Epoch.
        epoch: Epoch,
        /// Stage.
        stage: Stage,
        /// The lowest rank that was not well, or was missing.
        rank: Rank,
        /// False: another rank's deadline passed while this one was missing.
        arrived: bool,
    },
    /// A vote, commit or opening that does not fit what stands.
    #[error("{what} does not fit the job, which is at {found}")]
    WrongState {
        /// What was tried.
        what: String,
        /// What stands.
        found: Decision,
    },
    /// No room for a blob.
    #[error("blob area of rank {rank} is full: {needed} bytes asked for, {free} bytes and {entries} entries are free; publish less or under fewer keys")]
    BlobSpace {
        /// Whose area.
        rank: Rank,
        /// Bytes needed, key included.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Entries free.
        entries: u32,
    },
    /// The key was published with other bytes.
    #[error("rank {rank} has published other bytes under {key:?}; use another key")]
    BlobExists {
        /// By whom.
        rank: Rank,
        /// Under which key.
        key: String,
    },
    /// Members describe one clique differently.
    #[error("communicator {key} is described differently by its members: {what}")]
    CliqueMismatch {
        /// First bytes of its key, hex.
        key: String,
        /// What differs.
        what: &'static str,
    },
    /// No room in the clique table.
    #[error("the job has {capacity} communicators already, its most; use fewer splits")]
    CliquesFull {
        /// Capacity of the table.
        capacity: u32,
    },
    /// No epoch left.
    #[error("the job has used all its 65,535 epochs")]
    EpochsExhausted,
    /// An argument is out of range.
    #[error("invalid argument: {what}")]
    InvalidArgument {
        /// What is wrong and what is expected.
        what: String,
    },
    /// Only a member, or only the launcher, may do this; or the segment was opened for reading only.
    #[error("{what} is not possible here: {reason}")]
    WrongRole {
        /// What was tried.
        what: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// The bytes of the segment are not what a writer leaves.
    #[error("the members segment is damaged at byte {offset:#x}: {what}")]
    Corrupt {
        /// Byte in the segment.
        offset: u64,
        /// What was wrong.
        what: &'static str,
    },
    /// A failure of the system.
    #[error("could not {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl MembershipError {
    /// The status of the C ABI.
    pub fn status(&self) -> Status {
        match self {
            Self::Segment(error) => error.status(),
            Self::Evicted { .. } => Status::Evicted,
            Self::Access { .. } => Status::Access,
            Self::Moved { .. } | Self::StageFailed { .. } => Status::Redo,
            Self::Ended { .. } | Self::EpochsExhausted => Status::GaveUp,
            Self::Timeout { .. } => Status::Timeout,
            Self::WrongState { .. } | Self::WrongRole { .. } => Status::WrongState,
            Self::BlobSpace { .. } | Self::CliquesFull { .. } => Status::NoSpace,
            Self::BlobExists { .. } => Status::Exists,
            Self::CliqueMismatch { .. } => Status::Mismatch,
            Self::InvalidArgument { .. } => Status::InvalidArgument,
            Self::Corrupt { .. } => Status::Corrupt,
            Self::Io { .. } => Status::Io,
        }
    }

    /// The epoch moved or its stage failed: the recovery starts again with the next epoch.
    pub fn is_moved(&self) -> bool {
        matches!(self, Self::Moved { .. } | Self::StageFailed { .. })
    }
}
