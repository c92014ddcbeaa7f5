//! Whether a journal can be replayed, told before anything fails.

use std::collections::{BTreeMap, HashSet};

use crate::agent::recorded_value;
use crate::error::Status;
use crate::journal::{Outcome, Record, Sequence, Snapshot};
use crate::nccl::clique::CliqueKey;
use crate::request::{self, Call, Class, OpCode, OwnedRequest, Reason, Rule, Stage};
use crate::session::state::{State, StateKind, StateTable};

/// A reason why a stage of a replay cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Set-up (a failed device) or step (policy replay).
    pub stage: Stage,
    /// The record's sequence; 0 where it is not about one record.
    pub sequence: u64,
    /// The request as text; empty where it is not about one.
    pub request: String,
    /// Why.
    pub reason: String,
}

/// Everything in a journal that stands against a replay, in the order of the journal.
pub fn obstacles(snapshot: &Snapshot) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if let Some(from) = snapshot.incomplete_from {
        let reason = format!("records were dropped from {from} on");
        found.push(Obstacle { stage: Stage::Setup, sequence: from.0, request: String::new(), reason });
    }
    found.extend(snapshot.setup.iter().filter_map(|record| match record.outcome {
        Outcome::Absent => unrecorded(snapshot, record),
        _ => obstacle(Stage::Setup, record),
    }));
    let mut allocated = HashSet::new();
    for record in of_open_step(snapshot) {
        found.extend(obstacle(Stage::Step, record).or_else(|| frees_older_memory(record, &mut allocated)));
    }
    found
}

/// Why a replay of the set-up cannot do without the bytes of an absent record. What they filled may have its content from
/// elsewhere: from a donor, from PREPARED, or it is zeroed. (What was computed from them meanwhile is checked: constants
/// have a sum of their first content.)
pub(super) fn unrecorded(snapshot: &Snapshot, record: &Record) -> Option<Obstacle> {
    let about = |request: String, reason| Some(Obstacle { stage: Stage::Setup, sequence: record.sequence.0, request, reason });
    let Ok(absent) = request::decode_absent(record.kind, &record.payload) else {
        return about(String::new(), Reason::BytesNotRecorded.to_string());
    };
    if !matches!(record.result.map(recorded_value), Some(Ok(_))) {
        return None;
    }
    let target = match absent.head.call() {
        Call::MemcpyHtoD { dst, .. } | Call::MemcpyHtoDAsync { dst, .. } => dst,
        _ => return about(absent.to_string(), Reason::BytesNotRecorded.to_string()),
    };
    let (live, restored) = memory_of_setup(snapshot);
    let (from, to) = (target.0, target.0.saturating_add(absent.bytes));
    if !live.iter().any(|(base, bytes)| *base <= from && to <= base.saturating_add(*bytes)) {
        return None;
    }
    let (address, bytes) = *restored.gaps(target, absent.bytes).first()?;
    about(
        absent.to_string(),
        format!(
            "the journal had no room for its bytes, and {bytes} of them at {:#x} are in no state that another rank holds; register              them with a communicator, or give the journal more room (REJOIN_JOURNAL_BYTES, REJOIN_JOURNAL_POLICY=spill:/DIR)",
            address.0
        ),
    )
}

/// Memory that is allocated at the end of the set-up, and the states in it whose content comes from elsewhere.
fn memory_of_setup(snapshot: &Snapshot) -> (BTreeMap<u64, u64>, StateTable) {
    let (mut live, mut restored) = (BTreeMap::new(), StateTable::default());
    for record in snapshot.setup.iter().filter(|record| record.outcome == Outcome::Committed) {
        let (Some(Ok(value)), Ok(request)) = (record.result.map(recorded_value), request::decode(record.kind, &record.payload)) else { continue };
        match request.call() {
            Call::MemAlloc { bytes } | Call::NcclMemAlloc { bytes } => drop(live.insert(value, bytes)),
            Call::MemFree { address } | Call::NcclMemFree { address } => drop(live.remove(&address.0)),
            Call::StateRegister { address, bytes, kind, clique, name } => {
                let Some(kind) = StateKind::from_number(kind) else { continue };
                if kind == StateKind::Constant && clique.0 == 0 {
                    continue;
                }
                // Only the ranges are asked for; a clique stands for having one.
                let state = State { name: name.to_owned(), address, bytes, kind, clique: Some(CliqueKey([0; 16])), foreign: false };
                let _ = restored.register(state);
            }
            _ => {}
        }
    }
    (live, restored)
}

/// Stage 2 could make such memory again, but not what was in it.
pub(super) const FREES_OLDER_MEMORY: &str = "the step frees memory that it has not allocated; free it between steps";

fn frees_older_memory(record: &Record, allocated: &mut HashSet<u64>) -> Option<Obstacle> {
    let Some(Ok(value)) = record.result.map(recorded_value) else { return None };
    let request = request::decode(record.kind, &record.payload).ok()?;
    match request.call() {
        Call::MemAlloc { .. } | Call::NcclMemAlloc { .. } => drop(allocated.insert(value)),
        Call::MemFree { address } | Call::NcclMemFree { address } if !allocated.contains(&address.0) => {
            let reason = FREES_OLDER_MEMORY.to_owned();
            return Some(Obstacle { stage: Stage::Step, sequence: record.sequence.0, request: request.to_string(), reason });
        }
        _ => {}
    }
    None
}

/// The sequence of the open step's begin.
pub(super) fn begin_of_open_step(snapshot: &Snapshot) -> Option<Sequence> {
    snapshot.step.iter().rfind(|record| record.kind == OpCode::StepBegin as u16).map(|record| record.sequence)
}

/// All records since the open step's begin, in order: its own, and those of objects that it made or ended, which outlive
/// it in the set-up region.
pub(super) fn of_open_step(snapshot: &Snapshot) -> Vec<&Record> {
    let begin = begin_of_open_step(snapshot);
    // Without a begin the step region holds what was issued between steps.
    let made_or_ended = snapshot.setup.iter().filter(|record| begin.is_some_and(|begin| record.sequence > begin));
    let mut records: Vec<&Record> = snapshot.step.iter().filter(|record| Some(record.sequence) > begin).chain(made_or_ended).collect();
    records.sort_unstable_by_key(|record| record.sequence);
    records
}

fn obstacle(stage: Stage, record: &Record) -> Option<Obstacle> {
    let about = |request: String, reason: String| Some(Obstacle { stage, sequence: record.sequence.0, request, reason });
    if record.outcome == Outcome::Corrupt {
        return about(String::new(), "the record is corrupt".to_owned());
    }
    if record.outcome == Outcome::Absent {
        return about(String::new(), Reason::BytesNotRecorded.to_string());
    }
    let request = match request::decode(record.kind, &record.payload) {
        Ok(request) => request,
        Err(error) => return about(String::new(), error.to_string()),
    };
    if !counts(stage, record, &request) {
        return None;
    }
    match request.as_request().rule(stage) {
        Rule::Refuse(reason) => about(request.to_string(), reason.to_string()),
        _ => None,
    }
}

/// Whether a replay of `stage` looks at this request at all: in the set-up only what succeeded; in the step also
/// what a recovery interrupted, unless it makes or ends an object (its caller does that again).
pub(super) fn counts(stage: Stage, record: &Record, request: &OwnedRequest) -> bool {
    let result = record.result.map(recorded_value);
    match stage {
        Stage::Setup => matches!(result, Some(Ok(_))),
        Stage::Step => {
            let issued = result.is_none_or(|r| r.map_or_else(|status| status == Status::Redo as i32, |_| true));
            match request.as_request().row().class {
                Class::Query => false,
                Class::Setup | Class::Teardown => matches!(result, Some(Ok(_))),
                _ => issued,
            }
        }
    }
}
