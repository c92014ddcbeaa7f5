//! Making communicators.

use core::ffi::c_void;

use super::{boundary, need_id, put, read_id};
use crate::abi::{self, CommHandle, NcclUniqueId, ResultCode};
use crate::bootstrap;
use crate::comm::Comm;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::group::{self, LateSlot};
use crate::unique_id::UniqueId;

/// `ncclGetUniqueId`.
///
/// # Safety
/// `id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut NcclUniqueId) -> ResultCode {
    boundary(|| {
        if id.is_null() {
            return Err(Error::argument("the unique id is NULL"));
        }
        // SAFETY: the caller's promise.
        unsafe { put(id, "the unique id", UniqueId::create(0)?.to_bytes()) }?;
        Ok(abi::SUCCESS)
    })
}

/// Stores NULL first, then runs the init, and reports progress of a non-blocking one.
///
/// # Safety
/// As the exported callers.
unsafe fn init(
    newcomm: *mut CommHandle,
    nranks: i32,
    id: Result<UniqueId>,
    rank: i32,
    config: *const c_void,
) -> Result<ResultCode> {
    // SAFETY: the callers' promises.
    let slot = unsafe { LateSlot::from_pointer(newcomm) }?;
    // SAFETY: the callers' promises.
    let config = unsafe { Config::from_pointer(config, &Config::default()) };
    group::within(|group| {
        let place = bootstrap::check_rank(nranks, rank)?;
        bootstrap::init(group, slot, place, id?, config?, 0)
    })
}

/// `ncclCommInitRank`.
///
/// # Safety
/// `newcomm` is NULL or stays writable until the call has completed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    newcomm: *mut CommHandle,
    nranks: i32,
    id: NcclUniqueId,
    rank: i32,
) -> ResultCode {
    // SAFETY: the caller's promise.
    boundary(|| unsafe { init(newcomm, nranks, UniqueId::from_bytes(&id.internal), rank, core::ptr::null()) })
}

/// `ncclCommInitRankConfig`.
///
/// # Safety
/// As [`ncclCommInitRank`]; `config` is NULL or a config as long as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    newcomm: *mut CommHandle,
    nranks: i32,
    id: NcclUniqueId,
    rank: i32,
    config: *const c_void,
) -> ResultCode {
    // SAFETY: the caller's promise.
    boundary(|| unsafe { init(newcomm, nranks, UniqueId::from_bytes(&id.internal), rank, config) })
}

/// `ncclCommInitRankScalable`: the first id is enough here.
///
/// # Safety
/// As [`ncclCommInitRankConfig`]; `ids` is NULL or has `nids` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    newcomm: *mut CommHandle,
    nranks: i32,
    rank: i32,
    nids: i32,
    ids: *const NcclUniqueId,
    config: *const c_void,
) -> ResultCode {
    boundary(|| {
        if nids < 1 || nids > nranks {
            return Err(Error::argument(format!("{nids} unique ids for {nranks} ranks")));
        }
        // SAFETY: the caller's promise: at least one id.
        let id = unsafe { read_id(ids) }.and_then(need_id);
        // SAFETY: the caller's promise.
        unsafe { init(newcomm, nranks, id, rank, config) }
    })
}

/// `ncclCommInitAll`.
///
/// # Safety
/// `comms` has room for `ndev` handles; `devices` is NULL or has `ndev` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(comms: *mut CommHandle, ndev: i32, devices: *const i32) -> ResultCode {
    boundary(|| {
        if comms.is_null() {
            return Err(Error::argument("the array of communicators is NULL"));
        }
        let (nranks, _) = bootstrap::check_rank(ndev, 0)?;
        let list: Vec<i32> = if devices.is_null() {
            (0..ndev).collect()
        } else {
            let mut list = vec![0; nranks as usize];
            // SAFETY: the caller's promise: `nranks` numbers; copied as bytes, so their alignment is free.
            unsafe {
                core::ptr::copy_nonoverlapping(devices.cast::<u8>(), list.as_mut_ptr().cast(), size_of_val(&list[..]));
            }
            list
        };
        if let Some(device) = list.iter().find(|device| **device < 0) {
            return Err(Error::argument(format!("device {device} is negative")));
        }
        let mut sorted = list.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::usage("a device is in the list twice"));
        }
        let id = UniqueId::create(0)?;
        // NCCL's own group here is blocking, whatever the environment says.
        let config = Config { blocking: true, ..Config::default() };
        group::within(|group| {
            for (rank, device) in list.iter().enumerate() {
                // SAFETY: the caller's promise: slots for all ranks.
                let slot = unsafe { LateSlot::from_pointer(comms.wrapping_add(rank)) }?;
                bootstrap::init(group, slot, (nranks, rank as u32), id, config.clone(), *device)?;
            }
            Ok(())
        })
    })
}

/// `ncclCommSplit`.
///
/// # Safety
/// As [`ncclCommInitRankConfig`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    comm: CommHandle,
    color: i32,
    key: i32,
    newcomm: *mut CommHandle,
    config: *const c_void,
) -> ResultCode {
    boundary(|| {
        let parent = Comm::from_handle(comm)?;
        // SAFETY: the caller's promise.
        let slot = unsafe { LateSlot::from_pointer(newcomm) }?;
        // SAFETY: the caller's promise.
        let config = unsafe { Config::from_pointer(config, &parent.config) };
        hide_progress(group::within(|group| bootstrap::split(group, &parent, color, key, slot, config?)))
    })
}

/// NCCL answers success to split, shrink and grow that are still in progress.
fn hide_progress(outcome: Result<ResultCode>) -> Result<ResultCode> {
    outcome.map(|code| if code == abi::IN_PROGRESS { abi::SUCCESS } else { code })
}

/// `ncclCommShrink`. The list is sorted in place, as NCCL does.
///
/// # Safety
/// As [`ncclCommInitRankConfig`]; `excluded` has `count` writable numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommShrink(
    comm: CommHandle,
    excluded: *mut i32,
    count: i32,
    newcomm: *mut CommHandle,
    config: *const c_void,
    flags: i32,
) -> ResultCode {
    boundary(|| {
        let parent = Comm::from_handle(comm)?;
        // SAFETY: the caller's promise.
        let slot = unsafe { LateSlot::from_pointer(newcomm) }?;
        let count = usize::try_from(count).unwrap_or(0);
        if excluded.is_null() || !excluded.is_aligned() || count == 0 || count > abi::MAX_RANKS as usize {
            return Err(Error::argument("the list of excluded ranks is empty, too long or NULL"));
        }
        if flags != abi::SHRINK_DEFAULT && flags != abi::SHRINK_ABORT {
            return Err(Error::argument(format!("shrink flags {flags} are neither default (0) nor abort (1)")));
        }
        // SAFETY: the caller's promise.
        let list = unsafe { core::slice::from_raw_parts_mut(excluded, count) };
        list.sort_unstable();
        // SAFETY: the caller's promise.
        let config = unsafe { Config::from_pointer(config, &parent.config) };
        let abort = flags == abi::SHRINK_ABORT;
        hide_progress(group::within(|group| bootstrap::shrink(group, &parent, list, slot, config?, abort)))
    })
}

/// `ncclCommGetUniqueId`.
///
/// # Safety
/// `id` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetUniqueId(comm: CommHandle, id: *mut NcclUniqueId) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        if id.is_null() {
            return Err(Error::argument("the unique id is NULL"));
        }
        // SAFETY: the caller's promise.
        unsafe { put(id, "the unique id", bootstrap::grow_id(&comm)?.to_bytes()) }?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommGrow`.
///
/// # Safety
/// As [`ncclCommInitRankConfig`]; `id` is NULL or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGrow(
    comm: CommHandle,
    nranks: i32,
    id: *const NcclUniqueId,
    rank: i32,
    newcomm: *mut CommHandle,
    config: *const c_void,
) -> ResultCode {
    boundary(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { LateSlot::from_pointer(newcomm) }?;
        // SAFETY: the caller's promise.
        let id = unsafe { read_id(id) };
        if comm.is_null() {
            // SAFETY: the caller's promise.
            let config = unsafe { Config::from_pointer(config, &Config::default()) };
            let new = |group: &mut _| bootstrap::grow_new(group, nranks, need_id(id?)?, rank, slot, config?);
            return hide_progress(group::within(new));
        }
        let parent = Comm::from_handle(comm)?;
        if rank != -1 {
            return Err(Error::argument(format!("an existing rank passes rank -1 to grow, not {rank}")));
        }
        // SAFETY: the caller's promise.
        let config = unsafe { Config::from_pointer(config, &parent.config) };
        hide_progress(group::within(|group| bootstrap::grow_existing(group, &parent, nranks, id?, slot, config?)))
    })
}

/// `ncclCommInitNewRank` of the original system.
///
/// # Safety
/// As [`ncclCommInitRank`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitNewRank(newcomm: *mut CommHandle, nranks: i32) -> ResultCode {
    boundary(|| {
        // SAFETY: the caller's promise.
        let slot = unsafe { LateSlot::from_pointer(newcomm) }?;
        bootstrap::init_new_rank(slot, nranks)?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommAddNewRank` of the original system.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAddNewRank(comm: CommHandle) -> ResultCode {
    boundary(|| {
        bootstrap::add_new_rank(&Comm::from_handle(comm)?)?;
        Ok(abi::SUCCESS)
    })
}

/// `ncclCommSetupNewRank` of the original system.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommSetupNewRank(comm: CommHandle) -> ResultCode {
    boundary(|| {
        let comm = Comm::from_handle(comm)?;
        group::within(|group| bootstrap::setup_new_rank(group, &comm))
    })
}
