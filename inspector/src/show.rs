//! `rejoin show JOB/RANK`: the journal of a rank, read-only, live or after its writer's death.

use crate::cli::{JournalPlace, ShowOptions};
use crate::exit_code::ExitCode;
use crate::output::{self, Format};
use anyhow::{Context, bail};
use journal_core::agent::recorded_value;
use journal_core::journal::{JournalReader, Owner, Record, Region, SegmentName, SegmentRole, Snapshot};
use journal_core::request;
use serde::Serialize;
use std::path::Path;

/// One record of a journal.
#[derive(Debug, Serialize)]
struct Row {
    sequence: u64,
    region: &'static str,
    outcome: String,
    slot: u16,
    /// The request, or what is wrong with its bytes.
    request: String,
    /// `ok`, `ok VALUE`, `failed STATUS`, or empty: the call has not returned.
    result: String,
}

/// Opens the journal of a place, the newest incarnation if none is named.
pub fn open(dir: &Path, place: &JournalPlace) -> anyhow::Result<JournalReader> {
    let incarnation = match place.incarnation {
        Some(incarnation) => incarnation,
        None => newest(dir, place)?,
    };
    let name = SegmentName::journal(&place.job, place.rank, incarnation)?;
    JournalReader::open_in(dir, &name).with_context(|| format!("cannot read the journal {}", name.path_in(dir).display()))
}

fn newest(dir: &Path, place: &JournalPlace) -> anyhow::Result<u32> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let names = entries.filter_map(|entry| SegmentName::parse(&entry.ok()?.file_name().into_string().ok()?).ok());
    let of_rank = names.filter(|name| name.job() == place.job).filter_map(|name| match name.role() {
        SegmentRole::Journal { rank, incarnation, growth: 0 } if rank == place.rank => Some(incarnation),
        _ => None,
    });
    match of_rank.max() {
        Some(incarnation) => Ok(incarnation),
        None => bail!("there is no journal of job {} rank {} in {}", place.job, place.rank, dir.display()),
    }
}

/// Prints a journal; exit 1 if a record of it is damaged.
pub fn command(options: &ShowOptions) -> anyhow::Result<ExitCode> {
    let reader = open(&options.dir, &options.journal)?;
    let snapshot = reader.snapshot()?;
    let prepared: Vec<u32> = reader.prepared()?.iter().map(|prepared| prepared.step).collect();
    let mut records: Vec<&Record> = snapshot.setup.iter().chain(&snapshot.step).collect();
    records.sort_by_key(|record| record.sequence);
    let rows: Vec<Row> = records.into_iter().chain(&snapshot.unfinished).map(row).collect();
    match options.format {
        Format::Json => rows.iter().try_for_each(output::json)?,
        Format::Text => {
            output::line(&head(&snapshot, &prepared))?;
            let cells = |r: &Row| vec![r.sequence.to_string(), r.region.to_owned(), r.outcome.clone(), r.request.clone(), r.result.clone()];
            let title = ["seq", "region", "outcome", "request", "result"].map(str::to_owned).into();
            let table: Vec<Vec<String>> = std::iter::once(title).chain(rows.iter().map(cells)).collect();
            output::line(&output::table(&table))?;
        }
    }
    let damaged = rows.iter().any(|row| row.outcome == "corrupt") || snapshot.lanes.iter().any(|lane| lane.damaged_at.is_some());
    Ok(if damaged { ExitCode::TROUBLE } else { ExitCode::FINE })
}

fn row(record: &Record) -> Row {
    let request = match request::decode(record.kind, &record.payload) {
        Ok(request) => request.to_string(),
        Err(error) => format!("({error})"),
    };
    let result = match record.result.map(recorded_value) {
        None => String::new(),
        Some(Ok(0)) => "ok".to_owned(),
        Some(Ok(value)) => format!("ok {value:#x}"),
        Some(Err(status)) => format!("failed {status}"),
    };
    Row {
        sequence: record.sequence.0,
        region: if record.region == Region::Setup { "setup" } else { "step" },
        outcome: format!("{:?}", record.outcome).to_lowercase(),
        slot: record.slot,
        request,
        result,
    }
}

fn head(snapshot: &Snapshot, prepared: &[u32]) -> String {
    let identity = &snapshot.identity;
    let mut lines = vec![format!(
        "rank {} incarnation {}: {} set-up and {} step records, next step {}, PREPARED for {prepared:?}{}",
        identity.rank,
        identity.incarnation,
        snapshot.setup.len(),
        snapshot.step.len(),
        snapshot.boundary.next_step.unwrap_or(0),
        if snapshot.finished { ", finished in good order" } else { "" }
    )];
    for lane in &snapshot.lanes {
        let owner = match lane.owner {
            Owner::None => "free".to_owned(),
            Owner::Alive { pid, tid } => format!("alive (pid {pid}, thread {tid})"),
            Owner::Dead { pid, tid } => format!("dead (pid {pid}, thread {tid})"),
        };
        lines.push(format!("  lane {}: {owner}, {} deaths before, at most {} sequence numbers lost", lane.slot, lane.deaths, lane.lost));
    }
    if let Some(from) = snapshot.incomplete_from {
        lines.push(format!("  INCOMPLETE from record {from} on: it cannot be replayed"));
    }
    lines.join("\n")
}
