//! Replay: recorded requests executed again.
//!
//! Stage 1, on a rank whose device was lost: the set-up, without the skip set and without calls that had not
//! succeeded, and what steps have made and ended since. Addresses and handles come out as they were. Stage 2, policy
//! *replay*, on every rank that is inside the step: the step's requests, in the order of the journal. What the step has
//! ended by then is made again for it.

use super::attempt::Attempt;
use super::open_step::OpenStep;
use super::{replayable, stage};
use crate::agent::{HostMemory, Phase, recorded_value, replaying::Replaying};
use crate::backend::{DevicePtr, RealHandle};
use crate::error::Error;
use crate::handle::{HandleKind, VirtualHandle};
use crate::journal::{Outcome, Record, Snapshot};
use crate::membership::JobPolicy;
use crate::request::{self, Call, Class, OwnedRequest, Reason, Rule, Stage};
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
        agent.substitutes.take_all();
        agent.sources.clear();
        let _replaying = Replaying::begin(self.epoch);
        let mut executed = 0;
        // What the open step allocates stands in the step region; it belongs to the application across the redo.
        let of_step = snapshot.step.iter().filter(|record| is_about_objects(record));
        let mut records: Vec<&Record> = snapshot.setup.iter().chain(of_step).collect();
        records.sort_unstable_by_key(|record| record.sequence);
        for record in records {
            if record.outcome == Outcome::Absent {
                self.do_without(&snapshot, record)?;
                continue;
            }
            let Some((request, value)) = succeeded(record)? else { continue };
            let done = self.replay_one(record, &request, value, Stage::Setup);
            agent.sources.keep(request);
            executed += u64::from(done?);
        }
        self.until("replay: streams of this rank", self.deadline(), || {
            for (stream, _) in agent.objects.streams() {
                if !agent.device.stream_query(RealHandle(agent.handles().resolve(stream, HandleKind::Stream)?))? {
                    return Ok(false);
                }
            }
            Ok(agent.device.stream_query(RealHandle(0))?)
        })?;
        self.end_substitutes()?;
        Ok(executed)
    }

    /// Goes on without an upload whose bytes were not recorded, if what it filled comes from elsewhere.
    fn do_without(&self, snapshot: &Snapshot, record: &Record) -> Result<(), Error> {
        match replayable::unrecorded(snapshot, record) {
            None => Ok(()),
            Some(obstacle) => Err(Error::NotRecoverable {
                what: format!("record {} ({}) of rank {} cannot be replayed: {}", record.sequence, obstacle.request, self.me, obstacle.reason),
            }),
        }
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
            Rule::Execute => {}
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
            Call::StreamDestroy { stream } => self.end(stream, HandleKind::Stream)?,
            Call::EventDestroy { event } => self.end(event, HandleKind::Event)?,
            Call::ModuleUnload { module } => self.end(module, HandleKind::Module)?,
            _ => drop(agent.execute(&request, HostMemory::default())?),
        }
        Ok(true)
    }

    /// Binds a replayed object to its handle, or keeps it aside if the handle was retired since.
    fn give(&self, handle: VirtualHandle, real: u64) -> Result<(), Error> {
        let agent = &self.core.agent;
        match agent.handles().rebind(handle, real) {
            Ok(()) => Ok(()),
            Err(crate::handle::HandleError::Stale { .. }) => {
                agent.substitutes.put(handle, real);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn object(&self, handle: VirtualHandle, kind: HandleKind) -> Result<u64, Error> {
        let agent = &self.core.agent;
        agent.substitutes.get(handle).map_or_else(|| Ok(agent.handles().resolve(handle, kind)?), Ok)
    }

    /// Ends a replayed object, whose handle was retired.
    fn end(&self, handle: VirtualHandle, kind: HandleKind) -> Result<(), Error> {
        let agent = &self.core.agent;
        let real = agent.substitutes.take(handle).map_or_else(|| agent.handles().resolve(handle, kind), Ok)?;
        self.end_object(kind, RealHandle(real))
    }

    fn end_object(&self, kind: HandleKind, real: RealHandle) -> Result<(), Error> {
        let device = &self.core.agent.device;
        match kind {
            HandleKind::Stream => device.stream_destroy(real)?,
            HandleKind::Event => device.event_destroy(real)?,
            HandleKind::Module => device.module_unload(real)?,
            // A function goes with its module.
            _ => {}
        }
        Ok(())
    }

    /// Ends what no record ends: of calls that a failure interrupted, and of a replay that was not finished.
    fn end_substitutes(&self) -> Result<(), Error> {
        let left = self.core.agent.substitutes.take_all();
        left.into_iter().try_for_each(|(handle, real)| self.end_object(handle.kind()?, RealHandle(real)))
    }

    /// Policy *replay*: issues the open step's requests again. False: the application runs the step again, on
    /// this rank or (if one rank cannot replay it) on all.
    pub(super) fn replay_step(&mut self, step: u32) -> Result<bool, Error> {
        let agent = &self.core.agent;
        if self.membership().options().policy != JobPolicy::Replay {
            return Ok(false);
        }
        let inside = !self.newcomer && agent.phase.get() == Phase::InStep(step);
        let open = if inside { self.whole_snapshot().and_then(|snapshot| OpenStep::of(&snapshot)) } else { Ok(OpenStep::default()) };
        match self.barrier(stage::REPLAYABLE, open.is_ok(), &self.all) {
            Ok(()) => {}
            Err(error) => {
                self.check()?;
                tracing::warn!(%error, "a rank cannot replay the step; the application runs it again");
                return Ok(false);
            }
        }
        let Ok(open) = open else { return Ok(false) };
        if !inside {
            return Ok(false);
        }
        for state in self.core.states().of_kind(StateKind::Scratch) {
            agent.zero_unrecorded(state.address, state.bytes)?;
        }
        let _replaying = Replaying::begin(self.epoch);
        self.end_substitutes()?;
        let live: Vec<u64> = agent.device.allocations().into_iter().map(|(address, _)| address.0).collect();
        for address in open.allocated.iter().filter(|address| live.contains(address)) {
            agent.device.free(DevicePtr(*address))?;
        }
        for (record, request) in &open.needed {
            self.replay_one(record, request, 0, Stage::Setup)?;
        }
        let requests = open.requests.len();
        for (record, request, value) in open.requests {
            if self.is_due(&request) {
                let done = self.replay_one(&record, &request, value, Stage::Step);
                agent.sources.keep(request);
                done?;
            }
        }
        tracing::info!(step, requests, "issued the step's requests again");
        Ok(true)
    }

    /// Objects that the step has made and left are there; what it has ended is made and ended again.
    fn is_due(&self, request: &OwnedRequest) -> bool {
        let agent = &self.core.agent;
        let request = request.as_request();
        let is_live = |handle, kind| agent.handles().resolve(handle, kind).is_ok();
        match request.call() {
            Call::ModuleGetFunction { module, .. } => !is_live(module, HandleKind::Module),
            // The process and its pages are the same.
            Call::HostRegister { .. } | Call::HostUnregister { .. } => false,
            _ => {
                let word = |(position, kind)| Some((VirtualHandle(request.word(position)?), kind));
                let made = request.row().creates().find_map(word);
                let ended = request.row().destroys().find_map(word);
                made.is_none_or(|(handle, kind)| !is_live(handle, kind))
                    && ended.is_none_or(|(handle, _)| agent.substitutes.get(handle).is_some())
            }
        }
    }
}

/// Whether it makes or ends something.
fn is_about_objects(record: &Record) -> bool {
    request::OpCode::from_code(record.kind).is_some_and(|op| matches!(op.row().class, Class::Setup | Class::Teardown))
}

pub(super) fn decode(record: &Record) -> Result<OwnedRequest, Error> {
    if record.outcome == Outcome::Absent {
        let what = format!("record {} cannot be replayed: {}", record.sequence, Reason::BytesNotRecorded);
        return Err(Error::NotRecoverable { what });
    }
    request::decode(record.kind, &record.payload)
        .map_err(|e| Error::NotRecoverable { what: format!("record {}: {e}", record.sequence) })
}

/// The request and the value of a call that succeeded; `None` for others.
pub(super) fn succeeded(record: &Record) -> Result<Option<(OwnedRequest, u64)>, Error> {
    match record.result.map(recorded_value) {
        Some(Ok(value)) => Ok(Some((decode(record)?, value))),
        _ => Ok(None),
    }
}
