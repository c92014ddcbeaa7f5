//! Numbers and structs of NCCL's C ABI, as far as a caller can see them.
//!
//! Values follow the public header of NCCL 2.30.7; result codes stay `i32`, because their set grows.

use core::ffi::c_void;

/// `ncclResult_t`.
pub type ResultCode = i32;
/// `ncclComm_t`: opaque. Here it is a number that is never used again, so that a stale one is told apart.
pub type CommHandle = *mut c_void;
/// `cudaStream_t`: NULL or a [`rejoin_host_stream::HostStream`].
pub type StreamHandle = *mut c_void;

/// The version that this library claims: 2.30.7.
pub const VERSION_CODE: i32 = 23_007;

/// `ncclSuccess`.
pub const SUCCESS: ResultCode = 0;
/// `ncclUnhandledCudaError`: here, the device of a stream is lost.
pub const UNHANDLED_CUDA_ERROR: ResultCode = 1;
/// `ncclSystemError`.
pub const SYSTEM_ERROR: ResultCode = 2;
/// `ncclInternalError`.
pub const INTERNAL_ERROR: ResultCode = 3;
/// `ncclInvalidArgument`.
pub const INVALID_ARGUMENT: ResultCode = 4;
/// `ncclInvalidUsage`.
pub const INVALID_USAGE: ResultCode = 5;
/// `ncclRemoteError`.
pub const REMOTE_ERROR: ResultCode = 6;
/// `ncclInProgress`.
pub const IN_PROGRESS: ResultCode = 7;
/// `ncclTimeout`.
pub const TIMEOUT: ResultCode = 8;

/// `NCCL_SPLIT_NOCOLOR`.
pub const SPLIT_NOCOLOR: i32 = -1;
/// `NCCL_SHRINK_DEFAULT`.
pub const SHRINK_DEFAULT: i32 = 0;
/// `NCCL_SHRINK_ABORT`.
pub const SHRINK_ABORT: i32 = 1;

/// `ncclScalarDevice`: the scalar is read when the collective runs.
pub const SCALAR_DEVICE: i32 = 0;
/// `ncclScalarHostImmediate`: the scalar is read during the call.
pub const SCALAR_HOST_IMMEDIATE: i32 = 1;

/// Number of built-in operators; user-defined ones have larger values.
pub const NUM_OPS: i32 = 5;

/// Size of `ncclUniqueId`.
pub const UNIQUE_ID_BYTES: usize = 128;

/// `ncclUniqueId`, passed by value in two calls.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NcclUniqueId {
    /// Opaque.
    pub internal: [u8; UNIQUE_ID_BYTES],
}

impl core::fmt::Debug for NcclUniqueId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("NcclUniqueId(..)")
    }
}

const _: () = assert!(size_of::<NcclUniqueId>() == UNIQUE_ID_BYTES);

/// Most ranks of one communicator.
pub const MAX_RANKS: u32 = 1024;
