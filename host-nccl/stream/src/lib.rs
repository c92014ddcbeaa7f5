//! A host stream: an in-order queue with one worker thread, as one C struct.
//!
//! It is what a `cudaStream_t` is to NCCL: the host backend (and any C program) makes them, host-nccl
//! enqueues work on them. The two libraries share nothing else.
#![no_std]

pub mod kernel;

use core::ffi::c_void;

/// "RJHSTRM1", little-endian. The first word of every host stream.
pub const HOST_STREAM_MAGIC: u64 = u64::from_le_bytes(*b"RJHSTRM1");

/// Version of the layout below. A library refuses a stream of another version.
pub const HOST_STREAM_ABI: u32 = 1;

/// Returned by [`HostStream::enqueue`] and [`HostStream::query`].
pub const HOST_STREAM_OK: i32 = 0;
/// [`HostStream::query`]: work is still queued or running.
pub const HOST_STREAM_BUSY: i32 = 1;
/// The device of this stream has failed; nothing was enqueued.
pub const HOST_STREAM_LOST: i32 = 2;

/// Work for the worker thread of a stream. Called once, in order, with the `arg` given to `enqueue`;
/// it owns `arg` from then on. When the stream is lost it is called by nobody.
///
/// Work that waited for others asks [`HostStream::query`] before it touches device memory again: after
/// [`HOST_STREAM_LOST`] the memory may be gone.
pub type HostWork = unsafe extern "C" fn(arg: *mut c_void);

/// [`HostStream::enqueue_or_drop`]: exactly one of `work(arg)` and `drop(arg)` is called.
pub type HostEnqueueOrDrop =
    unsafe extern "C" fn(stream: *mut HostStream, work: HostWork, drop: HostWork, arg: *mut c_void) -> i32;

/// One host stream, 64 bytes. Allocated, filled and freed by whoever makes the stream; all fields are
/// constant while it lives. The host backend never frees one, so a stale pointer is answered with
/// [`HOST_STREAM_LOST`].
#[repr(C)]
pub struct HostStream {
    /// [`HOST_STREAM_MAGIC`].
    pub magic: u64,
    /// [`HOST_STREAM_ABI`].
    pub abi: u32,
    /// Size of this struct in bytes.
    pub size: u32,
    /// Appends `work(arg)` to the queue. Any thread. [`HOST_STREAM_OK`], or [`HOST_STREAM_LOST`] and
    /// then the caller still owns `arg`.
    pub enqueue: unsafe extern "C" fn(stream: *mut HostStream, work: HostWork, arg: *mut c_void) -> i32,
    /// [`HOST_STREAM_OK`] when everything enqueued has run, else [`HOST_STREAM_BUSY`] or
    /// [`HOST_STREAM_LOST`]. Never blocks.
    pub query: unsafe extern "C" fn(stream: *mut HostStream) -> i32,
    /// The maker's own.
    pub owner: *mut c_void,
    /// May be null. Like `enqueue`, but when the device is lost or the stream is destroyed before its turn,
    /// `drop(arg)` is called, on any thread. Only with it can a library wait, as NCCL does, for work that
    /// is still queued.
    pub enqueue_or_drop: Option<HostEnqueueOrDrop>,
    /// Zero; room for later versions.
    pub reserved: [u64; 2],
}

const _: () = assert!(core::mem::size_of::<HostStream>() == 64);
