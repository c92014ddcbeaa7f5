//! A journal in lines: one for each record, lane and live handle, and a last one for the whole. Keys are stable.

use journal_core::Status;
use journal_core::agent::recorded_value;
use journal_core::handle::VirtualHandle;
use journal_core::journal::{Event, LaneReport, Outcome, Owner, Record, Region, Snapshot};
use journal_core::request::{self, argument::kind_name};
use serde::Serialize;

/// One line of `show --format json`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    Record(RecordLine),
    Lane(LaneLine),
    Handle(HandleLine),
    Journal(JournalLine),
}

/// One line of `show --follow --format json`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FollowLine {
    Record(RecordLine),
}

/// One record.
#[derive(Debug, Serialize)]
pub struct RecordLine {
    /// Place in the journal's order; none for a record that was never finished.
    pub sequence: Option<u64>,
    /// setup or step; none for a lost record.
    pub region: Option<&'static str>,
    /// Lane; none for a lost record.
    pub slot: Option<u16>,
    /// committed, absent (its payload is not here), in_flight, torn, lost or corrupt.
    pub outcome: &'static str,
    /// Number of the request; none for a lost record.
    pub opcode: Option<u16>,
    /// The request, or what is wrong with its bytes.
    pub request: String,
    /// ok, or the status of the error; none: the call has not returned.
    pub result: Option<String>,
    /// What the call gave, where it succeeded.
    pub value: Option<u64>,
    /// The value in words.
    #[serde(skip)]
    pub value_text: Option<String>,
}

/// The lane of one thread.
#[derive(Debug, Serialize)]
pub struct LaneLine {
    pub slot: u16,
    /// alive, dead, or none: its owner gave it back.
    pub owner: &'static str,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    /// Owners that died in it before.
    pub deaths: u64,
    /// At most so many sequence numbers were lost by them.
    pub lost: u64,
    /// Set-up records that no replay needed any more and that were left out.
    pub compacted: u64,
    /// Byte from which on it makes no sense.
    pub damaged_at: Option<u64>,
    /// Its owner recycled it under every look, so its records are missing here.
    pub disturbed: bool,
}

/// A handle that is not free.
#[derive(Debug, Serialize)]
pub struct HandleLine {
    /// The value that the application holds.
    pub handle: String,
    pub kind: &'static str,
    pub index: u32,
    pub generation: u32,
    /// The real object, in the writer's process; none until recovery has rebound it.
    pub object: Option<String>,
}

/// A growth segment.
#[derive(Debug, Serialize)]
pub struct GrowthLine {
    pub segment: u32,
    pub bytes: u64,
}

/// The whole.
#[derive(Debug, Serialize)]
pub struct JournalLine {
    pub job: String,
    pub rank: u32,
    pub incarnation: u32,
    pub writer_pid: u32,
    /// The last committed step + 1.
    pub next_step: u64,
    /// Step records below it belong to earlier steps.
    pub boundary_sequence: u64,
    pub setup_records: usize,
    pub step_records: usize,
    /// In flight or torn.
    pub unfinished_records: usize,
    /// Sequence numbers of the open step that nobody has.
    pub lost_records: u64,
    /// Steps that can be begun again from here.
    pub prepared: Vec<u32>,
    pub live_handles: usize,
    /// What the journal does when it is full: error, block:MS, grow:BYTES or spill:/DIRECTORY.
    pub policy: String,
    /// Further segments, in the order they were made.
    pub growth: Vec<GrowthLine>,
    /// Set-up records that compaction has left out.
    pub compacted_records: u64,
    /// The writer left in good order.
    pub finished: bool,
    /// What is damaged; empty if the journal is whole.
    pub damage: Vec<String>,
}

/// All records: those that count in order, then unfinished ones, then what was lost.
pub fn records(snapshot: &Snapshot) -> Vec<RecordLine> {
    let mut counting: Vec<&Record> = snapshot.setup.iter().chain(&snapshot.step).collect();
    counting.sort_by_key(|record| record.sequence);
    let mut lines: Vec<RecordLine> = counting.into_iter().chain(&snapshot.unfinished).map(record).collect();
    if snapshot.lost_count() > 0 {
        lines.extend(snapshot.missing.iter().map(lost));
    }
    lines
}

/// What a follower told; `None` for what this version does not know.
pub fn event(event: &Event) -> Option<RecordLine> {
    match event {
        Event::Record(told) => Some(record(told)),
        Event::Missing(range) => {
            let count = range.end - range.start;
            let request = format!("({count} that will not come: lost with their thread, or over before they were read)");
            Some(RecordLine { request, ..lost(range) })
        }
        _ => None,
    }
}

fn record(record: &Record) -> RecordLine {
    let decoded = request::decode(record.kind, &record.payload);
    let returned = record.result.map(recorded_value);
    let value = returned.and_then(Result::ok);
    let in_words = |value| decoded.as_ref().ok()?.as_request().result_text(value);
    RecordLine {
        sequence: (record.sequence.0 != 0).then_some(record.sequence.0),
        region: Some(if record.region == Region::Setup { "setup" } else { "step" }),
        slot: Some(record.slot),
        outcome: outcome(record.outcome),
        opcode: Some(record.kind),
        value_text: value.and_then(in_words),
        request: match &decoded {
            _ if record.outcome == Outcome::Absent => match request::decode_absent(record.kind, &record.payload) {
                Ok(absent) => absent.to_string(),
                Err(_) => "(its payload was not recorded, only length and checksum)".to_owned(),
            },
            Ok(request) => request.to_string(),
            Err(error) => format!("({error})"),
        },
        result: returned.map(|returned| returned.map_or_else(status_name, |_| "ok".to_owned())),
        value,
    }
}

fn lost(range: &std::ops::Range<u64>) -> RecordLine {
    let count = range.end - range.start;
    RecordLine {
        sequence: Some(range.start),
        region: None,
        slot: None,
        outcome: outcome(Outcome::Lost),
        opcode: None,
        request: format!("({count} that a dead thread had begun)"),
        result: None,
        value: None,
        value_text: None,
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::InFlight => "in_flight",
        Outcome::Torn => "torn",
        Outcome::Lost => "lost",
        Outcome::Corrupt => "corrupt",
        Outcome::Absent => "absent",
        _ => "unknown",
    }
}

/// `StaleHandle` as `stale_handle`; a number that no status has as it is.
fn status_name(status: i32) -> String {
    let Some(status) = Status::from_number(status) else { return format!("status_{status}") };
    let mut name = String::new();
    for letter in format!("{status:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// A lane.
pub fn lane(lane: &LaneReport) -> LaneLine {
    let (owner, who) = match lane.owner {
        Owner::None => ("none", None),
        Owner::Alive { pid, tid } => ("alive", Some((pid, tid))),
        Owner::Dead { pid, tid } => ("dead", Some((pid, tid))),
    };
    LaneLine {
        slot: lane.slot,
        owner,
        pid: who.map(|(pid, _)| pid),
        tid: who.map(|(_, tid)| tid),
        deaths: lane.deaths,
        lost: lane.lost,
        compacted: lane.compacted,
        damaged_at: lane.damaged_at,
        disturbed: lane.disturbed,
    }
}

/// A live handle.
pub fn handle((handle, object): &(VirtualHandle, Option<u64>)) -> HandleLine {
    HandleLine {
        handle: format!("{:#x}", handle.0),
        kind: handle.kind().map_or("unknown", kind_name),
        index: handle.index(),
        generation: handle.generation(),
        object: object.map(|object| format!("{object:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal_core::journal::Sequence;

    fn row(result: Option<u64>, kind: u16) -> RecordLine {
        let record_ = Record {
            sequence: Sequence(7),
            kind,
            flags: 0,
            region: Region::Step,
            slot: 2,
            payload: vec![0xff; 9],
            result,
            outcome: Outcome::Committed,
        };
        record(&record_)
    }

    #[test]
    fn a_record_of_unknown_kind_or_wrong_bytes_is_shown_with_what_is_wrong() {
        for kind in [0, 0x0701, 0xffff] {
            let line = row(Some(0), kind);
            assert!(line.request.starts_with('('), "{line:?}");
            assert_eq!((line.sequence, line.region, line.slot, line.opcode), (Some(7), Some("step"), Some(2), Some(kind)));
        }
    }

    #[test]
    fn a_call_that_has_not_returned_is_told_from_one_that_failed() {
        assert_eq!(row(None, 1).result, None);
        assert_eq!(row(Some(5), 1).value, Some(5));
        let failed = row(Some(1 << 61 | Status::StaleHandle as u64), 1);
        assert_eq!((failed.result.as_deref(), failed.value), (Some("stale_handle"), None));
        assert_eq!(row(Some(1 << 61 | 99_999), 1).result.as_deref(), Some("status_99999"));
    }
}
