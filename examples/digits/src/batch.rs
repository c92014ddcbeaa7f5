//! Which samples a step trains on, as a function of a position that is small enough to be a step's blob.

use crate::random::SplitMix64;

/// Samples of a step over all ranks.
pub const BATCH: u32 = 256;

/// Where the loader stands. This is what a rank hands to `step_end` and gets back from `resume`, so that a
/// replacement goes on with the samples that the dead process would have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loader {
    seed: u64,
    /// Passes over the training set that were begun.
    pass: u64,
    /// Samples of this pass that are taken.
    taken: u64,
}

/// Why a blob is not a loader position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a loader position has 24 bytes, not {0}: was it written by another version of this program?")]
pub struct LoaderError(usize);

impl Loader {
    /// At the start.
    pub fn create(seed: u64) -> Self {
        Self { seed, pass: 0, taken: 0 }
    }

    /// The next batch out of `samples`, and the position after it. A pass ends when less than a batch is left.
    pub fn next(self, samples: u32) -> (Vec<u32>, Self) {
        let batch = BATCH.min(samples);
        let mut at = self;
        if at.taken + u64::from(batch) > u64::from(samples) {
            at = Self { pass: at.pass + 1, taken: 0, ..at };
        }
        let order = shuffled(samples, at.seed, at.pass);
        let first = at.taken as usize;
        let indices = order[first..first + batch as usize].to_vec();
        (indices, Self { taken: at.taken + u64::from(batch), ..at })
    }

    /// As bytes for `step_end`.
    pub fn to_blob(self) -> [u8; 24] {
        let mut blob = [0; 24];
        for (bytes, value) in blob.chunks_exact_mut(8).zip([self.seed, self.pass, self.taken]) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        blob
    }

    /// From the bytes that `setup_done` or `resume` gave back.
    pub fn from_blob(blob: &[u8]) -> Result<Self, LoaderError> {
        let blob: &[u8; 24] = blob.try_into().map_err(|_| LoaderError(blob.len()))?;
        let (words, _) = blob.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Ok(Self { seed: word(0), pass: word(1), taken: word(2) })
    }
}

/// The part of a batch that a rank trains on. Parts differ by at most one sample in size.
pub fn shard(batch: &[u32], rank: u32, nranks: u32) -> &[u32] {
    let cut = |rank: u32| (batch.len() as u64 * u64::from(rank) / u64::from(nranks)) as usize;
    &batch[cut(rank)..cut(rank + 1)]
}

fn shuffled(samples: u32, seed: u64, pass: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..samples).collect();
    let mut random = SplitMix64::create(seed, pass + 1);
    for last in (1..samples).rev() {
        order.swap(last as usize, random.next_below(last + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_no_sample_twice() {
        let mut loader = Loader::create(7);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..5 {
            let (batch, next) = loader.next(1498);
            assert_eq!(batch.len(), 256);
            assert!(batch.into_iter().all(|index| index < 1498 && seen.insert(index)));
            loader = next;
        }
        let (sixth, _) = loader.next(1498);
        assert!(sixth.iter().any(|index| seen.contains(index)), "a new pass begins");
    }

    #[test]
    fn a_position_from_its_blob_gives_the_same_batches() {
        let mut loader = Loader::create(3);
        for _ in 0..7 {
            let restored = Loader::from_blob(&loader.to_blob()).expect("own blob");
            assert_eq!(restored.next(1498), loader.next(1498));
            loader = loader.next(1498).1;
        }
        assert!(Loader::from_blob(&[0; 23]).is_err());
    }

    #[test]
    fn shards_cover_the_batch_for_every_number_of_ranks() {
        let batch: Vec<u32> = (0..256).collect();
        for nranks in 1..=8 {
            let parts: Vec<&[u32]> = (0..nranks).map(|rank| shard(&batch, rank, nranks)).collect();
            assert_eq!(parts.concat(), batch);
            let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            assert!(sizes.iter().max().expect("parts") - sizes.iter().min().expect("parts") <= 1, "{sizes:?}");
        }
    }
}
