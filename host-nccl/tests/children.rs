//! Communicators out of communicators: split, shrink, grow, and the new-rank calls.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

use ranks::{Comm, Stream, ok, ranks, started, sum_on, threads, unique_id};
use rejoin_host_nccl::abi::{CommHandle, IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, NcclUniqueId};
use rejoin_host_nccl::capi::*;

fn split(comm: Comm, color: i32, key: i32) -> CommHandle {
    let mut new = core::ptr::null_mut();
    // SAFETY: the slot lives until the parent is ready.
    ok(unsafe { ncclCommSplit(comm.0, color, key, &mut new, core::ptr::null()) });
    comm.wait();
    new
}

#[test]
fn split_orders_by_key_and_leaves_out_ranks_without_color() {
    for blocking in [true, false] {
        ranks("split", 8, blocking, |r| {
            // Ranks 0..=2 one color, 3..=6 another in reverse order, 7 none.
            let color = if r.rank == 7 { -1 } else { i32::from(r.rank > 2) };
            let key = if r.rank > 2 { -(r.rank as i32) } else { 5 };
            let new = split(r.comm, color, key);
            if r.rank == 7 {
                assert!(new.is_null());
                return;
            }
            let new = Comm(new);
            let expected = if r.rank > 2 { (6 - r.rank, 4, 18.0) } else { (r.rank, 3, 3.0) };
            assert_eq!((new.rank(), new.count()), (expected.0, expected.1));
            assert_eq!(sum_on(new, &r.stream, r.rank as f32), expected.2);
            new.destroy();
        });
    }
}

#[test]
fn two_splits_of_one_parent_may_stand_in_one_group() {
    ranks("two splits", 4, true, |r| {
        let (mut a, mut b) = (core::ptr::null_mut(), core::ptr::null_mut());
        ok(ncclGroupStart());
        // SAFETY: the slots live until the group has ended.
        unsafe {
            ok(ncclCommSplit(r.comm.0, (r.rank % 2) as i32, 0, &mut a, core::ptr::null()));
            ok(ncclCommSplit(r.comm.0, (r.rank / 2) as i32, 0, &mut b, core::ptr::null()));
        }
        ok(ncclGroupEnd());
        let (a, b) = (Comm(a), Comm(b));
        assert_eq!(sum_on(a, &r.stream, r.rank as f32), [2.0, 4.0][r.rank % 2]);
        assert_eq!(sum_on(b, &r.stream, r.rank as f32), [1.0, 5.0][r.rank / 2]);
        a.destroy();
        b.destroy();
    });
}

#[test]
fn a_late_child_is_stored_through_the_pointer_when_the_parent_is_ready() {
    let go = Barrier::new(2);
    ranks("late store", 2, false, |r| {
        let mut new = core::ptr::null_mut();
        if r.rank == 1 {
            go.wait();
        }
        // SAFETY: the slot lives until the parent is ready.
        ok(unsafe { ncclCommSplit(r.comm.0, 0, 0, &mut new, core::ptr::null()) });
        if r.rank == 0 {
            assert_eq!(r.comm.result(), IN_PROGRESS);
            assert!(new.is_null());
            go.wait();
        }
        r.comm.wait();
        assert_eq!(sum_on(Comm(new), &r.stream, 1.0), 2.0);
        Comm(new).destroy();
    });
}

#[test]
fn shrink_keeps_the_order_sorts_the_list_and_leaves_the_parent_usable() {
    ranks("shrink", 5, true, |r| {
        let mut excluded = [3, 1];
        if !excluded.contains(&(r.rank as i32)) {
            for _ in 0..3 {
                let mut new = core::ptr::null_mut();
                // SAFETY: list and slot live through the blocking call.
                ok(unsafe { ncclCommShrink(r.comm.0, excluded.as_mut_ptr(), 2, &mut new, core::ptr::null(), 0) });
                assert_eq!(excluded, [1, 3], "sorted in place, as NCCL does");
                let new = Comm(new);
                assert_eq!((new.rank(), new.count()), (r.rank / 2, 3));
                assert_eq!(sum_on(new, &r.stream, r.rank as f32), 6.0);
                new.destroy();
            }
        } else {
            let mut new = core::ptr::null_mut();
            let code = unsafe {
                // SAFETY: list and slot live through the call.
                ncclCommShrink(r.comm.0, excluded.as_mut_ptr(), 2, &mut new, core::ptr::null(), 0)
            };
            assert_eq!(code, INVALID_ARGUMENT, "an excluded rank calls");
        }
        assert_eq!(r.sum(1.0), 5.0);
    });
}

fn grow(parent: Option<Comm>, nranks: usize, id: Option<&NcclUniqueId>, rank: i32, blocking: bool) -> Comm {
    let mut new = core::ptr::null_mut();
    let config = ranks::config(blocking);
    let id = id.map_or(core::ptr::null(), core::ptr::from_ref);
    let comm = parent.map_or(core::ptr::null_mut(), |parent| parent.0);
    // SAFETY: slot, id and config live until the new communicator is ready.
    ok(unsafe { ncclCommGrow(comm, nranks as i32, id, rank, &mut new, (&raw const config).cast()) });
    let new = Comm(new);
    new.wait();
    new
}

#[test]
fn grow_appends_ranks_and_a_split_restores_the_numbering() {
    for blocking in [true, false] {
        let exchanged = Mutex::new(None);
        let ready = Barrier::new(2);
        // Ranks 0, 1, 3 survive, thread 2 is the replacement of rank 2.
        threads("grow", 4, |original, id| {
            let stream = Stream::create();
            let grown = if original == 2 {
                ready.wait();
                let id = exchanged.lock().unwrap().expect("the coordinator made it");
                grow(None, 4, Some(&id), 3, blocking)
            } else {
                let rank = if original == 3 { 2 } else { original };
                let parent = Comm::init(3, id, rank, blocking);
                let mut grow_id = NcclUniqueId { internal: [0; 128] };
                if rank == 1 {
                    // SAFETY: a writable id.
                    ok(unsafe { ncclCommGetUniqueId(parent.0, &mut grow_id) });
                    // SAFETY: as above.
                    assert_eq!(unsafe { ncclCommGetUniqueId(parent.0, &mut grow_id) }, INVALID_USAGE);
                    *exchanged.lock().unwrap() = Some(grow_id);
                    ready.wait();
                }
                let grown = grow(Some(parent), 4, (rank == 1).then_some(&grow_id), -1, blocking);
                assert_eq!(sum_on(parent, &stream, 1.0), 3.0, "the parent lives on");
                parent.abort();
                grown
            };
            assert_eq!(grown.rank(), [0, 1, 3, 2][original]);
            assert_eq!(sum_on(grown, &stream, 1.0), 4.0);
            let restored = Comm(split(grown, 0, original as i32));
            assert_eq!(restored.rank(), original);
            grown.destroy();
            restored.destroy();
        });
    }
}

#[test]
fn a_parent_of_one_rank_grows_only_with_the_id() {
    let exchanged = Mutex::new(None);
    let ready = Barrier::new(2);
    threads("grow one", 2, |rank, id| {
        let stream = Stream::create();
        let grown = if rank == 1 {
            ready.wait();
            let id = exchanged.lock().unwrap().expect("made");
            grow(None, 2, Some(&id), 1, true)
        } else {
            let parent = Comm::init(1, id, 0, true);
            let mut grow_id = NcclUniqueId { internal: [0; 128] };
            // SAFETY: a writable id.
            ok(unsafe { ncclCommGetUniqueId(parent.0, &mut grow_id) });
            let mut new = core::ptr::null_mut();
            // SAFETY: refused before anything is kept.
            let code = unsafe {
                ncclCommGrow(parent.0, 2, core::ptr::null(), -1, &mut new, core::ptr::null())
            };
            assert_eq!(code, INVALID_ARGUMENT);
            *exchanged.lock().unwrap() = Some(grow_id);
            ready.wait();
            let grown = grow(Some(parent), 2, Some(&grow_id), -1, true);
            parent.destroy();
            grown
        };
        assert_eq!(sum_on(grown, &stream, rank as f32 + 1.0), 3.0);
        grown.destroy();
    });
}

#[test]
fn an_id_from_before_another_split_does_not_grow_the_parent() {
    ranks("stale grow id", 2, true, |r| {
        let mut id = NcclUniqueId { internal: [0; 128] };
        if r.rank == 0 {
            // SAFETY: a writable id.
            ok(unsafe { ncclCommGetUniqueId(r.comm.0, &mut id) });
        }
        Comm(split(r.comm, 0, 0)).destroy();
        let mut new = core::ptr::null_mut();
        ranks::refused_with("magic mismatch", || {
            // SAFETY: the slot lives through the blocking call.
            let code = unsafe { ncclCommGrow(r.comm.0, 3, core::ptr::null(), -1, &mut new, core::ptr::null()) };
            assert_eq!(code, INVALID_ARGUMENT);
        });
        assert!(new.is_null());
    });
}

#[test]
fn the_new_rank_calls_add_a_rank_to_the_same_communicator() {
    static SET: AtomicBool = AtomicBool::new(false);
    assert!(!SET.swap(true, Ordering::SeqCst), "the rendezvous is a setting of the process");
    let rendezvous = unique_id();
    // Without a setter nothing to meet at.
    let mut none = core::ptr::null_mut();
    // SAFETY: a writable slot.
    assert_eq!(unsafe { ncclCommInitNewRank(&mut none, 4) }, INVALID_USAGE);
    // SAFETY: a readable id.
    ok(unsafe { ncclHostSetNewRankRendezvous(&rendezvous) });
    threads("new rank", 4, |rank, id| {
        let stream = Stream::create();
        let comm = if rank == 3 {
            let mut comm = core::ptr::null_mut();
            // SAFETY: a writable slot.
            ok(unsafe { ncclCommInitNewRank(&mut comm, 4) });
            Comm(comm)
        } else {
            let comm = Comm::init(3, id, rank, rank != 1);
            assert_eq!(ncclCommSetupNewRank(comm.0), INVALID_USAGE, "not announced");
            assert_eq!(sum_on(comm, &stream, 1.0), 3.0);
            ok(ncclCommAddNewRank(comm.0));
            assert_eq!(ncclCommAddNewRank(comm.0), INVALID_USAGE);
            comm
        };
        started(ncclCommSetupNewRank(comm.0));
        comm.wait();
        assert_eq!((comm.rank(), comm.count()), (rank, 4));
        for _ in 0..3 {
            assert_eq!(sum_on(comm, &stream, rank as f32), 6.0);
        }
        comm.destroy();
    });
    // SAFETY: NULL clears it.
    ok(unsafe { ncclHostSetNewRankRendezvous(core::ptr::null()) });
}
