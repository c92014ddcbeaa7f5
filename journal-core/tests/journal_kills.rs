//! Writers that are killed, stopped or forked: what loads is a prefix with everything acknowledged in it.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use journal_core::journal::{
    Journal, JournalOptions, JournalReader, Outcome, Owner, Region, SegmentName, Sequence, Snapshot,
};

/// Set in children: name of the journal to write into.
const CHILD: &str = "REJOIN_TEST_JOURNAL";
const KILLS: u64 = 150;
const THREADS: u64 = 2;
const WATCHDOG: Duration = Duration::from_secs(60);

struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str) -> Self {
        let options = JournalOptions::new(format!("kill-{tag}-{}", std::process::id()), 0, 0);
        Self(Journal::create(&options).expect("/dev/shm has room for a small journal"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.unlink().unwrap();
    }
}

/// Not a test of its own: the child's program. Appends until it is killed.
#[test]
fn child_appends_until_it_is_killed() {
    let Ok(name) = std::env::var(CHILD) else { return };
    let journal = Journal::open(&SegmentName::parse(&name).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || append_for_ever(journal, u64::from(std::process::id()), thread));
        }
    });
}

/// Payload: writer, thread, count, then `count % 40` words of the count.
fn append_for_ever(journal: &Journal, writer: u64, thread: u64) {
    for count in 0_u64.. {
        let head = [writer, thread, count].map(u64::to_le_bytes);
        let body = vec![count.to_le_bytes(); (count % 40) as usize];
        let record = journal.append(Region::Step, 1, 0, &[head.as_flattened(), body.as_flattened()]).unwrap();
        journal.complete(record, count);
        if count % 100 == 99 {
            journal.step_commit((count / 100) as u32).unwrap();
        }
    }
}

fn spawn(name: &SegmentName) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_appends_until_it_is_killed"])
        .env(CHILD, name.as_str())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Spins until `done`, and fails loudly if that takes longer than any machine needs.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < WATCHDOG, "waited a minute for {what}");
        std::thread::yield_now();
    }
}

/// Whole records, every writer's counts without a hole, and nothing returned that is not there.
fn check(snapshot: &Snapshot) {
    assert!(snapshot.is_whole(), "lanes {:?}, missing {:?}", snapshot.lanes, snapshot.missing);
    let mut next = BTreeMap::new();
    let mut open = BTreeMap::new();
    for record in &snapshot.step {
        let words: Vec<u64> = record.payload.chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
        let &[writer, thread, count, ref body @ ..] = &words[..] else { panic!("{words:?}") };
        assert!(body.len() as u64 == count % 40 && body.iter().all(|word| *word == count), "{words:?}");
        let expected = next.insert((writer, thread), count + 1).unwrap_or(count);
        assert_eq!(count, expected, "writer {writer} thread {thread} lost a record");
        match record.result {
            Some(result) => assert_eq!(result, count),
            None => *open.entry((writer, thread)).or_insert(0) += 1,
        }
    }
    // Committed, and killed before the result was stored: at most the last one of a lane.
    assert!(open.values().all(|n| *n <= 1), "{open:?}");
}

#[test]
fn killed_writers_lose_at_most_what_was_never_issued_and_disturb_nobody() {
    let scratch = Scratch::new("kill");
    let journal = &scratch.0;
    let reader = JournalReader::open(journal.name()).unwrap();
    let stop = AtomicBool::new(false);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(std::process::id());
    let mut torn = 0;
    std::thread::scope(|scope| {
        let survivor = scope.spawn(|| {
            let mut appended = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let head = [0, 0, appended].map(u64::to_le_bytes);
                let body = vec![appended.to_le_bytes(); (appended % 40) as usize];
                let record = journal.append(Region::Step, 1, 0, &[head.as_flattened(), body.as_flattened()]).unwrap();
                assert!(journal.complete(record, appended) || record.sequence() < journal.boundary().sequence);
                appended += 1;
                if appended % 100 == 0 {
                    journal.step_commit((appended / 100) as u32).unwrap();
                }
            }
            appended
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..KILLS {
                let mut child = spawn(journal.name());
                let pid = child.id();
                let mine = |s: &Snapshot| {
                    s.lanes.iter().filter(|l| matches!(l.owner, Owner::Alive { pid: p, .. } if p == pid)).count()
                };
                wait_for("the child's threads to append", || mine(&reader.snapshot().unwrap()) as u64 == THREADS);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let target = reader.snapshot().unwrap().limit.0 + (random >> 33) % 3000;
                wait_for("more records", || reader.snapshot().unwrap().limit >= Sequence(target));
                child.kill().unwrap();
                child.wait().unwrap();
                let snapshot = reader.snapshot().unwrap();
                check(&snapshot);
                torn += snapshot.count(Outcome::Torn);
                journal.reap().unwrap();
                let snapshot = reader.snapshot().unwrap();
                check(&snapshot);
                assert!(!snapshot.lanes.iter().any(|l| matches!(l.owner, Owner::Dead { .. })), "{:?}", snapshot.lanes);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let appended = survivor.join().unwrap();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        assert!(appended > 1000, "the survivor appended only {appended} records");
        let snapshot = reader.snapshot().unwrap();
        let deaths: u64 = snapshot.lanes.iter().map(|lane| lane.deaths).sum();
        let lost: u64 = snapshot.lanes.iter().map(|lane| lane.lost).sum();
        assert_eq!(deaths, KILLS * THREADS);
        assert!(lost <= deaths);
        println!("{KILLS} kills, {deaths} threads, {torn} torn records, {lost} sequence numbers lost at most, {appended} by the survivor");
    });
}

#[test]
fn a_stopped_writer_is_alive_however_long_it_is_stopped() {
    let scratch = Scratch::new("stop");
    let reader = JournalReader::open(scratch.0.name()).unwrap();
    let mut child = spawn(scratch.0.name());
    wait_for("the child to append", || reader.snapshot().unwrap().limit > Sequence(1000));
    let pid = child.id() as i32;
    // SAFETY: a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    wait_for("the child to stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    });
    assert_eq!(scratch.0.reap().unwrap(), 0, "a stopped thread was taken for dead");
    let snapshot = reader.snapshot().unwrap();
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.count(Outcome::Torn), 0);
    scratch.0.append(Region::Setup, 1, 0, &[b"others go on"]).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    let before = reader.snapshot().unwrap().limit.0;
    wait_for("the child to go on", || reader.snapshot().unwrap().limit > Sequence(before + 100));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(u64::from(scratch.0.reap().unwrap()), THREADS);
}

#[test]
fn a_forked_child_appends_in_a_lane_of_its_own() {
    let scratch = Scratch::new("fork");
    let journal = &scratch.0;
    journal.append(Region::Setup, 1, 0, &[b"parent"]).unwrap();
    // SAFETY: the child only appends and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = match journal.append(Region::Setup, 2, 0, &[b"child"]) {
            Ok(_) => 0,
            Err(_) => 1,
        };
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    journal.append(Region::Setup, 3, 0, &[b"parent again"]).unwrap();
    let snapshot = journal.snapshot();
    assert!(snapshot.is_whole());
    let order: Vec<_> = snapshot.setup.iter().map(|r| (r.kind, r.slot)).collect();
    assert_eq!(order, [(1, 0), (2, 1), (3, 0)]);
    assert!(matches!(snapshot.lanes[1].owner, Owner::Dead { pid, .. } if pid == child as u32));
    assert_eq!(journal.reap().unwrap(), 1);
    assert_eq!(journal.snapshot().lanes[1].owner, Owner::None);
}
