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
    /// Undoes the call when its group fails before anything is run.
    pub cancel: Box<dyn FnOnce(ResultCode) + Send>,
    /// True for abort, destroy and revoke: run even in a failed group, and not waited for by others of
    /// their kind.
    pub ends: bool,
}

impl Job {
    /// A job that leaves nothing behind when its group fails.
    pub fn new(comm: &Arc<Comm>, run: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        Self { comm: Arc::clone(comm), cascade: Vec::new(), run: Box::new(run), cancel: Box::new(|_| ()), ends: false }
    }

    /// With something to undo.
    pub fn or(mut self, cancel: impl FnOnce(ResultCode) + Send + 'static) -> Self {
        self.cancel = Box::new(cancel);
        self
    }

    /// With a further communicator for the cascade.
    pub fn with(mut self, comm: &Arc<Comm>) -> Self {
        self.cascade.push(Arc::clone(comm));
        self
    }

    /// One that ends a communicator.
    pub fn ending(mut self) -> Self {
        self.ends = true;
        self
    }
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

/// A job with its mark on the communicator.
type BusyJob = (Job, Option<Busy>);

impl Group {
    fn finish(mut self) -> ResultCode {
        if let Some(code) = self.error {
            // Nothing of the group is done, except that what ends communicators has begun already.
            let (ending, others): (Vec<_>, Vec<_>) = self.jobs.into_iter().partition(|job| job.ends);
            others.into_iter().for_each(|job| (job.cancel)(code));
            run_jobs(ending.into_iter().map(|job| (job, None)).collect());
            return code;
        }
        if self.jobs.is_empty() && self.launches.is_empty() {
            return abi::SUCCESS;
        }
        let comms = self.comms();
        let jobs = core::mem::take(&mut self.jobs);
        // A job is done when its own part is; launches come last.
        let launching: Vec<Busy> = self
            .launches
            .iter()
            .filter(|launch| !jobs.iter().any(|job| Arc::ptr_eq(&job.comm, &launch.comm)))
            .map(|launch| launch.comm.busy())
            .collect();
        let jobs: Vec<BusyJob> = jobs
            .into_iter()
            .map(|job| {
                let busy = (!job.ends).then(|| job.comm.busy());
                (job, busy)
            })
            .collect();
        if self.blocking.unwrap_or(true) {
            return run(jobs, self.launches, launching, &comms);
        }
        comms.iter().for_each(|comm| comm.set_result(abi::IN_PROGRESS));
        jobs::spawn(move || {
            host_controls::wait_while_held(&comms);
            run(jobs, self.launches, launching, &comms);
        });
        abi::IN_PROGRESS
    }

    fn comms(&self) -> Vec<Arc<Comm>> {
        let of_jobs = self.jobs.iter().map(|job| &job.comm);
        of_jobs.chain(self.launches.iter().map(|launch| &launch.comm)).cloned().collect()
    }
}

fn run(jobs: Vec<BusyJob>, launches: Vec<Launch>, launching: Vec<Busy>, comms: &[Arc<Comm>]) -> ResultCode {
    let mut code = run_jobs(jobs);
    if code == abi::SUCCESS {
        for launch in launches {
            let launched = launch.comm.link().and_then(|link| batch::launch(&launch.comm, &link, launch.tasks));
            if let Err(error) = launched {
                code = error::note(&error);
                launch.comm.set_result(code);
                break;
            }
        }
    }
    drop(launching);
    comms.iter().for_each(|comm| comm.finish_progress());
    code
}

/// Runs jobs side by side; the first error, or success. When one fails, NCCL aborts those of the others.
fn run_jobs(mut jobs: Vec<BusyJob>) -> ResultCode {
    if jobs.len() <= 1 {
        return jobs.pop().map_or(abi::SUCCESS, |(job, busy)| run_job(job, busy));
    }
    let total = jobs.len();
    let everyone: Vec<Vec<Arc<Comm>>> = jobs
        .iter()
        .map(|(job, _)| core::iter::once(&job.comm).chain(&job.cascade).cloned().collect())
        .collect();
    let everyone = Arc::new(everyone);
    let state = Arc::new((Mutex::new((0_usize, abi::SUCCESS)), Condvar::new()));
    for (index, (job, busy)) in jobs.into_iter().enumerate() {
        let state = Arc::clone(&state);
        let everyone = Arc::clone(&everyone);
        jobs::spawn(move || {
            let code = run_job(job, busy);
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

fn run_job(job: Job, busy: Option<Busy>) -> ResultCode {
    let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(job.run))
        .unwrap_or_else(|_| Err(Error::system("job", "panicked")));
    let code = match outcome {
        Ok(()) => abi::SUCCESS,
        Err(error) => {
            let code = error::note(&error);
            job.comm.set_result(code);
            code
        }
    };
    drop(busy);
    code
}
