//! Copies and fills, as they run on a worker.

use super::queue::Operation;
use crate::backend::Copy;

/// Addresses on their way to the worker.
struct Range {
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
}
// SAFETY: the device owns its window, and `Device::copy` asks that host ranges stay valid until the copy is done.
unsafe impl Send for Range {}

/// Device ranges have been checked against live allocations.
pub(super) fn copy(copy: Copy, bytes: u64) -> Operation {
    let (dst, src) = match copy {
        Copy::HostToDevice { dst, src } => (dst.0 as *mut u8, src),
        Copy::DeviceToHost { dst, src } => (dst, src.0 as *const u8),
        Copy::DeviceToDevice { dst, src } => (dst.0 as *mut u8, src.0 as *const u8),
    };
    let range = Range { dst, src, bytes: bytes as usize };
    Box::new(move || {
        let range = range;
        // SAFETY: the device range is committed, the host range is valid by the contract of `Device::copy`;
        // ranges within the device may overlap, which `copy` allows.
        unsafe { core::ptr::copy(range.src, range.dst, range.bytes) };
        Ok(())
    })
}

/// The range has been checked against live allocations.
pub(super) fn fill(dst: u64, value: u8, bytes: u64) -> Operation {
    let range = Range { dst: dst as *mut u8, src: core::ptr::null(), bytes: bytes as usize };
    Box::new(move || {
        let range = range;
        // SAFETY: a committed range of the device's window.
        unsafe { core::ptr::write_bytes(range.dst, value, range.bytes) };
        Ok(())
    })
}
