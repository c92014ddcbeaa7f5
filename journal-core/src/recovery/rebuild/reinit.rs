//! *reinit*: a fresh unique id for each clique and epoch, and an initialisation with the original ranks.
//! Works on every NCCL; on one host it costs no more than shrink and grow.

use super::Attempt;
use crate::error::Error;
use crate::membership::{BlobScope, Clique, Membership, Rank};
use crate::nccl::clique::CliqueKey;
use crate::nccl::{CommConfig, RealCommunicator, UNIQUE_ID_BYTES};

impl Attempt<'_> {
    /// The `wanted` cliques in the order of the job's table, which is the same on all ranks, so no two of them wait
    /// for each other.
    pub(super) fn reinit(&self, wanted: impl Fn(&Clique) -> bool) -> Result<(), Error> {
        for clique in self.membership().cliques()?.into_iter().filter(|c| wanted(c)) {
            let Some(rank) = clique.rank_of(self.me) else { continue };
            if let Some(parent) = self.core.communicator_of(CliqueKey(clique.description.key)).and_then(|(_, c)| c.lock().take()) {
                self.abort(vec![parent]);
            }
            let id = self.fresh_unique_id(&clique)?;
            let config = CommConfig::from_bytes(&clique.description.config);
            let real = RealCommunicator::init_rank(&self.core.agent.nccl, clique.description.nranks as i32, &id, rank as i32, &config)?;
            let real = self.await_ready(&format!("rebuild of communicator {}", CliqueKey(clique.description.key)), real)?;
            self.core.install(CliqueKey(clique.description.key), real)?;
        }
        Ok(())
    }

    /// Made by the lowest survivor of the clique, else by its lowest member; never accepted in another epoch.
    fn fresh_unique_id(&self, clique: &Clique) -> Result<[u8; UNIQUE_ID_BYTES], Error> {
        let members: Vec<Rank> = clique.members.iter().flatten().copied().collect();
        let maker: Rank = members
            .iter()
            .copied()
            .filter(|r| self.survivors.contains(*r))
            .min()
            .or_else(|| members.iter().copied().min())
            .ok_or(Error::Mismatch { what: format!("communicator {} has no members", CliqueKey(clique.description.key)) })?;
        // By strategy too: after a fallback the same clique needs another id in the same epoch.
        let key = format!("uid.{}.{}", self.strategy.as_str(), CliqueKey(clique.description.key));
        let scope = BlobScope::Epoch(self.epoch);
        if maker == self.me {
            let id = self.core.agent.nccl.unique_id()?;
            self.membership().publish(scope, &key, &id)?;
            return Ok(id);
        }
        let bytes = self.membership().await_blob(scope, &key, self.deadline())?;
        bytes.try_into().map_err(|b: Vec<u8>| Error::Mismatch { what: format!("unique id of {} bytes from rank {maker}", b.len()) })
    }
}
