//! Numbers of blocks, their runs and sets, as types of their own: a block number can't be mistaken for the position of
//! an address.
//!
//! Knows nothing of pools and sizes. The number of a block is the position of its first address divided by its size. So
//! it has a meaning only together with the [`crate::ledger::grid::Grid`] that it comes from.
//!
//! The blocks `2n` and `2n + 1` are a pair, each the buddy of the other: together they are one aligned prefix.

use crate::net::runs::RunSet;

/// The number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockNumber(u128);

impl BlockNumber {
    /// The block of this number.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The other block of its pair.
    #[must_use]
    pub const fn buddy(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The lower block of its pair: itself or its buddy.
    #[must_use]
    pub const fn lower_of_pair(self) -> Self {
        Self(self.0 & !1)
    }

    /// The upper block of its pair: itself or its buddy.
    #[must_use]
    pub const fn upper_of_pair(self) -> Self {
        Self(self.0 | 1)
    }

    const fn is_upper(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Blocks of consecutive numbers, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRun {
    /// The lowest number.
    pub first: BlockNumber,
    /// The highest number.
    pub last: BlockNumber,
}

impl BlockRun {
    const fn of((first, last): (u128, u128)) -> Self {
        Self { first: BlockNumber(first), last: BlockNumber(last) }
    }

    /// How many blocks it has; saturates.
    #[must_use]
    pub const fn count(self) -> u128 {
        (self.last.0 - self.first.0).saturating_add(1)
    }

    /// Its numbers in order.
    pub fn iter(self) -> impl Iterator<Item = BlockNumber> {
        (self.first.0..=self.last.0).map(BlockNumber)
    }

    /// The blocks that it shares with `other`.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// It, the block before it and the block after it.
    #[must_use]
    pub const fn with_neighbours(self) -> Self {
        Self::of((self.first.0.saturating_sub(1), self.last.0.saturating_add(1)))
    }

    /// The part of it that is below `number`.
    #[must_use]
    pub fn part_below(self, number: BlockNumber) -> Option<Self> {
        let last = BlockNumber(number.0.checked_sub(1)?).min(self.last);
        (self.first <= last).then_some(Self { last, ..self })
    }

    /// The part of it that is above `number`.
    #[must_use]
    pub fn part_above(self, number: BlockNumber) -> Option<Self> {
        let first = BlockNumber(number.0.checked_add(1)?).max(self.first);
        (first <= self.last).then_some(Self { first, ..self })
    }

    /// The lower block of the first pair that lies wholly in it.
    #[must_use]
    pub fn first_pair(self) -> Option<BlockNumber> {
        let lower = self.first.0.checked_add(self.first.0 & 1).map(BlockNumber)?;
        (lower.upper_of_pair() <= self.last).then_some(lower)
    }

    /// How often a block can be doubled to its pair, the pair of that pair and so on, with the result still wholly in
    /// it: the most for any of its blocks.
    #[must_use]
    pub fn doublings(self) -> u32 {
        let fits = |doublings: u32| {
            let size = 1u128.checked_shl(doublings)?;
            let first = self.first.0.checked_next_multiple_of(size)?;
            (first.checked_add(size - 1)? <= self.last.0).then_some(())
        };
        (1..u128::BITS).take_while(|doublings| fits(*doublings).is_some()).last().unwrap_or_default()
    }

    /// Its blocks whose buddies are not in it: at most one at either end.
    pub fn unpaired(self) -> impl Iterator<Item = BlockNumber> {
        let at_first = self.first.is_upper().then_some(self.first);
        let at_last = (!self.last.is_upper()).then_some(self.last);
        at_first.into_iter().chain(at_last)
    }
}

/// A set of block numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockNumbers {
    numbers: RunSet,
}

impl BlockNumbers {
    /// How many numbers it has; saturates.
    #[must_use]
    pub fn len(&self) -> u128 {
        self.numbers.len()
    }

    /// Whether it has no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether `number` is in it.
    #[must_use]
    pub fn contains(&self, number: BlockNumber) -> bool {
        self.numbers.contains(number.0)
    }

    /// Whether all of `run` is in it.
    #[must_use]
    pub fn covers(&self, run: BlockRun) -> bool {
        self.numbers.covers(run.first.0, run.last.0)
    }

    /// Its numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockNumber> + '_ {
        self.runs().flat_map(BlockRun::iter)
    }

    /// Its runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = BlockRun> + '_ {
        self.numbers.runs().map(BlockRun::of)
    }

    /// The run that `number` is in.
    #[must_use]
    pub fn run_around(&self, number: BlockNumber) -> Option<BlockRun> {
        self.numbers.run_around(number.0).map(BlockRun::of)
    }

    /// The runs that share a number with `run`, uncut, from the last to the first.
    pub fn runs_touching(&self, run: BlockRun) -> impl Iterator<Item = BlockRun> + '_ {
        self.numbers.runs_touching(run.first.0, run.last.0).map(BlockRun::of)
    }

    /// The runs that share a number with `run`, cut to it, in order.
    pub fn runs_within(&self, run: BlockRun) -> impl Iterator<Item = BlockRun> + '_ {
        self.numbers.runs_within(run.first.0, run.last.0).map(BlockRun::of)
    }

    /// Adds all of `run`.
    pub fn insert(&mut self, run: BlockRun) {
        self.numbers.insert_run(run.first.0, run.last.0);
    }

    /// Removes all of `run`.
    pub fn remove(&mut self, run: BlockRun) {
        self.numbers.remove_run(run.first.0, run.last.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(run: Option<BlockRun>) -> Vec<BlockNumber> {
        run.into_iter().flat_map(BlockRun::iter).collect()
    }

    proptest! {
        /// Also at the lowest and the highest numbers, where a sum may overflow.
        #[test]
        fn a_run_agrees_with_a_list_of_its_numbers(
            place in 0u128..8,
            length in 0u128..8,
            other in (0u128..8, 0u128..8),
            at_end in any::<bool>(),
        ) {
            let offset = if at_end { u128::MAX - 15 } else { 0 };
            let run = BlockRun::of((offset + place, offset + place + length));
            let other = BlockRun::of((offset + other.0, offset + other.0 + other.1));
            let all: Vec<BlockNumber> = run.iter().collect();
            let only = |is_kept: &dyn Fn(BlockNumber) -> bool| -> Vec<BlockNumber> {
                all.iter().copied().filter(|number| is_kept(*number)).collect()
            };
            prop_assert_eq!(run.count(), all.len() as u128);
            let others: Vec<BlockNumber> = other.iter().collect();
            prop_assert_eq!(numbers(run.intersection(other)), only(&|number| others.contains(&number)));
            prop_assert_eq!(numbers(run.part_below(other.first)), only(&|number| number < other.first));
            prop_assert_eq!(numbers(run.part_above(other.first)), only(&|number| number > other.first));
            let unpaired = only(&|number| !all.contains(&number.buddy()));
            prop_assert_eq!(run.unpaired().collect::<Vec<_>>(), unpaired);
            let has = |doublings: u32| all.iter().any(|first| {
                first.0 % (1 << doublings) == 0 && (0..1 << doublings).all(|more| all.contains(&BlockNumber(first.0.saturating_add(more))))
            });
            prop_assert_eq!(run.doublings(), (0..4).rev().find(|doublings| has(*doublings)).unwrap());
            let is_pair = |number: &&BlockNumber| all.contains(&number.buddy());
            prop_assert_eq!(run.first_pair(), all.iter().find(is_pair).copied());
        }
    }
}
