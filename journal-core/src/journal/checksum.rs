//! CRC32C over words, by the processor's instruction where there is one.
//!
//! A word counts as its eight little-endian bytes, so the sums equal those of any CRC32C over the same bytes.

/// One step of CRC32C on the inverted state.
pub trait Crc: Copy {
    /// State after `word`: 32 bits, as wide as a register since it goes through one.
    fn word(self, state: u64, word: u64) -> u64;
}

/// State before the first word.
pub const START: u64 = u32::MAX as u64;

/// The sum that belongs to a state.
pub const fn finish(state: u64) -> u32 {
    !(state as u32)
}

/// Tables of the `crc32c` crate: any processor.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Crc for Portable {
    #[inline]
    fn word(self, state: u64, word: u64) -> u64 {
        u64::from(!crc32c::crc32c_append(!(state as u32), &word.to_le_bytes()))
    }
}

/// The processor's instruction. Made only by [`Hardware::detect`].
#[derive(Debug, Clone, Copy)]
pub struct Hardware(());

impl Hardware {
    /// Some, if this processor has the instruction.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        let found = std::arch::is_x86_feature_detected!("sse4.2");
        #[cfg(target_arch = "aarch64")]
        let found = std::arch::is_aarch64_feature_detected!("crc");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let found = false;
        found.then_some(Self(()))
    }
}

impl Crc for Hardware {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn word(self, mut state: u64, word: u64) -> u64 {
        // Written out, so that the caller need not be a function compiled for processors that have it.
        // SAFETY: a value of this type exists, so `detect` has seen the instruction; it touches the register alone.
        unsafe { core::arch::asm!("crc32 {0}, {1}", inout(reg) state, in(reg) word, options(pure, nomem, nostack, preserves_flags)) };
        state
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn word(self, state: u64, word: u64) -> u64 {
        // SAFETY: a value of this type exists, so `detect` has seen the feature.
        u64::from(unsafe { core::arch::aarch64::__crc32cd(state as u32, word) })
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn word(self, state: u64, word: u64) -> u64 {
        Portable.word(state, word)
    }
}

/// A piece of code that is compiled once with the instruction inline and once without.
pub trait Work {
    /// What it gives.
    type Out;
    /// Mark implementations `#[inline(always)]`.
    fn run<C: Crc>(self, crc: C) -> Self::Out;
}

/// Runs `work` with the instruction, if `hardware` says that there is one.
#[inline(always)]
pub fn run<W: Work>(hardware: Option<Hardware>, work: W) -> W::Out {
    #[cold]
    #[inline(never)]
    fn without_instruction<W: Work>(work: W) -> W::Out {
        work.run(Portable)
    }
    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "crc")]
    fn with_instruction<W: Work>(crc: Hardware, work: W) -> W::Out {
        work.run(crc)
    }
    match hardware {
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a value of this type exists, so `detect` has seen the feature.
        Some(crc) => unsafe { with_instruction(crc, work) },
        #[cfg(not(target_arch = "aarch64"))]
        Some(crc) => work.run(crc),
        None => without_instruction(work),
    }
}

struct Sum<I>(I);

impl<I: Iterator<Item = u64>> Work for Sum<I> {
    type Out = u32;
    #[inline(always)]
    fn run<C: Crc>(self, crc: C) -> u32 {
        finish(self.0.fold(START, |state, word| crc.word(state, word)))
    }
}

/// Sum of `words`.
pub fn of_words(words: impl Iterator<Item = u64>) -> u32 {
    run(Hardware::detect(), Sum(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_sum_of_the_bytes() {
        let words: Vec<u64> = (0..37_u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let expected = crc32c::crc32c(&bytes);
        assert_eq!(of_words(words.iter().copied()), expected);
        assert_eq!(run(None, Sum(words.iter().copied())), expected);
    }
}
