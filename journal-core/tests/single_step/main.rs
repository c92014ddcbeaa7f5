//! True at every instruction: a child is single-stepped through an operation and dies after each instruction of it.
//!
//! Two passes. In the first the child runs once; after each instruction that changed a byte of the segment, the
//! segment is copied, the copy's locks are marked as the kernel marks them when their holder dies, and the copy is
//! loaded, reaped and appended to. So every state that a death can leave is looked at, whatever the length of the
//! operation. In the second pass real children are killed after instruction i, for every i of the short operations
//! and a sample of the long ones (`REJOIN_STEP_ALL=1`: for every i of all of them; `REJOIN_STEP_ONLY=growth`: only of
//! the operations with that in their name). `scripts/mutants` shows that weakened product code is caught.
#![cfg(all(target_os = "linux", not(loom)))]
#![allow(unsafe_code)]

mod operations;
mod tracee;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use journal_core::journal::layout::{ADMIN, Geometry};
use journal_core::journal::{Journal, JournalOptions, JournalReader, OverflowPolicy, Owner, Region, SegmentName};

use operations::{ALL, BEFORE, Operation};
use tracee::{SharedWord, Step, Tracee};

/// Kills of a sampled operation.
const SAMPLE: u64 = 60;
/// The same for short operations: all of them, as long as they are short.
const MANY: u64 = 400;
/// Kind of the survivor's records.
const SURVIVOR: u16 = 9;
/// Far above any operation: an operation that never ends is a failure.
const MOST_INSTRUCTIONS: u64 = 5_000_000;

/// Room for several growth segments of the size of the base.
const GROWTH_LIMIT: u64 = 1 << 20;

fn options(job: &str) -> JournalOptions {
    JournalOptions {
        capacity_bytes: 80 << 10,
        chunk_bytes: 4096,
        max_slots: 4,
        max_handles: 16,
        ..JournalOptions::new(format!("{job}-{}", std::process::id()), 0, 0)
    }
}

struct Scratch(Journal);

impl Scratch {
    fn new(job: &str, operation: &Operation) -> Self {
        let mut options = options(job);
        if operation.grows {
            options.policy = OverflowPolicy::Grow { limit_bytes: GROWTH_LIMIT };
        }
        let journal = Journal::create(&options).expect("/dev/shm has room for a small journal");
        journal.append(Region::Setup, SURVIVOR, 0, &[b"survivor"]).unwrap();
        Self(journal)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.unlink();
    }
}

/// Of a journal of [`options`].
fn geometry() -> Geometry {
    let o = options("x");
    Geometry::base(o.capacity_bytes, o.chunk_bytes, o.max_slots, o.max_handles).unwrap()
}

/// Offsets of its lock words.
fn locks() -> impl Iterator<Item = usize> {
    let geometry = geometry();
    std::iter::once(ADMIN as usize).chain((0..geometry.max_slots as u16).map(move |slot| geometry.slot(slot) as usize))
}

/// Files of `name` beside the base that a growth by `pid` can leave: under the final and the temporary name.
fn growth_files(name: &SegmentName, pid: u32) -> [PathBuf; 2] {
    let growth = name.growth(1);
    [growth.path_in("/dev/shm".as_ref()), PathBuf::from(format!("/dev/shm/.{growth}.{pid}"))]
}

/// Does to `image` what the kernel does to the locks of a thread that dies. glibc's lock word stands first.
fn mark_dead(image: &mut [u8], tid: u32) {
    for at in locks() {
        let word = u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        if word & libc::FUTEX_TID_MASK == tid {
            let died = word & libc::FUTEX_WAITERS | libc::FUTEX_OWNER_DIED;
            image[at..at + 4].copy_from_slice(&died.to_le_bytes());
        } else if word & libc::FUTEX_TID_MASK != 0 {
            // The survivor's own lock: in the copy nobody holds it.
            image[at..at + 4].fill(0);
        }
    }
}

/// A journal in the state `image`, under a name of its own.
struct Copy(SegmentName);

impl Copy {
    fn new(image: &[u8], growth: &[Option<Vec<u8>>; 2], pid: u32) -> Self {
        let name = SegmentName::journal(&format!("step-copy-{}", std::process::id()), 0, 0).unwrap();
        std::fs::write(name.path_in("/dev/shm".as_ref()), image).unwrap();
        for (path, bytes) in growth_files(&name, pid).iter().zip(growth) {
            bytes.iter().for_each(|bytes| std::fs::write(path, bytes).unwrap());
        }
        Self(name)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = journal_core::journal::remove(&self.0);
    }
}

/// After a death inside a growth others grow the journal, and its removal leaves nothing behind.
fn examine_growth(journal: &Journal) -> Result<(), String> {
    for i in 0..80 {
        let append = || journal.append(Region::Setup, SURVIVOR, 0, &[&[9; 900]]);
        append().map_err(|e| format!("others cannot grow it, record {i}: {e}"))?;
    }
    let reader = JournalReader::open(journal.name()).map_err(|e| e.to_string())?;
    let snapshot = reader.snapshot().map_err(|e| e.to_string())?;
    if !snapshot.is_whole() || reader.growth_segments().len() < 2 {
        return Err(format!("not whole after further growth: {:?}, {:?}", snapshot.lanes, reader.growth_segments()));
    }
    journal.unlink().map_err(|e| e.to_string())?;
    let all = std::fs::read_dir("/dev/shm").map_err(|e| e.to_string())?;
    let names = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    match names.filter(|name| name.contains(journal.name().as_str())).collect::<Vec<_>>() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("left behind: {left:?}")),
    }
}

/// What must hold after a death, before and after the dead lane is reaped and while others go on.
fn examine(journal: &Journal, operation: &Operation, done: bool) -> Result<(), String> {
    look(journal, operation, done)?;
    journal.append(Region::Setup, SURVIVOR, 0, &[b"others go on"]).map_err(|e| format!("others cannot append: {e}"))?;
    journal.reap().map_err(|e| format!("cannot reap: {e}"))?;
    look(journal, operation, done)?;
    let dead = journal.snapshot().lanes.into_iter().find(|l| matches!(l.owner, Owner::Dead { .. }));
    if let Some(dead) = dead {
        return Err(format!("still dead after reaping: {dead:?}"));
    }
    journal.step_commit(100).map_err(|e| format!("others cannot end the step: {e}"))?;
    journal.append(Region::Step, SURVIVOR, 0, &[&[9; 64]]).map_err(|e| format!("others cannot go on: {e}"))?;
    let snapshot = journal.snapshot();
    if !snapshot.is_whole() || snapshot.step.len() != 1 {
        return Err(format!("the next step is not whole: {:?}, missing {:?}", snapshot.lanes, snapshot.missing));
    }
    if operation.grows { examine_growth(journal) } else { Ok(()) }
}

fn look(journal: &Journal, operation: &Operation, done: bool) -> Result<(), String> {
    let reader = JournalReader::open(journal.name()).map_err(|e| e.to_string())?;
    let snapshot = reader.snapshot().map_err(|e| e.to_string())?;
    if !snapshot.is_whole() {
        return Err(format!("not whole: {:?}, missing {:?}", snapshot.lanes, snapshot.missing));
    }
    if snapshot.missing_count() > 1 {
        return Err(format!("one death lost {:?}", snapshot.missing));
    }
    let mut kept = 0;
    for record in snapshot.setup.iter().chain(&snapshot.step) {
        if record.kind != SURVIVOR && record.payload.iter().any(|byte| u16::from(*byte) != record.kind) {
            return Err(format!("record {} is not what was appended", record.sequence));
        }
        kept += usize::from(record.kind == BEFORE);
    }
    if kept < operation.kept {
        return Err(format!("{kept} of {} acknowledged records are there", operation.kept));
    }
    (operation.promise)(journal, &snapshot, done)
}

struct Summary {
    instructions: u64,
    changes: u64,
    violations: Vec<String>,
}

/// First pass: one run, and a death in each state it goes through.
fn every_state(operation: &Operation) -> Summary {
    let scratch = Scratch::new("step-live", operation);
    let journal = &scratch.0;
    let live = File::open(journal.name().path_in("/dev/shm".as_ref())).unwrap();
    let mut image = vec![0; live.metadata().unwrap().len() as usize];
    let mut last = (Vec::new(), [None, None], false);
    let acknowledged = SharedWord::new();
    let mut child = Tracee::start(&acknowledged, || (operation.prepare)(journal), || (operation.act)(journal));
    let mut summary = Summary { instructions: 0, changes: 0, violations: Vec::new() };
    loop {
        live.read_exact_at(&mut image, 0).unwrap();
        let done = acknowledged.get().load(Ordering::SeqCst) == 1;
        let growth = match operation.grows {
            true => growth_files(journal.name(), child.pid()).map(|path| std::fs::read(path).ok()),
            false => [None, None],
        };
        if image != last.0 || growth != last.1 || done != last.2 {
            last.0.clone_from(&image);
            (last.1, last.2) = (growth, done);
            summary.changes += 1;
            let mut dead = image.clone();
            mark_dead(&mut dead, child.pid());
            let copy = Copy::new(&dead, &last.1, child.pid());
            let outcome = Journal::open(&copy.0).map_err(|e| e.to_string()).and_then(|j| examine(&j, operation, done));
            if let Err(violation) = outcome {
                summary.violations.push(format!("state {} (instruction {}): {violation}", summary.changes, summary.instructions));
            }
        }
        if let Step::Done = child.step() {
            break;
        }
        summary.instructions += 1;
        assert!(summary.instructions < MOST_INSTRUCTIONS, "{} does not end", operation.name);
    }
    assert!(last.2, "{} ended unacknowledged", operation.name);
    summary
}

/// Second pass: a real child dies after instruction `i`.
fn kill_after(operation: &Operation, i: u64) -> Result<(), String> {
    let scratch = Scratch::new("step-kill", operation);
    let journal = &scratch.0;
    let acknowledged = SharedWord::new();
    let mut child = Tracee::start(&acknowledged, || (operation.prepare)(journal), || (operation.act)(journal));
    for _ in 0..i {
        if let Step::Done = child.step() {
            break;
        }
    }
    child.kill();
    let done = acknowledged.get().load(Ordering::SeqCst) == 1;
    examine(journal, operation, done).map_err(|violation| format!("killed after instruction {i}: {violation}"))
}

#[test]
fn a_death_after_any_instruction_leaves_a_prefix_with_everything_acknowledged() {
    let all = std::env::var_os("REJOIN_STEP_ALL").is_some();
    let only = std::env::var("REJOIN_STEP_ONLY").unwrap_or_default();
    let mut violations = Vec::new();
    println!("{:38} {:>12} {:>8} {:>8} {:>10}", "operation", "instructions", "states", "kills", "violations");
    for operation in ALL.iter().filter(|operation| operation.name.contains(&only)) {
        let mut found = every_state(operation);
        let sample = if operation.every_instruction { MANY } else { SAMPLE };
        let stride = if all { 1 } else { found.instructions.div_ceil(sample).max(1) };
        let mut kills = 0;
        for i in (0..=found.instructions).step_by(stride as usize) {
            kills += 1;
            if let Err(violation) = kill_after(operation, i) {
                found.violations.push(violation);
            }
        }
        let count = found.violations.len();
        println!("{:38} {:>12} {:>8} {kills:>8} {count:>10}", operation.name, found.instructions, found.changes);
        violations.extend(found.violations.into_iter().map(|v| format!("{}: {v}", operation.name)));
    }
    assert!(violations.is_empty(), "{} violations, the first:\n{}", violations.len(), violations[..violations.len().min(10)].join("\n"));
}
