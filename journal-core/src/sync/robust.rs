//! A robust, process-shared mutex in shared memory: the kernel's own proof that a thread is gone.
//!
//! Whoever holds it and dies, by whatever signal, has it marked by the kernel; the next locker gets
//! [`Lock::OwnerDied`]. Nothing is guessed from time or process ids.
//! The mutex is initialised by the creator's libc; a process with another libc must not lock it.

use std::time::Duration;

/// Bytes reserved for a mutex in every layout (glibc needs 40 on x86-64).
pub const ROBUST_MUTEX_BYTES: u64 = 64;
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= ROBUST_MUTEX_BYTES as usize);

/// How an attempt to lock ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Locked by this thread.
    Acquired,
    /// Locked by this thread, and the previous holder died with it. Call [`RobustMutex::make_consistent`]
    /// before unlocking, or it becomes unusable for everybody.
    OwnerDied,
    /// Held by a live thread (or the limit passed).
    Busy,
    /// The mutex cannot be used any more (left inconsistent) or was never initialised.
    Unusable(i32),
}

/// Who holds a mutex, read from its first word without locking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// It is free.
    Nobody,
    /// A live thread.
    Alive,
    /// A thread that died with it, and nobody has taken it since.
    Died,
}

impl Holder {
    /// `word` is what the kernel's list of robust futexes works on (FUTEX_TID_MASK, FUTEX_OWNER_DIED); glibc keeps it
    /// first in a mutex. Reading it changes nothing, so a read-only mapping will do.
    pub fn from_word(word: u32) -> Self {
        if word & libc::FUTEX_OWNER_DIED != 0 {
            Self::Died
        } else if word & libc::FUTEX_TID_MASK != 0 {
            Self::Alive
        } else {
            Self::Nobody
        }
    }
}

unsafe extern "C" {
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        deadline: *const libc::timespec,
    ) -> libc::c_int;
}

/// A mutex at a fixed address of a mapping. The holder keeps the mapping alive.
#[derive(Debug, Clone, Copy)]
pub struct RobustMutex(*mut libc::pthread_mutex_t);

// SAFETY: pthread mutexes that are process-shared may be used from any thread.
unsafe impl Send for RobustMutex {}
// SAFETY: as above; every method only passes the pointer to libc.
unsafe impl Sync for RobustMutex {}

impl RobustMutex {
    /// # Safety
    /// `at` points to [`ROBUST_MUTEX_BYTES`] writable bytes, 8-aligned, mapped for as long as any copy
    /// of the result is used, and holds either an initialised mutex or is about to get [`Self::init`].
    pub unsafe fn at(at: *mut u8) -> Self {
        Self(at.cast())
    }

    /// Initialises it as process-shared and robust. Only by the creator, before anyone else can see it.
    pub fn init(&self) -> std::io::Result<()> {
        let mut attr = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let check = |rc: i32| if rc == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(rc)) };
        // SAFETY: initialises the attribute object.
        check(unsafe { libc::pthread_mutexattr_init(attr.as_mut_ptr()) })?;
        // SAFETY: initialised above.
        check(unsafe { libc::pthread_mutexattr_setpshared(attr.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) })?;
        // SAFETY: initialised above.
        check(unsafe { libc::pthread_mutexattr_setrobust(attr.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) })?;
        // SAFETY: `at` promised room for a mutex; the attribute is initialised.
        check(unsafe { libc::pthread_mutex_init(self.0, attr.as_ptr()) })?;
        // SAFETY: initialised above, not used again.
        check(unsafe { libc::pthread_mutexattr_destroy(attr.as_mut_ptr()) })
    }

    /// Locks if nobody holds it. Never blocks.
    pub fn try_lock(&self) -> Lock {
        // SAFETY: `at` promised an initialised mutex.
        outcome(unsafe { libc::pthread_mutex_trylock(self.0) })
    }

    /// Locks, waiting at most `limit` (CLOCK_MONOTONIC).
    pub fn lock_for(&self, limit: Duration) -> Lock {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        let nanos = now.tv_nsec + i64::from(limit.subsec_nanos());
        let deadline = libc::timespec {
            tv_sec: now.tv_sec + i64::try_from(limit.as_secs()).unwrap_or(i64::MAX / 2) + nanos / 1_000_000_000,
            tv_nsec: nanos % 1_000_000_000,
        };
        // SAFETY: `at` promised an initialised mutex; the deadline outlives the call.
        outcome(unsafe { pthread_mutex_clocklock(self.0, libc::CLOCK_MONOTONIC, &raw const deadline) })
    }

    /// After [`Lock::OwnerDied`]: the protected state is whole again.
    pub fn make_consistent(&self) {
        // SAFETY: `at` promised an initialised mutex; an error (not ours) changes nothing.
        unsafe { libc::pthread_mutex_consistent(self.0) };
    }

    /// Unlocks; only the thread that locked it.
    pub fn unlock(&self) {
        // SAFETY: `at` promised an initialised mutex; a robust mutex refuses a foreign unlock with EPERM.
        unsafe { libc::pthread_mutex_unlock(self.0) };
    }
}

fn outcome(rc: i32) -> Lock {
    match rc {
        0 => Lock::Acquired,
        libc::EOWNERDEAD => Lock::OwnerDied,
        libc::EBUSY | libc::ETIMEDOUT => Lock::Busy,
        other => Lock::Unusable(other),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{HeapWords, Ordering, Words};

    #[test]
    fn the_holder_is_read_without_locking() {
        let words = HeapWords::zeroed(ROBUST_MUTEX_BYTES);
        let holder = || Holder::from_word(words.word(0).load(Ordering::Acquire) as u32);
        // SAFETY: ROBUST_MUTEX_BYTES of zeroed, 8-aligned memory that outlives the mutex.
        let mutex = unsafe { RobustMutex::at(words.word(0).as_ptr().cast()) };
        mutex.init().expect("a mutex");
        assert_eq!(holder(), Holder::Nobody);
        assert_eq!(mutex.try_lock(), Lock::Acquired);
        assert_eq!(holder(), Holder::Alive);
        mutex.unlock();
        assert_eq!(holder(), Holder::Nobody);
        std::thread::spawn(move || assert_eq!(mutex.try_lock(), Lock::Acquired)).join().expect("a thread that dies holding it");
        assert_eq!(holder(), Holder::Died);
        assert_eq!(mutex.try_lock(), Lock::OwnerDied);
        mutex.make_consistent();
        mutex.unlock();
    }
}
