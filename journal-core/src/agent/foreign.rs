//! Foreign mode: an application that calls CUDA itself, and gives Rejoin its communicators, the streams that
//! they run on, and the memory that is state.

use core::ffi::c_void;

use super::{Agent, Value};
use crate::backend::{DevicePtr, STREAM_NON_BLOCKING};
use crate::error::Error;
use crate::handle::VirtualHandle;
use crate::membership::JobPolicy;
use crate::sync::Ordering;

impl Agent {
    /// Whether this application does work that Rejoin does not see.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire) != 0
    }

    fn becomes_foreign(&self) -> Result<(), Error> {
        if self.membership.options().policy == JobPolicy::Replay {
            return Err(Error::Unsupported {
                what: "policy replay issues the step's requests again, and an application that uses streams or memory of \
                       its own does work that is in no request: use policy redo"
                    .into(),
            });
        }
        self.foreign.store(1, Ordering::Release);
        Ok(())
    }

    #[allow(unsafe_code)]
    pub(super) fn adopt_stream(&self, stream: VirtualHandle, native: u64) -> Result<Value, Error> {
        self.becomes_foreign()?;
        // SAFETY: whoever makes this request vouches for the stream (`Session::stream_adopt`).
        let real = unsafe { self.device.stream_adopt(native as *mut c_void) }?;
        self.handles().bind(stream, real.0)?;
        // Ordering it with the default stream is its owner's business.
        self.objects.add_stream(stream, STREAM_NON_BLOCKING);
        Ok(0)
    }

    /// # Safety
    /// As [`crate::backend::Device::memory_adopt`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn adopt_memory(&self, address: DevicePtr, bytes: u64) -> Result<(), Error> {
        self.becomes_foreign()?;
        // SAFETY: passed on to the caller.
        Ok(unsafe { self.device.memory_adopt(address, bytes) }?)
    }
}
