//! The object of a pool: its status as it follows from the world, and the finalizer that keeps it while a block of it
//! exists.

use std::collections::BTreeMap;
use std::time::Duration;

use super::block::Family;
use super::grid::Overlap;
use super::names::PoolName;
use super::pool::{Pool, RangeState, ReclaimMode};
use super::tally::{self, Tally};
use crate::world::observe::PoolObject;
use crate::world::status::{Condition, ConditionReason, ConditionType, FamilyCounts, NodeCounts, PoolStatus};
use crate::world::write::{ObjectKey, PoolFinalizersWrite, PoolStatusWrite, Write};
use crate::world::{Now, World};

/// The shortest time between two looks at one pool's status, and so between two writes of it: it changes with every
/// pod, and counting is a pass over the cluster.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// What to do about the object of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum PoolPlan {
    /// There is nothing to look at now.
    Unchanged,
    /// It was looked at, and says what is the case.
    Shown,
    /// It was looked at just now, or its writes fail; look again at that time.
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
    if let Some(until) = world.pool_pause(name).later_than(now) {
        return PoolPlan::Later(until);
    }
    if let Some(finalizers) = finalizers(world, object) {
        return PoolPlan::Write(Write::PoolFinalizers(PoolFinalizersWrite {
            pool: name.clone(),
            uid: object.uid.clone(),
            revision: object.revision,
            finalizers,
        }));
    }
    if let Some(looked) = world.status_looked_at(name)
        && looked + STATUS_INTERVAL > now.uptime
    {
        return PoolPlan::Later(looked + STATUS_INTERVAL);
    }
    let status = status(world, object);
    if status == object.status {
        return PoolPlan::Shown;
    }
    let transitions = status
        .conditions
        .iter()
        .map(|(kind, condition)| {
            let before = object.status.conditions.get(kind).filter(|before| before.holds == condition.holds);
            let since = before.and_then(|_| object.transitions.get(kind.as_str())).copied();
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

/// The finalizers that the pool should have, where it has others. Ours is set as soon as the pool is seen, and
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
    let told = match &object.pool {
        Err(invalid) => vec![(ConditionReason::Invalid, invalid.findings.join("; "))],
        Ok(pool) => vec![
            ready(pool, &tally.families),
            overlapping(world.ledger().overlaps(&pool.name)),
            exhausted(&tally.families, tally.nodes),
            limited(pool),
        ],
    };
    told.into_iter()
        .map(|(reason, message)| {
            let message = message.chars().take(MAX_MESSAGE).collect();
            let condition = Condition { holds: reason.holds(), reason: reason.as_str().into(), message };
            (reason.condition(), condition)
        })
        .collect()
}

/// The most characters in the message of a condition, as the API allows (metav1.Condition). An invalid pool may have
/// findings without end.
const MAX_MESSAGE: usize = 32_768;

/// A reason, and a sentence for a person.
type Told = (ConditionReason, String);

fn ready(pool: &Pool, families: &BTreeMap<Family, FamilyCounts>) -> Told {
    if pool.deleting {
        (ConditionReason::Deleting, "the pool is being deleted and gives out no blocks".to_owned())
    } else if families.values().all(|counts| counts.blocks == 0) {
        (ConditionReason::Empty, "no CIDR of the pool has room for a block".to_owned())
    } else {
        (ConditionReason::Serving, "nodes that the selector matches get blocks".to_owned())
    }
}

fn overlapping(overlaps: &[Overlap]) -> Told {
    match overlaps.first() {
        None => (ConditionReason::NoOverlap, "no older pool declares any of these addresses".to_owned()),
        Some(overlap) => (
            ConditionReason::OverlapsOlderPool,
            format!(
                "{} overlaps {} of pool {}, which is older and keeps it; {} overlaps in all",
                overlap.mine,
                overlap.theirs,
                overlap.older,
                overlaps.len()
            ),
        ),
    }
}

fn exhausted(families: &BTreeMap<Family, FamilyCounts>, nodes: NodeCounts) -> Told {
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

/// What the API already offers and this version does not do yet.
fn limited(pool: &Pool) -> Told {
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
