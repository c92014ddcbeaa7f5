//! A process that is stopped, declared dead and replaced, and then goes on. The launcher would have killed it first, so
//! this test is the launcher.

mod support;

use journal_core::membership::{JobOptions, JobPolicy, JobStrategy, Membership, Rank, ShmMembership};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{job_name, rejoin, run, segments};

const RANKS: u32 = 4;
const STEPS: &str = "5000";
/// As a killed process is reaped.
const KILLED: i32 = 9;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder")
}

struct Job {
    membership: ShmMembership,
    children: Vec<Child>,
}

impl Job {
    fn create(name: &str) -> Self {
        let membership = ShmMembership::create(&JobOptions {
            job: name.to_owned(),
            nranks: RANKS,
            uuid: [7; 16],
            strategy: JobStrategy::Reinit,
            policy: JobPolicy::Redo,
            renumber: false,
            max_recoveries: 8,
            stage_timeout: Duration::from_secs(30),
            hang_timeout: None,
            backend: "host".to_owned(),
        });
        let mut job = Self { membership: membership.expect("segment"), children: Vec::new() };
        (0..RANKS).for_each(|rank| job.start(rank));
        job
    }

    fn start(&mut self, rank: u32) {
        let (incarnation, token) = self.membership.allocate(Rank(rank)).expect("a seat");
        let mut command = Command::new(folder().join("grid"));
        command.args(["--steps", STEPS]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs([("REJOIN_BACKEND", "host"), ("REJOIN_JOB", &self.membership.options().job)]).env_remove("REJOIN_FAULT");
        command.env("REJOIN_NCCL", folder().join("librejoin_host_nccl.so"));
        let numbers = [("REJOIN_RANK", u64::from(rank)), ("REJOIN_NRANKS", u64::from(RANKS)), ("REJOIN_TOKEN", token)];
        command.envs(numbers.map(|(key, value)| (key, value.to_string()))).env("REJOIN_INCARNATION", incarnation.0.to_string());
        self.children.push(command.spawn().expect("a rank"));
    }

    fn signal(&self, process: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.children[process]), signal).expect("a process of this test");
    }

    #[track_caller]
    fn wait(&self, what: &str, mut ready: impl FnMut(&ShmMembership) -> bool) {
        let watchdog = Instant::now() + Duration::from_secs(support::WATCHDOG_S as u64);
        while !ready(&self.membership) {
            assert!(Instant::now() < watchdog, "waited for {what}; the job is at {:?}", self.membership.decision());
            std::thread::yield_now();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.membership.remove_segments();
    }
}

#[test]
fn a_process_that_was_replaced_while_it_was_stopped_ends_evicted_and_harms_nothing() {
    let name = job_name("evicted");
    let mut job = Job::create(&name);
    job.wait("some steps", |members| members.setup_complete() && members.decision().step.0 >= 3);
    let old = job.membership.seat(Rank(1)).incarnation;
    job.signal(1, Signal::STOP);
    job.membership.process_exited(Rank(1), old, KILLED).expect("declared");
    job.start(1);
    job.wait("the recovery", |members| !members.reports().is_empty() && !members.decision().is_failed());
    // Nobody commits while rank 0 is stopped, so the job is still there when the old process comes back.
    job.signal(0, Signal::STOP);
    assert!(!job.membership.decision().is_ended(), "more steps are needed");
    job.signal(1, Signal::CONT);
    let old = job.children.remove(1).wait_with_output().expect("the old process of rank 1");
    assert_eq!(old.status.code(), Some(journal_core::error::EVICTED_EXIT), "{old:#?}");
    assert!(String::from_utf8_lossy(&old.stderr).contains("rank 1 incarnation 0 was declared failed and replaced"), "{old:#?}");
    job.signal(0, Signal::CONT);

    let mut hashes: Vec<String> = std::mem::take(&mut job.children)
        .into_iter()
        .map(|child| {
            let ended = child.wait_with_output().expect("a rank");
            assert!(ended.status.success(), "{ended:#?}");
            String::from_utf8_lossy(&ended.stdout).trim().to_owned()
        })
        .collect();
    hashes.sort_unstable();
    let mut command = rejoin();
    command.args(["run", "-n", "4", "--backend", "host", "--job", &job_name("undisturbed"), "--"]);
    let clean = run(command.arg(folder().join("grid")).args(["--steps", STEPS])).expect_code(0);
    let mut expected: Vec<&str> = clean.stdout.lines().filter(|line| line.contains("of the grid")).collect();
    expected.sort_unstable();
    assert_eq!(hashes, expected);
    drop(job);
    assert_eq!(segments(&name), [""; 0]);
}
