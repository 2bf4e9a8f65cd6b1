//! Which pools select which nodes, and the claims of each pool.
//!
//! An edit of one pool looks at that pool only. Its selector, if that has changed, is compared with the labels of every
//! node. The nodes that it selects or selected decide again, and those that have blocks of it or wait for some.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kube_core::{Expression, SelectorExt};

use super::index::remove;
use super::node_entries::NodeEntry;
use super::{KnownClaim, World, readable};
use crate::model::names::{NodeName, PodIpPoolName, PoolName};
use crate::model::observation::PoolObject;
use crate::model::pool::Pool;
use crate::net::cidr::{Cidr, Family};

impl World {
    /// The nodes that a pool selects, by name.
    pub fn nodes_of_pool(&self, pool: &PoolName) -> impl Iterator<Item = &NodeName> {
        self.selected.get(pool).into_iter().flatten()
    }

    /// The claims that name this pool, in numeric order.
    pub fn claims_of_pool(&self, pool: &PoolName) -> impl Iterator<Item = &KnownClaim> {
        self.claims_in.get(pool).into_iter().flatten().filter_map(|cidr| self.claim(*cidr))
    }

    /// Whether a block of this pool may exist: it has a claim, readable or not, or one that is being created, or a lost
    /// one that still takes its range. Costs a pass over the lost claims.
    #[must_use]
    pub fn may_have_blocks(&self, pool: &PoolName) -> bool {
        let mut created = self.in_flight.values().filter_map(|sent| Some(&sent.creates.as_ref()?.1));
        let lost = self.lost_claims.values().flat_map(BTreeMap::values);
        let mut lost = lost.filter_map(|lost| Some(&lost.claim.as_ref()?.pool));
        self.claims_of_pool(pool).next().is_some()
            || created.any(|of| of == pool)
            || lost.any(|of| of == pool)
            || self.unreadable.has_claim_in(pool)
    }

    /// The pools that select a node with these labels, in the order in which it asks them.
    pub(super) fn selected_by(&self, labels: &BTreeMap<String, String>) -> Vec<PoolName> {
        in_order(readable(&self.pools).filter(|pool| pool.selector.matches(labels)).collect())
    }

    /// These pools select the node, in this order; none if the node was deleted.
    pub(super) fn set_selection(&mut self, node: &NodeName, pools: Vec<PoolName>) {
        let selection = &mut self.entries.of(node).selection;
        for pool in selection.iter() {
            remove(&mut self.selected, pool, node);
        }
        for pool in &pools {
            self.selected.entry(pool.clone()).or_default().insert(node.clone());
        }
        *selection = pools;
    }

    /// The claim of this block names the pool `after` now, in place of `before`.
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

    /// The declaration of a pool has changed, or the pool was deleted. `before` is its earlier version.
    pub(super) fn pool_changed(&mut self, name: &PoolName, before: Option<&PoolObject>) {
        let mut nodes: BTreeSet<NodeName> = self.nodes_of_pool(name).cloned().collect();
        self.select_with(name, before);
        let given = self.families_given_out(name, before);
        let (pools, ledger) = (&self.pools, &mut self.ledger);
        let concerned = ledger.set_pool(name, |name| pools.get(name).map(PoolObject::declaration));
        if given != self.families_given_out(name, self.pools.get(name)) {
            // A pool without nodes reports whether any pool has the family that it lacks.
            self.mark_all_pools();
        }
        for pool in [name].into_iter().chain(&concerned) {
            nodes.extend(self.selected.get(pool).into_iter().flatten().cloned());
            if self.pools.contains_key(pool) {
                self.agenda.mark_pool(pool);
            }
        }
        self.mark_pools_named_as(name, before);
        // The pool decides how long their blocks cool, and when it is nearly full.
        nodes.extend(self.claims_of_pool(name).map(|known| known.claim.node.clone()));
        self.mark_nodes(nodes);
        let ranges: BTreeSet<Cidr> =
            [before, self.pools.get(name)].into_iter().flatten().flat_map(ranges).collect();
        for range in ranges {
            // The status of a younger pool reports the state of the older one.
            self.mark_pools_over(range);
            if !concerned.is_empty() {
                // A node that carries a block there may claim it, and a node that waits for a younger pool may get one.
                self.addresses_released(range);
            }
        }
    }

    /// The status of a pool shows other sizes of its blocks. A node that carries a block of such a size may claim it, and
    /// in a pool with several sizes a CiliumPodIPPool may no longer fit.
    pub(super) fn sizes_changed(&mut self, name: &PoolName) {
        let nodes: BTreeSet<NodeName> = self.nodes_of_pool(name).cloned().collect();
        self.mark_nodes(nodes);
        for range in self.pools.get(name).map(ranges).unwrap_or_default() {
            self.addresses_released(range);
        }
    }

    /// The families in which any pool gives out blocks, if the pool of this name is `object`. Costs a pass over the
    /// pools if none does.
    fn families_given_out(&self, name: &PoolName, object: Option<&PoolObject>) -> [bool; 2] {
        let pool = object.and_then(|object| object.pool.as_ref().ok());
        Family::ALL.map(|family| {
            let others = readable(&self.pools).filter(|other| other.name != *name);
            others.chain(pool).any(|pool| self.gives_out_of(pool, family))
        })
    }

    /// Marks the pools whose blocks have the present or earlier name of this one: their status reports their sizes.
    fn mark_pools_named_as(&mut self, name: &PoolName, before: Option<&PoolObject>) {
        if !self.reader().traits().has_pod_ip_pools {
            return;
        }
        let changed = [before, self.pools.get(name)].into_iter().flatten();
        let changed = changed.filter_map(|object| object.pool.as_ref().ok());
        let names: BTreeSet<&PodIpPoolName> = changed.flat_map(|pool| self.names_of_pool(pool)).collect();
        let is_named_so = |pool: &&Pool| names.iter().any(|name| self.gives_under(pool, name));
        let named_so: Vec<PoolName> =
            readable(&self.pools).filter(is_named_so).map(|pool| pool.name.clone()).collect();
        for pool in named_so {
            self.agenda.mark_pool(&pool);
        }
    }

    /// Compares the labels of every node with the selector of this pool, if that has changed. If only its place in the
    /// order has changed, updates it for the nodes that it selects.
    fn select_with(&mut self, name: &PoolName, before: Option<&PoolObject>) {
        let pools = &self.pools;
        let readable = |name: &PoolName| pools.get(name).and_then(|object| object.pool.as_ref().ok());
        let after = readable(name);
        let before = before.and_then(|object| object.pool.as_ref().ok());
        let selects_the_same = before.map(|pool| &pool.selector) == after.map(|pool| &pool.selector);
        if selects_the_same && before.map(|pool| pool.priority) == after.map(|pool| pool.priority) {
            return;
        }
        let was_selected = self.selected.remove(name).unwrap_or_default();
        let mut is_selected = BTreeSet::new();
        let compared: Vec<NodeName> = if selects_the_same {
            was_selected.iter().cloned().collect()
        } else {
            self.nodes().map(|node| node.name.clone()).collect()
        };
        for node in compared {
            let Some(NodeEntry { node: Some(object), selection, .. }) = self.entries.get_mut(&node) else {
                continue;
            };
            let pool = after.filter(|pool| pool.selector.matches(&object.labels));
            if pool.is_none() && !was_selected.contains(&node) {
                continue;
            }
            selection.retain(|other| other != name);
            if let Some(pool) = pool {
                let is_before = |other: &PoolName| readable(other).map(place) < Some(place(pool));
                selection.insert(selection.partition_point(is_before), name.clone());
                is_selected.insert(node);
            }
        }
        if !is_selected.is_empty() {
            self.selected.insert(name.clone(), is_selected);
        }
    }
}

/// These pools in the order in which a node asks them.
fn in_order(mut pools: Vec<&Pool>) -> Vec<PoolName> {
    pools.sort_by_key(|pool| place(pool));
    pools.into_iter().map(|pool| pool.name.clone()).collect()
}

/// The selectors of all pools, prepared for many nodes. Pools may ask for a value of a label, as those of zones do.
/// Then a node is compared with those that ask for one of its values, and not with every pool.
pub(super) struct Selectors<'a> {
    /// Pools that select only nodes with this value of a label. A pool is noted once per value, and for one label.
    by_label: BTreeMap<(String, String), Vec<&'a Pool>>,
    /// The pools that ask for no value.
    others: Vec<&'a Pool>,
}

impl<'a> Selectors<'a> {
    pub(super) fn of(pools: impl Iterator<Item = &'a Pool>) -> Self {
        let mut selectors = Self { by_label: BTreeMap::new(), others: Vec::new() };
        for pool in pools {
            match pool.selector.clone().into_iter().find_map(labels_asked_for) {
                None => selectors.others.push(pool),
                Some(labels) => {
                    for label in labels {
                        selectors.by_label.entry(label).or_default().push(pool);
                    }
                }
            }
        }
        selectors
    }

    /// The pools that select a node with these labels, in the order in which it asks them.
    pub(super) fn select(&self, labels: &BTreeMap<String, String>) -> Vec<PoolName> {
        let of_label = |(key, value): (&String, &String)| self.by_label.get(&(key.clone(), value.clone()));
        let candidates = labels.iter().filter_map(of_label).flatten().chain(&self.others);
        in_order(candidates.filter(|pool| pool.selector.matches(labels)).copied().collect())
    }
}

/// If the term asks for values: the labels from which a node must have one.
fn labels_asked_for(term: Expression) -> Option<BTreeSet<(String, String)>> {
    match term {
        Expression::In(key, values) => Some(values.into_iter().map(|value| (key.clone(), value)).collect()),
        Expression::Equal(key, value) => Some([(key, value)].into()),
        Expression::NotIn(..)
        | Expression::NotEqual(..)
        | Expression::Exists(_)
        | Expression::DoesNotExist(_) => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::grid::tests::pool;

    /// The self-check must not pass over every pool for each node, and must have the same result.
    #[test]
    fn prepared_selectors_select_what_each_selector_does() {
        let zone = || "zone".to_owned();
        let values =
            |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<String>>();
        let a = || "a".to_owned();
        let terms: Vec<Vec<Expression>> = vec![
            vec![],
            vec![Expression::Equal(zone(), a())],
            vec![Expression::In(zone(), values(&["a", "b"]))],
            vec![Expression::In(zone(), values(&[]))],
            vec![Expression::NotIn(zone(), values(&["a"]))],
            vec![Expression::NotEqual(zone(), a())],
            vec![Expression::Exists(zone())],
            vec![Expression::DoesNotExist(zone())],
            vec![Expression::Exists("rack".to_owned()), Expression::Equal(zone(), a())],
            vec![Expression::Equal(zone(), a()), Expression::Equal("rack".to_owned(), a())],
        ];
        let pools: Vec<Pool> = terms
            .into_iter()
            .enumerate()
            .map(|(place, terms)| {
                let mut pool = pool(&format!("p{place}"), 28, &["10.0.0.0/24"]);
                pool.selector = terms.into_iter().collect();
                pool.priority = i32::try_from(place % 3).expect("it is below 3");
                pool
            })
            .collect();
        let selectors = Selectors::of(pools.iter());
        for labels in
            [&[][..], &[("zone", "a")], &[("zone", "b")], &[("zone", "c")], &[("zone", "a"), ("rack", "a")]]
        {
            let labels: BTreeMap<String, String> =
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let expected = in_order(pools.iter().filter(|pool| pool.selector.matches(&labels)).collect());
            assert_eq!(selectors.select(&labels), expected, "{labels:?}");
        }
    }
}
