//! The blocks of a pool: its ranges cut into blocks, without those that are excluded or belong to an older pool.
//!
//! Does not know the holders of blocks. Keeps one invariant: every usable block is the pool's own, and no block is the
//! own of two pools.
//!
//! Blocks are handled by number ([`BlockNumber`]); the grid turns blocks into numbers and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ledger::block_numbers::{BlockNumber, BlockNumbers, BlockRun};
use crate::model::names::PoolName;
use crate::model::pool::{Pool, RangeState, Ranges};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::net::prefixes::PrefixIndex;

/// The blocks of one pool in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// A block of this size, at position 0.
    shape: Cidr,
    /// The prefix length of the blocks in their family.
    prefix: u8,
    /// The blocks that the pool gives out.
    usable: BlockNumbers,
    /// The blocks in its ranges of any state, excluded or not, except those that an older pool has.
    own: BlockNumbers,
}

/// A range of a pool that overlaps a range of an older pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// The range as the younger pool declares it.
    pub mine: Cidr,
    /// The pool that keeps the addresses that both declare.
    pub older: PoolName,
    /// The range as that pool declares it.
    pub theirs: Cidr,
}

/// The ranges that pools declare, of any state, each with its pool and the family whose section declares it.
pub type Declared = PrefixIndex<(PoolName, Family)>;

impl Grid {
    /// The blocks of `pool` in a family and of a prefix length.
    ///
    /// `None` when the pool has no such family. `older` must contain the ranges of the older pools only. They keep all
    /// that they declare, in any state and even while they are being deleted, because nodes may hold blocks of it.
    #[must_use]
    pub fn of(pool: &Pool, (family, prefix): (Family, u8), older: &Declared) -> Option<Self> {
        let ranges = pool.families.get(&family)?;
        let any_member = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let shape = Cidr::containing(any_member, prefix)?.same_size_at(0);
        let mut grid = Self { shape, prefix, usable: BlockNumbers::default(), own: BlockNumbers::default() };
        for (range, state) in &ranges.cidrs {
            // A range smaller than a block has no block. Adjacent ranges are not joined: each has its own state.
            if range.size() >= shape.size() {
                let run = grid.span(*range);
                grid.own.insert(run);
                if *state == RangeState::Active && !pool.deleting {
                    grid.usable.insert(run);
                }
            }
        }
        for exclusion in &ranges.exclude {
            let run = grid.span(*exclusion);
            // An exclusion smaller than a block leaves the block usable, unless the pool then keeps back every address
            // of it.
            if exclusion.size() >= shape.size() || pool_offers_none(pool, grid.block(run.first)) {
                grid.usable.remove(run);
            }
        }
        for overlap in overlaps(ranges, older) {
            let run = grid.span(overlap.theirs);
            grid.own.remove(run);
            grid.usable.remove(run);
        }
        Some(grid)
    }

    /// The prefix length of its blocks.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The blocks that may be given out.
    #[must_use]
    pub fn usable(&self) -> &BlockNumbers {
        &self.usable
    }

    /// The blocks that are this pool's, whether or not they may be given out.
    #[must_use]
    pub fn own(&self) -> &BlockNumbers {
        &self.own
    }

    /// The block of that number.
    #[must_use]
    pub fn block(&self, number: BlockNumber) -> Cidr {
        self.shape.same_size_at(number.get() << self.host_bits())
    }

    /// The number of a block; `None` when `cidr` is of another size.
    #[must_use]
    pub fn number(&self, cidr: Cidr) -> Option<BlockNumber> {
        (cidr.same_size_at(0) == self.shape).then(|| self.number_at(cidr.first()))
    }

    /// The blocks that share an address with `cidr`, this pool's or not.
    #[must_use]
    pub fn span(&self, cidr: Cidr) -> BlockRun {
        BlockRun { first: self.number_at(cidr.first()), last: self.number_at(cidr.last()) }
    }

    /// The block around `cidr` if `cidr` is smaller than a block, else `cidr` itself.
    #[must_use]
    pub fn whole(&self, cidr: Cidr) -> Cidr {
        if cidr.size() < self.shape.size() { self.shape.same_size_at(cidr.first()) } else { cidr }
    }

    /// The number of the block that has the address at this position.
    fn number_at(&self, position: u128) -> BlockNumber {
        BlockNumber::new(position >> self.host_bits())
    }

    /// A block has at most 2^64 addresses, so this is at most 64, and positions can always be shifted by it.
    fn host_bits(&self) -> u32 {
        self.shape.size().trailing_zeros()
    }
}

/// The overlaps of ranges with those of older pools.
pub(super) fn overlaps<'a>(ranges: &'a Ranges, older: &'a Declared) -> impl Iterator<Item = Overlap> + 'a {
    ranges.cidrs.keys().flat_map(|range| {
        let older = older.overlapping(*range);
        older.map(|(theirs, (name, _))| Overlap { mine: *range, older: name.clone(), theirs })
    })
}

/// Whether the pool keeps back every address of the block.
fn pool_offers_none(pool: &Pool, block: Cidr) -> bool {
    pool.excluded(block, &AddressSet::new()).covers(block)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::names::Uid;
    use crate::model::pool::{Expand, FirstLast, PerNode, Reclaim, ReclaimMode};
    use crate::model::time::Timestamp;
    use proptest::prelude::*;

    /// A pool of active ranges in one family, created at second 0, that offers first and last addresses.
    pub(crate) fn pool(name: &str, block_prefix: u8, cidrs: &[&str]) -> Pool {
        let cidrs: Vec<Cidr> = cidrs.iter().map(|text| text.parse().unwrap()).collect();
        let family = cidrs.first().map_or(Family::V4, |cidr| cidr.family());
        let cidrs = cidrs.into_iter().map(|cidr| (cidr, RangeState::Active)).collect();
        Pool {
            name: name.into(),
            uid: Uid::from(format!("uid-{name}")),
            created: Timestamp::default(),
            deleting: false,
            priority: 0,
            selector: kube_core::Selector::default(),
            pod_ip_pool: None,
            families: [(family, Ranges::of_blocks(block_prefix, cidrs))].into(),
            first_last: FirstLast::Offered,
            per_node: PerNode { initial_blocks: 1, max_blocks: 16, max_addresses: 1024 },
            expand: Expand { used_above: 80, free_below: 8 },
            reclaim: Reclaim { mode: ReclaimMode::DryRun, used_below: 40, after: Duration::from_secs(600) },
            reuse_after: Duration::from_secs(300),
            reuse_after_node_loss: Duration::from_secs(3600),
            communities: std::collections::BTreeSet::new(),
        }
    }

    /// The grid of a pool of one family, without older pools.
    pub(in crate::ledger) fn grid(pool: &Pool) -> Grid {
        let (family, ranges) = pool.families.first_key_value().unwrap();
        Grid::of(pool, (*family, ranges.block_prefix), &Declared::default()).unwrap()
    }

    fn check(pool: &Pool, usable: &str, own: &str) {
        let grid = grid(pool);
        let text = |numbers: &BlockNumbers| {
            numbers.iter().map(|number| grid.block(number).to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((text(grid.usable()).as_str(), text(grid.own()).as_str()), (usable, own));
    }

    fn exclude(pool: &mut Pool, exclude: &[&str]) {
        pool.families.get_mut(&Family::V4).unwrap().exclude =
            exclude.iter().map(|text| text.parse().unwrap()).collect();
    }

    #[test]
    fn a_block_lies_wholly_in_one_active_range() {
        let mut pool = pool("a", 27, &["10.0.0.0/26", "10.0.1.0/28", "10.0.1.16/28", "10.0.2.0/27"]);
        check(&pool, "10.0.0.0/27 10.0.0.32/27 10.0.2.0/27", "10.0.0.0/27 10.0.0.32/27 10.0.2.0/27");
        for state in [RangeState::Cordoned, RangeState::Draining] {
            pool.families.get_mut(&Family::V4).unwrap().cidrs.insert("10.0.2.0/27".parse().unwrap(), state);
            check(&pool, "10.0.0.0/27 10.0.0.32/27", "10.0.0.0/27 10.0.0.32/27 10.0.2.0/27");
        }
        pool.deleting = true;
        check(&pool, "", "10.0.0.0/27 10.0.0.32/27 10.0.2.0/27");
    }

    #[test]
    fn a_block_without_an_address_to_offer_is_not_usable() {
        let mut pool = pool("a", 30, &["10.0.0.0/29"]);
        let all = "10.0.0.0/30 10.0.0.4/30";
        exclude(&mut pool, &["10.0.0.0/31"]);
        check(&pool, all, all);
        exclude(&mut pool, &["10.0.0.0/31", "10.0.0.2/31"]);
        check(&pool, "10.0.0.4/30", all);
        exclude(&mut pool, &["10.0.0.0/24"]);
        check(&pool, "", all);
        // Whether first and last address are offered decides whether an address is left.
        exclude(&mut pool, &["10.0.0.1/32", "10.0.0.2/32", "10.0.0.6/32"]);
        check(&pool, all, all);
        pool.first_last = FirstLast::Excluded;
        check(&pool, "10.0.0.4/30", all);
    }

    proptest! {
        /// In every size that a block may have. Another system computed sizes with XOR in place of a power.
        #[test]
        fn a_range_has_as_many_blocks_as_go_into_it(bits in 0u8..=10, more in 0u8..=20, v6 in any::<bool>()) {
            let (family, base) = if v6 { (128, "2001:db8::") } else { (32, "10.0.0.0") };
            let (block, range) = (family - bits, family - bits - more);
            let range = Cidr::containing(base.parse().unwrap(), range).unwrap();
            let grid = grid(&pool("a", block, &[&range.to_string()]));
            prop_assert_eq!(grid.usable().len(), 1u128 << more);
            let last = grid.block(grid.span(range).last);
            prop_assert_eq!((last.last(), last.size(), last.prefix_len()), (range.last(), 1u128 << bits, block));
            prop_assert_eq!(grid.number(last), Some(grid.span(range).last));
            prop_assert_eq!(grid.whole(Cidr::single(last.last_address())), last);
        }
    }
}
