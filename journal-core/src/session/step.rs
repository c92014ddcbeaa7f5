//! Steps: begin, end with the job's decision, commit, and coming back after a recovery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::Core;
use super::fault::kill_self;
use super::state::{StateKind, StateTable};
use super::{Session, prepared};
use crate::agent::Phase;
use super::launch_env::Unregistered;
use crate::backend::DevicePtr;
use crate::error::{EndReason, Error, UnregisteredMemory};
use crate::journal::{JournalReader, Record, SegmentName};
use crate::membership::{BlobScope, Epoch, JobPolicy, Membership, MembershipError, Rank, RankSet, Step, Verdict};
use crate::nccl::clique::CliqueKey;
use crate::recovery::{end_job, fingerprint, restore, stage, states_key, unregistered_key};
use crate::request::{self, Call};

/// Largest blob of a step, bytes.
pub const LARGEST_BLOB: usize = 64 << 10;

/// What `setup_done` gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetUp {
    /// First step to run: 0, or where the job stands.
    pub step: u32,
    /// As given to the `step_end` before `step`; empty for step 0.
    pub blob: Vec<u8>,
    /// This process is a replacement and goes on in the middle.
    pub resumed: bool,
}

/// What `resume` gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// The step to run now.
    pub step: u32,
    /// As given to the `step_end` before `step`; empty for step 0.
    pub blob: Vec<u8>,
}

/// What the job decided about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// Everybody has finished it: run the optimizer, then commit.
    Go,
    /// Call `resume` and run it again.
    Redo,
}

fn wrong(call: &'static str, phase: Phase, expected: &str) -> Error {
    Error::WrongState { call, reason: format!("the session is at {phase:?}; {expected}") }
}

/// Lets requests of a doomed step wait for its replay (policy *replay*).
pub(super) fn set_await_replay(core: &Arc<Core>) {
    let weak = Arc::downgrade(core);
    core.agent.set_await_replay(Box::new(move || {
        let core = weak.upgrade().ok_or(Error::Redo)?;
        let deadline = Instant::now() + core.options.peer_timeout * 2;
        wait_recovered(&core, deadline)?;
        Ok(core.progress().replayed)
    }));
}

/// Waits until the rank lives in the job's epoch; the step that the last recovery led to.
fn wait_recovered(core: &Core, deadline: Instant) -> Result<u32, Error> {
    let found = core.wait_progress("recovery", deadline, || None, |progress| {
        if let Some(error) = &progress.failed {
            return Some(Err(error.clone()));
        }
        let (epoch, step) = progress.recovered?;
        let now = core.membership().decision();
        (now.epoch == epoch && !now.is_failed() && !now.is_ended()).then_some(Ok(step))
    })?;
    found.map_err(|error| ended(&error))
}

/// The recovery thread's error as a call's.
fn ended(error: &Error) -> Error {
    match error {
        Error::Evicted { rank, incarnation } => Error::Evicted { rank: *rank, incarnation: *incarnation },
        Error::Ended { reason } => Error::Ended { reason: *reason },
        other => Error::WrongState { call: "resume", reason: format!("recovery is not possible: {other}") },
    }
}

impl Session {
    /// The set-up is over. Waits for all ranks; on a replacement, until recovery has restored its state.
    pub fn setup_done(&self) -> Result<SetUp, Error> {
        let core = &self.core;
        let agent = &core.agent;
        let phase = agent.phase.get();
        if phase != Phase::SetUp {
            return Err(wrong("setup_done", phase, "it is called once"));
        }
        agent.wait_all_streams()?;
        if agent.faults.dies_at_setup_done() {
            kill_self(Duration::ZERO, || core.membership().note_kill_time());
        }
        let table = core.states();
        self.check_all_registered(&table)?;
        agent.journal.prepared_reserve(prepared::size(&table, LARGEST_BLOB))?;
        agent.note(&request::setup_done())?;
        let membership = core.membership();
        membership.publish(BlobScope::Permanent, &states_key(agent.rank), &table.to_bytes())?;
        let deadline = Instant::now() + core.options.peer_timeout;
        if agent.is_replacement() {
            let old = self.take_over_prepared()?;
            membership.mark_ready()?;
            core.update(|p| p.set_up = true);
            let step = self.await_recovery(deadline)?;
            agent.phase.set(Phase::Between(step));
            core.update(|p| p.committed = step);
            old.iter().for_each(|name| drop(crate::journal::remove(name)));
            return Ok(SetUp { step, blob: prepared::blob(&agent.journal, step)?, resumed: true });
        }
        prepared::write(agent, &table, 0, &[])?;
        let constants = restore::constant_sums(agent, &table)?;
        membership.publish(BlobScope::Permanent, &restore::constants_key(agent.rank), &constants)?;
        core.update(|p| p.set_up = true);
        membership.barrier(agent.epoch(), stage::SET_UP, true, &RankSet::all(membership.nranks()), deadline)?;
        membership.mark_setup_complete()?;
        membership.mark_ready()?;
        agent.phase.set(Phase::Between(0));
        Ok(SetUp { step: 0, blob: Vec::new(), resumed: false })
    }

    /// Memory that the application may have forgotten: no recovery would restore it.
    fn check_all_registered(&self, table: &StateTable) -> Result<(), Error> {
        let (core, agent) = (&self.core, &self.core.agent);
        let mut allocations = Vec::new();
        for (base, bytes) in agent.device.allocations() {
            // Allocations are padded to 256 bytes; what is smaller is not the application's.
            let gaps = table.gaps(base, bytes).into_iter().filter(|(_, bytes)| *bytes >= 256);
            allocations.extend(gaps.map(|(address, bytes)| (base, address, bytes)));
        }
        if allocations.is_empty() {
            return Ok(());
        }
        let records = agent.journal.snapshot().setup;
        let allocates = |r: &Record| {
            let decoded = request::decode(r.kind, &r.payload);
            decoded.is_ok_and(|request| matches!(request.as_request().call(), Call::MemAlloc { .. } | Call::NcclMemAlloc { .. }))
        };
        let allocated = |base: DevicePtr| {
            let record = records.iter().rev().find(|r| r.result == Some(base.0) && allocates(r));
            record.map(|r| r.sequence.0)
        };
        let error = Error::Unregistered {
            allocations: allocations
                .into_iter()
                .map(|(base, address, bytes)| UnregisteredMemory { address, bytes, sequence: allocated(base) })
                .collect(),
        };
        match core.options.unregistered {
            Unregistered::Refuse => Err(error),
            Unregistered::Warn if agent.is_replacement() => Ok(()),
            Unregistered::Warn => {
                tracing::warn!("{error}");
                let text = format!("rank {}: {error}", agent.rank);
                Ok(core.membership().publish(BlobScope::Permanent, &unregistered_key(agent.rank), text.as_bytes())?)
            }
        }
    }

    /// Copies the PREPARED records of the newest predecessor that has some into this journal, so that the
    /// predecessor's segment may go. The names of the predecessors' segments.
    fn take_over_prepared(&self) -> Result<Vec<SegmentName>, Error> {
        let (agent, job) = (&self.core.agent, &self.core.options.job);
        let mut names = Vec::new();
        let mut taken = false;
        for incarnation in (0..agent.incarnation.0).rev() {
            let name = SegmentName::journal(job, agent.rank.0, incarnation)?;
            let Ok(reader) = JournalReader::open(&name) else { continue };
            let records = reader.prepared()?;
            for record in records.iter().filter(|_| !taken) {
                let parts: Vec<(u32, &[u8])> = record.parts.iter().map(|(id, bytes)| (*id, bytes.as_slice())).collect();
                agent.journal.prepared_write(record.step, &record.blob, &parts)?;
            }
            taken |= !records.is_empty();
            names.push(name);
        }
        Ok(names)
    }

    /// Begins `step`: scratch buffers are zeroed. [`Error::Redo`] when a rank has failed meanwhile.
    pub fn step_begin(&self, step: u32) -> Result<(), Error> {
        let agent = &self.core.agent;
        match agent.phase.get() {
            Phase::Between(expected) if expected == step => {}
            phase => return Err(wrong("step_begin", phase, "begin the step that setup_done, step_commit or resume led to")),
        }
        let mut pass = agent.gate.enter();
        while pass.is_none() || agent.moved() {
            drop(pass);
            self.await_next_step(step)?;
            pass = agent.gate.enter();
        }
        agent.note(&request::step_begin(step))?;
        for state in self.core.states().of_kind(StateKind::Scratch) {
            agent.zero_unrecorded(state.address, state.bytes)?;
        }
        agent.phase.set(Phase::InStep(step));
        Ok(())
    }

    /// Ends the open step: waits for this rank's work, keeps `next_blob` (at most 64 KiB) and the per-rank
    /// buffers for the next step, votes, and returns what the job decides.
    pub fn step_end(&self, next_blob: &[u8]) -> Result<Decided, Error> {
        let agent = &self.core.agent;
        let Phase::InStep(step) = agent.phase.get() else {
            return Err(wrong("step_end", agent.phase.get(), "call step_begin first"));
        };
        if next_blob.len() > LARGEST_BLOB {
            return Err(Error::InvalidArgument { what: format!("a blob of {} bytes, at most {LARGEST_BLOB}", next_blob.len()) });
        }
        if let [(address, bytes), ..] = agent.open_step_allocations()[..] {
            return Err(Error::WrongState {
                call: "step_end",
                reason: format!("{bytes} bytes at {:#x} were allocated inside the step; free them before its end, or allocate in set-up", address.0),
            });
        }
        agent.fail_as_told(step);
        loop {
            match self.decide(step, next_blob)? {
                Decided::Redo if agent.wait_for_replay().is_ok() => {}
                decided => return Ok(decided),
            }
        }
    }

    /// Finishes this rank's work, votes, and waits for the decision.
    fn decide(&self, step: u32, next_blob: &[u8]) -> Result<Decided, Error> {
        let (core, agent) = (&self.core, &self.core.agent);
        match self.finish_work(step, next_blob).map_err(|error| agent.escalate(error)) {
            Err(Error::Redo) => return Ok(Decided::Redo),
            other => other?,
        }
        let epoch = agent.epoch();
        let verdict = self
            .await_open(epoch, Step(step))
            .and_then(|()| core.membership().vote(epoch, Step(step)))
            .and_then(|_| core.membership().await_verdict(epoch, Step(step), Instant::now() + core.options.peer_timeout));
        match verdict.map_err(Error::from) {
            Ok(Verdict::Go) => {
                agent.phase.set(Phase::Decided(step));
                agent.after_go(step);
                Ok(Decided::Go)
            }
            Ok(_) | Err(Error::Redo) => match agent.doomed() {
                Error::Redo => Ok(Decided::Redo),
                error => Err(error),
            },
            Err(error) => Err(self.end_on_timeout(error)),
        }
    }

    /// Ranks that exchange nothing inside a step may come to its end while others have yet to commit the one before.
    fn await_open(&self, epoch: Epoch, step: Step) -> Result<(), MembershipError> {
        let membership = self.core.membership();
        let deadline = Instant::now() + self.core.options.peer_timeout;
        loop {
            let seen = membership.event();
            let now = membership.decision();
            if now.step >= step || now.epoch != epoch || now.is_ended() {
                return Ok(());
            }
            if !membership.wait(seen, deadline) {
                // It is late: this says who is missing.
                return membership.await_commits(epoch, now.step, &RankSet::all(membership.nranks()), Instant::now());
            }
        }
    }

    fn finish_work(&self, step: u32, next_blob: &[u8]) -> Result<(), Error> {
        let agent = &self.core.agent;
        for (_, communicator) in agent.objects.communicators() {
            if communicator.take_used() {
                agent.settle(&communicator)?;
            }
        }
        agent.wait_all_streams()?;
        prepared::write(agent, &self.core.states(), step + 1, next_blob)
    }

    /// A rank that waited in vain for the others' votes may not simply leave: the job ends for everybody,
    /// unless it has moved on meanwhile.
    fn end_on_timeout(&self, error: Error) -> Error {
        if error.status() == crate::Status::Timeout {
            end_job(&self.core, EndReason::PeerTimeout, &format!("rank {}: {error}", self.core.agent.rank));
        }
        error
    }

    /// Commits the decided step, after the optimizer. The first time, and when the collectives of a step
    /// have changed, it also takes their fingerprint.
    pub fn step_commit(&self) -> Result<(), Error> {
        let (core, agent) = (&self.core, &self.core.agent);
        let Phase::Decided(step) = agent.phase.get() else {
            return Err(wrong("step_commit", agent.phase.get(), "it follows a step_end that returned GO"));
        };
        agent.wait_all_streams().map_err(|error| agent.escalate(error))?;
        agent.journal.step_commit(step)?;
        match core.membership().commit(Step(step)) {
            Ok(_) => {}
            // A death after GO: this commit is what recovery waits for.
            Err(error) if error.is_moved() => {}
            Err(error) => return Err(error.into()),
        }
        agent.phase.set(Phase::Between(step + 1));
        core.update(|p| p.committed = step + 1);
        if agent.journal.wants_compaction()
            && let Err(error) = agent.journal.compact(request::unneeded)
        {
            // The journal is as it was: only its room is not given back.
            tracing::debug!(%error, "the set-up records were not compacted");
        }
        match self.compare_first_replicas().and_then(|()| self.take_fingerprint()) {
            Err(Error::Redo) => Ok(()),
            other => other,
        }
    }

    /// After the commit of step 0 the replicas of all ranks must be equal: if they are not, some
    /// buffer was registered as replicated that is not, and the first recovery would break it.
    fn compare_first_replicas(&self) -> Result<(), Error> {
        let (core, agent) = (&self.core, &self.core.agent);
        if core.progress().committed != 1 {
            return Ok(());
        }
        let membership = core.membership();
        for clique in membership.cliques()?.into_iter().filter(|c| c.rank_of(agent.rank).is_some()) {
            let members = clique.members.iter().flatten().copied();
            let (Some(reference), key) = (members.min(), CliqueKey(clique.description.key)) else { continue };
            let _pass = agent.gate.enter().ok_or(Error::Redo)?;
            let sums = restore::replica_sums(agent, &core.states(), key)?;
            let deadline = Instant::now() + core.options.peer_timeout;
            let scope = BlobScope::Epoch(agent.epoch());
            let outcome = {
                let at = restore::Comparison { membership, me: agent.rank, reference, scope, blob: format!("first.{key}"), deadline };
                restore::compare_sums(&at, &sums)
            };
            if let Err(error @ Error::Mismatch { .. }) = &outcome {
                end_job(core, EndReason::Mismatch, &format!("rank {}: {error}", agent.rank));
            }
            outcome?;
        }
        Ok(())
    }

    fn take_fingerprint(&self) -> Result<(), Error> {
        let agent = &self.core.agent;
        for (_, communicator) in agent.objects.communicators() {
            let Some(probes) = agent.fingerprint.take_changed(communicator.clique) else { continue };
            let _pass = agent.gate.enter().ok_or(Error::Redo)?;
            let moved = || agent.moved();
            let results = fingerprint::run(agent, &communicator, &probes, fingerprint::probe_deadline(), &moved)?;
            agent.fingerprint.record(communicator.clique, results);
        }
        Ok(())
    }

    /// After [`Error::Redo`] or [`Decided::Redo`]: waits until the job has recovered, and says which step to run.
    pub fn resume(&self) -> Result<Resumed, Error> {
        let agent = &self.core.agent;
        match agent.phase.get() {
            Phase::SetUp => return Err(wrong("resume", Phase::SetUp, "call setup_done first")),
            Phase::Decided(step) if !agent.is_device_lost() => return Err(wrong("resume", Phase::Decided(step), "GO stands: run the optimizer and commit first")),
            Phase::Ended => return Err(wrong("resume", Phase::Ended, "the session is closed")),
            Phase::Between(_) | Phase::InStep(_) | Phase::Decided(_) => {}
        }
        let deadline = Instant::now() + self.core.options.peer_timeout * 2;
        let step = loop {
            let step = self.await_recovery(deadline)?;
            // Inside the gate: the next recovery, which may come at once, reads the journal before this or after it.
            let Some(_pass) = agent.gate.enter() else { continue };
            agent.fingerprint.forget_step();
            if agent.is_foreign() {
                agent.wait_all_streams()?;
                prepared::restore(agent, &self.core.states(), step)?;
            }
            // Nobody resumes into a replayed step: what the journal holds of it is void.
            agent.journal.step_discard()?;
            agent.carry_step_allocations()?;
            break step;
        };
        agent.phase.set(Phase::Between(step));
        agent.clear_device_lost();
        Ok(Resumed { step, blob: prepared::blob(&agent.journal, step)? })
    }

    /// Before a step under policy *replay*: the recovery is only a delay, if it leads to this step.
    fn await_next_step(&self, step: u32) -> Result<(), Error> {
        let agent = &self.core.agent;
        let error = agent.doomed();
        if !error.is_redo() || self.core.membership().options().policy != JobPolicy::Replay {
            return Err(error);
        }
        let found = self.await_recovery(Instant::now() + self.core.options.peer_timeout * 2)?;
        if found == step && !agent.is_device_lost() { Ok(()) } else { Err(Error::Redo) }
    }

    /// Waits until this rank lives in the job's epoch, and the step that the last recovery led to.
    fn await_recovery(&self, deadline: Instant) -> Result<u32, Error> {
        wait_recovered(&self.core, deadline)
    }

    /// The launcher removes the job's segments; where it is gone, the last rank to leave does.
    fn clean_up_without_launcher(&self) -> Result<(), Error> {
        let membership = self.core.membership();
        if membership.launcher_lives() {
            return Ok(());
        }
        // Of two that leave at once, the one that looks later sees nobody; of one that dies on its way out, too.
        let anyone = (0..membership.nranks()).map(Rank).any(|rank| membership.rank_lives(rank));
        if !anyone {
            membership.remove_segments()?;
        }
        Ok(())
    }

    /// Leaves the job: waits until all ranks have come here, then gives the seat up. Without it the end of
    /// this process is a death.
    pub fn finalize(self) -> Result<(), Error> {
        let (core, agent) = (&self.core, &self.core.agent);
        match agent.phase.get() {
            Phase::Between(_) => {}
            phase => return Err(wrong("finalize", phase, "finish or redo the open step first")),
        }
        agent.faults.tell_the_rest();
        let membership = core.membership();
        let all = RankSet::all(membership.nranks());
        loop {
            let deadline = Instant::now() + core.options.peer_timeout;
            match membership.barrier(agent.epoch(), stage::FINALIZE, true, &all, deadline).map_err(Error::from) {
                Ok(()) => break,
                Err(Error::Redo) => {
                    let step = self.await_recovery(deadline)?;
                    if step < core.progress().committed {
                        return Err(Error::Mismatch { what: format!("the job went back to step {step} while this rank was finalizing") });
                    }
                }
                Err(Error::Ended { reason: EndReason::Finished }) => break,
                Err(error) => return Err(self.end_on_timeout(error)),
            }
        }
        membership.end(EndReason::Finished as u32);
        agent.phase.set(Phase::Ended);
        self.threads.stop();
        // A process that ends inside an abort crashes in the driver.
        if !agent.aborts.wait(Instant::now() + membership.options().stage_timeout) {
            tracing::warn!("an abort of communicators has not returned yet; the end of this process may hang");
        }
        membership.leave()?;
        agent.journal.finish();
        agent.journal.unlink()?;
        self.clean_up_without_launcher()
    }
}
