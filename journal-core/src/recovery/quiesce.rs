//! Quiesce: nobody is inside a request, and nothing runs on a communicator any more.

use super::attempt::Attempt;
use super::stage;
use crate::nccl::{Progress, RealCommunicator};
use crate::backend::RealHandle;
use crate::error::Error;
use crate::handle::HandleKind;
use crate::membership::{DecisionState, JobStrategy, Rank};

impl Attempt<'_> {
    pub(super) fn quiesce(&mut self) -> Result<(), Error> {
        let agent = &self.core.agent;
        if !self.newcomer {
            if self.device_lost {
                // Its device cannot finish the step; a donor's state stands for it.
                self.core.agent.mark_device_lost();
                self.core.agent.device.poke();
            } else if self.decision.state == DecisionState::FailedGo {
                self.await_own_commit()?;
            }
            let inside = |calls| self.late(format!("quiesce: {calls} calls inside requests"));
            agent.gate.close_and_drain(self.deadline()).map_err(inside)?;
            agent.handles().unbind_kind(HandleKind::Communicator);
        }
        let ended = match self.strategy {
            JobStrategy::Reinit => self.abort_all(),
            _ if self.newcomer || self.device_lost => self.abort_all(),
            _ => self.revoke_all(),
        };
        ended?;
        if self.device_lost && !self.core.agent.aborts.wait(self.deadline()) {
            // The device is reset next, and an abort may still use its streams.
            return Err(self.late("quiesce: the abort of communicators before the device is reset".into()));
        }
        if !self.newcomer {
            if !self.device_lost {
                self.drain_streams()?;
                self.core.agent.quiesced()?;
            }
            // Everyone has let go before anyone builds: a late abort would poison nothing, but a late
            // survivor would hold up the rebuild without a name.
            self.barrier(stage::QUIESCED, true, &self.survivors)?;
        }
        Ok(())
    }

    /// This rank holds the stage up.
    fn late(&self, what: String) -> Error {
        let limit_ms = u64::try_from(self.stage_timeout.as_millis()).unwrap_or(u64::MAX);
        Error::Timeout { what, limit_ms, missing: vec![self.me.0] }
    }

    /// GO was decided, so this rank finishes its optimizer; it did already if it is in the next step.
    fn await_own_commit(&self) -> Result<(), Error> {
        let step = self.decision.step.0;
        self.core.wait_progress("the commit of the decided step", self.deadline(), || self.moved(), |p| {
            (p.committed > step).then_some(())
        })
    }

    fn abort_all(&self) -> Result<(), Error> {
        self.core.agent.abort(self.core.take_communicators(), self.deadline())
    }

    /// Ends everything on all communicators but keeps them as parents; in one group, then polled until idle.
    fn revoke_all(&self) -> Result<(), Error> {
        let nccl = &self.core.agent.nccl;
        let communicators = self.core.agent.objects.communicators();
        nccl.start_group()?;
        let revoked: Vec<_> =
            communicators.iter().filter_map(|(_, c)| c.lock().as_ref().map(RealCommunicator::revoke)).collect();
        nccl.end_group()?;
        revoked.into_iter().collect::<Result<(), _>>()?;
        for (_, communicator) in communicators {
            self.until("quiesce: revoke", self.deadline(), || match communicator.lock().as_ref().map(RealCommunicator::state) {
                Some(Progress::InProgress) => Ok(false),
                // An error that the proxy keeps is answered by shrink, and then by reinit.
                _ => Ok(true),
            })?;
        }
        Ok(())
    }

    /// What the abort released has run out; its results are garbage that the redo overwrites.
    fn drain_streams(&self) -> Result<(), Error> {
        let agent = &self.core.agent;
        let deadline = self.deadline();
        let mut streams = vec![RealHandle(0)];
        for (stream, _) in agent.objects.streams() {
            streams.push(RealHandle(agent.handles().resolve(stream, HandleKind::Stream)?));
        }
        for stream in streams {
            self.until("quiesce: streams of this rank", deadline, || Ok(agent.device.stream_query(stream)?))
                .map_err(|e| name_rank(e, self.me))?;
        }
        Ok(())
    }
}

fn name_rank(error: Error, rank: Rank) -> Error {
    match error {
        Error::Timeout { what, limit_ms, .. } => Error::Timeout { what, limit_ms, missing: vec![rank.0] },
        other => other,
    }
}
