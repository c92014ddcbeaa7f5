//! Which device buffers must be right after a recovery.

use core::ffi::c_char;

use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;
use journal_core::session::StateKind;

use crate::argument::text;
use crate::boundary::{Failure, Result, boundary};
use crate::handle::rejoin_handle;
use crate::memory::rejoin_device_ptr;
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;

/// Where a buffer's content comes from after a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_state_kind {
    /// The same on all ranks of its communicator; from one of them. Written only after GO.
    Replicated = 1,
    /// The rank's own, final at rejoin_step_end(); from the copy made there.
    PerRank = 2,
    /// Zeroed whenever a step begins.
    Scratch = 3,
    /// Written in set-up only; a replacement's own set-up writes it again, and its content is compared.
    Constant = 4,
}

/**
 * Tells recovery about a device buffer. In set-up, after the communicator was made.
 *
 * @param session  in set-up
 * @param name     UTF-8, 1 to 64 bytes, unique in the rank
 * @param address  within one live allocation
 * @param bytes    its length
 * @param kind     a rejoin_state_kind
 * @param comm     whose ranks hold replicas; 0 where there are none
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_STALE_HANDLE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_state_register(
    session: *const rejoin_session,
    name: *const c_char,
    address: rejoin_device_ptr,
    bytes: u64,
    kind: u32,
    comm: rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let name = unsafe { text(name, "name") }?;
        let kind = kind_of(kind, name)?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let clique = (comm != 0).then_some(VirtualHandle(comm));
        Ok(object.session.state_register(name, DevicePtr(address), bytes, kind, clique)?)
    })
}

pub(crate) fn kind_of(number: u32, name: &str) -> Result<StateKind> {
    StateKind::from_number(number)
        .ok_or_else(|| Failure::invalid(format!("kind {number} of state {name:?} is not a rejoin_state_kind")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_cores_numbers() {
        use rejoin_state_kind as C;
        for (c, core) in [
            (C::Replicated, StateKind::Replicated),
            (C::PerRank, StateKind::PerRank),
            (C::Scratch, StateKind::Scratch),
            (C::Constant, StateKind::Constant),
        ] {
            assert_eq!(c as u32, core as u32);
        }
    }
}
