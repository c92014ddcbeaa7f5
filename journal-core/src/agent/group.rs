//! NCCL groups of this thread. Their calls are kept here and issued together when the outermost group ends,
//! inside one pass of the gate.
//!
//! Issued one by one they would leave a call of an open group on a communicator that recovery aborts, and a
//! group that a doomed step never ends would swallow every later call of the thread. A group belongs to the
//! epoch it was started in; in another one it is forgotten.

use std::cell::RefCell;
use std::sync::Arc;

use super::Communicator;
use crate::membership::Epoch;
use crate::nccl::Collective;

/// A call that waits for the end of its group: where, what, and the native stream.
pub(super) type Queued = (Arc<Communicator>, Collective, usize);

#[derive(Default)]
struct Group {
    epoch: Epoch,
    depth: u32,
    calls: Vec<Queued>,
}

thread_local! {
    static GROUP: RefCell<Group> = const { RefCell::new(Group { epoch: Epoch(0), depth: 0, calls: Vec::new() }) };
}

fn with<T>(epoch: Epoch, action: impl FnOnce(&mut Group) -> T) -> T {
    GROUP.with_borrow_mut(|group| {
        if group.epoch != epoch {
            *group = Group { epoch, ..Group::default() };
        }
        action(group)
    })
}

/// `ncclGroupStart`.
pub(super) fn enter(epoch: Epoch) {
    with(epoch, |group| group.depth += 1);
}

/// Keeps a call for the end of the group; false where no group is open.
pub(super) fn keep(epoch: Epoch, call: impl FnOnce() -> Queued) -> bool {
    with(epoch, |group| {
        let is_open = group.depth > 0;
        if is_open {
            group.calls.push(call());
        }
        is_open
    })
}

/// `ncclGroupEnd`: the calls of the group if it was the outermost one; `None` where no group is open.
pub(super) fn leave(epoch: Epoch) -> Option<Vec<Queued>> {
    with(epoch, |group| {
        group.depth = group.depth.checked_sub(1)?;
        Some(if group.depth == 0 { core::mem::take(&mut group.calls) } else { Vec::new() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_another_epoch_is_forgotten() {
        enter(Epoch(1));
        enter(Epoch(1));
        assert_eq!(leave(Epoch(1)).map(|calls| calls.len()), Some(0));
        assert!(leave(Epoch(2)).is_none(), "the group of epoch 1 is gone");
        enter(Epoch(2));
        assert!(leave(Epoch(2)).is_some());
        assert!(leave(Epoch(2)).is_none());
    }
}
