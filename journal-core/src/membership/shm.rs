//! [`ShmMembership`]: membership in one shared-memory segment a job, on one host.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::barrier::{BarrierOutcome, Barriers, STAGES, Stage};
use super::blob::{BlobScope, Blobs};
use super::clique::Cliques;
use super::decision::{Decisions, ProposeOutcome, Verdict, VoteOutcome};
use super::layout::*;
use super::liveness::{self, LauncherState, Threads};
use super::memory::{Memory, monotonic_ns};
use super::report::Reports;
use super::{
    Clique, CliqueDescription, CommitOutcome, Contribution, Decision, Epoch, ExitEvidence, FailedSet, Failure, Identity,
    Incarnation, Membership, MembershipError, Rank, RankSet, RecoveryReport, Seat, SeatState, Step,
};
use crate::journal::{SegmentError, SegmentName, SharedSegment};
use crate::sync::robust::Holder;
use crate::sync::{Ordering, Words};

/// How communicators are rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum JobStrategy {
    Auto = 1,
    Reinit = 2,
    Grow = 3,
    NewRank = 4,
}

impl JobStrategy {
    /// As in `--strategy` and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Reinit => "reinit",
            Self::Grow => "grow",
            Self::NewRank => "new-rank",
        }
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        [Self::Auto, Self::Reinit, Self::Grow, Self::NewRank].into_iter().find(|strategy| *strategy as u64 == number)
    }
}

/// What happens to a doomed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum JobPolicy {
    /// The application runs it again.
    Redo = 1,
    /// Rejoin issues its requests again.
    Replay = 2,
}

impl JobPolicy {
    /// As in `--policy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redo => "redo",
            Self::Replay => "replay",
        }
    }
}

/// What is fixed for a job. The launcher gives it; everybody else reads it from the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOptions {
    /// Name, [A-Za-z0-9_-]{1,64}.
    pub job: String,
    /// Ranks, 1 to 1,024.
    pub nranks: u32,
    /// Tells this job from an earlier one of the same name.
    pub uuid: [u8; 16],
    /// How communicators are rebuilt.
    pub strategy: JobStrategy,
    /// What happens to a doomed step.
    pub policy: JobPolicy,
    /// Survivors above a failed rank move down by one in rebuilt communicators.
    pub renumber: bool,
    /// Recoveries before the job gives up.
    pub max_recoveries: u32,
    /// Deadline of each stage of a recovery.
    pub stage_timeout: Duration,
    /// A rank that is behind all others for this long is declared hung; `None`: never.
    pub hang_timeout: Option<Duration>,
    /// Name of the backend, at most 64 bytes.
    pub backend: String,
}

/// What all threads of a process share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: Memory,
    options: JobOptions,
    /// One proposal slot a process: one thread proposes at a time.
    proposing: Mutex<()>,
    /// One set of blob areas a rank: one thread publishes at a time.
    publishing: Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Launcher,
    Member { rank: Rank, incarnation: Incarnation, pid: u32 },
    Observer,
}

/// Membership of a job on one host. The launcher creates it, ranks join it, observers only read.
///
/// Dropping a member that has not left ends its part: the others see it fail.
#[derive(Debug)]
pub struct ShmMembership {
    shared: Arc<Shared>,
    role: Role,
    threads: Mutex<Option<Threads>>,
}

/// How long a process waits for its own mutex, which only somebody who looks at it may hold for a moment.
const OWN_MUTEX_LIMIT: Duration = Duration::from_secs(30);

impl Shared {
    fn decisions(&self) -> Decisions<'_, Memory> {
        Decisions::new(&self.memory, self.memory.layout.decision())
    }

    fn barriers(&self) -> Barriers<'_, Memory> {
        Barriers::new(&self.memory, self.memory.layout.barrier())
    }

    fn blobs(&self) -> Blobs<'_, Memory> {
        Blobs::new(&self.memory, self.memory.layout.blobs(), self.memory.layout.nranks)
    }

    fn cliques(&self) -> Cliques<'_, Memory> {
        Cliques::new(&self.memory, self.memory.layout.cliques(), self.memory.layout.nranks)
    }

    fn reports(&self) -> Reports<'_, Memory> {
        let (ring, shares) = self.memory.layout.reports();
        Reports::new(&self.memory, ring, shares, self.memory.layout.nranks)
    }

    fn seat(&self, rank: Rank) -> Seat {
        self.memory.layout.seats().load(&self.memory, rank)
    }

    fn failed_set(&self, decision: &Decision) -> Result<FailedSet, MembershipError> {
        let moved = |found| MembershipError::Moved { expected: decision.epoch, found };
        self.decisions().failed_set(decision).map_err(moved)
    }

    /// The failed set under recovery: empty when none is.
    fn known_failures(&self, decision: &Decision) -> Result<FailedSet, MembershipError> {
        if decision.is_failed() { self.failed_set(decision) } else { Ok(FailedSet::default()) }
    }

    /// Swaps to the next epoch with what is known and `more`.
    fn propose(&self, slot: u16, now: Decision, more: &[Failure]) -> Result<ProposeOutcome, MembershipError> {
        let mut set = match self.known_failures(&now) {
            Ok(set) => set,
            Err(MembershipError::Moved { found, .. }) => return Ok(ProposeOutcome::Lost(found)),
            Err(error) => return Err(error),
        };
        for failure in more {
            set.add(*failure);
        }
        let parity = u64::from(now.epoch.0 & 1 ^ 1);
        self.memory.word(AT_PROPOSED + parity * 8).store(monotonic_ns(), Ordering::Relaxed);
        let outcome =
            self.decisions().propose(slot, now.epoch, &set).ok_or(MembershipError::EpochsExhausted)?;
        if let ProposeOutcome::Won(_) = outcome {
            self.decisions().mark_dead(&set);
            self.memory.signal();
        }
        Ok(outcome)
    }

    pub(super) fn report_failures(&self, slot: u16, failures: &[Failure]) -> Result<Decision, MembershipError> {
        let _one = self.proposing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.decisions().load();
            if now.is_ended() {
                return Ok(now);
            }
            let known = match self.known_failures(&now) {
                Ok(known) => known,
                Err(MembershipError::Moved { .. }) => continue,
                Err(error) => return Err(error),
            };
            let news: Vec<Failure> = failures.iter().filter(|f| self.is_news(f, &known)).copied().collect();
            if news.is_empty() {
                // Whoever proposed it may have died before it marked the seats.
                self.decisions().mark_dead(&known);
                return Ok(now);
            }
            if let ProposeOutcome::Won(next) = self.propose(slot, now, &news)? {
                return Ok(next);
            }
        }
    }

    /// Neither known, nor of a process that was replaced already (a seat is given on only after its holder's failure
    /// was proposed), nor of one that left.
    fn is_news(&self, failure: &Failure, known: &FailedSet) -> bool {
        if failure.rank.0 >= self.memory.layout.nranks || known.covers(failure) {
            return false;
        }
        let seat = self.seat(failure.rank);
        seat.incarnation == failure.incarnation && !matches!(seat.state, SeatState::Empty | SeatState::Left)
    }

    fn ended(&self) -> MembershipError {
        MembershipError::Ended { code: self.memory.word(AT_END).load(Ordering::Acquire) as u32 }
    }
}

impl ShmMembership {
    /// Creates the members segment of a new job. The calling process is its launcher; a thread of it holds the
    /// launcher's mutex from now on.
    pub fn create(options: &JobOptions) -> Result<Self, MembershipError> {
        let invalid = |what: String| MembershipError::InvalidArgument { what };
        let layout = Layout::new(options.nranks)
            .ok_or_else(|| invalid(format!("{} ranks; a job has 1 to {}", options.nranks, super::MAX_RANKS)))?;
        if options.backend.len() > BACKEND_BYTES {
            return Err(invalid(format!("backend name of {} bytes, at most {BACKEND_BYTES}", options.backend.len())));
        }
        let identity = Identity::own().map_err(|source| MembershipError::Io { action: "read /proc/self/stat", source })?;
        let name = SegmentName::members(&options.job)?;
        let segment =
            SharedSegment::create(&name, layout.bytes, |segment| initialise(segment, layout, options, identity))?;
        let unpublish = |error| {
            let _ = SharedSegment::unlink(&name);
            error
        };
        let (memory, options) = open_memory(segment).map_err(unpublish)?;
        let shared = Arc::new(Shared::new(memory, options));
        let threads = liveness::start_launcher(&shared, OWN_MUTEX_LIMIT).map_err(unpublish)?;
        Ok(Self { shared, role: Role::Launcher, threads: Mutex::new(Some(threads)) })
    }

    /// Takes the seat that the launcher has allocated to this process.
    ///
    /// [`MembershipError::Access`] for a wrong token (a forked child of another rank, a stale process) or a seat that is
    /// taken; [`MembershipError::Evicted`] for a process that has been replaced.
    pub fn join(job: &str, rank: Rank, incarnation: Incarnation, token: u64) -> Result<Self, MembershipError> {
        let (memory, options) = open_memory(SharedSegment::open(&SegmentName::members(job)?)?)?;
        let shared = Arc::new(Shared::new(memory, options));
        if rank.0 >= shared.options.nranks {
            let what = format!("rank {rank} in a job of {}", shared.options.nranks);
            return Err(MembershipError::InvalidArgument { what });
        }
        let identity = Identity::own().map_err(|source| MembershipError::Io { action: "read /proc/self/stat", source })?;
        let layout = shared.memory.layout;
        let access = |reason| MembershipError::Access { rank, incarnation, reason };
        let seat = shared.seat(rank);
        if seat.incarnation > incarnation || seat.incarnation == incarnation && seat.state == SeatState::Dead {
            return Err(MembershipError::Evicted { rank, incarnation });
        }
        if shared.decisions().load().is_ended() {
            return Err(shared.ended());
        }
        if layout.places().token(&shared.memory, rank, incarnation) != Some(token) {
            return Err(access("its token is not the one that the launcher gave to this process"));
        }
        if seat.state != SeatState::Allocated || !layout.places().claim(&shared.memory, rank, incarnation, identity) {
            return Err(access("another process has joined with the same token"));
        }
        let mut threads = liveness::start_monitor(&shared, rank, incarnation, OWN_MUTEX_LIMIT)?;
        if layout.seats().join(&shared.memory, rank, incarnation).is_err() {
            return Err(MembershipError::Evicted { rank, incarnation });
        }
        shared.memory.signal();
        liveness::start_watcher(&shared, rank, &mut threads)?;
        let role = Role::Member { rank, incarnation, pid: identity.pid };
        Ok(Self { shared, role, threads: Mutex::new(Some(threads)) })
    }

    /// Opens the segment for reading only, in any directory (a copy of a segment will do).
    pub fn open_read_only(dir: &Path, job: &str) -> Result<Self, MembershipError> {
        let (memory, options) = open_memory(SharedSegment::open_read_only(dir, &SegmentName::members(job)?)?)?;
        Ok(Self { shared: Arc::new(Shared::new(memory, options)), role: Role::Observer, threads: Mutex::new(None) })
    }

    /// Opens the segment for writing without taking part: whoever cleans up after a dead launcher, and tests.
    pub fn open(job: &str) -> Result<Self, MembershipError> {
        let (memory, options) = open_memory(SharedSegment::open(&SegmentName::members(job)?)?)?;
        Ok(Self { shared: Arc::new(Shared::new(memory, options)), role: Role::Observer, threads: Mutex::new(None) })
    }

    /// Removes the name; mappings stay. Nothing there is fine.
    pub fn unlink(job: &str) -> Result<(), MembershipError> {
        match SharedSegment::unlink(&SegmentName::members(job)?) {
            Err(SegmentError::NotFound { .. }) => Ok(()),
            other => Ok(other?),
        }
    }

    /// What the launcher fixed for the job.
    pub fn options(&self) -> &JobOptions {
        &self.shared.options
    }

    // ---- the launcher's part ----

    /// Gives the seat of `rank` to its next process and returns that process's incarnation and token. If its holder's
    /// failure is not known yet, it is proposed first. The caller has killed or seen the end of the holder.
    pub fn allocate(&self, rank: Rank) -> Result<(Incarnation, u64), MembershipError> {
        self.launcher_only("allocating a seat")?;
        self.check_rank(rank)?;
        let shared = &self.shared;
        let layout = shared.memory.layout;
        let wrong = || MembershipError::WrongState {
            what: format!("a new process for rank {rank}, which has left"),
            found: shared.decisions().load(),
        };
        let mut seat = shared.seat(rank);
        if matches!(seat.state, SeatState::Allocated | SeatState::Joined | SeatState::Ready) {
            let failure = Failure { rank, incarnation: seat.incarnation, cause: super::Cause::Died };
            if self.report_failures(&[failure])?.is_ended() {
                return Err(shared.ended());
            }
            seat = shared.seat(rank);
        }
        let incarnation = match seat.state {
            SeatState::Empty => Incarnation(0),
            // Votes carry 16 bits of it.
            SeatState::Dead if seat.incarnation.0 < u32::from(u16::MAX) => seat.incarnation.next(),
            SeatState::Dead => return Err(MembershipError::EpochsExhausted),
            _ => return Err(wrong()),
        };
        let token = random_token()?;
        layout.places().prepare(&shared.memory, rank, incarnation, token);
        let allocated = layout.seats().allocate(&shared.memory, rank).map_err(|_| wrong())?;
        debug_assert_eq!(allocated, incarnation, "only one launcher allocates");
        shared.memory.signal();
        Ok((incarnation, token))
    }

    /// Notes how a process ended, and proposes its failure unless it had left. True: it was a failure.
    pub fn process_exited(&self, rank: Rank, incarnation: Incarnation, wait_status: i32) -> Result<bool, MembershipError> {
        self.launcher_only("noting the end of a process")?;
        self.check_rank(rank)?;
        let shared = &self.shared;
        shared.memory.layout.places().record_exit(&shared.memory, rank, incarnation, ExitEvidence { wait_status });
        shared.memory.signal();
        let seat = shared.seat(rank);
        if seat.incarnation == incarnation && seat.state == SeatState::Left {
            return Ok(false);
        }
        self.report_failures(&[Failure { rank, incarnation, cause: super::Cause::Died }])?;
        Ok(true)
    }

    // ---- what everybody can read ----

    /// Who holds `rank`.
    pub fn seat(&self, rank: Rank) -> Seat {
        self.shared.seat(rank)
    }

    /// All seats, by rank.
    pub fn seats(&self) -> Vec<Seat> {
        self.ranks().map(|rank| self.shared.seat(rank)).collect()
    }

    /// Process of one incarnation, if it joined and its place was not reused (the last four are kept).
    pub fn identity(&self, rank: Rank, incarnation: Incarnation) -> Option<Identity> {
        self.shared.memory.layout.places().identity(&self.shared.memory, rank, incarnation)
    }

    /// How one incarnation ended, if the launcher has seen it.
    pub fn exit_evidence(&self, rank: Rank, incarnation: Incarnation) -> Option<ExitEvidence> {
        self.shared.memory.layout.places().exit(&self.shared.memory, rank, incarnation)
    }

    /// What is known of the launcher.
    pub fn launcher(&self) -> (Identity, LauncherState) {
        let word = |at| self.shared.memory.word(at).load(Ordering::Acquire);
        let identity = Identity { pid: word(AT_LAUNCHER_PID) as u32, start_time: word(AT_LAUNCHER_START) };
        (identity, liveness::launcher_state(&self.shared))
    }

    /// Whether the launcher lives, by the kernel's word of its mutex: right in any pid namespace, and on a segment
    /// that is open for reading only.
    pub fn launcher_lives(&self) -> bool {
        let (identity, state) = self.launcher();
        match state {
            LauncherState::Gone | LauncherState::Left => false,
            LauncherState::Starting => identity.exists(),
            LauncherState::Alive => self.shared.memory.launcher_holder() == Holder::Alive,
        }
    }

    /// Whether a process that joined as `rank` lives, as in [`Self::launcher_lives`].
    pub fn rank_lives(&self, rank: Rank) -> bool {
        let seat = self.seat(rank);
        seat.state.is_held() && self.shared.memory.holder(rank, seat.incarnation) == Holder::Alive
    }

    /// All ranks have passed the first `setup_done`.
    pub fn setup_complete(&self) -> bool {
        self.shared.memory.word(AT_SETUP_COMPLETE).load(Ordering::Acquire) != 0
    }

    /// The code the job ended with.
    pub fn end_code(&self) -> Option<u32> {
        match self.shared.memory.word(AT_END).load(Ordering::Acquire) {
            0 => None,
            word => Some(word as u32),
        }
    }

    /// When `epoch` was proposed, CLOCK_MONOTONIC ns.
    pub fn proposed_ns(&self, epoch: Epoch) -> u64 {
        self.shared.memory.word(AT_PROPOSED + u64::from(epoch.0 & 1) * 8).load(Ordering::Relaxed)
    }

    /// Wakes all waiters of this job, so that they look again.
    pub fn wake(&self) {
        if self.shared.memory.is_writable() {
            self.shared.memory.signal();
        }
    }

    /// Operations of each rank so far.
    pub fn operations(&self) -> Vec<u64> {
        self.ranks().map(|rank| self.rank_word(rank, RANK_OPERATIONS).load(Ordering::Relaxed)).collect()
    }

    /// The last epoch that `rank` has acknowledged.
    pub fn acknowledged(&self, rank: Rank) -> Option<Epoch> {
        let word = self.rank_word(rank, RANK_ACKNOWLEDGED).load(Ordering::Acquire);
        Some(Epoch(u16::try_from(word.checked_sub(1)?).ok()?))
    }

    /// Ranks that have not voted for `step` in `epoch`.
    pub fn missing_votes(&self, epoch: Epoch, step: Step) -> RankSet {
        self.shared.decisions().missing_votes(epoch, step)
    }

    /// Whether `rank` has committed `step`.
    pub fn committed(&self, rank: Rank, step: Step) -> bool {
        self.shared.decisions().committed(rank, step)
    }

    /// Looks at the mutexes of all ranks but the own one: who is dead now and not yet known. Never waits.
    pub fn scan(&self) -> Vec<Failure> {
        if self.shared.memory.is_writable() {
            liveness::scan(&self.shared, self.member().map(|(rank, _)| rank))
        } else {
            Vec::new()
        }
    }

    // ---- a member's part ----

    /// Says that this rank has passed `setup_done`.
    pub fn mark_ready(&self) -> Result<(), MembershipError> {
        let (rank, incarnation) = self.check_member("being ready")?;
        self.shared.memory.layout.seats().mark(&self.shared.memory, rank, incarnation, SeatState::Ready);
        self.shared.memory.signal();
        Ok(())
    }

    /// After the first `setup_done` barrier; every participant says it.
    pub fn mark_setup_complete(&self) -> Result<(), MembershipError> {
        self.check_member("completing the set-up")?;
        self.shared.memory.word(AT_SETUP_COMPLETE).store(1, Ordering::Release);
        self.shared.memory.signal();
        Ok(())
    }

    /// Leaves in good order, after the barrier of finalize: the end of this process is no failure.
    pub fn leave(&self) -> Result<(), MembershipError> {
        match self.role {
            Role::Launcher => {
                liveness::move_launcher(&self.shared, LauncherState::Alive, LauncherState::Left);
            }
            Role::Member { .. } => {
                let (rank, incarnation) = self.check_member("leaving")?;
                self.shared.memory.layout.seats().mark(&self.shared.memory, rank, incarnation, SeatState::Left);
                self.shared.memory.signal();
            }
            Role::Observer => return Ok(()),
        }
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    }

    /// This process has not been declared failed, and the job has not ended.
    pub fn check(&self) -> Result<(), MembershipError> {
        self.check_member("taking part").map(|_| ())
    }

    /// Says that this rank has seen `epoch`.
    pub fn acknowledge(&self, epoch: Epoch) -> Result<(), MembershipError> {
        let (rank, _) = self.check_member("acknowledging an epoch")?;
        self.rank_word(rank, RANK_ACKNOWLEDGED).fetch_max(u64::from(epoch.0) + 1, Ordering::AcqRel);
        self.shared.memory.signal();
        Ok(())
    }

    /// Counts an operation of this rank, for the detection of hangs. No system call.
    pub fn count_operation(&self) {
        if let Role::Member { rank, .. } = self.role {
            self.rank_word(rank, RANK_OPERATIONS).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the time (CLOCK_MONOTONIC) right before this process kills itself for a test.
    pub fn note_kill_time(&self) {
        if let Role::Member { rank, .. } = self.role {
            self.rank_word(rank, RANK_KILL_TIME).store(monotonic_ns(), Ordering::Release);
        }
    }

    /// When a process of `rank` killed itself last.
    pub fn kill_time_ns(&self, rank: Rank) -> Option<u64> {
        match self.rank_word(rank, RANK_KILL_TIME).load(Ordering::Acquire) {
            0 => None,
            time => Some(time),
        }
    }

    /// Takes [`Self::kill_time_ns`] out, so that a later death of the rank does not start there.
    pub fn take_kill_time_ns(&self, rank: Rank) -> Option<u64> {
        if !self.shared.memory.is_writable() {
            return self.kill_time_ns(rank);
        }
        match self.rank_word(rank, RANK_KILL_TIME).swap(0, Ordering::AcqRel) {
            0 => None,
            time => Some(time),
        }
    }

    /// Registers this rank as `comm_rank` of a clique. Again, and by a replacement, is fine. Returns its index.
    pub fn register_clique(&self, description: &CliqueDescription, comm_rank: u32) -> Result<u32, MembershipError> {
        let (rank, _) = self.check_member("registering a clique")?;
        let index = self.shared.cliques().register(description, comm_rank, rank)?;
        self.shared.memory.signal();
        Ok(index)
    }

    /// All cliques, in the order of creation.
    pub fn cliques(&self) -> Result<Vec<Clique>, MembershipError> {
        self.shared.cliques().all()
    }

    /// The clique with `key`.
    pub fn find_clique(&self, key: &[u8; 16]) -> Result<Option<Clique>, MembershipError> {
        self.shared.cliques().find(key)
    }

    /// What `rank` published under `key`.
    pub fn find_blob_of(&self, rank: Rank, scope: BlobScope, key: &str) -> Result<Option<Vec<u8>>, MembershipError> {
        self.check_rank(rank)?;
        Ok(self.shared.blobs().find_of(rank, scope, key))
    }

    /// Notes this rank's share of the recovery of `epoch`, before its last barrier.
    pub fn contribute(&self, epoch: Epoch, share: &Contribution) -> Result<(), MembershipError> {
        let (rank, _) = self.check_member("contributing to a report")?;
        self.shared.reports().contribute(rank, epoch, share);
        Ok(())
    }

    /// The shares of all ranks, put together.
    pub fn gather_contributions(&self, epoch: Epoch) -> Contribution {
        self.shared.reports().gather(epoch)
    }

    /// Writes the report of an epoch. By whoever reopened the job (before its next commit) or ends it.
    pub fn write_report(&self, report: &RecoveryReport) -> Result<(), MembershipError> {
        self.writable("writing a report")?;
        self.shared.reports().write(report);
        self.shared.memory.signal();
        Ok(())
    }

    /// Reports, by epoch; the last 64 are kept.
    pub fn reports(&self) -> Vec<RecoveryReport> {
        self.shared.reports().all()
    }

    fn ranks(&self) -> impl Iterator<Item = Rank> {
        (0..self.shared.options.nranks).map(Rank)
    }

    fn rank_word(&self, rank: Rank, offset: u64) -> &crate::sync::AtomicU64 {
        self.shared.memory.word(self.shared.memory.layout.rank_word(rank, offset))
    }

    fn check_rank(&self, rank: Rank) -> Result<(), MembershipError> {
        if rank.0 < self.shared.options.nranks {
            return Ok(());
        }
        let what = format!("rank {rank} in a job of {}", self.shared.options.nranks);
        Err(MembershipError::InvalidArgument { what })
    }

    fn writable(&self, what: &'static str) -> Result<(), MembershipError> {
        if self.shared.memory.is_writable() {
            return Ok(());
        }
        Err(MembershipError::WrongRole { what, reason: "the segment is open for reading only" })
    }

    fn launcher_only(&self, what: &'static str) -> Result<(), MembershipError> {
        if self.role == Role::Launcher {
            return Ok(());
        }
        Err(MembershipError::WrongRole { what, reason: "only the launcher may do it" })
    }

    fn slot(&self, what: &'static str) -> Result<u16, MembershipError> {
        Ok(match self.role {
            Role::Member { rank, .. } => rank.0 as u16,
            Role::Launcher => self.shared.options.nranks as u16,
            Role::Observer => return Err(MembershipError::WrongRole { what, reason: "this process is not of the job" }),
        })
    }

    /// This process's seat, if it still takes part.
    fn check_member(&self, what: &'static str) -> Result<(Rank, Incarnation), MembershipError> {
        let Role::Member { rank, incarnation, pid } = self.role else {
            return Err(MembershipError::WrongRole { what, reason: "only a rank may do it" });
        };
        if std::process::id() != pid {
            let reason = "this is a forked child of the process that joined";
            return Err(MembershipError::Access { rank, incarnation, reason });
        }
        loop {
            let seat = self.shared.seat(rank);
            if seat.incarnation != incarnation || seat.state == SeatState::Dead {
                return Err(MembershipError::Evicted { rank, incarnation });
            }
            let now = self.shared.decisions().load();
            if now.is_ended() {
                return Err(self.shared.ended());
            }
            if seat.state == SeatState::Left {
                return Err(MembershipError::WrongRole { what, reason: "this process has left" });
            }
            match self.shared.known_failures(&now) {
                Err(MembershipError::Moved { .. }) => continue,
                Err(error) => return Err(error),
                Ok(known) => {
                    return match known.of(rank) {
                        Some(failure) if failure.incarnation == incarnation && failure.cause.is_fenced() => {
                            Err(MembershipError::Evicted { rank, incarnation })
                        }
                        _ => Ok((rank, incarnation)),
                    };
                }
            }
        }
    }

    /// Looks until `look` gives something, sleeping on the event counter in between. `None`: the deadline passed.
    fn until<T>(
        &self,
        deadline: Instant,
        mut look: impl FnMut() -> Result<Option<T>, MembershipError>,
    ) -> Result<Option<T>, MembershipError> {
        loop {
            let seen = self.shared.memory.event();
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if !self.shared.memory.wait(seen, deadline) {
                return look();
            }
        }
    }

    /// The job stands at `epoch` and has not ended.
    fn check_epoch(&self, epoch: Epoch) -> Result<Decision, MembershipError> {
        let found = self.shared.decisions().load();
        if found.is_ended() {
            return Err(self.shared.ended());
        }
        if found.epoch != epoch {
            return Err(MembershipError::Moved { expected: epoch, found });
        }
        Ok(found)
    }
}

impl Shared {
    fn new(memory: Memory, options: JobOptions) -> Self {
        Self { memory, options, proposing: Mutex::new(()), publishing: Mutex::new(()) }
    }
}

impl Membership for ShmMembership {
    fn nranks(&self) -> u32 {
        self.shared.options.nranks
    }

    fn member(&self) -> Option<(Rank, Incarnation)> {
        match self.role {
            Role::Member { rank, incarnation, .. } => Some((rank, incarnation)),
            _ => None,
        }
    }

    fn event(&self) -> u32 {
        self.shared.memory.event()
    }

    fn wait(&self, seen: u32, deadline: Instant) -> bool {
        self.shared.memory.wait(seen, deadline)
    }

    fn decision(&self) -> Decision {
        self.shared.decisions().load()
    }

    fn vote(&self, epoch: Epoch, step: Step) -> Result<VoteOutcome, MembershipError> {
        let (rank, incarnation) = self.check_member("voting")?;
        let outcome = self.shared.decisions().vote(rank, incarnation, epoch, step);
        match outcome {
            VoteOutcome::Went => self.shared.memory.signal(),
            VoteOutcome::Superseded => return Err(MembershipError::Evicted { rank, incarnation }),
            VoteOutcome::Moved(found) if found.is_ended() => return Err(self.shared.ended()),
            VoteOutcome::Moved(found) if found.epoch == epoch => {
                return Err(MembershipError::WrongState { what: format!("a vote for step {step}"), found });
            }
            VoteOutcome::Moved(_) | VoteOutcome::Counted => {}
        }
        Ok(outcome)
    }

    fn await_verdict(&self, epoch: Epoch, step: Step, deadline: Instant) -> Result<Verdict, MembershipError> {
        let started = Instant::now();
        let verdict = self.until(deadline, || {
            self.check_member("waiting for a decision")?;
            Ok(self.shared.decisions().verdict(epoch, step))
        })?;
        match verdict {
            Some(Verdict::Moved(found)) if found.is_ended() => Err(self.shared.ended()),
            Some(verdict) => Ok(verdict),
            None => Err(MembershipError::Timeout {
                what: format!("all votes for step {step}"),
                missing: self.missing_votes(epoch, step).iter().collect(),
                waited: started.elapsed(),
            }),
        }
    }

    fn commit(&self, step: Step) -> Result<CommitOutcome, MembershipError> {
        let (rank, _) = self.check_member("committing")?;
        let outcome = self.shared.decisions().commit(rank, step).map_err(|found| MembershipError::WrongState {
            what: format!("a commit of step {step}, for which no GO stands"),
            found,
        })?;
        if outcome == CommitOutcome::Opened {
            self.shared.reports().complete(self.decision().epoch, monotonic_ns());
        }
        self.shared.memory.signal();
        Ok(outcome)
    }

    fn await_commits(&self, epoch: Epoch, step: Step, ranks: &RankSet, deadline: Instant) -> Result<(), MembershipError> {
        let started = Instant::now();
        let done = self.until(deadline, || {
            self.check_epoch(epoch)?;
            Ok(self.shared.decisions().missing_commits(step, ranks).is_empty().then_some(()))
        })?;
        done.ok_or_else(|| MembershipError::Timeout {
            what: format!("the commit of step {step}"),
            missing: self.shared.decisions().missing_commits(step, ranks).iter().collect(),
            waited: started.elapsed(),
        })
    }

    fn report_failures(&self, failures: &[Failure]) -> Result<Decision, MembershipError> {
        let slot = self.slot("reporting a failure")?;
        if self.member().is_some() {
            self.check_member("reporting a failure")?;
        }
        self.shared.report_failures(slot, failures)
    }

    fn propose(&self, expected: Epoch, more: &[Failure]) -> Result<ProposeOutcome, MembershipError> {
        let slot = self.slot("proposing an epoch")?;
        if self.member().is_some() {
            self.check_member("proposing an epoch")?;
        }
        for failure in more {
            self.check_rank(failure.rank)?;
        }
        let _one = self.shared.proposing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.decision();
        if now.epoch != expected || now.is_ended() {
            return Ok(ProposeOutcome::Lost(now));
        }
        self.shared.propose(slot, now, more)
    }

    fn failed_set(&self, decision: &Decision) -> Result<FailedSet, MembershipError> {
        self.shared.failed_set(decision)
    }

    fn reopen(&self, epoch: Epoch) -> Result<Step, MembershipError> {
        self.check_member("reopening the job")?;
        match self.shared.decisions().reopen(epoch) {
            Ok((step, by_us)) => {
                if by_us {
                    self.shared.memory.signal();
                }
                Ok(step)
            }
            Err(found) if found.is_ended() => Err(self.shared.ended()),
            Err(found) => Err(MembershipError::Moved { expected: epoch, found }),
        }
    }

    fn end(&self, code: u32) {
        if self.writable("ending the job").is_err() {
            return;
        }
        let word = 1 << 32 | u64::from(code);
        // The first code stays.
        let _ = self.shared.memory.word(AT_END).compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
        self.shared.decisions().end();
        self.shared.memory.signal();
    }

    fn barrier(
        &self,
        epoch: Epoch,
        stage: Stage,
        ok: bool,
        participants: &RankSet,
        deadline: Instant,
    ) -> Result<(), MembershipError> {
        let started = Instant::now();
        let (rank, _) = self.check_member("a barrier")?;
        if stage.0 >= STAGES || !participants.contains(rank) || participants.iter().any(|r| r.0 >= self.nranks()) {
            let what = format!("stage {stage} (below {STAGES}) of {participants:?}, entered by rank {rank}");
            return Err(MembershipError::InvalidArgument { what });
        }
        self.check_epoch(epoch)?;
        let barriers = self.shared.barriers();
        if barriers.arrive(rank, epoch, stage, ok, participants) {
            self.shared.memory.signal();
        }
        let outcome = self.until(deadline, || match barriers.outcome(epoch, stage) {
            // A decided stage counts, even when the epoch has moved since.
            Some(outcome) => Ok(Some(outcome)),
            None => self.check_member("a barrier").and_then(|_| self.check_epoch(epoch)).map(|_| None),
        })?;
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => {
                let missing = barriers.missing(epoch, stage, participants);
                // All arrived and the last one died before it decided: nobody in particular is to blame.
                let blamed = missing.first().unwrap_or(rank);
                let (stands, by_us) = barriers.give_up(epoch, stage, blamed);
                if by_us {
                    self.shared.memory.signal();
                    return Err(MembershipError::Timeout {
                        what: format!("stage {stage} of epoch {epoch}"),
                        missing: missing.iter().collect(),
                        waited: started.elapsed(),
                    });
                }
                match stands {
                    Some(outcome) => outcome,
                    None => return Err(MembershipError::Moved { expected: epoch, found: self.decision() }),
                }
            }
        };
        match outcome {
            BarrierOutcome::Ok => Ok(()),
            BarrierOutcome::Failed(rank) => Err(MembershipError::StageFailed { epoch, stage, rank, arrived: true }),
            BarrierOutcome::Late(rank) => Err(MembershipError::StageFailed { epoch, stage, rank, arrived: false }),
        }
    }

    fn publish(&self, scope: BlobScope, key: &str, bytes: &[u8]) -> Result<(), MembershipError> {
        let (rank, _) = self.check_member("publishing")?;
        if let BlobScope::Epoch(epoch) = scope {
            self.check_epoch(epoch)?;
        }
        let published = {
            let _one = self.shared.publishing.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.blobs().publish(rank, scope, key, bytes)?
        };
        match scope {
            BlobScope::Epoch(expected) if !published => {
                Err(MembershipError::Moved { expected, found: self.decision() })
            }
            _ => {
                self.shared.memory.signal();
                Ok(())
            }
        }
    }

    fn find_blob(&self, scope: BlobScope, key: &str) -> Result<Option<Vec<u8>>, MembershipError> {
        Ok(self.shared.blobs().find(scope, key).map(|(_, bytes)| bytes))
    }

    fn await_blob(&self, scope: BlobScope, key: &str, deadline: Instant) -> Result<Vec<u8>, MembershipError> {
        let started = Instant::now();
        let found = self.until(deadline, || {
            if let Some(bytes) = self.find_blob(scope, key)? {
                return Ok(Some(bytes));
            }
            self.check_member("waiting for a blob")?;
            if let BlobScope::Epoch(epoch) = scope {
                self.check_epoch(epoch)?;
            }
            Ok(None)
        })?;
        found.ok_or_else(|| MembershipError::Timeout {
            what: format!("somebody to publish {key:?}"),
            missing: Vec::new(),
            waited: started.elapsed(),
        })
    }
}

fn initialise(
    segment: &SharedSegment,
    layout: Layout,
    options: &JobOptions,
    launcher: Identity,
) -> Result<(), MembershipError> {
    let store = |at, value| segment.word(at).store(value, Ordering::Relaxed);
    for (at, value) in header_words(options, &layout) {
        store(at, value);
    }
    store(AT_LAUNCHER_PID, launcher.pid.into());
    store(AT_LAUNCHER_START, launcher.start_time);
    Decisions::new(segment, layout.decision()).init();
    super::memory::initialise_mutexes(segment, &layout)?;
    segment.word(AT_HEADER_CRC).store(header_crc(segment), Ordering::Relaxed);
    // SYNC: Release; pairs with the Acquire in `open_memory`. The name is linked later still.
    segment.word(AT_MAGIC).store(MAGIC, Ordering::Release);
    Ok(())
}

fn header_words(options: &JobOptions, layout: &Layout) -> Vec<(u64, u64)> {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let choices = u64::from(options.renumber) << 16 | (options.policy as u64) << 8 | options.strategy as u64;
    let mut words = vec![
        (AT_FORMAT, u64::from(FORMAT) | 64 << 32 | 0x1234 << 40),
        (AT_LAYOUT_HASH, LAYOUT_HASH),
        (AT_BYTES, layout.bytes),
        (AT_NRANKS, options.nranks.into()),
        (AT_CHOICES, choices),
        (AT_MAX_RECOVERIES, options.max_recoveries.into()),
        (AT_STAGE_TIMEOUT, nanos(options.stage_timeout)),
        (AT_HANG_TIMEOUT, options.hang_timeout.map_or(0, nanos)),
        (AT_CREATED, created),
    ];
    for (at, bytes) in [(AT_UUID, &options.uuid[..]), (AT_JOB, options.job.as_bytes()), (AT_BACKEND, options.backend.as_bytes())] {
        words.extend(bytes.chunks(8).enumerate().map(|(i, chunk)| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (at + i as u64 * 8, u64::from_le_bytes(word))
        }));
    }
    words
}

/// Over the constant header without the magic and the CRC itself.
fn header_crc(segment: &SharedSegment) -> u64 {
    let bytes: Vec<u8> = (8..HEADER_BYTES)
        .step_by(8)
        .filter(|at| *at != AT_HEADER_CRC)
        .flat_map(|at| segment.word(at).load(Ordering::Relaxed).to_le_bytes())
        .collect();
    crc32c::crc32c(&bytes).into()
}

/// Checks the header before anything else of the segment is used.
fn open_memory(segment: SharedSegment) -> Result<(Memory, JobOptions), MembershipError> {
    let name = || segment.name().to_string();
    let corrupt = |offset, what| MembershipError::Segment(SegmentError::Corrupt { name: name(), offset, what });
    if segment.len() < HEADER_BYTES {
        return Err(corrupt(segment.len(), "it is shorter than a header"));
    }
    // SYNC: Acquire; pairs with the Release in `initialise`.
    if segment.word(AT_MAGIC).load(Ordering::Acquire) != MAGIC {
        return Err(corrupt(AT_MAGIC, "it has no magic: not a members segment"));
    }
    let load = |at| segment.word(at).load(Ordering::Relaxed);
    let format = load(AT_FORMAT);
    if format as u32 != FORMAT {
        return Err(SegmentError::Version { name: name(), found: format as u32, expected: FORMAT }.into());
    }
    if format >> 32 != (64 | 0x1234 << 8) {
        return Err(corrupt(AT_FORMAT, "written with another word size or byte order"));
    }
    if load(AT_LAYOUT_HASH) != LAYOUT_HASH {
        let found = load(AT_LAYOUT_HASH);
        return Err(SegmentError::Layout { name: name(), found, expected: LAYOUT_HASH }.into());
    }
    if load(AT_HEADER_CRC) != header_crc(&segment) {
        return Err(corrupt(AT_HEADER_CRC, "the header's checksum does not match"));
    }
    let layout = u32::try_from(load(AT_NRANKS)).ok().and_then(Layout::new);
    let layout = layout.ok_or_else(|| corrupt(AT_NRANKS, "the number of ranks is out of range"))?;
    if load(AT_BYTES) != layout.bytes || segment.len() < layout.bytes {
        return Err(corrupt(AT_BYTES, "its length does not fit its number of ranks"));
    }
    let bytes = |at: u64, count: usize| -> Vec<u8> {
        (0..count as u64 / 8).flat_map(|i| load(at + i * 8).to_le_bytes()).collect()
    };
    let text = |at, count| -> Result<String, MembershipError> {
        let mut bytes = bytes(at, count);
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(count));
        String::from_utf8(bytes).map_err(|_| corrupt(at, "a text is not UTF-8"))
    };
    let choices = load(AT_CHOICES);
    let options = JobOptions {
        job: text(AT_JOB, JOB_BYTES)?,
        nranks: layout.nranks,
        uuid: bytes(AT_UUID, 16).try_into().expect("16 bytes"),
        strategy: JobStrategy::from_number(choices & 0xff)
            .ok_or_else(|| corrupt(AT_CHOICES, "the strategy is unknown"))?,
        policy: match choices >> 8 & 0xff {
            1 => JobPolicy::Redo,
            2 => JobPolicy::Replay,
            _ => return Err(corrupt(AT_CHOICES, "the policy is unknown")),
        },
        renumber: choices >> 16 & 0xff != 0,
        max_recoveries: load(AT_MAX_RECOVERIES) as u32,
        stage_timeout: Duration::from_nanos(load(AT_STAGE_TIMEOUT)),
        hang_timeout: Some(load(AT_HANG_TIMEOUT)).filter(|ns| *ns != 0).map(Duration::from_nanos),
        backend: text(AT_BACKEND, BACKEND_BYTES)?,
    };
    Ok((Memory::new(segment, layout), options))
}

fn random_token() -> Result<u64, MembershipError> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|source| MembershipError::Io { action: "read /dev/urandom", source })?;
    // Zero means "nothing here".
    Ok(u64::from_le_bytes(bytes).max(1))
}
