//! The ranges that each pool declares, and the blocks that it can give of them.
//!
//! Keeps one invariant: a change of one pool leaves the ledger as if all pools had been set anew. It looks only at that
//! pool and at those whose ranges overlap its ranges, before or after the change.

use std::collections::{BTreeMap, BTreeSet};

use super::declarer::{Declaration, Declarer};
use super::free_blocks::FreeBlocks;
use super::grid::{Declared, Grid, overlaps};
use super::{Ledger, Offer, free_blocks_of};
use crate::model::names::PoolName;
use crate::model::pool::{Pool, Reservation};
use crate::net::cidr::{Cidr, Family};

impl Ledger {
    /// Replaces all pools. Free blocks are computed anew only for pools whose blocks change.
    ///
    /// Of two pools that overlap, the older one (by creation, then uid) keeps every range that it declares, in any
    /// state and as a whole. The younger one loses every block that overlaps such a range. A pool in `reserved` keeps
    /// its known ranges in the same way, and gives out none of them.
    pub fn set_pools<'a>(
        &mut self,
        pools: impl IntoIterator<Item = &'a Pool>,
        reserved: impl IntoIterator<Item = &'a Reservation>,
    ) {
        let declarations: BTreeMap<PoolName, Declaration<'a>> = pools
            .into_iter()
            .map(|pool| (pool.name.clone(), Ok(pool)))
            .chain(reserved.into_iter().map(|reserved| (reserved.name.clone(), Err(reserved))))
            .collect();
        self.declared = Declared::default();
        self.declarers = BTreeMap::new();
        self.pools.retain(|name, _| declarations.contains_key(name));
        for (name, declaration) in &declarations {
            self.declare(name, Declarer::of(*declaration));
        }
        for (name, declaration) in &declarations {
            self.offer(name, Some(*declaration));
        }
    }

    /// Replaces the declaration of this pool. `declaration` returns the present one of any pool, and `None` for a pool
    /// that no longer exists. Returns the pools whose blocks, or whose overlaps with older pools, have changed.
    pub fn set_pool<'a>(
        &mut self,
        name: &PoolName,
        declaration: impl Fn(&PoolName) -> Option<Declaration<'a>>,
    ) -> BTreeSet<PoolName> {
        let before = self.declarers.remove(name);
        let mut ranges: BTreeSet<(Cidr, Family)> =
            before.into_iter().flat_map(|declarer| declarer.ranges).collect();
        for (range, family) in &ranges {
            self.declared.remove(*range, &(name.clone(), *family));
        }
        if let Some(declaration) = declaration(name) {
            let declarer = Declarer::of(declaration);
            ranges.extend(&declarer.ranges);
            self.declare(name, declarer);
        }
        let mut concerned: BTreeSet<PoolName> = [name.clone()].into();
        for (range, _) in ranges {
            concerned.extend(self.declared.overlapping(range).map(|(_, (pool, _))| pool.clone()));
        }
        concerned.retain(|pool| self.offer(pool, declaration(pool)));
        concerned
    }

    fn declare(&mut self, name: &PoolName, declarer: Declarer) {
        for (range, family) in &declarer.ranges {
            self.declared.insert(*range, (name.clone(), *family));
        }
        self.declarers.insert(name.clone(), declarer);
    }

    /// Computes the offer of a pool, now that all ranges are declared. Returns whether it differs from the offer
    /// before.
    fn offer(&mut self, name: &PoolName, declaration: Option<Declaration<'_>>) -> bool {
        let Some(Ok(pool)) = declaration else {
            return self.pools.remove(name).is_some();
        };
        let before = self.pools.remove(name);
        let mut is_other = before.is_none();
        let mut before = before.unwrap_or_default();
        let mut offer = Offer::default();
        for (family, ranges) in &pool.families {
            let older = self.older_than(pool, *family);
            offer.overlaps.extend(overlaps(ranges, &older));
            let sizes = ranges.sizes();
            let (Some(widest), Some(narrowest)) = (sizes.first(), sizes.last()) else { continue };
            for level in (*widest..=*narrowest).map(|prefix| (*family, prefix)) {
                let Some(grid) = Grid::of(pool, level, &older) else { continue };
                let kept = before.free_blocks.remove(&level);
                let kept = kept.filter(|free_blocks| *free_blocks.grid() == grid);
                is_other |= kept.is_none();
                let free_blocks: FreeBlocks = kept.unwrap_or_else(|| free_blocks_of(grid, &self.taken));
                offer.free_blocks.insert(level, free_blocks);
            }
        }
        // Of several older pools, the oldest keeps their common addresses, so it is named first.
        offer
            .overlaps
            .sort_by_key(|lost| self.declarers.get(&lost.older).map(|declarer| declarer.age.clone()));
        is_other |= !before.free_blocks.is_empty() || before.overlaps != offer.overlaps;
        self.pools.insert(name.clone(), offer);
        is_other
    }

    /// The ranges of older pools that overlap those of this one.
    fn older_than(&self, pool: &Pool, family: Family) -> Declared {
        let mut older = Declared::default();
        let Some(age) = self.declarers.get(&pool.name).map(|declarer| &declarer.age) else {
            return older;
        };
        for range in pool.families.get(&family).into_iter().flat_map(|ranges| ranges.cidrs.keys()) {
            for (theirs, (name, family)) in self.declared.overlapping(*range) {
                if self.declarers.get(name).is_some_and(|other| other.age < *age) {
                    older.insert(theirs, (name.clone(), *family));
                }
            }
        }
        older
    }
}
