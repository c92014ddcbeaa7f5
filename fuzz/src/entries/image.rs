//! A whole journal, and a small language of changes to it: a fuzzer that had to find 80 KiB with two checksums by
//! itself would find nothing.

use std::sync::OnceLock;

use journal_core::handle::HandleKind;
use journal_core::journal::layout::{
    COMMITTED, END, Geometry, HEADER_WORDS, PENDING, RECORD_VERSION, SEALED, SEQUENCE, record_bytes,
};
use journal_core::journal::{Journal, JournalOptions, OverflowPolicy, Region, checksum};

/// Base and one growth segment.
pub const SEGMENTS: usize = 2;

/// The bytes of a journal with set-up and step records of two lanes, several chunks, an arena payload, a growth
/// segment, PREPARED contents and handles.
#[derive(Clone)]
pub struct Image {
    segments: Vec<Vec<u8>>,
    pub geometry: Geometry,
}

impl Image {
    pub fn fresh() -> Self {
        static FRESH: OnceLock<Image> = OnceLock::new();
        FRESH.get_or_init(create).clone()
    }

    pub fn segment(&self, k: usize) -> &[u8] {
        &self.segments[k]
    }

    fn words(&self) -> usize {
        self.segments.iter().map(|bytes| bytes.len() / 8).sum()
    }

    /// Segment and byte offset of the word that `position` picks.
    fn place(&self, position: u16) -> Option<(usize, usize)> {
        let mut word = usize::from(position) % self.words().max(1);
        for (k, bytes) in self.segments.iter().enumerate() {
            if word < bytes.len() / 8 {
                return Some((k, word * 8));
            }
            word -= bytes.len() / 8;
        }
        None
    }

    fn get(&self, (k, at): (usize, usize)) -> u64 {
        self.segments[k].get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn set(&mut self, (k, at): (usize, usize), value: u64) {
        if let Some(bytes) = self.segments[k].get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
            *bytes = value.to_le_bytes();
        }
    }

    /// Makes the record at `at` of `slot` a whole one again.
    fn seal_record(&mut self, (k, at): (usize, usize), slot: u16) {
        let shape = self.get((k, at + 8));
        let len = shape & 0xFFFF_FFFF;
        let payload = at + 32..at + 32 + len.next_multiple_of(8).min(1 << 20) as usize;
        if at as u64 + record_bytes(len) > self.segments[k].len() as u64 {
            return;
        }
        let words = self.segments[k][payload].as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let commit = self.get((k, at));
        let sum = checksum::of_words(words.chain([shape, commit]));
        self.set((k, at + 16), u64::from(sum) | u64::from(slot) << 32 | u64::from(RECORD_VERSION) << 48);
    }

    fn seal_header(&mut self, k: usize) {
        if self.segments[k].len() < HEADER_WORDS * 8 {
            return;
        }
        let words: Vec<u64> = (1..HEADER_WORDS - 1).map(|i| self.get((k, 8 * i))).collect();
        self.set((k, 8 * (HEADER_WORDS - 1)), checksum::of_words(words.into_iter()).into());
    }
}

fn create() -> Image {
    let options = JournalOptions {
        capacity_bytes: 64 << 10,
        chunk_bytes: 4096,
        max_slots: 3,
        max_handles: 8,
        policy: OverflowPolicy::Grow { limit_bytes: 1 << 20 },
        ..JournalOptions::new(format!("fuzz-image-{}", std::process::id()), 0, 0)
    };
    let journal = Journal::create(&options).expect("/dev/shm has room for a small journal");
    let append = |region, count: u16, bytes: usize| {
        for i in 0..count {
            let record = journal.append(region, 0x8000 | i, 0, &[&vec![i as u8; bytes]]).expect("room");
            journal.complete(record, u64::from(i));
        }
    };
    append(Region::Setup, 3, 100);
    append(Region::Step, 2, 24);
    journal.step_commit(0).expect("nobody holds the lock");
    let other_lane = || {
        append(Region::Setup, 6, 900);
        append(Region::Step, 2, 40);
    };
    std::thread::scope(|scope| scope.spawn(other_lane).join().expect("no panic"));
    append(Region::Setup, 1, 5000);
    append(Region::Step, 4, 64);
    append(Region::Step, 1, 9000);
    for _ in 0..2 {
        let handle = journal.handles().reserve(HandleKind::Stream).expect("room for a handle");
        journal.handles().bind(handle, 0x5EED).expect("it was just reserved");
    }
    journal.handles().reserve(HandleKind::Event).expect("room for a handle");
    for step in [1, 2] {
        journal.prepared_write(step, &[step as u8; 300], &[(7, &[1; 50])]).expect("room");
    }
    append(Region::Setup, 30, 900);
    let read = |k| {
        let name = if k == 0 { journal.name().clone() } else { journal.name().growth(k) };
        std::fs::read(name.path_in("/dev/shm".as_ref())).expect("just created")
    };
    let segments = (0..SEGMENTS as u32).map(read).collect();
    journal.unlink().expect("its own name");
    let geometry = Geometry::base(options.capacity_bytes, options.chunk_bytes, options.max_slots, options.max_handles);
    Image { segments, geometry: geometry.expect("the journal was made with it") }
}

/// Changes of an image, as bytes.
pub struct Patches<'a>(&'a [u8]);

/// Words that mean something.
const TELLING: [u64; 16] = [
    0,
    1,
    u64::MAX,
    i64::MAX as u64,
    PENDING,
    COMMITTED,
    COMMITTED | 1,
    COMMITTED | 40,
    END,
    END | 1,
    END | 1 << 20,
    SEALED,
    0xFFFF_FFFF,
    0xFFFE,
    0x8000_0000_0000_0020,
    64 << 10,
];

impl<'a> Patches<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Does the changes up to the next mark; the rest.
    pub fn apply(self, image: &mut Image) -> Patches<'a> {
        let mut left = self.0;
        while let Some((&[operation, p0, p1], rest)) = left.split_first_chunk::<3>() {
            let place = image.place(u16::from_le_bytes([p0, p1]));
            let mut take = Take(rest);
            match (operation % 10, place) {
                (0, Some(place)) => {
                    let value = take.number(8);
                    image.set(place, value);
                }
                (1, Some(place)) => image.set(place, image.get(place) ^ 1 << (take.number(1) % 64)),
                (2, Some(place)) => {
                    let change = take.number(1) as i8;
                    image.set(place, image.get(place).wrapping_add_signed(i64::from(change)));
                }
                (3, Some(place)) => {
                    if let Some(from) = image.place(take.number(2) as u16) {
                        image.set(place, image.get(from));
                    }
                }
                (4, Some(place)) => image.set(place, TELLING[take.number(1) as usize % TELLING.len()]),
                (5, Some(place)) => image.seal_record(place, take.number(1) as u16),
                (6, Some((k, _))) => image.seal_header(k),
                (7, Some((k, at))) => image.segments[k].truncate(at),
                (8, _) => {
                    // What a writer does last, so that what stands there is looked at.
                    let next = image.get((0, SEQUENCE as usize)).wrapping_add(take.number(1));
                    image.set((0, SEQUENCE as usize), next);
                }
                _ => return Patches(take.0),
            }
            left = take.0;
        }
        Patches(&[])
    }
}

struct Take<'a>(&'a [u8]);

impl Take<'_> {
    /// Little-endian; missing bytes are zero.
    fn number(&mut self, bytes: usize) -> u64 {
        let (now, later) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = later;
        now.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}
