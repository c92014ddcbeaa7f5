//! Queries, and user-defined operators.

use core::ffi::{c_char, c_void};
use std::sync::PoisonError;

use super::{boundary, put};
use crate::abi::{self, CommHandle, ResultCode};
use crate::collective::{Reduction, read_scalar};
use crate::comm::Comm;
use crate::datatype::DataType;
use crate::error::{self, Error};
use crate::reduce::Operator;

/// `ncclGetVersion`.
///
/// # Safety
/// `version` is NULL or writable. The same holds for the outputs of all calls of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut i32) -> ResultCode {
    boundary(|| {
        // SAFETY: the caller's promise.
        unsafe { put(version, "version", abi::VERSION_CODE) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclGetErrorString`: a text for every code.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: ResultCode) -> *const c_char {
    error::describe(code).as_ptr()
}

/// `ncclGetLastError`: the last message of any thread; valid until this thread asks again.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: CommHandle) -> *const c_char {
    std::panic::catch_unwind(error::last).unwrap_or(c"".as_ptr())
}

/// `ncclCommGetAsyncError`.
///
/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: CommHandle, result: *mut ResultCode) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        // SAFETY: the caller's promise.
        unsafe { put(result, "asyncError", comm.result()) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommCount`.
///
/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(comm: CommHandle, count: *mut i32) -> ResultCode {
    boundary(|| {
        let link = Comm::from_handle(comm)?.ready()?;
        // SAFETY: the caller's promise.
        unsafe { put(count, "count", link.nranks as i32) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommCuDevice`.
///
/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(comm: CommHandle, device: *mut i32) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        comm.ready()?;
        // SAFETY: the caller's promise.
        unsafe { put(device, "device", comm.device) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommUserRank`.
///
/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(comm: CommHandle, rank: *mut i32) -> ResultCode {
    boundary(|| {
        let link = Comm::from_handle(comm)?.ready()?;
        // SAFETY: the caller's promise.
        unsafe { put(rank, "rank", link.rank as i32) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclRedOpCreatePreMulSum`.
///
/// # Safety
/// As [`ncclGetVersion`]; `scalar` has one element, and with `ncclScalarDevice` stays valid until the last
/// operation that uses it has run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    op: *mut i32,
    scalar: *mut c_void,
    datatype: i32,
    residence: i32,
    comm: CommHandle,
) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        comm.ready()?;
        let datatype = DataType::from_code(datatype)?;
        if op.is_null() || scalar.is_null() {
            return Err(Error::argument("op or scalar is NULL"));
        }
        let address = scalar.expose_provenance();
        let reduction = match residence {
            abi::SCALAR_DEVICE => Reduction::ScalarAt(address),
            abi::SCALAR_HOST_IMMEDIATE => Reduction::Fixed(Operator::PreMulSum(read_scalar(address, datatype))),
            _ => return Err(Error::argument(format!("residence {residence} is neither device (0) nor host (1)"))),
        };
        let value = comm.redops.lock().unwrap_or_else(PoisonError::into_inner).create(datatype, reduction)?;
        // SAFETY: the caller's promise.
        unsafe { put(op, "op", value) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclRedOpDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRedOpDestroy(op: i32, comm: CommHandle) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        comm.redops.lock().unwrap_or_else(PoisonError::into_inner).destroy(op)?;
        Ok(abi::SUCCESS)
    })
}
