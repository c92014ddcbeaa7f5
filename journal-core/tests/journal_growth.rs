//! What a full journal does, by policy; what a death in the middle of a growth leaves.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use journal_core::journal::layout::{DIRECTORY_PLACE, Geometry, SEGMENT_CREATING};
use journal_core::journal::{
    AppendError, Journal, JournalOptions, JournalReader, OverflowPolicy, Region, SegmentError, SharedSegment,
};
use journal_core::sync::{Ordering, Words};

const SHM: &str = "/dev/shm";

struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str, policy: OverflowPolicy) -> Self {
        let options = JournalOptions {
            capacity_bytes: 128 << 10,
            chunk_bytes: 4096,
            max_slots: 8,
            max_handles: 16,
            job_uuid: [tag.len() as u8; 16],
            policy,
            ..JournalOptions::new(format!("grow-{tag}-{}", std::process::id()), 0, 0)
        };
        Self(Journal::create(&options).expect("/dev/shm has room for a small journal"))
    }

    fn leftovers(&self, dir: &Path) -> Vec<PathBuf> {
        let mine = self.name().as_str().to_owned();
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().contains(&mine)).collect()
    }

    /// Appends until the journal refuses.
    fn fill(&self, region: Region) -> (u64, AppendError) {
        let mut count = 0;
        loop {
            match self.append(region, 1, 0, &[&[7; 400]]) {
                Ok(_) => count += 1,
                Err(error) => return (count, error),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.unlink();
    }
}

impl std::ops::Deref for Scratch {
    type Target = Journal;
    fn deref(&self) -> &Journal {
        &self.0
    }
}

fn spill_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn check_growing(tag: &str, policy: OverflowPolicy, dir: &Path) {
    let journal = Scratch::new(tag, policy.clone());
    let early = JournalReader::open(journal.name()).unwrap();
    assert_eq!(early.policy(), &policy);
    let peer = Journal::open(journal.name()).unwrap();
    let payload = |i: u64| [i.to_le_bytes(); 40];
    for i in 0..2000 {
        let writer = if i % 2 == 0 { &*journal } else { &peer };
        writer.append(Region::Setup, 1, 0, &[payload(i).as_flattened()]).unwrap();
    }
    // In one piece, larger than the base.
    let large: Vec<u8> = (0..700_000_u32).map(|i| (i * 7) as u8).collect();
    peer.append(Region::Setup, 2, 0, &[&large]).unwrap();
    peer.prepared_write(3, &large, &[]).unwrap();
    for reader in [early, JournalReader::open(journal.name()).unwrap()] {
        let snapshot = reader.snapshot().unwrap();
        assert!(snapshot.is_whole(), "{:?}", snapshot.lanes);
        assert_eq!(snapshot.setup.len(), 2001);
        let all = snapshot.setup.iter().zip(0..2000);
        assert!(all.into_iter().all(|(record, i)| record.payload == payload(i).as_flattened()));
        assert_eq!(snapshot.setup[2000].payload, large);
        assert_eq!(reader.prepared().unwrap()[0].blob, large);
        assert!(reader.growth_segments().len() >= 2, "{:?}", reader.growth_segments());
    }
    let name = journal.name().clone();
    assert!(journal.leftovers(dir).iter().any(|path| path.ends_with(name.growth(1).as_str())));
    journal.unlink().unwrap();
    assert_eq!(journal.leftovers(dir), Vec::<PathBuf>::new());
}

#[test]
fn a_growing_journal_is_read_whole_by_early_and_late_readers() {
    check_growing("shm", OverflowPolicy::Grow { limit_bytes: 64 << 20 }, Path::new(SHM));
}

#[test]
fn a_spilling_journal_goes_on_in_files() {
    let folder = spill_folder();
    check_growing("spill", OverflowPolicy::Spill { directory: folder.path().to_owned() }, folder.path());
}

#[test]
fn growth_stops_at_its_limit() {
    let journal = Scratch::new("limit", OverflowPolicy::Grow { limit_bytes: 1 << 20 });
    let (count, error) = journal.fill(Region::Setup);
    assert!(matches!(error, AppendError::GrowthLimit { limit } if limit == 1 << 20), "{error}");
    let bytes = std::fs::metadata(journal.name().path_in(SHM.as_ref())).unwrap().len();
    let all: u64 = bytes + JournalReader::open(journal.name()).unwrap().growth_segments().iter().map(|s| s.1).sum::<u64>();
    assert!(all <= 1 << 20 && all > 900_000, "{all} bytes");
    assert_eq!(journal.snapshot().setup.len() as u64, count);
    assert!(matches!(journal.append(Region::Setup, 1, 0, &[&vec![0; 65 << 20]]), Err(AppendError::TooLarge { .. })));
}

#[test]
fn threads_that_grow_at_once_lose_nothing() {
    let journal = Scratch::new("race", OverflowPolicy::Grow { limit_bytes: 64 << 20 });
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let journal = &journal;
            scope.spawn(move || {
                for i in 0..1000_u64 {
                    let payload = [thread, i].map(u64::to_le_bytes);
                    journal.append(Region::Step, 1, 0, &[payload.as_flattened(), &[1; 200]]).unwrap();
                }
            });
        }
    });
    let snapshot = JournalReader::open(journal.name()).unwrap().snapshot().unwrap();
    assert!(snapshot.is_whole());
    assert_eq!((snapshot.step.len(), snapshot.missing_count()), (6000, 0));
}

#[test]
fn a_creator_that_died_is_undone_by_the_next() {
    let journal = Scratch::new("dead", OverflowPolicy::Grow { limit_bytes: 64 << 20 });
    // What a kill -9 inside a growth leaves: the entry, and the object under its temporary or its final name.
    let dead = 0x3FFF_FFF0_u32;
    let geometry = Geometry::base(128 << 10, 4096, 8, 16).unwrap();
    let base = SharedSegment::open(journal.name()).unwrap();
    let entry = |k: u64| geometry.directory_at + k * 32;
    for k in [1, 2] {
        base.word(entry(k) + DIRECTORY_PLACE).store(u64::from(dead) << 32, Ordering::Relaxed);
        base.word(entry(k)).store(SEGMENT_CREATING, Ordering::Release);
    }
    let temporary = Path::new(SHM).join(format!(".{}.{dead}", journal.name().growth(1)));
    std::fs::write(&temporary, b"half").unwrap();
    std::fs::write(journal.name().growth(2).path_in(SHM.as_ref()), b"half").unwrap();
    for _ in 0..1000 {
        journal.append(Region::Setup, 1, 0, &[&[7; 400]]).unwrap();
    }
    assert!(!temporary.exists());
    assert!(journal.snapshot().is_whole());
    assert_eq!(journal.snapshot().setup.len(), 1000);
    // And by whoever removes the journal.
    base.word(entry(9) + DIRECTORY_PLACE).store(u64::from(dead) << 32, Ordering::Relaxed);
    base.word(entry(9)).store(SEGMENT_CREATING, Ordering::Release);
    std::fs::write(Path::new(SHM).join(format!(".{}.{dead}", journal.name().growth(9))), b"half").unwrap();
    journal.unlink().unwrap();
    assert_eq!(journal.leftovers(Path::new(SHM)), Vec::<PathBuf>::new());
}

#[test]
fn a_hostile_directory_never_crashes_a_reader() {
    let journal = Scratch::new("hostile", OverflowPolicy::Grow { limit_bytes: 64 << 20 });
    let other = Scratch::new("hostile2", OverflowPolicy::Grow { limit_bytes: 64 << 20 });
    for journal in [&journal, &other] {
        for _ in 0..1000 {
            journal.append(Region::Setup, 1, 0, &[&[7; 400]]).unwrap();
        }
    }
    // Another journal's segment under this one's name, a short one, and none at all.
    let first = journal.name().growth(1).path_in(SHM.as_ref());
    let whole = std::fs::read(&first).unwrap();
    let foreign = std::fs::read(other.name().growth(1).path_in(SHM.as_ref())).unwrap();
    for bytes in [Some(&foreign[..]), Some(&whole[..5000]), Some(b"x"), None] {
        std::fs::remove_file(&first).unwrap_or_default();
        if let Some(bytes) = bytes {
            std::fs::write(&first, bytes).unwrap();
        }
        let snapshot = JournalReader::open(journal.name()).unwrap().snapshot().unwrap();
        assert!(!snapshot.is_whole(), "{:?}", bytes.map(<[u8]>::len));
    }
    std::fs::write(&first, &whole).unwrap();
    assert!(JournalReader::open(journal.name()).unwrap().snapshot().unwrap().is_whole());
    // A growth segment is no journal.
    assert!(JournalReader::open(&journal.name().growth(1)).is_err());
    assert!(matches!(Journal::open(&journal.name().growth(1)), Err(SegmentError::Corrupt { .. })));
}

#[test]
fn a_blocked_append_goes_on_when_the_step_is_cut() {
    let journal = Scratch::new("block", OverflowPolicy::Block { timeout: Duration::from_secs(60) });
    std::thread::scope(|scope| {
        let (full, is_full) = std::sync::mpsc::channel();
        let journal = &journal;
        scope.spawn(move || {
            for i in 0..2000_u32 {
                if i % 50 == 0 {
                    full.send(()).unwrap();
                }
                journal.append(Region::Step, 1, 0, &[&[7; 400]]).unwrap();
            }
        });
        for step in 0.. {
            let waited = is_full.recv_timeout(Duration::from_secs(60));
            if waited == Err(std::sync::mpsc::RecvTimeoutError::Disconnected) {
                break;
            }
            waited.expect("the writer goes on");
            journal.step_commit(step).unwrap();
        }
    });
}

#[test]
fn a_block_ends_with_an_error_and_never_waits_for_the_set_up_region() {
    let journal = Scratch::new("blocked", OverflowPolicy::Block { timeout: Duration::from_millis(30) });
    let started = Instant::now();
    let (_, error) = journal.fill(Region::Step);
    assert!(matches!(error, AppendError::Blocked { waited_ms: 30 }), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(30));
    journal.step_commit(0).unwrap();
    assert!(matches!(journal.fill(Region::Setup).1, AppendError::Full { .. }));
}

#[test]
fn a_full_journal_can_still_be_taken_apart_and_cut() {
    let journal = Scratch::new("vital", OverflowPolicy::Error);
    for round in 0..2 {
        let (_, error) = journal.fill(Region::Step);
        assert!(matches!(error, AppendError::Full { .. }), "{error}");
        let destroyed = journal.append_vital(Region::Setup, 9, 0, &[&[1; 40]]).unwrap();
        // The reserve is for such records alone.
        assert!(matches!(journal.append(Region::Setup, 1, 0, &[&[1; 40]]), Err(AppendError::Full { .. })));
        journal.append_vital(Region::Setup, 9, 0, &[&[1; 40]]).unwrap();
        assert!(journal.snapshot().setup.iter().any(|record| record.sequence == destroyed.sequence()));
        assert!(journal.snapshot().is_whole());
        journal.step_commit(round).unwrap();
        assert_eq!(journal.boundary().next_step, Some(u64::from(round) + 1));
        journal.append(Region::Step, 1, 0, &[&[1; 40]]).unwrap();
    }
}

#[test]
fn chunks_of_a_thread_that_ended_are_found_when_the_journal_is_full() {
    let journal = Scratch::new("idle", OverflowPolicy::Error);
    // This thread keeps the first lane, so that the other one's is nobody's when it has ended.
    journal.append(Region::Step, 1, 0, &[]).unwrap();
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| journal.fill(Region::Step));
        assert!(matches!(filling.join().unwrap().1, AppendError::Full { .. }));
    });
    journal.step_commit(0).unwrap();
    let (count, _) = journal.fill(Region::Step);
    assert!(count > 100, "{count}");
}

#[test]
fn a_dropped_record_is_told() {
    let journal = Scratch::new("dropped", OverflowPolicy::Error);
    let (count, _) = journal.fill(Region::Step);
    assert!(journal.snapshot().is_whole(), "a refused call was not issued");
    journal.note_dropped();
    let snapshot = JournalReader::open(journal.name()).unwrap().snapshot().unwrap();
    assert!(!snapshot.is_whole());
    assert_eq!((snapshot.incomplete_from.map(|s| s.0), snapshot.dropped), (Some(count + 1), 1));
}

#[test]
fn a_directory_that_peers_cannot_find_is_refused() {
    let options = JournalOptions {
        policy: OverflowPolicy::Spill { directory: "relative".into() },
        ..JournalOptions::new(format!("grow-rel-{}", std::process::id()), 0, 0)
    };
    assert!(matches!(Journal::create(&options), Err(SegmentError::SpillDirectory { .. })));
}
