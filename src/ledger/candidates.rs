//! The order in which the free blocks of a pool are offered to a node.
//!
//! Knows a node by its blocks only, and takes nothing: the caller that accepts an offer records it in the ledger. Keeps
//! one invariant: each free block is offered at most once, and none that shares an address with a block of the node.

use std::collections::{BTreeSet, btree_set};

use crate::ledger::block_numbers::{BlockNumber, BlockNumbers, BlockRun};
use crate::ledger::free_blocks::FreeBlocks;
use crate::net::cidr::Cidr;

impl FreeBlocks {
    /// The free blocks in the order in which a node with the blocks `mine` should be offered them, each once:
    ///
    /// 1. buddies of `mine`, so that the two aggregate to one route;
    /// 2. the lower block of each wholly free pair, so that the node can grow into the other half;
    /// 3. blocks whose buddy is neither free nor held by a claim, so that no node grows into them;
    /// 4. blocks whose buddy a claim of another node holds, so that this node would grow into them;
    /// 5. the upper blocks of the wholly free pairs, for a caller that had to refuse all others.
    ///
    /// Within a kind the order is numeric. `mine` may contain blocks that were picked a moment ago and are not yet
    /// taken here. They are not offered again, and the blocks that they overlap do not count as free. It may also
    /// contain blocks of other pools and sizes. The next block is computed only when it is requested.
    #[must_use]
    pub fn candidates(&self, mine: &[Cidr]) -> Candidates<'_> {
        Candidates::new(self, mine)
    }
}

/// The free blocks of a [`FreeBlocks`] in the order of [`FreeBlocks::candidates`].
#[derive(Debug)]
pub struct Candidates<'a> {
    free_blocks: &'a FreeBlocks,
    /// The blocks that share an address with one of the node's own.
    mine: BlockNumbers,
    /// Free buddies of the node's own blocks, which are offered first.
    buddies_of_mine: BTreeSet<BlockNumber>,
    /// Those that are not offered yet.
    next_buddies: btree_set::IntoIter<BlockNumber>,
    lower_halves: FreePairs<'a>,
    without_buddy: btree_set::Iter<'a, BlockNumber>,
    /// The next block of `without_buddy`, if it is known.
    next_without_buddy: Option<BlockNumber>,
    /// Free blocks whose buddy is free too, but in `mine`: only for this node they have no buddy.
    without_buddy_here: BTreeSet<BlockNumber>,
    with_held_buddy: btree_set::Iter<'a, BlockNumber>,
    upper_halves: FreePairs<'a>,
    steps: u64,
}

impl<'a> Candidates<'a> {
    fn new(free_blocks: &'a FreeBlocks, own: &[Cidr]) -> Self {
        let grid = free_blocks.grid();
        let mut mine = BlockNumbers::default();
        for cidr in own {
            mine.insert(grid.span(*cidr));
        }
        let is_offered = |number| free_blocks.free.contains(number) && !mine.contains(number);
        let buddies_of_mine: BTreeSet<BlockNumber> = own
            .iter()
            .filter_map(|cidr| grid.number(*cidr).map(BlockNumber::buddy))
            .filter(|buddy| is_offered(*buddy))
            .collect();
        // Only a prefix of the node that is smaller than a block leaves such a buddy. A larger one covers whole pairs,
        // and the buddies of blocks are in `buddies_of_mine`.
        let without_buddy_here = own
            .iter()
            .map(|cidr| grid.span(*cidr))
            .filter(|span| span.count() == 1 && free_blocks.free.contains(span.first))
            .map(|span| span.first.buddy())
            .filter(|buddy| is_offered(*buddy) && !buddies_of_mine.contains(buddy))
            .collect();
        Self {
            free_blocks,
            mine,
            next_buddies: buddies_of_mine.clone().into_iter(),
            buddies_of_mine,
            lower_halves: FreePairs::new(free_blocks),
            without_buddy: free_blocks.without_buddy.iter(),
            next_without_buddy: None,
            without_buddy_here,
            with_held_buddy: free_blocks.with_held_buddy.iter(),
            upper_halves: FreePairs::new(free_blocks),
            steps: own.len() as u64,
        }
    }

    /// How many index entries have been looked at so far.
    ///
    /// Each costs one descent of an ordered tree. The number for the first candidate does not depend on the pool:
    /// `the_steps_of_a_claim_do_not_grow_with_the_pool` checks it.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The next block without a buddy, for every node or for this one only, in numeric order.
    fn next_without_buddy(&mut self) -> Option<BlockNumber> {
        while self.next_without_buddy.is_none() {
            let Some(number) = self.without_buddy.next() else { break };
            self.steps += 1;
            self.next_without_buddy = self.is_still_offered(*number).then_some(*number);
        }
        match (self.next_without_buddy, self.without_buddy_here.first()) {
            (Some(next), Some(here)) if *here < next => self.without_buddy_here.pop_first(),
            (None, _) => self.without_buddy_here.pop_first(),
            (Some(_), _) => self.next_without_buddy.take(),
        }
    }

    fn next_with_held_buddy(&mut self) -> Option<BlockNumber> {
        while let Some(number) = self.with_held_buddy.next() {
            self.steps += 1;
            if self.is_still_offered(*number) {
                return Some(*number);
            }
        }
        None
    }

    /// Whether a free block that is in no free pair may be offered, and was not yet offered as the buddy of the node's
    /// block.
    fn is_still_offered(&self, number: BlockNumber) -> bool {
        !self.buddies_of_mine.contains(&number) && !self.mine.contains(number)
    }

    fn next_number(&mut self) -> Option<BlockNumber> {
        let next = self.next_buddies.next();
        let next = next.or_else(|| self.lower_halves.next_lower(&self.mine, &mut self.steps));
        let next = next.or_else(|| self.next_without_buddy());
        let next = next.or_else(|| self.next_with_held_buddy());
        next.or_else(|| self.upper_halves.next_lower(&self.mine, &mut self.steps).map(BlockNumber::buddy))
    }
}

impl Iterator for Candidates<'_> {
    type Item = Cidr;

    fn next(&mut self) -> Option<Cidr> {
        self.next_number().map(|number| self.free_blocks.grid().block(number))
    }
}

/// The wholly free pairs, in numeric order.
#[derive(Debug)]
struct FreePairs<'a> {
    free: &'a BlockNumbers,
    runs_with_pair: btree_set::Iter<'a, BlockNumber>,
    /// The rest of the run that is being walked.
    rest: Option<BlockRun>,
}

impl<'a> FreePairs<'a> {
    fn new(free_blocks: &'a FreeBlocks) -> Self {
        Self { free: &free_blocks.free, runs_with_pair: free_blocks.runs_with_pair.iter(), rest: None }
    }

    /// The lower block of the next pair without a block in `mine`.
    fn next_lower(&mut self, mine: &BlockNumbers, steps: &mut u64) -> Option<BlockNumber> {
        loop {
            let rest = match self.rest.take() {
                Some(rest) => rest,
                None => self.free.run_around(*self.runs_with_pair.next()?)?,
            };
            *steps += 1;
            let Some(lower) = rest.first_pair() else { continue };
            let pair = BlockRun { first: lower, last: lower.buddy() };
            // Skips the whole run of `mine`, so that its size does not matter.
            let obstacle = mine.runs_touching(pair).next();
            let passed = obstacle.map_or(lower, |run| run.last).upper_of_pair();
            self.rest = rest.part_above(passed);
            if obstacle.is_none() {
                return Some(lower);
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

    /// Checks the order of candidates for a node with the blocks `mine`. The pool is `10.0.0.0/28`, cut into single
    /// addresses. Claims hold `claims`, and other occupants take `others`. All are given by their last byte.
    fn check(claims: &[u8], others: &[u8], mine: &[u8], expected: &str) {
        let single = |byte: &u8| cidr(&format!("10.0.0.{byte}/32"));
        let mut free_blocks = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.0/28"])));
        for claim in claims.iter().map(single) {
            free_blocks.occupy(claim);
            free_blocks.hold(claim);
        }
        for other in others.iter().map(single) {
            free_blocks.occupy(other);
        }
        let mine: Vec<Cidr> = mine.iter().map(single).collect();
        let order: Vec<String> =
            free_blocks.candidates(&mine).map(|block| (block.first() & 0xff).to_string()).collect();
        assert_eq!(order.join(" "), expected);
    }

    #[test]
    fn a_first_grant_takes_the_lower_block_of_a_free_pair_before_any_other() {
        check(&[], &[], &[], "0 2 4 6 8 10 12 14 1 3 5 7 9 11 13 15");
        check(&[0, 3, 4, 5, 9], &[], &[], "6 10 12 14 1 2 8 7 11 13 15");
    }

    #[test]
    fn the_next_block_of_a_holder_is_offered_after_all_that_nobody_grows_into() {
        // 1 is the next block of the holder of 0. The buddy of 5 is taken, but not by a claim: no node grows into 5.
        check(&[0, 2, 3], &[4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], &[], "5 1");
    }

    #[test]
    fn a_block_held_outside_of_the_ranges_keeps_its_buddy_too() {
        let mut free_blocks = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.1/32", "10.0.0.3/32"])));
        free_blocks.hold(cidr("10.0.0.0/32"));
        assert_eq!(
            free_blocks.candidates(&[]).collect::<Vec<_>>(),
            [cidr("10.0.0.3/32"), cidr("10.0.0.1/32")]
        );
    }

    #[test]
    fn the_next_block_is_the_buddy_of_one_that_the_node_has() {
        check(&[0, 5, 9], &[4], &[9, 0, 5], "1 8 2 6 10 12 14 3 7 11 13 15");
    }

    #[test]
    fn a_block_just_picked_is_not_offered_again_and_breaks_its_pair() {
        check(&[], &[1], &[2], "3 4 6 8 10 12 14 0 5 7 9 11 13 15");
        check(&[], &[], &[2, 3], "0 4 6 8 10 12 14 1 5 7 9 11 13 15");
    }
}
