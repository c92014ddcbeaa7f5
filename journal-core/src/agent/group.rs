//! NCCL groups of this thread: which communicators wait for their launch at the group's end.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::Communicator;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static USED: RefCell<Vec<Arc<Communicator>>> = const { RefCell::new(Vec::new()) };
}

/// `ncclGroupStart` succeeded.
pub(super) fn enter() {
    DEPTH.set(DEPTH.get() + 1);
}

/// `ncclGroupEnd` was called: the communicators used in the group, if it was the outermost one.
pub(super) fn leave() -> Vec<Arc<Communicator>> {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    if DEPTH.get() > 0 { Vec::new() } else { USED.take() }
}

/// Notes a call on `communicator`. True: it is inside a group and will be launched at its end.
pub(super) fn defers(communicator: &Arc<Communicator>) -> bool {
    if DEPTH.get() == 0 {
        return false;
    }
    USED.with_borrow_mut(|used| {
        if !used.iter().any(|other| Arc::ptr_eq(other, communicator)) {
            used.push(communicator.clone());
        }
    });
    true
}
