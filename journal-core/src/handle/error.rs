//! Why a virtual handle does not lead to an object.

use super::{HandleKind, VirtualHandle};
use crate::Status;

/// Errors of the handle table. None of them ever stands for another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The value is 0.
    #[error("the handle is null")]
    Null,
    /// Not a virtual handle at all: a pointer or a real handle.
    #[error("{value:#x} is not a virtual handle; pass what the rejoin call returned, not the library's own object")]
    NotVirtual {
        /// As passed.
        value: u64,
    },
    /// Of another kind.
    #[error("handle {:#x} is a {found:?}, expected a {expected:?}", handle.0)]
    WrongKind {
        /// As passed.
        handle: VirtualHandle,
        /// What the call needs.
        expected: HandleKind,
        /// What it is.
        found: HandleKind,
    },
    /// Its object was destroyed; the slot may hold another one now.
    #[error("handle {:#x} is stale: its object was destroyed (generation {}, the slot is at {found})", handle.0, handle.generation())]
    Stale {
        /// As passed.
        handle: VirtualHandle,
        /// Generation of the slot now.
        found: u32,
    },
    /// Its index is beyond the table.
    #[error("handle {:#x} has index {}, the table has {capacity} entries", handle.0, handle.index())]
    OutOfRange {
        /// As passed.
        handle: VirtualHandle,
        /// Entries of the table.
        capacity: u32,
    },
    /// Reserved, or waiting for recovery to rebuild its object.
    #[error("handle {:#x} has no object now: it is being created, or recovery has not rebound it yet", handle.0)]
    Unbound {
        /// As passed.
        handle: VirtualHandle,
    },
    /// No free entry.
    #[error("all {capacity} handles of this rank are in use and the journal has no room for more of them; destroy some, or \
             create the journal with a larger max_handles or capacity_bytes")]
    Full {
        /// Entries of the table.
        capacity: u32,
    },
}

impl HandleError {
    /// The status of the C ABI.
    pub fn status(&self) -> Status {
        match self {
            Self::Null => Status::NullArgument,
            Self::NotVirtual { .. } | Self::WrongKind { .. } | Self::OutOfRange { .. } => Status::InvalidArgument,
            Self::Stale { .. } | Self::Unbound { .. } => Status::StaleHandle,
            Self::Full { .. } => Status::NoSpace,
        }
    }
}
