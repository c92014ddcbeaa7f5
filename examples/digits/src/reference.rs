//! The same training in plain Rust, to test that the numbers chosen here learn what they should.

use crate::batch::{BATCH, Loader};
use crate::dataset::{CLASSES, Dataset, PIXELS};
use crate::model::{self, HIDDEN, PARAMETERS, offset};

fn gradient(parameters: &[f32], image: &[f32], label: u32, sum: &mut [f32]) {
    let mut hidden = [0.0; HIDDEN];
    for (unit, value) in hidden.iter_mut().enumerate() {
        let input: f32 = (0..PIXELS).map(|pixel| image[pixel] * parameters[offset::W1 + pixel * HIDDEN + unit]).sum();
        *value = (input + parameters[offset::B1 + unit]).max(0.0);
    }
    let mut error: [f32; CLASSES] = std::array::from_fn(|class| {
        let input: f32 = (0..HIDDEN).map(|unit| hidden[unit] * parameters[offset::W2 + unit * CLASSES + class]).sum();
        input + parameters[offset::B2 + class]
    });
    let largest = error.iter().copied().fold(f32::MIN, f32::max);
    error.iter_mut().for_each(|value| *value = (*value - largest).exp());
    let total: f32 = error.iter().sum();
    error.iter_mut().for_each(|value| *value /= total);
    error[label as usize] -= 1.0;
    for unit in 0..HIDDEN {
        let mut back = 0.0;
        for class in 0..CLASSES {
            sum[offset::W2 + unit * CLASSES + class] += hidden[unit] * error[class];
            back += error[class] * parameters[offset::W2 + unit * CLASSES + class];
        }
        if hidden[unit] > 0.0 {
            for pixel in 0..PIXELS {
                sum[offset::W1 + pixel * HIDDEN + unit] += image[pixel] * back;
            }
            sum[offset::B1 + unit] += back;
        }
    }
    for class in 0..CLASSES {
        sum[offset::B2 + class] += error[class];
    }
}

#[test]
fn two_hundred_steps_classify_ninety_five_of_a_hundred() {
    let data = Dataset::load().expect("the data of this package");
    for seed in [1, 2, 3] {
        let mut parameters = model::initial(seed);
        let mut momentum = vec![0.0_f32; PARAMETERS];
        let mut loader = Loader::create(seed);
        for _ in 0..200 {
            let (batch, next) = loader.next(data.train.len() as u32);
            let mut sum = vec![0.0; PARAMETERS];
            for index in batch {
                gradient(&parameters, data.train.image(index as usize), data.train.labels[index as usize], &mut sum);
            }
            for ((value, velocity), gradient) in parameters.iter_mut().zip(&mut momentum).zip(&sum) {
                *velocity = 0.9 * *velocity + gradient / BATCH as f32;
                *value -= 0.3 * *velocity;
            }
            loader = next;
        }
        let accuracy = model::count_correct(&parameters, &data.test) as f64 / data.test.len() as f64;
        assert!((0.945..=0.975).contains(&accuracy), "seed {seed}: {accuracy}");
    }
}
