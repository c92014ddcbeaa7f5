//! What CUDA is to an application: a device, memory and a stream that Rejoin has not made.

use anyhow::ensure;
use journal_core::backend::host::{HostDevice, HostOptions};
use journal_core::backend::{Copy, Device, DevicePtr, RealHandle};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(60);

/// The application's own.
pub struct OwnDevice {
    device: HostDevice,
    stream: RealHandle,
}

impl OwnDevice {
    /// Elsewhere in the address space than the session's window.
    pub fn open() -> anyhow::Result<Self> {
        let device = HostDevice::create(HostOptions { session_index: 1, ..HostOptions::default() })?;
        let stream = device.stream_create(1, 0)?;
        Ok(Self { device, stream })
    }

    /// `cudaMalloc`
    pub fn alloc(&self, bytes: u64) -> anyhow::Result<DevicePtr> {
        Ok(self.device.alloc(bytes)?)
    }

    /// What `cudaStream_t` is to NCCL.
    pub fn native_stream(&self) -> *mut core::ffi::c_void {
        self.device.stream_native(self.stream)
    }

    /// `cudaMemcpy` to the device.
    pub fn write(&self, dst: DevicePtr, values: &[f32]) -> anyhow::Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.device.copy(Copy::HostToDevice { dst, src: bytes.as_ptr() }, bytes.len() as u64, self.stream)?;
        self.finish()
    }

    /// `cudaMemcpy` from the device.
    pub fn read(&self, src: DevicePtr, elements: usize) -> anyhow::Result<Vec<f32>> {
        let mut bytes = vec![0; 4 * elements];
        self.device.copy(Copy::DeviceToHost { dst: bytes.as_mut_ptr(), src }, bytes.len() as u64, self.stream)?;
        self.finish()?;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// `cudaStreamSynchronize`: of the application's own, so it knows nothing of epochs.
    fn finish(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WATCHDOG;
        loop {
            let seen = self.device.activity();
            if self.device.stream_query(self.stream)? {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the application's stream did not finish in {} s", WATCHDOG.as_secs());
            self.device.activity_wait(seen, WATCHDOG);
        }
    }
}
