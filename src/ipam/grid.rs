//! Which blocks a pool has: its ranges cut into blocks, without what is excluded or belongs to an older pool.
//!
//! Knows nothing of who holds what. Keeps one invariant: usable blocks are the pool's own, and a block that is one
//! pool's own is no other's.
//!
//! Blocks are handled by number, the position of the first address divided by the size of a block.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::addresses::AddressSet;
use super::block::{Cidr, Family};
use super::names::PoolName;
use super::pool::{Pool, RangeState};
use super::prefixes::PrefixIndex;

/// The blocks of one pool in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// A block of this size, at position 0.
    shape: Cidr,
    /// Numbers of the blocks that it gives out.
    usable: AddressSet,
    /// Numbers of the blocks in its ranges of any state, excluded or not, that no older pool has.
    own: AddressSet,
}

/// A range that a pool declares and an older pool has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// The range as the newcomer declares it.
    pub mine: Cidr,
    /// The pool that keeps what both declare.
    pub older: PoolName,
    /// The range as that pool declares it.
    pub theirs: Cidr,
}

/// Ranges of all states that pools declare, and by which pool, and in which family's section.
pub type Declared = PrefixIndex<(PoolName, Family)>;

impl Grid {
    /// The blocks of `pool` in `family`, and what it loses to the pools in `older`.
    ///
    /// `None` when the pool has no such family. `older` must hold the ranges of the older pools only. They keep all
    /// that they declare, in whatever state, even if they are being deleted: blocks of it may be held.
    #[must_use]
    pub fn of(pool: &Pool, family: Family, older: &Declared) -> Option<(Self, Vec<Overlap>)> {
        let ranges = pool.families.get(&family)?;
        let any_member = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let shape = Cidr::containing(any_member, ranges.block_prefix)?.same_size_at(0);
        let mut grid = Self { shape, usable: AddressSet::new(), own: AddressSet::new() };
        for (range, state) in &ranges.cidrs {
            // A range smaller than a block has none. Neighbours are not joined: each range has its own state.
            if range.size() >= shape.size() {
                let (first, last) = grid.span(*range);
                grid.own.insert_run(first, last);
                if *state == RangeState::Active && !pool.deleting {
                    grid.usable.insert_run(first, last);
                }
            }
        }
        for exclusion in &ranges.exclude {
            let (first, last) = grid.span(*exclusion);
            // A smaller one leaves the block, unless all that is withheld together leaves no address of it.
            if exclusion.size() >= shape.size() || pool_offers_none(pool, grid.block(first)) {
                grid.usable.remove_run(first, last);
            }
        }
        let mut overlaps = Vec::new();
        for range in ranges.cidrs.keys() {
            for (theirs, (name, _)) in older.overlapping(*range) {
                overlaps.push(Overlap { mine: *range, older: name.clone(), theirs });
                let (first, last) = grid.span(theirs);
                grid.own.remove_run(first, last);
                grid.usable.remove_run(first, last);
            }
        }
        Some((grid, overlaps))
    }

    /// Numbers of the blocks that may be given out.
    #[must_use]
    pub fn usable(&self) -> &AddressSet {
        &self.usable
    }

    /// Numbers of the blocks that are this pool's, whether or not they may be given out.
    #[must_use]
    pub fn own(&self) -> &AddressSet {
        &self.own
    }

    /// Whether the block of that number is this pool's.
    #[must_use]
    pub fn is_own(&self, number: u128) -> bool {
        self.own.run_around(number).is_some()
    }

    /// The block of that number.
    #[must_use]
    pub fn block(&self, number: u128) -> Cidr {
        self.shape.same_size_at(number << self.host_bits())
    }

    /// The number of a block; `None` when `cidr` is of another size.
    #[must_use]
    pub fn number(&self, cidr: Cidr) -> Option<u128> {
        (cidr.same_size_at(0) == self.shape).then(|| self.span(cidr).0)
    }

    /// First and last number of the blocks that share an address with `cidr`.
    #[must_use]
    pub fn span(&self, cidr: Cidr) -> (u128, u128) {
        (cidr.first() >> self.host_bits(), cidr.last() >> self.host_bits())
    }

    /// The block around `cidr` if that is smaller than a block, else `cidr`.
    #[must_use]
    pub fn whole(&self, cidr: Cidr) -> Cidr {
        if cidr.size() < self.shape.size() { self.shape.same_size_at(cidr.first()) } else { cidr }
    }

    /// A block is at most /118, so this is at most 10; never the 128 that could not be shifted by.
    fn host_bits(&self) -> u32 {
        self.shape.size().trailing_zeros()
    }
}

/// Whether the pool withholds every address of the block.
fn pool_offers_none(pool: &Pool, block: Cidr) -> bool {
    pool.withheld(block, &AddressSet::new()).covers(block)
}
