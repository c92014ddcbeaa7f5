//! NCCL reached through its C ABI: a library loaded by path and its functions as a table.
//!
//! Which calls exist depends on the version (shrink 2.27.3, revoke 2.28.7, grow 2.29.2), so those entries
//! are optional and asking for a missing one is a typed error. Results stay `i32`: the set of codes grows.

use core::ffi::{CStr, c_char, c_int, c_void};
use cudarc::nccl::sys::{ncclComm_t, ncclUniqueId};
use std::path::{Path, PathBuf};

use super::NcclError;

/// Oldest library that recovery trusts: abort from a second thread hangs before it (NVIDIA/nccl#992).
pub const OLDEST_VERSION: i32 = 21901;

type Comm = ncclComm_t;

macro_rules! table {
    ($($(#[$doc:meta])* $field:ident $symbol:literal $presence:ident ($($arg:ident : $ty:ty),*);)*) => {
        /// Entry points of one loaded library.
        struct Table { $($field: entry_type!($presence, unsafe extern "C" fn($($ty),*) -> c_int),)* }

        impl Table {
            fn load(library: &libloading::Library, path: &Path) -> Result<Self, NcclError> {
                Ok(Self { $($field: {
                    // SAFETY: the symbol has this signature in nccl.h of every version that exports it.
                    let found = unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> c_int>(concat!($symbol, "\0").as_bytes()) };
                    entry_load!($presence, found, path, $symbol)
                },)* })
            }
        }

        impl NcclLibrary {
            $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The arguments satisfy the contract of the NCCL function: live communicators of this library,
            /// pointers valid as NCCL documents them.
            // As many as NCCL's function has.
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $field(&self, $($arg: $ty),*) -> Result<NcclResult, NcclError> {
                let function = entry_get!($presence, self.table.$field, self, $symbol);
                // SAFETY: passed on to the caller.
                let code = unsafe { function($($arg),*) };
                Ok(NcclResult { call: $symbol, code })
            }
            )*
        }
    };
}
macro_rules! entry_type {
    (required, $f:ty) => { $f };
    (optional, $f:ty) => { Option<$f> };
}
macro_rules! entry_load {
    (required, $found:expr, $path:expr, $symbol:literal) => {
        *$found.map_err(|_| NcclError::MissingFunction { library: $path.to_path_buf(), function: $symbol, version: 0 })?
    };
    (optional, $found:expr, $path:expr, $symbol:literal) => { $found.ok().map(|f| *f) };
}
macro_rules! entry_get {
    (required, $entry:expr, $this:expr, $symbol:literal) => { $entry };
    (optional, $entry:expr, $this:expr, $symbol:literal) => {
        $entry.ok_or_else(|| NcclError::MissingFunction {
            library: $this.path.clone(), function: $symbol, version: $this.version })?
    };
}

table! {
    /// `ncclGetUniqueId`
    get_unique_id "ncclGetUniqueId" required (id: *mut ncclUniqueId);
    /// `ncclCommInitRankConfig`
    comm_init_rank_config "ncclCommInitRankConfig" required (comm: *mut Comm, nranks: c_int, id: ncclUniqueId, rank: c_int, config: *mut c_void);
    /// `ncclCommSplit`
    comm_split "ncclCommSplit" required (comm: Comm, color: c_int, key: c_int, new: *mut Comm, config: *mut c_void);
    /// `ncclCommShrink`
    comm_shrink "ncclCommShrink" optional (comm: Comm, exclude: *mut c_int, count: c_int, new: *mut Comm, config: *mut c_void, flags: c_int);
    /// `ncclCommRevoke`
    comm_revoke "ncclCommRevoke" optional (comm: Comm, flags: c_int);
    /// `ncclCommGetUniqueId`
    comm_get_unique_id "ncclCommGetUniqueId" optional (comm: Comm, id: *mut ncclUniqueId);
    /// `ncclCommGrow`
    comm_grow "ncclCommGrow" optional (comm: Comm, nranks: c_int, id: *const ncclUniqueId, rank: c_int, new: *mut Comm, config: *mut c_void);
    /// `ncclCommInitNewRank`, the original system's call; host-nccl only so far.
    comm_init_new_rank "ncclCommInitNewRank" optional (new: *mut Comm, nranks: c_int);
    /// `ncclCommAddNewRank`
    comm_add_new_rank "ncclCommAddNewRank" optional (comm: Comm);
    /// `ncclCommSetupNewRank`
    comm_setup_new_rank "ncclCommSetupNewRank" optional (comm: Comm);
    /// Where the three new-rank calls meet; host-nccl only.
    host_set_new_rank_rendezvous "ncclHostSetNewRankRendezvous" optional (id: *const ncclUniqueId);
    // ncclCommDestroy and ncclCommFinalize are left out on purpose: after a death both hang or poison peers, so
    // no code path of Rejoin may reach them. Communicators end by abort, or with their process.
    /// `ncclCommAbort`
    comm_abort "ncclCommAbort" required (comm: Comm);
    /// `ncclCommGetAsyncError`
    comm_get_async_error "ncclCommGetAsyncError" required (comm: Comm, state: *mut c_int);
    /// `ncclCommCount`
    comm_count "ncclCommCount" required (comm: Comm, count: *mut c_int);
    /// `ncclCommCuDevice`
    comm_cu_device "ncclCommCuDevice" required (comm: Comm, device: *mut c_int);
    /// `ncclCommUserRank`
    comm_user_rank "ncclCommUserRank" required (comm: Comm, rank: *mut c_int);
    /// `ncclCommRegister`
    comm_register "ncclCommRegister" optional (comm: Comm, buffer: *mut c_void, bytes: usize, handle: *mut *mut c_void);
    /// `ncclCommDeregister`
    comm_deregister "ncclCommDeregister" optional (comm: Comm, handle: *mut c_void);
    /// `ncclRedOpCreatePreMulSum`
    red_op_create_pre_mul_sum "ncclRedOpCreatePreMulSum" required (op: *mut c_int, scalar: *mut c_void, datatype: c_int, residence: c_int, comm: Comm);
    /// `ncclRedOpDestroy`
    red_op_destroy "ncclRedOpDestroy" required (op: c_int, comm: Comm);
    /// `ncclReduce`
    reduce "ncclReduce" required (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclBcast`
    bcast "ncclBcast" required (buffer: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclBroadcast`
    broadcast "ncclBroadcast" required (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclAllReduce`
    all_reduce "ncclAllReduce" required (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclReduceScatter`
    reduce_scatter "ncclReduceScatter" required (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclAllGather`
    all_gather "ncclAllGather" required (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclAlltoAll`
    all_to_all "ncclAlltoAll" optional (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclGather`
    gather "ncclGather" optional (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclScatter`
    scatter "ncclScatter" optional (send: *const c_void, recv: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclSend`
    send "ncclSend" required (buffer: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclRecv`
    recv "ncclRecv" required (buffer: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: Comm, stream: *mut c_void);
    /// `ncclGroupStart`
    group_start "ncclGroupStart" required ();
    /// `ncclGroupEnd`
    group_end "ncclGroupEnd" required ();
}

/// What an NCCL call returned, with its name for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct NcclResult {
    /// The function.
    pub call: &'static str,
    /// `ncclResult_t`.
    pub code: i32,
}

/// `ncclSuccess`
pub const SUCCESS: i32 = 0;
/// `ncclInProgress`
pub const IN_PROGRESS: i32 = 7;

/// A loaded NCCL. Never unloaded: its threads outlive any communicator.
pub struct NcclLibrary {
    table: Table,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    path: PathBuf,
    version: i32,
}

impl core::fmt::Debug for NcclLibrary {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "NCCL {} at {}", self.version_text(), self.path.display())
    }
}

impl NcclLibrary {
    /// Loads `path` (a file, or a soname for the loader's search) and checks its version.
    pub fn load(path: &Path) -> Result<Self, NcclError> {
        // SAFETY: running the library's initialisers is what the caller asks for by naming it.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|e| NcclError::Library { library: path.to_path_buf(), reason: e.to_string() })?;
        // SAFETY: signature of ncclGetVersion in every nccl.h.
        let get_version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0") }
            .map_err(|_| NcclError::MissingFunction { library: path.to_path_buf(), function: "ncclGetVersion", version: 0 })?;
        let mut version = 0;
        // SAFETY: writes one int.
        unsafe { get_version(&raw mut version) };
        if version < OLDEST_VERSION {
            return Err(NcclError::TooOld { library: path.to_path_buf(), found: version, oldest: OLDEST_VERSION });
        }
        if (22500..22600).contains(&version) {
            tracing::warn!(version, "NCCL 2.25.x hangs in ncclCommAbort (pytorch/pytorch#149153); use another version");
        }
        // SAFETY: signature of ncclGetErrorString in every nccl.h.
        let error_string = *unsafe { library.get::<unsafe extern "C" fn(c_int) -> *const c_char>(b"ncclGetErrorString\0") }
            .map_err(|_| NcclError::MissingFunction { library: path.to_path_buf(), function: "ncclGetErrorString", version })?;
        let table = Table::load(&library, path)?;
        core::mem::forget(library);
        Ok(Self { table, error_string, path: path.to_path_buf(), version })
    }

    /// As `ncclGetVersion` gives it, for instance 23007.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// For people, for instance "2.30.7".
    pub fn version_text(&self) -> String {
        format!("{}.{}.{}", self.version / 10_000, self.version / 100 % 100, self.version % 100)
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shrink and grow exist.
    pub fn can_grow(&self) -> bool {
        self.table.comm_shrink.is_some() && self.table.comm_grow.is_some() && self.table.comm_get_unique_id.is_some()
    }

    /// Revoke exists.
    pub fn can_revoke(&self) -> bool {
        self.table.comm_revoke.is_some()
    }

    /// The three new-rank calls and their rendezvous exist.
    pub fn can_new_rank(&self) -> bool {
        self.table.comm_shrink.is_some()
            && self.table.comm_init_new_rank.is_some()
            && self.table.comm_add_new_rank.is_some()
            && self.table.comm_setup_new_rank.is_some()
            && self.table.host_set_new_rank_rendezvous.is_some()
    }

    /// `ncclGetErrorString`.
    pub fn error_text(&self, code: i32) -> String {
        // SAFETY: any int is accepted.
        let text = unsafe { (self.error_string)(code) };
        if text.is_null() {
            return format!("result {code}");
        }
        // SAFETY: a constant NUL-terminated string of the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// An error unless the call succeeded (or, on a non-blocking communicator, is in progress).
    pub fn check(&self, result: NcclResult) -> Result<(), NcclError> {
        match result.code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(NcclError::Call { call: result.call, code, text: self.error_text(code) }),
        }
    }
}

/// Path of the NCCL to load: as asked for, else `libnccl.so.2` by the loader's search; for the host backend
/// `librejoin_host_nccl.so` beside the program, in its `deps` folder, or in `../lib`.
pub fn locate(asked: Option<&Path>, backend: crate::backend::BackendKind) -> PathBuf {
    if let Some(path) = asked {
        return path.to_path_buf();
    }
    match backend {
        crate::backend::BackendKind::Cuda => PathBuf::from("libnccl.so.2"),
        crate::backend::BackendKind::Host => find_companion("librejoin_host_nccl.so").unwrap_or_else(|| "librejoin_host_nccl.so".into()),
    }
}

/// A shared object that is shipped with the program: beside it, in `deps`, or in `../lib`.
pub fn find_companion(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?;
    [beside.join(name), beside.join("deps").join(name), beside.join("../lib").join(name), beside.join("..").join(name)]
        .into_iter()
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    /// After a shrink with the abort flag ncclCommDestroy hangs on NCCL 2.31.2 and newer (pytorch/pytorch#194679).
    #[test]
    fn no_communicator_can_be_destroyed_or_finalized() {
        let table = include_str!("library.rs").split("#[cfg(test)]").next().expect("the code above");
        let entries: Vec<&str> = table.lines().filter(|line| line.contains("required (") || line.contains("optional (")).collect();
        assert!(entries.len() > 30, "the table is found: {}", entries.len());
        for call in ["\"ncclCommDestroy\"", "\"ncclCommFinalize\""] {
            assert!(entries.iter().all(|entry| !entry.contains(call)), "{call} is in the function table");
        }
    }
}
