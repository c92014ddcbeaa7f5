//! A device that fails under a request: what becomes of the rank.

use super::{Agent, AwaitReplay, HostMemory, Phase, Value, failure_word, value_word};
use std::time::{Duration, Instant};

use crate::backend::{BackendKind, RealHandle};
use crate::error::Error;
use crate::journal::RecordRef;
use crate::membership::{Cause, Failure, JobPolicy, Membership};
use crate::request::{Class, Request, Rule, Stage};
use crate::sync::Ordering;

/// How long an error of NCCL may precede the proof of a death. Detection takes about a millisecond.
const DETECTION_GRACE: Duration = Duration::from_secs(2);

/// Exit code of a process whose GPU context is broken for good.
const BROKEN_CONTEXT_EXIT: i32 = 86;

impl Agent {
    /// Turns the loss of the device into a failure of the rank. The host's device can be reset, so the process
    /// lives on and its journal is replayed; a broken GPU context never works again in this process, so the
    /// process ends and is replaced.
    ///
    /// NCCL's own errors may be another face of a failure: of the device, or of a peer whose death NCCL saw
    /// (over sockets it does) before the job did. The job gets a moment to say so.
    pub(crate) fn escalate(&self, error: Error) -> Error {
        let device = match &error {
            Error::Device(device) => device.clone(),
            Error::Nccl(_) => match self.device.stream_query(RealHandle(0)) {
                Err(device) if device.is_lost() => device,
                _ => return self.explained_by_a_death(error),
            },
            _ => return error,
        };
        if !device.is_lost() || !self.membership.setup_complete() {
            return error;
        }
        // What a foreign application did to the device is in no journal, so it cannot be done again either.
        if self.device.kind() == BackendKind::Cuda || self.is_foreign() {
            eprintln!("rejoin: rank {}: {device}; this process ends, a replacement takes its rank", self.rank);
            // SAFETY: ends the process without running destructors, which could hang in the driver.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(BROKEN_CONTEXT_EXIT)
            }
        }
        tracing::warn!(rank = self.rank.0, %device, "device lost; its journal will be replayed");
        self.mark_device_lost();
        let failure = Failure { rank: self.rank, incarnation: self.incarnation, cause: Cause::DeviceLost };
        match self.membership.report_failures(&[failure]) {
            Ok(_) => self.doomed(),
            Err(error) => error.into(),
        }
    }

    /// Says once of each abort that it hangs. Its kernels have been told and the streams are empty, or the rank
    /// would have been declared hung; what is lost is the memory of a communicator. Ending the process for it
    /// could cost the last replica of the state, because an abort hangs on all survivors alike.
    pub(crate) fn tell_of_hung_aborts(&self) {
        for since in self.aborts.overdue(self.membership.options().stage_timeout) {
            tracing::warn!(seconds = since.as_secs(), "ncclCommAbort has not returned; its communicator's memory stays taken");
        }
    }

    fn explained_by_a_death(&self, error: Error) -> Error {
        let deadline = Instant::now() + DETECTION_GRACE;
        loop {
            let seen = self.membership.event();
            if self.moved() {
                return self.doomed();
            }
            if !self.membership.wait(seen, deadline) {
                return error;
            }
        }
    }

    /// From here on this rank's step is over, even if GO was decided for it.
    pub(crate) fn mark_device_lost(&self) {
        self.device_lost.store(1, Ordering::Release);
    }

    /// The device works again, and the application knows where to go on.
    pub(crate) fn clear_device_lost(&self) {
        self.device_lost.store(0, Ordering::Release);
    }

    /// Whether the device was lost and the application has not resumed since.
    pub(crate) fn is_device_lost(&self) -> bool {
        self.device_lost.load(Ordering::Acquire) != 0
    }

    /// How a request of a doomed step waits under policy *replay*.
    pub(crate) fn set_await_replay(&self, wait: AwaitReplay) {
        let _ = self.await_replay.set(wait);
    }

    /// Policy *replay*: what becomes of a request that a recovery interrupted. The replay has issued again what it
    /// replays; what makes or ends an object, and what asks, is done here.
    #[cold]
    pub(super) fn after_replay(&self, request: &Request<'_>, host: HostMemory, record: Option<RecordRef>) -> Result<Value, Error> {
        loop {
            self.wait_for_replay()?;
            let is_callers = matches!(request.row().class, Class::Setup | Class::Teardown | Class::Query);
            if !is_callers && request.rule(Stage::Step) != Rule::Skip {
                return Ok(0);
            }
            let Some(_pass) = self.gate.enter() else { continue };
            let outcome = self.execute(request, host).map_err(|error| self.escalate(error));
            if let Some(record) = record {
                self.journal.complete(record, outcome.as_ref().map_or_else(failure_word, |value| value_word(*value)));
            }
            if !matches!(outcome, Err(Error::Redo)) {
                return outcome;
            }
        }
    }

    /// Policy *replay*, inside a step: waits until recovery has issued the step again. Everything else is
    /// turned away.
    pub(crate) fn wait_for_replay(&self) -> Result<(), Error> {
        let replays = self.membership.options().policy == JobPolicy::Replay && matches!(self.phase.get(), Phase::InStep(_));
        match (self.doomed(), self.await_replay.get()) {
            (Error::Redo, Some(wait)) if replays && wait()? => Ok(()),
            (error, _) => Err(error),
        }
    }
}
