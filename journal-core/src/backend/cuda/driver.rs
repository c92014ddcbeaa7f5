//! The driver calls that the backend makes, as a trait: the backend's own logic runs in tests without a GPU.

use super::code::Code;
use crate::backend::LaunchShape;
use core::ffi::{CStr, c_void};
use core::fmt::Debug;

/// Result of one driver call.
pub(super) type Outcome<T> = Result<T, Code>;

/// How device memory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryKind {
    pub(super) ordinal: u32,
    /// Other processes can import it by a file descriptor: NCCL registers buffers that way.
    pub(super) exportable: bool,
    /// Network cards may write to it.
    pub(super) rdma: bool,
}

/// What a device can do, by the numbers of `CUdevice_attribute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub(super) enum Attribute {
    ComputeMajor = 75,
    ComputeMinor = 76,
    VirtualMemory = 102,
    PosixHandles = 103,
    RdmaWithVirtualMemory = 110,
}

/// One method a driver call. Private to this backend, which keeps the driver's rules: handles are live ones
/// of this driver, ranges are valid for what is done with them until it is done, and a context is current
/// where a call needs one. Implementations rely on it.
pub(super) trait Driver: Debug + Send + Sync {
    /// Name and text of a code.
    fn describe(&self, code: Code) -> String;
    /// The CUDA version that the driver supports, 13000 for 13.0.
    fn version(&self) -> Outcome<u32>;
    fn device_count(&self) -> Outcome<u32>;
    fn device_name(&self, ordinal: u32) -> Outcome<String>;
    fn device_bytes(&self, ordinal: u32) -> Outcome<u64>;
    fn attribute(&self, ordinal: u32, attribute: Attribute) -> Outcome<i32>;

    fn context_retain(&self, ordinal: u32) -> Outcome<u64>;
    fn context_release(&self, ordinal: u32) -> Outcome<()>;
    fn context_set_current(&self, context: u64) -> Outcome<()>;

    fn granularity(&self, kind: MemoryKind) -> Outcome<u64>;
    /// The address given, which need not be `base`.
    fn reserve(&self, base: u64, bytes: u64) -> Outcome<u64>;
    fn unreserve(&self, address: u64, bytes: u64) -> Outcome<()>;
    fn memory_create(&self, bytes: u64, kind: MemoryKind) -> Outcome<u64>;
    fn memory_release(&self, memory: u64) -> Outcome<()>;
    fn memory_map(&self, address: u64, bytes: u64, memory: u64) -> Outcome<()>;
    fn memory_unmap(&self, address: u64, bytes: u64) -> Outcome<()>;
    /// Read and write access of a device to a mapped range.
    fn memory_allow(&self, address: u64, bytes: u64, ordinal: u32) -> Outcome<()>;
    /// Base and length of the allocation that an address lies in.
    fn address_range(&self, address: u64) -> Outcome<(u64, u64)>;
    /// (free, total) of the current device.
    fn memory_info(&self) -> Outcome<(u64, u64)>;

    fn host_alloc(&self, bytes: u64) -> Outcome<*mut u8>;
    fn host_free(&self, host: *mut u8) -> Outcome<()>;
    fn host_register(&self, host: *mut c_void, bytes: u64, flags: u32) -> Outcome<()>;
    fn host_unregister(&self, host: *mut c_void) -> Outcome<()>;
    /// Page-locked memory that this driver knows.
    fn is_pinned(&self, host: *const u8) -> bool;

    fn copy_to_device(&self, dst: u64, src: *const u8, bytes: u64, stream: u64) -> Outcome<()>;
    fn copy_to_host(&self, dst: *mut u8, src: u64, bytes: u64, stream: u64) -> Outcome<()>;
    fn copy_within(&self, dst: u64, src: u64, bytes: u64, stream: u64) -> Outcome<()>;
    fn fill(&self, dst: u64, value: u8, bytes: u64, stream: u64) -> Outcome<()>;
    /// Runs `work` on a thread of the driver, in the order of the stream. It must not call the driver.
    /// Dropped without being run when the call is refused; neither run nor dropped after a sticky error.
    fn host_call(&self, stream: u64, work: Box<dyn FnOnce() + Send>) -> Outcome<()>;

    fn stream_create(&self, flags: u32, priority: i32) -> Outcome<u64>;
    fn stream_destroy(&self, stream: u64) -> Outcome<()>;
    /// [`Code::NOT_READY`] while work is queued.
    fn stream_query(&self, stream: u64) -> Outcome<()>;
    fn stream_wait_event(&self, stream: u64, event: u64, flags: u32) -> Outcome<()>;

    fn event_create(&self, flags: u32) -> Outcome<u64>;
    fn event_destroy(&self, event: u64) -> Outcome<()>;
    fn event_record(&self, event: u64, stream: u64) -> Outcome<()>;
    /// [`Code::NOT_READY`] before the recorded point is reached.
    fn event_query(&self, event: u64) -> Outcome<()>;
    fn event_elapsed_ms(&self, start: u64, end: u64) -> Outcome<f32>;

    /// The image is complete and ends in a 0 byte. The text is the compiler's log.
    fn module_load(&self, image: &[u8]) -> Result<u64, (Code, String)>;
    fn module_unload(&self, module: u64) -> Outcome<()>;
    fn module_function(&self, module: u64, name: &CStr) -> Outcome<u64>;
    /// Puts a function on the device now. Without it the first launch does, which waits for kernels that run.
    fn function_load(&self, function: u64) -> Outcome<()>;
    /// Size of each parameter.
    fn function_params(&self, function: u64) -> Outcome<Vec<u32>>;
    /// `params[i]` points to the i-th parameter.
    fn launch(&self, function: u64, shape: LaunchShape, stream: u64, params: &mut [*mut c_void]) -> Outcome<()>;
}
