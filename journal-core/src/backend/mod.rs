//! The library behind the agent: device memory, streams, events, modules, launches.
//!
//! Calls only enqueue; nothing here waits for a stream, so that a caller can poll completion together
//! with the job's epoch (a wait inside the gate would wait for what only recovery releases).

#[allow(unsafe_code)]
pub mod cuda;
#[allow(unsafe_code)]
pub mod host;
mod foreign;
mod placement;
mod suballocator;

pub use placement::WINDOW_BASE;

use core::ffi::c_void;
use std::time::Duration;

/// Which implementation of [`Device`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// CPU memory and host-nccl.
    Host,
    /// The CUDA driver API.
    Cuda,
}

/// Stream flag: no order with the default stream (`CU_STREAM_NON_BLOCKING`).
pub const STREAM_NON_BLOCKING: u32 = 1;

/// An address in a device's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePtr(pub u64);

/// The backend's own object behind a virtual handle: a `CUstream`, a `HostStream*`, an event, a module,
/// a function. 0 as a stream is the default stream. Never recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RealHandle(pub u64);

/// The reserved range that all allocations of a device come from; the same in every incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First address.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// One copy. Host ranges must stay valid until the copy has completed on its stream.
#[derive(Debug, Clone, Copy)]
pub enum Copy {
    /// Host memory of this process to the device.
    HostToDevice {
        /// Destination.
        dst: DevicePtr,
        /// Source.
        src: *const u8,
    },
    /// Device to host memory of this process.
    DeviceToHost {
        /// Destination.
        dst: *mut u8,
        /// Source.
        src: DevicePtr,
    },
    /// Within the device.
    DeviceToDevice {
        /// Destination.
        dst: DevicePtr,
        /// Source.
        src: DevicePtr,
    },
}

/// Grid and block of a launch, and its dynamic shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory a block, bytes.
    pub shared_bytes: u32,
}

/// A function of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The backend's function.
    pub real: RealHandle,
    /// Size in bytes of each parameter, in order.
    pub param_bytes: Vec<u32>,
}

/// What a device call returns.
pub type DeviceResult<T> = Result<T, DeviceError>;

/// Why a device call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Not enough device memory.
    #[error("out of device memory: {requested} bytes asked for, {free} of {total} bytes free")]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes free in the window.
        free: u64,
        /// Size of the window.
        total: u64,
    },
    /// An argument is wrong.
    #[error("invalid argument of {call}: {reason}")]
    Invalid {
        /// The call.
        call: &'static str,
        /// What is wrong and what is expected.
        reason: String,
    },
    /// The window could not be reserved at its base.
    #[error("device window of {bytes} bytes at {base:#x} cannot be reserved: {reason}")]
    Window {
        /// Base asked for.
        base: u64,
        /// Bytes asked for.
        bytes: u64,
        /// The system's reason, and what to change.
        reason: String,
    },
    /// An address is not what was recorded.
    #[error("address {found:#x} where {expected:#x} was recorded")]
    Address {
        /// As recorded.
        expected: u64,
        /// As given by the backend.
        found: u64,
    },
    /// A module could not be loaded or has no such function.
    #[error("module: {reason}")]
    Module {
        /// Why.
        reason: String,
    },
    /// The device has failed; nothing works on it until it is reset or its process is replaced.
    #[error("device {ordinal} is lost: {reason}")]
    Lost {
        /// Device number.
        ordinal: u32,
        /// The first error seen.
        reason: String,
    },
    /// The library of the backend is missing or too old.
    #[error("{library}: {reason}")]
    Library {
        /// Its name.
        library: String,
        /// What is wrong and what to install.
        reason: String,
    },
    /// Another error of the library.
    #[error("{call} failed with {code}: {text}")]
    Call {
        /// The call.
        call: &'static str,
        /// Its code.
        code: i32,
        /// Its text.
        text: String,
    },
}

impl DeviceError {
    /// The device itself has failed (a device fault for recovery), not only this call.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// A device of this process. All methods may be called from any thread after [`Device::make_current`]
/// on that thread; none blocks on a stream.
pub trait Device: Send + Sync + 'static {
    /// Which backend.
    fn kind(&self) -> BackendKind;
    /// Device number.
    fn ordinal(&self) -> u32;
    /// The reserved window.
    fn window(&self) -> Window;
    /// Makes the device current for this thread (`cuCtxSetCurrent`; nothing on the host).
    fn make_current(&self) -> DeviceResult<()>;
    /// Makes the device fail as a GPU does, for tests. Only the host backend can.
    fn inject_failure(&self, reason: &str) -> DeviceResult<()> {
        let _ = reason;
        Err(DeviceError::Invalid { call: "inject_failure", reason: "only the host backend can be told to fail".into() })
    }
    /// Drops all memory, streams, events and modules and makes the device usable again.
    fn reset(&self) -> DeviceResult<()>;

    /// Allocates, 256-byte aligned.
    fn alloc(&self, bytes: u64) -> DeviceResult<DevicePtr>;
    /// Allocates at a recorded address, on a fresh or reset device.
    fn alloc_at(&self, address: DevicePtr, bytes: u64) -> DeviceResult<()>;
    /// Frees. The address must be one that `alloc` gave.
    fn free(&self, address: DevicePtr) -> DeviceResult<()>;
    /// (free, total) bytes of the window.
    fn mem_info(&self) -> DeviceResult<(u64, u64)>;
    /// Live allocations (address, bytes), in address order.
    fn allocations(&self) -> Vec<(DevicePtr, u64)>;
    /// Page-locks host memory.
    fn host_register(&self, host: *mut c_void, bytes: u64, flags: u32) -> DeviceResult<()>;
    /// Takes up device memory that the application got by itself, outside the window: copies, fills and state may
    /// use it from here on. Not among [`Device::allocations`], and never freed here.
    ///
    /// # Safety
    /// The range is memory of this device for as long as the device is used.
    #[allow(unsafe_code)]
    unsafe fn memory_adopt(&self, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        let _ = (address, bytes);
        Err(DeviceError::Invalid { call: "memory_adopt", reason: "this backend takes no memory of others".into() })
    }
    /// Undoes [`Device::host_register`].
    fn host_unregister(&self, host: *mut c_void) -> DeviceResult<()>;

    /// Enqueues a copy of `bytes` on `stream`. Device ranges are checked against live allocations.
    fn copy(&self, copy: Copy, bytes: u64, stream: RealHandle) -> DeviceResult<()>;
    /// Enqueues a fill of `bytes` bytes with `value`.
    fn memset(&self, dst: DevicePtr, value: u8, bytes: u64, stream: RealHandle) -> DeviceResult<()>;

    /// `flags` and `priority` as in `cuStreamCreateWithPriority`.
    fn stream_create(&self, flags: u32, priority: i32) -> DeviceResult<RealHandle>;
    /// Takes up a stream that the application made by itself (a `CUstream`, a `HostStream*`), to be queried and
    /// given to NCCL. [`Device::stream_destroy`] forgets it and does not destroy it.
    ///
    /// # Safety
    /// It is a stream of this device, and lives until it is forgotten.
    #[allow(unsafe_code)]
    unsafe fn stream_adopt(&self, native: *mut c_void) -> DeviceResult<RealHandle> {
        let _ = native;
        Err(DeviceError::Invalid { call: "stream_adopt", reason: "this backend takes no streams of others".into() })
    }
    /// Returns at once; what is queued still runs (or never does, when the stream is stuck).
    fn stream_destroy(&self, stream: RealHandle) -> DeviceResult<()>;
    /// True when everything enqueued so far has completed.
    fn stream_query(&self, stream: RealHandle) -> DeviceResult<bool>;
    /// Later work of `stream` waits for `event` as last recorded.
    fn stream_wait_event(&self, stream: RealHandle, event: RealHandle, flags: u32) -> DeviceResult<()>;
    /// The pointer that NCCL gets for this stream.
    fn stream_native(&self, stream: RealHandle) -> *mut c_void;

    /// `flags` as in `cuEventCreate`.
    fn event_create(&self, flags: u32) -> DeviceResult<RealHandle>;
    /// Destroys an event.
    fn event_destroy(&self, event: RealHandle) -> DeviceResult<()>;
    /// Records `event` on `stream`.
    fn event_record(&self, event: RealHandle, stream: RealHandle) -> DeviceResult<()>;
    /// True when the last recorded point has been reached, or nothing was recorded.
    fn event_query(&self, event: RealHandle) -> DeviceResult<bool>;
    /// Milliseconds between two completed events.
    fn event_elapsed_ms(&self, start: RealHandle, end: RealHandle) -> DeviceResult<f32>;

    /// Loads a module from its image bytes (host: a shared object; CUDA: PTX, cubin, fatbin).
    fn module_load(&self, image: &[u8]) -> DeviceResult<RealHandle>;
    /// Unloads it.
    fn module_unload(&self, module: RealHandle) -> DeviceResult<()>;
    /// Finds a function of a module by name.
    fn module_function(&self, module: RealHandle, name: &str) -> DeviceResult<Function>;
    /// Enqueues a launch. `params` holds the parameters one after the other, packed, with the sizes of
    /// [`Function::param_bytes`].
    fn launch(&self, function: &Function, shape: LaunchShape, stream: RealHandle, params: &[u8]) -> DeviceResult<()>;

    /// A number that changes when work of this device completes. Read it, look at queries, then
    /// [`Device::activity_wait`] with it: no completion is missed.
    fn activity(&self) -> u32;
    /// Waits until [`Device::activity`] differs from `seen`, somebody calls [`Device::poke`], or `limit`.
    fn activity_wait(&self, seen: u32, limit: Duration);
    /// Wakes all waiters of [`Device::activity_wait`] (used when the epoch moves).
    fn poke(&self);
}
