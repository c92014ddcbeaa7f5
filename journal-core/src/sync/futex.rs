//! Shared futexes with absolute CLOCK_MONOTONIC deadlines.
//!
//! Waits are never private to the process, so a word in shared memory wakes other processes.

use core::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Why a wait returned. A caller re-checks its own condition in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Woken, interrupted, or the word did not hold the expected value.
    Woken,
    /// The deadline passed.
    TimedOut,
}

/// Sleeps while `word` holds `expected`, until woken or `deadline`.
pub fn wait(word: &AtomicU32, expected: u32, deadline: Instant) -> Wait {
    let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
        return Wait::TimedOut;
    };
    wait_for(word, expected, left)
}

/// [`wait`] with a relative limit.
pub fn wait_for(word: &AtomicU32, expected: u32, limit: Duration) -> Wait {
    let time = libc::timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: FUTEX_WAIT reads the aligned u32 that `word` borrows and the timespec above, both alive
    // for the call. The relative timeout of FUTEX_WAIT is measured on CLOCK_MONOTONIC.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            core::ptr::from_ref(word),
            libc::FUTEX_WAIT,
            expected,
            core::ptr::from_ref(&time),
            core::ptr::null::<u32>(),
            0,
        )
    };
    if rc == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
        return Wait::TimedOut;
    }
    Wait::Woken
}

/// Wakes every waiter of `word`, in any process.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE only uses the address of the aligned u32 that `word` borrows.
    unsafe {
        libc::syscall(libc::SYS_futex, core::ptr::from_ref(word), libc::FUTEX_WAKE, i32::MAX);
    }
}
