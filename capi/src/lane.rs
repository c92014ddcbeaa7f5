//! The writers of a journal, and what they left out.

use journal_core::journal::Owner;

use crate::argument::{Out, Versioned, VersionedOut};
use crate::boundary::{Failure, boundary};
use crate::snapshot::{enter_snapshot, rejoin_snapshot};
use crate::status::rejoin_status;

/// Who holds a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_lane_owner {
    /// The last owner gave it back.
    None = 1,
    /// A thread that lives, stopped ones too.
    Alive = 2,
    /// A thread that died, and nobody has taken the lane over.
    Dead = 3,
}

/// The records of one writing thread. Initialise it with REJOIN_LANE_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_lane {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// As in rejoin_record.
    pub slot: u32,
    /// A rejoin_lane_owner.
    pub owner: u32,
    /// The owner's process; 0 without one.
    pub pid: u32,
    /// The owner's thread; 0 without one.
    pub tid: u32,
    /// Owners that died in it and were reaped.
    pub deaths: u64,
    /// At most so many sequence numbers were lost by them.
    pub lost: u64,
    /// Set-up records that compaction has left out.
    pub compacted: u64,
    /// Byte of the journal where its records stop making sense; 0: nowhere.
    pub damaged_at: u64,
    /// 1: its owner was too fast for this snapshot, and its records are not in it. Nothing is wrong with them.
    pub disturbed: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_lane {
    const NAME: &'static str = "rejoin_lane";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            slot: 0,
            owner: 0,
            pid: 0,
            tid: 0,
            deaths: 0,
            lost: 0,
            compacted: 0,
            damaged_at: 0,
            disturbed: 0,
            reserved: 0,
        }
    }
}

/**
 * Who writes the journal, lane by lane, and whether each lives.
 *
 * @param snapshot  open
 * @param index     from 0
 * @param out_lane  initialised with REJOIN_LANE_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_snapshot_get_lane(
    snapshot: *const rejoin_snapshot,
    index: u64,
    out_lane: *mut rejoin_lane,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_lane, "out_lane") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_snapshot(snapshot) }?;
        let lanes = &object.snapshot.lanes;
        let lane = usize::try_from(index).ok().and_then(|index| lanes.get(index));
        let lane = lane.ok_or_else(|| Failure::new(rejoin_status::NotFound, format!("lane {index} of {}", lanes.len())))?;
        let (owner, pid, tid) = match lane.owner {
            Owner::None => (rejoin_lane_owner::None, 0, 0),
            Owner::Alive { pid, tid } => (rejoin_lane_owner::Alive, pid, tid),
            Owner::Dead { pid, tid } => (rejoin_lane_owner::Dead, pid, tid),
        };
        out.set(&rejoin_lane {
            slot: u32::from(lane.slot),
            owner: owner as u32,
            pid,
            tid,
            deaths: lane.deaths,
            lost: lane.lost,
            compacted: lane.compacted,
            damaged_at: lane.damaged_at.unwrap_or(0),
            disturbed: u32::from(lane.disturbed),
            ..rejoin_lane::defaults()
        });
        Ok(())
    })
}

/**
 * Ranges of sequence numbers of the open step that no record has: of records in flight, or lost by a death.
 *
 * @param snapshot   open
 * @param index      from 0
 * @param out_first  set on OK
 * @param out_count  set on OK: how many, from the first on
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_snapshot_get_missing(
    snapshot: *const rejoin_snapshot,
    index: u64,
    out_first: *mut u64,
    out_count: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let first = unsafe { Out::new(out_first, "out_first") }?;
        // SAFETY: a pointer of C, as the header says.
        let count = unsafe { Out::new(out_count, "out_count") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_snapshot(snapshot) }?;
        let all = &object.snapshot.missing;
        let range = usize::try_from(index).ok().and_then(|index| all.get(index));
        let range = range.ok_or_else(|| Failure::new(rejoin_status::NotFound, format!("missing range {index} of {}", all.len())))?;
        first.set(range.start);
        count.set(range.end - range.start);
        Ok(())
    })
}
