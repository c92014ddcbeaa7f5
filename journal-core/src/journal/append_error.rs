//! Why a record was not written. Nothing of it is visible then, and the call must not be issued.

use super::segment_error::SegmentError;
use crate::Status;

/// Errors of appending, of step boundaries and of PREPARED.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// No chunk is free.
    #[error(
        "the journal is full: {what} needs {needed} bytes and none of its {capacity} bytes are free for it; \
         create it with a larger capacity, or end the step sooner"
    )]
    Full {
        /// What did not fit: a region or PREPARED.
        what: &'static str,
        /// Bytes of the record or run.
        needed: u64,
        /// Bytes of all chunks.
        capacity: u64,
    },
    /// Larger than any journal of this capacity can hold.
    #[error("a payload of {len} bytes is larger than {limit}, the most this journal takes")]
    TooLarge {
        /// Bytes given.
        len: u64,
        /// Bytes possible.
        limit: u64,
    },
    /// No segment is large enough for a payload in one piece.
    #[error("the journal is full: no segment has room for a payload of {len} bytes in one piece, the most is {limit}; create it with a larger capacity or another policy")]
    NoRun {
        /// Bytes given.
        len: u64,
        /// Bytes of the largest segment's chunks.
        limit: u64,
    },
    /// The policy allows no further segment.
    #[error("the journal is full and its policy allows no growth beyond {limit} bytes; raise its limit or end the step sooner")]
    GrowthLimit {
        /// Bytes of all segments.
        limit: u64,
    },
    /// No step ended in time.
    #[error("the journal is full: waited {waited_ms} ms for a step commit to make room, and none did")]
    Blocked {
        /// Time waited.
        waited_ms: u64,
    },
    /// More threads than slots.
    #[error("all {max} slots of the journal belong to live threads; end some or create it with more slots")]
    NoSlot {
        /// Slots.
        max: u32,
    },
    /// The flags use bits of the journal's own.
    #[error("record flags {flags:#06x} use bits reserved for the journal (0xf000)")]
    Flags {
        /// Given.
        flags: u16,
    },
    /// The journal was closed, or the thread is ending.
    #[error("the journal is closed for this thread")]
    Closed,
    /// Somebody holds the lock of step boundaries and PREPARED for longer than any of these takes.
    #[error("waited {waited_ms} ms for the journal's admin lock, held by thread {holder}")]
    Busy {
        /// Thread id in the lock word.
        holder: u32,
        /// Time waited.
        waited_ms: u64,
    },
    /// The lane's bytes are not what its owners leave.
    #[error("slot {slot} of the journal is damaged at {address:#x}")]
    Corrupt {
        /// Slot.
        slot: u16,
        /// Where.
        address: u64,
    },
    /// Growing failed, or a system call did.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A system call failed.
    #[error("could not {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl AppendError {
    /// Whether more chunks would help.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::NoRun { .. })
    }

    /// There is no room for the payload, and a smaller one might fit.
    pub(crate) fn is_for_space(&self) -> bool {
        self.is_full()
            || matches!(self, Self::TooLarge { .. } | Self::GrowthLimit { .. } | Self::Blocked { .. } | Self::Segment(SegmentError::NoSpace { .. }))
    }

    /// The status of the C ABI.
    pub fn status(&self) -> Status {
        match self {
            Self::Full { .. } | Self::NoSlot { .. } | Self::GrowthLimit { .. } | Self::Blocked { .. } => Status::JournalFull,
            Self::TooLarge { .. } | Self::NoRun { .. } | Self::Flags { .. } => Status::InvalidArgument,
            Self::Closed => Status::Closed,
            Self::Busy { .. } => Status::Timeout,
            Self::Corrupt { .. } => Status::Corrupt,
            Self::Segment(error) => error.status(),
            Self::Io { .. } => Status::Io,
        }
    }
}
