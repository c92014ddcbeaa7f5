//! The device under test, with waits that end.

use anyhow::{Context, ensure};
use journal_core::backend::cuda::{CudaDevice, CudaOptions};
use journal_core::backend::{Copy, Device, DevicePtr, Function, LaunchShape, RealHandle};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The default stream.
pub const DEFAULT: RealHandle = RealHandle(0);
/// Far above what anything here takes.
pub const WATCHDOG: Duration = Duration::from_secs(30);
/// Kernels of the checks.
pub const PTX: &[u8] = include_bytes!("kernels.ptx");

/// An open device.
pub fn open(session_index: u32) -> anyhow::Result<CudaDevice> {
    Ok(CudaDevice::create(CudaOptions { session_index, ..CudaOptions::default() })?)
}

/// Waits for a stream; the device's own error if it has one.
pub fn finish(device: &CudaDevice, stream: RealHandle) -> anyhow::Result<()> {
    let deadline = Instant::now() + WATCHDOG;
    loop {
        let seen = device.activity();
        if device.stream_query(stream)? {
            return Ok(());
        }
        let left = deadline.checked_duration_since(Instant::now()).context("a stream did not finish within 30 s")?;
        device.activity_wait(seen, left);
    }
}

/// Device memory with these bytes.
pub fn upload(device: &CudaDevice, bytes: &[u8]) -> anyhow::Result<DevicePtr> {
    let dst = device.alloc(bytes.len() as u64)?;
    device.copy(Copy::HostToDevice { dst, src: bytes.as_ptr() }, bytes.len() as u64, DEFAULT)?;
    finish(device, DEFAULT)?;
    Ok(dst)
}

/// Bytes of the device.
pub fn download(device: &CudaDevice, src: DevicePtr, bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut host = vec![0; bytes];
    device.copy(Copy::DeviceToHost { dst: host.as_mut_ptr(), src }, bytes as u64, DEFAULT)?;
    finish(device, DEFAULT)?;
    Ok(host)
}

/// Floats as bytes.
pub fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Bytes as floats.
pub fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// One thread.
pub const ONE: LaunchShape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0 };

/// A kernel of [`PTX`].
pub fn kernel(device: &CudaDevice, name: &str) -> anyhow::Result<Function> {
    Ok(device.module_function(device.module_load(PTX)?, name)?)
}

/// A word that the device sees, on a page of its own.
#[repr(align(4096))]
pub struct Flag {
    word: AtomicU32,
    _page: [u8; 4092],
}

/// A stream behind a kernel that does not end by itself.
pub struct Stuck<'a> {
    device: &'a CudaDevice,
    /// The stream.
    pub stream: RealHandle,
    flag: &'static Flag,
}

impl<'a> Stuck<'a> {
    /// Makes a stream and launches the kernel.
    pub fn start(device: &'a CudaDevice) -> anyhow::Result<Self> {
        // Leaked: the device may still look at it when a check has failed.
        let flag: &'static Flag = Box::leak(Box::new(Flag { word: AtomicU32::new(0), _page: [0; 4092] }));
        let spin = kernel(device, "spin")?;
        let stream = device.stream_create(1, 0)?;
        let address = core::ptr::from_ref(flag).cast_mut().cast();
        device.host_register(address, 4096, 0)?;
        device.launch(&spin, ONE, stream, &(address as u64).to_le_bytes())?;
        Ok(Self { device, stream, flag })
    }

    /// Runs `calls` on a thread of its own; an error if they do not return while the kernel runs.
    pub fn while_stuck<T: Send>(&self, what: &str, calls: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            scope.spawn(move || sender.send(calls()));
            match receiver.recv_timeout(WATCHDOG) {
                Ok(result) => result,
                Err(_) => {
                    self.let_go();
                    anyhow::bail!("{what} waited for a kernel that runs")
                }
            }
        })
    }

    fn let_go(&self) {
        self.flag.word.store(1, Ordering::SeqCst);
    }

    /// Ends the kernel and waits for the stream.
    pub fn release(self) -> anyhow::Result<()> {
        ensure!(!self.device.stream_query(self.stream)?, "the kernel ended by itself");
        self.let_go();
        finish(self.device, self.stream)?;
        self.device.host_unregister(core::ptr::from_ref(self.flag).cast_mut().cast())?;
        self.device.stream_destroy(self.stream)?;
        Ok(())
    }
}

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}
