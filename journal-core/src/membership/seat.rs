//! Seats: which process holds a rank, and what is known of it.
//!
//! A seat is one word {incarnation, state}, so a process that was replaced can change nothing in it.
//! What belongs to one process (pid, start time, token, exit) stands in a place of its own among four, chosen by
//! incarnation & 3, so that a late store of an old process never mixes with its replacement's.

use super::decision::Strided;
use super::{Incarnation, Rank};
use crate::sync::{Ordering, Words};

/// Processes of a rank that have a place at the same time.
pub const PLACES: u32 = 4;

/// What the process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SeatState {
    /// Nobody was ever started.
    Empty = 0,
    /// The launcher has given it to a process that has not joined yet.
    Allocated = 1,
    /// Its process holds its mutex.
    Joined = 2,
    /// It has passed `setup_done`.
    Ready = 3,
    /// It has left by finalize; its end is no failure.
    Left = 4,
    /// It has failed.
    Dead = 5,
}

impl SeatState {
    /// As printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Allocated => "starting",
            Self::Joined => "joined",
            Self::Ready => "ready",
            Self::Left => "left",
            Self::Dead => "dead",
        }
    }

    /// A process holds the seat's mutex.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Joined | Self::Ready)
    }
}

/// A seat, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The process it was given to last.
    pub incarnation: Incarnation,
    /// What that process is doing.
    pub state: SeatState,
}

impl Seat {
    fn to_word(self) -> u64 {
        u64::from(self.incarnation.0) << 8 | self.state as u64
    }

    /// A state that no writer leaves reads as dead: nobody takes part through a damaged seat.
    fn from_word(word: u64) -> Self {
        Self {
            incarnation: Incarnation((word >> 8) as u32),
            state: match word & 0xff {
                0 => SeatState::Empty,
                1 => SeatState::Allocated,
                2 => SeatState::Joined,
                3 => SeatState::Ready,
                4 => SeatState::Left,
                _ => SeatState::Dead,
            },
        }
    }
}

/// The seats of all ranks. Written by the launcher (Allocated), the process itself (Joined, Ready, Left) and whoever
/// learns of its failure (Dead), always by swaps.
#[derive(Debug, Clone, Copy)]
pub struct Seats(pub Strided);

impl Seats {
    /// The seat of `rank`.
    pub fn load<W: Words>(&self, words: &W, rank: Rank) -> Seat {
        // SYNC: Acquire; pairs with the Release in `swap`.
        Seat::from_word(words.word(self.0.of(rank)).load(Ordering::Acquire))
    }

    fn swap<W: Words>(&self, words: &W, rank: Rank, from: Seat, to: Seat) -> Result<(), Seat> {
        // SYNC: AcqRel; pairs with `load`.
        words
            .word(self.0.of(rank))
            .compare_exchange(from.to_word(), to.to_word(), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(Seat::from_word)
    }

    /// Gives the seat to the process after its holder (the first: incarnation 0). Only by the launcher.
    pub fn allocate<W: Words>(&self, words: &W, rank: Rank) -> Result<Incarnation, Seat> {
        let now = self.load(words, rank);
        let incarnation = match now.state {
            SeatState::Empty => Incarnation(0),
            SeatState::Dead => now.incarnation.next(),
            _ => return Err(now),
        };
        self.swap(words, rank, now, Seat { incarnation, state: SeatState::Allocated }).map(|()| incarnation)
    }

    /// Allocated to joined. Error: the seat as it is.
    pub fn join<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation) -> Result<(), Seat> {
        let from = Seat { incarnation, state: SeatState::Allocated };
        self.swap(words, rank, from, Seat { incarnation, state: SeatState::Joined })
    }

    /// Puts a seat of `incarnation` that is allocated or held into `state`. True: this call did.
    pub fn mark<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation, state: SeatState) -> bool {
        let mut now = self.load(words, rank);
        while now.incarnation == incarnation && (now.state == SeatState::Allocated || now.state.is_held()) && now.state != state {
            match self.swap(words, rank, now, Seat { incarnation, state }) {
                Ok(()) => return true,
                Err(found) => now = found,
            }
        }
        false
    }
}

/// A process, named so that a reused pid is not mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Process id, in its own pid namespace.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat (clock ticks since boot).
    pub start_time: u64,
}

impl Identity {
    /// Of this process.
    pub fn own() -> std::io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Of the process that has `pid` now.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name (field 2) stands in parentheses and may contain anything; field 22 counts from after it.
        let start_time = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse().ok());
        let start_time = start_time.ok_or_else(|| std::io::Error::other(format!("/proc/{pid}/stat has no start time")))?;
        Ok(Self { pid, start_time })
    }

    /// Whether this very process still exists (a zombie counts).
    pub fn exists(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }
}

/// How a process ended, as the launcher saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExitEvidence {
    /// Status as `waitpid` gives it.
    pub wait_status: i32,
}

impl ExitEvidence {
    /// The signal that killed it.
    pub fn signal(&self) -> Option<i32> {
        let signal = self.wait_status & 0x7f;
        (signal != 0 && signal != 0x7f).then_some(signal)
    }

    /// The code it exited with.
    pub fn code(&self) -> Option<i32> {
        (self.wait_status & 0x7f == 0).then_some((self.wait_status >> 8) & 0xff)
    }
}

/// What is known of single processes: four places a rank of eight words
/// {incarnation + 1, pid, start time, token, exit, -, -, -}.
/// The launcher writes tag, token and exit; the process writes pid and start time before its seat says Joined.
#[derive(Debug, Clone, Copy)]
pub struct Places(pub Strided);

/// Bytes of one place.
pub const PLACE_BYTES: u64 = 64;
const TAG: u64 = 0;
const PID: u64 = 8;
const START: u64 = 16;
const TOKEN: u64 = 24;
const EXIT: u64 = 32;
/// Set in the exit word, so that exit status 0 is not "nothing here".
const EXITED: u64 = 1 << 32;

impl Places {
    fn offset(&self, rank: Rank, incarnation: Incarnation) -> u64 {
        self.0.of(rank) + u64::from(incarnation.0 % PLACES) * PLACE_BYTES
    }

    /// Prepares the place of a process that is about to get the seat. By the launcher, before `Seats::allocate`.
    pub(super) fn prepare<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation, token: u64) {
        let at = self.offset(rank, incarnation);
        let tag = words.word(at + TAG);
        tag.store(0, Ordering::Release);
        for (field, value) in [(PID, 0), (START, 0), (EXIT, 0), (TOKEN, token)] {
            words.word(at + field).store(value, Ordering::Relaxed);
        }
        // SYNC: Release; pairs with the Acquire in `place`.
        tag.store(u64::from(incarnation.0) + 1, Ordering::Release);
    }

    fn place<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation) -> Option<u64> {
        let at = self.offset(rank, incarnation);
        // SYNC: Acquire; pairs with the Release in `prepare`.
        (words.word(at + TAG).load(Ordering::Acquire) == u64::from(incarnation.0) + 1).then_some(at)
    }

    /// The token that the process was started with.
    pub(super) fn token<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation) -> Option<u64> {
        Some(words.word(self.place(words, rank, incarnation)? + TOKEN).load(Ordering::Relaxed))
    }

    /// Notes who joins. False: another process has.
    pub(super) fn claim<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation, identity: Identity) -> bool {
        let Some(at) = self.place(words, rank, incarnation) else { return false };
        let claimed =
            words.word(at + PID).compare_exchange(0, u64::from(identity.pid), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if claimed {
            words.word(at + START).store(identity.start_time, Ordering::Release);
        }
        claimed
    }

    /// Who joined.
    pub fn identity<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation) -> Option<Identity> {
        let at = self.place(words, rank, incarnation)?;
        let start_time = words.word(at + START).load(Ordering::Acquire);
        let pid = u32::try_from(words.word(at + PID).load(Ordering::Relaxed)).ok()?;
        (pid != 0 && start_time != 0).then_some(Identity { pid, start_time })
    }

    /// Notes how the process ended.
    pub(super) fn record_exit<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation, evidence: ExitEvidence) {
        if let Some(at) = self.place(words, rank, incarnation) {
            words.word(at + EXIT).store(EXITED | u64::from(evidence.wait_status as u32), Ordering::Release);
        }
    }

    /// The newest process before `incarnation` that is not proven to have exited. Only those with a place are looked
    /// at: a place is not used again before its process was reaped.
    pub fn exiting<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation) -> Option<Incarnation> {
        let kept = incarnation.0.saturating_sub(PLACES - 1)..incarnation.0;
        kept.rev().map(Incarnation).find(|earlier| self.exit(words, rank, *earlier).is_none())
    }

    /// How it ended, if the launcher has seen it.
    pub fn exit<W: Words>(&self, words: &W, rank: Rank, incarnation: Incarnation) -> Option<ExitEvidence> {
        let word = words.word(self.place(words, rank, incarnation)? + EXIT).load(Ordering::Acquire);
        (word & EXITED != 0).then_some(ExitEvidence { wait_status: word as u32 as i32 })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::HeapWords;

    const SEATS: Seats = Seats(Strided { base: 0, stride: 8 });

    #[test]
    fn a_replaced_process_cannot_change_its_seat() {
        let words = HeapWords::zeroed(16);
        let rank = Rank(1);
        assert_eq!(SEATS.allocate(&words, rank), Ok(Incarnation(0)));
        SEATS.join(&words, rank, Incarnation(0)).unwrap();
        assert!(SEATS.allocate(&words, rank).is_err(), "a live process holds it");
        assert!(SEATS.mark(&words, rank, Incarnation(0), SeatState::Dead));
        assert_eq!(SEATS.allocate(&words, rank), Ok(Incarnation(1)));
        assert!(!SEATS.mark(&words, rank, Incarnation(0), SeatState::Left));
        assert!(SEATS.join(&words, rank, Incarnation(0)).is_err());
        SEATS.join(&words, rank, Incarnation(1)).unwrap();
        assert!(SEATS.join(&words, rank, Incarnation(1)).is_err(), "only once");
    }

    #[test]
    fn left_is_never_turned_into_dead() {
        let words = HeapWords::zeroed(8);
        SEATS.allocate(&words, Rank(0)).unwrap();
        SEATS.join(&words, Rank(0), Incarnation(0)).unwrap();
        assert!(SEATS.mark(&words, Rank(0), Incarnation(0), SeatState::Left));
        assert!(!SEATS.mark(&words, Rank(0), Incarnation(0), SeatState::Dead));
    }

    #[test]
    fn places_tell_processes_of_a_rank_apart() {
        let words = HeapWords::zeroed(256);
        let places = Places(Strided { base: 0, stride: 256 });
        let own = Identity::own().unwrap();
        places.prepare(&words, Rank(0), Incarnation(1), 77);
        assert_eq!(places.token(&words, Rank(0), Incarnation(1)), Some(77));
        assert_eq!(places.token(&words, Rank(0), Incarnation(5)), None, "same place, another process");
        assert!(places.claim(&words, Rank(0), Incarnation(1), own));
        assert!(!places.claim(&words, Rank(0), Incarnation(1), own));
        assert_eq!(places.identity(&words, Rank(0), Incarnation(1)), Some(own));
        assert_eq!(places.exit(&words, Rank(0), Incarnation(1)), None);
        places.record_exit(&words, Rank(0), Incarnation(1), ExitEvidence { wait_status: 9 });
        assert_eq!(places.exit(&words, Rank(0), Incarnation(1)).unwrap().signal(), Some(9));
        places.prepare(&words, Rank(0), Incarnation(5), 78);
        assert_eq!(places.exit(&words, Rank(0), Incarnation(1)), None);
    }

    #[test]
    fn a_process_waits_for_every_earlier_one_that_may_still_live() {
        let words = HeapWords::zeroed(256);
        let places = Places(Strided { base: 0, stride: 256 });
        let ended = |incarnation| places.record_exit(&words, Rank(0), incarnation, ExitEvidence { wait_status: 0 });
        let exiting = |incarnation| places.exiting(&words, Rank(0), Incarnation(incarnation));
        (0..4).for_each(|incarnation| places.prepare(&words, Rank(0), Incarnation(incarnation), 1));
        assert_eq!(exiting(0), None, "there is none before the first");
        assert_eq!(exiting(1), Some(Incarnation(0)));
        ended(Incarnation(1));
        assert_eq!((exiting(1), exiting(2)), (Some(Incarnation(0)), Some(Incarnation(0))));
        ended(Incarnation(0));
        assert_eq!((exiting(1), exiting(2), exiting(3)), (None, None, Some(Incarnation(2))));
        ended(Incarnation(2));
        ended(Incarnation(3));
        places.prepare(&words, Rank(0), Incarnation(4), 1);
        assert_eq!(exiting(4), None, "the place of the first is in use again");
    }

    #[test]
    fn exit_evidence_tells_signals_from_codes() {
        assert_eq!(ExitEvidence { wait_status: 3 << 8 }.code(), Some(3));
        assert_eq!(ExitEvidence { wait_status: 3 << 8 }.signal(), None);
        assert_eq!(ExitEvidence { wait_status: 11 | 0x80 }.signal(), Some(11));
        assert_eq!(ExitEvidence { wait_status: 11 }.code(), None);
    }

    #[test]
    fn identity_is_that_of_this_very_process() {
        let own = Identity::own().unwrap();
        assert!(own.exists());
        assert!(!Identity { start_time: own.start_time + 1, ..own }.exists());
    }
}
