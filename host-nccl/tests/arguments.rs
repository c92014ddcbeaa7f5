//! Hostile and careless arguments give NCCL's errors, never a crash.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use core::ffi::c_void;
use std::ffi::CStr;

use ranks::{Comm, Stream, config, ok, ranks, unique_id, watched};
use rejoin_host_nccl::abi::{CommHandle, INVALID_ARGUMENT, INVALID_USAGE, NcclUniqueId, VERSION_CODE};
use rejoin_host_nccl::capi::*;

const NULL: *mut c_void = core::ptr::null_mut();

#[test]
fn null_outputs_and_null_communicators_are_refused() {
    // SAFETY: NULL is what is tested; every function promises to check it.
    unsafe {
        let mut id = unique_id();
        let mut comm: CommHandle = NULL;
        let mut number = 0;
        let mut handle = NULL;
        for code in [
            ncclGetVersion(core::ptr::null_mut()),
            ncclGetUniqueId(core::ptr::null_mut()),
            ncclCommInitRank(core::ptr::null_mut(), 1, id, 0),
            ncclCommInitRankConfig(core::ptr::null_mut(), 1, id, 0, core::ptr::null()),
            ncclCommInitRankScalable(&mut comm, 1, 0, 1, core::ptr::null(), core::ptr::null()),
            ncclCommInitRankScalable(&mut comm, 1, 0, 0, &id, core::ptr::null()),
            ncclCommInitAll(core::ptr::null_mut(), 1, core::ptr::null()),
            ncclCommInitAll(&mut comm, 0, core::ptr::null()),
            ncclCommSplit(NULL, 0, 0, &mut comm, core::ptr::null()),
            ncclCommShrink(NULL, &mut number, 1, &mut comm, core::ptr::null(), 1),
            ncclCommGetUniqueId(NULL, &mut id),
            ncclCommGrow(NULL, 2, core::ptr::null(), 1, &mut comm, core::ptr::null()),
            ncclCommInitNewRank(core::ptr::null_mut(), 2),
            ncclCommAddNewRank(NULL),
            ncclCommSetupNewRank(NULL),
            ncclCommFinalize(NULL),
            ncclCommRevoke(NULL, 0),
            ncclCommGetAsyncError(NULL, &mut number),
            ncclCommCount(NULL, &mut number),
            ncclCommCuDevice(NULL, &mut number),
            ncclCommUserRank(NULL, &mut number),
            ncclRedOpCreatePreMulSum(&mut number, (&raw mut id).cast(), 7, 1, NULL),
            ncclRedOpDestroy(7, NULL),
            ncclCommRegister(NULL, (&raw mut id).cast(), 8, &mut handle),
            ncclCommDeregister(NULL, NULL),
            ncclMemAlloc(core::ptr::null_mut(), 8),
            ncclMemAlloc(&mut handle, 0),
            ncclMemAlloc(&mut handle, usize::MAX),
            ncclMemFree((&raw mut id).cast()),
            ncclAllReduce(NULL, NULL, 1, 7, 0, NULL, NULL),
            ncclSend(NULL, 1, 7, 0, NULL, NULL),
            ncclHostStreamCreate(core::ptr::null_mut()),
            ncclHostStreamDestroy(core::ptr::null_mut()),
        ] {
            assert_eq!(code, INVALID_ARGUMENT);
        }
        ok(ncclCommDestroy(NULL));
        ok(ncclCommAbort(NULL));
        ok(ncclMemFree(NULL));
    }
}

#[test]
fn handles_that_are_none_are_refused_also_after_their_end() {
    watched("stale", || {
        let comm = Comm::init(1, unique_id(), 0, true);
        comm.destroy();
        for handle in [comm.0, core::ptr::without_provenance_mut(1), (&raw const comm).cast_mut().cast()] {
            let mut number = 0;
            // SAFETY: the library never follows a handle.
            assert_eq!(unsafe { ncclCommCount(handle, &mut number) }, INVALID_ARGUMENT);
            assert_eq!(ncclCommAbort(handle), INVALID_ARGUMENT);
            assert_eq!(ncclCommDestroy(handle), INVALID_ARGUMENT);
        }
    });
}

#[test]
fn bad_ranks_ids_and_configs_are_refused_and_store_null() {
    watched("bad init", || {
        let id = unique_id();
        let mut comm: CommHandle = core::ptr::without_provenance_mut(1);
        for (nranks, rank) in [(0, 0), (-1, 0), (1, 1), (2, -1), (i32::MAX, 0), (4, 4)] {
            // SAFETY: a writable slot.
            assert_eq!(unsafe { ncclCommInitRank(&mut comm, nranks, id, rank) }, INVALID_ARGUMENT);
            assert!(comm.is_null());
        }
        let garbage = NcclUniqueId { internal: [0xab; 128] };
        // SAFETY: a writable slot.
        assert_eq!(unsafe { ncclCommInitRank(&mut comm, 1, garbage, 0) }, INVALID_ARGUMENT);
        // A unique id of this library whose memory is elsewhere: another number in it.
        let mut moved = id;
        moved.internal[24] ^= 1;
        // SAFETY: as above.
        assert_eq!(unsafe { ncclCommInitRank(&mut comm, 1, moved, 0) }, INVALID_ARGUMENT);
        let mut bad = config(true);
        bad.magic = 0;
        // SAFETY: as above.
        let code = unsafe { ncclCommInitRankConfig(&mut comm, 1, id, 0, (&raw const bad).cast()) };
        assert_eq!(code, INVALID_ARGUMENT);
        // The id is still good, once.
        // SAFETY: as above.
        ok(unsafe { ncclCommInitRank(&mut comm, 1, id, 0) });
        let mut again = NULL;
        // SAFETY: as above.
        assert_eq!(unsafe { ncclCommInitRank(&mut again, 1, id, 0) }, INVALID_ARGUMENT, "single use");
        Comm(comm).destroy();
    });
}

#[test]
fn bad_arguments_of_collectives_are_refused_before_anything_is_enqueued() {
    ranks("bad collectives", 2, true, |r| {
        let mut x = [1.0_f32; 8];
        let at: *mut c_void = x.as_mut_ptr().cast();
        let (comm, stream) = (r.comm.0, r.stream.raw());
        let mut not_a_stream = [0_u64; 8];
        // SAFETY: bad arguments are what is tested; good buffers have eight elements.
        unsafe {
            for code in [
                ncclAllReduce(at, at, 8, 12, 0, comm, stream),
                ncclAllReduce(at, at, 8, -1, 0, comm, stream),
                ncclAllReduce(at, at, 8, 7, 5, comm, stream),
                ncclAllReduce(at, at, 8, 7, -1, comm, stream),
                ncclAllReduce(at, at, 8, 7, i32::MAX, comm, stream),
                ncclAllReduce(at, at, usize::MAX, 7, 0, comm, stream),
                ncclAllReduce(at, at, usize::MAX / 8 + 1, 8, 0, comm, stream),
                ncclAllReduce(NULL, at, 8, 7, 0, comm, stream),
                ncclAllReduce(at, NULL, 8, 7, 0, comm, stream),
                ncclAllReduce(at, at, 8, 7, 0, comm, not_a_stream.as_mut_ptr().cast()),
                ncclAllReduce(at, at, 8, 7, 0, comm, core::ptr::without_provenance_mut(16)),
                ncclAllReduce(at, at, 8, 7, 0, comm, not_a_stream.as_mut_ptr().byte_add(1).cast()),
                ncclReduce(at, at, 8, 7, 0, 2, comm, stream),
                ncclBroadcast(at, at, 8, 7, -1, comm, stream),
                ncclGather(at, at, 8, 7, 9, comm, stream),
                ncclScatter(at, at, 8, 7, i32::MIN, comm, stream),
                ncclSend(at, 8, 7, 2, comm, stream),
                ncclRecv(at, 8, 7, -1, comm, stream),
                ncclRecv(NULL, 8, 7, 0, comm, stream),
                ncclSend(at, usize::MAX, 7, 0, comm, stream),
                ncclCommRegister(comm, NULL, 8, &mut core::ptr::null_mut()),
                ncclCommDeregister(comm, at),
                ncclCommSplit(comm, -2, 0, &mut core::ptr::null_mut(), core::ptr::null()),
                ncclCommSplit(comm, 0, 0, core::ptr::null_mut(), core::ptr::null()),
                ncclCommRevoke(comm, 2),
            ] {
                assert_eq!(code, INVALID_ARGUMENT);
            }
            let mut none = NULL;
            for (mut list, count, flags) in [([0, 1], 0, 0), ([0, 1], -3, 0), ([9, 9], 2, 0), ([9, 8], 1, 7)] {
                let code = ncclCommShrink(comm, list.as_mut_ptr(), count, &mut none, core::ptr::null(), flags);
                assert_eq!(code, INVALID_ARGUMENT);
            }
            assert_eq!(
                ncclCommShrink(comm, core::ptr::null_mut(), 1, &mut none, core::ptr::null(), 0),
                INVALID_ARGUMENT
            );
            assert_eq!(ncclCommGrow(comm, 2, core::ptr::null(), -1, &mut none, core::ptr::null()), INVALID_ARGUMENT);
            assert_eq!(ncclCommGrow(comm, 3, core::ptr::null(), 0, &mut none, core::ptr::null()), INVALID_ARGUMENT);
            // Nothing to move: fine, even without buffers.
            ok(ncclAllReduce(NULL, NULL, 0, 7, 0, comm, stream));
            ok(ncclSend(NULL, 0, 7, 0, comm, stream));
        }
        assert!(r.stream.is_idle());
        assert_eq!(r.sum(1.0), 2.0, "the communicator is unharmed");
    });
}

#[test]
fn finalized_communicators_take_no_more_work() {
    ranks("finalized", 2, true, |r| {
        assert_eq!(r.sum(1.0), 2.0);
        ok(ncclCommFinalize(r.comm.0));
        assert_eq!(ncclCommFinalize(r.comm.0), INVALID_ARGUMENT);
        let mut x = [1.0_f32];
        let at = x.as_mut_ptr().cast();
        // SAFETY: refused before the buffer is used.
        assert_eq!(unsafe { ncclAllReduce(at, at, 1, 7, 0, r.comm.0, r.stream.raw()) }, INVALID_USAGE);
    });
}

#[test]
fn memory_and_registrations_have_handles_that_are_checked() {
    ranks("memory", 1, true, |r| {
        let mut memory = NULL;
        let mut handle = NULL;
        // SAFETY: writable outputs; the memory has 1000 bytes.
        unsafe {
            ok(ncclMemAlloc(&mut memory, 1000));
            assert_eq!(memory.addr() % 4096, 0);
            assert_eq!(*memory.cast::<u8>().add(999), 0);
            ok(ncclCommRegister(r.comm.0, memory, 1000, &mut handle));
            ok(ncclCommDeregister(r.comm.0, handle));
            assert_eq!(ncclCommDeregister(r.comm.0, handle), INVALID_ARGUMENT);
            ok(ncclMemFree(memory));
            assert_eq!(ncclMemFree(memory), INVALID_ARGUMENT);
        }
    });
}

#[test]
fn every_code_has_a_text_and_the_version_is_that_of_2_30_7() {
    let mut version = 0;
    // SAFETY: a writable output.
    ok(unsafe { ncclGetVersion(&mut version) });
    assert_eq!((version, VERSION_CODE), (23_007, 23_007));
    for code in -2..12 {
        // SAFETY: a static text.
        let text = unsafe { CStr::from_ptr(ncclGetErrorString(code)) };
        assert!(!text.is_empty());
    }
}

#[test]
fn a_stream_stays_usable_while_its_owner_destroys_it() {
    watched("stream destroy", || {
        let comm = Comm::init(1, unique_id(), 0, true);
        let mut x = vec![1.0_f32; 300_000];
        let stream = Stream::create();
        let at = x.as_mut_ptr().cast();
        // SAFETY: the buffer lives until the communicator has flushed what was launched.
        ok(unsafe { ncclAllReduce(at, at, x.len(), 7, 0, comm.0, stream.raw()) });
        drop(stream);
        comm.destroy();
        assert!(x.iter().all(|x| *x == 1.0));
    });
}
