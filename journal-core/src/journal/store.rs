//! The words of one journal with its geometry: what every protocol step works on.

use std::sync::OnceLock;

use super::layout::{
    self, CHUNK_CLASS, CHUNK_INDEX_BITS, CHUNK_LAST_SEQ, CHUNK_NEXT, CHUNK_OPEN_SEQ, CHUNK_OWNER, ChunkId, Geometry,
    MAX_SEGMENTS, SEGMENT_SHIFT, SLOT_HEADS,
};
use super::{Region, SharedSegment, growth};
use crate::sync::{AtomicU64, Words};

/// Mapped segments under linear addresses.
#[derive(Debug)]
pub struct Memory {
    base: SharedSegment,
    growth: Box<[OnceLock<SharedSegment>]>,
}

impl Memory {
    /// Starts with the base segment.
    pub fn new(base: SharedSegment) -> Self {
        Self { base, growth: (1..MAX_SEGMENTS).map(|_| OnceLock::new()).collect() }
    }

    /// The base segment.
    pub fn base(&self) -> &SharedSegment {
        &self.base
    }

    /// Growth segment `k`, if it is mapped here.
    pub fn growth(&self, k: u32) -> Option<&SharedSegment> {
        self.growth.get(k.checked_sub(1)? as usize)?.get()
    }

    /// Whether the segment of a chunk is mapped here and has its length. A truncated one would raise SIGBUS, so a
    /// reader asks before each chunk.
    pub fn still_holds(&self, chunk: ChunkId) -> bool {
        let segment = match chunk.segment() {
            0 => Some(&self.base),
            k => self.growth(k),
        };
        segment.is_some_and(|segment| segment.check_len().is_ok())
    }

    /// Adds growth segment `k`; a second mapping of it is dropped.
    pub fn attach(&self, k: u32, segment: SharedSegment) {
        let _ = self.growth[k as usize - 1].set(segment);
    }
}

impl Words for Memory {
    #[inline(always)]
    fn word(&self, address: u64) -> &AtomicU64 {
        &self.words(address, 1)[0]
    }

    #[inline(always)]
    fn words(&self, address: u64, count: usize) -> &[AtomicU64] {
        let segment = address >> SEGMENT_SHIFT;
        if segment == 0 { self.base.words(address, count) } else { self.words_of_growth(address, count) }
    }
}

impl Memory {
    fn words_of_growth(&self, address: u64, count: usize) -> &[AtomicU64] {
        let segment = address >> SEGMENT_SHIFT;
        let mapped = self.growth[segment as usize - 1].get().expect("addresses of unmapped segments are never made");
        mapped.words(address & ((1 << SEGMENT_SHIFT) - 1), count)
    }
}

/// A journal's words and where things are in them.
#[derive(Debug)]
pub struct Store<W> {
    memory: W,
    base: Geometry,
    growth: Box<[OnceLock<Geometry>]>,
    /// Maps a growth segment that another process made.
    map: fn(&W, &Geometry, u32) -> Option<Geometry>,
}

impl Store<Memory> {
    /// Over the base segment, and growth segments when an address needs them.
    pub fn growing(memory: Memory, base: Geometry) -> Self {
        Self { map: growth::map_ready, ..Self::new(memory, base) }
    }
}

impl<W: Words> Store<W> {
    /// Over the base segment alone.
    pub fn new(memory: W, base: Geometry) -> Self {
        Self { memory, base, growth: (1..MAX_SEGMENTS).map(|_| OnceLock::new()).collect(), map: |_, _, _| None }
    }

    /// The words.
    pub fn memory(&self) -> &W {
        &self.memory
    }

    /// Geometry of the base segment.
    #[inline(always)]
    pub fn base(&self) -> &Geometry {
        &self.base
    }

    /// Geometry of a segment; `None` if there is no such segment, or it cannot be mapped.
    pub fn geometry(&self, segment: u32) -> Option<&Geometry> {
        let Some(k) = segment.checked_sub(1) else { return Some(&self.base) };
        let known = self.growth.get(k as usize)?;
        if known.get().is_none() {
            let _ = known.set((self.map)(&self.memory, &self.base, segment)?);
        }
        known.get()
    }

    /// Makes growth segment `k`, already attached to the memory, known.
    pub fn add_geometry(&self, k: u32, geometry: Geometry) {
        let _ = self.growth[k as usize - 1].set(geometry);
    }

    /// Segments that may hold chunks, with their geometry.
    pub fn segments(&self) -> impl Iterator<Item = (u32, &Geometry)> {
        (0..MAX_SEGMENTS).filter_map(|k| Some((k, self.geometry(k)?)))
    }

    /// Chunks of all mapped segments.
    pub fn chunk_count(&self) -> u64 {
        self.segments().map(|(_, g)| u64::from(g.chunks)).sum()
    }

    /// The word at `address`.
    #[inline(always)]
    pub fn word(&self, address: u64) -> &AtomicU64 {
        self.memory.word(address)
    }

    /// Consecutive words.
    #[inline(always)]
    pub fn words(&self, address: u64, count: usize) -> &[AtomicU64] {
        self.memory.words(address, count)
    }

    /// The global sequence.
    #[inline(always)]
    pub fn sequence(&self) -> &AtomicU64 {
        self.word(layout::SEQUENCE)
    }

    /// The boundary word.
    #[inline(always)]
    pub fn boundary(&self) -> &AtomicU64 {
        self.word(layout::BOUNDARY)
    }

    /// A word of a slot.
    pub fn slot_word(&self, slot: u16, field: u64) -> &AtomicU64 {
        self.word(self.base.slot(slot) + field)
    }

    /// Head of a slot's chain.
    pub fn head(&self, slot: u16, region: Region) -> &AtomicU64 {
        self.slot_word(slot, SLOT_HEADS + 8 * region as u64)
    }

    /// Whether `id` is a chunk of a mapped segment.
    pub fn has_chunk(&self, id: ChunkId) -> bool {
        self.geometry(id.segment()).is_some_and(|g| id.index() < g.chunks)
    }

    /// Address of a chunk's first byte. The chunk exists ([`Self::has_chunk`]).
    pub fn chunk_at(&self, id: ChunkId) -> u64 {
        let geometry = self.geometry(id.segment()).expect("chunk ids are checked before use");
        u64::from(id.segment()) << SEGMENT_SHIFT | geometry.chunk(id.index())
    }

    /// Its table entry.
    pub fn chunk(&self, id: ChunkId) -> ChunkWords<'_> {
        let geometry = self.geometry(id.segment()).expect("chunk ids are checked before use");
        let at = u64::from(id.segment()) << SEGMENT_SHIFT | geometry.chunk_entry(id.index());
        ChunkWords(self.words(at, 5))
    }

    /// A chunk link (id + 1) read from shared memory: `Ok(None)` for 0, `Err` if there is no such chunk.
    pub fn link(&self, link: u64) -> Result<Option<ChunkId>, u64> {
        let Some(id) = link.checked_sub(1) else { return Ok(None) };
        let id = u32::try_from(id).map(ChunkId).map_err(|_| link)?;
        if self.has_chunk(id) { Ok(Some(id)) } else { Err(link) }
    }

    /// All chunks of mapped segments.
    pub fn chunk_ids(&self) -> impl Iterator<Item = ChunkId> {
        self.segments().flat_map(|(k, g)| (0..g.chunks).map(move |i| ChunkId(k << CHUNK_INDEX_BITS | i)))
    }
}

/// The words of a chunk table entry.
#[derive(Clone, Copy)]
pub struct ChunkWords<'a>(&'a [AtomicU64]);

impl<'a> ChunkWords<'a> {
    fn field(self, at: u64) -> &'a AtomicU64 {
        &self.0[at as usize / 8]
    }

    /// 0, slot + 1 or OWNER_JOURNAL.
    pub fn owner(self) -> &'a AtomicU64 {
        self.field(CHUNK_OWNER)
    }

    /// Class and run length.
    pub fn class(self) -> &'a AtomicU64 {
        self.field(CHUNK_CLASS)
    }

    /// Sequence when it was opened.
    pub fn open_seq(self) -> &'a AtomicU64 {
        self.field(CHUNK_OPEN_SEQ)
    }

    /// Last sequence when it was closed.
    pub fn last_seq(self) -> &'a AtomicU64 {
        self.field(CHUNK_LAST_SEQ)
    }

    /// Next chunk + 1.
    pub fn next(self) -> &'a AtomicU64 {
        self.field(CHUNK_NEXT)
    }
}
