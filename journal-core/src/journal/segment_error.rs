//! Why a segment could not be created or opened.

use std::path::PathBuf;

use crate::Status;

/// Errors of [`super::SharedSegment`] and of the checks of a segment's header.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Not a job or segment name.
    #[error("{name:?} is not a valid name: a job is 1 to 64 of A-Z a-z 0-9 _ -")]
    Name {
        /// What was given.
        name: String,
    },
    /// The directory's file system is full, or would be.
    #[error(
        "not enough space in {}: {name} needs {needed} bytes, {free} are free; \
         in a container start it with a larger --shm-size, or remove leftovers with `rejoin gc`", dir.display()
    )]
    NoSpace {
        /// Segment.
        name: String,
        /// Directory.
        dir: PathBuf,
        /// Bytes asked for.
        needed: u64,
        /// Bytes free when it failed.
        free: u64,
    },
    /// RLIMIT_FSIZE is below the size.
    #[error("{name} needs {needed} bytes but the file size limit is {limit}; raise it with `ulimit -f`")]
    FileLimit {
        /// Segment.
        name: String,
        /// Bytes asked for.
        needed: u64,
        /// The soft limit.
        limit: u64,
    },
    /// No room in the address space (`ulimit -v`).
    #[error("{name} needs {needed} bytes of address space and got none; raise `ulimit -v`")]
    AddressSpace {
        /// Segment.
        name: String,
        /// Bytes asked for.
        needed: u64,
    },
    /// The options give no journal.
    #[error("{name}: {capacity} bytes in chunks of {chunk} make no journal; use a power of two of at least 4096 and room for 8 chunks beside the tables")]
    Capacity {
        /// Segment.
        name: String,
        /// Bytes asked for.
        capacity: u64,
        /// Chunk size asked for.
        chunk: u64,
    },
    /// Peers could not find it.
    #[error("{name}: the spill directory must be an absolute path of at most 255 bytes")]
    SpillDirectory {
        /// Segment.
        name: String,
    },
    /// The name is taken.
    #[error("{name} exists: the job may be running, or `rejoin gc` removes what a dead one left")]
    Exists {
        /// Segment.
        name: String,
    },
    /// No such segment.
    #[error("{name} does not exist in {}; `rejoin ls` lists what does", dir.display())]
    NotFound {
        /// Segment.
        name: String,
        /// Directory.
        dir: PathBuf,
    },
    /// Belongs to another user, or the mode forbids it.
    #[error("{name} belongs to user {owner} and this process runs as user {user}; run it as that user")]
    Access {
        /// Segment.
        name: String,
        /// Owner of the object (or of the directory, if the object could not be reached).
        owner: u32,
        /// Effective user of this process.
        user: u32,
    },
    /// Written by another format version.
    #[error("{name} has format {found} and this library reads {expected}; use the same version of Rejoin for both")]
    Version {
        /// Segment.
        name: String,
        /// In the header.
        found: u32,
        /// Of this build.
        expected: u32,
    },
    /// Same version, but another layout of the shared structures.
    #[error("{name} was laid out by another build ({found:#018x}, this one has {expected:#018x}); use one build for all")]
    Layout {
        /// Segment.
        name: String,
        /// In the header.
        found: u64,
        /// Of this build.
        expected: u64,
    },
    /// The bytes are not what a writer leaves.
    #[error("{name} is damaged at byte {offset:#x}: {what}")]
    Corrupt {
        /// Segment.
        name: String,
        /// Byte in the segment.
        offset: u64,
        /// What was wrong.
        what: &'static str,
    },
    /// Any other failure of the system.
    #[error("could not {action} {name}")]
    Io {
        /// Segment.
        name: String,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl SegmentError {
    /// The status of the C ABI.
    pub fn status(&self) -> Status {
        match self {
            Self::Name { .. } | Self::Capacity { .. } | Self::SpillDirectory { .. } => Status::InvalidArgument,
            Self::NoSpace { .. } | Self::FileLimit { .. } | Self::AddressSpace { .. } => Status::NoSpace,
            Self::Exists { .. } => Status::Exists,
            Self::NotFound { .. } => Status::NotFound,
            Self::Access { .. } => Status::Access,
            Self::Version { .. } | Self::Layout { .. } => Status::Version,
            Self::Corrupt { .. } => Status::Corrupt,
            Self::Io { .. } => Status::Io,
        }
    }
}
