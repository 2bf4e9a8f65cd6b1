//! An index of prefixes. It finds all items filed under prefixes that overlap a given one.
//!
//! Does not know its items. Keeps one invariant: every prefix in it has an item, so equal contents are equal values.
//!
//! Two prefixes never overlap in part. So the prefixes that overlap `c` are within `c` or around it. Those within `c`
//! are one range in the order of first addresses, and around `c` there is at most one per length. Only lengths that
//! occur are looked up, and a cluster has few: the sizes of its blocks and of the ranges of its pools.

use std::collections::BTreeMap;

use crate::net::cidr::Cidr;
use crate::net::small_set::SmallSet;

/// Items filed under prefixes, any number under each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixIndex<T> {
    /// The items of each prefix; never an empty set.
    entries: BTreeMap<Cidr, SmallSet<T>>,
    /// How many prefixes of each length there are. The key is the prefix of that length at position 0.
    lengths: BTreeMap<Cidr, usize>,
}

impl<T> Default for PrefixIndex<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), lengths: BTreeMap::new() }
    }
}

impl<T: Ord> PrefixIndex<T> {
    /// Files `item` under `cidr`; `false` when it was there already.
    pub fn insert(&mut self, cidr: Cidr, item: T) -> bool {
        let items = self.entries.entry(cidr).or_insert_with(|| {
            *self.lengths.entry(cidr.same_size_at(0)).or_default() += 1;
            SmallSet::default()
        });
        items.insert(item)
    }

    /// Removes `item` from under `cidr`; `false` when it was not there.
    pub fn remove(&mut self, cidr: Cidr, item: &T) -> bool {
        let Some(items) = self.entries.get_mut(&cidr) else { return false };
        if !items.remove(item) {
            return false;
        }
        if items.is_empty() {
            self.entries.remove(&cidr);
            let length = cidr.same_size_at(0);
            if let Some(count) = self.lengths.get_mut(&length) {
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&length);
                }
            }
        }
        true
    }

    /// The items filed under exactly `cidr`, sorted.
    #[must_use]
    pub fn at(&self, cidr: Cidr) -> &[T] {
        self.entries.get(&cidr).map_or(&[], SmallSet::as_slice)
    }

    /// All items filed under prefixes that share an address with `cidr`. Those around it come first, the widest first;
    /// then itself and those within it, in numeric order.
    pub fn overlapping(&self, cidr: Cidr) -> impl Iterator<Item = (Cidr, &T)> {
        let around = self
            .lengths
            .range(..cidr.same_size_at(0))
            .filter_map(move |(length, _)| self.entries.get_key_value(&length.same_size_at(cidr.first())));
        // The last address, as a prefix, is the greatest prefix within `cidr`.
        let within = self.entries.range(cidr..=Cidr::single(cidr.last_address()));
        around.chain(within).flat_map(|(cidr, items)| items.iter().map(|item| (*cidr, item)))
    }

    /// All items, in numeric order of their prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (Cidr, &T)> {
        self.entries.iter().flat_map(|(cidr, items)| items.iter().map(|item| (*cidr, item)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::net::cidr::address;
    use proptest::prelude::*;

    fn near() -> impl Strategy<Value = Cidr> {
        // Both families and prefixes that cover both, all near one position, so that they overlap.
        prop_oneof![
            (any::<u8>(), 24u8..=32).prop_map(|(low, length)| {
                Cidr::containing(address(0xffff_0a00_0000 + u128::from(low)), length).unwrap()
            }),
            (any::<u8>(), 120u8..=128).prop_map(|(low, length)| {
                Cidr::containing(address((0x2001_0db8_u128 << 96) + u128::from(low)), length).unwrap()
            }),
            Just("::/0".parse().unwrap()),
            Just("0.0.0.0/0".parse().unwrap()),
            Just("2001:db8::/64".parse().unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_that_is_searched(
            steps in proptest::collection::vec((near(), 0u8..3, any::<bool>()), 0..40),
            probes in proptest::collection::vec(near(), 1..10),
        ) {
            let (mut index, mut model) = (PrefixIndex::default(), BTreeSet::new());
            for (cidr, item, file) in steps {
                if file {
                    prop_assert_eq!(index.insert(cidr, item), model.insert((cidr, item)));
                } else {
                    prop_assert_eq!(index.remove(cidr, &item), model.remove(&(cidr, item)));
                }
            }
            for probe in probes {
                let found: Vec<_> = index.overlapping(probe).map(|(cidr, item)| (cidr, *item)).collect();
                let expected: Vec<_> = model.iter().filter(|(cidr, _)| cidr.overlaps(probe)).copied().collect();
                prop_assert_eq!(found, expected);
            }
            let all: Vec<_> = index.iter().map(|(cidr, item)| (cidr, *item)).collect();
            prop_assert_eq!(all, model.iter().copied().collect::<Vec<_>>());
            // Equal contents are equal values, even if other items were filed in between.
            let mut again = PrefixIndex::default();
            for (cidr, item) in model {
                again.insert(cidr, item);
            }
            prop_assert_eq!(index, again);
        }
    }
}
