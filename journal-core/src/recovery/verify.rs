//! Verify: replicas are equal on all ranks, and collectives give the bits they gave before.

use super::attempt::Attempt;
use super::{fingerprint, restore, stage};
use crate::error::Error;
use crate::membership::{BlobScope, JobStrategy, Membership};
use crate::nccl::clique::CliqueKey;

impl Attempt<'_> {
    pub(super) fn verify(&mut self) -> Result<(), Error> {
        for clique in self.membership().cliques()? {
            if clique.rank_of(self.me).is_some() {
                let reference =
                    clique.members.iter().flatten().copied().filter(|r| self.healthy.contains(*r)).min().unwrap_or(self.me);
                self.compare_replicas(CliqueKey(clique.description.key), reference)?;
                self.compare_fingerprint(CliqueKey(clique.description.key), reference)?;
            }
        }
        self.barrier(stage::VERIFIED, true, &self.all)
    }

    fn compare_replicas(&self, key: CliqueKey, reference: crate::membership::Rank) -> Result<(), Error> {
        let sums = restore::replica_sums(&self.core.agent, &self.core.states(), key)?;
        let scope = BlobScope::Epoch(self.epoch);
        let (membership, me, deadline) = (self.membership(), self.me, self.deadline());
        restore::compare_sums(&restore::Comparison { membership, me, reference, scope, blob: format!("sums.{key}"), deadline }, &sums)
    }

    fn compare_fingerprint(&self, key: CliqueKey, reference: crate::membership::Rank) -> Result<(), Error> {
        let agent = &self.core.agent;
        let scope = BlobScope::Epoch(self.epoch);
        let blob = format!("probes.{key}");
        let before = agent.fingerprint.recorded(key);
        let bytes = if reference == self.me {
            let bytes: Vec<u8> = before.iter().flat_map(|(probe, _)| probe.to_bytes()).collect();
            self.membership().publish(scope, &blob, &bytes)?;
            bytes
        } else {
            self.membership().await_blob(scope, &blob, self.deadline())?
        };
        let probes: Vec<_> = bytes
            .chunks_exact(fingerprint::PROBE_BYTES)
            .map(|c| fingerprint::Probe::from_bytes(c.try_into().expect("chunks of that size")))
            .collect();
        let Some((_, communicator)) = self.core.communicator_of(key) else { return Ok(()) };
        let moved = || self.moved().is_some();
        let after = fingerprint::run(agent, &communicator, &probes, self.deadline(), &moved)?;
        let changed = before.iter().find(|(probe, hash)| after.iter().any(|(p, h)| p == probe && h != hash));
        if let (false, Some((probe, _))) = (self.renumbered(), changed) {
            return Err(Error::Mismatch {
                what: format!("{probe:?} on communicator {key} gives other bits than before the recovery; pin NCCL's algorithm and protocol"),
            });
        }
        agent.fingerprint.record(key, after);
        Ok(())
    }

    /// Ranks of communicators have moved, so the order of summation has too.
    pub(super) fn renumbered(&self) -> bool {
        self.membership().options().renumber && self.strategy != JobStrategy::Reinit
    }
}
