//! The journal: what a rank asked for, in shared memory that outlives it.
//!
//! ```text
//! Journal ── context (this thread's lane) ── lane ── chunk            append: committed before the call is issued
//!    │                                         └── arena              payloads larger than a chunk
//!    ├── compact (set-up records that no replay needs any more)
//!    ├── step (boundary)     prepared (blob and per-rank state, two slots)
//!    └── claim ── reap       take a slot, seal what a dead owner left
//! growth (further segments)     policy (what a full journal does)
//! JournalReader ── scan ── snapshot / follow (doorbell)               live, or after the writer's death
//! segment, header, layout, store: the bytes below all of it
//! ```
//!
//! Format and proofs: `docs/journal-format.md`.

mod format_1;
pub mod layout;
pub mod name;
mod segment_error;
#[allow(unsafe_code)]
pub mod segment;
pub mod identity;
mod policy;
pub mod header;
pub mod store;

#[allow(unsafe_code)]
pub mod checksum;
mod append_error;
pub mod chunk;
pub mod lane;
pub mod arena;
pub mod compact;
pub mod step;
pub mod prepared;

#[allow(unsafe_code)]
mod lock;
mod claim;
#[allow(unsafe_code)]
mod context;
pub mod reap;
pub mod directory;
mod growth;
#[allow(unsafe_code)]
pub mod doorbell;
mod writer;

pub mod record;
pub mod scan;
mod snapshot;
mod reader;
mod follow;

pub use append_error::AppendError;
pub use compact::Compaction;
pub use follow::{Event, Follower};
pub use growth::{remove, remove_growth};
pub use identity::JournalIdentity;
pub use lane::RecordRef;
pub use name::{SegmentName, SegmentRole};
pub use policy::{OverflowPolicy, ParsePolicyError};
pub use prepared::Prepared;
pub use reader::{JournalReader, LoadError};
pub use record::{Outcome, Record, RecordView};
pub use segment::SharedSegment;
pub use segment_error::SegmentError;
pub use snapshot::{LaneReport, Owner, Snapshot};
pub use step::Boundary;
pub use writer::{Journal, JournalOptions};

/// Place in a journal's total order, from 1; 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Sequence(pub u64);

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a record counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Region {
    /// For the life of the job.
    Setup = 0,
    /// Until the step's commit.
    Step = 1,
}

impl Region {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Setup, Self::Step];

    /// As in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Setup => "the set-up region",
            Self::Step => "the step region",
        }
    }
}
