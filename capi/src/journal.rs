//! The journal, for any process: no job is needed.

use core::ffi::{c_char, c_void};
use std::ffi::CString;

use journal_core::journal::{self, Journal, JournalOptions, RecordRef, Region, SegmentName, SegmentRole, Sequence};

use crate::argument::{Out, Versioned, bytes, copied, options, text};
use crate::boundary::{Failure, Result, boundary, boundary_or};
use crate::policy::PolicyFields;
use crate::shell::{Call, Shell, object};
use crate::snapshot::{SnapshotObject, rejoin_snapshot};
use crate::status::rejoin_status;

/// A journal open for writing.
pub struct rejoin_journal {
    _opaque: [u8; 0],
}

/// What is behind it.
pub struct JournalObject {
    /// Ours.
    pub journal: Journal,
    name: CString,
}

object!(JournalObject, "rejoin_journal", b"RJ-jrnal");

impl JournalObject {
    /// A pointer for C.
    pub fn create(journal: Journal) -> *mut rejoin_journal {
        // A segment's name has no zero bytes.
        let name = CString::new(journal.name().as_str()).unwrap_or_default();
        Shell::create(Self { journal, name }).cast()
    }
}

/// Begins a call on a journal.
///
/// # Safety
/// `journal` is NULL or came from this library.
pub unsafe fn enter<'a>(journal: *const rejoin_journal) -> Result<Call<'a, JournalObject>> {
    // SAFETY: passed on to the caller.
    unsafe { Shell::enter(journal.cast()) }
}

/// How long a record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_region {
    /// For the life of the journal.
    Setup = 0,
    /// Until the step's commit.
    Step = 1,
}

pub(crate) fn region(number: u32) -> Result<Region> {
    match number {
        n if n == rejoin_region::Setup as u32 => Ok(Region::Setup),
        n if n == rejoin_region::Step as u32 => Ok(Region::Step),
        n => Err(Failure::invalid(format!("region {n}: use REJOIN_REGION_SETUP or REJOIN_REGION_STEP"))),
    }
}

/// Names a record, to store its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct rejoin_record_ref {
    /// Its place in the journal's order, from 1.
    pub sequence: u64,
    /// Where it is.
    pub position: u64,
}

impl From<RecordRef> for rejoin_record_ref {
    fn from(record: RecordRef) -> Self {
        Self { sequence: record.sequence().0, position: record.position() }
    }
}

/// How a journal is created. Initialise it with REJOIN_JOURNAL_OPTIONS_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_journal_options {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Job name, [A-Za-z0-9_-]{1,64}.
    pub job: *const c_char,
    /// Rank that writes.
    pub rank: u32,
    /// The n-th process that holds the rank.
    pub incarnation: u32,
    /// Bytes of shared memory; 0: 4 MiB.
    pub capacity_bytes: u64,
    /// Bytes of a chunk, a power of two; 0: 64 KiB.
    pub chunk_bytes: u64,
    /// Threads that may append at the same time; 0: 64.
    pub max_slots: u32,
    /// Handles that may live at the same time; 0: 4,096.
    pub max_handles: u32,
    /// A rejoin_journal_policy; 0: REJOIN_JOURNAL_POLICY_ERROR.
    pub policy: u32,
    /// 0.
    pub reserved: u32,
    /// Policy BLOCK: longest wait.
    pub block_timeout_ms: u64,
    /// Policy GROW: bytes of all segments together.
    pub grow_limit_bytes: u64,
    /// Policy SPILL: an existing folder, by its absolute path of at most 255 bytes.
    pub spill_directory: *const c_char,
    /// Tells jobs of one name apart; all 0 is fine.
    pub job_uuid: [u8; 16],
}

// SAFETY: numbers and pointers only, head first.
unsafe impl Versioned for rejoin_journal_options {
    const NAME: &'static str = "rejoin_journal_options";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            job: core::ptr::null(),
            rank: 0,
            incarnation: 0,
            capacity_bytes: 0,
            chunk_bytes: 0,
            max_slots: 0,
            max_handles: 0,
            policy: 0,
            reserved: 0,
            block_timeout_ms: 0,
            grow_limit_bytes: 0,
            spill_directory: core::ptr::null(),
            job_uuid: [0; 16],
        }
    }
}

/**
 * Creates and publishes a journal in shared memory, where it outlives this process. Its name is
 * rejoin.JOB.rRANK.INCARNATION; `rejoin show` prints it.
 *
 * @param options      copied
 * @param out_journal  set on OK; give it to rejoin_journal_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_EXISTS; REJOIN_STATUS_NO_SPACE; REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_VERSION (a field of a newer header is set); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_create(
    options: *const rejoin_journal_options,
    out_journal: *mut *mut rejoin_journal,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_journal, "out_journal") }?;
        // SAFETY: a pointer of C, as the header says.
        let given = unsafe { self::options(options, "options") }?;
        // SAFETY: a string of C, as the header says.
        let job = unsafe { text(given.job, "options.job") }?;
        let mut wanted = JournalOptions::new(job, given.rank, given.incarnation);
        wanted.job_uuid = given.job_uuid;
        let policy = PolicyFields {
            policy: given.policy,
            block_timeout_ms: given.block_timeout_ms,
            grow_limit_bytes: given.grow_limit_bytes,
            spill_directory: given.spill_directory,
        };
        // SAFETY: a string of C, as the header says.
        if let Some(policy) = unsafe { policy.to_policy() }? {
            wanted.policy = policy;
        }
        let set = |target: &mut u64, value: u64| {
            if value != 0 {
                *target = value;
            }
        };
        set(&mut wanted.capacity_bytes, given.capacity_bytes);
        set(&mut wanted.chunk_bytes, given.chunk_bytes);
        if given.max_slots != 0 {
            wanted.max_slots = given.max_slots;
        }
        if given.max_handles != 0 {
            wanted.max_handles = given.max_handles;
        }
        out.set(JournalObject::create(Journal::create(&wanted)?));
        Ok(())
    })
}

/**
 * Opens a published journal to append to it, from this or another process of the same user.
 *
 * @param name         such as rejoin.JOB.r0.0
 * @param out_journal  set on OK; give it to rejoin_journal_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_ACCESS; REJOIN_STATUS_VERSION;
 *         REJOIN_STATUS_CORRUPT; REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_open(name: *const c_char, out_journal: *mut *mut rejoin_journal) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_journal, "out_journal") }?;
        // SAFETY: a pointer of C, as the header says.
        let name = SegmentName::parse(unsafe { text(name, "name") }?)?;
        out.set(JournalObject::create(Journal::open(&name)?));
        Ok(())
    })
}

/**
 * Closes a journal in this process. The journal stays in shared memory: see rejoin_journal_unlink().
 *
 * @param journal  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any; calls of other threads that run on it finish.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_close(journal: *mut rejoin_journal) -> rejoin_status {
    // SAFETY: a pointer of C, as the header says.
    boundary(|| unsafe { Shell::<JournalObject>::close(journal.cast()) })
}

/**
 * Removes the journal's name from shared memory. Those who have it open keep it.
 *
 * @param journal  open
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_unlink(journal: *const rejoin_journal) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        Ok(object.journal.unlink()?)
    })
}

/**
 * Removes a journal by its name, its further segments and spill files too: of a dead writer, or one that this library
 * cannot open.
 *
 * @param name  such as rejoin.JOB.r0.0
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_ACCESS; REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Those who have it open keep it.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_remove(name: *const c_char) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let name = SegmentName::parse(unsafe { text(name, "name") }?)?;
        if !matches!(name.role(), SegmentRole::Journal { growth: 0, .. }) {
            return Err(Failure::invalid(format!("{name} is not a journal: `rejoin gc` removes a whole job")));
        }
        Ok(journal::remove(&name)?)
    })
}

/**
 * The journal's published name.
 *
 * @param journal  open
 * @return UTF-8, the journal's, valid until its close; empty where `journal` is none
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_name(journal: *const rejoin_journal) -> *const c_char {
    boundary_or(c"".as_ptr(), || {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        Ok(object.name.as_ptr())
    })
}

/**
 * Appends one record; returns after it is committed and visible to readers. Only then do what it says.
 *
 * @param journal        open for writing
 * @param region         a rejoin_region
 * @param kind           REJOIN_REQUEST_USER_OPAQUE + a number of your own; for requests of the table use
 *                       rejoin_request_append(), which makes the payload that `rejoin show` and replays read
 * @param payload        copied, opaque
 * @param payload_bytes  its length
 * @param out_record     set on OK: its place, for rejoin_journal_complete()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_JOURNAL_FULL (nothing was written);
 *         REJOIN_STATUS_INVALID_ARGUMENT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free; no allocation for payloads below a chunk; not async-signal-safe.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_append(
    journal: *const rejoin_journal,
    region: u32,
    kind: u16,
    payload: *const c_void,
    payload_bytes: usize,
    out_record: *mut rejoin_record_ref,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_record, "out_record") }?;
        // SAFETY: a pointer of C, as the header says.
        let payload = unsafe { bytes(payload, payload_bytes, "payload") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.append(self::region(region)?, kind, 0, &[payload])?.into());
        Ok(())
    })
}

/// Results have 63 bits.
const LARGEST_RESULT: u64 = (1 << 63) - 1;

/**
 * Stores beside a record what its call gave. Without it readers see "entered, never returned".
 *
 * @param journal  open for writing
 * @param record   as rejoin_journal_append() set it
 * @param result   at most 63 bits
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND (its step is over); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: the one that appended it, or any before the step's commit. Lock-free.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_complete(
    journal: *const rejoin_journal,
    record: *const rejoin_record_ref,
    result: u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let given = unsafe { copied(record, "record") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        if result > LARGEST_RESULT {
            return Err(Failure::invalid(format!("result {result:#x} has more than 63 bits")));
        }
        let record = object.journal.record_at(given.position, Sequence(given.sequence)).ok_or_else(|| {
            Failure::invalid(format!("no record can be at {:#x}: pass what rejoin_journal_append set", given.position))
        })?;
        if object.journal.complete(record, result) {
            return Ok(());
        }
        Err(Failure::new(rejoin_status::NotFound, format!("record {} is gone: its step is over", given.sequence)))
    })
}

/**
 * Ends a step: its records no longer count. A crash leaves the old boundary or the new one.
 *
 * @param journal       open for writing
 * @param step          the one that ends
 * @param out_sequence  set on OK: records of the step region below it are over
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_TIMEOUT (another thread is stopped in such a call);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_step_commit(
    journal: *const rejoin_journal,
    step: u32,
    out_sequence: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_sequence, "out_sequence") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.step_commit(step)?.0);
        Ok(())
    })
}

/**
 * Drops the records of a step that runs again, without ending it.
 *
 * @param journal       open for writing
 * @param out_sequence  set on OK: records of the step region below it are over
 * @return as rejoin_journal_step_commit()
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_step_discard(journal: *const rejoin_journal, out_sequence: *mut u64) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_sequence, "out_sequence") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.step_discard()?.0);
        Ok(())
    })
}

/**
 * Seals what dead threads and processes left in the journal.
 *
 * @param journal     open for writing
 * @param out_reaped  set on OK: slots that were reaped
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CORRUPT; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_reap(journal: *const rejoin_journal, out_reaped: *mut u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_reaped, "out_reaped") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.reap()?);
        Ok(())
    })
}

/**
 * Marks the journal as brought to a good end: readers need not suspect a death.
 *
 * @param journal  open for writing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_finish(journal: *const rejoin_journal) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        object.journal.finish();
        Ok(())
    })
}

/**
 * What a reader of this journal would see now.
 *
 * @param journal       open for writing
 * @param after         only records with a higher sequence; 0: all
 * @param out_snapshot  set on OK; give it to rejoin_snapshot_close()
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_snapshot(
    journal: *const rejoin_journal,
    after: u64,
    out_snapshot: *mut *mut rejoin_snapshot,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_snapshot, "out_snapshot") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(SnapshotObject::create(object.journal.snapshot(), after));
        Ok(())
    })
}
