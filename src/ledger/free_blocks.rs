//! The free blocks of one pool in one family, indexed for the order in which they are offered.
//!
//! Knows from the ledger which blocks are free and which a claim holds, but not for which node. Keeps one invariant:
//! every free block is usable, and every index follows from the free and the held blocks. So equal contents are equal
//! values.
//!
//! The order of offers ([`crate::ledger::candidates`]) needs only the lowest free block of each kind: one of a pair
//! that is wholly free, one whose buddy a claim holds, or one whose buddy is unavailable for another reason. Free
//! blocks are kept as runs of numbers. The first and the last block of a run show its kinds: whether it has a wholly
//! free pair, and which of the two has its buddy outside of it. So three ordered sets with at most two entries per run
//! answer every question by their first entry. The size of the pool and the number of its free blocks do not matter.

use std::collections::BTreeSet;

use crate::ledger::block_numbers::{BlockNumber, BlockNumbers, BlockRun};
use crate::ledger::grid::Grid;
use crate::model::pool::Pool;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// The free blocks of one pool in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeBlocks {
    grid: Grid,
    /// The free blocks.
    pub(super) free: BlockNumbers,
    n_free: u128,
    /// The blocks that a claim holds, if they or their buddies are the pool's own.
    held: BTreeSet<BlockNumber>,
    /// How many of the held blocks are the pool's own, but not given out.
    n_held_closed: u128,
    /// The first block of each free run that has a wholly free pair in it.
    pub(super) runs_with_pair: BTreeSet<BlockNumber>,
    /// The free blocks whose buddy is neither free nor held by a claim.
    pub(super) without_buddy: BTreeSet<BlockNumber>,
    /// The free blocks whose buddy a claim holds: each is the next block of that holder.
    pub(super) with_held_buddy: BTreeSet<BlockNumber>,
}

/// The blocks in one range of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountsInRange {
    /// All blocks that can be cut from it.
    pub cut: u128,
    /// Of these, those that no older pool has.
    pub own: u128,
    /// Of these, those that the pool gives out, free or not.
    pub usable: u128,
    /// Held blocks that the pool no longer gives out.
    pub held_closed: u128,
    /// Those that are free.
    pub free: u128,
}

impl FreeBlocks {
    /// The free blocks of a pool from which nothing is taken.
    #[must_use]
    pub fn new(grid: Grid) -> Self {
        let mut free_blocks = Self {
            free: grid.usable().clone(),
            n_free: grid.usable().len(),
            grid,
            held: BTreeSet::new(),
            n_held_closed: 0,
            runs_with_pair: BTreeSet::new(),
            without_buddy: BTreeSet::new(),
            with_held_buddy: BTreeSet::new(),
        };
        let runs: Vec<_> = free_blocks.free.runs().collect();
        for run in runs {
            free_blocks.index(run);
        }
        free_blocks
    }

    /// All blocks of the pool, free or not.
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

    /// How many addresses the free blocks offer, if they are those of `pool` in `family`. `node_addresses` are the
    /// addresses of nodes themselves in the ranges of the pool. `n_offered` gets a block and its addresses that are
    /// kept back, and returns how many it offers.
    ///
    /// Costs grow with the numbers of exclusions and of `node_addresses`, not with the number of blocks: only a block
    /// with one of them in it is looked at.
    #[must_use]
    pub fn offered(
        &self,
        pool: &Pool,
        family: Family,
        node_addresses: &AddressSet,
        n_offered: impl Fn(Cidr, &AddressSet) -> u128,
    ) -> u128 {
        let Some(first) = self.iter().next() else { return 0 };
        let exclusions = pool.families.get(&family).map_or(&[][..], |ranges| &ranges.exclude);
        // No block inside an exclusion is usable. So it takes addresses only of its first and its last block.
        let ends = exclusions
            .iter()
            .map(|exclusion| self.grid.span(*exclusion))
            .flat_map(|run| [run.first, run.last]);
        let of_nodes = node_addresses.iter().map(|address| self.grid.span(Cidr::single(address)).first);
        let looked_at: BTreeSet<BlockNumber> =
            ends.chain(of_nodes).filter(|number| self.free.contains(*number)).collect();
        let most = n_offered(first, &pool.excluded_edges(first));
        looked_at.into_iter().fold(self.n_free.saturating_mul(most), |offered, number| {
            let block = self.grid.block(number);
            let of_block = n_offered(block, &pool.excluded(block, node_addresses));
            offered.saturating_sub(most).saturating_add(of_block)
        })
    }

    /// How many blocks the pool has: the usable ones, and those that are still held in ranges that give out no more.
    /// Never fewer than the free blocks and the held blocks of its ranges together.
    #[must_use]
    pub fn total_count(&self) -> u128 {
        self.grid.usable().len().saturating_add(self.n_held_closed)
    }

    /// The blocks in one of the ranges of the pool. Summed over all ranges they are [`Self::total_count`] and
    /// [`Self::free_count`]. Costs a pass over the runs and the held blocks in the range.
    #[must_use]
    pub fn counts_in(&self, range: Cidr) -> CountsInRange {
        if range.size() < self.grid.block(BlockNumber::new(0)).size() {
            // No block fits into it, and the block around it has other addresses too.
            return CountsInRange::default();
        }
        let run = self.grid.span(range);
        let count = |numbers: &BlockNumbers| {
            numbers.runs_within(run).fold(0u128, |count, run| count.saturating_add(run.count()))
        };
        let held_closed = self.held.range(run.first..=run.last).filter(|number| self.is_closed(**number));
        CountsInRange {
            cut: run.count(),
            own: count(self.grid.own()),
            usable: count(self.grid.usable()),
            held_closed: held_closed.count() as u128,
            free: count(&self.free),
        }
    }

    /// Whether `cidr` is a block of this pool, and free.
    #[must_use]
    pub fn is_free(&self, cidr: Cidr) -> bool {
        self.grid.number(cidr).is_some_and(|number| self.free.contains(number))
    }

    /// Whether a free block shares an address with `cidr`.
    #[must_use]
    pub fn has_free_in(&self, cidr: Cidr) -> bool {
        self.free.runs_touching(self.grid.span(cidr)).next().is_some()
    }

    /// The prefix length of the largest CIDR in `range` without a taken block; `None` without a free block in it.
    /// Costs a pass over the free runs there.
    #[must_use]
    pub fn largest_free_in(&self, range: Cidr) -> Option<u8> {
        let runs = self.free.runs_within(self.grid.span(range));
        let doublings = runs.map(BlockRun::doublings).max()?;
        let wider = u8::try_from(doublings).unwrap_or_default();
        Some(self.grid.prefix().saturating_sub(wider).max(range.prefix_len()))
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

    /// Notes that every block that shares an address with `cidr` is taken. Returns how many index entries it looked at.
    pub fn occupy(&mut self, cidr: Cidr) -> u64 {
        let taken = self.grid.span(cidr);
        let touched: Vec<_> = self.free.runs_touching(taken).collect();
        for run in &touched {
            self.unindex(*run);
            self.n_free -= run.intersection(taken).map_or(0, BlockRun::count);
        }
        self.free.remove(taken);
        // The runs come last first. Only the first and the last of them can reach beyond the taken range.
        let below = touched.last().and_then(|run| run.part_below(taken.first));
        let above = touched.first().and_then(|run| run.part_above(taken.last));
        let mut n_remainders = 0;
        for remainder in below.into_iter().chain(above) {
            self.index(remainder);
            n_remainders += 1;
        }
        touched.len() as u64 + n_remainders
    }

    /// Notes that the usable blocks that share an address with `cidr` are free, except those that share one with any of
    /// `taken`. Returns how many index entries it looked at.
    pub fn vacate(&mut self, cidr: Cidr, taken: impl Iterator<Item = Cidr>) -> u64 {
        let mut freed = BlockNumbers::default();
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
            steps += self.vacate_run(run);
        }
        steps
    }

    /// Notes that a claim holds `cidr`; does nothing if that is no block of this size, or if neither it nor its buddy
    /// is the pool's own.
    pub fn hold(&mut self, cidr: Cidr) {
        let Some(number) = self.held_number(cidr) else { return };
        if self.held.insert(number) {
            self.n_held_closed += u128::from(self.is_closed(number));
            if self.without_buddy.remove(&number.buddy()) {
                self.with_held_buddy.insert(number.buddy());
            }
        }
    }

    /// Notes that no claim holds `cidr` any more; the inverse of [`Self::hold`].
    pub fn unhold(&mut self, cidr: Cidr) {
        let Some(number) = self.held_number(cidr) else { return };
        if self.held.remove(&number) {
            self.n_held_closed -= u128::from(self.is_closed(number));
            if self.with_held_buddy.remove(&number.buddy()) {
                self.without_buddy.insert(number.buddy());
            }
        }
    }

    /// The number of a block that counts when a claim holds it: it or its buddy is the pool's own.
    fn held_number(&self, cidr: Cidr) -> Option<BlockNumber> {
        let own = self.grid.own();
        self.grid.number(cidr).filter(|number| own.contains(*number) || own.contains(number.buddy()))
    }

    /// Whether the block is the pool's own, but is not given out.
    fn is_closed(&self, number: BlockNumber) -> bool {
        self.grid.own().contains(number) && !self.grid.usable().contains(number)
    }

    /// Notes that all blocks of the run are free. Returns how many index entries it looked at.
    fn vacate_run(&mut self, run: BlockRun) -> u64 {
        let joining: Vec<_> = self.free.runs_touching(run.with_neighbours()).collect();
        self.n_free += run.count();
        let mut joined = run;
        for other in &joining {
            self.unindex(*other);
            self.n_free -= run.intersection(*other).map_or(0, BlockRun::count);
            joined = BlockRun { first: joined.first.min(other.first), last: joined.last.max(other.last) };
        }
        self.free.insert(run);
        self.index(joined);
        joining.len() as u64 + 1
    }

    fn index(&mut self, run: BlockRun) {
        if run.first_pair().is_some() {
            self.runs_with_pair.insert(run.first);
        }
        for number in run.unpaired() {
            if self.held.contains(&number.buddy()) {
                self.with_held_buddy.insert(number);
            } else {
                self.without_buddy.insert(number);
            }
        }
    }

    fn unindex(&mut self, run: BlockRun) {
        if run.first_pair().is_some() {
            self.runs_with_pair.remove(&run.first);
        }
        for number in run.unpaired() {
            if !self.without_buddy.remove(&number) {
                self.with_held_buddy.remove(&number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::grid::tests::{grid, pool};
    use crate::model::pool::FirstLast;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn a_huge_pool_is_counted_right_and_its_order_is_lazy() {
        // 2^58 blocks: no count overflows, and the first ones are found without a walk over all of them.
        let mut free_blocks = FreeBlocks::new(grid(&pool("a", 122, &["fd00:10:1::/64"])));
        assert_eq!((free_blocks.free_count(), free_blocks.total_count()), (1 << 58, 1 << 58));
        let mine = [cidr("fd00:10:1::/122"), cidr("fd00:10:1:0:8000::/122")];
        for block in mine {
            free_blocks.occupy(block);
            free_blocks.hold(block);
        }
        assert_eq!((free_blocks.free_count(), free_blocks.total_count()), ((1 << 58) - 2, 1 << 58));
        let order: Vec<String> =
            free_blocks.candidates(&mine).take(3).map(|block| block.to_string()).collect();
        assert_eq!(order, ["fd00:10:1::40/122", "fd00:10:1:0:8000::40/122", "fd00:10:1::80/122"]);
        // One range takes half of the pool: a few steps, not 2^57.
        assert!(free_blocks.occupy(cidr("fd00:10:1::/65")) <= 4);
        assert_eq!(free_blocks.free_count(), (1 << 57) - 1);
        assert_eq!(free_blocks.candidates(&[cidr("fd00:10:1::/64")]).next(), None);
    }

    fn excluding(text: &str, block_prefix: u8, first_last: FirstLast, exclude: &[&str]) -> Pool {
        let mut pool = pool("a", block_prefix, &[text]);
        pool.first_last = first_last;
        let ranges = pool.families.values_mut().next().unwrap();
        ranges.exclude = exclude.iter().map(|text| cidr(text)).collect();
        pool
    }

    /// All addresses of a block that are not kept back.
    fn all_else(block: Cidr, excluded: &AddressSet) -> u128 {
        block.size() - excluded.count_in(block)
    }

    #[test]
    fn what_a_huge_pool_offers_is_counted_without_a_walk() {
        let pool = excluding(
            "fd00:10:1::/64",
            122,
            FirstLast::Excluded,
            &["fd00:10:1::8/125", "fd00:10:1:0:8000::/65"],
        );
        let free_blocks = FreeBlocks::new(grid(&pool));
        assert_eq!(free_blocks.offered(&pool, Family::V6, &AddressSet::new(), all_else), (1 << 63) - 8);
        let node: AddressSet = [cidr("fd00:10:1::9/128"), cidr("fd00:10:1::1:0/128")].into_iter().collect();
        assert_eq!(free_blocks.offered(&pool, Family::V6, &node, all_else), (1 << 63) - 9);
    }

    proptest! {
        /// The result is the sum of the addresses that a claim of each free block would offer.
        #[test]
        fn what_free_blocks_offer_is_the_sum_over_them(
            block_prefix in 27u8..=32,
            offered in any::<bool>(),
            exclude in proptest::collection::vec((0u8..=63, 24u8..=32), 0..6),
            nodes in proptest::collection::vec(0u8..=63, 0..4),
            taken in proptest::collection::vec((0u8..=63, 26u8..=32), 0..4),
        ) {
            let at = |last: u8, length: u8| {
                Cidr::containing(std::net::IpAddr::from([10, 0, 0, last]), length).unwrap()
            };
            let first_last = if offered { FirstLast::Offered } else { FirstLast::Excluded };
            let mut pool = excluding("10.0.0.0/26", block_prefix, first_last, &[]);
            pool.families.get_mut(&Family::V4).unwrap().exclude =
                exclude.into_iter().map(|(last, length)| at(last, length)).collect();
            let nodes: AddressSet = nodes.into_iter().map(|last| at(last, 32)).collect();
            let mut free_blocks = FreeBlocks::new(grid(&pool));
            for (last, length) in taken {
                free_blocks.occupy(at(last, length));
            }
            // In some modes, a block offers nothing if more than two of its addresses are kept back.
            let all_or_none = |block: Cidr, excluded: &AddressSet| {
                if excluded.count_in(block) > 2 { 0 } else { block.size() - 1 }
            };
            for is_split in [true, false] {
                let n_offered = |block: Cidr, excluded: &AddressSet| {
                    if is_split { all_else(block, excluded) } else { all_or_none(block, excluded) }
                };
                let expected: u128 =
                    free_blocks.iter().map(|block| n_offered(block, &pool.excluded(block, &nodes))).sum();
                prop_assert_eq!(free_blocks.offered(&pool, Family::V4, &nodes, n_offered), expected);
            }
        }
    }

    /// The maximum number of index entries that a claim or its release may look at. A claim: one for the candidate, one
    /// for the run that leaves the indexes, two for its remainders. A release: one for the usable run around it, two
    /// for the runs that leave the indexes, one for the run that joins them.
    const STEPS: u64 = 4;

    /// In other systems a claim costs more the larger and the fuller the pool is.
    #[test]
    fn the_steps_of_a_claim_do_not_grow_with_the_pool() {
        let small = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.0/28"])));
        let steps_small = most_steps(small, 8);
        let large = nearly_full();
        assert!((160_000..=167_773).contains(&large.free_count()), "{} are free", large.free_count());
        // Some blocks came up twice and were vacated twice.
        assert_eq!(large.free_count(), large.iter().count() as u128);
        assert_eq!(large.total_count(), 1 << 24);
        let steps_large = most_steps(large, 10_000);
        assert!(steps_small <= STEPS && steps_large <= STEPS, "{steps_small} and {steps_large}");
    }

    /// 2^24 blocks. About one per cent are free, in pseudo-random places, and claims hold the buddies of these.
    fn nearly_full() -> FreeBlocks {
        let whole = cidr("10.0.0.0/8");
        let mut free_blocks = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.0/8"])));
        free_blocks.occupy(whole);
        let mut state = 42u64;
        for _ in 0..(1 << 24) / 100 {
            // The multiplier of Knuth's MMIX; the upper bits are the random ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = cidr("10.0.0.0/32").same_size_at(whole.first() + u128::from(state >> 40));
            free_blocks.vacate(block, std::iter::empty());
        }
        let buddies: Vec<Cidr> = free_blocks.iter().filter_map(Cidr::buddy).collect();
        for buddy in buddies.into_iter().filter(|buddy| !free_blocks.is_free(*buddy)).collect::<Vec<_>>() {
            free_blocks.hold(buddy);
        }
        free_blocks
    }

    /// The maximum number of steps that one of `n` claims or releases takes. The blocks come in the order of offers, so
    /// there are some of every kind.
    fn most_steps(mut free_blocks: FreeBlocks, n: usize) -> u64 {
        let before = free_blocks.clone();
        let mut taken = Vec::new();
        let mut most = 0;
        for _ in 0..n {
            let mut candidates = free_blocks.candidates(&[]);
            let block = candidates.next().expect("there are more blocks than are asked for");
            let steps = candidates.steps();
            let steps = steps + free_blocks.occupy(block);
            free_blocks.hold(block);
            taken.push(block);
            most = most.max(steps);
        }
        while let Some(block) = taken.pop() {
            free_blocks.unhold(block);
            most = most.max(free_blocks.vacate(block, std::iter::empty()));
        }
        assert_eq!(free_blocks, before, "releasing is the inverse of claiming");
        most
    }
}
