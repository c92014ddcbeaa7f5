//! Followers, growers and committers that are killed or stopped at the worst moment: who goes on, and who says what.
#![cfg(all(target_os = "linux", not(loom)))]
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use journal_core::journal::layout::{ADMIN, Geometry, SEGMENT_CREATING, WAITERS};
use journal_core::journal::{
    AppendError, Event, Journal, JournalOptions, JournalReader, OverflowPolicy, Region, SharedSegment,
};
use journal_core::sync::Words;

/// Far above any expectation.
const WATCHDOG: Duration = Duration::from_secs(60);
const FOLLOWERS_KILLED: u32 = 1000;
const SMALL: u64 = 128 << 10;

struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str, capacity_bytes: u64, policy: OverflowPolicy) -> Self {
        let options = JournalOptions {
            capacity_bytes,
            chunk_bytes: 4096,
            max_slots: 8,
            max_handles: 16,
            policy,
            ..JournalOptions::new(format!("stop-{tag}-{}", std::process::id()), 0, 0)
        };
        Self(Journal::create(&options).expect("/dev/shm has room for a small journal"))
    }

    fn geometry() -> Geometry {
        Geometry::base(SMALL, 4096, 8, 16).unwrap()
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

/// A forked child that runs `program`, and is killed and waited for at the end.
struct Child(libc::pid_t);

impl Child {
    fn fork(program: impl FnOnce()) -> Self {
        // SAFETY: the child runs `program` and leaves by _exit or a signal.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(program));
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(outcome.is_err())) };
        }
        assert!(pid > 0);
        Self(pid)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that was not waited for.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    /// Stops it, and returns when it stands still.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: waits for a child of ours.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, libc::WUNTRACED) }, self.0);
        assert!(libc::WIFSTOPPED(status), "the child ended by itself, status {status:#x}");
    }

    /// Its status when it has ended by itself.
    fn join(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for a child of ours.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        std::mem::forget(self);
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: as above.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < WATCHDOG, "waited a minute for {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_waiting_follower_is_killed_a_thousand_times_and_neither_writer_nor_other_followers_notice() {
    let journal = &*Scratch::new("waiter", 4 << 20, OverflowPolicy::Error);
    let base = SharedSegment::open(journal.name()).unwrap();
    let mut survivor = JournalReader::open(journal.name()).unwrap().follow();
    let mut appended = 0;
    for round in 0..FOLLOWERS_KILLED {
        let waiter = Child::fork(|| {
            let mut follower = JournalReader::open(journal.name()).unwrap().follow();
            loop {
                follower.wait(1000, Instant::now() + WATCHDOG).unwrap();
            }
        });
        wait_for("the follower to sleep", || base.word(WAITERS).load(Ordering::SeqCst) == 1);
        // Asleep, or woken by an append and about to sleep again.
        for _ in 0..round % 3 {
            appended += 1;
            journal.append(Region::Setup, 1, 0, &[&u64::to_le_bytes(appended)]).unwrap();
        }
        drop(waiter);
        appended += 1;
        journal.append(Region::Setup, 1, 0, &[&u64::to_le_bytes(appended)]).unwrap();
        if round % 10 == 9 {
            let mut last = 0;
            while last < appended {
                let events = survivor.wait(1000, Instant::now() + WATCHDOG).unwrap();
                let Some(Event::Record(record)) = events.last() else { panic!("{events:?} after {last} of {appended}") };
                last = record.sequence.0;
            }
        }
    }
    // Whoever comes now sleeps and is woken as if nothing had been.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for("the last follower to sleep", || base.word(WAITERS).load(Ordering::SeqCst) == 1);
            journal.append(Region::Setup, 2, 0, &[]).unwrap();
        });
        base.word(WAITERS).store(0, Ordering::SeqCst);
        let events = survivor.wait(1000, Instant::now() + WATCHDOG).unwrap();
        assert!(matches!(&events[..], [Event::Record(record)] if record.kind == 2), "{events:?}");
    });
    let snapshot = journal.snapshot();
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.setup.len() as u64, appended + 1);
}

/// The last number told; everything before came, or will not come.
fn drain(follower: &mut journal_core::journal::Follower, next: &mut u64, lost: &mut u64) {
    loop {
        let events = follower.poll(1000).unwrap();
        if events.is_empty() {
            return;
        }
        for event in events {
            let range = match event {
                Event::Record(record) => record.sequence.0..record.sequence.0 + 1,
                Event::Missing(range) => {
                    *lost += range.end - range.start;
                    range
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(range.start, *next);
            *next = range.end;
        }
    }
}

#[test]
fn a_follower_of_a_stopped_writer_waits_for_it_and_of_a_dead_one_ends_with_what_was_committed() {
    for round in 0..20_u64 {
        let journal = &*Scratch::new("writer", 8 << 20, OverflowPolicy::Error);
        let mut follower = JournalReader::open(journal.name()).unwrap().follow();
        let (mut next, mut lost) = (1, 0);
        let writer = Child::fork(|| {
            for i in 0_u64.. {
                // Full in the end: then it waits for its death.
                if journal.append(Region::Setup, 1, 0, &[&i.to_le_bytes(), &[7; 200]]).is_err() {
                    std::thread::park();
                }
            }
        });
        wait_for("the writer's first records", || {
            drain(&mut follower, &mut next, &mut lost);
            next > 50 + round * 13
        });
        writer.stop();
        drain(&mut follower, &mut next, &mut lost);
        // Nothing more comes, whatever it was in the middle of: the follower's own deadline ends the wait.
        let events = follower.wait(10, Instant::now() + Duration::from_millis(5)).unwrap();
        assert_eq!((events, lost), (vec![], 0), "a stopped writer is alive");
        let stopped_at = next;
        writer.signal(libc::SIGCONT);
        wait_for("the writer to go on", || {
            drain(&mut follower, &mut next, &mut lost);
            next > stopped_at + 20 || journal.append(Region::Step, 9, 0, &[]).is_err()
        });
        drop(writer);
        wait_for("the rest", || {
            drain(&mut follower, &mut next, &mut lost);
            next == journal.snapshot().limit.0
        });
        assert!(lost <= 1, "one death lost {lost} numbers");
        let whole = journal.snapshot();
        assert!(whole.is_whole());
        assert_eq!(whole.missing_count(), lost);
    }
}

#[test]
fn a_holder_of_the_admin_lock_that_is_stopped_holds_up_no_append_and_no_commit() {
    let journal = &*Scratch::new("committer", 8 << 20, OverflowPolicy::Error);
    let base = SharedSegment::open(journal.name()).unwrap();
    let blob = vec![7; 1 << 20];
    journal.prepared_reserve(2 << 20).unwrap();
    let committer = Child::fork(|| {
        for step in 0.. {
            journal.prepared_write(step, &blob, &[]).unwrap();
        }
    });
    let holder = || base.word(ADMIN).load(Ordering::SeqCst) as u32 & libc::FUTEX_TID_MASK;
    wait_for("the committer to be stopped while it holds the lock", || {
        committer.stop();
        let held = holder() == committer.0 as u32;
        if !held {
            committer.signal(libc::SIGCONT);
        }
        held
    });
    for i in 0..10_000_u64 {
        journal.append(Region::Step, 1, 0, &[&i.to_le_bytes()]).unwrap();
    }
    assert!(journal.snapshot().is_whole());
    journal.step_commit(0).unwrap();
    assert_eq!(holder(), committer.0 as u32, "it still holds the lock");
    committer.signal(libc::SIGCONT);
    drop(committer);
    // Also when it died holding the lock.
    journal.step_commit(1).unwrap();
    journal.prepared_write(2, b"next", &[]).unwrap();
    assert_eq!(journal.prepared_read(2).unwrap().blob, b"next");
}

fn left_behind(journal: &Journal) -> Vec<String> {
    let names = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    names.filter(|name| name.contains(journal.name().as_str())).collect()
}

#[test]
fn leftovers_of_a_kill_inside_a_growth_are_undone() {
    let mut caught = 0;
    for round in 0..2000 {
        if caught == 50 {
            break;
        }
        let journal = &*Scratch::new("grower", SMALL, OverflowPolicy::Grow { limit_bytes: 64 << 20 });
        let base = SharedSegment::open(journal.name()).unwrap();
        let grower = Child::fork(|| {
            for i in 0_u64.. {
                journal.append(Region::Setup, 1, 0, &[&i.to_le_bytes(), &[7; 900]]).unwrap();
            }
        });
        // One of the first growths, while it goes on or right after.
        let entry = Scratch::geometry().directory_at + 32 * (1 + round % 3);
        wait_for("a growth", || base.word(entry).load(Ordering::SeqCst) != 0);
        drop(grower);
        caught += u32::from(base.word(entry).load(Ordering::SeqCst) == SEGMENT_CREATING);
        let before = journal.snapshot();
        assert!(before.is_whole() && before.missing_count() <= 1, "{:?}", before.lanes);
        for _ in 0..200 {
            journal.append(Region::Setup, 2, 0, &[&[9; 900]]).unwrap();
        }
        let after = journal.snapshot();
        assert!(after.is_whole(), "{:?}", after.lanes);
        assert_eq!(after.setup.len(), before.setup.len() + 200);
        assert_eq!(base.word(entry).load(Ordering::SeqCst) == SEGMENT_CREATING, false, "nobody undid the growth");
        journal.unlink().unwrap();
        assert_eq!(left_behind(journal), Vec::<String>::new(), "round {round}");
    }
    println!("{caught} growths were killed in the middle");
    assert!(caught > 0, "no kill hit a growth");
}

#[test]
fn a_forked_child_follows_the_policy_of_its_parents_journal() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let spill = OverflowPolicy::Spill { directory: folder.path().to_owned() };
    let block = OverflowPolicy::Block { timeout: Duration::from_millis(10) };
    for policy in [OverflowPolicy::Error, block, OverflowPolicy::Grow { limit_bytes: 64 << 20 }, spill] {
        let journal = &*Scratch::new("fork", SMALL, policy.clone());
        journal.append(Region::Setup, 1, 0, &[b"parent"]).unwrap();
        let child = Child::fork(|| {
            let refused = (0..500).find_map(|_| journal.append(Region::Step, 2, 0, &[&[7; 900]]).err());
            match (&policy, refused) {
                (OverflowPolicy::Error, Some(AppendError::Full { .. })) => {}
                (OverflowPolicy::Block { .. }, Some(AppendError::Blocked { .. })) => {}
                (OverflowPolicy::Grow { .. } | OverflowPolicy::Spill { .. }, None) => {}
                (_, other) => panic!("{other:?}"),
            }
        });
        assert_eq!(child.join(), 0, "{policy}");
        // The parent finds what the child made, and goes on in a lane of its own.
        let snapshot = JournalReader::open(journal.name()).unwrap().snapshot().unwrap();
        assert!(snapshot.is_whole(), "{policy}: {:?}", snapshot.lanes);
        let grows = matches!(policy, OverflowPolicy::Grow { .. } | OverflowPolicy::Spill { .. });
        assert_eq!(snapshot.step.len() == 500, grows, "{policy}: {}", snapshot.step.len());
        journal.append(Region::Setup, 1, 0, &[b"parent again"]).unwrap();
        journal.unlink().unwrap();
        assert_eq!(left_behind(journal), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(folder.path() as &Path).unwrap().count(), 0);
    }
}
