//! Leaving out set-up records that no replay needs any more.

use std::collections::HashSet;

use journal_core::journal::Sequence;
use journal_core::request;

use crate::argument::{Out, list};
use crate::boundary::boundary;
use crate::journal::{enter, rejoin_journal};
use crate::status::rejoin_status;

/**
 * Whether this thread's set-up records have grown enough for rejoin_journal_compact() to be worth a try.
 *
 * @param journal    open for writing
 * @param out_wants  set on OK: 1 or 0
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; each has records of its own. A few loads.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_wants_compaction(journal: *const rejoin_journal, out_wants: *mut u32) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_wants, "out_wants") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        out.set(u32::from(object.journal.wants_compaction()));
        Ok(())
    })
}

/**
 * Leaves out set-up records of this thread, below the last step boundary, that no replay needs: if they are more
 * than half of its bytes there. Call it between steps, after the results of the remaining records were stored: they
 * get another place, so a rejoin_record_ref from before is not good any more. A crash leaves the records as they
 * were or without the dead ones. A session does this by itself in rejoin_step_commit().
 *
 * @param journal      open for writing
 * @param dead         sequence numbers of the records; others' records and newer ones are kept all the same
 * @param dead_count   how many; 0: those of table requests whose objects are gone, as the table says
 * @param out_dropped  set on OK: records left out; 0: it was not worth it, or no room is free to copy into
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_JOURNAL_FULL (more threads than max_slots); REJOIN_STATUS_CORRUPT;
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any; each compacts its own records. Readers are not held up.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_journal_compact(
    journal: *const rejoin_journal,
    dead: *const u64,
    dead_count: usize,
    out_dropped: *mut u64,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_dropped, "out_dropped") }?;
        // SAFETY: a pointer of C, as the header says.
        let dead: HashSet<Sequence> = unsafe { list(dead, dead_count, "dead") }?.into_iter().map(Sequence).collect();
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(journal) }?;
        let by_table = dead.is_empty();
        let done = object.journal.compact(|snapshot, slot| if by_table { request::unneeded(snapshot, slot) } else { dead })?;
        out.set(done.map_or(0, |done| done.dropped));
        Ok(())
    })
}
