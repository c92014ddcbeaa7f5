//! Trains a classifier of handwritten digits data-parallel, and goes on when a rank dies.
//!
//! ```text
//! dataset -> batch (which samples a step takes, and which of them a rank) -> train (the loop) -> model
//!                                                        kernels (launches) _/
//! ```
#![deny(unsafe_code)]

pub mod batch;
pub mod dataset;
pub mod kernels;
pub mod model;
mod random;
#[cfg(test)]
mod reference;
pub mod train;

pub use train::{DEFAULT_SEED, Options, Outcome, Trainer};
