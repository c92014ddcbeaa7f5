//! Every byte of a journal segment: offsets, packed words, and the geometry of one segment.
//!
//! All fields are little-endian 64-bit words, accessed as atomics; no pointers, only offsets. Zero means
//! "nothing here". Addresses are linear over all segments of a journal: segment number in the top bits,
//! byte offset below ([`SEGMENT_SHIFT`]). Format 1.

use core::mem::offset_of;

use crate::sync::robust::ROBUST_MUTEX_BYTES;

/// "RJNJRNL1", stored last when a segment is filled.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RJNJRNL1");
/// Format version: readers accept this one only.
pub const FORMAT_MAJOR: u16 = 1;
/// Additions that older readers may ignore.
pub const FORMAT_MINOR: u16 = 0;
/// Reads as 0x3412 on a machine of the other byte order.
pub const ENDIAN_MARK: u16 = 0x1234;

/// Segment number's position in an address; a segment holds at most 1 TiB.
pub const SEGMENT_SHIFT: u32 = 40;
/// Base segment and its growth segments.
pub const MAX_SEGMENTS: u32 = 64;
/// Chunk index's width in a chunk id; the segment number stands above.
pub const CHUNK_INDEX_BITS: u32 = 20;

/// Words of the spill directory's path in the header.
pub const SPILL_DIRECTORY_WORDS: usize = 32;

/// Constant part of a segment: written before it is published, never changed. Only the creator writes it.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], last.
    pub magic: u64,
    /// major u16, minor u16, endian mark u16, word size u8, offset of the futex word in a mutex u8.
    pub version: u64,
    /// [`LAYOUT_HASH`] of the creator's build.
    pub layout_hash: u64,
    /// Bytes of this segment.
    pub total_len: u64,
    /// Bytes of header and live part.
    pub header_len: u64,
    /// Bytes of a chunk, a power of two.
    pub chunk_bytes: u64,
    /// Entries of the slot registry.
    pub max_slots: u64,
    /// Entries of the segment directory.
    pub max_segments: u64,
    /// Chunks of this segment.
    pub chunks: u64,
    /// Handle entries of this segment.
    pub handles: u64,
    /// The job's identity.
    pub job_uuid: [u64; 2],
    /// Boot of the machine: another boot means that every writer is dead.
    pub boot_id: [u64; 2],
    /// Inode of the creator's pid namespace (pids of other namespaces mean nothing here).
    pub pid_namespace: u64,
    /// Creator, for diagnosis.
    pub creator_pid: u64,
    /// Its start time in clock ticks since boot.
    pub creator_start: u64,
    /// rank u32, incarnation u32.
    pub writer: u64,
    /// Offset of the segment directory.
    pub directory_at: u64,
    /// Offset of the slot registry.
    pub slots_at: u64,
    /// Offset of the chunk table.
    pub chunk_table_at: u64,
    /// Offset of the handle table.
    pub handles_at: u64,
    /// Offset of the first chunk.
    pub chunks_at: u64,
    /// What a full journal does; 0 = append returns an error.
    pub overflow_policy: u64,
    /// Bytes or nanoseconds, by policy.
    pub overflow_limit: u64,
    /// 0 for the base segment, k for growth segment k.
    pub segment_number: u64,
    /// Where spill files are, ended by a zero byte; all zero without the policy.
    pub spill_directory: [u64; SPILL_DIRECTORY_WORDS],
    /// Zero.
    pub reserved: [u64; 5],
    /// CRC32C of the words from `version` to `reserved`.
    pub checksum: u64,
}
const _: () = assert!(size_of::<Header>() == 0x200);

/// Words of the header that the checksum covers: 1 to 62.
pub const HEADER_WORDS: usize = size_of::<Header>() / 8;

/// One of the two boundary entries of a slot. Only the slot's owner writes them, and never the one that the boundary
/// word names.
#[repr(C)]
pub struct BoundaryEntry {
    /// Step records below this sequence belong to earlier steps.
    pub sequence: u64,
    /// Last committed step + 1; 0 before the first.
    pub next_step: u64,
}

/// One of the two PREPARED slots, by the parity of the step. A crash while it is written leaves `step` 0.
#[repr(C)]
pub struct PreparedEntry {
    /// First chunk + 1 (u32), chunks (u32); 0 = no room reserved.
    pub run: u64,
    /// Bytes used.
    pub len: u64,
    /// CRC32C of them.
    pub checksum: u64,
    /// Step + 1; 0 = nothing, or being written.
    pub step: u64,
}

/// Live part of the base segment, at [`LIVE_AT`]. Groups that different threads write stand 128 bytes apart.
#[repr(C)]
pub struct Live {
    /// Next sequence number, from 1. Every writer: fetch_add.
    pub sequence: u64,
    _sequence_line: [u64; 15],
    /// Moves so far u47, slot u16 and entry u1 of the valid [`BoundaryEntry`]. Committers: compare-and-swap, after the
    /// entry. A crash leaves the old one or the new one.
    pub boundary: u64,
    /// First sequence that was dropped; u64::MAX = nothing was.
    pub incomplete_from: u64,
    /// Records dropped.
    pub dropped: u64,
    _boundary_line: [u64; 13],
    /// Low half: futex word, counts rings.
    pub doorbell: u64,
    /// Readers asleep on it.
    pub waiters: u64,
    _doorbell_line: [u64; 14],
    /// Robust mutex of PREPARED, growth and the reserve. No append and no boundary move waits for it.
    pub admin: [u64; 8],
    _admin_line: [u64; 8],
    /// Version of the PREPARED slots; moves before and after one is written. Writer (under `admin`).
    pub prepared: u64,
    /// By the parity of the step.
    pub prepared_slots: [PreparedEntry; 2],
    _prepared_line: [u64; 7],
    /// 1 once the writer has finished in good order.
    pub finished: u64,
    /// Counts unbind and rebind sweeps of the handle table, for caches of translations.
    pub handle_epoch: u64,
    /// Growth segments in use.
    pub segments: u64,
    _state_line: [u64; 13],
}

/// Offset of [`Live`].
pub const LIVE_AT: u64 = 0x200;
/// Header and live part together; tables follow.
pub const HEADER_LEN: u64 = 0x1000;
const _: () = assert!(LIVE_AT + size_of::<Live>() as u64 <= HEADER_LEN);

macro_rules! live {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {
        $($(#[$doc])* pub const $name: u64 = LIVE_AT + offset_of!(Live, $field) as u64;)*
    };
}
live! {
    /// Offset of the sequence word.
    SEQUENCE = sequence;
    /// Offset of the boundary word.
    BOUNDARY = boundary;
    /// Offset of `incomplete_from`.
    INCOMPLETE_FROM = incomplete_from;
    /// Offset of `dropped`.
    DROPPED = dropped;
    /// Offset of the doorbell.
    DOORBELL = doorbell;
    /// Offset of the count of waiters.
    WAITERS = waiters;
    /// Offset of the admin mutex.
    ADMIN = admin;
    /// Offset of the PREPARED count.
    PREPARED = prepared;
    /// Offset of the PREPARED slots.
    PREPARED_SLOTS = prepared_slots;
    /// Offset of the finished mark.
    FINISHED = finished;
    /// Offset of the handle epoch.
    HANDLE_EPOCH = handle_epoch;
    /// Offset of the count of growth segments.
    SEGMENTS = segments;
}
const _: () = {
    assert!(SEQUENCE == 0x200);
    assert!(BOUNDARY == 0x280);
    assert!(DOORBELL == 0x300);
    assert!(ADMIN == 0x380);
    assert!(PREPARED == 0x400);
    assert!(FINISHED == 0x480);
    assert!(ROBUST_MUTEX_BYTES == 64);
};

/// Entry of the segment directory (base segment only): growth segments.
#[repr(C)]
pub struct DirectoryEntry {
    /// EMPTY, CREATING, READY. Under `admin`; READY with Release. A crash leaves CREATING, which the next grower
    /// undoes.
    pub state: u64,
    /// Bytes of the segment.
    pub len: u64,
    /// Chunks (u32) it brings.
    pub contents: u64,
    /// 0 = /dev/shm, 1 = spill directory; pid of the creator above (u32).
    pub place: u64,
}

/// Bytes of a directory entry.
pub const DIRECTORY_ENTRY_BYTES: u64 = size_of::<DirectoryEntry>() as u64;
/// Offset of the length in an entry.
pub const DIRECTORY_LEN: u64 = offset_of!(DirectoryEntry, len) as u64;
/// Offset of the contents.
pub const DIRECTORY_CONTENTS: u64 = offset_of!(DirectoryEntry, contents) as u64;
/// Offset of the place and the creator.
pub const DIRECTORY_PLACE: u64 = offset_of!(DirectoryEntry, place) as u64;
/// State: nothing here.
pub const SEGMENT_EMPTY: u64 = 0;
/// State: being created by the holder of the admin lock.
pub const SEGMENT_CREATING: u64 = 1;
/// State: published.
pub const SEGMENT_READY: u64 = 2;

/// A thread's slot: entry of the registry, 256 bytes. Claimed by its robust mutex.
#[repr(C)]
pub struct Slot {
    /// Held by the owning thread until it ends; the kernel marks it when the thread dies.
    pub lock: [u64; 8],
    /// Claims so far (u32 above), 1 = claimed or left with records, 0 = never used. Owner: Release.
    pub state: u64,
    /// pid u32, tid u32 of the owner, for diagnosis.
    pub owner: u64,
    /// Its start time.
    pub owner_start: u64,
    /// Inode of its pid namespace.
    pub owner_namespace: u64,
    /// First chunk + 1 of the set-up chain and of the step chain. Owner: Release.
    pub heads: [u64; 2],
    /// Upper bound of the sequence numbers lost by dead owners. Reaper, before it seals a tail.
    pub lost: u64,
    /// Deaths seen.
    pub deaths: u64,
    /// Index where the owner looks for a free handle next. Owner; a guess, any value is right.
    pub handle_hint: u64,
    /// Proposals for the boundary. Owner, before the boundary word names one.
    pub boundaries: [BoundaryEntry; 2],
    /// Set-up records that compaction has left out. Owner, after the new chain is linked; a crash leaves it too low.
    pub compacted: u64,
    _reserved: [u64; 10],
}
const _: () = assert!(size_of::<Slot>() == 256);

/// Bytes of a slot.
pub const SLOT_BYTES: u64 = size_of::<Slot>() as u64;
/// Offset of the state word in a slot.
pub const SLOT_STATE: u64 = offset_of!(Slot, state) as u64;
/// Offset of pid and tid.
pub const SLOT_OWNER: u64 = offset_of!(Slot, owner) as u64;
/// Offset of the owner's start time.
pub const SLOT_OWNER_START: u64 = offset_of!(Slot, owner_start) as u64;
/// Offset of the owner's namespace.
pub const SLOT_OWNER_NAMESPACE: u64 = offset_of!(Slot, owner_namespace) as u64;
/// Offset of the chain heads.
pub const SLOT_HEADS: u64 = offset_of!(Slot, heads) as u64;
/// Offset of the loss bound.
pub const SLOT_LOST: u64 = offset_of!(Slot, lost) as u64;
/// Offset of the count of deaths.
pub const SLOT_DEATHS: u64 = offset_of!(Slot, deaths) as u64;

/// Offset of the guess at a free handle.
pub const SLOT_HANDLE_HINT: u64 = offset_of!(Slot, handle_hint) as u64;

/// Offset of the proposals for the boundary.
pub const SLOT_BOUNDARIES: u64 = offset_of!(Slot, boundaries) as u64;
/// Offset of the count of records that compaction left out.
pub const SLOT_COMPACTED: u64 = offset_of!(Slot, compacted) as u64;
/// Bit of the boundary word where the slot begins; below it the entry.
pub const BOUNDARY_SLOT_SHIFT: u32 = 1;
/// Bit of the boundary word where the count of moves begins.
pub const BOUNDARY_COUNT_SHIFT: u32 = 17;

/// Entry of a segment's chunk table, 64 bytes.
#[repr(C)]
pub struct ChunkEntry {
    /// 0 free, slot + 1, or [`OWNER_JOURNAL`]. Claimed by compare-and-swap.
    pub owner: u64,
    /// [`ChunkClass`] (u32), chunks of the run that begins here (u32). Owner, before it links the chunk.
    pub class: u64,
    /// Sequence when the chunk was (re)opened: no record in it is older, except in class COMPACTED. Owner; readers
    /// re-check it.
    pub open_seq: u64,
    /// Last sequence in it once it is closed, 0 while it is open. Owner: Release.
    pub last_seq: u64,
    /// Next chunk of the chain + 1. Owner: Release.
    pub next: u64,
    _reserved: [u64; 3],
}
const _: () = assert!(size_of::<ChunkEntry>() == 64);

/// Bytes of a chunk table entry.
pub const CHUNK_ENTRY_BYTES: u64 = size_of::<ChunkEntry>() as u64;
/// Offset of the owner.
pub const CHUNK_OWNER: u64 = offset_of!(ChunkEntry, owner) as u64;
/// Offset of class and run length.
pub const CHUNK_CLASS: u64 = offset_of!(ChunkEntry, class) as u64;
/// Offset of the opening sequence.
pub const CHUNK_OPEN_SEQ: u64 = offset_of!(ChunkEntry, open_seq) as u64;
/// Offset of the last sequence.
pub const CHUNK_LAST_SEQ: u64 = offset_of!(ChunkEntry, last_seq) as u64;
/// Offset of the link.
pub const CHUNK_NEXT: u64 = offset_of!(ChunkEntry, next) as u64;

/// Owner of chunks that belong to no thread (PREPARED).
pub const OWNER_JOURNAL: u64 = 0xFFFF;
/// Owner of chunks kept back for records that must not fail ([`ChunkClass::Emergency`]).
pub const OWNER_RESERVE: u64 = 0xFFFE;
/// So that no slot's owner word is one of the above.
pub const MAX_SLOTS: u32 = 0xFFF0;

/// What a chunk is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum ChunkClass {
    Setup = 1,
    Step = 2,
    ArenaSetup = 3,
    ArenaStep = 4,
    Prepared = 5,
    Emergency = 6,
    Handles = 7,
    /// Of a set-up chain: begins with records copied from an older chain, under their own sequence numbers.
    Compacted = 8,
}

/// Header of a record, 32 bytes at a multiple of 16 in a chunk; payload follows, padded to 16.
#[repr(C)]
pub struct RecordHeader {
    /// 0 empty, PENDING, COMMITTED|sequence, SEALED, or JUMP|chunk. Owner: Release on commit. A crash leaves
    /// empty or PENDING.
    pub commit: u64,
    /// Payload bytes u32, kind u16, flags u16. Owner, before PENDING.
    pub shape: u64,
    /// CRC32C of payload words, shape and commit word u32, slot u16, record version u16. Owner, before COMMITTED.
    pub check: u64,
    /// DONE|result once the call returned. Owner, any time after the commit; not under the checksum.
    pub result: u64,
}
const _: () = assert!(size_of::<RecordHeader>() == 32);

/// Bytes of a record header.
pub const RECORD_HEADER: u64 = size_of::<RecordHeader>() as u64;
/// Version of the record header.
pub const RECORD_VERSION: u16 = 1;

/// Being written; its sequence number may or may not have been taken.
pub const PENDING: u64 = 1 << 63;
/// Set with PENDING clear: committed, sequence below.
pub const COMMITTED: u64 = 1 << 62;
/// Both bits: end of the chunk. All ones below = sealed by a reaper, else the next chunk.
pub const END: u64 = PENDING | COMMITTED;
/// A torn record's tail; the chain goes on with the chunk's `next`.
pub const SEALED: u64 = u64::MAX;
/// Mask of sequence or chunk.
pub const VALUE_MASK: u64 = COMMITTED - 1;
/// In the result word: the call has returned.
pub const DONE: u64 = 1 << 63;

/// Flags that the journal sets itself; a caller has the lower twelve bits.
pub const RESERVED_FLAGS: u16 = 0xF000;
/// The payload is an arena descriptor ([`ArenaDescriptor`]).
pub const FLAG_ARENA: u16 = 0x8000;
/// The payload's bytes are not here: an [`AbsentDescriptor`], then as many of the first bytes as fit. Such a record
/// cannot be replayed.
pub const FLAG_ABSENT: u16 = 0x4000;
/// Bit of `kind`: a reader that does not know the kind may skip the record.
pub const KIND_IGNORABLE: u16 = 0x8000;

/// Payload of a record whose bytes stand in a run of chunks.
#[repr(C)]
pub struct ArenaDescriptor {
    /// First chunk u32, chunks u32.
    pub run: u64,
    /// Bytes.
    pub len: u64,
    /// CRC32C of them.
    pub checksum: u64,
    /// Zero.
    pub reserved: u64,
}
/// Bytes of a descriptor.
pub const ARENA_DESCRIPTOR: u64 = size_of::<ArenaDescriptor>() as u64;

/// Begins the payload of a record with [`FLAG_ABSENT`].
#[repr(C)]
pub struct AbsentDescriptor {
    /// Bytes of the whole payload.
    pub len: u64,
    /// CRC32C of them, zero-padded to a word.
    pub checksum: u64,
}
/// Bytes of that.
pub const ABSENT_DESCRIPTOR: u64 = size_of::<AbsentDescriptor>() as u64;

/// Entry of the handle table, 64 bytes: one cache line.
#[repr(C)]
pub struct HandleEntry {
    /// state u8, kind u8, slot + 1 of who reserves or binds u16, generation u24 from bit 32. Compare-and-swap.
    pub state: u64,
    /// The real object. Binder: Release, before the state that shows it.
    pub real: u64,
    /// Sequence of the creating record; 0 until it is known.
    pub create_seq: u64,
    /// Handle this one was made from; 0 = none.
    pub parent: u64,
    /// In the first entry of a block: slot + 1 of the thread that takes handles from it, 0 = nobody.
    pub block_owner: u64,
    _reserved: [u64; 3],
}
const _: () = assert!(size_of::<HandleEntry>() == 64);

/// Bytes of a handle entry.
pub const HANDLE_ENTRY_BYTES: u64 = size_of::<HandleEntry>() as u64;
/// Offset of the real object.
pub const HANDLE_REAL: u64 = offset_of!(HandleEntry, real) as u64;
/// Offset of the creating sequence.
pub const HANDLE_CREATE_SEQ: u64 = offset_of!(HandleEntry, create_seq) as u64;
/// Offset of the parent.
pub const HANDLE_PARENT: u64 = offset_of!(HandleEntry, parent) as u64;
/// Offset of the block's owner.
pub const HANDLE_BLOCK_OWNER: u64 = offset_of!(HandleEntry, block_owner) as u64;

/// Directory of the chunks that hold more handle entries (base segment): each word 0, or a chunk + 1. Filled in
/// order, by compare-and-swap; never emptied.
pub const HANDLE_DIRECTORY: u64 = 0x800;
/// Words of the directory.
pub const HANDLE_DIRECTORY_ENTRIES: u64 = 256;
const _: () = {
    assert!(LIVE_AT + size_of::<Live>() as u64 <= HANDLE_DIRECTORY);
    assert!(HANDLE_DIRECTORY + 8 * HANDLE_DIRECTORY_ENTRIES <= HEADER_LEN);
};

/// FNV-1a over sizes and offsets: a build with another layout is refused.
pub const LAYOUT_HASH: u64 = {
    let parts = [
        size_of::<Header>(),
        size_of::<Live>(),
        size_of::<Slot>(),
        size_of::<ChunkEntry>(),
        size_of::<RecordHeader>(),
        size_of::<HandleEntry>(),
        size_of::<DirectoryEntry>(),
        size_of::<ArenaDescriptor>(),
        size_of::<AbsentDescriptor>(),
        offset_of!(Header, checksum),
        offset_of!(Header, spill_directory),
        offset_of!(Live, boundary),
        offset_of!(Live, doorbell),
        offset_of!(Live, admin),
        offset_of!(Live, prepared),
        offset_of!(Live, finished),
        offset_of!(Slot, state),
        offset_of!(Slot, heads),
        offset_of!(Slot, lost),
        offset_of!(Slot, boundaries),
        offset_of!(Slot, compacted),
        BOUNDARY_COUNT_SHIFT as usize,
        offset_of!(ChunkEntry, open_seq),
        offset_of!(ChunkEntry, next),
        offset_of!(HandleEntry, real),
        offset_of!(HandleEntry, create_seq),
        offset_of!(HandleEntry, block_owner),
        HANDLE_DIRECTORY as usize,
        size_of::<libc::pthread_mutex_t>(),
        SEGMENT_SHIFT as usize,
        CHUNK_INDEX_BITS as usize,
    ];
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut i = 0;
    while i < parts.len() {
        hash = (hash ^ parts[i] as u64).wrapping_mul(0x0000_0100_0000_01B3);
        i += 1;
    }
    hash
};

/// Bytes of a record with `len` payload bytes.
pub const fn record_bytes(len: u64) -> u64 {
    RECORD_HEADER + ((len + 15) & !15)
}

/// Packs a shape word.
pub const fn shape(len: u32, kind: u16, flags: u16) -> u64 {
    len as u64 | (kind as u64) << 32 | (flags as u64) << 48
}

/// A chunk of the journal: segment number above, index in that segment below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub u32);

impl ChunkId {
    /// From its parts.
    pub const fn new(segment: u32, index: u32) -> Self {
        Self(segment << CHUNK_INDEX_BITS | index)
    }

    /// Segment number.
    pub const fn segment(self) -> u32 {
        self.0 >> CHUNK_INDEX_BITS
    }

    /// Index in the segment.
    pub const fn index(self) -> u32 {
        self.0 & ((1 << CHUNK_INDEX_BITS) - 1)
    }
}

/// Where things are in one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Geometry {
    pub total_len: u64,
    pub chunk_bytes: u64,
    pub max_slots: u32,
    pub chunks: u32,
    pub handles: u32,
    pub directory_at: u64,
    pub slots_at: u64,
    pub chunk_table_at: u64,
    pub handles_at: u64,
    pub chunks_at: u64,
}

impl Geometry {
    /// Lays out a base segment of at most `total_len` bytes; `None` if not even eight chunks fit.
    pub fn base(total_len: u64, chunk_bytes: u64, max_slots: u32, handles: u32) -> Option<Self> {
        let sizes = chunk_bytes.is_power_of_two() && (4096..=1 << 30).contains(&chunk_bytes);
        if !sizes || !(1..=MAX_SLOTS).contains(&max_slots) {
            return None;
        }
        let total_len = total_len & !4095;
        let directory_at = HEADER_LEN;
        let slots_at = directory_at + u64::from(MAX_SEGMENTS) * size_of::<DirectoryEntry>() as u64;
        let handles_at = align(slots_at + u64::from(max_slots) * SLOT_BYTES, 64);
        let chunk_table_at = handles_at + u64::from(handles) * HANDLE_ENTRY_BYTES;
        Self { total_len, chunk_bytes, max_slots, chunks: 0, handles, directory_at, slots_at, chunk_table_at, handles_at, chunks_at: 0 }
            .with_chunks(8)
    }

    /// Lays out growth segment of at most `total_len` bytes: a header, a chunk table, chunks.
    pub fn growth(total_len: u64, chunk_bytes: u64) -> Option<Self> {
        if !chunk_bytes.is_power_of_two() || !(4096..=1 << 30).contains(&chunk_bytes) || total_len >> SEGMENT_SHIFT != 0 {
            return None;
        }
        Self {
            total_len: total_len & !4095,
            chunk_bytes,
            max_slots: 0,
            chunks: 0,
            handles: 0,
            directory_at: 0,
            slots_at: 0,
            chunk_table_at: HEADER_LEN,
            handles_at: 0,
            chunks_at: 0,
        }
        .with_chunks(1)
    }

    fn with_chunks(mut self, least: u64) -> Option<Self> {
        let room = self.total_len.checked_sub(self.chunk_table_at)?;
        let fit = (room / (self.chunk_bytes + CHUNK_ENTRY_BYTES)).min(1 << CHUNK_INDEX_BITS);
        let mut chunks = fit;
        loop {
            self.chunks_at = align(self.chunk_table_at + chunks * CHUNK_ENTRY_BYTES, 4096);
            if self.chunks_at + chunks * self.chunk_bytes <= self.total_len {
                break;
            }
            chunks = chunks.checked_sub(1)?;
        }
        self.chunks = u32::try_from(chunks).ok()?;
        (chunks >= least).then_some(self)
    }

    /// Chunks kept back for records that must not fail: a journal that is full can still be taken apart.
    pub const fn reserved_chunks(&self) -> u32 {
        let share = self.chunks / 16;
        if share == 0 {
            1
        } else if share > 4 {
            4
        } else {
            share
        }
    }

    /// Offset of a slot.
    pub const fn slot(&self, slot: u16) -> u64 {
        self.slots_at + slot as u64 * SLOT_BYTES
    }

    /// Offset of a chunk's table entry within its segment.
    pub const fn chunk_entry(&self, index: u32) -> u64 {
        self.chunk_table_at + index as u64 * CHUNK_ENTRY_BYTES
    }

    /// Offset of a chunk's first byte within its segment.
    pub const fn chunk(&self, index: u32) -> u64 {
        self.chunks_at + index as u64 * self.chunk_bytes
    }

    /// Offset of a handle entry.
    pub const fn handle(&self, index: u32) -> u64 {
        self.handles_at + index as u64 * HANDLE_ENTRY_BYTES
    }

    /// Bytes of payload that fit into an empty chunk beside the header and the word that ends the chunk.
    pub const fn inline_limit(&self) -> u64 {
        self.chunk_bytes - RECORD_HEADER - 16
    }
}

const fn align(value: u64, to: u64) -> u64 {
    (value + to - 1) & !(to - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_base_segment_has_room_for_the_training_set() {
        let geometry = Geometry::base(4 << 20, 64 << 10, 64, 4096).unwrap();
        assert!(geometry.chunks >= 56, "{geometry:?}");
        assert!(geometry.chunk(geometry.chunks) <= geometry.total_len);
        assert!(geometry.chunk_entry(geometry.chunks) <= geometry.chunks_at);
    }

    #[test]
    fn a_segment_too_small_for_eight_chunks_is_no_layout() {
        assert_eq!(Geometry::base(256 << 10, 64 << 10, 64, 4096), None);
        assert_eq!(Geometry::base(4 << 20, 1000, 64, 4096), None);
    }

    #[test]
    fn chunk_ids_keep_segment_and_index() {
        let id = ChunkId::new(63, (1 << CHUNK_INDEX_BITS) - 1);
        assert_eq!((id.segment(), id.index()), (63, (1 << CHUNK_INDEX_BITS) - 1));
    }
}
