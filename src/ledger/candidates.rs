//! The order in which the free blocks of a pool are offered to a node.
//!
//! Knows a node by its blocks only, and takes nothing: who accepts an offer tells the ledger. Keeps one invariant: each
//! free block is offered at most once, and none that shares an address with a block of the node.

use std::collections::{BTreeSet, btree_set};

use crate::ledger::block_numbers::{BlockNumber, BlockNumbers, BlockRun};
use crate::ledger::free_blocks::FreeBlocks;
use crate::net::cidr::Cidr;

impl FreeBlocks {
    /// The free blocks in the order in which a node with the blocks `mine` should be offered them, each once:
    ///
    /// 1. buddies of `mine`, so that the two aggregate to one route;
    /// 2. the lower block of each wholly free pair, so that the node can grow into the other half;
    /// 3. blocks that are no holder's buddy;
    /// 4. blocks that are another holder's buddy;
    /// 5. the upper blocks of the wholly free pairs, for a caller that had to refuse all others.
    ///
    /// Within a kind the order is numeric. `mine` may hold blocks that were picked a moment ago and are not yet
    /// taken here: they are not offered again, and what they overlap is not free. Blocks of other pools
    /// and sizes may be in it too. Nothing is computed before it is asked for.
    #[must_use]
    pub fn candidates(&self, mine: &[Cidr]) -> Candidates<'_> {
        Candidates::new(self, mine)
    }
}

/// The free blocks of a [`FreeBlocks`] in the order of [`FreeBlocks::candidates`].
#[derive(Debug)]
pub struct Candidates<'a> {
    space: &'a FreeBlocks,
    /// Numbers of the blocks that overlap the node's own.
    of_node: BlockNumbers,
    /// Free buddies of the node's own blocks, which are offered first.
    buddies: BTreeSet<BlockNumber>,
    next_buddies: btree_set::IntoIter<BlockNumber>,
    lower: Pairs<'a>,
    /// Free blocks whose buddy is free in the space but the node's: unpaired for this node only.
    unpaired_for_node: btree_set::IntoIter<BlockNumber>,
    next_unpaired_for_node: Option<BlockNumber>,
    unpaired: btree_set::Iter<'a, BlockNumber>,
    next_unpaired: Option<BlockNumber>,
    reserved: btree_set::Iter<'a, BlockNumber>,
    upper: Pairs<'a>,
    steps: u64,
}

impl<'a> Candidates<'a> {
    fn new(space: &'a FreeBlocks, mine: &[Cidr]) -> Self {
        let mut of_node = BlockNumbers::new();
        for cidr in mine {
            of_node.insert(space.grid().span(*cidr));
        }
        let is_offered = |number| space.numbers().contains(number) && !of_node.contains(number);
        let buddies: BTreeSet<BlockNumber> = mine
            .iter()
            .filter_map(|cidr| space.grid().number(*cidr).map(BlockNumber::buddy))
            .filter(|buddy| is_offered(*buddy))
            .collect();
        // Only something smaller than a block bars one half of a pair and is no block itself.
        let unpaired_for_node: BTreeSet<BlockNumber> = mine
            .iter()
            .map(|cidr| space.grid().span(*cidr))
            .filter(|span| span.count() == 1 && space.numbers().contains(span.first))
            .map(|span| span.first.buddy())
            .filter(|buddy| is_offered(*buddy) && !buddies.contains(buddy))
            .collect();
        Self {
            space,
            of_node,
            next_buddies: buddies.clone().into_iter(),
            buddies,
            lower: Pairs::new(space),
            unpaired_for_node: unpaired_for_node.into_iter(),
            next_unpaired_for_node: None,
            unpaired: space.unpaired().iter(),
            next_unpaired: None,
            reserved: space.reserved().iter(),
            upper: Pairs::new(space),
            steps: mine.len() as u64,
        }
    }

    /// How many index entries have been looked at so far.
    ///
    /// Each costs one descent of an ordered tree. The number for the first candidate does not depend on
    /// the pool, which a test holds on to.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The next unpaired block, from the space and from what is unpaired for this node only, in numeric order.
    fn next_unpaired(&mut self) -> Option<BlockNumber> {
        if self.next_unpaired_for_node.is_none() {
            self.next_unpaired_for_node = self.unpaired_for_node.next();
        }
        while self.next_unpaired.is_none() {
            let Some(single) = self.unpaired.next() else { break };
            self.steps += 1;
            self.next_unpaired = self.is_left(*single).then_some(*single);
        }
        match (self.next_unpaired, self.next_unpaired_for_node) {
            (Some(single), Some(also)) if also < single => self.next_unpaired_for_node.take(),
            (None, _) => self.next_unpaired_for_node.take(),
            (Some(_), _) => self.next_unpaired.take(),
        }
    }

    fn next_reserved(&mut self) -> Option<BlockNumber> {
        while let Some(single) = self.reserved.next() {
            self.steps += 1;
            if self.is_left(*single) {
                return Some(*single);
            }
        }
        None
    }

    /// Whether a free block that is half of no free pair has not been offered as a buddy, and may be offered.
    fn is_left(&self, number: BlockNumber) -> bool {
        !self.buddies.contains(&number) && !self.of_node.contains(number)
    }

    fn next_number(&mut self) -> Option<BlockNumber> {
        if let Some(buddy) = self.next_buddies.next() {
            return Some(buddy);
        }
        if let Some(lower) = self.lower.next(&self.of_node, &mut self.steps) {
            return Some(lower);
        }
        if let Some(unpaired) = self.next_unpaired() {
            return Some(unpaired);
        }
        if let Some(reserved) = self.next_reserved() {
            return Some(reserved);
        }
        self.upper.next(&self.of_node, &mut self.steps).map(BlockNumber::buddy)
    }
}

impl Iterator for Candidates<'_> {
    type Item = Cidr;

    fn next(&mut self) -> Option<Cidr> {
        self.next_number().map(|number| self.space.grid().block(number))
    }
}

/// The lower blocks of the wholly free pairs, in numeric order.
#[derive(Debug)]
struct Pairs<'a> {
    free: &'a BlockNumbers,
    runs: btree_set::Iter<'a, BlockNumber>,
    /// The rest of the run that is being walked.
    rest: Option<BlockRun>,
}

impl<'a> Pairs<'a> {
    fn new(space: &'a FreeBlocks) -> Self {
        Self { free: space.numbers(), runs: space.pair_runs().iter(), rest: None }
    }

    fn next(&mut self, of_node: &BlockNumbers, steps: &mut u64) -> Option<BlockNumber> {
        loop {
            let rest = match self.rest.take() {
                Some(rest) => rest,
                None => self.free.run_around(*self.runs.next()?)?,
            };
            *steps += 1;
            let Some(lower) = rest.first_pair() else { continue };
            let pair = BlockRun { first: lower, last: lower.buddy() };
            // Leap over all that is of_node, so that its size does not matter.
            let bar = of_node.runs_touching(pair).last();
            let behind = bar.map_or(lower, |bar| bar.last).upper_of_pair();
            self.rest = rest.part_above(behind);
            if bar.is_none() {
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

    /// Renders the order of candidates in `10.0.0.0/28` cut into single addresses, of which `claims` are held and
    /// `others` are taken otherwise, for a node with the blocks `mine`; all by last byte.
    fn check(claims: &[u8], others: &[u8], mine: &[u8], expected: &str) {
        let single = |byte: &u8| cidr(&format!("10.0.0.{byte}/32"));
        let mut space = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.0/28"])));
        for claim in claims.iter().map(single) {
            space.occupy(claim);
            space.hold(claim);
        }
        for other in others.iter().map(single) {
            space.occupy(other);
        }
        let mine: Vec<Cidr> = mine.iter().map(single).collect();
        let order: Vec<String> =
            space.candidates(&mine).map(|block| (block.first() & 0xff).to_string()).collect();
        assert_eq!(order.join(" "), expected);
    }

    #[test]
    fn a_first_grant_takes_the_lower_block_of_a_free_pair_before_any_single() {
        check(&[], &[], &[], "0 2 4 6 8 10 12 14 1 3 5 7 9 11 13 15");
        check(&[0, 3, 4, 5, 9], &[], &[], "6 10 12 14 1 2 8 7 11 13 15");
    }

    #[test]
    fn a_single_is_taken_from_a_holder_last() {
        // 1 is the next block of the holder of 0; the buddy of 5 is taken, but nobody grows into 5.
        check(&[0, 2, 3], &[4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], &[], "5 1");
    }

    #[test]
    fn a_holder_beside_the_ranges_counts_as_a_holder() {
        let mut space = FreeBlocks::new(grid(&pool("a", 32, &["10.0.0.1/32", "10.0.0.3/32"])));
        space.hold(cidr("10.0.0.0/32"));
        assert_eq!(space.candidates(&[]).collect::<Vec<_>>(), [cidr("10.0.0.3/32"), cidr("10.0.0.1/32")]);
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
