//! Sets of addresses as disjoint runs on the number line of [`crate::net::cidr`].
//!
//! Knows no families and no blocks beyond the [`Cidr`]s that it is asked about. Keeps one invariant: runs are
//! disjoint and never adjacent, so equal sets are equal values.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::net::cidr::{Cidr, address, position};

/// A set of addresses, or of any positions on the number line.
///
/// Costs grow with the number of runs, not with the number of addresses: the pool of a node is a run a block.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// First position of each run, with its last.
    runs: BTreeMap<u128, u128>,
}

impl AddressSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: BTreeMap::new() }
    }

    /// Whether it has no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many addresses it has; saturates.
    #[must_use]
    pub fn len(&self) -> u128 {
        self.runs
            .iter()
            .fold(0, |sum: u128, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    /// Its runs, first and last position each, in order.
    #[must_use]
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (u128, u128)> + '_ {
        self.runs.iter().map(|(first, last)| (*first, *last))
    }

    /// Its addresses in numeric order.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.runs().flat_map(|(first, last)| (first..=last).map(address))
    }

    /// Its addresses within `cidr`, in numeric order.
    pub fn iter_in(&self, cidr: Cidr) -> impl Iterator<Item = IpAddr> + '_ {
        self.runs_within(cidr.first(), cidr.last()).flat_map(|(first, last)| (first..=last).map(address))
    }

    /// The fewest prefixes that together are the set.
    pub fn cidrs(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.runs().flat_map(|(first, last)| Cidr::cover_of(first, last))
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, member: IpAddr) -> bool {
        let position = position(member);
        self.run_around(position).is_some()
    }

    /// How many of its addresses lie in `cidr`; saturates.
    #[must_use]
    pub fn count_in(&self, cidr: Cidr) -> u128 {
        self.runs_within(cidr.first(), cidr.last())
            .fold(0, |sum: u128, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    /// Whether it shares an address with `cidr`.
    #[must_use]
    pub fn intersects(&self, cidr: Cidr) -> bool {
        self.runs_within(cidr.first(), cidr.last()).next().is_some()
    }

    /// Whether all of `cidr` is in it.
    #[must_use]
    pub fn covers(&self, cidr: Cidr) -> bool {
        self.run_around(cidr.first()).is_some_and(|(_, last)| last >= cidr.last())
    }

    /// Adds one address.
    pub fn insert(&mut self, member: IpAddr) {
        let position = position(member);
        self.insert_run(position, position);
    }

    /// Adds all of `cidr`.
    pub fn insert_cidr(&mut self, cidr: Cidr) {
        self.insert_run(cidr.first(), cidr.last());
    }

    /// Adds the positions from `first` to `last`.
    pub fn insert_run(&mut self, first: u128, last: u128) {
        debug_assert!(first <= last, "a run has a first position that is not behind its last");
        let (mut start, mut end) = (first, last);
        // From the last run that begins in or just behind it to the one that it begins in or just behind, all grow
        // together. Walked from the back, the run before the first of them is the only one that is looked at in vain.
        while let Some((other_start, other_end)) = self.last_run_to(last.saturating_add(1))
            && other_end >= first.saturating_sub(1)
        {
            self.runs.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
            if other_start <= first {
                break;
            }
        }
        self.runs.insert(start, end);
    }

    /// Removes all of `cidr`.
    pub fn remove_cidr(&mut self, cidr: Cidr) {
        self.remove_run(cidr.first(), cidr.last());
    }

    /// Removes one address.
    pub fn remove(&mut self, member: IpAddr) {
        let position = position(member);
        self.remove_run(position, position);
    }

    /// Removes the positions from `first` to `last`.
    pub fn remove_run(&mut self, first: u128, last: u128) {
        while let Some((start, end)) = self.last_run_to(last)
            && end >= first
        {
            self.runs.remove(&start);
            if end > last {
                self.runs.insert(last + 1, end);
            }
            if start < first {
                self.runs.insert(start, first - 1);
            }
            if start <= first {
                break;
            }
        }
    }

    /// Adds every address of `other`.
    pub fn extend_with(&mut self, other: &Self) {
        for (first, last) in other.runs() {
            self.insert_run(first, last);
        }
    }

    /// The run that holds the position.
    #[must_use]
    pub fn run_around(&self, position: u128) -> Option<(u128, u128)> {
        self.last_run_to(position).filter(|(_, end)| *end >= position)
    }

    /// The runs that touch `first..=last`, whole, from the last to the first.
    pub fn runs_touching(&self, first: u128, last: u128) -> impl Iterator<Item = (u128, u128)> + '_ {
        let back = self.runs.range(..=last).rev().map(|(start, end)| (*start, *end));
        back.take_while(move |(_, end)| *end >= first)
    }

    /// The runs that touch `first..=last`, cut to it.
    pub fn runs_within(&self, first: u128, last: u128) -> impl Iterator<Item = (u128, u128)> + '_ {
        let from = self.run_around(first).map_or(first, |(start, _)| start);
        self.runs.range(from..=last).map(move |(start, end)| ((*start).max(first), (*end).min(last)))
    }

    /// The last run that begins at or before the position.
    fn last_run_to(&self, position: u128) -> Option<(u128, u128)> {
        self.runs.range(..=position).next_back().map(|(start, end)| (*start, *end))
    }
}

impl FromIterator<IpAddr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut set = Self::new();
        for member in addresses {
            set.insert(member);
        }
        set
    }
}

impl FromIterator<Cidr> for AddressSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(cidrs: I) -> Self {
        let mut set = Self::new();
        for cidr in cidrs {
            set.insert_cidr(cidr);
        }
        set
    }
}

impl fmt::Debug for AddressSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.cidrs()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u128, u128),
        Remove(u128, u128),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // A small line, so that runs meet, and one whose end is the end of the number line.
        let run = (0u128..60, 0u128..12).prop_map(|(first, length)| (first, (first + length).min(63)));
        proptest::collection::vec(
            prop_oneof![
                run.clone().prop_map(|(first, last)| Step::Insert(first, last)),
                run.prop_map(|(first, last)| Step::Remove(first, last)),
            ],
            0..40,
        )
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_single_addresses(steps in steps(), at_end in any::<bool>()) {
            let offset = if at_end { u128::MAX - 63 } else { 0 };
            let (mut set, mut model) = (AddressSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(first, last) => {
                        set.insert_run(first + offset, last + offset);
                        model.extend((first..=last).map(|position| position + offset));
                    }
                    Step::Remove(first, last) => {
                        set.remove_run(first + offset, last + offset);
                        model.retain(|position| !(first + offset..=last + offset).contains(position));
                    }
                }
                let flat: Vec<u128> = set.runs().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.len(), model.len() as u128);
                let runs: Vec<_> = set.runs().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "adjacent runs: {:?}", runs);
            }
            for (first, last) in [(3, 17), (0, 63), (20, 20)] {
                let within: Vec<u128> =
                    set.runs_within(first + offset, last + offset).flat_map(|(f, l)| f..=l).collect();
                let expected: Vec<u128> = model.range(first + offset..=last + offset).copied().collect();
                prop_assert_eq!(within, expected);
                let mut touching: Vec<_> = set.runs_touching(first + offset, last + offset).collect();
                touching.reverse();
                let met = |run: &(u128, u128)| run.1 >= first + offset && run.0 <= last + offset;
                prop_assert_eq!(touching, set.runs().filter(met).collect::<Vec<_>>());
            }
        }
    }
}
