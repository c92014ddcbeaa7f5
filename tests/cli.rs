//! The command line itself: help, versions, closed pipes, and views of a folder without jobs.

mod support;

use std::process::Stdio;
use support::{rejoin, run};

#[test]
fn every_help_ends_with_an_example_and_is_no_error() {
    for arguments in [&["--help"][..], &["run", "--help"], &["demo", "--help"], &["ls", "--help"], &["recovery", "--help"], &["show", "--help"], &["verify", "--help"], &["gc", "--help"]] {
        let ended = run(rejoin().args(arguments)).expect_code(0);
        assert!(ended.stdout.contains("Example:\n  rejoin "), "{}", ended.stdout);
        assert!(!ended.stdout.contains("demo-rank"), "an inner command is not advertised");
    }
}

#[test]
fn nothing_and_nonsense_are_no_commands() {
    run(&mut rejoin()).expect_code(2);
    run(rejoin().arg("frobnicate")).expect_code(2);
}

#[test]
fn a_folder_without_jobs_is_an_empty_list() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let ended = run(rejoin().arg("ls").arg("--dir").arg(folder.path())).expect_code(0);
    assert!(ended.stdout.contains("no job in"), "{ended:#?}");
    let ended = run(rejoin().args(["ls", "--format", "json", "--dir"]).arg(folder.path())).expect_code(0);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_job_that_does_not_exist_is_named() {
    run(rejoin().args(["recovery", "no-such-job"])).expect_code(2).expect_stderr("no-such-job");
}

#[test]
fn a_folder_that_does_not_exist_is_named() {
    run(rejoin().args(["ls", "--dir", "/no/such/folder"])).expect_code(2).expect_stderr("/no/such/folder");
}

#[test]
fn a_reader_that_has_closed_the_pipe_is_no_error() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let status = rejoin().arg("ls").arg("--dir").arg(folder.path()).stdout(Stdio::from(writer)).status().expect("run");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn leftovers_are_removed_and_other_files_are_not() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("temporary folder");
    let (leftover, other) = (folder.path().join("rejoin.gone.r0.0"), folder.path().join("rejoin"));
    std::fs::write(&leftover, b"x").expect("file");
    std::fs::write(&other, b"x").expect("file");
    let gc = |more: &[&str]| run(rejoin().arg("gc").args(more).arg("--dir").arg(folder.path())).expect_code(0).stdout;
    assert!(gc(&["--dry-run"]).contains("1 segments would be removed") && leftover.exists());
    assert!(gc(&["--format", "json"]).contains("\"action\":\"removed\""));
    assert!(!leftover.exists() && other.exists());
}

#[test]
fn a_backend_that_does_not_exist_here_is_no_silent_choice() {
    run(rejoin().args(["run", "-n", "1", "--", "true"])).expect_code(2).expect_stderr("--backend host");
    run(rejoin().args(["run", "-n", "1", "--", "true"]).env("REJOIN_BACKEND", "tpu")).expect_code(2).expect_stderr("tpu");
}
