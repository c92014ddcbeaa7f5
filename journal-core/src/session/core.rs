//! What the application's threads, the recovery thread and the monitor of one rank share.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::launch_env::SessionOptions;
use super::state::StateTable;
use crate::agent::{Agent, Communicator};
use crate::error::Error;
use crate::membership::{Epoch, ShmMembership};
use crate::nccl::RealCommunicator;
use crate::nccl::clique::CliqueKey;

/// The inside of a [`super::Session`].
pub struct Core {
    /// Executes and records.
    pub agent: Agent,
    /// As opened.
    pub options: SessionOptions,
    /// Registered buffers.
    pub states: RwLock<StateTable>,
    progress: Mutex<Progress>,
    changed: Condvar,
    pool: Mutex<HashMap<CliqueKey, RealCommunicator>>,
}

/// How far this rank is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Steps committed by this rank; also the number of the next one.
    pub committed: u32,
    /// The application has called `setup_done`: its buffers may be written.
    pub set_up: bool,
    /// The last finished recovery: epoch and the step to go on with.
    pub recovered: Option<(Epoch, u32)>,
    /// That recovery has issued the open step again (policy replay).
    pub replayed: bool,
    /// The session is over for this rank; why.
    pub failed: Option<Arc<Error>>,
    /// The session closes: threads end.
    pub stop: bool,
}

impl Core {
    /// A new inside.
    pub fn new(agent: Agent, options: SessionOptions) -> Self {
        Self {
            agent,
            options,
            states: RwLock::default(),
            progress: Mutex::default(),
            changed: Condvar::new(),
            pool: Mutex::default(),
        }
    }

    /// The job.
    pub fn membership(&self) -> &Arc<ShmMembership> {
        &self.agent.membership
    }

    /// Registered buffers, as they are now.
    pub fn states(&self) -> StateTable {
        self.states.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the progress.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the progress and wakes whoever waits for it.
    pub fn update(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress());
        self.changed.notify_all();
    }

    /// Wakes whoever waits for progress, or for the device, so that they look at the epoch again.
    pub fn wake(&self) {
        // Taking the lock orders this wake-up after a waiter's look and before its sleep.
        drop(self.progress());
        self.changed.notify_all();
        self.agent.device.poke();
    }

    /// Waits until `ready` gives something. `moved` ends the wait with [`Error::Redo`] (or the end's error).
    pub fn wait_progress<T>(
        &self,
        what: &str,
        deadline: Instant,
        moved: impl Fn() -> Option<Error>,
        mut ready: impl FnMut(&Progress) -> Option<T>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let mut progress = self.progress();
        loop {
            if let Some(found) = ready(&progress) {
                return Ok(found);
            }
            if let Some(error) = moved() {
                return Err(error);
            }
            let now = Instant::now();
            if now >= deadline {
                let limit_ms = u64::try_from((now - started).as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Timeout { what: what.to_owned(), limit_ms, missing: vec![self.agent.rank.0] });
            }
            // Bounded, so that a change that nobody announced is seen too.
            let slice = (deadline - now).min(Duration::from_millis(50));
            progress = self.changed.wait_timeout(progress, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock_pool(&self) -> MutexGuard<'_, HashMap<CliqueKey, RealCommunicator>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The communicator objects of this rank that belong to `clique`.
    pub fn communicator_of(&self, clique: CliqueKey) -> Option<(u64, Arc<Communicator>)> {
        self.agent.objects.communicators().into_iter().find(|(_, c)| c.clique == clique)
    }

    /// Gives a rebuilt communicator to its object, or keeps it until the application asks for the clique.
    pub fn install(&self, clique: CliqueKey, real: RealCommunicator) -> Result<(), Error> {
        let mut pool = self.lock_pool();
        match self.communicator_of(clique) {
            Some((bound, communicator)) => {
                self.number(&communicator, &real)?;
                *communicator.lock() = Some(real);
                self.agent.handles().rebind(communicator.handle, bound)?;
            }
            None => {
                pool.insert(clique, real);
            }
        }
        drop(pool);
        self.update(|_| {});
        Ok(())
    }

    /// Under `--renumber` the rebuilt communicator says which rank this process has in it.
    fn number(&self, communicator: &Communicator, real: &RealCommunicator) -> Result<(), Error> {
        if self.membership().options().renumber {
            communicator.set_rank(real.user_rank()?);
        }
        Ok(())
    }

    /// A replacement's creation call: takes what recovery rebuilt and makes `communicator` of it.
    /// False: not rebuilt yet.
    pub fn adopt(&self, communicator: &Arc<Communicator>) -> Result<bool, Error> {
        let mut pool = self.lock_pool();
        let Some(real) = pool.remove(&communicator.clique) else { return Ok(false) };
        self.number(communicator, &real)?;
        *communicator.lock() = Some(real);
        let bound = self.agent.objects.add_communicator(communicator.clone());
        self.agent.handles().bind(communicator.handle, bound)?;
        Ok(true)
    }

    /// Takes all real communicators of this process out, to be aborted.
    pub fn take_communicators(&self) -> Vec<RealCommunicator> {
        let mut pool = self.lock_pool();
        let mut all: Vec<_> = pool.drain().map(|(_, real)| real).collect();
        for (_, communicator) in self.agent.objects.communicators() {
            all.extend(communicator.lock().take());
        }
        all
    }
}
