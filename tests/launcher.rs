//! `rejoin run` in the cases that must not go wrong: each ends with its own exit code and a message that says what
//! to do, and leaves neither a process nor a segment.

mod support;

use rustix::process::Signal;
use std::process::Command;
use support::{Running, job_name, pids, rejoin, run, segments, wait_for_end};

/// `rejoin run` on the host backend with a shell script as every rank.
fn job(name: &str, ranks: u32, script: &str) -> Command {
    let mut command = rejoin();
    command.args(["run", "-n", &ranks.to_string(), "--backend", "host", "--job", name]);
    command.args(["--", "/bin/sh", "-c", script]);
    command
}

#[test]
fn a_program_that_does_not_exist_is_refused_before_anything_is_created() {
    let name = job_name("missing");
    let mut command = rejoin();
    command.args(["run", "-n", "2", "--backend", "host", "--job", &name, "--", "/no/such/program"]);
    run(&mut command).expect_code(2).expect_stderr("/no/such/program").expect_stderr("no such file");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_file_that_is_not_executable_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "text").expect("file");
    let mut command = rejoin();
    command.args(["run", "-n", "2", "--backend", "host", "--"]).arg(&plain);
    run(&mut command).expect_code(2).expect_stderr("not executable");
}

#[test]
fn a_job_without_ranks_is_refused() {
    run(rejoin().args(["run", "-n", "0", "--", "true"])).expect_code(2).expect_stderr("at least one rank");
}

#[test]
fn a_name_taken_by_a_live_job_is_refused_and_the_job_goes_on() {
    let name = job_name("taken");
    let mut first = Running::start(&mut job(&name, 2, "exec sleep 1000"));
    first.wait_for_stderr("started");
    run(&mut job(&name, 2, "exit 0")).expect_code(2).expect_stderr(&name);
    assert!(!segments(&name).is_empty(), "the first job still has its segment");
    first.signal(Signal::TERM);
    first.finish().expect_code(143);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn leftovers_of_a_dead_job_are_replaced() {
    let name = job_name("leftover");
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("pids");
    let script = format!("echo $$ >> {}; exec sleep 1000", file.display());
    let mut first = Running::start(&mut job(&name, 2, &script));
    first.wait_for_stderr("started");
    first.signal(Signal::KILL);
    drop(first);
    assert!(!segments(&name).is_empty(), "a killed launcher cannot clean up");
    let ended = run(&mut job(&name, 2, "exit 0"));
    // The orphans never joined, so they do not count as ranks; they are ended by their parent of before: this test.
    for pid in pids(&file) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("pid");
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    ended.expect_code(14).expect_stderr("before it opened a session");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_program_that_always_dies_before_set_up_is_tried_again_and_then_given_up() {
    let name = job_name("early");
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("tries");
    let script = format!("echo $REJOIN_RANK >> {}; exit 3", file.display());
    let ended = run(&mut job(&name, 1, &script)).expect_code(11);
    ended.expect_stderr("exit code 3").expect_stderr("twice before set-up");
    assert_eq!(pids(&file), [0, 0], "two tries");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn more_deaths_than_allowed_give_the_job_up() {
    let name = job_name("limit");
    let mut command = rejoin();
    command.args(["run", "-n", "2", "--backend", "host", "--job", &name, "--max-recoveries", "0"]);
    command.args(["--", "/bin/sh", "-c", "kill -9 $$"]);
    run(&mut command).expect_code(10).expect_stderr("--max-recoveries is 0").expect_stderr("SIGKILL");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn a_program_that_uses_no_session_is_told_so() {
    let name = job_name("stranger");
    run(&mut job(&name, 2, "exit 0")).expect_code(14).expect_stderr("does not use Rejoin");
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn interrupts_end_every_rank_and_what_it_started() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let name = job_name("interrupt");
        let folder = tempfile::tempdir().expect("temporary folder");
        let file = folder.path().join("pids");
        let script = format!("sleep 1000 & echo $! >> {0}; echo $$ >> {0}; echo rank-is-ready >&2; wait", file.display());
        let mut running = Running::start(&mut job(&name, 2, &script));
        running.wait_for_stderr("rank-is-ready");
        running.wait_for_stderr("rank-is-ready");
        running.signal(signal);
        running.finish().expect_code(code).expect_stderr("interrupted");
        let pids = pids(&file);
        assert_eq!(pids.len(), 4);
        pids.into_iter().for_each(wait_for_end);
        assert_eq!(segments(&name), [""; 0]);
    }
}

#[test]
fn a_rank_that_ignores_the_request_to_end_is_killed() {
    let name = job_name("stubborn");
    let script = "trap '' TERM INT; echo rank-is-ready >&2; while :; do sleep 1000; done";
    let mut running = Running::start(&mut job(&name, 1, script));
    running.wait_for_stderr("rank-is-ready");
    running.signal(Signal::TERM);
    running.wait_for_stderr("interrupted by SIGTERM");
    // The second one says that it is urgent; without it the launcher would wait some seconds.
    running.signal(Signal::TERM);
    running.finish().expect_code(143);
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn what_a_dead_rank_had_started_is_ended_too() {
    let name = job_name("orphan");
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = folder.path().join("pids");
    let script = format!("sleep 1000 & echo $! >> {}; kill -9 $$", file.display());
    run(&mut job(&name, 1, &script)).expect_code(11);
    let pids = pids(&file);
    assert_eq!(pids.len(), 2);
    pids.into_iter().for_each(wait_for_end);
}

#[test]
fn a_shared_memory_folder_that_is_too_small_is_an_error_with_numbers() {
    let probe = Command::new("unshare").args(["-m", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: unshare -m needs root, the case of a tiny /dev/shm was not tested");
        return;
    }
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=16k none /dev/shm && exec \"$0\" run -n 4 --backend host --job tiny -- /bin/true";
    command.args(["-m", "/bin/sh", "-c", script, env!("CARGO_BIN_EXE_rejoin")]);
    let ended = run(&mut command).expect_code(2).expect_stderr("/dev/shm");
    assert!(ended.stderr.contains("free"), "{ended:#?}");
}

#[test]
fn output_is_tagged_with_the_rank_when_asked() {
    let name = job_name("tag");
    let mut command = rejoin();
    command.args(["run", "-n", "2", "--backend", "host", "--job", &name, "--tag", "--max-recoveries", "0"]);
    command.args(["--", "/bin/sh", "-c", "echo hello; kill -9 $$"]);
    let ended = run(&mut command).expect_code(10);
    assert!(ended.stdout.contains("[0] hello") || ended.stdout.contains("[1] hello"), "{ended:#?}");
}
