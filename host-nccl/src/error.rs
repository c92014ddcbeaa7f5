//! Why a call failed, and the text of `ncclGetLastError`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

use crate::abi::{self, ResultCode};

/// A failed call: maps to one `ncclResult_t`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `ncclInvalidArgument`.
    #[error("{0}")]
    InvalidArgument(String),
    /// `ncclInvalidUsage`.
    #[error("{0}")]
    InvalidUsage(String),
    /// `ncclSystemError`.
    #[error("{call}: {reason}")]
    System {
        /// The system call.
        call: &'static str,
        /// What the system said.
        reason: String,
    },
    /// `ncclRemoteError`.
    #[error("{0}")]
    Remote(String),
    /// `ncclUnhandledCudaError`.
    #[error("the device of the stream is lost; nothing was enqueued")]
    DeviceLost,
    /// `ncclInternalError`: an abort ended the wait.
    #[error("the communicator was aborted while {0}")]
    Aborted(&'static str),
    /// A result that an earlier call left behind.
    #[error("the communicator has the asynchronous error {0}: abort it")]
    Sticky(ResultCode),
}

/// What most functions of this crate return.
pub type Result<T, E = Error> = core::result::Result<T, E>;

impl Error {
    /// The `ncclResult_t` of this error.
    pub fn code(&self) -> ResultCode {
        match self {
            Self::InvalidArgument(_) => abi::INVALID_ARGUMENT,
            Self::InvalidUsage(_) => abi::INVALID_USAGE,
            Self::System { .. } => abi::SYSTEM_ERROR,
            Self::Remote(_) => abi::REMOTE_ERROR,
            Self::DeviceLost => abi::UNHANDLED_CUDA_ERROR,
            Self::Aborted(_) => abi::INTERNAL_ERROR,
            Self::Sticky(code) => *code,
        }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::InvalidArgument(text.into())
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::InvalidUsage(text.into())
    }

    pub(crate) fn system(call: &'static str, error: impl core::fmt::Display) -> Self {
        Self::System { call, reason: error.to_string() }
    }
}

/// The last message of any thread, as in NCCL.
static LAST: Mutex<String> = Mutex::new(String::new());

thread_local! {
    /// Keeps the text that this thread was given last.
    static SHOWN: RefCell<CString> = RefCell::new(CString::default());
}

/// Remembers `error` for [`last`] and gives its code.
pub(crate) fn note(error: &Error) -> ResultCode {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.clear();
    last.push_str(&error.to_string());
    error.code()
}

/// The last message; valid until this thread's next call of it.
pub(crate) fn last() -> *const c_char {
    let text = LAST.lock().unwrap_or_else(PoisonError::into_inner).replace('\0', " ");
    let text = CString::new(text).unwrap_or_default();
    SHOWN.with(|shown| {
        *shown.borrow_mut() = text;
        shown.borrow().as_ptr()
    })
}

/// Text of a result code.
pub(crate) fn describe(code: ResultCode) -> &'static CStr {
    match code {
        abi::SUCCESS => c"success",
        abi::UNHANDLED_CUDA_ERROR => c"the device of a stream has failed",
        abi::SYSTEM_ERROR => c"a system call failed, see ncclGetLastError",
        abi::INTERNAL_ERROR => c"internal error, or the communicator was aborted",
        abi::INVALID_ARGUMENT => c"invalid argument, see ncclGetLastError",
        abi::INVALID_USAGE => c"invalid usage, see ncclGetLastError",
        abi::REMOTE_ERROR => c"a remote process exited or cannot be reached",
        abi::IN_PROGRESS => c"the operation is in progress: poll ncclCommGetAsyncError",
        abi::TIMEOUT => c"timeout",
        _ => c"unknown result code",
    }
}
