//! Which pools select which nodes, and which claims are of which pool.
//!
//! An edit of one pool looks at that pool only: its selector is compared with the labels of every node, and whoever it
//! selects, or selected, decides again, as do the nodes that have blocks of it or wait for some.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kube_core::SelectorExt;

use super::{KnownClaim, World, readable};
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::PoolObject;
use crate::model::pool::Pool;
use crate::net::cidr::Cidr;

impl World {
    /// The nodes that a pool selects, by name.
    pub fn nodes_of_pool(&self, pool: &PoolName) -> impl Iterator<Item = &NodeName> {
        self.selected.get(pool).into_iter().flatten()
    }

    /// The claims that name this pool, in numeric order.
    pub fn claims_of_pool(&self, pool: &PoolName) -> impl Iterator<Item = &KnownClaim> {
        self.claims_in.get(pool).into_iter().flatten().filter_map(|cidr| self.claims.get(cidr))
    }

    /// Whether a block of this pool may exist: there is a claim of it, readable or not, or one is being created, or was
    /// lost and still takes its range. Costs a pass over the claims that could not be read and those that were lost.
    #[must_use]
    pub fn may_have_blocks(&self, pool: &PoolName) -> bool {
        let mut created = self.in_flight.values().filter_map(|sent| Some(&sent.creates.as_ref()?.1));
        let mut lost = self.lost_claims.iter().filter_map(|(_, lost)| Some(&lost.claim.as_ref()?.pool));
        let mut unreadable = self.unreadable.values().filter_map(|unreadable| unreadable.pool.as_ref());
        self.claims_of_pool(pool).next().is_some()
            || created.any(|of| of == pool)
            || lost.any(|of| of == pool)
            || unreadable.any(|of| of == pool)
    }

    /// The pools that select a node with these labels, in the order in which it asks them.
    pub(super) fn selected_by(&self, labels: &BTreeMap<String, String>) -> Vec<PoolName> {
        let mut pools: Vec<&Pool> =
            readable(&self.pools).filter(|pool| pool.selector.matches(labels)).collect();
        pools.sort_by_key(|pool| place(pool));
        pools.into_iter().map(|pool| pool.name.clone()).collect()
    }

    /// These pools select the node, in this order; `None` if it is gone.
    pub(super) fn set_selection(&mut self, node: &NodeName, pools: Option<Vec<PoolName>>) {
        for pool in self.selection.remove(node).into_iter().flatten() {
            remove(&mut self.selected, &pool, node);
        }
        if let Some(pools) = pools {
            for pool in &pools {
                self.selected.entry(pool.clone()).or_default().insert(node.clone());
            }
            self.selection.insert(node.clone(), pools);
        }
    }

    /// The claim of this block names the pool `after` now, and named `before`.
    pub(super) fn move_claim(&mut self, cidr: Cidr, before: Option<&PoolName>, after: Option<&PoolName>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            remove(&mut self.claims_in, before, &cidr);
        }
        if let Some(after) = after {
            self.claims_in.entry(after.clone()).or_default().insert(cidr);
        }
    }

    /// A pool is declared in another way than before, or is gone. `before` is what it was.
    pub(super) fn pool_changed(&mut self, name: &PoolName, before: Option<&PoolObject>) {
        let mut nodes: BTreeSet<NodeName> = self.nodes_of_pool(name).cloned().collect();
        self.select_with(name, before);
        let pools = &self.pools;
        let concerned = self.ledger.set_pool(name, |name| pools.get(name).map(PoolObject::declaration));
        for pool in [name].into_iter().chain(&concerned) {
            nodes.extend(self.selected.get(pool).into_iter().flatten().cloned());
            if self.pools.contains_key(pool) {
                self.agenda.mark_pool(pool);
            }
        }
        // How long they cool, and what counts as nearly full.
        nodes.extend(self.claims_of_pool(name).map(|known| known.claim.node.clone()));
        for node in nodes {
            self.mark(&node);
        }
        let ranges: BTreeSet<Cidr> =
            [before, self.pools.get(name)].into_iter().flatten().flat_map(ranges).collect();
        for range in ranges {
            // The status of a younger pool says what becomes of the older one.
            self.mark_pools_over(range);
            if !concerned.is_empty() {
                // Who carries a block there may claim it, and who waits for a younger pool may get one.
                self.addresses_released(range);
            }
        }
    }

    /// Compares the labels of every node with the selector of this pool, if that or its place in the order is another
    /// than before.
    fn select_with(&mut self, name: &PoolName, before: Option<&PoolObject>) {
        let (pools, selection) = (&self.pools, &mut self.selection);
        let readable = |name: &PoolName| pools.get(name).and_then(|object| object.pool.as_ref().ok());
        let after = readable(name);
        let of = |pool: &Pool| (pool.selector.clone(), pool.priority);
        if before.and_then(|object| object.pool.as_ref().ok()).map(of) == after.map(of) {
            return;
        }
        let was_selected = self.selected.remove(name).unwrap_or_default();
        let mut is_selected = BTreeSet::new();
        for node in self.nodes.values() {
            let pool = after.filter(|pool| pool.selector.matches(&node.labels));
            if pool.is_none() && !was_selected.contains(&node.name) {
                continue;
            }
            let asked = selection.entry(node.name.clone()).or_default();
            asked.retain(|other| other != name);
            if let Some(pool) = pool {
                let is_before = |other: &PoolName| readable(other).map(place) < Some(place(pool));
                asked.insert(asked.partition_point(is_before), name.clone());
                is_selected.insert(node.name.clone());
            }
        }
        if !is_selected.is_empty() {
            self.selected.insert(name.clone(), is_selected);
        }
    }
}

/// The place of a pool among those that a node asks: by priority, then by name.
fn place(pool: &Pool) -> (Reverse<i32>, PoolName) {
    (Reverse(pool.priority), pool.name.clone())
}

/// The ranges that a pool declares, readable or not.
fn ranges(object: &PoolObject) -> BTreeSet<Cidr> {
    match object.declaration() {
        Ok(pool) => pool.families.values().flat_map(|ranges| ranges.cidrs.keys().copied()).collect(),
        Err(reserved) => reserved.cidrs.clone(),
    }
}

/// Removes an item of an index in which no list is empty.
fn remove<T: Ord>(index: &mut BTreeMap<PoolName, BTreeSet<T>>, pool: &PoolName, item: &T) {
    if let Some(items) = index.get_mut(pool) {
        items.remove(item);
        if items.is_empty() {
            index.remove(pool);
        }
    }
}
