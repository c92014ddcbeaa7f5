//! The step boundary: which step records still count. One word moves it.

use super::layout::{BOUNDARIES, LIVE_AT};
use super::store::Store;
use super::Sequence;
use crate::sync::{Ordering, Words, ordered};

/// Where the open step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// Moves so far.
    pub count: u64,
    /// Step records below belong to earlier steps.
    pub sequence: Sequence,
    /// The last committed step + 1; `None` before the first.
    pub next_step: Option<u64>,
}

const ENTRY_BYTES: u64 = 16;

fn entry(count: u64) -> u64 {
    const { assert!(BOUNDARIES > LIVE_AT) };
    BOUNDARIES + (count & 1) * ENTRY_BYTES
}

impl Boundary {
    /// The current boundary. Repeats only while a committer moves it.
    pub fn read<W: Words>(store: &Store<W>) -> Self {
        loop {
            // SYNC: Acquire; pairs with the Release in `advance`: the entry is whole.
            let count = store.boundary().load(ordered("boundary count", Ordering::Acquire));
            let words = store.words(entry(count), 2);
            // SYNC: Acquire; pairs with the Release in `advance`: who sees a rewritten word sees the higher count that
            // stood before it was rewritten.
            let sequence = Sequence(words[0].load(ordered("boundary read", Ordering::Acquire)));
            let next_step = words[1].load(ordered("boundary read", Ordering::Acquire));
            if store.boundary().load(Ordering::Relaxed) == count {
                return Self { count, sequence, next_step: (next_step != 0).then_some(next_step) };
            }
        }
    }

    /// Moves the boundary to now: every step record with a lower sequence is over. One caller at a time (the
    /// admin lock). Dying before the last store leaves the old boundary, after it the new one.
    pub fn advance<W: Words>(store: &Store<W>, next_step: Option<u64>) -> Self {
        let old = Self::read(store);
        let count = old.count + 1;
        let next_step = next_step.or(old.next_step);
        // SYNC: Acquire; pairs with the appends' fetch_add: what happened before this call has lower numbers.
        let sequence = Sequence(store.sequence().load(Ordering::Acquire));
        let words = store.words(entry(count), 2);
        // SYNC: Release; pairs with the Acquire in `read`.
        words[0].store(sequence.0, ordered("boundary rewrite", Ordering::Release));
        words[1].store(next_step.unwrap_or(0), ordered("boundary rewrite", Ordering::Release));
        // SYNC: Release; pairs with the Acquire in `read`. This store is the commit.
        store.boundary().store(count, ordered("boundary move", Ordering::Release));
        Self { count, sequence, next_step }
    }
}
