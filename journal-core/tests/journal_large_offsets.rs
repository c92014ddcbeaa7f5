//! Records and payloads more than 4 GiB behind the beginning of a spill file.
#![cfg(not(loom))]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use journal_core::journal::layout::{
    DIRECTORY_CONTENTS, DIRECTORY_ENTRY_BYTES, DIRECTORY_LEN, DIRECTORY_PLACE, Geometry, OWNER_JOURNAL, SEGMENT_READY, SEGMENTS,
};
use journal_core::journal::{Journal, JournalOptions, JournalReader, OverflowPolicy, Region, SegmentName, SharedSegment, header};
use journal_core::sync::{Ordering, Words};

const BYTES: u64 = 6 << 30;
/// Chunk tables and what the test itself writes; the rest of the file is a hole.
const NEEDED: u64 = 64 << 20;

struct Scratch(Journal);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.unlink();
    }
}

/// A spill file as the journal makes it, but with a hole where 6 GiB would stand, and every chunk below 4 GiB taken.
fn spill_sparse(journal: &Journal, options: &JournalOptions, dir: &std::path::Path) -> std::path::PathBuf {
    let name = SegmentName::parse(&format!("{}.s1", journal.name().as_str())).unwrap();
    let path = name.path_in(dir);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.set_len(BYTES).unwrap();
    let segment = SharedSegment::open_in(dir, &name).unwrap();
    let geometry = Geometry::growth(BYTES, options.chunk_bytes).unwrap();
    header::fill(&segment, &geometry, journal.identity(), 0, 1, &options.policy);
    for index in (0..geometry.chunks).take_while(|index| geometry.chunk(*index) < 1 << 32) {
        segment.word(geometry.chunk_entry(index)).store(OWNER_JOURNAL, Ordering::Relaxed);
    }
    let base = SharedSegment::open(journal.name()).unwrap();
    let whole = Geometry::base(options.capacity_bytes, options.chunk_bytes, options.max_slots, options.max_handles).unwrap();
    let entry = whole.directory_at + DIRECTORY_ENTRY_BYTES;
    base.word(entry + DIRECTORY_PLACE).store(1, Ordering::Relaxed);
    base.word(entry + DIRECTORY_LEN).store(BYTES, Ordering::Relaxed);
    base.word(entry + DIRECTORY_CONTENTS).store(geometry.chunks.into(), Ordering::Relaxed);
    base.word(entry).store(SEGMENT_READY, Ordering::Release);
    base.word(SEGMENTS).fetch_add(1, Ordering::Release);
    path
}

#[test]
fn offsets_beyond_4_gib_are_ordinary() {
    let folder = tempfile::tempdir().unwrap();
    let free = rustix::fs::statvfs(folder.path()).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    if free < NEEDED {
        eprintln!("SKIPPED: offsets beyond 4 GiB need {NEEDED} bytes in {}, {free} are free", folder.path().display());
        return;
    }
    let options = JournalOptions {
        max_slots: 4,
        max_handles: 64,
        policy: OverflowPolicy::Spill { directory: folder.path().to_owned() },
        ..JournalOptions::new(format!("offsets-{}", std::process::id()), 0, 0)
    };
    let scratch = Scratch(Journal::create(&options).expect("/dev/shm has room for a journal"));
    let journal = &scratch.0;
    let path = spill_sparse(journal, &options, folder.path());
    let payload = |count: u64| [count.to_le_bytes(); 6000];
    let mut beyond = 0_u64;
    let mut count = 0_u64;
    // The base's 4 MiB first.
    while beyond < 40 {
        let record = journal.append(Region::Setup, 1, 0, &[payload(count).as_flattened()]).unwrap();
        assert!(journal.complete(record, count));
        count += 1;
        let offset = record.position() & ((1 << 40) - 1);
        if record.position() >> 40 == 1 {
            assert!(offset > u64::from(u32::MAX), "{offset:#x}");
            beyond += 1;
        }
        assert!(count < 1000, "the spill file is not used");
    }
    let large = vec![9_u8; 300_000];
    journal.append(Region::Setup, 2, 0, &[&large]).unwrap();
    let reader = JournalReader::open(journal.name()).unwrap();
    assert_eq!(reader.growth_segments(), [(1, BYTES)]);
    let snapshot = reader.snapshot().unwrap();
    assert!(snapshot.is_whole(), "{:?}", snapshot.lanes);
    assert_eq!(snapshot.setup.len() as u64, count + 1);
    for (n, record) in (0..count).zip(&snapshot.setup) {
        assert_eq!((record.result, &record.payload[..]), (Some(n), payload(n).as_flattened()));
    }
    assert_eq!(snapshot.setup.last().unwrap().payload, large);
    let used = File::open(&path).unwrap().metadata().unwrap().blocks() * 512;
    assert!(used < NEEDED, "{used} bytes of the file are not a hole");
    drop(scratch);
    assert!(!path.exists(), "the spill file goes with its journal");
}
