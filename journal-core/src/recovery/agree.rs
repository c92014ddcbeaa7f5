//! Agree: everyone works with the proposer's failed set, and knows whether it can be recovered from.

use super::attempt::Attempt;
use crate::error::Error;
use super::end_without_launcher;
use crate::membership::{BlobScope, Membership, Rank, ShmMembership};
use crate::session::state::{StateKind, StateTable};

/// Key under which a rank publishes its state table at `setup_done`.
pub fn states_key(rank: Rank) -> String {
    format!("states.{rank}")
}

/// Key of the text about memory without a state kind (`REJOIN_UNREGISTERED=warn`), for the launcher to tell.
pub fn unregistered_key(rank: Rank) -> String {
    format!("unregistered.{rank}")
}

/// Replicated state with a single holder, as (rank, name): if that rank dies, the job ends. For the launcher to tell.
pub fn states_with_one_holder(membership: &ShmMembership) -> Result<Vec<(Rank, String)>, Error> {
    let cliques = membership.cliques()?;
    let mut found = Vec::new();
    for rank in (0..membership.nranks()).map(Rank) {
        let Some(bytes) = membership.find_blob(BlobScope::Permanent, &states_key(rank))? else { continue };
        for state in StateTable::from_bytes(&bytes).of_kind(StateKind::Replicated) {
            let clique = cliques.iter().find(|c| Some(c.description.key) == state.clique.map(|k| k.0));
            if clique.is_some_and(|c| c.members.len() == 1) {
                found.push((rank, state.name.clone()));
            }
        }
    }
    Ok(found)
}

impl Attempt<'_> {
    pub(super) fn agree(&mut self) -> Result<(), Error> {
        let membership = self.membership();
        if self.failed.iter().any(|f| f.cause.is_fenced()) && !membership.launcher_lives() {
            return Err(end_without_launcher(self.core));
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
