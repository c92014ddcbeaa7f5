//! Which parts of the window are in use: first fit from the lowest address.
//!
//! The answer depends on the set of live allocations only, never on how it came about, so a replay that puts
//! the recorded allocations back continues with the same addresses.

use std::collections::BTreeMap;

/// Every address and size is a multiple of this.
pub(super) const ALIGNMENT: u64 = 256;

/// Offsets in a window of `total` bytes.
#[derive(Debug)]
pub(super) struct SubAllocator {
    total: u64,
    used: u64,
    /// Offset to the length asked for.
    live: BTreeMap<u64, u64>,
    /// Offset to length of each gap; never two that touch.
    free: BTreeMap<u64, u64>,
}

/// Rounds up; None near the end of the numbers.
pub(super) fn rounded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ALIGNMENT)
}

impl SubAllocator {
    pub(super) fn new(total: u64) -> Self {
        let total = total / ALIGNMENT * ALIGNMENT;
        Self { total, used: 0, live: BTreeMap::new(), free: BTreeMap::from([(0, total)]) }
    }

    /// The lowest gap that is large enough.
    pub(super) fn alloc(&mut self, bytes: u64) -> Option<u64> {
        let needed = rounded(bytes)?;
        let offset = *self.free.iter().find(|(_, length)| **length >= needed)?.0;
        self.take(offset, offset, needed, bytes);
        Some(offset)
    }

    /// Exactly there. False when any part is in use, outside, or the offset is not aligned.
    pub(super) fn alloc_at(&mut self, offset: u64, bytes: u64) -> bool {
        let Some(needed) = rounded(bytes).filter(|_| offset.is_multiple_of(ALIGNMENT)) else { return false };
        let Some((gap, length)) = self.free.range(..=offset).next_back().map(|(gap, length)| (*gap, *length)) else {
            return false;
        };
        let fits = offset.checked_add(needed).is_some_and(|end| end <= gap + length);
        if fits {
            self.take(gap, offset, needed, bytes);
        }
        fits
    }

    fn take(&mut self, gap: u64, offset: u64, needed: u64, bytes: u64) {
        let length = self.free.remove(&gap).expect("the caller found this gap");
        if offset > gap {
            self.free.insert(gap, offset - gap);
        }
        let (end, gap_end) = (offset + needed, gap + length);
        if end < gap_end {
            self.free.insert(end, gap_end - end);
        }
        self.live.insert(offset, bytes);
        self.used += needed;
    }

    /// Frees what starts there; its length, rounded up.
    pub(super) fn free(&mut self, offset: u64) -> Option<u64> {
        let length = rounded(self.live.remove(&offset)?)?;
        self.used -= length;
        let (mut start, mut end) = (offset, offset + length);
        if let Some((gap, gap_length)) = self.free.range(..start).next_back().map(|(gap, length)| (*gap, *length))
            && gap + gap_length == start
        {
            self.free.remove(&gap);
            start = gap;
        }
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        self.free.insert(start, end - start);
        Some(length)
    }

    /// Bytes asked for by the allocation that starts there.
    pub(super) fn live_at(&self, offset: u64) -> Option<u64> {
        self.live.get(&offset).copied()
    }

    /// Is the whole range inside one live allocation?
    pub(super) fn contains(&self, offset: u64, bytes: u64) -> bool {
        let Some((start, length)) = self.live.range(..=offset).next_back() else { return false };
        offset.checked_add(bytes).is_some_and(|end| end <= start + length)
    }

    /// The parts of a range that nothing uses, widened to whole gaps.
    pub(super) fn gaps(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.free.range(..=start).next_back().map_or(start, |(gap, _)| *gap);
        self.free.range(first..end).map(|(gap, length)| (*gap, gap + length)).filter(move |(_, gap_end)| *gap_end > start)
    }

    /// (offset, bytes asked for), by offset.
    pub(super) fn live(&self) -> impl Iterator<Item = (u64, u64)> {
        self.live.iter().map(|(offset, bytes)| (*offset, *bytes))
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.total - self.used
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A map of 256-byte cells, scanned from the start.
    struct Model(Vec<bool>);

    impl Model {
        fn alloc(&mut self, cells: usize) -> Option<usize> {
            let at = (0..self.0.len()).find(|at| self.0.get(*at..at + cells).is_some_and(|s| s.iter().all(|used| !used)))?;
            self.0[at..at + cells].fill(true);
            Some(at)
        }
    }

    #[derive(Debug, Clone)]
    enum Do {
        Alloc(u64),
        AllocAt(u64, u64),
        Free(prop::sample::Index),
    }

    fn doing() -> impl Strategy<Value = Do> {
        prop_oneof![
            3 => (1u64..2000).prop_map(Do::Alloc),
            1 => (0u64..70, 1u64..2000).prop_map(|(cell, bytes)| Do::AllocAt(cell * ALIGNMENT, bytes)),
            2 => any::<prop::sample::Index>().prop_map(Do::Free),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_of_cells_and_depends_on_the_live_set_only(steps in proptest::collection::vec(doing(), 1..80)) {
            const CELLS: usize = 64;
            let mut real = SubAllocator::new(CELLS as u64 * ALIGNMENT);
            let mut model = Model(vec![false; CELLS]);
            for step in steps {
                match step {
                    Do::Alloc(bytes) => {
                        let cells = bytes.div_ceil(ALIGNMENT) as usize;
                        prop_assert_eq!(real.alloc(bytes), model.alloc(cells).map(|at| at as u64 * ALIGNMENT));
                    }
                    Do::AllocAt(offset, bytes) => {
                        let (at, cells) = ((offset / ALIGNMENT) as usize, bytes.div_ceil(ALIGNMENT) as usize);
                        let fits = model.0.get(at..at + cells).is_some_and(|cells| cells.iter().all(|used| !used));
                        prop_assert_eq!(real.alloc_at(offset, bytes), fits);
                        if fits {
                            model.0[at..at + cells].fill(true);
                        }
                    }
                    Do::Free(index) => {
                        let live: Vec<_> = real.live().collect();
                        if !live.is_empty() {
                            let (offset, bytes) = live[index.index(live.len())];
                            let cells = bytes.div_ceil(ALIGNMENT);
                            prop_assert_eq!(real.free(offset), Some(cells * ALIGNMENT));
                            prop_assert_eq!(real.free(offset), None);
                            model.0[(offset / ALIGNMENT) as usize..][..cells as usize].fill(false);
                        }
                    }
                }
                prop_assert_eq!(real.free_bytes(), model.0.iter().filter(|used| !**used).count() as u64 * ALIGNMENT);
                let mut again = SubAllocator::new(real.total());
                for (offset, bytes) in real.live() {
                    prop_assert!(again.alloc_at(offset, bytes));
                }
                prop_assert_eq!(&again.free, &real.free);
            }
        }
    }

    #[test]
    fn gaps_of_a_range_are_whole() {
        let mut memory = SubAllocator::new(2560);
        assert!(memory.alloc_at(256, 256) && memory.alloc_at(1024, 10));
        assert_eq!(memory.gaps(256, 1024).collect::<Vec<_>>(), [(512, 1024)]);
        assert_eq!(memory.gaps(100, 1300).collect::<Vec<_>>(), [(0, 256), (512, 1024), (1280, 2560)]);
        assert_eq!(memory.gaps(256, 512).count(), 0);
    }

    #[test]
    fn ranges_are_checked_against_one_allocation_not_its_rounding() {
        let mut memory = SubAllocator::new(4096);
        assert_eq!(memory.alloc(100), Some(0));
        assert_eq!(memory.alloc(300), Some(256));
        assert!(memory.contains(0, 100) && memory.contains(99, 1) && memory.contains(256, 300));
        assert!(!memory.contains(0, 101) && !memory.contains(200, 1) && !memory.contains(100, 156));
        assert!(!memory.contains(300, u64::MAX));
    }
}
