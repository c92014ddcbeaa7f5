//! Kernels that train a small multi-layer perceptron, as a module of the host backend.
//!
//! Matrices are row-major: a batch is `[rows][columns]`, weights are `[inputs][outputs]`. Every sum runs in a
//! fixed order, so results are the same bits in every process. Buffers of one launch must not overlap.
#![deny(unsafe_code)]

pub mod math;
#[allow(unsafe_code)]
mod table;
pub use table::rejoin_kernel_table;
