//! `rejoin recovery JOB`: what each recovery of a job did and where its time went.

use crate::cli::RecoveryOptions;
use crate::exit_code::ExitCode;
use crate::output::{self, Format};
use crate::report::{RecoveryLine, milliseconds, name_ranks};
use anyhow::Context;
use journal_core::membership::{Membership, RecoveryOutcome, RecoveryReport, ShmMembership};
use serde::Serialize;

/// One recovery with what only the inspector shows.
#[derive(Debug, Serialize)]
struct Detailed {
    #[serde(flatten)]
    line: RecoveryLine,
    /// recovered, superseded by a further failure, or gave_up.
    outcome: &'static str,
    /// The total starts at the kill; else at the first sign of it.
    from_kill: bool,
    /// Rank that gave state.
    donor: Option<u32>,
    /// Bytes of state that were copied.
    restored_bytes: u64,
    /// The last request of each failed rank.
    last_requests: Vec<String>,
}

/// Prints the recoveries of a job.
pub fn command(options: &RecoveryOptions) -> anyhow::Result<ExitCode> {
    let membership = ShmMembership::open_read_only(&options.dir, &options.job)
        .with_context(|| format!("cannot look at job {} in {}", options.job, options.dir.display()))?;
    let reports: Vec<Detailed> = membership.reports().iter().map(|report| detailed(report, &membership)).collect();
    match options.format {
        Format::Json => reports.iter().try_for_each(output::json)?,
        Format::Text if reports.is_empty() => output::line(&format!("job {} has had no recovery", options.job))?,
        Format::Text => {
            for report in &reports {
                output::line(&describe(report, membership.nranks()))?;
            }
        }
    }
    let gave_up = reports.iter().any(|report| report.outcome == "gave_up");
    Ok(if gave_up { ExitCode::TROUBLE } else { ExitCode::FINE })
}

fn detailed(report: &RecoveryReport, membership: &ShmMembership) -> Detailed {
    let outcome = match report.outcome {
        RecoveryOutcome::Recovered => "recovered",
        RecoveryOutcome::Superseded => "superseded",
        RecoveryOutcome::GaveUp => "gave_up",
    };
    Detailed {
        line: RecoveryLine::from_report(report, membership),
        outcome,
        from_kill: report.from_kill,
        donor: report.donor.map(|rank| rank.0),
        restored_bytes: report.restored_bytes,
        last_requests: report.failed.iter().map(|failed| failed.last_request.clone()).collect(),
    }
}

fn describe(report: &Detailed, nranks: u32) -> String {
    let line = &report.line;
    let start = if report.from_kill { "from the kill" } else { "from detection, as the kill came from outside" };
    let mut text = vec![
        format!("epoch {}: {} of {nranks} {} — {}", line.epoch, name_ranks(&line.failed), line.cause, report.outcome.replace('_', " ")),
        format!("  step {} went on after {} ({start}), strategy {}", line.resumed_step, milliseconds(line.total_ms), line.strategy),
    ];
    for request in report.last_requests.iter().filter(|request| !request.is_empty()) {
        text.push(format!("  last request: {request}"));
    }
    if let Some(donor) = report.donor {
        text.push(format!("  {} bytes of state came from rank {donor}", report.restored_bytes));
    }
    text.extend(line.order_text().map(|order| format!("  now {order}")));
    text.push("  longest time of any rank in each stage (ranks overlap):".to_owned());
    let rows: Vec<Vec<String>> = line.stages().iter().map(|(stage, time)| vec![format!("  {stage}"), format!("{time:>9.2} ms")]).collect();
    text.push(output::table(&rows));
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Detailed {
        Detailed {
            line: crate::report::tests::sample(),
            outcome: "recovered",
            from_kill: true,
            donor: Some(0),
            restored_bytes: 19_280,
            last_requests: vec!["ncclAllReduce(count=2411)".to_owned()],
        }
    }

    #[test]
    fn the_text_names_evidence_donor_and_every_stage() {
        let text = describe(&sample(), 4);
        for part in ["rank 2 of 4", "SIGKILL", "from the kill", "ncclAllReduce", "19280 bytes", "rank 0", "rebuild", "30.00 ms"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn the_json_line_is_flat() {
        let json = serde_json::to_value(sample()).expect("serializable");
        assert_eq!(json["epoch"], 1);
        assert_eq!(json["outcome"], "recovered");
        assert_eq!(json["donor"], 0);
    }
}
