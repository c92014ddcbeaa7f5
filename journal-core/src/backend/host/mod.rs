//! The host backend: a device made of CPU memory and threads, which fails when told to.
//!
//! ```text
//! HostDevice ── window (addresses) ── suballocator (which are in use)
//!      └─ engine (condition, activity) ── queue (stream, worker) ── transfer / module (what runs)
//! ```
//!
//! Like `cuMemFree` on a busy device, [`Device::free`] wants the streams drained first: work that still runs
//! on freed memory runs on whatever is allocated there next.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod adopted;
mod engine;
#[allow(unsafe_code)]
mod module;
#[allow(unsafe_code)]
mod queue;
#[allow(unsafe_code)]
mod transfer;
#[allow(unsafe_code)]
mod window;

pub use super::placement::WINDOW_BASE;
pub use engine::Fault;

use super::foreign::ForeignMemory;
use super::suballocator::{ALIGNMENT, SubAllocator};
use super::{BackendKind, Copy, Device, DeviceError, DevicePtr, DeviceResult, Function, LaunchShape, RealHandle, Window};
use adopted::AdoptedStream;
use core::ffi::c_void;
use engine::{Engine, lock};
use module::{Kernel, LoadedModule, Parameters};
use queue::{Item, Operation, Point, Queue, Reach};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use window::ReservedWindow;

pub use super::STREAM_NON_BLOCKING;
/// Event flag: no time stamp (`CU_EVENT_DISABLE_TIMING`).
pub const EVENT_DISABLE_TIMING: u32 = 2;

/// How long reset and drop wait for a copy or kernel that runs.
const OWN_WORK_LIMIT: Duration = Duration::from_secs(10);
/// How long they wait for a collective, which may never end.
const NATIVE_WORK_LIMIT: Duration = Duration::from_millis(50);

/// What to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostOptions {
    /// Sessions of one process have different ones; the window of index n starts n windows above the base.
    pub session_index: u32,
    /// Size of the window: address space, not memory. A multiple of the page size.
    pub window_bytes: u64,
    /// Device number to report.
    pub ordinal: u32,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { session_index: 0, window_bytes: 64 << 30, ordinal: 0 }
    }
}

/// A device in host memory. See [`Device`] for the calls.
#[derive(Debug)]
pub struct HostDevice {
    engine: Arc<Engine>,
    state: Mutex<State>,
    window: Window,
}

#[derive(Debug)]
struct State {
    reserved: ReservedWindow,
    memory: SubAllocator,
    /// Freed while streams were busy: pages to give back once they are idle.
    unreleased: Vec<(u64, u64)>,
    default_stream: Arc<Queue>,
    streams: HashMap<u64, Arc<Queue>>,
    /// Made by the application.
    adopted: HashMap<u64, AdoptedStream>,
    foreign: ForeignMemory,
    /// Destroyed, perhaps still running.
    retiring: Vec<Arc<Queue>>,
    events: HashMap<u64, Event>,
    modules: HashMap<u64, Arc<LoadedModule>>,
    /// Module and index in it.
    functions: HashMap<u64, (u64, usize)>,
    /// Page-locked host ranges.
    host_ranges: BTreeMap<u64, u64>,
    next_handle: u64,
}

#[derive(Debug, Default)]
struct Event {
    timed: bool,
    last: Option<Arc<Point>>,
}

fn invalid<T>(call: &'static str, reason: impl Into<String>) -> DeviceResult<T> {
    Err(DeviceError::Invalid { call, reason: reason.into() })
}

impl State {
    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    fn stream(&self, call: &'static str, stream: RealHandle) -> DeviceResult<&Arc<Queue>> {
        match stream.0 {
            0 => Ok(&self.default_stream),
            real => self.streams.get(&real).map_or_else(|| invalid(call, format!("no stream {real:#x} on this device")), Ok),
        }
    }

    fn event(&self, call: &'static str, event: RealHandle) -> DeviceResult<&Event> {
        self.events.get(&event.0).map_or_else(|| invalid(call, format!("no event {:#x} on this device", event.0)), Ok)
    }

    fn all_idle(&mut self) -> bool {
        self.retiring.retain(|queue| !queue.is_over());
        // An adopted stream that does not answer as it should has nothing of ours in it.
        let adopted_idle = self.adopted.values().all(|stream| stream.is_idle(0).unwrap_or(true));
        adopted_idle
            && self.retiring.is_empty()
            && self.default_stream.is_idle()
            && self.streams.values().all(|queue| queue.is_idle())
    }

    /// Offset of a range inside one live allocation.
    fn check_range(&self, call: &'static str, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        let offset = address.0.checked_sub(self.reserved.window().base);
        match offset.is_some_and(|offset| self.memory.contains(offset, bytes)) || self.foreign.contains(address.0, bytes) {
            true => Ok(()),
            false => invalid(call, format!("{bytes} bytes at {:#x} are not inside a live allocation", address.0)),
        }
    }

    /// Usable pages for an allocation.
    fn commit(&mut self, offset: u64, bytes: u64) -> DeviceResult<()> {
        let page = self.reserved.page();
        self.reserved.commit(offset / page * page, (offset + bytes).next_multiple_of(page)).map_err(|text| {
            self.memory.free(offset);
            DeviceError::Call { call: "mem_alloc", code: -1, text }
        })
    }

    /// Gives back the pages of freed ranges that no live allocation shares, if no work can still touch them.
    fn release_unused(&mut self) {
        if self.unreleased.is_empty() || !self.all_idle() {
            return;
        }
        let page = self.reserved.page();
        for (start, end) in core::mem::take(&mut self.unreleased) {
            let (first, last) = (start / page * page, end.next_multiple_of(page));
            for (gap, gap_end) in self.memory.gaps(start, end) {
                let (from, to) = (gap.max(first).next_multiple_of(page), gap_end.min(last) / page * page);
                if from < to {
                    self.reserved.decommit(from, to);
                }
            }
        }
    }

    /// Stops all streams. False when something still runs and may touch the window or a module.
    fn stop(&mut self, engine: &Engine) -> bool {
        let queues: Vec<_> =
            self.streams.drain().map(|(_, queue)| queue).chain(self.retiring.drain(..)).chain([Arc::clone(&self.default_stream)]).collect();
        lock(&engine.streams).clear();
        for queue in &queues {
            queue.stop();
        }
        // A worker that waits for an event or another stream looks again.
        engine.bump();
        let (own, native) = (Instant::now() + OWN_WORK_LIMIT, Instant::now() + NATIVE_WORK_LIMIT);
        let mut all = true;
        for queue in &queues {
            if !queue.wait_stopped(own, native) {
                all = false;
                tracing::debug!(?queue, "work that does not end is left to itself");
            }
        }
        all
    }
}

fn default_stream(engine: &Arc<Engine>) -> DeviceResult<Arc<Queue>> {
    let queue = Queue::start(engine, true, false)?;
    lock(&engine.streams).insert(0, Arc::clone(&queue));
    Ok(queue)
}

impl HostDevice {
    /// Reserves the window and starts the default stream.
    ///
    /// # Errors
    /// [`DeviceError::Window`] when the addresses are taken or the process may not have so many.
    pub fn create(options: HostOptions) -> DeviceResult<Self> {
        let reserved = ReservedWindow::reserve(options.session_index, options.window_bytes)?;
        let engine = Engine::new(options.ordinal);
        let window = reserved.window();
        let state = State {
            memory: SubAllocator::new(window.bytes),
            reserved,
            unreleased: Vec::new(),
            default_stream: default_stream(&engine)?,
            streams: HashMap::new(),
            adopted: HashMap::new(),
            foreign: ForeignMemory::default(),
            retiring: Vec::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            host_ranges: BTreeMap::new(),
            next_handle: 0,
        };
        tracing::trace!(base = window.base, bytes = window.bytes, "host device created");
        Ok(Self { engine, state: Mutex::new(state), window })
    }

    /// Makes the device fail, now.
    pub fn inject(&self, fault: Fault) {
        self.engine.fail(fault);
        for queue in lock(&self.engine.streams).iter() {
            queue.look_again();
        }
    }

    fn enqueue(&self, state: &State, call: &'static str, stream: RealHandle, item: Item) -> DeviceResult<()> {
        state.stream(call, stream)?.enqueue(item).or_else(|_| {
            self.engine.check()?;
            invalid(call, "the stream was destroyed")
        })
    }

    fn usable(&self) -> DeviceResult<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        self.engine.check()?;
        Ok(state)
    }

    fn allocated(&self, call: &'static str, bytes: u64, place: impl FnOnce(&mut SubAllocator) -> DeviceResult<Option<u64>>) -> DeviceResult<DevicePtr> {
        let mut state = self.usable()?;
        if bytes == 0 {
            return invalid(call, "0 bytes asked for");
        }
        state.release_unused();
        let Some(offset) = place(&mut state.memory)? else {
            let (free, total) = (state.memory.free_bytes(), state.memory.total());
            return Err(DeviceError::OutOfMemory { requested: bytes, free, total });
        };
        state.commit(offset, bytes)?;
        Ok(DevicePtr(self.window.base + offset))
    }
}

impl Device for HostDevice {
    fn kind(&self) -> BackendKind {
        BackendKind::Host
    }

    fn ordinal(&self) -> u32 {
        self.engine.ordinal
    }

    fn window(&self) -> Window {
        self.window
    }

    fn make_current(&self) -> DeviceResult<()> {
        self.engine.check()
    }

    /// Never waits for a collective that does not end: its worker is left to itself, and its stream says LOST.
    /// Abort communicators first all the same: a collective that wakes and does not ask its stream faults.
    fn inject_failure(&self, reason: &str) -> DeviceResult<()> {
        self.inject(Fault::Lost { reason: reason.to_owned() });
        Ok(())
    }

    fn reset(&self) -> DeviceResult<()> {
        let mut state = lock(&self.state);
        state.stop(&self.engine);
        state.reserved.decommit(0, self.window.bytes);
        state.memory = SubAllocator::new(self.window.bytes);
        state.unreleased.clear();
        state.events.clear();
        state.functions.clear();
        state.modules.clear();
        state.host_ranges.clear();
        self.engine.heal();
        state.default_stream = default_stream(&self.engine)?;
        self.engine.bump();
        Ok(())
    }

    fn alloc(&self, bytes: u64) -> DeviceResult<DevicePtr> {
        self.allocated("mem_alloc", bytes, |memory| Ok(memory.alloc(bytes)))
    }

    fn alloc_at(&self, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        let base = self.window.base;
        let placed = self.allocated("alloc_at", bytes, |memory| {
            let Some(offset) = address.0.checked_sub(base).filter(|offset| offset.is_multiple_of(ALIGNMENT)) else {
                return invalid("alloc_at", format!("{:#x} is not an address of this device's window", address.0));
            };
            match memory.alloc_at(offset, bytes) {
                true => Ok(Some(offset)),
                false => invalid("alloc_at", format!("{bytes} bytes at {:#x} are in use or outside the window", address.0)),
            }
        })?;
        debug_assert_eq!(placed, address);
        Ok(())
    }

    fn free(&self, address: DevicePtr) -> DeviceResult<()> {
        let mut state = self.usable()?;
        let offset = address.0.checked_sub(self.window.base);
        let Some((offset, length)) = offset.and_then(|offset| Some((offset, state.memory.free(offset)?))) else {
            return invalid("mem_free", format!("{:#x} is not the start of a live allocation", address.0));
        };
        state.unreleased.push((offset, offset + length));
        state.release_unused();
        Ok(())
    }

    fn mem_info(&self) -> DeviceResult<(u64, u64)> {
        let state = self.usable()?;
        Ok((state.memory.free_bytes(), state.memory.total()))
    }

    fn allocations(&self) -> Vec<(DevicePtr, u64)> {
        lock(&self.state).memory.live().map(|(offset, bytes)| (DevicePtr(self.window.base + offset), bytes)).collect()
    }

    fn host_register(&self, host: *mut c_void, bytes: u64, _flags: u32) -> DeviceResult<()> {
        let mut state = self.usable()?;
        let start = host as u64;
        let Some(end) = start.checked_add(bytes).filter(|end| start != 0 && *end > start) else {
            return invalid("host_register", "the range is null or empty");
        };
        if state.host_ranges.range(..end).next_back().is_some_and(|(other, length)| other + length > start) {
            return invalid("host_register", "part of the range is registered already");
        }
        state.host_ranges.insert(start, bytes);
        Ok(())
    }

    fn host_unregister(&self, host: *mut c_void) -> DeviceResult<()> {
        match self.usable()?.host_ranges.remove(&(host as u64)) {
            Some(_) => Ok(()),
            None => invalid("host_unregister", format!("{host:p} is not the start of a registered range")),
        }
    }

    fn copy(&self, copy: Copy, bytes: u64, stream: RealHandle) -> DeviceResult<()> {
        const CALL: &str = "memcpy";
        let state = self.usable()?;
        let null = || invalid(CALL, "the host address is null");
        match copy {
            _ if bytes == 0 => return state.stream(CALL, stream).map(|_| ()),
            Copy::HostToDevice { src, .. } if src.is_null() => return null(),
            Copy::DeviceToHost { dst, .. } if dst.is_null() => return null(),
            Copy::HostToDevice { dst, .. } => state.check_range(CALL, dst, bytes)?,
            Copy::DeviceToHost { src, .. } => state.check_range(CALL, src, bytes)?,
            Copy::DeviceToDevice { dst, src } => {
                state.check_range(CALL, dst, bytes)?;
                state.check_range(CALL, src, bytes)?;
            }
        }
        self.enqueue(&state, CALL, stream, Item::Own(transfer::copy(copy, bytes)))
    }

    fn memset(&self, dst: DevicePtr, value: u8, bytes: u64, stream: RealHandle) -> DeviceResult<()> {
        let state = self.usable()?;
        if bytes == 0 {
            return state.stream("memset", stream).map(|_| ());
        }
        state.check_range("memset", dst, bytes)?;
        self.enqueue(&state, "memset", stream, Item::Own(transfer::fill(dst.0, value, bytes)))
    }

    fn stream_create(&self, flags: u32, _priority: i32) -> DeviceResult<RealHandle> {
        let mut state = self.usable()?;
        if flags & !STREAM_NON_BLOCKING != 0 {
            return invalid("stream_create", format!("flags {flags:#x}; 0 or 1 (non-blocking) are known"));
        }
        let queue = Queue::start(&self.engine, false, flags & STREAM_NON_BLOCKING != 0)?;
        lock(&self.engine.streams).push(Arc::clone(&queue));
        let handle = queue.native() as u64;
        state.streams.insert(handle, queue);
        Ok(RealHandle(handle))
    }

    #[allow(unsafe_code)]
    unsafe fn stream_adopt(&self, native: *mut c_void) -> DeviceResult<RealHandle> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { AdoptedStream::of(native) }?;
        self.usable()?.adopted.insert(native as u64, stream);
        Ok(RealHandle(native as u64))
    }

    #[allow(unsafe_code)]
    unsafe fn memory_adopt(&self, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        if address.0 == 0 || bytes == 0 || address.0.checked_add(bytes).is_none() {
            return invalid("memory_adopt", format!("{bytes} bytes at {:#x} are no memory", address.0));
        }
        self.usable()?.foreign.add(address.0, bytes);
        Ok(())
    }

    fn stream_destroy(&self, stream: RealHandle) -> DeviceResult<()> {
        let mut state = self.usable()?;
        if state.adopted.remove(&stream.0).is_some() {
            return Ok(());
        }
        let Some(queue) = state.streams.remove(&stream.0) else {
            return invalid("stream_destroy", format!("no stream {:#x} on this device", stream.0));
        };
        queue.drain();
        state.retiring.retain(|queue| !queue.is_over());
        // One with work stays in the order of streams, and hears of faults.
        lock(&self.engine.streams).retain(|queue| !queue.is_over());
        state.retiring.push(queue);
        Ok(())
    }

    fn stream_query(&self, stream: RealHandle) -> DeviceResult<bool> {
        let state = self.usable()?;
        match state.adopted.get(&stream.0) {
            Some(adopted) => adopted.is_idle(self.ordinal()),
            None => Ok(state.stream("stream_query", stream)?.is_idle()),
        }
    }

    fn stream_wait_event(&self, stream: RealHandle, event: RealHandle, _flags: u32) -> DeviceResult<()> {
        const CALL: &str = "stream_wait_event";
        let state = self.usable()?;
        match state.event(CALL, event)?.last.clone() {
            Some(point) => self.enqueue(&state, CALL, stream, Item::Await(point)),
            None => state.stream(CALL, stream).map(|_| ()),
        }
    }

    fn stream_native(&self, stream: RealHandle) -> *mut c_void {
        let state = lock(&self.state);
        if let Some(adopted) = state.adopted.get(&stream.0) {
            return adopted.native();
        }
        state.stream("stream_native", stream).map_or(core::ptr::null_mut(), |queue| queue.native().cast())
    }

    fn event_create(&self, flags: u32) -> DeviceResult<RealHandle> {
        let mut state = self.usable()?;
        let handle = state.handle();
        state.events.insert(handle, Event { timed: flags & EVENT_DISABLE_TIMING == 0, last: None });
        Ok(RealHandle(handle))
    }

    fn event_destroy(&self, event: RealHandle) -> DeviceResult<()> {
        let mut state = self.usable()?;
        state.event("event_destroy", event)?;
        state.events.remove(&event.0);
        Ok(())
    }

    fn event_record(&self, event: RealHandle, stream: RealHandle) -> DeviceResult<()> {
        const CALL: &str = "event_record";
        let mut state = self.usable()?;
        state.event(CALL, event)?;
        let point = Arc::new(Point::default());
        let reach = Reach(Arc::clone(&point));
        let operation: Operation = Box::new(move || {
            reach.0.reach();
            Ok(())
        });
        self.enqueue(&state, CALL, stream, Item::Own(operation))?;
        if let Some(event) = state.events.get_mut(&event.0) {
            event.last = Some(point);
        }
        Ok(())
    }

    fn event_query(&self, event: RealHandle) -> DeviceResult<bool> {
        Ok(self.usable()?.event("event_query", event)?.last.as_ref().is_none_or(|point| point.time().is_some()))
    }

    fn event_elapsed_ms(&self, start: RealHandle, end: RealHandle) -> DeviceResult<f32> {
        const CALL: &str = "event_elapsed";
        let state = self.usable()?;
        let time = |handle| -> DeviceResult<Instant> {
            let event = state.event(CALL, handle)?;
            match event.last.as_ref().and_then(|point| point.time()) {
                Some(time) if event.timed => Ok(time),
                Some(_) => invalid(CALL, "the event was created without timing"),
                None => invalid(CALL, "the event is not recorded or not reached yet; query it first"),
            }
        };
        let (start, end) = (time(start)?, time(end)?);
        let milliseconds = |later: Instant, earlier: Instant| (later - earlier).as_secs_f32() * 1e3;
        Ok(if end >= start { milliseconds(end, start) } else { -milliseconds(start, end) })
    }

    fn module_load(&self, image: &[u8]) -> DeviceResult<RealHandle> {
        self.engine.check()?;
        let module = LoadedModule::load(image)?;
        let mut state = self.usable()?;
        let handle = state.handle();
        state.modules.insert(handle, Arc::new(module));
        Ok(RealHandle(handle))
    }

    fn module_unload(&self, module: RealHandle) -> DeviceResult<()> {
        let mut state = self.usable()?;
        let Some(unloaded) = state.modules.remove(&module.0) else {
            return invalid("module_unload", format!("no module {:#x} on this device", module.0));
        };
        state.functions.retain(|_, (of, _)| *of != module.0);
        drop(state);
        drop(unloaded);
        Ok(())
    }

    fn module_function(&self, module: RealHandle, name: &str) -> DeviceResult<Function> {
        let mut state = self.usable()?;
        let Some(loaded) = state.modules.get(&module.0).cloned() else {
            return invalid("module_function", format!("no module {:#x} on this device", module.0));
        };
        let Some(index) = loaded.kernels.iter().position(|kernel| kernel.name == name) else {
            let names: Vec<_> = loaded.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
            return Err(DeviceError::Module { reason: format!("no kernel {name}; the module has {}", names.join(", ")) });
        };
        let handle = state.handle();
        state.functions.insert(handle, (module.0, index));
        Ok(Function { real: RealHandle(handle), param_bytes: loaded.kernels[index].param_bytes.clone() })
    }

    fn launch(&self, function: &Function, shape: LaunchShape, stream: RealHandle, params: &[u8]) -> DeviceResult<()> {
        const CALL: &str = "launch";
        let state = self.usable()?;
        if shape.grid.contains(&0) || shape.block.contains(&0) {
            return invalid(CALL, format!("grid {:?} and block {:?} must not have a 0", shape.grid, shape.block));
        }
        let loaded = state.functions.get(&function.real.0).and_then(|(module, index)| Some((state.modules.get(module)?, *index)));
        let Some((module, index)) = loaded else {
            return invalid(CALL, format!("no function {:#x} on this device; was its module unloaded?", function.real.0));
        };
        let kernel: &Kernel = &module.kernels[index];
        let Some(parameters) = Parameters::copy(&kernel.param_bytes, params) else {
            let expected = &kernel.param_bytes;
            return invalid(CALL, format!("{} bytes of parameters for {}, which takes {expected:?}", params.len(), kernel.name));
        };
        let module = Arc::clone(module);
        let operation: Operation = Box::new(move || module::run(&module.kernels[index], shape, &parameters));
        self.enqueue(&state, CALL, stream, Item::Own(operation))
    }

    fn activity(&self) -> u32 {
        self.engine.activity()
    }

    fn activity_wait(&self, seen: u32, limit: Duration) {
        self.engine.activity_wait(seen, limit);
    }

    fn poke(&self) {
        self.engine.bump();
    }
}

impl Drop for HostDevice {
    /// Queued work is dropped; a collective that never ends keeps its thread and the window.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !state.stop(&self.engine) {
            state.reserved.keep();
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
