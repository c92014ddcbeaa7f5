//! A record as a reader gets it: copied out, checked, told what became of it.

use super::{Region, Sequence};

/// What a reader can say about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Whole; its call may have been issued.
    Committed,
    /// Being written by a live owner; its call has not been issued.
    InFlight,
    /// Whole, but for its payload's bytes, of which it holds length and checksum; see
    /// [`Journal::append_absent`](super::Journal::append_absent). It cannot be replayed.
    Absent,
    /// Its owner died while writing it; its call was never issued.
    Torn,
    /// Its sequence number was taken, and its torn record has been sealed or recycled.
    Lost,
    /// The checksum or the framing is wrong: memory was changed by something else.
    Corrupt,
}

/// A record borrowed from a scan.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    /// Place in the journal's order; 0 for in-flight and torn records.
    pub sequence: Sequence,
    /// Opcode.
    pub kind: u16,
    /// Caller's flags.
    pub flags: u16,
    /// Set-up or step.
    pub region: Region,
    /// Slot whose lane holds it.
    pub slot: u16,
    /// Payload; what a torn record holds was never verified.
    pub payload: &'a [u8],
    /// What the call gave; `None` = it has not returned.
    pub result: Option<u64>,
    /// What became of it.
    pub outcome: Outcome,
}

impl RecordView<'_> {
    /// Keeps it.
    pub fn to_record(&self) -> Record {
        Record {
            sequence: self.sequence,
            kind: self.kind,
            flags: self.flags,
            region: self.region,
            slot: self.slot,
            payload: self.payload.to_vec(),
            result: self.result,
            outcome: self.outcome,
        }
    }
}

/// A record of one's own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Record {
    pub sequence: Sequence,
    pub kind: u16,
    pub flags: u16,
    pub region: Region,
    pub slot: u16,
    pub payload: Vec<u8>,
    pub result: Option<u64>,
    pub outcome: Outcome,
}
