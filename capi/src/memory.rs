//! Device memory: copies whose recording depends on where the job stands. The rest is in the generated requests.

use core::ffi::c_void;

use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;
use journal_core::session::HostSlice;

use crate::argument::bytes;
use crate::boundary::boundary;
use crate::handle::rejoin_handle;
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;

/// An address in the device's window: the same in every incarnation with the same set-up.
pub type rejoin_device_ptr = u64;

/**
 * cuMemcpyHtoD: copies to the device and waits. In set-up the bytes are recorded; in a step under policy redo
 * their size and checksum.
 *
 * @param session     open
 * @param dst         in a live allocation
 * @param data        copied
 * @param data_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memcpy_htod(
    session: *const rejoin_session,
    dst: rejoin_device_ptr,
    data: *const c_void,
    data_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let data = unsafe { bytes(data, data_bytes, "data") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        Ok(object.session.memcpy_htod(DevicePtr(dst), data)?)
    })
}

/**
 * cuMemcpyHtoDAsync: enqueues a copy to the device.
 *
 * @param session     open
 * @param dst         in a live allocation
 * @param data        stays valid and unchanged until the copy has completed on the stream
 * @param data_bytes  its length
 * @param stream      0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memcpy_htod_async(
    session: *const rejoin_session,
    dst: rejoin_device_ptr,
    data: *const c_void,
    data_bytes: usize,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let data = unsafe { bytes(data, data_bytes, "data") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let source = HostSlice { pointer: data.as_ptr().cast_mut(), bytes: data.len() as u64 };
        // SAFETY: the header asks the caller to keep the bytes until the copy has completed.
        Ok(unsafe { object.session.memcpy_htod_async(DevicePtr(dst), source, VirtualHandle(stream)) }?)
    })
}
