//! A gate: who is inside (a request, a launch), and the way to get everybody out.
//!
//! Inside an agent's gate happen only asynchronous calls, and waits that poll together with the epoch; so it
//! drains in microseconds once it is closed, whatever the device does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::announce::{self, Place};
use super::futex;

const CLOSED: u32 = 1 << 31;

/// Callers are many and closing is rare: a caller writes down that it is inside ([`announce`]), or is counted where
/// that is not possible.
#[derive(Debug, Default)]
pub struct Gate {
    /// Bit 31: closed; below: counted callers inside.
    word: AtomicU32,
    /// Callers that left a closed gate. A futex.
    left: AtomicU32,
}

/// Inside the gate until dropped; of the thread that entered.
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate, Option<Place>);

impl Gate {
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Enters; `None` while it is closed.
    #[inline]
    pub fn enter(&self) -> Option<Pass<'_>> {
        let place = Place::announce(self.address());
        // SYNC: Acquire pairs with the Release in `open`; AcqRel orders the count before the caller's work. A look
        // after the announcement sees the mark of a close that does not see the announcement.
        let word = if place.is_some() { self.word.load(Ordering::Acquire) } else { self.word.fetch_add(1, Ordering::AcqRel) };
        let pass = Pass(self, place);
        (word & CLOSED == 0).then_some(pass)
    }

    #[cold]
    fn tell(&self) {
        self.left.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.left);
    }

    /// Lets nobody in any more.
    pub fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn counted(&self) -> u32 {
        // SYNC: Acquire pairs with the Release in `drop`: all that was done inside is seen.
        self.word.load(Ordering::Acquire) & !CLOSED
    }

    /// Whether everybody has left a closed gate.
    pub fn is_drained(&self) -> bool {
        self.counted() == 0 && !announce::may_run(self.address())
    }

    /// Lets nobody in any more and waits until everybody is out. The number still inside when the
    /// deadline passed; the gate stays closed.
    pub fn close_and_drain(&self, deadline: Instant) -> Result<(), u32> {
        self.close();
        loop {
            let left = self.left.load(Ordering::Acquire);
            if self.is_drained() {
                return Ok(());
            }
            if futex::wait(&self.left, left, deadline) == futex::Wait::TimedOut {
                return Err(self.counted() + announce::running(self.address()) as u32);
            }
        }
    }

    /// Lets callers in again.
    pub fn open(&self) {
        self.word.fetch_and(!CLOSED, Ordering::Release);
    }

    /// Whether callers are turned away.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        let Self(gate, place) = self;
        let word = match place {
            Some(place) => {
                place.clear();
                // SYNC: a close that is not seen here sees the cleared place.
                gate.word.load(Ordering::Relaxed)
            }
            // SYNC: Release pairs with the Acquire in `close_and_drain`.
            None => gate.word.fetch_sub(1, Ordering::Release),
        };
        if word & CLOSED != 0 {
            gate.tell();
        }
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
    fn nobody_is_inside_while_it_is_closed() {
        const TURNS: u32 = 3_000;
        let (gate, inside) = (Gate::default(), AtomicU32::new(0));
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while done.load(Ordering::Relaxed) == 0 {
                        // More than a thread has places for: some are counted.
                        let passes: [Option<Pass<'_>>; 6] = core::array::from_fn(|_| gate.enter());
                        let entered = passes.iter().flatten().count() as u32;
                        inside.fetch_add(entered, Ordering::Relaxed);
                        inside.fetch_sub(entered, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..TURNS {
                gate.close_and_drain(Instant::now() + Duration::from_secs(60)).expect("callers leave");
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                gate.open();
            }
            done.store(1, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_caller_that_stays_inside_is_counted_at_the_deadline() {
        let gate = Gate::default();
        let _pass = gate.enter().expect("open");
        assert_eq!(gate.close_and_drain(Instant::now() + Duration::from_millis(1)), Err(1));
    }
}
