//! The occupants of ranges, and the blocks of every pool that are therefore free.
//!
//! Knows no nodes, no states of claims and no objects: its owner notes which occupant takes a range. Keeps one
//! invariant: a usable block of a pool is free if and only if no taken range shares an address with it.
//! [`Ledger::check`] computes everything anew and compares.
//!
//! A change looks only at the pools whose ranges it touches, and there only at the blocks that it touches.

pub mod block_numbers;
pub mod candidates;
mod declarations;
pub mod declarer;
pub mod free_blocks;
pub mod grid;
mod levels;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::pool::{Pool, Reservation};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::net::prefixes::PrefixIndex;
use declarer::Declarer;
use free_blocks::FreeBlocks;
use grid::{Declared, Grid, Overlap};

/// The owner of a range in the ledger. A range may have several, and ranges of different occupants may overlap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// The claim of exactly this range, in any state.
    Claim,
    /// The claim of exactly this range, which is being created.
    Pending,
    /// A lost claim of this range, and its node, if that is known: the claim was deleted without the controller's
    /// consent. It takes the range until it is recreated, or until the carrier of its node is known to have nothing of
    /// the range any more.
    LostClaim(Option<NodeName>),
    /// The CiliumNode of this name carries the range, claimed or not. Only [`Ledger::set_carried`] adds and removes it.
    Carried(NodeName),
    /// An object of this kind and name, which can't be read as a whole, contains the range.
    Unreadable(Kind, String),
}

impl Occupant {
    /// The object of this kind and name, which can't be read.
    #[must_use]
    pub fn unreadable(kind: Kind, name: &str) -> Self {
        Self::Unreadable(kind, name.to_owned())
    }

    /// Whether it is a claim. Then a node holds the block, and its buddy is the next block of that node.
    fn is_claim(&self) -> bool {
        match self {
            Self::Claim | Self::Pending => true,
            Self::LostClaim(_) | Self::Carried(_) | Self::Unreadable(..) => false,
        }
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim => f.write_str("a claim"),
            Self::Pending => f.write_str("a claim that is being created"),
            Self::LostClaim(None) => f.write_str("a lost claim"),
            Self::LostClaim(Some(node)) => write!(f, "the lost claim of node {node}"),
            Self::Carried(node) => write!(f, "the carrier of node {node}"),
            Self::Unreadable(kind, name) => write!(f, "the unreadable {} {name}", kind.as_str()),
        }
    }
}

/// All taken ranges, and the blocks that are therefore free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    taken: PrefixIndex<Occupant>,
    /// The addresses on each CiliumNode, as last noted: the source of the [`Occupant::Carried`] entries.
    carried: BTreeMap<NodeName, AddressSet>,
    /// The ranges of all occupants that are no claims.
    unclaimed: PrefixIndex<Occupant>,
    declared: Declared,
    /// The declaration of each pool, readable or not.
    declarers: BTreeMap<PoolName, Declarer>,
    pools: BTreeMap<PoolName, Offer>,
}

/// The free blocks of one pool, and its overlaps with older pools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Offer {
    /// The free blocks of each level: of each prefix length from the widest to the narrowest that the pool gives out.
    free_blocks: BTreeMap<(Family, u8), FreeBlocks>,
    overlaps: Vec<Overlap>,
}

impl Ledger {
    /// Notes that `occupant` takes `cidr`; `false` when that was noted already.
    pub fn take(&mut self, cidr: Cidr, occupant: Occupant) -> bool {
        let is_claim = occupant.is_claim();
        let unclaimed = (!is_claim).then(|| occupant.clone());
        if !self.taken.insert(cidr, occupant) {
            return false;
        }
        if let Some(unclaimed) = unclaimed {
            self.unclaimed.insert(cidr, unclaimed);
        }
        for (pool, family) in self.touched(cidr) {
            for free_blocks in levels_mut(&mut self.pools, &pool, family) {
                free_blocks.occupy(cidr);
                if is_claim {
                    free_blocks.hold(cidr);
                }
            }
        }
        true
    }

    /// Notes that `occupant` takes `cidr` no more; `false` when it did not. The blocks in it are free again only if
    /// nothing else takes them.
    pub fn release(&mut self, cidr: Cidr, occupant: &Occupant) -> bool {
        if !self.taken.remove(cidr, occupant) {
            return false;
        }
        self.unclaimed.remove(cidr, occupant);
        let is_claimed = self.taken.at(cidr).iter().any(Occupant::is_claim);
        for (pool, family) in self.touched(cidr) {
            for free_blocks in levels_mut(&mut self.pools, &pool, family) {
                if !is_claimed {
                    free_blocks.unhold(cidr);
                }
                let region = free_blocks.grid().whole(cidr);
                free_blocks.vacate(region, self.taken.overlapping(region).map(|(other, _)| other));
            }
        }
        true
    }

    /// Notes the addresses on the CiliumNode of this name, in place of those before; none if it no longer exists.
    pub fn set_carried(&mut self, node: &NodeName, carried: AddressSet) {
        let before = self.carried.remove(node).unwrap_or_default();
        if before != carried {
            let old: BTreeSet<Cidr> = before.cidrs().collect();
            let new: BTreeSet<Cidr> = carried.cidrs().collect();
            let occupant = Occupant::Carried(node.clone());
            // New ranges are taken before old ones are released, so a range that the node still has is never free in
            // between.
            for cidr in new.difference(&old) {
                self.take(*cidr, occupant.clone());
            }
            for cidr in old.difference(&new) {
                self.release(*cidr, &occupant);
            }
        }
        if !carried.is_empty() {
            self.carried.insert(node.clone(), carried);
        }
    }

    /// The addresses on the CiliumNode of this name, as last noted; `None` when there are none.
    #[must_use]
    pub fn carried(&self, node: &NodeName) -> Option<&AddressSet> {
        self.carried.get(node)
    }

    /// The overlaps of a pool with older pools, which keep the addresses that both declare.
    #[must_use]
    pub fn overlaps(&self, pool: &PoolName) -> &[Overlap] {
        self.pools.get(pool).map_or(&[], |offer| &offer.overlaps)
    }

    /// The pools that lose ranges to this one, which is older.
    #[must_use]
    pub fn younger_than(&self, older: &PoolName) -> BTreeSet<&PoolName> {
        let ranges = self.declarers.get(older).into_iter().flat_map(|declarer| &declarer.ranges);
        ranges
            .flat_map(|(range, _)| self.pools_over(*range))
            .filter(|name| self.overlaps(name).iter().any(|overlap| overlap.older == *older))
            .collect()
    }

    /// All taken ranges that share an address with `cidr`, and their occupants. The ranges around `cidr` come first,
    /// the widest first; then those within it, in numeric order.
    pub fn overlapping(&self, cidr: Cidr) -> impl Iterator<Item = (Cidr, &Occupant)> {
        self.taken.overlapping(cidr)
    }

    /// The ranges that share an address with `cidr` and have an occupant that is no claim, in the same order. The
    /// claims there cost nothing.
    pub fn unclaimed_in(&self, cidr: Cidr) -> impl Iterator<Item = (Cidr, &Occupant)> {
        self.unclaimed.overlapping(cidr)
    }

    /// The blocks of the claims that share an address with `cidr`, including its own claim and claims that are being
    /// created.
    pub fn overlapping_claims(&self, cidr: Cidr) -> impl Iterator<Item = Cidr> {
        let mut last = None;
        self.taken
            .overlapping(cidr)
            .filter(|(_, occupant)| occupant.is_claim())
            .map(|(claimed, _)| claimed)
            // A claim may be noted twice, as being created and as seen.
            .filter(move |claimed| last.replace(*claimed) != Some(*claimed))
    }

    /// Whether a taken range shares an address with `cidr`.
    #[must_use]
    pub fn is_taken(&self, cidr: Cidr) -> bool {
        self.taken.overlapping(cidr).next().is_some()
    }

    /// The occupants of exactly `cidr`.
    #[must_use]
    pub fn occupants(&self, cidr: Cidr) -> &[Occupant] {
        self.taken.at(cidr)
    }

    /// All taken ranges and their occupants, in numeric order.
    pub fn entries(&self) -> impl Iterator<Item = (Cidr, &Occupant)> {
        self.taken.iter()
    }

    /// Computes everything anew from the taken ranges and the declarations of pools, and returns the differences from
    /// the kept state.
    ///
    /// Costs as much as the computation at the start of the process. A list that is not empty shows a defect of this
    /// program.
    #[must_use]
    pub fn check<'a>(
        &self,
        pools: impl IntoIterator<Item = &'a Pool>,
        reserved: impl IntoIterator<Item = &'a Reservation>,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut fresh = Self { taken: self.taken.clone(), ..Self::default() };
        fresh.set_pools(pools, reserved);
        if self.declared != fresh.declared || self.declarers != fresh.declarers {
            differences.push(Difference::Declared);
        }
        let names: BTreeSet<&PoolName> = self.pools.keys().chain(fresh.pools.keys()).collect();
        for pool in names {
            if self.overlaps(pool) != fresh.overlaps(pool) {
                differences.push(Difference::Overlaps(pool.clone()));
            }
            let levels = |ledger: &Self| -> BTreeSet<(Family, u8)> {
                ledger
                    .pools
                    .get(pool)
                    .into_iter()
                    .flat_map(|offer| offer.free_blocks.keys().copied())
                    .collect()
            };
            for (family, prefix) in levels(self).union(&levels(&fresh)) {
                let kept = self.free_blocks(pool, *family, *prefix);
                if let Some(difference) = compare(kept, fresh.free_blocks(pool, *family, *prefix)) {
                    differences.push(Difference::FreeBlocks(pool.clone(), *family, *prefix, difference));
                }
            }
        }
        let unclaimed = self.taken.iter().filter(|(_, occupant)| !occupant.is_claim());
        if !unclaimed.eq(self.unclaimed.iter()) {
            differences.push(Difference::Unclaimed);
        }
        let mut carried: BTreeMap<&NodeName, AddressSet> = BTreeMap::new();
        for (cidr, occupant) in self.taken.iter() {
            if let Occupant::Carried(node) = occupant {
                carried.entry(node).or_default().insert_cidr(cidr);
            }
        }
        let nodes: BTreeSet<&NodeName> = self.carried.keys().chain(carried.keys().copied()).collect();
        for node in nodes {
            if self.carried.get(node) != carried.get(node) {
                differences.push(Difference::Carried(node.clone()));
            }
        }
        differences
    }

    /// The pools and families whose free blocks a change of `cidr` can concern: they have a range that overlaps it or
    /// its buddy.
    fn touched(&self, cidr: Cidr) -> BTreeSet<(PoolName, Family)> {
        self.declared.overlapping(cidr.enlarged(1)).map(|(_, section)| section.clone()).collect()
    }

    /// The pools that declare an address of `cidr`, in any state. The number of their free blocks may change when an
    /// occupant takes or releases it.
    pub fn pools_over(&self, cidr: Cidr) -> impl Iterator<Item = &PoolName> {
        self.declared.overlapping(cidr).map(|(_, (pool, _))| pool)
    }
}

/// The keys of all levels of a family.
const fn levels_of(family: Family) -> RangeInclusive<(Family, u8)> {
    (family, 0)..=(family, u8::MAX)
}

/// The free blocks of a pool in a family, at each level.
fn levels_mut<'a>(
    pools: &'a mut BTreeMap<PoolName, Offer>,
    pool: &PoolName,
    family: Family,
) -> impl Iterator<Item = &'a mut FreeBlocks> {
    let offer = pools.get_mut(pool).into_iter();
    offer.flat_map(move |offer| offer.free_blocks.range_mut(levels_of(family))).map(|(_, free)| free)
}

/// A part of the ledger that differs from its correct value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Difference {
    /// The index of the ranges that pools declare.
    #[error("the index of declared ranges does not match the pools")]
    Declared,
    /// The index of ranges whose occupants are no claims.
    #[error("the index of ranges without a claim does not match the ledger")]
    Unclaimed,
    /// The overlaps of the pool with older ones.
    #[error("the overlaps of pool {0} do not match its ranges")]
    Overlaps(PoolName),
    /// The free blocks of a pool in a family and of a prefix length.
    #[error("{1} /{2} of pool {0}: {3}")]
    FreeBlocks(PoolName, Family, u8, FreeBlocksDifference),
    /// The addresses on the CiliumNode of this node.
    #[error("the ranges on CiliumNode {0} do not match the ledger")]
    Carried(NodeName),
}

/// How the free blocks of a pool differ from the correct ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum FreeBlocksDifference {
    /// They are kept and should not be, or the other way round.
    #[error("free blocks exist for closed ranges, or do not exist for open ones")]
    Existence,
    /// Their grid is not that of the pool.
    #[error("the blocks do not match the ranges")]
    Grid,
    /// Blocks are free that should not be: the dangerous one.
    #[error("a taken block counts as free")]
    FreeThoughTaken,
    /// Blocks are not free that should be.
    #[error("a free block counts as taken")]
    TakenThoughFree,
    /// The free blocks are right, and an index of them is not.
    #[error("the free blocks are in the wrong order")]
    Index,
}

fn compare(kept: Option<&FreeBlocks>, fresh: Option<&FreeBlocks>) -> Option<FreeBlocksDifference> {
    let (kept, fresh) = match (kept, fresh) {
        (None, None) => return None,
        (Some(_), None) | (None, Some(_)) => return Some(FreeBlocksDifference::Existence),
        (Some(kept), Some(fresh)) => (kept, fresh),
    };
    if kept == fresh {
        None
    } else if kept.grid() != fresh.grid() {
        Some(FreeBlocksDifference::Grid)
    } else if !kept.is_within(fresh) {
        Some(FreeBlocksDifference::FreeThoughTaken)
    } else if !fresh.is_within(kept) {
        Some(FreeBlocksDifference::TakenThoughFree)
    } else {
        Some(FreeBlocksDifference::Index)
    }
}

/// The free blocks of a pool with this grid, given all taken ranges.
fn free_blocks_of(grid: Grid, taken: &PrefixIndex<Occupant>) -> FreeBlocks {
    // Whole pairs, because a held block keeps its buddy for its holder even if only the buddy is the pool's own.
    let regions: Vec<Cidr> = grid
        .own()
        .runs()
        .flat_map(|run| {
            let (first, last) = (run.first.lower_of_pair(), run.last.upper_of_pair());
            Cidr::cover_of(grid.block(first).first(), grid.block(last).last())
        })
        .collect();
    let mut free_blocks = FreeBlocks::new(grid);
    for region in regions {
        for (cidr, occupant) in taken.overlapping(region) {
            free_blocks.occupy(cidr);
            if occupant.is_claim() {
                free_blocks.hold(cidr);
            }
        }
    }
    free_blocks
}
