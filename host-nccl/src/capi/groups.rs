//! Groups.

use super::boundary;
use crate::abi::{self, ResultCode};
use crate::group;

/// `ncclGroupStart`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> ResultCode {
    boundary(|| {
        group::start();
        Ok(abi::SUCCESS)
    })
}

/// `ncclGroupEnd`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> ResultCode {
    boundary(group::end)
}
