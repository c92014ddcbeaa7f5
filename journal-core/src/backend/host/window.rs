//! The reserved range of addresses that device memory is in.

use crate::backend::placement::place;
use crate::backend::{DeviceError, DeviceResult, Window};
use core::ffi::c_void;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

/// Address space without memory; memory comes with [`ReservedWindow::commit`].
#[derive(Debug)]
pub(super) struct ReservedWindow {
    window: Window,
    page: u64,
    kept: bool,
}

impl ReservedWindow {
    pub(super) fn reserve(session_index: u32, bytes: u64) -> DeviceResult<Self> {
        let base = place(session_index, bytes)?;
        let fail = |base: u64, reason: String| Err(DeviceError::Window { base, bytes, reason });
        let page = rustix::param::page_size() as u64;
        if bytes == 0 || !bytes.is_multiple_of(page) {
            return fail(base, format!("its size must be a multiple of the page size, {page}, and not 0"));
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: NOREPLACE never maps over anything; a kernel too old to know it takes the address as a hint.
        match unsafe { mmap_anonymous(base as *mut c_void, bytes as usize, ProtFlags::empty(), flags) } {
            Ok(at) if at as u64 == base => Ok(Self { window: Window { base, bytes }, page, kept: false }),
            Ok(elsewhere) => {
                // SAFETY: mapped just now, used by nobody.
                let _ = unsafe { munmap(elsewhere, bytes as usize) };
                fail(base, taken())
            }
            Err(rustix::io::Errno::EXIST) => fail(base, taken()),
            Err(error) => fail(base, refused(error)),
        }
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    /// Memory is given and taken in pieces of this size.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    fn at(&self, start: u64) -> *mut c_void {
        (self.window.base + start) as *mut c_void
    }

    /// Whole pages, inside.
    fn check(&self, start: u64, end: u64) {
        assert!(start <= end && end <= self.window.bytes, "{start:#x}..{end:#x} outside the window");
        assert!(start.is_multiple_of(self.page) && end.is_multiple_of(self.page));
    }

    /// Makes the pages usable. They read as zero unless they were usable already.
    pub(super) fn commit(&self, start: u64, end: u64) -> Result<(), String> {
        self.check(start, end);
        // SAFETY: pages of our own mapping; adding access harms no reference.
        unsafe { mprotect(self.at(start), (end - start) as usize, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(refused)
    }

    /// Gives the pages' memory back; touching them faults from now on.
    pub(super) fn decommit(&self, start: u64, end: u64) {
        self.check(start, end);
        let length = (end - start) as usize;
        // SAFETY: pages of our own mapping that no live allocation covers; nothing in Rust refers to them.
        if unsafe { madvise(self.at(start), length, Advice::LinuxDontNeed) }.is_err() {
            return;
        }
        // SAFETY: as above. A failure (too many mappings) leaves them usable, which harms nobody.
        let _ = unsafe { mprotect(self.at(start), length, MprotectFlags::empty()) };
    }

    /// The range stays reserved for ever: something may still use it.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for ReservedWindow {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: our own mapping; the device that hands out its addresses is gone and its workers have ended.
            let _ = unsafe { munmap(self.at(0), self.window.bytes as usize) };
        }
    }
}

fn taken() -> String {
    "something is mapped there: another session with this index in the process, or a tool that claims fixed addresses; \
     use another session index"
        .into()
}

fn refused(error: rustix::io::Errno) -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    match (error, limit) {
        (rustix::io::Errno::NOMEM, Some(limit)) => format!(
            "the process may use {limit} bytes of address space; raise the limit (ulimit -v unlimited) or make the window smaller"
        ),
        (rustix::io::Errno::NOMEM, None) => format!("{error}; check vm.max_map_count and vm.overcommit_memory"),
        _ => error.to_string(),
    }
}
