//! A stream that the application made by itself: queried, and handed to NCCL.

use core::ffi::c_void;
use rejoin_host_stream::{HOST_STREAM_ABI, HOST_STREAM_BUSY, HOST_STREAM_MAGIC, HOST_STREAM_OK, HostStream};

use super::invalid;
use crate::backend::{DeviceError, DeviceResult};

#[derive(Debug)]
pub(super) struct AdoptedStream(*mut HostStream);
// SAFETY: the struct is constant while it lives; its functions may be called from any thread.
unsafe impl Send for AdoptedStream {}

impl AdoptedStream {
    /// # Safety
    /// `native` is null or points to a `HostStream` that outlives this.
    pub(super) unsafe fn of(native: *mut c_void) -> DeviceResult<Self> {
        const CALL: &str = "stream_adopt";
        let stream = native.cast::<HostStream>();
        if stream.is_null() || !stream.is_aligned() {
            return invalid(CALL, format!("{native:p} is no host stream; the default stream needs no adopting"));
        }
        // SAFETY: not null and aligned; that it is readable is the caller's word.
        let (magic, abi) = unsafe { ((*stream).magic, (*stream).abi) };
        if magic != HOST_STREAM_MAGIC || abi != HOST_STREAM_ABI {
            return invalid(CALL, format!("{native:p} is no host stream of version {HOST_STREAM_ABI}: magic {magic:#x}, version {abi}"));
        }
        Ok(Self(stream))
    }

    pub(super) fn native(&self) -> *mut c_void {
        self.0.cast()
    }

    pub(super) fn is_idle(&self, ordinal: u32) -> DeviceResult<bool> {
        // SAFETY: the stream lives.
        let query = unsafe { (*self.0).query };
        // SAFETY: as the layout of a host stream says: any thread, never blocks.
        match unsafe { query(self.0) } {
            HOST_STREAM_OK => Ok(true),
            HOST_STREAM_BUSY => Ok(false),
            code => Err(DeviceError::Lost { ordinal, reason: format!("a stream of the application answered {code}") }),
        }
    }
}
