//! Processes that are killed while they reserve, bind, rebind and retire handles.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use journal_core::handle::{HandleKind, VirtualHandle};
use journal_core::journal::{Journal, JournalOptions, JournalReader, SegmentName};

/// Set in children: name of the journal.
const CHILD: &str = "REJOIN_TEST_HANDLES";
const KILLS: u64 = 100;
const THREADS: u64 = 2;
/// Handles that each thread of a child keeps.
const KEPT: usize = 40;
const WATCHDOG: Duration = Duration::from_secs(60);

const BOUND: u64 = 1;
const RETIRING: u64 = 2;

struct Scratch(Journal);

impl Drop for Scratch {
    fn drop(&mut self) {
        self.0.unlink().unwrap();
    }
}

/// The only objects that a handle ever gets here: what it leads to tells whether an entry is whole.
fn objects(handle: VirtualHandle) -> [u64; 2] {
    [handle.0 ^ 0x5555_5555_5555_5555, !handle.0]
}

/// Not a test of its own: the child's program.
#[test]
fn child_uses_handles_until_it_is_killed() {
    let Ok(name) = std::env::var(CHILD) else { return };
    let journal = Journal::open(&SegmentName::parse(&name).unwrap()).unwrap();
    // Reports of 16 bytes are written whole by the kernel, or not at all.
    let report = |what: u64, handle: VirtualHandle| {
        let bytes = [what.to_le_bytes(), handle.0.to_le_bytes()];
        std::fs::File::options().write(true).open("/dev/stderr").unwrap().write_all(bytes.as_flattened()).unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let table = journal.handles();
                let mut kept = std::collections::VecDeque::new();
                loop {
                    let handle = table.reserve(HandleKind::Event).unwrap();
                    let [first, second] = objects(handle);
                    table.bind(handle, first).unwrap();
                    report(BOUND, handle);
                    table.rebind(handle, second).unwrap();
                    kept.push_back(handle);
                    if kept.len() > KEPT {
                        let oldest = kept.pop_front().unwrap();
                        report(RETIRING, oldest);
                        table.retire(oldest).unwrap();
                    }
                }
            });
        }
    });
}

fn spawn(name: &SegmentName) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_uses_handles_until_it_is_killed"])
        .env(CHILD, name.as_str())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads a child's reports until it is gone. True: bound; false: being retired.
fn reports(mut from: impl Read, count: &AtomicU64) -> HashMap<u64, bool> {
    let mut found = HashMap::new();
    let mut report = [0; 16];
    while from.read_exact(&mut report).is_ok() {
        let word = |i: usize| u64::from_le_bytes(report[8 * i..8 * i + 8].try_into().unwrap());
        assert!(matches!(word(0), BOUND | RETIRING), "{report:?} is not a report");
        found.insert(word(1), word(0) == BOUND);
        count.fetch_add(1, Ordering::Relaxed);
    }
    found
}

#[test]
fn killed_processes_leave_whole_entries_and_every_acknowledged_bind() {
    // Two blocks more than the children and the parent use: blocks that are not taken back make the table grow.
    let options = JournalOptions { max_handles: 512, ..JournalOptions::new(format!("handle-kill-{}", std::process::id()), 0, 0) };
    let scratch = Scratch(Journal::create(&options).expect("/dev/shm has room for a small journal"));
    let journal = &scratch.0;
    let reader = JournalReader::open(journal.name()).unwrap();
    let table = journal.handles();
    let mine = table.reserve(HandleKind::Stream).unwrap();
    table.bind(mine, 5).unwrap();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(std::process::id());
    let (mut acknowledged, mut reserved) = (0, 0);
    for kill in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let target = 50 + (random >> 33) % 1000;
        let mut child = spawn(journal.name());
        let pipe = child.stderr.take().unwrap();
        let (count, panic) = (AtomicU64::new(0), Mutex::new(None));
        let told = std::thread::scope(|scope| {
            let reading = scope.spawn(|| reports(pipe, &count));
            let start = Instant::now();
            while count.load(Ordering::Relaxed) < target && !reading.is_finished() {
                if start.elapsed() > WATCHDOG {
                    *panic.lock().unwrap() = Some(format!("waited a minute for {target} reports of the child"));
                    break;
                }
                std::thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            reading.join().unwrap()
        });
        assert_eq!(panic.into_inner().unwrap(), None);
        assert!(count.into_inner() >= target, "the child ended by itself");

        let live: HashMap<VirtualHandle, Option<u64>> = reader.live_handles().unwrap().into_iter().collect();
        for (handle, real) in &live {
            let whole = *handle == mine || real.is_none_or(|real| objects(*handle).contains(&real));
            assert!(whole, "{handle:?} leads to {real:x?}");
        }
        for (handle, _) in told.iter().filter(|(_, bound)| **bound) {
            let real = live.get(&VirtualHandle(*handle)).copied().flatten();
            assert!(real.is_some(), "the bind of {handle:#x} was acknowledged");
            acknowledged += 1;
        }
        reserved += live.values().filter(|real| real.is_none()).count();
        assert_eq!(table.resolve(mine, HandleKind::Stream), Ok(5));

        // By a reaper, or by the next child as it takes the slot.
        if kill % 2 == 0 || kill + 1 == KILLS {
            // A thread that had no handle yet when it was killed had no slot either.
            assert!((1..=THREADS).contains(&u64::from(journal.reap().unwrap())));
            let live = reader.live_handles().unwrap();
            assert!(live.iter().all(|(_, real)| real.is_some()), "what the dead had only reserved is free");
        }
        for (handle, real) in reader.live_handles().unwrap() {
            if handle != mine && real.is_some() {
                table.retire(handle).unwrap();
            }
        }
    }
    // All blocks can be had again: the table is used up to its last entry before it grows.
    while table.capacity() == 512 {
        table.reserve(HandleKind::User).unwrap();
    }
    let used = reader.live_handles().unwrap().len();
    assert_eq!(used, 512 + 1, "the table grew before it was full");
    println!("{KILLS} kills, {acknowledged} acknowledged binds kept, {reserved} reservations of the dead seen");
}
