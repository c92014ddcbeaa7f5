//! Writers that are killed, stopped or forked: what loads is a prefix with everything acknowledged in it.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use journal_core::journal::{
    AppendError, Journal, JournalOptions, JournalReader, Outcome, Owner, Region, SegmentName, Sequence, Snapshot,
};

/// Set in children: name of the journal to write into.
const CHILD: &str = "REJOIN_TEST_JOURNAL";
/// Set in children: whether they fork.
const FORKS: &str = "REJOIN_TEST_FORKS";
/// Set in children: whether they end steps.
const COMMITS: &str = "REJOIN_TEST_COMMITS";
/// Set in children: name of the journal to prepare steps in.
const PREPARES: &str = "REJOIN_TEST_PREPARES";
const THREADS: u64 = 2;
/// Writing processes at a time.
const CHILDREN: usize = 2;
const WATCHDOG: Duration = Duration::from_secs(60);
/// A child's thread forks once in so many records; the grandchild appends a few of its own and dies with its lane.
const FORK_EVERY: u64 = 5_000;
const FORKED_RECORDS: u64 = 20;

/// `REJOIN_FUZZ_KILLS` and `REJOIN_FUZZ_RECORDS` make a longer run by hand.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

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
fn append_one(journal: &Journal, commits: bool, [writer, thread, count]: [u64; 3]) {
    let mut words = [count.to_le_bytes(); 42];
    words[..3].copy_from_slice(&[writer, thread, count].map(u64::to_le_bytes));
    let payload = words[..3 + (count % 40) as usize].as_flattened();
    let record = loop {
        match journal.append(Region::Step, 1, 0, &[payload]) {
            Ok(record) => break record,
            Err(AppendError::Full { .. }) if commits => {
                journal.step_commit((count / 100) as u32).unwrap();
            }
            // Whoever ends the steps does not keep up for the moment.
            Err(AppendError::Full { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    // Another process may have ended the step meanwhile.
    assert!(journal.complete(record, count) || record.sequence() < journal.boundary().sequence);
}

fn append_for_ever(journal: &Journal, writer: u64, thread: u64) {
    let forks = thread == 0 && std::env::var(FORKS).is_ok_and(|text| text == "1");
    let commits = std::env::var(COMMITS).is_ok_and(|text| text == "1");
    for count in 0_u64.. {
        append_one(journal, commits, [writer, thread, count]);
        if commits && count % 100 == 99 {
            journal.step_commit((count / 100) as u32).unwrap();
        }
        if forks && count % FORK_EVERY == FORK_EVERY / 2 {
            fork_and_append(journal);
        }
    }
}

fn fork_and_append(journal: &Journal) {
    // SAFETY: nobody waits for the grandchild: the kernel takes it away.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // SAFETY: the grandchild only appends and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let writer = u64::from(std::process::id());
        let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..FORKED_RECORDS).for_each(|count| append_one(journal, false, [writer, 9, count]));
        }));
        // SAFETY: ends without the parent's exit handlers, its lane still claimed: a death.
        unsafe { libc::_exit(i32::from(all.is_err())) };
    }
}

fn spawn(name: &SegmentName, forks: bool, commits: bool) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_appends_until_it_is_killed"])
        .env(CHILD, name.as_str())
        .env(FORKS, if forks { "1" } else { "0" })
        .env(COMMITS, if commits { "1" } else { "0" })
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sequence numbers taken so far, without the cost of a snapshot.
fn issued(journal: &Journal) -> u64 {
    let mut word = [0; 8];
    let file = std::fs::File::open(journal.name().path_in("/dev/shm".as_ref())).unwrap();
    file.read_exact_at(&mut word, journal_core::journal::layout::SEQUENCE).unwrap();
    u64::from_le_bytes(word)
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

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a child of ours that has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

fn deaths(snapshot: &Snapshot) -> u64 {
    snapshot.lanes.iter().map(|lane| lane.deaths).sum()
}

#[test]
fn killed_writers_lose_at_most_what_was_never_issued_and_disturb_nobody() {
    let (kills_wanted, records_wanted) = (setting("REJOIN_FUZZ_KILLS", 1000), setting("REJOIN_FUZZ_RECORDS", 10_000_000));
    let scratch = Scratch::new("kill");
    let journal = &scratch.0;
    let reader = JournalReader::open(journal.name()).unwrap();
    let stop = AtomicBool::new(false);
    let seed = setting("REJOIN_FUZZ_SEED", u64::from(std::process::id()));
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ seed);
    let (mut torn, mut kills, mut stops, start) = (0, 0, 0, Instant::now());
    std::thread::scope(|scope| {
        let survivor = scope.spawn(|| {
            let mut appended = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                append_one(journal, true, [0, 0, appended]);
                appended += 1;
                if appended % 100 == 0 {
                    journal.step_commit((appended / 100) as u32).unwrap();
                }
                if appended % 1000 == 0 {
                    // Two cores for three writing processes and a reader: leave some to the others.
                    std::thread::yield_now();
                }
            }
            appended
        });
        let watcher = scope.spawn(|| {
            let mut snapshots = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                check(&reader.snapshot().unwrap());
                snapshots += 1;
                std::thread::yield_now();
            }
            snapshots
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut children: Vec<Child> = Vec::new();
            while kills < kills_wanted || issued(journal) < records_wanted {
                while children.len() < CHILDREN {
                    let commits = random.below(2) == 0;
                    children.push(spawn(journal.name(), true, commits));
                }
                let mut child = children.swap_remove(random.below(CHILDREN as u64) as usize);
                let pid = child.id();
                let mine = |s: &Snapshot| {
                    s.lanes.iter().filter(|l| matches!(l.owner, Owner::Alive { pid: p, .. } if p == pid)).count()
                };
                wait_for("the child's threads to append", || mine(&reader.snapshot().unwrap()) as u64 == THREADS);
                // As far behind as the kills that are still wanted leave records to be written.
                let pace = (records_wanted.saturating_sub(issued(journal)) / (kills_wanted - kills.min(kills_wanted) + 1)).max(1500);
                let target = issued(journal) + random.below(2 * pace);
                wait_for("more records", || issued(journal) >= target);
                if random.below(2) == 0 {
                    stops += 1;
                    signal(&child, libc::SIGSTOP);
                    let target = issued(journal) + 500;
                    wait_for("others to append while a writer is stopped", || issued(journal) >= target);
                    if random.below(2) == 0 {
                        signal(&child, libc::SIGCONT);
                    }
                }
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
                let snapshot = reader.snapshot().unwrap();
                check(&snapshot);
                torn += snapshot.count(Outcome::Torn);
                journal.reap().unwrap();
                let dead = |l: &journal_core::journal::LaneReport| matches!(l.owner, Owner::Dead { pid: p, .. } if p == pid);
                let snapshot = reader.snapshot().unwrap();
                assert!(!snapshot.lanes.iter().any(dead), "{:?}", snapshot.lanes);
            }
            for mut child in children {
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let (appended, snapshots) = (survivor.join().unwrap(), watcher.join().unwrap());
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        assert!(appended > 1000, "the survivor appended only {appended} records");
        wait_for("forked children to end", || {
            journal.reap().unwrap();
            reader.snapshot().unwrap().lanes.iter().all(|l| l.owner == Owner::None)
        });
        let snapshot = reader.snapshot().unwrap();
        check(&snapshot);
        let (deaths, lost) = (deaths(&snapshot), snapshot.lanes.iter().map(|lane| lane.lost).sum::<u64>());
        assert!(deaths >= kills * THREADS, "{deaths} deaths of {kills} processes with {THREADS} threads");
        assert!(lost <= deaths);
        println!(
            "fuzz: {} records, {kills} kills ({stops} stopped first), {deaths} lanes reaped (forked children among them), {torn} \
             torn records seen, {lost} sequence numbers lost at most, {snapshots} snapshots checked, {appended} records by the \
             survivor, 0 violations, {:.1} s, seed {seed}",
            snapshot.limit,
            start.elapsed().as_secs_f64(),
        );
    });
}

#[test]
fn a_stopped_writer_is_alive_however_long_it_is_stopped() {
    let scratch = Scratch::new("stop");
    let reader = JournalReader::open(scratch.0.name()).unwrap();
    let mut child = spawn(scratch.0.name(), false, true);
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

/// Not a test of its own: the child's program. Writes PREPARED, under the admin lock, until it is killed.
#[test]
fn child_prepares_until_it_is_killed() {
    let Ok(name) = std::env::var(PREPARES) else { return };
    let journal = Journal::open(&SegmentName::parse(&name).unwrap()).unwrap();
    for step in 0_u32.. {
        journal.prepared_write(step, &[step as u8; 1 << 20], &[]).unwrap();
    }
}

#[test]
fn a_thread_stopped_with_the_admin_lock_holds_up_no_step() {
    let scratch = Scratch::new("admin");
    let journal = &scratch.0;
    journal.append(Region::Step, 1, 0, &[b"before"]).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_prepares_until_it_is_killed"])
        .env(PREPARES, journal.name().as_str())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let file = std::fs::File::open(journal.name().path_in("/dev/shm".as_ref())).unwrap();
    let holder = || {
        let mut word = [0; 4];
        // glibc keeps the lock word first.
        file.read_exact_at(&mut word, journal_core::journal::layout::ADMIN).unwrap();
        u32::from_le_bytes(word) & libc::FUTEX_TID_MASK
    };
    wait_for("the child to be stopped with the admin lock", || {
        signal(&child, libc::SIGCONT);
        wait_for("the child to take the lock", || holder() != 0);
        signal(&child, libc::SIGSTOP);
        wait_for("the child to stop", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
        });
        holder() != 0
    });
    for step in 0..1000 {
        journal.append(Region::Step, 1, 0, &[&[7; 4000]]).unwrap();
        journal.step_commit(step).unwrap();
    }
    assert_eq!(journal.boundary().next_step, Some(1000));
    assert_ne!(holder(), 0, "the child still holds it");
    child.kill().unwrap();
    child.wait().unwrap();
    journal.prepared_write(1000, b"goes on", &[]).unwrap();
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
