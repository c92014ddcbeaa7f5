//! Memory: allocation and registration. Registering changes nothing here, but handles are checked.

use core::alloc::Layout;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::{boundary, put};
use crate::abi::{self, CommHandle, ResultCode};
use crate::comm::Comm;
use crate::error::{Error, Result};

/// Address and layout of what ncclMemAlloc gave and nobody has freed.
static ALLOCATED: LazyLock<Mutex<HashMap<usize, Layout>>> = LazyLock::new(Mutex::default);
static NEXT_REGISTRATION: AtomicUsize = AtomicUsize::new(0x5247_0000_0100);

/// Pages, like device allocations.
const ALIGNMENT: usize = 4096;

/// `ncclMemAlloc`: zeroed and page-aligned.
///
/// # Safety
/// `out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(out: *mut *mut c_void, bytes: usize) -> ResultCode {
    boundary(|| {
        if out.is_null() || bytes == 0 {
            return Err(Error::argument("ptr is NULL or the size is 0"));
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT)
            .map_err(|_| Error::argument(format!("a size of {bytes} bytes is out of range")))?;
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(Error::system("malloc", format_args!("no {bytes} bytes of memory")));
        }
        ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).insert(memory.addr(), layout);
        // SAFETY: the caller's promise.
        unsafe { put(out, "ptr", memory.cast()) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclMemFree`: NULL does nothing.
///
/// # Safety
/// Nobody uses the memory afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemFree(memory: *mut c_void) -> ResultCode {
    boundary(|| {
        if memory.is_null() {
            return Ok(abi::SUCCESS);
        }
        let found = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner).remove(&memory.addr());
        let layout = found.ok_or_else(|| Error::argument(format!("{memory:p} is not from ncclMemAlloc, or was freed")))?;
        // SAFETY: allocated with this layout, and taken out of the table once.
        unsafe { std::alloc::dealloc(memory.cast(), layout) };
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommRegister`.
///
/// # Safety
/// `handle` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    comm: CommHandle,
    buffer: *mut c_void,
    bytes: usize,
    handle: *mut *mut c_void,
) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        comm.ready()?;
        if buffer.is_null() || bytes == 0 {
            return Err(Error::argument("the buffer is NULL or empty"));
        }
        let value = NEXT_REGISTRATION.fetch_add(0x100, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { put(handle, "handle", core::ptr::without_provenance_mut(value)) }?;
        let mut registrations = comm.registrations.lock().unwrap_or_else(PoisonError::into_inner);
        registrations.insert(value, (buffer.addr(), bytes));
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommDeregister`: NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(comm: CommHandle, handle: *mut c_void) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        deregister(&comm, handle)?;
        Ok(abi::SUCCESS)
    })
}

fn deregister(comm: &Comm, handle: *mut c_void) -> Result<()> {
    if handle.is_null() {
        return Ok(());
    }
    let mut registrations = comm.registrations.lock().unwrap_or_else(PoisonError::into_inner);
    let removed = registrations.remove(&handle.addr());
    removed.map(|_| ()).ok_or_else(|| Error::argument(format!("{handle:p} is no registration of this communicator")))
}
