//! What a fuzzer calls with bytes of its own. `journal-core/tests/fuzz_seeds.rs` calls the same with the seeds.
//!
//! Bytes never crash or hang a reader; what comes back keeps the promises of its type.
#![allow(dead_code, reason = "each fuzz target uses one of the entries")]

mod image;

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use journal_core::journal::arena::Run;
use journal_core::journal::layout::{ChunkId, Geometry};
use journal_core::journal::scan::{self, Position, Scratch, Stop, Visit};
use journal_core::journal::store::Store;
use journal_core::journal::{Event, JournalReader, Outcome, Record, RecordView, Region, SegmentName};
use journal_core::request;
use journal_core::sync::{HeapWords, Ordering};

use image::{Image, Patches};

/// An entry by its name, which is also the name of its folder of seeds.
pub const ALL: &[(&str, fn(&[u8]))] = &[("decode", decode), ("scan", scan), ("load", load), ("follow", follow)];

/// A record's payload, after two bytes of its kind.
pub fn decode(data: &[u8]) {
    let Some((code, payload)) = data.split_first_chunk::<2>() else { return };
    match request::decode(u16::from_le_bytes(*code), payload) {
        Ok(read) => {
            let request = read.as_request();
            assert_eq!(request.to_vec(), payload, "a payload has one encoding");
            assert_eq!(request.encoded_len(), payload.len());
            let _ = (read.call(), read.to_string(), format!("{read:?}"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A base segment's bytes in memory: every lane is walked, damaged once more, and walked on.
pub fn scan(data: &[u8]) {
    let image = Image::fresh();
    let patches = Patches::new(data);
    let base = image.geometry;
    let words = HeapWords::zeroed(base.total_len);
    let store = Store::new(words, base);
    let put = |image: &Image| {
        let bytes = image.segment(0).as_chunks::<8>().0;
        for (word, value) in store.words(0, bytes.len()).iter().zip(bytes) {
            word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
        }
    };
    let mut image = image;
    let rest = patches.apply(&mut image);
    put(&image);
    let mut scratch = Scratch::default();
    let mut positions = Vec::new();
    for slot in 0..base.max_slots as u16 {
        for region in Region::ALL {
            let mut look = Look::new(&base);
            let end = scan::walk(&store, slot, region, &mut scratch, &mut look);
            assert_ne!(end, Err(Stop::Visitor), "this visitor never ends a walk");
            positions.extend(look.last.map(|position| (slot, region, position)));
        }
    }
    rest.apply(&mut image);
    put(&image);
    for (slot, region, position) in positions {
        let _ = scan::walk_on(&store, slot, region, Some(position), &mut scratch, &mut Look::new(&base));
    }
}

struct Look {
    /// More records than bytes for them: the walk goes in circles.
    left: u64,
    longest: usize,
    last: Option<Position>,
}

impl Look {
    fn new(base: &Geometry) -> Self {
        Self { left: base.total_len / 32, longest: base.total_len as usize, last: None }
    }
}

impl Visit for Look {
    fn enter(&mut self, _: ChunkId) -> bool {
        true
    }

    fn record(&mut self, record: &RecordView<'_>, _: Option<Run>) -> bool {
        self.left = self.left.checked_sub(1).expect("a walk shows a record once");
        assert!(record.payload.len() <= self.longest);
        true
    }

    fn passed(&mut self, position: Position) {
        self.last = Some(position);
    }
}

/// A folder with the files of one journal, rewritten by every run.
struct Files {
    dir: tempfile::TempDir,
    name: SegmentName,
    segments: Vec<File>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let name = SegmentName::journal("fuzz", 0, 0).expect("a good name");
        let create = |k| {
            let name = if k == 0 { name.clone() } else { name.growth(k) };
            let path = name.path_in(dir.path());
            File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file")
        };
        let segments = (0..image::SEGMENTS as u32).map(create).collect();
        Self { dir, name, segments }
    }

    fn put(&self, image: &Image) {
        for (k, file) in self.segments.iter().enumerate() {
            let bytes = image.segment(k);
            file.write_all_at(bytes, 0).and_then(|()| file.set_len(bytes.len() as u64)).expect("room for a file");
        }
    }

    fn open(&self) -> Option<JournalReader> {
        match JournalReader::open_in(self.dir.path(), &self.name) {
            Ok(reader) => Some(reader),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                None
            }
        }
    }
}

thread_local! {
    static FILES: RefCell<Option<Files>> = const { RefCell::new(None) };
}

fn with_files(run: impl FnOnce(&Files)) {
    FILES.with_borrow_mut(|files| run(files.get_or_insert_with(Files::new)));
}

/// A journal's files: opened and read whole.
pub fn load(data: &[u8]) {
    let mut image = Image::fresh();
    Patches::new(data).apply(&mut image);
    with_files(|files| {
        files.put(&image);
        let Some(reader) = files.open() else { return };
        let Ok(snapshot) = reader.snapshot() else { return };
        for records in [&snapshot.setup, &snapshot.step] {
            assert!(records.is_sorted_by_key(|record| record.sequence));
            assert!(records.iter().all(|record| matches!(record.outcome, Outcome::Committed | Outcome::Corrupt)));
        }
        assert!(snapshot.step.iter().all(|record| record.sequence >= snapshot.boundary.sequence));
        assert!(snapshot.missing.iter().all(|range| range.start < range.end));
        let _ = (snapshot.is_whole(), snapshot.lost_count(), snapshot.count(Outcome::Torn), reader.growth_segments());
        let all = snapshot.setup.iter().chain(&snapshot.step).chain(&snapshot.unfinished);
        all.for_each(|record| drop(request::decode(record.kind, &record.payload)));
        if let Ok(prepared) = reader.prepared() {
            assert!(prepared.len() <= 2);
        }
        if let Ok(handles) = reader.live_handles() {
            assert!(handles.iter().all(|(handle, _)| handle.0 >> 63 == 1), "a handle is marked as one");
        }
    });
}

/// A journal's files, changed under a follower: records come in order, each number once.
pub fn follow(data: &[u8]) {
    let mut image = Image::fresh();
    let mut patches = Patches::new(data).apply(&mut image);
    with_files(|files| {
        files.put(&image);
        let Some(reader) = files.open() else { return };
        let mut follower = reader.follow();
        let mut next = 1;
        for most in [3, 1000, 1, 1000] {
            let Ok(events) = follower.poll(most) else { return };
            assert!(events.len() <= most);
            for event in events {
                let (first, end) = match &event {
                    Event::Record(Record { sequence, .. }) => (sequence.0, sequence.0 + 1),
                    Event::Missing(range) => (range.start, range.end),
                    _ => continue,
                };
                assert!(next <= first && first < end, "{event:?} where {next} was next");
                next = end;
            }
            patches = patches.apply(&mut image);
            files.put(&image);
        }
    });
}
