//! The journal as others see it: mapped read-only, while its writer lives or after its death.

use std::path::Path;

use super::layout::FINISHED;
use super::name::SHARED_MEMORY_DIR;
use super::store::{Memory, Store};
use super::{Boundary, Follower, JournalIdentity, OverflowPolicy, Prepared, SegmentError, SegmentName, SharedSegment, Snapshot, header, lock, prepared, snapshot};
use crate::handle::{HandleTable, NoSeat, VirtualHandle};
use crate::sync::Ordering;

/// Looks at PREPARED that a writer may disturb before the reader takes what it has.
const RETRIES: u32 = 64;

/// A journal opened for reading.
#[derive(Debug)]
pub struct JournalReader {
    store: Store<Memory>,
    identity: JournalIdentity,
    futex_offset: u8,
    policy: OverflowPolicy,
}

/// Why a journal could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be opened, is not a journal of this format, or is gone.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl LoadError {
    /// The status of the C ABI.
    pub fn status(&self) -> crate::Status {
        match self {
            Self::Segment(error) => error.status(),
        }
    }
}

impl JournalReader {
    /// Opens a journal of /dev/shm.
    pub fn open(name: &SegmentName) -> Result<Self, LoadError> {
        Self::open_in(Path::new(SHARED_MEMORY_DIR), name)
    }

    /// Opens a journal, or a copy of one, in `dir`.
    pub fn open_in(dir: &Path, name: &SegmentName) -> Result<Self, LoadError> {
        let segment = SharedSegment::open_read_only(dir, name)?;
        let checked = header::check_base(&segment)?;
        Ok(Self {
            store: Store::growing(Memory::new(segment), checked.geometry),
            identity: checked.identity,
            futex_offset: checked.futex_offset,
            policy: checked.policy,
        })
    }

    pub(super) fn store(&self) -> &Store<Memory> {
        &self.store
    }

    pub(super) fn futex_offset(&self) -> u8 {
        self.futex_offset
    }

    pub(super) fn check_len(&self) -> Result<(), LoadError> {
        Ok(self.store.memory().base().check_len()?)
    }

    /// What the journal does when it is full.
    pub fn policy(&self) -> &OverflowPolicy {
        &self.policy
    }

    /// Number and bytes of each growth segment in use.
    pub fn growth_segments(&self) -> Vec<(u32, u64)> {
        super::growth::describe(&self.store)
    }

    /// Whether nobody will write any more: the writer finished in good order, or its process and every lane's owner
    /// are gone. A copy of a journal has ended.
    pub fn writer_ended(&self) -> bool {
        let is_copy = self.store.memory().base().dir() != Path::new(SHARED_MEMORY_DIR);
        if is_copy || self.store.word(FINISHED).load(Ordering::Acquire) == 1 {
            return true;
        }
        let slots = 0..self.store.base().max_slots as u16;
        let mut holders = slots.map(|slot| lock::holder(&self.store, self.store.base().slot(slot), self.futex_offset));
        self.identity.creator_is_gone() && !holders.any(|holder| matches!(holder, lock::Holder::Alive(_)))
    }

    /// Follows the journal from its first set-up record and the open step on.
    pub fn follow(self) -> Follower {
        Follower::new(self)
    }

    /// Whose journal it is.
    pub fn identity(&self) -> &JournalIdentity {
        &self.identity
    }

    /// The open step's beginning.
    pub fn boundary(&self) -> Boundary {
        Boundary::read(&self.store)
    }

    /// All records that count, in order.
    pub fn snapshot(&self) -> Result<Snapshot, LoadError> {
        self.store.memory().base().check_len()?;
        let snapshot = snapshot::take(&self.store, &self.identity, self.futex_offset);
        self.store.memory().base().check_len()?;
        Ok(snapshot)
    }

    /// The PREPARED contents (of two steps at most), of a live or a dead writer.
    pub fn prepared(&self) -> Result<Vec<Prepared>, LoadError> {
        let mut left = RETRIES;
        loop {
            self.store.memory().base().check_len()?;
            let steps = prepared::steps(&self.store);
            let found: Vec<Prepared> = steps.iter().filter_map(|step| prepared::read(&self.store, *step)).collect();
            left -= 1;
            // A live writer may have gone on to later steps between the two looks; what is damaged stays away.
            if found.len() == steps.len() || left == 0 || steps == prepared::steps(&self.store) {
                return Ok(found);
            }
        }
    }

    /// Handles that are not free, and the object of each where it has one now.
    pub fn live_handles(&self) -> Result<Vec<(VirtualHandle, Option<u64>)>, LoadError> {
        self.store.memory().base().check_len()?;
        Ok(HandleTable::new(&self.store, &NoSeat).live())
    }
}
