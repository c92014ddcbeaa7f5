//! The CUDA backend: one GPU through the driver API, with device memory at fixed addresses.
//!
//! ```text
//! CudaDevice ── memory  (window, physical granules)     ── suballocator (which addresses are in use)
//!      ├─ objects (streams, events, modules)            ── image (is a module whole?)
//!      ├─ staging (copies of pageable memory that do not wait)
//!      └─ code (which errors lose the device), activity (waiting between queries)
//!              all through driver (a trait) ── nvidia (libcuda) | a fake in tests
//! ```
//!
//! - libcuda is opened when a device is created or probed; without it that is an error that names it.
//! - Like `cuMemFree` on a busy device, [`Device::free`] wants the streams drained first. Memory goes back to
//!   the driver, and an unloaded module off the device, when no stream of the device has work: those driver
//!   calls wait for running kernels, and a kernel of a collective whose peer is dead runs for ever.
//! - Streams that this device did not create, and addresses outside its window, are passed to the driver as
//!   they are: an application that calls CUDA itself may use its own.
//! - A sticky error loses the device for this process. Nothing brings it back; [`Device::reset`] says so.
//! - A call waits when the driver's queue of a stream is full, which it is after about a thousand calls.

mod activity;
#[deny(unsafe_code)]
mod code;
#[deny(unsafe_code)]
mod driver;
#[deny(unsafe_code)]
mod image;
#[deny(unsafe_code)]
mod memory;
mod nvidia;
#[deny(unsafe_code)]
mod objects;
#[deny(unsafe_code)]
mod probe;
mod staging;

pub use probe::{CudaDeviceInfo, CudaSystem, probe};

use super::foreign::ForeignMemory;
use super::suballocator::ALIGNMENT;
use super::{BackendKind, Copy, Device, DeviceError, DevicePtr, DeviceResult, Function, LaunchShape, RealHandle, Window};
use activity::Activity;
use code::{Code, Health};
use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use driver::{Attribute, Driver, Outcome};
use memory::{DeviceMemory, Refusal};
use nvidia::NvidiaDriver;
use crate::sync::append_only::AppendOnly;
use objects::{EVENT_DISABLE_TIMING, KnownFunction, Module, Objects};
use staging::Staging;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The library, as errors name it.
const LIBRARY: &str = "libcuda.so.1";
/// Parameter sizes (`cuFuncGetParamInfo`) and loading of functions came with it.
const OLDEST_CUDA: u32 = 12_040;
/// How long reset and drop wait for work.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// Parameters of a launch without an allocation.
const FEW_PARAMETERS: usize = 32;

/// "13.0" for 13000.
fn cuda_version(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// What to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CudaOptions {
    /// Sessions of one process have different ones; the window of index n starts n windows above the base.
    pub session_index: u32,
    /// Size of the window: address space, not memory. None: the GPU's memory, rounded up to 64 GiB.
    pub window_bytes: Option<u64>,
    /// Device number.
    pub ordinal: u32,
}

/// A GPU. See [`Device`] for the calls.
#[derive(Debug)]
pub struct CudaDevice {
    driver: Arc<dyn Driver>,
    health: Health,
    activity: Activity,
    /// This device among all of the process: what a thread has made current.
    identity: u64,
    context: u64,
    window: Window,
    memory: Mutex<DeviceMemory>,
    objects: Mutex<Objects>,
    /// A function's handle is its place here.
    functions: AppendOnly<KnownFunction>,
    foreign: Mutex<ForeignMemory>,
    staging: Staging,
}

thread_local! {
    /// Identity of the device that this thread made current last.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

fn invalid<T>(call: &'static str, reason: impl Into<String>) -> DeviceResult<T> {
    Err(DeviceError::Invalid { call, reason: reason.into() })
}

/// Locks although a thread may have panicked while holding it: every critical section leaves whole state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// Opens the driver, retains the device's primary context and reserves the window.
    ///
    /// # Errors
    /// [`DeviceError::Library`]: no driver, an old one, no GPU. [`DeviceError::Invalid`]: no such device, or
    /// one without virtual memory management. [`DeviceError::Window`]: the window is not at its base.
    pub fn create(options: CudaOptions) -> DeviceResult<Self> {
        Self::create_with(NvidiaDriver::load()?, options)
    }

    fn create_with(driver: Arc<dyn Driver>, options: CudaOptions) -> DeviceResult<Self> {
        const CALL: &str = "device_open";
        static IDENTITY: AtomicU64 = AtomicU64::new(1);
        let ordinal = options.ordinal;
        let health = Health::new(ordinal);
        let fail = |call, code| health.error(&*driver, call, code);
        let count = driver.device_count().map_err(|code| fail("cuDeviceGetCount", code))?;
        if ordinal >= count {
            return invalid(CALL, format!("device {ordinal} asked for, but there are {count} (CUDA_VISIBLE_DEVICES hides the others)"));
        }
        if driver.attribute(ordinal, Attribute::VirtualMemory).map_err(|code| fail("cuDeviceGetAttribute", code))? == 0 {
            return invalid(CALL, format!("device {ordinal} has no virtual memory management, so addresses cannot be kept"));
        }
        let context = driver.context_retain(ordinal).map_err(|code| fail("cuDevicePrimaryCtxRetain", code))?;
        let prepare = || {
            driver.context_set_current(context).map_err(|code| fail("cuCtxSetCurrent", code))?;
            let mut memory = DeviceMemory::reserve(&*driver, &health, options.session_index, options.window_bytes)?;
            let staging = Staging::create(&*driver).map_err(|code| {
                let error = fail("cuMemHostAlloc", code);
                if let Err((call, code)) = memory.close(&*driver) {
                    tracing::debug!(call, code = code.0, "the window of a device that could not be opened stays");
                }
                error
            })?;
            Ok((memory, staging))
        };
        let (memory, staging) = prepare().inspect_err(|_| {
            if let Err(code) = driver.context_release(ordinal) {
                tracing::debug!(code = code.0, "the context of a device that could not be opened stays");
            }
        })?;
        let identity = IDENTITY.fetch_add(1, Ordering::Relaxed);
        CURRENT.set(identity);
        let window = memory.window();
        tracing::trace!(ordinal, base = window.base, bytes = window.bytes, "cuda device created");
        Ok(Self {
            driver,
            health,
            activity: Activity::default(),
            identity,
            context,
            window,
            memory: Mutex::new(memory),
            objects: Mutex::new(Objects::default()),
            functions: AppendOnly::default(),
            foreign: Mutex::default(),
            staging,
        })
    }

    fn set_current(&self) -> DeviceResult<()> {
        self.driver.context_set_current(self.context).map_err(|code| self.error("cuCtxSetCurrent", code))?;
        CURRENT.set(self.identity);
        Ok(())
    }

    /// The device works, and its context is this thread's.
    fn enter(&self) -> DeviceResult<()> {
        self.health.check()?;
        if CURRENT.get() == self.identity { Ok(()) } else { self.set_current() }
    }

    fn error(&self, call: &'static str, code: Code) -> DeviceError {
        self.health.error(&*self.driver, call, code)
    }

    fn told<T>(&self, call: &'static str, outcome: Outcome<T>) -> DeviceResult<T> {
        outcome.map_err(|code| self.error(call, code))
    }

    /// True for success, false for "not ready".
    fn reached(&self, call: &'static str, outcome: Outcome<()>) -> DeviceResult<bool> {
        match outcome {
            Ok(()) => Ok(true),
            Err(Code::NOT_READY) => Ok(false),
            Err(code) => Err(self.error(call, code)),
        }
    }

    /// Gives back what was freed and unloaded, if no stream has work.
    fn release_unused(&self, memory: &mut DeviceMemory) -> DeviceResult<()> {
        let mut objects = lock(&self.objects);
        if !memory.has_unused() && !objects.has_unloaded() {
            return Ok(());
        }
        let driver = &*self.driver;
        let mut release = |objects: &mut Objects| {
            if objects.all_idle(driver)? {
                objects.release(driver)?;
                memory.release_unused(driver)?;
            }
            Ok(())
        };
        release(&mut objects).map_err(|(call, code)| self.error(call, code))
    }

    fn allocated<T>(
        &self,
        call: &'static str,
        bytes: u64,
        place: impl FnOnce(&mut DeviceMemory, &dyn Driver) -> Result<T, Refusal>,
        taken: impl FnOnce() -> Option<DeviceError>,
    ) -> DeviceResult<T> {
        self.enter()?;
        if bytes == 0 {
            return invalid(call, "0 bytes asked for");
        }
        let mut memory = lock(&self.memory);
        self.release_unused(&mut memory)?;
        place(&mut memory, &*self.driver).map_err(|refusal| match refusal {
            Refusal::Window => taken().unwrap_or_else(|| {
                let (free, total) = memory.space();
                DeviceError::OutOfMemory { requested: bytes, free, total }
            }),
            Refusal::Driver(_, Code::OUT_OF_MEMORY) => match self.driver.memory_info() {
                Ok((free, total)) => DeviceError::OutOfMemory { requested: bytes, free, total },
                Err(code) => self.error("cuMemGetInfo", code),
            },
            Refusal::Driver(call, code) => self.error(call, code),
        })
    }

    fn check_range(&self, call: &'static str, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        let usable = lock(&self.memory).is_usable(address.0, bytes);
        match usable || lock(&self.foreign).contains(address.0, bytes) {
            true => Ok(()),
            false => invalid(call, format!("{bytes} bytes at {:#x} are not inside a live allocation", address.0)),
        }
    }

    fn is_pinned(&self, host: *const u8, bytes: u64) -> bool {
        self.driver.is_pinned(host) && self.driver.is_pinned(host.wrapping_add(bytes as usize - 1))
    }

    fn check_event(&self, call: &'static str, event: RealHandle) -> DeviceResult<bool> {
        let timed = lock(&self.objects).events.get(&event.0).copied();
        timed.map_or_else(|| invalid(call, format!("no event {:#x} on this device", event.0)), Ok)
    }

    /// Waits until no stream has work.
    fn wait_idle(&self, limit: Duration) -> DeviceResult<bool> {
        let deadline = Instant::now() + limit;
        loop {
            let seen = self.activity.now();
            if lock(&self.objects).all_idle(&*self.driver).map_err(|(call, code)| self.error(call, code))? {
                return Ok(true);
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return Ok(false) };
            self.activity.wait(seen, left);
        }
    }
}

impl Device for CudaDevice {
    fn kind(&self) -> BackendKind {
        BackendKind::Cuda
    }

    fn ordinal(&self) -> u32 {
        self.health.ordinal()
    }

    fn window(&self) -> Window {
        self.window
    }

    fn make_current(&self) -> DeviceResult<()> {
        self.health.check()?;
        self.set_current()
    }

    /// After a sticky error this cannot help, and says so: the process must be replaced. Otherwise waits a few
    /// seconds for work that runs (abort communicators first), then drops everything but the window.
    fn reset(&self) -> DeviceResult<()> {
        self.enter()?;
        if !self.wait_idle(IDLE_LIMIT)? {
            return Err(DeviceError::Lost {
                ordinal: self.ordinal(),
                reason: format!(
                    "work still runs after {} s, so it cannot be reset; abort its communicators, or replace the process",
                    IDLE_LIMIT.as_secs()
                ),
            });
        }
        let mut memory = lock(&self.memory);
        let driver = &*self.driver;
        let dropped = lock(&self.objects).clear(driver).and_then(|()| memory.clear(driver));
        dropped.map_err(|(call, code)| self.error(call, code))?;
        self.activity.bump();
        Ok(())
    }

    fn alloc(&self, bytes: u64) -> DeviceResult<DevicePtr> {
        self.allocated("mem_alloc", bytes, |memory, driver| memory.alloc(driver, bytes).map(DevicePtr), || None)
    }

    fn alloc_at(&self, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        const CALL: &str = "alloc_at";
        let Window { base, bytes: window_bytes } = self.window;
        let offset = address.0.checked_sub(base).filter(|offset| *offset < window_bytes && offset.is_multiple_of(ALIGNMENT));
        if offset.is_none() {
            self.health.check()?;
            return invalid(
                CALL,
                format!("{:#x} is no multiple of {ALIGNMENT} in the window of {window_bytes} bytes at {base:#x}", address.0),
            );
        }
        let taken = || {
            let reason = format!("part of the {bytes} bytes at {:#x} is in use or outside the window", address.0);
            Some(DeviceError::Invalid { call: CALL, reason })
        };
        self.allocated(CALL, bytes, |memory, driver| memory.alloc_at(driver, address.0, bytes), taken)
    }

    fn free(&self, address: DevicePtr) -> DeviceResult<()> {
        self.enter()?;
        let mut memory = lock(&self.memory);
        if !memory.free(address.0) {
            return invalid("mem_free", format!("{:#x} is not the start of a live allocation", address.0));
        }
        self.release_unused(&mut memory)
    }

    /// Free: what both the card and the window have. Total: the card's memory.
    fn mem_info(&self) -> DeviceResult<(u64, u64)> {
        self.enter()?;
        let (free, total) = self.told("cuMemGetInfo", self.driver.memory_info())?;
        Ok((free.min(lock(&self.memory).space().0), total))
    }

    fn allocations(&self) -> Vec<(DevicePtr, u64)> {
        lock(&self.memory).live().map(|(address, bytes)| (DevicePtr(address), bytes)).collect()
    }

    fn host_register(&self, host: *mut c_void, bytes: u64, flags: u32) -> DeviceResult<()> {
        const CALL: &str = "host_register";
        self.enter()?;
        if host.is_null() || bytes == 0 {
            return invalid(CALL, "the range is null or empty");
        }
        match self.driver.host_register(host, bytes, flags) {
            Err(Code::HOST_MEMORY_ALREADY_REGISTERED) => return invalid(CALL, "part of the range is registered already"),
            other => self.told("cuMemHostRegister", other)?,
        }
        lock(&self.objects).host_ranges.insert(host as u64);
        Ok(())
    }

    fn host_unregister(&self, host: *mut c_void) -> DeviceResult<()> {
        const CALL: &str = "host_unregister";
        self.enter()?;
        match self.driver.host_unregister(host) {
            Err(Code::HOST_MEMORY_NOT_REGISTERED | Code::INVALID_VALUE) => {
                return invalid(CALL, format!("{host:p} is not the start of a registered range"));
            }
            other => self.told("cuMemHostUnregister", other)?,
        }
        lock(&self.objects).host_ranges.remove(&(host as u64));
        Ok(())
    }

    fn copy(&self, copy: Copy, bytes: u64, stream: RealHandle) -> DeviceResult<()> {
        const CALL: &str = "memcpy";
        self.enter()?;
        let (driver, stream) = (&*self.driver, stream.0);
        let null = || invalid(CALL, "the host address is null");
        match copy {
            _ if bytes == 0 => Ok(()),
            Copy::HostToDevice { src, .. } if src.is_null() => null(),
            Copy::DeviceToHost { dst, .. } if dst.is_null() => null(),
            Copy::HostToDevice { dst, src } => {
                self.check_range(CALL, dst, bytes)?;
                let outcome = match self.is_pinned(src, bytes) {
                    true => driver.copy_to_device(dst.0, src, bytes, stream),
                    false => self.staging.copy_to_device(driver, dst.0, src, bytes, stream),
                };
                self.told("cuMemcpyHtoDAsync", outcome)
            }
            Copy::DeviceToHost { dst, src } => {
                self.check_range(CALL, src, bytes)?;
                let outcome = match self.is_pinned(dst, bytes) {
                    true => driver.copy_to_host(dst, src.0, bytes, stream),
                    false => self.staging.copy_to_host(driver, dst, src.0, bytes, stream),
                };
                self.told("cuMemcpyDtoHAsync", outcome)
            }
            Copy::DeviceToDevice { dst, src } => {
                self.check_range(CALL, dst, bytes)?;
                self.check_range(CALL, src, bytes)?;
                self.told("cuMemcpyDtoDAsync", driver.copy_within(dst.0, src.0, bytes, stream))
            }
        }
    }

    fn memset(&self, dst: DevicePtr, value: u8, bytes: u64, stream: RealHandle) -> DeviceResult<()> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        self.check_range("memset", dst, bytes)?;
        self.told("cuMemsetD8Async", self.driver.fill(dst.0, value, bytes, stream.0))
    }

    fn stream_create(&self, flags: u32, priority: i32) -> DeviceResult<RealHandle> {
        self.enter()?;
        let stream = self.told("cuStreamCreateWithPriority", self.driver.stream_create(flags, priority))?;
        lock(&self.objects).streams.insert(stream);
        Ok(RealHandle(stream))
    }

    unsafe fn stream_adopt(&self, native: *mut c_void) -> DeviceResult<RealHandle> {
        self.enter()?;
        let stream = native as u64;
        if stream == 0 {
            return invalid("stream_adopt", "the default stream needs no adopting");
        }
        self.reached("cuStreamQuery", self.driver.stream_query(stream))?;
        let mut objects = lock(&self.objects);
        objects.streams.insert(stream);
        objects.adopted.insert(stream);
        Ok(RealHandle(stream))
    }

    unsafe fn memory_adopt(&self, address: DevicePtr, bytes: u64) -> DeviceResult<()> {
        const CALL: &str = "memory_adopt";
        self.enter()?;
        let (base, length) = match self.driver.address_range(address.0) {
            Ok(range) => range,
            Err(code) if bytes == 0 || code == Code::INVALID_VALUE => {
                return invalid(CALL, format!("{:#x} is no device memory of this context", address.0));
            }
            Err(code) => return Err(self.error("cuMemGetAddressRange", code)),
        };
        let at = address.0 - base;
        if bytes == 0 || bytes > length - at {
            return invalid(CALL, format!("{bytes} bytes at {:#x}: its allocation has {length} bytes from {base:#x}", address.0));
        }
        lock(&self.foreign).add(address.0, bytes);
        Ok(())
    }

    fn stream_destroy(&self, stream: RealHandle) -> DeviceResult<()> {
        self.enter()?;
        let mut objects = lock(&self.objects);
        if !objects.streams.contains(&stream.0) {
            return invalid("stream_destroy", format!("no stream {:#x} on this device", stream.0));
        }
        objects.destroy_stream(&*self.driver, stream.0).map_err(|(call, code)| self.error(call, code))
    }

    fn stream_query(&self, stream: RealHandle) -> DeviceResult<bool> {
        self.enter()?;
        self.reached("cuStreamQuery", self.driver.stream_query(stream.0))
    }

    fn stream_wait_event(&self, stream: RealHandle, event: RealHandle, flags: u32) -> DeviceResult<()> {
        self.enter()?;
        self.check_event("stream_wait_event", event)?;
        self.told("cuStreamWaitEvent", self.driver.stream_wait_event(stream.0, event.0, flags))
    }

    fn stream_native(&self, stream: RealHandle) -> *mut c_void {
        stream.0 as *mut c_void
    }

    fn event_create(&self, flags: u32) -> DeviceResult<RealHandle> {
        self.enter()?;
        let event = self.told("cuEventCreate", self.driver.event_create(flags))?;
        lock(&self.objects).events.insert(event, flags & EVENT_DISABLE_TIMING == 0);
        Ok(RealHandle(event))
    }

    fn event_destroy(&self, event: RealHandle) -> DeviceResult<()> {
        self.enter()?;
        self.check_event("event_destroy", event)?;
        lock(&self.objects).events.remove(&event.0);
        self.told("cuEventDestroy", self.driver.event_destroy(event.0))
    }

    fn event_record(&self, event: RealHandle, stream: RealHandle) -> DeviceResult<()> {
        self.enter()?;
        self.check_event("event_record", event)?;
        self.told("cuEventRecord", self.driver.event_record(event.0, stream.0))
    }

    fn event_query(&self, event: RealHandle) -> DeviceResult<bool> {
        self.enter()?;
        self.check_event("event_query", event)?;
        self.reached("cuEventQuery", self.driver.event_query(event.0))
    }

    fn event_elapsed_ms(&self, start: RealHandle, end: RealHandle) -> DeviceResult<f32> {
        const CALL: &str = "event_elapsed";
        self.enter()?;
        if !self.check_event(CALL, start)? || !self.check_event(CALL, end)? {
            return invalid(CALL, "the event was created without timing");
        }
        match self.driver.event_elapsed_ms(start.0, end.0) {
            // "If either event has not been recorded" is INVALID_HANDLE.
            Err(Code::NOT_READY | Code::INVALID_HANDLE) => {
                invalid(CALL, "the event is not recorded or not reached yet; query it first")
            }
            other => self.told("cuEventElapsedTime", other),
        }
    }

    fn module_load(&self, image: &[u8]) -> DeviceResult<RealHandle> {
        self.enter()?;
        let prepared = image::prepare(image)?;
        let module = self.driver.module_load(&prepared).map_err(|(code, log)| {
            if code.is_sticky() {
                return self.error("cuModuleLoadDataEx", code);
            }
            let separator = if log.is_empty() { "" } else { ": " };
            DeviceError::Module {
                reason: format!("the driver refuses the image with {} ({}){separator}{log}", code.0, self.driver.describe(code)),
            }
        })?;
        lock(&self.objects).modules.insert(module, Module::new(module));
        Ok(RealHandle(module))
    }

    fn module_unload(&self, module: RealHandle) -> DeviceResult<()> {
        self.enter()?;
        if !lock(&self.objects).unload(module.0) {
            return invalid("module_unload", format!("no module {:#x} on this device", module.0));
        }
        let mut memory = lock(&self.memory);
        self.release_unused(&mut memory)
    }

    fn module_function(&self, module: RealHandle, name: &str) -> DeviceResult<Function> {
        self.enter()?;
        let Some(loaded) = lock(&self.objects).modules.get(&module.0).cloned() else {
            return invalid("module_function", format!("no module {:#x} on this device", module.0));
        };
        let Ok(c_name) = CString::new(name) else { return invalid("module_function", "the name has a 0 byte in it") };
        let function = match self.driver.module_function(loaded.real, &c_name) {
            Err(Code::NOT_FOUND) => return Err(DeviceError::Module { reason: format!("no kernel {name} in the module (extern \"C\"?)") }),
            other => self.told("cuModuleGetFunction", other)?,
        };
        self.told("cuFuncLoad", self.driver.function_load(function))?;
        let param_bytes = self.told("cuFuncGetParamInfo", self.driver.function_params(function))?;
        let place = self.functions.add(KnownFunction { real: function, module: loaded, param_bytes: param_bytes.clone() });
        Ok(Function { real: RealHandle(place), param_bytes })
    }

    fn launch(&self, function: &Function, shape: LaunchShape, stream: RealHandle, params: &[u8]) -> DeviceResult<()> {
        const CALL: &str = "launch";
        self.enter()?;
        if shape.grid.contains(&0) || shape.block.contains(&0) {
            return invalid(CALL, format!("grid {:?} and block {:?} must not have a 0", shape.grid, shape.block));
        }
        let known = self.functions.get(function.real.0);
        // Until the call is made, so that the module stays.
        let Some((known, _pass)) = known.and_then(|known| Some((known, known.module.gate.enter()?))) else {
            return invalid(CALL, format!("no function {:#x} on this device; was its module unloaded?", function.real.0));
        };
        let sizes = &known.param_bytes;
        if sizes.iter().map(|bytes| u64::from(*bytes)).sum::<u64>() != params.len() as u64 {
            return invalid(CALL, format!("{} bytes of parameters for a kernel that takes {sizes:?}", params.len()));
        }
        let mut few = [core::ptr::null_mut(); FEW_PARAMETERS];
        let mut many = Vec::new();
        let pointers = if sizes.len() <= FEW_PARAMETERS {
            &mut few[..sizes.len()]
        } else {
            many.resize(sizes.len(), core::ptr::null_mut());
            &mut many[..]
        };
        let mut rest = params;
        for (pointer, bytes) in pointers.iter_mut().zip(sizes) {
            // The driver only reads it.
            *pointer = rest.as_ptr().cast_mut().cast::<c_void>();
            rest = &rest[*bytes as usize..];
        }
        self.told("cuLaunchKernel", self.driver.launch(known.real, shape, stream.0, pointers))
    }

    fn activity(&self) -> u32 {
        self.activity.now()
    }

    fn activity_wait(&self, seen: u32, limit: Duration) {
        self.activity.wait(seen, limit);
    }

    fn poke(&self) {
        self.activity.bump();
    }
}

impl Drop for CudaDevice {
    /// Gives everything back if the device is idle. Otherwise, and after a sticky error, it is left to the
    /// end of the process: those calls would wait for what never ends.
    fn drop(&mut self) {
        if self.health.is_lost() || self.set_current().is_err() || !self.wait_idle(Duration::ZERO).unwrap_or(false) {
            tracing::debug!(ordinal = self.ordinal(), "device is lost or busy: left to the end of the process");
            return;
        }
        let driver = &*self.driver;
        let objects = self.objects.get_mut().unwrap_or_else(PoisonError::into_inner);
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        let closed = objects
            .clear(driver)
            .and_then(|()| memory.close(driver))
            .and_then(|()| self.staging.close(driver).map_err(|code| ("cuMemFreeHost", code)))
            .and_then(|()| driver.context_release(self.health.ordinal()).map_err(|code| ("cuDevicePrimaryCtxRelease", code)));
        CURRENT.set(0);
        if let Err((call, code)) = closed {
            tracing::debug!(call, code = code.0, "device not wholly given back");
        }
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
