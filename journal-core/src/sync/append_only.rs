//! A list that grows and is read without a lock: objects that handles name by their place.

use append_only_vec::AppendOnlyVec;

/// Places count from 1, so that 0 is none. Entries stay.
#[derive(Debug)]
pub struct AppendOnly<T>(AppendOnlyVec<T>);

impl<T> Default for AppendOnly<T> {
    fn default() -> Self {
        Self(AppendOnlyVec::new())
    }
}

impl<T> AppendOnly<T> {
    /// Adds one; its place.
    pub fn add(&self, value: T) -> u64 {
        self.0.push(value) as u64 + 1
    }

    /// The one at a place.
    #[inline]
    pub fn get(&self, place: u64) -> Option<&T> {
        let index = usize::try_from(place.checked_sub(1)?).ok()?;
        (index < self.0.len()).then(|| &self.0[index])
    }

    /// All, with their places.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (1..).zip(self.0.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_at_their_places_while_others_are_added() {
        const EACH: u64 = 2_000;
        let list = AppendOnly::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let place = list.add((thread, n));
                        assert_eq!(list.get(place), Some(&(thread, n)));
                    }
                });
            }
        });
        assert_eq!((list.get(0), list.get(4 * EACH + 1)), (None, None));
        assert_eq!(list.iter().map(|(place, _)| place).last(), Some(4 * EACH));
    }
}
