//! Journals of format 1 as they were written once: they load, and say the same, for ever.
//!
//! `tests/golden/NAME.rejoin` holds the runs of bytes of each segment that are not zero (see [`unpack`]), `NAME.txt` what
//! is read from them. A file that exists is never written again: a change of the format that breaks one of them needs a
//! new format version and new journals beside these. Missing ones are written with `REJOIN_BLESS=1`.
#![cfg(all(target_os = "linux", not(loom)))]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use journal_core::handle::HandleKind;
use journal_core::journal::layout::{
    ADMIN, FORMAT_MAJOR, Geometry, HEADER_WORDS, Header, PENDING, SLOT_OWNER, SLOT_OWNER_NAMESPACE, SLOT_OWNER_START,
};
use journal_core::journal::{Journal, JournalOptions, JournalReader, OverflowPolicy, Record, Region, SegmentName, checksum};

/// One journal of the tree.
struct Golden {
    name: &'static str,
    grows: bool,
    /// Writes it, by a thread that ends.
    write: fn(&Journal),
    /// Its last record is as a death leaves it.
    torn: bool,
}

const ALL: &[Golden] = &[
    Golden { name: "steps", grows: false, write: steps, torn: false },
    Golden { name: "torn", grows: false, write: torn, torn: true },
    Golden { name: "growth", grows: true, write: growth, torn: false },
    Golden { name: "handles", grows: false, write: handles, torn: false },
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
}

fn torn(journal: &Journal) {
    journal.append(Region::Setup, 1, 0, &[b"whole"]).unwrap();
    journal.append(Region::Step, 2, 0, &[b"also whole"]).unwrap();
    journal.append(Region::Step, 3, 0, &[b"its writer died over this"]).unwrap();
}

fn growth(journal: &Journal) {
    for i in 0..60_u16 {
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

fn options(name: &str, grows: bool) -> JournalOptions {
    let mut options = JournalOptions {
        capacity_bytes: 52 << 10,
        chunk_bytes: 4096,
        max_slots: 2,
        max_handles: 8,
        job_uuid: *b"golden journal 1",
        ..JournalOptions::new(format!("golden-{name}-{}", std::process::id()), 3, 1)
    };
    if grows {
        options.policy = OverflowPolicy::Grow { limit_bytes: 1 << 20 };
    }
    options
}

fn get(bytes: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: u64, value: u64) {
    bytes[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

/// Takes out what belongs to the machine that wrote it: boot, namespace, process ids.
fn make_anonymous(bytes: &mut [u8], base: Option<&Geometry>) {
    use std::mem::offset_of;
    for at in [offset_of!(Header, boot_id), offset_of!(Header, boot_id) + 8, offset_of!(Header, pid_namespace)] {
        put(bytes, at as u64, 0);
    }
    put(bytes, offset_of!(Header, creator_pid) as u64, 4000);
    put(bytes, offset_of!(Header, creator_start) as u64, 0);
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
}

/// As the kernel and a death between the number and the commit leave the lane of the last record.
fn tear(bytes: &mut [u8], geometry: &Geometry, position: u64) {
    const OWNER_DIED: u64 = 0x4000_0000;
    put(bytes, geometry.slot(0), OWNER_DIED);
    put(bytes, position, PENDING);
    put(bytes, position + 16, 0);
}

fn write(golden: &Golden) -> Vec<Vec<u8>> {
    let options = options(golden.name, golden.grows);
    let journal = Journal::create(&options).unwrap();
    let last = std::thread::scope(|scope| {
        let writer = || {
            (golden.write)(&journal);
            golden.torn.then(|| journal.append(Region::Step, 3, 0, &[b"torn"]).unwrap())
        };
        scope.spawn(writer).join().unwrap()
    });
    let segments = 1 + JournalReader::open(journal.name()).unwrap().growth_segments().len() as u32;
    let geometry = Geometry::base(options.capacity_bytes, 4096, options.max_slots, options.max_handles).unwrap();
    let read = |k| {
        let name = if k == 0 { journal.name().clone() } else { journal.name().growth(k) };
        let mut bytes = std::fs::read(name.path_in("/dev/shm".as_ref())).unwrap();
        if let (0, Some(last)) = (k, last) {
            tear(&mut bytes, &geometry, last.position());
        }
        make_anonymous(&mut bytes, (k == 0).then_some(&geometry));
        assert_eq!(get(&bytes, ADMIN) as u32, 0, "somebody holds the admin lock");
        bytes
    };
    let all = (0..segments).map(read).collect();
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
        line(format_args!("lane {} owner {owner:?} deaths {} lost {} damage {damage:?}", lane.slot, lane.deaths, lane.lost));
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

#[test]
fn journals_of_format_1_load_and_say_the_same_for_ever() {
    assert_eq!(FORMAT_MAJOR, 1, "a new format has golden journals of its own, beside these");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for golden in ALL {
        let [packed, text] = ["rejoin", "txt"].map(|kind| folder.join(format!("{}.{kind}", golden.name)));
        let bless = std::env::var_os("REJOIN_BLESS").is_some();
        if bless && !packed.exists() {
            std::fs::write(&packed, pack(&write(golden))).unwrap();
        }
        let bytes = std::fs::read(&packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
        let segments = unpack(&bytes);
        assert_eq!(pack(&segments), bytes, "{}", packed.display());
        let dir = tempfile::tempdir().unwrap();
        let name = SegmentName::journal("golden", 3, 1).unwrap();
        let paths: Vec<PathBuf> = (0_u32..)
            .zip(&segments)
            .map(|(k, bytes)| {
                let path = if k == 0 { name.clone() } else { name.growth(k) }.path_in(dir.path());
                std::fs::write(&path, bytes).unwrap();
                path
            })
            .collect();
        let told = tell(&JournalReader::open_in(dir.path(), &name).unwrap_or_else(|e| panic!("{}: {e}", golden.name)));
        if bless && !text.exists() {
            std::fs::write(&text, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&text).unwrap_or_else(|e| panic!("{}: {e}", text.display()));
        assert_eq!(told, expected, "{}", golden.name);
        for (path, bytes) in paths.iter().zip(&segments) {
            assert_eq!(&std::fs::read(path).unwrap(), bytes, "a reader changes nothing");
        }
    }
}

#[test]
fn what_is_written_today_is_told_as_the_golden_journals_are() {
    // So that the generator stays able to write the next ones, and a golden text is not an accident.
    for golden in ALL {
        let segments = write(golden);
        let dir = tempfile::tempdir().unwrap();
        let name = SegmentName::journal("golden", 3, 1).unwrap();
        for (k, bytes) in (0_u32..).zip(&segments) {
            let name = if k == 0 { name.clone() } else { name.growth(k) };
            std::fs::write(name.path_in(dir.path()), bytes).unwrap();
        }
        let told = tell(&JournalReader::open_in(dir.path(), &name).unwrap());
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{}.txt", golden.name));
        assert_eq!(told, std::fs::read_to_string(&text).unwrap(), "{}", golden.name);
    }
}
