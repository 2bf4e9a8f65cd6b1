//! Values by address, for the few addresses of one node that have one.
//!
//! Does not know its values. Keeps one invariant: the addresses are in numeric order and each occurs once, so equal
//! contents are equal values.

use std::fmt;
use std::net::IpAddr;

use crate::net::cidr::{Cidr, position};
use crate::net::short_list;

/// Values by address. It takes as much memory as its entries, where a `BTreeMap` makes room for eleven with the first.
/// An insertion in the middle moves the entries behind it, so many entries are better collected.
#[derive(Clone, PartialEq, Eq)]
pub struct AddressMap<V> {
    entries: Vec<(IpAddr, V)>,
}

impl<V> Default for AddressMap<V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<V> AddressMap<V> {
    /// The value of an address.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&V> {
        self.place_of(address).ok().map(|place| &self.entries[place].1)
    }

    /// Whether an address has a value.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.place_of(address).is_ok()
    }

    /// Gives an address a value, in place of any that it has.
    pub fn insert(&mut self, address: IpAddr, value: V) {
        match self.place_of(address) {
            Ok(place) => self.entries[place].1 = value,
            Err(place) => short_list::insert(&mut self.entries, place, (address, value)),
        }
    }

    /// Keeps the entries for which `keeps` holds.
    pub fn retain(&mut self, mut keeps: impl FnMut(IpAddr, &V) -> bool) {
        self.entries.retain(|(address, value)| keeps(*address, value));
    }

    /// All entries, in numeric order.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &V)> {
        self.entries.iter().map(|(address, value)| (*address, value))
    }

    /// The entries whose addresses lie in `cidr`, in numeric order.
    pub fn entries_in(&self, cidr: Cidr) -> impl Iterator<Item = (IpAddr, &V)> {
        let from = self.entries.partition_point(|(address, _)| position(*address) < cidr.first());
        let behind = self.entries[from..].iter().map(|(address, value)| (*address, value));
        behind.take_while(move |(address, _)| cidr.contains(*address))
    }

    fn place_of(&self, address: IpAddr) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&position(address), |(other, _)| position(*other))
    }
}

impl<V> FromIterator<(IpAddr, V)> for AddressMap<V> {
    /// If an address has several values, the last one counts.
    fn from_iter<I: IntoIterator<Item = (IpAddr, V)>>(entries: I) -> Self {
        let mut entries: Vec<(IpAddr, V)> = entries.into_iter().collect();
        entries.reverse();
        entries.sort_by_key(|(address, _)| position(*address));
        entries.dedup_by_key(|(address, _)| position(*address));
        entries.shrink_to_fit();
        Self { entries }
    }
}

impl<V> Extend<(IpAddr, V)> for AddressMap<V> {
    fn extend<I: IntoIterator<Item = (IpAddr, V)>>(&mut self, entries: I) {
        for (address, value) in entries {
            self.insert(address, value);
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for AddressMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::net::cidr::address;
    use proptest::prelude::*;

    fn near() -> impl Strategy<Value = IpAddr> {
        // Both families, and few addresses, so that some occur twice.
        (any::<bool>(), 0u8..20).prop_map(|(is_ipv4, low)| {
            let base = if is_ipv4 { 0xffff_0a00_0000 } else { 0x2001_0db8_u128 << 96 };
            address(base + u128::from(low))
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(
            collected in proptest::collection::vec((near(), 0u8..4), 0..12),
            steps in proptest::collection::vec((near(), 0u8..4), 0..12),
            probe in (near(), 24u8..=32),
        ) {
            let mut map: AddressMap<u8> = collected.iter().copied().collect();
            let mut model: BTreeMap<u128, u8> =
                collected.into_iter().map(|(address, value)| (position(address), value)).collect();
            for (address, value) in steps {
                map.insert(address, value);
                model.insert(position(address), value);
            }
            map.retain(|_, value| *value > 0);
            model.retain(|_, value| *value > 0);
            let all: Vec<_> = map.iter().map(|(address, value)| (position(address), *value)).collect();
            prop_assert_eq!(&all, &model.iter().map(|(place, value)| (*place, *value)).collect::<Vec<_>>());
            let (member, length) = probe;
            prop_assert_eq!(map.get(member), model.get(&position(member)));
            prop_assert_eq!(map.contains(member), model.contains_key(&position(member)));
            let cidr = Cidr::containing(member, length).unwrap();
            let found: Vec<_> = map.entries_in(cidr).map(|(address, value)| (position(address), *value)).collect();
            let expected = all.into_iter().filter(|(place, _)| cidr.contains(address(*place)));
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
            let again: AddressMap<u8> = map.iter().map(|(address, value)| (address, *value)).collect();
            prop_assert_eq!(again, map);
        }
    }
}
