//! Streams, events, modules and functions of a device, and what waits to be given back.

use super::code::Code;
use super::driver::Driver;
use crate::sync::gate::Gate;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// `CU_EVENT_DISABLE_TIMING`
pub(super) const EVENT_DISABLE_TIMING: u32 = 2;

/// A loaded module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) real: u64,
    /// A launch is inside; closed once the application has unloaded the module.
    pub(super) gate: Gate,
}

impl Module {
    pub(super) fn new(real: u64) -> Arc<Self> {
        Arc::new(Self { real, gate: Gate::default() })
    }
}

/// A function, and what a launch needs of it.
#[derive(Debug)]
pub(super) struct KnownFunction {
    pub(super) real: u64,
    pub(super) module: Arc<Module>,
    pub(super) param_bytes: Vec<u32>,
}

/// A failed driver call.
pub(super) type Failure = (&'static str, Code);

#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) streams: HashSet<u64>,
    /// Those of `streams` that the application made: never destroyed here.
    pub(super) adopted: HashSet<u64>,
    /// Event to whether it has a time stamp.
    pub(super) events: HashMap<u64, bool>,
    pub(super) modules: HashMap<u64, Arc<Module>>,
    /// Page-locked host ranges.
    pub(super) host_ranges: HashSet<u64>,
    /// Recorded at the end of streams that were destroyed with work in them.
    leaving: Vec<u64>,
    /// Unloaded by the application; their kernels may still run.
    unloaded: Vec<Arc<Module>>,
}

impl Objects {
    /// Destroys a stream; its work goes on, and counts until it is done.
    pub(super) fn destroy_stream(&mut self, driver: &dyn Driver, stream: u64) -> Result<(), Failure> {
        match driver.stream_query(stream) {
            Ok(()) => {}
            Err(Code::NOT_READY) => {
                let event = driver.event_create(EVENT_DISABLE_TIMING).map_err(|code| ("cuEventCreate", code))?;
                self.leaving.push(event);
                driver.event_record(event, stream).map_err(|code| ("cuEventRecord", code))?;
            }
            Err(code) => return Err(("cuStreamQuery", code)),
        }
        self.streams.remove(&stream);
        if self.adopted.remove(&stream) {
            return Ok(());
        }
        driver.stream_destroy(stream).map_err(|code| ("cuStreamDestroy", code))
    }

    /// Nobody launches its functions from now on; the module goes with [`Objects::release`]. False: no such module.
    pub(super) fn unload(&mut self, module: u64) -> bool {
        let Some(unloaded) = self.modules.remove(&module) else { return false };
        unloaded.gate.close();
        self.unloaded.push(unloaded);
        true
    }

    pub(super) fn has_unloaded(&self) -> bool {
        !self.unloaded.is_empty()
    }

    /// True when no stream of this device has work. Streams of others are not known here.
    pub(super) fn all_idle(&mut self, driver: &dyn Driver) -> Result<bool, Failure> {
        while let Some(event) = self.leaving.last() {
            match driver.event_query(*event) {
                Ok(()) => {}
                Err(Code::NOT_READY) => return Ok(false),
                Err(code) => return Err(("cuEventQuery", code)),
            }
            driver.event_destroy(*event).map_err(|code| ("cuEventDestroy", code))?;
            self.leaving.pop();
        }
        for stream in self.streams.iter().copied().chain([0]) {
            match driver.stream_query(stream) {
                Ok(()) => {}
                Err(Code::NOT_READY) => return Ok(false),
                Err(code) => return Err(("cuStreamQuery", code)),
            }
        }
        Ok(true)
    }

    /// Unloads what the application has unloaded. No kernel may run.
    pub(super) fn release(&mut self, driver: &dyn Driver) -> Result<(), Failure> {
        let mut kept = Vec::new();
        let mut result = Ok(());
        for module in self.unloaded.drain(..) {
            if result.is_ok() && module.gate.is_drained() {
                result = driver.module_unload(module.real).map_err(|code| ("cuModuleUnload", code));
            } else {
                kept.push(module);
            }
        }
        self.unloaded = kept;
        result
    }

    /// Drops all. No work may run.
    pub(super) fn clear(&mut self, driver: &dyn Driver) -> Result<(), Failure> {
        for (_, module) in self.modules.drain() {
            module.gate.close();
            self.unloaded.push(module);
        }
        self.release(driver)?;
        for event in self.events.drain().map(|(event, _)| event).chain(self.leaving.drain(..)) {
            driver.event_destroy(event).map_err(|code| ("cuEventDestroy", code))?;
        }
        let adopted = core::mem::take(&mut self.adopted);
        for stream in self.streams.drain().filter(|stream| !adopted.contains(stream)) {
            driver.stream_destroy(stream).map_err(|code| ("cuStreamDestroy", code))?;
        }
        for host in self.host_ranges.drain() {
            driver.host_unregister(host as *mut _).map_err(|code| ("cuMemHostUnregister", code))?;
        }
        Ok(())
    }
}
