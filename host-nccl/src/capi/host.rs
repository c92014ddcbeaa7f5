//! What NCCL does not have: streams for C programs, the rendezvous of the new-rank calls, test controls.

use rejoin_host_stream::{HOST_STREAM_BUSY, HOST_STREAM_LOST, HOST_STREAM_OK, HostStream};

use super::{boundary, put, read_id};
use crate::abi::{self, NcclUniqueId, ResultCode};
use crate::error::Error;
use crate::host_controls;
use crate::stream::{self, OwnStream};

/// Sets the unique id under which the new-rank calls of this process meet; NULL clears it.
///
/// # Safety
/// `id` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclHostSetNewRankRendezvous(id: *const NcclUniqueId) -> ResultCode {
    boundary(|| {
        // SAFETY: the caller's promise.
        let id = unsafe { read_id(id) }?;
        host_controls::set_rendezvous(id);
        Ok(abi::SUCCESS)
    })
}

/// While `hold` is not 0, calls on non-blocking communicators stay in progress.
#[unsafe(no_mangle)]
pub extern "C" fn ncclHostHoldLaunches(hold: i32) -> ResultCode {
    boundary(|| {
        host_controls::hold_launches(hold != 0);
        Ok(abi::SUCCESS)
    })
}

/// Makes a stream: an in-order queue with a thread.
///
/// # Safety
/// `stream` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclHostStreamCreate(stream: *mut *mut HostStream) -> ResultCode {
    boundary(|| {
        if stream.is_null() {
            return Err(Error::argument("stream is NULL"));
        }
        // SAFETY: the caller's promise.
        unsafe { put(stream, "stream", stream::create_native()) }?;
        Ok(abi::SUCCESS)
    })
}

/// Frees a stream of [`ncclHostStreamCreate`]; what is queued still runs.
///
/// # Safety
/// `stream` is used by nobody afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclHostStreamDestroy(stream: *mut HostStream) -> ResultCode {
    boundary(|| {
        // SAFETY: the caller's promise.
        unsafe { stream::destroy_native(stream) }?;
        Ok(abi::SUCCESS)
    })
}

/// Waits until everything enqueued on `stream` has run; NULL: on all streams of this library.
///
/// # Safety
/// `stream` is NULL or a live stream of [`ncclHostStreamCreate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclHostStreamSynchronize(stream: *mut HostStream) -> ResultCode {
    boundary(|| {
        if stream.is_null() {
            OwnStream::all().iter().for_each(|stream| stream.synchronize());
        } else {
            // SAFETY: the caller's promise.
            unsafe { stream::own_of(stream) }?.synchronize();
        }
        Ok(abi::SUCCESS)
    })
}

/// Success when everything has run, `ncclInProgress` when not; NULL: on all streams of this library.
///
/// # Safety
/// `stream` is NULL or a live host stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclHostStreamQuery(stream: *mut HostStream) -> ResultCode {
    boundary(|| {
        let code = if stream.is_null() {
            if OwnStream::all().iter().all(|stream| stream.is_idle()) { HOST_STREAM_OK } else { HOST_STREAM_BUSY }
        } else {
            // SAFETY: the caller's promise.
            unsafe { stream::query(stream) }?
        };
        match code {
            HOST_STREAM_OK => Ok(abi::SUCCESS),
            HOST_STREAM_LOST => Err(Error::DeviceLost),
            _ => Ok(abi::IN_PROGRESS),
        }
    })
}
