//! Reading a journal: of a live writer or a dead one.

use core::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::OnceLock;

use journal_core::journal::{JournalReader, Outcome, Record, SegmentName, Snapshot};

use crate::argument::{Out, Versioned, VersionedOut, text};
use crate::boundary::{Failure, Result, boundary};
use crate::obstacle::Obstacle;
use crate::shell::{Call, Shell, object};
use crate::status::rejoin_status;

/// Flags above are the journal's own.
const CALLERS_FLAGS: u16 = 0x0fff;

/// A journal open for reading.
pub struct rejoin_reader {
    _opaque: [u8; 0],
}

/// What is behind it.
pub struct ReaderObject(pub JournalReader);

object!(ReaderObject, "rejoin_reader", b"RJ-readr");

/// One look at a journal: its records do not change any more.
pub struct rejoin_snapshot {
    _opaque: [u8; 0],
}

/// What is behind it: the records that were asked for, in order, unfinished ones last.
pub struct SnapshotObject {
    records: Vec<Record>,
    /// All of it.
    pub snapshot: Snapshot,
    /// What stands against its replay, once asked for.
    pub obstacles: OnceLock<Vec<Obstacle>>,
}

object!(SnapshotObject, "rejoin_snapshot", b"RJ-snaps");

impl SnapshotObject {
    /// A pointer for C.
    pub fn create(mut snapshot: Snapshot, after: u64) -> *mut rejoin_snapshot {
        let mut records: Vec<Record> = Vec::new();
        for list in [&mut snapshot.setup, &mut snapshot.step] {
            records.extend(list.iter().filter(|record| record.sequence.0 > after).cloned());
        }
        records.sort_unstable_by_key(|record| record.sequence);
        records.extend(snapshot.unfinished.iter().cloned());
        Shell::create(Self { records, snapshot, obstacles: OnceLock::new() }).cast()
    }
}

/// What a reader can say about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_outcome {
    /// Whole; its call may have been issued.
    Committed = 1,
    /// Being written by a live thread; its call has not been issued.
    InFlight = 2,
    /// Its thread died while writing it; its call was never issued.
    Torn = 3,
    /// It took a number and was never committed.
    Lost = 4,
    /// Its checksum is wrong: something else wrote here.
    Corrupt = 5,
    /// Whole, but for its payload, which was left out when it was appended: see REJOIN_APPEND_MODE_ABSENT.
    Absent = 6,
    /// No record: numbers that rejoin_follower_next() will not tell.
    Missing = 7,
}

fn outcome(outcome: Outcome) -> rejoin_outcome {
    match outcome {
        Outcome::Committed => rejoin_outcome::Committed,
        Outcome::InFlight => rejoin_outcome::InFlight,
        Outcome::Torn => rejoin_outcome::Torn,
        Outcome::Lost => rejoin_outcome::Lost,
        Outcome::Absent => rejoin_outcome::Absent,
        // Whatever else a newer journal may say, it is nothing to rely on.
        _ => rejoin_outcome::Corrupt,
    }
}

/// One record. Initialise it with REJOIN_RECORD_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_record {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Place in the journal's order, from 1; 0: never committed.
    pub sequence: u64,
    /// What the call gave. For a session's requests: bit 61 set and the rejoin_status where it failed.
    pub result: u64,
    /// The snapshot's, valid until its close; or the follower's, until its next call.
    pub payload: *const c_void,
    /// Length of the payload.
    pub payload_bytes: u64,
    /// A rejoin_outcome.
    pub outcome: u32,
    /// A rejoin_region.
    pub region: u32,
    /// 1: the call has returned, and `result` is set.
    pub has_result: u32,
    /// REJOIN_REQUEST_….
    pub kind: u16,
    /// Slot whose thread wrote it.
    pub slot: u16,
    /// With REJOIN_OUTCOME_MISSING: how many numbers, from `sequence` on.
    pub missing: u64,
    /// The writer's own, 12 bits.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers and pointers only, head first.
unsafe impl Versioned for rejoin_record {
    const NAME: &'static str = "rejoin_record";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            sequence: 0,
            result: 0,
            payload: core::ptr::null(),
            payload_bytes: 0,
            outcome: 0,
            region: 0,
            has_result: 0,
            kind: 0,
            slot: 0,
            missing: 0,
            flags: 0,
            reserved: 0,
        }
    }
}

impl From<&Record> for rejoin_record {
    /// The payload stays the record's.
    fn from(record: &Record) -> Self {
        Self {
            sequence: record.sequence.0,
            result: record.result.unwrap_or(0),
            payload: record.payload.as_ptr().cast(),
            payload_bytes: record.payload.len() as u64,
            outcome: outcome(record.outcome) as u32,
            region: record.region as u32,
            has_result: u32::from(record.result.is_some()),
            kind: record.kind,
            slot: record.slot,
            flags: u32::from(record.flags & CALLERS_FLAGS),
            ..Self::defaults()
        }
    }
}

/// What a snapshot says about its journal. Initialise it with REJOIN_SNAPSHOT_INFO_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_snapshot_info {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Records that rejoin_snapshot_get() gives.
    pub records: u64,
    /// Every record below was looked for: what to pass as `after` next, plus one.
    pub limit: u64,
    /// Step records below it are over.
    pub boundary: u64,
    /// Step to run next; 0: none was committed.
    pub next_step: u64,
    /// Sequence numbers that dead threads took with them.
    pub lost: u64,
    /// Records that a policy dropped.
    pub dropped: u64,
    /// Process that created the journal.
    pub creator_pid: u32,
    /// Rank that writes it.
    pub rank: u32,
    /// The n-th process that held the rank.
    pub incarnation: u32,
    /// 1: the writer ended in good order.
    pub finished: u32,
    /// 1: nothing is corrupt, damaged, dropped or missing without a reason.
    pub whole: u32,
    /// 0.
    pub reserved: u32,
    /// A record from this sequence on was dropped, so the journal cannot be replayed; 0: none was.
    pub incomplete_from: u64,
    /// Sequence numbers of the open step that no record has, `lost` ones and those of records in flight.
    pub missing: u64,
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_snapshot_info {
    const NAME: &'static str = "rejoin_snapshot_info";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            records: 0,
            limit: 0,
            boundary: 0,
            next_step: 0,
            lost: 0,
            dropped: 0,
            creator_pid: 0,
            rank: 0,
            incarnation: 0,
            finished: 0,
            whole: 0,
            reserved: 0,
            incomplete_from: 0,
            missing: 0,
        }
    }
}

/// By the name in shared memory, or a path with a slash.
///
/// # Safety
/// `name` is NULL or a terminated string.
pub(crate) unsafe fn open_reader(name: *const c_char) -> Result<JournalReader> {
    // SAFETY: passed on to the caller.
    let name = unsafe { text(name, "name") }?;
    Ok(match name.rsplit_once('/') {
        None => JournalReader::open(&SegmentName::parse(name)?)?,
        Some((folder, file)) => {
            let folder = if folder.is_empty() { "/" } else { folder };
            JournalReader::open_in(Path::new(folder), &SegmentName::parse(file)?)?
        }
    })
}

/// Begins a call on a reader.
///
/// # Safety
/// `reader` is NULL or came from this library.
pub(crate) unsafe fn enter_reader<'a>(reader: *const rejoin_reader) -> Result<Call<'a, ReaderObject>> {
    // SAFETY: passed on to the caller.
    unsafe { Shell::enter(reader.cast()) }
}

/// Begins a call on a snapshot.
///
/// # Safety
/// `snapshot` is NULL or came from this library.
pub(crate) unsafe fn enter_snapshot<'a>(snapshot: *const rejoin_snapshot) -> Result<Call<'a, SnapshotObject>> {
    // SAFETY: passed on to the caller.
    unsafe { Shell::enter(snapshot.cast()) }
}

/**
 * Opens a journal for reading, read-only: its writer may live or be dead, and is never disturbed.
 *
 * @param name        such as rejoin.JOB.r0.0 in shared memory, or the path of a copy (with a slash)
 * @param out_reader  set on OK; give it to rejoin_reader_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_ACCESS; REJOIN_STATUS_VERSION;
 *         REJOIN_STATUS_CORRUPT; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_open(name: *const c_char, out_reader: *mut *mut rejoin_reader) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_reader, "out_reader") }?;
        // SAFETY: a pointer of C, as the header says.
        out.set(Shell::create(ReaderObject(unsafe { open_reader(name) }?)).cast());
        Ok(())
    })
}

/**
 * Closes a reader. Its snapshots stay.
 *
 * @param reader  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_close(reader: *mut rejoin_reader) -> rejoin_status {
    // SAFETY: a pointer of C, as the header says.
    boundary(|| unsafe { Shell::<ReaderObject>::close(reader.cast()) })
}

/**
 * Takes a snapshot. To look at what is new, pass the limit of the snapshot before, minus one; as long as a snapshot
 * has a record in flight, stay at its `after`, since that record may get a lower number. To be told each record once,
 * use rejoin_follower_open().
 *
 * @param reader        open
 * @param after         only records with a higher sequence; 0: all
 * @param out_snapshot  set on OK; give it to rejoin_snapshot_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CORRUPT (the file was cut); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_snapshot(
    reader: *const rejoin_reader,
    after: u64,
    out_snapshot: *mut *mut rejoin_snapshot,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_snapshot, "out_snapshot") }?;
        // SAFETY: a pointer of C, as the header says.
        let reader = unsafe { enter_reader(reader) }?;
        out.set(SnapshotObject::create(reader.0.snapshot()?, after));
        Ok(())
    })
}

/**
 * Frees a snapshot and the payloads that its records point to.
 *
 * @param snapshot  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_snapshot_close(snapshot: *mut rejoin_snapshot) -> rejoin_status {
    // SAFETY: a pointer of C, as the header says.
    boundary(|| unsafe { Shell::<SnapshotObject>::close(snapshot.cast()) })
}

/**
 * What the snapshot says about its journal.
 *
 * @param snapshot  open
 * @param out_info  initialised with REJOIN_SNAPSHOT_INFO_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_snapshot_get_info(
    snapshot: *const rejoin_snapshot,
    out_info: *mut rejoin_snapshot_info,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_info, "out_info") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_snapshot(snapshot) }?;
        let look = &object.snapshot;
        out.set(&rejoin_snapshot_info {
            records: object.records.len() as u64,
            limit: look.limit.0,
            boundary: look.boundary.sequence.0,
            next_step: look.boundary.next_step.unwrap_or(0),
            lost: look.lost_count(),
            dropped: look.dropped,
            creator_pid: look.identity.creator_pid,
            rank: look.identity.rank,
            incarnation: look.identity.incarnation,
            finished: u32::from(look.finished),
            whole: u32::from(look.is_whole()),
            incomplete_from: look.incomplete_from.map_or(0, |from| from.0),
            missing: look.missing_count(),
            ..rejoin_snapshot_info::defaults()
        });
        Ok(())
    })
}

/**
 * One record of a snapshot. Records come in the order of their sequence, unfinished ones last.
 *
 * @param snapshot    open
 * @param index       from 0
 * @param out_record  initialised with REJOIN_RECORD_INIT; set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (there are no more); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_snapshot_get(
    snapshot: *const rejoin_snapshot,
    index: u64,
    out_record: *mut rejoin_record,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_record, "out_record") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_snapshot(snapshot) }?;
        let record = usize::try_from(index).ok().and_then(|index| object.records.get(index)).ok_or_else(|| {
            Failure::new(rejoin_status::NotFound, format!("record {index} of {}", object.records.len()))
        })?;
        out.set(&record.into());
        Ok(())
    })
}
