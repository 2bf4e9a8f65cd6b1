//! A set of numbers kept as runs: the common part of sets of addresses and sets of block numbers.
//!
//! Does not know the meaning of the numbers. Keeps one invariant: runs are disjoint and never adjacent, so equal sets
//! are equal values.
//!
//! A set with a meaning of its own wraps this one and offers its own type of member. So members of different meaning
//! can't be confused: [`crate::net::addresses::AddressSet`] does so for addresses, the ledger for numbers of blocks.

use std::collections::BTreeMap;

use crate::net::short_list;

/// A set of numbers. A run is a pair of its first and its last number.
///
/// Costs grow with the number of runs, not with the number of members.
#[derive(Debug, Clone, Default)]
pub struct RunSet {
    runs: Runs,
}

/// Runs in order.
#[derive(Debug, Clone)]
enum Runs {
    /// A list. The sets of one node have a run or two, and a map of one run takes ten times the memory.
    Few(Vec<(u128, u128)>),
    /// The last number of each run, by its first. It stays a map until the set is empty.
    Many(BTreeMap<u128, u128>),
}

/// The maximum number of runs in a list. An insertion moves the runs behind it: one KiB at most. The tests need both
/// forms of small sets.
const MAX_FEW: usize = if cfg!(test) { 3 } else { 32 };

impl PartialEq for RunSet {
    fn eq(&self, other: &Self) -> bool {
        self.runs().eq(other.runs())
    }
}

impl Eq for RunSet {}

impl RunSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Runs::Few(Vec::new()) }
    }

    /// Whether it has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs().next().is_none()
    }

    /// How many members it has; saturates.
    #[must_use]
    pub fn len(&self) -> u128 {
        sum_of_lengths(self.runs())
    }

    /// How many of its members are in `first..=last`; saturates.
    #[must_use]
    pub fn count_within(&self, first: u128, last: u128) -> u128 {
        sum_of_lengths(self.runs_within(first, last))
    }

    /// Whether `number` is in it.
    #[must_use]
    pub fn contains(&self, number: u128) -> bool {
        self.run_around(number).is_some()
    }

    /// Whether all of `first..=last` is in it.
    #[must_use]
    pub fn covers(&self, first: u128, last: u128) -> bool {
        self.run_around(first).is_some_and(|(_, end)| end >= last)
    }

    /// Its runs, in order.
    #[must_use]
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = (u128, u128)> + '_ {
        self.runs.starting_in(0, u128::MAX)
    }

    /// The run that `number` is in.
    #[must_use]
    pub fn run_around(&self, number: u128) -> Option<(u128, u128)> {
        self.last_run_to(number).filter(|(_, end)| *end >= number)
    }

    /// The runs that share a member with `first..=last`, uncut, from the last to the first.
    pub fn runs_touching(&self, first: u128, last: u128) -> impl Iterator<Item = (u128, u128)> + '_ {
        self.runs.starting_in(0, last).rev().take_while(move |(_, end)| *end >= first)
    }

    /// The runs that share a member with `first..=last`, cut to it, in order.
    pub fn runs_within(&self, first: u128, last: u128) -> impl Iterator<Item = (u128, u128)> + '_ {
        let from = self.run_around(first).map_or(first, |(start, _)| start);
        self.runs.starting_in(from, last).map(move |(start, end)| (start.max(first), end.min(last)))
    }

    /// Its members from `first` to `last`.
    #[must_use]
    pub fn within(&self, first: u128, last: u128) -> Self {
        let mut within = Self::new();
        for (start, end) in self.runs_within(first, last) {
            within.runs.insert(start, end);
        }
        within
    }

    /// Adds the numbers from `first` to `last`.
    pub fn insert_run(&mut self, first: u128, last: u128) {
        debug_assert!(first <= last, "a run has a first number that is not behind its last");
        let (mut start, mut end) = (first, last);
        // Merges all runs that overlap it or are next to it. From the back, it looks at only one run too many: the one
        // before the first of them.
        while let Some((other_start, other_end)) = self.last_run_to(last.saturating_add(1))
            && other_end >= first.saturating_sub(1)
        {
            self.runs.remove(other_start);
            start = start.min(other_start);
            end = end.max(other_end);
            if other_start <= first {
                break;
            }
        }
        self.runs.insert(start, end);
    }

    /// Removes the numbers from `first` to `last`.
    pub fn remove_run(&mut self, first: u128, last: u128) {
        while let Some((start, end)) = self.last_run_to(last)
            && end >= first
        {
            self.runs.remove(start);
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

    /// Adds every member of `other`.
    pub fn extend_with(&mut self, other: &Self) {
        for (first, last) in other.runs() {
            self.insert_run(first, last);
        }
    }

    /// Removes every member of `other`.
    pub fn remove_all(&mut self, other: &Self) {
        for (first, last) in other.runs() {
            self.remove_run(first, last);
        }
    }

    /// The last run that starts at or before `number`.
    fn last_run_to(&self, number: u128) -> Option<(u128, u128)> {
        self.runs.starting_in(0, number).next_back()
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Runs {
    /// The runs whose first numbers are in `first..=last`, in order.
    fn starting_in(&self, first: u128, last: u128) -> impl DoubleEndedIterator<Item = (u128, u128)> + '_ {
        let (few, many) = match self {
            Self::Few(runs) => {
                let from = runs.partition_point(|(start, _)| *start < first);
                let to = runs.partition_point(|(start, _)| *start <= last);
                (&runs[from..to], None)
            }
            Self::Many(runs) => (&[][..], Some(runs.range(first..=last))),
        };
        let many = many.into_iter().flatten().map(|(start, end)| (*start, *end));
        few.iter().copied().chain(many)
    }

    /// Adds a run that touches none of the others.
    fn insert(&mut self, start: u128, end: u128) {
        match self {
            Self::Few(runs) if runs.len() < MAX_FEW => {
                let place = runs.partition_point(|(other, _)| *other < start);
                short_list::insert(runs, place, (start, end));
            }
            Self::Few(runs) => {
                let others = std::mem::take(runs).into_iter();
                *self = Self::Many(others.chain([(start, end)]).collect());
            }
            Self::Many(runs) => {
                runs.insert(start, end);
            }
        }
    }

    /// Removes the run with this first number.
    fn remove(&mut self, start: u128) {
        match self {
            Self::Few(runs) => {
                if let Ok(place) = runs.binary_search_by_key(&start, |(start, _)| *start) {
                    runs.remove(place);
                }
            }
            Self::Many(runs) => {
                runs.remove(&start);
                if runs.is_empty() {
                    *self = Self::default();
                }
            }
        }
    }
}

fn sum_of_lengths(runs: impl Iterator<Item = (u128, u128)>) -> u128 {
    runs.fold(0, |sum: u128, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
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
        // Few numbers, so that runs meet. The test moves them to the end of the number line too.
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
        fn agrees_with_a_set_of_single_numbers(steps in steps(), at_end in any::<bool>()) {
            let offset = if at_end { u128::MAX - 63 } else { 0 };
            let (mut set, mut model) = (RunSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(first, last) => {
                        set.insert_run(first + offset, last + offset);
                        model.extend((first..=last).map(|number| number + offset));
                    }
                    Step::Remove(first, last) => {
                        set.remove_run(first + offset, last + offset);
                        model.retain(|number| !(first + offset..=last + offset).contains(number));
                    }
                }
                let flat: Vec<u128> = set.runs().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(&flat, &model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.len(), model.len() as u128);
                let runs: Vec<_> = set.runs().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "adjacent runs: {:?}", runs);
            }
            let mut equal = RunSet::new();
            for number in &model {
                equal.insert_run(*number, *number);
            }
            prop_assert_eq!(&set, &equal);
            equal.insert_run(70, 70);
            prop_assert_ne!(&set, &equal);
            for (first, last) in [(3, 17), (0, 63), (20, 20)] {
                let within: Vec<u128> =
                    set.runs_within(first + offset, last + offset).flat_map(|(f, l)| f..=l).collect();
                let expected: Vec<u128> = model.range(first + offset..=last + offset).copied().collect();
                prop_assert_eq!(set.count_within(first + offset, last + offset), expected.len() as u128);
                let is_covered = expected.len() as u128 == last - first + 1;
                prop_assert_eq!(set.covers(first + offset, last + offset), is_covered);
                prop_assert_eq!(set.contains(first + offset), model.contains(&(first + offset)));
                prop_assert_eq!(within, expected);
                let mut touching: Vec<_> = set.runs_touching(first + offset, last + offset).collect();
                touching.reverse();
                let met = |run: &(u128, u128)| run.1 >= first + offset && run.0 <= last + offset;
                prop_assert_eq!(touching, set.runs().filter(met).collect::<Vec<_>>());
            }
        }
    }
}
