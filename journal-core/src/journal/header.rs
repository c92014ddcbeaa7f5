//! The constant part of a segment: written once before publication, checked by everybody who opens it.

use super::layout::{
    ADMIN, CHUNK_OWNER, ENDIAN_MARK, FORMAT_MAJOR, FORMAT_MINOR, Geometry, HEADER_LEN, HEADER_WORDS, Header, INCOMPLETE_FROM,
    LAYOUT_HASH, MAGIC, MAX_SEGMENTS, OWNER_RESERVE, SEQUENCE,
};
use super::policy::Packed;
use super::{JournalIdentity, OverflowPolicy, SegmentError, SharedSegment, checksum, lock};
use crate::sync::{Ordering, Words};
use core::mem::offset_of;

macro_rules! at {
    ($field:ident) => {
        offset_of!(Header, $field) / 8
    };
}

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Where things are.
    pub geometry: Geometry,
    /// Whose it is.
    pub identity: JournalIdentity,
    /// Offset of the lock word in a mutex of the creator's libc.
    pub futex_offset: u8,
    /// 0 = base.
    pub segment_number: u64,
    /// What it does when it is full.
    pub policy: OverflowPolicy,
}

/// Fills a fresh base segment: mutexes, live part, constant part, magic last.
pub fn fill_base(
    segment: &SharedSegment,
    geometry: &Geometry,
    identity: &JournalIdentity,
    policy: &OverflowPolicy,
) -> Result<(), SegmentError> {
    let init = |at| {
        lock::mutex(segment, at).init().map_err(|source| SegmentError::Io {
            name: segment.name().to_string(),
            action: "initialise a mutex of",
            source,
        })
    };
    init(ADMIN)?;
    for slot in 0..geometry.max_slots {
        init(geometry.slot(slot as u16))?;
    }
    segment.word(SEQUENCE).store(1, Ordering::Relaxed);
    segment.word(INCOMPLETE_FROM).store(u64::MAX, Ordering::Relaxed);
    for index in geometry.chunks - geometry.reserved_chunks()..geometry.chunks {
        segment.word(geometry.chunk_entry(index) + CHUNK_OWNER).store(OWNER_RESERVE, Ordering::Relaxed);
    }
    fill(segment, geometry, identity, lock::futex_offset(segment, ADMIN), 0, policy);
    Ok(())
}

/// Writes the constant part.
pub fn fill(
    segment: &SharedSegment,
    geometry: &Geometry,
    identity: &JournalIdentity,
    futex_offset: u8,
    number: u64,
    policy: &OverflowPolicy,
) {
    let policy = policy.pack().expect("checked when the journal was created");
    let mut words = [0_u64; HEADER_WORDS];
    words[at!(version)] = version_word(futex_offset);
    words[at!(layout_hash)] = LAYOUT_HASH;
    words[at!(total_len)] = segment.len();
    words[at!(header_len)] = HEADER_LEN;
    words[at!(chunk_bytes)] = geometry.chunk_bytes;
    words[at!(max_slots)] = u64::from(geometry.max_slots);
    words[at!(max_segments)] = u64::from(MAX_SEGMENTS);
    words[at!(chunks)] = u64::from(geometry.chunks);
    words[at!(handles)] = u64::from(geometry.handles);
    put_bytes(&mut words, at!(job_uuid), identity.job_uuid);
    put_bytes(&mut words, at!(boot_id), identity.boot_id);
    words[at!(pid_namespace)] = identity.pid_namespace;
    words[at!(creator_pid)] = u64::from(identity.creator_pid);
    words[at!(creator_start)] = identity.creator_start;
    words[at!(writer)] = u64::from(identity.rank) | u64::from(identity.incarnation) << 32;
    words[at!(directory_at)] = geometry.directory_at;
    words[at!(slots_at)] = geometry.slots_at;
    words[at!(chunk_table_at)] = geometry.chunk_table_at;
    words[at!(handles_at)] = geometry.handles_at;
    words[at!(chunks_at)] = geometry.chunks_at;
    words[at!(segment_number)] = number;
    words[at!(overflow_policy)] = policy.number;
    words[at!(overflow_limit)] = policy.limit;
    words[at!(spill_directory)..][..policy.directory.len()].copy_from_slice(&policy.directory);
    words[at!(checksum)] = sum(&words);
    let out = segment.words(0, HEADER_WORDS);
    for (word, value) in out.iter().zip(words).skip(1) {
        word.store(value, Ordering::Relaxed);
    }
    // SYNC: Release; pairs with the Acquire in `check`.
    out[0].store(MAGIC, Ordering::Release);
}

fn version_word(futex_offset: u8) -> u64 {
    u64::from(FORMAT_MAJOR)
        | u64::from(FORMAT_MINOR) << 16
        | u64::from(ENDIAN_MARK) << 32
        | 8 << 48
        | u64::from(futex_offset) << 56
}

fn sum(words: &[u64; HEADER_WORDS]) -> u64 {
    u64::from(checksum::of_words(words[1..HEADER_WORDS - 1].iter().copied()))
}

fn put_bytes(words: &mut [u64; HEADER_WORDS], at: usize, bytes: [u8; 16]) {
    words[at] = u64::from_le_bytes(bytes[..8].try_into().expect("half of 16 bytes"));
    words[at + 1] = u64::from_le_bytes(bytes[8..].try_into().expect("half of 16 bytes"));
}

fn get_bytes(words: &[u64; HEADER_WORDS], at: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[at].to_le_bytes());
    bytes[8..].copy_from_slice(&words[at + 1].to_le_bytes());
    bytes
}

/// [`check`], for a segment that must be a journal's first.
pub fn check_base(segment: &SharedSegment) -> Result<Checked, SegmentError> {
    let checked = check(segment)?;
    if checked.segment_number != 0 {
        return Err(SegmentError::Corrupt {
            name: segment.name().to_string(),
            offset: offset_of!(Header, segment_number) as u64,
            what: "it is a growth segment; open the journal by the name before `.s`",
        });
    }
    Ok(checked)
}

/// Checks every field of a journal segment; no byte of the constant part can differ unnoticed.
pub fn check(segment: &SharedSegment) -> Result<Checked, SegmentError> {
    let name = || segment.name().to_string();
    let corrupt = |offset, what| SegmentError::Corrupt { name: name(), offset, what };
    if segment.len() < HEADER_LEN {
        return Err(corrupt(segment.len(), "it is too short for a header"));
    }
    let shared = segment.words(0, HEADER_WORDS);
    // SYNC: Acquire; pairs with the Release in `fill`.
    if shared[0].load(Ordering::Acquire) != MAGIC {
        return Err(corrupt(0, "it does not begin with a journal's magic number"));
    }
    let words: [u64; HEADER_WORDS] = std::array::from_fn(|i| shared[i].load(Ordering::Relaxed));
    let version = words[at!(version)];
    let (major, endian, word) = (version as u16, (version >> 32) as u16, (version >> 48) as u8);
    if sum(&words) == words[at!(checksum)] {
        if major != FORMAT_MAJOR {
            return Err(SegmentError::Version { name: name(), found: major.into(), expected: FORMAT_MAJOR.into() });
        }
        if words[at!(layout_hash)] != LAYOUT_HASH {
            let found = words[at!(layout_hash)];
            return Err(SegmentError::Layout { name: name(), found, expected: LAYOUT_HASH });
        }
    } else {
        return Err(corrupt(HEADER_WORDS as u64 * 8 - 8, "the header's checksum is wrong"));
    }
    if endian != ENDIAN_MARK || word != 8 {
        return Err(corrupt(8, "it was written on a machine of another byte order or word size"));
    }
    if words[at!(total_len)] != segment.len() || words[at!(header_len)] != HEADER_LEN {
        return Err(corrupt(offset_of!(Header, total_len) as u64, "its length is not the recorded one"));
    }
    let number = words[at!(segment_number)];
    let narrow = |at: usize| u32::try_from(words[at]).ok();
    let geometry = if number == 0 {
        narrow(at!(max_slots))
            .zip(narrow(at!(handles)))
            .and_then(|(slots, handles)| Geometry::base(segment.len(), words[at!(chunk_bytes)], slots, handles))
    } else {
        Geometry::growth(segment.len(), words[at!(chunk_bytes)])
    };
    let recorded = |g: &Geometry| {
        words[at!(directory_at)] == g.directory_at
            && words[at!(slots_at)] == g.slots_at
            && words[at!(chunk_table_at)] == g.chunk_table_at
            && words[at!(handles_at)] == g.handles_at
            && words[at!(chunks_at)] == g.chunks_at
            && words[at!(chunks)] == u64::from(g.chunks)
            && g.total_len == segment.len()
    };
    let Some(geometry) = geometry.filter(recorded) else {
        return Err(corrupt(offset_of!(Header, directory_at) as u64, "its tables are not where they belong"));
    };
    let identity = JournalIdentity {
        job_uuid: get_bytes(&words, at!(job_uuid)),
        rank: words[at!(writer)] as u32,
        incarnation: (words[at!(writer)] >> 32) as u32,
        creator_pid: words[at!(creator_pid)] as u32,
        creator_start: words[at!(creator_start)],
        boot_id: get_bytes(&words, at!(boot_id)),
        pid_namespace: words[at!(pid_namespace)],
    };
    let packed = Packed {
        number: words[at!(overflow_policy)],
        limit: words[at!(overflow_limit)],
        directory: std::array::from_fn(|i| words[at!(spill_directory) + i]),
    };
    let Some(policy) = OverflowPolicy::unpack(&packed) else {
        return Err(corrupt(offset_of!(Header, overflow_policy) as u64, "its policy is none"));
    };
    let futex_offset = (version >> 56) as u8;
    if futex_offset >= 64 || futex_offset % 4 != 0 {
        return Err(corrupt(15, "the lock word's offset is not one"));
    }
    Ok(Checked { geometry, identity, futex_offset, segment_number: number, policy })
}
