//! Ending communicators.

use super::{boundary, if_not_null};
use crate::abi::{CommHandle, ResultCode};
use crate::comm::Comm;
use crate::error::Error;
use crate::{group, teardown};

/// `ncclCommFinalize`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(comm: CommHandle) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        group::within(|group| teardown::finalize(group, &comm))
    })
}

/// `ncclCommDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(comm: CommHandle) -> ResultCode {
    boundary(|| {
        if_not_null(comm, |comm| {
            let outcome = group::within(|group| teardown::destroy(group, &comm));
            teardown::after_destroy(&outcome);
            outcome
        })
    })
}

/// `ncclCommAbort`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(comm: CommHandle) -> ResultCode {
    boundary(|| if_not_null(comm, |comm| group::within(|group| teardown::abort(group, &comm))))
}

/// `ncclCommRevoke`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommRevoke(comm: CommHandle, flags: i32) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        if flags != 0 {
            return Err(Error::argument(format!("revoke flags {flags} are not 0")));
        }
        group::within(|group| teardown::revoke(group, &comm))
    })
}
