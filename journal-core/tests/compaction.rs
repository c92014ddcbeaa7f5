//! Compaction of set-up records: what stays replays to the same, whoever looks on, and whenever the owner dies.
#![cfg(not(loom))]

use std::collections::{BTreeMap, HashSet};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use journal_core::backend::DevicePtr;
use journal_core::handle::VirtualHandle;
use journal_core::journal::{Event, Journal, JournalOptions, JournalReader, Record, Region, SegmentName, Sequence, Snapshot};
use journal_core::request::{self, Call, Request};
use proptest::prelude::*;

/// Set in children: name of the journal to write into.
const CHILD: &str = "REJOIN_TEST_COMPACT";
/// A kind that the closures of these tests take for dead.
const DEAD: u16 = 2;
const KEPT: u16 = 1;

struct Scratch(Journal);

impl Scratch {
    fn new(tag: &str) -> Self {
        static CASE: AtomicU32 = AtomicU32::new(0);
        let case = CASE.fetch_add(1, Ordering::Relaxed);
        let options = JournalOptions {
            capacity_bytes: 1 << 20,
            chunk_bytes: 4096,
            max_slots: 8,
            max_handles: 64,
            ..JournalOptions::new(format!("compact-{tag}-{}-{case}", std::process::id()), 0, 0)
        };
        Self(Journal::create(&options).expect("1 MiB of /dev/shm"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.unlink();
    }
}

fn of_kind(kind: u16) -> impl Fn(&Snapshot, u16) -> HashSet<Sequence> {
    move |snapshot, slot| snapshot.setup.iter().filter(|r| r.slot == slot && r.kind == kind).map(|r| r.sequence).collect()
}

fn numbers(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.sequence.0).collect()
}

#[test]
fn what_stays_keeps_number_payload_result_and_order() {
    let scratch = Scratch::new("stays");
    let journal = &scratch.0;
    for count in 0..200_u64 {
        let kind = if count % 4 == 0 { KEPT } else { DEAD };
        // Some stand in the arena, of both kinds.
        let payload = vec![count as u8; if count % 8 == 1 || count % 40 == 0 { 5000 } else { 100 }];
        let record = journal.append(Region::Setup, kind, 3, &[&payload]).unwrap();
        assert!(journal.complete(record, count));
    }
    let before = journal.snapshot();
    assert!(journal.wants_compaction());
    assert_eq!(journal.compact(of_kind(DEAD)).unwrap(), None, "numbers above the boundary are still looked for");
    journal.step_commit(0).unwrap();
    let done = journal.compact(of_kind(DEAD)).unwrap().expect("most of it is dead");
    assert_eq!(done.dropped, 150);
    assert!(done.chunks_after < done.chunks_before && !journal.wants_compaction(), "{done:?}");
    let expected: Vec<Record> = before.setup.into_iter().filter(|record| record.kind == KEPT).collect();
    let after = journal.snapshot();
    assert!(after.is_whole());
    assert_eq!(after.setup, expected);
    assert_eq!(after.lanes[0].compacted, 150);
    let next = journal.append(Region::Setup, KEPT, 0, &[b"goes on"]).unwrap();
    assert!(journal.complete(next, 7));
    let reader = JournalReader::open(journal.name()).unwrap();
    let last = reader.snapshot().unwrap().setup.pop().unwrap();
    assert_eq!((last.sequence, last.result), (next.sequence(), Some(7)));
}

#[test]
fn room_is_given_back_so_pairs_can_be_made_for_ever() {
    let scratch = Scratch::new("room");
    let journal = &scratch.0;
    let kept = journal.append(Region::Setup, KEPT, 0, &[b"kept"]).unwrap();
    // Twenty times what the journal holds, arena included.
    for step in 0..2000_u32 {
        for _ in 0..20 {
            journal.append(Region::Setup, DEAD, 0, &[&[5; 400]]).expect("compaction has made room");
        }
        journal.append(Region::Setup, DEAD, 0, &[&[6; 6000]]).expect("compaction has made room");
        journal.step_commit(step).unwrap();
        if journal.wants_compaction() {
            journal.compact(of_kind(DEAD)).unwrap();
        }
    }
    let snapshot = journal.snapshot();
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.setup[0].sequence, kept.sequence());
}

#[test]
fn a_few_large_payloads_are_worth_it_whoever_owns_the_lane() {
    let scratch = Scratch::new("large");
    let journal = &scratch.0;
    // Thirty times what the journal holds, in records that all fit into one chunk.
    for step in 0..60 {
        std::thread::scope(|scope| {
            let owner = || {
                for _ in 0..2 {
                    journal.append(Region::Setup, DEAD, 0, &[&[1; 200 << 10]]).expect("compaction has made room");
                }
                journal.step_commit(step).unwrap();
                assert!(journal.wants_compaction());
            };
            scope.spawn(owner).join().unwrap();
            let next = || journal.wants_compaction().then(|| journal.compact(of_kind(DEAD)).unwrap()).flatten();
            // The lane keeps its records; who takes it over finds them.
            scope.spawn(next).join().unwrap().expect("all is dead");
        });
    }
    assert_eq!(journal.snapshot().setup, []);
}

#[test]
fn less_than_half_dead_stays() {
    let scratch = Scratch::new("half");
    let journal = &scratch.0;
    for count in 0..200_u64 {
        journal.append(Region::Setup, if count % 5 < 2 { DEAD } else { KEPT }, 0, &[&[1; 64]]).unwrap();
    }
    journal.step_commit(0).unwrap();
    assert_eq!(journal.compact(of_kind(DEAD)).unwrap(), None);
    assert!(!journal.wants_compaction(), "looked at again only when it has grown");
    assert_eq!(journal.snapshot().setup.len(), 200);
}

#[test]
fn the_next_owner_of_the_lane_goes_on_behind_it() {
    let scratch = Scratch::new("next");
    let journal = &scratch.0;
    let run = |step: u32| {
        for count in 0..100_u64 {
            journal.append(Region::Setup, if count == 50 { KEPT } else { DEAD }, 0, &[&[1; 100]]).unwrap();
        }
        journal.step_commit(step).unwrap();
        journal.compact(of_kind(DEAD)).unwrap().expect("most is dead")
    };
    for step in 0..3 {
        std::thread::scope(|scope| scope.spawn(|| run(step)).join().unwrap());
    }
    assert_eq!(numbers(&journal.snapshot().setup), [51, 151, 251]);
}

#[test]
fn readers_and_followers_see_every_kept_record_meanwhile() {
    let scratch = Scratch::new("readers");
    let journal = &scratch.0;
    let reader = JournalReader::open(journal.name()).unwrap();
    let mut follower = JournalReader::open(journal.name()).unwrap().follow();
    let kept_so_far = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut looks = 0_u64;
            while !over.load(Ordering::Acquire) {
                let at_least = kept_so_far.load(Ordering::Acquire) as usize;
                let snapshot = reader.snapshot().unwrap();
                assert!(snapshot.is_whole(), "{:?}", snapshot.lanes);
                if snapshot.lanes.iter().any(|lane| lane.disturbed) {
                    continue;
                }
                let kept: Vec<&Record> = snapshot.setup.iter().filter(|r| r.kind == KEPT).collect();
                assert!(kept.len() >= at_least, "{} of {at_least} kept records", kept.len());
                for (count, record) in kept.iter().enumerate() {
                    assert_eq!(record.payload[..8], (count as u64).to_le_bytes(), "a kept record is missing or not itself");
                }
                looks += 1;
            }
            looks
        });
        let told = scope.spawn(|| {
            let mut kept = 0_u64;
            loop {
                let last = over.load(Ordering::Acquire);
                let events = follower.wait(64, Instant::now() + Duration::from_millis(20)).unwrap();
                if last && events.is_empty() {
                    return kept;
                }
                for event in events {
                    if let Event::Record(record) = event
                        && record.kind == KEPT
                    {
                        assert_eq!(record.payload[..8], kept.to_le_bytes());
                        kept += 1;
                    }
                }
            }
        });
        let mut compactions = 0;
        for count in 0..400_u32 {
            let payload = [u64::from(count).to_le_bytes(); 8];
            journal.append(Region::Setup, KEPT, 0, &[payload.as_flattened()]).unwrap();
            kept_so_far.store(count + 1, Ordering::Release);
            for _ in 0..40 {
                journal.append(Region::Setup, DEAD, 0, &[&[9; 200]]).unwrap();
            }
            journal.step_commit(count).unwrap();
            compactions += u32::from(journal.wants_compaction() && journal.compact(of_kind(DEAD)).unwrap().is_some());
        }
        over.store(true, Ordering::Release);
        assert!(compactions > 20, "{compactions}");
        looker.join().unwrap();
        assert_eq!(told.join().unwrap(), 400);
    });
}

/// Not a test of its own: the child's program. Appends and compacts until it is killed.
#[test]
fn child_compacts_until_it_is_killed() {
    let Ok(name) = std::env::var(CHILD) else { return };
    let journal = Journal::open(&SegmentName::parse(&name).unwrap()).unwrap();
    let from = journal.snapshot().setup.iter().filter(|r| r.kind == KEPT).count() as u64;
    for count in from.. {
        // Beyond it kept records would fill the journal.
        if count < 1000 {
            journal.append(Region::Setup, KEPT, 0, &[&count.to_le_bytes(), &[0; 24]]).unwrap();
        }
        for _ in 0..30 {
            journal.append(Region::Setup, DEAD, 0, &[&[9; 200]]).unwrap();
        }
        journal.step_commit(count as u32).unwrap();
        journal.compact(of_kind(DEAD)).unwrap();
    }
}

#[test]
fn a_death_while_compacting_leaves_one_chain_whole_and_no_chunk_lost() {
    let scratch = Scratch::new("kill");
    let journal = &scratch.0;
    let mut kept = 0;
    for round in 0..60_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_compacts_until_it_is_killed"])
            .env(CHILD, journal.name().as_str())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let compacted = || journal.snapshot().lanes.iter().map(|lane| lane.compacted).sum::<u64>();
        let target = compacted() + 60 + round * 37 % 300;
        while compacted() < target {
            assert!(Instant::now() < deadline, "waited a minute for the child to compact");
            assert_eq!(child.try_wait().unwrap(), None, "the child ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for reaped in [false, true] {
            if reaped {
                journal.reap().unwrap();
            }
            let snapshot = journal.snapshot();
            assert!(snapshot.is_whole(), "{:?}", snapshot.lanes);
            let all: Vec<&Record> = snapshot.setup.iter().filter(|r| r.kind == KEPT).collect();
            for (count, record) in all.iter().enumerate() {
                assert_eq!(record.payload[..8], (count as u64).to_le_bytes(), "round {round}, reaped: {reaped}");
            }
            assert!(all.len() >= kept);
            kept = all.len();
        }
    }
    assert!(kept > 60);
}

// ---- what a replay of the set-up comes to

#[derive(Debug, Clone)]
enum Op {
    Alloc(u64),
    Free(usize),
    Upload(usize, u8),
    Copy(usize, usize),
    Memset(usize, u8),
    /// A function and a stream.
    Launch(usize, usize),
    Module,
    ModuleGone(usize),
    Function(usize),
    Stream,
    StreamGone(usize),
    Event,
    EventGone(usize),
    Record(usize, usize),
    Wait(usize, usize),
    Sync(usize),
    Commit,
    /// The next operation is another thread's.
    Elsewhere,
}

fn op() -> impl Strategy<Value = Op> {
    let n = || any::<usize>();
    prop_oneof![
        6 => (1_u64..4096).prop_map(Op::Alloc),
        5 => n().prop_map(Op::Free),
        2 => (n(), any::<u8>()).prop_map(|(at, byte)| Op::Upload(at, byte)),
        2 => (n(), n()).prop_map(|(to, from)| Op::Copy(to, from)),
        1 => (n(), any::<u8>()).prop_map(|(at, byte)| Op::Memset(at, byte)),
        1 => (n(), n()).prop_map(|(function, stream)| Op::Launch(function, stream)),
        1 => Just(Op::Module),
        1 => n().prop_map(Op::ModuleGone),
        2 => n().prop_map(Op::Function),
        3 => Just(Op::Stream),
        3 => n().prop_map(Op::StreamGone),
        3 => Just(Op::Event),
        3 => n().prop_map(Op::EventGone),
        2 => (n(), n()).prop_map(|(event, stream)| Op::Record(event, stream)),
        1 => (n(), n()).prop_map(|(stream, event)| Op::Wait(stream, event)),
        1 => n().prop_map(Op::Sync),
        1 => Just(Op::Commit),
        1 => Just(Op::Elsewhere),
    ]
}

/// A device that executes the set-up, and what it comes to.
#[derive(Debug, Default, PartialEq)]
struct Device {
    /// Base to bytes and a digest of what was done to them.
    memory: BTreeMap<u64, (u64, u64)>,
    /// Handle to a digest of what was done to it.
    objects: BTreeMap<u64, u64>,
    /// Module to its functions.
    functions: BTreeMap<u64, Vec<u64>>,
}

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
}

impl Device {
    fn object(&mut self, handle: VirtualHandle) -> &mut u64 {
        self.objects.get_mut(&handle.0).unwrap_or_else(|| panic!("{:#x} is used and was not made", handle.0))
    }

    fn bytes(&mut self, address: DevicePtr) -> &mut u64 {
        &mut self.memory.get_mut(&address.0).unwrap_or_else(|| panic!("{:#x} is used and not allocated", address.0)).1
    }

    fn execute(&mut self, record: &Record) {
        let request = request::decode(record.kind, &record.payload).unwrap();
        match request.call() {
            Call::MemAlloc { bytes } => {
                let base = record.result.unwrap();
                let free = self.memory.iter().all(|(other, (len, _))| base + bytes <= *other || other + len <= base);
                assert!(free, "{base:#x} is in use");
                self.memory.insert(base, (bytes, 0));
            }
            Call::MemFree { address } => assert!(self.memory.remove(&address.0).is_some(), "{:#x} is not allocated", address.0),
            Call::MemcpyHtoD { dst, data } => *self.bytes(dst) = mix(2, u64::from(data[0])),
            Call::MemcpyDtoD { dst, src, .. } => *self.bytes(dst) = mix(3, *self.bytes(src)),
            Call::Memset { dst, value, .. } => *self.bytes(dst) = mix(4, u64::from(value)),
            Call::LaunchKernel { function, stream, .. } => {
                // It reads and writes whatever is allocated.
                let on = mix(*self.object(stream), if function.0 == 0 { 0 } else { *self.object(function) });
                let all = self.memory.values().fold(on, |sum, (len, digest)| mix(sum, mix(*len, *digest)));
                self.memory.values_mut().for_each(|(_, digest)| *digest = mix(*digest, all));
            }
            Call::StreamCreate { stream, priority, .. } => drop(self.objects.insert(stream.0, priority as u64)),
            Call::EventCreate { event, flags } => drop(self.objects.insert(event.0, u64::from(flags))),
            Call::ModuleLoad { module, image } => drop(self.objects.insert(module.0, u64::from(image[0]))),
            Call::ModuleGetFunction { function, module, .. } => {
                let of = *self.object(module);
                self.objects.insert(function.0, mix(6, of));
                self.functions.entry(module.0).or_default().push(function.0);
            }
            Call::ModuleUnload { module } => {
                self.object(module);
                let functions = self.functions.remove(&module.0).unwrap_or_default();
                functions.iter().chain([&module.0]).for_each(|gone| self.objects.retain(|object, _| object != gone));
            }
            Call::StreamDestroy { stream: gone } | Call::EventDestroy { event: gone } => {
                assert!(self.objects.remove(&gone.0).is_some(), "{:#x} is destroyed and was not made", gone.0);
            }
            Call::EventRecord { event, stream } => *self.object(event) = mix(5, *self.object(stream)),
            Call::StreamWaitEvent { stream, event, .. } => *self.object(stream) = mix(*self.object(stream), *self.object(event)),
            Call::StreamSynchronize { stream } => drop(*self.object(stream)),
            other => panic!("{other:?}"),
        }
    }

    fn replay(records: &[Record]) -> Self {
        let mut device = Self::default();
        records.iter().for_each(|record| device.execute(record));
        device
    }
}

struct Application<'a> {
    journal: &'a Journal,
    elsewhere: bool,
    memory: Vec<(u64, u64)>,
    streams: Vec<VirtualHandle>,
    events: Vec<VirtualHandle>,
    modules: Vec<VirtualHandle>,
    /// With their modules.
    functions: Vec<(VirtualHandle, VirtualHandle)>,
    made: u64,
    step: u32,
}

impl<'a> Application<'a> {
    fn new(journal: &'a Journal) -> Self {
        Self {
            journal,
            elsewhere: false,
            memory: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            modules: Vec::new(),
            functions: Vec::new(),
            made: 0,
            step: 0,
        }
    }

    fn send(&mut self, request: &Request<'_>, value: u64) {
        let append = || {
            let record = self.journal.append(Region::Setup, request.code(), 0, &request.parts()).expect("room");
            assert!(self.journal.complete(record, value));
        };
        if std::mem::take(&mut self.elsewhere) {
            std::thread::scope(|scope| scope.spawn(append).join().unwrap());
        } else {
            append();
        }
    }

    fn handle(&mut self) -> VirtualHandle {
        self.made += 1;
        VirtualHandle(1 << 63 | self.made)
    }

    /// First fit, as the real one: a freed address comes again.
    fn place(&self, bytes: u64) -> u64 {
        let mut at = 0x40_0000;
        let mut live = self.memory.clone();
        live.sort_unstable();
        for (base, len) in live {
            if at + bytes <= base {
                break;
            }
            at = (base + len).next_multiple_of(256);
        }
        at
    }

    fn run(&mut self, op: &Op) {
        fn pick<T: Copy>(of: &[T], n: usize) -> Option<T> {
            (!of.is_empty()).then(|| of[n % of.len()])
        }
        let memory = |n: usize| pick(&self.memory, n).map(|(base, len)| (DevicePtr(base), len));
        match *op {
            Op::Alloc(bytes) => {
                let base = self.place(bytes);
                self.memory.push((base, bytes));
                self.send(&request::mem_alloc(bytes), base);
            }
            Op::Free(n) => if let Some((base, _)) = memory(n) {
                self.memory.retain(|(b, _)| *b != base.0);
                self.send(&request::mem_free(base), 0);
            },
            Op::Upload(n, byte) => if let Some((dst, len)) = memory(n) {
                self.send(&request::memcpy_htod(dst, &vec![byte; len as usize]), 0);
            },
            Op::Copy(to, from) => if let (Some((dst, a)), Some((src, b))) = (memory(to), memory(from)) {
                self.send(&request::memcpy_dtod(dst, src, a.min(b)), 0);
            },
            Op::Memset(n, byte) => if let Some((dst, len)) = memory(n) {
                self.send(&request::memset(dst, u32::from(byte), len), 0);
            },
            Op::Module => {
                let module = self.handle();
                self.modules.push(module);
                self.send(&request::module_load(module, &[self.made as u8; 700]), 0);
            }
            Op::ModuleGone(n) => if let Some(module) = pick(&self.modules, n) {
                self.modules.retain(|m| *m != module);
                self.functions.retain(|(_, of)| *of != module);
                self.send(&request::module_unload(module), 0);
            },
            Op::Function(n) => if let Some(module) = pick(&self.modules, n) {
                let function = self.handle();
                self.functions.push((function, module));
                self.send(&request::module_get_function(function, module, "f"), 0);
            },
            Op::Launch(f, n) => if let Some(stream) = pick(&self.streams, n) {
                let function = pick(&self.functions, f).map_or(VirtualHandle(0), |(function, _)| function);
                self.send(&request::launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, &[1, 2, 3]), 0);
            },
            Op::Stream => {
                let stream = self.handle();
                self.streams.push(stream);
                self.send(&request::stream_create(stream, 1, (self.made % 3) as i32), 0);
            }
            Op::StreamGone(n) => if let Some(stream) = pick(&self.streams, n) {
                self.streams.retain(|s| *s != stream);
                self.send(&request::stream_destroy(stream), 0);
            },
            Op::Event => {
                let event = self.handle();
                self.events.push(event);
                self.send(&request::event_create(event, 2), 0);
            }
            Op::EventGone(n) => if let Some(event) = pick(&self.events, n) {
                self.events.retain(|e| *e != event);
                self.send(&request::event_destroy(event), 0);
            },
            Op::Record(e, s) => if let (Some(event), Some(stream)) = (pick(&self.events, e), pick(&self.streams, s)) {
                self.send(&request::event_record(event, stream), 0);
            },
            Op::Wait(s, e) => if let (Some(event), Some(stream)) = (pick(&self.events, e), pick(&self.streams, s)) {
                self.send(&request::stream_wait_event(stream, event, 0), 0);
            },
            Op::Sync(n) => if let Some(stream) = pick(&self.streams, n) {
                self.send(&request::stream_synchronize(stream), 0);
            },
            Op::Commit => {
                self.journal.step_commit(self.step).unwrap();
                self.step += 1;
            }
            Op::Elsewhere => self.elsewhere = true,
        }
    }
}

fn replays_alike(ops: &[Op]) -> Result<u64, TestCaseError> {
    let scratch = Scratch::new("replay");
    let mut application = Application::new(&scratch.0);
    // What was appended, whatever is left out of the journal meanwhile.
    let mut full: BTreeMap<u64, Record> = BTreeMap::new();
    let mut dropped = 0;
    for op in ops {
        application.run(op);
        if matches!(op, Op::Commit) {
            let before = scratch.0.snapshot();
            full.extend(before.setup.iter().map(|record| (record.sequence.0, record.clone())));
            if let Some(done) = scratch.0.compact(request::unneeded).unwrap() {
                dropped += done.dropped;
            }
        }
    }
    let now = scratch.0.snapshot();
    prop_assert!(now.is_whole());
    full.extend(now.setup.iter().map(|record| (record.sequence.0, record.clone())));
    prop_assert_eq!(now.setup.len() as u64 + dropped, full.len() as u64);
    // Whether or not half of it is dead: the choice alone, at this point and without a boundary in the way.
    let all = Snapshot { boundary: scratch.0.boundary(), ..now.clone() };
    let unneeded = request::unneeded(&all, 0);
    let chosen: Vec<Record> = now.setup.iter().filter(|r| !unneeded.contains(&r.sequence)).cloned().collect();
    let full: Vec<Record> = full.into_values().collect();
    let expected = Device::replay(&full);
    prop_assert_eq!(&Device::replay(&now.setup), &expected);
    prop_assert_eq!(&Device::replay(&chosen), &expected);
    Ok(dropped + unneeded.len() as u64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_compacted_journal_replays_to_the_same_objects_and_memory(ops in prop::collection::vec(op(), 1..300)) {
        replays_alike(&ops)?;
    }
}

#[test]
fn pairs_of_one_thread_are_left_out_and_what_live_ones_need_stays() {
    let scratch = Scratch::new("pairs");
    let stream = |n: u64| VirtualHandle(1 << 63 | n);
    let mut application = Application::new(&scratch.0);
    // 1 to 3: nothing is left of it.
    application.send(&request::stream_create(stream(1), 1, 0), 0);
    application.send(&request::stream_synchronize(stream(1)), 0);
    application.send(&request::stream_destroy(stream(1)), 0);
    // 4 to 7: a copy into memory that lives, from memory that does not.
    application.send(&request::mem_alloc(256), 0x1000);
    application.send(&request::mem_alloc(256), 0x2000);
    application.send(&request::memcpy_dtod(DevicePtr(0x1000), DevicePtr(0x2000), 256), 0);
    application.send(&request::mem_free(DevicePtr(0x2000)), 0);
    // 8 to 10: the address again, and nobody needs what was in it.
    application.send(&request::mem_alloc(256), 0x2000);
    application.send(&request::memset(DevicePtr(0x2000), 7, 256), 0);
    application.send(&request::mem_free(DevicePtr(0x2000)), 0);
    // 11, 12: made here, destroyed by another thread.
    application.send(&request::event_create(stream(2), 0), 0);
    application.elsewhere = true;
    application.send(&request::event_destroy(stream(2)), 0);
    // 13, 14: destroyed in vain.
    application.send(&request::event_create(stream(3), 0), 0);
    application.send(&request::event_destroy(stream(3)), 1 << 61 | 5);
    // 15 to 17: a module goes with its functions.
    application.send(&request::module_load(stream(4), &[1; 16]), 0);
    application.send(&request::module_get_function(stream(5), stream(4), "f"), 0);
    application.send(&request::module_unload(stream(4)), 0);
    scratch.0.step_commit(0).unwrap();
    let mut out: Vec<u64> = request::unneeded(&scratch.0.snapshot(), 0).into_iter().map(|s| s.0).collect();
    out.sort_unstable();
    assert_eq!(out, [1, 2, 3, 8, 9, 10, 15, 16, 17]);
    assert!(request::unneeded(&scratch.0.snapshot(), 1).is_empty());
}
