//! The 64-bit value that an application holds instead of a real object.

/// A virtual handle. 0 is no handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct VirtualHandle(pub u64);
