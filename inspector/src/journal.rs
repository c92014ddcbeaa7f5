//! Journals as the inspector opens them: by job, rank and incarnation, read-only, and what is wrong with one.

use crate::cli::JournalPlace;
use anyhow::{Context, bail};
use journal_core::Status;
use journal_core::journal::{JournalReader, LoadError, Outcome, Owner, SegmentError, SegmentName, SegmentRole, Snapshot};
use std::path::Path;

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

/// The bytes are not what a writer leaves; any other reason is that it could not be looked at.
pub fn is_damage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let loaded = cause.downcast_ref::<LoadError>().is_some_and(|error| error.status() == Status::Corrupt);
        loaded || cause.downcast_ref::<SegmentError>().is_some_and(|error| error.status() == Status::Corrupt)
    })
}

/// What is damaged or missing in a journal, in words; empty if it is whole.
pub fn damage(snapshot: &Snapshot) -> Vec<String> {
    let records = [&snapshot.setup, &snapshot.step, &snapshot.unfinished].into_iter().flatten();
    let corrupt = records.filter(|record| record.outcome == Outcome::Corrupt);
    let mut found: Vec<String> = corrupt.map(|record| format!("record {} in lane {} is corrupt", record.sequence, record.slot)).collect();
    for lane in &snapshot.lanes {
        found.extend(lane.damaged_at.map(|at| format!("lane {} makes no sense from byte {at:#x} on", lane.slot)));
    }
    if let Some(from) = snapshot.incomplete_from {
        found.push(format!("records from {from} on were dropped, {} in all", snapshot.dropped));
    }
    // A live writer may take a number between two looks.
    let alive = snapshot.lanes.iter().any(|lane| matches!(lane.owner, Owner::Alive { .. }));
    if !alive && snapshot.has_unknown_gap() {
        found.push(format!("{} sequence numbers are missing, more than deaths explain", snapshot.missing_count()));
    }
    found
}
