//! The calling thread's lane: found in a few instructions, given back when the thread ends, wiped by a fork.
//!
//! The lane's state stands in a page of its own that the kernel zeroes in a forked child (`MADV_WIPEONFORK`), so
//! the child finds no lane and claims one of its own, and never writes into its parent's.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::append_error::AppendError;
use super::claim;
use super::lane::Lane;
use super::writer::Shared;
use crate::sync::robust::RobustMutex;

const PAGE: usize = 4096;
const _: () = assert!(size_of::<Page>() <= PAGE);

/// Contents of the page: zeros say "no lane".
struct Page {
    /// Id of the journal in this process, from 1.
    journal: u64,
    lane: Lane,
}

/// A slot that this thread holds.
struct Held {
    page: NonNull<Page>,
    mutex: RobustMutex,
    /// The process that claimed it: a forked child inherits the entry but not the slot.
    pid: u32,
    /// Keeps the mutex mapped while it is locked.
    shared: Arc<Shared>,
}

thread_local! {
    /// Page of the journal used last.
    static CURRENT: Cell<*mut Page> = const { Cell::new(ptr::null_mut()) };
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on this thread's lane of `shared`, claiming one at the first use. `work` does not come back here.
#[inline(always)]
pub(super) fn with_lane<R>(
    shared: &Arc<Shared>,
    work: impl FnOnce(&mut Lane) -> Result<R, AppendError>,
) -> Result<R, AppendError> {
    let page = match current(shared) {
        Some(page) => page,
        None => enter(shared)?,
    };
    // SAFETY: a mapped page with an initialised lane for this journal; only this thread reaches it, and `work` makes
    // no second reference.
    let lane = unsafe { &mut (*page).lane };
    work(lane)
}

/// [`with_lane`] where this thread's last append was to the same journal; `None` otherwise.
#[inline(always)]
pub(super) fn with_last_lane<R>(shared: &Shared, work: impl FnOnce(&mut Lane) -> Option<R>) -> Option<R> {
    let page = current(shared)?;
    // SAFETY: as in `with_lane`.
    let lane = unsafe { &mut (*page).lane };
    work(lane)
}

#[inline(always)]
fn current(shared: &Shared) -> Option<*mut Page> {
    let page = CURRENT.get();
    // SAFETY: CURRENT is null or points to a mapped page of this thread (cleared before it is unmapped); after a
    // fork it reads as zeros, which are valid here.
    (!page.is_null() && unsafe { (*page).journal } == shared.id).then_some(page)
}

/// Handles are owned by the slot of the thread's lane.
impl crate::handle::Seat for Arc<Shared> {
    fn owner(&self) -> u64 {
        with_lane(self, |lane| Ok(lane.owner())).unwrap_or(0)
    }
}

#[cold]
#[inline(never)]
fn enter(shared: &Arc<Shared>) -> Result<*mut Page, AppendError> {
    let pid = std::process::id();
    let page = HELD
        .try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(known) = held.iter().find(|h| h.shared.id == shared.id && h.pid == pid) {
                return Ok(known.page);
            }
            // What a parent held stays the parent's.
            held.retain(|h| h.pid == pid);
            let page = new_page()?;
            let claim = claim::claim(shared).inspect_err(|_| free_page(page))?;
            let contents = Page { journal: shared.id, lane: claim.lane };
            // SAFETY: a fresh page, large and aligned enough, that nobody else knows.
            unsafe { page.write(contents) };
            held.push(Held { page, mutex: claim.mutex, pid, shared: Arc::clone(shared) });
            Ok(page)
        })
        .unwrap_or(Err(AppendError::Closed))?;
    CURRENT.set(page.as_ptr());
    Ok(page.as_ptr())
}

/// Gives back this thread's lane of journal `id`, if it has one.
pub(super) fn leave(id: u64) {
    // During thread exit the list is gone, and with it the lane.
    let _ = HELD.try_with(|held| {
        let gone: Vec<Held> = held.borrow_mut().extract_if(.., |h| h.shared.id == id).collect();
        drop(gone);
    });
}

impl Drop for Held {
    fn drop(&mut self) {
        if CURRENT.get() == self.page.as_ptr() {
            CURRENT.set(ptr::null_mut());
        }
        if self.pid == std::process::id() {
            self.mutex.unlock();
        }
        free_page(self.page);
    }
}

fn new_page() -> Result<NonNull<Page>, AppendError> {
    let failed = |error: rustix::io::Errno| AppendError::Io { action: "map a page for the thread's lane", source: error.into() };
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let at = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, flags) }
        .map_err(failed)?;
    let page = NonNull::new(at.cast::<Page>()).expect("mmap gives no null");
    // SAFETY: the page just mapped.
    if let Err(error) = unsafe { rustix::mm::madvise(at, PAGE, Advice::LinuxWipeOnFork) } {
        free_page(page);
        return Err(failed(error));
    }
    Ok(page)
}

fn free_page(page: NonNull<Page>) {
    // SAFETY: a page of `new_page`, which the caller gives up.
    let result = unsafe { rustix::mm::munmap(page.as_ptr().cast(), PAGE) };
    debug_assert!(result.is_ok(), "{result:?}");
}
