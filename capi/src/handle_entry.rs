//! The handles of a journal, listed.

use journal_core::handle::VirtualHandle;

use crate::argument::Out;
use crate::boundary::{Failure, Result, boundary};
use crate::handle::rejoin_handle;
use crate::journal::{enter, rejoin_journal};
use crate::snapshot::{enter_reader, rejoin_reader};
use crate::status::rejoin_status;

/// A handle that is in use, in a journal's table.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_handle_entry {
    /// The handle.
    pub handle: rejoin_handle,
    /// Its object, by its value.
    pub real: u64,
    /// A rejoin_handle_kind.
    pub kind: u32,
    /// 1: it has an object now, `real`.
    pub is_bound: u32,
}

/// Room for entries of C, and the number that there are.
struct EntriesOut {
    room: *mut rejoin_handle_entry,
    capacity: usize,
    count: Out<usize>,
}

impl EntriesOut {
    /// # Safety
    /// The pointers are NULL or writable for `capacity` entries and a number, until the call returns.
    unsafe fn new(room: *mut rejoin_handle_entry, capacity: usize, count: *mut usize) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let count = unsafe { Out::new(count, "out_count") }?;
        if room.is_null() && capacity > 0 {
            return Err(Failure::null("entries"));
        }
        Ok(Self { room, capacity, count })
    }

    fn set(self, live: Vec<(VirtualHandle, Option<u64>)>) {
        for (n, (handle, real)) in live.iter().take(self.capacity).enumerate() {
            let entry = rejoin_handle_entry {
                handle: handle.0,
                real: real.unwrap_or(0),
                kind: handle.kind().map_or(0, |kind| kind as u32),
                is_bound: u32::from(real.is_some()),
            };
            // SAFETY: below the capacity that the caller promised.
            unsafe { self.room.wrapping_add(n).write_unaligned(entry) };
        }
        self.count.set(live.len());
    }
}

/**
 * The handles that are in use in a journal, bound or not.
 *
 * @param journal    open for writing
 * @param entries    gets as many as it has room for
 * @param capacity   of it, in entries; 0: only the number is wanted
 * @param out_count  set on OK: how many there are
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; each entry is whole, but others may come and go meanwhile.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_handles(
    journal: *const rejoin_journal,
    entries: *mut rejoin_handle_entry,
    capacity: usize,
    out_count: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { EntriesOut::new(entries, capacity, out_count) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(object.journal.handles().live());
        Ok(())
    })
}

/**
 * As rejoin_journal_handles(), of a live writer or a dead one.
 *
 * @param reader     open
 * @param entries    gets as many as it has room for
 * @param capacity   of it, in entries; 0: only the number is wanted
 * @param out_count  set on OK: how many there are
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CORRUPT (the file was cut); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; slows no writer.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_reader_handles(
    reader: *const rejoin_reader,
    entries: *mut rejoin_handle_entry,
    capacity: usize,
    out_count: *mut usize,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: pointers of C, as the header says.
        let out = unsafe { EntriesOut::new(entries, capacity, out_count) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter_reader(reader) }?;
        out.set(object.0.live_handles()?);
        Ok(())
    })
}
