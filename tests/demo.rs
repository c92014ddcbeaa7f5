//! The main job: a rank is killed inside a step and training goes on with the same bits.

mod support;

use serde::Deserialize;
use support::{rejoin, run};

/// Every key that `rejoin demo --json` prints, and no other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    backend: String,
    ranks: u32,
    steps: u32,
    accuracy: f64,
    weights_sha256_clean: String,
    weights_sha256_faulty: String,
    identical: bool,
    recoveries: Vec<Recovery>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Recovery {
    epoch: u32,
    failed: Vec<u32>,
    cause: String,
    strategy: String,
    detect_ms: f64,
    agree_ms: f64,
    fence_ms: f64,
    quiesce_ms: f64,
    start_ms: f64,
    rebuild_ms: f64,
    replay_ms: f64,
    restore_ms: f64,
    verify_ms: f64,
    total_ms: f64,
    replayed_requests: u64,
    resumed_step: u32,
}

/// Runs the demo and checks what holds for every kill: same weights, and the recoveries that were asked for.
#[track_caller]
fn demo(ranks: u32, steps: u32, kills: &[(u32, u32, u32)]) -> Report {
    let mut command = rejoin();
    command.args(["demo", "--json", "--backend", "host", "--ranks", &ranks.to_string(), "--steps", &steps.to_string()]);
    for (rank, step, delay_us) in kills {
        command.args(["--kill", &format!("{rank}@{step}+{delay_us}")]);
    }
    let ended = run(&mut command).expect_code(0);
    assert_eq!(ended.stdout.lines().count(), 1, "one object: {ended:#?}");
    assert_eq!(ended.stderr, "", "silent but for the object");
    let report: Report = serde_json::from_str(&ended.stdout).expect("the documented keys");
    assert!(report.identical);
    assert_eq!(report.weights_sha256_clean, report.weights_sha256_faulty);
    assert_eq!((report.ranks, report.steps, report.backend.as_str()), (ranks, steps, "host"));
    let mut failed: Vec<u32> = report.recoveries.iter().flat_map(|recovery| recovery.failed.clone()).collect();
    let mut expected: Vec<u32> = kills.iter().map(|kill| kill.0).collect();
    (failed.sort_unstable(), expected.sort_unstable());
    assert_eq!(failed, expected, "{report:#?}");
    for recovery in &report.recoveries {
        assert!(recovery.cause.contains("SIGKILL"), "{recovery:#?}");
        assert!(recovery.total_ms > 0.0 && recovery.epoch > 0, "{recovery:#?}");
        // A step that had been decided when its rank died is not run again.
        let at = |kill: &&(u32, u32, u32)| recovery.failed.contains(&kill.0);
        let (_, step, _) = kills.iter().find(at).expect("a rank that was killed");
        assert!((*step..=step + 1).contains(&recovery.resumed_step), "{recovery:#?}");
    }
    report
}

#[test]
fn a_rank_killed_inside_a_step_changes_no_bit_and_the_network_learns() {
    let report = demo(4, 200, &[(2, 100, 0)]);
    assert!((0.95..0.97).contains(&report.accuracy), "{report:#?}");
    assert_eq!(report.weights_sha256_clean.len(), 64);
}

#[test]
fn rank_0_and_the_last_rank_can_be_lost_in_one_job() {
    demo(4, 40, &[(0, 10, 0), (3, 25, 0)]);
}

#[test]
fn two_ranks_go_on_when_one_is_lost() {
    demo(2, 30, &[(1, 15, 0)]);
}

#[test]
fn eight_ranks_go_on_when_the_last_is_lost() {
    demo(8, 30, &[(7, 15, 0)]);
}

#[test]
fn uneven_shards_are_no_exception() {
    demo(3, 30, &[(1, 10, 0)]);
}

#[test]
fn a_rank_killed_in_the_first_and_in_the_last_step_is_replaced() {
    demo(4, 12, &[(1, 0, 0)]);
    demo(4, 12, &[(2, 11, 0)]);
}

#[test]
fn kills_at_later_moments_of_a_step_change_no_bit() {
    for delay_us in [50, 150, 300, 600, 1200] {
        demo(4, 20, &[(2, 10, delay_us)]);
    }
}

#[test]
fn the_text_tells_a_newcomer_what_happened() {
    let ended = run(rejoin().args(["demo", "--steps", "20", "--kill", "2@10"])).expect_code(0);
    for part in ["4 processes", "killed: rank 2 at step 10", "SIGKILL", "ranks 0, 1 and 3 kept their processes", "bit-identical"] {
        assert!(ended.stdout.contains(part), "{part} is missing in {}", ended.stdout);
    }
    assert!(ended.stderr.contains("rank 2 died (SIGKILL)"), "{}", ended.stderr);
}

#[test]
fn a_failed_device_is_told_as_one_and_moved_ranks_by_their_new_order() {
    let ended = run(rejoin().args(["demo", "--steps", "20", "--fail-device", "2@10"])).expect_code(0);
    for part in ["rank 2: device lost, the process lives on", "ranks 0, 1, 2 and 3 kept their processes", "losing a device changed nothing"] {
        assert!(ended.stdout.contains(part), "{part} is missing in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("fence"), "{}", ended.stdout);
    let moved = ["demo", "--steps", "20", "--kill", "1@10", "--strategy", "new-rank", "--renumber"];
    let ended = run(rejoin().args(moved)).expect_code(0);
    assert!(ended.stdout.contains("in the order 0, 2, 3, 1"), "{}", ended.stdout);
}

#[test]
fn a_kill_that_no_rank_can_obey_is_refused() {
    run(rejoin().args(["demo", "--kill", "9@1"])).expect_code(2).expect_stderr("0 to 3");
    run(rejoin().args(["demo", "--kill", "nonsense"])).expect_code(2).expect_stderr("2@100");
}

#[test]
fn the_result_does_not_depend_on_chance() {
    let (one, other) = (demo(2, 20, &[(1, 10, 0)]), demo(2, 20, &[(0, 5, 0)]));
    assert_eq!(one.weights_sha256_clean, other.weights_sha256_clean);
}
