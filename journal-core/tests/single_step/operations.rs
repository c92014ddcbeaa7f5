//! What the child does between its two stops. A new operation is one more entry of [`ALL`].

use journal_core::handle::{HandleKind, VirtualHandle};
use journal_core::journal::{Journal, JournalReader, Record, Region, Snapshot};

/// Kind of records that the child appended, and acknowledged, before it was stepped.
pub const BEFORE: u16 = 1;
/// Kind of the record that the operation appends.
pub const DURING: u16 = 2;
/// The first stream of a fresh table: tag, kind, generation 1, index 0.
const FIRST_STREAM: VirtualHandle = VirtualHandle(1 << 63 | (HandleKind::Stream as u64) << 56 | 1 << 32);
/// Object that is bound to a handle.
const REAL: u64 = 0x5EED;

/// One operation under test.
pub struct Operation {
    pub name: &'static str,
    /// Acknowledged when it returns; not stepped.
    pub prepare: fn(&Journal),
    /// Stepped, and killed after each instruction or each change.
    pub act: fn(&Journal),
    /// Records of [`BEFORE`] that stay, whatever happens.
    pub kept: usize,
    /// What only this operation promises; `done` = it was acknowledged.
    pub promise: fn(&Journal, &Snapshot, done: bool) -> Result<(), String>,
    /// Kill a real child after every instruction; else after a sample of them.
    pub every_instruction: bool,
    /// The journal may grow, and others make it grow after the death.
    pub grows: bool,
}

fn before(journal: &Journal, region: Region, bytes: usize) {
    journal.append(region, BEFORE, 0, &[&vec![BEFORE as u8; bytes]]).unwrap();
}

fn during(journal: &Journal, region: Region, bytes: usize) {
    journal.append(region, DURING, 0, &[&vec![DURING as u8; bytes]]).unwrap();
}

fn records(snapshot: &Snapshot, kind: u16) -> impl Iterator<Item = &Record> {
    snapshot.setup.iter().chain(&snapshot.step).filter(move |r| r.kind == kind)
}

/// The record is there once, or not at all while it was not acknowledged.
fn appended(_: &Journal, snapshot: &Snapshot, done: bool) -> Result<(), String> {
    match (records(snapshot, DURING).count(), done) {
        (1, _) | (0, false) => Ok(()),
        (n, done) => Err(format!("{n} records of the operation, acknowledged: {done}")),
    }
}

fn committed(journal: &Journal, snapshot: &Snapshot, done: bool) -> Result<(), String> {
    let next = journal.boundary().next_step;
    let step = snapshot.step.iter().filter(|r| r.kind == BEFORE).count();
    match (next, step, done) {
        (Some(8), 0, _) | (Some(7), 2, false) => Ok(()),
        other => Err(format!("(next step, its records, acknowledged) are {other:?}")),
    }
}

/// The old chain or the new one; nothing of the two together, and every chunk of the other one comes back.
fn compacted(journal: &Journal, snapshot: &Snapshot, done: bool) -> Result<(), String> {
    match (records(snapshot, 7).count(), done) {
        (0, _) | (13, false) => {}
        other => return Err(format!("(dead records, acknowledged) are {other:?}")),
    }
    // Two chunks of the arena and the chunks of the chain, if they are free; the reaper has been here then.
    if snapshot.lanes.iter().any(|lane| lane.deaths > 0) && records(snapshot, 7).count() == 0 {
        let room = journal.append(Region::Step, DURING, 0, &[&[DURING as u8; 6000]]);
        room.map_err(|e| format!("the old chain's chunks are lost: {e}"))?;
        journal.step_discard().map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn bound(journal: &Journal, _: &Snapshot, done: bool) -> Result<(), String> {
    let live = journal.handles().live();
    match (&live[..], done) {
        // What a dead thread had only reserved goes back when it is reaped.
        ([(_, Some(REAL))], _) | ([(_, None)] | [], false) => Ok(()),
        other => Err(format!("(handles, acknowledged) are {other:?}")),
    }
}

fn reserved(journal: &Journal, _: &Snapshot, _: bool) -> Result<(), String> {
    let live = journal.handles().live();
    match &live[..] {
        [(_, None)] | [] => Ok(()),
        other => Err(format!("handles are {other:?}")),
    }
}

fn prepared(journal: &Journal, _: &Snapshot, done: bool) -> Result<(), String> {
    // The slot of the step before is not touched.
    if journal.prepared_read(3).is_none_or(|p| p.blob != [3; 300]) {
        return Err("PREPARED of the step before is gone".into());
    }
    match (journal.prepared_read(4).map(|p| p.blob == [4; 300]), done) {
        (Some(true), _) | (None, false) => Ok(()),
        other => Err(format!("(PREPARED is whole, acknowledged) are {other:?}")),
    }
}

fn growth_segments(journal: &Journal) -> usize {
    JournalReader::open(journal.name()).map_or(0, |reader| reader.growth_segments().len())
}

/// Whether one more record of 960 bytes fits into the base: four fill a chunk, one chunk is the survivor's.
fn chunks_left(journal: &Journal) -> bool {
    let records = journal.snapshot().setup.iter().filter(|r| r.kind == BEFORE).count();
    let geometry = crate::geometry();
    records < 4 * (geometry.chunks - geometry.reserved_chunks() - 1) as usize
}

fn grown(journal: &Journal, snapshot: &Snapshot, done: bool) -> Result<(), String> {
    appended(journal, snapshot, done)?;
    match (growth_segments(journal), done) {
        (1, _) | (0, false) => Ok(()),
        // Others have grown it meanwhile.
        (2, _) => Ok(()),
        other => Err(format!("(growth segments, acknowledged) are {other:?}")),
    }
}

/// A chunk is 4096 bytes: after this 64 bytes fit no more.
fn fill_chunk(journal: &Journal, region: Region) {
    for _ in 0..4 {
        before(journal, region, 960);
    }
}

pub const ALL: &[Operation] = &[
    Operation {
        name: "append of 64 B",
        prepare: |j| before(j, Region::Step, 64),
        act: |j| during(j, Region::Step, 64),
        kept: 1,
        promise: appended,
        every_instruction: true,
        grows: false,
    },
    Operation {
        name: "claim of a lane and its first append",
        prepare: |_| {},
        act: |j| during(j, Region::Setup, 64),
        kept: 0,
        promise: appended,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "chunk switch, set-up region",
        prepare: |j| fill_chunk(j, Region::Setup),
        act: |j| during(j, Region::Setup, 200),
        kept: 4,
        promise: appended,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "chunk switch, step region",
        prepare: |j| fill_chunk(j, Region::Step),
        act: |j| during(j, Region::Step, 200),
        kept: 4,
        promise: appended,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "append through the arena",
        prepare: |j| before(j, Region::Setup, 64),
        act: |j| during(j, Region::Setup, 6000),
        kept: 1,
        promise: appended,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "step commit",
        prepare: |j| {
            before(j, Region::Setup, 64);
            j.step_commit(6).unwrap();
            before(j, Region::Step, 64);
            before(j, Region::Step, 64);
        },
        act: |j| {
            j.step_commit(7).unwrap();
        },
        kept: 1,
        promise: committed,
        every_instruction: true,
        grows: false,
    },
    Operation {
        name: "compaction of the set-up region",
        prepare: |j| {
            before(j, Region::Setup, 64);
            (0..12).for_each(|_| {
                j.append(Region::Setup, 7, 0, &[&[7; 600]]).unwrap();
            });
            j.append(Region::Setup, 7, 0, &[&[7; 6000]]).unwrap();
            before(j, Region::Setup, 64);
            j.step_commit(7).unwrap();
        },
        act: |j| {
            let dead = |s: &Snapshot, slot| s.setup.iter().filter(|r| (r.kind, r.slot) == (7, slot)).map(|r| r.sequence).collect();
            j.compact(dead).unwrap().expect("more than half is dead");
        },
        kept: 2,
        promise: compacted,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "append that recycles the step before",
        prepare: |j| {
            before(j, Region::Setup, 64);
            (0..12).for_each(|_| {
                j.append(Region::Step, 7, 0, &[&[7; 900]]).unwrap();
            });
            j.step_commit(7).unwrap();
        },
        act: |j| during(j, Region::Step, 64),
        kept: 1,
        promise: appended,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "handle reserve",
        prepare: |j| before(j, Region::Setup, 64),
        act: |j| {
            j.handles().reserve(HandleKind::Stream).unwrap();
        },
        kept: 1,
        promise: reserved,
        every_instruction: true,
        grows: false,
    },
    Operation {
        name: "handle bind",
        prepare: |j| {
            before(j, Region::Setup, 64);
            j.handles().reserve(HandleKind::Stream).unwrap();
        },
        act: |j| {
            // The first handle of a fresh table.
            j.handles().bind(FIRST_STREAM, REAL).unwrap();
        },
        kept: 1,
        promise: bound,
        every_instruction: true,
        grows: false,
    },
    Operation {
        name: "PREPARED write",
        prepare: |j| {
            before(j, Region::Setup, 64);
            j.prepared_reserve(400).unwrap();
            j.prepared_write(3, &[3; 300], &[]).unwrap();
        },
        act: |j| j.prepared_write(4, &[4; 300], &[]).unwrap(),
        kept: 1,
        promise: prepared,
        every_instruction: false,
        grows: false,
    },
    Operation {
        name: "append that grows the journal",
        prepare: |j| {
            before(j, Region::Setup, 960);
            while chunks_left(j) {
                before(j, Region::Setup, 960);
            }
            assert_eq!(growth_segments(j), 0, "the base was to be filled and no more");
        },
        act: |j| during(j, Region::Setup, 200),
        kept: 60,
        promise: grown,
        every_instruction: false,
        grows: true,
    },
];
