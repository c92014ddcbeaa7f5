//! Executing one request: an arm for each row of the table that a backend can do.

use std::time::{Duration, Instant};

use super::objects::Communicator;
use super::{Agent, group, poll, replaying};
use crate::backend::{Copy, DevicePtr, LaunchShape, RealHandle, STREAM_NON_BLOCKING};
use crate::error::Error;
use crate::handle::{HandleKind, VirtualHandle};
use crate::membership::Membership;
use crate::nccl::{Collective, Progress, RealCommunicator};
use crate::request::{Call, ReduceOperator, Request};

/// Host memory of the application that a recording leaves out.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMemory {
    /// What a digest stands for.
    pub source: Option<*const u8>,
}

/// What an executed request gives back; recorded as its result.
pub type Value = u64;

impl Agent {
    /// Executes `request` with its handles resolved. Runs inside the gate.
    pub(crate) fn execute(&self, request: &Request<'_>, host: HostMemory) -> Result<Value, Error> {
        let device = &*self.device;
        let done = |r: Result<(), crate::backend::DeviceError>| r.map(|()| 0).map_err(Error::from);
        match request.call() {
            Call::DeviceSet { .. } => device.make_current().map(|()| 0).map_err(Error::from),
            Call::DeviceSynchronize {} => self.wait_all_streams().map(|()| 0),

            Call::MemAlloc { bytes } | Call::NcclMemAlloc { bytes } => Ok(device.alloc(bytes)?.0),
            Call::MemFree { address } | Call::NcclMemFree { address } => done(device.free(address)),
            Call::HostRegister { host, bytes, flags } => done(device.host_register(host as *mut _, bytes, flags)),
            Call::HostUnregister { host } => done(device.host_unregister(host as *mut _)),
            Call::MemInfo {} => Ok(device.mem_info()?.0),
            Call::MemcpyHtoD { dst, data } => {
                self.copy_and_wait(Copy::HostToDevice { dst, src: data.as_ptr() }, data.len() as u64)
            }
            Call::MemcpyHtoDDigest { dst, bytes, .. } => {
                self.copy_and_wait(Copy::HostToDevice { dst, src: source(host)? }, bytes)
            }
            Call::MemcpyDtoH { dst, src, bytes } => {
                self.copy_and_wait(Copy::DeviceToHost { dst: dst as *mut u8, src }, bytes)
            }
            Call::MemcpyDtoD { dst, src, bytes } => self.copy_and_wait(Copy::DeviceToDevice { dst, src }, bytes),
            Call::MemcpyHtoDAsync { dst, data, stream } => {
                let stream = self.stream(request, stream, 2)?;
                done(device.copy(Copy::HostToDevice { dst, src: data.as_ptr() }, data.len() as u64, stream))
            }
            Call::MemcpyHtoDAsyncDigest { dst, bytes, stream, .. } => {
                let stream = self.stream(request, stream, 3)?;
                done(device.copy(Copy::HostToDevice { dst, src: source(host)? }, bytes, stream))
            }
            Call::MemcpyDtoHAsync { dst, src, bytes, stream } => {
                let stream = self.stream(request, stream, 3)?;
                done(device.copy(Copy::DeviceToHost { dst: dst as *mut u8, src }, bytes, stream))
            }
            Call::MemcpyDtoDAsync { dst, src, bytes, stream } => {
                let stream = self.stream(request, stream, 3)?;
                done(device.copy(Copy::DeviceToDevice { dst, src }, bytes, stream))
            }
            Call::Memset { dst, value, bytes } => {
                self.wait_blocking_streams()?;
                device.memset(dst, value as u8, bytes, RealHandle(0))?;
                self.wait_stream(RealHandle(0)).map(|()| 0)
            }
            Call::MemsetAsync { dst, value, bytes, stream } => {
                done(device.memset(dst, value as u8, bytes, self.stream(request, stream, 3)?))
            }

            Call::StreamCreate { stream, flags, priority } => {
                let real = device.stream_create(flags, priority)?;
                self.handles().bind(stream, real.0)?;
                self.objects.add_stream(stream, flags);
                Ok(0)
            }
            Call::StreamAdopt { stream, native } => self.adopt_stream(stream, native),
            Call::StreamDestroy { stream } => {
                let real = self.stream(request, stream, 0)?;
                self.objects.remove_stream(stream);
                self.handles().retire(stream)?;
                gone(device.stream_destroy(real))
            }
            Call::StreamSynchronize { stream } => self.wait_stream(self.stream(request, stream, 0)?).map(|()| 0),
            Call::StreamQuery { stream } => Ok(u64::from(device.stream_query(self.stream(request, stream, 0)?)?)),
            Call::StreamWaitEvent { stream, event, flags } => {
                let (stream, event) = (self.stream(request, stream, 0)?, self.event(event)?);
                done(device.stream_wait_event(stream, event, flags))
            }

            Call::EventCreate { event, flags } => {
                let real = device.event_create(flags)?;
                self.handles().bind(event, real.0)?;
                Ok(0)
            }
            Call::EventDestroy { event } => {
                let real = self.event(event)?;
                self.handles().retire(event)?;
                gone(device.event_destroy(real))
            }
            Call::EventRecord { event, stream } => {
                done(device.event_record(self.event(event)?, self.stream(request, stream, 1)?))
            }
            Call::EventSynchronize { event } => {
                let real = self.event(event)?;
                self.wait("an event", || Ok(device.event_query(real)?)).map(|()| 0)
            }
            Call::EventQuery { event } => Ok(u64::from(device.event_query(self.event(event)?)?)),
            Call::EventElapsed { start, end } => {
                let ms = device.event_elapsed_ms(self.event(start)?, self.event(end)?)?;
                Ok(u64::from(ms.to_bits()))
            }

            Call::ModuleLoad { module, image } => {
                let real = device.module_load(image)?;
                self.handles().bind(module, real.0)?;
                Ok(0)
            }
            Call::ModuleUnload { module } => {
                let real = self.resolve(module, HandleKind::Module)?;
                self.handles().retire(module)?;
                gone(device.module_unload(RealHandle(real)))
            }
            Call::ModuleGetFunction { function, module, name } => {
                let module = self.resolve(module, HandleKind::Module)?;
                let found = device.module_function(RealHandle(module), name)?;
                self.handles().bind(function, self.objects.add_function(found))?;
                Ok(0)
            }
            Call::LaunchKernel { function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params } => {
                let real = self.resolve(function, HandleKind::Function)?;
                let found = self.objects.function(real).ok_or_else(|| Error::NotFound { what: "function of a module".into() })?;
                let shape = LaunchShape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
                done(device.launch(found, shape, self.stream(request, stream, 8)?, params))
            }

            Call::CommCount { comm } => {
                let comm = self.communicator(comm)?;
                Ok(comm.nranks as u64)
            }
            Call::CommUserRank { comm } => Ok(self.communicator(comm)?.rank() as u64),
            Call::CommCuDevice { comm } => {
                self.communicator(comm)?;
                Ok(u64::from(device.ordinal()))
            }
            Call::CommGetAsyncError { comm } => self.async_error(self.communicator(comm)?),
            Call::CommRegister { comm, buffer, bytes, registration } => {
                let comm = self.communicator(comm)?;
                let real = self.with_real(comm, |real| real.register(buffer, bytes))?;
                self.handles().bind(registration, real)?;
                Ok(0)
            }
            Call::CommDeregister { comm, registration } => {
                let real = self.resolve(registration, HandleKind::Registration)?;
                let comm = self.communicator(comm)?;
                self.with_real(comm, |c| c.deregister(real))?;
                self.handles().retire(registration)?;
                Ok(0)
            }
            Call::RedOpCreatePreMulSum { op, scalar, datatype, comm, .. } => {
                let comm = self.communicator(comm)?;
                let real = self.with_real(comm, |c| c.create_pre_mul_sum(scalar, datatype))?;
                self.handles().bind(op, u64::from(real as u32) + 1)?;
                Ok(0)
            }
            Call::RedOpDestroy { op, comm } => {
                let real = self.resolve(op, HandleKind::RedOp)?;
                let comm = self.communicator(comm)?;
                self.with_real(comm, |c| c.destroy_red_op((real - 1) as u32 as i32))?;
                self.handles().retire(op)?;
                Ok(0)
            }

            Call::GroupStart {} => {
                group::enter(self.epoch());
                Ok(0)
            }
            Call::GroupEnd {} => {
                let calls = group::leave(self.epoch()).ok_or_else(|| Error::WrongState {
                    call: "ncclGroupEnd",
                    reason: "no group is open on this thread".to_owned(),
                })?;
                self.issue_group(&calls).map(|()| 0)
            }

            Call::AllReduce { sendbuff: send, recvbuff: recv, count, datatype, op, comm, stream } => {
                let op = self.operator(op)?;
                self.enqueue(request, comm, stream, Collective::AllReduce { send, recv, count, datatype, op })
            }
            Call::Broadcast { sendbuff: send, recvbuff: recv, count, datatype, root, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::Broadcast { send, recv, count, datatype, root })
            }
            Call::Bcast { buff: buffer, count, datatype, root, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::Bcast { buffer, count, datatype, root })
            }
            Call::Reduce { sendbuff: send, recvbuff: recv, count, datatype, op, root, comm, stream } => {
                let op = self.operator(op)?;
                self.enqueue(request, comm, stream, Collective::Reduce { send, recv, count, datatype, op, root })
            }
            Call::AllGather { sendbuff: send, recvbuff: recv, sendcount: count, datatype, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::AllGather { send, recv, count, datatype })
            }
            Call::ReduceScatter { sendbuff: send, recvbuff: recv, recvcount: count, datatype, op, comm, stream } => {
                let op = self.operator(op)?;
                self.enqueue(request, comm, stream, Collective::ReduceScatter { send, recv, count, datatype, op })
            }
            Call::AllToAll { sendbuff: send, recvbuff: recv, count, datatype, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::AllToAll { send, recv, count, datatype })
            }
            Call::Gather { sendbuff: send, recvbuff: recv, count, datatype, root, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::Gather { send, recv, count, datatype, root })
            }
            Call::Scatter { sendbuff: send, recvbuff: recv, count, datatype, root, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::Scatter { send, recv, count, datatype, root })
            }
            Call::Send { sendbuff: buffer, count, datatype, peer, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::Send { buffer, count, datatype, peer })
            }
            Call::Recv { recvbuff: buffer, count, datatype, peer, comm, stream } => {
                self.enqueue(request, comm, stream, Collective::Recv { buffer, count, datatype, peer })
            }

            // Opaque to Rejoin: recording it is all there is to do.
            Call::User { .. } => Ok(0),
            _ => Err(Error::Unsupported { what: format!("{} is recorded but not executed by this backend", request.row().name) }),
        }
    }

    #[inline]
    fn resolve(&self, handle: VirtualHandle, kind: HandleKind) -> Result<u64, Error> {
        match self.handles().resolve(handle, kind) {
            Ok(real) => Ok(real),
            Err(error) if replaying::epoch().is_none() => Err(error.into()),
            Err(error) => self.substitutes.get(handle).ok_or(Error::Handle(error)),
        }
    }

    /// A wait of this thread is over without a result: the step is doomed, or the replay is.
    fn interrupted(&self) -> bool {
        match replaying::epoch() {
            Some(epoch) => {
                let now = self.membership.decision();
                now.epoch != epoch || now.is_ended()
            }
            None => self.moved(),
        }
    }

    /// A stream argument: NULL is the default stream, a foreign one is passed through.
    #[inline]
    fn stream(&self, request: &Request<'_>, stream: VirtualHandle, position: usize) -> Result<RealHandle, Error> {
        if stream.0 == 0 || request.is_foreign(position) {
            return Ok(RealHandle(stream.0));
        }
        self.resolve(stream, HandleKind::Stream).map(RealHandle)
    }

    fn event(&self, event: VirtualHandle) -> Result<RealHandle, Error> {
        self.resolve(event, HandleKind::Event).map(RealHandle)
    }

    fn operator(&self, op: ReduceOperator) -> Result<i32, Error> {
        match op {
            ReduceOperator::BuiltIn(op) => Ok(op),
            ReduceOperator::Custom(handle) => Ok((self.resolve(handle, HandleKind::RedOp)? - 1) as u32 as i32),
        }
    }

    /// The communicator behind a handle.
    pub(crate) fn communicator(&self, comm: VirtualHandle) -> Result<&std::sync::Arc<Communicator>, Error> {
        let real = self.resolve(comm, HandleKind::Communicator)?;
        self.objects.communicator(real).ok_or_else(|| Error::NotFound { what: format!("communicator {:#x}", comm.0) })
    }

    fn with_real<T>(
        &self,
        comm: &Communicator,
        call: impl FnOnce(&RealCommunicator) -> Result<T, crate::nccl::NcclError>,
    ) -> Result<T, Error> {
        let guard = comm.lock();
        match guard.as_ref() {
            Some(real) => Ok(call(real)?),
            None => Err(self.doomed()),
        }
    }

    fn async_error(&self, comm: &Communicator) -> Result<Value, Error> {
        match comm.lock().as_ref().map(RealCommunicator::state) {
            Some(Progress::Ready) => Ok(0),
            Some(Progress::InProgress) | None => Ok(crate::nccl::library::IN_PROGRESS as u64),
            Some(Progress::Failed(crate::nccl::NcclError::Call { code, .. })) => Ok(code as u64),
            Some(Progress::Failed(error)) => Err(error.into()),
        }
    }

    fn enqueue(&self, request: &Request<'_>, comm: VirtualHandle, stream: VirtualHandle, call: Collective) -> Result<Value, Error> {
        let communicator = self.communicator(comm)?;
        let position = request.row().args.len() - 1;
        let real_stream = self.stream(request, stream, position)?;
        let native = if request.is_foreign(position) {
            real_stream.0 as *mut core::ffi::c_void
        } else {
            self.device.stream_native(real_stream)
        };
        self.fingerprint.note(communicator.clique, &call);
        let native = native.expose_provenance();
        if group::keep(self.epoch(), || (communicator.clone(), call, native)) {
            return Ok(0);
        }
        // Where the launch came with the call there is nothing to settle.
        if self.issue(communicator, call, native, RealCommunicator::state)? != Progress::Ready {
            self.settle(communicator)?;
        }
        Ok(0)
    }

    /// Issues one call, and looks at the communicator under the same lock.
    fn issue<T>(
        &self,
        communicator: &Communicator,
        call: Collective,
        native: usize,
        then: impl FnOnce(&RealCommunicator) -> T,
    ) -> Result<T, Error> {
        let guard = communicator.lock();
        let real = guard.as_ref().ok_or_else(|| self.doomed())?;
        real.enqueue(call, core::ptr::with_exposed_provenance_mut(native))?;
        communicator.mark_used();
        Ok(then(real))
    }

    /// All calls of a group. The launch comes later than the end of the group: what the application enqueues
    /// next must not overtake it.
    fn issue_group(&self, calls: &[group::Queued]) -> Result<(), Error> {
        if calls.is_empty() {
            return Ok(());
        }
        self.nccl.start_group()?;
        let issued = calls.iter().try_for_each(|(communicator, call, native)| self.issue(communicator, *call, *native, |_| ()));
        self.nccl.end_group()?;
        issued?;
        calls.iter().try_for_each(|(communicator, ..)| self.settle(communicator))
    }

    /// Waits until the last NCCL call on a communicator has been launched: on a non-blocking one the next
    /// call is refused before that, and an event recorded before it is already complete.
    pub(crate) fn settle(&self, comm: &Communicator) -> Result<(), Error> {
        let state = || comm.lock().as_ref().map(RealCommunicator::state);
        match state() {
            Some(Progress::Ready) => return Ok(()),
            None => return Err(self.doomed()),
            Some(_) => {}
        }
        self.wait("a communicator's launch", || match state() {
            Some(Progress::Ready) => Ok(true),
            Some(Progress::InProgress) => Ok(false),
            Some(Progress::Failed(error)) => Err(error.into()),
            None => Err(self.doomed()),
        })
    }

    fn copy_and_wait(&self, copy: Copy, bytes: u64) -> Result<Value, Error> {
        // What may hang is waited for before the copy is enqueued: a copy that is given up later would still
        // write to memory that the application has taken back.
        self.wait_blocking_streams()?;
        self.copy_unrecorded(copy, bytes)?;
        if self.interrupted() { Err(self.doomed()) } else { Ok(0) }
    }

    /// What CUDA's legacy default stream follows: all earlier work of itself and of blocking streams.
    fn wait_blocking_streams(&self) -> Result<(), Error> {
        self.wait_stream(RealHandle(0))?;
        for (stream, flags) in self.objects.streams() {
            if flags & STREAM_NON_BLOCKING == 0 {
                self.wait_stream(RealHandle(self.resolve(stream, HandleKind::Stream)?))?;
            }
        }
        Ok(())
    }

    /// Every stream of this rank has completed.
    pub(crate) fn wait_all_streams(&self) -> Result<(), Error> {
        self.wait_stream(RealHandle(0))?;
        for (stream, _) in self.objects.streams() {
            self.wait_stream(RealHandle(self.resolve(stream, HandleKind::Stream)?))?;
        }
        Ok(())
    }

    /// One stream has completed, and the epoch is still the same: a collective whose peer was aborted
    /// completes too, with garbage.
    pub(crate) fn wait_stream(&self, stream: RealHandle) -> Result<(), Error> {
        self.wait("a stream", || Ok(self.device.stream_query(stream)?))?;
        if self.interrupted() { Err(self.doomed()) } else { Ok(()) }
    }

    fn wait(&self, what: &str, done: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
        let deadline = Instant::now() + self.peer_timeout;
        poll::until(&*self.device, &|| what.to_owned(), deadline, &|| self.interrupted(), done).map_err(|error| match error {
            Error::Redo => self.doomed(),
            other => other,
        })
    }

    /// A copy that the session needs for itself; not recorded, not gated.
    pub(crate) fn copy_unrecorded(&self, copy: Copy, bytes: u64) -> Result<(), Error> {
        self.device.copy(copy, bytes, RealHandle(0))?;
        self.wait_unrecorded(RealHandle(0))
    }

    /// Waits for a stream whatever the epoch does; for work that cannot hang.
    pub(crate) fn wait_unrecorded(&self, stream: RealHandle) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(60);
        poll::until(&*self.device, &|| "a local copy".to_owned(), deadline, &|| false, || {
            Ok(self.device.stream_query(stream)?)
        })
    }

    /// Zeroes a buffer; not recorded.
    pub(crate) fn zero_unrecorded(&self, address: DevicePtr, bytes: u64) -> Result<(), Error> {
        self.device.memset(address, 0, bytes, RealHandle(0))?;
        self.wait_unrecorded(RealHandle(0))
    }
}

/// The end of an object whose handle is retired. A lost device has taken it along; the next call will tell.
fn gone(result: crate::backend::DeviceResult<()>) -> Result<Value, Error> {
    match result {
        Err(error) if !error.is_lost() => Err(error.into()),
        _ => Ok(0),
    }
}

fn source(host: HostMemory) -> Result<*const u8, Error> {
    host.source.ok_or(Error::Unsupported { what: "a copy recorded by its digest cannot be executed again".into() })
}
