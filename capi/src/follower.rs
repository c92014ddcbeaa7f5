//! Following a journal while it is written.

use core::ffi::c_char;
use std::collections::VecDeque;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use journal_core::journal::{Event, Follower, Record};

use crate::argument::{Out, Versioned, VersionedOut};
use crate::boundary::{Failure, Result, boundary};
use crate::shell::{Call, Shell, object};
use crate::snapshot::{open_reader, rejoin_outcome, rejoin_record};
use crate::status::rejoin_status;

/// Reads a journal as it is written.
pub struct rejoin_follower {
    _opaque: [u8; 0],
}

struct State {
    follower: Follower,
    /// Looked up, not told yet.
    next: VecDeque<Event>,
    /// What was told last: C has a pointer to its payload.
    told: Option<Record>,
}

struct FollowerObject(Mutex<State>);

object!(FollowerObject, "rejoin_follower", b"RJ-follw");

/// Events looked up at a time: they bound the memory that following takes.
const BATCH: usize = 32;
/// Longest sleep before looking whether the writer lives and the follower is still open.
const LOOK: Duration = Duration::from_millis(100);
/// As good as no limit, and no clock overflows by it.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/**
 * Opens a journal to follow it: every record once, in the journal's order, while it is written. It begins with the
 * first set-up record and the open step. Writers are never disturbed and never wait for a follower.
 *
 * @param name          as in rejoin_reader_open()
 * @param out_follower  set on OK; give it to rejoin_follower_close()
 * @return as rejoin_reader_open()
 * Threads: any, concurrently.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_follower_open(name: *const c_char, out_follower: *mut *mut rejoin_follower) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_follower, "out_follower") }?;
        // SAFETY: a pointer of C, as the header says.
        let follower = unsafe { open_reader(name) }?.follow();
        out.set(Shell::create(FollowerObject(Mutex::new(State { follower, next: VecDeque::new(), told: None }))).cast());
        Ok(())
    })
}

/**
 * Closes a follower. A thread that waits in rejoin_follower_next() comes back with REJOIN_STATUS_CLOSED.
 *
 * @param follower  NULL does nothing
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_CLOSED (a second time); REJOIN_STATUS_FORKED
 * Threads: any.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_follower_close(follower: *mut rejoin_follower) -> rejoin_status {
    // SAFETY: a pointer of C, as the header says.
    boundary(|| unsafe { Shell::<FollowerObject>::close(follower.cast()) })
}

/**
 * The next record; waits until there is one. Its call may not have returned yet: `has_result` is as it was seen.
 *
 * A record with the outcome REJOIN_OUTCOME_MISSING stands for `missing` sequence numbers from `sequence` on that will
 * not come: a death took them, or their step was over before this follower was there to read them.
 *
 *     for (;;) {
 *         rejoin_status st = rejoin_follower_next(follower, 1000, &record);
 *         if (st == REJOIN_STATUS_NOT_FOUND) break;                 // the writer has ended, all was told
 *         if (st == REJOIN_STATUS_TIMEOUT) continue;                // it lives, and has nothing to say
 *         CHECK(st);
 *         ...
 *     }
 *
 * @param follower    open
 * @param timeout_ms  longest wait; 0: none; UINT64_MAX: until there is something to tell
 * @param out_record  initialised with REJOIN_RECORD_INIT; set on OK. Its payload is the follower's, valid until the
 *                    next call on it or its close
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_TIMEOUT (the message says who was waited for);
 *         REJOIN_STATUS_NOT_FOUND (all was told, and the writer finished or is dead; a later call looks again);
 *         REJOIN_STATUS_CORRUPT (the file was cut); REJOIN_STATUS_WRONG_STATE (another thread is in here);
 *         REJOIN_STATUS_CLOSED; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, one at a time. Signals do not interrupt it: one that ends the process does so at once, for others
 *          choose a timeout and look at a flag after it.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_follower_next(
    follower: *mut rejoin_follower,
    timeout_ms: u64,
    out_record: *mut rejoin_record,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { VersionedOut::new(out_record, "out_record") }?;
        // SAFETY: a pointer of C, as the header says.
        let call = unsafe { Shell::<FollowerObject>::enter(follower.cast()) }?;
        let mut state = match call.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let message = "another thread is in rejoin_follower_next on this follower: open one for each thread";
                return Err(Failure::new(rejoin_status::WrongState, message));
            }
        };
        let event = state.next(Duration::from_millis(timeout_ms), &call)?;
        match event {
            Event::Record(record) => out.set(&rejoin_record::from(&*state.told.insert(record))),
            Event::Missing(range) => out.set(&rejoin_record {
                sequence: range.start,
                missing: range.end - range.start,
                outcome: rejoin_outcome::Missing as u32,
                ..rejoin_record::defaults()
            }),
            _ => return Err(Failure::new(rejoin_status::Version, "the journal tells what this library does not know")),
        }
        Ok(())
    })
}

impl State {
    fn next(&mut self, timeout: Duration, call: &Call<'_, FollowerObject>) -> Result<Event> {
        if let Some(event) = self.next.pop_front() {
            return Ok(event);
        }
        let deadline = Instant::now() + timeout.min(LONGEST);
        loop {
            // Asked before the look: what was written until then is told by it.
            let ended = self.follower.reader().writer_ended();
            let slice = if ended { Instant::now() } else { deadline.min(Instant::now() + LOOK) };
            self.next.extend(self.follower.wait(BATCH, slice)?);
            if let Some(event) = self.next.pop_front() {
                return Ok(event);
            }
            let base = self.follower.reader().identity();
            if ended {
                return Err(Failure::new(
                    rejoin_status::NotFound,
                    format!("the journal of rank {} has ended, and all of it was told", base.rank),
                ));
            }
            call.check_open()?;
            if Instant::now() >= deadline {
                let waited = format!("waited {} ms for the next record of rank {}", timeout.as_millis(), base.rank);
                let writer = format!("process {} has written nothing more and lives", base.creator_pid);
                return Err(Failure::new(rejoin_status::Timeout, format!("{waited}: {writer}")));
            }
        }
    }
}
