//! Foreign mode: an application whose device work Rejoin does not see.

mod support;

use support::{Ended, job_name, rejoin, run, segments};

fn foreign(name: &str, fault: &str, options: &[&str]) -> Ended {
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_rejoin")).parent().expect("target folder");
    let mut command = rejoin();
    command.args(["run", "-n", "4", "--backend", "host", "--job", name]).args(options).arg("--");
    command.arg(folder.join("foreign")).env("REJOIN_FAULT", fault);
    run(&mut command)
}

fn hashes(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<&str> = ended.stdout.lines().filter(|l| l.contains("parameters")).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn state_in_memory_of_the_application_survives_a_death_and_a_device_fault() {
    let name = job_name("foreign");
    let clean = foreign(&name, "", &[]).expect_code(0);
    assert_eq!(hashes(&clean).len(), 4, "{clean:#?}");
    for (fault, options) in [
        ("kill:3@20", &[][..]),
        ("kill:0@20+300", &["--strategy", "grow"]),
        ("kill:1@20;kill:2@20", &[]),
        // There is nothing to replay, so its process ends, and is replaced.
        ("fail-device:1@20", &[]),
    ] {
        let faulty = foreign(&name, fault, options).expect_code(0);
        assert_eq!(hashes(&faulty), hashes(&clean), "{fault} {options:?}: {faulty:#?}");
    }
    assert_eq!(segments(&name), [""; 0]);
}

#[test]
fn policy_replay_is_refused_with_the_reason() {
    let name = job_name("foreign-replay");
    let ended = foreign(&name, "", &["--policy", "replay"]);
    assert!(ended.stderr.contains("use policy redo"), "{ended:#?}");
    assert_eq!(segments(&name), [""; 0]);
}

/// The README of the CUDA example shows what Rejoin adds to a program; it must be what it really adds.
#[test]
fn the_readme_of_the_cuda_example_shows_its_difference() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cuda/foreign");
    let mut command = std::process::Command::new("diff");
    command.args(["-u", "--label", "plain.cu", "--label", "rejoin.cu", "plain.cu", "rejoin.cu"]).current_dir(&folder);
    let ended = run(&mut command).expect_code(1);
    let readme = std::fs::read_to_string(folder.join("README.md")).expect("a README");
    assert!(readme.contains(&format!("```diff\n{}```", ended.stdout)), "put this into the README:\n{}", ended.stdout);
}
