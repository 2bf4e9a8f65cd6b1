//! The free blocks of a pool at each prefix length that it gives out, and the order in which a pool with blocks of several
//! sizes offers them.
//!
//! Knows nodes by their blocks only. Keeps one invariant: a block of the widest size is split only if no smaller part of
//! the pool fits.

use std::collections::BTreeSet;
use std::iter;

use super::block_numbers::{BlockNumber, BlockNumbers};
use super::free_blocks::FreeBlocks;
use super::{Ledger, levels_of};
use crate::model::names::PoolName;
use crate::net::cidr::{Cidr, Family};

impl Ledger {
    /// The free blocks of a pool in a family and of a prefix length; `None` when there is no such pool, it has no such
    /// family, or it has no blocks of such a size.
    #[must_use]
    pub fn free_blocks(&self, pool: &PoolName, family: Family, prefix: u8) -> Option<&FreeBlocks> {
        self.pools.get(pool)?.free_blocks.get(&(family, prefix))
    }

    /// The free blocks of a pool in a family at each level, the widest first.
    #[must_use]
    pub fn levels(&self, pool: &PoolName, family: Family) -> impl DoubleEndedIterator<Item = &FreeBlocks> {
        let offer = self.pools.get(pool).into_iter();
        offer.flat_map(move |offer| offer.free_blocks.range(levels_of(family))).map(|(_, free)| free)
    }

    /// Whether a pool has a block, in any family and of any size, that it gives out, free or not. Such a pool is not
    /// being deleted, and has an active CIDR that is neither excluded nor kept by an older pool.
    #[must_use]
    pub fn gives_out(&self, pool: &PoolName) -> bool {
        Family::ALL.into_iter().any(|family| self.gives_out_of(pool, family))
    }

    /// The same for one family.
    #[must_use]
    pub fn gives_out_of(&self, pool: &PoolName, family: Family) -> bool {
        self.levels(pool, family).any(FreeBlocks::has_usable)
    }

    /// Whether a pool has a free block of a family, of any size.
    #[must_use]
    pub fn has_free(&self, pool: &PoolName, family: Family) -> bool {
        self.levels(pool, family).any(|free| free.free_count() > 0)
    }

    /// Whether a pool has a free block of a family, of any size, that shares an address with `cidr`.
    #[must_use]
    pub fn has_free_in(&self, pool: &PoolName, family: Family, cidr: Cidr) -> bool {
        self.levels(pool, family).any(|free_blocks| free_blocks.has_free_in(cidr))
    }

    /// The free blocks of a prefix length in the order in which a node with the blocks `mine` should be offered them,
    /// each once. For blocks of the widest size of the pool it is that of [`FreeBlocks::candidates`]. With smaller ones, large
    /// blocks must find room:
    ///
    /// 1. buddies of `mine`;
    /// 2. free blocks whose buddy is neither free nor held by a claim of this size;
    /// 3. a part of the smallest larger free block, except those of the widest size;
    /// 4. free blocks whose buddy a claim of another node holds;
    /// 5. parts of free blocks of the widest size;
    /// 6. all others, for a caller that had to refuse these.
    #[must_use]
    pub fn candidates<'a>(
        &'a self,
        pool: &PoolName,
        family: Family,
        prefix: u8,
        mine: &'a [Cidr],
    ) -> Box<dyn Iterator<Item = Cidr> + 'a> {
        let mut levels: Vec<&FreeBlocks> = self.levels(pool, family).collect();
        levels.retain(|free| free.grid().prefix() <= prefix);
        match levels.pop().filter(|free| free.grid().prefix() == prefix) {
            None => Box::new(iter::empty()),
            Some(free) if levels.is_empty() => Box::new(free.candidates(mine)),
            Some(free) => Box::new(best_fit(free, levels, mine)),
        }
    }
}

/// The order of a pool with blocks of several sizes. `wider` are the levels above that of `free`, the widest first.
fn best_fit<'a>(
    free: &'a FreeBlocks,
    wider: Vec<&'a FreeBlocks>,
    mine: &'a [Cidr],
) -> impl Iterator<Item = Cidr> + 'a {
    let grid = free.grid();
    let mut own = BlockNumbers::default();
    for cidr in mine {
        own.insert(grid.span(*cidr));
    }
    let buddies = mine.iter().filter_map(|cidr| grid.number(*cidr)).map(BlockNumber::buddy);
    let buddies: BTreeSet<BlockNumber> = buddies.collect();
    // The first part of a free block of another level.
    let part = move |level: &FreeBlocks, number: BlockNumber| grid.span(level.grid().block(number)).first;
    let mut wider = wider.into_iter();
    let widest = wider.next();
    let of_wider = wider.rev().flat_map(move |level| {
        let unpaired = level.without_buddy.iter().chain(&level.with_held_buddy);
        unpaired.map(move |number| part(level, *number))
    });
    let of_widest = widest.into_iter().flat_map(move |level| {
        let blocks = level.candidates(&[]).filter_map(|block| level.grid().number(block));
        level.without_buddy.iter().copied().chain(blocks).map(move |number| part(level, number))
    });
    let all = free.candidates(mine).filter_map(|block| grid.number(block));
    let mut offered = BTreeSet::new();
    buddies
        .into_iter()
        .chain(free.without_buddy.iter().copied())
        .chain(of_wider)
        .chain(free.with_held_buddy.iter().copied())
        .chain(of_widest)
        .chain(all)
        .filter(move |number| {
            !own.contains(*number) && free.free.contains(*number) && offered.insert(*number)
        })
        .map(|number| grid.block(number))
}
