//! Indexes: how an item leaves one, and where two differ.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// Removes an item of an index in which no list is empty.
pub(super) fn remove<K: Ord, T: Ord + Borrow<Q>, Q: Ord + ?Sized>(
    index: &mut BTreeMap<K, BTreeSet<T>>,
    key: &K,
    item: &Q,
) {
    if let Some(items) = index.get_mut(key) {
        items.remove(item);
        if items.is_empty() {
            index.remove(key);
        }
    }
}

/// The keys with different values in the two maps.
pub(super) fn differing<'a, K: Ord, V: PartialEq<W>, W>(
    expected: &'a BTreeMap<K, V>,
    noted: &'a BTreeMap<K, W>,
) -> impl Iterator<Item = &'a K> {
    let keys: BTreeSet<&K> = expected.keys().chain(noted.keys()).collect();
    keys.into_iter().filter(|key| match (expected.get(*key), noted.get(*key)) {
        (Some(expected), Some(noted)) => expected != noted,
        (expected, noted) => expected.is_some() || noted.is_some(),
    })
}
