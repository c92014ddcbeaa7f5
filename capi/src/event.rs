//! Events of a session: a function of the application that is told what happens to the job.

use core::ffi::c_void;
use std::sync::PoisonError;
use std::thread::JoinHandle;

use journal_core::session::{Standing, Watcher};

use crate::argument::Versioned;
use crate::boundary::{Failure, boundary};
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum rejoin_event_kind {
    /// A rank has failed: the job has a new epoch, and the open step is doomed.
    Redo = 1,
    /// A communicator was rebuilt; its handle is good again.
    Rebound = 2,
    /// A recovery is done; the job goes on with `step`.
    Recovered = 3,
    /// The job is over, or this rank is out of it. The last event.
    Ended = 4,
}

/// An event. Fields that its kind does not have are 0.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_event {
    /// Of this struct, as the library knows it.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// A rejoin_event_kind.
    pub kind: u32,
    /// The job's epoch.
    pub epoch: u32,
    /// The handle of a rebound communicator.
    pub comm: u64,
    /// The step to go on with.
    pub step: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers only, head first.
unsafe impl Versioned for rejoin_event {
    const NAME: &'static str = "rejoin_event";

    fn defaults() -> Self {
        Self { size: size_of::<Self>() as u32, version: 1, kind: 0, epoch: 0, comm: 0, step: 0, reserved: 0 }
    }
}

/// Is told about an event, on a thread of Rejoin. Must not wait for recovery, and must not throw: an exception that
/// leaves it ends the process (SIGABRT), as one that leaves main() does. rejoin.hpp catches them.
pub type rejoin_event_function = Option<unsafe extern "C" fn(event: *const rejoin_event, user: *mut c_void)>;

struct Target {
    function: unsafe extern "C" fn(*const rejoin_event, *mut c_void),
    user: *mut c_void,
}

// SAFETY: the header asks that the function may be called, and the pointer used, on another thread.
unsafe impl Send for Target {}

impl Target {
    fn tell(&self, kind: rejoin_event_kind, fill: impl FnOnce(&mut rejoin_event)) {
        let mut event = rejoin_event { kind: kind as u32, ..rejoin_event::defaults() };
        fill(&mut event);
        // SAFETY: the application's function with its own pointer; the event lives through the call.
        unsafe { (self.function)(&raw const event, self.user) };
    }

    /// Reports until the session closes or the job ends.
    fn report(&self, watcher: &Watcher, mut seen: Standing) {
        while let Some(now) = watcher.changed(seen) {
            if now.epoch != seen.epoch && !now.ended {
                self.tell(rejoin_event_kind::Redo, |event| event.epoch = u32::from(now.epoch.0));
            }
            if let Some((epoch, step)) = now.recovered.filter(|_| now.recovered != seen.recovered) {
                let epoch = u32::from(epoch.0);
                for handle in watcher.communicators() {
                    self.tell(rejoin_event_kind::Rebound, |event| (event.epoch, event.comm) = (epoch, handle.0));
                }
                self.tell(rejoin_event_kind::Recovered, |event| (event.epoch, event.step) = (epoch, step));
            }
            if now.ended {
                self.tell(rejoin_event_kind::Ended, |event| event.epoch = u32::from(now.epoch.0));
                return;
            }
            seen = now;
        }
    }
}

/// The thread that tells. Dropped after the session: waits until no more calls can come.
pub struct EventThread(Option<JoinHandle<()>>);

impl Drop for EventThread {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take().filter(|handle| handle.thread().id() != std::thread::current().id()) {
            let _ = handle.join();
        }
    }
}

/**
 * Has a function told about what happens to the job from now on: once a session.
 *
 * @param session   open
 * @param function  called on a thread of Rejoin, one event at a time; must not call functions that
 *                  wait for recovery, and must not throw (that ends the process)
 * @param user      passed on to it; stays until the session is closed, may be NULL
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_EXISTS (a second function); REJOIN_STATUS_IO (no thread);
 *         REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any. After rejoin_session_close() has returned no more calls come, unless it was called by the
 *          function itself.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_session_on_event(
    session: *mut rejoin_session,
    function: rejoin_event_function,
    user: *mut c_void,
) -> rejoin_status {
    boundary(|| {
        let target = Target { function: function.ok_or_else(|| Failure::null("function"))?, user };
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let mut events = object.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.is_some() {
            return Err(Failure::new(rejoin_status::Exists, "the session has an event function already"));
        }
        let watcher = object.session.watcher();
        let seen = watcher.standing();
        let thread = std::thread::Builder::new()
            .name("rejoin-events".into())
            .spawn(move || {
                // The whole of it, not its pointer alone, goes to the thread.
                let target = target;
                target.report(&watcher, seen);
            })
            .map_err(|error| Failure::new(rejoin_status::Io, format!("cannot start thread rejoin-events: {error}; raise `ulimit -u`")))?;
        *events = Some(EventThread(Some(thread)));
        Ok(())
    })
}
