//! The gate: who is inside a request, and the way to get everybody out.
//!
//! Only asynchronous calls, and waits that poll together with the epoch, happen inside; so the gate
//! drains in microseconds once it is closed, whatever the device does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::sync::futex;

const CLOSED: u32 = 1 << 31;

/// Bit 31: closed; below: callers inside. The word is a futex.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

/// Inside the gate until dropped.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Enters; `None` while it is closed.
    #[inline]
    pub fn enter(&self) -> Option<Pass<'_>> {
        // SYNC: Acquire pairs with the Release in `open`; AcqRel orders the caller's work after `close`
        // has or has not been seen (both are RMWs of one word).
        if self.0.fetch_add(1, Ordering::AcqRel) & CLOSED == 0 {
            return Some(Pass(self));
        }
        self.leave();
        None
    }

    #[inline]
    fn leave(&self) {
        // SYNC: Release pairs with the Acquire in `close_and_drain`: all that was done inside is seen.
        if self.0.fetch_sub(1, Ordering::Release) == CLOSED + 1 {
            futex::wake_all(&self.0);
        }
    }

    /// Lets nobody in any more and waits until everybody is out. The number still inside when the
    /// deadline passed; the gate stays closed.
    pub fn close_and_drain(&self, deadline: Instant) -> Result<(), u32> {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word == CLOSED {
                return Ok(());
            }
            if futex::wait(&self.0, word, deadline) == futex::Wait::TimedOut {
                return Err(word & !CLOSED);
            }
        }
    }

    /// Lets callers in again.
    pub fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }

    /// Whether callers are turned away.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_closed_gate_drains_and_turns_callers_away() {
        let gate = Gate::default();
        let pass = gate.enter().expect("open");
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| gate.close_and_drain(Instant::now() + Duration::from_secs(60)));
            while !gate.is_closed() {
                std::thread::yield_now();
            }
            assert!(gate.enter().is_none());
            drop(pass);
            closing.join().expect("no panic").expect("drained");
        });
        gate.open();
        assert!(gate.enter().is_some());
    }

    #[test]
    fn a_caller_that_stays_inside_is_counted_at_the_deadline() {
        let gate = Gate::default();
        let _pass = gate.enter().expect("open");
        assert_eq!(gate.close_and_drain(Instant::now() + Duration::from_millis(1)), Err(1));
    }
}
