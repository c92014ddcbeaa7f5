//! Appending and reading a journal through the public API.

use std::sync::atomic::{AtomicBool, Ordering};

use journal_core::journal::{
    AppendError, Journal, JournalOptions, JournalReader, Outcome, Owner, Region, SegmentError, Sequence,
};

/// A journal that disappears with the test.
struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str) -> Self {
        Self::with(tag, |_| {})
    }

    fn with(tag: &str, change: impl FnOnce(&mut JournalOptions)) -> Self {
        let mut options = JournalOptions::new(format!("it-{tag}-{}", std::process::id()), 0, 0);
        change(&mut options);
        Self(Journal::create(&options).expect("/dev/shm has room for a small journal"))
    }

    fn reader(&self) -> JournalReader {
        JournalReader::open(self.0.name()).unwrap()
    }

    fn image(&self) -> Vec<u8> {
        std::fs::read(self.name().path_in("/dev/shm".as_ref())).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.unlink().unwrap();
    }
}

impl std::ops::Deref for Scratch {
    type Target = Journal;
    fn deref(&self) -> &Journal {
        &self.0
    }
}

#[test]
fn a_payload_that_is_elsewhere_leaves_length_checksum_and_its_beginning() {
    let scratch = Scratch::new("absent");
    let (lead, bytes) = ([3_u8; 300], vec![5_u8; (64 << 20) + 3]);
    let parts: &[&[u8]] = &[&lead, &bytes];
    let refused = scratch.0.append(Region::Setup, 9, 0, parts);
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })), "{refused:?}");
    let record = scratch.0.append_absent(Region::Setup, 9, 5, parts).unwrap();
    assert!(scratch.0.complete(record, 1));
    let snapshot = scratch.0.snapshot();
    assert!(snapshot.is_whole());
    let [found] = &snapshot.setup[..] else { panic!("{:?}", snapshot.setup.len()) };
    assert_eq!((found.outcome, found.kind, found.flags, found.result), (Outcome::Absent, 9, 5, Some(1)));
    let len = lead.len() + bytes.len();
    let mut whole = [&lead[..], &bytes].concat();
    whole.resize(len.next_multiple_of(8), 0);
    let expected = [&(len as u64).to_le_bytes()[..], &u64::from(crc32c::crc32c(&whole)).to_le_bytes(), &lead[..256]].concat();
    assert_eq!(found.payload, expected);
    let obstacles = journal_core::recovery::replayable::obstacles(&snapshot);
    assert!(obstacles.iter().any(|o| o.sequence == 1 && o.reason.contains("bytes were not recorded")), "{obstacles:?}");
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    let journal = Scratch::new("order");
    let payloads: Vec<Vec<u8>> = (0..500_usize).map(|i| (0..i).map(|k| (k * 7 + i) as u8).collect()).collect();
    for (i, payload) in payloads.iter().enumerate() {
        let (a, b) = payload.split_at(payload.len() / 3);
        let record = journal.append(Region::ALL[i % 2], i as u16, 5, &[a, b]).unwrap();
        assert_eq!(record.sequence(), Sequence(i as u64 + 1));
        if i % 3 == 0 {
            assert!(journal.complete(record, i as u64));
        }
    }
    let snapshot = journal.reader().snapshot().unwrap();
    assert!(snapshot.is_whole());
    assert_eq!((snapshot.setup.len(), snapshot.step.len()), (250, 250));
    let mut all: Vec<_> = snapshot.setup.iter().chain(&snapshot.step).collect();
    all.sort_by_key(|r| r.sequence);
    for (i, (record, payload)) in all.iter().zip(&payloads).enumerate() {
        assert_eq!(record.sequence, Sequence(i as u64 + 1));
        assert_eq!(&record.payload, payload);
        assert_eq!((record.kind, record.flags, record.region), (i as u16, 5, Region::ALL[i % 2]));
        assert_eq!(record.result, (i % 3 == 0).then_some(i as u64));
        assert_eq!(record.outcome, Outcome::Committed);
    }
}

#[test]
fn payload_parts_of_any_length_are_joined() {
    let journal = Scratch::new("parts");
    let bytes: Vec<u8> = (0..200).collect();
    let cuts = [0, 1, 4, 7, 8, 9, 15, 16, 23, 64, 77];
    for first in cuts {
        for second in cuts {
            let (a, rest) = bytes.split_at(first);
            let (b, c) = rest.split_at(second);
            journal.append(Region::Setup, 1, 0, &[a, &[], b, c]).unwrap();
        }
    }
    let snapshot = journal.snapshot();
    assert_eq!(snapshot.setup.len(), cuts.len() * cuts.len());
    assert!(snapshot.setup.iter().all(|r| r.payload == bytes));
}

#[test]
fn a_payload_larger_than_a_chunk_goes_to_the_arena_in_either_region() {
    let journal = Scratch::new("arena");
    let data: Vec<u8> = (0..383_001_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    journal.append(Region::Setup, 1, 0, &[b"head", &data]).unwrap();
    for step in 0..20 {
        journal.append(Region::Step, 2, 0, &[&data]).unwrap();
        let snapshot = journal.reader().snapshot().unwrap();
        assert!(snapshot.is_whole());
        assert_eq!(snapshot.setup[0].payload[4..], data);
        assert_eq!(snapshot.step.len(), 1);
        assert_eq!(snapshot.step[0].payload, data);
        journal.step_commit(step).unwrap();
    }
    let limit = journal.append(Region::Step, 2, 0, &[&vec![0; 8 << 20]]);
    assert!(matches!(limit, Err(AppendError::NoRun { .. })), "{limit:?}");
    journal.append(Region::Step, 2, 0, &[b"goes on"]).unwrap();
}

#[test]
fn a_full_journal_is_an_error_and_a_commit_makes_room() {
    let journal = Scratch::with("full", |o| o.capacity_bytes = 1 << 20);
    let payload = [7_u8; 1000];
    let mut written = 0_u64;
    let error = loop {
        match journal.append(Region::Step, 1, 0, &[&payload]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    assert!(written > 500, "only {written} records fitted");
    let snapshot = journal.snapshot();
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.step.len() as u64, written);
    journal.step_commit(0).unwrap();
    assert!(journal.snapshot().step.is_empty());
    for _ in 0..written {
        journal.append(Region::Step, 1, 0, &[&payload]).unwrap();
    }
    assert_eq!(journal.snapshot().step.len() as u64, written);
}

#[test]
fn only_the_open_step_counts_and_set_up_stays() {
    let journal = Scratch::new("steps");
    journal.append(Region::Setup, 1, 0, &[b"set-up"]).unwrap();
    assert_eq!(journal.boundary().next_step, None);
    for step in 0..3_000_u32 {
        for i in 0..10_u32 {
            journal.append(Region::Step, 2, 0, &[&step.to_le_bytes(), &i.to_le_bytes(), &[0; 100]]).unwrap();
        }
        if step % 500 == 0 {
            journal.step_discard().unwrap();
            assert!(journal.snapshot().step.is_empty());
            journal.append(Region::Step, 3, 0, &[&step.to_le_bytes()]).unwrap();
        }
        let snapshot = journal.snapshot();
        assert!(snapshot.is_whole(), "step {step}: {:?}", snapshot.missing);
        assert_eq!(snapshot.step.len(), if step % 500 == 0 { 1 } else { 10 });
        assert!(snapshot.step.iter().all(|r| r.payload[..4] == step.to_le_bytes()));
        assert_eq!(snapshot.setup.len(), 1);
        journal.step_commit(step).unwrap();
        assert_eq!(journal.boundary().next_step, Some(u64::from(step) + 1));
    }
}

#[test]
fn a_result_does_not_land_in_a_record_of_a_later_step() {
    let journal = Scratch::new("late");
    let old = journal.append(Region::Step, 1, 0, &[b"old"]).unwrap();
    journal.step_commit(0).unwrap();
    journal.append(Region::Step, 1, 0, &[b"new"]).unwrap();
    assert!(!journal.complete(old, 9));
    assert_eq!(journal.snapshot().step[0].result, None);
}

#[test]
fn threads_get_lanes_of_their_own_and_give_them_back() {
    let journal = Scratch::with("lanes", |o| o.max_slots = 5);
    journal.append(Region::Setup, 0, 0, &[]).unwrap();
    for round in 0..30_u64 {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|t| {
                    let journal = &*journal;
                    scope.spawn(move || {
                        for i in 0..20_u64 {
                            let payload = (round << 32 | t << 16 | i).to_le_bytes();
                            journal.append(Region::Setup, 1, 0, &[&payload]).unwrap();
                        }
                    })
                })
                .collect();
            // A scope alone does not wait for the thread-locals' destructors; a join does.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
    let snapshot = journal.reader().snapshot().unwrap();
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.setup.len(), 1 + 30 * 4 * 20);
    assert!((2..=5).contains(&snapshot.lanes.len()), "{:?}", snapshot.lanes);
    assert_eq!(snapshot.lanes.iter().filter(|l| matches!(l.owner, Owner::Alive { .. })).count(), 1);
}

#[test]
fn more_threads_than_slots_is_an_error() {
    let journal = Scratch::with("slots", |o| o.max_slots = 1);
    journal.append(Region::Setup, 0, 0, &[]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = journal.append(Region::Setup, 0, 0, &[]).unwrap_err();
            assert!(matches!(error, AppendError::NoSlot { max: 1 }), "{error}");
        });
    });
}

#[test]
fn snapshots_under_load_never_show_an_unknown_gap_or_a_broken_record() {
    let journal = Scratch::new("load");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|t| {
                let journal = &*journal;
                scope.spawn(move || {
                    for i in 0..200_000_u64 {
                        let word = (t << 56 | i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        let payload = [word; 16].map(u64::to_le_bytes);
                        let len = (i % 16) as usize;
                        // Each commits often enough for both: alone it must not fill the journal.
                        journal.append(Region::Step, 1, 0, &[payload[..len].as_flattened()]).unwrap();
                        if i % 997 == t {
                            journal.step_commit((i / 997) as u32).unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let reader = journal.reader();
            while !done.load(Ordering::Relaxed) {
                let snapshot = reader.snapshot().unwrap();
                assert!(snapshot.is_whole(), "{:?} {:?}", snapshot.lanes, snapshot.missing);
                for record in &snapshot.step {
                    let mut words = record.payload.chunks(8);
                    let first = words.next();
                    assert!(words.all(|word| Some(word) == first));
                }
            }
        });
        let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        // Also when a writer failed: the reader must end.
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok), "a writer failed");
    });
    assert!(journal.snapshot().is_whole());
}

#[test]
fn prepared_content_of_two_steps_stays_whatever_is_written_again() {
    let journal = Scratch::new("prepared");
    assert_eq!(journal.prepared_read(0), None);
    journal.prepared_reserve(1000).unwrap();
    for step in 0..40_u32 {
        let blob = vec![step as u8; step as usize];
        let state = vec![step as u8 + 1; 100];
        // A step that is run several times writes its slot again; the one before it must survive that.
        for _ in 0..3 {
            journal.prepared_write(step, &blob, &[(7, &state), (9, &[])]).unwrap();
            if let Some(before) = step.checked_sub(1) {
                assert_eq!(journal.prepared_read(before).unwrap().blob, vec![before as u8; before as usize]);
            }
        }
        let read = journal.reader().prepared().unwrap().into_iter().find(|p| p.step == step).unwrap();
        assert_eq!((read.blob, read.parts), (blob, vec![(7, state), (9, vec![])]));
        assert_eq!(journal.prepared_read(step + 1), None);
    }
    journal.prepared_write(40, &vec![0; 3_900_000], &[]).unwrap_err();
    assert_eq!(journal.prepared_read(39).unwrap().step, 39);
}

#[test]
fn a_taken_name_and_impossible_options_are_errors() {
    let journal = Scratch::new("taken");
    let again = JournalOptions::new(format!("it-taken-{}", std::process::id()), 0, 0);
    assert!(matches!(Journal::create(&again), Err(SegmentError::Exists { .. })));
    let tiny = JournalOptions { capacity_bytes: 100, ..JournalOptions::new("it-tiny", 0, 0) };
    assert!(matches!(Journal::create(&tiny), Err(SegmentError::Capacity { .. })));
    assert!(matches!(journal.append(Region::Setup, 0, 0x8000, &[]), Err(AppendError::Flags { flags: 0x8000 })));
}

#[test]
fn every_flipped_header_byte_is_refused() {
    let journal = Scratch::new("flip");
    let dir = tempfile::tempdir().unwrap();
    let copy = journal.name().path_in(dir.path());
    let bytes = journal.image();
    for at in 0..0x200 {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        std::fs::write(&copy, &changed).unwrap();
        assert!(JournalReader::open_in(dir.path(), journal.name()).is_err(), "byte {at:#x} may be anything");
    }
    std::fs::write(&copy, &bytes).unwrap();
    JournalReader::open_in(dir.path(), journal.name()).unwrap();
}

#[test]
fn random_damage_never_crashes_a_reader() {
    let journal = Scratch::with("damage", |o| o.capacity_bytes = 1 << 20);
    for i in 0..400_u64 {
        journal.append(Region::ALL[i as usize % 2], 1, 0, &[&i.to_le_bytes(), &[1; 700]]).unwrap();
    }
    journal.append(Region::Setup, 1, 0, &[&[5; 100_000]]).unwrap();
    journal.prepared_write(3, b"blob", &[(1, &[2; 5000])]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = journal.name().path_in(dir.path());
    let bytes = journal.image();
    let mut state = 0x1234_5678_9ABC_DEF1_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut changed = bytes.clone();
        for _ in 0..1 + round % 8 {
            // Every other time in the tables and the first chunks, where the structure is.
            let room = if round % 2 == 0 { 0x60000 } else { changed.len() - 0x210 };
            let at = (0x200 + random() as usize % room) & !7;
            let value = match random() % 4 {
                0 => random(),
                1 => random() % 64,
                2 => u64::MAX,
                _ => 3 << 62 | random() % 32,
            };
            changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        std::fs::write(&copy, &changed).unwrap();
        let reader = JournalReader::open_in(dir.path(), journal.name()).unwrap();
        let snapshot = reader.snapshot().unwrap();
        assert!(snapshot.setup.len() + snapshot.step.len() <= 401);
        let _ = reader.prepared();
    }
}

#[test]
fn short_lived_threads_use_the_slots_again() {
    // Many hundred times the slots that there are.
    const THREADS: u64 = 20_000;
    let journal = Scratch::new("churn");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for i in 0..THREADS / 2 {
                    if i % 500 == 0 {
                        journal.step_commit(0).unwrap();
                    }
                    let journal = journal.0.clone();
                    let one = std::thread::spawn(move || journal.append(Region::Step, 0, 0, &[&[1; 40]]).map(drop));
                    one.join().unwrap().unwrap();
                }
            });
        }
    });
    let snapshot = journal.snapshot();
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.limit.0, THREADS + 1);
    assert!(snapshot.lanes.len() <= 4, "{} lanes for two threads at a time", snapshot.lanes.len());
}
