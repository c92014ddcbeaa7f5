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
