//! Appending with everything that a record can have: several parts, flags, room kept back, a payload left out.

use core::ffi::c_void;

use crate::argument::{Out, Versioned, bytes, list, options};
use crate::boundary::{Failure, Result, boundary};
use crate::journal::{enter, region, rejoin_journal, rejoin_record_ref, rejoin_region};
use crate::status::rejoin_status;

/// A piece of a payload.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_part {
    /// NULL only where there are none.
    pub bytes: *const c_void,
    /// How many.
    pub length: usize,
}

/// The bytes that parts lead to.
///
/// # Safety
/// `parts` is NULL or readable for `count` parts, each of them for its length, while the result lives.
pub unsafe fn parts<'a>(parts: *const rejoin_part, count: usize) -> Result<Vec<&'a [u8]>> {
    // SAFETY: passed on to the caller; a part is a pointer and a number.
    let parts = unsafe { list(parts, count, "parts") }?;
    // SAFETY: passed on to the caller.
    let read = |(n, part): (usize, &rejoin_part)| unsafe { bytes(part.bytes, part.length, &format!("parts[{n}].bytes")) };
    parts.iter().enumerate().map(read).collect()
}

/// How a record is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_append_mode {
    /// As rejoin_journal_append().
    Plain = 0,
    /// For what takes a full journal apart, such as the end of an object: uses room that is kept back for it.
    Vital = 1,
    /// The payload stays away, since its bytes can be had elsewhere: the record keeps its length, its checksum and at
    /// most 256 bytes of the first part. Readers see REJOIN_OUTCOME_ABSENT; no replay executes it.
    Absent = 2,
}

/// How a record is appended. Initialise it with REJOIN_APPEND_OPTIONS_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_append_options {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// A rejoin_region.
    pub region: u32,
    /// A rejoin_append_mode.
    pub mode: u32,
    /// As in rejoin_journal_append().
    pub kind: u16,
    /// The lower 12 bits are yours; readers get them back.
    pub flags: u16,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_append_options {
    const NAME: &'static str = "rejoin_append_options";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            region: rejoin_region::Setup as u32,
            mode: rejoin_append_mode::Plain as u32,
            kind: 0,
            flags: 0,
            reserved: 0,
        }
    }
}

/**
 * Appends one record whose payload is several parts, one after the other; otherwise as rejoin_journal_append().
 *
 * @param journal     open for writing
 * @param options     copied
 * @param parts       copied, with what they lead to
 * @param part_count  how many
 * @param out_record  set on OK: its place, for rejoin_journal_complete()
 * @return as rejoin_journal_append(); REJOIN_STATUS_VERSION (options sets a field of a newer header)
 * Threads: any, concurrently. Lock-free; not async-signal-safe.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_append_parts(
    journal: *const rejoin_journal,
    options: *const rejoin_append_options,
    parts: *const rejoin_part,
    part_count: usize,
    out_record: *mut rejoin_record_ref,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_record, "out_record") }?;
        // SAFETY: a pointer of C, as the header says.
        let given = unsafe { self::options(options, "options") }?;
        // SAFETY: pointers of C, as the header says.
        let parts = unsafe { self::parts(parts, part_count) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        let (journal, region) = (&object.journal, region(given.region)?);
        let record = match given.mode {
            n if n == rejoin_append_mode::Plain as u32 => journal.append(region, given.kind, given.flags, &parts)?,
            n if n == rejoin_append_mode::Vital as u32 => journal.append_vital(region, given.kind, given.flags, &parts)?,
            n if n == rejoin_append_mode::Absent as u32 => journal.append_absent(region, given.kind, given.flags, &parts)?,
            n => return Err(Failure::invalid(format!("options.mode is {n}: use a rejoin_append_mode"))),
        };
        out.set(record.into());
        Ok(())
    })
}

/**
 * Says that the caller goes on without a record that a full journal refused. From now on the journal counts as
 * incomplete, and nobody replays it: see `dropped` and `incomplete_from` of rejoin_snapshot_info.
 *
 * @param journal  open for writing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently. Lock-free.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_note_dropped(journal: *const rejoin_journal) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        object.journal.note_dropped();
        Ok(())
    })
}
