//! The status of a pool as it follows from the world: its counts, and its conditions in words.

use std::collections::{BTreeMap, BTreeSet};

use super::tally::{self, Tally};
use crate::ledger::grid::Overlap;
use crate::model::names::{NodeName, PoolName, ten_of};
use crate::model::observation::PoolObject;
use crate::model::pool::{Pool, RangeState, ReclaimMode};
use crate::model::status::{Condition, ConditionReason, ConditionType, FamilyCounts, NodeCounts, PoolStatus};
use crate::net::cidr::Family;
use crate::world::World;

/// The status that the pool should show.
#[must_use]
pub fn status(world: &World, object: &PoolObject) -> PoolStatus {
    let tally = tally::of(world, &object.name);
    PoolStatus {
        observed_generation: object.generation,
        conditions: conditions(world, object, &tally),
        nodes: tally.nodes,
        families: tally.families,
    }
}

/// The conditions that the pool should show, given its counts.
pub(super) fn conditions(
    world: &World,
    object: &PoolObject,
    tally: &Tally,
) -> BTreeMap<ConditionType, Condition> {
    let explained = match &object.pool {
        Err(invalid) => vec![(ConditionReason::Invalid, invalid.findings.join("; "))],
        Ok(pool) => vec![
            ready(world, pool, &tally.families),
            overlapping(world, world.ledger().overlaps(&pool.name)),
            exhausted(&tally.families, tally.nodes),
            limited(pool),
        ],
    };
    explained
        .into_iter()
        .map(|(reason, message)| {
            let message = message.chars().take(MAX_MESSAGE).collect();
            let condition = Condition { holds: reason.holds(), reason: reason.as_str().into(), message };
            (reason.condition(), condition)
        })
        .collect()
}

/// The maximum number of characters in the message of a condition that the API allows (metav1.Condition). The findings
/// of an invalid pool may be longer.
const MAX_MESSAGE: usize = 32_768;

/// The reason of a condition, and a sentence for a person.
type Explained = (ConditionReason, String);

fn ready(world: &World, pool: &Pool, families: &BTreeMap<Family, FamilyCounts>) -> Explained {
    if pool.deleting {
        (ConditionReason::Deleting, deleting(world, pool, families))
    } else if families.values().all(|counts| counts.blocks == 0) {
        (ConditionReason::Empty, "no CIDR of the pool has room for a block".to_owned())
    } else {
        (ConditionReason::Serving, "nodes that the selector matches get blocks".to_owned())
    }
}

/// What keeps a pool that is being deleted, and what would end it. Costs a pass over the claims and the pools.
fn deleting(world: &World, pool: &Pool, families: &BTreeMap<Family, FamilyCounts>) -> String {
    let claims = world.claims().filter(|known| known.claim.pool == pool.name);
    let nodes: BTreeSet<&NodeName> = claims.map(|known| &known.claim.node).collect();
    let gives_nothing = "the pool is being deleted and gives out no blocks";
    if nodes.is_empty() {
        return format!("{gives_nothing}; none of its blocks is left");
    }
    let counts: Vec<String> = families
        .iter()
        .map(|(family, counts)| {
            format!("{family}: {} held, {} cooling", counts.held + counts.draining, counts.cooling)
        })
        .collect();
    let younger: BTreeSet<&PoolName> = younger_than(world, &pool.name).collect();
    let waiting = if younger.is_empty() {
        String::new()
    } else {
        format!("until then younger pools get none of its ranges: {}; ", ten_of(younger))
    };
    format!(
        "{gives_nothing}; it stays while a block of it is held or cools ({}), for nodes {}; {waiting}drain and delete \
         these nodes, and their blocks cool for its `reuseAfterNodeLoss`; or empty its `cidrs`, and younger pools get the \
         ranges at once, except for these blocks",
        counts.join(", "),
        ten_of(nodes),
    )
}

/// The pools from which this one, which is older, keeps ranges.
pub fn younger_than<'a>(world: &'a World, older: &PoolName) -> impl Iterator<Item = &'a PoolName> {
    let names = world.pool_objects().map(|object| &object.name);
    names.filter(move |name| world.ledger().overlaps(name).iter().any(|overlap| overlap.older == *older))
}

fn overlapping(world: &World, overlaps: &[Overlap]) -> Explained {
    let Some(overlap) = overlaps.first() else {
        return (ConditionReason::NoOverlap, "no older pool declares any of these addresses".to_owned());
    };
    let goes = if world.pool_object(&overlap.older).is_some_and(|older| older.deleting) {
        " until it is gone (it is being deleted; its condition Ready says what keeps it)"
    } else {
        ""
    };
    (
        ConditionReason::OverlapsOlderPool,
        format!(
            "{} overlaps {} of pool {}, which is older and keeps its addresses{goes}; {} overlaps in total",
            overlap.mine,
            overlap.theirs,
            overlap.older,
            overlaps.len()
        ),
    )
}

fn exhausted(families: &BTreeMap<Family, FamilyCounts>, nodes: NodeCounts) -> Explained {
    let full: Vec<String> = families
        .iter()
        .filter(|(_, counts)| counts.free == 0)
        .map(|(family, counts)| format!("{family}: none of {} blocks is free", counts.blocks))
        .collect();
    if full.is_empty() {
        (ConditionReason::FreeBlocks, "every family has a free block".to_owned())
    } else {
        (ConditionReason::NoFreeBlocks, format!("{}; {} nodes wait", full.join(", "), nodes.waiting))
    }
}

/// Whether the pool asks for something that the API offers and this version does not do yet.
fn limited(pool: &Pool) -> Explained {
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
        (ConditionReason::NoLimit, "everything that the pool asks for is done".to_owned())
    } else {
        (ConditionReason::NotYetImplemented, limits.join("; "))
    }
}
