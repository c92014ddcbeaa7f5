//! Restore: replicated state from a donor over the rebuilt communicators, per-rank state from PREPARED.

use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use super::attempt::Attempt;
use super::stage;
use crate::agent::Communicator;
use crate::backend::{Copy, RealHandle};
use crate::error::Error;
use crate::membership::{BlobScope, Membership, Rank};
use crate::nccl::clique::CliqueKey;
use crate::nccl::{Collective, DataType, Progress, RealCommunicator};
use crate::session::prepared;
use crate::session::state::{State, StateKind, StateTable};

impl Attempt<'_> {
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        let newcomers: Vec<Rank> = self.failed.iter().filter(|f| f.cause.is_fenced()).map(|f| f.rank).collect();
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
        prepared::restore(&self.core.agent, &table, self.resume_step())?;
        for rank in newcomers {
            self.restore_replicas(rank, &table)?;
        }
        self.barrier(stage::RESTORED, true, &self.all)
    }

    /// Sends, or receives, each replicated buffer of `newcomer` over the communicator of its clique.
    fn restore_replicas(&mut self, newcomer: Rank, table: &StateTable) -> Result<(), Error> {
        for clique in self.membership().cliques()? {
            let key = CliqueKey(clique.description.key);
            let states: Vec<&State> = table.of_kind(StateKind::Replicated).filter(|s| s.clique == Some(key)).collect();
            let Some(to) = clique.rank_of(newcomer) else { continue };
            let Some(donor) = clique.members.iter().flatten().copied().filter(|r| self.survivors.contains(*r)).min() else {
                if let (true, Some(state)) = (newcomer == self.me, states.first()) {
                    return Err(Error::NotRecoverable { what: format!("nobody holds a replica of state {:?} any more", state.name) });
                }
                continue;
            };
            let from = clique.rank_of(donor).unwrap_or(0);
            let peer = match self.me {
                me if me == donor => to,
                me if me == newcomer => from,
                _ => continue,
            };
            self.compare_layout(key, newcomer, donor, &states)?;
            if states.is_empty() {
                continue;
            }
            let (_, communicator) = self.core.communicator_of(key).ok_or_else(|| Error::Mismatch {
                what: format!("rank {} has not created communicator {key} in its set-up", self.me),
            })?;
            self.transfer(&communicator, &states, peer as i32, self.me == donor)?;
            self.clock.restored(donor, states.iter().map(|s| s.bytes).sum());
        }
        Ok(())
    }

    /// Donor and newcomer must have registered the same buffers, or bytes would land in the wrong one.
    fn compare_layout(&self, key: CliqueKey, newcomer: Rank, donor: Rank, states: &[&State]) -> Result<(), Error> {
        let layout: String = states.iter().map(|s| format!("{}:{};", s.name, s.bytes)).collect();
        let scope = BlobScope::Epoch(self.epoch);
        let blob = |rank: Rank| format!("layout.{key}.{newcomer}.{rank}");
        self.membership().publish(scope, &blob(self.me), &xxh3_64(layout.as_bytes()).to_le_bytes())?;
        let other = if self.me == donor { newcomer } else { donor };
        let theirs = self.membership().await_blob(scope, &blob(other), self.deadline())?;
        if theirs != xxh3_64(layout.as_bytes()).to_le_bytes() {
            return Err(Error::Mismatch {
                what: format!(
                    "ranks {donor} and {newcomer} registered different replicated states on communicator {key}; rank {} has {layout:?}",
                    self.me
                ),
            });
        }
        Ok(())
    }

    fn transfer(&self, communicator: &Communicator, states: &[&State], peer: i32, sends: bool) -> Result<(), Error> {
        let agent = &self.core.agent;
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

/// Content of a buffer as a 64-bit checksum.
pub(crate) fn checksum(agent: &crate::agent::Agent, state: &State) -> Result<u64, Error> {
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
