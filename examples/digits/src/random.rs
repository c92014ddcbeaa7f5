//! SplitMix64 (Steele, Lea, Flood 2014, <https://doi.org/10.1145/2714064.2660195>): the same numbers everywhere.

/// A generator of which one number is the whole state.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Generators of different seeds or streams give unrelated numbers.
    pub fn create(seed: u64, stream: u64) -> Self {
        Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// 64 random bits.
    pub fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1; exactly representable, so no rounding differs between machines.
    pub fn next_symmetric(&mut self) -> f32 {
        let bits = (self.next_bits() >> 40) as i32 - (1 << 23);
        bits as f32 / (1 << 23) as f32
    }

    /// Below `limit`, by multiplication; the bias of below 2^-32 does not matter for a shuffle.
    pub fn next_below(&mut self, limit: u32) -> u32 {
        ((self.next_bits() >> 32) * u64::from(limit) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next_bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn ranges_are_kept() {
        let mut random = SplitMix64::create(1, 2);
        for _ in 0..10_000 {
            assert!((-1.0..1.0).contains(&random.next_symmetric()));
            assert!(random.next_below(7) < 7);
        }
    }
}
