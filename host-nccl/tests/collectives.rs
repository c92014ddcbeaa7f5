//! Every collective against a plain reference, for every type, operator and several numbers of ranks.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use core::ffi::c_void;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use ranks::{Comm, Rank, Stream, ok, ranks};
use rejoin_host_nccl::capi::*;

const SIZES: [usize; 5] = [1, 2, 3, 4, 8];

/// An element type with small exact values, so that the reference needs no rounding rules.
trait Element: Copy + PartialEq + core::fmt::Debug + Send + Sync + 'static {
    const CODE: i32;
    fn from_int(value: i64) -> Self;
}

macro_rules! element {
    ($($t:ty, $code:expr, $v:ident => $from:expr);* $(;)?) => {$(
        impl Element for $t {
            const CODE: i32 = $code;
            fn from_int($v: i64) -> Self { $from }
        }
    )*};
}
element! {
    i8, 0, v => v as i8;
    u8, 1, v => v as u8;
    i32, 2, v => v as i32;
    u32, 3, v => v as u32;
    i64, 4, v => v;
    u64, 5, v => v as u64;
    f16, 6, v => f16::from_f32(v as f32);
    f32, 7, v => v as f32;
    f64, 8, v => v as f64;
    bf16, 9, v => bf16::from_f32(v as f32);
    F8E4M3, 10, v => F8E4M3::from_f32(v as f32);
    F8E5M2, 11, v => F8E5M2::from_f32(v as f32);
}

macro_rules! every_type {
    ($f:ident($($arg:expr),*)) => {
        $f::<i8>($($arg),*); $f::<u8>($($arg),*); $f::<i32>($($arg),*); $f::<u32>($($arg),*);
        $f::<i64>($($arg),*); $f::<u64>($($arg),*); $f::<f16>($($arg),*); $f::<f32>($($arg),*);
        $f::<f64>($($arg),*); $f::<bf16>($($arg),*); $f::<F8E4M3>($($arg),*); $f::<F8E5M2>($($arg),*);
    };
}

/// 0 or 1, different for rank and place: sums up to 8 are exact in every type, even e5m2 (two bits).
fn value(rank: usize, index: usize) -> i64 {
    i64::from((rank * 7 + index * 3 + index / 5).is_multiple_of(3))
}

fn filled<E: Element>(rank: usize, count: usize) -> Vec<E> {
    (0..count).map(|i| E::from_int(value(rank, i))).collect()
}

fn ptr<E>(v: &[E]) -> *const c_void {
    v.as_ptr().cast()
}

fn out<E>(v: &mut [E]) -> *mut c_void {
    v.as_mut_ptr().cast()
}

/// Small, one slot exactly, and a second round with a rest.
fn counts(bytes: usize) -> [usize; 4] {
    [1, 17, 256 * 1024 / bytes, 270_000 / bytes + 3]
}

fn reference(op: i32, nranks: usize, index: usize) -> i64 {
    let values = (0..nranks).map(|rank| value(rank, index));
    match op {
        0 => values.sum(),
        1 => values.product(),
        2 => values.max().unwrap(),
        _ => values.min().unwrap(),
    }
}

fn all_reduce<E: Element>(r: &Rank) {
    for count in counts(size_of::<E>()) {
        for op in 0..4 {
            let send = filled::<E>(r.rank, count);
            let mut recv = vec![E::from_int(5); count];
            // SAFETY: both buffers have `count` elements and live until the stream is idle.
            ok(unsafe { ncclAllReduce(ptr(&send), out(&mut recv), count, E::CODE, op, r.comm.0, r.stream.raw()) });
            r.stream.synchronize();
            // In place gives the same.
            let mut both = send.clone();
            let at = out(&mut both);
            // SAFETY: as above.
            ok(unsafe { ncclAllReduce(at, at, count, E::CODE, op, r.comm.0, r.stream.raw()) });
            r.stream.synchronize();
            for (i, (a, b)) in recv.iter().zip(&both).enumerate() {
                assert_eq!(*a, E::from_int(reference(op, r.nranks, i)), "op {op} count {count} at {i}");
                assert_eq!(a, b);
            }
        }
    }
}

#[test]
fn all_reduce_gives_the_fold_of_all_ranks_for_every_type_and_operator() {
    for n in SIZES {
        ranks("all-reduce", n, true, |r| {
            every_type!(all_reduce(r));
        });
    }
}

fn reduce_and_reduce_scatter<E: Element>(r: &Rank) {
    let n = r.nranks;
    for count in counts(size_of::<E>() * n) {
        for op in 0..4 {
            let root = (count + op as usize) % n;
            let send = filled::<E>(r.rank, count);
            let mut recv = vec![E::from_int(5); count];
            // SAFETY: buffers as long as the calls need, alive until the stream is idle.
            unsafe {
                let recv = if r.rank == root { out(&mut recv) } else { core::ptr::null_mut() };
                ok(ncclReduce(ptr(&send), recv, count, E::CODE, op, root as i32, r.comm.0, r.stream.raw()));
            }
            r.stream.synchronize();
            for (i, x) in recv.iter().enumerate() {
                let expected = if r.rank == root { reference(op, n, i) } else { 5 };
                assert_eq!(*x, E::from_int(expected), "reduce op {op} count {count} at {i}");
            }
            let send = filled::<E>(r.rank, count * n);
            // SAFETY: as above.
            unsafe {
                let recv = out(&mut recv);
                ok(ncclReduceScatter(ptr(&send), recv, count, E::CODE, op, r.comm.0, r.stream.raw()));
            }
            r.stream.synchronize();
            for (i, x) in recv.iter().enumerate() {
                let expected = reference(op, n, r.rank * count + i);
                assert_eq!(*x, E::from_int(expected), "reduce-scatter op {op} count {count} at {i}");
            }
        }
    }
}

#[test]
fn reduce_and_reduce_scatter_give_the_fold_where_it_belongs() {
    for n in SIZES {
        ranks("reduce", n, true, |r| {
            every_type!(reduce_and_reduce_scatter(r));
        });
    }
}

fn moves<E: Element>(r: &Rank) {
    let n = r.nranks;
    let at = |rank: usize, i: usize| E::from_int(value(rank, i));
    for count in counts(size_of::<E>() * n) {
        let root = count % n;
        let (comm, stream) = (r.comm.0, r.stream.raw());
        let mine = filled::<E>(r.rank, count);
        let blocks = filled::<E>(r.rank, count * n);
        let none = E::from_int(5);
        let mut broadcast = vec![none; count];
        let mut bcast = mine.clone();
        let mut all_gather = vec![none; count * n];
        let mut all_to_all = vec![none; count * n];
        let mut gather = vec![none; count * n];
        let mut scatter = vec![none; count];
        let root_code = root as i32;
        // SAFETY: buffers as long as the calls need, alive until the stream is idle.
        unsafe {
            ok(ncclBroadcast(ptr(&mine), out(&mut broadcast), count, E::CODE, root_code, comm, stream));
            ok(ncclBcast(out(&mut bcast), count, E::CODE, root_code, comm, stream));
            ok(ncclAllGather(ptr(&mine), out(&mut all_gather), count, E::CODE, comm, stream));
            ok(ncclAlltoAll(ptr(&blocks), out(&mut all_to_all), count, E::CODE, comm, stream));
            ok(ncclGather(ptr(&mine), out(&mut gather), count, E::CODE, root_code, comm, stream));
            ok(ncclScatter(ptr(&blocks), out(&mut scatter), count, E::CODE, root_code, comm, stream));
        }
        r.stream.synchronize();
        for i in 0..count {
            assert_eq!(broadcast[i], at(root, i));
            assert_eq!(bcast[i], at(root, i));
            assert_eq!(scatter[i], at(root, r.rank * count + i));
            for source in 0..n {
                let block = source * count + i;
                assert_eq!(all_gather[block], at(source, i));
                assert_eq!(all_to_all[block], at(source, r.rank * count + i));
                assert_eq!(gather[block], if r.rank == root { at(source, i) } else { none });
            }
        }
    }
}

#[test]
fn moving_collectives_move_every_element_to_its_place() {
    for n in SIZES {
        ranks("moves", n, true, |r| {
            every_type!(moves(r));
        });
    }
}

fn average<E: Element>(r: &Rank) {
    let n = r.nranks as i64;
    // Every rank gives n (or 2n) / n-divisible values, so that the average is exact.
    let send = vec![E::from_int(2), E::from_int(n), E::from_int(0)];
    let mut recv = vec![E::from_int(0); 3];
    // SAFETY: buffers of three elements, alive until the stream is idle.
    ok(unsafe { ncclAllReduce(ptr(&send), out(&mut recv), 3, E::CODE, 4, r.comm.0, r.stream.raw()) });
    r.stream.synchronize();
    assert_eq!(recv, send, "the average of equal values is the value");
}

#[test]
fn average_is_exact_for_equal_values() {
    for n in [1, 2, 4, 8] {
        ranks("average", n, true, |r| {
            every_type!(average(r));
        });
    }
}

#[test]
fn average_of_integers_truncates_towards_zero() {
    ranks("integer average", 3, true, |r| {
        let mut both = [-(r.rank as i32) - 2, r.rank as i32 + 3];
        let at = out(&mut both);
        // SAFETY: two elements, alive until the stream is idle.
        ok(unsafe { ncclAllReduce(at, at, 2, 2, 4, r.comm.0, r.stream.raw()) });
        r.stream.synchronize();
        assert_eq!(both, [-3, 4]);
        let mut odd = [if r.rank == 0 { -5 } else { 0 }];
        let at = out(&mut odd);
        // SAFETY: as above.
        ok(unsafe { ncclAllReduce(at, at, 1, 2, 4, r.comm.0, r.stream.raw()) });
        r.stream.synchronize();
        assert_eq!(odd, [-1], "-5 / 3");
    });
}

fn premultiplied<E: Element>(r: &Rank) {
    for residence in [0, 1] {
        let mut scalar = [E::from_int(2)];
        let mut op = 0;
        // SAFETY: the scalar lives through the operation below.
        ok(unsafe { ncclRedOpCreatePreMulSum(&mut op, out(&mut scalar), E::CODE, residence, r.comm.0) });
        let send = filled::<E>(r.rank, 40);
        let mut recv = vec![E::from_int(0); 40];
        // SAFETY: buffers of 40 elements, alive until the stream is idle.
        ok(unsafe { ncclAllReduce(ptr(&send), out(&mut recv), 40, E::CODE, op, r.comm.0, r.stream.raw()) });
        r.stream.synchronize();
        for (i, x) in recv.iter().enumerate() {
            assert_eq!(*x, E::from_int(2 * reference(0, r.nranks, i)));
        }
        ok(ncclRedOpDestroy(op, r.comm.0));
        assert_eq!(ncclRedOpDestroy(op, r.comm.0), 4);
    }
}

#[test]
fn premultiplied_sums_scale_before_they_add() {
    for n in [1, 2, 3] {
        ranks("premulsum", n, true, |r| {
            every_type!(premultiplied(r));
        });
    }
}

#[test]
fn integer_sums_wrap() {
    ranks("wrap", 2, true, |r| {
        let mut both = [i32::MAX, -1];
        let at = out(&mut both);
        // SAFETY: two elements, alive until the stream is idle.
        ok(unsafe { ncclAllReduce(at, at, 2, 2, 0, r.comm.0, r.stream.raw()) });
        r.stream.synchronize();
        assert_eq!(both, [-2, -2]);
    });
}

#[test]
fn sums_have_the_same_bits_on_every_rank_and_in_every_run() {
    let run = || {
        ranks("bits", 4, true, |r| {
            // Magnitudes far apart: the order of summation shows in the last bits.
            let mut x: Vec<f32> = (0..70_000)
                .map(|i| {
                    let scale = [1.0_f32, 1e-7, 3e4, 1e-3][(i + r.rank) % 4];
                    scale * ((i * 31 + r.rank * 17) % 1009) as f32 / 7.0
                })
                .collect();
            let at = out(&mut x);
            // SAFETY: the buffer lives until the stream is idle.
            ok(unsafe { ncclAllReduce(at, at, 70_000, 7, 0, r.comm.0, r.stream.raw()) });
            r.stream.synchronize();
            x.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        })
    };
    let first = run();
    assert!(first.iter().all(|bits| *bits == first[0]));
    for _ in 0..3 {
        assert_eq!(run(), first);
    }
    // And the order is that of the ranks.
    let value = |i: usize, rank: usize| {
        [1.0_f32, 1e-7, 3e4, 1e-3][(i + rank) % 4] * ((i * 31 + rank * 17) % 1009) as f32 / 7.0
    };
    for (i, bits) in first[0].iter().enumerate() {
        let sum = (1..4).fold(value(i, 0), |sum, rank| sum + value(i, rank));
        assert_eq!(*bits, sum.to_bits());
    }
}

#[test]
fn gathers_and_reduce_scatters_work_in_place() {
    ranks("in place", 3, true, |r| {
        let count = 200_000;
        let mut gathered = vec![0_u32; 3 * count];
        gathered[r.rank * count..][..count].fill(r.rank as u32 + 1);
        let mut scattered: Vec<u32> = (0..3 * count).map(|i| (i + r.rank) as u32).collect();
        // SAFETY: own blocks inside the buffers, which live until the stream is idle.
        unsafe {
            let all = gathered.as_mut_ptr();
            ok(ncclAllGather(all.add(r.rank * count).cast(), all.cast(), count, 3, r.comm.0, r.stream.raw()));
            let all = scattered.as_mut_ptr();
            ok(ncclReduceScatter(
                all.cast(),
                all.add(r.rank * count).cast(),
                count,
                3,
                0,
                r.comm.0,
                r.stream.raw(),
            ));
        }
        r.stream.synchronize();
        for (i, x) in gathered.iter().enumerate() {
            assert_eq!(*x, (i / count) as u32 + 1);
        }
        for i in 0..count {
            assert_eq!(scattered[r.rank * count + i], (3 * (r.rank * count + i) + 3) as u32);
        }
    });
}

#[test]
fn sixty_four_mebibytes_pass_through_the_staging_slots() {
    ranks("64 MiB", 2, true, |r| {
        let count = 16 * 1024 * 1024;
        let mut x: Vec<f32> = (0..count).map(|i| (i % 1000 + r.rank) as f32).collect();
        let at = out(&mut x);
        // SAFETY: the buffer lives until the stream is idle.
        ok(unsafe { ncclAllReduce(at, at, count, 7, 0, r.comm.0, r.stream.raw()) });
        r.stream.synchronize();
        assert!(x.iter().enumerate().all(|(i, x)| *x == (2 * (i % 1000) + 1) as f32));
    });
}

#[test]
fn null_streams_are_queues_of_the_communicator() {
    let sums = ranks("null stream", 3, true, |r| {
        let mut x = [r.rank as f64 + 1.0];
        let at = out(&mut x);
        // SAFETY: the buffer lives until all own streams are idle.
        ok(unsafe { ncclAllReduce(at, at, 1, 8, 0, r.comm.0, core::ptr::null_mut()) });
        // SAFETY: NULL means all streams.
        ok(unsafe { ncclHostStreamSynchronize(core::ptr::null_mut()) });
        x[0]
    });
    assert_eq!(sums, [6.0; 3]);
}

#[test]
fn operations_on_two_streams_keep_the_order_of_their_calls() {
    ranks("two streams", 3, true, |r| {
        let other = Stream::create();
        for round in 0..200_u32 {
            let mut a = [1_u32 + round];
            let mut b = [100_u32 + r.rank as u32];
            let (at_a, at_b) = (out(&mut a), out(&mut b));
            // SAFETY: buffers live until both streams are idle.
            unsafe {
                ok(ncclAllReduce(at_a, at_a, 1, 3, 0, r.comm.0, r.stream.raw()));
                ok(ncclAllReduce(at_b, at_b, 1, 3, 0, r.comm.0, other.raw()));
            }
            other.synchronize();
            r.stream.synchronize();
            assert_eq!((a[0], b[0]), (3 * (1 + round), 303));
        }
    });
}

#[test]
fn init_all_makes_the_ranks_of_one_process() {
    ranks::watched("init all", || {
        let mut comms = [core::ptr::null_mut(); 3];
        let devices = [2, 0, 5];
        // SAFETY: three handles and three numbers.
        ok(unsafe { ncclCommInitAll(comms.as_mut_ptr(), 3, devices.as_ptr()) });
        let mut x = [1.0_f32, 2.0, 4.0];
        ok(ncclGroupStart());
        for (i, comm) in comms.iter().enumerate() {
            let at = (&raw mut x[i]).cast();
            // SAFETY: the buffer lives until all own streams are idle.
            ok(unsafe { ncclAllReduce(at, at, 1, 7, 0, *comm, core::ptr::null_mut()) });
        }
        ok(ncclGroupEnd());
        // SAFETY: NULL means all streams.
        ok(unsafe { ncclHostStreamSynchronize(core::ptr::null_mut()) });
        assert_eq!(x, [7.0; 3]);
        for (i, comm) in comms.iter().enumerate() {
            let mut device = -1;
            // SAFETY: a writable output.
            ok(unsafe { ncclCommCuDevice(*comm, &mut device) });
            assert_eq!((device, Comm(*comm).rank()), (devices[i], i));
            Comm(*comm).destroy();
        }
        let twice = [1, 1];
        // SAFETY: two handles and two numbers.
        assert_eq!(unsafe { ncclCommInitAll(comms.as_mut_ptr(), 2, twice.as_ptr()) }, 5);
    });
}
