//! The status that every fallible function returns.

use core::ffi::c_char;

use journal_core::Status;

use crate::boundary;

macro_rules! statuses {
    ($($variant:ident $text:literal),* $(,)?) => {
        impl From<Status> for rejoin_status {
            fn from(status: Status) -> Self {
                match status {
                    $(Status::$variant => Self::$variant,)*
                }
            }
        }

        /// Every status with its text.
        pub const ALL: &[(rejoin_status, &core::ffi::CStr)] = &[$((rejoin_status::$variant, $text)),*];
    };
}

/// What a call ended with. Numbers are fixed and never reused, hundreds by stage; new ones may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum rejoin_status {
    /// Done.
    Ok = 0,
    /// Not a failure of the program: a rank failed, so the step runs again. Call rejoin_resume().
    Redo = 1,
    /// A pointer or handle that may not be NULL is.
    NullArgument = 100,
    /// An argument is wrong; the message says which and what is expected.
    InvalidArgument = 101,
    /// The call has no place here; the message says what comes first.
    WrongState = 102,
    /// The object was closed, or the job is over.
    Closed = 103,
    /// The object belongs to the process that forked this one.
    Forked = 104,
    /// This backend or version cannot do it.
    Unsupported = 105,
    /// A defect of Rejoin; nothing is known about what the call did.
    Panic = 106,
    /// Something asked for by name does not exist.
    NotFound = 200,
    /// The name is taken.
    Exists = 201,
    /// Not allowed for this user or process.
    Access = 202,
    /// Shared memory, address space or the handle table is full.
    NoSpace = 203,
    /// Written by, or asked of, a version that does not fit this one.
    Version = 204,
    /// Bytes are not what Rejoin wrote.
    Corrupt = 205,
    /// A system call failed.
    Io = 206,
    /// Nothing was written: the journal has no room.
    JournalFull = 300,
    /// The handle's object is gone, or recovery has not bound it again yet.
    StaleHandle = 301,
    /// The device failed the call.
    Device = 400,
    /// NCCL failed the call.
    Nccl = 401,
    /// A library is missing or too old.
    Library = 402,
    /// A wait passed its deadline; the message says who was waited for.
    Timeout = 500,
    /// This process was declared failed and replaced; it must end.
    Evicted = 501,
    /// The job ended without success.
    GaveUp = 502,
    /// State was lost that nobody holds.
    NotRecoverable = 503,
    /// Ranks disagree about what must be the same.
    Mismatch = 504,
}

statuses! {
    Ok c"ok",
    Redo c"a rank failed: call rejoin_resume and run the step again",
    NullArgument c"an argument is NULL",
    InvalidArgument c"an argument is wrong",
    WrongState c"the call has no place here",
    Closed c"closed, or the job is over",
    Forked c"the object belongs to the parent process",
    Unsupported c"this backend or version cannot do it",
    Panic c"a defect of rejoin",
    NotFound c"not found",
    Exists c"exists already",
    Access c"access denied",
    NoSpace c"no space",
    Version c"version does not fit",
    Corrupt c"corrupt",
    Io c"a system call failed",
    JournalFull c"the journal is full",
    StaleHandle c"the handle has no object",
    Device c"device error",
    Nccl c"NCCL error",
    Library c"a library is missing or too old",
    Timeout c"timed out",
    Evicted c"this process was declared failed and replaced",
    GaveUp c"the job gave up",
    NotRecoverable c"state is lost",
    Mismatch c"ranks disagree",
}

/**
 * A short text for a status; "unknown status" for any other number.
 *
 * @param status  any number
 * @return static text, never NULL
 * Threads: any, concurrently. Async-signal-safe.
 */
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_status_string(status: i32) -> *const c_char {
    ALL.iter().find(|(known, _)| *known as i32 == status).map_or(c"unknown status", |(_, text)| text).as_ptr()
}

/**
 * What this thread's last failing call has to say, in a sentence that says what to do.
 *
 * @return UTF-8, never NULL, empty before the thread's first failure; valid until the thread's next call
 * Threads: any; each has its own message.
 */
#[unsafe(no_mangle)]
pub extern "C" fn rejoin_last_error() -> *const c_char {
    boundary::last_message()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_cores_and_every_status_has_a_text() {
        for (status, text) in ALL {
            let core = Status::from_number(*status as i32).unwrap_or_else(|| panic!("{status:?} is not in the core"));
            assert_eq!(rejoin_status::from(core), *status);
            assert!(!text.is_empty());
        }
        for core in Status::ALL {
            assert_eq!(rejoin_status::from(core) as i32, core as i32);
        }
    }
}
