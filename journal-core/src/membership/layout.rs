//! Where everything stands in the members segment. All places follow from the number of ranks.
//!
//! ```text
//! header        0x000   constant after creation; magic last
//! shared line   0x200   decision word, event counter, setup flag, end code, outcomes of stages, launcher
//! ranks                 RANK_BYTES each: seat, votes, arrival, operations, four places, four mutexes
//! failed sets           [rank or launcher][epoch & 1] of nranks words
//! shares                two rows a rank
//! reports               a ring
//! cliques               a table
//! blobs                 three areas a rank
//! ```
//!
//! Little-endian 64-bit words throughout (the event counter alone is 32 bits, for the futex). Zero means "nothing here".

use super::barrier::{BarrierPlace, STAGES};
use super::blob::AREAS_BYTES;
use super::decision::{DecisionPlace, Strided};
use super::failed::FailedSlots;
use super::seat::{PLACE_BYTES, PLACES, Places, Seats};
use super::{Incarnation, MAX_RANKS, Rank, clique, report};
use crate::sync::robust::ROBUST_MUTEX_BYTES;

/// "RJMEMBR1"; stored last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RJMEMBR1");
/// Version of this format.
pub const FORMAT: u32 = 1;

// Header. Written by the launcher before publication, constant afterwards.
pub(super) const AT_MAGIC: u64 = 0x00;
/// {format 32, word size 8, endian 16}.
pub(super) const AT_FORMAT: u64 = 0x08;
pub(super) const AT_LAYOUT_HASH: u64 = 0x10;
pub(super) const AT_BYTES: u64 = 0x18;
pub(super) const AT_NRANKS: u64 = 0x20;
pub(super) const AT_UUID: u64 = 0x28;
/// CRC-32C of the header's other words.
pub(super) const AT_HEADER_CRC: u64 = 0x38;
/// {renumber 8, policy 8, strategy 8}.
pub(super) const AT_CHOICES: u64 = 0x40;
pub(super) const AT_MAX_RECOVERIES: u64 = 0x48;
pub(super) const AT_STAGE_TIMEOUT: u64 = 0x50;
/// 0: no hang is ever declared.
pub(super) const AT_HANG_TIMEOUT: u64 = 0x58;
/// Seconds since 1970, for people.
pub(super) const AT_CREATED: u64 = 0x60;
/// Text, zero-padded.
pub(super) const AT_JOB: u64 = 0x80;
pub(super) const JOB_BYTES: usize = 64;
pub(super) const AT_BACKEND: u64 = 0xc0;
pub(super) const BACKEND_BYTES: usize = 64;
pub(super) const HEADER_BYTES: u64 = 0x200;

// Written while the job runs. Hot words have cache lines of their own.
/// See `decision`. Everybody, by swaps.
pub(super) const AT_DECISION: u64 = 0x200;
/// 32 bits; everybody adds 1 after a visible change. A crash between change and step is the cause of a step itself.
pub(super) const AT_EVENT: u64 = 0x280;
/// 1 after the first `setup_done` barrier. Every participant, the same value.
pub(super) const AT_SETUP_COMPLETE: u64 = 0x300;
/// {1, code} of the first `end`; swapped in before the decision word says ENDED.
pub(super) const AT_END: u64 = 0x308;
/// CLOCK_MONOTONIC ns of the last proposal of an even and of an odd epoch, for reports. Proposers, before the swap.
pub(super) const AT_PROPOSED: u64 = 0x310;
/// Launcher: pid, start time (written before publication), state (launcher, or whoever finds it dead).
pub(super) const AT_LAUNCHER_PID: u64 = 0x340;
pub(super) const AT_LAUNCHER_START: u64 = 0x348;
pub(super) const AT_LAUNCHER_STATE: u64 = 0x350;
pub(super) const AT_LAUNCHER_MUTEX: u64 = 0x380;
const AT_OUTCOMES: u64 = 0x400;
const AT_RANKS: u64 = AT_OUTCOMES + STAGES as u64 * 8;

// Offsets in a rank's entry.
/// Launcher, the rank, whoever learns of its failure; by swaps.
const RANK_SEAT: u64 = 0x00;
/// Epoch that the rank has acknowledged, +1. The rank.
pub(super) const RANK_ACKNOWLEDGED: u64 = 0x08;
/// CLOCK_MONOTONIC ns at which the rank killed itself for a test. The rank; taken by the reporter.
pub(super) const RANK_KILL_TIME: u64 = 0x10;
/// The rank.
const RANK_VOTE: u64 = 0x40;
const RANK_COMMIT: u64 = 0x48;
const RANK_ARRIVAL: u64 = 0x50;
// 0x80 was a count of operations; the journals tell it now.
const RANK_PLACES: u64 = 0x100;
const RANK_MUTEXES: u64 = RANK_PLACES + PLACES as u64 * PLACE_BYTES;
const RANK_BYTES: u64 = RANK_MUTEXES + PLACES as u64 * ROBUST_MUTEX_BYTES;

const _: () = {
    assert!(AT_BACKEND + BACKEND_BYTES as u64 <= HEADER_BYTES);
    assert!(AT_LAUNCHER_MUTEX + ROBUST_MUTEX_BYTES <= AT_OUTCOMES);
    assert!(AT_RANKS.is_multiple_of(128) && RANK_BYTES.is_multiple_of(128) && RANK_MUTEXES.is_multiple_of(64));
    assert!(RANK_BYTES == 0x300 && AT_RANKS == 0x600);
    assert!(AREAS_BYTES.is_multiple_of(64) && report::REPORT_BYTES.is_multiple_of(64) && report::SHARES_BYTES.is_multiple_of(64));
    // The launcher's slot number must differ from "none".
    assert!(MAX_RANKS < super::Decision::NO_SLOT as u32);
};

/// Changes whenever a size or place changes, so that two builds that differ refuse each other.
pub const LAYOUT_HASH: u64 = {
    let facts = [
        AT_RANKS,
        RANK_BYTES,
        RANK_PLACES,
        RANK_MUTEXES,
        AREAS_BYTES,
        report::REPORT_BYTES,
        report::SHARES_BYTES,
        report::RING as u64,
        clique::entry_bytes(1),
        clique::capacity(1) as u64,
        size_of::<libc::pthread_mutex_t>() as u64,
        MAX_RANKS as u64,
    ];
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < facts.len() {
        hash = (hash ^ facts[i]).wrapping_mul(0x100_0000_01b3).rotate_left(17);
        i += 1;
    }
    hash
};

/// All places of a segment for `nranks` ranks.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Ranks.
    pub nranks: u32,
    failed_sets: u64,
    shares: u64,
    reports: u64,
    cliques: u64,
    blobs: u64,
    /// Length of the segment.
    pub bytes: u64,
}

impl Layout {
    /// `None`: not 1 to [`MAX_RANKS`].
    pub fn new(nranks: u32) -> Option<Self> {
        if !(1..=MAX_RANKS).contains(&nranks) {
            return None;
        }
        let n = u64::from(nranks);
        let failed_sets = AT_RANKS + n * RANK_BYTES;
        let shares = (failed_sets + (n + 1) * 2 * n * 8).next_multiple_of(128);
        let reports = shares + n * report::SHARES_BYTES;
        let cliques = reports + u64::from(report::RING) * report::REPORT_BYTES;
        let blobs = cliques + u64::from(clique::capacity(nranks)) * clique::entry_bytes(nranks);
        let bytes = (blobs + n * AREAS_BYTES).next_multiple_of(4096);
        Some(Self { nranks, failed_sets, shares, reports, cliques, blobs, bytes })
    }

    fn of_ranks(offset: u64) -> Strided {
        Strided { base: AT_RANKS + offset, stride: RANK_BYTES }
    }

    /// A word of a rank's entry.
    pub(super) fn rank_word(&self, rank: Rank, offset: u64) -> u64 {
        Self::of_ranks(offset).of(rank)
    }

    /// The mutex of one process of a rank.
    pub(super) fn mutex(&self, rank: Rank, incarnation: Incarnation) -> u64 {
        Self::of_ranks(RANK_MUTEXES).of(rank) + u64::from(incarnation.0 % PLACES) * ROBUST_MUTEX_BYTES
    }

    /// Seats.
    pub fn seats(&self) -> Seats {
        Seats(Self::of_ranks(RANK_SEAT))
    }

    /// Places of processes.
    pub fn places(&self) -> Places {
        Places(Self::of_ranks(RANK_PLACES))
    }

    /// The decision word and what belongs to it.
    pub fn decision(&self) -> DecisionPlace {
        DecisionPlace {
            nranks: self.nranks,
            word: AT_DECISION,
            votes: Self::of_ranks(RANK_VOTE),
            commits: Self::of_ranks(RANK_COMMIT),
            seats: self.seats(),
            slots: FailedSlots { base: self.failed_sets, nranks: self.nranks },
        }
    }

    /// Barriers.
    pub fn barrier(&self) -> BarrierPlace {
        BarrierPlace { arrivals: Self::of_ranks(RANK_ARRIVAL), outcomes: AT_OUTCOMES }
    }

    /// Areas of blobs.
    pub fn blobs(&self) -> Strided {
        Strided { base: self.blobs, stride: AREAS_BYTES }
    }

    /// The clique table.
    pub fn cliques(&self) -> u64 {
        self.cliques
    }

    /// The ring of reports and the shares.
    pub fn reports(&self) -> (u64, Strided) {
        (self.reports, Strided { base: self.shares, stride: report::SHARES_BYTES })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_without_overlap_for_every_number_of_ranks() {
        for nranks in 1..=MAX_RANKS {
            let layout = Layout::new(nranks).unwrap();
            let last = Rank(nranks - 1);
            let ends = [
                (layout.rank_word(last, RANK_BYTES), layout.failed_sets),
                (layout.failed_sets + u64::from(nranks + 1) * 2 * u64::from(nranks) * 8, layout.shares),
                (layout.reports().1.of(last) + report::SHARES_BYTES, layout.reports),
                (layout.reports + u64::from(report::RING) * report::REPORT_BYTES, layout.cliques),
                (layout.cliques + u64::from(clique::capacity(nranks)) * clique::entry_bytes(nranks), layout.blobs),
                (layout.blobs().of(last) + AREAS_BYTES, layout.bytes),
            ];
            for (end, next) in ends {
                assert!(end <= next, "{nranks} ranks: {end:#x} > {next:#x}");
            }
            assert_eq!(layout.mutex(last, Incarnation(7)), layout.mutex(last, Incarnation(3)));
            assert!(layout.mutex(last, Incarnation(3)) + ROBUST_MUTEX_BYTES <= layout.failed_sets);
        }
        assert!(Layout::new(0).is_none() && Layout::new(MAX_RANKS + 1).is_none());
    }
}
