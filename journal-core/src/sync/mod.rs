//! What protocols are built from: atomics (loom's under `cfg(loom)`), storage words, futexes, robust mutexes,
//! calls written down by their threads, and gates that let them in.
//!
//! Protocol code takes its words from [`Words`], never from a pointer: mapped memory in the product,
//! heap-built cells under loom (casting zeroed bytes to loom atomics would alias them all).

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[allow(unsafe_code)]
pub mod announce;
pub mod append_only;
#[allow(unsafe_code)]
pub mod futex;
pub mod gate;
#[allow(unsafe_code)]
pub mod robust;
mod words;
pub use words::{HeapWords, Words};
mod ordered;
pub use ordered::{ordered, ordered_fence};
#[cfg(loom)]
pub use ordered::weaken;
