//! One real communicator, always non-blocking.

use core::ffi::{c_int, c_void};
use cudarc::nccl::sys::{ncclComm_t, ncclUniqueId};
use std::sync::Arc;

use super::config::NativeConfig;
use super::library::{IN_PROGRESS, NcclLibrary, SUCCESS};
use super::{CommConfig, NcclError, UNIQUE_ID_BYTES};
use crate::backend::DevicePtr;

/// Where a non-blocking communicator stands (`ncclCommGetAsyncError`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The last call has finished; another may follow.
    Ready,
    /// The last call is still under way.
    InProgress,
    /// It failed, and stays so.
    Failed(NcclError),
}

/// A communicator of NCCL. Dropping it does nothing: only recovery and teardown decide how it ends,
/// and a process that exits leaks it (an abort on an exit path can hang, or poison healthy peers).
pub struct RealCommunicator {
    library: Arc<NcclLibrary>,
    raw: ncclComm_t,
    // NCCL keeps pointers into it for the life of the communicator.
    _config: NativeConfig,
    // Late writes of split and shrink go here; it must not move.
    slot: Box<ncclComm_t>,
    // Its creation is polled on the parent until the late write has come.
    parent: Option<ncclComm_t>,
}

// SAFETY: an ncclComm_t may be used from any thread, one at a time; the gate and recovery see to that.
unsafe impl Send for RealCommunicator {}
// SAFETY: methods that use it concurrently (`progress`, `abort`) are those NCCL allows on a non-blocking one.
unsafe impl Sync for RealCommunicator {}

/// One collective or point-to-point call with resolved arguments. Pointers are device addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Collective {
    AllReduce { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32, op: i32 },
    Broadcast { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32, root: i32 },
    Bcast { buffer: DevicePtr, count: u64, datatype: i32, root: i32 },
    Reduce { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32, op: i32, root: i32 },
    AllGather { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32 },
    ReduceScatter { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32, op: i32 },
    AllToAll { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32 },
    Gather { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32, root: i32 },
    Scatter { send: DevicePtr, recv: DevicePtr, count: u64, datatype: i32, root: i32 },
    Send { buffer: DevicePtr, count: u64, datatype: i32, peer: i32 },
    Recv { buffer: DevicePtr, count: u64, datatype: i32, peer: i32 },
}

/// Which side of the new-rank calls this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewRank {
    /// The rank that joins, with the size after it has joined.
    Joins(i32),
    /// A rank that is there already.
    Adds,
}

fn native_id(bytes: &[u8; UNIQUE_ID_BYTES]) -> ncclUniqueId {
    ncclUniqueId { internal: bytes.map(|b| b as core::ffi::c_char) }
}

impl NcclLibrary {
    /// `ncclGetUniqueId`: a real id, good for one initialisation.
    pub fn unique_id(&self) -> Result<[u8; UNIQUE_ID_BYTES], NcclError> {
        let mut id = native_id(&[0; UNIQUE_ID_BYTES]);
        // SAFETY: writes 128 bytes to `id`.
        self.check(unsafe { self.get_unique_id(&raw mut id) }?)?;
        Ok(id.internal.map(|b| b as u8))
    }

    /// `ncclGroupStart` of this thread.
    pub fn start_group(&self) -> Result<(), NcclError> {
        // SAFETY: no arguments.
        self.check(unsafe { self.group_start() }?)
    }

    /// `ncclGroupEnd` of this thread.
    pub fn end_group(&self) -> Result<(), NcclError> {
        // SAFETY: no arguments.
        self.check(unsafe { self.group_end() }?)
    }

    /// Where the three new-rank calls meet (host-nccl only); for the calls of this thread that follow.
    pub fn set_new_rank_rendezvous(&self, id: &[u8; UNIQUE_ID_BYTES]) -> Result<(), NcclError> {
        let id = native_id(id);
        // SAFETY: reads 128 bytes.
        self.check(unsafe { self.host_set_new_rank_rendezvous(&raw const id) }?)
    }
}

impl RealCommunicator {
    fn start(library: &Arc<NcclLibrary>, config: &CommConfig) -> Self {
        Self {
            library: library.clone(),
            raw: core::ptr::null_mut(),
            _config: config.to_native(library.version()),
            slot: Box::new(core::ptr::null_mut()),
            parent: None,
        }
    }

    /// `ncclCommInitRankConfig`. Poll [`Self::progress`] until it is ready.
    pub fn init_rank(
        library: &Arc<NcclLibrary>,
        nranks: i32,
        id: &[u8; UNIQUE_ID_BYTES],
        rank: i32,
        config: &CommConfig,
    ) -> Result<Self, NcclError> {
        let mut new = Self::start(library, config);
        let native = new._config.as_mut_ptr();
        // SAFETY: the slot and the configuration live in `new`, which owns them on the heap.
        let result = unsafe { library.comm_init_rank_config(&raw mut *new.slot, nranks, native_id(id), rank, native) }?;
        library.check(result)?;
        new.raw = *new.slot;
        Ok(new)
    }

    /// `ncclCommSplit`; `None` for a negative color (this rank is in no part).
    pub fn split(&self, color: i32, key: i32, config: &CommConfig) -> Result<Option<Self>, NcclError> {
        let mut new = Self::start(&self.library, config);
        new.parent = Some(self.raw);
        let native = new._config.as_mut_ptr();
        // SAFETY: as in `init_rank`; `self.raw` is live.
        let result = unsafe { self.library.comm_split(self.raw, color, key, &raw mut *new.slot, native) }?;
        self.library.check(result)?;
        Ok((color >= 0).then_some(new))
    }

    /// `ncclCommShrink`: without `exclude` (communicator ranks, distinct, below the size). With `abort`
    /// outstanding work is ended first.
    pub fn shrink(&self, exclude: &[i32], abort: bool, config: &CommConfig) -> Result<Self, NcclError> {
        let mut new = Self::start(&self.library, config);
        new.parent = Some(self.raw);
        let native = new._config.as_mut_ptr();
        let mut list: Vec<c_int> = exclude.to_vec();
        let count = c_int::try_from(list.len()).unwrap_or(c_int::MAX);
        // SAFETY: NCCL sorts the list in place before it returns; the rest as in `init_rank`.
        let result = unsafe {
            self.library.comm_shrink(self.raw, list.as_mut_ptr(), count, &raw mut *new.slot, native, c_int::from(abort))
        }?;
        self.library.check(result)?;
        Ok(new)
    }

    /// `ncclCommGetUniqueId`: the id that a following grow of this communicator uses. One rank only.
    pub fn grow_id(&self) -> Result<[u8; UNIQUE_ID_BYTES], NcclError> {
        let mut id = native_id(&[0; UNIQUE_ID_BYTES]);
        // SAFETY: writes 128 bytes; `self.raw` is live.
        self.library.check(unsafe { self.library.comm_get_unique_id(self.raw, &raw mut id) }?)?;
        Ok(id.internal.map(|b| b as u8))
    }

    /// `ncclCommGrow` on a rank that is in `self`; the coordinator passes the id it made.
    pub fn grow(&self, nranks: i32, id: Option<&[u8; UNIQUE_ID_BYTES]>, config: &CommConfig) -> Result<Self, NcclError> {
        let mut new = Self::start(&self.library, config);
        let native = new._config.as_mut_ptr();
        let id = id.map(native_id);
        let pointer = id.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: as in `init_rank`; the id is read before the call returns.
        let result = unsafe { self.library.comm_grow(self.raw, nranks, pointer, -1, &raw mut *new.slot, native) }?;
        self.library.check(result)?;
        new.raw = *new.slot;
        Ok(new)
    }

    /// `ncclCommGrow` on the rank that joins.
    pub fn join_grow(
        library: &Arc<NcclLibrary>,
        nranks: i32,
        id: &[u8; UNIQUE_ID_BYTES],
        rank: i32,
        config: &CommConfig,
    ) -> Result<Self, NcclError> {
        let mut new = Self::start(library, config);
        let native = new._config.as_mut_ptr();
        let id = native_id(id);
        // SAFETY: as in `init_rank`; a NULL communicator marks the joining rank.
        let result = unsafe {
            library.comm_grow(core::ptr::null_mut(), nranks, &raw const id, rank, &raw mut *new.slot, native)
        }?;
        library.check(result)?;
        new.raw = *new.slot;
        Ok(new)
    }

    /// `ncclCommInitNewRank` of the joining rank.
    pub fn init_new_rank(library: &Arc<NcclLibrary>, nranks: i32, config: &CommConfig) -> Result<Self, NcclError> {
        let mut new = Self::start(library, config);
        // SAFETY: the slot lives in `new`.
        library.check(unsafe { library.comm_init_new_rank(&raw mut *new.slot, nranks) }?)?;
        new.raw = *new.slot;
        Ok(new)
    }

    /// `ncclCommAddNewRank` of a rank that is there already.
    pub fn add_new_rank(&self) -> Result<(), NcclError> {
        // SAFETY: `self.raw` is live.
        self.library.check(unsafe { self.library.comm_add_new_rank(self.raw) }?)
    }

    /// `ncclCommSetupNewRank` of all ranks.
    pub fn setup_new_rank(&self) -> Result<(), NcclError> {
        // SAFETY: `self.raw` is live.
        self.library.check(unsafe { self.library.comm_setup_new_rank(self.raw) }?)
    }

    /// Whether the last call has finished. Takes up the late write of a split or shrink.
    pub fn progress(&mut self) -> Progress {
        if self.raw.is_null() {
            // The late write is made by NCCL's thread before the parent leaves ncclInProgress.
            let parent = self.parent.expect("only split and shrink write late");
            match self.state_of(parent) {
                Progress::Ready => {}
                other => return other,
            }
            // SAFETY: the slot is ours and no longer written once the parent is ready.
            self.raw = unsafe { core::ptr::read_volatile(&raw const *self.slot) };
            if self.raw.is_null() {
                return Progress::InProgress;
            }
        }
        self.state_of(self.raw)
    }

    /// [`Self::progress`] of a communicator that has been ready once.
    pub fn state(&self) -> Progress {
        self.state_of(self.raw)
    }

    fn state_of(&self, comm: ncclComm_t) -> Progress {
        let mut code = SUCCESS;
        // SAFETY: the communicator is live; writes one int.
        let result = match unsafe { self.library.comm_get_async_error(comm, &raw mut code) } {
            Ok(result) => result,
            Err(error) => return Progress::Failed(error),
        };
        if let Err(error) = self.library.check(result) {
            return Progress::Failed(error);
        }
        match code {
            SUCCESS => Progress::Ready,
            IN_PROGRESS => Progress::InProgress,
            code => Progress::Failed(NcclError::Call {
                call: "ncclCommGetAsyncError",
                code,
                text: self.library.error_text(code),
            }),
        }
    }

    /// `ncclCommUserRank`.
    pub fn user_rank(&self) -> Result<i32, NcclError> {
        let mut rank = -1;
        // SAFETY: live communicator; writes one int.
        self.library.check(unsafe { self.library.comm_user_rank(self.raw, &raw mut rank) }?)?;
        Ok(rank)
    }

    /// `ncclCommCount`.
    pub fn count(&self) -> Result<i32, NcclError> {
        let mut count = 0;
        // SAFETY: live communicator; writes one int.
        self.library.check(unsafe { self.library.comm_count(self.raw, &raw mut count) }?)?;
        Ok(count)
    }

    /// `ncclCommRevoke`. Poll [`Self::state`] until it is ready before anything else.
    pub fn revoke(&self) -> Result<(), NcclError> {
        // SAFETY: live communicator.
        self.library.check(unsafe { self.library.comm_revoke(self.raw, 0) }?)
    }

    /// `ncclCommAbort`; the communicator is gone afterwards. After the job was told, never before.
    pub fn abort(self) -> Result<(), NcclError> {
        if self.raw.is_null() {
            return Ok(());
        }
        // SAFETY: live communicator, consumed here.
        self.library.check(unsafe { self.library.comm_abort(self.raw) }?)
    }

    /// `ncclCommRegister`.
    pub fn register(&self, buffer: DevicePtr, bytes: u64) -> Result<u64, NcclError> {
        let mut handle = core::ptr::null_mut();
        // SAFETY: live communicator; the library checks the range; writes one pointer.
        self.library.check(unsafe {
            self.library.comm_register(self.raw, buffer.0 as *mut c_void, bytes as usize, &raw mut handle)
        }?)?;
        Ok(handle as u64)
    }

    /// `ncclCommDeregister`.
    pub fn deregister(&self, handle: u64) -> Result<(), NcclError> {
        // SAFETY: live communicator and a handle of its own.
        self.library.check(unsafe { self.library.comm_deregister(self.raw, handle as *mut c_void) }?)
    }

    /// `ncclRedOpCreatePreMulSum` with a scalar in host memory.
    pub fn create_pre_mul_sum(&self, scalar: &[u8], datatype: i32) -> Result<i32, NcclError> {
        let mut op = 0;
        let mut scalar = scalar.to_vec();
        // SAFETY: live communicator; residence 1 (ncclScalarHostImmediate) reads the scalar before it returns.
        self.library.check(unsafe {
            self.library.red_op_create_pre_mul_sum(&raw mut op, scalar.as_mut_ptr().cast(), datatype, 1, self.raw)
        }?)?;
        Ok(op)
    }

    /// `ncclRedOpDestroy`.
    pub fn destroy_red_op(&self, op: i32) -> Result<(), NcclError> {
        // SAFETY: live communicator.
        self.library.check(unsafe { self.library.red_op_destroy(op, self.raw) }?)
    }

    // The stream pointer is the device's own; NCCL gets it as it is.
    // Of the calls in the block one runs, and all have the same contract.
    #[allow(clippy::not_unsafe_ptr_arg_deref, clippy::multiple_unsafe_ops_per_block)]
    /// Enqueues one collective on `stream` (as [`crate::backend::Device::stream_native`] gave it).
    pub fn enqueue(&self, call: Collective, stream: *mut c_void) -> Result<(), NcclError> {
        let (lib, comm) = (&self.library, self.raw);
        let c = |p: DevicePtr| p.0 as *const c_void;
        let m = |p: DevicePtr| p.0 as *mut c_void;
        let n = |count: u64| count as usize;
        // SAFETY: one call; the communicator is live, device ranges and the stream belong to this device.
        // What NCCL does not check (sizes beyond the buffers) is undefined for it as without Rejoin.
        let result = unsafe {
            match call {
                Collective::AllReduce { send, recv, count, datatype, op } => {
                    lib.all_reduce(c(send), m(recv), n(count), datatype, op, comm, stream)
                }
                Collective::Broadcast { send, recv, count, datatype, root } => {
                    lib.broadcast(c(send), m(recv), n(count), datatype, root, comm, stream)
                }
                Collective::Bcast { buffer, count, datatype, root } => {
                    lib.bcast(m(buffer), n(count), datatype, root, comm, stream)
                }
                Collective::Reduce { send, recv, count, datatype, op, root } => {
                    lib.reduce(c(send), m(recv), n(count), datatype, op, root, comm, stream)
                }
                Collective::AllGather { send, recv, count, datatype } => {
                    lib.all_gather(c(send), m(recv), n(count), datatype, comm, stream)
                }
                Collective::ReduceScatter { send, recv, count, datatype, op } => {
                    lib.reduce_scatter(c(send), m(recv), n(count), datatype, op, comm, stream)
                }
                Collective::AllToAll { send, recv, count, datatype } => {
                    lib.all_to_all(c(send), m(recv), n(count), datatype, comm, stream)
                }
                Collective::Gather { send, recv, count, datatype, root } => {
                    lib.gather(c(send), m(recv), n(count), datatype, root, comm, stream)
                }
                Collective::Scatter { send, recv, count, datatype, root } => {
                    lib.scatter(c(send), m(recv), n(count), datatype, root, comm, stream)
                }
                Collective::Send { buffer, count, datatype, peer } => {
                    lib.send(c(buffer), n(count), datatype, peer, comm, stream)
                }
                Collective::Recv { buffer, count, datatype, peer } => {
                    lib.recv(m(buffer), n(count), datatype, peer, comm, stream)
                }
            }
        }?;
        lib.check(result)
    }
}
