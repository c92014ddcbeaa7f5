//! NCCL: the loaded library, configurations, and the communicators of this process.

#[allow(unsafe_code)]
pub mod library;
mod aborts;
mod config;
#[allow(unsafe_code)]
mod communicator;
pub mod clique;

pub use aborts::Aborts;
pub use communicator::{Collective, NewRank, Progress, RealCommunicator};
pub use config::CommConfig;
pub use library::{NcclLibrary, NcclResult};

use std::path::PathBuf;

/// Bytes of an `ncclUniqueId`.
pub const UNIQUE_ID_BYTES: usize = 128;

/// `ncclDataType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum DataType {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
    Float8e4m3 = 10,
    Float8e5m2 = 11,
}

impl DataType {
    /// Size of one element in bytes; `None` for a number that NCCL does not define.
    pub fn element_bytes(datatype: i32) -> Option<u64> {
        Some(match datatype {
            0 | 1 | 10 | 11 => 1,
            6 | 9 => 2,
            2 | 3 | 7 => 4,
            4 | 5 | 8 => 8,
            _ => return None,
        })
    }
}

/// `ncclRedOp_t`, the built-in ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum ReduceOp {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
    Avg = 4,
}

/// Why something about NCCL failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// The library cannot be loaded.
    #[error("cannot load NCCL from {}: {reason}; set REJOIN_NCCL to the path of libnccl.so.2", library.display())]
    Library {
        /// Path or soname asked for.
        library: PathBuf,
        /// The loader's reason.
        reason: String,
    },
    /// The library lacks a function that was asked for.
    #[error("{} (NCCL {version}) has no {function}", library.display())]
    MissingFunction {
        /// The library.
        library: PathBuf,
        /// The function.
        function: &'static str,
        /// Its version, 0 where not known.
        version: i32,
    },
    /// Too old to recover with.
    #[error("{} is NCCL {found}, recovery needs {oldest} or newer", library.display())]
    TooOld {
        /// The library.
        library: PathBuf,
        /// Its version.
        found: i32,
        /// The oldest accepted.
        oldest: i32,
    },
    /// A call failed.
    #[error("{call} failed with {code}: {text}")]
    Call {
        /// The function.
        call: &'static str,
        /// `ncclResult_t`.
        code: i32,
        /// `ncclGetErrorString`.
        text: String,
    },
    /// A call did not finish in time.
    #[error("{what} did not finish within {limit_ms} ms")]
    Timeout {
        /// What was waited for.
        what: String,
        /// The deadline.
        limit_ms: u64,
    },
    /// The job's epoch moved while waiting.
    #[error("the job moved to another epoch while waiting for {what}")]
    Interrupted {
        /// What was waited for.
        what: String,
    },
}
