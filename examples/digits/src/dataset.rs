//! The handwritten digits: 1,797 images of 8 × 8 pixels with values 0 to 16, and a label each.

/// Pixels of an image.
pub const PIXELS: usize = 64;
/// Classes.
pub const CLASSES: usize = 10;

const CSV: &str = include_str!("../digits.csv");

/// Why the data could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the digits is not {PIXELS} pixels of 0 to 16 and a label of 0 to 9: {reason}")]
pub struct DatasetError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Images as rows of [`PIXELS`] values 0 to 1, and labels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// Row-major.
    pub images: Vec<f32>,
    /// 0 to 9.
    pub labels: Vec<u32>,
}

impl Samples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True without samples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Pixels of one sample.
    pub fn image(&self, index: usize) -> &[f32] {
        &self.images[index * PIXELS..(index + 1) * PIXELS]
    }
}

/// Training and test samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// 1,498 samples.
    pub train: Samples,
    /// Every sixth line: 299 samples.
    pub test: Samples,
}

impl Dataset {
    /// The data that is part of this package.
    pub fn load() -> Result<Self, DatasetError> {
        Self::from_csv(CSV)
    }

    fn from_csv(text: &str) -> Result<Self, DatasetError> {
        let mut data = Self { train: Samples::default(), test: Samples::default() };
        for (index, row) in text.lines().enumerate() {
            let wrong = |reason: String| DatasetError { line: index + 1, reason };
            let values: Vec<u8> = row
                .split(',')
                .map(|value| value.trim().parse().map_err(|_| wrong(format!("`{value}`"))))
                .collect::<Result<_, _>>()?;
            let Some((label, pixels)) = values.split_last().filter(|(_, pixels)| pixels.len() == PIXELS) else {
                return Err(wrong(format!("{} values", values.len())));
            };
            if *label > 9 || pixels.iter().any(|&pixel| pixel > 16) {
                return Err(wrong("a value out of range".to_owned()));
            }
            let samples = if index % 6 == 5 { &mut data.test } else { &mut data.train };
            samples.images.extend(pixels.iter().map(|&pixel| f32::from(pixel) / 16.0));
            samples.labels.push(u32::from(*label));
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sixth_line_is_for_the_test() {
        let data = Dataset::load().expect("the data of this package");
        assert_eq!((data.train.len(), data.test.len()), (1498, 299));
        assert_eq!(data.train.images.len(), 1498 * PIXELS);
        assert_eq!(data.train.labels[..6], [0, 1, 2, 3, 4, 6]);
        assert_eq!(data.test.labels[0], 5);
        assert_eq!(data.train.image(0)[2], 5.0 / 16.0);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let row = |pixels: usize, pixel: &str, label: &str| format!("{}{label}\n", format!("{pixel},").repeat(pixels));
        let text = format!("{}{}", row(64, "3", "1"), row(63, "3", "1"));
        assert_eq!(Dataset::from_csv(&text).expect_err("too short").line, 2);
        assert_eq!(Dataset::from_csv(&row(64, "17", "1")).expect_err("pixel").line, 1);
        assert_eq!(Dataset::from_csv(&row(64, "3", "10")).expect_err("label").line, 1);
        assert_eq!(Dataset::from_csv(&row(64, "x", "1")).expect_err("number").line, 1);
    }
}
