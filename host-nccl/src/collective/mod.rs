//! Collectives over the staging slots of a region.
//!
//! An operation is cut into *rounds*. In a round every source copies its piece into its own slot and posts
//! it; readers wait for the posts and copy or fold. An all-reduce has a second part, in which each rank
//! posts the segment that it folded. Folding goes in rank order, so the bits never depend on timing.

mod rounds;

use crate::datatype::DataType;
use crate::link::{Link, Stop};
use crate::reduce::Operator;

/// At most this many bytes: a peer's abort ends the operation with garbage (LL and LL128 in NCCL);
/// above it, the operation stays hung (Simple). Measured on NCCL 2.32.3: garbage at 256 KiB, hung at 1 MiB.
pub const SMALL_BYTES: usize = 512 * 1024;

/// What results of an aborted operation are overwritten with.
pub const GARBAGE: u8 = 0x5a;

/// Which collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    AllReduce,
    Broadcast { root: u32 },
    Reduce { root: u32 },
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather { root: u32 },
    Scatter { root: u32 },
}

impl Kind {
    /// True when the send buffer has one block of `count` a rank.
    pub fn sends_blocks(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::AllToAll | Self::Scatter { .. })
    }

    /// True when the receive buffer has one block of `count` a rank.
    pub fn receives_blocks(self) -> bool {
        matches!(self, Self::AllGather | Self::AllToAll | Self::Gather { .. })
    }

    /// True when `rank` gives data.
    pub fn is_source(self, rank: u32) -> bool {
        match self {
            Self::Broadcast { root } | Self::Scatter { root } => rank == root,
            _ => true,
        }
    }

    /// True when `rank` gets data.
    pub fn is_reader(self, rank: u32) -> bool {
        match self {
            Self::Reduce { root } | Self::Gather { root } => rank == root,
            _ => true,
        }
    }
}

/// How contributions are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Known at the call.
    Fixed(Operator),
    /// PreMulSum whose scalar is read from this address when the operation runs.
    ScalarAt(usize),
}

/// One collective call. Addresses are those of the caller's buffers, which it keeps valid until the
/// operation has left its stream.
#[derive(Debug, Clone, Copy)]
pub struct Collective {
    /// Which.
    pub kind: Kind,
    /// Send buffer; unused where the rank is no source.
    pub send: usize,
    /// Receive buffer; unused where the rank is no reader.
    pub recv: usize,
    /// Elements (of a block, where there are blocks).
    pub count: usize,
    /// Their type.
    pub datatype: DataType,
    /// For the reducing kinds.
    pub reduction: Reduction,
}

impl Collective {
    /// Bytes of `count` elements.
    fn block_bytes(&self) -> usize {
        self.count * self.datatype.bytes()
    }

    /// Bytes of the larger buffer, the same on every rank.
    fn total_bytes(&self, nranks: u32) -> usize {
        if self.kind.sends_blocks() || self.kind.receives_blocks() {
            self.block_bytes() * nranks as usize
        } else {
            self.block_bytes()
        }
    }

    /// Runs it to its end, or until an abort here or (small ones) at a peer; then the result is garbage,
    /// and nobody is told: so it is with NCCL.
    pub fn run(&self, link: &Link, sequence: u64) {
        match rounds::run(self, link, sequence, self.is_small(link)) {
            Ok(()) => {}
            Err(Stop::Poisoned) => self.spoil(link),
            Err(Stop::Aborted) => self.abandon(link, sequence),
        }
    }

    /// What an aborted rank leaves: garbage here, and (small ones) at its peers.
    pub fn abandon(&self, link: &Link, sequence: u64) {
        self.spoil(link);
        if self.is_small(link) {
            link.poison(sequence);
        }
    }

    fn is_small(&self, link: &Link) -> bool {
        self.total_bytes(link.nranks) <= SMALL_BYTES
    }

    fn spoil(&self, link: &Link) {
        if self.kind.is_reader(link.rank) {
            let blocks = if self.kind.receives_blocks() { link.nranks as usize } else { 1 };
            fill(self.recv, GARBAGE, self.block_bytes() * blocks);
        }
    }

    /// The operator, with its scalar.
    fn operator(&self) -> Operator {
        match self.reduction {
            Reduction::Fixed(operator) => operator,
            Reduction::ScalarAt(address) => Operator::PreMulSum(read_scalar(address, self.datatype)),
        }
    }
}

/// Reads a scalar of `datatype` from the caller's memory.
pub fn read_scalar(address: usize, datatype: DataType) -> [u8; 8] {
    let mut scalar = [0; 8];
    let from = core::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the caller gave a readable scalar of this type; `scalar` has room for the largest.
    unsafe { core::ptr::copy_nonoverlapping(from, scalar.as_mut_ptr(), datatype.bytes()) };
    scalar
}

/// Overwrites the caller's receive buffer.
pub fn fill(address: usize, byte: u8, bytes: usize) {
    let to = core::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller's buffer has at least `bytes`, as NCCL's contract says.
    unsafe { core::ptr::write_bytes(to, byte, bytes) };
}

