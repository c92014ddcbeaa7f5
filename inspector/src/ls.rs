//! `rejoin ls`: the jobs whose members segment stands in a folder.

use crate::cli::LsOptions;
use crate::exit_code::ExitCode;
use crate::output::{self, Format};
use crate::run::leftovers::{self, Lives};
use journal_core::membership::{Membership, MembershipError, ShmMembership};
use serde::Serialize;
use std::path::Path;

/// One job.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    job: String,
    /// starting, running, recovering, ended, dead (leftovers of a job nobody lives of) or unreadable.
    state: &'static str,
    ranks: u32,
    /// Ranks whose process lives and has joined.
    ranks_alive: u32,
    epoch: u32,
    step: u32,
    backend: String,
    launcher_pid: u32,
    launcher_alive: bool,
    recoveries: usize,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Prints the jobs.
pub fn command(options: &LsOptions) -> anyhow::Result<ExitCode> {
    let jobs = leftovers::jobs_in(&options.dir)?;
    let rows: Vec<Row> = jobs.iter().filter_map(|job| row(&options.dir, job)).collect();
    match options.format {
        Format::Json => rows.iter().try_for_each(output::json)?,
        Format::Text if rows.is_empty() => output::line(&format!("no job in {}", options.dir.display()))?,
        Format::Text => output::line(&text(&rows))?,
    }
    for row in rows.iter().filter(|row| row.error.is_some()) {
        eprintln!("rejoin: job {}: {}", row.job, row.error.as_deref().unwrap_or_default());
    }
    let trouble = rows.iter().any(|row| matches!(row.state, "dead" | "unreadable"));
    Ok(if trouble { ExitCode::TROUBLE } else { ExitCode::FINE })
}

/// None for a job that ended while its folder was listed.
fn row(dir: &Path, job: &str) -> Option<Row> {
    let membership = match ShmMembership::open_read_only(dir, job) {
        Ok(membership) => membership,
        Err(MembershipError::Segment(journal_core::journal::SegmentError::NotFound { .. })) => return None,
        Err(error) => return Some(unreadable(job, &error)),
    };
    let lives = Lives::of(&membership);
    let decision = membership.decision();
    let state = match () {
        () if !lives.anyone() => "dead",
        () if membership.end_code().is_some() => "ended",
        () if decision.is_failed() => "recovering",
        () if membership.setup_complete() => "running",
        () => "starting",
    };
    Some(Row {
        job: job.to_owned(),
        state,
        ranks: membership.nranks(),
        ranks_alive: lives.ranks.len() as u32,
        epoch: decision.epoch.0.into(),
        step: decision.step.0,
        backend: membership.options().backend.clone(),
        launcher_pid: membership.launcher().0.pid,
        launcher_alive: lives.launcher,
        recoveries: membership.reports().len(),
        error: None,
    })
}

fn unreadable(job: &str, error: &MembershipError) -> Row {
    Row {
        job: job.to_owned(),
        state: "unreadable",
        ranks: 0,
        ranks_alive: 0,
        epoch: 0,
        step: 0,
        backend: String::new(),
        launcher_pid: 0,
        launcher_alive: false,
        recoveries: 0,
        error: Some(error.to_string()),
    }
}

fn text(rows: &[Row]) -> String {
    let head = ["JOB", "STATE", "RANKS", "EPOCH", "STEP", "BACKEND", "LAUNCHER", "RECOVERIES"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| {
        let launcher = if row.launcher_alive { row.launcher_pid.to_string() } else { "gone".to_owned() };
        vec![
            row.job.clone(),
            row.state.to_owned(),
            format!("{}/{}", row.ranks_alive, row.ranks),
            row.epoch.to_string(),
            row.step.to_string(),
            row.backend.clone(),
            launcher,
            row.recoveries.to_string(),
        ]
    }));
    output::table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_is_none_is_listed_as_unreadable() {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::fs::write(folder.path().join("rejoin.broken.members"), vec![7; 4096]).expect("file");
        let row = row(folder.path(), "broken").expect("listed");
        assert_eq!(row.state, "unreadable");
        assert!(row.error.is_some());
        assert!(text(&[row]).contains("unreadable"));
    }

    #[test]
    fn a_job_that_is_gone_is_left_out() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(row(folder.path(), "gone"), None);
    }
}
