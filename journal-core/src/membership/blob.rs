//! Blobs: small bytes that a rank publishes under (scope, key) and others find.
//!
//! Every rank has three areas: one permanent, two for recovery epochs, chosen by epoch & 1. An area is an index of
//! entries and a heap. A writer reserves the next entry with its range of the heap by one swap, fills the range, then
//! commits the entry: a killed writer leaves a reservation that nobody reads, and a late store of a replaced process
//! only ever reaches its own range. A recovery area belongs to the epoch in its head; a blob of another epoch is not
//! found in it.

use super::decision::Strided;
use super::{Epoch, MembershipError, Rank};
use crate::sync::{AtomicU64, Ordering, Words, fence};

/// For how long a blob is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlobScope {
    /// For the whole job.
    Permanent,
    /// For one epoch.
    Epoch(Epoch),
}

/// Entries of the permanent area of a rank. (Models need few words.)
pub const PERMANENT_ENTRIES: u32 = if cfg!(loom) { 2 } else { 128 };
/// Bytes of its heap.
pub const PERMANENT_HEAP: u64 = if cfg!(loom) { 32 } else { 32 << 10 };
/// Entries of a recovery area.
pub const RECOVERY_ENTRIES: u32 = if cfg!(loom) { 2 } else { 64 };
/// Bytes of its heap.
pub const RECOVERY_HEAP: u64 = if cfg!(loom) { 32 } else { 8 << 10 };

const HEAD_BYTES: u64 = 64;
const ENTRY_BYTES: u64 = 16;
const PERMANENT_BYTES: u64 = HEAD_BYTES + PERMANENT_ENTRIES as u64 * ENTRY_BYTES + PERMANENT_HEAP;
const RECOVERY_BYTES: u64 = HEAD_BYTES + RECOVERY_ENTRIES as u64 * ENTRY_BYTES + RECOVERY_HEAP;
/// Bytes of the areas of one rank.
pub const AREAS_BYTES: u64 = PERMANENT_BYTES + 2 * RECOVERY_BYTES;

/// Entry word 0: {state 2, heap offset in words 20, key bytes 16, blob bytes 26}; 0: free. Swapped by the rank.
const RESERVED: u64 = 1;
const COMMITTED: u64 = 2;
// Entry word 1: CRC-32C of key and blob, written before the commit.
const _: () = assert!(PERMANENT_HEAP / 8 < 1 << 20 && PERMANENT_HEAP < 1 << 26);

/// Head of a recovery area: {epoch + 1, READY or CLEARING}. Written by its rank.
const READY: u64 = 1;
const CLEARING: u64 = 2;

fn head_word(epoch: Epoch, state: u64) -> u64 {
    (u64::from(epoch.0) + 1) << 8 | state
}

#[derive(Clone, Copy)]
struct Entry {
    /// Where in the heap, in words.
    start: u64,
    key_bytes: u64,
    blob_bytes: u64,
}

impl Entry {
    /// The entry, and whether it is committed.
    fn from_word(word: u64) -> (Self, bool) {
        let entry =
            Self { start: word >> 42 & 0xf_ffff, key_bytes: word >> 26 & 0xffff, blob_bytes: word & 0x3ff_ffff };
        (entry, word >> 62 == COMMITTED)
    }

    fn to_word(self, state: u64) -> u64 {
        state << 62 | self.start << 42 | self.key_bytes << 26 | self.blob_bytes
    }

    fn bytes(&self) -> u64 {
        self.key_bytes + self.blob_bytes
    }

    /// First word behind it.
    fn end(&self) -> u64 {
        self.start + self.bytes().div_ceil(8)
    }
}

/// One area: where it is and how much it holds.
#[derive(Clone, Copy)]
struct Area {
    base: u64,
    entries: u32,
    heap_bytes: u64,
}

impl Area {
    fn entry(&self, i: u32) -> u64 {
        self.base + HEAD_BYTES + u64::from(i) * ENTRY_BYTES
    }

    fn heap(&self) -> u64 {
        self.base + HEAD_BYTES + u64::from(self.entries) * ENTRY_BYTES
    }
}

/// The areas of all ranks over some words.
pub struct Blobs<'a, W> {
    words: &'a W,
    areas: Strided,
    nranks: u32,
}

impl<'a, W: Words> Blobs<'a, W> {
    /// `areas`: [`AREAS_BYTES`] for each rank.
    pub fn new(words: &'a W, areas: Strided, nranks: u32) -> Self {
        Self { words, areas, nranks }
    }

    fn area(&self, rank: Rank, scope: BlobScope) -> Area {
        let base = self.areas.of(rank);
        match scope {
            BlobScope::Permanent => Area { base, entries: PERMANENT_ENTRIES, heap_bytes: PERMANENT_HEAP },
            BlobScope::Epoch(epoch) => Area {
                base: base + PERMANENT_BYTES + u64::from(epoch.0 & 1) * RECOVERY_BYTES,
                entries: RECOVERY_ENTRIES,
                heap_bytes: RECOVERY_HEAP,
            },
        }
    }

    /// Publishes for `rank`; one thread of the rank's process at a time. Publishing the same bytes again is fine.
    /// False in the result: an epoch after the scope's owns the area.
    pub fn publish(&self, rank: Rank, scope: BlobScope, key: &str, bytes: &[u8]) -> Result<bool, MembershipError> {
        let area = self.area(rank, scope);
        if key.len() > usize::from(u16::MAX) || bytes.len() as u64 > area.heap_bytes {
            return Err(self.no_space(rank, &area, (key.len() + bytes.len()) as u64));
        }
        if let BlobScope::Epoch(epoch) = scope
            && !self.take_over(&area, epoch)
        {
            return Ok(false);
        }
        if let Some(standing) = self.find_of(rank, scope, key) {
            return if standing == bytes {
                Ok(true)
            } else {
                Err(MembershipError::BlobExists { rank, key: key.to_owned() })
            };
        }
        let (key_bytes, blob_bytes) = (key.len() as u64, bytes.len() as u64);
        let Some((i, entry)) = self.reserve(&area, key_bytes, blob_bytes) else {
            return Err(self.no_space(rank, &area, key_bytes + blob_bytes));
        };
        let content = [key.as_bytes(), bytes].concat();
        let cells = self.words.words(area.heap() + entry.start * 8, content.len().div_ceil(8));
        for (cell, chunk) in cells.iter().zip(content.chunks(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            cell.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        self.words.word(area.entry(i) + 8).store(crc32c::crc32c(&content).into(), Ordering::Relaxed);
        // SYNC: Release; pairs with the Acquire in `find_in`. A swap, because the area may have been cleared.
        let committed = self.words.word(area.entry(i)).compare_exchange(
            entry.to_word(RESERVED),
            entry.to_word(COMMITTED),
            Ordering::Release,
            Ordering::Relaxed,
        );
        Ok(committed.is_ok())
    }

    /// Makes a recovery area one of `epoch`. False: it belongs to a later one.
    fn take_over(&self, area: &Area, epoch: Epoch) -> bool {
        let head = self.words.word(area.base);
        let mut seen = head.load(Ordering::Acquire);
        loop {
            if seen == head_word(epoch, READY) {
                return true;
            }
            if seen >> 8 > u64::from(epoch.0) + 1 {
                return false;
            }
            // Of an older epoch, or left half cleared by a process that died.
            match head.compare_exchange(seen, head_word(epoch, CLEARING), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(found) => seen = found,
            }
        }
        // SYNC: Release; with the head above it pairs with the Acquire fence in `find_in`: a reader that copied any
        // of what follows sees that the area is no longer its epoch's.
        fence(Ordering::Release);
        for i in 0..area.entries {
            self.words.word(area.entry(i)).store(0, Ordering::Relaxed);
        }
        // SYNC: Release; pairs with the Acquire in `find_in`.
        head.compare_exchange(head_word(epoch, CLEARING), head_word(epoch, READY), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the first free entry and the range behind all earlier ones. `None`: no room.
    fn reserve(&self, area: &Area, key_bytes: u64, blob_bytes: u64) -> Option<(u32, Entry)> {
        let mut start = 0;
        let mut i = 0;
        while i < area.entries {
            let cell = self.words.word(area.entry(i));
            let word = cell.load(Ordering::Acquire);
            if word != 0 {
                start = start.max(Entry::from_word(word).0.end());
                i += 1;
                continue;
            }
            let entry = Entry { start, key_bytes, blob_bytes };
            if entry.end() * 8 > area.heap_bytes {
                return None;
            }
            if cell.compare_exchange(0, entry.to_word(RESERVED), Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Some((i, entry));
            }
        }
        None
    }

    fn no_space(&self, rank: Rank, area: &Area, needed: u64) -> MembershipError {
        let used = (0..area.entries).map_while(|i| match self.words.word(area.entry(i)).load(Ordering::Acquire) {
            0 => None,
            word => Some(Entry::from_word(word).0.end()),
        });
        let (entries, end) = used.fold((0, 0), |(n, end), this| (n + 1, this.max(end)));
        MembershipError::BlobSpace {
            rank,
            needed,
            free: area.heap_bytes.saturating_sub(end * 8),
            entries: area.entries - entries,
        }
    }

    /// What the lowest rank that published under `key` published.
    pub fn find(&self, scope: BlobScope, key: &str) -> Option<(Rank, Vec<u8>)> {
        (0..self.nranks).map(Rank).find_map(|rank| Some((rank, self.find_of(rank, scope, key)?)))
    }

    /// What `rank` published under `key`.
    pub fn find_of(&self, rank: Rank, scope: BlobScope, key: &str) -> Option<Vec<u8>> {
        let area = self.area(rank, scope);
        let head = self.words.word(area.base);
        if let BlobScope::Epoch(epoch) = scope {
            // SYNC: Acquire; pairs with the swap to READY in `take_over`.
            if head.load(Ordering::Acquire) != head_word(epoch, READY) {
                return None;
            }
        }
        let found = self.find_in(&area, key)?;
        if let BlobScope::Epoch(epoch) = scope {
            // SYNC: Acquire; pairs with the Release fence in `take_over`: cleared meanwhile means not found.
            fence(Ordering::Acquire);
            if head.load(Ordering::Relaxed) != head_word(epoch, READY) {
                return None;
            }
        }
        Some(found)
    }

    fn find_in(&self, area: &Area, key: &str) -> Option<Vec<u8>> {
        for i in 0..area.entries {
            // SYNC: Acquire; pairs with the commit in `publish`.
            let word = self.words.word(area.entry(i)).load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            let (entry, committed) = Entry::from_word(word);
            // Bounds before use: these numbers come from shared memory.
            if !committed || entry.key_bytes != key.len() as u64 || entry.end() * 8 > area.heap_bytes {
                continue;
            }
            let cells = self.words.words(area.heap() + entry.start * 8, entry.bytes().div_ceil(8) as usize);
            let mut content = copy_out(cells, entry.bytes());
            let check = self.words.word(area.entry(i) + 8).load(Ordering::Relaxed);
            if content.starts_with(key.as_bytes()) && crc32c::crc32c(&content) == check as u32 {
                return Some(content.split_off(key.len()));
            }
        }
        None
    }
}

fn copy_out(cells: &[AtomicU64], bytes: u64) -> Vec<u8> {
    let mut out: Vec<u8> = cells.iter().flat_map(|cell| cell.load(Ordering::Relaxed).to_le_bytes()).collect();
    out.truncate(bytes as usize);
    out
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::HeapWords;

    const AREAS: Strided = Strided { base: 0, stride: AREAS_BYTES };
    const E5: BlobScope = BlobScope::Epoch(Epoch(5));

    fn words() -> HeapWords {
        HeapWords::zeroed(2 * AREAS_BYTES)
    }

    #[test]
    fn what_is_published_is_found_under_its_key_only() {
        let words = words();
        let blobs = Blobs::new(&words, AREAS, 2);
        assert!(blobs.publish(Rank(1), BlobScope::Permanent, "id", b"0123456789").unwrap());
        assert!(blobs.publish(Rank(1), BlobScope::Permanent, "id2", b"").unwrap());
        assert_eq!(blobs.find(BlobScope::Permanent, "id"), Some((Rank(1), b"0123456789".to_vec())));
        assert_eq!(blobs.find(BlobScope::Permanent, "id2"), Some((Rank(1), Vec::new())));
        assert_eq!(blobs.find(BlobScope::Permanent, "i"), None);
        assert_eq!(blobs.find(E5, "id"), None);
    }

    #[test]
    fn a_key_can_be_published_again_only_with_the_same_bytes() {
        let words = words();
        let blobs = Blobs::new(&words, AREAS, 2);
        assert!(blobs.publish(Rank(0), BlobScope::Permanent, "k", b"a").unwrap());
        assert!(blobs.publish(Rank(0), BlobScope::Permanent, "k", b"a").unwrap());
        let error = blobs.publish(Rank(0), BlobScope::Permanent, "k", b"b").unwrap_err();
        assert!(matches!(error, MembershipError::BlobExists { .. }), "{error}");
    }

    #[test]
    fn a_blob_of_an_epoch_is_never_found_in_another_one() {
        let words = words();
        let blobs = Blobs::new(&words, AREAS, 2);
        assert!(blobs.publish(Rank(0), E5, "uid", b"old").unwrap());
        for other in [4, 6, 7, 3] {
            assert_eq!(blobs.find(BlobScope::Epoch(Epoch(other)), "uid"), None, "epoch {other}");
        }
        assert!(blobs.publish(Rank(0), BlobScope::Epoch(Epoch(7)), "uid", b"new").unwrap());
        assert_eq!(blobs.find(E5, "uid"), None);
        assert!(!blobs.publish(Rank(0), E5, "uid", b"old").unwrap(), "the area is a later epoch's");
        assert_eq!(blobs.find(BlobScope::Epoch(Epoch(7)), "uid"), Some((Rank(0), b"new".to_vec())));
    }

    #[test]
    fn a_reservation_of_a_killed_writer_is_skipped_and_its_room_is_not_given_twice() {
        let words = words();
        let blobs = Blobs::new(&words, AREAS, 2);
        let area = blobs.area(Rank(0), BlobScope::Permanent);
        blobs.reserve(&area, 3, 100).unwrap();
        assert!(blobs.publish(Rank(0), BlobScope::Permanent, "abc", b"whole").unwrap());
        assert_eq!(blobs.find_of(Rank(0), BlobScope::Permanent, "abc"), Some(b"whole".to_vec()));
        let second = Entry::from_word(words.word(area.entry(1)).load(Ordering::Relaxed)).0;
        assert_eq!(second.start, 13);
    }

    #[test]
    fn a_full_area_says_what_is_free_and_keeps_what_it_has() {
        let words = words();
        let blobs = Blobs::new(&words, AREAS, 2);
        assert!(blobs.publish(Rank(0), E5, "a", &[1; 8000]).unwrap());
        match blobs.publish(Rank(0), E5, "b", &[2; 1000]).unwrap_err() {
            MembershipError::BlobSpace { needed: 1001, free, entries: 63, .. } => assert_eq!(free, 8192 - 8008),
            other => panic!("{other}"),
        }
        for i in 0..64 {
            blobs.publish(Rank(1), E5, &format!("k{i}"), b"").unwrap();
        }
        assert!(matches!(
            blobs.publish(Rank(1), E5, "one more", b"").unwrap_err(),
            MembershipError::BlobSpace { entries: 0, .. }
        ));
        assert_eq!(blobs.find_of(Rank(0), E5, "a"), Some(vec![1; 8000]));
    }

    #[test]
    fn a_blob_whose_bytes_are_not_what_was_published_is_not_found() {
        let words = words();
        let blobs = Blobs::new(&words, AREAS, 1);
        blobs.publish(Rank(0), BlobScope::Permanent, "k", &[7; 64]).unwrap();
        let area = blobs.area(Rank(0), BlobScope::Permanent);
        words.word(area.heap() + 16).fetch_xor(1, Ordering::Relaxed);
        assert_eq!(blobs.find(BlobScope::Permanent, "k"), None);
    }
}
