//! Copies to and from pageable memory that do not wait.
//!
//! For pageable memory the driver's own asynchronous copies may wait for the stream. A stream can hang behind
//! a collective whose peer is dead, and the thread that waits would never leave the call, while recovery waits
//! for it. So such copies go through pinned memory of ours, a piece at a time, and the driver's thread moves
//! the bytes between that and the application's memory in the order of the stream.

use super::driver::{Driver, Outcome};
use crate::backend::suballocator::SubAllocator;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All pinned memory.
const ARENA_BYTES: u64 = 16 << 20;
/// Largest piece, and smallest if the arena is nearly full.
const LARGEST_PIECE: u64 = 2 << 20;
const SMALLEST_PIECE: u64 = 4 << 10;
/// `CU_EVENT_DISABLE_TIMING`
const UNTIMED: u32 = 2;

#[derive(Debug)]
pub(super) struct Staging {
    arena: u64,
    pieces: Mutex<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    space: SubAllocator,
    /// Offset of a piece, and the event after which it is free.
    in_use: Vec<(u64, u64)>,
    spare_events: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    offset: u64,
    bytes: u64,
    event: u64,
}

/// A copy between the host's memory and the arena; addresses as numbers, since it changes threads.
fn move_bytes(dst: u64, src: u64, bytes: u64) {
    // SAFETY: one side is a piece that this copy alone has, the other is the range that the caller of
    // `Device::copy` keeps valid until the copy is done.
    unsafe { core::ptr::copy_nonoverlapping(src as *const u8, dst as *mut u8, bytes as usize) };
}

impl Staging {
    pub(super) fn create(driver: &dyn Driver) -> Outcome<Self> {
        let arena = driver.host_alloc(ARENA_BYTES)? as u64;
        Ok(Self { arena, pieces: Mutex::new(Pieces { space: SubAllocator::new(ARENA_BYTES), in_use: Vec::new(), spare_events: Vec::new() }) })
    }

    /// From pageable memory. Up to a piece is taken at once, more in the order of the stream.
    pub(super) fn copy_to_device(&self, driver: &dyn Driver, dst: u64, src: *const u8, bytes: u64, stream: u64) -> Outcome<()> {
        let Some(piece) = self.take(driver, bytes)? else {
            return driver.copy_to_device(dst, src, bytes, stream);
        };
        let at = self.arena + piece.offset;
        let outcome = if bytes <= piece.bytes {
            move_bytes(at, src as u64, bytes);
            driver.copy_to_device(dst, at as *const u8, bytes, stream)
        } else {
            parts(bytes, piece.bytes).try_for_each(|(offset, bytes)| {
                let from = src as u64 + offset;
                driver.host_call(stream, Box::new(move || move_bytes(at, from, bytes)))?;
                driver.copy_to_device(dst + offset, at as *const u8, bytes, stream)
            })
        };
        self.give_back(driver, piece, stream, outcome)
    }

    /// To pageable memory.
    pub(super) fn copy_to_host(&self, driver: &dyn Driver, dst: *mut u8, src: u64, bytes: u64, stream: u64) -> Outcome<()> {
        let Some(piece) = self.take(driver, bytes)? else {
            return driver.copy_to_host(dst, src, bytes, stream);
        };
        let at = self.arena + piece.offset;
        let outcome = parts(bytes, piece.bytes).try_for_each(|(offset, bytes)| {
            let to = dst as u64 + offset;
            driver.copy_to_host(at as *mut u8, src + offset, bytes, stream)?;
            driver.host_call(stream, Box::new(move || move_bytes(to, at, bytes)))
        });
        self.give_back(driver, piece, stream, outcome)
    }

    /// No copy may be under way.
    pub(super) fn close(&self, driver: &dyn Driver) -> Outcome<()> {
        let mut pieces = self.lock();
        let in_use = core::mem::take(&mut pieces.in_use);
        for event in in_use.into_iter().map(|(_, event)| event).chain(core::mem::take(&mut pieces.spare_events)) {
            driver.event_destroy(event)?;
        }
        driver.host_free(self.arena as *mut u8)
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: the arena is full of copies under way. There are more of them than the driver queues without
    /// waiting, so its own copy waits no longer than this call would anyway.
    fn take(&self, driver: &dyn Driver, bytes: u64) -> Outcome<Option<Piece>> {
        let mut pieces = self.lock();
        let event = match pieces.spare_events.pop() {
            Some(event) => event,
            None => driver.event_create(UNTIMED)?,
        };
        let mut wanted = bytes.min(LARGEST_PIECE);
        let mut swept = false;
        loop {
            if let Some(offset) = pieces.space.alloc(wanted) {
                return Ok(Some(Piece { offset, bytes: wanted, event }));
            }
            if !core::mem::replace(&mut swept, true) {
                pieces.sweep(driver)?;
            } else if wanted > SMALLEST_PIECE {
                wanted = (wanted / 2).max(SMALLEST_PIECE);
            } else {
                pieces.spare_events.push(event);
                return Ok(None);
            }
        }
    }

    /// The piece is free when the stream has come so far. If that cannot be told, it is never used again.
    fn give_back(&self, driver: &dyn Driver, piece: Piece, stream: u64, outcome: Outcome<()>) -> Outcome<()> {
        driver.event_record(piece.event, stream)?;
        self.lock().in_use.push((piece.offset, piece.event));
        outcome
    }
}

impl Pieces {
    fn sweep(&mut self, driver: &dyn Driver) -> Outcome<()> {
        for (offset, event) in core::mem::take(&mut self.in_use) {
            match driver.event_query(event) {
                Ok(()) => {
                    self.space.free(offset);
                    self.spare_events.push(event);
                }
                Err(super::code::Code::NOT_READY) => self.in_use.push((offset, event)),
                Err(code) => return Err(code),
            }
        }
        Ok(())
    }
}

/// (offset, length) of each part.
fn parts(bytes: u64, part: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(part)).map(move |index| (index * part, part.min(bytes - index * part)))
}
