//! A driver without a GPU: keeps the books of a real one and refuses what a real one refuses.
//!
//! Device memory has bytes, per mapping. Streams run at once, or hold their work while they are stuck.

use super::code::Code;
use super::driver::{Attribute, Driver, MemoryKind, Outcome};
use crate::backend::LaunchShape;
use core::ffi::{CStr, c_void};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

pub(super) const GRANULE: u64 = 2 << 20;
const INVALID_CONTEXT: Code = Code(201);
const ILLEGAL_ADDRESS: Code = Code(700);
/// A real driver queues about as many calls and then waits; the fake refuses.
const QUEUE_LENGTH: usize = 1 << 16;

/// Work in a stream.
enum Work {
    Copy { dst: u64, src: u64, bytes: u64 },
    Fill { dst: u64, value: u8, bytes: u64 },
    Host(Box<dyn FnOnce() + Send>),
    Record(u64),
    Await { event: u64, count: u64 },
    Launch { function: u64, params: Vec<Vec<u8>> },
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Work>,
    stuck: bool,
    destroyed: bool,
}

#[derive(Default, Clone, Copy)]
struct Event {
    recorded: u64,
    reached: u64,
}

struct Mapping {
    bytes: Vec<u8>,
    memory: u64,
    allowed: bool,
}

#[derive(Default)]
pub(super) struct State {
    next: u64,
    used: u64,
    contexts: u32,
    current: HashMap<ThreadId, u64>,
    reservations: BTreeMap<u64, u64>,
    memories: HashMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    host: HashMap<u64, Vec<u8>>,
    registered: BTreeMap<u64, u64>,
    /// Memory that somebody else has allocated.
    pub(super) foreign: BTreeMap<u64, u64>,
    streams: BTreeMap<u64, Stream>,
    events: HashMap<u64, Event>,
    modules: HashSet<u64>,
    functions: HashMap<u64, (u64, String)>,
    /// Launches that ran: kernel and parameters.
    launched: Vec<(String, Vec<Vec<u8>>)>,
    /// The n-th call of a name from now fails.
    failing: Vec<(&'static str, u32, Code)>,
    sticky: Option<Code>,
    calls: HashMap<&'static str, u32>,
}

/// Kernels of every fake module, with their parameter sizes.
pub(super) const KERNELS: [(&str, &[u32]); 4] = [("add", &[8, 8, 4]), ("nothing", &[]), ("fault", &[]), ("many", &[1; 40])];

/// See above. `total` and the fields below are set before the driver is used.
pub(super) struct FakeDriver {
    pub(super) version: u32,
    pub(super) devices: u32,
    pub(super) total: u64,
    pub(super) virtual_memory: bool,
    /// Where a reservation ends up instead.
    pub(super) reserve_at: Option<u64>,
    pub(super) state: Mutex<State>,
}

impl core::fmt::Debug for FakeDriver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FakeDriver").finish_non_exhaustive()
    }
}

impl FakeDriver {
    pub(super) fn new() -> Self {
        let mut state = State { next: 0x1000, ..State::default() };
        state.streams.insert(0, Stream::default());
        Self { version: 13_000, devices: 2, total: 64 << 20, virtual_memory: true, reserve_at: None, state: Mutex::new(state) }
    }

    pub(super) fn shared() -> Arc<Self> {
        Arc::new(Self::new())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Enters a call: counts it, and lets it fail as planned.
    fn enter(&self, call: &'static str) -> Outcome<MutexGuard<'_, State>> {
        let mut state = self.state();
        *state.calls.entry(call).or_default() += 1;
        if let Some(code) = state.sticky {
            return Err(code);
        }
        let mut result = Ok(());
        state.failing.retain_mut(|(name, left, code)| {
            if *name != call {
                return true;
            }
            *left -= 1;
            if *left == 0 {
                result = Err(*code);
            }
            *left != 0
        });
        if let Err(code) = result {
            if code.is_sticky() {
                state.sticky = Some(code);
            }
            return Err(code);
        }
        Ok(state)
    }

    /// As [`FakeDriver::enter`], for calls that work in the thread's context.
    fn enter_context(&self, call: &'static str) -> Outcome<MutexGuard<'_, State>> {
        let state = self.enter(call)?;
        match state.current.get(&std::thread::current().id()) {
            Some(context) if *context != 0 => Ok(state),
            _ => Err(INVALID_CONTEXT),
        }
    }

    /// The `nth` call of this name from now on fails.
    pub(super) fn fail(&self, call: &'static str, nth: u32, code: i32) {
        self.state().failing.push((call, nth, Code(code)));
    }

    /// Every call fails from now on.
    pub(super) fn break_down(&self, code: i32) {
        self.state().sticky = Some(Code(code));
    }

    /// The stream holds its work, like one behind a collective whose peer is dead.
    pub(super) fn stick(&self, stream: u64) {
        self.state().streams.get_mut(&stream).unwrap().stuck = true;
    }

    /// It goes on.
    pub(super) fn release(&self, stream: u64) {
        let mut state = self.state();
        state.streams.get_mut(&stream).unwrap().stuck = false;
        drop(state);
        self.run();
    }

    pub(super) fn calls(&self, call: &'static str) -> u32 {
        self.state().calls.get(call).copied().unwrap_or(0)
    }

    pub(super) fn launched(&self) -> Vec<(String, Vec<Vec<u8>>)> {
        self.state().launched.clone()
    }

    /// (physical bytes, mappings, modules, events, pinned bytes)
    pub(super) fn held(&self) -> (u64, usize, usize, usize, usize) {
        let state = self.state();
        (state.used, state.mappings.len(), state.modules.len(), state.events.len(), state.host.values().map(Vec::len).sum())
    }

    /// (address, bytes) of each mapping.
    pub(super) fn mappings(&self) -> Vec<(u64, u64)> {
        self.state().mappings.iter().map(|(address, mapping)| (*address, mapping.bytes.len() as u64)).collect()
    }

    /// Nothing is left that a device took.
    pub(super) fn assert_all_given_back(&self) {
        let state = self.state();
        let left = (state.used, state.mappings.len(), state.reservations.len(), state.memories.len(), state.contexts);
        assert_eq!(left, (0, 0, 0, 0, 0), "physical bytes, mappings, reservations, memories, contexts");
        let left = (state.host.len(), state.registered.len(), state.streams.len(), state.events.len(), state.modules.len());
        assert_eq!(left, (0, 0, 1, 0, 0), "pinned, registered, streams (the default one), events, modules");
    }

    fn enqueue(&self, mut state: MutexGuard<'_, State>, stream: u64, work: Work) -> Outcome<()> {
        let Some(found) = state.streams.get_mut(&stream).filter(|stream| !stream.destroyed) else { return Err(Code::INVALID_HANDLE) };
        if found.queue.len() >= QUEUE_LENGTH {
            return Err(Code::OUT_OF_MEMORY);
        }
        found.queue.push_back(work);
        drop(state);
        self.run();
        Ok(())
    }

    /// Runs all that can run.
    fn run(&self) {
        loop {
            let mut state = self.state();
            let next = state.streams.iter().find_map(|(id, stream)| match stream.queue.front()? {
                _ if stream.stuck => None,
                Work::Await { event, count } => state.events.get(event).is_none_or(|event| event.reached >= *count).then_some(*id),
                _ => Some(*id),
            });
            let Some(id) = next else {
                let done = |stream: &Stream| stream.destroyed && stream.queue.is_empty();
                state.streams.retain(|_, stream| !done(stream));
                return;
            };
            let work = state.streams.get_mut(&id).unwrap().queue.pop_front().unwrap();
            let outcome = match work {
                Work::Host(host) => {
                    drop(state);
                    host();
                    continue;
                }
                Work::Await { .. } => Ok(()),
                Work::Record(event) => {
                    if let Some(event) = state.events.get_mut(&event) {
                        event.reached += 1;
                    }
                    Ok(())
                }
                Work::Copy { dst, src, bytes } => state.copy(dst, src, bytes),
                Work::Fill { dst, value, bytes } => state.write(dst, &vec![value; bytes as usize]),
                Work::Launch { function, params } => {
                    let name = state.functions.get(&function).map(|(_, name)| name.clone()).expect("a kernel of an unloaded module runs");
                    let outcome = if name == "fault" { Err(Code(719)) } else { Ok(()) };
                    state.launched.push((name, params));
                    outcome
                }
            };
            if let Err(code) = outcome {
                state.sticky = Some(code);
                return;
            }
        }
    }
}

impl State {
    fn handle(&mut self) -> u64 {
        self.next += 0x10;
        self.next
    }

    /// Host memory that is real: pinned memory of ours, or the test's own.
    fn is_device(&self, address: u64) -> bool {
        self.reservations.iter().any(|(base, bytes)| (*base..base + bytes).contains(&address))
    }

    fn read(&self, mut address: u64, bytes: u64) -> Outcome<Vec<u8>> {
        let mut read = Vec::with_capacity(bytes as usize);
        while (read.len() as u64) < bytes {
            let (base, mapping) = self.mappings.range(..=address).next_back().ok_or(ILLEGAL_ADDRESS)?;
            let offset = (address - base) as usize;
            if !mapping.allowed || offset >= mapping.bytes.len() {
                return Err(ILLEGAL_ADDRESS);
            }
            let part = (mapping.bytes.len() - offset).min(bytes as usize - read.len());
            read.extend_from_slice(&mapping.bytes[offset..offset + part]);
            address += part as u64;
        }
        Ok(read)
    }

    fn write(&mut self, mut address: u64, mut bytes: &[u8]) -> Outcome<()> {
        while !bytes.is_empty() {
            let (base, mapping) = self.mappings.range_mut(..=address).next_back().ok_or(ILLEGAL_ADDRESS)?;
            let offset = (address - base) as usize;
            if !mapping.allowed || offset >= mapping.bytes.len() {
                return Err(ILLEGAL_ADDRESS);
            }
            let part = (mapping.bytes.len() - offset).min(bytes.len());
            mapping.bytes[offset..offset + part].copy_from_slice(&bytes[..part]);
            address += part as u64;
            bytes = &bytes[part..];
        }
        Ok(())
    }

    fn copy(&mut self, dst: u64, src: u64, bytes: u64) -> Outcome<()> {
        let data = if self.is_device(src) {
            self.read(src, bytes)?
        } else {
            // SAFETY: host memory that the caller of the copy keeps valid.
            unsafe { core::slice::from_raw_parts(src as *const u8, bytes as usize) }.to_vec()
        };
        if self.is_device(dst) {
            return self.write(dst, &data);
        }
        // SAFETY: host memory that the caller of the copy keeps valid, and nobody else looks at now.
        unsafe { core::ptr::copy_nonoverlapping(data.as_ptr(), dst as *mut u8, data.len()) };
        Ok(())
    }
}

impl Driver for FakeDriver {
    fn describe(&self, code: Code) -> String {
        format!("FAKE_ERROR_{}", code.0)
    }

    fn version(&self) -> Outcome<u32> {
        Ok(self.version)
    }

    fn device_count(&self) -> Outcome<u32> {
        Ok(self.devices)
    }

    fn device_name(&self, ordinal: u32) -> Outcome<String> {
        Ok(format!("Fake {ordinal}"))
    }

    fn device_bytes(&self, _: u32) -> Outcome<u64> {
        Ok(self.total)
    }

    fn attribute(&self, _: u32, attribute: Attribute) -> Outcome<i32> {
        Ok(match attribute {
            Attribute::ComputeMajor => 9,
            Attribute::ComputeMinor => 0,
            Attribute::VirtualMemory => i32::from(self.virtual_memory),
            Attribute::PosixHandles | Attribute::RdmaWithVirtualMemory => 1,
        })
    }

    fn context_retain(&self, _: u32) -> Outcome<u64> {
        let mut state = self.enter("context_retain")?;
        state.contexts += 1;
        Ok(0xC0)
    }

    fn context_release(&self, _: u32) -> Outcome<()> {
        let mut state = self.enter("context_release")?;
        state.contexts = state.contexts.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        Ok(())
    }

    fn context_set_current(&self, context: u64) -> Outcome<()> {
        self.enter("context_set_current")?.current.insert(std::thread::current().id(), context);
        Ok(())
    }

    fn granularity(&self, _: MemoryKind) -> Outcome<u64> {
        self.enter("granularity").map(|_| GRANULE)
    }

    fn reserve(&self, base: u64, bytes: u64) -> Outcome<u64> {
        let mut state = self.enter("reserve")?;
        let address = self.reserve_at.unwrap_or(base);
        state.reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Outcome<()> {
        let mut state = self.enter("unreserve")?;
        let mapped = state.mappings.range(address..address + bytes).next().is_some();
        if mapped || state.reservations.get(&address) != Some(&bytes) {
            return Err(Code::INVALID_VALUE);
        }
        state.reservations.remove(&address);
        Ok(())
    }

    fn memory_create(&self, bytes: u64, kind: MemoryKind) -> Outcome<u64> {
        let mut state = self.enter("memory_create")?;
        assert!(kind.exportable && kind.rdma && bytes.is_multiple_of(GRANULE) && bytes > 0);
        if state.used + bytes > self.total {
            return Err(Code::OUT_OF_MEMORY);
        }
        state.used += bytes;
        let memory = state.handle();
        state.memories.insert(memory, bytes);
        Ok(memory)
    }

    fn memory_release(&self, memory: u64) -> Outcome<()> {
        let mut state = self.enter("memory_release")?;
        assert!(state.mappings.values().all(|mapping| mapping.memory != memory), "released while mapped: still in use");
        state.used -= state.memories.remove(&memory).ok_or(Code::INVALID_VALUE)?;
        Ok(())
    }

    fn memory_map(&self, address: u64, bytes: u64, memory: u64) -> Outcome<()> {
        let mut state = self.enter("memory_map")?;
        let reserved = state.reservations.range(..=address).next_back().is_some_and(|(base, length)| address + bytes <= base + length);
        let before = state.mappings.range(..address + bytes).next_back();
        let overlaps = before.is_some_and(|(base, mapping)| base + mapping.bytes.len() as u64 > address);
        if !reserved || overlaps || state.memories.get(&memory) != Some(&bytes) {
            return Err(Code::INVALID_VALUE);
        }
        state.mappings.insert(address, Mapping { bytes: vec![0; bytes as usize], memory, allowed: false });
        Ok(())
    }

    fn memory_unmap(&self, address: u64, bytes: u64) -> Outcome<()> {
        let mut state = self.enter("memory_unmap")?;
        assert!(state.streams.values().all(|stream| stream.queue.is_empty()), "unmapped while work is queued");
        if state.mappings.get(&address).is_none_or(|mapping| mapping.bytes.len() as u64 != bytes) {
            return Err(Code::INVALID_VALUE);
        }
        state.mappings.remove(&address);
        Ok(())
    }

    fn memory_allow(&self, address: u64, bytes: u64, _: u32) -> Outcome<()> {
        let mut state = self.enter("memory_allow")?;
        let mapping = state.mappings.get_mut(&address).filter(|mapping| mapping.bytes.len() as u64 == bytes);
        mapping.ok_or(Code::INVALID_VALUE)?.allowed = true;
        Ok(())
    }

    fn address_range(&self, address: u64) -> Outcome<(u64, u64)> {
        let state = self.enter_context("address_range")?;
        let found = state.foreign.range(..=address).next_back().filter(|(base, bytes)| address - **base < **bytes);
        found.map(|(base, bytes)| (*base, *bytes)).ok_or(Code::INVALID_VALUE)
    }

    fn memory_info(&self) -> Outcome<(u64, u64)> {
        let state = self.enter_context("memory_info")?;
        Ok((self.total - state.used, self.total))
    }

    fn host_alloc(&self, bytes: u64) -> Outcome<*mut u8> {
        let mut state = self.enter_context("host_alloc")?;
        let mut memory = vec![0; bytes as usize];
        let address = memory.as_mut_ptr();
        state.host.insert(address as u64, memory);
        Ok(address)
    }

    fn host_free(&self, host: *mut u8) -> Outcome<()> {
        self.enter_context("host_free")?.host.remove(&(host as u64)).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn host_register(&self, host: *mut c_void, bytes: u64, _: u32) -> Outcome<()> {
        let mut state = self.enter_context("host_register")?;
        let start = host as u64;
        if state.registered.range(..start + bytes).next_back().is_some_and(|(other, length)| other + length > start) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        state.registered.insert(start, bytes);
        Ok(())
    }

    fn host_unregister(&self, host: *mut c_void) -> Outcome<()> {
        let mut state = self.enter_context("host_unregister")?;
        state.registered.remove(&(host as u64)).map(|_| ()).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }

    fn is_pinned(&self, host: *const u8) -> bool {
        let (state, address) = (self.state(), host as u64);
        let registered = state.registered.range(..=address).next_back().is_some_and(|(start, bytes)| address < start + bytes);
        registered || state.host.iter().any(|(start, memory)| (*start..start + memory.len() as u64).contains(&address))
    }

    fn copy_to_device(&self, dst: u64, src: *const u8, bytes: u64, stream: u64) -> Outcome<()> {
        self.enqueue(self.enter_context("copy_to_device")?, stream, Work::Copy { dst, src: src as u64, bytes })
    }

    fn copy_to_host(&self, dst: *mut u8, src: u64, bytes: u64, stream: u64) -> Outcome<()> {
        self.enqueue(self.enter_context("copy_to_host")?, stream, Work::Copy { dst: dst as u64, src, bytes })
    }

    fn copy_within(&self, dst: u64, src: u64, bytes: u64, stream: u64) -> Outcome<()> {
        self.enqueue(self.enter_context("copy_within")?, stream, Work::Copy { dst, src, bytes })
    }

    fn fill(&self, dst: u64, value: u8, bytes: u64, stream: u64) -> Outcome<()> {
        self.enqueue(self.enter_context("fill")?, stream, Work::Fill { dst, value, bytes })
    }

    fn host_call(&self, stream: u64, work: Box<dyn FnOnce() + Send>) -> Outcome<()> {
        self.enqueue(self.enter_context("host_call")?, stream, Work::Host(work))
    }

    fn stream_create(&self, flags: u32, _: i32) -> Outcome<u64> {
        let mut state = self.enter_context("stream_create")?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = state.handle();
        state.streams.insert(stream, Stream::default());
        Ok(stream)
    }

    fn stream_destroy(&self, stream: u64) -> Outcome<()> {
        let mut state = self.enter("stream_destroy")?;
        state.streams.get_mut(&stream).filter(|_| stream != 0).ok_or(Code::INVALID_HANDLE)?.destroyed = true;
        drop(state);
        self.run();
        Ok(())
    }

    fn stream_query(&self, stream: u64) -> Outcome<()> {
        let state = self.enter_context("stream_query")?;
        match state.streams.get(&stream) {
            Some(stream) if stream.queue.is_empty() && !stream.stuck => Ok(()),
            Some(_) => Err(Code::NOT_READY),
            None => Err(Code::INVALID_HANDLE),
        }
    }

    fn stream_wait_event(&self, stream: u64, event: u64, _: u32) -> Outcome<()> {
        let state = self.enter_context("stream_wait_event")?;
        let count = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.recorded;
        self.enqueue(state, stream, Work::Await { event, count })
    }

    fn event_create(&self, _: u32) -> Outcome<u64> {
        let mut state = self.enter_context("event_create")?;
        let event = state.handle();
        state.events.insert(event, Event::default());
        Ok(event)
    }

    fn event_destroy(&self, event: u64) -> Outcome<()> {
        self.enter("event_destroy")?.events.remove(&event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    fn event_record(&self, event: u64, stream: u64) -> Outcome<()> {
        let mut state = self.enter_context("event_record")?;
        state.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?.recorded += 1;
        self.enqueue(state, stream, Work::Record(event))
    }

    fn event_query(&self, event: u64) -> Outcome<()> {
        let state = self.enter("event_query")?;
        let event = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
        if event.recorded == event.reached { Ok(()) } else { Err(Code::NOT_READY) }
    }

    fn event_elapsed_ms(&self, start: u64, end: u64) -> Outcome<f32> {
        let state = self.enter("event_elapsed_ms")?;
        for event in [start, end] {
            match state.events.get(&event) {
                Some(event) if event.recorded == 0 => return Err(Code::INVALID_HANDLE),
                Some(event) if event.recorded > event.reached => return Err(Code::NOT_READY),
                Some(_) => {}
                None => return Err(Code::INVALID_HANDLE),
            }
        }
        Ok(1.5)
    }

    fn module_load(&self, image: &[u8]) -> Result<u64, (Code, String)> {
        let mut state = self.enter_context("module_load").map_err(|code| (code, String::new()))?;
        assert_eq!(image.last(), Some(&0), "the driver reads text up to a 0 byte");
        if !image.windows(6).any(|word| word == b".entry") {
            return Err((Code(218), "line 1: no entry".into()));
        }
        let module = state.handle();
        state.modules.insert(module);
        Ok(module)
    }

    fn module_unload(&self, module: u64) -> Outcome<()> {
        let mut state = self.enter_context("module_unload")?;
        assert!(state.streams.values().all(|stream| stream.queue.is_empty()), "unloaded while work is queued");
        if !state.modules.remove(&module) {
            return Err(Code::INVALID_HANDLE);
        }
        state.functions.retain(|_, (of, _)| *of != module);
        Ok(())
    }

    fn module_function(&self, module: u64, name: &CStr) -> Outcome<u64> {
        let mut state = self.enter_context("module_function")?;
        let name = name.to_str().unwrap();
        if !state.modules.contains(&module) {
            return Err(Code::INVALID_HANDLE);
        }
        if !KERNELS.iter().any(|(kernel, _)| *kernel == name) {
            return Err(Code::NOT_FOUND);
        }
        if let Some((function, _)) = state.functions.iter().find(|(_, known)| **known == (module, name.to_owned())) {
            return Ok(*function);
        }
        let function = state.handle();
        state.functions.insert(function, (module, name.to_owned()));
        Ok(function)
    }

    fn function_load(&self, _: u64) -> Outcome<()> {
        self.enter_context("function_load").map(|_| ())
    }

    fn function_params(&self, function: u64) -> Outcome<Vec<u32>> {
        let state = self.enter_context("function_params")?;
        let (_, name) = state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        Ok(KERNELS.iter().find(|(kernel, _)| kernel == name).unwrap().1.to_vec())
    }

    fn launch(&self, function: u64, _: LaunchShape, stream: u64, params: &mut [*mut c_void]) -> Outcome<()> {
        let sizes = self.function_params(function)?;
        assert_eq!(params.len(), sizes.len());
        let read = |(pointer, bytes): (&*mut c_void, &u32)| {
            // SAFETY: one pointer for each parameter, to as many bytes.
            unsafe { core::slice::from_raw_parts(pointer.cast::<u8>(), *bytes as usize) }.to_vec()
        };
        let params = params.iter().zip(&sizes).map(|(pointer, bytes)| read((pointer, bytes))).collect();
        self.enqueue(self.enter_context("launch")?, stream, Work::Launch { function, params })
    }
}
