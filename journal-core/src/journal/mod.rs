//! The journal: what a rank asked for, in shared memory that outlives it.
//!
//! ```text
//! segment   a named shared object: created, reserved, published, opened
//! ```

pub mod name;
#[allow(unsafe_code)]
pub mod segment;
mod segment_error;

pub use name::SegmentName;
pub use segment::SharedSegment;
pub use segment_error::SegmentError;
