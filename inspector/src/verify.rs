//! `rejoin verify JOB[/RANK]`: whether journals could be replayed now, and what a recovery could not restore.

use crate::cli::{JournalPlace, VerifyOptions};
use crate::exit_code::ExitCode;
use crate::journal;
use crate::output::{self, Format};
use anyhow::Context;
use journal_core::agent::recorded_value;
use journal_core::backend::DevicePtr;
use journal_core::journal::Snapshot;
use journal_core::membership::{BlobScope, JobPolicy, Membership, Rank, SeatState, ShmMembership};
use journal_core::recovery::replayable::{Obstacle, obstacles};
use journal_core::recovery::states_key;
use journal_core::request::{self, Call, Stage};
use journal_core::session::state::{StateKind, StateTable};
use serde::Serialize;
use std::collections::BTreeMap;

/// One line of `verify --format json`: what was found, then a verdict for each rank.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Finding(&'a Finding),
    Rank(&'a Verdict),
}

/// Something that a recovery could not do.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    rank: u32,
    /// journal, set-up, step, memory or state.
    about: &'static str,
    /// 0 where it is not about one record.
    sequence: u64,
    what: String,
    /// It stands against a recovery of this job as it was started.
    fatal: bool,
}

/// What holds for a rank.
#[derive(Debug, Serialize)]
struct Verdict {
    rank: u32,
    /// Newest process of it.
    incarnation: u32,
    setup_records: usize,
    step_records: usize,
    /// Stage 1: the set-up can be replayed on a device that failed.
    setup_replayable: bool,
    /// Stage 2: the open step can be replayed (policy replay).
    step_replayable: bool,
    /// Nothing fatal was found.
    recoverable: bool,
}

/// Prints what was found; exit 1 if something of it is fatal.
pub fn command(options: &VerifyOptions) -> anyhow::Result<ExitCode> {
    let job = &options.place.job;
    let membership = ShmMembership::open_read_only(&options.dir, job)
        .with_context(|| format!("cannot look at job {job} in {}", options.dir.display()))?;
    let nranks = membership.nranks();
    let ranks = match options.place.rank {
        Some(rank) if rank >= nranks => anyhow::bail!("job {job} has the ranks 0 to {}, not {rank}", nranks - 1),
        Some(rank) => rank..rank + 1,
        None => 0..nranks,
    };
    let mut fatal = false;
    for rank in ranks {
        let (verdict, findings) = of_rank(options, rank, &membership)?;
        fatal |= !verdict.recoverable;
        match options.format {
            Format::Json => {
                findings.iter().try_for_each(|finding| output::json(&Line::Finding(finding)))?;
                output::json(&Line::Rank(&verdict))?;
            }
            Format::Text => output::line(&text(&verdict, &findings, membership.options().policy))?,
        }
    }
    if options.format == Format::Text {
        let verdict = if fatal { "not every failure could be recovered from, see FATAL above" } else { "can be replayed" };
        output::line(&format!("job {job}: {verdict}"))?;
    }
    Ok(if fatal { ExitCode::TROUBLE } else { ExitCode::FINE })
}

fn of_rank(options: &VerifyOptions, rank: u32, membership: &ShmMembership) -> anyhow::Result<(Verdict, Vec<Finding>)> {
    let seat = membership.seat(Rank(rank));
    let mut verdict = Verdict {
        rank,
        incarnation: seat.incarnation.0,
        setup_records: 0,
        step_records: 0,
        setup_replayable: false,
        step_replayable: false,
        recoverable: true,
    };
    let finding = |about, what, fatal| Finding { rank, about, sequence: 0, what, fatal };
    if seat.state == SeatState::Left {
        return Ok((verdict, vec![finding("journal", "the rank has finalized; it needs no recovery".to_owned(), false)]));
    }
    if !membership.setup_complete() && !seat.state.is_held() {
        let what = "the rank has not opened its session yet; a failure now starts the whole job again".to_owned();
        return Ok((verdict, vec![finding("journal", what, false)]));
    }
    let place = JournalPlace { job: options.place.job.clone(), rank, incarnation: None };
    let snapshot = match journal::open(&options.dir, &place).and_then(|reader| Ok(reader.snapshot()?)) {
        Ok(snapshot) => snapshot,
        // A rank that was asked for by its number and cannot be looked at is no verdict.
        Err(error) if options.place.rank.is_some() && !journal::is_damage(&error) => return Err(error),
        Err(error) => {
            verdict.recoverable = false;
            return Ok((verdict, vec![finding("journal", format!("{error:#}"), true)]));
        }
    };
    let obstacles = obstacles(&snapshot);
    let damage = journal::damage(&snapshot);
    let free_of = |stage| damage.is_empty() && obstacles.iter().all(|obstacle| obstacle.stage != stage);
    verdict.incarnation = snapshot.identity.incarnation;
    verdict.setup_records = snapshot.setup.len();
    verdict.step_records = snapshot.step.len();
    verdict.setup_replayable = free_of(Stage::Setup);
    verdict.step_replayable = verdict.setup_replayable && free_of(Stage::Step);
    let mut findings: Vec<Finding> = damage.into_iter().map(|what| finding("journal", what, true)).collect();
    findings.extend(obstacles.into_iter().map(|obstacle| of_obstacle(rank, obstacle, membership.options().policy)));
    findings.extend(of_state(rank, &snapshot, membership)?);
    verdict.recoverable = findings.iter().all(|finding| !finding.fatal);
    Ok((verdict, findings))
}

/// A failed device needs the set-up; the open step is needed under policy *replay* only.
fn of_obstacle(rank: u32, obstacle: Obstacle, policy: JobPolicy) -> Finding {
    let what = match obstacle.sequence {
        0 => obstacle.reason,
        sequence if obstacle.request.is_empty() => format!("record {sequence}: {}", obstacle.reason),
        sequence => format!("record {sequence} {}: {}", obstacle.request, obstacle.reason),
    };
    Finding {
        rank,
        about: if obstacle.stage == Stage::Setup { "set-up" } else { "step" },
        sequence: obstacle.sequence,
        what,
        fatal: obstacle.stage == Stage::Setup || policy == JobPolicy::Replay,
    }
}

/// Memory that no recovery restores, and state that one death would lose.
fn of_state(rank: u32, snapshot: &Snapshot, membership: &ShmMembership) -> anyhow::Result<Vec<Finding>> {
    let note = |about, what| Finding { rank, about, sequence: 0, what, fatal: false };
    let Some(bytes) = membership.find_blob_of(Rank(rank), BlobScope::Permanent, &states_key(Rank(rank)))? else {
        let what = "the rank has not passed setup_done, so its state is not known".to_owned();
        return Ok(vec![note("state", what)]);
    };
    let table = StateTable::from_bytes(&bytes);
    let mut findings = Vec::new();
    for (base, bytes) in live_allocations(snapshot) {
        for (address, bytes) in table.gaps(DevicePtr(base), bytes) {
            findings.push(note("memory", format!("{bytes} bytes at {:#x} have no state kind and are not restored", address.0)));
        }
    }
    let cliques = membership.cliques()?;
    for state in table.of_kind(StateKind::Replicated) {
        let clique = cliques.iter().find(|c| Some(c.description.key) == state.clique.map(|key| key.0));
        if clique.is_some_and(|c| c.description.nranks == 1) {
            findings.push(Finding { fatal: true, ..note("state", format!("{:?} has one holder; its death ends the job", state.name)) });
        }
    }
    Ok(findings)
}

fn live_allocations(snapshot: &Snapshot) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for record in &snapshot.setup {
        let (Ok(request), Some(Ok(value))) = (request::decode(record.kind, &record.payload), record.result.map(recorded_value)) else {
            continue;
        };
        match request.call() {
            Call::MemAlloc { bytes } => drop(live.insert(value, bytes)),
            Call::MemFree { address } => drop(live.remove(&address.0)),
            _ => {}
        }
    }
    live
}

fn text(verdict: &Verdict, findings: &[Finding], policy: JobPolicy) -> String {
    let answer = |yes: bool| if yes { "can be replayed" } else { "can NOT be replayed" };
    let step = match (policy, verdict.step_replayable) {
        (JobPolicy::Replay, yes) => answer(yes),
        (JobPolicy::Redo, true) => "can be replayed too, under --policy replay",
        (JobPolicy::Redo, false) => "is run again by the application (policy redo)",
    };
    let mut lines = vec![match verdict.setup_records {
        0 => format!("rank {}:", verdict.rank),
        _ => format!(
            "rank {} (incarnation {}): the set-up of {} records {}; the open step of {} records {step}",
            verdict.rank,
            verdict.incarnation,
            verdict.setup_records,
            answer(verdict.setup_replayable),
            verdict.step_records
        ),
    }];
    for finding in findings {
        lines.push(format!("  {} {}: {}", if finding.fatal { "FATAL" } else { "note" }, finding.about, finding.what));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle(stage: Stage) -> Obstacle {
        Obstacle { stage, sequence: 7, request: "cuLaunchHostFunc()".to_owned(), reason: "a host callback".to_owned() }
    }

    #[test]
    fn an_obstacle_in_the_step_counts_under_policy_replay_only() {
        let fatal = |stage, policy| of_obstacle(0, obstacle(stage), policy).fatal;
        assert!(fatal(Stage::Setup, JobPolicy::Redo) && fatal(Stage::Setup, JobPolicy::Replay));
        assert!(!fatal(Stage::Step, JobPolicy::Redo) && fatal(Stage::Step, JobPolicy::Replay));
    }

    #[test]
    fn a_finding_names_record_request_and_reason() {
        let found = of_obstacle(3, obstacle(Stage::Step), JobPolicy::Redo);
        assert_eq!((found.rank, found.sequence, found.about), (3, 7, "step"));
        assert_eq!(found.what, "record 7 cuLaunchHostFunc(): a host callback");
    }
}
