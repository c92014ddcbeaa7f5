//! Recovery in all its forms: strategies, policies, failed devices, several failures, several communicators.

mod support;

use journal_core::membership::{Incarnation, Membership, Rank, ShmMembership};
use rustix::process::Signal;
use support::{Ended, job_name, rejoin, run, segments};

/// A demo that must end with identical weights; what it printed.
#[track_caller]
fn identical(arguments: &[&str]) -> serde_json::Value {
    let mut command = rejoin();
    command.args(["demo", "--json", "--steps", "40"]).args(arguments);
    let ended = run(&mut command).expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one object");
    assert_eq!(report["identical"], true, "{ended:#?}");
    report
}

#[track_caller]
fn strategies(report: &serde_json::Value) -> Vec<String> {
    let recoveries = report["recoveries"].as_array().expect("a list");
    recoveries.iter().map(|r| r["strategy"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn grow_and_new_rank_rebuild_without_a_fallback() {
    assert_eq!(strategies(&identical(&["--strategy", "grow", "--kill", "2@20"])), ["grow"]);
    assert_eq!(strategies(&identical(&["--strategy", "new-rank", "--kill", "0@20"])), ["new-rank"]);
    assert_eq!(strategies(&identical(&["--strategy", "reinit", "--kill", "3@20"])), ["reinit"]);
}

#[test]
fn a_clique_with_one_survivor_is_rebuilt_by_reinit_whatever_the_strategy() {
    identical(&["--ranks", "2", "--strategy", "grow", "--kill", "1@20"]);
    identical(&["--ranks", "2", "--strategy", "new-rank", "--kill", "0@20"]);
}

#[test]
fn a_failed_device_is_replayed_in_its_process() {
    for policy in ["redo", "replay"] {
        let report = identical(&["--fail-device", "1@20", "--policy", policy]);
        let recovery = &report["recoveries"][0];
        assert!(recovery["replayed_requests"].as_u64().expect("a number") > 10, "{recovery:#?}");
        assert_eq!(recovery["cause"], "device_lost", "its process lived on: {recovery:#?}");
    }
}

#[test]
fn under_policy_replay_survivors_issue_the_step_again() {
    identical(&["--policy", "replay", "--kill", "2@20+400"]);
    identical(&["--policy", "replay", "--strategy", "grow", "--kill", "0@20"]);
}

#[test]
fn after_the_decision_survivors_commit_and_the_failed_rank_gets_the_step_from_a_donor() {
    for arguments in [
        &["--kill", "1@20+go"][..],
        &["--kill", "0@20+go", "--strategy", "grow"],
        &["--kill", "2@20+go", "--policy", "replay"],
        &["--fail-device", "1@20+go"],
        &["--fail-device", "3@20+go", "--policy", "replay"],
        &["--fail-device", "0@20+go", "--kill", "1@20+go"],
    ] {
        let report = identical(arguments);
        assert_eq!(report["recoveries"][0]["resumed_step"], 21, "GO stands, so the job goes on after it: {report:#}");
    }
}

#[test]
fn several_failures_at_once_and_one_after_the_other_are_survived() {
    identical(&["--kill", "1@20", "--kill", "2@20"]);
    identical(&["--strategy", "grow", "--kill", "0@20", "--kill", "3@20"]);
    identical(&["--kill", "0@20", "--kill", "1@20", "--kill", "2@20"]);
    identical(&["--kill", "2@10", "--kill", "1@11", "--fail-device", "3@12", "--kill", "0@30"]);
    identical(&["--fail-device", "0@20", "--fail-device", "1@20"]);
}

#[test]
fn renumbered_ranks_move_and_the_bits_stay() {
    assert_eq!(strategies(&identical(&["--strategy", "new-rank", "--renumber", "--kill", "1@20"])), ["new-rank"]);
    assert_eq!(strategies(&identical(&["--strategy", "grow", "--renumber", "--kill", "0@10", "--kill", "2@30"])), ["grow", "grow"]);
    for refused in [&["--renumber", "--strategy", "grow", "--policy", "replay"][..], &["--renumber"]] {
        run(rejoin().arg("demo").args(refused)).expect_code(2).expect_stderr("--renumber");
    }
}

#[test]
fn journals_are_shown_and_judged_while_the_job_runs_and_after_a_death() {
    let name = job_name("shown");
    let mut command = rejoin();
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    command.args(["run", "-n", "4", "--backend", "host", "--job", &name, "--"]);
    command.arg(folder.join("grid")).args(["--steps", "100000"]).env("REJOIN_FAULT", "kill:1@20");
    let mut running = support::Running::start(&mut command);
    running.wait_for_stderr("recovered");
    for place in [format!("{name}/0"), format!("{name}/1")] {
        let shown = run(rejoin().args(["show", &place])).expect_code(0);
        assert!(shown.stdout.contains("ncclCommInitRankConfig") && shown.stdout.contains("lane 0: alive"), "{shown:#?}");
        let rows = run(rejoin().args(["show", "--format", "json", &place])).expect_code(0);
        let first: serde_json::Value = serde_json::from_str(rows.stdout.lines().next().expect("a record")).expect("json");
        assert_eq!((&first["region"], &first["outcome"]), (&"setup".into(), &"committed".into()));
    }
    let verified = run(rejoin().args(["verify", &name])).expect_code(0);
    assert!(verified.stdout.contains("can be replayed"), "{verified:#?}");
    run(rejoin().args(["show", &format!("{name}/7")])).expect_code(2).expect_stderr("no journal");
    run(rejoin().args(["verify", "no-such-job"])).expect_code(2);
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_rank_that_dies_again_in_the_recovery_of_its_step_ends_the_job_by_rule() {
    let name = job_name("again");
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let mut command = rejoin();
    command.args(["run", "-n", "4", "--backend", "host", "--job", &name, "--"]).arg(folder.join("grid"));
    command.env("REJOIN_FAULT", "kill:2@20;kill-at-setup-done:2@1");
    run(&mut command).expect_code(11).expect_stderr("died twice in step 20");
    assert_eq!(segments(&name), [""; 0]);
}

/// Starts an endless grid and waits until all of its ranks have committed steps; the pids of ranks 0 to 3.
fn endless(name: &str, options: &[&str]) -> (support::Running, Vec<u32>) {
    started(name, options, "4000000000", &[])
}

fn started(name: &str, options: &[&str], steps: &str, environment: &[(&str, &str)]) -> (support::Running, Vec<u32>) {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let mut command = rejoin();
    command.args(["run", "-n", "4", "--backend", "host", "--job", name]).args(options).arg("--");
    command.arg(folder.join("grid")).args(["--steps", steps]).envs(environment.iter().copied());
    let running = support::Running::start(&mut command);
    let watchdog = std::time::Instant::now() + std::time::Duration::from_secs(support::WATCHDOG_S as u64);
    loop {
        assert!(std::time::Instant::now() < watchdog, "the job did not start");
        let Ok(members) = ShmMembership::open_read_only("/dev/shm".as_ref(), name) else { continue };
        if members.decision().step.0 >= 3 {
            let pid = |rank| members.identity(Rank(rank), Incarnation(0)).expect("joined").pid;
            return (running, (0..4).map(pid).collect());
        }
        std::thread::yield_now();
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("a process that this test started");
}

#[test]
fn a_stopped_rank_that_holds_up_a_recovery_is_declared_hung_and_replaced() {
    let name = job_name("stopped");
    let (mut running, pids) = endless(&name, &["--stage-timeout", "1"]);
    signal(pids[2], Signal::STOP);
    signal(pids[1], Signal::KILL);
    running.wait_for_stderr("replacement of rank 1");
    running.wait_for_stderr("replacement of rank 2");
    running.wait_for_stderr("recovered");
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    assert_eq!(segments(&name), [""; 0]);
}

fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

#[test]
fn an_abort_that_never_returns_delays_no_recovery() {
    let name = job_name("hung-abort");
    let quirk = [("REJOIN_HOST_NCCL_QUIRKS", "hung-abort")];
    let (mut running, pids) = started(&name, &["--stage-timeout", "1"], "4000000000", &quirk);
    signal(pids[3], Signal::KILL);
    running.wait_for_stderr("recovered");
    assert!(threads(pids[0]).contains(&"rejoin-abort".to_owned()), "the abort hangs: {:?}", threads(pids[0]));
    signal(pids[1], Signal::KILL);
    running.wait_for_stderr("recovered");
    running.signal(Signal::INT);
    running.finish().expect_code(130);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn without_a_launcher_the_next_failure_ends_the_job_and_nothing_is_left() {
    // One after the other, and both at once in either order.
    for (victim, waits, launcher_first) in [(3, true, true), (0, true, true), (1, false, true), (0, false, false)] {
        let name = job_name("orphans");
        let (running, pids) = endless(&name, &[]);
        if !launcher_first {
            signal(pids[victim], Signal::STOP);
            signal(pids[victim], Signal::KILL);
        }
        running.signal(Signal::KILL);
        if waits {
            support::wait_for_end(running.pid());
        }
        if launcher_first {
            signal(pids[victim], Signal::KILL);
        }
        pids.iter().for_each(|pid| support::wait_for_end(*pid));
        drop(running);
        assert_eq!(segments(&name), [""; 0], "rank {victim}");
    }
}

#[test]
fn without_a_launcher_ranks_finish_and_the_last_one_removes_everything() {
    let name = job_name("finish");
    let (running, pids) = started(&name, &[], "2000", &[]);
    running.signal(Signal::KILL);
    pids.iter().for_each(|pid| support::wait_for_end(*pid));
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn both_ranks_of_a_column_lost_at_once_end_the_job_by_name_or_are_survived_one_by_one() {
    let name = job_name("column");
    let (running, pids) = endless(&name, &["--stage-timeout", "5"]);
    signal(pids[1], Signal::STOP);
    signal(pids[3], Signal::KILL);
    signal(pids[1], Signal::KILL);
    let ended = running.finish();
    ended.expect_code(12).expect_stderr("parameters");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_lost_last_replica_ends_the_job_with_the_name_of_the_buffer() {
    let mut command = rejoin();
    command.args(["demo", "--steps", "20", "--ranks", "1", "--kill", "0@10"]);
    let ended = run(&mut command).expect_code(12);
    assert!(ended.stderr.contains("parameters"), "{ended:#?}");
}

fn grid(name: &str, ranks: &str, fault: &str, options: &[&str]) -> Ended {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let mut command = rejoin();
    command.args(["run", "-n", ranks, "--backend", "host", "--job", name]).args(options).arg("--");
    command.arg(folder.join("grid")).env("REJOIN_FAULT", fault);
    run(&mut command).expect_code(0)
}

fn hashes(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<&str> = ended.stdout.lines().filter(|l| l.contains("of the grid")).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn tensor_and_data_groups_are_rebuilt_together() {
    let name = job_name("grid");
    let clean = grid(&name, "4", "", &[]);
    assert_eq!(hashes(&clean).len(), 4, "{clean:#?}");
    for (fault, options) in [
        ("kill:3@20", &[][..]),
        ("kill:0@20", &["--strategy", "grow"]),
        ("kill:1@20;kill:2@20", &["--strategy", "grow"]),
        ("kill:2@30", &["--strategy", "new-rank"]),
        ("fail-device:1@20", &["--policy", "replay"]),
        ("kill:1@20", &["--policy", "replay"]),
    ] {
        let faulty = grid(&name, "4", fault, options);
        assert_eq!(hashes(&faulty), hashes(&clean), "{fault} {options:?}: {faulty:#?}");
    }
    assert_eq!(segments(&name), [""; 0]);
}
