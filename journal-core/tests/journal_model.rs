//! Random appends, results, step commits and reopenings against plain vectors.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU32, Ordering};

use journal_core::journal::{Journal, JournalOptions, JournalReader, Outcome, Record, RecordRef, Region};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Append { region: Region, kind: u16, flags: u16, payload: Vec<u8>, cut: usize },
    /// By one of the other threads, so in a lane of its own.
    AppendElsewhere { kind: u16, payload: Vec<u8> },
    Complete { which: usize, result: u64 },
    Commit,
    Discard,
    /// The journal is closed and opened again, as another process would.
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let payload = || prop_oneof![9 => prop::collection::vec(any::<u8>(), 0..300), 1 => prop::collection::vec(any::<u8>(), 3000..9000)];
    let region = prop_oneof![1 => Just(Region::Setup), 4 => Just(Region::Step)];
    prop_oneof![
        20 => (region, any::<u16>(), 0_u16..0x1000, payload(), any::<usize>())
            .prop_map(|(region, kind, flags, payload, cut)| Op::Append { region, kind, flags, payload, cut }),
        2 => (any::<u16>(), payload()).prop_map(|(kind, payload)| Op::AppendElsewhere { kind, payload }),
        8 => (any::<usize>(), 0_u64..1 << 61).prop_map(|(which, result)| Op::Complete { which, result }),
        2 => Just(Op::Commit),
        1 => Just(Op::Discard),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Expected {
    sequence: u64,
    region: Region,
    kind: u16,
    flags: u16,
    payload: Vec<u8>,
    result: Option<u64>,
    at: RecordRef,
}

/// Unlinks what a failed case leaves.
struct Scratch(Journal);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.unlink();
    }
}

fn check(found: &[Record], expected: &[&Expected]) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len());
    for (record, expected) in found.iter().zip(expected) {
        prop_assert_eq!(record.outcome, Outcome::Committed);
        prop_assert_eq!(record.sequence.0, expected.sequence);
        prop_assert_eq!((record.region, record.kind), (expected.region, expected.kind));
        prop_assert_eq!(record.flags & 0xfff, expected.flags);
        prop_assert_eq!(&record.payload, &expected.payload);
        prop_assert_eq!(record.result, expected.result);
    }
    Ok(())
}

fn run(ops: &[Op]) -> Result<(), TestCaseError> {
    static CASE: AtomicU32 = AtomicU32::new(0);
    let case = CASE.fetch_add(1, Ordering::Relaxed);
    let options = JournalOptions {
        capacity_bytes: 8 << 20,
        chunk_bytes: 4096,
        max_slots: 8,
        max_handles: 64,
        ..JournalOptions::new(format!("model-{}-{case}", std::process::id()), 0, 0)
    };
    let mut journal = Scratch(Journal::create(&options).expect("8 MiB of /dev/shm"));
    let reader = JournalReader::open(journal.0.name()).expect("just created");
    let mut records: Vec<Expected> = Vec::new();
    let (mut next, mut step) = (1, 0);
    for op in ops {
        match op {
            Op::Append { region, kind, flags, payload, cut } => {
                let (a, b) = payload.split_at(cut % (payload.len() + 1));
                let at = journal.0.append(*region, *kind, *flags, &[a, b]).expect("room");
                let (region, kind, flags, payload) = (*region, *kind, *flags, payload.clone());
                records.push(Expected { sequence: next, region, kind, flags, payload, result: None, at });
                prop_assert_eq!(at.sequence().0, next);
                next += 1;
            }
            Op::AppendElsewhere { kind, payload } => {
                let journal = &journal.0;
                let append = || journal.append(Region::Step, *kind, 0, &[payload]).expect("room");
                let at = std::thread::scope(|scope| scope.spawn(append).join().expect("no panic"));
                let (kind, payload) = (*kind, payload.clone());
                records.push(Expected { sequence: next, region: Region::Step, kind, flags: 0, payload, result: None, at });
                next += 1;
            }
            Op::Complete { which, result } if !records.is_empty() => {
                let which = which % records.len();
                let record = &mut records[which];
                prop_assert!(journal.0.complete(record.at, *result), "a record that counts takes its result");
                record.result = Some(*result);
            }
            Op::Complete { .. } => {}
            Op::Commit => {
                prop_assert_eq!(journal.0.step_commit(step).expect("free").0, next);
                step += 1;
                records.retain(|record| record.region == Region::Setup);
            }
            Op::Discard => {
                journal.0.step_discard().expect("free");
                records.retain(|record| record.region == Region::Setup);
            }
            Op::Reopen => {
                let name = journal.0.name().clone();
                // Not dropped with its guard: the name stays.
                let opened = Journal::open(&name).expect("published");
                drop(std::mem::replace(&mut journal.0, opened));
            }
        }
    }
    let snapshot = reader.snapshot().expect("whole");
    let (lanes, missing) = (&snapshot.lanes, &snapshot.missing);
    prop_assert!(snapshot.is_whole(), "{:?} {:?} lanes {lanes:?}, missing {missing:?}", snapshot.limit, snapshot.boundary);
    let of = |region| records.iter().filter(|record| record.region == region).collect::<Vec<_>>();
    check(&snapshot.setup, &of(Region::Setup))?;
    check(&snapshot.step, &of(Region::Step))?;
    prop_assert_eq!(snapshot.limit.0, next);
    prop_assert_eq!(journal.0.boundary().next_step.map_or(0, |step| step), u64::from(step));
    let again = journal.0.snapshot();
    check(&again.setup, &of(Region::Setup))?;
    check(&again.step, &of(Region::Step))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_is_what_was_appended_and_counts(ops in prop::collection::vec(op(), 1..200)) {
        run(&ops)?;
    }
}
