//! One function for each row of the request table. Generated from it by `tests/generated.rs`
//! (`REJOIN_BLESS=1 cargo test -p rejoin-capi --test generated`); do not edit.
#![allow(missing_docs, clippy::too_many_arguments)]

use core::ffi::{c_char, c_void};

use journal_core::backend::DevicePtr;
use journal_core::handle::{HandleKind, VirtualHandle};
use journal_core::request;

use crate::argument::{self, Out};
use crate::boundary::boundary;
use crate::communicator::{self, rejoin_comm_config, rejoin_unique_id};
use crate::handle::rejoin_handle;
use crate::memory::rejoin_device_ptr;
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;

pub const REJOIN_REQUEST_DEVICE_SET: u16 = 257;
pub const REJOIN_REQUEST_DEVICE_RESET: u16 = 258;
pub const REJOIN_REQUEST_DEVICE_COUNT: u16 = 259;
pub const REJOIN_REQUEST_CONTEXT_CURRENT: u16 = 260;
pub const REJOIN_REQUEST_CONTEXT_STATE: u16 = 261;
pub const REJOIN_REQUEST_DEVICE_SYNCHRONIZE: u16 = 262;
pub const REJOIN_REQUEST_DEVICE_ATTRIBUTE: u16 = 263;
pub const REJOIN_REQUEST_CONTEXT_SET_LIMIT: u16 = 264;
pub const REJOIN_REQUEST_MEM_ALLOC: u16 = 513;
pub const REJOIN_REQUEST_MEM_FREE: u16 = 514;
pub const REJOIN_REQUEST_HOST_REGISTER: u16 = 515;
pub const REJOIN_REQUEST_HOST_UNREGISTER: u16 = 516;
pub const REJOIN_REQUEST_MEMCPY_HTOD: u16 = 517;
pub const REJOIN_REQUEST_MEMCPY_HTOD_DIGEST: u16 = 518;
pub const REJOIN_REQUEST_MEMCPY_DTOH: u16 = 519;
pub const REJOIN_REQUEST_MEMCPY_DTOD: u16 = 520;
pub const REJOIN_REQUEST_MEMCPY_HTOD_ASYNC: u16 = 521;
pub const REJOIN_REQUEST_MEMCPY_HTOD_ASYNC_DIGEST: u16 = 522;
pub const REJOIN_REQUEST_MEMCPY_DTOH_ASYNC: u16 = 523;
pub const REJOIN_REQUEST_MEMCPY_DTOD_ASYNC: u16 = 524;
pub const REJOIN_REQUEST_MEMSET: u16 = 525;
pub const REJOIN_REQUEST_MEMSET_ASYNC: u16 = 526;
pub const REJOIN_REQUEST_MEM_INFO: u16 = 527;
pub const REJOIN_REQUEST_NCCL_MEM_ALLOC: u16 = 528;
pub const REJOIN_REQUEST_NCCL_MEM_FREE: u16 = 529;
pub const REJOIN_REQUEST_HOST_ALLOC: u16 = 530;
pub const REJOIN_REQUEST_HOST_FREE: u16 = 531;
pub const REJOIN_REQUEST_MEM_ALLOC_ASYNC: u16 = 532;
pub const REJOIN_REQUEST_MEM_FREE_ASYNC: u16 = 533;
pub const REJOIN_REQUEST_STREAM_CREATE: u16 = 769;
pub const REJOIN_REQUEST_STREAM_DESTROY: u16 = 770;
pub const REJOIN_REQUEST_STREAM_SYNCHRONIZE: u16 = 771;
pub const REJOIN_REQUEST_STREAM_QUERY: u16 = 772;
pub const REJOIN_REQUEST_STREAM_WAIT_EVENT: u16 = 773;
pub const REJOIN_REQUEST_STREAM_GET_PRIORITY: u16 = 774;
pub const REJOIN_REQUEST_STREAM_ADOPT: u16 = 775;
pub const REJOIN_REQUEST_EVENT_CREATE: u16 = 1025;
pub const REJOIN_REQUEST_EVENT_DESTROY: u16 = 1026;
pub const REJOIN_REQUEST_EVENT_RECORD: u16 = 1027;
pub const REJOIN_REQUEST_EVENT_SYNCHRONIZE: u16 = 1028;
pub const REJOIN_REQUEST_EVENT_QUERY: u16 = 1029;
pub const REJOIN_REQUEST_EVENT_ELAPSED: u16 = 1030;
pub const REJOIN_REQUEST_MODULE_LOAD: u16 = 1281;
pub const REJOIN_REQUEST_MODULE_UNLOAD: u16 = 1282;
pub const REJOIN_REQUEST_MODULE_GET_FUNCTION: u16 = 1283;
pub const REJOIN_REQUEST_MODULE_GET_GLOBAL: u16 = 1284;
pub const REJOIN_REQUEST_FUNCTION_SET_ATTRIBUTE: u16 = 1285;
pub const REJOIN_REQUEST_LIBRARY_OPEN: u16 = 1286;
pub const REJOIN_REQUEST_LIBRARY_LOAD: u16 = 1287;
pub const REJOIN_REQUEST_LIBRARY_UNLOAD: u16 = 1288;
pub const REJOIN_REQUEST_LIBRARY_GET_KERNEL: u16 = 1289;
pub const REJOIN_REQUEST_LAUNCH_KERNEL: u16 = 1537;
pub const REJOIN_REQUEST_LAUNCH_COOPERATIVE: u16 = 1538;
pub const REJOIN_REQUEST_GET_UNIQUE_ID: u16 = 1793;
pub const REJOIN_REQUEST_COMM_INIT_RANK: u16 = 1794;
pub const REJOIN_REQUEST_COMM_INIT_RANK_CONFIG: u16 = 1795;
pub const REJOIN_REQUEST_COMM_INIT_RANK_SCALABLE: u16 = 1796;
pub const REJOIN_REQUEST_COMM_INIT_ALL: u16 = 1797;
pub const REJOIN_REQUEST_COMM_SPLIT: u16 = 1798;
pub const REJOIN_REQUEST_COMM_SHRINK: u16 = 1799;
pub const REJOIN_REQUEST_COMM_GET_UNIQUE_ID: u16 = 1800;
pub const REJOIN_REQUEST_COMM_GROW: u16 = 1801;
pub const REJOIN_REQUEST_COMM_FINALIZE: u16 = 1802;
pub const REJOIN_REQUEST_COMM_DESTROY: u16 = 1803;
pub const REJOIN_REQUEST_COMM_ABORT: u16 = 1804;
pub const REJOIN_REQUEST_COMM_REVOKE: u16 = 1805;
pub const REJOIN_REQUEST_COMM_SUSPEND: u16 = 1806;
pub const REJOIN_REQUEST_COMM_RESUME: u16 = 1807;
pub const REJOIN_REQUEST_COMM_COUNT: u16 = 1808;
pub const REJOIN_REQUEST_COMM_CU_DEVICE: u16 = 1809;
pub const REJOIN_REQUEST_COMM_USER_RANK: u16 = 1810;
pub const REJOIN_REQUEST_COMM_GET_ASYNC_ERROR: u16 = 1811;
pub const REJOIN_REQUEST_COMM_MEM_STATS: u16 = 1812;
pub const REJOIN_REQUEST_GET_LAST_ERROR: u16 = 1813;
pub const REJOIN_REQUEST_COMM_REGISTER: u16 = 1814;
pub const REJOIN_REQUEST_COMM_DEREGISTER: u16 = 1815;
pub const REJOIN_REQUEST_COMM_WINDOW_REGISTER: u16 = 1816;
pub const REJOIN_REQUEST_COMM_WINDOW_DEREGISTER: u16 = 1817;
pub const REJOIN_REQUEST_WIN_GET_USER_PTR: u16 = 1818;
pub const REJOIN_REQUEST_REDOP_CREATE_PRE_MUL_SUM: u16 = 1819;
pub const REJOIN_REQUEST_REDOP_DESTROY: u16 = 1820;
pub const REJOIN_REQUEST_COMM_INIT_NEW_RANK: u16 = 1821;
pub const REJOIN_REQUEST_COMM_ADD_NEW_RANK: u16 = 1822;
pub const REJOIN_REQUEST_COMM_SETUP_NEW_RANK: u16 = 1823;
pub const REJOIN_REQUEST_ALL_REDUCE: u16 = 2049;
pub const REJOIN_REQUEST_BROADCAST: u16 = 2050;
pub const REJOIN_REQUEST_BCAST: u16 = 2051;
pub const REJOIN_REQUEST_REDUCE: u16 = 2052;
pub const REJOIN_REQUEST_ALL_GATHER: u16 = 2053;
pub const REJOIN_REQUEST_REDUCE_SCATTER: u16 = 2054;
pub const REJOIN_REQUEST_ALL_TO_ALL: u16 = 2055;
pub const REJOIN_REQUEST_GATHER: u16 = 2056;
pub const REJOIN_REQUEST_SCATTER: u16 = 2057;
pub const REJOIN_REQUEST_SEND: u16 = 2305;
pub const REJOIN_REQUEST_RECV: u16 = 2306;
pub const REJOIN_REQUEST_PUT_SIGNAL: u16 = 2307;
pub const REJOIN_REQUEST_SIGNAL: u16 = 2308;
pub const REJOIN_REQUEST_WAIT_SIGNAL: u16 = 2309;
pub const REJOIN_REQUEST_GROUP_START: u16 = 2561;
pub const REJOIN_REQUEST_GROUP_END: u16 = 2562;
pub const REJOIN_REQUEST_GROUP_SIMULATE_END: u16 = 2563;
pub const REJOIN_REQUEST_HOST_CALLBACK: u16 = 2817;
pub const REJOIN_REQUEST_STREAM_CALLBACK: u16 = 2818;
pub const REJOIN_REQUEST_CAPTURE_BEGIN: u16 = 2819;
pub const REJOIN_REQUEST_CAPTURE_END: u16 = 2820;
pub const REJOIN_REQUEST_GRAPH_INSTANTIATE: u16 = 2821;
pub const REJOIN_REQUEST_GRAPH_LAUNCH: u16 = 2822;
pub const REJOIN_REQUEST_GRAPH_EXEC_DESTROY: u16 = 2823;
pub const REJOIN_REQUEST_IPC_GET_MEM_HANDLE: u16 = 2824;
pub const REJOIN_REQUEST_IPC_OPEN_MEM_HANDLE: u16 = 2825;
pub const REJOIN_REQUEST_IPC_CLOSE_MEM_HANDLE: u16 = 2826;
pub const REJOIN_REQUEST_IPC_OPEN_EVENT_HANDLE: u16 = 2827;
pub const REJOIN_REQUEST_MEM_IMPORT_HANDLE: u16 = 2828;
pub const REJOIN_REQUEST_EXTERNAL_MEMORY_IMPORT: u16 = 2829;
pub const REJOIN_REQUEST_UNKNOWN_CALL: u16 = 2830;
pub const REJOIN_REQUEST_EXCHANGE: u16 = 3073;
pub const REJOIN_REQUEST_STATE_REGISTER: u16 = 3074;
pub const REJOIN_REQUEST_SETUP_DONE: u16 = 3075;
pub const REJOIN_REQUEST_STEP_BEGIN: u16 = 3076;
pub const REJOIN_REQUEST_STEP_END: u16 = 3077;
pub const REJOIN_REQUEST_STEP_COMMIT: u16 = 3078;
pub const REJOIN_REQUEST_USER_OPAQUE: u16 = 32768;

/**
 * cuCtxSetCurrent: recorded, then executed.
 *
 * @param session  open
 * @param ordinal  by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_device_set(
    session: *const rejoin_session,
    ordinal: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::device_set(ordinal))?;
        Ok(())
    })
}

/**
 * cuDevicePrimaryCtxReset: recorded only, no backend executes it.
 *
 * @param session  open
 * @param ordinal  by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_device_reset(
    session: *const rejoin_session,
    ordinal: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::device_reset(ordinal))?;
        Ok(())
    })
}

/**
 * cuDeviceGetCount: recorded only, no backend executes it.
 *
 * @param session    open
 * @param out_count  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_device_count(
    session: *const rejoin_session,
    out_count: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_count, "out_count") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::device_count())?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * cuCtxGetCurrent: recorded only, no backend executes it.
 *
 * @param session      open
 * @param out_context  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_context_current(
    session: *const rejoin_session,
    out_context: *mut *mut c_void,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_context, "out_context") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::context_current())?;
        out.set(value as usize as *mut c_void);
        Ok(())
    })
}

/**
 * cuDevicePrimaryCtxGetState: recorded only, no backend executes it.
 *
 * @param session     open
 * @param ordinal     by value
 * @param out_active  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_context_state(
    session: *const rejoin_session,
    ordinal: u32,
    out_active: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_active, "out_active") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::context_state(ordinal))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * cuCtxSynchronize: recorded, then executed.
 * Waits for all streams, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO.
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_device_synchronize(
    session: *const rejoin_session,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::device_synchronize())?;
        Ok(())
    })
}

/**
 * cuDeviceGetAttribute: recorded only, no backend executes it.
 *
 * @param session    open
 * @param attribute  by value
 * @param ordinal    by value
 * @param out_value  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_device_attribute(
    session: *const rejoin_session,
    attribute: i32,
    ordinal: u32,
    out_value: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_value, "out_value") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::device_attribute(attribute, ordinal))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * cuCtxSetLimit: recorded only, no backend executes it.
 *
 * @param session  open
 * @param limit    by value
 * @param value    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_context_set_limit(
    session: *const rejoin_session,
    limit: i32,
    value: u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::context_set_limit(limit, value))?;
        Ok(())
    })
}

/**
 * cuMemAlloc: recorded, then executed.
 * The address is the same in every incarnation with the same set-up.
 *
 * @param session      open
 * @param bytes        by value
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_mem_alloc(
    session: *const rejoin_session,
    bytes: u64,
    out_address: *mut rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_address, "out_address") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::mem_alloc(bytes))?;
        out.set(value);
        Ok(())
    })
}

/**
 * cuMemFree: recorded, then executed.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_mem_free(
    session: *const rejoin_session,
    address: rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::mem_free(DevicePtr(address)))?;
        Ok(())
    })
}

/**
 * cuMemHostRegister: recorded, then executed.
 *
 * @param session  open
 * @param host     host memory, not NULL; stays until the call's work is done
 * @param bytes    by value
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_host_register(
    session: *const rejoin_session,
    host: *mut c_void,
    bytes: u64,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        let host = argument::pointer(host, "host")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::host_register(host, bytes, flags))?;
        Ok(())
    })
}

/**
 * cuMemHostUnregister: recorded, then executed.
 *
 * @param session  open
 * @param host     host memory, not NULL; stays until the call's work is done
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_host_unregister(
    session: *const rejoin_session,
    host: *mut c_void,
) -> rejoin_status {
    boundary(|| {
        let host = argument::pointer(host, "host")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::host_unregister(host))?;
        Ok(())
    })
}

/**
 * cuMemcpyDtoH: recorded, then executed.
 *
 * @param session  open
 * @param dst      host memory, not NULL; stays until the call's work is done
 * @param src      in a live allocation
 * @param bytes    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memcpy_dtoh(
    session: *const rejoin_session,
    dst: *mut c_void,
    src: rejoin_device_ptr,
    bytes: u64,
) -> rejoin_status {
    boundary(|| {
        let dst = argument::pointer(dst, "dst")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::memcpy_dtoh(dst, DevicePtr(src), bytes))?;
        Ok(())
    })
}

/**
 * cuMemcpyDtoD: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param src      in a live allocation
 * @param bytes    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memcpy_dtod(
    session: *const rejoin_session,
    dst: rejoin_device_ptr,
    src: rejoin_device_ptr,
    bytes: u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::memcpy_dtod(DevicePtr(dst), DevicePtr(src), bytes))?;
        Ok(())
    })
}

/**
 * cuMemcpyDtoHAsync: recorded, then executed.
 *
 * @param session  open
 * @param dst      host memory, not NULL; stays until the call's work is done
 * @param src      in a live allocation
 * @param bytes    by value
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memcpy_dtoh_async(
    session: *const rejoin_session,
    dst: *mut c_void,
    src: rejoin_device_ptr,
    bytes: u64,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        let dst = argument::pointer(dst, "dst")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::memcpy_dtoh_async(dst, DevicePtr(src), bytes, VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuMemcpyDtoDAsync: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param src      in a live allocation
 * @param bytes    by value
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memcpy_dtod_async(
    session: *const rejoin_session,
    dst: rejoin_device_ptr,
    src: rejoin_device_ptr,
    bytes: u64,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::memcpy_dtod_async(DevicePtr(dst), DevicePtr(src), bytes, VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuMemsetD8: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param value    by value
 * @param bytes    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memset(
    session: *const rejoin_session,
    dst: rejoin_device_ptr,
    value: u32,
    bytes: u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::memset(DevicePtr(dst), value, bytes))?;
        Ok(())
    })
}

/**
 * cuMemsetD8Async: recorded, then executed.
 *
 * @param session  open
 * @param dst      in a live allocation
 * @param value    by value
 * @param bytes    by value
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_memset_async(
    session: *const rejoin_session,
    dst: rejoin_device_ptr,
    value: u32,
    bytes: u64,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::memset_async(DevicePtr(dst), value, bytes, VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuMemGetInfo: recorded, then executed.
 * The most that rejoin_mem_alloc() can still give.
 *
 * @param session   open
 * @param out_free  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_mem_info(
    session: *const rejoin_session,
    out_free: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_free, "out_free") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::mem_info())?;
        out.set(value);
        Ok(())
    })
}

/**
 * ncclMemAlloc: recorded, then executed.
 *
 * @param session      open
 * @param bytes        by value
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_nccl_mem_alloc(
    session: *const rejoin_session,
    bytes: u64,
    out_address: *mut rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_address, "out_address") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::nccl_mem_alloc(bytes))?;
        out.set(value);
        Ok(())
    })
}

/**
 * ncclMemFree: recorded, then executed.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_nccl_mem_free(
    session: *const rejoin_session,
    address: rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::nccl_mem_free(DevicePtr(address)))?;
        Ok(())
    })
}

/**
 * cuMemHostAlloc: recorded only, no backend executes it.
 *
 * @param session   open
 * @param bytes     by value
 * @param flags     as in CUDA or NCCL
 * @param out_host  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_host_alloc(
    session: *const rejoin_session,
    bytes: u64,
    flags: u32,
    out_host: *mut *mut c_void,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_host, "out_host") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::host_alloc(bytes, flags))?;
        out.set(value as usize as *mut c_void);
        Ok(())
    })
}

/**
 * cuMemFreeHost: recorded only, no backend executes it.
 *
 * @param session  open
 * @param host     host memory, not NULL; stays until the call's work is done
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_host_free(
    session: *const rejoin_session,
    host: *mut c_void,
) -> rejoin_status {
    boundary(|| {
        let host = argument::pointer(host, "host")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::host_free(host))?;
        Ok(())
    })
}

/**
 * cuMemAllocAsync: recorded only, no backend executes it.
 *
 * @param session      open
 * @param bytes        by value
 * @param stream       handle; 0: the default stream
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_mem_alloc_async(
    session: *const rejoin_session,
    bytes: u64,
    stream: rejoin_handle,
    out_address: *mut rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_address, "out_address") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::mem_alloc_async(bytes, VirtualHandle(stream)))?;
        out.set(value);
        Ok(())
    })
}

/**
 * cuMemFreeAsync: recorded only, no backend executes it.
 *
 * @param session  open
 * @param address  in a live allocation
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_mem_free_async(
    session: *const rejoin_session,
    address: rejoin_device_ptr,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::mem_free_async(DevicePtr(address), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuStreamCreateWithPriority: recorded, then executed.
 *
 * @param session     open
 * @param out_stream  set on OK: a virtual handle
 * @param flags       as in CUDA or NCCL
 * @param priority    by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_create(
    session: *const rejoin_session,
    out_stream: *mut rejoin_handle,
    flags: u32,
    priority: i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_stream, "out_stream") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Stream, |made| request::stream_create(made, flags, priority))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuStreamDestroy: recorded, then executed.
 *
 * @param session  open
 * @param stream   handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_destroy(
    session: *const rejoin_session,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::stream_destroy(VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuStreamSynchronize: recorded, then executed.
 * Waits, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO.
 *
 * @param session  open
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_synchronize(
    session: *const rejoin_session,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::stream_synchronize(VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuStreamQuery: recorded, then executed.
 *
 * @param session   open
 * @param stream    handle; 0: the default stream
 * @param out_done  set on OK: 1 when everything has completed, else 0
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_query(
    session: *const rejoin_session,
    stream: rejoin_handle,
    out_done: *mut u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_done, "out_done") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::stream_query(VirtualHandle(stream)))?;
        out.set(u32::from(value == 1));
        Ok(())
    })
}

/**
 * cuStreamWaitEvent: recorded, then executed.
 *
 * @param session  open
 * @param stream   handle; 0: the default stream
 * @param event    handle
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_wait_event(
    session: *const rejoin_session,
    stream: rejoin_handle,
    event: rejoin_handle,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::stream_wait_event(VirtualHandle(stream), VirtualHandle(event), flags))?;
        Ok(())
    })
}

/**
 * cuStreamGetPriority: recorded only, no backend executes it.
 *
 * @param session       open
 * @param stream        handle; 0: the default stream
 * @param out_priority  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_get_priority(
    session: *const rejoin_session,
    stream: rejoin_handle,
    out_priority: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_priority, "out_priority") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::stream_get_priority(VirtualHandle(stream)))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * cuEventCreate: recorded, then executed.
 *
 * @param session    open
 * @param out_event  set on OK: a virtual handle
 * @param flags      as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_event_create(
    session: *const rejoin_session,
    out_event: *mut rejoin_handle,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_event, "out_event") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Event, |made| request::event_create(made, flags))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuEventDestroy: recorded, then executed.
 *
 * @param session  open
 * @param event    handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_event_destroy(
    session: *const rejoin_session,
    event: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::event_destroy(VirtualHandle(event)))?;
        Ok(())
    })
}

/**
 * cuEventRecord: recorded, then executed.
 *
 * @param session  open
 * @param event    handle
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_event_record(
    session: *const rejoin_session,
    event: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::event_record(VirtualHandle(event), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuEventSynchronize: recorded, then executed.
 * Waits, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO.
 *
 * @param session  open
 * @param event    handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_event_synchronize(
    session: *const rejoin_session,
    event: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::event_synchronize(VirtualHandle(event)))?;
        Ok(())
    })
}

/**
 * cuEventQuery: recorded, then executed.
 *
 * @param session   open
 * @param event     handle
 * @param out_done  set on OK: 1 when everything has completed, else 0
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_event_query(
    session: *const rejoin_session,
    event: rejoin_handle,
    out_done: *mut u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_done, "out_done") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::event_query(VirtualHandle(event)))?;
        out.set(u32::from(value == 1));
        Ok(())
    })
}

/**
 * cuEventElapsedTime: recorded, then executed.
 *
 * @param session           open
 * @param start             handle
 * @param end               handle
 * @param out_milliseconds  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_event_elapsed(
    session: *const rejoin_session,
    start: rejoin_handle,
    end: rejoin_handle,
    out_milliseconds: *mut f32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_milliseconds, "out_milliseconds") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::event_elapsed(VirtualHandle(start), VirtualHandle(end)))?;
        out.set(f32::from_bits(value as u32));
        Ok(())
    })
}

/**
 * cuModuleLoadData: recorded, then executed.
 * On the host backend the image is a shared object, see rejoin_kernel.h.
 *
 * @param session      open
 * @param out_module   set on OK: a virtual handle
 * @param image        copied
 * @param image_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_module_load(
    session: *const rejoin_session,
    out_module: *mut rejoin_handle,
    image: *const c_void,
    image_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_module, "out_module") }?;
        // SAFETY: pointers of C, as the header says.
        let image = unsafe { argument::bytes(image, image_bytes, "image") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Module, |made| request::module_load(made, image))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuModuleUnload: recorded, then executed.
 *
 * @param session  open
 * @param module   handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_module_unload(
    session: *const rejoin_session,
    module: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::module_unload(VirtualHandle(module)))?;
        Ok(())
    })
}

/**
 * cuModuleGetFunction: recorded, then executed.
 *
 * @param session       open
 * @param out_function  set on OK: a virtual handle
 * @param module        handle
 * @param name          UTF-8
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_module_get_function(
    session: *const rejoin_session,
    out_function: *mut rejoin_handle,
    module: rejoin_handle,
    name: *const c_char,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_function, "out_function") }?;
        // SAFETY: pointers of C, as the header says.
        let name = unsafe { argument::text(name, "name") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Function, |made| request::module_get_function(made, VirtualHandle(module), name))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuModuleGetGlobal: recorded only, no backend executes it.
 *
 * @param session      open
 * @param module       handle
 * @param name         UTF-8
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_module_get_global(
    session: *const rejoin_session,
    module: rejoin_handle,
    name: *const c_char,
    out_address: *mut rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_address, "out_address") }?;
        // SAFETY: pointers of C, as the header says.
        let name = unsafe { argument::text(name, "name") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::module_get_global(VirtualHandle(module), name))?;
        out.set(value);
        Ok(())
    })
}

/**
 * cuFuncSetAttribute: recorded only, no backend executes it.
 *
 * @param session    open
 * @param function   handle
 * @param attribute  by value
 * @param value      by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_function_set_attribute(
    session: *const rejoin_session,
    function: rejoin_handle,
    attribute: i32,
    value: i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::function_set_attribute(VirtualHandle(function), attribute, value))?;
        Ok(())
    })
}

/**
 * dlopen: recorded only, no backend executes it.
 *
 * @param session  open
 * @param path     UTF-8
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_library_open(
    session: *const rejoin_session,
    path: *const c_char,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let path = unsafe { argument::text(path, "path") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::library_open(path))?;
        Ok(())
    })
}

/**
 * cuLibraryLoadData: recorded only, no backend executes it.
 *
 * @param session      open
 * @param out_library  set on OK: a virtual handle
 * @param image        copied
 * @param image_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_library_load(
    session: *const rejoin_session,
    out_library: *mut rejoin_handle,
    image: *const c_void,
    image_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_library, "out_library") }?;
        // SAFETY: pointers of C, as the header says.
        let image = unsafe { argument::bytes(image, image_bytes, "image") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Library, |made| request::library_load(made, image))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuLibraryUnload: recorded only, no backend executes it.
 *
 * @param session  open
 * @param library  handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_library_unload(
    session: *const rejoin_session,
    library: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::library_unload(VirtualHandle(library)))?;
        Ok(())
    })
}

/**
 * cuLibraryGetKernel: recorded only, no backend executes it.
 *
 * @param session       open
 * @param out_function  set on OK: a virtual handle
 * @param library       handle
 * @param name          UTF-8
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_library_get_kernel(
    session: *const rejoin_session,
    out_function: *mut rejoin_handle,
    library: rejoin_handle,
    name: *const c_char,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_function, "out_function") }?;
        // SAFETY: pointers of C, as the header says.
        let name = unsafe { argument::text(name, "name") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Function, |made| request::library_get_kernel(made, VirtualHandle(library), name))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuLaunchKernel: recorded, then executed.
 *
 * @param session       open
 * @param function      handle
 * @param grid_x        by value
 * @param grid_y        by value
 * @param grid_z        by value
 * @param block_x       by value
 * @param block_y       by value
 * @param block_z       by value
 * @param shared_bytes  by value
 * @param stream        handle; 0: the default stream
 * @param params        parameters one after the other, packed; copied
 * @param params_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_launch_kernel(
    session: *const rejoin_session,
    function: rejoin_handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: rejoin_handle,
    params: *const c_void,
    params_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let params = unsafe { argument::bytes(params, params_bytes, "params") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::launch_kernel(VirtualHandle(function), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, VirtualHandle(stream), params))?;
        Ok(())
    })
}

/**
 * cuLaunchCooperativeKernel: recorded only, no backend executes it.
 *
 * @param session       open
 * @param function      handle
 * @param grid_x        by value
 * @param grid_y        by value
 * @param grid_z        by value
 * @param block_x       by value
 * @param block_y       by value
 * @param block_z       by value
 * @param shared_bytes  by value
 * @param stream        handle; 0: the default stream
 * @param params        parameters one after the other, packed; copied
 * @param params_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_launch_cooperative(
    session: *const rejoin_session,
    function: rejoin_handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: rejoin_handle,
    params: *const c_void,
    params_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let params = unsafe { argument::bytes(params, params_bytes, "params") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::launch_cooperative(VirtualHandle(function), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, VirtualHandle(stream), params))?;
        Ok(())
    })
}

/**
 * ncclCommInitRankScalable: recorded only, no backend executes it.
 *
 * @param session   open
 * @param out_comm  set on OK: a virtual handle
 * @param nranks    by value
 * @param rank      by value
 * @param nid       by value
 * @param ids       copied
 * @param ids_len   how many
 * @param config    copied; NULL: the default
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_init_rank_scalable(
    session: *const rejoin_session,
    out_comm: *mut rejoin_handle,
    nranks: i32,
    rank: i32,
    nid: i32,
    ids: *const rejoin_unique_id,
    ids_len: usize,
    config: *const rejoin_comm_config,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_comm, "out_comm") }?;
        // SAFETY: pointers of C, as the header says.
        let ids = unsafe { argument::unique_ids(ids, ids_len, "ids") }?;
        // SAFETY: pointers of C, as the header says.
        let config = unsafe { communicator::config(config) }?.to_bytes();
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Communicator, |made| request::comm_init_rank_scalable(made, nranks, rank, nid, ids, &config))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclCommInitAll: recorded only, no backend executes it.
 *
 * @param session      open
 * @param ndev         by value
 * @param devices      copied
 * @param devices_len  how many
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_init_all(
    session: *const rejoin_session,
    ndev: i32,
    devices: *const i32,
    devices_len: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let devices = unsafe { argument::ranks(devices, devices_len, "devices") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_init_all(ndev, &devices))?;
        Ok(())
    })
}

/**
 * ncclCommShrink: recorded only, no backend executes it.
 *
 * @param session         open
 * @param comm            handle
 * @param excluded        copied
 * @param excluded_len    how many
 * @param excluded_count  by value
 * @param out_newcomm     set on OK: a virtual handle
 * @param config          copied; NULL: the default
 * @param flags           as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_shrink(
    session: *const rejoin_session,
    comm: rejoin_handle,
    excluded: *const i32,
    excluded_len: usize,
    excluded_count: i32,
    out_newcomm: *mut rejoin_handle,
    config: *const rejoin_comm_config,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_newcomm, "out_newcomm") }?;
        // SAFETY: pointers of C, as the header says.
        let excluded = unsafe { argument::ranks(excluded, excluded_len, "excluded") }?;
        // SAFETY: pointers of C, as the header says.
        let config = unsafe { communicator::config(config) }?.to_bytes();
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Communicator, |made| request::comm_shrink(VirtualHandle(comm), &excluded, excluded_count, made, &config, flags))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclCommGrow: recorded only, no backend executes it.
 *
 * @param session      open
 * @param comm         handle; may be 0
 * @param nranks       by value
 * @param id           copied
 * @param id_len       how many
 * @param rank         by value
 * @param out_newcomm  set on OK: a virtual handle
 * @param config       copied; NULL: the default
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_grow(
    session: *const rejoin_session,
    comm: rejoin_handle,
    nranks: i32,
    id: *const rejoin_unique_id,
    id_len: usize,
    rank: i32,
    out_newcomm: *mut rejoin_handle,
    config: *const rejoin_comm_config,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_newcomm, "out_newcomm") }?;
        // SAFETY: pointers of C, as the header says.
        let id = unsafe { argument::unique_ids(id, id_len, "id") }?;
        // SAFETY: pointers of C, as the header says.
        let config = unsafe { communicator::config(config) }?.to_bytes();
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Communicator, |made| request::comm_grow(VirtualHandle(comm), nranks, id, rank, made, &config))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclCommFinalize: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_finalize(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_finalize(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommDestroy: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_destroy(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_destroy(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommAbort: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_abort(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_abort(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommRevoke: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_revoke(
    session: *const rejoin_session,
    comm: rejoin_handle,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_revoke(VirtualHandle(comm), flags))?;
        Ok(())
    })
}

/**
 * ncclCommSuspend: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @param flags    as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_suspend(
    session: *const rejoin_session,
    comm: rejoin_handle,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_suspend(VirtualHandle(comm), flags))?;
        Ok(())
    })
}

/**
 * ncclCommResume: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_resume(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_resume(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommCount: recorded, then executed.
 *
 * @param session    open
 * @param comm       handle
 * @param out_count  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_count(
    session: *const rejoin_session,
    comm: rejoin_handle,
    out_count: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_count, "out_count") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::comm_count(VirtualHandle(comm)))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * ncclCommCuDevice: recorded, then executed.
 *
 * @param session     open
 * @param comm        handle
 * @param out_device  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_cu_device(
    session: *const rejoin_session,
    comm: rejoin_handle,
    out_device: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_device, "out_device") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::comm_cu_device(VirtualHandle(comm)))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * ncclCommUserRank: recorded, then executed.
 *
 * @param session   open
 * @param comm      handle
 * @param out_rank  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_user_rank(
    session: *const rejoin_session,
    comm: rejoin_handle,
    out_rank: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_rank, "out_rank") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::comm_user_rank(VirtualHandle(comm)))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * ncclCommGetAsyncError: recorded, then executed.
 *
 * @param session          open
 * @param comm             handle
 * @param out_async_error  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_get_async_error(
    session: *const rejoin_session,
    comm: rejoin_handle,
    out_async_error: *mut i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_async_error, "out_async_error") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::comm_get_async_error(VirtualHandle(comm)))?;
        out.set(value as u32 as i32);
        Ok(())
    })
}

/**
 * ncclCommMemStats: recorded only, no backend executes it.
 *
 * @param session    open
 * @param comm       handle
 * @param stat       by value
 * @param out_value  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_mem_stats(
    session: *const rejoin_session,
    comm: rejoin_handle,
    stat: i32,
    out_value: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_value, "out_value") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::comm_mem_stats(VirtualHandle(comm), stat))?;
        out.set(value);
        Ok(())
    })
}

/**
 * ncclGetLastError: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle; may be 0
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_get_last_error(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::get_last_error(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommRegister: recorded, then executed.
 *
 * @param session           open
 * @param comm              handle
 * @param buffer            in a live allocation
 * @param bytes             by value
 * @param out_registration  set on OK: a virtual handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_register(
    session: *const rejoin_session,
    comm: rejoin_handle,
    buffer: rejoin_device_ptr,
    bytes: u64,
    out_registration: *mut rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_registration, "out_registration") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Registration, |made| request::comm_register(VirtualHandle(comm), DevicePtr(buffer), bytes, made))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclCommDeregister: recorded, then executed.
 *
 * @param session       open
 * @param comm          handle
 * @param registration  handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_deregister(
    session: *const rejoin_session,
    comm: rejoin_handle,
    registration: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_deregister(VirtualHandle(comm), VirtualHandle(registration)))?;
        Ok(())
    })
}

/**
 * ncclCommWindowRegister: recorded only, no backend executes it.
 *
 * @param session     open
 * @param comm        handle
 * @param buffer      in a live allocation
 * @param bytes       by value
 * @param out_window  set on OK: a virtual handle
 * @param flags       as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_window_register(
    session: *const rejoin_session,
    comm: rejoin_handle,
    buffer: rejoin_device_ptr,
    bytes: u64,
    out_window: *mut rejoin_handle,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_window, "out_window") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Window, |made| request::comm_window_register(VirtualHandle(comm), DevicePtr(buffer), bytes, made, flags))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclCommWindowDeregister: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @param window   handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_window_deregister(
    session: *const rejoin_session,
    comm: rejoin_handle,
    window: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_window_deregister(VirtualHandle(comm), VirtualHandle(window)))?;
        Ok(())
    })
}

/**
 * ncclWinGetUserPtr: recorded only, no backend executes it.
 *
 * @param session      open
 * @param comm         handle
 * @param window       handle
 * @param out_address  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_win_get_user_ptr(
    session: *const rejoin_session,
    comm: rejoin_handle,
    window: rejoin_handle,
    out_address: *mut rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_address, "out_address") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::win_get_user_ptr(VirtualHandle(comm), VirtualHandle(window)))?;
        out.set(value);
        Ok(())
    })
}

/**
 * ncclRedOpCreatePreMulSum: recorded, then executed.
 *
 * @param session       open
 * @param out_op        set on OK: a virtual handle
 * @param scalar        copied
 * @param scalar_bytes  its length
 * @param datatype      a rejoin_data_type
 * @param residence     by value
 * @param comm          handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_redop_create_pre_mul_sum(
    session: *const rejoin_session,
    out_op: *mut rejoin_handle,
    scalar: *const c_void,
    scalar_bytes: usize,
    datatype: i32,
    residence: i32,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_op, "out_op") }?;
        // SAFETY: pointers of C, as the header says.
        let scalar = unsafe { argument::bytes(scalar, scalar_bytes, "scalar") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::RedOp, |made| request::redop_create_pre_mul_sum(made, scalar, datatype, residence, VirtualHandle(comm)))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclRedOpDestroy: recorded, then executed.
 *
 * @param session  open
 * @param op       handle; stale afterwards
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_redop_destroy(
    session: *const rejoin_session,
    op: rejoin_handle,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::redop_destroy(VirtualHandle(op), VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommInitNewRank: recorded only, no backend executes it.
 *
 * @param session      open
 * @param out_newcomm  set on OK: a virtual handle
 * @param nranks       by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_init_new_rank(
    session: *const rejoin_session,
    out_newcomm: *mut rejoin_handle,
    nranks: i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_newcomm, "out_newcomm") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Communicator, |made| request::comm_init_new_rank(made, nranks))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * ncclCommAddNewRank: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_add_new_rank(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_add_new_rank(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclCommSetupNewRank: recorded only, no backend executes it.
 *
 * @param session  open
 * @param comm     handle
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_setup_new_rank(
    session: *const rejoin_session,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::comm_setup_new_rank(VirtualHandle(comm)))?;
        Ok(())
    })
}

/**
 * ncclAllReduce: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param op        a rejoin_reduce_op, or the handle of one of the application's own
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_all_reduce(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    op: u64,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::all_reduce(DevicePtr(sendbuff), DevicePtr(recvbuff), count, datatype, argument::operator(op), VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclBroadcast: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_broadcast(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    root: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::broadcast(DevicePtr(sendbuff), DevicePtr(recvbuff), count, datatype, root, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclBcast: recorded, then executed.
 *
 * @param session   open
 * @param buff      in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_bcast(
    session: *const rejoin_session,
    buff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    root: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::bcast(DevicePtr(buff), count, datatype, root, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclReduce: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param op        a rejoin_reduce_op, or the handle of one of the application's own
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reduce(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    op: u64,
    root: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::reduce(DevicePtr(sendbuff), DevicePtr(recvbuff), count, datatype, argument::operator(op), root, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclAllGather: recorded, then executed.
 *
 * @param session    open
 * @param sendbuff   in a live allocation
 * @param recvbuff   in a live allocation
 * @param sendcount  by value
 * @param datatype   a rejoin_data_type
 * @param comm       handle
 * @param stream     handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_all_gather(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    sendcount: u64,
    datatype: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::all_gather(DevicePtr(sendbuff), DevicePtr(recvbuff), sendcount, datatype, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclReduceScatter: recorded, then executed.
 *
 * @param session    open
 * @param sendbuff   in a live allocation
 * @param recvbuff   in a live allocation
 * @param recvcount  by value
 * @param datatype   a rejoin_data_type
 * @param op         a rejoin_reduce_op, or the handle of one of the application's own
 * @param comm       handle
 * @param stream     handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reduce_scatter(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    recvcount: u64,
    datatype: i32,
    op: u64,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::reduce_scatter(DevicePtr(sendbuff), DevicePtr(recvbuff), recvcount, datatype, argument::operator(op), VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclAlltoAll: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_all_to_all(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::all_to_all(DevicePtr(sendbuff), DevicePtr(recvbuff), count, datatype, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclGather: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_gather(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    root: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::gather(DevicePtr(sendbuff), DevicePtr(recvbuff), count, datatype, root, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclScatter: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param root      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_scatter(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    root: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::scatter(DevicePtr(sendbuff), DevicePtr(recvbuff), count, datatype, root, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclSend: recorded, then executed.
 *
 * @param session   open
 * @param sendbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param peer      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_send(
    session: *const rejoin_session,
    sendbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    peer: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::send(DevicePtr(sendbuff), count, datatype, peer, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclRecv: recorded, then executed.
 *
 * @param session   open
 * @param recvbuff  in a live allocation
 * @param count     by value
 * @param datatype  a rejoin_data_type
 * @param peer      by value
 * @param comm      handle
 * @param stream    handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_recv(
    session: *const rejoin_session,
    recvbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    peer: i32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::recv(DevicePtr(recvbuff), count, datatype, peer, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclPutSignal: recorded only, no backend executes it.
 *
 * @param session    open
 * @param localbuff  in a live allocation
 * @param count      by value
 * @param datatype   a rejoin_data_type
 * @param peer       by value
 * @param window     handle
 * @param offset     by value
 * @param signal     by value
 * @param context    by value
 * @param flags      as in CUDA or NCCL
 * @param comm       handle
 * @param stream     handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_put_signal(
    session: *const rejoin_session,
    localbuff: rejoin_device_ptr,
    count: u64,
    datatype: i32,
    peer: i32,
    window: rejoin_handle,
    offset: u64,
    signal: i32,
    context: i32,
    flags: u32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::put_signal(DevicePtr(localbuff), count, datatype, peer, VirtualHandle(window), offset, signal, context, flags, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclSignal: recorded only, no backend executes it.
 *
 * @param session  open
 * @param peer     by value
 * @param signal   by value
 * @param context  by value
 * @param flags    as in CUDA or NCCL
 * @param comm     handle
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_signal(
    session: *const rejoin_session,
    peer: i32,
    signal: i32,
    context: i32,
    flags: u32,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::signal(peer, signal, context, flags, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclWaitSignal: recorded only, no backend executes it.
 *
 * @param session            open
 * @param count              by value
 * @param descriptors        copied
 * @param descriptors_bytes  its length
 * @param comm               handle
 * @param stream             handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_wait_signal(
    session: *const rejoin_session,
    count: i32,
    descriptors: *const c_void,
    descriptors_bytes: usize,
    comm: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let descriptors = unsafe { argument::bytes(descriptors, descriptors_bytes, "descriptors") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::wait_signal(count, descriptors, VirtualHandle(comm), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * ncclGroupStart: recorded, then executed.
 * Collectives of this thread are issued together by its rejoin_group_end().
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_group_start(
    session: *const rejoin_session,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::group_start())?;
        Ok(())
    })
}

/**
 * ncclGroupEnd: recorded, then executed.
 * Issues what this thread has collected since rejoin_group_start().
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_group_end(
    session: *const rejoin_session,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::group_end())?;
        Ok(())
    })
}

/**
 * ncclGroupSimulateEnd: recorded only, no backend executes it.
 *
 * @param session  open
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_group_simulate_end(
    session: *const rejoin_session,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::group_simulate_end())?;
        Ok(())
    })
}

/**
 * cuLaunchHostFunc: recorded only, no backend executes it.
 *
 * @param session   open
 * @param stream    handle; 0: the default stream
 * @param function  host memory, not NULL; stays until the call's work is done
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_host_callback(
    session: *const rejoin_session,
    stream: rejoin_handle,
    function: *mut c_void,
) -> rejoin_status {
    boundary(|| {
        let function = argument::pointer(function, "function")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::host_callback(VirtualHandle(stream), function))?;
        Ok(())
    })
}

/**
 * cuStreamAddCallback: recorded only, no backend executes it.
 *
 * @param session   open
 * @param stream    handle; 0: the default stream
 * @param function  host memory, not NULL; stays until the call's work is done
 * @param flags     as in CUDA or NCCL
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_stream_callback(
    session: *const rejoin_session,
    stream: rejoin_handle,
    function: *mut c_void,
    flags: u32,
) -> rejoin_status {
    boundary(|| {
        let function = argument::pointer(function, "function")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::stream_callback(VirtualHandle(stream), function, flags))?;
        Ok(())
    })
}

/**
 * cuStreamBeginCapture: recorded only, no backend executes it.
 *
 * @param session  open
 * @param stream   handle; 0: the default stream
 * @param mode     by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_capture_begin(
    session: *const rejoin_session,
    stream: rejoin_handle,
    mode: i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::capture_begin(VirtualHandle(stream), mode))?;
        Ok(())
    })
}

/**
 * cuStreamEndCapture: recorded only, no backend executes it.
 *
 * @param session    open
 * @param stream     handle; 0: the default stream
 * @param out_graph  set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_capture_end(
    session: *const rejoin_session,
    stream: rejoin_handle,
    out_graph: *mut *mut c_void,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_graph, "out_graph") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::capture_end(VirtualHandle(stream)))?;
        out.set(value as usize as *mut c_void);
        Ok(())
    })
}

/**
 * cuGraphInstantiate: recorded only, no backend executes it.
 *
 * @param session   open
 * @param out_exec  set on OK: a virtual handle
 * @param graph     host memory, not NULL; stays until the call's work is done
 * @param flags     by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_graph_instantiate(
    session: *const rejoin_session,
    out_exec: *mut rejoin_handle,
    graph: *mut c_void,
    flags: u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_exec, "out_exec") }?;
        let graph = argument::pointer(graph, "graph")?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::GraphExec, |made| request::graph_instantiate(made, graph, flags))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuGraphLaunch: recorded only, no backend executes it.
 *
 * @param session  open
 * @param exec     handle
 * @param stream   handle; 0: the default stream
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_graph_launch(
    session: *const rejoin_session,
    exec: rejoin_handle,
    stream: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::graph_launch(VirtualHandle(exec), VirtualHandle(stream)))?;
        Ok(())
    })
}

/**
 * cuGraphExecDestroy: recorded only, no backend executes it.
 *
 * @param session  open
 * @param exec     handle; stale afterwards
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_graph_exec_destroy(
    session: *const rejoin_session,
    exec: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::graph_exec_destroy(VirtualHandle(exec)))?;
        Ok(())
    })
}

/**
 * cuIpcGetMemHandle: recorded only, no backend executes it.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_ipc_get_mem_handle(
    session: *const rejoin_session,
    address: rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::ipc_get_mem_handle(DevicePtr(address)))?;
        Ok(())
    })
}

/**
 * cuIpcOpenMemHandle: recorded only, no backend executes it.
 *
 * @param session       open
 * @param handle        copied
 * @param handle_bytes  its length
 * @param flags         as in CUDA or NCCL
 * @param out_address   set on OK
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_ipc_open_mem_handle(
    session: *const rejoin_session,
    handle: *const c_void,
    handle_bytes: usize,
    flags: u32,
    out_address: *mut rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_address, "out_address") }?;
        // SAFETY: pointers of C, as the header says.
        let handle = unsafe { argument::bytes(handle, handle_bytes, "handle") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let value = object.session.send(&request::ipc_open_mem_handle(handle, flags))?;
        out.set(value);
        Ok(())
    })
}

/**
 * cuIpcCloseMemHandle: recorded only, no backend executes it.
 *
 * @param session  open
 * @param address  in a live allocation
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_ipc_close_mem_handle(
    session: *const rejoin_session,
    address: rejoin_device_ptr,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::ipc_close_mem_handle(DevicePtr(address)))?;
        Ok(())
    })
}

/**
 * cuIpcOpenEventHandle: recorded only, no backend executes it.
 *
 * @param session       open
 * @param out_event     set on OK: a virtual handle
 * @param handle        copied
 * @param handle_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_ipc_open_event_handle(
    session: *const rejoin_session,
    out_event: *mut rejoin_handle,
    handle: *const c_void,
    handle_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Out::new(out_event, "out_event") }?;
        // SAFETY: pointers of C, as the header says.
        let handle = unsafe { argument::bytes(handle, handle_bytes, "handle") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.create(HandleKind::Event, |made| request::ipc_open_event_handle(made, handle))?;
        out.set(made.0);
        Ok(())
    })
}

/**
 * cuMemImportFromShareableHandle: recorded only, no backend executes it.
 *
 * @param session       open
 * @param handle        copied
 * @param handle_bytes  its length
 * @param handle_type   by value
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_mem_import_handle(
    session: *const rejoin_session,
    handle: *const c_void,
    handle_bytes: usize,
    handle_type: i32,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let handle = unsafe { argument::bytes(handle, handle_bytes, "handle") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::mem_import_handle(handle, handle_type))?;
        Ok(())
    })
}

/**
 * cuImportExternalMemory: recorded only, no backend executes it.
 *
 * @param session           open
 * @param descriptor        copied
 * @param descriptor_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_external_memory_import(
    session: *const rejoin_session,
    descriptor: *const c_void,
    descriptor_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let descriptor = unsafe { argument::bytes(descriptor, descriptor_bytes, "descriptor") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::external_memory_import(descriptor))?;
        Ok(())
    })
}

/**
 * unknown call: recorded only, no backend executes it.
 *
 * @param session          open
 * @param name             UTF-8
 * @param arguments        copied
 * @param arguments_bytes  its length
 * @return see "What requests return"
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_unknown_call(
    session: *const rejoin_session,
    name: *const c_char,
    arguments: *const c_void,
    arguments_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let name = unsafe { argument::text(name, "name") }?;
        // SAFETY: pointers of C, as the header says.
        let arguments = unsafe { argument::bytes(arguments, arguments_bytes, "arguments") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        object.session.send(&request::unknown_call(name, arguments))?;
        Ok(())
    })
}
