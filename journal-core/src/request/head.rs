//! The fixed part of a request, as its record keeps it: what is made when a request is made need not be copied to
//! record it.

use super::encode::ENCODING_VERSION;
use super::{MAX_BYTE_RUNS, MAX_WORDS, Reason};

const WORDS: u32 = 16;
const RUNS: u32 = 24;
const REASON: u32 = 32;
const VERSION: u32 = 40;

/// Lead word, then the arguments that are words, then the length of each run of bytes; see `encode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head([u64; 1 + MAX_WORDS + MAX_BYTE_RUNS]);

impl Head {
    pub const EMPTY: Self = {
        let mut head = [0; 1 + MAX_WORDS + MAX_BYTE_RUNS];
        head[0] = (ENCODING_VERSION as u64) << VERSION;
        Self(head)
    };

    #[inline]
    fn word_count(&self) -> usize {
        usize::from((self.0[0] >> WORDS) as u8)
    }

    /// Runs of bytes.
    #[inline]
    pub fn runs(&self) -> usize {
        usize::from((self.0[0] >> RUNS) as u8)
    }

    /// All of it.
    #[inline]
    pub fn whole(&self) -> &[u64] {
        &self.0[..1 + self.word_count() + self.runs()]
    }

    /// The arguments that are words.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.0[1..=self.word_count()]
    }

    /// The `n`-th of them.
    #[inline(always)]
    pub fn word(&self, n: usize) -> Option<u64> {
        self.0.get(1 + n).copied()
    }

    // Rows are checked at compile time to have no more than there is room for.
    #[inline(always)]
    pub fn push_word(&mut self, word: u64) {
        self.0[1 + self.word_count()] = word;
        self.0[0] += 1 << WORDS;
    }

    /// Counts a further run of bytes; which one it is.
    #[inline(always)]
    pub fn push_run(&mut self) -> usize {
        self.0[0] += 1 << RUNS;
        self.runs() - 1
    }

    #[inline(always)]
    pub fn set_word(&mut self, n: usize, word: u64) {
        self.0[1 + n] = word;
    }

    /// Length of the `n`-th run, once all words are there.
    #[inline(always)]
    pub fn set_length(&mut self, n: usize, bytes: usize) {
        self.0[1 + self.word_count() + n] = bytes as u64;
    }

    /// Foreign arguments, one bit each.
    #[inline]
    pub fn foreign(&self) -> u16 {
        self.0[0] as u16
    }

    pub fn add_foreign(&mut self, position: usize) {
        self.0[0] |= 1 << position;
    }

    pub fn reason(&self) -> Option<Reason> {
        Reason::from_code((self.0[0] >> REASON) as u8)
    }

    pub fn set_reason(&mut self, reason: Reason) {
        self.0[0] = self.0[0] & !(0xFF << REASON) | (reason as u64) << REASON;
    }

    /// Takes foreign arguments and reason from a recorded lead word.
    pub fn mark_as(&mut self, lead: u64) {
        const MARKS: u64 = 0xFFFF | 0xFF << REASON;
        self.0[0] = self.0[0] & !MARKS | lead & MARKS;
    }
}
