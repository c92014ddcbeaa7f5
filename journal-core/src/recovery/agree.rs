//! Agree: everyone works with the proposer's failed set, and knows whether it can be recovered from.

use super::attempt::Attempt;
use crate::error::{EndReason, Error};
use crate::membership::{BlobScope, Membership, Rank};
use crate::session::state::{StateKind, StateTable};

/// Key under which a rank publishes its state table at `setup_done`.
pub(crate) fn states_key(rank: Rank) -> String {
    format!("states.{rank}")
}

impl Attempt<'_> {
    pub(super) fn agree(&mut self) -> Result<(), Error> {
        let membership = self.membership();
        if !membership.launcher_alive() && self.failed.iter().any(|f| f.cause.is_fenced()) {
            return self.end(EndReason::NoLauncher, "the launcher is gone");
        }
        if self.leader {
            self.refuse_lost_state()?;
        }
        self.check()
    }

    /// A replicated buffer whose clique has no survivor is gone for good.
    fn refuse_lost_state(&self) -> Result<(), Error> {
        let membership = self.membership();
        let cliques = membership.cliques()?;
        for failure in self.failed.iter().filter(|f| f.cause.is_fenced()) {
            let Some(bytes) = membership.find_blob(BlobScope::Job, &states_key(failure.rank))? else { continue };
            for state in StateTable::from_bytes(&bytes).of_kind(StateKind::Replicated) {
                let Some(clique) = cliques.iter().find(|c| Some(c.key.0) == state.clique.map(|k| k.0)) else { continue };
                if !clique.members().iter().any(|rank| self.survivors.contains(*rank)) {
                    return Err(Error::NotRecoverable {
                        what: format!(
                            "the last replica of state {:?} ({} bytes) was lost with rank {}: no rank of its communicator survives",
                            state.name, state.bytes, failure.rank
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    fn end(&self, reason: EndReason, text: &str) -> Result<(), Error> {
        self.membership().note_end(text);
        self.membership().end(reason as u32);
        Err(self.core.agent.doomed())
    }
}
