//! The step boundary: which step records still count. One word moves it.
//!
//! A committer proposes in an entry of its own slot and swaps the word that names the valid entry, so it waits for
//! nobody: a thread that is stopped or dies anywhere in here leaves the old boundary or the new one.

use super::Sequence;
use super::layout::{BOUNDARY_COUNT_SHIFT, BOUNDARY_SLOT_SHIFT, SLOT_BOUNDARIES};
use super::store::Store;
use crate::sync::{AtomicU64, Ordering, Words, ordered};

/// Where the open step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// Moves so far.
    pub count: u64,
    /// Step records below belong to earlier steps.
    pub sequence: Sequence,
    /// The last committed step + 1; `None` before the first.
    pub next_step: Option<u64>,
    /// The word that names it.
    pub(super) word: u64,
}

const ENTRY_BYTES: u64 = 16;
const ENTRY_MASK: u64 = (1 << BOUNDARY_COUNT_SHIFT) - 1;

/// Slot and parity of an entry, as in the boundary word.
fn name_of(slot: u16, parity: u64) -> u64 {
    u64::from(slot) << BOUNDARY_SLOT_SHIFT | parity
}

fn entry<W: Words>(store: &Store<W>, name: u64) -> &[AtomicU64] {
    // Hostile bytes may name a slot that is none.
    let slot = (name & ENTRY_MASK) >> BOUNDARY_SLOT_SHIFT;
    let slot = slot.min(u64::from(store.base().max_slots) - 1) as u16;
    store.words(store.base().slot(slot) + SLOT_BOUNDARIES + (name & 1) * ENTRY_BYTES, 2)
}

impl Boundary {
    /// The current boundary. Repeats only while committers move it.
    pub fn read<W: Words>(store: &Store<W>) -> Self {
        loop {
            // SYNC: Acquire; pairs with the Release in `advance`: the entry is whole.
            let word = store.boundary().load(ordered("boundary count", Ordering::Acquire));
            let words = entry(store, word);
            // SYNC: Acquire; pairs with the Release in `advance`: who sees a rewritten word sees that the boundary had
            // moved away from the entry before.
            let sequence = Sequence(words[0].load(ordered("boundary read", Ordering::Acquire)));
            let next_step = words[1].load(ordered("boundary read", Ordering::Acquire));
            if store.boundary().load(Ordering::Relaxed) == word {
                let next_step = (next_step != 0).then_some(next_step);
                return Self { count: word >> BOUNDARY_COUNT_SHIFT, sequence, next_step, word };
            }
        }
    }

    /// Moves the boundary to now: every step record with a lower sequence is over. By the owner of `slot`. Repeats
    /// only when another committer has moved it meanwhile. Dying before the swap leaves the old boundary.
    pub fn advance<W: Words>(store: &Store<W>, slot: u16, next_step: Option<u64>) -> Self {
        loop {
            let old = Self::read(store);
            let next_step = next_step.or(old.next_step);
            // SYNC: Acquire, after the old boundary was read: never below it. Pairs with the appends' fetch_add, too:
            // what happened before this call has lower numbers.
            let sequence = Sequence(store.sequence().load(Ordering::Acquire));
            // Only we make an entry of ours the valid one, so the other one stays out of sight until the swap.
            let name = name_of(slot, u64::from(old.word & ENTRY_MASK == name_of(slot, 0)));
            let words = entry(store, name);
            // SYNC: Release; pairs with the Acquire in `read`.
            words[0].store(sequence.0, ordered("boundary rewrite", Ordering::Release));
            words[1].store(next_step.unwrap_or(0), ordered("boundary rewrite", Ordering::Release));
            let count = (old.count + 1) & (u64::MAX >> BOUNDARY_COUNT_SHIFT);
            let word = count << BOUNDARY_COUNT_SHIFT | name;
            // SYNC: Release; pairs with the Acquire in `read`. This swap is the commit.
            let order = ordered("boundary move", Ordering::Release);
            if store.boundary().compare_exchange(old.word, word, order, Ordering::Relaxed).is_ok() {
                return Self { count, sequence, next_step, word };
            }
        }
    }
}
