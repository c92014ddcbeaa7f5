//! Creation of communicators: made for the first time, or matched to what recovery has rebuilt.

use std::sync::Arc;
use std::time::Instant;

use super::Session;
use crate::agent::{Communicator, poll};
use crate::error::Error;
use crate::handle::{HandleKind, VirtualHandle};
use crate::membership::{BlobScope, Clique, CliqueDescription, CliqueKind, Membership};
use crate::nccl::clique::{CliqueKey, VirtualUniqueId};
use crate::nccl::{CommConfig, Progress, RealCommunicator, UNIQUE_ID_BYTES};
use crate::request::{self, Class};
use crate::sync::Ordering;

impl Session {
    /// `ncclGetUniqueId`: an id that stays good when its maker dies. Give it to the other ranks by
    /// [`Session::exchange`] or any other way; a replacement that asks again gets the same one.
    pub fn nccl_unique_id(&self) -> Result<VirtualUniqueId, Error> {
        let agent = &self.core.agent;
        agent.phase.get().admit(Class::Setup, "ncclGetUniqueId", true)?;
        let ordinal = agent.next_unique_id();
        let id = VirtualUniqueId::new(&self.core.membership().options().uuid, agent.rank.0, ordinal);
        agent.note(&request::get_unique_id(&id.0))?;
        Ok(id)
    }

    /// `ncclCommInitRankConfig`. Collective over the ranks of the communicator; before `setup_done`.
    pub fn comm_init_rank(&self, nranks: u32, id: &VirtualUniqueId, rank: u32, config: &CommConfig) -> Result<VirtualHandle, Error> {
        let agent = &self.core.agent;
        agent.phase.get().admit(Class::Setup, "ncclCommInitRankConfig", true)?;
        if rank >= nranks || nranks > self.nranks() {
            return Err(Error::InvalidArgument {
                what: format!("rank {rank} of {nranks}: ranks go from 0 to nranks - 1, and the job has {} ranks", self.nranks()),
            });
        }
        if !id.is_of(&self.core.membership().options().uuid) {
            return Err(Error::InvalidArgument {
                what: "the unique id was not made by this job: use the one of nccl_unique_id, on one rank, and hand it to the others".into(),
            });
        }
        let handle = agent.handles().reserve(HandleKind::Communicator)?;
        let new = Arc::new(Communicator::new(handle, id.clique(), rank as i32, nranks as i32, config.clone()));
        let described = request::comm_init_rank_config(handle, nranks as i32, &id.0, rank as i32, &config.to_bytes())
            .to_owned();
        agent.record_around(&described.as_request(), || {
            if agent.is_replacement() {
                return self.adopt_rebuilt(&new);
            }
            let id = self.rendezvous(new.clique, rank == 0)?;
            let real = RealCommunicator::init_rank(&agent.nccl, new.nranks, &id, new.rank(), config)?;
            let real = self.await_ready(real)?;
            self.register(&new, CliqueKind::Root, real)
        })?;
        Ok(handle)
    }

    /// `ncclCommSplit`; `None` for a negative color. Collective over the ranks of `comm`; before `setup_done`.
    pub fn comm_split(&self, comm: VirtualHandle, color: i32, key: i32, config: &CommConfig) -> Result<Option<VirtualHandle>, Error> {
        let agent = &self.core.agent;
        agent.phase.get().admit(Class::Setup, "ncclCommSplit", true)?;
        let parent = agent.communicator(comm)?.clone();
        let ordinal = parent.splits.fetch_add(1, Ordering::Relaxed);
        let clique = CliqueKey::split(parent.clique, ordinal, color);
        let handle = if color < 0 { VirtualHandle::default() } else { agent.handles().reserve(HandleKind::Communicator)? };
        let described = request::comm_split(comm, color, key, handle, &config.to_bytes()).to_owned();
        agent.record_around(&described.as_request(), || {
            if agent.is_replacement() {
                if color < 0 {
                    return Ok(());
                }
                let (rank, nranks) = self.place_in(clique)?;
                let new = Communicator::new(handle, clique, rank as i32, nranks as i32, config.clone());
                return self.adopt_rebuilt(&Arc::new(new));
            }
            agent.settle(&parent)?;
            let started = parent.lock().as_ref().ok_or(Error::Redo)?.split(color, key, config)?;
            let Some(real) = started else { return agent.settle(&parent) };
            let real = self.await_ready(real)?;
            let new = Arc::new(Communicator::new(handle, clique, real.user_rank()?, real.count()?, config.clone()));
            self.register(&new, CliqueKind::Split { parent: parent.clique.0, ordinal, color }, real)
        })?;
        Ok((color >= 0).then_some(handle))
    }

    /// The real unique id of a clique: made by its rank 0, handed over in the members segment.
    fn rendezvous(&self, clique: CliqueKey, maker: bool) -> Result<[u8; UNIQUE_ID_BYTES], Error> {
        let membership = self.core.membership();
        let scope = BlobScope::Epoch(self.core.agent.epoch());
        let key = format!("uid.{clique}");
        if maker {
            let id = self.core.agent.nccl.unique_id()?;
            membership.publish(scope, &key, &id)?;
            return Ok(id);
        }
        let bytes = membership.await_blob(scope, &key, Instant::now() + self.core.options.peer_timeout)?;
        bytes.try_into().map_err(|b: Vec<u8>| Error::Mismatch { what: format!("a unique id of {} bytes", b.len()) })
    }

    fn await_ready(&self, mut real: RealCommunicator) -> Result<RealCommunicator, Error> {
        let agent = &self.core.agent;
        let deadline = Instant::now() + self.core.options.peer_timeout;
        let what = || "the other ranks of a communicator".to_owned();
        let outcome = poll::until(&*agent.device, &what, deadline, &|| agent.moved(), || match real.progress() {
            Progress::Ready => Ok(true),
            Progress::InProgress => Ok(false),
            Progress::Failed(error) => Err(error.into()),
        });
        match outcome {
            Ok(()) => Ok(real),
            Err(error) => {
                let _ = real.abort();
                Err(error)
            }
        }
    }

    fn register(
        &self,
        new: &Arc<Communicator>,
        kind: CliqueKind,
        real: RealCommunicator,
    ) -> Result<(), Error> {
        let agent = &self.core.agent;
        self.core.membership().register_clique(
            &CliqueDescription {
                key: new.clique.0,
                kind,
                nranks: new.nranks as u32,
                config: new.config.to_bytes(),
            },
            new.rank() as u32,
        )?;
        *new.lock() = Some(real);
        let bound = agent.objects.add_communicator(new.clone());
        Ok(agent.handles().bind(new.handle, bound)?)
    }

    /// A replacement's place in a clique that its predecessor was in.
    fn place_in(&self, clique: CliqueKey) -> Result<(u32, u32), Error> {
        let cliques: Vec<Clique> = self.core.membership().cliques()?;
        let found = cliques.iter().find(|c| c.description.key == clique.0);
        found.and_then(|c| Some((c.rank_of(self.core.agent.rank)?, c.description.nranks))).ok_or_else(|| Error::Mismatch {
            what: format!(
                "rank {} asks for communicator {clique}, which its predecessor did not have; the set-up must be the same in every incarnation",
                self.core.agent.rank
            ),
        })
    }

    /// Waits until recovery has rebuilt the communicator's clique, and binds it.
    fn adopt_rebuilt(&self, new: &Arc<Communicator>) -> Result<(), Error> {
        let (rank, nranks) = self.place_in(new.clique)?;
        // Under --renumber the rank in the communicator is the one that recovery gave it.
        let renumbered = self.core.membership().options().renumber;
        if nranks as i32 != new.nranks || !renumbered && rank as i32 != new.rank() {
            return Err(Error::Mismatch {
                what: format!(
                    "communicator {}: rank {} of {} asked for, the predecessor was rank {rank} of {nranks}",
                    new.clique, new.rank(), new.nranks
                ),
            });
        }
        let deadline = Instant::now() + self.core.options.peer_timeout;
        let what = format!("rebuild of communicator {}", new.clique);
        let core = &self.core;
        core.wait_progress(&what, deadline, || None, |progress| {
            if progress.failed.is_some() {
                return Some(Err(core.agent.doomed()));
            }
            match core.adopt(new) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            }
        })?
    }
}
