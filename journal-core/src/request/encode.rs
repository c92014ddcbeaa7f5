//! A request as the payload of a record.
//!
//! Payload, little-endian: one lead word, then a word for each argument that is one, then the length of each
//! run of bytes as a word, then those bytes without padding. The lead word:
//!
//! | bits | what |
//! |---|---|
//! | 0..16 | foreign arguments, one bit each, by position in the row |
//! | 16..24 | number of words |
//! | 24..32 | number of byte runs |
//! | 32..40 | reason it cannot be replayed, 0 none |
//! | 40..48 | version of this layout, 1 |
//! | 48..64 | 0 |

use super::{MAX_BYTE_RUNS, Request};
use zerocopy::IntoBytes;

#[cfg(target_endian = "big")]
compile_error!("records are little-endian");

/// Version of the payload's layout.
pub const ENCODING_VERSION: u8 = 1;

/// The parts of a record's payload, in order: the fixed part, and each run of bytes.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    parts: [&'a [u8]; 1 + MAX_BYTE_RUNS],
    count: usize,
}

impl<'a> core::ops::Deref for Parts<'a> {
    type Target = [&'a [u8]];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.parts[..self.count]
    }
}

impl Request<'_> {
    /// The record's payload. Copies nothing.
    #[inline]
    pub fn parts(&self) -> Parts<'_> {
        Parts { parts: [self.head.whole().as_bytes(), self.bytes[0], self.bytes[1]], count: 1 + self.head.runs() }
    }

    /// Length of the payload.
    pub fn encoded_len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// The payload in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}
