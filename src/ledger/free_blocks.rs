//! The free blocks of one pool in one family, indexed for the order in which they are offered.
//!
//! Knows which blocks are free and which are held by a claim, but not by whom: the ledger tells it. Keeps one
//! invariant: the free blocks are usable ones, and every index is what the free blocks and the holders imply, so equal
//! contents are equal values.
//!
//! A block is handled by its number. Free blocks are kept as runs of numbers. All that the order of offers asks for is
//! the lowest of each kind, and a run knows its kinds by its ends: it has a wholly free pair in it or not, and besides
//! pairs at most two single blocks, an odd first and an even last. So three ordered sets of at most two entries a run
//! answer every question by their first entry, whatever the size of the pool and however full it is.

use std::collections::BTreeSet;

use crate::ledger::block_numbers::{BlockNumber, BlockNumbers, BlockRun};
use crate::ledger::grid::Grid;
use crate::net::cidr::Cidr;

/// The free blocks of one pool in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeBlocks {
    grid: Grid,
    /// Numbers of the free blocks.
    free: BlockNumbers,
    n_free: u128,
    /// Numbers of the blocks that a claim holds, where they or their buddies are the pool's own.
    holders: BTreeSet<BlockNumber>,
    /// How many of them are the pool's own, but no longer usable.
    n_held_unusable: u128,
    /// First numbers of the free runs that have a wholly free pair in them.
    pair_runs: BTreeSet<BlockNumber>,
    /// Free blocks with a buddy that is neither free nor held by a claim.
    unpaired: BTreeSet<BlockNumber>,
    /// Free blocks with a buddy that a claim holds: that holder's next block.
    reserved: BTreeSet<BlockNumber>,
}

impl FreeBlocks {
    /// The space of a pool of which nothing is taken.
    #[must_use]
    pub fn new(grid: Grid) -> Self {
        let mut space = Self {
            free: grid.usable().clone(),
            n_free: grid.usable().len(),
            grid,
            holders: BTreeSet::new(),
            n_held_unusable: 0,
            pair_runs: BTreeSet::new(),
            unpaired: BTreeSet::new(),
            reserved: BTreeSet::new(),
        };
        let runs: Vec<_> = space.free.runs().collect();
        for run in runs {
            space.index(run);
        }
        space
    }

    /// The blocks that it is about, free or not.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Whether the pool has a block that it gives out, free or not.
    #[must_use]
    pub fn has_usable(&self) -> bool {
        !self.grid.usable().is_empty()
    }

    /// How many blocks are free.
    #[must_use]
    pub fn free_count(&self) -> u128 {
        self.n_free
    }

    /// How many blocks there are: the usable ones, and those that are still held in ranges that give out no more.
    /// Never less than the free ones and the held ones of its own ranges together.
    #[must_use]
    pub fn total_count(&self) -> u128 {
        self.grid.usable().len().saturating_add(self.n_held_unusable)
    }

    /// Numbers of the free blocks.
    pub(super) fn numbers(&self) -> &BlockNumbers {
        &self.free
    }

    /// First numbers of the free runs that have a wholly free pair in them.
    pub(super) fn pair_runs(&self) -> &BTreeSet<BlockNumber> {
        &self.pair_runs
    }

    /// Free blocks with a buddy that is neither free nor held by a claim.
    pub(super) fn unpaired(&self) -> &BTreeSet<BlockNumber> {
        &self.unpaired
    }

    /// Free blocks with a buddy that a claim holds: that holder's next block.
    pub(super) fn reserved(&self) -> &BTreeSet<BlockNumber> {
        &self.reserved
    }

    /// Whether `cidr` is a block of this pool, and free.
    #[must_use]
    pub fn is_free(&self, cidr: Cidr) -> bool {
        self.grid.number(cidr).is_some_and(|number| self.free.contains(number))
    }

    /// Whether every block that is free here is free in `other`, which must be of the same grid.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.free.runs().all(|run| other.free.covers(run))
    }

    /// The free blocks in numeric order.
    pub fn iter(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.free.iter().map(|number| self.grid.block(number))
    }

    /// Makes every block that shares an address with `cidr` unfree. Returns how many index entries were looked at.
    pub fn occupy(&mut self, cidr: Cidr) -> u64 {
        let taken = self.grid.span(cidr);
        let before: Vec<_> = self.free.runs_touching(taken).collect();
        for run in &before {
            self.unindex(*run);
            self.n_free -= run.intersection(taken).map_or(0, BlockRun::count);
        }
        self.free.remove(taken);
        // Only the outermost runs reach beyond what was taken out.
        let below = before.last().and_then(|run| run.part_below(taken.first));
        let above = before.first().and_then(|run| run.part_above(taken.last));
        let mut n_after = 0;
        for remainder in below.into_iter().chain(above) {
            self.index(remainder);
            n_after += 1;
        }
        before.len() as u64 + n_after
    }

    /// Makes the usable blocks that share an address with `cidr` free, but for those that share one with any of
    /// `taken`. Returns how many index entries were looked at.
    pub fn vacate(&mut self, cidr: Cidr, taken: impl Iterator<Item = Cidr>) -> u64 {
        let mut freed = BlockNumbers::new();
        let mut steps = 0;
        for run in self.grid.usable().runs_within(self.grid.span(cidr)) {
            freed.insert(run);
            steps += 1;
        }
        for other in taken {
            freed.remove(self.grid.span(other));
            steps += 1;
        }
        for run in freed.runs() {
            steps += self.insert_run(run);
        }
        steps
    }

    /// Notes that a claim holds `cidr`; does nothing if that is no block of this size, or of no interest here.
    pub fn hold(&mut self, cidr: Cidr) {
        let Some(number) = self.holder_number(cidr) else { return };
        if self.holders.insert(number) {
            self.n_held_unusable += u128::from(self.is_own_unusable(number));
            if self.unpaired.remove(&number.buddy()) {
                self.reserved.insert(number.buddy());
            }
        }
    }

    /// Notes that no claim holds `cidr` any more; the inverse of [`Self::hold`].
    pub fn unhold(&mut self, cidr: Cidr) {
        let Some(number) = self.holder_number(cidr) else { return };
        if self.holders.remove(&number) {
            self.n_held_unusable -= u128::from(self.is_own_unusable(number));
            if self.reserved.remove(&number.buddy()) {
                self.unpaired.insert(number.buddy());
            }
        }
    }

    /// The number of a block that counts as a holder: it or its buddy is the pool's own.
    fn holder_number(&self, cidr: Cidr) -> Option<BlockNumber> {
        self.grid.number(cidr).filter(|number| self.grid.is_own(*number) || self.grid.is_own(number.buddy()))
    }

    /// Whether the block is the pool's own, but not usable.
    fn is_own_unusable(&self, number: BlockNumber) -> bool {
        self.grid.is_own(number) && !self.grid.usable().contains(number)
    }

    /// Makes all blocks of the run free.
    fn insert_run(&mut self, run: BlockRun) -> u64 {
        let before: Vec<_> = self.free.runs_touching(run.with_neighbours()).collect();
        self.n_free += run.count();
        let mut joined = run;
        for other in &before {
            self.unindex(*other);
            self.n_free -= run.intersection(*other).map_or(0, BlockRun::count);
            joined = BlockRun { first: joined.first.min(other.first), last: joined.last.max(other.last) };
        }
        self.free.insert(run);
        self.index(joined);
        before.len() as u64 + 1
    }

    fn index(&mut self, run: BlockRun) {
        if run.first_pair().is_some() {
            self.pair_runs.insert(run.first);
        }
        for single in run.unpaired() {
            if self.holders.contains(&single.buddy()) {
                self.reserved.insert(single);
            } else {
                self.unpaired.insert(single);
            }
        }
    }

    fn unindex(&mut self, run: BlockRun) {
        if run.first_pair().is_some() {
            self.pair_runs.remove(&run.first);
        }
        for single in run.unpaired() {
            if !self.unpaired.remove(&single) {
                self.reserved.remove(&single);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::grid::tests::{grid, pool};

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn a_huge_pool_is_counted_right_and_its_order_is_lazy() {
        // Trap 24: 2^58 blocks, and the first ones come without a walk.
        let mut space = FreeBlocks::new(grid(&pool("a", 122, &["fd00:10:1::/64"])));
        assert_eq!((space.free_count(), space.total_count()), (1 << 58, 1 << 58));
        let mine = [cidr("fd00:10:1::/122"), cidr("fd00:10:1:0:8000::/122")];
        for block in mine {
            space.occupy(block);
            space.hold(block);
        }
        assert_eq!((space.free_count(), space.total_count()), ((1 << 58) - 2, 1 << 58));
        let order: Vec<String> = space.candidates(&mine).take(3).map(|block| block.to_string()).collect();
        assert_eq!(order, ["fd00:10:1::40/122", "fd00:10:1:0:8000::40/122", "fd00:10:1::80/122"]);
        // Half of the space is somebody's: one step, not 2^57.
        assert!(space.occupy(cidr("fd00:10:1::/65")) <= 4);
        assert_eq!(space.free_count(), (1 << 57) - 1);
        assert_eq!(space.candidates(&[cidr("fd00:10:1::/64")]).next(), None);
    }

    /// The most index entries that a claim may look at, or its release: one for the candidate, and a run out of the
    /// indexes and its two remains in again; the usable run around it, and two runs out and one in.
    const STEPS: u64 = 4;

    /// Trap 21: what a claim costs grows neither with the pool nor with how full it is.
    #[test]
    fn the_steps_of_a_claim_do_not_grow_with_the_pool() {
        let small = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.0/28"])));
        let steps_small = most_steps(small, 8);
        let large = nearly_full();
        assert!((160_000..=167_773).contains(&large.free_count()), "{} are free", large.free_count());
        // Some places came up twice, and were made free twice.
        assert_eq!(large.free_count(), large.iter().count() as u128);
        assert_eq!(large.total_count(), 1 << 24);
        let steps_large = most_steps(large, 10_000);
        assert!(steps_small <= STEPS && steps_large <= STEPS, "{steps_small} and {steps_large}");
    }

    /// 2^24 blocks, free in one of a hundred pseudo-random places, the buddies of those held by claims.
    fn nearly_full() -> FreeBlocks {
        let whole = cidr("10.0.0.0/8");
        let mut space = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.0/8"])));
        space.occupy(whole);
        let mut state = 42u64;
        for _ in 0..(1 << 24) / 100 {
            // The multiplier of Knuth's MMIX; the upper bits are the random ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = cidr("10.0.0.0/32").same_size_at(whole.first() + u128::from(state >> 40));
            space.vacate(block, std::iter::empty());
        }
        let buddies: Vec<Cidr> = space.iter().filter_map(Cidr::buddy).collect();
        for buddy in buddies.into_iter().filter(|buddy| !space.is_free(*buddy)).collect::<Vec<_>>() {
            space.hold(buddy);
        }
        space
    }

    /// The most steps of one of `n` claims and their releases: of blocks in the order of offers, so of every kind.
    fn most_steps(mut space: FreeBlocks, n: usize) -> u64 {
        let before = space.clone();
        let mut taken = Vec::new();
        let mut most = 0;
        for _ in 0..n {
            let mut candidates = space.candidates(&[]);
            let block = candidates.next().expect("there are more blocks than are asked for");
            let steps = candidates.steps();
            let steps = steps + space.occupy(block);
            space.hold(block);
            taken.push(block);
            most = most.max(steps);
        }
        while let Some(block) = taken.pop() {
            space.unhold(block);
            most = most.max(space.vacate(block, std::iter::empty()));
        }
        assert_eq!(space, before, "releasing is the inverse of claiming");
        most
    }
}
