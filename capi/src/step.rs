//! Steps: begin, end, decide, commit, and where to go on after a recovery.

use core::ffi::c_void;
use std::sync::PoisonError;

use journal_core::session::Decided;

use crate::argument::{Out, bytes};
use crate::boundary::{Failure, Result, boundary};
use crate::session::{SessionObject, enter, rejoin_session};
use crate::status::rejoin_status;

/// Outputs that say where the job stands.
struct Position {
    step: Out<u32>,
    blob: Option<(Out<*const c_void>, Out<usize>)>,
}

impl Position {
    /// # Safety
    /// The pointers are NULL or writable until the call returns.
    unsafe fn new(step: *mut u32, blob: *mut *const c_void, blob_bytes: *mut usize) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let step = unsafe { Out::new(step, "out_step") }?;
        if blob.is_null() && blob_bytes.is_null() {
            return Ok(Self { step, blob: None });
        }
        // SAFETY: passed on to the caller.
        let blob = unsafe { Out::new(blob, "out_blob (NULL only together with out_blob_bytes)") }?;
        // SAFETY: passed on to the caller.
        let blob_bytes = unsafe { Out::new(blob_bytes, "out_blob_bytes (NULL only together with out_blob)") }?;
        Ok(Self { step, blob: Some((blob, blob_bytes)) })
    }

    fn set(self, object: &SessionObject, step: u32, blob: Vec<u8>) {
        let mut kept = object.blob.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = blob;
        self.step.set(step);
        if let Some((out, out_bytes)) = self.blob {
            out.set(kept.as_ptr().cast());
            out_bytes.set(kept.len());
        }
    }
}

/**
 * Ends the set-up. Waits for all ranks; on a replacement, until recovery has restored its state.
 *
 * @param session         in set-up
 * @param out_step        set on OK: the step to run first, 0 or where the job stands
 * @param out_blob        set on OK: what the rank gave to the rejoin_step_end() before that step, empty for
 *                        step 0; the session's, valid until the next rejoin_resume() or the close. May be
 *                        NULL together with out_blob_bytes
 * @param out_blob_bytes  set on OK: its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (a second time, or device memory is no registered state: the
 *         message lists it); REJOIN_STATUS_MISMATCH (a replacement's set-up is another one);
 *         REJOIN_STATUS_TIMEOUT; REJOIN_STATUS_GAVE_UP; REJOIN_STATUS_NOT_RECOVERABLE;
 *         REJOIN_STATUS_JOURNAL_FULL; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for all ranks, at most options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_setup_done(
    session: *mut rejoin_session,
    out_step: *mut u32,
    out_blob: *mut *const c_void,
    out_blob_bytes: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Position::new(out_step, out_blob, out_blob_bytes) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let first = object.session.setup_done()?;
        out.set(&object, first.step, first.blob);
        Ok(())
    })
}

/**
 * Begins a step: scratch buffers are zeroed. Until rejoin_step_end() nothing may write replicated state.
 *
 * @param session  between steps
 * @param step     the one that setup_done, commit or resume led to
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO; REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_step_begin(session: *mut rejoin_session, step: u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        Ok(object.session.step_begin(step)?)
    })
}

/**
 * Ends the open step: waits for this rank's work, keeps the blob and the per-rank buffers for the next step,
 * votes, and returns what the job decides.
 *
 * @param session          inside a step
 * @param next_blob        what this rank needs to begin the next step (random state, position in the data);
 *                         copied, opaque, at most 64 KiB
 * @param next_blob_bytes  its length
 * @return REJOIN_STATUS_OK: GO, run the optimizer and commit; REJOIN_STATUS_REDO: call rejoin_resume();
 *         REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_TIMEOUT;
 *         REJOIN_STATUS_GAVE_UP; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for all ranks, at most options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_step_end(
    session: *mut rejoin_session,
    next_blob: *const c_void,
    next_blob_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let blob = unsafe { bytes(next_blob, next_blob_bytes, "next_blob") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        match object.session.step_end(blob)? {
            Decided::Go => Ok(()),
            Decided::Redo => Err(Failure::from(journal_core::Error::Redo)),
        }
    })
}

/**
 * Commits the step that was decided GO, after the optimizer. The next step is one higher.
 *
 * @param session  after a rejoin_step_end() that returned REJOIN_STATUS_OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_REDO (the device failed in the optimizer);
 *         REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_step_commit(session: *mut rejoin_session) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        Ok(object.session.step_commit()?)
    })
}

/**
 * After REJOIN_STATUS_REDO from any call: waits until the job has recovered, and says which step to run now.
 *
 * @param session         inside or between steps
 * @param out_step        set on OK: the step to begin
 * @param out_blob        set on OK, as in rejoin_setup_done()
 * @param out_blob_bytes  set on OK: its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_GAVE_UP; REJOIN_STATUS_NOT_RECOVERABLE; REJOIN_STATUS_EVICTED;
 *         REJOIN_STATUS_TIMEOUT; REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one; waits for recovery, at most twice options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_resume(
    session: *mut rejoin_session,
    out_step: *mut u32,
    out_blob: *mut *const c_void,
    out_blob_bytes: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { Position::new(out_step, out_blob, out_blob_bytes) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let resumed = object.session.resume()?;
        out.set(&object, resumed.step, resumed.blob);
        Ok(())
    })
}
