//! Versions: of the package, and of the ABI.

use core::ffi::c_char;

use crate::boundary::{Failure, boundary};
use crate::status::rejoin_status;

/// Grows with every incompatible change of this header; also the number in the soname.
pub const REJOIN_ABI_VERSION: u32 = 0;
/// The package, which is not the ABI and not the journal's format.
pub const REJOIN_VERSION_MAJOR: u32 = 0;
/// The package.
pub const REJOIN_VERSION_MINOR: u32 = 1;
/// The package.
pub const REJOIN_VERSION_PATCH: u32 = 0;

/**
 * The version of the library, such as "0.1.0".
 *
 * @return static text, never NULL
 * Threads: any, concurrently. Async-signal-safe.
 */
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_version() -> *const c_char {
    const TEXT: &core::ffi::CStr =
        match core::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("a version has no zero bytes"),
        };
    TEXT.as_ptr()
}

/**
 * Checks that the library speaks the ABI that the program was compiled for.
 *
 *     if (rejoin_abi_check(REJOIN_ABI_VERSION) != REJOIN_STATUS_OK) exit(1);
 *
 * @param abi_version  REJOIN_ABI_VERSION
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_VERSION
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_abi_check(abi_version: u32) -> rejoin_status {
    boundary(|| {
        if abi_version == REJOIN_ABI_VERSION {
            return Ok(());
        }
        Err(Failure::new(
            rejoin_status::Version,
            format!("the program was compiled for ABI {abi_version}, this library has ABI {REJOIN_ABI_VERSION}; compile it again with this library's rejoin.h"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_packages() {
        let text = format!("{REJOIN_VERSION_MAJOR}.{REJOIN_VERSION_MINOR}.{REJOIN_VERSION_PATCH}");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
    }
}
