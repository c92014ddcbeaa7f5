//! Models of the lane protocol, recycling, the step boundary, reaping and the handle table.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p journal-core --test loom_journal --target-dir target/loom`
//!
//! Each model also runs with one ordering weakened; a model that does not notice fails its test.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use journal_core::handle::{FixedSeat, HandleError, HandleKind, HandleTable, VirtualHandle};
use journal_core::journal::arena::Run;
use journal_core::journal::checksum::{Portable, Work};
use journal_core::journal::lane::{Append, Lane};
use journal_core::journal::layout::{
    BOUNDARY, COMMITTED, ChunkClass, DOORBELL, Geometry, HANDLE_BLOCK_OWNER, HANDLE_DIRECTORY, HANDLE_ENTRY_BYTES, HANDLE_EPOCH, PENDING, SEQUENCE, SLOT_LOST,
    SLOT_STATE, WAITERS, shape,
};
use journal_core::journal::scan::{self, EndState, Scratch, Stop, Visit};
use journal_core::journal::store::Store;
use journal_core::journal::directory::{self, Description};
use journal_core::journal::{Boundary, Outcome, RecordRef, RecordView, Region, Sequence, chunk, compact, doorbell, reap};
use journal_core::sync::{AtomicU64, Ordering, Words, weaken};
use loom::sync::Arc;
use loom::thread;

const SLOTS: u32 = 2;
const CHUNK: u64 = 128;

/// Only the words that a model touches: loom tracks each of them.
struct ModelWords(Vec<(u64, Vec<AtomicU64>)>);

impl ModelWords {
    fn new(geometry: &Geometry) -> Self {
        let range = |at, words| (at, (0..words).map(|_| AtomicU64::new(0)).collect());
        let mut ranges = vec![range(SEQUENCE, 1), range(BOUNDARY, 1), range(DOORBELL, 2), range(geometry.directory_at, 4)];
        ranges.extend((0..SLOTS as u16).map(|slot| range(geometry.slot(slot) + SLOT_STATE, 14)));
        ranges.extend((0..geometry.chunks).map(|chunk| range(geometry.chunk_entry(chunk), 5)));
        ranges.extend((0..geometry.chunks).map(|chunk| range(geometry.chunk(chunk), CHUNK / 8)));
        ranges.push(range(geometry.handles_at, u64::from(geometry.handles) * HANDLE_ENTRY_BYTES / 8));
        ranges.push(range(HANDLE_EPOCH, 1));
        ranges.push(range(HANDLE_DIRECTORY, 2));
        Self(ranges)
    }
}

impl Words for ModelWords {
    fn word(&self, offset: u64) -> &AtomicU64 {
        &self.words(offset, 1)[0]
    }

    fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        let found = self.0.iter().find_map(|(start, words)| {
            let first = offset.checked_sub(*start)? as usize / 8;
            words.get(first..first + count)
        });
        found.unwrap_or_else(|| panic!("{count} words at {offset:#x} are not in the model"))
    }
}

type Model = Store<ModelWords>;

fn store(chunks: u32) -> Arc<Model> {
    store_with(chunks, 0)
}

fn store_with(chunks: u32, handles: u32) -> Arc<Model> {
    let geometry = Geometry {
        total_len: 0x10000,
        chunk_bytes: CHUNK,
        max_slots: SLOTS,
        chunks,
        handles,
        directory_at: 0x1000,
        slots_at: 0x2000,
        chunk_table_at: 0x3000,
        handles_at: 0x4000,
        chunks_at: 0x5000,
    };
    let store = Store::new(ModelWords::new(&geometry), geometry);
    store.sequence().store(1, Ordering::Relaxed);
    Arc::new(store)
}

fn append(store: &Model, lane: &mut Lane, region: Region, tag: u64) -> RecordRef {
    let payload = [tag.to_le_bytes(), (!tag).to_le_bytes()];
    let parts: &[&[u8]] = &[payload.as_flattened()];
    Append { lane, store, region, kind: 1, flags: 0, parts }.run(Portable).expect("the model has chunks")
}

/// What a reader got from one chain.
#[derive(Default)]
struct Seen(Vec<(u64, u64)>);

impl Visit for Seen {
    fn record(&mut self, record: &RecordView<'_>, _: Option<Run>) -> bool {
        if record.outcome == Outcome::Torn {
            return true;
        }
        assert_eq!(record.outcome, Outcome::Committed, "a reader took a broken record for whole");
        let word = |i: usize| u64::from_le_bytes(record.payload[8 * i..8 * i + 8].try_into().unwrap());
        assert_eq!(word(0), !word(1), "torn payload");
        self.0.push((record.sequence.0, word(0)));
        true
    }
}

fn read(store: &Model, slot: u16, region: Region) -> Result<(Seen, EndState), Stop> {
    let mut seen = Seen::default();
    let end = scan::walk(store, slot, region, &mut Scratch::default(), &mut seen)?;
    assert_ne!(end.state, EndState::Damaged, "a reader lost the framing");
    Ok((seen, end.state))
}

fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// Who runs in loom's main thread, and so first. Loom remembers only the last load of a word when it looks for
/// orders to try, so a model whose writer also loads must be started from both sides.
#[derive(Clone, Copy)]
enum First {
    Writer,
    Reader,
}

fn race<T: 'static>(first: First, writer: impl FnOnce() -> T + 'static, reader: impl FnOnce() + 'static) -> T {
    match first {
        First::Writer => {
            let reader = thread::spawn(reader);
            let result = writer();
            reader.join().unwrap();
            result
        }
        First::Reader => {
            let writer = thread::spawn(writer);
            reader();
            writer.join().unwrap()
        }
    }
}

/// The weakened site is one for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn holds(model: fn(First)) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    weaken("");
    model(First::Writer);
    model(First::Reader);
}

fn catches(site: &'static str, model: fn(First)) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    weaken(site);
    let survived = [First::Writer, First::Reader]
        .into_iter()
        .all(|first| catch_unwind(AssertUnwindSafe(|| model(first))).is_ok());
    weaken("");
    assert!(!survived, "the model does not notice that {site:?} is weakened");
}

/// P1 to P3: two writers and a reader.
fn writers_and_reader(first: First) {
    check(2, move || {
        let store = store(2);
        let mut lanes = [Lane::new(0, 0), Lane::new(1, 0)];
        for (slot, lane) in lanes.iter_mut().enumerate() {
            append(&store, lane, Region::Setup, slot as u64);
        }
        let [one, other] = lanes.map(|mut lane| {
            let store = Arc::clone(&store);
            move || append(&store, &mut lane, Region::Setup, 7).sequence().0
        });
        let other = thread::spawn(other);
        let number = race(first, one, move || {
            let limit = scan::limit(&store);
            let mut found = Vec::new();
            let mut pending = 0;
            for slot in 0..SLOTS as u16 {
                let (seen, end) = read(&store, slot, Region::Setup).expect("set-up chunks are not recycled");
                found.extend(seen.0.iter().map(|(sequence, _)| *sequence).filter(|s| *s < limit));
                pending += usize::from(end == EndState::Pending);
            }
            let missing = (limit - 1) as usize - found.len();
            assert!(missing <= pending, "{missing} numbers below {limit} are missing and {pending} lanes say why");
        });
        let mut numbers = [number, other.join().unwrap()];
        numbers.sort_unstable();
        assert_eq!(numbers, [3, 4]);
    });
}

#[test]
fn a_reader_sees_whole_records_and_no_unexplained_gap() {
    holds(writers_and_reader);
}

#[test]
fn a_relaxed_sequence_is_caught() {
    catches("lane sequence", writers_and_reader);
}

#[test]
fn a_relaxed_commit_is_caught() {
    catches("lane commit", writers_and_reader);
}

#[test]
fn a_relaxed_look_at_the_commit_is_caught() {
    catches("scan commit", writers_and_reader);
}

#[test]
fn a_relaxed_limit_is_caught() {
    catches("scan limit", first_chunk);
}

/// A chunk ends and another one is linked while somebody reads.
fn chunk_switch(first: First) {
    check(3, move || {
        let store = store(2);
        let mut lane = Lane::new(0, 0);
        append(&store, &mut lane, Region::Setup, 1);
        append(&store, &mut lane, Region::Setup, 2);
        let writer = {
            let store = Arc::clone(&store);
            move || append(&store, &mut lane, Region::Setup, 3)
        };
        let reader = {
            let store = Arc::clone(&store);
            move || {
                let (seen, _) = read(&store, 0, Region::Setup).expect("set-up chunks are not recycled");
                assert!(seen.0.len() >= 2 && seen.0 == [(1, 1), (2, 2), (3, 3)][..seen.0.len()], "{:?}", seen.0);
            }
        };
        race(first, writer, reader);
        assert_eq!(read(&store, 0, Region::Setup).unwrap().0.0.len(), 3);
    });
}

#[test]
fn a_reader_follows_into_a_new_chunk() {
    holds(chunk_switch);
}

/// The first chunk of a lane appears.
fn first_chunk(first: First) {
    check(3, move || {
        let store = store(1);
        let mut lane = Lane::new(0, 0);
        let writer = {
            let store = Arc::clone(&store);
            move || append(&store, &mut lane, Region::Setup, 1)
        };
        race(first, writer, move || {
            let limit = scan::limit(&store);
            let Ok((seen, end)) = read(&store, 0, Region::Setup) else { return };
            assert!(seen.0.is_empty() || seen.0 == [(1, 1)]);
            assert!(limit == 1 || !seen.0.is_empty() || end == EndState::Pending, "an unexplained gap");
        });
    });
}

#[test]
fn a_lane_appears_whole() {
    holds(first_chunk);
}

/// An owner rewinds its step chunk under a reader.
fn rewind(first: First) {
    check(3, move || {
        let store = store(1);
        let mut lane = Lane::new(0, 0);
        append(&store, &mut lane, Region::Step, 1);
        append(&store, &mut lane, Region::Step, 2);
        Boundary::advance(&store, 0, Some(1));
        let writer = {
            let store = Arc::clone(&store);
            move || append(&store, &mut lane, Region::Step, 3)
        };
        race(first, writer, move || open_step_is_whole(&store));
    });
}

/// An owner gives closed step chunks back, and links one of them again further on, under a reader.
fn recycled_chain(first: First) {
    check(3, move || {
        let store = store(2);
        let mut lane = Lane::new(0, 0);
        for tag in 1..=3 {
            append(&store, &mut lane, Region::Step, tag);
        }
        // 1 and 2 stand in the first chunk, 3 in the second; 3 is of the open step.
        store.sequence().store(3, Ordering::Relaxed);
        Boundary::advance(&store, 0, Some(1));
        store.sequence().store(4, Ordering::Relaxed);
        let writer = {
            let store = Arc::clone(&store);
            move || {
                append(&store, &mut lane, Region::Step, 4);
                append(&store, &mut lane, Region::Step, 5);
            }
        };
        race(first, writer, move || open_step_is_whole(&store));
    });
}

fn open_step_is_whole(store: &Model) {
    let boundary = Boundary::read(store);
    let limit = scan::limit(store);
    if let Ok((seen, end)) = read(store, 0, Region::Step) {
        for (sequence, tag) in &seen.0 {
            assert_eq!(sequence, tag, "a record of one step under the number of another");
        }
        let new = seen.0.iter().filter(|(s, _)| (boundary.sequence.0..limit).contains(s)).count();
        let missing = limit - boundary.sequence.0 - new as u64;
        assert!(missing == 0 || end == EndState::Pending, "a record of the open step is missing");
    }
}

#[test]
fn a_recycled_chain_is_seen_whole_or_again() {
    holds(recycled_chain);
}

#[test]
fn a_rewound_chunk_never_shows_a_mixture() {
    holds(rewind);
}

#[test]
fn a_rewind_without_its_fence_is_caught() {
    catches("chunk reopen", rewind);
}

#[test]
fn a_reader_without_its_fence_is_caught() {
    catches("scan life", rewind);
}

/// The boundary moves twice under a reader: the entry it reads is rewritten.
fn boundary_moves(first: First) {
    check(3, move || {
        let store = store(1);
        store.sequence().store(10, Ordering::Relaxed);
        let mover = {
            let store = Arc::clone(&store);
            move || {
                for step in 1..=2_u64 {
                    store.sequence().store(10 * (step + 1), Ordering::Relaxed);
                    Boundary::advance(&store, 0, Some(step));
                }
            }
        };
        race(first, mover, move || {
            let seen = Boundary::read(&store);
            let step = seen.next_step.unwrap_or(0);
            assert_eq!(seen.count, step, "a count with the entry of another");
            assert_eq!(seen.sequence.0, if step == 0 { 0 } else { 10 * (step + 1) }, "half of one entry, half of another");
        });
    });
}

/// Two threads end steps at once under a reader.
fn committers(first: First) {
    check(2, move || {
        let store = store(1);
        let commit = |slot: u16| {
            let store = Arc::clone(&store);
            move || {
                let number = store.sequence().fetch_add(1, Ordering::AcqRel);
                let moved = Boundary::advance(&store, slot, Some(u64::from(slot) + 1));
                assert!(moved.sequence.0 > number, "what was recorded before the commit is of the next step");
                moved.sequence.0
            }
        };
        let other = thread::spawn(commit(1));
        let reader = {
            let store = Arc::clone(&store);
            move || {
                let before = Boundary::read(&store);
                let after = Boundary::read(&store);
                assert!(after.count >= before.count && after.sequence >= before.sequence, "a step began again");
                assert_eq!(after.next_step.is_some(), after.count > 0);
            }
        };
        let one = race(first, commit(0), reader);
        let other = other.join().unwrap();
        let last = Boundary::read(&store);
        assert_eq!((last.count, last.sequence.0), (2, one.max(other)), "a commit was lost");
    });
}

#[test]
fn a_boundary_is_read_whole() {
    holds(boundary_moves);
}

#[test]
fn two_commits_at_once_both_count() {
    holds(committers);
}

#[test]
fn a_relaxed_boundary_is_caught() {
    catches("boundary move", boundary_moves);
    catches("boundary count", boundary_moves);
}

#[test]
fn a_boundary_without_fences_is_caught() {
    catches("boundary rewrite", boundary_moves);
    catches("boundary read", boundary_moves);
}

/// A lane's owner dies over a record, before or after it took a number; it is reaped under a reader.
fn reaping(first: First, number_taken: bool) {
    check(2, move || {
        let store = store(3);
        let mut lane = Lane::new(0, 0);
        append(&store, &mut lane, Region::Setup, 1);
        let mut other = Lane::new(1, 0);
        append(&store, &mut other, Region::Setup, 2);
        // What append has stored when it dies: the record is the second in the chunk.
        let torn = store.words(store.base().chunk(0) + 48, 6);
        torn[1].store(shape(16, 1, 0), Ordering::Relaxed);
        torn[0].store(PENDING, Ordering::Relaxed);
        if number_taken {
            store.sequence().fetch_add(1, Ordering::AcqRel);
        }
        let reaper = {
            let store = Arc::clone(&store);
            move || {
                let mut lane = reap::resume(&store, 0, true).expect("a torn tail can be continued");
                append(&store, &mut lane, Region::Setup, 3).sequence().0
            }
        };
        let survivor = {
            let store = Arc::clone(&store);
            thread::spawn(move || append(&store, &mut other, Region::Setup, 4).sequence().0)
        };
        let reader = {
            let store = Arc::clone(&store);
            move || {
                let limit = scan::limit(&store);
                let mut found = 0;
                let mut pending = 0;
                for slot in 0..SLOTS as u16 {
                    let (seen, end) = read(&store, slot, Region::Setup).expect("set-up chunks are not recycled");
                    found += seen.0.iter().filter(|(s, _)| *s < limit).count() as u64;
                    pending += u64::from(end == EndState::Pending);
                }
                let lost = store.slot_word(0, SLOT_LOST).load(Ordering::Acquire);
                assert!(limit - 1 - found <= pending + lost, "an unexplained gap");
            }
        };
        let number = race(first, reaper, reader);
        assert_ne!(number, survivor.join().unwrap());
        let (seen, end) = read(&store, 0, Region::Setup).unwrap();
        assert_eq!((seen.0, end), (vec![(1, 1), (number, 3)], EndState::Empty));
        assert_eq!(store.slot_word(0, SLOT_LOST).load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_torn_lane_is_sealed_and_goes_on() {
    holds(|first| reaping(first, false));
    holds(|first| reaping(first, true));
}

/// Two lanes race for the chunks that are left.
#[test]
fn a_chunk_has_one_owner() {
    holds(|_| {
        check(3, || {
            let store = store(2);
            let claimers = [0, 1].map(|slot| {
                let store = Arc::clone(&store);
                thread::spawn(move || append(&store, &mut Lane::new(slot, 0), Region::Setup, u64::from(slot)))
            });
            let commits = claimers.map(|c| c.join().unwrap());
            assert_ne!(commits[0], commits[1]);
            for slot in 0..SLOTS as u16 {
                assert_eq!(read(&store, slot, Region::Setup).unwrap().0.0[0].1, u64::from(slot));
            }
            assert_ne!(store.word(store.base().chunk(0)).load(Ordering::Relaxed) & COMMITTED, 0);
        });
    });
}

/// A chunk goes from one owner to another, straight or by way of the reserve.
fn chunk_changes_hands(first: First, reserve: bool) {
    check(3, move || {
        let store = store(1);
        let id = chunk::claim(&store, 1, ChunkClass::Step, 1).unwrap();
        let last = store.chunk_at(id) + CHUNK - 8;
        let giver = {
            let store = Arc::clone(&store);
            move || {
                store.word(last).store(7, Ordering::Relaxed);
                chunk::release(&store, id);
                if reserve {
                    chunk::restock(&store);
                }
            }
        };
        race(first, giver, move || {
            let taken = match reserve {
                true => chunk::claim_reserve(&store, 2, ChunkClass::Setup),
                false => chunk::claim(&store, 2, ChunkClass::Setup, 1),
            };
            if let Some(id) = taken {
                assert_eq!(store.word(last).load(Ordering::Relaxed), 7, "its former owner is still writing to it");
                let entry = store.chunk(id);
                assert_eq!(entry.owner().load(Ordering::Relaxed), 2);
                assert_eq!(entry.class().load(Ordering::Relaxed) as u32, ChunkClass::Setup as u32, "described by another");
            }
        });
    });
}

#[test]
fn a_chunk_is_the_next_owners_alone() {
    holds(|first| chunk_changes_hands(first, false));
    holds(|first| chunk_changes_hands(first, true));
}

#[test]
fn a_relaxed_claim_of_a_chunk_is_caught() {
    catches("chunk claim", |first| chunk_changes_hands(first, false));
    catches("chunk free", |first| chunk_changes_hands(first, false));
    catches("reserve claim", |first| chunk_changes_hands(first, true));
}

/// An owner leaves dead records out under a reader, and uses a chunk of the old chain again further on.
fn compaction(first: First) {
    check(3, move || {
        let store = store(3);
        let mut lane = Lane::new(0, 0);
        for tag in 1..=3 {
            append(&store, &mut lane, Region::Setup, tag);
        }
        let writer = {
            let store = Arc::clone(&store);
            move || {
                // 1 and 2 fill the first chunk.
                let dead = [1, 2].map(Sequence).into();
                let done = compact::compact(&store, &mut lane, &dead).unwrap().expect("more than half is dead");
                assert_eq!((done.dropped, done.chunks_before, done.chunks_after), (2, 2, 1));
                append(&store, &mut lane, Region::Setup, 4);
                append(&store, &mut lane, Region::Setup, 5);
            }
        };
        race(first, writer, move || {
            let limit = scan::limit(&store);
            let Ok((seen, end)) = read(&store, 0, Region::Setup) else { return };
            let kept: Vec<(u64, u64)> = seen.0.iter().copied().filter(|(sequence, _)| *sequence > 2).collect();
            assert!(seen.0.len() == kept.len() || kept == [(3, 3)], "both chains together: {:?}", seen.0);
            assert!(!kept.is_empty() && kept == [(3, 3), (4, 4), (5, 5)][..kept.len()], "{:?}", seen.0);
            assert!(kept.len() as u64 + 3 >= limit || end == EndState::Pending, "a record below {limit} is missing");
        });
    });
}

#[test]
fn a_compacted_chain_is_seen_before_or_after() {
    holds(compaction);
}

#[test]
fn a_relaxed_swap_of_the_head_is_caught() {
    catches("compaction head", compaction);
    catches("scan head", compaction);
}

/// A growth segment is made while somebody looks for it, to map it or to take a dead creator's leftovers away.
fn segment_is_made(first: First) {
    check(3, move || {
        let store = store(1);
        let what = Description { place: 1, creator: 77, len: 1 << 33, chunks: 5 };
        let maker = {
            let store = Arc::clone(&store);
            move || {
                let entry = store.words(store.base().directory_at, 4);
                directory::announce(entry, &what);
                // Stands for the segment, its header and its name.
                store.word(store.base().chunk(0)).store(1, Ordering::Relaxed);
                directory::publish(entry);
            }
        };
        race(first, maker, move || match directory::described(store.words(store.base().directory_at, 4)) {
            None => {}
            Some((ready, found)) => {
                assert_eq!(found, what, "a state without its description");
                let there = store.word(store.base().chunk(0)).load(Ordering::Relaxed) == 1;
                assert!(there || !ready, "ready, and not there");
            }
        });
    });
}

#[test]
fn a_segment_is_described_before_it_exists_and_exists_before_it_is_ready() {
    holds(segment_is_made);
}

#[test]
fn a_relaxed_state_of_a_segment_is_caught() {
    catches("segment creating", segment_is_made);
    catches("segment ready", segment_is_made);
    catches("segment look", segment_is_made);
}

/// A writer rings for a sleeper that has said that it sleeps.
fn doorbell_rings(first: First) {
    check(3, move || {
        let store = store(1);
        let writer = {
            let store = Arc::clone(&store);
            move || {
                append(&store, &mut Lane::new(0, 0), Region::Setup, 1);
                if store.word(WAITERS).load(Ordering::Relaxed) != 0 {
                    doorbell::count_ring(store.memory());
                }
            }
        };
        race(first, writer, move || {
            let rung = doorbell::count(store.memory());
            doorbell::arm(store.memory());
            if doorbell::count(store.memory()) != rung {
                // No wake without a reason: what it was rung for is seen by a relaxed look.
                assert_eq!(store.sequence().load(Ordering::Relaxed), 2, "woken, and nothing is there");
            }
        });
    });
}

#[test]
fn a_ring_comes_after_what_it_is_for() {
    holds(doorbell_rings);
}

#[test]
fn a_relaxed_doorbell_is_caught() {
    catches("doorbell ring", doorbell_rings);
    catches("doorbell count", doorbell_rings);
}

const ONE: FixedSeat = FixedSeat(1);
const OTHER: FixedSeat = FixedSeat(2);

/// A handle is made while somebody who has guessed it resolves it.
fn resolve_while_made(first: First) {
    check(3, move || {
        let store = store_with(1, 1);
        let writer = {
            let store = Arc::clone(&store);
            move || {
                let table = HandleTable::new(&*store, &ONE);
                let handle = table.reserve(HandleKind::Stream).unwrap();
                table.bind(handle, 1).unwrap();
            }
        };
        race(first, writer, move || {
            // {1, kind 2, generation 1, index 0}: what the writer gets.
            let handle = VirtualHandle(1 << 63 | 2 << 56 | 1 << 32);
            if let Ok(real) = HandleTable::new(&*store, &OTHER).resolve(handle, HandleKind::Stream) {
                assert_eq!(real, 1, "a live handle without its object");
            }
        });
    });
}

#[test]
fn a_live_handle_has_its_object() {
    holds(resolve_while_made);
}

#[test]
fn a_relaxed_live_is_caught() {
    catches("handle live", resolve_while_made);
}

#[test]
fn a_relaxed_look_at_the_handle_is_caught() {
    catches("handle look", resolve_while_made);
}

/// A handle is retired and its slot used for another object while somebody resolves it.
fn resolve_while_reused(first: First) {
    check(4, move || {
        let store = store_with(1, 1);
        let table = HandleTable::new(&*store, &ONE);
        let old = table.reserve(HandleKind::Stream).unwrap();
        table.bind(old, 1).unwrap();
        let writer = {
            let store = Arc::clone(&store);
            move || {
                let table = HandleTable::new(&*store, &ONE);
                table.retire(old).unwrap();
                let new = table.reserve(HandleKind::Stream).unwrap();
                table.bind(new, 2).unwrap();
                assert_eq!(table.resolve(new, HandleKind::Stream), Ok(2));
            }
        };
        race(first, writer, move || {
            match HandleTable::new(&*store, &OTHER).resolve(old, HandleKind::Stream) {
                Ok(real) => assert_eq!(real, 1, "a stale handle led to another object"),
                Err(error) => assert!(matches!(error, HandleError::Stale { .. }), "{error}"),
            }
        });
    });
}

#[test]
fn a_stale_handle_never_leads_to_another_object() {
    holds(resolve_while_reused);
}

#[test]
fn a_relaxed_bind_is_caught() {
    catches("handle bind", resolve_while_reused);
}

#[test]
fn a_relaxed_resolve_is_caught() {
    catches("handle resolve", resolve_while_reused);
}

/// Recovery takes the object away and gives another one while somebody resolves.
fn resolve_while_rebound(first: First) {
    check(4, move || {
        let store = store_with(1, 1);
        let table = HandleTable::new(&*store, &ONE);
        let comm = table.reserve(HandleKind::Communicator).unwrap();
        table.bind(comm, 1).unwrap();
        let writer = {
            let store = Arc::clone(&store);
            move || {
                let table = HandleTable::new(&*store, &ONE);
                table.unbind_kind(HandleKind::Communicator);
                table.rebind(comm, 2).unwrap();
                table.rebind(comm, 3).unwrap();
            }
        };
        race(first, writer, move || {
            match HandleTable::new(&*store, &OTHER).resolve(comm, HandleKind::Communicator) {
                Ok(real) => assert!((1..=3).contains(&real)),
                Err(error) => assert_eq!(error, HandleError::Unbound { handle: comm }),
            }
        });
    });
}

#[test]
fn a_rebound_handle_is_the_old_object_the_new_one_or_unbound() {
    holds(resolve_while_rebound);
}

/// A handle is rebound by one thread while another one retires it and uses its entry for another object.
fn rebind_while_retired(first: First) {
    check(4, move || {
        let store = store_with(0, 1);
        let table = HandleTable::new(&*store, &ONE);
        let old = table.reserve(HandleKind::Event).unwrap();
        table.bind(old, 1).unwrap();
        let user = {
            let store = Arc::clone(&store);
            move || {
                let table = HandleTable::new(&*store, &ONE);
                table.retire(old).unwrap();
                // While the other thread has the old object in its hands the entry is not free.
                let new = table.reserve(HandleKind::Event).ok()?;
                table.bind(new, 2).unwrap();
                Some(new)
            }
        };
        let new = race(first, user, {
            let store = Arc::clone(&store);
            move || match HandleTable::new(&*store, &OTHER).rebind(old, 3) {
                Ok(()) => {}
                Err(error) => assert!(matches!(error, HandleError::Stale { .. }), "{error}"),
            }
        });
        let table = HandleTable::new(&*store, &OTHER);
        if let Some(new) = new {
            assert_eq!(table.resolve(new, HandleKind::Event), Ok(2), "the object of a retired handle");
        } else {
            assert_eq!(table.reserve(HandleKind::Event).map(|handle| handle.generation()), Ok(2), "a lost entry");
        }
        assert!(matches!(table.resolve(old, HandleKind::Event), Err(HandleError::Stale { .. })));
    });
}

#[test]
fn a_rebind_never_hits_the_next_object() {
    holds(rebind_while_retired);
}

/// A store whose chunks hold what looks like handles, from an earlier life.
fn store_of_stale_chunks(chunks: u32) -> Arc<Model> {
    let store = store_with(chunks, 0);
    for chunk in 0..chunks {
        for word in store.words(store.base().chunk(chunk), (CHUNK / 8) as usize) {
            word.store(0x0000_0077_0000_0302, Ordering::Relaxed);
        }
    }
    store
}

/// The table takes a chunk while somebody looks at all handles.
fn growth(first: First) {
    check(3, move || {
        let store = store_of_stale_chunks(1);
        let writer = {
            let store = Arc::clone(&store);
            move || {
                let table = HandleTable::new(&*store, &ONE);
                let handle = table.reserve(HandleKind::Event).unwrap();
                table.bind(handle, 1).unwrap();
                assert_eq!(table.resolve(handle, HandleKind::Event), Ok(1));
            }
        };
        race(first, writer, move || {
            for (handle, real) in HandleTable::new(&*store, &OTHER).live() {
                assert!(handle.generation() == 1 && real.is_none_or(|real| real == 1), "what stood in the chunk before");
            }
        });
    });
}

#[test]
fn the_table_grows_empty() {
    holds(growth);
}

#[test]
fn relaxed_growth_is_caught() {
    catches("handle growth", growth);
    catches("handle directory", growth);
}

/// Two threads find the table used up.
fn growth_race(first: First) {
    check(3, move || {
        let store = store_of_stale_chunks(2);
        let reserve = |seat: &'static FixedSeat| {
            let store = Arc::clone(&store);
            move || HandleTable::new(&*store, seat).reserve(HandleKind::Event).unwrap()
        };
        let (give, take) = std::sync::mpsc::channel();
        let other = reserve(&OTHER);
        let one = race(first, reserve(&ONE), move || give.send(other()).unwrap());
        let other = take.recv().unwrap();
        assert_ne!(one, other);
        let table = HandleTable::new(&*store, &ONE);
        assert_eq!(table.live().len(), 2);
        assert_eq!(table.capacity(), 2, "two chunks of two were taken, or a stale entry is in use");
        let owned = (0..2).filter(|chunk| store.word(store.base().chunk_entry(*chunk)).load(Ordering::Relaxed) != 0);
        assert_eq!(owned.count(), 1, "the loser gives its chunk back");
    });
}

#[test]
fn the_table_grows_once() {
    holds(growth_race);
}

/// The block of a dead thread is settled by one and claimed by another.
fn block_of_the_dead(first: First) {
    check(3, move || {
        let store = store_with(0, 1);
        HandleTable::new(&*store, &ONE).reserve(HandleKind::Event).unwrap();
        let reaper = {
            let store = Arc::clone(&store);
            move || drop(reap::resume(&store, 0, true).unwrap())
        };
        race(first, reaper, move || {
            let table = HandleTable::new(&*store, &OTHER);
            let got = table.reserve(HandleKind::Event);
            let owner = store.word(store.base().handle(0) + HANDLE_BLOCK_OWNER).load(Ordering::Relaxed);
            match got {
                Ok(handle) => assert_eq!(handle.generation(), 2),
                Err(_) => assert_ne!(owner, 2, "the block is ours, and what the dead had reserved is not free"),
            }
        });
    });
}

#[test]
fn a_claimed_block_is_settled() {
    holds(block_of_the_dead);
}

#[test]
fn a_relaxed_claim_of_a_block_is_caught() {
    catches("handle block", block_of_the_dead);
    catches("handle recover", block_of_the_dead);
}
