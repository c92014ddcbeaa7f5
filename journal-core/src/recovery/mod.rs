//! Recovery: from a moved epoch to a job that goes on.
//!
//! ```text
//! agree -> fence -> quiesce -> rebuild -> replay -> restore -> verify -> resume
//! ```
//!
//! Each rank runs these stages on its recovery thread; a replacement joins at *rebuild*. A death in the
//! middle, or a stage that fails, starts again with the next epoch and the larger failed set.

mod agree;
mod attempt;
mod fence;
pub mod fingerprint;
mod open_step;
mod quiesce;
mod rebuild;
pub(crate) mod stage;
mod report;
mod replay;
pub mod replayable;
pub(crate) mod restore;
mod verify;

use std::sync::Arc;

pub use agree::{states_key, states_with_one_holder, unregistered_key};
use attempt::Attempt;

use crate::error::{EndReason, Error};
use crate::membership::{BlobScope, Cause, Failure, JobStrategy, Membership, MembershipError, Rank};
use crate::session::core::Core;

/// Attempts in a row that may fail for another reason than a death.
const FRUITLESS_ATTEMPTS: u32 = 3;

/// The body of the recovery thread: waits for the epoch to move, recovers, until the session closes.
pub fn run(core: &Arc<Core>) {
    if let Err(error) = core.agent.device.make_current() {
        return fail(core, error.into());
    }
    let mut fruitless = 0;
    loop {
        let membership = core.membership();
        let seen = membership.event();
        if core.progress().stop {
            return;
        }
        core.agent.tell_of_hung_aborts();
        let decision = membership.decision();
        if decision.is_ended() {
            // Whoever ended it may have died before it had removed everything.
            if !matches!(core.agent.doomed(), Error::Ended { reason: EndReason::Finished }) {
                remove_without_launcher(core);
            }
            return fail(core, core.agent.doomed());
        }
        // Before the first setup_done of all, the launcher starts the whole job again.
        // A process that was stopped while it was replaced: whatever the job is at, it goes on without it.
        if let Err(error @ MembershipError::Evicted { .. }) = membership.check() {
            return fail(core, error.into());
        }
        if decision.is_failed() && !membership.setup_complete() && !membership.launcher_lives() {
            return fail(core, end_without_launcher(core));
        }
        if decision.epoch == core.agent.epoch() || !decision.is_failed() || !membership.setup_complete() {
            membership.wait(seen, std::time::Instant::now() + std::time::Duration::from_secs(1));
            continue;
        }
        let before = decision.epoch;
        let error = match Attempt::begin(core, decision).and_then(|mut attempt| attempt.run()) {
            Ok(()) => {
                fruitless = 0;
                continue;
            }
            Err(error) => error,
        };
        tracing::debug!(epoch = before.0, %error, "recovery attempt ended");
        if membership.decision().epoch != before {
            continue;
        }
        // The epoch stands, so no other death explains it: blame who is missing, or give up in the end.
        fruitless += 1;
        let end = match &error {
            Error::Ended { .. } | Error::Evicted { .. } => return fail(core, error),
            Error::NotRecoverable { .. } => Some(EndReason::StateLost),
            Error::Mismatch { .. } => Some(EndReason::Mismatch),
            _ if fruitless >= FRUITLESS_ATTEMPTS => Some(EndReason::RecoveryFailed),
            _ => None,
        };
        if let Some(reason) = end {
            end_job(core, reason, &format!("rank {}: {error}", core.agent.rank));
            continue;
        }
        let blamed: Vec<Failure> = missing(&error)
            .into_iter()
            .filter(|rank| *rank != core.agent.rank)
            .map(|rank| Failure { rank, incarnation: membership.seat(rank).incarnation, cause: Cause::Hung })
            .collect();
        if blamed.is_empty() && membership.options().strategy != JobStrategy::Reinit {
            let _ = membership.publish(BlobScope::Permanent, attempt::REINIT_ONLY, &[1]);
        }
        let _ = membership.propose(before, &blamed);
    }
}

fn missing(error: &Error) -> Vec<Rank> {
    match error {
        Error::Timeout { missing, .. } => missing.iter().copied().map(Rank).collect(),
        Error::Membership(crate::membership::MembershipError::Timeout { missing, .. }) => missing.clone(),
        _ => Vec::new(),
    }
}

/// Key of the blob that says why a job ended.
pub const END_TEXT: &str = "end";

/// Ends the job for everybody; the first text and reason stay.
pub(crate) fn end_job(core: &Core, reason: EndReason, text: &str) {
    let membership = core.membership();
    if matches!(membership.find_blob(BlobScope::Permanent, END_TEXT), Ok(None)) {
        let _ = membership.publish(BlobScope::Permanent, END_TEXT, text.as_bytes());
    }
    remove_without_launcher(core);
    membership.end(reason as u32);
}

/// Ends the job since nobody starts replacements any more; the error for the caller.
fn end_without_launcher(core: &Core) -> Error {
    end_job(core, EndReason::NoLauncher, "the launcher is gone, so nobody can start a replacement");
    core.agent.doomed()
}

/// A dead launcher cannot remove what is left of an ended job, so its ranks do; mappings stay.
fn remove_without_launcher(core: &Core) {
    if !core.membership().launcher_lives()
        && let Err(error) = core.membership().remove_segments()
    {
        tracing::warn!(%error, "segments of the ended job are left; `rejoin gc` removes them");
    }
}

fn fail(core: &Core, error: Error) {
    core.update(|p| {
        p.failed.get_or_insert_with(|| Arc::new(error));
    });
    core.wake();
}
