//! `rejoin show` and `rejoin verify`: on jobs that run, on jobs whose processes are dead, and on damaged copies.

mod support;

use journal_core::backend::DevicePtr;
use journal_core::journal::{Journal, JournalOptions, Region};
use journal_core::membership::{Incarnation, JobOptions, JobPolicy, JobStrategy, Membership, Rank, ShmMembership};
use journal_core::request::{self, Request};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Running, job_name, rejoin, run, segments, wait_for_end};

/// Every line and key that `show --format json` prints, and no other.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[allow(dead_code)]
enum Line {
    Record {
        sequence: Option<u64>,
        region: Option<String>,
        slot: Option<u16>,
        outcome: String,
        opcode: Option<u16>,
        request: String,
        result: Option<String>,
        value: Option<u64>,
    },
    Lane {
        slot: u16,
        owner: String,
        pid: Option<u32>,
        tid: Option<u32>,
        deaths: u64,
        lost: u64,
        compacted: u64,
        damaged_at: Option<u64>,
        disturbed: bool,
    },
    Handle {
        handle: String,
        kind: String,
        index: u32,
        generation: u32,
        object: Option<String>,
    },
    Journal {
        job: String,
        rank: u32,
        incarnation: u32,
        writer_pid: u32,
        next_step: u64,
        boundary_sequence: u64,
        setup_records: usize,
        step_records: usize,
        unfinished_records: usize,
        lost_records: u64,
        prepared: Vec<u32>,
        live_handles: usize,
        policy: String,
        growth: Vec<Growth>,
        compacted_records: u64,
        finished: bool,
        damage: Vec<String>,
    },
}

/// A growth segment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Growth {
    segment: u32,
    bytes: u64,
}

/// The same of `verify`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[allow(dead_code)]
enum Verified {
    Finding { rank: u32, about: String, sequence: u64, what: String, fatal: bool },
    Rank {
        rank: u32,
        incarnation: u32,
        setup_records: usize,
        step_records: usize,
        setup_replayable: bool,
        step_replayable: bool,
        recoverable: bool,
    },
}

fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Vec<T> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[track_caller]
fn show(place: &str, code: i32) -> Vec<Line> {
    lines(&run(rejoin().args(["show", "--format", "json", place])).expect_code(code).stdout)
}

#[track_caller]
fn verify(place: &str, code: i32) -> Vec<Verified> {
    lines(&run(rejoin().args(["verify", "--format", "json", place])).expect_code(code).stdout)
}

/// An endless job of four ranks, past its first steps.
fn endless(name: &str) -> (Running, ShmMembership) {
    let folder = Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let mut command = rejoin();
    command.args(["run", "-n", "4", "--backend", "host", "--job", name, "--"]);
    command.arg(folder.join("grid")).args(["--steps", "4000000000"]);
    let running = Running::start(&mut command);
    let members = until("the job to commit steps", || {
        let members = ShmMembership::open_read_only("/dev/shm".as_ref(), name).ok()?;
        (members.decision().step.0 >= 3).then_some(members)
    });
    (running, members)
}

/// Looks again and again, at most as long as the watchdog.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let watchdog = Instant::now() + Duration::from_secs(support::WATCHDOG_S as u64);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < watchdog, "waited {} s for {what}", support::WATCHDOG_S);
        std::thread::yield_now();
    }
}

fn pid_of(members: &ShmMembership, rank: u32, incarnation: u32) -> Option<u32> {
    members.identity(Rank(rank), Incarnation(incarnation)).map(|identity| identity.pid)
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), signal).expect("a process of this test");
}

/// A stop signal reaches the threads of a process one after the other.
fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process of this test");
    let states = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    states.into_iter().all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

/// Everything of a job that nobody lives of any more.
fn remove(name: &str) {
    for segment in segments(name) {
        std::fs::remove_file(Path::new("/dev/shm").join(segment)).expect("removed");
    }
}

#[test]
fn a_live_journal_is_shown_whole_with_its_lane_handles_and_boundary() {
    let name = job_name("live");
    let (running, members) = endless(&name);
    let shown = show(&format!("{name}/2"), 0);
    let Some(Line::Journal { rank, incarnation, writer_pid, next_step, prepared, live_handles, damage, setup_records, .. }) = shown.last()
    else {
        panic!("the last line is the journal's: {shown:#?}")
    };
    assert_eq!((*rank, *incarnation, Some(*writer_pid)), (2, 0, pid_of(&members, 2, 0)));
    assert!(*next_step >= 3 && !prepared.is_empty() && damage.is_empty(), "{:#?}", shown.last());
    assert_eq!(shown.iter().filter(|line| matches!(line, Line::Handle { .. })).count(), *live_handles);
    assert!(shown.iter().any(|line| matches!(line, Line::Handle { kind, object: Some(_), .. } if kind == "communicator")));
    assert!(shown.iter().any(|line| matches!(line, Line::Lane { owner, pid, .. } if owner == "alive" && *pid == Some(*writer_pid))));
    let setup = shown.iter().filter(|line| matches!(line, Line::Record { region: Some(region), .. } if region == "setup"));
    assert_eq!(setup.count(), *setup_records);
    let sequences: Vec<u64> = shown.iter().filter_map(|line| if let Line::Record { sequence, .. } = line { *sequence } else { None }).collect();
    assert!(sequences.is_sorted(), "{sequences:?}");
    assert!(shown.iter().any(|line| matches!(line, Line::Record { request, result: Some(ok), value: Some(at), .. }
        if request.starts_with("cuMemAlloc") && ok == "ok" && *at > 0)));
    running.signal(Signal::INT);
    running.finish().expect_code(130);
}

#[test]
fn following_tells_what_is_written_and_ends_with_its_writer() {
    let name = job_name("follow");
    let journal = Journal::create(&JournalOptions::new(name.clone(), 0, 0)).expect("/dev/shm has room for a journal");
    let append = |request: &Request<'_>| {
        journal.append(Region::Step, request.code(), 0, &request.parts()).expect("room");
    };
    append(&request::mem_alloc(1));
    let mut command = rejoin();
    command.args(["show", "--follow", "--format", "json", &format!("{name}/0")]);
    let mut following = command.stdout(std::process::Stdio::piped()).spawn().expect("started");
    let mut told = BufReader::new(following.stdout.take().expect("piped")).lines();
    let mut next = || -> Option<Line> { told.next().map(|line| serde_json::from_str(&line.expect("text")).expect("a line as listed above")) };
    for sequence in 1..=500 {
        // The one before is told while the journal is written.
        let Some(Line::Record { sequence: Some(found), .. }) = next() else { panic!("it ended before its writer") };
        assert_eq!(found, sequence);
        append(&request::mem_alloc(sequence + 1));
    }
    journal.finish();
    assert!(matches!(next(), Some(Line::Record { sequence: Some(501), .. })));
    assert!(next().is_none(), "nothing more was written");
    assert_eq!(following.wait().expect("ended").code(), Some(0));
    remove(&name);
}

#[test]
fn a_replacement_is_shown_as_the_newest_and_a_rank_is_verified_alone() {
    let name = job_name("newest");
    let (mut running, members) = endless(&name);
    signal(pid_of(&members, 1, 0).expect("joined"), Signal::KILL);
    running.wait_for_stderr("recovered");
    let shown = show(&format!("{name}/1"), 0);
    assert!(matches!(shown.last(), Some(Line::Journal { incarnation: 1, .. })), "{shown:#?}");
    show(&format!("{name}/1.1"), 0);
    run(rejoin().args(["show", &format!("{name}/1.0")])).expect_code(2).expect_stderr("does not exist");
    let verified = verify(&format!("{name}/1"), 0);
    assert!(
        matches!(verified[..], [Verified::Rank { rank: 1, incarnation: 1, setup_replayable: true, step_replayable: true, recoverable: true, .. }]),
        "{verified:#?}"
    );
    assert_eq!(verify(&name, 0).iter().filter(|line| matches!(line, Verified::Rank { .. })).count(), 4);
    run(rejoin().args(["verify", &format!("{name}/4")])).expect_code(2).expect_stderr("ranks 0 to 3");
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_death_during_the_recovery_of_another_rank_is_recovered_too() {
    let name = job_name("during");
    let (mut running, members) = endless(&name);
    signal(pid_of(&members, 2, 0).expect("joined"), Signal::KILL);
    until("the replacement to join", || pid_of(&members, 2, 1));
    // Of the other column: ranks 0 and 2 hold the same parameters.
    signal(pid_of(&members, 1, 0).expect("joined"), Signal::KILL);
    running.wait_for_stderr("replacement of rank 1");
    // Whatever the moment: both are replaced, and steps are committed again.
    until("steps after both", || {
        let decision = members.decision();
        let both = members.seat(Rank(1)).incarnation.0 == 1 && members.seat(Rank(2)).incarnation.0 == 1;
        (both && !decision.is_failed() && members.reports().last().is_some_and(|report| report.total_ns.is_some())).then_some(())
    });
    running.signal(Signal::INT);
    let ended = running.finish().expect_code(130);
    assert_eq!(ended.stderr.matches("replacement of rank").count(), 2, "{ended:#?}");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn journals_of_dead_processes_are_shown_and_verified() {
    let name = job_name("dead");
    let (running, members) = endless(&name);
    let pids: Vec<u32> = (0..4).filter_map(|rank| pid_of(&members, rank, 0)).collect();
    // Stopped first, so that no survivor can do anything about the deaths.
    signal(running.pid(), Signal::KILL);
    wait_for_end(running.pid());
    pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
    until("all threads of all ranks to be stopped", || pids.iter().all(|pid| is_stopped(*pid)).then_some(()));
    pids.iter().for_each(|pid| signal(*pid, Signal::KILL));
    pids.iter().for_each(|pid| wait_for_end(*pid));
    for rank in 0..4 {
        let shown = show(&format!("{name}/{rank}"), 0);
        assert!(shown.iter().any(|line| matches!(line, Line::Lane { owner, .. } if owner == "dead")), "{shown:#?}");
        let text = run(rejoin().args(["show", &format!("{name}/{rank}")])).expect_code(0).stdout;
        assert!(text.contains("lane 0: dead") && text.contains("ncclCommSplit"), "{text}");
    }
    verify(&name, 0);
    let listed = run(rejoin().args(["ls"]));
    assert!(listed.stdout.lines().any(|line| line.contains(&name) && line.contains("dead")), "{listed:#?}");
    remove(&name);
}

#[test]
fn damaged_copies_are_shown_or_refused_but_never_end_in_a_crash() {
    let name = job_name("damaged");
    let (running, members) = endless(&name);
    let folder = tempfile::tempdir().expect("temporary folder");
    let pid = pid_of(&members, 3, 0).expect("joined");
    signal(pid, Signal::STOP);
    let journal = format!("rejoin.{name}.r3.0");
    let whole = std::fs::read(Path::new("/dev/shm").join(&journal)).expect("copied");
    std::fs::copy(format!("/dev/shm/rejoin.{name}.members"), folder.path().join(format!("rejoin.{name}.members"))).expect("copied");
    signal(pid, Signal::CONT);
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    let copy = folder.path().join(&journal);
    let look = |command: &str| {
        let ended = run(rejoin().args([command, &format!("{name}/3"), "--dir"]).arg(folder.path()));
        let code = ended.status.code().unwrap_or_else(|| panic!("a signal ended it: {ended:#?}"));
        assert!((0..=2).contains(&code), "{ended:#?}");
        (code, ended)
    };
    std::fs::write(&copy, &whole).expect("written");
    assert_eq!((look("show").0, look("verify").0), (0, 0), "a copy is as good as the original");

    // A record's payload: the set-up's first request begins with its name, which the checksum covers.
    let needle = b"x.grid";
    let at = whole.windows(needle.len()).position(|window| window == needle).expect("the key of the first exchange");
    let mut bytes = whole.clone();
    bytes[at] ^= 1;
    std::fs::write(&copy, &bytes).expect("written");
    let (code, ended) = look("show");
    assert!(code == 1 && ended.stdout.contains("DAMAGED: record 1 in lane 0 is corrupt"), "{ended:#?}");
    let (code, ended) = look("verify");
    assert!(code == 1 && ended.stdout.contains("FATAL") && ended.stdout.contains("can NOT be replayed"), "{ended:#?}");

    // The magic, and truncation: nothing of it can be believed.
    let mut bytes = whole.clone();
    bytes[..8].fill(0);
    std::fs::write(&copy, &bytes).expect("written");
    let (code, ended) = look("show");
    assert!(code == 1 && ended.stderr.contains("damaged at byte"), "{ended:#?}");
    for bytes in [0, 8, 4095, 4096, 4104, 65536, whole.len() / 2] {
        std::fs::write(&copy, &whole[..bytes]).expect("written");
        assert_ne!(look("show").0, 0, "{bytes} bytes are no whole journal");
        assert_ne!(look("verify").0, 0, "{bytes} bytes are no whole journal");
    }

    // Any byte, most of them where there is something: the walk must end and stay inside.
    let used = whole.iter().rposition(|byte| *byte != 0).expect("not empty") + 1;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let reach = if random & 1 == 0 { 16_384 } else { used };
            bytes[(random >> 8) as usize % reach] = (random >> 1) as u8;
        }
        std::fs::write(&copy, &bytes).expect("written");
        look("show");
    }
}

#[test]
fn what_is_no_journal_is_told_apart_from_a_damaged_one() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let at = |name: &str| folder.path().join(name);
    let show = |place: &str| run(rejoin().args(["show", place, "--dir"]).arg(folder.path()));
    show("none/0").expect_code(2).expect_stderr("no journal of job none rank 0");
    std::fs::create_dir(at("rejoin.a.r0.0")).expect("folder");
    show("a/0").expect_code(1).expect_stderr("not a regular file");
    rustix::fs::mknodat(rustix::fs::CWD, at("rejoin.b.r0.0"), rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("fifo");
    show("b/0").expect_code(1).expect_stderr("not a regular file");
    std::fs::write(at("rejoin.c.r0.0"), [7; 8192]).expect("file");
    show("c/0").expect_code(1);
    run(rejoin().args(["show", "nonsense"])).expect_code(2).expect_stderr("JOB/RANK");
    run(rejoin().args(["verify", "a/b"])).expect_code(2);
}

/// A job of one rank whose journal this test writes itself.
struct Written {
    name: String,
    journal: Journal,
    _member: ShmMembership,
    _launcher: ShmMembership,
}

impl Written {
    fn create(policy: JobPolicy) -> Self {
        let name = job_name("written");
        let options = JobOptions {
            job: name.clone(),
            nranks: 1,
            uuid: [1; 16],
            strategy: JobStrategy::Auto,
            policy,
            renumber: false,
            max_recoveries: 8,
            stage_timeout: Duration::from_secs(30),
            hang_timeout: None,
            backend: "host".to_owned(),
        };
        let launcher = ShmMembership::create(&options).expect("segment");
        let (incarnation, token) = launcher.allocate(Rank(0)).expect("seat");
        let member = ShmMembership::join(&name, Rank(0), incarnation, token).expect("joined");
        let journal = Journal::create(&JournalOptions::new(&name, 0, 0)).expect("journal");
        Self { name, journal, _member: member, _launcher: launcher }
    }

    fn record(&self, region: Region, request: &Request<'_>, result: Option<u64>) {
        let record = self.journal.append(region, request.code(), 0, &request.parts()).expect("room");
        if let Some(result) = result {
            self.journal.complete(record, result);
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

#[test]
fn a_request_that_cannot_be_replayed_is_named_with_its_reason_and_place() {
    let job = Written::create(JobPolicy::Redo);
    job.record(Region::Setup, &request::mem_alloc(4096), Some(0x4000_0000_0000));
    verify(&job.name, 0);
    job.record(Region::Setup, &request::device_reset(0), Some(0));
    let verified = verify(&job.name, 1);
    let named = |line: &Verified| matches!(line, Verified::Finding { about, sequence: 2, what, fatal: true, .. }
        if about == "set-up" && what.contains("cuDevicePrimaryCtxReset"));
    assert!(verified.iter().any(named), "{verified:#?}");
    assert!(matches!(verified.last(), Some(Verified::Rank { setup_replayable: false, step_replayable: false, recoverable: false, .. })));
}

#[test]
fn calls_that_failed_or_never_returned_are_not_in_the_way_of_a_set_up() {
    let job = Written::create(JobPolicy::Redo);
    job.record(Region::Setup, &request::device_reset(0), None);
    job.record(Region::Setup, &request::device_reset(0), Some(1 << 61 | 400));
    verify(&job.name, 0);
    let shown = run(rejoin().args(["show", &format!("{}/0", job.name)])).expect_code(0).stdout;
    assert!(shown.contains("has not returned") && shown.contains("failed: device"), "{shown}");
}

#[test]
fn an_obstacle_in_the_open_step_counts_under_policy_replay_only() {
    for (policy, code) in [(JobPolicy::Redo, 0), (JobPolicy::Replay, 1)] {
        let job = Written::create(policy);
        job.record(Region::Step, &request::step_begin(0), Some(0));
        job.record(Region::Step, &request::memcpy_htod_digest(DevicePtr(0x4000_0000_0000), 4096, 7), Some(0));
        let verified = verify(&format!("{}/0", job.name), code);
        let Some(Verified::Rank { setup_replayable, step_replayable, recoverable, .. }) = verified.last() else {
            panic!("no verdict: {verified:#?}")
        };
        assert_eq!((*setup_replayable, *step_replayable, *recoverable), (true, false, code == 0));
    }
}

#[test]
fn a_rank_without_a_journal_is_a_finding_of_the_job_and_no_verdict_of_its_own() {
    let job = Written::create(JobPolicy::Redo);
    std::fs::remove_file(format!("/dev/shm/rejoin.{}.r0.0", job.name)).expect("removed");
    let verified = verify(&job.name, 1);
    assert!(verified.iter().any(|line| matches!(line, Verified::Finding { about, fatal: true, .. } if about == "journal")), "{verified:#?}");
    run(rejoin().args(["verify", &format!("{}/0", job.name)])).expect_code(2).expect_stderr("no journal");
}
