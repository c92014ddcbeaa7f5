//! What a full journal does, as options of C say it.

use core::ffi::c_char;
use std::time::Duration;

use journal_core::journal::OverflowPolicy;

use crate::argument::text;
use crate::boundary::{Failure, Result};

/// What an append does when the journal is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_journal_policy {
    /// Returns REJOIN_STATUS_JOURNAL_FULL.
    Error = 1,
    /// In the step region: waits for a step's commit to make room. In the set-up region, as ERROR.
    Block = 2,
    /// Makes further segments in shared memory.
    Grow = 3,
    /// Makes further segments as files, with the capacity of a disk.
    Spill = 4,
}

/// The fields of an options struct that are about the policy.
pub(crate) struct PolicyFields {
    pub policy: u32,
    pub block_timeout_ms: u64,
    pub grow_limit_bytes: u64,
    pub spill_directory: *const c_char,
}

impl PolicyFields {
    /// `None`: the default. Fields of other policies than the chosen one do not matter.
    ///
    /// # Safety
    /// The directory is NULL or a terminated string.
    pub unsafe fn to_policy(&self) -> Result<Option<OverflowPolicy>> {
        use rejoin_journal_policy as P;
        let given = |value: u64, name: &str| match value {
            0 => Err(Failure::invalid(format!("options.{name} is 0: the policy needs it"))),
            value => Ok(value),
        };
        Ok(Some(match self.policy {
            0 => return Ok(None),
            n if n == P::Error as u32 => OverflowPolicy::Error,
            n if n == P::Block as u32 => {
                let timeout = Duration::from_millis(given(self.block_timeout_ms, "block_timeout_ms")?);
                OverflowPolicy::Block { timeout }
            }
            n if n == P::Grow as u32 => {
                OverflowPolicy::Grow { limit_bytes: given(self.grow_limit_bytes, "grow_limit_bytes")? }
            }
            n if n == P::Spill as u32 => {
                // SAFETY: the caller's promise.
                let directory = unsafe { text(self.spill_directory, "options.spill_directory") }?;
                OverflowPolicy::Spill { directory: directory.into() }
            }
            n => return Err(Failure::invalid(format!("policy {n}: use a rejoin_journal_policy"))),
        }))
    }
}

/// A policy's number.
pub(crate) fn number(policy: &OverflowPolicy) -> u32 {
    use rejoin_journal_policy as P;
    match policy {
        OverflowPolicy::Error => P::Error as u32,
        OverflowPolicy::Block { .. } => P::Block as u32,
        OverflowPolicy::Grow { .. } => P::Grow as u32,
        OverflowPolicy::Spill { .. } => P::Spill as u32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::rejoin_status;

    fn of(policy: u32, block_timeout_ms: u64, grow_limit_bytes: u64, directory: Option<&core::ffi::CStr>) -> Result<Option<OverflowPolicy>> {
        let spill_directory = directory.map_or(core::ptr::null(), core::ffi::CStr::as_ptr);
        let fields = PolicyFields { policy, block_timeout_ms, grow_limit_bytes, spill_directory };
        // SAFETY: a literal or NULL.
        unsafe { fields.to_policy() }
    }

    #[test]
    fn each_policy_needs_its_own_field_and_keeps_its_number() {
        assert_eq!(of(0, 1, 1, None).expect("the default"), None);
        for (n, text) in [(1, "error"), (2, "block:7"), (3, "grow:8"), (4, "spill:/tmp")] {
            let policy = of(n, 7, 8, Some(c"/tmp")).expect("complete").expect("a policy");
            assert_eq!((policy.to_string().as_str(), number(&policy)), (text, n));
        }
        assert!(of(2, 0, 8, None).expect_err("no time").message.contains("block_timeout_ms"));
        assert!(of(3, 7, 0, None).expect_err("no limit").message.contains("grow_limit_bytes"));
        assert_eq!(of(4, 7, 8, None).expect_err("no folder").status, rejoin_status::NullArgument);
        assert_eq!(of(5, 7, 8, None).expect_err("no policy").status, rejoin_status::InvalidArgument);
    }
}
