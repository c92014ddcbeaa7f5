//! The exported functions: arguments are checked and made into safe values, everything else is elsewhere.
//!
//! What each function does, returns and refuses stands in `include/rejoin_host_nccl.h`.
#![allow(non_snake_case)]

mod collectives;
mod groups;
mod host;
mod init;
mod memory;
mod queries;
mod teardown;

pub use self::{collectives::*, groups::*, host::*, init::*, memory::*, queries::*, teardown::*};

use crate::abi::{self, CommHandle, NcclUniqueId, ResultCode};
use crate::comm::Comm;
use crate::error::{self, Error, Result};
use crate::unique_id::UniqueId;

/// Runs the body of an exported function: errors become codes, a panic never crosses into C.
fn boundary(body: impl FnOnce() -> Result<ResultCode>) -> ResultCode {
    let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Error::system("host-nccl", "panicked: please report this")));
    outcome.unwrap_or_else(|error| error::note(&error))
}

/// Writes an output.
///
/// # Safety
/// `out` is NULL or writable.
unsafe fn put<T>(out: *mut T, what: &str, value: T) -> Result<()> {
    if out.is_null() {
        return Err(Error::argument(format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Reads a unique id argument.
///
/// # Safety
/// `id` is NULL or readable.
unsafe fn read_id(id: *const NcclUniqueId) -> Result<Option<UniqueId>> {
    if id.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise; any bytes are a value.
    let id = unsafe { id.read_unaligned() };
    UniqueId::from_bytes(&id.internal).map(Some)
}

fn need_id(id: Option<UniqueId>) -> Result<UniqueId> {
    id.ok_or_else(|| Error::argument("the unique id is NULL"))
}

/// Destroy and abort of NULL do nothing, as in NCCL.
fn if_not_null(
    comm: CommHandle,
    act: impl FnOnce(std::sync::Arc<Comm>) -> Result<ResultCode>,
) -> Result<ResultCode> {
    if comm.is_null() {
        return Ok(abi::SUCCESS);
    }
    act(Comm::from_handle(comm)?)
}
