//! Everything that is taken, by whom, and the free space of every pool kept in step with it.
//!
//! Knows no nodes, no states of claims and no objects: its owner tells it who takes what. Keeps one invariant: a block
//! of a pool is free if and only if nothing that is taken shares an address with it. [`Ledger::check`] computes all
//! that is kept anew and compares.
//!
//! A change looks only at the pools whose ranges it touches, and there only at the blocks that it touches.

pub mod block_numbers;
pub mod candidates;
pub mod free_blocks;
pub mod grid;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::names::{NodeName, PoolName, Revision, Uid};
use crate::model::pool::{Pool, Reservation};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::net::prefixes::PrefixIndex;
use free_blocks::FreeBlocks;
use grid::{Declared, Grid, Overlap};

/// Who takes a range. Any number may take the same, and ranges of different occupants may overlap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// The claim of exactly this range, in any state.
    Claim,
    /// The same, while its creation is on its way.
    Pending,
    /// The claim of this range, which went in a way that claims do not go. It takes the range until it is
    /// made again, or its lost node is known to have nothing of it later than this revision.
    LostClaim(Revision),
    /// It stands on the CiliumNode of this name, claimed or not; kept by [`Ledger::set_carried`] only.
    Carried(NodeName),
    /// An object of this name that cannot be read, but for this range.
    Unreadable(String),
}

impl Occupant {
    /// Whether it makes the range a block that a node holds, whose buddy is that node's next.
    fn is_holder(&self) -> bool {
        match self {
            Self::Claim | Self::Pending => true,
            Self::LostClaim(_) | Self::Carried(_) | Self::Unreadable(_) => false,
        }
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim => f.write_str("a claim"),
            Self::Pending => f.write_str("a claim that is being created"),
            Self::LostClaim(revision) => write!(f, "a claim that vanished at revision {revision}"),
            Self::Carried(node) => write!(f, "CiliumNode {node}"),
            Self::Unreadable(name) => write!(f, "the unreadable object {name}"),
        }
    }
}

/// How many blocks a pool has in one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The usable blocks, taken or not, and those that are still held in ranges that give out no more.
    pub total: u128,
    /// Those that may be given out now.
    pub free: u128,
}

/// Everything that is taken, and what is therefore free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    taken: PrefixIndex<Occupant>,
    /// What [`Occupant::Carried`] entries come from, to find the difference to the next version.
    carried: BTreeMap<NodeName, AddressSet>,
    declared: Declared,
    pools: BTreeMap<PoolName, Offer>,
}

/// What the ledger keeps of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Offer {
    free_blocks: BTreeMap<Family, FreeBlocks>,
    overlaps: Vec<Overlap>,
}

impl Ledger {
    /// A ledger of no pools in which nothing is taken.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `occupant` takes `cidr`; `false` when that was noted already.
    pub fn take(&mut self, cidr: Cidr, occupant: Occupant) -> bool {
        let is_holder = occupant.is_holder();
        if !self.taken.insert(cidr, occupant) {
            return false;
        }
        for (pool, family) in self.touched(cidr) {
            if let Some(space) = self.free_blocks_mut(&pool, family) {
                space.occupy(cidr);
                if is_holder {
                    space.hold(cidr);
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
        let is_held = self.taken.at(cidr).iter().any(Occupant::is_holder);
        for (pool, family) in self.touched(cidr) {
            // Not `free_blocks_mut`: `taken` is read while the space is written.
            let Some(space) = self.pools.get_mut(&pool).and_then(|offer| offer.free_blocks.get_mut(&family))
            else {
                continue;
            };
            if !is_held {
                space.unhold(cidr);
            }
            let region = space.grid().whole(cidr);
            space.vacate(region, self.taken.overlapping(region).map(|(other, _)| other));
        }
        true
    }

    /// Notes what lies on the CiliumNode of this name in place of what lay there before; empty when it is gone.
    pub fn set_carried(&mut self, node: &NodeName, carried: AddressSet) {
        let before = self.carried.remove(node).unwrap_or_default();
        if before != carried {
            let old: BTreeSet<Cidr> = before.cidrs().collect();
            let new: BTreeSet<Cidr> = carried.cidrs().collect();
            let occupant = Occupant::Carried(node.clone());
            // Taken before released: what stays, in other pieces, is at no time free.
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

    /// What lies on the CiliumNode of this name, as last noted.
    #[must_use]
    pub fn carried(&self, node: &NodeName) -> Option<&AddressSet> {
        self.carried.get(node)
    }

    /// Puts these pools in place of those before. Only the spaces of pools whose blocks change are computed anew.
    ///
    /// Of two pools that overlap the older (by creation, then uid) keeps the whole of every range that it
    /// declares, in whatever state; the newcomer loses every block that overlaps one. What a pool in `reserved` is
    /// known to declare it keeps in the same way, and gives none of it out.
    pub fn set_pools<'a>(
        &mut self,
        pools: &'a BTreeMap<PoolName, Pool>,
        reserved: impl IntoIterator<Item = &'a Reservation>,
    ) {
        let mut by_age: Vec<Declarer<'a>> = pools.values().map(Declarer::Pool).collect();
        by_age.extend(reserved.into_iter().map(Declarer::Reservation));
        by_age.sort_by_key(Declarer::age);
        let mut declared = Declared::default();
        let mut before = std::mem::take(&mut self.pools);
        for declarer in by_age {
            let pool = match declarer {
                Declarer::Pool(pool) => pool,
                Declarer::Reservation(reserved) => {
                    for range in &reserved.cidrs {
                        declared.insert(*range, (reserved.name.clone(), range.family()));
                    }
                    continue;
                }
            };
            let mut old = before.remove(&pool.name).unwrap_or_default();
            let mut offer = Offer::default();
            for family in pool.families.keys() {
                let Some((grid, lost)) = Grid::of(pool, *family, &declared) else { continue };
                let kept = old.free_blocks.remove(family).filter(|space| *space.grid() == grid);
                offer.free_blocks.insert(*family, kept.unwrap_or_else(|| free_blocks_of(grid, &self.taken)));
                offer.overlaps.extend(lost);
            }
            for (family, ranges) in &pool.families {
                for range in ranges.cidrs.keys() {
                    declared.insert(*range, (pool.name.clone(), *family));
                }
            }
            self.pools.insert(pool.name.clone(), offer);
        }
        self.declared = declared;
    }

    /// The free space of a pool; `None` when there is no such pool, or it has no such family.
    #[must_use]
    pub fn free_blocks(&self, pool: &PoolName, family: Family) -> Option<&FreeBlocks> {
        self.pools.get(pool)?.free_blocks.get(&family)
    }

    /// How many blocks a pool has in a family; `None` as for [`Self::free_blocks`].
    #[must_use]
    pub fn counts(&self, pool: &PoolName, family: Family) -> Option<Counts> {
        self.free_blocks(pool, family)
            .map(|space| Counts { total: space.total_count(), free: space.free_count() })
    }

    /// The ranges of a pool that it shares with older ones and therefore does not get.
    #[must_use]
    pub fn overlaps(&self, pool: &PoolName) -> &[Overlap] {
        self.pools.get(pool).map_or(&[], |offer| &offer.overlaps)
    }

    /// Everything taken that shares an address with `cidr`, by whom: widest first, then in numeric order.
    pub fn overlapping(&self, cidr: Cidr) -> impl Iterator<Item = (Cidr, &Occupant)> {
        self.taken.overlapping(cidr)
    }

    /// The claims that share an address with `cidr`, its own claim among them; also one that is being created.
    pub fn overlapping_claims(&self, cidr: Cidr) -> impl Iterator<Item = Cidr> {
        let mut last = None;
        self.taken
            .overlapping(cidr)
            .filter(|(_, occupant)| occupant.is_holder())
            .map(|(claimed, _)| claimed)
            // One may be there twice, as being created and as seen.
            .filter(move |claimed| last.replace(*claimed) != Some(*claimed))
    }

    /// Whether anything that is taken shares an address with `cidr`.
    #[must_use]
    pub fn is_taken(&self, cidr: Cidr) -> bool {
        self.taken.overlapping(cidr).next().is_some()
    }

    /// Who takes exactly `cidr`.
    #[must_use]
    pub fn occupants(&self, cidr: Cidr) -> &[Occupant] {
        self.taken.at(cidr)
    }

    /// Everything taken, by whom, in numeric order.
    pub fn entries(&self) -> impl Iterator<Item = (Cidr, &Occupant)> {
        self.taken.iter()
    }

    /// Computes everything anew from what is taken and from what pools declare, and returns where that is not what is
    /// kept.
    ///
    /// Costs as much as a start. Anything but an empty list is a defect of this program.
    #[must_use]
    pub fn check<'a>(
        &self,
        pools: &'a BTreeMap<PoolName, Pool>,
        reserved: impl IntoIterator<Item = &'a Reservation>,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut fresh = Self { taken: self.taken.clone(), ..Self::default() };
        fresh.set_pools(pools, reserved);
        let names: BTreeSet<&PoolName> = self.pools.keys().chain(fresh.pools.keys()).collect();
        for pool in names {
            if self.overlaps(pool) != fresh.overlaps(pool) {
                differences.push(Difference::Overlaps { pool: pool.clone() });
            }
            for family in Family::ALL {
                if let Some(difference) =
                    compare(self.free_blocks(pool, family), fresh.free_blocks(pool, family))
                {
                    differences.push(Difference::FreeBlocks { pool: pool.clone(), family, difference });
                }
            }
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
                differences.push(Difference::Carried { node: node.clone() });
            }
        }
        differences
    }

    /// The spaces for which a change of `cidr` can matter: those with a range that overlaps it or its buddy.
    fn touched(&self, cidr: Cidr) -> BTreeSet<(PoolName, Family)> {
        self.declared.overlapping(cidr.enlarged(1)).map(|(_, section)| section.clone()).collect()
    }

    /// The pools that declare an address of `cidr`, in whatever state: how many of their blocks are free may change
    /// with whoever takes it.
    pub fn pools_over(&self, cidr: Cidr) -> impl Iterator<Item = &PoolName> {
        self.declared.overlapping(cidr).map(|(_, (pool, _))| pool)
    }

    fn free_blocks_mut(&mut self, pool: &PoolName, family: Family) -> Option<&mut FreeBlocks> {
        self.pools.get_mut(pool)?.free_blocks.get_mut(&family)
    }
}

/// Whoever declares ranges.
#[derive(Clone, Copy)]
enum Declarer<'a> {
    Pool(&'a Pool),
    Reservation(&'a Reservation),
}

impl<'a> Declarer<'a> {
    /// What sorts the oldest first. Of two that were made within one second neither is, so any lasting order will do.
    fn age(&self) -> (Timestamp, &'a Uid, &'a PoolName) {
        match self {
            Self::Pool(pool) => (pool.created, &pool.uid, &pool.name),
            Self::Reservation(reserved) => (reserved.created, &reserved.uid, &reserved.name),
        }
    }
}

/// Something that the ledger keeps and that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Which ranges the pool loses to older ones.
    Overlaps {
        /// The pool.
        pool: PoolName,
    },
    /// The free space of a pool.
    FreeBlocks {
        /// The pool.
        pool: PoolName,
        /// The family.
        family: Family,
        /// How they differ.
        difference: FreeBlocksDifference,
    },
    /// What stands on a CiliumNode.
    Carried {
        /// The node.
        node: NodeName,
    },
}

/// How a space is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FreeBlocksDifference {
    /// It is there and should not be, or the other way round.
    Existence,
    /// Its blocks are not those that the pool has.
    Grid,
    /// Blocks are free that should not be: the dangerous one.
    FreeThoughTaken,
    /// Blocks are not free that should be.
    TakenThoughFree,
    /// The free blocks are right, and something derived from them is not.
    Index,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlaps { pool } => write!(f, "the overlaps of pool {pool} are not those of its ranges"),
            Self::FreeBlocks { pool, family, difference } => write!(
                f,
                "{family} of pool {pool}: {}",
                match difference {
                    FreeBlocksDifference::Existence =>
                        "there is a space where none should be, or none where one should",
                    FreeBlocksDifference::Grid => "the blocks are not those of its ranges",
                    FreeBlocksDifference::FreeThoughTaken => "a block counts as free that is taken",
                    FreeBlocksDifference::TakenThoughFree => "a block counts as taken that is free",
                    FreeBlocksDifference::Index => "the order of the free blocks is not what they imply",
                }
            ),
            Self::Carried { node } => {
                write!(f, "what is noted for CiliumNode {node} is not what is taken for it")
            }
        }
    }
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

/// The space of a pool with these blocks, given all that is taken.
fn free_blocks_of(grid: Grid, taken: &PrefixIndex<Occupant>) -> FreeBlocks {
    // The buddy of a pool's block counts as a holder even if it is not the pool's: take whole pairs.
    let regions: Vec<Cidr> = grid
        .own()
        .runs()
        .flat_map(|run| {
            let (first, last) = (run.first.lower_of_pair(), run.last.upper_of_pair());
            Cidr::cover_of(grid.block(first).first(), grid.block(last).last())
        })
        .collect();
    let mut space = FreeBlocks::new(grid);
    for region in regions {
        for (cidr, occupant) in taken.overlapping(region) {
            space.occupy(cidr);
            if occupant.is_holder() {
                space.hold(cidr);
            }
        }
    }
    space
}
