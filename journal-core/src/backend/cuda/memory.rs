//! Device memory at fixed addresses: a reserved window, and physical memory under the parts in use.
//!
//! Physical memory comes in whole granules (2 MiB). An allocation's inner granules are its own; the granules
//! at its ends are separate pieces, so that neighbours share them and a large one is given back whole.

use super::code::{Code, Health};
use super::driver::{Driver, MemoryKind, Outcome};
use crate::backend::placement::place;
use crate::backend::suballocator::{ALIGNMENT, SubAllocator};
use crate::backend::{DeviceError, DeviceResult, Window};
use std::collections::BTreeMap;
use std::ops::Range;

/// Default windows are a multiple of this.
const WINDOW_STEP: u64 = 64 << 30;

/// One piece of physical memory, mapped.
#[derive(Debug)]
struct Piece {
    granules: u64,
    memory: u64,
    /// Live allocations in it.
    users: u32,
}

#[derive(Debug)]
pub(super) struct DeviceMemory {
    window: Window,
    kind: MemoryKind,
    granule: u64,
    addresses: SubAllocator,
    /// By first granule.
    pieces: BTreeMap<u64, Piece>,
    /// Some piece may have no user.
    unused: bool,
}

/// Why an allocation was refused.
pub(super) enum Refusal {
    /// No such space in the window.
    Window,
    /// The driver.
    Driver(&'static str, Code),
}

impl DeviceMemory {
    /// Reserves the window and checks its address. `window_bytes` None: the card's memory, rounded up.
    pub(super) fn reserve(driver: &dyn Driver, health: &Health, session_index: u32, window_bytes: Option<u64>) -> DeviceResult<Self> {
        let ordinal = health.ordinal();
        let fail = |call, code| health.error(driver, call, code);
        let can = |attribute| driver.attribute(ordinal, attribute).map(|value| value != 0).map_err(|code| fail("cuDeviceGetAttribute", code));
        let kind = MemoryKind {
            ordinal,
            exportable: can(super::driver::Attribute::PosixHandles)?,
            rdma: can(super::driver::Attribute::RdmaWithVirtualMemory)?,
        };
        let granule = driver.granularity(kind).map_err(|code| fail("cuMemGetAllocationGranularity", code))?;
        let bytes = match window_bytes {
            Some(bytes) => bytes,
            None => driver.device_bytes(ordinal).map_err(|code| fail("cuDeviceTotalMem", code))?.next_multiple_of(WINDOW_STEP),
        };
        let base = place(session_index, bytes)?;
        let refuse = |reason| Err(DeviceError::Window { base, bytes, reason });
        if granule == 0 || !granule.is_multiple_of(ALIGNMENT) {
            return refuse(format!("the driver's granularity is {granule}, expected a multiple of {ALIGNMENT}"));
        }
        if bytes == 0 || !bytes.is_multiple_of(granule) || !base.is_multiple_of(granule) {
            return refuse(format!("base and size must be multiples of the driver's granularity, {granule}, and not 0"));
        }
        match driver.reserve(base, bytes) {
            Ok(address) if address == base => {}
            Ok(address) => {
                if let Err(code) = driver.unreserve(address, bytes) {
                    tracing::debug!(code = code.0, address, "a window at the wrong address stays reserved");
                }
                return refuse(format!(
                    "the driver gave {address:#x} instead: something of this process is at {base:#x}; open the session earlier, or with another session index"
                ));
            }
            Err(code) => return refuse(format!("cuMemAddressReserve returned {} ({})", code.0, driver.describe(code))),
        }
        let window = Window { base, bytes };
        Ok(Self { window, kind, granule, addresses: SubAllocator::new(bytes), pieces: BTreeMap::new(), unused: false })
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    pub(super) fn alloc(&mut self, driver: &dyn Driver, bytes: u64) -> Result<u64, Refusal> {
        let offset = self.addresses.alloc(bytes).ok_or(Refusal::Window)?;
        self.back_or_forget(driver, offset, bytes)?;
        Ok(self.window.base + offset)
    }

    /// Exactly there; the caller has checked that the address is in the window and aligned.
    pub(super) fn alloc_at(&mut self, driver: &dyn Driver, address: u64, bytes: u64) -> Result<(), Refusal> {
        let offset = address - self.window.base;
        if !self.addresses.alloc_at(offset, bytes) {
            return Err(Refusal::Window);
        }
        self.back_or_forget(driver, offset, bytes)
    }

    fn back_or_forget(&mut self, driver: &dyn Driver, offset: u64, bytes: u64) -> Result<(), Refusal> {
        self.back(driver, offset, offset + bytes).map_err(|(call, code)| {
            self.addresses.free(offset);
            Refusal::Driver(call, code)
        })
    }

    /// The address is free at once; its memory goes with [`DeviceMemory::release_unused`].
    pub(super) fn free(&mut self, address: u64) -> bool {
        let Some(offset) = address.checked_sub(self.window.base) else { return false };
        let Some(bytes) = self.addresses.live_at(offset) else { return false };
        self.addresses.free(offset);
        let range = self.granules(offset, offset + bytes);
        let mut unused = false;
        for (_, piece) in self.touched(range) {
            piece.users -= 1;
            unused |= piece.users == 0;
        }
        self.unused |= unused;
        true
    }

    /// Whether memory waits to be given back.
    pub(super) fn has_unused(&self) -> bool {
        self.unused
    }

    /// Gives back the pieces without users. No work may still touch them.
    pub(super) fn release_unused(&mut self, driver: &dyn Driver) -> Result<(), (&'static str, Code)> {
        let unused: Vec<_> = self.pieces.iter().filter(|(_, piece)| piece.users == 0).map(|(first, _)| *first).collect();
        for first in unused {
            self.release(driver, first)?;
        }
        self.unused = false;
        Ok(())
    }

    /// Frees everything; the window stays reserved.
    pub(super) fn clear(&mut self, driver: &dyn Driver) -> Result<(), (&'static str, Code)> {
        self.addresses = SubAllocator::new(self.window.bytes);
        for piece in self.pieces.values_mut() {
            piece.users = 0;
        }
        self.unused = true;
        self.release_unused(driver)
    }

    /// Gives the window back too.
    pub(super) fn close(&mut self, driver: &dyn Driver) -> Result<(), (&'static str, Code)> {
        self.clear(driver)?;
        driver.unreserve(self.window.base, self.window.bytes).map_err(|code| ("cuMemAddressFree", code))
    }

    /// Is the range inside one live allocation, or wholly outside the window (memory of somebody else)?
    pub(super) fn is_usable(&self, address: u64, bytes: u64) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let outside = end <= self.window.base || address >= self.window.base + self.window.bytes;
        outside || address.checked_sub(self.window.base).is_some_and(|offset| self.addresses.contains(offset, bytes))
    }

    /// (address, bytes) by address.
    pub(super) fn live(&self) -> impl Iterator<Item = (u64, u64)> {
        self.addresses.live().map(|(offset, bytes)| (self.window.base + offset, bytes))
    }

    /// (free, total) bytes of the window.
    pub(super) fn space(&self) -> (u64, u64) {
        (self.addresses.free_bytes(), self.addresses.total())
    }

    fn granules(&self, start: u64, end: u64) -> Range<u64> {
        start / self.granule..end.div_ceil(self.granule)
    }

    /// Pieces that a range of granules touches.
    fn touched(&mut self, range: Range<u64>) -> impl Iterator<Item = (u64, &mut Piece)> {
        let first = self.pieces.range(..=range.start).next_back().map_or(range.start, |(first, _)| *first);
        self.pieces.range_mut(first..range.end).map(|(first, piece)| (*first, piece)).filter(move |(first, piece)| first + piece.granules > range.start)
    }

    /// Physical memory under the whole range, or nothing new at all.
    fn back(&mut self, driver: &dyn Driver, start: u64, end: u64) -> Result<(), (&'static str, Code)> {
        let all = self.granules(start, end);
        let missing = self.missing(start, end);
        for (done, run) in missing.iter().enumerate() {
            match self.map(driver, run) {
                Ok(memory) => {
                    self.pieces.insert(run.start, Piece { granules: run.end - run.start, memory, users: 0 });
                }
                Err(failed) => {
                    for run in &missing[..done] {
                        if let Err((call, code)) = self.release(driver, run.start) {
                            tracing::debug!(call, code = code.0, "memory of a refused allocation stays mapped");
                            self.unused = true;
                        }
                    }
                    return Err(failed);
                }
            }
        }
        for (_, piece) in self.touched(all) {
            piece.users += 1;
        }
        Ok(())
    }

    /// Runs of granules without memory, cut where inner granules begin and end.
    fn missing(&mut self, start: u64, end: u64) -> Vec<Range<u64>> {
        let all = self.granules(start, end);
        let inner_first = start.div_ceil(self.granule).min(all.end);
        let inner_end = (end / self.granule).max(inner_first);
        let taken: Vec<_> = self.touched(all.clone()).map(|(first, piece)| first..first + piece.granules).collect();
        let mut runs = Vec::new();
        for part in [all.start..inner_first, inner_first..inner_end, inner_end..all.end] {
            let mut at = part.start;
            for piece in taken.iter().filter(|piece| piece.end > part.start && piece.start < part.end) {
                if piece.start > at {
                    runs.push(at..piece.start);
                }
                at = piece.end;
            }
            if at < part.end {
                runs.push(at..part.end);
            }
        }
        runs
    }

    fn place_of(&self, run: &Range<u64>) -> (u64, u64) {
        (self.window.base + run.start * self.granule, (run.end - run.start) * self.granule)
    }

    fn map(&self, driver: &dyn Driver, run: &Range<u64>) -> Result<u64, (&'static str, Code)> {
        let (address, bytes) = self.place_of(run);
        let memory = driver.memory_create(bytes, self.kind).map_err(|code| ("cuMemCreate", code))?;
        let undo = |outcome: Outcome<()>| {
            if let Err(code) = outcome {
                tracing::debug!(code = code.0, address, bytes, "memory of a refused allocation is not given back");
            }
        };
        driver.memory_map(address, bytes, memory).map_err(|code| {
            undo(driver.memory_release(memory));
            ("cuMemMap", code)
        })?;
        driver.memory_allow(address, bytes, self.kind.ordinal).map_err(|code| {
            undo(driver.memory_unmap(address, bytes));
            undo(driver.memory_release(memory));
            ("cuMemSetAccess", code)
        })?;
        Ok(memory)
    }

    /// On failure the piece stays, mapped.
    fn release(&mut self, driver: &dyn Driver, first: u64) -> Result<(), (&'static str, Code)> {
        let Some(piece) = self.pieces.get(&first) else { return Ok(()) };
        let (address, bytes) = self.place_of(&(first..first + piece.granules));
        driver.memory_unmap(address, bytes).map_err(|code| ("cuMemUnmap", code))?;
        let memory = piece.memory;
        self.pieces.remove(&first);
        driver.memory_release(memory).map_err(|code| ("cuMemRelease", code))
    }
}
