//! Taking over a slot: where its lane ends, what its dead owner left half done.
//!
//! Runs under the slot's robust mutex, so no store of the former owner can come any more. A reaper may die at any
//! point; the next one finds the same state or a finished step.

use super::append_error::AppendError;
use super::arena::Run;
use super::layout::{ChunkClass, SEALED, SLOT_DEATHS, SLOT_LOST, ChunkId};
use super::lane::{Lane, Tail};
use super::record::RecordView;
use super::scan::{self, EndState, Scratch, Stop, Visit};
use super::step::Boundary;
use super::store::Store;
use super::{Region, chunk};
use crate::sync::{Ordering, Words};

/// Chunks and runs that the lane's records still refer to.
#[derive(Default)]
struct Reachable {
    chunks: Vec<ChunkId>,
    arenas: Vec<(Run, u64)>,
}

impl Visit for Reachable {
    fn enter(&mut self, chunk: ChunkId) -> bool {
        self.chunks.push(chunk);
        true
    }

    fn record(&mut self, record: &RecordView<'_>, arena: Option<Run>) -> bool {
        if let Some(run) = arena {
            self.arenas.push((run, record.sequence.0));
        }
        true
    }
}

/// Continues the lane of `slot`, whose mutex the caller holds. `owner_died`: seal what its owner left torn and free
/// what it had claimed but not linked.
pub fn resume<W: Words>(store: &Store<W>, slot: u16, owner_died: bool) -> Result<Lane, AppendError> {
    let mut lane = Lane::new(slot, Boundary::read(store).word);
    if owner_died {
        // First: it says which chunks of the dead belong to the handle table now.
        crate::handle::recover(store, lane.owner());
    }
    let mut reachable = Reachable::default();
    let mut scratch = Scratch::default();
    for region in Region::ALL {
        lane.tails[region as usize] = tail(store, slot, region, &mut scratch, &mut reachable)?;
        if region == Region::Setup {
            let of_arena: u32 = reachable.arenas.iter().map(|(run, _)| run.count).sum();
            lane.setup_chunks = reachable.chunks.len() as u32 + of_arena;
        }
    }
    if owner_died {
        store.slot_word(slot, SLOT_DEATHS).fetch_add(1, Ordering::Relaxed);
        sweep(store, &lane, &reachable);
    }
    // What earlier steps left is recycled at the first append.
    lane.boundary_seen = lane.boundary_seen.wrapping_sub(1);
    lane.step_arenas = reachable.arenas.len() as u32;
    Ok(lane)
}

fn tail<W: Words>(
    store: &Store<W>,
    slot: u16,
    region: Region,
    scratch: &mut Scratch,
    reachable: &mut Reachable,
) -> Result<Tail, AppendError> {
    let damaged = |address| AppendError::Corrupt { slot, address };
    let end = match scan::walk(store, slot, region, scratch, reachable) {
        Ok(end) => end,
        // Nobody but us writes this lane: a chunk that is not its own is damage.
        Err(Stop::Recycled | Stop::Visitor) => return Err(damaged(store.base().slot(slot))),
    };
    let Some(id) = end.chunk else { return Ok(Tail::default()) };
    let chunk = u64::from(id.0) + 1;
    let whole = store.chunk_at(id) + store.base().chunk_bytes;
    let sealed = Tail { at: end.at, end: 0, vital_end: 0, chunk, last_seq: end.last_seq, sealed: true };
    match end.state {
        EndState::Empty => Ok(Tail { end: whole, vital_end: whole, sealed: false, ..sealed }),
        EndState::Pending => {
            // Before the seal: a reaper that dies in between is counted twice, and the bound stays a bound.
            store.slot_word(slot, SLOT_LOST).fetch_add(1, Ordering::Release);
            // SYNC: Release; pairs with the Acquire of the commit word in scan.rs.
            store.word(end.at).store(SEALED, Ordering::Release);
            Ok(sealed)
        }
        EndState::Sealed => Ok(sealed),
        EndState::Damaged => Err(damaged(end.at)),
    }
}

/// Frees the slot's chunks that no record and no chain names, and marks the named runs.
fn sweep<W: Words>(store: &Store<W>, lane: &Lane, reachable: &Reachable) {
    for (run, sequence) in &reachable.arenas {
        store.chunk(run.id).last_seq().store(*sequence, Ordering::Release);
    }
    let named = |id: ChunkId| {
        reachable.chunks.contains(&id)
            || reachable.arenas.iter().any(|(run, _)| (run.id.0..run.id.0 + run.count).contains(&id.0))
    };
    for id in store.chunk_ids() {
        if store.chunk(id).owner().load(Ordering::Acquire) == lane.owner() && !named(id) {
            // One chunk at a time: a claim cut short has not written the run's length yet.
            store.chunk(id).class().store(ChunkClass::Setup as u64 | 1 << 32, Ordering::Relaxed);
            chunk::release(store, id);
        }
    }
}
