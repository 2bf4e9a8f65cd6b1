//! Sorted sets of a few items.
//!
//! Does not know its items. Keeps one invariant: they are sorted and each occurs once, so equal sets are equal values.

use crate::net::short_list;

/// A sorted set of a few items, as an index has under most of its keys. It takes as much memory as its items, where a
/// `BTreeSet` makes room for eleven with the first. Insertion and removal cost a pass over the items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallSet<T> {
    items: Vec<T>,
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

impl<T: Ord> SmallSet<T> {
    /// Adds an item; `false` if it was there already.
    pub fn insert(&mut self, item: T) -> bool {
        let Err(place) = self.items.binary_search(&item) else { return false };
        short_list::insert(&mut self.items, place, item);
        true
    }

    /// Removes an item; `false` if it was not there.
    pub fn remove(&mut self, item: &T) -> bool {
        let Ok(place) = self.items.binary_search(item) else { return false };
        self.items.remove(place);
        true
    }

    /// Whether it has no item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Its items in order.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// Its items in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }
}

impl<'a, T: Ord> IntoIterator for &'a SmallSet<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u8..8), 0..30)) {
            let (mut set, mut model) = (SmallSet::default(), BTreeSet::new());
            for (is_inserted, item) in steps {
                if is_inserted {
                    prop_assert_eq!(set.insert(item), model.insert(item));
                } else {
                    prop_assert_eq!(set.remove(&item), model.remove(&item));
                }
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().collect::<Vec<_>>());
                prop_assert_eq!(set.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn a_set_of_one_item_has_room_for_one() {
        let mut set = SmallSet::default();
        set.insert(7u64);
        assert_eq!(set.items.capacity(), 1);
    }
}
