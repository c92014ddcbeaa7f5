//! A network of 64 inputs, 32 hidden units (ReLU) and 10 outputs (softmax). All parameters lie in one buffer.

use crate::dataset::{CLASSES, PIXELS, Samples};
use crate::random::SplitMix64;
use sha2::{Digest, Sha256};

/// Hidden units.
pub const HIDDEN: usize = 32;
/// Parameters: first weights (a row an input), first biases, second weights (a row a hidden unit), second biases.
pub const PARAMETERS: usize = PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES;

/// Where each part of the parameters begins, in elements.
pub mod offset {
    use super::{CLASSES, HIDDEN, PIXELS};
    /// First weights.
    pub const W1: usize = 0;
    /// First biases.
    pub const B1: usize = W1 + PIXELS * HIDDEN;
    /// Second weights.
    pub const W2: usize = B1 + HIDDEN;
    /// Second biases.
    pub const B2: usize = W2 + HIDDEN * CLASSES;
}

/// Parameters at the start: uniform, scaled by the number of inputs of a unit (He et al. 2015); biases 0.
pub fn initial(seed: u64) -> Vec<f32> {
    let mut random = SplitMix64::create(seed, 0);
    let mut parameters = vec![0.0; PARAMETERS];
    for (range, inputs) in [(offset::W1..offset::B1, PIXELS), (offset::W2..offset::B2, HIDDEN)] {
        let limit = (6.0 / inputs as f32).sqrt();
        parameters[range].fill_with(|| random.next_symmetric() * limit);
    }
    parameters
}

/// The class that the network finds most likely.
pub fn classify(parameters: &[f32], image: &[f32]) -> u32 {
    let mut hidden: [f32; HIDDEN] = std::array::from_fn(|unit| parameters[offset::B1 + unit]);
    for (pixel, value) in image.iter().enumerate() {
        for (unit, sum) in hidden.iter_mut().enumerate() {
            *sum += value * parameters[offset::W1 + pixel * HIDDEN + unit];
        }
    }
    let mut outputs: [f32; CLASSES] = std::array::from_fn(|class| parameters[offset::B2 + class]);
    for (unit, value) in hidden.iter().enumerate() {
        for (class, sum) in outputs.iter_mut().enumerate() {
            *sum += value.max(0.0) * parameters[offset::W2 + unit * CLASSES + class];
        }
    }
    let best = (0..CLASSES).max_by(|&a, &b| outputs[a].total_cmp(&outputs[b])).unwrap_or(0);
    best as u32
}

/// How many samples the network classifies as labelled.
pub fn count_correct(parameters: &[f32], samples: &Samples) -> usize {
    (0..samples.len()).filter(|&index| classify(parameters, samples.image(index)) == samples.labels[index]).count()
}

/// SHA-256 of the parameters' bytes, in hex: equal only if every bit is.
pub fn fingerprint(parameters: &[f32]) -> String {
    let mut hash = Sha256::new();
    for value in parameters {
        hash.update(value.to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_parameters_depend_on_the_seed_alone() {
        assert_eq!(initial(1), initial(1));
        assert_ne!(initial(1), initial(2));
        assert_eq!(initial(1).len(), 2410);
        assert!(initial(1)[offset::B1..offset::W2].iter().all(|&bias| bias == 0.0));
    }

    #[test]
    fn the_fingerprint_tells_a_single_bit() {
        let parameters = initial(1);
        let mut other = parameters.clone();
        other[2409] = f32::from_bits(other[2409].to_bits() ^ 1);
        assert_ne!(fingerprint(&parameters), fingerprint(&other));
        assert_eq!(fingerprint(&parameters).len(), 64);
    }

    #[test]
    fn the_class_with_the_largest_output_is_chosen() {
        let mut parameters = vec![0.0; PARAMETERS];
        parameters[offset::B2 + 7] = 1.0;
        assert_eq!(classify(&parameters, &[0.0; PIXELS]), 7);
        parameters[offset::W1 + 3 * HIDDEN + 5] = 2.0;
        parameters[offset::W2 + 5 * CLASSES + 4] = 3.0;
        let mut image = [0.0; PIXELS];
        image[3] = 1.0;
        assert_eq!(classify(&parameters, &image), 4);
    }
}
