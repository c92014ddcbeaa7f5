//! Fence: a process that was declared failed is killed, and its exit is proven before anyone resumes.
//!
//! The proof is the launcher's: it reaps its children and writes how each ended.

use super::attempt::Attempt;
use super::end_without_launcher;
use crate::error::Error;
use crate::membership::{Cause, Failure, Membership, ShmMembership};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

impl Attempt<'_> {
    pub(super) fn fence(&mut self) -> Result<(), Error> {
        let fenced: Vec<Failure> = self.failed.iter().filter(|f| f.cause.is_fenced()).collect();
        if self.leader {
            fenced.iter().filter(|f| f.cause != Cause::Died).for_each(|f| kill(self.membership(), f));
        }
        let deadline = self.deadline();
        for failure in fenced {
            loop {
                let seen = self.membership().event();
                if self.membership().exit_evidence(failure.rank, failure.incarnation).is_some() {
                    break;
                }
                self.check()?;
                if !self.membership().launcher_lives() {
                    return Err(end_without_launcher(self.core));
                }
                if !self.membership().wait(seen, deadline) {
                    return Err(Error::NotRecoverable {
                        what: format!(
                            "no proof within {} ms that rank {} incarnation {} has exited; its device cannot be given to a replacement",
                            self.stage_timeout.as_millis(),
                            failure.rank,
                            failure.incarnation
                        ),
                    });
                }
            }
        }
        Ok(())
    }
}

/// SIGKILL to a process that lives although it was declared failed. Its identity (pid and start time) was
/// noted when it joined, and the pidfd pins it, so a reused pid is never hit.
fn kill(membership: &ShmMembership, failure: &Failure) {
    let Some(identity) = membership.identity(failure.rank, failure.incarnation) else { return };
    let Some(pid) = i32::try_from(identity.pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if identity.exists() {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
