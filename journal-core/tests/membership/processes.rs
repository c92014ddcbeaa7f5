//! Processes for the tests: this test binary started again in the role of a rank or a launcher.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use journal_core::membership::{
    BlobScope, Incarnation, JobOptions, JobPolicy, JobStrategy, Membership, MembershipError, Rank, SeatState,
    ShmMembership,
};

/// Far above anything expected: what it cuts short is a hang.
pub const WATCHDOG: Duration = Duration::from_secs(60);

pub fn watchdog() -> Instant {
    Instant::now() + WATCHDOG
}

pub fn options(job: &str, nranks: u32) -> JobOptions {
    JobOptions {
        job: job.to_owned(),
        nranks,
        uuid: [7; 16],
        strategy: JobStrategy::Reinit,
        policy: JobPolicy::Redo,
        renumber: false,
        max_recoveries: 10,
        stage_timeout: Duration::from_secs(5),
        hang_timeout: None,
        backend: "host".to_owned(),
    }
}

/// A name of its own for each test of each run.
pub fn job_name(test: &str) -> String {
    format!("t{}-{test}", std::process::id())
}

/// Removes the segment when the test ends, however it ends.
pub struct Unlink(pub String);

impl Drop for Unlink {
    fn drop(&mut self) {
        let _ = ShmMembership::unlink(&self.0);
    }
}

/// A child that is killed when it goes out of scope.
pub struct Process(pub Child);

impl Process {
    pub fn start(role: &str, job: &str, rank: Rank, incarnation: Incarnation, token: u64) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env("MEMBERSHIP_ROLE", role)
            .env("MEMBERSHIP_JOB", job)
            .env("MEMBERSHIP_RANK", rank.to_string())
            .env("MEMBERSHIP_INCARNATION", incarnation.to_string())
            .env("MEMBERSHIP_TOKEN", token.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the child is ours and not waited for yet.
        let rc = unsafe { libc::kill(self.0.id() as i32, signal) };
        assert_eq!(rc, 0, "kill({}, {signal})", self.0.id());
    }

    /// SIGKILL, without waiting for the end.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    /// Its wait status.
    pub fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        self.0.wait().unwrap().into_raw()
    }

    /// Text after `prefix` in the first line of its output that has it (libtest prints its own before).
    pub fn line_after(&mut self, prefix: &str) -> String {
        let out = BufReader::new(self.0.stdout.take().unwrap());
        let found = out.lines().map_while(Result::ok).find_map(|line| Some(line.split_once(prefix)?.1.to_owned()));
        found.unwrap_or_else(|| panic!("the child ended without printing {prefix:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A job with its launcher in this process and a process a rank.
pub struct Job {
    pub launcher: ShmMembership,
    pub ranks: Vec<Process>,
    pub name: String,
    role: &'static str,
    _unlink: Unlink,
}

impl Job {
    /// All ranks have joined.
    pub fn start(test: &str, nranks: u32, role: &'static str) -> Self {
        let name = job_name(test);
        let unlink = Unlink(name.clone());
        let launcher = ShmMembership::create(&options(&name, nranks)).unwrap();
        let mut job = Self { launcher, ranks: Vec::new(), name, role, _unlink: unlink };
        for rank in (0..nranks).map(Rank) {
            let process = job.spawn(rank);
            job.ranks.push(process);
        }
        for rank in (0..nranks).map(Rank) {
            // One may even have left by now.
            job.wait_until("all ranks to join", |launcher| launcher.seat(rank).state != SeatState::Allocated);
        }
        job
    }

    fn spawn(&self, rank: Rank) -> Process {
        let (incarnation, token) = self.launcher.allocate(rank).unwrap();
        Process::start(self.role, &self.name, rank, incarnation, token)
    }

    /// Gives the rank to a new process.
    pub fn replace(&mut self, rank: Rank) {
        self.ranks[rank.index()].wait();
        self.ranks[rank.index()] = self.spawn(rank);
    }

    pub fn wait_until(&self, what: &str, condition: impl FnMut(&ShmMembership) -> bool) {
        wait_until(&self.launcher, what, condition);
    }
}

pub fn wait_until(members: &ShmMembership, what: &str, mut condition: impl FnMut(&ShmMembership) -> bool) {
    let deadline = watchdog();
    loop {
        let seen = members.event();
        if condition(members) {
            return;
        }
        assert!(
            members.wait(seen, deadline) || condition(members),
            "waited {WATCHDOG:?} for {what}; the job is at {}, seats {:?}",
            members.decision(),
            members.seats()
        );
    }
}

fn env<T: std::str::FromStr>(name: &str) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name} is not set"))
}

pub const EVICTED_EXIT: i32 = 42;

/// What a child does. Returns at once in the parent.
pub fn child() {
    let Ok(role) = std::env::var("MEMBERSHIP_ROLE") else { return };
    let job: String = env("MEMBERSHIP_JOB");
    if role == "launcher" {
        return launcher(&job);
    }
    let (rank, incarnation) = (Rank(env("MEMBERSHIP_RANK")), Incarnation(env("MEMBERSHIP_INCARNATION")));
    let joined = ShmMembership::join(&job, rank, incarnation, env("MEMBERSHIP_TOKEN"));
    let code = match (joined, role.as_str()) {
        (Ok(members), "recover") => recover(&members),
        (Ok(members), "publish") => publish_for_ever(&members),
        (Ok(members), "fork") => fork(&members),
        (Ok(members), "exit") => {
            // Leaves the process without leaving the job, on request.
            let _ = std::io::stdin().read_line(&mut String::new());
            let _ = members;
            0
        }
        (Ok(members), "leave") => {
            let _ = std::io::stdin().read_line(&mut String::new());
            members.leave().unwrap();
            0
        }
        (Ok(_), other) => panic!("no role {other}"),
        (Err(error), _) => exit_code(&error),
    };
    std::process::exit(code);
}

fn exit_code(error: &MembershipError) -> i32 {
    match error {
        MembershipError::Evicted { .. } => EVICTED_EXIT,
        MembershipError::Ended { .. } => 0,
        other => {
            eprintln!("child failed: {other}");
            1
        }
    }
}

/// Text of a failed set, as ranks publish what they saw.
pub fn seen_text(failed: &journal_core::membership::FailedSet) -> String {
    failed.iter().map(|f| format!("{}.{}.{} ", f.rank, f.incarnation, f.cause.as_str())).collect()
}

/// Takes part in recoveries until the job ends: acknowledges each epoch, publishes the failed set it saw, meets all
/// ranks (replacements too) and reopens.
fn recover(members: &ShmMembership) -> i32 {
    loop {
        let seen = members.event();
        let now = members.decision();
        let result = if now.is_failed() {
            take_part(members, &now)
        } else {
            members.check()
        };
        match result {
            Ok(()) => {
                members.wait(seen, watchdog());
            }
            Err(error) if error.is_moved() => {}
            Err(error) => return exit_code(&error),
        }
    }
}

fn take_part(members: &ShmMembership, now: &journal_core::membership::Decision) -> Result<(), MembershipError> {
    use journal_core::membership::{RankSet, Stage};
    let failed = members.failed_set(now)?;
    members.acknowledge(now.epoch)?;
    members.publish(BlobScope::Epoch(now.epoch), "seen", seen_text(&failed).as_bytes())?;
    members.barrier(now.epoch, Stage(1), true, &RankSet::all(members.nranks()), watchdog())?;
    members.reopen(now.epoch)?;
    Ok(())
}

pub fn blob_of(i: u32) -> Vec<u8> {
    (0..2000u32).map(|at| (i.wrapping_mul(31).wrapping_add(at * 7) >> 3) as u8).collect()
}

/// Publishes one blob after the other until it cannot.
fn publish_for_ever(members: &ShmMembership) -> i32 {
    for i in 0.. {
        match members.publish(BlobScope::Permanent, &format!("k{i}"), &blob_of(i)) {
            Ok(()) => {}
            Err(MembershipError::BlobSpace { .. }) => break,
            Err(error) => return exit_code(&error),
        }
    }
    loop {
        let seen = members.event();
        if let Err(error) = members.check() {
            return exit_code(&error);
        }
        members.wait(seen, watchdog());
    }
}

/// A forked child may not use what its parent joined.
fn fork(members: &ShmMembership) -> i32 {
    // SAFETY: the child only calls what needs no lock that another thread could hold, then _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = matches!(members.check(), Err(MembershipError::Access { .. }));
        // SAFETY: ends the forked child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child just made; `status` is written.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let own = members.check().is_ok();
    members.leave().unwrap();
    i32::from(status != 0 || !own)
}

/// Creates a job of two ranks, prints their tokens, and stays until its input ends.
fn launcher(job: &str) {
    let launcher = ShmMembership::create(&options(job, 2)).unwrap();
    let tokens: Vec<String> = (0..2).map(|rank| launcher.allocate(Rank(rank)).unwrap().1.to_string()).collect();
    println!("tokens:{}", tokens.join(","));
    let _ = std::io::stdin().read_line(&mut String::new());
    launcher.leave().unwrap();
}

/// A small generator (xorshift64*), so that a failing run can be repeated from its printed seed.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let seed = std::env::var("MEMBERSHIP_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| journal_core::membership::monotonic_ns() | 1);
        println!("MEMBERSHIP_SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % u64::from(limit)) as u32
    }
}
