//! Foreign mode: for an application that calls CUDA itself.

use core::ffi::{c_char, c_void};

use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;

use crate::argument::{Out, pointer, text};
use crate::boundary::boundary;
use crate::handle::rejoin_handle;
use crate::memory::rejoin_device_ptr;
use crate::session::{enter, rejoin_session};
use crate::state::kind_of;
use crate::status::rejoin_status;

/**
 * Takes up a stream that the application made by itself, so that collectives can run on it and a recovery waits
 * for it. In set-up. The application goes on using its own stream for its own work. Every stream that carries
 * collectives or writes state must be adopted, except the default stream, which is known. From here on the
 * application is in foreign mode: what it does on the device by itself is in no journal, so policy replay is
 * refused, and a device fault ends the process (another one takes its rank).
 *
 * @param session     in set-up
 * @param stream      a cudaStream_t or CUstream; on the host backend an ncclHostStream_t. Lives until
 *                    rejoin_stream_destroy(), which forgets it and does not destroy it, or until the session is closed
 * @param out_stream  set on OK: what collectives get
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_UNSUPPORTED (policy replay);
 *         REJOIN_STATUS_DEVICE (not a stream of this device); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_adopt(
    session: *const rejoin_session,
    stream: *mut c_void,
    out_stream: *mut rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_stream, "out_stream") }?;
        pointer(stream, "stream")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        // SAFETY: a stream of the device, as the header says.
        out.set(unsafe { object.session.stream_adopt(stream) }?.0);
        Ok(())
    })
}

/**
 * rejoin_state_register() for device memory that the application got by itself (cudaMalloc). It need not be at the
 * same address in every incarnation. Starts foreign mode, see rejoin_stream_adopt(). After REDO, per-rank buffers
 * come back in rejoin_resume(), which first waits for the adopted streams.
 *
 * @param session  in set-up
 * @param name     UTF-8, 1 to 64 bytes, unique in the rank
 * @param address  device memory of the session's device that lives until the session is closed
 * @param bytes    its length
 * @param kind     a rejoin_state_kind
 * @param comm     whose ranks hold replicas; 0 where there are none
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_UNSUPPORTED (policy replay);
 *         REJOIN_STATUS_DEVICE (no memory of this device); REJOIN_STATUS_INVALID_ARGUMENT (kind, name, communicator);
 *         REJOIN_STATUS_STALE_HANDLE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_state_register_foreign(
    session: *const rejoin_session,
    name: *const c_char,
    address: rejoin_device_ptr,
    bytes: u64,
    kind: u32,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let name = unsafe { text(name, "name") }?;
        let kind = kind_of(kind, name)?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let clique = (comm != 0).then_some(VirtualHandle(comm));
        // SAFETY: memory of the device, as the header says.
        Ok(unsafe { object.session.state_register_foreign(name, DevicePtr(address), bytes, kind, clique) }?)
    })
}
