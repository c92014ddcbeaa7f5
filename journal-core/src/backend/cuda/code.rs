//! Result codes of the driver, and which of them mean that the device is lost to this process.
//!
//! Codes stay numbers: a newer driver may return one that no enum of today has.
//! <https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html>

use super::driver::Driver;
use crate::backend::{DeviceError, DeviceResult};
use std::sync::OnceLock;

/// A `CUresult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const INVALID_VALUE: Self = Self(1);
    pub(super) const OUT_OF_MEMORY: Self = Self(2);
    pub(super) const NO_DEVICE: Self = Self(100);
    pub(super) const INVALID_HANDLE: Self = Self(400);
    pub(super) const NOT_FOUND: Self = Self(500);
    pub(super) const NOT_READY: Self = Self(600);
    pub(super) const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub(super) const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);

    /// Codes that NVIDIA documents as leaving the process in an inconsistent state (every later call returns
    /// them again), and 709: somebody destroyed or reset the context, and all that was in it is gone.
    const STICKY: [i32; 15] = [
        214, // ECC_UNCORRECTABLE
        220, // NVLINK_UNCORRECTABLE
        226, // CONTAINED
        700, // ILLEGAL_ADDRESS
        702, // LAUNCH_TIMEOUT
        709, // CONTEXT_IS_DESTROYED
        710, // ASSERT
        714, // HARDWARE_STACK_ERROR
        715, // ILLEGAL_INSTRUCTION
        716, // MISALIGNED_ADDRESS
        717, // INVALID_ADDRESS_SPACE
        718, // INVALID_PC
        719, // LAUNCH_FAILED
        721, // TENSOR_MEMORY_LEAK
        911, // EXTERNAL_DEVICE
    ];

    pub(super) fn is_sticky(self) -> bool {
        Self::STICKY.contains(&self.0)
    }
}

/// Whether the device still works for this process.
#[derive(Debug)]
pub(super) struct Health {
    ordinal: u32,
    /// The first sticky error.
    lost: OnceLock<String>,
}

impl Health {
    pub(super) fn new(ordinal: u32) -> Self {
        Self { ordinal, lost: OnceLock::new() }
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Nothing reaches the driver after a sticky error.
    pub(super) fn check(&self) -> DeviceResult<()> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(DeviceError::Lost { ordinal: self.ordinal, reason: reason.clone() }),
        }
    }

    /// The error for a failed call; a sticky one is remembered.
    pub(super) fn error(&self, driver: &dyn Driver, call: &'static str, code: Code) -> DeviceError {
        let text = driver.describe(code);
        if !code.is_sticky() {
            return DeviceError::Call { call, code: code.0, text };
        }
        let reason = self.lost.get_or_init(|| {
            tracing::debug!(call, code = code.0, "device lost");
            format!("{call} returned {} ({text}); CUDA cannot recover from this inside a process, the process must be replaced", code.0)
        });
        DeviceError::Lost { ordinal: self.ordinal, reason: reason.clone() }
    }
}
