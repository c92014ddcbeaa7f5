//! What the demo prints: what happened, for somebody who has never heard of Rejoin.

use super::{Faults, Run};
use crate::cli::Backend;
use crate::report::{RecoveryLine, name_ranks};

/// The whole text.
pub fn tell(backend: Backend, ranks: u32, steps: u32, faults: &Faults, clean: &Run, faulty: &Run) -> String {
    let device = match backend {
        Backend::Host => "host backend: CPU memory, no GPU used",
        Backend::Cuda => "cuda backend",
    };
    let processes = if ranks == 1 { "1 process trains".to_owned() } else { format!("{ranks} processes train") };
    let titles = ["undisturbed".to_owned(), disturbed(faults)];
    let width = titles.iter().map(String::len).max().unwrap_or(0);
    let mut lines = vec![
        format!("{processes} one network together ({device}), twice:"),
        String::new(),
        summary(&titles[0], width, steps, clean),
        summary(&titles[1], width, steps, faulty),
        String::new(),
    ];
    for recovery in &faulty.recoveries {
        lines.extend(timeline(recovery, ranks, steps));
        lines.push(String::new());
    }
    if faulty.recoveries.is_empty() {
        lines.push("No rank was lost.".to_owned());
    }
    let lost = if faults.kills.is_empty() { "a device" } else { "a process" };
    lines.push(if clean.result.weights_sha256 == faulty.result.weights_sha256 {
        format!("The final weights are bit-identical: losing {lost} changed nothing.")
    } else {
        "The final weights DIFFER: this must not happen, please report it.".to_owned()
    });
    lines.join("\n")
}

fn disturbed(faults: &Faults) -> String {
    let places = |verb: &str, points: &[crate::fault::FaultPoint]| {
        let places: Vec<String> = points.iter().map(|point| format!("rank {} at step {}", point.rank, point.step)).collect();
        (!places.is_empty()).then(|| format!("{verb}: {}", places.join(", ")))
    };
    let parts = [places("killed", &faults.kills), places("device failed", &faults.devices)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn summary(title: &str, width: usize, steps: u32, run: &Run) -> String {
    let hash = run.result.weights_sha256.get(..16).unwrap_or(&run.result.weights_sha256);
    format!(
        "  {title:<width$}   {steps} steps in {:.2} s   accuracy {:.1} %   weights {hash}",
        run.duration.as_secs_f64(),
        run.result.accuracy() * 100.0
    )
}

fn timeline(recovery: &RecoveryLine, ranks: u32, steps: u32) -> Vec<String> {
    let failed = name_ranks(&recovery.failed);
    let survivors = recovery.survivors(ranks);
    let what = |stage: &str| match stage {
        "detect" => "the others notice".to_owned(),
        "agree" => "all agree on what has failed".to_owned(),
        "fence" => "a dead process is proven gone".to_owned(),
        "quiesce" => "no call is in flight, the broken communicator is released".to_owned(),
        "start" => format!("beside it: the new process of {failed} starts and takes part"),
        "rebuild" => format!("the communicator is rebuilt around {failed} ({})", recovery.strategy),
        "replay" => format!("{} recorded requests are executed again", recovery.replayed_requests),
        "restore" if recovery.spared_processes() => "state is copied from a healthy rank, or was kept".to_owned(),
        "restore" => "the new process is ready, and gets its state from a healthy one".to_owned(),
        _ => "everything is checked".to_owned(),
    };
    let kept = match survivors.len() {
        0 => "no process survived".to_owned(),
        _ => format!("{} kept their processes and memory", name_ranks(&survivors)),
    };
    // After the last step nothing is left to commit.
    let end = match recovery.resumed_step {
        step if step < steps => format!("step {step} was committed"),
        _ => "the job was whole again".to_owned(),
    };
    let what_failed = match recovery.spared_processes() {
        true => format!("{failed}: device lost, the process lives on"),
        false => format!("{failed} lost: {}", recovery.cause),
    };
    let mut lines = vec![
        format!("  {what_failed}. {:.1} ms later {end}; {kept}.", recovery.total_ms),
        "  The longest that any rank was in each stage; ranks overlap, so the sum can exceed the total:".to_owned(),
    ];
    for (stage, duration) in recovery.stages() {
        let took_place = match stage {
            "replay" => recovery.replayed_requests > 0,
            "fence" | "start" => !recovery.spared_processes(),
            _ => true,
        };
        if !took_place {
            continue;
        }
        lines.push(format!("  {:>9} ms  {stage:<8} {}", format!("{duration:.1}"), what(stage)));
    }
    lines.extend(recovery.order_text().map(|order| format!("  From now on {order}.")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::results::JobResult;
    use std::time::Duration;

    fn run(weights: &str, recoveries: Vec<RecoveryLine>) -> Run {
        let result = JobResult { weights_sha256: weights.repeat(32), correct: 285, tested: 299 };
        Run { result, duration: Duration::from_millis(610), recoveries }
    }

    #[test]
    fn the_story_tells_the_loss_the_times_and_the_result() {
        let faults = Faults { kills: vec!["2@100".parse().expect("valid")], devices: Vec::new() };
        let faulty = run("ab", vec![crate::report::tests::sample()]);
        let text = tell(Backend::Host, 4, 200, &faults, &run("ab", Vec::new()), &faulty);
        for part in ["4 processes", "rank 2 at step 100", "95.3 %", "41.5 ms", "SIGKILL", "ranks 0, 1 and 3 kept", "bit-identical"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn a_failed_device_is_told_as_no_loss_of_a_process() {
        let device = RecoveryLine { cause: "device_lost".to_owned(), replayed_requests: 26, ..crate::report::tests::sample() };
        let text = timeline(&device, 4, 200).join("\n");
        for part in ["rank 2: device lost", "ranks 0, 1, 2 and 3 kept", "26 recorded requests"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("fence"), "nobody was fenced: {text}");
    }

    #[test]
    fn a_recovery_after_the_last_step_claims_no_step() {
        let text = timeline(&crate::report::tests::sample(), 4, 100).join("\n");
        assert!(text.contains("41.5 ms later the job was whole again"), "{text}");
        let text = timeline(&crate::report::tests::sample(), 4, 101).join("\n");
        assert!(text.contains("41.5 ms later step 100 was committed"), "{text}");
    }

    #[test]
    fn different_weights_are_said_loudly() {
        let faults = Faults { kills: vec!["2@100".parse().expect("valid")], devices: Vec::new() };
        let text = tell(Backend::Host, 4, 200, &faults, &run("ab", Vec::new()), &run("cd", Vec::new()));
        assert!(text.contains("DIFFER") && !text.contains("bit-identical"), "{text}");
    }
}
