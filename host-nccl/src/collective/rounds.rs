//! The rounds of a collective.

use std::cell::RefCell;
use core::sync::atomic::Ordering;

use super::{Collective, Kind};
use crate::link::{Link, Stop};
use crate::reduce::Operator;
use crate::region::layout::{SLOT_BYTES, SLOTS};

/// An all-reduce up to this size is folded by every rank on its own: one part instead of two.
const ONE_PART_BYTES: usize = 16 * 1024;

/// Folding works on blocks that stay in the first-level cache.
const BLOCK_BYTES: usize = 8 * 1024;

thread_local! {
    static SCRATCH: RefCell<[Box<[u8]>; 2]> =
        RefCell::new([vec![0; BLOCK_BYTES].into(), vec![0; BLOCK_BYTES].into()]);
}

/// One operation under way.
struct Run<'a> {
    op: &'a Collective,
    link: &'a Link,
    sequence: u64,
    small: bool,
    operator: Operator,
}

pub(super) fn run(op: &Collective, link: &Link, sequence: u64, small: bool) -> Result<(), Stop> {
    let operator = op.operator();
    Run { op, link, sequence, small, operator }.all()
}

impl Run<'_> {
    fn all(&self) -> Result<(), Stop> {
        let size = self.op.datatype.bytes();
        let nranks = self.link.nranks as usize;
        // A slot holds one piece, or one piece a destination.
        let room = if self.op.kind.sends_blocks() { SLOT_BYTES / nranks } else { SLOT_BYTES };
        let per_round = room / size;
        let first_round = self.link.rounds.load(Ordering::Relaxed);
        let rounds = self.op.count.div_ceil(per_round) as u64;
        // Whatever happens inside, the next operation begins where this one ends on every rank.
        self.link.rounds.store(first_round + rounds, Ordering::Relaxed);
        let outcome = (0..rounds).try_for_each(|i| {
            let first = i as usize * per_round;
            self.round(first_round + i, first, per_round.min(self.op.count - first))
        });
        if outcome.is_err() {
            self.link.done(first_round + rounds);
        }
        outcome
    }

    fn round(&self, round: u64, first: usize, count: usize) -> Result<(), Stop> {
        let kind = self.op.kind;
        let me = self.link.rank;
        let size = self.op.datatype.bytes();
        if kind.is_source(me) {
            // The slot was last used SLOTS rounds ago.
            let free_after = (round + 1).saturating_sub(SLOTS);
            self.wait(|| self.link.all_done(free_after))?;
            self.contribute(round, first * size, count * size);
            self.link.post(0, round, self.sources(), self.readers());
        }
        if kind.is_reader(me) {
            self.wait(|| self.link.is_posted(0, round, self.sources()))?;
            match kind {
                Kind::AllReduce if self.op.count * size > ONE_PART_BYTES => self.all_reduce(round, first, count)?,
                Kind::AllReduce | Kind::Reduce { .. } => {
                    self.fold(round, 0, count * size, |at, block| self.to_user(first * size + at, block));
                }
                Kind::ReduceScatter => {
                    let piece = me as usize * count * size;
                    self.fold(round, piece, count * size, |at, block| self.to_user(first * size + at, block));
                }
                Kind::Broadcast { root } => self.copy_out(round, root, 0, first * size, count * size),
                Kind::Scatter { root } => {
                    self.copy_out(round, root, me as usize * count * size, first * size, count * size);
                }
                Kind::AllGather | Kind::Gather { .. } => {
                    for (source, block) in self.blocks() {
                        self.copy_out(round, source, 0, block + first * size, count * size);
                    }
                }
                Kind::AllToAll => {
                    for (source, block) in self.blocks() {
                        self.copy_out(round, source, me as usize * count * size, block + first * size, count * size);
                    }
                }
            }
        }
        self.link.done(round + 1);
        Ok(())
    }

    fn wait(&self, ready: impl Fn() -> bool) -> Result<(), Stop> {
        self.link.wait_in_collective(self.sequence, self.small, ready)
    }

    fn sources(&self) -> impl Iterator<Item = u32> {
        let kind = self.op.kind;
        (0..self.link.nranks).filter(move |&rank| kind.is_source(rank))
    }

    fn readers(&self) -> impl Iterator<Item = u32> {
        let kind = self.op.kind;
        (0..self.link.nranks).filter(move |&rank| kind.is_reader(rank))
    }

    /// Each rank with the offset of its block in a buffer of blocks.
    fn blocks(&self) -> impl Iterator<Item = (u32, usize)> {
        let bytes = self.op.block_bytes();
        (0..self.link.nranks).map(move |rank| (rank, rank as usize * bytes))
    }

    /// Copies this rank's piece into its slot: `bytes` at `first`, of every block if there are blocks.
    fn contribute(&self, round: u64, first: usize, bytes: usize) {
        let slot = self.link.region.layout.slot(self.link.rank, round);
        let send = |at: usize| core::ptr::with_exposed_provenance::<u8>(self.op.send + at);
        if self.op.kind.sends_blocks() {
            for (rank, block) in self.blocks() {
                self.link.region.copy_in(slot + rank as usize * bytes, send(block + first), bytes);
            }
        } else {
            self.link.region.copy_in(slot, send(first), bytes);
        }
    }

    /// Copies from the slot of `source` into the receive buffer.
    fn copy_out(&self, round: u64, source: u32, from: usize, to: usize, bytes: usize) {
        let slot = self.link.region.layout.slot(source, round);
        let recv = core::ptr::with_exposed_provenance_mut::<u8>(self.op.recv + to);
        self.link.region.copy_out(slot + from, recv, bytes);
    }

    fn to_user(&self, at: usize, block: &[u8]) {
        let to = core::ptr::with_exposed_provenance_mut::<u8>(self.op.recv + at);
        // SAFETY: the caller's receive buffer has `count` elements (NCCL's contract), and `block` is private.
        unsafe { core::ptr::copy_nonoverlapping(block.as_ptr(), to, block.len()) };
    }

    /// Folds `bytes` at `from` of every source's slot, in rank order, block by block.
    fn fold(&self, round: u64, from: usize, bytes: usize, mut put: impl FnMut(usize, &[u8])) {
        let region = &self.link.region;
        let datatype = self.op.datatype;
        SCRATCH.with_borrow_mut(|[acc, x]| {
            let mut at = 0;
            while at < bytes {
                let len = BLOCK_BYTES.min(bytes - at);
                let (acc, x) = (&mut acc[..len], &mut x[..len]);
                for source in 0..self.link.nranks {
                    let offset = region.layout.slot(source, round) + from + at;
                    let into = if source == 0 { &mut *acc } else { &mut *x };
                    region.read(offset, into);
                    self.operator.prepare(datatype, into);
                    if source != 0 {
                        self.operator.fold(datatype, acc, x);
                    }
                }
                self.operator.finish(datatype, acc);
                put(at, acc);
                at += len;
            }
        });
    }

    /// Second part: this rank folds its segment in place (nobody else reads that of its slot), posts it,
    /// and collects the segments of the others.
    fn all_reduce(&self, round: u64, first: usize, count: usize) -> Result<(), Stop> {
        let size = self.op.datatype.bytes();
        let region = &self.link.region;
        let segment = |rank: u32| segment(count, self.link.nranks, rank);
        let (start, end) = segment(self.link.rank);
        let slot = region.layout.slot(self.link.rank, round);
        self.fold(round, start * size, (end - start) * size, |at, block| region.write(slot + start * size + at, block));
        self.link.post(1, round, self.sources(), self.readers());
        self.wait(|| self.link.is_posted(1, round, self.sources()))?;
        for source in 0..self.link.nranks {
            let (start, end) = segment(source);
            self.copy_out(round, source, start * size, (first + start) * size, (end - start) * size);
        }
        Ok(())
    }
}

/// Elements `start..end` of `count` that `rank` folds.
fn segment(count: usize, nranks: u32, rank: u32) -> (usize, usize) {
    let share = count.div_ceil(nranks as usize);
    let start = (rank as usize * share).min(count);
    (start, (start + share).min(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_everything_once() {
        for count in [0, 1, 2, 5, 7, 64, 1000] {
            for nranks in [1, 2, 3, 8] {
                let mut next = 0;
                for rank in 0..nranks {
                    let (start, end) = segment(count, nranks, rank);
                    assert_eq!(start, next.min(count));
                    next = end;
                }
                assert_eq!(next, count);
            }
        }
    }
}
