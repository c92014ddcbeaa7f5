//! Groups: calls collected by a thread until its outermost group end, then run together.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::abi::{self, CommHandle, ResultCode};
use crate::batch::{self, Task};
use crate::comm::{Busy, Comm};
use crate::error::{self, Error, Result};
use crate::host_controls;
use crate::jobs;
use crate::stream::Target;

/// Where a communicator that is made later is stored: the caller keeps the slot alive until then.
#[derive(Debug, Clone, Copy)]
pub struct LateSlot(usize);

impl LateSlot {
    /// Checks the pointer and stores NULL.
    ///
    /// # Safety
    /// `slot` is NULL or stays writable until the call that was given it has completed.
    pub unsafe fn from_pointer(slot: *mut CommHandle) -> Result<Self> {
        if slot.is_null() || !slot.is_aligned() {
            return Err(Error::argument("newcomm is NULL"));
        }
        let slot = Self(slot.expose_provenance());
        slot.store(core::ptr::null_mut());
        Ok(slot)
    }

    /// Stores a handle.
    pub fn store(self, handle: CommHandle) {
        let slot = core::ptr::with_exposed_provenance_mut::<CommHandle>(self.0);
        // SAFETY: from_pointer's promise: still writable. Other threads may poll the slot, hence atomic.
        unsafe { core::sync::atomic::AtomicPtr::from_ptr(slot) }.store(handle, core::sync::atomic::Ordering::Release);
    }
}

/// A call that waits for other ranks or for streams.
pub struct Job {
    /// Whose asynchronous result tells that it is done.
    pub comm: Arc<Comm>,
    /// Further communicators that an error of a sibling in the group aborts.
    pub cascade: Vec<Arc<Comm>>,
    /// Does it.
    pub run: Box<dyn FnOnce() -> Result<()> + Send>,
}

/// Calls of one group on one communicator.
struct Launch {
    comm: Arc<Comm>,
    tasks: Vec<(Target, Task)>,
}

#[derive(Default)]
pub struct Group {
    depth: u32,
    error: Option<ResultCode>,
    blocking: Option<bool>,
    jobs: Vec<Job>,
    launches: Vec<Launch>,
}

impl Group {
    /// A group has blocking communicators only, or non-blocking ones only.
    pub fn join(&mut self, blocking: bool) -> Result<()> {
        if *self.blocking.get_or_insert(blocking) != blocking {
            return Err(Error::argument("blocking and non-blocking communicators are in the same group"));
        }
        Ok(())
    }

    /// Adds a job of a communicator.
    pub fn push_job(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// Adds a call on a stream.
    pub fn push_task(&mut self, comm: &Arc<Comm>, stream: Target, task: Task) {
        let index = self.launches.iter().position(|launch| Arc::ptr_eq(&launch.comm, comm)).unwrap_or_else(|| {
            self.launches.push(Launch { comm: Arc::clone(comm), tasks: Vec::new() });
            self.launches.len() - 1
        });
        self.launches[index].tasks.push((stream, task));
    }

    /// From now on the group waits at its end, whatever its communicators are (abort and destroy).
    pub fn make_blocking(&mut self) {
        self.blocking = Some(true);
    }
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// `ncclGroupStart`.
pub fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// `ncclGroupEnd`.
pub fn end() -> Result<ResultCode> {
    let whole = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(Error::usage("ncclGroupEnd: not in a group call"));
        }
        group.depth -= 1;
        Ok((group.depth == 0).then(|| core::mem::take(group)))
    })?;
    Ok(whole.map_or(abi::SUCCESS, Group::finish))
}

/// Runs one call in a group of its own, or in the one that is open. An error fails the open group.
pub fn within(call: impl FnOnce(&mut Group) -> Result<()>) -> Result<ResultCode> {
    start();
    let outcome = GROUP.with_borrow_mut(|group| {
        let outcome = call(group);
        if let Err(error) = &outcome {
            group.error.get_or_insert(error.code());
        }
        outcome
    });
    let ended = end();
    outcome?;
    ended
}

/// What destroying a communicator with an error does in NCCL: the group stays open.
pub fn leave_open() {
    start();
}

impl Group {
    fn finish(self) -> ResultCode {
        if let Some(code) = self.error {
            // Nothing of the group is done; communicators in the making fail with it.
            self.jobs.iter().for_each(|job| job.comm.set_result(code));
            return code;
        }
        if self.jobs.is_empty() && self.launches.is_empty() {
            return abi::SUCCESS;
        }
        let busy: Vec<Busy> = self.comms().map(Comm::busy).collect();
        if self.blocking.unwrap_or(true) {
            return self.run(busy);
        }
        self.comms().for_each(|comm| comm.set_result(abi::IN_PROGRESS));
        jobs::spawn(move || {
            host_controls::wait_while_held(&self.comms().cloned().collect::<Vec<_>>());
            self.run(busy);
        });
        abi::IN_PROGRESS
    }

    fn comms(&self) -> impl Iterator<Item = &Arc<Comm>> {
        self.jobs.iter().map(|job| &job.comm).chain(self.launches.iter().map(|launch| &launch.comm))
    }

    fn run(self, busy: Vec<Busy>) -> ResultCode {
        let comms: Vec<_> = self.comms().cloned().collect();
        let mut code = run_jobs(self.jobs);
        if code == abi::SUCCESS {
            for launch in self.launches {
                let launched = launch.comm.link().and_then(|link| batch::launch(&launch.comm, &link, launch.tasks));
                if let Err(error) = launched {
                    code = error::note(&error);
                    launch.comm.set_result(code);
                    break;
                }
            }
        }
        drop(busy);
        comms.iter().for_each(|comm| comm.finish_progress());
        code
    }
}

/// Runs jobs side by side; the first error, or success. When one fails, NCCL aborts those of the others.
fn run_jobs(mut jobs: Vec<Job>) -> ResultCode {
    if jobs.len() == 1 {
        let job = jobs.remove(0);
        return run_job(job.comm, job.run);
    }
    let total = jobs.len();
    let everyone: Vec<Vec<Arc<Comm>>> = jobs
        .iter()
        .map(|job| core::iter::once(&job.comm).chain(&job.cascade).cloned().collect())
        .collect();
    let everyone = Arc::new(everyone);
    let state = Arc::new((Mutex::new((0_usize, abi::SUCCESS)), Condvar::new()));
    for (index, job) in jobs.into_iter().enumerate() {
        let state = Arc::clone(&state);
        let everyone = Arc::clone(&everyone);
        jobs::spawn(move || {
            let code = run_job(job.comm, job.run);
            if code != abi::SUCCESS {
                let others = everyone.iter().enumerate().filter(|(other, _)| *other != index);
                others.flat_map(|(_, comms)| comms).for_each(|comm| comm.raise_abort());
            }
            let mut done = state.0.lock().unwrap_or_else(PoisonError::into_inner);
            done.0 += 1;
            if done.1 == abi::SUCCESS {
                done.1 = code;
            }
            state.1.notify_all();
        });
    }
    let mut done = state.0.lock().unwrap_or_else(PoisonError::into_inner);
    while done.0 < total {
        done = state.1.wait(done).unwrap_or_else(PoisonError::into_inner);
    }
    done.1
}

fn run_job(comm: Arc<Comm>, run: Box<dyn FnOnce() -> Result<()> + Send>) -> ResultCode {
    let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(Error::system("job", "panicked")));
    match outcome {
        Ok(()) => abi::SUCCESS,
        Err(error) => {
            let code = error::note(&error);
            comm.set_result(code);
            code
        }
    }
}
