//! Journals of format 1 as they were written once: they load, and say the same, for ever.
//!
//! `tests/golden/NAME.rejoin` holds the runs of bytes of each segment that are not zero (see [`unpack`]), `NAME.txt` what
//! is read from them. A file that exists is never written again: a change of the format that breaks one of them needs a
//! new format version and new journals beside these. Missing ones are written with `REJOIN_BLESS=1`.
#![cfg(all(target_os = "linux", not(loom)))]

use std::fmt::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use journal_core::handle::HandleKind;
use journal_core::journal::layout::{
    ADMIN, BOUNDARY, CHUNK_OWNER, DIRECTORY_CONTENTS, DIRECTORY_ENTRY_BYTES, DIRECTORY_PLACE, FORMAT_MAJOR, Geometry,
    HANDLE_BLOCK_OWNER, HANDLE_ENTRY_BYTES, HANDLE_EPOCH, HANDLE_REAL, HEADER_WORDS, Header, MAX_SEGMENTS, PENDING, PREPARED,
    SEGMENTS, SLOT_BOUNDARIES, SLOT_BYTES, SLOT_HANDLE_HINT, SLOT_HEADS, SLOT_OWNER, SLOT_OWNER_NAMESPACE, SLOT_OWNER_START,
    SPILL_DIRECTORY_WORDS,
};
use journal_core::journal::{
    Journal, JournalOptions, JournalReader, LoadError, OverflowPolicy, Record, Region, SegmentName, Snapshot, checksum,
};

/// One journal of the tree.
struct Golden {
    name: &'static str,
    /// As an application gives it; a spill directory is replaced by one of the test.
    policy: &'static str,
    /// Writes it, by a thread that ends.
    write: fn(&Journal),
    then: Then,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Nothing more.
    Ends,
    /// One more record, which its writer dies over.
    Dies,
    /// The same; the lane is reaped, and its next owner goes on.
    IsReaped,
}

const ALL: &[Golden] = &[
    Golden { name: "steps", policy: "error", write: steps, then: Then::Ends },
    Golden { name: "lanes", policy: "block:1500", write: lanes, then: Then::Ends },
    Golden { name: "torn", policy: "error", write: torn, then: Then::Dies },
    Golden { name: "reaped", policy: "error", write: torn, then: Then::IsReaped },
    Golden { name: "growth", policy: "grow:1048576", write: growth, then: Then::Ends },
    Golden { name: "spilled", policy: "spill:/var/spill", write: growth, then: Then::Ends },
    Golden { name: "compacted", policy: "error", write: compacted, then: Then::Ends },
    Golden { name: "handles", policy: "error", write: handles, then: Then::Ends },
];

/// Set-up and step records of every length around a word, with and without results; a step that is over; an arena
/// payload; PREPARED contents of two steps.
fn steps(journal: &Journal) {
    for len in 0..20_u8 {
        let record = journal.append(Region::Setup, u16::from(len), 0, &[&vec![len; len.into()]]).unwrap();
        if len % 2 == 0 {
            journal.complete(record, u64::from(len) << 40);
        }
    }
    journal.append(Region::Step, 0x8000, 0, &[b"over with its step"]).unwrap();
    journal.step_commit(6).unwrap();
    journal.prepared_write(6, b"generator of step 6", &[(2, &[6; 24])]).unwrap();
    journal.prepared_write(7, b"generator of step 7", &[(2, &[7; 24]), (5, &[8; 3])]).unwrap();
    let large: Vec<u8> = (0..5000_u32).map(|i| if i % 500 == 0 { (i / 100) as u8 } else { 0 }).collect();
    journal.append(Region::Setup, 0x8001, 0x123, &[&large]).unwrap();
    for count in 0..5_u64 {
        let record = journal.append(Region::Step, 0x8002, 0, &[b"of the open step ", &count.to_le_bytes()]).unwrap();
        journal.complete(record, count);
    }
    journal.append_absent(Region::Setup, 0x204, 1, &[&[5; 300], &[6; 1000]]).unwrap();
}

/// Two lanes that go on in further chunks, in both regions; a step that is over; a record that was dropped.
fn lanes(journal: &Journal) {
    let ((to_second, from_first), (to_first, from_second)) = (mpsc::channel(), mpsc::channel());
    let append = |lane: u16, count: u16| {
        journal.append(Region::Setup, lane, 0, &[&count.to_le_bytes(), &[0; 900]]).unwrap();
        journal.append(Region::Step, lane, 0, &[&count.to_le_bytes(), &[0; 1000]]).unwrap();
    };
    // They take turns, so the order is the same each time.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for count in 0..6 {
                append(0, count);
                if count == 1 {
                    journal.step_commit(41).unwrap();
                }
                to_second.send(()).unwrap();
                from_second.recv().unwrap();
            }
        });
        scope.spawn(move || {
            for count in 0..6 {
                from_first.recv().unwrap();
                append(1, count);
                to_first.send(()).unwrap();
            }
        });
    });
    journal.note_dropped();
}

/// Set-up records that were left out, some of them large, and the chain goes on behind them.
fn compacted(journal: &Journal) {
    for count in 0..60_u16 {
        let record = journal.append(Region::Setup, count % 10, 0, &[&count.to_le_bytes(), &[0; 300]]).unwrap();
        journal.complete(record, count.into());
    }
    journal.append(Region::Setup, 1, 0, &[&[0; 5000]]).unwrap();
    journal.append(Region::Setup, 0, 0, &[b"large ", &[0; 5000]]).unwrap();
    journal.step_commit(0).unwrap();
    let dead = |snapshot: &Snapshot, _: u16| snapshot.setup.iter().filter(|r| r.kind != 0).map(|r| r.sequence).collect();
    let done = journal.compact(dead).unwrap().expect("most is dead");
    assert_eq!(done.dropped, 55);
    journal.append(Region::Setup, 2, 0, &[b"goes on"]).unwrap();
    journal.finish();
}

fn torn(journal: &Journal) {
    journal.append(Region::Setup, 1, 0, &[b"whole"]).unwrap();
    journal.append(Region::Step, 2, 0, &[b"also whole"]).unwrap();
    journal.append(Region::Step, 3, 0, &[b"its writer died over this"]).unwrap();
}

fn growth(journal: &Journal) {
    for i in 0..80_u16 {
        // Mostly zeros, so that the file is small.
        journal.append(Region::Setup, i, 0, &[&i.to_le_bytes(), &[0; 900]]).unwrap();
    }
}

fn handles(journal: &Journal) {
    let table = journal.handles();
    let made: Vec<_> = [HandleKind::Stream, HandleKind::Event, HandleKind::Communicator, HandleKind::Stream]
        .into_iter()
        .map(|kind| {
            let handle = table.reserve(kind).unwrap();
            journal.append(Region::Setup, 4, 0, &[&handle.0.to_le_bytes()]).unwrap();
            handle
        })
        .collect();
    for (handle, real) in made.iter().zip(0xA0_u64..) {
        table.bind(*handle, real).unwrap();
    }
    table.retire(made[1]).unwrap();
    let again = table.reserve(HandleKind::Module).unwrap();
    table.bind(again, 0xB0).unwrap();
    table.unbind_kind(HandleKind::Communicator);
    journal.append(Region::Setup, 5, 0, &[&again.0.to_le_bytes()]).unwrap();
}

fn options(golden: &Golden, spill: &Path) -> JournalOptions {
    let policy = match golden.policy.parse().unwrap() {
        OverflowPolicy::Spill { .. } => OverflowPolicy::Spill { directory: spill.to_owned() },
        policy => policy,
    };
    JournalOptions {
        capacity_bytes: 76 << 10,
        chunk_bytes: 4096,
        max_slots: 2,
        max_handles: 8,
        job_uuid: *b"golden journal 1",
        policy,
        ..JournalOptions::new(format!("golden-{}-{}", golden.name, std::process::id()), 3, 1)
    }
}

fn get(bytes: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: u64, value: u64) {
    bytes[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

/// Takes out what belongs to the machine that wrote it: boot, namespace, process ids, folder.
fn make_anonymous(bytes: &mut [u8], base: Option<&Geometry>, policy: &str) {
    use std::mem::offset_of;
    for at in [offset_of!(Header, boot_id), offset_of!(Header, boot_id) + 8, offset_of!(Header, pid_namespace)] {
        put(bytes, at as u64, 0);
    }
    put(bytes, offset_of!(Header, creator_pid) as u64, 4000);
    put(bytes, offset_of!(Header, creator_start) as u64, 0);
    if let Some((_, folder)) = policy.split_once("spill:") {
        let at = offset_of!(Header, spill_directory);
        bytes[at..at + 8 * SPILL_DIRECTORY_WORDS].fill(0);
        bytes[at..at + folder.len()].copy_from_slice(folder.as_bytes());
    }
    let words: Vec<u64> = (1..HEADER_WORDS as u64 - 1).map(|i| get(bytes, 8 * i)).collect();
    put(bytes, 8 * (HEADER_WORDS as u64 - 1), checksum::of_words(words.into_iter()).into());
    for slot in 0..base.map_or(0, |g| g.max_slots as u16) {
        let at = base.unwrap().slot(slot);
        put(bytes, at + SLOT_OWNER_START, 0);
        put(bytes, at + SLOT_OWNER_NAMESPACE, 0);
        if get(bytes, at + SLOT_OWNER) != 0 {
            put(bytes, at + SLOT_OWNER, 4000 | 4001 << 32);
        }
    }
    for k in 0..base.map_or(0, |_| u64::from(MAX_SEGMENTS)) {
        let at = base.unwrap().directory_at + k * DIRECTORY_ENTRY_BYTES + DIRECTORY_PLACE;
        if get(bytes, at) != 0 {
            let place = get(bytes, at) as u32;
            put(bytes, at, u64::from(place) | 4000 << 32);
        }
    }
}

/// As the kernel and a death between the number and the commit leave the lane of the last record.
fn tear(bytes: &mut [u8], geometry: &Geometry, position: u64) {
    const OWNER_DIED: u64 = 0x4000_0000;
    put(bytes, geometry.slot(0), OWNER_DIED);
    put(bytes, position, PENDING);
    put(bytes, position + 16, 0);
}

fn write(golden: &Golden) -> Vec<Vec<u8>> {
    let spill = tempfile::tempdir().unwrap();
    let options = options(golden, spill.path());
    let journal = Journal::create(&options).unwrap();
    let dies = golden.then != Then::Ends;
    let last = std::thread::scope(|scope| {
        let writer = || {
            (golden.write)(&journal);
            dies.then(|| journal.append(Region::Step, 3, 0, &[b"torn"]).unwrap())
        };
        scope.spawn(writer).join().unwrap()
    });
    let geometry = Geometry::base(options.capacity_bytes, options.chunk_bytes, options.max_slots, options.max_handles).unwrap();
    let path = journal.name().path_in("/dev/shm".as_ref());
    if let Some(last) = last {
        let mut bytes = std::fs::read(&path).unwrap();
        tear(&mut bytes, &geometry, last.position());
        // Into the living one, which is the same memory.
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    if golden.then == Then::IsReaped {
        assert_eq!(journal.reap().unwrap(), 1);
        let next = || journal.append(Region::Step, 4, 0, &[b"by the next owner of the lane"]).unwrap();
        std::thread::scope(|scope| scope.spawn(next).join().unwrap());
    }
    let segments = 1 + JournalReader::open(journal.name()).unwrap().growth_segments().len() as u32;
    let read = |k| {
        let (folder, name) = match k {
            0 => (Path::new("/dev/shm"), journal.name().clone()),
            k if golden.policy.starts_with("spill") => (spill.path(), journal.name().growth(k)),
            k => (Path::new("/dev/shm"), journal.name().growth(k)),
        };
        let mut bytes = std::fs::read(name.path_in(folder)).unwrap();
        make_anonymous(&mut bytes, (k == 0).then_some(&geometry), golden.policy);
        bytes
    };
    let all: Vec<Vec<u8>> = (0..segments).map(read).collect();
    assert_eq!(get(&all[0], ADMIN) as u32, 0, "somebody holds the admin lock");
    journal.unlink().unwrap();
    all
}

/// Each segment: its length as u64, the number of runs as u32; each run: offset u32, length u32, bytes. Little-endian.
fn pack(segments: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for bytes in segments {
        let used: Vec<usize> = (0..bytes.len() / 16).filter(|i| bytes[16 * i..][..16] != [0; 16]).collect();
        let runs: Vec<&[usize]> = used.chunk_by(|a, b| a + 1 == *b).collect();
        out.extend((bytes.len() as u64).to_le_bytes());
        out.extend((runs.len() as u32).to_le_bytes());
        for run in runs {
            let (at, len) = (16 * run[0], 16 * run.len());
            out.extend([at as u32, len as u32].map(u32::to_le_bytes).as_flattened());
            out.extend(&bytes[at..at + len]);
        }
    }
    out
}

fn unpack(mut packed: &[u8]) -> Vec<Vec<u8>> {
    fn take<const N: usize>(from: &mut &[u8]) -> [u8; N] {
        let (now, later) = from.split_first_chunk().expect("a packed journal");
        *from = later;
        *now
    }
    let mut segments = Vec::new();
    while !packed.is_empty() {
        let mut bytes = vec![0; u64::from_le_bytes(take(&mut packed)) as usize];
        for _ in 0..u32::from_le_bytes(take(&mut packed)) {
            let [at, len] = [take(&mut packed), take(&mut packed)].map(|word| u32::from_le_bytes(word) as usize);
            let (run, later) = packed.split_at(len);
            bytes[at..at + len].copy_from_slice(run);
            packed = later;
        }
        segments.push(bytes);
    }
    segments
}

/// Everything that a reader gives.
fn tell(reader: &JournalReader) -> String {
    let mut text = String::new();
    let snapshot = reader.snapshot().unwrap();
    let mut line = |args: std::fmt::Arguments<'_>| writeln!(text, "{args}").unwrap();
    let identity = &snapshot.identity;
    line(format_args!("rank {} incarnation {} of {:?}", identity.rank, identity.incarnation, identity.job_uuid.escape_ascii().to_string()));
    line(format_args!("policy {}, growth segments {:?}", reader.policy(), reader.growth_segments()));
    let boundary = snapshot.boundary;
    line(format_args!("boundary {} at {}, next step {:?}", boundary.count, boundary.sequence, boundary.next_step));
    line(format_args!("limit {}, missing {:?}, finished {}", snapshot.limit, snapshot.missing, snapshot.finished));
    line(format_args!("whole {}, dropped {}, incomplete from {:?}", snapshot.is_whole(), snapshot.dropped, snapshot.incomplete_from));
    for lane in &snapshot.lanes {
        let (owner, damage) = (lane.owner, lane.damaged_at);
        line(format_args!("lane {} owner {owner:?} deaths {} lost {} compacted {} damage {damage:?}", lane.slot, lane.deaths, lane.lost, lane.compacted));
    }
    let mut show = |what: &str, records: &[Record]| {
        for r in records {
            line(format_args!(
                "{what} {} kind {:#06x} flags {:#05x} slot {} {:?} {:?} result {:?} {}",
                r.sequence, r.kind, r.flags, r.slot, r.region, r.outcome, r.result, payload(&r.payload)
            ));
        }
    };
    show("set-up", &snapshot.setup);
    show("step", &snapshot.step);
    show("unfinished", &snapshot.unfinished);
    for prepared in reader.prepared().unwrap() {
        let parts: Vec<_> = prepared.parts.iter().map(|(id, bytes)| format!("{id}: {}", payload(bytes))).collect();
        line(format_args!("prepared for step {}: {}, parts {parts:?}", prepared.step, payload(&prepared.blob)));
    }
    for (handle, real) in reader.live_handles().unwrap() {
        line(format_args!("handle {:#018x} {real:x?}", handle.0));
    }
    text
}

fn payload(bytes: &[u8]) -> String {
    if bytes.len() <= 64 {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    // The sum is that of any CRC32C over the bytes.
    format!("{} bytes, crc32c {:08x}", bytes.len(), crc32c::crc32c(bytes))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn name() -> SegmentName {
    SegmentName::journal("golden", 3, 1).unwrap()
}

/// Puts copies of the segments into a folder.
fn lay_out(segments: &[Vec<u8>], dir: &Path) -> Vec<PathBuf> {
    let place = |(k, bytes): (u32, &Vec<u8>)| {
        let path = if k == 0 { name() } else { name().growth(k) }.path_in(dir);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    (0..).zip(segments).map(place).collect()
}

/// What copies of them say.
fn told(segments: &[Vec<u8>], dir: &Path) -> Result<String, LoadError> {
    lay_out(segments, dir);
    Ok(tell(&JournalReader::open_in(dir, &name())?))
}

#[test]
fn journals_of_format_1_load_and_say_the_same_for_ever() {
    assert_eq!(FORMAT_MAJOR, 1, "a new format has golden journals of its own, beside these");
    for golden in ALL {
        let [packed, text] = ["rejoin", "txt"].map(|kind| folder().join(format!("{}.{kind}", golden.name)));
        let bless = std::env::var_os("REJOIN_BLESS").is_some();
        if bless && !packed.exists() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&packed, pack(&write(golden))).unwrap();
        }
        let bytes = std::fs::read(&packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
        let segments = unpack(&bytes);
        assert_eq!(pack(&segments), bytes, "{}", packed.display());
        let dir = tempfile::tempdir().unwrap();
        let told = told(&segments, dir.path()).unwrap_or_else(|e| panic!("{}: {e}", golden.name));
        if bless && !text.exists() {
            std::fs::write(&text, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&text).unwrap_or_else(|e| panic!("{}: {e}", text.display()));
        assert_eq!(told, expected, "{}", golden.name);
        for (k, bytes) in (0..).zip(&segments) {
            let path = if k == 0 { name() } else { name().growth(k) }.path_in(dir.path());
            assert_eq!(&std::fs::read(path).unwrap(), bytes, "a reader changes nothing");
        }
    }
}

#[test]
fn what_is_written_today_is_told_as_the_golden_journals_are() {
    // So that the generator stays able to write the next ones, and a golden text is not an accident.
    for golden in ALL {
        let dir = tempfile::tempdir().unwrap();
        let told = told(&write(golden), dir.path()).unwrap();
        let text = folder().join(format!("{}.txt", golden.name));
        assert_eq!(told, std::fs::read_to_string(&text).unwrap(), "{}", golden.name);
    }
}

#[test]
fn a_flipped_bit_is_refused_or_told_wherever_it_means_anything() {
    for golden in ALL {
        let segments = unpack(&std::fs::read(folder().join(format!("{}.rejoin", golden.name))).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let expected = told(&segments, dir.path()).unwrap();
        for k in 0..segments.len() {
            for at in (0..segments[k].len()).filter(|at| segments[k][*at] != 0) {
                let mut changed = segments.clone();
                changed[k][at] ^= 1 << (at % 8);
                let noticed = told(&changed, dir.path()).map_or(true, |now| now != expected);
                assert!(noticed || is_writers_own(&segments, k, at as u64), "{}: segment {k}, offset {at:#x}", golden.name);
            }
        }
    }
}

/// What only writers look at: locks, counts of their own, marks of free chunks and what is in those, and parts of
/// entries that name nothing.
fn is_writers_own(segments: &[Vec<u8>], k: usize, at: u64) -> bool {
    let of_base = Geometry::base(segments[0].len() as u64, 4096, 2, 8).unwrap();
    let geometry = if k == 0 { of_base } else { Geometry::growth(segments[k].len() as u64, 4096).unwrap() };
    let bytes = &segments[k];
    if at >= geometry.chunks_at {
        let chunk = ((at - geometry.chunks_at) / geometry.chunk_bytes) as u32;
        return get(bytes, geometry.chunk_entry(chunk) + CHUNK_OWNER) == 0;
    }
    if at >= geometry.chunk_table_at {
        return true;
    }
    if k > 0 {
        return false;
    }
    if at >= geometry.handles_at {
        let (entry, field) = (geometry.handle(((at - geometry.handles_at) / HANDLE_ENTRY_BYTES) as u32), (at - geometry.handles_at) % HANDLE_ENTRY_BYTES);
        let state = get(bytes, entry) as u8;
        const LIVE: u8 = 2;
        return state == 0 || field >= HANDLE_BLOCK_OWNER || field >= HANDLE_REAL && state != LIVE;
    }
    if at >= geometry.slots_at {
        let (slot, field) = ((at - geometry.slots_at) / SLOT_BYTES, (at - geometry.slots_at) % SLOT_BYTES);
        let valid = get(bytes, BOUNDARY) & 1 | slot << 1 == get(bytes, BOUNDARY) & 0x1_FFFF;
        let in_boundaries = (SLOT_BOUNDARIES..SLOT_BOUNDARIES + 32).contains(&field);
        let entry = (field.saturating_sub(SLOT_BOUNDARIES)) / 16;
        return field < SLOT_HEADS || (SLOT_HANDLE_HINT..SLOT_BOUNDARIES).contains(&field)
            || in_boundaries && !(valid && entry == get(bytes, BOUNDARY) & 1);
    }
    if at >= geometry.directory_at {
        return (at - geometry.directory_at) % DIRECTORY_ENTRY_BYTES >= DIRECTORY_CONTENTS;
    }
    let locks = ADMIN..ADMIN + 64;
    locks.contains(&at) || [PREPARED, HANDLE_EPOCH, SEGMENTS].contains(&(at / 8 * 8))
}
