//! Rebuild: the communicators of the job around the replacements, by strategy.

mod reinit;

use super::attempt::Attempt;
use super::stage;
use crate::error::Error;
use crate::nccl::{Progress, RealCommunicator};

impl Attempt<'_> {
    pub(super) fn rebuild(&mut self) -> Result<(), Error> {
        self.reinit()?;
        self.barrier(stage::REBUILT, true, &self.all)
    }

    /// Polls a new communicator until it can be used. On an error it is aborted, so that nothing is left
    /// half-made behind.
    pub(super) fn await_ready(&self, what: &str, mut real: RealCommunicator) -> Result<RealCommunicator, Error> {
        let outcome = self.until(what, self.deadline(), || match real.progress() {
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
}
