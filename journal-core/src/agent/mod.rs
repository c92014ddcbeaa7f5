//! The agent executes requests: gate, resolve, record, execute, store the result.

mod execute;
mod failure;
mod foreign;
mod group;
pub mod objects;
pub mod phase;
pub mod poll;
pub(crate) mod replaying;

pub use execute::{HostMemory, Value};
pub use objects::Communicator;
pub use phase::{Phase, PhaseCell};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::{Device, DevicePtr};
use crate::error::Error;
use crate::handle::{HandleKind, HandleTable, VirtualHandle};
use crate::journal::store::Memory;
use crate::journal::{AppendError, Journal, RecordRef, Region};
use crate::membership::{Epoch, Incarnation, JobPolicy, Membership, MembershipError, Rank, ShmMembership};
use crate::nccl::{Aborts, NcclLibrary, RealCommunicator};
use crate::recovery::fingerprint::Fingerprint;
use crate::request::{self, Call, Class, OpCode, Request, Rule, Stage};
use crate::session::fault::{Fault, FaultPlan, kill_self};
use crate::sync::gate::{Gate, Pass};
use crate::sync::{AtomicU32, Ordering};

/// Executes the requests of one rank. Shared by the application's threads and the recovery thread.
pub struct Agent {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) nccl: Arc<NcclLibrary>,
    /// Communicators that are being ended.
    pub(crate) aborts: Aborts,
    pub(crate) journal: Journal,
    pub(crate) gate: Gate,
    /// Where this rank stands; the session moves it.
    pub phase: PhaseCell,
    pub(crate) objects: objects::Objects,
    pub(crate) membership: Arc<ShmMembership>,
    pub(crate) rank: Rank,
    pub(crate) incarnation: Incarnation,
    pub(crate) peer_timeout: Duration,
    pub(crate) fingerprint: Fingerprint,
    /// The epoch that this rank's communicators belong to.
    live_epoch: AtomicU32,
    /// This process replaces a dead one: collectives of its set-up are skipped.
    replacement: bool,
    pub(crate) faults: FaultPlan,
    step_allocations: Mutex<Vec<(DevicePtr, u64)>>,
    freed_after_quiesce: Mutex<Vec<DevicePtr>>,
    pub(crate) substitutes: replaying::Substitutes,
    pub(crate) sources: replaying::Sources,
    /// The device was lost in a step of this rank: whatever the phase says, the step is over for it.
    device_lost: AtomicU32,
    await_replay: std::sync::OnceLock<AwaitReplay>,
    /// The application uses streams or memory of its own.
    foreign: AtomicU32,
    unique_ids: AtomicU32,
}

/// Fewer bytes than this always go into the journal, or the call is refused.
const LARGE: u64 = 64 << 10;

/// Waits until recovery has issued the open step again; false: the application has to run it again.
pub(crate) type AwaitReplay = Box<dyn Fn() -> Result<bool, Error> + Send + Sync>;

/// What an [`Agent`] is made of.
#[allow(missing_docs)]
pub struct AgentParts {
    pub device: Arc<dyn Device>,
    pub nccl: Arc<NcclLibrary>,
    pub journal: Journal,
    pub membership: Arc<ShmMembership>,
    pub rank: Rank,
    pub incarnation: Incarnation,
    pub peer_timeout: Duration,
    pub epoch: Epoch,
    pub replacement: bool,
    pub faults: FaultPlan,
}

impl Agent {
    /// An agent whose gate is open.
    pub fn new(parts: AgentParts) -> Self {
        Self {
            device: parts.device,
            nccl: parts.nccl,
            aborts: Aborts::default(),
            journal: parts.journal,
            gate: Gate::default(),
            phase: PhaseCell::default(),
            objects: objects::Objects::default(),
            membership: parts.membership,
            rank: parts.rank,
            incarnation: parts.incarnation,
            peer_timeout: parts.peer_timeout,
            fingerprint: Fingerprint::default(),
            live_epoch: AtomicU32::new(u32::from(parts.epoch.0)),
            replacement: parts.replacement,
            faults: parts.faults,
            step_allocations: Mutex::default(),
            freed_after_quiesce: Mutex::default(),
            substitutes: replaying::Substitutes::default(),
            sources: replaying::Sources::default(),
            device_lost: AtomicU32::new(0),
            await_replay: std::sync::OnceLock::new(),
            foreign: AtomicU32::new(0),
            unique_ids: AtomicU32::new(0),
        }
    }

    /// The handle table of this rank.
    #[inline]
    pub fn handles(&self) -> HandleTable<'_, Memory> {
        self.journal.handles()
    }

    /// The epoch that this rank lives in.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.live_epoch.load(Ordering::Acquire) as u16)
    }

    /// Recovery has brought this rank to `epoch`.
    pub(crate) fn enter_epoch(&self, epoch: Epoch) {
        self.live_epoch.store(u32::from(epoch.0), Ordering::Release);
    }

    /// Ends communicators together; returns when their kernels have been told.
    pub(crate) fn abort(&self, communicators: Vec<RealCommunicator>, deadline: Instant) -> Result<(), Error> {
        Ok(self.aborts.start(&self.nccl, &self.device, communicators, deadline)?)
    }

    /// Whether this process replaces a dead one.
    pub fn is_replacement(&self) -> bool {
        self.replacement
    }

    /// The job has moved to another epoch, or ended, and this rank is not merely finishing a decided step.
    #[inline]
    pub fn moved(&self) -> bool {
        let decision = self.membership.decision();
        if decision.is_ended() {
            return true;
        }
        if self.device_lost.load(Ordering::Acquire) != 0 {
            return true;
        }
        u32::from(decision.epoch.0) != self.live_epoch.load(Ordering::Acquire)
            && !matches!(self.phase.get(), Phase::SetUp | Phase::Decided(_))
    }

    /// Why a call is turned away.
    pub fn doomed(&self) -> Error {
        match self.membership.check() {
            Err(error @ (MembershipError::Ended { .. } | MembershipError::Evicted { .. })) => error.into(),
            _ => Error::Redo,
        }
    }

    /// Records and executes one request. Handles that it creates were reserved before
    /// ([`Self::create`]); its result is stored in the record when the call has returned.
    ///
    /// A crash before the record is committed leaves nothing; after it, a record without a result.
    pub fn send(&self, request: &Request<'_>, host: HostMemory) -> Result<Value, Error> {
        let row = request.row();
        let phase = self.phase.get();
        let communicates = phase::is_communication(row.class);
        phase.admit(row.class, row.name, false)?;
        if communicates && self.replacement && phase == Phase::SetUp {
            return Ok(0);
        }
        // A rank that saw GO finishes its optimizer behind a gate that recovery closes only after the commit.
        let mut pass = self.gate.enter();
        while pass.is_none() || self.moved() {
            drop(pass);
            self.wait_for_replay()?;
            pass = self.gate.enter();
        }
        let record = match row.class {
            Class::Query => None,
            _ => {
                let (parts, region, code) = (request.parts(), self.region_of(request), request.code());
                // A full journal can still be taken apart.
                let appended = match row.class {
                    Class::Teardown => self.journal.append_vital(region, code, 0, &parts),
                    _ => self.journal.append(region, code, 0, &parts),
                };
                Some(match appended {
                    Ok(record) => record,
                    Err(error) => self.append_without_bytes(region, request, error)?,
                })
            }
        };
        match self.execute(request, host) {
            Ok(value) => {
                if let Some(record) = record {
                    self.journal.complete(record, value_word(value));
                }
                self.done(request, phase, value);
                Ok(value)
            }
            Err(error) => self.failed(request, host, phase, record, pass, error),
        }
    }

    #[cold]
    fn failed(
        &self,
        request: &Request<'_>,
        host: HostMemory,
        phase: Phase,
        record: Option<RecordRef>,
        pass: Option<Pass<'_>>,
        error: Error,
    ) -> Result<Value, Error> {
        let error = self.escalate(error);
        if let Some(record) = record {
            self.journal.complete(record, failure_word(&error));
        }
        if !error.is_redo() {
            return Err(error);
        }
        drop(pass);
        let value = self.after_replay(request, host, record)?;
        self.done(request, phase, value);
        Ok(value)
    }

    #[inline]
    fn done(&self, request: &Request<'_>, phase: Phase, value: Value) {
        if let Phase::InStep(step) = phase {
            // Nearly no request needs it.
            if request.op() == OpCode::AllReduce || is_about_memory(request.op()) {
                self.after_step_request(request, value, step);
            }
        }
    }

    /// Bytes that the journal has no room for: work of the device that needs them is recorded without them, and their
    /// content has to come from elsewhere in a recovery. What makes an object is not done without its record.
    #[cold]
    fn append_without_bytes(&self, region: Region, request: &Request<'_>, error: AppendError) -> Result<RecordRef, Error> {
        let bytes = request.encoded_len() as u64;
        if request.row().class != Class::Step || !error.is_for_space() || bytes < LARGE {
            return Err(error.into());
        }
        tracing::warn!(
            request = request.row().name, bytes, %error,
            "recorded without its bytes; `rejoin verify` tells whether a recovery can do without them"
        );
        Ok(self.journal.append_absent(region, request.code(), 0, &request.parts())?)
    }

    /// Reserves a handle of `kind`, sends the request that makes its object, and gives the handle back.
    pub fn create<'a>(&self, kind: HandleKind, make: impl FnOnce(VirtualHandle) -> Request<'a>) -> Result<VirtualHandle, Error> {
        let handle = self.handles().reserve(kind)?;
        match self.send(&make(handle), HostMemory::default()) {
            Ok(_) => Ok(handle),
            Err(error) => {
                let _ = self.handles().retire(handle);
                Err(error)
            }
        }
    }

    /// Records a request that the session itself carries out.
    pub(crate) fn note(&self, request: &Request<'_>) -> Result<(), Error> {
        self.record_around(request, || Ok(()))
    }

    /// Records `request`, carries out `action`, stores its result.
    pub(crate) fn record_around<T>(&self, request: &Request<'_>, action: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let record = self.journal.append(self.region(), request.code(), 0, &request.parts())?;
        let outcome = action();
        let word = match &outcome {
            Ok(_) => 0,
            Err(error) => failure_word(error),
        };
        self.journal.complete(record, word);
        outcome
    }

    fn region(&self) -> Region {
        if self.phase.get() == Phase::SetUp { Region::Setup } else { Region::Step }
    }

    /// What lives longer than a step is kept longer: the making and the end of objects, inside of steps and outside of
    /// them. Memory that a step allocates is gone at its end, and so are its records.
    fn region_of(&self, request: &Request<'_>) -> Region {
        match request.row().class {
            Class::Setup | Class::Teardown => match self.phase.get() {
                Phase::InStep(_) if !lives_on(request) || self.is_of_this_step(request) => Region::Step,
                _ => Region::Setup,
            },
            _ => self.region(),
        }
    }

    fn is_of_this_step(&self, request: &Request<'_>) -> bool {
        match request.call() {
            Call::MemAlloc { .. } | Call::NcclMemAlloc { .. } => true,
            Call::MemFree { address } | Call::NcclMemFree { address } => self.lock_allocations().iter().any(|(a, _)| *a == address),
            _ => false,
        }
    }

    /// The open step is void, and what it has allocated is still the application's: recorded anew.
    pub(crate) fn carry_step_allocations(&self) -> Result<(), Error> {
        for (address, bytes) in self.open_step_allocations() {
            let request = request::mem_alloc(bytes);
            let record = self.journal.append(Region::Step, request.code(), 0, &request.parts())?;
            self.journal.complete(record, address.0);
        }
        Ok(())
    }

    /// Copies to the device are recorded with their bytes, not by their digest.
    pub(crate) fn records_bytes(&self) -> bool {
        self.phase.get() == Phase::SetUp || self.membership.options().policy == JobPolicy::Replay
    }

    /// Ordinal of the next unique id of this rank.
    pub(crate) fn next_unique_id(&self) -> u32 {
        self.unique_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Frees memory once nothing can use it any more.
    pub(crate) fn free_after_quiesce(&self, addresses: [DevicePtr; 2]) {
        self.freed_after_quiesce.lock().unwrap_or_else(PoisonError::into_inner).extend(addresses);
    }

    /// Everything has drained: frees what waited for that.
    pub(crate) fn quiesced(&self) -> Result<(), Error> {
        self.sources.clear();
        let addresses = core::mem::take(&mut *self.freed_after_quiesce.lock().unwrap_or_else(PoisonError::into_inner));
        addresses.into_iter().try_for_each(|address| Ok(self.device.free(address)?))
    }

    fn after_step_request(&self, request: &Request<'_>, value: Value, step: u32) {
        match request.call() {
            Call::MemAlloc { bytes } | Call::NcclMemAlloc { bytes } => self.lock_allocations().push((DevicePtr(value), bytes)),
            Call::MemFree { address } | Call::NcclMemFree { address } => self.lock_allocations().retain(|(a, _)| *a != address),
            _ => {}
        }
        if request.op() == OpCode::AllReduce {
            self.fail_as_told(step);
        }
    }

    /// Carries out what is planned for `step`, unless it was.
    pub(crate) fn fail_as_told(&self, step: u32) {
        match self.faults.take(step) {
            Some(Fault::Kill { delay }) => kill_self(delay, || self.membership.note_kill_time()),
            Some(Fault::FailDevice) => self.fail_device(),
            _ => {}
        }
    }

    /// Between the job's decision about `step` and this rank's commit.
    pub(crate) fn after_go(&self, step: u32) {
        match self.faults.take_after_go(step) {
            Some(Fault::KillAfterGo) => kill_self(core::time::Duration::ZERO, || self.membership.note_kill_time()),
            Some(Fault::FailDeviceAfterGo) => self.fail_device(),
            _ => {}
        }
    }

    fn fail_device(&self) {
        self.membership.note_kill_time();
        let _ = self.device.inject_failure("told to fail by REJOIN_FAULT");
    }

    fn lock_allocations(&self) -> std::sync::MutexGuard<'_, Vec<(DevicePtr, u64)>> {
        self.step_allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory allocated inside the open step and not freed yet.
    pub(crate) fn open_step_allocations(&self) -> Vec<(DevicePtr, u64)> {
        self.lock_allocations().clone()
    }
}

fn is_about_memory(op: OpCode) -> bool {
    matches!(op, OpCode::MemAlloc | OpCode::MemFree | OpCode::NcclMemAlloc | OpCode::NcclMemFree)
}

/// A replay of the set-up has something to do for it, or has to be refused because of it.
fn lives_on(request: &Request<'_>) -> bool {
    !matches!(request.rule(Stage::Setup), Rule::Skip | Rule::Rebuild)
}

/// Results as recorded: a value below 2^61, or bit 61 with the status of the error.
const FAILED: u64 = 1 << 61;

fn value_word(value: Value) -> u64 {
    value & (FAILED - 1)
}

fn failure_word(error: &Error) -> u64 {
    FAILED | u64::from(error.status() as i32 as u32)
}

/// The value of a recorded result; the error's status where the call failed.
pub fn recorded_value(result: u64) -> Result<Value, i32> {
    if result & FAILED == 0 { Ok(result) } else { Err(result as u32 as i32) }
}
