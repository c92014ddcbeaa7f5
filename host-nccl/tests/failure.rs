//! How it fails: like NCCL between GPUs of one host.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Barrier;

use ranks::{Comm, Stream, ok, poll_until, started, sum_on, threads};
use rejoin_host_nccl::abi::{IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, SUCCESS};
use rejoin_host_nccl::capi::*;

const SMALL: usize = 1024;
const LARGE: usize = 256 * 1024;

/// Starts an all-reduce of `x` in place.
fn all_reduce(comm: Comm, stream: &Stream, x: &mut [f32]) {
    let at = x.as_mut_ptr().cast();
    // SAFETY: the tests keep `x` until the stream is idle.
    started(unsafe { ncclAllReduce(at, at, x.len(), 7, 0, comm.0, stream.raw()) });
}

fn shrink(comm: Comm, mut excluded: Vec<i32>, abort: bool) -> Comm {
    let mut new = core::ptr::null_mut();
    let count = excluded.len() as i32;
    // SAFETY: the list and the slot live until the communicator is ready.
    let code = unsafe {
        ncclCommShrink(comm.0, excluded.as_mut_ptr(), count, &mut new, core::ptr::null(), i32::from(abort))
    };
    ok(code);
    comm.wait();
    assert!(!new.is_null(), "stored when the parent is ready");
    Comm(new)
}

#[test]
fn a_missing_peer_is_not_noticed_and_shrink_with_abort_releases_the_stream() {
    for blocking in [true, false] {
        let gone = Barrier::new(3);
        threads("shrink abort", 3, |rank, id| {
            let comm = Comm::init(3, id, rank, blocking);
            let stream = Stream::create();
            if rank == 2 {
                // As good as dead: it never takes part.
                gone.wait();
                return;
            }
            let mut x = vec![1.0; LARGE];
            all_reduce(comm, &stream, &mut x);
            comm.wait();
            assert_eq!(comm.result(), SUCCESS, "the missing peer is not noticed");
            assert!(!stream.is_idle());

            let new = shrink(comm, vec![2], true);
            stream.synchronize();
            assert!(x.iter().all(|x| *x != 3.0), "the stream completes with garbage");
            assert_eq!((new.rank(), new.count()), (rank, 2));
            assert_eq!(sum_on(new, &stream, 1.0 + rank as f32), 3.0);
            comm.abort();
            new.destroy();
            gone.wait();
        });
    }
}

#[test]
fn an_aborted_rank_gives_its_peers_garbage_in_a_small_collective() {
    poison(SMALL, true);
}

#[test]
fn an_aborted_rank_leaves_its_peers_hung_in_a_large_collective() {
    poison(LARGE, false);
}

/// Rank 2 is absent, rank 0 aborts, rank 1 does nothing: what does its stream say?
fn poison(count: usize, finishes: bool) {
    let started_both = Barrier::new(2);
    let aborted = AtomicBool::new(false);
    let end = Barrier::new(3);
    threads("poison", 3, |rank, id| {
        let comm = Comm::init(3, id, rank, false);
        // A second clique of ranks 0 and 1, to let time pass by doing something.
        let mut pair = core::ptr::null_mut();
        let color = if rank == 2 { -1 } else { 0 };
        // SAFETY: the slot lives until the parent is ready.
        started(unsafe { ncclCommSplit(comm.0, color, rank as i32, &mut pair, core::ptr::null()) });
        comm.wait();
        let (stream, other) = (Stream::create(), Stream::create());
        if rank == 2 {
            assert!(pair.is_null());
            end.wait();
            return;
        }
        let mut x = vec![1.0; count];
        all_reduce(comm, &stream, &mut x);
        comm.wait();
        assert!(!stream.is_idle());
        started_both.wait();
        if rank == 0 {
            comm.abort();
            stream.synchronize();
            aborted.store(true, Ordering::SeqCst);
        } else {
            poll_until("the peer has aborted", || aborted.load(Ordering::SeqCst));
        }
        for _ in 0..50 {
            assert_eq!(sum_on(Comm(pair), &other, 1.0), 2.0);
        }
        if rank == 1 {
            if finishes {
                stream.synchronize();
            } else {
                assert!(!stream.is_idle(), "large collectives stay hung");
            }
            assert_eq!(comm.result(), SUCCESS, "nobody is told");
            started(ncclCommRevoke(comm.0, 0));
            comm.wait();
            stream.synchronize();
            assert!(x.iter().all(|x| *x != 3.0), "garbage");
            comm.abort();
        }
        Comm(pair).abort();
        end.wait();
    });
}

#[test]
fn an_event_after_a_call_on_a_non_blocking_communicator_can_precede_the_launch() {
    // The only test of this binary that holds launches; the others poll anyway.
    let turn = Barrier::new(2);
    threads("late launch", 2, |rank, id| {
        let comm = Comm::init(2, id, rank, false);
        let stream = Stream::create();
        turn.wait();
        ok(ncclHostHoldLaunches(1));
        turn.wait();
        let mut x = vec![1.0_f32; 8];
        let at = x.as_mut_ptr().cast();
        // SAFETY: the buffer lives until the stream is idle.
        assert_eq!(unsafe { ncclAllReduce(at, at, 8, 7, 0, comm.0, stream.raw()) }, IN_PROGRESS);
        assert!(stream.is_idle(), "nothing was enqueued: an event recorded here is complete");
        assert_eq!(comm.result(), IN_PROGRESS);
        ranks::refused_with("Attempt to use communicator before", || {
            // SAFETY: as above.
            let again = unsafe { ncclAllReduce(at, at, 8, 7, 0, comm.0, stream.raw()) };
            assert_eq!(again, INVALID_ARGUMENT);
        });
        turn.wait();
        ok(ncclHostHoldLaunches(0));
        comm.wait();
        stream.synchronize();
        assert_eq!(x, [2.0; 8]);
        comm.destroy();
    });
}

#[test]
fn revoke_releases_the_stream_refuses_work_and_allows_shrink() {
    let end = Barrier::new(3);
    threads("revoke", 3, |rank, id| {
        let comm = Comm::init(3, id, rank, false);
        let stream = Stream::create();
        if rank == 0 {
            end.wait();
            return;
        }
        let mut x = vec![1.0; LARGE];
        all_reduce(comm, &stream, &mut x);
        comm.wait();
        assert_eq!(ncclCommRevoke(comm.0, 1), INVALID_ARGUMENT);
        started(ncclCommRevoke(comm.0, 0));
        comm.wait();
        stream.synchronize();
        assert_eq!(ncclCommRevoke(comm.0, 0), INVALID_ARGUMENT, "once");
        assert_eq!(ncclCommFinalize(comm.0), INVALID_ARGUMENT);
        let at = x.as_mut_ptr().cast();
        ranks::refused_with("revoked", || {
            // SAFETY: refused before the buffer is used.
            let code = unsafe { ncclAllReduce(at, at, 8, 7, 0, comm.0, stream.raw()) };
            assert_eq!(code, INVALID_USAGE);
        });
        let new = shrink(comm, vec![0], false);
        assert_eq!(sum_on(new, &stream, rank as f32), 3.0);
        comm.destroy();
        new.destroy();
        end.wait();
    });
}

#[test]
fn a_group_of_aborts_releases_communicators_that_hang_on_one_stream() {
    // B's operation is queued behind A's: each abort alone would wait for the other.
    let end = Barrier::new(2);
    threads("group abort", 2, |rank, id| {
        let a = Comm::init(2, id, rank, false);
        let mut b = core::ptr::null_mut();
        // SAFETY: the slot lives until the parent is ready.
        started(unsafe { ncclCommSplit(a.0, 0, rank as i32, &mut b, core::ptr::null()) });
        a.wait();
        if rank == 1 {
            end.wait();
            return;
        }
        let stream = Stream::create();
        let (mut x, mut y) = (vec![1.0; LARGE], vec![1.0; LARGE]);
        all_reduce(a, &stream, &mut x);
        a.wait();
        all_reduce(Comm(b), &stream, &mut y);
        Comm(b).wait();
        ok(ncclGroupStart());
        ok(ncclCommAbort(b));
        ok(ncclCommAbort(a.0));
        ok(ncclGroupEnd());
        stream.synchronize();
        let mut result = 0;
        // SAFETY: a writable output; the handle is stale.
        assert_eq!(unsafe { ncclCommGetAsyncError(b, &mut result) }, INVALID_ARGUMENT);
        end.wait();
    });
}

#[test]
fn abort_ends_an_init_whose_peer_never_comes() {
    for blocking in [true, false] {
        threads("abort init", 1, |_, id| {
            let slot = AtomicUsize::new(0);
            std::thread::scope(|s| {
                s.spawn(|| {
                    let config = ranks::config(blocking);
                    let slot = slot.as_ptr().cast();
                    // SAFETY: the slot outlives the scope; a blocking call returns after the abort.
                    let code = unsafe { ncclCommInitRankConfig(slot, 2, id, 0, (&raw const config).cast()) };
                    assert_ne!(code, SUCCESS);
                });
                poll_until("the handle is stored", || slot.load(Ordering::Acquire) != 0);
                let comm = Comm(core::ptr::without_provenance_mut(slot.load(Ordering::Acquire)));
                assert_eq!(comm.result(), IN_PROGRESS);
                comm.abort();
            });
        });
    }
}

#[test]
fn abort_of_a_parent_ends_a_shrink_that_a_survivor_never_joined() {
    let end = Barrier::new(3);
    threads("abort shrink", 3, |rank, id| {
        let comm = Comm::init(3, id, rank, false);
        if rank > 0 {
            end.wait();
            return;
        }
        let mut new = core::ptr::null_mut();
        let mut excluded = [2];
        // SAFETY: list and slot live until the abort has returned.
        ok(unsafe { ncclCommShrink(comm.0, excluded.as_mut_ptr(), 1, &mut new, core::ptr::null(), 1) });
        assert_eq!(comm.result(), IN_PROGRESS);
        comm.abort();
        assert!(!new.is_null(), "a failed child is stored too, to be aborted");
        assert_ne!(Comm(new).result(), SUCCESS);
        Comm(new).abort();
        end.wait();
    });
}

#[test]
fn destroying_a_communicator_with_work_in_progress_gives_that_state() {
    let end = Barrier::new(2);
    threads("destroy in progress", 2, |rank, id| {
        if rank == 1 {
            end.wait();
            return;
        }
        let mut comm = core::ptr::null_mut();
        let config = ranks::config(false);
        // SAFETY: outputs and config live long enough.
        let code = unsafe { ncclCommInitRankConfig(&mut comm, 2, id, 0, (&raw const config).cast()) };
        assert_eq!(code, IN_PROGRESS);
        assert_eq!(ncclCommDestroy(comm), IN_PROGRESS);
        ok(ncclCommAbort(comm));
        end.wait();
    });
}

#[test]
fn blocking_and_non_blocking_communicators_do_not_mix_in_a_group() {
    threads("mixed group", 1, |_, id| {
        let a = Comm::init(1, id, 0, true);
        let b = Comm::init(1, ranks::unique_id(), 0, false);
        let stream = Stream::create();
        let mut x = [1.0_f32];
        let at = x.as_mut_ptr().cast();
        ok(ncclGroupStart());
        // SAFETY: the buffer lives until the stream is idle.
        unsafe {
            ok(ncclAllReduce(at, at, 1, 7, 0, a.0, stream.raw()));
            assert_eq!(ncclAllReduce(at, at, 1, 7, 0, b.0, stream.raw()), INVALID_ARGUMENT);
        }
        assert_eq!(ncclGroupEnd(), INVALID_ARGUMENT);
        assert!(stream.is_idle(), "a failed group launches nothing");
        a.destroy();
        b.destroy();
    });
}

#[test]
fn one_failed_call_of_a_group_aborts_the_others() {
    threads("cascade", 1, |_, id| {
        let other = ranks::unique_id();
        // Good once; a second use of rank 0 fails.
        let used = Comm::init(1, other, 0, true);
        let (mut waiting, mut failing) = (core::ptr::null_mut(), core::ptr::null_mut());
        ok(ncclGroupStart());
        // SAFETY: the slots live until the group has ended.
        unsafe {
            ok(ncclCommInitRank(&mut waiting, 2, id, 0));
            ok(ncclCommInitRank(&mut failing, 1, other, 0));
        }
        // Rank 1 of the first never comes: without the cascade this would wait for ever.
        assert_ne!(ncclGroupEnd(), SUCCESS);
        assert!(waiting.is_null() && failing.is_null());
        used.destroy();
    });
}

#[test]
fn a_failed_group_makes_no_communicators_but_still_aborts() {
    threads("failed group", 1, |_, id| {
        let doomed = Comm::init(1, ranks::unique_id(), 0, true);
        let mut comm = core::ptr::null_mut();
        ok(ncclGroupStart());
        ok(ncclCommAbort(doomed.0));
        // SAFETY: the slot lives until the group has ended.
        unsafe {
            ok(ncclCommInitRank(&mut comm, 2, id, 0));
            assert!(!comm.is_null());
            assert_eq!(ncclCommInitRank(core::ptr::null_mut(), 2, id, 0), INVALID_ARGUMENT);
            assert_eq!(ncclCommInitRank(&mut core::ptr::null_mut(), 0, id, 0), INVALID_ARGUMENT);
        }
        assert_eq!(ncclGroupEnd(), INVALID_ARGUMENT);
        assert!(comm.is_null());
        assert_eq!(ncclCommAbort(doomed.0), INVALID_ARGUMENT, "gone");
    });
}

#[test]
fn revoke_and_abort_in_one_group_both_end() {
    threads("revoke and abort", 1, |_, id| {
        let comm = Comm::init(1, id, 0, true);
        ok(ncclGroupStart());
        ok(ncclCommRevoke(comm.0, 0));
        ok(ncclCommAbort(comm.0));
        ok(ncclGroupEnd());
        assert_eq!(ncclCommAbort(comm.0), INVALID_ARGUMENT);
    });
}
