//! Modules: shared objects, loaded from bytes.

use crate::backend::{DeviceError, DeviceResult, LaunchShape};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use rejoin_host_stream::kernel::{
    HOST_KERNEL_ABI, HOST_KERNEL_MAGIC, HOST_KERNEL_MAX_PARAMS, HOST_KERNEL_SYMBOL, HostKernelFn, HostKernelTable, HostLaunch,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

/// A kernel of a loaded module.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) param_bytes: Vec<u32>,
    run: HostKernelFn,
}

/// A loaded module; unloaded when the last launch of it is over.
#[derive(Debug)]
pub(super) struct LoadedModule {
    pub(super) kernels: Vec<Kernel>,
    _library: libloading::os::unix::Library,
}

fn fail<T>(reason: impl Into<String>) -> DeviceResult<T> {
    Err(DeviceError::Module { reason: reason.into() })
}

/// Counts loads, for a path that the dynamic linker has not seen.
static LOADS: AtomicU32 = AtomicU32::new(0);

/// `/proc/self/fd/N`, spelled differently each time: the linker takes an object of the same *name* for the same
/// object, a descriptor's number is used again, and objects with thread-locals stay loaded.
fn unseen_path(descriptor: i32) -> String {
    let load = LOADS.fetch_add(1, Ordering::Relaxed);
    let spelling: String = (0..u32::BITS).map(|bit| if load >> bit & 1 == 1 { ".//" } else { "./" }).collect();
    format!("/proc/self/fd/{spelling}{descriptor}")
}

fn in_memory(image: &[u8]) -> std::io::Result<OwnedFd> {
    // Kernels before 6.3 do not know EXEC (and need none).
    let file = memfd_create(c"rejoin-module", MemfdFlags::CLOEXEC | MemfdFlags::from_bits_retain(libc::MFD_EXEC))
        .or_else(|_| memfd_create(c"rejoin-module", MemfdFlags::CLOEXEC))?;
    let mut file = std::fs::File::from(file);
    file.write_all(image)?;
    Ok(file.into())
}

impl LoadedModule {
    pub(super) fn load(image: &[u8]) -> DeviceResult<Self> {
        if !image.starts_with(b"\x7fELF") {
            return fail("the image is not a shared object (no ELF header); the host backend loads .so files with a kernel table");
        }
        let file = in_memory(image).or_else(|error| fail(format!("no memory file for the image: {error}")))?;
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
        // SAFETY: runs the object's initialisers: loading code is what the caller asks for.
        let library = unsafe { libloading::os::unix::Library::open(Some(unseen_path(file.as_raw_fd())), flags) }
            .or_else(|error| fail(format!("dlopen of the image: {error}")))?;
        // SAFETY: the symbol is a HostKernelTable by contract; its magic is checked before anything else is read.
        let symbol = unsafe { library.get::<*const HostKernelTable>(HOST_KERNEL_SYMBOL.to_bytes_with_nul()) }
            .or_else(|_| fail(format!("the image exports no {}; see rejoin_kernel.h", HOST_KERNEL_SYMBOL.to_string_lossy())))?;
        // SAFETY: a table, which lives as long as the library.
        let table = unsafe { &**symbol };
        if table.magic != HOST_KERNEL_MAGIC || table.abi != HOST_KERNEL_ABI {
            return fail(format!("kernel table of ABI {} (magic {:#x}), this version reads {HOST_KERNEL_ABI}", table.abi, table.magic));
        }
        let mut kernels = Vec::new();
        for index in 0..table.count as usize {
            // SAFETY: the table says that it has that many kernels.
            let at = unsafe { table.kernels.add(index) };
            // SAFETY: as above.
            let kernel = unsafe { *at };
            if kernel.name.is_null() || kernel.param_count > HOST_KERNEL_MAX_PARAMS || (kernel.param_bytes.is_null() && kernel.param_count > 0) {
                return fail(format!("kernel {index} has no name, no sizes, or more than {HOST_KERNEL_MAX_PARAMS} parameters"));
            }
            // SAFETY: not null, NUL-terminated by contract.
            let name = unsafe { CStr::from_ptr(kernel.name) }.to_string_lossy().into_owned();
            let param_bytes = if kernel.param_count == 0 {
                Vec::new()
            } else {
                // SAFETY: not null, one size a parameter by contract.
                unsafe { core::slice::from_raw_parts(kernel.param_bytes, kernel.param_count as usize) }.to_vec()
            };
            kernels.push(Kernel { name, param_bytes, run: kernel.run });
        }
        Ok(Self { kernels, _library: library })
    }
}

/// A launch's parameters, copied: each at a 16-byte boundary.
pub(super) struct Parameters {
    cells: Vec<u128>,
    starts: Vec<usize>,
}

impl Parameters {
    /// `packed` holds them one after the other; None when its length is not the sum of the sizes.
    pub(super) fn copy(param_bytes: &[u32], packed: &[u8]) -> Option<Self> {
        const CELL: usize = size_of::<u128>();
        if param_bytes.iter().map(|bytes| *bytes as usize).sum::<usize>() != packed.len() {
            return None;
        }
        let (mut cells, mut starts, mut rest) = (Vec::new(), Vec::new(), packed);
        for bytes in param_bytes {
            let (parameter, after) = rest.split_at(*bytes as usize);
            rest = after;
            starts.push(cells.len());
            for piece in parameter.chunks(CELL) {
                let mut cell = [0; CELL];
                cell[..piece.len()].copy_from_slice(piece);
                cells.push(u128::from_ne_bytes(cell));
            }
        }
        // A parameter of no bytes still points somewhere.
        cells.push(0);
        Some(Self { cells, starts })
    }
}

/// Runs a kernel; an error is a device fault.
pub(super) fn run(kernel: &Kernel, shape: LaunchShape, parameters: &Parameters) -> Result<(), String> {
    let launch = HostLaunch { grid: shape.grid, block: shape.block, shared_bytes: shape.shared_bytes, reserved: 0 };
    let pointers: Vec<*const c_void> = parameters.starts.iter().map(|start| (&raw const parameters.cells[*start]).cast()).collect();
    // SAFETY: a function of a module that the launch keeps loaded; parameters are of the sizes in its table.
    match unsafe { (kernel.run)(&launch, pointers.as_ptr()) } {
        0 => Ok(()),
        code => Err(format!("kernel {} returned {code}", kernel.name)),
    }
}
