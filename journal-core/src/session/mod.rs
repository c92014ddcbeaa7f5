//! A rank's session: what an application sees of Rejoin.
//!
//! ```text
//! open -> requests, communicators, state_register -> setup_done
//!      -> step_begin -> requests -> step_end -> GO: optimizer -> step_commit
//!                                            -> REDO: resume
//!      -> finalize
//! ```

mod communicator;
pub mod core;
pub mod fault;
pub mod launch_env;
pub(crate) mod prepared;
mod requests;
pub mod state;
mod step;
mod threads;
mod watch;

pub use launch_env::{SessionOptions, Unregistered};
pub use requests::HostSlice;
pub use state::{State, StateKind};
pub use step::{Decided, Resumed, SetUp};
pub use watch::{Standing, Watcher};

use std::sync::Arc;

use self::core::Core;
use crate::agent::{Agent, AgentParts};
use crate::backend::cuda::{CudaDevice, CudaOptions, probe};
use crate::backend::host::{HostDevice, HostOptions};
use crate::backend::{BackendKind, Device};
use crate::error::Error;
use crate::journal::{Journal, JournalOptions};
use crate::membership::{BlobScope, Incarnation, Membership, Rank, ShmMembership};
use crate::nccl::NcclLibrary;
use crate::nccl::library::locate;
use crate::request;

/// An open session. Cloning gives another reference to the same one. A process that ends, or drops the last
/// reference, without [`Session::finalize`] counts as dead: leaving is not dying, and only `finalize` leaves.
#[derive(Clone)]
pub struct Session {
    core: Arc<Core>,
    threads: Arc<threads::Threads>,
}

impl Session {
    /// Joins the job: takes the rank's seat, opens the device and NCCL, creates the journal, starts the
    /// monitor, watcher and recovery threads. A replacement begins to rebuild communicators at once.
    pub fn open(options: SessionOptions) -> Result<Self, Error> {
        let faults = fault::FaultPlan::from_env(options.rank.0, options.incarnation.0)
            .map_err(|what| Error::InvalidArgument { what })?;
        let membership = Arc::new(ShmMembership::join(&options.job, options.rank, options.incarnation, options.token)?);
        if membership.nranks() != options.nranks {
            return Err(Error::InvalidArgument {
                what: format!("job {:?} has {} ranks, REJOIN_NRANKS says {}", options.job, membership.nranks(), options.nranks),
            });
        }
        let replacement = membership.setup_complete();
        let device: Arc<dyn Device> = match options.backend {
            BackendKind::Host => Arc::new(HostDevice::create(HostOptions {
                session_index: 0,
                window_bytes: options.window_bytes.unwrap_or(launch_env::DEFAULT_WINDOW_BYTES),
                ordinal: options.device,
            })?),
            BackendKind::Cuda => {
                // More ranks than devices share them.
                let devices = u32::try_from(probe()?.devices.len()).unwrap_or(1).max(1);
                let ordinal = if options.device_given { options.device } else { options.device % devices };
                Arc::new(CudaDevice::create(CudaOptions { session_index: 0, window_bytes: options.window_bytes, ordinal })?)
            }
        };
        let nccl = Arc::new(NcclLibrary::load(&locate(options.nccl.as_deref(), options.backend))?);
        let journal = Journal::create(&JournalOptions {
            job_uuid: membership.options().uuid,
            capacity_bytes: options.journal_bytes,
            policy: options.journal_policy.clone(),
            ..JournalOptions::new(options.job.clone(), options.rank.0, options.incarnation.0)
        })?;
        let epoch = if replacement { crate::membership::Epoch(0) } else { membership.decision().epoch };
        let agent = Agent::new(AgentParts {
            device,
            nccl,
            journal,
            membership,
            rank: options.rank,
            incarnation: options.incarnation,
            peer_timeout: options.peer_timeout,
            epoch,
            replacement,
            faults,
        });
        let core = Arc::new(Core::new(agent, options));
        step::set_await_replay(&core);
        let threads = Arc::new(threads::Threads::start(&core)?);
        Ok(Self { core, threads })
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.core.agent.rank
    }

    /// Ranks of the job.
    pub fn nranks(&self) -> u32 {
        self.core.options.nranks
    }

    /// The n-th process that holds this rank, from 0.
    pub fn incarnation(&self) -> Incarnation {
        self.core.agent.incarnation
    }

    /// Grows with every change of membership.
    pub fn epoch(&self) -> crate::membership::Epoch {
        self.core.agent.epoch()
    }

    /// Whether this process replaces one that died.
    pub fn is_replacement(&self) -> bool {
        self.core.agent.is_replacement()
    }

    /// Whether the open step is doomed: a long computation on the CPU can stop early.
    pub fn is_doomed(&self) -> bool {
        self.core.agent.moved()
    }

    /// [`Error::Redo`] when the open step is doomed, the end's error when the job is over.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_doomed() { Err(self.core.agent.doomed()) } else { Ok(()) }
    }

    /// The journal of this process.
    pub fn journal(&self) -> &Journal {
        &self.core.agent.journal
    }

    /// What each recovery of the job did, oldest first.
    pub fn reports(&self) -> Vec<crate::membership::RecoveryReport> {
        self.core.membership().reports()
    }

    /// Publishes `bytes` under `key` for all ranks, or (`None`) waits for what a rank publishes.
    /// A replacement gets what was published before it came. At most 64 KiB a rank in all.
    pub fn exchange(&self, key: &str, bytes: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        let key = format!("x.{key}");
        let membership = self.core.membership();
        let found = match bytes {
            Some(bytes) => {
                membership.publish(BlobScope::Permanent, &key, bytes)?;
                bytes.to_vec()
            }
            None => {
                let deadline = std::time::Instant::now() + self.core.options.peer_timeout;
                membership.await_blob(BlobScope::Permanent, &key, deadline)?
            }
        };
        self.core.agent.note(&request::exchange(&key, &found))?;
        Ok(found)
    }

    /// Tells recovery that a device buffer must be right after a recovery, and where its content comes
    /// from. Before `setup_done`. `clique` is the communicator whose ranks hold replicas.
    pub fn state_register(
        &self,
        name: &str,
        address: crate::backend::DevicePtr,
        bytes: u64,
        kind: StateKind,
        clique: Option<crate::handle::VirtualHandle>,
    ) -> Result<(), Error> {
        let agent = &self.core.agent;
        let inside = agent.device.allocations().iter().any(|(base, length)| {
            base.0 <= address.0 && address.0.saturating_add(bytes) <= base.0.saturating_add(*length)
        });
        if !inside {
            return Err(Error::InvalidArgument {
                what: format!("state {name:?}: {bytes} bytes at {:#x} are not inside one live allocation", address.0),
            });
        }
        self.note_state(name, address, bytes, kind, clique, false)
    }

    /// [`Session::state_register`] for memory that the application got by itself, outside the session's window. It
    /// need not be at the same address in every incarnation. From here on the application is in foreign mode: its
    /// own work on the device is not seen, so policy *replay* is refused, and a device fault ends the process.
    ///
    /// # Safety
    /// The range is memory of the session's device until the session is dropped.
    #[allow(unsafe_code)]
    pub unsafe fn state_register_foreign(
        &self,
        name: &str,
        address: crate::backend::DevicePtr,
        bytes: u64,
        kind: StateKind,
        clique: Option<crate::handle::VirtualHandle>,
    ) -> Result<(), Error> {
        let agent = &self.core.agent;
        agent.phase.get().admit(crate::request::Class::Setup, "rejoin_state_register_foreign", true)?;
        // SAFETY: passed on to the caller.
        unsafe { agent.adopt_memory(address, bytes) }?;
        self.note_state(name, address, bytes, kind, clique, true)
    }

    fn note_state(
        &self,
        name: &str,
        address: crate::backend::DevicePtr,
        bytes: u64,
        kind: StateKind,
        clique: Option<crate::handle::VirtualHandle>,
        foreign: bool,
    ) -> Result<(), Error> {
        let agent = &self.core.agent;
        agent.phase.get().admit(crate::request::Class::Setup, "rejoin_state_register", true)?;
        let key = clique.map(|c| agent.communicator(c)).transpose()?.map(|c| c.clique);
        let state = State { name: name.to_owned(), address, bytes, kind, clique: key, foreign };
        self.core.states.write().unwrap_or_else(std::sync::PoisonError::into_inner).register(state)?;
        let clique = clique.unwrap_or_default();
        let request = request::state_register(address, bytes, kind as u32, clique, name);
        agent.note(&if foreign { request.foreign(0) } else { request })
    }

    /// Takes up a stream that the application made by itself (a `cudaStream_t`; on the host backend a `HostStream*`)
    /// so that collectives can run on it and a recovery waits for it. The application goes on using its own handle
    /// for its own work. Every stream that carries collectives or writes state must be adopted, except the default
    /// stream, which is known. `stream_destroy` forgets it; the application destroys it afterwards.
    ///
    /// From here on the application is in foreign mode, see [`Session::state_register_foreign`].
    ///
    /// # Safety
    /// It is a stream of the session's device, and lives until `stream_destroy` or the end of the session.
    #[allow(unsafe_code)]
    pub unsafe fn stream_adopt(&self, native: *mut ::core::ffi::c_void) -> Result<crate::handle::VirtualHandle, Error> {
        self.create(crate::handle::HandleKind::Stream, |h| request::stream_adopt(h, native as u64))
    }
}
