//! NVIDIA's driver: the functions of libcuda, with the types of cudarc.
//!
//! The functions are taken from the library one by one: cudarc's own wrappers panic where the library or one
//! function is missing, and their result is an enum that a newer driver may leave.
//! <https://docs.nvidia.com/cuda/cuda-driver-api/index.html>

use super::code::Code;
use super::driver::{Attribute, Driver, MemoryKind, Outcome};
use super::{LIBRARY, OLDEST_CUDA, cuda_version};
use crate::backend::{DeviceError, DeviceResult, LaunchShape};
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr::null_mut;
use cudarc::driver::sys;
use std::sync::Arc;

/// Bytes for the compiler's messages.
const LOG_BYTES: usize = 8192;
/// No kernel has more parameters: each takes at least one byte of 32,764.
const MOST_PARAMETERS: usize = 32_764;

type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident $symbol:literal ($($ty:ty),*);)*) => {
        struct Functions { $($field: unsafe extern "C" fn($($ty),*) -> c_int,)* }

        impl Functions {
            fn load(library: &libloading::Library, version: u32) -> DeviceResult<Self> {
                Ok(Self { $($field: {
                    // SAFETY: the symbol has this signature in cuda.h of every version that has it.
                    let found = unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> c_int>(concat!($symbol, "\0").as_bytes()) };
                    *found.map_err(|_| missing_function($symbol, version))?
                },)* })
            }
        }
    };
}

functions! {
    init "cuInit" (c_uint);
    get_error_name "cuGetErrorName" (c_int, *mut *const c_char);
    get_error_string "cuGetErrorString" (c_int, *mut *const c_char);
    device_get_count "cuDeviceGetCount" (*mut c_int);
    device_get "cuDeviceGet" (*mut c_int, c_int);
    device_get_name "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_total_mem "cuDeviceTotalMem_v2" (*mut usize, c_int);
    device_get_attribute "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    primary_ctx_retain "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    primary_ctx_release "cuDevicePrimaryCtxRelease_v2" (c_int);
    ctx_set_current "cuCtxSetCurrent" (Handle);
    mem_get_allocation_granularity "cuMemGetAllocationGranularity" (*mut usize, *const sys::CUmemAllocationProp, c_uint);
    mem_address_reserve "cuMemAddressReserve" (*mut u64, usize, usize, u64, c_ulonglong);
    mem_address_free "cuMemAddressFree" (u64, usize);
    mem_create "cuMemCreate" (*mut u64, usize, *const sys::CUmemAllocationProp, c_ulonglong);
    mem_release "cuMemRelease" (u64);
    mem_map "cuMemMap" (u64, usize, usize, u64, c_ulonglong);
    mem_unmap "cuMemUnmap" (u64, usize);
    mem_set_access "cuMemSetAccess" (u64, usize, *const sys::CUmemAccessDesc, usize);
    mem_get_info "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_get_address_range "cuMemGetAddressRange_v2" (*mut u64, *mut usize, u64);
    mem_host_alloc "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    mem_free_host "cuMemFreeHost" (*mut c_void);
    mem_host_register "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    mem_host_unregister "cuMemHostUnregister" (*mut c_void);
    pointer_get_attribute "cuPointerGetAttribute" (*mut c_void, c_int, u64);
    memcpy_htod_async "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle);
    memcpy_dtoh_async "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Handle);
    memcpy_dtod_async "cuMemcpyDtoDAsync_v2" (u64, u64, usize, Handle);
    memset_d8_async "cuMemsetD8Async" (u64, u8, usize, Handle);
    launch_host_func "cuLaunchHostFunc" (Handle, unsafe extern "C" fn(*mut c_void), *mut c_void);
    stream_create "cuStreamCreateWithPriority" (*mut Handle, c_uint, c_int);
    stream_destroy "cuStreamDestroy_v2" (Handle);
    stream_query "cuStreamQuery" (Handle);
    stream_wait_event "cuStreamWaitEvent" (Handle, Handle, c_uint);
    event_create "cuEventCreate" (*mut Handle, c_uint);
    event_destroy "cuEventDestroy_v2" (Handle);
    event_record "cuEventRecord" (Handle, Handle);
    event_query "cuEventQuery" (Handle);
    event_elapsed_time "cuEventElapsedTime" (*mut f32, Handle, Handle);
    module_load_data_ex "cuModuleLoadDataEx" (*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload "cuModuleUnload" (Handle);
    module_get_function "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    func_load "cuFuncLoad" (Handle);
    func_get_param_info "cuFuncGetParamInfo" (Handle, usize, *mut usize, *mut usize);
    launch_kernel "cuLaunchKernel" (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
}

fn library_error(reason: String) -> DeviceError {
    DeviceError::Library { library: LIBRARY.into(), reason }
}

fn missing_function(symbol: &str, version: u32) -> DeviceError {
    library_error(format!(
        "has no {symbol}; it supports CUDA {}, and CUDA {} or newer is needed: install a newer NVIDIA driver",
        cuda_version(version),
        cuda_version(OLDEST_CUDA)
    ))
}

pub(super) struct NvidiaDriver {
    functions: Functions,
    version: u32,
}

impl core::fmt::Debug for NvidiaDriver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NvidiaDriver").field("version", &self.version).finish_non_exhaustive()
    }
}

impl NvidiaDriver {
    /// Opens libcuda and initializes it. Touches no device yet.
    pub(super) fn load() -> DeviceResult<Arc<Self>> {
        // SAFETY: runs the library's initializers, which are NVIDIA's.
        let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(|error| {
            library_error(format!(
                "cannot be loaded ({error}); install the NVIDIA driver, give the container its GPU, or ask for the host backend by its name"
            ))
        })?;
        // Never unloaded: the driver has threads of its own.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the signature in cuda.h since CUDA 2.2.
        let get_version = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0") };
        let get_version = get_version.map_err(|_| library_error("has no cuDriverGetVersion; it is not NVIDIA's driver".into()))?;
        let mut version = 0;
        // SAFETY: writes one int; may be called before cuInit.
        let code = unsafe { get_version(&raw mut version) };
        if code != 0 {
            return Err(library_error(format!("cuDriverGetVersion returned {code}; is the kernel module loaded? (nvidia-smi)")));
        }
        let version = u32::try_from(version).unwrap_or(0);
        if version < OLDEST_CUDA {
            return Err(library_error(format!(
                "supports CUDA {}, and CUDA {} or newer is needed: install a newer NVIDIA driver",
                cuda_version(version),
                cuda_version(OLDEST_CUDA)
            )));
        }
        let driver = Self { functions: Functions::load(library, version)?, version };
        // SAFETY: flags must be 0.
        let code = unsafe { (driver.functions.init)(0) };
        match Code(code) {
            Code(0) => Ok(Arc::new(driver)),
            Code::NO_DEVICE => Err(library_error("finds no GPU (is CUDA_VISIBLE_DEVICES empty?)".into())),
            other => Err(library_error(format!("cuInit returned {code} ({})", driver.describe(other)))),
        }
    }
}

fn done(code: c_int) -> Outcome<()> {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

fn handle(value: u64) -> Handle {
    value as Handle
}

fn size(bytes: u64) -> Outcome<usize> {
    usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)
}

fn ordinal(number: u32) -> Outcome<c_int> {
    c_int::try_from(number).map_err(|_| Code::INVALID_VALUE)
}

fn location(number: u32) -> Outcome<sys::CUmemLocation> {
    Ok(sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal(number)? })
}

fn properties(kind: MemoryKind) -> Outcome<sys::CUmemAllocationProp> {
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: if kind.exportable {
            sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        } else {
            sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        },
        location: location(kind.ordinal)?,
        win32HandleMetaData: null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(kind.rdma),
            usage: 0,
            reserved: [0; 4],
        },
    })
}

type HostWork = Box<dyn FnOnce() + Send>;

/// What `cuLaunchHostFunc` calls. A panic must not cross into the driver.
unsafe extern "C" fn run_host_work(data: *mut c_void) {
    // SAFETY: `host_call` leaked this box for exactly one call.
    let work = unsafe { Box::from_raw(data.cast::<HostWork>()) };
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
        tracing::error!("work in the order of a stream panicked; a copy to or from host memory is not done");
    }
}

// Arguments of all calls below: handles and ranges are as the trait promises, out pointers are locals.
impl Driver for NvidiaDriver {
    fn describe(&self, code: Code) -> String {
        let text = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = core::ptr::null();
            // SAFETY: any code may be asked for; an unknown one leaves null.
            let found = unsafe { function(code.0, &raw mut text) };
            if found != 0 || text.is_null() {
                return None;
            }
            // SAFETY: a constant text of the driver.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.functions.get_error_name), text(self.functions.get_error_string)) {
            (Some(name), Some(text)) => format!("{name}: {text}"),
            _ => "a code that this driver does not know".into(),
        }
    }

    fn version(&self) -> Outcome<u32> {
        Ok(self.version)
    }

    fn device_count(&self) -> Outcome<u32> {
        let mut count = 0;
        // SAFETY: writes one int.
        done(unsafe { (self.functions.device_get_count)(&raw mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    fn device_name(&self, number: u32) -> Outcome<String> {
        let mut name = [0u8; 128];
        let device = self.device(number)?;
        // SAFETY: writes at most the given number of bytes, 0 included.
        done(unsafe { (self.functions.device_get_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) })?;
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    fn device_bytes(&self, number: u32) -> Outcome<u64> {
        let mut bytes = 0;
        let device = self.device(number)?;
        // SAFETY: writes one size.
        done(unsafe { (self.functions.device_total_mem)(&raw mut bytes, device) })?;
        Ok(bytes as u64)
    }

    fn attribute(&self, number: u32, attribute: Attribute) -> Outcome<i32> {
        let mut value = 0;
        let device = self.device(number)?;
        // SAFETY: writes one int; a number that is no attribute is refused.
        done(unsafe { (self.functions.device_get_attribute)(&raw mut value, attribute as c_int, device) })?;
        Ok(value)
    }

    fn context_retain(&self, number: u32) -> Outcome<u64> {
        let mut context = null_mut();
        let device = self.device(number)?;
        // SAFETY: writes one handle.
        done(unsafe { (self.functions.primary_ctx_retain)(&raw mut context, device) })?;
        Ok(context as u64)
    }

    fn context_release(&self, number: u32) -> Outcome<()> {
        let device = self.device(number)?;
        // SAFETY: released as often as retained.
        done(unsafe { (self.functions.primary_ctx_release)(device) })
    }

    fn context_set_current(&self, context: u64) -> Outcome<()> {
        // SAFETY: a retained context.
        done(unsafe { (self.functions.ctx_set_current)(handle(context)) })
    }

    fn granularity(&self, kind: MemoryKind) -> Outcome<u64> {
        const MINIMUM: c_uint = 0;
        let properties = properties(kind)?;
        let mut bytes = 0;
        // SAFETY: reads the properties, writes one size.
        done(unsafe { (self.functions.mem_get_allocation_granularity)(&raw mut bytes, &raw const properties, MINIMUM) })?;
        Ok(bytes as u64)
    }

    fn reserve(&self, base: u64, bytes: u64) -> Outcome<u64> {
        let mut address = 0;
        // SAFETY: reserves addresses that nothing uses; alignment 0 is the default, flags must be 0.
        done(unsafe { (self.functions.mem_address_reserve)(&raw mut address, size(bytes)?, 0, base, 0) })?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Outcome<()> {
        // SAFETY: a reservation with nothing mapped in it.
        done(unsafe { (self.functions.mem_address_free)(address, size(bytes)?) })
    }

    fn memory_create(&self, bytes: u64, kind: MemoryKind) -> Outcome<u64> {
        let properties = properties(kind)?;
        let mut memory = 0;
        // SAFETY: reads the properties, writes one handle.
        done(unsafe { (self.functions.mem_create)(&raw mut memory, size(bytes)?, &raw const properties, 0) })?;
        Ok(memory)
    }

    fn memory_release(&self, memory: u64) -> Outcome<()> {
        // SAFETY: a live handle, given up with this.
        done(unsafe { (self.functions.mem_release)(memory) })
    }

    fn memory_map(&self, address: u64, bytes: u64, memory: u64) -> Outcome<()> {
        // SAFETY: an unmapped range of the reservation, a live handle of that size; offset and flags must be 0.
        done(unsafe { (self.functions.mem_map)(address, size(bytes)?, 0, memory, 0) })
    }

    fn memory_unmap(&self, address: u64, bytes: u64) -> Outcome<()> {
        // SAFETY: exactly one mapping, which no work touches.
        done(unsafe { (self.functions.mem_unmap)(address, size(bytes)?) })
    }

    fn memory_allow(&self, address: u64, bytes: u64, number: u32) -> Outcome<()> {
        let access =
            sys::CUmemAccessDesc { location: location(number)?, flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: a mapped range; reads one description.
        done(unsafe { (self.functions.mem_set_access)(address, size(bytes)?, &raw const access, 1) })
    }

    fn address_range(&self, address: u64) -> Outcome<(u64, u64)> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: writes two numbers; the driver checks the address.
        done(unsafe { (self.functions.mem_get_address_range)(&raw mut base, &raw mut bytes, address) })?;
        Ok((base, bytes as u64))
    }

    fn memory_info(&self) -> Outcome<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        done(unsafe { (self.functions.mem_get_info)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }

    fn host_alloc(&self, bytes: u64) -> Outcome<*mut u8> {
        const PORTABLE: c_uint = 1;
        let mut host = null_mut();
        // SAFETY: writes one pointer.
        done(unsafe { (self.functions.mem_host_alloc)(&raw mut host, size(bytes)?, PORTABLE) })?;
        Ok(host.cast())
    }

    fn host_free(&self, host: *mut u8) -> Outcome<()> {
        // SAFETY: memory of `host_alloc` that no work touches.
        done(unsafe { (self.functions.mem_free_host)(host.cast()) })
    }

    fn host_register(&self, host: *mut c_void, bytes: u64, flags: u32) -> Outcome<()> {
        // SAFETY: the driver checks the range; the caller keeps it mapped until it is unregistered.
        done(unsafe { (self.functions.mem_host_register)(host, size(bytes)?, flags) })
    }

    fn host_unregister(&self, host: *mut c_void) -> Outcome<()> {
        // SAFETY: the driver refuses what is not registered.
        done(unsafe { (self.functions.mem_host_unregister)(host) })
    }

    fn is_pinned(&self, host: *const u8) -> bool {
        const MEMORY_TYPE: c_int = 2;
        const HOST: c_uint = 1;
        let mut kind: c_uint = 0;
        // SAFETY: writes one unsigned int; any address may be asked for, an unknown one is refused.
        let code = unsafe { (self.functions.pointer_get_attribute)((&raw mut kind).cast(), MEMORY_TYPE, host as u64) };
        code == 0 && kind == HOST
    }

    fn copy_to_device(&self, dst: u64, src: *const u8, bytes: u64, stream: u64) -> Outcome<()> {
        // SAFETY: the caller keeps both ranges valid until the copy is done.
        done(unsafe { (self.functions.memcpy_htod_async)(dst, src.cast(), size(bytes)?, handle(stream)) })
    }

    fn copy_to_host(&self, dst: *mut u8, src: u64, bytes: u64, stream: u64) -> Outcome<()> {
        // SAFETY: the caller keeps both ranges valid until the copy is done.
        done(unsafe { (self.functions.memcpy_dtoh_async)(dst.cast(), src, size(bytes)?, handle(stream)) })
    }

    fn copy_within(&self, dst: u64, src: u64, bytes: u64, stream: u64) -> Outcome<()> {
        // SAFETY: the caller keeps both ranges valid until the copy is done.
        done(unsafe { (self.functions.memcpy_dtod_async)(dst, src, size(bytes)?, handle(stream)) })
    }

    fn fill(&self, dst: u64, value: u8, bytes: u64, stream: u64) -> Outcome<()> {
        // SAFETY: the caller keeps the range valid until the fill is done.
        done(unsafe { (self.functions.memset_d8_async)(dst, value, size(bytes)?, handle(stream)) })
    }

    fn host_call(&self, stream: u64, work: HostWork) -> Outcome<()> {
        let data = Box::into_raw(Box::new(work));
        // SAFETY: the function takes the box back; it is called once, or never after a sticky error.
        let outcome = done(unsafe { (self.functions.launch_host_func)(handle(stream), run_host_work, data.cast()) });
        if outcome.is_err() {
            // SAFETY: refused, so nobody else has it.
            drop(unsafe { Box::from_raw(data) });
        }
        outcome
    }

    fn stream_create(&self, flags: u32, priority: i32) -> Outcome<u64> {
        let mut stream = null_mut();
        // SAFETY: writes one handle; the driver checks flags and clamps the priority.
        done(unsafe { (self.functions.stream_create)(&raw mut stream, flags, priority) })?;
        Ok(stream as u64)
    }

    fn stream_destroy(&self, stream: u64) -> Outcome<()> {
        // SAFETY: a live stream, given up with this; its work goes on.
        done(unsafe { (self.functions.stream_destroy)(handle(stream)) })
    }

    fn stream_query(&self, stream: u64) -> Outcome<()> {
        // SAFETY: a live stream.
        done(unsafe { (self.functions.stream_query)(handle(stream)) })
    }

    fn stream_wait_event(&self, stream: u64, event: u64, flags: u32) -> Outcome<()> {
        // SAFETY: a live stream and a live event.
        done(unsafe { (self.functions.stream_wait_event)(handle(stream), handle(event), flags) })
    }

    fn event_create(&self, flags: u32) -> Outcome<u64> {
        let mut event = null_mut();
        // SAFETY: writes one handle; the driver checks the flags.
        done(unsafe { (self.functions.event_create)(&raw mut event, flags) })?;
        Ok(event as u64)
    }

    fn event_destroy(&self, event: u64) -> Outcome<()> {
        // SAFETY: a live event, given up with this.
        done(unsafe { (self.functions.event_destroy)(handle(event)) })
    }

    fn event_record(&self, event: u64, stream: u64) -> Outcome<()> {
        // SAFETY: a live event and a live stream.
        done(unsafe { (self.functions.event_record)(handle(event), handle(stream)) })
    }

    fn event_query(&self, event: u64) -> Outcome<()> {
        // SAFETY: a live event.
        done(unsafe { (self.functions.event_query)(handle(event)) })
    }

    fn event_elapsed_ms(&self, start: u64, end: u64) -> Outcome<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: two live events; writes one float.
        done(unsafe { (self.functions.event_elapsed_time)(&raw mut milliseconds, handle(start), handle(end)) })?;
        Ok(milliseconds)
    }

    fn module_load(&self, image: &[u8]) -> Result<u64, (Code, String)> {
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER as c_int,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as c_int,
        ];
        // A number is passed as the value of the pointer.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG_BYTES as *mut c_void];
        let mut module = null_mut();
        // SAFETY: a complete image, two options with their values, one handle; the log has the size given.
        let code = unsafe {
            (self.functions.module_load_data_ex)(
                &raw mut module,
                image.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        let text = || CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().trim().to_owned()).unwrap_or_default();
        done(code).map(|()| module as u64).map_err(|code| (code, text()))
    }

    fn module_unload(&self, module: u64) -> Outcome<()> {
        // SAFETY: a live module, given up with this; none of its functions runs.
        done(unsafe { (self.functions.module_unload)(handle(module)) })
    }

    fn module_function(&self, module: u64, name: &CStr) -> Outcome<u64> {
        let mut function = null_mut();
        // SAFETY: a live module; writes one handle.
        done(unsafe { (self.functions.module_get_function)(&raw mut function, handle(module), name.as_ptr()) })?;
        Ok(function as u64)
    }

    fn function_load(&self, function: u64) -> Outcome<()> {
        // SAFETY: a function of a live module.
        done(unsafe { (self.functions.func_load)(handle(function)) })
    }

    fn function_params(&self, function: u64) -> Outcome<Vec<u32>> {
        let mut sizes = Vec::new();
        for index in 0..MOST_PARAMETERS {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: a function of a live module; writes two sizes.
            let code = unsafe { (self.functions.func_get_param_info)(handle(function), index, &raw mut offset, &raw mut bytes) };
            match done(code) {
                Ok(()) => sizes.push(u32::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?),
                // "If paramIndex is out of range": there are no more.
                Err(Code::INVALID_VALUE) => return Ok(sizes),
                Err(code) => return Err(code),
            }
        }
        Ok(sizes)
    }

    fn launch(&self, function: u64, shape: LaunchShape, stream: u64, params: &mut [*mut c_void]) -> Outcome<()> {
        let LaunchShape { grid, block, shared_bytes } = shape;
        // SAFETY: a function of a live module and one pointer for each of its parameters, read before this returns.
        done(unsafe {
            (self.functions.launch_kernel)(
                handle(function),
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                handle(stream),
                params.as_mut_ptr(),
                null_mut(),
            )
        })
    }
}

impl NvidiaDriver {
    fn device(&self, number: u32) -> Outcome<c_int> {
        let mut device = 0;
        // SAFETY: writes one number; the driver checks the ordinal.
        done(unsafe { (self.functions.device_get)(&raw mut device, ordinal(number)?) })?;
        Ok(device)
    }
}
