//! [`ShmMembership`]: membership in one shared-memory segment a job, on one host.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::blob::BlobScope;
use super::header::{JobOptions, initialise, open_memory};
use super::layout::*;
use super::liveness::{self, LauncherState, Threads};
use super::memory::monotonic_ns;
use super::shared::Shared;
use super::{
    Cause, Clique, CliqueDescription, Contribution, Decision, Epoch, ExitEvidence, Failure,
    Identity, Incarnation, Membership, MembershipError, Rank, RankSet, RecoveryReport, Seat, SeatState, Step,
};
use crate::journal::{SegmentError, SegmentName, SharedSegment};
use crate::sync::robust::Holder;
use crate::sync::{Ordering, Words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Launcher,
    Member { rank: Rank, incarnation: Incarnation, pid: u32 },
    Observer,
}

/// Membership of a job on one host. The launcher creates it, ranks join it, observers only read.
///
/// Dropping a member that has not left ends its part: the others see it fail.
#[derive(Debug)]
pub struct ShmMembership {
    pub(super) shared: Arc<Shared>,
    pub(super) role: Role,
    threads: Mutex<Option<Threads>>,
}

/// How long a process waits for its own mutex, which only somebody who looks at it may hold for a moment.
const OWN_MUTEX_LIMIT: Duration = Duration::from_secs(30);

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
            let failure = Failure { rank, incarnation: seat.incarnation, cause: Cause::Died };
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
        self.report_failures(&[Failure { rank, incarnation, cause: Cause::Died }])?;
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
            Role::Member { rank, incarnation, .. } => {
                // The job ends with the barrier that precedes the last leaving.
                match self.check_member("leaving") {
                    Ok(_) | Err(MembershipError::Ended { .. }) => {}
                    Err(error) => return Err(error),
                }
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

    /// This rank has another place in a clique from now on.
    pub fn renumber_clique(&self, index: u32, comm_rank: u32) -> Result<(), MembershipError> {
        let (rank, _) = self.check_member("renumbering a clique")?;
        self.shared.cliques().renumber(index, comm_rank, rank);
        Ok(())
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

    pub(super) fn rank_word(&self, rank: Rank, offset: u64) -> &crate::sync::AtomicU64 {
        self.shared.memory.word(self.shared.memory.layout.rank_word(rank, offset))
    }

    pub(super) fn check_rank(&self, rank: Rank) -> Result<(), MembershipError> {
        if rank.0 < self.shared.options.nranks {
            return Ok(());
        }
        let what = format!("rank {rank} in a job of {}", self.shared.options.nranks);
        Err(MembershipError::InvalidArgument { what })
    }

    pub(super) fn writable(&self, what: &'static str) -> Result<(), MembershipError> {
        if self.shared.memory.is_writable() {
            return Ok(());
        }
        Err(MembershipError::WrongRole { what, reason: "the segment is open for reading only" })
    }

    pub(super) fn launcher_only(&self, what: &'static str) -> Result<(), MembershipError> {
        if self.role == Role::Launcher {
            return Ok(());
        }
        Err(MembershipError::WrongRole { what, reason: "only the launcher may do it" })
    }

    pub(super) fn slot(&self, what: &'static str) -> Result<u16, MembershipError> {
        Ok(match self.role {
            Role::Member { rank, .. } => rank.0 as u16,
            Role::Launcher => self.shared.options.nranks as u16,
            Role::Observer => return Err(MembershipError::WrongRole { what, reason: "this process is not of the job" }),
        })
    }

    /// This process's seat, if it still takes part.
    pub(super) fn check_member(&self, what: &'static str) -> Result<(Rank, Incarnation), MembershipError> {
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
    pub(super) fn until<T>(
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
    pub(super) fn check_epoch(&self, epoch: Epoch) -> Result<Decision, MembershipError> {
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

fn random_token() -> Result<u64, MembershipError> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|source| MembershipError::Io { action: "read /dev/urandom", source })?;
    // Zero means "nothing here".
    Ok(u64::from_le_bytes(bytes).max(1))
}
