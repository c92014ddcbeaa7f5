//! Following a journal while others write it.

use std::time::{Duration, Instant};

use journal_core::journal::{Event, Journal, JournalOptions, JournalReader, Region};

struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str) -> Self {
        let options = JournalOptions::new(format!("follow-{tag}-{}", std::process::id()), 0, 0);
        Self(Journal::create(&options).expect("/dev/shm has room for a small journal"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.unlink().unwrap();
    }
}

fn number(event: &Event) -> u64 {
    match event {
        Event::Record(record) => record.sequence.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_record_comes_once_and_in_order() {
    let scratch = Scratch::new("order");
    let journal = &scratch.0;
    let mut follower = JournalReader::open(journal.name()).unwrap().follow();
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            scope.spawn(move || {
                for i in 0..4000_u16 {
                    journal.append(Region::Setup, i, 0, &[&[thread; 40]]).unwrap();
                }
            });
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = 0;
        let mut by_thread = [0_u16; 3];
        while seen < 12_000 {
            let events = follower.wait(100, deadline).unwrap();
            assert!(!events.is_empty(), "nothing came after {seen} records");
            assert!(events.len() <= 100);
            for event in &events {
                seen += 1;
                assert_eq!(number(event), seen);
                let Event::Record(record) = event else { unreachable!() };
                let next = &mut by_thread[usize::from(record.payload[0])];
                assert_eq!(record.kind, *next);
                *next += 1;
            }
        }
        assert_eq!(follower.poll(100).unwrap(), []);
    });
}

#[test]
fn a_sleeper_is_woken_and_a_silent_journal_ends_at_the_deadline() {
    let scratch = Scratch::new("sleep");
    let journal = &scratch.0;
    let mut follower = JournalReader::open(journal.name()).unwrap().follow();
    assert_eq!(follower.wait(10, Instant::now() + Duration::from_millis(20)).unwrap(), []);
    std::thread::scope(|scope| {
        let (told, heard) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for i in 1..=200_u64 {
                journal.append(Region::Step, 1, 0, &[&i.to_le_bytes()]).unwrap();
                heard.recv_timeout(Duration::from_secs(60)).expect("the follower hears of each record");
            }
        });
        for i in 1..=200 {
            let events = follower.wait(10, Instant::now() + Duration::from_secs(60)).unwrap();
            assert_eq!(events.iter().map(number).collect::<Vec<_>>(), [i]);
            told.send(()).unwrap();
        }
    });
}

#[test]
fn a_follower_that_is_too_slow_is_told_what_it_missed() {
    let scratch = Scratch::new("slow");
    let journal = &scratch.0;
    let append = |count| {
        for _ in 0..count {
            journal.append(Region::Step, 1, 0, &[&[1; 40]]).unwrap();
        }
    };
    append(10);
    journal.step_commit(0).unwrap();
    append(1);
    // What was over before it came is no news.
    let mut follower = JournalReader::open(journal.name()).unwrap().follow();
    assert_eq!(follower.poll(100).unwrap().iter().map(number).collect::<Vec<_>>(), [11]);
    append(20_000);
    journal.step_commit(1).unwrap();
    append(1);
    let events = follower.poll(100).unwrap();
    assert_eq!(events[0], Event::Missing(12..20_012));
    assert_eq!(number(&events[1]), 20_012);
    assert_eq!(events.len(), 2);
}
