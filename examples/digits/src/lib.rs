//! Trains a classifier of handwritten digits data-parallel, and goes on when a rank dies.
//!
//! ```text
//! dataset -> batch (which samples a step takes, and which of them a rank) -> train (the loop) -> model
//! ```
#![deny(unsafe_code)]

pub mod batch;
pub mod dataset;
pub mod model;
mod random;
#[cfg(test)]
mod reference;
