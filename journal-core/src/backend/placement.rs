//! Where a device's window begins: the same in every incarnation, so that recorded pointers stay valid.

use super::{DeviceError, DeviceResult};

/// First address of the first session's window. Addresses around 0x600000000000 collide with gcc's
/// AddressSanitizer; CUDA honours this one too.
pub const WINDOW_BASE: u64 = 0x4000_0000_0000;
/// End of the addresses that a window may use.
const WINDOW_END: u64 = 0x7000_0000_0000;

/// Base of the window of the n-th session of a process.
pub(super) fn place(session_index: u32, bytes: u64) -> DeviceResult<u64> {
    let base = bytes.checked_mul(u64::from(session_index)).and_then(|offset| WINDOW_BASE.checked_add(offset));
    base.filter(|base| base.checked_add(bytes).is_some_and(|end| end <= WINDOW_END)).ok_or_else(|| DeviceError::Window {
        base: WINDOW_BASE,
        bytes,
        reason: format!("session {session_index} would end above {WINDOW_END:#x}; use a smaller window"),
    })
}
