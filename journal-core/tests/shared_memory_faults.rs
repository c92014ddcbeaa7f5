//! Faults of shared memory that users of other systems reported (docs/public-cases.md).
//!
//! Tests that need root (mounts, other users, pid namespaces) say loudly that they were skipped where that is refused.
#![cfg(all(target_os = "linux", not(loom)))]
#![allow(unsafe_code)]

use std::path::Path;
use std::process::{Command, Output};

use journal_core::journal::layout::{Geometry, LAYOUT_HASH};
use journal_core::journal::{Journal, JournalOptions, JournalReader, Owner, Region, SegmentName};

/// Set in children: what to do, and with which journal.
const ROLE: &str = "REJOIN_TEST_ROLE";
const JOURNAL: &str = "REJOIN_TEST_NAME";

struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str) -> Self {
        let options = JournalOptions::new(format!("fault-{tag}-{}", std::process::id()), 0, 0);
        Self(Journal::create(&options).expect("/dev/shm has room for a small journal"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.name().path_in("/dev/shm".as_ref())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.unlink();
    }
}

fn options(job: &str, capacity_bytes: u64) -> JournalOptions {
    JournalOptions { capacity_bytes, ..JournalOptions::new(job, 0, 0) }
}

/// Not a test of its own: what children do. Prints `outcome: …`.
#[test]
fn child_program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let name = std::env::var(JOURNAL).unwrap();
    match role.as_str() {
        "create" => match Journal::create(&options(&name, 16 << 20)) {
            Ok(journal) => {
                let appended = journal.append(Region::Setup, 1, 0, &[&[1; 1000]]);
                println!("outcome: {appended:?}");
            }
            Err(error) => println!("outcome: error: {error}"),
        },
        "read" => match JournalReader::open(&SegmentName::parse(&name).unwrap()) {
            Ok(reader) => {
                let snapshot = reader.snapshot().unwrap();
                println!("outcome: {} records, {:?}", snapshot.setup.len(), snapshot.lanes[0].owner);
            }
            Err(error) => println!("outcome: error: {error}"),
        },
        "write" => match Journal::open(&SegmentName::parse(&name).unwrap()) {
            Ok(journal) => {
                println!("outcome: {}", journal.append(Region::Setup, 2, 0, &[b"other namespace"]).is_ok());
                // SAFETY: dies as it is: the lane stays claimed.
                unsafe { libc::kill(std::process::id() as i32, libc::SIGKILL) };
            }
            Err(error) => println!("outcome: error: {error}"),
        },
        other => panic!("no role {other}"),
    }
}

/// Runs `script` by sh, under `unshare` where `namespaces` are given; `$0` runs [`child_program`].
fn sh(namespaces: &[&str], script: &str, role: &str, name: &str) -> Output {
    let exe = std::env::current_exe().unwrap();
    let child = format!("{} --exact child_program --nocapture", exe.display());
    let mut command = if namespaces.is_empty() {
        Command::new("sh")
    } else {
        let mut command = Command::new("unshare");
        command.args(namespaces).arg("sh");
        command
    };
    command.args(["-c", script, &child]).env(ROLE, role).env(JOURNAL, name).output().unwrap()
}

/// Whether this machine lets us make namespaces; says so where it does not.
fn may(namespaces: &[&str]) -> bool {
    let can = Command::new("unshare").args(namespaces).arg("true").output().is_ok_and(|out| out.status.success());
    if !can {
        eprintln!("SKIPPED: `unshare {}` is not allowed here", namespaces.join(" "));
    }
    can
}

fn results(out: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{} {text} {}", out.status, String::from_utf8_lossy(&out.stderr));
    text.lines().filter_map(|line| line.split_once("outcome: ")).map(|(_, result)| result.to_owned()).collect()
}

#[test]
fn a_tiny_dev_shm_is_an_error_that_names_the_remedy() {
    if !may(&["-m"]) {
        return;
    }
    let out = sh(&["-m"], "mount -t tmpfs -o size=1m tmpfs /dev/shm && $0 && ls -A /dev/shm | sed 's/^/outcome: left /'", "create", "tiny");
    let results = results(&out);
    let [error] = &results[..] else { panic!("{results:?}") };
    assert!(error.starts_with("error: ") && error.contains("/dev/shm") && error.contains("--shm-size"), "{error}");
}

#[test]
fn two_creators_on_a_nearly_full_dev_shm_end_without_a_signal() {
    if !may(&["-m"]) {
        return;
    }
    // 24 MiB hold one journal of 16 MiB and not two.
    let script = "mount -t tmpfs -o size=24m tmpfs /dev/shm || exit 1
        for i in 1 2 3 4 5; do
          REJOIN_TEST_NAME=a$i $0 & a=$!
          REJOIN_TEST_NAME=b$i $0 & b=$!
          wait $a || exit 2; wait $b || exit 3
          rm -f /dev/shm/rejoin.*; test -z \"$(ls -A /dev/shm)\" || exit 4
        done";
    let results = results(&sh(&["-m"], script, "create", "-"));
    assert_eq!(results.len(), 10, "{results:?}");
    assert!(results.iter().all(|r| r.starts_with("Ok") || r.contains("--shm-size")), "{results:?}");
}

#[test]
fn a_file_size_limit_is_an_error_and_not_a_signal() {
    let job = format!("fault-fsize-{}", std::process::id());
    // In blocks of 512 bytes: 1 MiB.
    let results = results(&sh(&[], "ulimit -f 2048; $0", "create", &job));
    let [error] = &results[..] else { panic!("{results:?}") };
    assert!(error.starts_with("error: "), "{error}");
    assert!(!SegmentName::journal(&job, 0, 0).unwrap().path_in(Path::new("/dev/shm")).exists());
}

#[test]
fn a_journal_truncated_under_its_reader_is_an_error() {
    let scratch = Scratch::new("truncate");
    for _ in 0..500 {
        scratch.0.append(Region::Setup, 1, 0, &[&[1; 1000]]).unwrap();
    }
    let bytes = std::fs::read(scratch.path()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let copy = scratch.0.name().path_in(dir.path());
    for len in [0, 1, 0x200, 0x1000, 0x3000, bytes.len() - 4096, bytes.len() - 1] {
        std::fs::write(&copy, &bytes).unwrap();
        let reader = JournalReader::open_in(dir.path(), scratch.0.name()).unwrap();
        assert_eq!(reader.snapshot().unwrap().setup.len(), 500);
        std::fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(len as u64).unwrap();
        let error = reader.snapshot().unwrap_err().to_string();
        assert!(error.contains("truncated"), "{error}");
        assert!(reader.prepared().is_err() && reader.live_handles().is_err());
        assert!(JournalReader::open_in(dir.path(), scratch.0.name()).is_err(), "{len} bytes were opened");
    }
}

#[test]
fn another_user_is_refused_with_a_reason() {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let scratch = Scratch::new("user");
    // SAFETY: the child becomes another user, looks, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: in the child only.
        let other = unsafe { libc::setresuid(65534, 65534, 65534) } == 0;
        let refused = JournalReader::open(scratch.0.name()).is_err() && Journal::open(scratch.0.name()).is_err();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!(other && refused))) };
    }
    assert_eq!(wait(child), 0, "another user opened the journal");
    scratch.0.append(Region::Setup, 1, 0, &[b"the owner goes on"]).unwrap();
}

fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn liveness_is_right_across_pid_namespaces() {
    const NEW: &[&str] = &["-p", "-f", "--mount-proc"];
    if !may(NEW) {
        return;
    }
    let scratch = Scratch::new("pidns");
    scratch.0.append(Region::Setup, 1, 0, &[b"outside"]).unwrap();
    let name = scratch.0.name().as_str();
    let seen = results(&sh(NEW, "$0", "read", name));
    let own = std::process::id();
    assert!(seen[0].starts_with("1 records, Alive") && seen[0].contains(&own.to_string()), "{seen:?}");
    // A writer with pid 1 or 2 of its own namespace dies; a process of those numbers lives out here.
    let written = results(&sh(NEW, "$0; true", "write", name));
    assert_eq!(written, ["true"]);
    let lanes = scratch.0.snapshot().lanes;
    assert!(matches!(lanes[0].owner, Owner::Alive { .. }) && matches!(lanes[1].owner, Owner::Dead { .. }), "{lanes:?}");
    assert_eq!(scratch.0.reap().unwrap(), 1);
}

#[test]
fn a_reused_pid_is_not_taken_for_the_dead_owner() {
    let scratch = Scratch::new("reuse");
    let journal = &scratch.0;
    // SAFETY: the child appends and dies with its lane.
    let first = unsafe { libc::fork() };
    if first == 0 {
        let ok = journal.append(Region::Setup, 1, 0, &[b"dies"]).is_ok();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    assert_eq!(wait(first), 0);
    if std::fs::write("/proc/sys/kernel/ns_last_pid", (first - 1).to_string()).is_err() {
        eprintln!("SKIPPED the reuse itself: ns_last_pid cannot be set here");
    }
    // SAFETY: the child, mostly of the same pid, lives until it is killed.
    let second = unsafe { libc::fork() };
    if second == 0 {
        loop {
            // SAFETY: waits for the signal.
            unsafe { libc::pause() };
        }
    }
    eprintln!("pid {first} was {}", if first == second { "reused" } else { "not reused: others forked meanwhile" });
    let owner = journal.snapshot().lanes[0].owner;
    let reaped = journal.reap();
    // SAFETY: our child.
    unsafe { libc::kill(second, libc::SIGKILL) };
    wait(second);
    assert!(matches!(owner, Owner::Dead { pid, .. } if pid == first as u32), "{owner:?}");
    assert_eq!(reaped.unwrap(), 1);
}

#[test]
fn a_forked_child_that_exits_in_any_way_leaves_the_name() {
    for mode in 0..4 {
        let scratch = Scratch::new(&format!("exit{mode}"));
        // SAFETY: the child drops what it inherited and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let journal = scratch.0.clone();
            journal.append(Region::Setup, 2, 0, &[b"child"]).unwrap();
            match mode {
                0 => drop(journal),
                1 => {
                    let panicked = std::panic::catch_unwind(move || {
                        let _dropped_by_unwinding = journal;
                        std::panic::resume_unwind(Box::new("the child panics"))
                    });
                    assert!(panicked.is_err());
                }
                // SAFETY: exit handlers run, as after `return` from main.
                2 => unsafe { libc::exit(0) },
                _ => std::process::abort(),
            }
            // SAFETY: the test harness of the parent must not go on here.
            unsafe { libc::_exit(0) };
        }
        let status = wait(child);
        assert_eq!(status, if mode == 3 { libc::SIGABRT } else { 0 }, "mode {mode}");
        assert!(scratch.path().exists(), "mode {mode} removed the name");
        scratch.0.append(Region::Setup, 1, 0, &[b"parent"]).unwrap();
        assert_eq!(JournalReader::open(scratch.0.name()).unwrap().snapshot().unwrap().setup.len(), 2);
    }
}

#[test]
fn another_layout_version_or_word_size_is_refused_and_both_are_named() {
    let scratch = Scratch::new("layout");
    let bytes = std::fs::read(scratch.path()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = bytes.clone();
        change(&mut changed);
        // With a right checksum: an honest other build, not damage.
        let words = changed[8..0x1F8].chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
        let sum = u64::from(journal_core::journal::checksum::of_words(words));
        changed[0x1F8..0x200].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(scratch.0.name().path_in(dir.path()), &changed).unwrap();
        JournalReader::open_in(dir.path(), scratch.0.name()).map(|_| ()).map_err(|error| error.to_string())
    };
    refusal(&|_| {}).unwrap();
    let version = refusal(&|b| b[8] = 2).unwrap_err();
    assert!(version.contains('1') && version.contains('2'), "{version}");
    refusal(&|b| b[10] = 1).expect("a newer minor version is readable");
    let layout = refusal(&|b| b[16] ^= 1).unwrap_err();
    assert!(layout.contains(&format!("{LAYOUT_HASH:x}")) && layout.contains(&format!("{:x}", LAYOUT_HASH ^ 1)), "{layout}");
    refusal(&|b| b[14] = 4).unwrap_err();
    refusal(&|b| b[12..14].reverse()).unwrap_err();
}

/// The layout only; `journal_large_offsets.rs` writes there.
#[test]
fn offsets_beyond_4_gib_fit_the_layout() {
    let geometry = Geometry::base(5 << 30, 64 << 10, 64, 4096).unwrap();
    let last = geometry.chunk(geometry.chunks - 1);
    assert!(last > 4 << 30 && last + geometry.chunk_bytes <= geometry.total_len);
}

#[test]
fn nothing_that_decides_liveness_reads_a_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in ["journal/claim.rs", "journal/lock.rs", "journal/reap.rs", "journal/scan.rs", "journal/snapshot.rs", "journal/chunk.rs", "journal/identity.rs", "membership/liveness.rs", "sync/futex.rs", "sync/robust.rs"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for clock in ["SystemTime", "CLOCK_REALTIME", "gettimeofday", "UNIX_EPOCH"] {
            assert!(!text.contains(clock), "{file} uses the wall clock ({clock}): a step of it would look like a death");
        }
    }
}
