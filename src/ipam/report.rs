//! The object of a pool: its status as it follows from the world, and the finalizer that keeps it while a block of it
//! exists.

use std::collections::BTreeMap;
use std::time::Duration;

use super::block::Family;
use super::claim::ClaimState;
use super::names::{NodeName, PoolName};
use super::pool::{FirstLast, Pool, RangeState, ReclaimMode};
use crate::world::observe::PoolObject;
use crate::world::status::{Condition, FamilyCounts, NodeCounts, PoolStatus, shown_count};
use crate::world::write::{ObjectKey, PoolFinalizersWrite, PoolStatusWrite, Write};
use crate::world::{Now, Serving, World};

/// The shortest time between two writes of one pool's status: it changes with every pod.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// What to do about the object of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum PoolPlan {
    /// It says what is the case.
    Unchanged,
    /// Its status was written just now; look again at that time.
    Later(Duration),
    /// Write this.
    Write(Write),
}

/// The finalizer that keeps a pool until its last block is gone.
pub const FINALIZER: &str = "nodeipam.io/pool";

/// What to do about the object of `name` now.
pub fn pool(world: &World, name: &PoolName, now: Now) -> PoolPlan {
    let Some(object) = world.pool_object(name) else {
        return PoolPlan::Unchanged;
    };
    if world.settings().is_none() || world.in_flight(&ObjectKey::Pool(name.clone())) {
        // The mode, or the answer, puts the pool on the agenda again.
        return PoolPlan::Unchanged;
    }
    if let Some(finalizers) = finalizers(world, object) {
        return PoolPlan::Write(Write::PoolFinalizers(PoolFinalizersWrite {
            pool: name.clone(),
            uid: object.uid.clone(),
            revision: object.revision,
            finalizers,
        }));
    }
    if let Some(written) = world.status_written(name)
        && written + STATUS_INTERVAL > now.uptime
    {
        return PoolPlan::Later(written + STATUS_INTERVAL);
    }
    let status = status(world, object);
    if status == object.status {
        return PoolPlan::Unchanged;
    }
    let transitions = status
        .conditions
        .iter()
        .map(|(kind, condition)| {
            let before = object.status.conditions.get(kind).filter(|before| before.holds == condition.holds);
            let since = before.and_then(|_| object.transitions.get(*kind)).copied();
            (*kind, since.unwrap_or(now.wall))
        })
        .collect();
    PoolPlan::Write(Write::PoolStatus(PoolStatusWrite {
        pool: name.clone(),
        uid: object.uid.clone(),
        revision: object.revision,
        status,
        transitions,
    }))
}

/// The finalizers that the pool should have, where it has others. Ours stands before the first block is claimed, and
/// goes when the pool is deleted and its last block is gone.
fn finalizers(world: &World, object: &PoolObject) -> Option<Vec<String>> {
    let has_ours = object.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if !object.deleting && !has_ours {
        let mut finalizers = object.finalizers.clone();
        finalizers.push(FINALIZER.to_owned());
        return Some(finalizers);
    }
    let in_use = || world.claims().any(|known| known.claim.pool == object.name);
    (object.deleting && has_ours && !in_use())
        .then(|| object.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect())
}

/// The status that the pool should show.
#[must_use]
pub fn status(world: &World, object: &PoolObject) -> PoolStatus {
    let families = object.pool.as_ref().map(|pool| families(world, pool)).unwrap_or_default();
    let nodes = node_counts(world, &object.name);
    PoolStatus {
        observed_generation: object.generation,
        conditions: conditions(world, object, &families, nodes),
        nodes,
        families,
    }
}

fn node_counts(world: &World, pool: &PoolName) -> NodeCounts {
    let mut counts = NodeCounts::default();
    for node in
        world.nodes().filter(|node| world.pools_of(&node.name).any(|selecting| selecting.name == *pool))
    {
        counts.selected += 1;
        if world.serving(&node.name).is_some_and(Serving::waits_for_capacity) {
            counts.waiting += 1;
        } else if is_served(world, &node.name) {
            counts.served += 1;
        }
    }
    counts
}

/// Whether a block of ours stands on the node's CiliumNode.
fn is_served(world: &World, node: &NodeName) -> bool {
    world.cilium_node(node).is_some_and(|cilium_node| {
        world.claims_of(node).any(|known| cilium_node.pod_cidrs.contains(&known.claim.cidr))
    })
}

fn families(world: &World, pool: &Pool) -> BTreeMap<Family, FamilyCounts> {
    let mut families: BTreeMap<Family, FamilyCounts> = pool
        .families
        .keys()
        .map(|family| {
            let counts = world.ledger().counts(&pool.name, *family);
            let (blocks, free) =
                counts.map_or((0, 0), |counts| (shown_count(counts.total), shown_count(counts.free)));
            (*family, FamilyCounts { blocks, free, ..FamilyCounts::default() })
        })
        .collect();
    for known in world.claims().filter(|known| known.claim.pool == pool.name) {
        let claim = &known.claim;
        let Some(counts) = families.get_mut(&claim.cidr.family()) else {
            continue;
        };
        match claim.state {
            ClaimState::Held => counts.held += 1,
            ClaimState::Draining | ClaimState::Releasing => counts.draining += 1,
            ClaimState::Cooling => counts.cooling += 1,
        }
        let Some(cilium_node) = world.cilium_node(&claim.node) else {
            continue;
        };
        counts.published += shown_count(cilium_node.pool.count_in(claim.cidr));
        let used = cilium_node.used.as_ref().map_or(0, |used| used.count_in(claim.cidr));
        counts.used += shown_count(used);
    }
    for (family, counts) in &mut families {
        let unpublished = u128::from(counts.free).saturating_mul(offered_by_a_block(pool, *family));
        let unused = counts.published.saturating_sub(counts.used);
        counts.addresses_free = shown_count(unpublished.saturating_add(u128::from(unused)));
    }
    families
}

/// How many addresses a block offers that no exclusion and no node address touches.
fn offered_by_a_block(pool: &Pool, family: Family) -> u128 {
    let Some(ranges) = pool.families.get(&family) else {
        return 0;
    };
    let size = 1u128 << family.bits().saturating_sub(ranges.block_prefix).min(127);
    if family == Family::V4 && pool.first_last == FirstLast::Withheld && size > 2 { size - 2 } else { size }
}

fn conditions(
    world: &World,
    object: &PoolObject,
    families: &BTreeMap<Family, FamilyCounts>,
    nodes: NodeCounts,
) -> BTreeMap<&'static str, Condition> {
    let mut conditions = BTreeMap::new();
    let pool = match &object.pool {
        Ok(pool) => pool,
        Err(findings) => {
            conditions.insert("Ready", condition(false, "Invalid", findings.join("; ")));
            return conditions;
        }
    };
    conditions.insert("Ready", ready(pool, families));
    let overlaps = world.ledger().overlaps(&pool.name);
    conditions.insert(
        "Overlapping",
        match overlaps.first() {
            None => condition(false, "NoOverlap", "no older pool declares any of these addresses".to_owned()),
            Some(overlap) => condition(
                true,
                "OverlapsOlderPool",
                format!(
                    "{} overlaps {} of pool {}, which is older and keeps it; {} overlaps in all",
                    overlap.mine,
                    overlap.theirs,
                    overlap.older,
                    overlaps.len()
                ),
            ),
        },
    );
    conditions.insert("Exhausted", exhausted(families, nodes));
    conditions.insert("Limited", limited(pool));
    conditions
}

fn ready(pool: &Pool, families: &BTreeMap<Family, FamilyCounts>) -> Condition {
    if pool.deleting {
        condition(false, "Deleting", "the pool is being deleted and gives out no blocks".to_owned())
    } else if families.values().all(|counts| counts.blocks == 0) {
        condition(false, "Empty", "no CIDR of the pool has room for a block".to_owned())
    } else {
        condition(true, "Serving", "nodes that the selector matches get blocks".to_owned())
    }
}

fn exhausted(families: &BTreeMap<Family, FamilyCounts>, nodes: NodeCounts) -> Condition {
    let full: Vec<String> = families
        .iter()
        .filter(|(_, counts)| counts.free == 0)
        .map(|(family, counts)| format!("{family}: none of {} blocks is free", counts.blocks))
        .collect();
    if full.is_empty() {
        condition(false, "FreeBlocks", "every family has a free block".to_owned())
    } else {
        condition(true, "NoFreeBlocks", format!("{}; {} nodes wait", full.join(", "), nodes.waiting))
    }
}

/// What the API already offers and this version does not do yet.
fn limited(pool: &Pool) -> Condition {
    let draining = pool
        .families
        .values()
        .flat_map(|ranges| ranges.cidrs.values())
        .any(|state| *state == RangeState::Draining);
    let mut limits = Vec::new();
    if pool.reclaim.mode != ReclaimMode::Disabled {
        limits.push("spec.reclaim has no effect in this version: no block is taken back from a node");
    }
    if draining {
        limits.push("state Draining acts as Cordoned in this version: its blocks stay where they are");
    }
    if limits.is_empty() {
        condition(false, "NoLimit", "everything that the pool asks for is done".to_owned())
    } else {
        condition(true, "NotYetImplemented", limits.join("; "))
    }
}

fn condition(holds: bool, reason: &'static str, message: String) -> Condition {
    Condition { holds, reason: reason.into(), message }
}
