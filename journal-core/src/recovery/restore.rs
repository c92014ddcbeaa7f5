//! Restore: replicated state from a donor over the rebuilt communicators, per-rank state from PREPARED.

use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use super::attempt::Attempt;
use super::stage;
use crate::agent::Agent;
use crate::backend::{Copy, RealHandle};
use crate::error::Error;
use crate::membership::{BlobScope, Clique, Membership, Rank, ShmMembership};
use crate::nccl::clique::CliqueKey;
use crate::nccl::{Collective, DataType, Progress, RealCommunicator};
use crate::session::prepared;
use crate::session::state::{State, StateKind, StateTable};

impl Attempt<'_> {
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        let newcomers: Vec<Rank> = self.failed.iter().filter(|f| f.cause.is_fenced()).map(|f| f.rank).collect();
        let receivers: Vec<Rank> = self.failed.iter().map(|f| f.rank).collect();
        let ready = |rank: Rank| format!("ready.{rank}");
        let scope = BlobScope::Epoch(self.epoch);
        let set_up_deadline = Instant::now() + self.core.agent.peer_timeout;
        if self.newcomer {
            let moved = || self.moved();
            self.core.wait_progress("setup_done of the replacement", set_up_deadline, moved, |p| p.set_up.then_some(()))?;
            self.membership().publish(scope, &ready(self.me), &table_digest(&self.core.states()).to_le_bytes())?;
        }
        for rank in &newcomers {
            self.membership().await_blob(scope, &ready(*rank), set_up_deadline)?;
        }
        let table = self.core.states();
        // A foreign application's own work may still be writing: it gets its per-rank state back in `resume`,
        // when it has stopped.
        if self.newcomer || !self.core.agent.is_foreign() {
            prepared::restore(&self.core.agent, &table, self.resume_step())?;
        }
        for rank in receivers {
            self.restore_replicas(rank, &table)?;
            self.restore_constants(rank, &table)?;
        }
        self.poison_unregistered(&table)?;
        self.barrier(stage::RESTORED, true, &self.all)
    }

    /// Sends, or receives, each replicated buffer of `newcomer` over the communicator of its clique.
    fn restore_replicas(&mut self, newcomer: Rank, table: &StateTable) -> Result<(), Error> {
        for clique in self.membership().cliques()? {
            let key = CliqueKey(clique.description.key);
            let states: Vec<&State> = table.of_kind(StateKind::Replicated).filter(|s| s.clique == Some(key)).collect();
            if clique.rank_of(newcomer).is_none() {
                continue;
            }
            let Some(donor) = self.lowest_survivor(&clique) else {
                if let (true, Some(state)) = (newcomer == self.me, states.first()) {
                    return Err(Error::NotRecoverable { what: format!("nobody holds a replica of state {:?} any more", state.name) });
                }
                continue;
            };
            let Some(peer) = self.peer_in(&clique, donor, newcomer) else { continue };
            self.compare_layout("layout", key, newcomer, donor, &states)?;
            if states.is_empty() {
                continue;
            }
            self.transfer(key, &states, peer, self.me == donor)?;
            self.clock.restored(donor, states.iter().map(|s| s.bytes).sum());
        }
        Ok(())
    }

    /// A set-up that gave other constants than the first one (it read a file that has changed, say) gets them from a
    /// donor of their clique. `newcomer` says which; nobody sends what is right already.
    fn restore_constants(&self, newcomer: Rank, table: &StateTable) -> Result<(), Error> {
        let scope = BlobScope::Epoch(self.epoch);
        let mut differing = if newcomer == self.me { self.differing_constants(table)? } else { Vec::new() };
        for clique in self.membership().cliques()? {
            let key = CliqueKey(clique.description.key);
            let constants: Vec<&State> = table.of_kind(StateKind::Constant).filter(|s| s.clique == Some(key)).collect();
            let Some(donor) = self.lowest_survivor(&clique) else { continue };
            let Some(peer) = self.peer_in(&clique, donor, newcomer).filter(|_| !constants.is_empty()) else { continue };
            self.compare_layout("constants", key, newcomer, donor, &constants)?;
            let blob = format!("constants.{key}.{newcomer}");
            let bitmap: Vec<u8> = if self.me == newcomer {
                let wanted: Vec<u8> = constants.iter().map(|s| u8::from(differing.contains(&s.name))).collect();
                self.membership().publish(scope, &blob, &wanted)?;
                wanted
            } else {
                self.membership().await_blob(scope, &blob, self.deadline())?
            };
            let wanted: Vec<&State> = constants.iter().zip(&bitmap).filter(|(_, wanted)| **wanted == 1).map(|(s, _)| *s).collect();
            differing.retain(|name| !wanted.iter().any(|s| s.name == *name));
            if wanted.is_empty() {
                continue;
            }
            self.transfer(key, &wanted, peer, self.me == donor)?;
        }
        match differing.first() {
            Some(name) => Err(Error::NotRecoverable {
                what: format!(
                    "the set-up of rank {} gave constant state {name:?} another content than in its first process, and no healthy rank \
                     holds it",
                    self.me
                ),
            }),
            None => Ok(()),
        }
    }

    /// Names of this rank's constants whose content is not that of its first process.
    fn differing_constants(&self, table: &StateTable) -> Result<Vec<String>, Error> {
        let first = self.membership().find_blob_of(self.me, BlobScope::Permanent, &constants_key(self.me))?.unwrap_or_default();
        let now = constant_sums(&self.core.agent, table)?;
        let names = table.of_kind(StateKind::Constant).map(|s| &s.name);
        let differs = |at: usize| first.get(at * 8..at * 8 + 8) != now.get(at * 8..at * 8 + 8);
        Ok(names.enumerate().filter(|(at, _)| differs(*at)).map(|(_, name)| name.clone()).collect())
    }

    /// Test mode `REJOIN_POISON=1`: memory without a state kind is filled with NaN before a redo, so that a
    /// buffer that should have been registered shows at once.
    fn poison_unregistered(&self, table: &StateTable) -> Result<(), Error> {
        if self.newcomer || std::env::var_os("REJOIN_POISON").is_none_or(|v| v != "1") {
            return Ok(());
        }
        let agent = &self.core.agent;
        for (base, bytes) in agent.device.allocations() {
            for (address, bytes) in table.gaps(base, bytes) {
                agent.device.memset(address, 0xff, bytes, RealHandle(0))?;
            }
        }
        agent.wait_unrecorded(RealHandle(0))
    }

    /// Donor and newcomer must have registered the same buffers, or bytes would land in the wrong one.
    fn compare_layout(&self, kind: &str, key: CliqueKey, newcomer: Rank, donor: Rank, states: &[&State]) -> Result<(), Error> {
        let layout: String = states.iter().map(|s| format!("{}:{};", s.name, s.bytes)).collect();
        let scope = BlobScope::Epoch(self.epoch);
        let blob = |rank: Rank| format!("{kind}.{key}.{newcomer}.{rank}");
        self.membership().publish(scope, &blob(self.me), &xxh3_64(layout.as_bytes()).to_le_bytes())?;
        let other = if self.me == donor { newcomer } else { donor };
        let theirs = self.membership().await_blob(scope, &blob(other), self.deadline())?;
        if theirs != xxh3_64(layout.as_bytes()).to_le_bytes() {
            return Err(Error::Mismatch {
                what: format!(
                    "ranks {donor} and {newcomer} registered different states on communicator {key}; rank {} has {layout:?}",
                    self.me
                ),
            });
        }
        Ok(())
    }

    /// The other side of a transfer from `donor` to `newcomer`, as its rank in the clique; `None`: not this rank's.
    fn peer_in(&self, clique: &Clique, donor: Rank, newcomer: Rank) -> Option<i32> {
        let (from, to) = (clique.rank_of(donor)?, clique.rank_of(newcomer)?);
        match self.me {
            me if me == donor => Some(to as i32),
            me if me == newcomer => Some(from as i32),
            _ => None,
        }
    }

    fn transfer(&self, key: CliqueKey, states: &[&State], peer: i32, sends: bool) -> Result<(), Error> {
        let agent = &self.core.agent;
        let (_, communicator) = self.core.communicator_of(key).ok_or_else(|| Error::Mismatch {
            what: format!("rank {} has not created communicator {key} in its set-up", self.me),
        })?;
        let stream = agent.device.stream_native(RealHandle(0));
        let deadline = self.deadline();
        let datatype = DataType::Uint8 as i32;
        agent.nccl.start_group()?;
        let queued: Result<(), Error> = states.iter().try_for_each(|state| {
            let (buffer, count) = (state.address, state.bytes);
            let call = match sends {
                true => Collective::Send { buffer, count, datatype, peer },
                false => Collective::Recv { buffer, count, datatype, peer },
            };
            let guard = communicator.lock();
            Ok(guard.as_ref().ok_or(Error::Redo)?.enqueue(call, stream)?)
        });
        agent.nccl.end_group()?;
        queued?;
        self.until("restore: launch", deadline, || match communicator.lock().as_ref().map(RealCommunicator::state) {
            Some(Progress::Ready) => Ok(true),
            Some(Progress::InProgress) => Ok(false),
            Some(Progress::Failed(error)) => Err(error.into()),
            None => Err(Error::Redo),
        })?;
        self.until("restore: transfer of state", deadline, || Ok(agent.device.stream_query(RealHandle(0))?))?;
        self.check()
    }
}

/// A number that is the same on replacements that registered the same buffers.
fn table_digest(table: &StateTable) -> u64 {
    xxh3_64(&table.to_bytes())
}

/// Key under which the first process of a rank publishes [`constant_sums`].
pub(crate) fn constants_key(rank: Rank) -> String {
    format!("constants.{rank}")
}

/// Checksums of the constants, in the order of registration.
pub(crate) fn constant_sums(agent: &Agent, table: &StateTable) -> Result<Vec<u8>, Error> {
    let mut sums = Vec::new();
    for state in table.of_kind(StateKind::Constant) {
        sums.extend_from_slice(&checksum(agent, state)?.to_le_bytes());
    }
    Ok(sums)
}

/// Content of a buffer as a 64-bit checksum.
fn checksum(agent: &Agent, state: &State) -> Result<u64, Error> {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    let mut piece = vec![0_u8; usize::try_from(state.bytes.min(4 << 20)).unwrap_or(0)];
    let mut at = 0;
    while at < state.bytes {
        let bytes = (state.bytes - at).min(piece.len() as u64);
        let src = crate::backend::DevicePtr(state.address.0 + at);
        agent.copy_unrecorded(Copy::DeviceToHost { dst: piece.as_mut_ptr(), src }, bytes)?;
        hasher.update(&piece[..usize::try_from(bytes).unwrap_or(0)]);
        at += bytes;
    }
    Ok(hasher.digest())
}

/// Checksums of what must be the same on all ranks of a clique: replicated and constant buffers, by name.
pub(crate) fn replica_sums(agent: &Agent, table: &StateTable, key: CliqueKey) -> Result<Vec<(String, u64)>, Error> {
    let shared = |s: &&State| matches!(s.kind, StateKind::Replicated | StateKind::Constant) && s.clique == Some(key);
    table.iter().filter(shared).map(|state| Ok((state.name.clone(), checksum(agent, state)?))).collect()
}

/// Where replicas are compared: with `reference`, who publishes its checksums under `blob`.
pub(crate) struct Comparison<'a> {
    pub membership: &'a ShmMembership,
    pub me: Rank,
    pub reference: Rank,
    pub scope: BlobScope,
    pub blob: String,
    pub deadline: Instant,
}

/// Compares the checksums of this rank with those of the reference.
pub(crate) fn compare_sums(at: &Comparison<'_>, sums: &[(String, u64)]) -> Result<(), Error> {
    let bytes: Vec<u8> = sums.iter().flat_map(|(_, sum)| sum.to_le_bytes()).collect();
    if sums.is_empty() {
        return Ok(());
    }
    let (me, reference) = (at.me, at.reference);
    if reference == me {
        return Ok(at.membership.publish(at.scope, &at.blob, &bytes)?);
    }
    let theirs = at.membership.await_blob(at.scope, &at.blob, at.deadline)?;
    let differs = sums.iter().zip(theirs.chunks(8)).find(|((_, sum), other)| sum.to_le_bytes() != **other);
    match differs {
        Some(((name, _), _)) => Err(Error::Mismatch {
            what: format!(
                "state {name:?} is registered as the same on all ranks but differs between ranks {reference} and {me}: \
                 it is per-rank state, or something wrote it before GO"
            ),
        }),
        None if theirs.len() != bytes.len() => {
            Err(Error::Mismatch { what: format!("ranks {reference} and {me} hold different numbers of replicas") })
        }
        None => Ok(()),
    }
}
