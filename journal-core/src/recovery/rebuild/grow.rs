//! *grow*: the shrunk communicators take the replacements in as their last ranks.

use super::{Attempt, Halfway};
use crate::error::Error;
use crate::membership::{BlobScope, Clique, Membership};
use crate::nccl::clique::CliqueKey;
use crate::nccl::{CommConfig, RealCommunicator, UNIQUE_ID_BYTES};

impl Attempt<'_> {
    pub(super) fn grow(&self, clique: &Clique, shrunk: &mut Halfway) -> Result<Option<RealCommunicator>, Error> {
        let key = CliqueKey(clique.description.key);
        let (scope, blob) = (BlobScope::Epoch(self.epoch), format!("grow.{key}"));
        let nranks = clique.description.nranks as i32;
        let config = CommConfig::from_bytes(&clique.description.config);
        let failed = self.in_stages(clique).unwrap_or_default();
        if let Some(place) = failed.iter().position(|r| *r == self.me) {
            let id = self.membership().await_blob(scope, &blob, self.deadline())?;
            let id: [u8; UNIQUE_ID_BYTES] =
                id.try_into().map_err(|_| Error::Mismatch { what: format!("the id to grow communicator {key} is damaged") })?;
            // New ranks follow the survivors, in the order of their old ranks.
            let rank = nranks - failed.len() as i32 + place as i32;
            let real = RealCommunicator::join_grow(&self.core.agent.nccl, nranks, &id, rank, &config)?;
            return self.await_ready(&format!("grow of communicator {key}"), real).map(Some);
        }
        let Some(parent) = shrunk.remove(&key) else { return Err(Error::NotFound { what: format!("shrunk communicator {key}") }) };
        let grown = self.grow_survivor(clique, &parent, nranks, &config);
        self.abort(vec![parent]);
        grown.map(Some)
    }

    fn grow_survivor(
        &self,
        clique: &Clique,
        parent: &RealCommunicator,
        nranks: i32,
        config: &CommConfig,
    ) -> Result<RealCommunicator, Error> {
        let key = CliqueKey(clique.description.key);
        let (scope, blob) = (BlobScope::Epoch(self.epoch), format!("grow.{key}"));
        // The id must exist before anybody grows: the others receive it inside their call.
        let id = if self.lowest_survivor(clique) == Some(self.me) {
            let id = parent.grow_id()?;
            self.membership().publish(scope, &blob, &id)?;
            Some(id)
        } else {
            self.membership().await_blob(scope, &blob, self.deadline())?;
            None
        };
        let real = parent.grow(nranks, id.as_ref(), config)?;
        self.await_ready(&format!("grow of communicator {key}"), real)
    }
}
