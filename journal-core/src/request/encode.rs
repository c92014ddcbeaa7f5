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

/// Parts of an encoded request: lead word, words, lengths, and each run of bytes.
const PARTS: usize = 3 + MAX_BYTE_RUNS;

/// Room for the fixed part of an encoded request; lives on the caller's stack.
#[derive(Debug, Clone)]
pub struct EncodedHeader {
    lead: u64,
    lengths: [u64; MAX_BYTE_RUNS],
}

impl EncodedHeader {
    /// Empty room.
    #[inline]
    pub const fn new() -> Self {
        Self { lead: 0, lengths: [0; MAX_BYTE_RUNS] }
    }
}

impl Default for EncodedHeader {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Request<'a> {
    /// The parts of the record's payload, in order. Copies nothing: the words stand in the request.
    #[inline]
    pub fn encode_into<'b>(&'b self, header: &'b mut EncodedHeader) -> [&'b [u8]; PARTS]
    where
        'a: 'b,
    {
        let (words, runs) = (usize::from(self.word_count), usize::from(self.run_count));
        header.lead = u64::from(self.foreign)
            | u64::from(self.word_count) << 16
            | u64::from(self.run_count) << 24
            | u64::from(self.reason.map_or(0, |reason| reason as u8)) << 32
            | u64::from(ENCODING_VERSION) << 40;
        header.lengths = self.bytes.map(|run| run.len() as u64);
        let header = &*header;
        [header.lead.as_bytes(), self.words[..words].as_bytes(), header.lengths[..runs].as_bytes(), self.bytes[0], self.bytes[1]]
    }

    /// Length of the payload.
    pub fn encoded_len(&self) -> usize {
        8 * (1 + usize::from(self.word_count) + usize::from(self.run_count)) + self.bytes.iter().map(|b| b.len()).sum::<usize>()
    }

    /// The payload in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.encode_into(&mut EncodedHeader::new()).concat()
    }
}
