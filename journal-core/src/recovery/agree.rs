//! Agree: everyone works with the proposer's failed set, and knows whether it can be recovered from.

use super::attempt::Attempt;
use crate::error::{EndReason, Error};
use super::end_job;
use crate::journal::SegmentName;
use crate::membership::{BlobScope, LauncherState, Membership, Rank, ShmMembership};
use crate::session::state::{StateKind, StateTable};

/// Key under which a rank publishes its state table at `setup_done`.
pub fn states_key(rank: Rank) -> String {
    format!("states.{rank}")
}

impl Attempt<'_> {
    pub(super) fn agree(&mut self) -> Result<(), Error> {
        let membership = self.membership();
        if membership.launcher().1 != LauncherState::Alive && self.failed.iter().any(|f| f.cause.is_fenced()) {
            if self.leader {
                self.remove_segments();
            }
            end_job(self.core, EndReason::NoLauncher, "the launcher is gone, so nobody can start a replacement");
            return Err(self.core.agent.doomed());
        }
        if self.leader {
            self.refuse_lost_state()?;
        }
        self.check()
    }

    /// Nobody else is left to do it. The journals of the living go with their names only.
    fn remove_segments(&self) {
        let job = &self.core.options.job;
        for (rank, seat) in (0..).zip(self.membership().seats()) {
            for incarnation in 0..=seat.incarnation.0 {
                if let Ok(name) = SegmentName::journal(job, rank, incarnation) {
                    let _ = crate::journal::remove(&name);
                }
            }
        }
        let _ = ShmMembership::unlink(job);
    }

    /// A replicated buffer whose clique has no survivor is gone for good.
    fn refuse_lost_state(&self) -> Result<(), Error> {
        let membership = self.membership();
        let cliques = membership.cliques()?;
        for failure in self.failed.iter() {
            let Some(bytes) = membership.find_blob(BlobScope::Permanent, &states_key(failure.rank))? else { continue };
            for state in StateTable::from_bytes(&bytes).of_kind(StateKind::Replicated) {
                let Some(clique) = cliques.iter().find(|c| Some(c.description.key) == state.clique.map(|k| k.0)) else { continue };
                if !clique.members.iter().flatten().any(|rank| self.healthy.contains(*rank)) {
                    return Err(Error::NotRecoverable {
                        what: format!(
                            "the last replica of state {:?} ({} bytes) was lost with rank {}: no healthy rank of its communicator is left",
                            state.name, state.bytes, failure.rank
                        ),
                    });
                }
            }
        }
        Ok(())
    }
}
