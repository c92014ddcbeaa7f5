//! What stands against the replay of a journal, told before anything fails.

use core::ffi::c_char;
use std::ffi::CString;

use journal_core::recovery::replayable;
use journal_core::request::Stage;

use crate::argument::{Versioned, VersionedOut};
use crate::boundary::{Failure, boundary};
use crate::journal::rejoin_region;
use crate::snapshot::{enter_snapshot, rejoin_snapshot};
use crate::status::rejoin_status;

/// One, with its texts as C reads them.
pub struct Obstacle {
    stage: Stage,
    sequence: u64,
    request: CString,
    reason: CString,
}

impl From<replayable::Obstacle> for Obstacle {
    fn from(found: replayable::Obstacle) -> Self {
        let text = |text: String| CString::new(text.replace('\0', "")).unwrap_or_default();
        Self { stage: found.stage, sequence: found.sequence, request: text(found.request), reason: text(found.reason) }
    }
}

/// A reason why a journal cannot be replayed. Initialise it with REJOIN_OBSTACLE_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_obstacle {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// A rejoin_region: SETUP matters when a device fails, STEP only under policy replay.
    pub region: u32,
    /// 0.
    pub reserved: u32,
    /// The record's place; 0: it is not about one record.
    pub sequence: u64,
    /// The request in words, empty where it cannot be told; the snapshot's, valid until its close.
    pub request: *const c_char,
    /// Why, and what to do instead; the snapshot's, valid until its close.
    pub reason: *const c_char,
}

// SAFETY: numbers and pointers only, head first.
unsafe impl Versioned for rejoin_obstacle {
    const NAME: &'static str = "rejoin_obstacle";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            region: 0,
            reserved: 0,
            sequence: 0,
            request: core::ptr::null(),
            reason: core::ptr::null(),
        }
    }
}

/**
 * What stands against a replay of this journal, as `rejoin verify` tells it: nothing, if the first call says
 * REJOIN_STATUS_NOT_FOUND. It looks at all of the journal, whatever `after` the snapshot was taken with.
 *
 * @param snapshot      open
 * @param index         from 0, in the journal's order
 * @param out_obstacle  initialised with REJOIN_OBSTACLE_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_snapshot_get_obstacle(
    snapshot: *const rejoin_snapshot,
    index: u64,
    out_obstacle: *mut rejoin_obstacle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_obstacle, "out_obstacle") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_snapshot(snapshot) }?;
        let all = object.obstacles.get_or_init(|| replayable::obstacles(&object.snapshot).into_iter().map(Into::into).collect());
        let found = usize::try_from(index).ok().and_then(|index| all.get(index));
        let found = found.ok_or_else(|| Failure::new(rejoin_status::NotFound, format!("obstacle {index} of {}", all.len())))?;
        out.set(&rejoin_obstacle {
            region: match found.stage {
                Stage::Setup => rejoin_region::Setup,
                Stage::Step => rejoin_region::Step,
            } as u32,
            sequence: found.sequence,
            request: found.request.as_ptr(),
            reason: found.reason.as_ptr(),
            ..rejoin_obstacle::defaults()
        });
        Ok(())
    })
}
