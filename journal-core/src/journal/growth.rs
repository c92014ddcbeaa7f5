//! Further segments of a journal: made by a writer under the admin lock, mapped by everybody else when needed.
//!
//! ```text
//! EMPTY --state, creator--> CREATING --segment published--> READY
//!   ^______ the next holder of the admin lock, if the creator died ______|
//! ```
//!
//! The directory entry says who creates what before anything has a name, so that a death in between leaves
//! nothing that is not found.

use std::fs;
use std::path::{Path, PathBuf};

use super::append_error::AppendError;
use super::directory::{self, Description};
use super::layout::{
    CHUNK_ENTRY_BYTES, ChunkId, DIRECTORY_ENTRY_BYTES, Geometry, HEADER_LEN, MAX_SEGMENTS, SEGMENT_EMPTY, SEGMENTS,
};
use super::name::SHARED_MEMORY_DIR;
use super::store::{Memory, Store};
use super::writer::Shared;
use super::{JournalReader, OverflowPolicy, SegmentError, SegmentName, SegmentRole, SharedSegment, header};
use crate::sync::{AtomicU64, Ordering, Words};

/// Larger growth segments are only made for payloads that need them.
const LARGEST_STEP: u64 = 1 << 30;
/// Growth leaves this much of a file system to others, or an eighth of a small one.
const FREE_FLOOR: u64 = 64 << 20;

fn entry<W: Words>(store: &Store<W>, k: u32) -> &[AtomicU64] {
    let at = store.base().directory_at + u64::from(k) * DIRECTORY_ENTRY_BYTES;
    store.words(at, (DIRECTORY_ENTRY_BYTES / 8) as usize)
}

/// Adds one segment with at least `chunks` chunks in a row, as the policy allows. Under the admin lock.
pub(super) fn grow(shared: &Shared, chunks: u64) -> Result<(), AppendError> {
    let store = &shared.store;
    let (dir, limit, place) = match &shared.policy {
        OverflowPolicy::Grow { limit_bytes } => (Path::new(SHARED_MEMORY_DIR), *limit_bytes, 0),
        OverflowPolicy::Spill { directory } => (directory.as_path(), u64::MAX, 1),
        OverflowPolicy::Error | OverflowPolicy::Block { .. } => return Err(AppendError::GrowthLimit { limit: 0 }),
    };
    let base = store.memory().base();
    settle(store, base.name(), dir);
    let used = ready(store).fold(base.len(), |sum, (_, what)| sum.saturating_add(what.len));
    let Some(k) = (1..MAX_SEGMENTS).find(|k| ready(store).all(|(used, _)| used != *k)) else { return Err(AppendError::GrowthLimit { limit: used }) };
    let chunk_bytes = store.base().chunk_bytes;
    let least = bytes_for(chunks, chunk_bytes);
    let wanted = least.max((base.len() << (k - 1).min(20)).min(LARGEST_STEP));
    let room = limit.saturating_sub(used);
    if least > room {
        return Err(AppendError::GrowthLimit { limit });
    }
    let name = base.name().growth(k);
    let free = free_above_floor(dir, &name)?;
    if least > free {
        return Err(SegmentError::NoSpace { name: name.to_string(), dir: dir.to_owned(), needed: least, free }.into());
    }
    let len = wanted.min(room).min(free);
    let Some(geometry) = Geometry::growth(len, chunk_bytes).filter(|g| u64::from(g.chunks) >= chunks) else {
        return Err(AppendError::TooLarge { len: chunks * chunk_bytes, limit: room.min(free) });
    };
    let words = entry(store, k);
    let (creator, chunks) = (std::process::id(), u64::from(geometry.chunks));
    directory::announce(words, &Description { place, creator, len: geometry.total_len, chunks });
    let created = SharedSegment::create_in(dir, &name, geometry.total_len, |segment| {
        header::fill(segment, &geometry, &shared.identity, shared.futex_offset, k.into(), &shared.policy);
        Ok::<_, SegmentError>(())
    });
    let segment = match created {
        Ok(segment) => segment,
        Err(error) => {
            words[0].store(SEGMENT_EMPTY, Ordering::Release);
            return Err(error.into());
        }
    };
    store.memory().attach(k, segment);
    store.add_geometry(k, geometry);
    directory::publish(words);
    store.word(SEGMENTS).fetch_add(1, Ordering::Release);
    tracing::debug!(name = %name, bytes = geometry.total_len, "journal grew");
    Ok(())
}

/// Bytes of a growth segment that has `chunks` chunks.
fn bytes_for(chunks: u64, chunk_bytes: u64) -> u64 {
    let tables = (HEADER_LEN + chunks.saturating_mul(CHUNK_ENTRY_BYTES)).next_multiple_of(4096);
    tables.saturating_add(chunks.saturating_mul(chunk_bytes))
}

fn free_above_floor(dir: &Path, name: &SegmentName) -> Result<u64, SegmentError> {
    let fs = rustix::fs::statvfs(dir).map_err(|error| SegmentError::Io {
        name: name.to_string(),
        action: "ask for the free space for",
        source: error.into(),
    })?;
    // A tmpfs without a limit reports no blocks at all.
    if fs.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    let floor = FREE_FLOOR.min(fs.f_blocks.saturating_mul(fs.f_frsize) / 8);
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize).saturating_sub(floor))
}

/// Undoes what a dead creator left. The lock is ours, so whoever stands as creating is dead.
fn settle<W: Words>(store: &Store<W>, base: &SegmentName, dir: &Path) {
    for k in 1..MAX_SEGMENTS {
        let words = entry(store, k);
        let Some((false, what)) = directory::described(words) else { continue };
        remove_half_made(dir, &base.growth(k), what.creator);
        words[0].store(SEGMENT_EMPTY, Ordering::Release);
    }
}

/// Published or not: no chunk of it was ever claimed.
fn remove_half_made(dir: &Path, name: &SegmentName, creator: u32) {
    let _ = SharedSegment::unlink_in(dir, name);
    for attempt in 0..=super::segment::TEMPORARY_ATTEMPTS {
        if fs::remove_file(dir.join(name.temporary(creator, attempt))).is_err() {
            break;
        }
    }
}

/// Maps growth segment `k` if it is ready; its geometry. Every byte of it is taken as hostile.
pub(super) fn map_ready(memory: &Memory, base: &Geometry, k: u32) -> Option<Geometry> {
    let at = base.directory_at + u64::from(k) * DIRECTORY_ENTRY_BYTES;
    let words = memory.base().words(at, (DIRECTORY_ENTRY_BYTES / 8) as usize);
    let Some((true, what)) = directory::described(words) else { return None };
    if memory.growth(k).is_none() {
        let segment = open(memory, what.place, k)
            .inspect_err(|error| tracing::debug!(k, %error, "growth segment cannot be mapped"))
            .ok()?;
        memory.attach(k, segment);
    }
    Geometry::growth(memory.growth(k)?.len(), base.chunk_bytes)
}

fn open(memory: &Memory, place: u32, k: u32) -> Result<SharedSegment, SegmentError> {
    let base = memory.base();
    let whole = header::check(base)?;
    let name = base.name().growth(k);
    let open = |dir: &Path| match base.is_writable() {
        true => SharedSegment::open_in(dir, &name),
        false => SharedSegment::open_read_only(dir, &name),
    };
    let segment = match (open(base.dir()), &whole.policy) {
        // A copy of a spilled journal stands beside its base; the living one does not.
        (Err(SegmentError::NotFound { .. }), OverflowPolicy::Spill { directory }) if place & 1 == 1 => open(directory)?,
        (found, _) => found?,
    };
    let part = header::check(&segment)?;
    if part.segment_number != u64::from(k)
        || part.identity != whole.identity
        || part.geometry.chunk_bytes != whole.geometry.chunk_bytes
    {
        return Err(SegmentError::Corrupt { name: name.to_string(), offset: 0, what: "it belongs to another journal" });
    }
    Ok(segment)
}

/// Removes a journal's published names, its growth segments and spill files first: what a death leaves can still
/// be found through the base.
pub fn remove(name: &SegmentName) -> Result<(), SegmentError> {
    let dir = Path::new(SHARED_MEMORY_DIR);
    remove_growth(dir, name);
    SharedSegment::unlink_in(dir, name)
}

/// Removes the growth segments of the journal `name` in `dir`, wherever its header says that they are.
pub fn remove_growth(dir: &Path, name: &SegmentName) {
    if !matches!(name.role(), SegmentRole::Journal { growth: 0, .. }) {
        return;
    }
    let mut dirs: Vec<PathBuf> = vec![dir.to_owned()];
    let Ok(reader) = JournalReader::open_in(dir, name) else { return };
    if let OverflowPolicy::Spill { directory } = reader.policy() {
        dirs.push(directory.clone());
    }
    let store = reader.store();
    for k in 1..MAX_SEGMENTS {
        if let Some((_, what)) = directory::described(entry(store, k)) {
            dirs.iter().for_each(|dir| remove_half_made(dir, &name.growth(k), what.creator));
        }
    }
}

fn ready<W: Words>(store: &Store<W>) -> impl Iterator<Item = (u32, Description)> {
    (1..MAX_SEGMENTS).filter_map(|k| match directory::described(entry(store, k)) {
        Some((true, what)) => Some((k, what)),
        _ => None,
    })
}

/// Numbers and bytes of the growth segments that are ready.
pub(super) fn describe<W: Words>(store: &Store<W>) -> Vec<(u32, u64)> {
    ready(store).map(|(k, what)| (k, what.len)).collect()
}

/// Where segment numbers and chunks cannot collide.
const _: () = assert!(ChunkId::new(MAX_SEGMENTS - 1, 0).segment() == MAX_SEGMENTS - 1);
