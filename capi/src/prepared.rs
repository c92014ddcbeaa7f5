//! What a step begins with, kept in the journal before the step: a blob, and buffers beside it.

use core::ffi::c_void;

use journal_core::journal::{Prepared, prepared};

use crate::append::{parts, rejoin_part};
use crate::argument::{Out, bytes, bytes_mut};
use crate::boundary::{Failure, Result, boundary};
use crate::journal::{enter, rejoin_journal};
use crate::snapshot::{enter_reader, rejoin_reader};
use crate::status::rejoin_status;

/**
 * Keeps a blob that a step begins with. The one for the step before stays readable; older ones go.
 *
 * @param journal     open for writing
 * @param step        that begins with it
 * @param blob        copied
 * @param blob_bytes  its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_JOURNAL_FULL; REJOIN_STATUS_TIMEOUT (the message names the thread
 *         that is stopped in such a call); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; one at a time is served. A crash leaves the old content or the new one.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_prepare(
    journal: *const rejoin_journal,
    step: u32,
    blob: *const c_void,
    blob_bytes: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let blob = unsafe { bytes(blob, blob_bytes, "blob") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        object.journal.prepared_reserve(prepared::bytes_for(blob.len(), core::iter::empty()))?;
        Ok(object.journal.prepared_write(step, blob, &[])?)
    })
}

/**
 * As rejoin_journal_prepare(), with buffers beside the blob, which rejoin_reader_prepared_part() gives back one by one.
 *
 * @param journal     open for writing
 * @param step        that begins with it
 * @param blob        copied
 * @param blob_bytes  its length
 * @param parts       copied, with what they lead to
 * @param part_count  how many; they are numbered from 0
 * @return as rejoin_journal_prepare()
 * Threads: any; one at a time is served. A crash leaves the old content or the new one.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_prepare_parts(
    journal: *const rejoin_journal,
    step: u32,
    blob: *const c_void,
    blob_bytes: usize,
    parts: *const rejoin_part,
    part_count: usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let blob = unsafe { bytes(blob, blob_bytes, "blob") }?;
        // SAFETY: pointers of C, as the header says.
        let parts = unsafe { self::parts(parts, part_count) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        object.journal.prepared_reserve(prepared::bytes_for(blob.len(), parts.iter().map(|part| part.len())))?;
        let numbered: Vec<(u32, &[u8])> = (0..).zip(parts).collect();
        Ok(object.journal.prepared_write(step, blob, &numbered)?)
    })
}

/**
 * Makes room, so that later calls of rejoin_journal_prepare() and rejoin_journal_prepare_parts() cannot find the
 * journal full.
 *
 * @param journal     open for writing
 * @param blob_bytes  the largest blob
 * @param part_bytes  the largest sum of all parts
 * @param part_count  the most parts
 * @return as rejoin_journal_prepare(); REJOIN_STATUS_INVALID_ARGUMENT (more than any journal has)
 * Threads: any; one at a time is served.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_prepare_reserve(
    journal: *const rejoin_journal,
    blob_bytes: usize,
    part_bytes: usize,
    part_count: usize,
) -> rejoin_status {
    /// Far above any journal, far below an overflow.
    const LARGEST: usize = 1 << 48;
    /// Padding and length of each part.
    const BESIDE: u64 = 32;
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        if [blob_bytes, part_bytes, part_count].into_iter().any(|size| size > LARGEST) {
            return Err(Failure::invalid(format!("{blob_bytes} and {part_bytes} bytes in {part_count} parts are more than a journal has")));
        }
        let bytes = prepared::bytes_for(blob_bytes, [part_bytes].into_iter()) + part_count as u64 * BESIDE;
        Ok(object.journal.prepared_reserve(bytes)?)
    })
}

/// Copies what was found, where there is room for it. No room asks for the length.
fn copy(found: Option<&[u8]>, what: &str, buffer: &mut [u8], out: Out<usize>) -> Result<()> {
    let found = found.ok_or_else(|| Failure::new(rejoin_status::NotFound, format!("the journal keeps no {what}")))?;
    let capacity = buffer.len();
    if capacity == 0 {
        out.set(found.len());
        return Ok(());
    }
    let room = buffer.get_mut(..found.len());
    let room = room.ok_or_else(|| Failure::invalid(format!("the {what} has {} bytes, the buffer {capacity}", found.len())))?;
    room.copy_from_slice(found);
    out.set(found.len());
    Ok(())
}

fn copy_blob(found: Option<&Prepared>, step: u32, buffer: &mut [u8], out: Out<usize>) -> Result<()> {
    copy(found.map(|found| &found.blob[..]), &format!("blob of step {step}"), buffer, out)
}

/**
 * Reads the blob that a step begins with.
 *
 * @param journal    open for writing
 * @param step       that begins with it
 * @param buffer     gets it
 * @param capacity   of the buffer; 0: only the length is wanted
 * @param out_bytes  set on OK: its length
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NOT_FOUND; REJOIN_STATUS_INVALID_ARGUMENT (the buffer is too
 *         small; the message says what it needs); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_prepared(
    journal: *const rejoin_journal,
    step: u32,
    buffer: *mut c_void,
    capacity: usize,
    out_bytes: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_bytes, "out_bytes") }?;
        // SAFETY: a pointer of C, as the header says.
        let buffer = unsafe { bytes_mut(buffer, capacity, "buffer") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        copy_blob(object.journal.prepared_read(step).as_ref(), step, buffer, out)
    })
}

/**
 * As rejoin_journal_prepared(), of a live writer or a dead one.
 *
 * @param reader     open
 * @param step       that begins with it
 * @param buffer     gets it
 * @param capacity   of the buffer; 0: only the length is wanted
 * @param out_bytes  set on OK: its length
 * @return as rejoin_journal_prepared(); REJOIN_STATUS_CORRUPT (the file was cut)
 * Threads: any, concurrently; slows no writer.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_prepared(
    reader: *const rejoin_reader,
    step: u32,
    buffer: *mut c_void,
    capacity: usize,
    out_bytes: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_bytes, "out_bytes") }?;
        // SAFETY: a pointer of C, as the header says.
        let buffer = unsafe { bytes_mut(buffer, capacity, "buffer") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_reader(reader) }?;
        let all = object.0.prepared()?;
        copy_blob(all.iter().find(|prepared| prepared.step == step), step, buffer, out)
    })
}

/**
 * Reads a buffer that was kept beside the blob. In the journal of a session these are the per-rank buffers, in the
 * order of their registration.
 *
 * @param reader     open
 * @param step       that begins with it
 * @param part       its number, from 0
 * @param buffer     gets it
 * @param capacity   of the buffer; 0: only the length is wanted
 * @param out_bytes  set on OK: its length
 * @return as rejoin_reader_prepared()
 * Threads: any, concurrently; slows no writer.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_prepared_part(
    reader: *const rejoin_reader,
    step: u32,
    part: u32,
    buffer: *mut c_void,
    capacity: usize,
    out_bytes: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_bytes, "out_bytes") }?;
        // SAFETY: a pointer of C, as the header says.
        let buffer = unsafe { bytes_mut(buffer, capacity, "buffer") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_reader(reader) }?;
        let all = object.0.prepared()?;
        let parts = all.iter().find(|prepared| prepared.step == step).map_or(&[][..], |found| &found.parts);
        let found = parts.iter().find(|(number, _)| *number == part);
        copy(found.map(|(_, bytes)| &bytes[..]), &format!("part {part} of step {step}"), buffer, out)
    })
}
