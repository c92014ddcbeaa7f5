//! Virtual handles: what an application holds instead of an object that recovery may have to replace.

use journal_core::handle::{HandleKind, VirtualHandle};

use crate::argument::Out;
use crate::boundary::{Failure, Result, boundary};
use crate::journal::{enter, rejoin_journal};
use crate::status::rejoin_status;

/// A virtual handle: never 0, never the value of a pointer.
pub type rejoin_handle = u64;

/// What a virtual handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_handle_kind {
    /// ncclComm_t.
    Communicator = 1,
    /// CUstream.
    Stream = 2,
    /// CUevent.
    Event = 3,
    /// CUmodule.
    Module = 4,
    /// CUfunction.
    Function = 5,
    /// CUgraphExec.
    GraphExec = 6,
    /// CUlibrary.
    Library = 7,
    /// ncclRedOp_t made by the application.
    Redop = 8,
    /// What ncclCommRegister gives.
    Registration = 9,
    /// ncclWindow_t.
    Window = 10,
    /// The application's own.
    User = 11,
}

fn kind_of(number: u32) -> Result<HandleKind> {
    u8::try_from(number)
        .ok()
        .and_then(HandleKind::from_number)
        .ok_or_else(|| Failure::invalid(format!("kind {number} is not a rejoin_handle_kind")))
}

/**
 * Makes a handle that has no object yet. It is in shared memory: readers of the journal see it.
 *
 * @param journal     open for writing
 * @param kind        a rejoin_handle_kind
 * @param out_handle  set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NO_SPACE (max_handles are in use); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_reserve(
    journal: *const rejoin_journal,
    kind: u32,
    out_handle: *mut rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_handle, "out_handle") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.handles().reserve(kind_of(kind)?)?.0);
        Ok(())
    })
}

/**
 * Gives a handle its object.
 *
 * @param journal  whose handle it is
 * @param handle   reserved, or unbound by recovery
 * @param real     the object, by its value
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_STALE_HANDLE; REJOIN_STATUS_INVALID_ARGUMENT (not a handle of
 *         this table); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_bind(journal: *const rejoin_journal, handle: rejoin_handle, real: u64) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        Ok(object.journal.handles().bind(VirtualHandle(handle), real)?)
    })
}

/**
 * Gives a handle another object. Every thread sees the old one or the new one.
 *
 * @param journal  whose handle it is
 * @param handle   live or unbound
 * @param real     the new object
 * @return as rejoin_handle_bind()
 * Threads: any, concurrently. Lock-free.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_rebind(journal: *const rejoin_journal, handle: rejoin_handle, real: u64) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        Ok(object.journal.handles().rebind(VirtualHandle(handle), real)?)
    })
}

/**
 * The object behind a handle.
 *
 * @param journal   whose handle it is
 * @param handle    live
 * @param kind      the rejoin_handle_kind that it must have
 * @param out_real  set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_STALE_HANDLE (retired, or without an object now);
 *         REJOIN_STATUS_INVALID_ARGUMENT (another kind, or no handle at all); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. A few loads; no lock, no system call.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_resolve(
    journal: *const rejoin_journal,
    handle: rejoin_handle,
    kind: u32,
    out_real: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_real, "out_real") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.handles().resolve(VirtualHandle(handle), kind_of(kind)?)?);
        Ok(())
    })
}

/**
 * Takes the objects of all live handles of a kind away, until they are rebound.
 *
 * @param journal  whose handles they are
 * @param kind     a rejoin_handle_kind
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_unbind_kind(journal: *const rejoin_journal, kind: u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        object.journal.handles().unbind_kind(kind_of(kind)?);
        Ok(())
    })
}

/**
 * Ends a handle: from now on it is stale, also when its slot is used again.
 *
 * @param journal  whose handle it is
 * @param handle   not retired yet
 * @return as rejoin_handle_bind()
 * Threads: any, concurrently. Lock-free.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_retire(journal: *const rejoin_journal, handle: rejoin_handle) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        Ok(object.journal.handles().retire(VirtualHandle(handle))?)
    })
}

/**
 * The kind of a handle, from its value alone.
 *
 * @param handle    any value
 * @param out_kind  set on OK: a rejoin_handle_kind
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_INVALID_ARGUMENT (a pointer, for instance);
 *         REJOIN_STATUS_NULL_ARGUMENT (0)
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_handle_get_kind(handle: rejoin_handle, out_kind: *mut u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_kind, "out_kind") }?;
        out.set(VirtualHandle(handle).kind()? as u32);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_cores_numbers() {
        use rejoin_handle_kind::*;
        let all = [Communicator, Stream, Event, Module, Function, GraphExec, Library, Redop, Registration, Window, User];
        for kind in all {
            let core = kind_of(kind as u32).expect("a kind");
            assert_eq!(format!("{kind:?}").to_lowercase(), format!("{core:?}").to_lowercase());
        }
        assert!(kind_of(12).is_err());
        assert!(kind_of(256 + 1).is_err());
    }
}
