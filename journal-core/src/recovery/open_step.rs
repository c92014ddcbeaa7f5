//! The open step, as a replay of it needs it.

use std::collections::HashSet;

use super::replay::{decode, succeeded};
use super::replayable;
use crate::error::Error;
use crate::handle::VirtualHandle;
use crate::journal::{Record, Snapshot};
use crate::request::{Call, Class, OpCode, OwnedRequest, Rule, Stage};

/// What to issue again, and what has to be there for it.
#[derive(Default)]
pub(super) struct OpenStep {
    /// Earlier requests that made objects which the step has ended.
    pub needed: Vec<(Record, OwnedRequest)>,
    /// The step's requests since its begin, in order, with the values they gave.
    pub requests: Vec<(Record, OwnedRequest, u64)>,
    /// Addresses that the step has allocated.
    pub allocated: HashSet<u64>,
}

impl OpenStep {
    /// Of a whole journal; the error names what cannot be replayed.
    pub(super) fn of(snapshot: &Snapshot) -> Result<Self, Error> {
        let mut step = Self::default();
        let mut ended: HashSet<VirtualHandle> = HashSet::new();
        for record in replayable::of_open_step(snapshot) {
            let request = decode(record)?;
            if !replayable::counts(Stage::Step, record, &request) {
                continue;
            }
            let borrowed = request.as_request();
            if let Rule::Refuse(reason) = borrowed.rule(Stage::Step) {
                return Err(refused(record, &request, &reason.to_string()));
            }
            let value = succeeded(record)?.map_or(0, |(_, value)| value);
            match borrowed.call() {
                Call::MemAlloc { .. } | Call::NcclMemAlloc { .. } => drop(step.allocated.insert(value)),
                Call::MemFree { address } | Call::NcclMemFree { address } if !step.allocated.contains(&address.0) => {
                    return Err(refused(record, &request, replayable::FREES_OLDER_MEMORY));
                }
                _ => {}
            }
            ended.extend(borrowed.row().destroys().filter_map(|(position, _)| Some(VirtualHandle(borrowed.word(position)?))));
            step.requests.push((record.clone(), request, value));
        }
        if !ended.is_empty() {
            step.needed = makers(snapshot, &ended)?;
        }
        Ok(step)
    }
}

fn refused(record: &Record, request: &OwnedRequest, reason: &str) -> Error {
    Error::NotRecoverable { what: format!("record {} ({}) cannot be replayed: {reason}", record.sequence, request.as_request()) }
}

/// Requests before the open step that made one of `ended`, or a function of such a module.
fn makers(snapshot: &Snapshot, ended: &HashSet<VirtualHandle>) -> Result<Vec<(Record, OwnedRequest)>, Error> {
    let begin = replayable::begin_of_open_step(snapshot);
    let mut found = Vec::new();
    for record in snapshot.setup.iter().filter(|record| Some(record.sequence) < begin) {
        let is_maker = OpCode::from_code(record.kind).is_some_and(|op| op.row().class == Class::Setup && op.row().creates().next().is_some());
        let Some((request, _)) = (if is_maker { succeeded(record)? } else { None }) else { continue };
        let borrowed = request.as_request();
        let names = |position: usize| borrowed.word(position).is_some_and(|word| ended.contains(&VirtualHandle(word)));
        let makes = borrowed.row().creates().any(|(position, _)| names(position));
        if makes || matches!(borrowed.call(), Call::ModuleGetFunction { module, .. } if ended.contains(&module)) {
            found.push((record.clone(), request));
        }
    }
    Ok(found)
}
