//! What every exported function runs inside: errors become a status and this thread's message, a panic stops.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use journal_core::error::Error;
use journal_core::handle::HandleError;
use journal_core::journal::{AppendError, LoadError, SegmentError};
use journal_core::request::DecodeError;

use crate::status::rejoin_status;

/// Why a call of C failed.
#[derive(Debug)]
pub struct Failure {
    pub status: rejoin_status,
    pub message: String,
}

pub type Result<T> = core::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: rejoin_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub fn null(name: &str) -> Self {
        Self::new(rejoin_status::NullArgument, format!("{name} is NULL"))
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(rejoin_status::InvalidArgument, message)
    }
}

/// An error's text, and below it what the system said.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        let below = found.to_string();
        // Some texts have their cause's in them already.
        if !text.contains(&below) {
            text = format!("{text}: {below}");
        }
        cause = found.source();
    }
    text
}

macro_rules! from {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.status().into(), with_causes(&error))
            }
        }
    )*};
}

from!(Error, AppendError, SegmentError, LoadError, HandleError);

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::invalid(error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// This thread's last message; empty before its first failure, and while the thread ends.
pub fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map_or(c"".as_ptr(), |text| text.as_ptr())).unwrap_or(c"".as_ptr())
}

#[cold]
fn keep(failure: Failure) -> rejoin_status {
    let mut text = failure.message.into_bytes();
    text.retain(|byte| *byte != 0);
    let text = CString::new(text).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(text));
    failure.status
}

/// Runs the body of an exported function.
#[inline]
pub fn boundary(body: impl FnOnce() -> Result<()>) -> rejoin_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => rejoin_status::Ok,
        Ok(Err(failure)) => keep(failure),
        Err(payload) => keep(panicked(&*payload)),
    }
}

/// As [`boundary`], for functions that give something else than a status: `neutral` stands for a failure.
pub fn boundary_or<T>(neutral: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut value = neutral;
    boundary(|| {
        value = body()?;
        Ok(())
    });
    value
}

#[cold]
fn panicked(payload: &(dyn core::any::Any + Send)) -> Failure {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    Failure::new(rejoin_status::Panic, format!("a defect of rejoin, please report it: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn message() -> String {
        // SAFETY: never NULL, valid until this thread's next failing call.
        #[allow(unsafe_code)]
        let text = unsafe { CStr::from_ptr(last_message()) };
        text.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn a_panic_is_a_status_with_its_text() {
        assert_eq!(boundary(|| panic!("seven {}", 7)), rejoin_status::Panic);
        assert!(message().ends_with("seven 7"), "{}", message());
        assert_eq!(boundary_or(5, || panic!()), 5);
    }

    #[test]
    fn a_failed_system_call_says_what_the_system_said() {
        let source = std::io::Error::from_raw_os_error(libc::EMFILE);
        let failure = Failure::from(Error::from(SegmentError::Io { name: "rejoin.a.r0.0".into(), action: "open", source }));
        assert_eq!(failure.status, rejoin_status::Io);
        assert!(failure.message.starts_with("could not open rejoin.a.r0.0: Too many open files"), "{}", failure.message);
    }

    #[test]
    fn a_message_belongs_to_its_thread_and_loses_only_zero_bytes() {
        boundary(|| Err(Failure::invalid("a\0b")));
        assert_eq!(message(), "ab");
        std::thread::spawn(|| assert_eq!(message(), "")).join().expect("no message there");
    }
}
