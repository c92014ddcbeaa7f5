//! The 64-bit value that an application holds instead of a real object.

use super::{HandleError, HandleKind};

/// A virtual handle: `{1, kind 7, generation 24, index 32}` from the highest bit. 0 is no handle.
///
/// The highest bit makes it a value that is never a user-space address, so that a real handle or pointer
/// passed by mistake is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct VirtualHandle(pub u64);

const TAG: u64 = 1 << 63;
/// Largest generation; after it a slot is not used again.
pub(super) const LAST_GENERATION: u32 = (1 << 24) - 1;

impl VirtualHandle {
    pub(super) fn new(kind: HandleKind, generation: u32, index: u32) -> Self {
        Self(TAG | (kind as u64) << 56 | u64::from(generation) << 32 | u64::from(index))
    }

    /// Slot of the table.
    #[inline]
    pub fn index(self) -> u32 {
        self.0 as u32
    }

    /// Reuse count of the slot.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & LAST_GENERATION
    }

    /// A virtual handle of this kind.
    #[inline(always)]
    pub(super) fn is_of(self, kind: HandleKind) -> bool {
        self.0 >> 56 == TAG >> 56 | kind as u64
    }

    /// Its kind; an error for anything that is no virtual handle.
    #[inline]
    pub fn kind(self) -> Result<HandleKind, HandleError> {
        if self.0 == 0 {
            return Err(HandleError::Null);
        }
        if self.0 & TAG == 0 {
            return Err(HandleError::NotVirtual { value: self.0 });
        }
        HandleKind::from_number((self.0 >> 56) as u8 & 0x7f).ok_or(HandleError::NotVirtual { value: self.0 })
    }
}
