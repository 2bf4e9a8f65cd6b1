//! Counts per pool: blocks and addresses by their state, and nodes by how they are served.
//!
//! The status of a pool and the metrics show the same counts. One invariant holds whatever the objects say: a part is
//! never more than its whole. If an object says more, either the whole is raised or the part is capped.

use std::collections::BTreeMap;

use crate::model::claim::{Claim, ClaimState};
use crate::model::names::{NodeName, PoolName};
use crate::model::stable_names;
use crate::model::status::{FamilyCounts, NodeCounts, capped_count};
use crate::net::cidr::Family;
use crate::world::{Serving, World};

/// The counts of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// The nodes that it selects.
    pub nodes: NodeCounts,
    /// Its blocks and addresses, by family.
    pub families: BTreeMap<Family, FamilyCounts>,
}

stable_names! {
    /// How a node is served: each node counts once.
    pub enum NodeState {
        /// No pool selects it.
        Unselected => "unselected",
        /// It asks for a block that none of its pools has.
        Waiting => "waiting",
        /// A block of ours is carried by its CiliumNode.
        Served => "served",
        /// A pool selects it, but its CiliumNode carries no block of ours yet, or does not exist.
        Pending => "pending",
    }
}

/// How a node is served.
#[must_use]
pub fn node_state(world: &World, node: &NodeName) -> NodeState {
    if world.pools_of(node).next().is_none() {
        NodeState::Unselected
    } else if world.serving(node).is_some_and(Serving::waits_for_capacity) {
        NodeState::Waiting
    } else if world.is_served(node) {
        NodeState::Served
    } else {
        NodeState::Pending
    }
}

/// The counts of one pool. Costs a pass over the nodes and the claims.
#[must_use]
pub fn of(world: &World, name: &PoolName) -> Tally {
    let mut tally = Tally::start(world, name);
    for node in world.nodes() {
        if world.pools_of(&node.name).any(|pool| pool.name == *name) {
            tally.add_node(node_state(world, &node.name));
        }
    }
    for known in world.claims().filter(|known| known.claim.pool == *name) {
        tally.add_claim(world, &known.claim);
    }
    tally.finish(world, name);
    tally
}

/// The counts of every pool, in one pass over the nodes and the claims.
#[must_use]
pub fn of_all(world: &World) -> BTreeMap<PoolName, Tally> {
    let mut tallies: BTreeMap<PoolName, Tally> =
        world.pool_objects().map(|object| (object.name.clone(), Tally::start(world, &object.name))).collect();
    for node in world.nodes() {
        let state = node_state(world, &node.name);
        for pool in world.pools_of(&node.name) {
            if let Some(tally) = tallies.get_mut(&pool.name) {
                tally.add_node(state);
            }
        }
    }
    for known in world.claims() {
        if let Some(tally) = tallies.get_mut(&known.claim.pool) {
            tally.add_claim(world, &known.claim);
        }
    }
    for (name, tally) in &mut tallies {
        tally.finish(world, name);
    }
    tallies
}

impl Tally {
    /// Blocks as the ledger counts them; nodes and claims are added one by one.
    fn start(world: &World, name: &PoolName) -> Self {
        let families = world.pool(name).into_iter().flat_map(|pool| pool.families.keys()).map(|family| {
            let (blocks, free) = world
                .ledger()
                .counts(name, *family)
                .map_or((0, 0), |counts| (capped_count(counts.total), capped_count(counts.free)));
            (*family, FamilyCounts { blocks, free, ..FamilyCounts::default() })
        });
        Self { nodes: NodeCounts::default(), families: families.collect() }
    }

    fn add_node(&mut self, state: NodeState) {
        self.nodes.selected += 1;
        match state {
            NodeState::Served => self.nodes.served += 1,
            NodeState::Waiting => self.nodes.waiting += 1,
            NodeState::Pending | NodeState::Unselected => {}
        }
    }

    fn add_claim(&mut self, world: &World, claim: &Claim) {
        let Some(counts) = self.families.get_mut(&claim.cidr.family()) else {
            return;
        };
        match claim.state {
            ClaimState::Held => counts.held += 1,
            ClaimState::Draining(_) | ClaimState::Releasing(_) => counts.draining += 1,
            ClaimState::Cooling(_) => counts.cooling += 1,
        }
        let Some(carrier) = world.carrier(&claim.node) else {
            return;
        };
        let published = capped_count(world.reader().n_published_in(carrier, claim.cidr));
        let used = capped_count(world.reader().n_used_in(carrier, claim.cidr));
        counts.published += published;
        // An address that is no longer published may still be in use.
        counts.used += used.min(published);
    }

    /// Computes what depends on all claims of the pool.
    fn finish(&mut self, world: &World, name: &PoolName) {
        let Some(pool) = world.pool(name) else {
            return;
        };
        for (family, counts) in &mut self.families {
            let claimed = counts.held + counts.draining + counts.cooling;
            // A block that can no longer be cut from the pool may still be claimed.
            counts.blocks = counts.blocks.max(capped_count(u128::from(claimed) + u128::from(counts.free)));
            let unpublished = u128::from(counts.free).saturating_mul(pool.max_offered(*family));
            let unused = counts.published.saturating_sub(counts.used);
            counts.addresses_free = capped_count(unpublished.saturating_add(u128::from(unused)));
        }
    }
}
