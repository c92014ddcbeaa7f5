//! Where things stand in the shared memory of a communicator. Abi 1.
//!
//! ```text
//! header           one page
//! rank entries     nranks × 256
//! letter boxes     nranks × nranks × 1 KiB, [source][destination]: bootstrap messages
//! channels         nranks × nranks × (128 + ring), [source][destination]: send and receive
//! staging          nranks × 2 slots × 256 KiB: collectives
//! ```
//! The file is sparse: what no rank touches takes no memory. All words are zero at the start. A killed
//! process leaves words as its last store left them; nobody waits for it to repair anything, because
//! nobody but its owner writes a word that others wait for (NCCL does not notice a dead peer either).

/// "RJNCCLRG", little-endian; stored last by the creator.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RJNCCLRG");
/// Version of this layout.
pub const ABI: u32 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// u64: [`MAGIC`], Release.
pub const AT_MAGIC: usize = 0;
/// u32: [`ABI`].
pub const AT_ABI: usize = 8;
/// u32: 0 until the first rank joins, then the number of ranks.
pub const AT_NRANKS: usize = 12;
/// u32: ranks that have joined.
pub const AT_JOINED: usize = 16;
/// u64: 1 + the first small collective that an aborted rank left with garbage.
pub const AT_POISON_FROM: usize = 64;
/// u64: 1 + the last one.
pub const AT_POISON_UNTIL: usize = 72;
/// Two u64: random, the same as in the unique id.
pub const AT_NONCE: usize = 128;

const RANK_BYTES: usize = 256;
/// u32: process id of the rank, 0 before it joins.
pub const RANK_CLAIMED: usize = 0;
/// u32: futex; changes when something that this rank may wait for has changed.
pub const RANK_BELL: usize = 4;
/// u32: threads of the rank that may sleep on the bell.
pub const RANK_SLEEPERS: usize = 8;
/// Two u64: rounds whose first and second part this rank has published.
pub const RANK_POSTED: [usize; 2] = [64, 72];
/// u64: rounds that this rank has finished reading.
pub const RANK_DONE: usize = 128;

/// Letters in flight from one rank to another.
pub const BOX_LETTERS: u64 = 4;
/// Tag (u64) and payload of one letter.
pub const LETTER_BYTES: usize = 208;
/// Bytes of the payload of a letter.
pub const LETTER_PAYLOAD: usize = LETTER_BYTES - 8;
const BOX_BYTES: usize = 1024;
const BOX_SLOTS: usize = 128;

/// u64: letters or bytes written. The source is the only writer.
pub const QUEUE_WRITTEN: usize = 0;
/// u64: letters or bytes read. The destination is the only writer.
pub const QUEUE_READ: usize = 64;
const CHANNEL_HEADER: usize = 128;

/// Bytes of one staging slot.
pub const SLOT_BYTES: usize = 256 * 1024;
/// Staging slots of a rank: one is filled while peers still read the other.
pub const SLOTS: u64 = 2;

const _: () = assert!(BOX_SLOTS + BOX_LETTERS as usize * LETTER_BYTES <= BOX_BYTES);

/// Offsets for a number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    nranks: usize,
    boxes: usize,
    channels: usize,
    /// Bytes of the ring of a channel, a power of two.
    pub ring_bytes: usize,
    staging: usize,
    /// Bytes of the whole region.
    pub bytes: usize,
}

const fn page_up(bytes: usize) -> usize {
    bytes.next_multiple_of(4096)
}

impl Layout {
    /// `nranks` is at most [`crate::abi::MAX_RANKS`], so nothing overflows.
    pub const fn new(nranks: u32) -> Self {
        let n = nranks as usize;
        // Big rings for few ranks; many ranks share a quarter of a GiB of address space until 16 KiB.
        let mut ring_bytes = 256 * 1024;
        while ring_bytes > 16 * 1024 && ring_bytes * n * n > 256 * 1024 * 1024 {
            ring_bytes /= 2;
        }
        let boxes = page_up(HEADER_BYTES + n * RANK_BYTES);
        let channels = page_up(boxes + n * n * BOX_BYTES);
        let staging = page_up(channels + n * n * (CHANNEL_HEADER + ring_bytes));
        let bytes = staging + n * SLOTS as usize * SLOT_BYTES;
        Self { nranks: n, boxes, channels, ring_bytes, staging, bytes }
    }

    /// Entry of a rank.
    pub const fn rank(&self, rank: u32) -> usize {
        HEADER_BYTES + rank as usize * RANK_BYTES
    }

    /// Letter box from `source` to `destination`.
    pub const fn letter_box(&self, source: u32, destination: u32) -> usize {
        self.boxes + (source as usize * self.nranks + destination as usize) * BOX_BYTES
    }

    /// The n-th letter of a box.
    pub const fn letter(&self, source: u32, destination: u32, number: u64) -> usize {
        self.letter_box(source, destination) + BOX_SLOTS + (number % BOX_LETTERS) as usize * LETTER_BYTES
    }

    /// Channel from `source` to `destination`.
    pub const fn channel(&self, source: u32, destination: u32) -> usize {
        self.channels + (source as usize * self.nranks + destination as usize) * (CHANNEL_HEADER + self.ring_bytes)
    }

    /// First byte of the ring of a channel.
    pub const fn ring(&self, source: u32, destination: u32) -> usize {
        self.channel(source, destination) + CHANNEL_HEADER
    }

    /// The staging slot of `rank` for a round.
    pub const fn slot(&self, rank: u32, round: u64) -> usize {
        self.staging + (rank as usize * SLOTS as usize + (round % SLOTS) as usize) * SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_stay_inside() {
        for n in [1, 2, 3, 8, 17, 64, 1024] {
            let layout = Layout::new(n);
            let last = n - 1;
            assert!(layout.rank(last) + RANK_BYTES <= layout.letter_box(0, 0));
            assert!(layout.letter_box(last, last) + BOX_BYTES <= layout.channel(0, 0));
            assert!(layout.ring(last, last) + layout.ring_bytes <= layout.slot(0, 0));
            assert_eq!(layout.slot(last, 1) + SLOT_BYTES, layout.bytes);
            assert!(layout.ring_bytes.is_power_of_two());
            assert_eq!(layout.channel(last, last) % 64, 0);
        }
    }
}
