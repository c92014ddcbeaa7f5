//! *new-rank*: the three calls of the original system, in its order. The replacement calls InitNewRank, the
//! others AddNewRank on the shrunk communicator; barrier; all call SetupNewRank; barrier.
//!
//! The calls carry no id, so the rendezvous goes by a setter that only host-nccl has.

use super::{Attempt, Halfway};
use crate::error::Error;
use crate::membership::{BlobScope, Clique, Membership};
use crate::nccl::clique::CliqueKey;
use crate::nccl::{CommConfig, RealCommunicator, UNIQUE_ID_BYTES};

impl Attempt<'_> {
    pub(super) fn add_new_rank(&self, clique: &Clique, shrunk: &mut Halfway) -> Result<Option<RealCommunicator>, Error> {
        let key = CliqueKey(clique.description.key);
        let nccl = &self.core.agent.nccl;
        nccl.set_new_rank_rendezvous(&self.new_rank_id(clique)?)?;
        if !self.healthy.contains(self.me) {
            let config = CommConfig::from_bytes(&clique.description.config);
            return Ok(Some(RealCommunicator::init_new_rank(nccl, clique.description.nranks as i32, &config)?));
        }
        let parent = shrunk.remove(&key).ok_or(Error::NotFound { what: format!("shrunk communicator {key}") })?;
        match parent.add_new_rank() {
            Ok(()) => Ok(Some(parent)),
            Err(error) => {
                self.abort(vec![parent]);
                Err(error.into())
            }
        }
    }

    pub(super) fn set_up_new_rank(&self, clique: &Clique, real: RealCommunicator) -> Result<RealCommunicator, Error> {
        let key = CliqueKey(clique.description.key);
        self.core.agent.nccl.set_new_rank_rendezvous(&self.new_rank_id(clique)?)?;
        match real.setup_new_rank() {
            Ok(()) => self.await_ready(&format!("SetupNewRank of communicator {key}"), real),
            Err(error) => {
                self.abort(vec![real]);
                Err(error.into())
            }
        }
    }

    /// Made by the lowest survivor, once an epoch and clique.
    fn new_rank_id(&self, clique: &Clique) -> Result<[u8; UNIQUE_ID_BYTES], Error> {
        let key = CliqueKey(clique.description.key);
        let (scope, blob) = (BlobScope::Epoch(self.epoch), format!("new-rank.{key}"));
        let known = self.membership().find_blob(scope, &blob)?;
        if known.is_none() && self.lowest_survivor(clique) == Some(self.me) {
            self.membership().publish(scope, &blob, &self.core.agent.nccl.unique_id()?)?;
        }
        let id = self.membership().await_blob(scope, &blob, self.deadline())?;
        id.try_into().map_err(|_| Error::Mismatch { what: format!("the id of new rank of communicator {key} is damaged") })
    }
}
