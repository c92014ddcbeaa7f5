//! Whether a journal can be replayed, told before anything fails.

use crate::agent::recorded_value;
use crate::error::Status;
use crate::journal::{Outcome, Record, Snapshot};
use crate::request::{self, Class, OpCode, OwnedRequest, Reason, Rule, Stage};

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
    let open_step = snapshot.step.iter().rposition(|r| r.kind == OpCode::StepBegin as u16).map_or(0, |at| at + 1);
    let setup = snapshot.setup.iter().map(|record| (Stage::Setup, record));
    let step = snapshot.step.iter().skip(open_step).map(|record| (Stage::Step, record));
    for (stage, record) in setup.chain(step) {
        found.extend(obstacle(stage, record));
    }
    found
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
/// what a recovery interrupted.
pub(super) fn counts(stage: Stage, record: &Record, request: &OwnedRequest) -> bool {
    let result = record.result.map(recorded_value);
    match stage {
        Stage::Setup => matches!(result, Some(Ok(_))),
        Stage::Step => {
            let issued = result.is_none_or(|r| r.map_or_else(|status| status == Status::Redo as i32, |_| true));
            issued && !matches!(request.as_request().row().class, Class::Setup | Class::Teardown | Class::Query)
        }
    }
}
