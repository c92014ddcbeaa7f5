//! Kernels of the host backend: a shared object that exports one table.
//!
//! A module image is the bytes of such an object; `include/rejoin_kernel.h` says the same in C.
//! In Rust, [`kernels!`](crate::kernels) writes the table.

use core::ffi::{c_char, c_void};

/// Name of the symbol: a [`HostKernelTable`].
pub const HOST_KERNEL_SYMBOL: &core::ffi::CStr = c"rejoin_kernel_table";

/// "RJKERNL1", little-endian.
pub const HOST_KERNEL_MAGIC: u64 = u64::from_le_bytes(*b"RJKERNL1");

/// Version of the structs below.
pub const HOST_KERNEL_ABI: u32 = 1;

/// Most parameters of a kernel.
pub const HOST_KERNEL_MAX_PARAMS: u32 = 64;

/// Shape of a launch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HostLaunch {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
    /// 0.
    pub reserved: u32,
}

/// Runs one whole launch on the stream's worker thread. `params[i]` points to the i-th parameter, aligned to
/// 16 bytes. Not 0 is a device fault: the device is lost. Must not unwind.
pub type HostKernelFn = unsafe extern "C" fn(launch: *const HostLaunch, params: *const *const c_void) -> i32;

/// One kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostKernel {
    /// NUL-terminated UTF-8.
    pub name: *const c_char,
    /// Size in bytes of each parameter.
    pub param_bytes: *const u32,
    /// Number of parameters.
    pub param_count: u32,
    /// 0.
    pub reserved: u32,
    /// The function.
    pub run: HostKernelFn,
}

/// What the symbol holds. Constant while the object is loaded.
#[repr(C)]
pub struct HostKernelTable {
    /// [`HOST_KERNEL_MAGIC`].
    pub magic: u64,
    /// [`HOST_KERNEL_ABI`].
    pub abi: u32,
    /// Number of kernels.
    pub count: u32,
    /// The kernels.
    pub kernels: *const HostKernel,
}

// SAFETY: constant data of a shared object.
unsafe impl Sync for HostKernelTable {}
// SAFETY: as above.
unsafe impl Sync for HostKernel {}

const _: () = assert!(size_of::<HostLaunch>() == 32 && size_of::<HostKernel>() == 32 && size_of::<HostKernelTable>() == 24);

/// Defines kernels and exports their table. Parameters are plain values; device memory is a pointer.
///
/// ```
/// # mod example { // once in a crate of type cdylib
/// rejoin_host_stream::kernels! {
///     /// `y[i] *= factor`.
///     ///
///     /// # Safety
///     /// `y` points to `n` floats.
///     unsafe fn scale(launch, y: *mut f32, n: u32, factor: f32) {
///         let _ = launch;
///         for i in 0..n as usize {
///             // SAFETY: below `n`.
///             unsafe { *y.add(i) *= factor };
///         }
///     }
/// }
/// # }
/// # let mut y = [1.0f32, 2.0];
/// # let launch = rejoin_host_stream::kernel::HostLaunch { grid: [1; 3], block: [1; 3], shared_bytes: 0, reserved: 0 };
/// # unsafe { example::scale(&launch, y.as_mut_ptr(), 2, 3.0) };
/// # assert_eq!(y, [3.0, 6.0]);
/// ```
#[macro_export]
macro_rules! kernels {
    ($(
        $(#[$meta:meta])*
        unsafe fn $name:ident($launch:ident $(, $param:ident: $ty:ty)* $(,)?) $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $name($launch: &$crate::kernel::HostLaunch $(, $param: $ty)*) $body
        )*

        mod entry {
            $(
                #[allow(unused_assignments, unused_mut, unused_variables, unsafe_code)]
                pub(super) unsafe extern "C" fn $name(
                    launch: *const $crate::kernel::HostLaunch,
                    params: *const *const core::ffi::c_void,
                ) -> i32 {
                    let mut index = 0;
                    $(
                        // SAFETY: the caller gives one pointer a parameter of the table.
                        let at = unsafe { params.add(index) };
                        // SAFETY: as above.
                        let at = unsafe { at.read() };
                        // SAFETY: it points to a parameter of the size in the table.
                        let $param = unsafe { at.cast::<$ty>().read_unaligned() };
                        index += 1;
                    )*
                    // SAFETY: the launch is valid for the call.
                    let launch = unsafe { &*launch };
                    // SAFETY: who launches promises what the kernel's documentation asks for.
                    unsafe { super::$name(launch $(, $param)*) };
                    0
                }
            )*
        }

        const KERNELS: &[$crate::kernel::HostKernel] = &[$($crate::kernel::HostKernel {
            name: concat!(stringify!($name), "\0").as_ptr().cast(),
            param_bytes: {
                const SIZES: &[u32] = &[$(size_of::<$ty>() as u32),*];
                SIZES.as_ptr()
            },
            param_count: {
                const SIZES: &[u32] = &[$(size_of::<$ty>() as u32),*];
                SIZES.len() as u32
            },
            reserved: 0,
            run: entry::$name,
        }),*];

        /// The table that the host backend looks for.
        #[allow(non_upper_case_globals, unsafe_code)]
        #[unsafe(no_mangle)]
        pub static rejoin_kernel_table: $crate::kernel::HostKernelTable = $crate::kernel::HostKernelTable {
            magic: $crate::kernel::HOST_KERNEL_MAGIC,
            abi: $crate::kernel::HOST_KERNEL_ABI,
            count: KERNELS.len() as u32,
            kernels: KERNELS.as_ptr(),
        };
    };
}
