//! Replay: recorded requests executed again.
//!
//! Stage 1, on a rank whose device was lost: the set-up, without the skip set and without calls that had not
//! succeeded. Addresses and handles come out as they were. Stage 2, policy *replay*, on every rank that is inside the
//! step: the step's requests, in the order of the journal.

use super::attempt::Attempt;
use super::{replayable, stage};
use crate::agent::{HostMemory, Phase, recorded_value, replaying::Replaying};
use crate::backend::{DevicePtr, RealHandle};
use crate::error::Error;
use crate::handle::{HandleKind, VirtualHandle};
use crate::journal::{Outcome, Record, Snapshot};
use crate::membership::JobPolicy;
use crate::request::{self, Call, Class, OpCode, OwnedRequest, Reason, Rule, Stage};
use crate::session::state::StateKind;

/// Objects that live on a device, so they go with it.
const DEVICE_KINDS: [HandleKind; 4] = [HandleKind::Stream, HandleKind::Event, HandleKind::Module, HandleKind::Function];

impl Attempt<'_> {
    /// Resets the device and brings its memory, streams, events and modules back. The requests executed.
    pub(super) fn replay_setup(&self) -> Result<u64, Error> {
        let agent = &self.core.agent;
        let snapshot = self.whole_snapshot()?;
        agent.device.reset()?;
        DEVICE_KINDS.iter().for_each(|kind| agent.handles().unbind_kind(*kind));
        agent.substitutes.clear();
        let _replaying = Replaying::begin(self.epoch);
        let mut executed = 0;
        for record in &snapshot.setup {
            let Some((request, value)) = succeeded(record)? else { continue };
            // What the open step destroyed is held back until its commit.
            if request.as_request().row().class == Class::Teardown && record.sequence >= snapshot.boundary.sequence {
                continue;
            }
            executed += u64::from(self.replay_one(record, &request, value, Stage::Setup)?);
        }
        // Objects that the open step made belong to the application across the redo.
        for record in &snapshot.step {
            let Some((request, value)) = succeeded(record)? else { continue };
            if matches!(request.as_request().row().class, Class::Setup | Class::Teardown) {
                executed += u64::from(self.replay_one(record, &request, value, Stage::Setup)?);
            }
        }
        self.until("replay: streams of this rank", self.deadline(), || {
            for (stream, _) in agent.objects.streams() {
                if !agent.device.stream_query(RealHandle(agent.handles().resolve(stream, HandleKind::Stream)?))? {
                    return Ok(false);
                }
            }
            Ok(agent.device.stream_query(RealHandle(0))?)
        })?;
        agent.substitutes.clear();
        Ok(executed)
    }

    /// The journal, if it is complete enough to be replayed.
    fn whole_snapshot(&self) -> Result<Snapshot, Error> {
        let snapshot = self.core.agent.journal.snapshot();
        if let Some(from) = snapshot.incomplete_from {
            return Err(Error::NotRecoverable { what: format!("the journal of rank {} is incomplete from record {from}", self.me) });
        }
        match snapshot.setup.iter().chain(&snapshot.step).find(|r| r.outcome == Outcome::Corrupt) {
            Some(record) => Err(Error::NotRecoverable {
                what: format!("record {} of the journal of rank {} is corrupt", record.sequence, self.me),
            }),
            None => Ok(snapshot),
        }
    }

    /// Executes one request as the table says. False: there is nothing to execute.
    fn replay_one(&self, record: &Record, owned: &OwnedRequest, value: u64, stage: Stage) -> Result<bool, Error> {
        self.check()?;
        let agent = &self.core.agent;
        let request = owned.as_request();
        match request.rule(stage) {
            Rule::Skip | Rule::Rebuild => return Ok(false),
            Rule::Refuse(reason) => {
                return Err(Error::NotRecoverable {
                    what: format!("record {} ({}) of rank {} cannot be replayed: {reason}", record.sequence, request, self.me),
                });
            }
            Rule::Execute | Rule::Hold => {}
        }
        match request.call() {
            Call::MemAlloc { bytes } | Call::NcclMemAlloc { bytes } => agent.device.alloc_at(DevicePtr(value), bytes)?,
            Call::StreamCreate { stream, flags, priority } => self.give(stream, agent.device.stream_create(flags, priority)?.0)?,
            Call::EventCreate { event, flags } => self.give(event, agent.device.event_create(flags)?.0)?,
            Call::ModuleLoad { module, image } => self.give(module, agent.device.module_load(image)?.0)?,
            Call::ModuleGetFunction { function, module, name } => {
                let module = self.object(module, HandleKind::Module)?;
                let found = agent.device.module_function(RealHandle(module), name)?;
                self.give(function, agent.objects.add_function(found))?;
            }
            Call::StreamDestroy { stream } => {
                agent.device.stream_destroy(RealHandle(self.object(stream, HandleKind::Stream)?))?;
            }
            Call::EventDestroy { event } => agent.device.event_destroy(RealHandle(self.object(event, HandleKind::Event)?))?,
            Call::ModuleUnload { module } => agent.device.module_unload(RealHandle(self.object(module, HandleKind::Module)?))?,
            _ => drop(agent.execute(&request, HostMemory::default())?),
        }
        Ok(true)
    }

    /// Binds a replayed object to its handle, or keeps it aside if the handle was retired since.
    fn give(&self, handle: VirtualHandle, real: u64) -> Result<(), Error> {
        let agent = &self.core.agent;
        agent.substitutes.put(handle, real);
        match agent.handles().rebind(handle, real) {
            Ok(()) | Err(crate::handle::HandleError::Stale { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn object(&self, handle: VirtualHandle, kind: HandleKind) -> Result<u64, Error> {
        let agent = &self.core.agent;
        agent.substitutes.get(handle).map_or_else(|| Ok(agent.handles().resolve(handle, kind)?), Ok)
    }

    /// Policy *replay*: issues the open step's requests again. False: the application runs the step again, on
    /// this rank or (if one rank cannot replay it) on all.
    pub(super) fn replay_step(&mut self, step: u32) -> Result<bool, Error> {
        let agent = &self.core.agent;
        if self.membership().options().policy != JobPolicy::Replay {
            return Ok(false);
        }
        let inside = !self.newcomer && agent.phase.get() == Phase::InStep(step);
        let records = if inside { self.step_records() } else { Ok(Vec::new()) };
        match self.barrier(stage::REPLAYABLE, records.is_ok(), &self.all) {
            Ok(()) => {}
            Err(error) => {
                self.check()?;
                tracing::warn!(%error, "a rank cannot replay the step; the application runs it again");
                return Ok(false);
            }
        }
        let Ok(records) = records else { return Ok(false) };
        if !inside {
            return Ok(false);
        }
        for state in self.core.states().of_kind(StateKind::Scratch) {
            agent.zero_unrecorded(state.address, state.bytes)?;
        }
        let _replaying = Replaying::begin(self.epoch);
        for (record, request) in &records {
            self.replay_one(record, request, 0, Stage::Step)?;
        }
        tracing::info!(step, requests = records.len(), "issued the step's requests again");
        Ok(true)
    }

    /// What the step has asked for since its last begin, without what makes or destroys objects (those exist).
    fn step_records(&self) -> Result<Vec<(Record, OwnedRequest)>, Error> {
        let mut records = Vec::new();
        for record in self.whole_snapshot()?.step {
            let request = decode(&record)?;
            if request.op() == OpCode::StepBegin {
                records.clear();
                continue;
            }
            if !replayable::counts(Stage::Step, &record, &request) {
                continue;
            }
            if let Rule::Refuse(reason) = request.as_request().rule(Stage::Step) {
                return Err(Error::NotRecoverable {
                    what: format!("record {} ({}) cannot be replayed: {reason}", record.sequence, request.as_request()),
                });
            }
            records.push((record, request));
        }
        Ok(records)
    }
}

fn decode(record: &Record) -> Result<OwnedRequest, Error> {
    if record.outcome == Outcome::Absent {
        let what = format!("record {} cannot be replayed: {}", record.sequence, Reason::BytesNotRecorded);
        return Err(Error::NotRecoverable { what });
    }
    request::decode(record.kind, &record.payload)
        .map_err(|e| Error::NotRecoverable { what: format!("record {}: {e}", record.sequence) })
}

/// The request and the value of a call that succeeded; `None` for others.
fn succeeded(record: &Record) -> Result<Option<(OwnedRequest, u64)>, Error> {
    match record.result.map(recorded_value) {
        Some(Ok(value)) => Ok(Some((decode(record)?, value))),
        _ => Ok(None),
    }
}
