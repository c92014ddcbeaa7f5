//! Fence: a process that was declared failed is killed, and its exit is proven before anyone resumes.
//!
//! The proof is the launcher's: it reaps its children and writes how each ended.

use super::attempt::Attempt;
use crate::error::Error;
use crate::membership::{Cause, Failure, Membership};

impl Attempt<'_> {
    pub(super) fn fence(&mut self) -> Result<(), Error> {
        let fenced: Vec<Failure> = self.failed.iter().filter(|f| f.cause.is_fenced()).collect();
        if self.leader {
            fenced.iter().filter(|f| f.cause != Cause::Died).for_each(|f| self.membership().kill(f.rank, f.incarnation));
        }
        let deadline = self.deadline();
        for failure in fenced {
            loop {
                let seen = self.membership().event();
                if self.membership().exit_evidence(failure.rank, failure.incarnation).is_some() {
                    break;
                }
                self.check()?;
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
