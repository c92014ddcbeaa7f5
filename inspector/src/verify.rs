//! `rejoin verify JOB`: whether the journals of a job could be replayed now, and what a recovery could not restore.

use crate::cli::{JournalPlace, VerifyOptions};
use crate::exit_code::ExitCode;
use crate::output::{self, Format};
use crate::show;
use anyhow::Context;
use journal_core::agent::recorded_value;
use journal_core::backend::DevicePtr;
use journal_core::journal::Snapshot;
use journal_core::membership::{BlobScope, JobPolicy, Membership, Rank, ShmMembership};
use journal_core::recovery::replayable::obstacles;
use journal_core::recovery::states_key;
use journal_core::request::{self, Call, Stage};
use journal_core::session::state::{StateKind, StateTable};
use serde::Serialize;
use std::collections::BTreeMap;

/// Something that a recovery could not do.
#[derive(Debug, Serialize)]
struct Finding {
    rank: u32,
    /// set-up, step, memory or state.
    about: &'static str,
    /// 0 where it is not about one record.
    sequence: u64,
    what: String,
    /// It stands against a recovery of this job as it was started.
    fatal: bool,
}

/// Prints what was found; exit 1 if something of it is fatal.
pub fn command(options: &VerifyOptions) -> anyhow::Result<ExitCode> {
    let membership = ShmMembership::open_read_only(&options.dir, &options.job)
        .with_context(|| format!("cannot look at job {} in {}", options.job, options.dir.display()))?;
    let mut findings = Vec::new();
    for rank in 0..membership.nranks() {
        let place = JournalPlace { job: options.job.clone(), rank, incarnation: None };
        let snapshot = show::open(&options.dir, &place)?.snapshot()?;
        findings.extend(of_journal(rank, &snapshot, membership.options().policy));
        findings.extend(of_state(rank, &snapshot, &membership)?);
    }
    let fatal = findings.iter().any(|finding| finding.fatal);
    match options.format {
        Format::Json => findings.iter().try_for_each(output::json)?,
        Format::Text => {
            for finding in &findings {
                let note = if finding.fatal { "" } else { " (a note)" };
                output::line(&format!("rank {} {}: {}{note}", finding.rank, finding.about, finding.what))?;
            }
            let verdict = if fatal { "cannot be recovered in every case: see above" } else { "can be replayed" };
            output::line(&format!("job {}: {verdict}", options.job))?;
        }
    }
    Ok(if fatal { ExitCode::TROUBLE } else { ExitCode::FINE })
}

/// A failed device needs the set-up; the open step is needed under policy *replay* only.
fn of_journal(rank: u32, snapshot: &Snapshot, policy: JobPolicy) -> Vec<Finding> {
    let finding = |obstacle: journal_core::recovery::replayable::Obstacle| Finding {
        rank,
        about: if obstacle.stage == Stage::Setup { "set-up" } else { "step" },
        sequence: obstacle.sequence,
        what: format!("record {} {}: {}", obstacle.sequence, obstacle.request, obstacle.reason),
        fatal: obstacle.stage == Stage::Setup || policy == JobPolicy::Replay,
    };
    obstacles(snapshot).into_iter().map(finding).collect()
}

/// Memory that no recovery restores, and state that one death would lose.
fn of_state(rank: u32, snapshot: &Snapshot, membership: &ShmMembership) -> anyhow::Result<Vec<Finding>> {
    let Some(bytes) = membership.find_blob_of(Rank(rank), BlobScope::Permanent, &states_key(Rank(rank)))? else {
        let what = "the rank has not passed setup_done, so its state is not known".to_owned();
        return Ok(vec![Finding { rank, about: "state", sequence: 0, what, fatal: false }]);
    };
    let table = StateTable::from_bytes(&bytes);
    let note = |about, what| Finding { rank, about, sequence: 0, what, fatal: false };
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
