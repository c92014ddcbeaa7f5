//! Storage of a protocol as 64-bit words, addressed by byte offset.

use super::AtomicU64;

/// Words of a shared object. `offset` is in bytes, a multiple of 8, below the object's length;
/// implementations panic on anything else, so offsets read from shared memory are checked before.
pub trait Words {
    /// The word at byte `offset`.
    fn word(&self, offset: u64) -> &AtomicU64;
    /// `count` consecutive words from byte `offset`, with one check for all of them.
    fn words(&self, offset: u64, count: usize) -> &[AtomicU64];
}

/// Words on the heap, for loom models and unit tests.
pub struct HeapWords(Vec<AtomicU64>);

impl HeapWords {
    /// `bytes / 8` zero words.
    pub fn zeroed(bytes: u64) -> Self {
        Self((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for HeapWords {
    fn word(&self, offset: u64) -> &AtomicU64 {
        assert_eq!(offset % 8, 0, "unaligned word offset {offset:#x}");
        &self.0[usize::try_from(offset / 8).expect("64-bit target")]
    }

    fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        assert_eq!(offset % 8, 0, "unaligned word offset {offset:#x}");
        let first = usize::try_from(offset / 8).expect("64-bit target");
        &self.0[first..first + count]
    }
}
