//! Typed requests of a session, one a row that an application calls.

use super::Session;
use crate::agent::HostMemory;
use crate::backend::{DevicePtr, LaunchShape};
use crate::error::Error;
use crate::handle::{HandleKind, VirtualHandle};
use crate::nccl::{DataType, ReduceOp};
use crate::request::{self, ReduceOperator, Request};

/// Host memory of an asynchronous copy.
#[derive(Debug, Clone, Copy)]
pub struct HostSlice {
    /// First byte.
    pub pointer: *mut u8,
    /// Length.
    pub bytes: u64,
}

impl Session {
    /// Records and executes any request of the table; the typed calls below are this one.
    pub fn send(&self, request: &Request<'_>) -> Result<u64, Error> {
        self.core.agent.send(request, HostMemory::default())
    }

    /// Records and executes a request that makes an object of `kind`: `make` gets the handle that the object
    /// will have.
    pub fn create<'a>(&self, kind: HandleKind, make: impl FnOnce(VirtualHandle) -> Request<'a>) -> Result<VirtualHandle, Error> {
        self.core.agent.create(kind, make)
    }

    /// `cuMemAlloc`: 256-byte aligned, at the same address in every incarnation with the same set-up.
    pub fn mem_alloc(&self, bytes: u64) -> Result<DevicePtr, Error> {
        self.send(&request::mem_alloc(bytes)).map(DevicePtr)
    }

    /// `cuMemFree`
    pub fn mem_free(&self, address: DevicePtr) -> Result<(), Error> {
        self.send(&request::mem_free(address)).map(drop)
    }

    /// `cuMemcpyHtoD`. In set-up the bytes are recorded; in a step under policy *redo* their size and checksum.
    pub fn memcpy_htod(&self, dst: DevicePtr, data: &[u8]) -> Result<(), Error> {
        let agent = &self.core.agent;
        if agent.records_bytes() {
            return self.send(&request::memcpy_htod(dst, data)).map(drop);
        }
        let digest = request::memcpy_htod_digest(dst, data.len() as u64, u64::from(crc32c::crc32c(data)));
        agent.send(&digest, HostMemory { source: Some(data.as_ptr()) }).map(drop)
    }

    /// `cuMemcpyDtoH`. Inside a step it returns [`Error::Redo`] instead of garbage.
    pub fn memcpy_dtoh(&self, dst: &mut [u8], src: DevicePtr) -> Result<(), Error> {
        self.send(&request::memcpy_dtoh(dst.as_mut_ptr() as u64, src, dst.len() as u64)).map(drop)
    }

    /// `cuMemcpyDtoD`
    pub fn memcpy_dtod(&self, dst: DevicePtr, src: DevicePtr, bytes: u64) -> Result<(), Error> {
        self.send(&request::memcpy_dtod(dst, src, bytes)).map(drop)
    }

    /// `cuMemcpyHtoDAsync`.
    ///
    /// # Safety
    /// `src` stays valid and unchanged until the copy has completed on `stream`.
    #[allow(unsafe_code)]
    pub unsafe fn memcpy_htod_async(&self, dst: DevicePtr, src: HostSlice, stream: VirtualHandle) -> Result<(), Error> {
        // SAFETY: the caller keeps the range valid for longer than this call.
        let data = unsafe { core::slice::from_raw_parts(src.pointer.cast_const(), src.bytes as usize) };
        let agent = &self.core.agent;
        if agent.records_bytes() {
            return self.send(&request::memcpy_htod_async(dst, data, stream)).map(drop);
        }
        let digest = request::memcpy_htod_async_digest(dst, src.bytes, u64::from(crc32c::crc32c(data)), stream);
        agent.send(&digest, HostMemory { source: Some(src.pointer.cast_const()) }).map(drop)
    }

    /// `cuMemcpyDtoHAsync`. After a REDO the content of `dst` is garbage.
    ///
    /// # Safety
    /// `dst` stays valid, and is not read, until the copy has completed on `stream`.
    #[allow(unsafe_code)]
    pub unsafe fn memcpy_dtoh_async(&self, dst: HostSlice, src: DevicePtr, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::memcpy_dtoh_async(dst.pointer as u64, src, dst.bytes, stream)).map(drop)
    }

    /// `cuMemcpyDtoDAsync`
    pub fn memcpy_dtod_async(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::memcpy_dtod_async(dst, src, bytes, stream)).map(drop)
    }

    /// `cuMemsetD8Async`
    pub fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::memset_async(dst, u32::from(value), bytes, stream)).map(drop)
    }

    /// `cuStreamCreateWithPriority`
    pub fn stream_create(&self, flags: u32, priority: i32) -> Result<VirtualHandle, Error> {
        self.core.agent.create(HandleKind::Stream, |h| request::stream_create(h, flags, priority))
    }

    /// `cuStreamDestroy`
    pub fn stream_destroy(&self, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::stream_destroy(stream)).map(drop)
    }

    /// `cuStreamSynchronize`. Inside a step it returns [`Error::Redo`] when a rank has failed.
    pub fn stream_synchronize(&self, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::stream_synchronize(stream)).map(drop)
    }

    /// `cuStreamQuery`: true when everything has completed.
    pub fn stream_query(&self, stream: VirtualHandle) -> Result<bool, Error> {
        self.send(&request::stream_query(stream)).map(|done| done == 1)
    }

    /// `cuStreamWaitEvent`
    pub fn stream_wait_event(&self, stream: VirtualHandle, event: VirtualHandle) -> Result<(), Error> {
        self.send(&request::stream_wait_event(stream, event, 0)).map(drop)
    }

    /// `cuEventCreate`
    pub fn event_create(&self, flags: u32) -> Result<VirtualHandle, Error> {
        self.core.agent.create(HandleKind::Event, |h| request::event_create(h, flags))
    }

    /// `cuEventDestroy`
    pub fn event_destroy(&self, event: VirtualHandle) -> Result<(), Error> {
        self.send(&request::event_destroy(event)).map(drop)
    }

    /// `cuEventRecord`
    pub fn event_record(&self, event: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::event_record(event, stream)).map(drop)
    }

    /// `cuEventSynchronize`
    pub fn event_synchronize(&self, event: VirtualHandle) -> Result<(), Error> {
        self.send(&request::event_synchronize(event)).map(drop)
    }

    /// `cuEventQuery`
    pub fn event_query(&self, event: VirtualHandle) -> Result<bool, Error> {
        self.send(&request::event_query(event)).map(|done| done == 1)
    }

    /// `cuEventElapsedTime`
    pub fn event_elapsed_ms(&self, start: VirtualHandle, end: VirtualHandle) -> Result<f32, Error> {
        self.send(&request::event_elapsed(start, end)).map(|bits| f32::from_bits(bits as u32))
    }

    /// `cuModuleLoadData`; the image is recorded.
    pub fn module_load(&self, image: &[u8]) -> Result<VirtualHandle, Error> {
        self.core.agent.create(HandleKind::Module, |h| request::module_load(h, image))
    }

    /// `cuModuleUnload`
    pub fn module_unload(&self, module: VirtualHandle) -> Result<(), Error> {
        self.send(&request::module_unload(module)).map(drop)
    }

    /// `cuModuleGetFunction`
    pub fn module_function(&self, module: VirtualHandle, name: &str) -> Result<VirtualHandle, Error> {
        self.core.agent.create(HandleKind::Function, |h| request::module_get_function(h, module, name))
    }

    /// `cuLaunchKernel` with its parameters packed one after the other.
    pub fn launch(&self, function: VirtualHandle, shape: LaunchShape, stream: VirtualHandle, params: &[u8]) -> Result<(), Error> {
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        let request = request::launch_kernel(function, gx, gy, gz, bx, by, bz, shape.shared_bytes, stream, params);
        self.send(&request).map(drop)
    }

    /// `ncclCommCount`
    pub fn comm_count(&self, comm: VirtualHandle) -> Result<u32, Error> {
        self.send(&request::comm_count(comm)).map(|n| n as u32)
    }

    /// `ncclCommUserRank`
    pub fn comm_user_rank(&self, comm: VirtualHandle) -> Result<u32, Error> {
        self.send(&request::comm_user_rank(comm)).map(|n| n as u32)
    }

    /// `ncclGroupStart` of this thread.
    pub fn group_start(&self) -> Result<(), Error> {
        self.send(&request::group_start()).map(drop)
    }

    /// `ncclGroupEnd` of this thread.
    pub fn group_end(&self) -> Result<(), Error> {
        self.send(&request::group_end()).map(drop)
    }

    /// `ncclAllReduce`
    #[allow(clippy::too_many_arguments)]
    pub fn all_reduce(&self, send: DevicePtr, recv: DevicePtr, count: u64, datatype: DataType, op: ReduceOp, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        let op = ReduceOperator::BuiltIn(op as i32);
        self.send(&request::all_reduce(send, recv, count, datatype as i32, op, comm, stream)).map(drop)
    }

    /// `ncclBroadcast`
    #[allow(clippy::too_many_arguments)]
    pub fn broadcast(&self, send: DevicePtr, recv: DevicePtr, count: u64, datatype: DataType, root: u32, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::broadcast(send, recv, count, datatype as i32, root as i32, comm, stream)).map(drop)
    }

    /// `ncclReduce`
    #[allow(clippy::too_many_arguments)]
    pub fn reduce(&self, send: DevicePtr, recv: DevicePtr, count: u64, datatype: DataType, op: ReduceOp, root: u32, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        let op = ReduceOperator::BuiltIn(op as i32);
        self.send(&request::reduce(send, recv, count, datatype as i32, op, root as i32, comm, stream)).map(drop)
    }

    /// `ncclAllGather`
    pub fn all_gather(&self, send: DevicePtr, recv: DevicePtr, count: u64, datatype: DataType, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::all_gather(send, recv, count, datatype as i32, comm, stream)).map(drop)
    }

    /// `ncclReduceScatter`
    #[allow(clippy::too_many_arguments)]
    pub fn reduce_scatter(&self, send: DevicePtr, recv: DevicePtr, count: u64, datatype: DataType, op: ReduceOp, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        let op = ReduceOperator::BuiltIn(op as i32);
        self.send(&request::reduce_scatter(send, recv, count, datatype as i32, op, comm, stream)).map(drop)
    }

    /// `ncclSend`
    pub fn nccl_send(&self, buffer: DevicePtr, count: u64, datatype: DataType, peer: u32, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::send(buffer, count, datatype as i32, peer as i32, comm, stream)).map(drop)
    }

    /// `ncclRecv`
    pub fn nccl_recv(&self, buffer: DevicePtr, count: u64, datatype: DataType, peer: u32, comm: VirtualHandle, stream: VirtualHandle) -> Result<(), Error> {
        self.send(&request::recv(buffer, count, datatype as i32, peer as i32, comm, stream)).map(drop)
    }
}
