//! What a machine has: for the doctor, and to say whether a GPU can be used at all.

use super::driver::{Attribute, Driver};
use super::nvidia::NvidiaDriver;
use super::cuda_version;
use crate::backend::{DeviceError, DeviceResult};

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDeviceInfo {
    /// Number, as for [`CudaOptions::ordinal`](super::CudaOptions::ordinal).
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Memory, bytes.
    pub total_bytes: u64,
    /// Compute capability, (9, 0) for an H200.
    pub compute: (u32, u32),
    /// Fixed addresses are possible; without them the backend refuses the device.
    pub virtual_memory: bool,
}

/// The driver and its GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaSystem {
    /// CUDA version that the driver supports, as "13.0".
    pub driver_cuda: String,
    /// GPUs, as CUDA_VISIBLE_DEVICES leaves them.
    pub devices: Vec<CudaDeviceInfo>,
}

/// Looks at driver and GPUs. Creates no context on any.
///
/// # Errors
/// [`DeviceError::Library`] where there is no driver, an old one, or no GPU.
pub fn probe() -> DeviceResult<CudaSystem> {
    probe_with(&*NvidiaDriver::load()?)
}

pub(super) fn probe_with(driver: &dyn Driver) -> DeviceResult<CudaSystem> {
    let look = || {
        let devices = (0..driver.device_count()?).map(|ordinal| {
            let number = |attribute| driver.attribute(ordinal, attribute).map(|value| u32::try_from(value).unwrap_or(0));
            Ok(CudaDeviceInfo {
                ordinal,
                name: driver.device_name(ordinal)?,
                total_bytes: driver.device_bytes(ordinal)?,
                compute: (number(Attribute::ComputeMajor)?, number(Attribute::ComputeMinor)?),
                virtual_memory: number(Attribute::VirtualMemory)? != 0,
            })
        });
        Ok(CudaSystem { driver_cuda: cuda_version(driver.version()?), devices: devices.collect::<Result<_, _>>()? })
    };
    look().map_err(|code: super::code::Code| DeviceError::Call { call: "cuDeviceGet", code: code.0, text: driver.describe(code) })
}
