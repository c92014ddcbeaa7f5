//! Which slot of the journal's registry the calling thread has.

/// Tells the slot of the calling thread: it owns blocks of the table, and what it leaves half done is found by it.
pub trait Seat: Sync {
    /// Slot + 1; 0 for a thread that has none and gets none.
    fn owner(&self) -> u64;
}

/// For readers, who own nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoSeat;

impl Seat for NoSeat {
    fn owner(&self) -> u64 {
        0
    }
}

/// A seat known beforehand, for models and for a reaper.
#[derive(Debug, Clone, Copy)]
pub struct FixedSeat(pub u64);

impl Seat for FixedSeat {
    fn owner(&self) -> u64 {
        self.0
    }
}
