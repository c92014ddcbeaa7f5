//! Device memory that the application got by itself and has given to the session.

/// Ranges outside the window, as the application named them.
#[derive(Debug, Default)]
pub(super) struct ForeignMemory(Vec<(u64, u64)>);

impl ForeignMemory {
    /// Adds one.
    pub(super) fn add(&mut self, address: u64, bytes: u64) {
        self.0.push((address, bytes));
    }

    /// Whether a range lies inside one of them.
    pub(super) fn contains(&self, address: u64, bytes: u64) -> bool {
        let inside = |(base, length): &(u64, u64)| {
            address.checked_sub(*base).is_some_and(|at| at <= *length && bytes <= *length - at)
        };
        self.0.iter().any(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_inside_one_range_is_contained() {
        let mut memory = ForeignMemory::default();
        memory.add(1000, 100);
        memory.add(1100, 100);
        assert!(memory.contains(1000, 100) && memory.contains(1050, 50) && memory.contains(1199, 1));
        assert!(!memory.contains(1050, 100), "one range, not two that touch");
        assert!(!memory.contains(999, 1) && !memory.contains(1200, 1) && !memory.contains(1000, u64::MAX));
    }
}
