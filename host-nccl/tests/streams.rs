//! Streams of other makers: lost devices, and work that waits behind other work.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Barrier, Mutex};

use ranks::{Comm, Stream, ok, started, threads, unique_id, watched};
use rejoin_host_nccl::abi::{SUCCESS, UNHANDLED_CUDA_ERROR};
use rejoin_host_nccl::capi::*;
use rejoin_host_stream::{
    HOST_STREAM_ABI, HOST_STREAM_BUSY, HOST_STREAM_LOST, HOST_STREAM_MAGIC, HOST_STREAM_OK, HostStream, HostWork,
};

/// A stream that runs its work when the test says so, as if something stuck were before it.
struct Manual {
    queue: Mutex<VecDeque<(HostWork, Option<HostWork>, usize)>>,
    answer: AtomicI32,
    dropped: AtomicUsize,
}

impl Manual {
    fn create(drops: bool) -> (Box<Self>, Box<HostStream>) {
        let manual = Box::new(Self {
            queue: Mutex::default(),
            answer: AtomicI32::new(HOST_STREAM_OK),
            dropped: AtomicUsize::new(0),
        });
        let stream = HostStream {
            magic: HOST_STREAM_MAGIC,
            abi: HOST_STREAM_ABI,
            size: size_of::<HostStream>() as u32,
            enqueue,
            query,
            owner: (&raw const *manual).cast_mut().cast(),
            enqueue_or_drop: drops.then_some(enqueue_or_drop as _),
            reserved: [0; 2],
        };
        (manual, Box::new(stream))
    }

    fn len(&self) -> usize {
        self.queue.lock().unwrap().len()
    }

    /// The stuck thing before it has gone: everything runs.
    fn run(&self) {
        while let Some((work, _, arg)) = { self.queue.lock().unwrap().pop_front() } {
            // SAFETY: the contract of HostWork.
            unsafe { work(core::ptr::with_exposed_provenance_mut(arg)) };
        }
    }

    /// The device is lost: nothing runs any more.
    fn lose(&self) {
        self.answer.store(HOST_STREAM_LOST, Ordering::SeqCst);
        while let Some((_, drop, arg)) = { self.queue.lock().unwrap().pop_front() } {
            if let Some(drop) = drop {
                self.dropped.fetch_add(1, Ordering::SeqCst);
                // SAFETY: the contract of enqueue_or_drop.
                unsafe { drop(core::ptr::with_exposed_provenance_mut(arg)) };
            }
        }
    }
}

fn manual<'a>(stream: *mut HostStream) -> &'a Manual {
    // SAFETY: made by Manual::create, whose owner outlives the stream.
    unsafe { &*(*stream).owner.cast::<Manual>() }
}

unsafe extern "C" fn enqueue(stream: *mut HostStream, work: HostWork, arg: *mut c_void) -> i32 {
    let manual = manual(stream);
    let answer = manual.answer.load(Ordering::SeqCst);
    if answer == HOST_STREAM_OK {
        manual.queue.lock().unwrap().push_back((work, None, arg.expose_provenance()));
    }
    answer
}

unsafe extern "C" fn enqueue_or_drop(stream: *mut HostStream, work: HostWork, drop: HostWork, arg: *mut c_void) -> i32 {
    let manual = manual(stream);
    let answer = manual.answer.load(Ordering::SeqCst);
    if answer == HOST_STREAM_OK {
        manual.queue.lock().unwrap().push_back((work, Some(drop), arg.expose_provenance()));
    }
    answer
}

unsafe extern "C" fn query(stream: *mut HostStream) -> i32 {
    if manual(stream).len() == 0 { HOST_STREAM_OK } else { HOST_STREAM_BUSY }
}

fn all_reduce(comm: Comm, stream: &mut HostStream, x: &mut [f32]) -> i32 {
    let at = x.as_mut_ptr().cast();
    // SAFETY: the tests keep `x` until the stream is empty.
    unsafe { ncclAllReduce(at, at, x.len(), 7, 0, comm.0, (&raw mut *stream).cast()) }
}

#[test]
fn a_lost_stream_is_a_device_error() {
    watched("lost", || {
        for (blocking, drops) in [(true, true), (true, false), (false, true)] {
            let comm = Comm::init(1, unique_id(), 0, blocking);
            let (manual, mut stream) = Manual::create(drops);
            manual.lose();
            let mut x = [1.0];
            let code = all_reduce(comm, &mut stream, &mut x);
            if blocking {
                assert_eq!(code, UNHANDLED_CUDA_ERROR);
            }
            ranks::poll_until("the launch has failed", || comm.result() != 7);
            assert_eq!(comm.result(), UNHANDLED_CUDA_ERROR, "it stays");
            assert_eq!(ncclCommDestroy(comm.0), UNHANDLED_CUDA_ERROR);
            comm.abort();
        }
    });
}

#[test]
fn abort_waits_for_queued_work_of_a_stream_that_drops_what_is_lost() {
    watched("queued, dropped", || {
        let comm = Comm::init(1, unique_id(), 0, true);
        let (manual, mut stream) = Manual::create(true);
        let mut x = [1.0];
        ok(all_reduce(comm, &mut stream, &mut x));
        assert_eq!(manual.len(), 1);
        let aborting = Barrier::new(2);
        std::thread::scope(|s| {
            let abort = s.spawn(|| {
                aborting.wait();
                comm.abort();
            });
            aborting.wait();
            // Behind a stuck kernel of something else: NCCL waits too. Then the device is lost.
            assert!(!abort.is_finished());
            manual.lose();
            abort.join().unwrap();
        });
        assert_eq!(manual.dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn abort_does_not_wait_for_queued_work_of_other_streams_and_that_work_touches_nothing() {
    watched("queued, not dropped", || {
        let comm = Comm::init(1, unique_id(), 0, true);
        let (manual, mut stream) = Manual::create(false);
        let mut x = [1.0];
        ok(all_reduce(comm, &mut stream, &mut x));
        comm.abort();
        x[0] = 7.0;
        manual.run();
        assert_eq!(x[0], 7.0, "the buffer may have been freed after the abort");
    });
}

#[test]
fn work_queued_before_an_abort_with_shrink_is_garbage_and_the_child_works() {
    let end = Barrier::new(2);
    threads("queued shrink", 2, |rank, id| {
        let comm = Comm::init(2, id, rank, true);
        if rank == 1 {
            end.wait();
            return;
        }
        let (manual, mut stream) = Manual::create(false);
        let mut x = [1.0];
        ok(all_reduce(comm, &mut stream, &mut x));
        let (mut new, mut excluded) = (core::ptr::null_mut(), [1]);
        // SAFETY: list and slot live through the blocking call.
        ok(unsafe { ncclCommShrink(comm.0, excluded.as_mut_ptr(), 1, &mut new, core::ptr::null(), 1) });
        manual.run();
        assert_eq!(x[0], 1.0);
        assert_eq!(ranks::sum_on(Comm(new), &Stream::create(), 4.0), 4.0);
        comm.abort();
        Comm(new).destroy();
        end.wait();
    });
}

#[test]
fn an_aborted_sender_gives_its_peer_garbage_when_small() {
    // Rank 0 waits for 1, who never sends; its send to 2 is queued behind that when it aborts.
    let end = Barrier::new(3);
    threads("p2p abort", 3, |rank, id| {
        let comm = Comm::init(3, id, rank, false);
        let stream = Stream::create();
        let mut x = [1.0_f32; 256];
        let at = x.as_mut_ptr().cast();
        match rank {
            0 => {
                // SAFETY: the buffer lives until the stream is idle.
                started(unsafe { ncclRecv(at, 256, 7, 1, comm.0, stream.raw()) });
                comm.wait();
                // SAFETY: as above. It is queued behind the receive.
                started(unsafe { ncclSend(at, 256, 7, 2, comm.0, stream.raw()) });
                comm.wait();
                assert_eq!(comm.result(), SUCCESS);
                comm.abort();
                stream.synchronize();
            }
            2 => {
                // SAFETY: as above.
                started(unsafe { ncclRecv(at, 256, 7, 0, comm.0, stream.raw()) });
                comm.wait();
                stream.synchronize();
                assert!(x.iter().all(|x| *x != 1.0), "garbage of the aborted sender");
            }
            _ => {}
        }
        end.wait();
        if rank != 0 {
            comm.abort();
        }
    });
}
