//! Orderings with a name, so that a model can weaken one and see whether it is caught.
//!
//! Outside of models these are the plain ordering and the plain fence.

use super::Ordering;

/// `order`, unless a model weakens `site`.
#[cfg(not(loom))]
#[inline(always)]
pub const fn ordered(_site: &'static str, order: Ordering) -> Ordering {
    order
}

/// A fence of `order`, unless a model removes `site`.
#[cfg(not(loom))]
#[inline(always)]
pub fn ordered_fence(_site: &'static str, order: Ordering) {
    super::fence(order);
}

#[cfg(loom)]
mod model {
    use super::Ordering;
    use std::sync::Mutex;

    static WEAKENED: Mutex<Option<&'static str>> = Mutex::new(None);

    /// Runs `model` with the orderings of `site` relaxed and its fences gone. One at a time.
    pub fn weaken(site: &'static str) {
        *WEAKENED.lock().unwrap_or_else(|e| e.into_inner()) = (!site.is_empty()).then_some(site);
    }

    fn is_weak(site: &str) -> bool {
        *WEAKENED.lock().unwrap_or_else(|e| e.into_inner()) == Some(site)
    }

    /// `order`, unless a model weakens `site`.
    pub fn ordered(site: &'static str, order: Ordering) -> Ordering {
        if is_weak(site) { Ordering::Relaxed } else { order }
    }

    /// A fence of `order`, unless a model removes `site`.
    pub fn ordered_fence(site: &'static str, order: Ordering) {
        if !is_weak(site) {
            crate::sync::fence(order);
        }
    }
}
#[cfg(loom)]
pub use model::{ordered, ordered_fence, weaken};
