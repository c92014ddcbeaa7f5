//! Unique ids and communicators. What can be done with one stands in the generated requests.

use core::ffi::c_char;

use journal_core::handle::VirtualHandle;
use journal_core::nccl::CommConfig;
use journal_core::nccl::clique::VirtualUniqueId;

use crate::argument::{Out, Versioned, copied, optional_text, options};
use crate::boundary::{Failure, Result, boundary};
use crate::handle::rejoin_handle;
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;

/// Names a communicator that is to be made; stays good when its maker dies. Copied by value, sent by any way.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_unique_id {
    /// Opaque.
    pub bytes: [u8; 128],
}

/// Element types, with the numbers of ncclDataType_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum rejoin_data_type {
    Int8 = 0,
    Uint8 = 1,
    Int32 = 2,
    Uint32 = 3,
    Int64 = 4,
    Uint64 = 5,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
    Float8e4m3 = 10,
    Float8e5m2 = 11,
}

/// Reduction operators, with the numbers of ncclRedOp_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum rejoin_reduce_op {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
    Avg = 4,
}

/// A field of rejoin_comm_config that is left to NCCL.
pub const REJOIN_UNDEFINED: i32 = i32::MIN;

/// What may be chosen for a communicator. Initialise it with REJOIN_COMM_CONFIG_INIT.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct rejoin_comm_config {
    /// Of this struct.
    pub size: u32,
    /// Of this struct.
    pub version: u32,
    /// Thread blocks in a cluster, or REJOIN_UNDEFINED.
    pub cga_cluster_size: i32,
    /// Fewest thread blocks, or REJOIN_UNDEFINED.
    pub min_ctas: i32,
    /// Most thread blocks, or REJOIN_UNDEFINED.
    pub max_ctas: i32,
    /// 0.
    pub reserved: u32,
    /// Network plugin, at most 64 bytes; NULL: NCCL's choice.
    pub net_name: *const c_char,
    /// Name in logs, at most 64 bytes; may be NULL.
    pub comm_name: *const c_char,
}

// SAFETY: numbers and pointers only, head first.
unsafe impl Versioned for rejoin_comm_config {
    const NAME: &'static str = "rejoin_comm_config";

    fn defaults() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: 1,
            cga_cluster_size: REJOIN_UNDEFINED,
            min_ctas: REJOIN_UNDEFINED,
            max_ctas: REJOIN_UNDEFINED,
            reserved: 0,
            net_name: core::ptr::null(),
            comm_name: core::ptr::null(),
        }
    }
}

/// A configuration of C; NULL is the default one.
///
/// # Safety
/// `config` is NULL or leads to a struct of at least its own size, with NULL or terminated strings.
pub unsafe fn config(config: *const rejoin_comm_config) -> Result<CommConfig> {
    if config.is_null() {
        return Ok(CommConfig::default());
    }
    // SAFETY: passed on to the caller.
    let given = unsafe { options(config, "config") }?;
    // SAFETY: passed on to the caller.
    let net_name = unsafe { optional_text(given.net_name, "config.net_name") }?;
    // SAFETY: passed on to the caller.
    let comm_name = unsafe { optional_text(given.comm_name, "config.comm_name") }?;
    for (name, text) in [("net_name", net_name), ("comm_name", comm_name)] {
        if let Some(text) = text.filter(|text| text.len() > 64) {
            return Err(Failure::invalid(format!("config.{name} has {} bytes, at most 64", text.len())));
        }
    }
    let defined = |value: i32| (value != REJOIN_UNDEFINED).then_some(value);
    Ok(CommConfig {
        cga_cluster_size: defined(given.cga_cluster_size),
        min_ctas: defined(given.min_ctas),
        max_ctas: defined(given.max_ctas),
        net_name: net_name.map(str::to_owned),
        comm_name: comm_name.map(str::to_owned),
    })
}

/**
 * ncclGetUniqueId: makes an id on one rank. Hand it to the others, by rejoin_exchange_publish() for instance.
 * A replacement that asks again in the same order gets the same one.
 *
 * @param session  in set-up
 * @param out_id   set on OK
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE; REJOIN_STATUS_NULL_ARGUMENT
 * Threads: any, concurrently; the order must be the same in every incarnation.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_get_unique_id(session: *const rejoin_session, out_id: *mut rejoin_unique_id) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_id, "out_id") }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        out.set(rejoin_unique_id { bytes: object.session.nccl_unique_id()?.0 });
        Ok(())
    })
}

/**
 * ncclCommInitRank: makes a communicator together with its other ranks. In set-up.
 *
 * @param session   in set-up
 * @param nranks    ranks of the communicator
 * @param id        of one of this job's rejoin_get_unique_id(); copied
 * @param rank      this process's rank in the communicator
 * @param out_comm  set on OK: a virtual handle, good for the life of the job
 * @return REJOIN_STATUS_OK; REJOIN_STATUS_WRONG_STATE (after set-up); REJOIN_STATUS_INVALID_ARGUMENT;
 *         REJOIN_STATUS_TIMEOUT; REJOIN_STATUS_NCCL; REJOIN_STATUS_MISMATCH (a replacement asks for
 *         something else than its predecessor); REJOIN_STATUS_NULL_ARGUMENT
 * Threads: one at a time; waits for the other ranks, at most options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_init_rank(
    session: *const rejoin_session,
    nranks: u32,
    id: *const rejoin_unique_id,
    rank: u32,
    out_comm: *mut rejoin_handle,
) -> rejoin_status {
    // SAFETY: pointers of C, as the header says.
    unsafe { rejoin_comm_init_rank_config(session, nranks, id, rank, core::ptr::null(), out_comm) }
}

/**
 * ncclCommInitRankConfig: as rejoin_comm_init_rank(), with a configuration.
 *
 * @param session   in set-up
 * @param nranks    ranks of the communicator
 * @param id        of one of this job's rejoin_get_unique_id(); copied
 * @param rank      this process's rank in the communicator
 * @param config    copied; NULL: the default
 * @param out_comm  set on OK
 * @return as rejoin_comm_init_rank(); REJOIN_STATUS_VERSION (config sets a field of a newer header)
 * Threads: one at a time; waits for the other ranks, at most options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_init_rank_config(
    session: *const rejoin_session,
    nranks: u32,
    id: *const rejoin_unique_id,
    rank: u32,
    config: *const rejoin_comm_config,
    out_comm: *mut rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_comm, "out_comm") }?;
        // SAFETY: a pointer of C, as the header says.
        let id = unsafe { copied(id, "id") }?;
        // SAFETY: a pointer of C, as the header says.
        let config = unsafe { self::config(config) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        out.set(object.session.comm_init_rank(nranks, &VirtualUniqueId(id.bytes), rank, &config)?.0);
        Ok(())
    })
}

/**
 * ncclCommSplit: divides a communicator by color. In set-up, on all its ranks.
 *
 * @param session   in set-up
 * @param comm      to be divided; stays
 * @param color     ranks of one color form a communicator; negative: this rank is in none
 * @param key       orders the ranks of a color
 * @param config    copied; NULL: the parent's
 * @param out_comm  set on OK; 0 for a negative color
 * @return as rejoin_comm_init_rank(); REJOIN_STATUS_STALE_HANDLE
 * Threads: one at a time; waits for the other ranks, at most options.peer_timeout_ms.
 */
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rejoin_comm_split(
    session: *const rejoin_session,
    comm: rejoin_handle,
    color: i32,
    key: i32,
    config: *const rejoin_comm_config,
    out_comm: *mut rejoin_handle,
) -> rejoin_status {
    boundary(|| {
        // SAFETY: a pointer of C, as the header says.
        let out = unsafe { Out::new(out_comm, "out_comm") }?;
        // SAFETY: a pointer of C, as the header says.
        let config = unsafe { self::config(config) }?;
        // SAFETY: a pointer of C, as the header says.
        let object = unsafe { enter(session) }?;
        let made = object.session.comm_split(VirtualHandle(comm), color, key, &config)?;
        out.set(made.map_or(0, |handle| handle.0));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal_core::request::argument::{DATA_TYPES, REDUCE_OPERATORS};

    #[test]
    fn numbers_are_nccls() {
        use rejoin_data_type::*;
        let types = [Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16, Float8e4m3, Float8e5m2];
        assert_eq!(types.map(|ty| DATA_TYPES[ty as usize].to_owned()), types.map(|ty| format!("{ty:?}").to_lowercase()));
        use rejoin_reduce_op::*;
        let operators = [Sum, Prod, Max, Min, Avg];
        assert_eq!(operators.map(|op| REDUCE_OPERATORS[op as usize].to_owned()), operators.map(|op| format!("{op:?}").to_lowercase()));
    }
}
