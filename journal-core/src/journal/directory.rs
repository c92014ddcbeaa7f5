//! The states of an entry of the segment directory: what is said before a segment has a name, and when it may be mapped.
//!
//! ```text
//! EMPTY --announce: place, creator, bytes, chunks--> CREATING --publish: the segment has its name--> READY
//! ```

use super::layout::{DIRECTORY_CONTENTS, DIRECTORY_LEN, DIRECTORY_PLACE, SEGMENT_CREATING, SEGMENT_READY};
use crate::sync::{AtomicU64, Ordering, ordered};

const fn field(at: u64) -> usize {
    (at / 8) as usize
}

/// What an entry says about its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// 1 = in the spill directory.
    pub place: u32,
    /// Process that made it.
    pub creator: u32,
    /// Bytes.
    pub len: u64,
    /// Chunks.
    pub chunks: u64,
}

/// Says who is about to make what. Under the admin lock.
pub fn announce(entry: &[AtomicU64], what: &Description) {
    entry[field(DIRECTORY_PLACE)].store(u64::from(what.place) | u64::from(what.creator) << 32, Ordering::Relaxed);
    entry[field(DIRECTORY_LEN)].store(what.len, Ordering::Relaxed);
    entry[field(DIRECTORY_CONTENTS)].store(what.chunks, Ordering::Relaxed);
    // SYNC: Release; pairs with the Acquire in `described`: who finds CREATING finds its creator.
    entry[0].store(SEGMENT_CREATING, ordered("segment creating", Ordering::Release));
}

/// The segment has its name and header. Under the admin lock.
pub fn publish(entry: &[AtomicU64]) {
    // SYNC: Release; pairs with the Acquire in `described`: who finds READY finds the segment.
    entry[0].store(SEGMENT_READY, ordered("segment ready", Ordering::Release));
}

/// Whether the entry's segment is ready, and what it is; `None` for an empty entry.
pub fn described(entry: &[AtomicU64]) -> Option<(bool, Description)> {
    // SYNC: Acquire; pairs with the Releases above.
    let state = entry[0].load(ordered("segment look", Ordering::Acquire));
    if state == super::layout::SEGMENT_EMPTY {
        return None;
    }
    let place = entry[field(DIRECTORY_PLACE)].load(Ordering::Relaxed);
    let description = Description {
        place: place as u32,
        creator: (place >> 32) as u32,
        len: entry[field(DIRECTORY_LEN)].load(Ordering::Relaxed),
        chunks: entry[field(DIRECTORY_CONTENTS)].load(Ordering::Relaxed),
    };
    Some((state == SEGMENT_READY, description))
}
