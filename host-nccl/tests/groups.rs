//! Groups, sends and receives.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use ranks::{Stream, ok, ranks, started};
use rejoin_host_nccl::abi::INVALID_USAGE;
use rejoin_host_nccl::capi::*;

/// Fits the ring, and does not fit it.
const SIZES: [usize; 3] = [1000, 256 * 1024, 3 * 1024 * 1024 + 5];

fn pattern(rank: usize, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 + rank * 31 + i / 251) as u8).collect()
}

#[test]
fn a_ring_of_sends_and_receives_in_one_group_never_deadlocks() {
    for blocking in [true, false] {
        for n in [1, 2, 3, 4, 8] {
            ranks("ring", n, blocking, |r| {
                let (next, previous) = ((r.rank + 1) % n, (r.rank + n - 1) % n);
                for count in SIZES {
                    let send = pattern(r.rank, count);
                    let mut recv = vec![0_u8; count];
                    ok(ncclGroupStart());
                    // SAFETY: buffers live until the stream is idle.
                    unsafe {
                        ok(ncclSend(send.as_ptr().cast(), count, 1, next as i32, r.comm.0, r.stream.raw()));
                        let recv = recv.as_mut_ptr().cast();
                        ok(ncclRecv(recv, count, 1, previous as i32, r.comm.0, r.stream.raw()));
                    }
                    started(ncclGroupEnd());
                    r.comm.wait();
                    r.stream.synchronize();
                    assert!(recv == pattern(previous, count), "{count} bytes");
                }
            });
        }
    }
}

#[test]
fn messages_of_a_pair_arrive_in_order_across_groups_and_sizes() {
    ranks("order", 2, true, |r| {
        for count in [1, 100, 300_000, 5] {
            let first = pattern(1, count);
            let second = pattern(2, count / 2 + 1);
            if r.rank == 0 {
                // SAFETY: buffers live until the stream is idle.
                unsafe {
                    ok(ncclSend(first.as_ptr().cast(), first.len(), 0, 1, r.comm.0, r.stream.raw()));
                    ok(ncclSend(second.as_ptr().cast(), second.len(), 0, 1, r.comm.0, r.stream.raw()));
                }
                r.stream.synchronize();
            } else {
                let (mut a, mut b) = (vec![0_u8; first.len()], vec![0_u8; second.len()]);
                ok(ncclGroupStart());
                // SAFETY: as above.
                unsafe {
                    ok(ncclRecv(a.as_mut_ptr().cast(), a.len(), 0, 0, r.comm.0, r.stream.raw()));
                    ok(ncclRecv(b.as_mut_ptr().cast(), b.len(), 0, 0, r.comm.0, r.stream.raw()));
                }
                ok(ncclGroupEnd());
                r.stream.synchronize();
                assert!(a == first && b == second);
            }
        }
    });
}

#[test]
fn a_group_may_hold_collectives_and_transfers_on_several_streams() {
    ranks("mixed", 3, false, |r| {
        let other = Stream::create();
        let next = ((r.rank + 1) % 3) as i32;
        let previous = ((r.rank + 2) % 3) as i32;
        for _ in 0..50 {
            let send = [r.rank as u64];
            let mut recv = [9_u64];
            let mut sum = [1_i32; 4];
            let mut largest = [r.rank as f64];
            let (sum_at, largest_at) = (sum.as_mut_ptr().cast(), largest.as_mut_ptr().cast());
            ok(ncclGroupStart());
            // SAFETY: buffers live until both streams are idle.
            unsafe {
                ok(ncclSend(send.as_ptr().cast(), 1, 5, next, r.comm.0, other.raw()));
                ok(ncclAllReduce(sum_at, sum_at, 4, 2, 0, r.comm.0, r.stream.raw()));
                ok(ncclGroupStart());
                ok(ncclRecv(recv.as_mut_ptr().cast(), 1, 5, previous, r.comm.0, r.stream.raw()));
                ok(ncclAllReduce(largest_at, largest_at, 1, 8, 2, r.comm.0, other.raw()));
                ok(ncclGroupEnd());
            }
            started(ncclGroupEnd());
            r.comm.wait();
            other.synchronize();
            r.stream.synchronize();
            assert_eq!(recv[0], previous as u64);
            assert_eq!((sum, largest), ([3; 4], [2.0]));
        }
    });
}

#[test]
fn an_error_inside_a_group_fails_its_end_and_nothing_is_launched() {
    ranks("failed group", 1, true, |r| {
        let mut x = [1.0_f32];
        let at = x.as_mut_ptr().cast();
        ok(ncclGroupStart());
        // SAFETY: the buffer lives until the stream is idle.
        unsafe {
            ok(ncclAllReduce(at, at, 1, 7, 0, r.comm.0, r.stream.raw()));
            assert_eq!(ncclAllReduce(at, at, 1, 99, 0, r.comm.0, r.stream.raw()), 4);
        }
        assert_eq!(ncclGroupEnd(), 4);
        assert!(r.stream.is_idle());
        // The next group is clean.
        ok(ncclGroupStart());
        ok(ncclGroupEnd());
    });
}

#[test]
fn a_group_end_without_a_start_is_refused() {
    assert_eq!(ncclGroupEnd(), INVALID_USAGE);
}
