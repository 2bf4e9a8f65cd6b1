//! The writes for a pool: its status, the finalizer that keeps it while one of its blocks exists, and the statuses of
//! its claims. Also Cilium's own object of the name under which the pool gives blocks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pod_ip_pools;
use super::policy::Policy;
use crate::model::freeze::Switch;
use crate::model::leadership::Leadership;
use crate::model::names::PoolName;
use crate::model::observation::PoolObject;
use crate::model::plan::PoolPlan;
use crate::model::request::{ClaimStatusWrite, PoolFinalizersWrite, PoolStatusWrite, Target, Write};
use crate::model::status::{FamilyCounts, PoolStatus, Sample};
use crate::model::time::{Now, Timestamp};
use crate::net::cidr::Family;
use crate::view::conditions::status;
use crate::view::drains;
use crate::view::forecast;
use crate::view::waits;
use crate::world::World;

/// The minimum time between two computations of one pool's status, and so between two writes of it. The status
/// changes with every pod, and counting is a pass over the cluster.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of claim statuses that are written for one pool at a time. Each counts against the limit of
/// parallel writes, and nodes need those more.
const STATUSES_AT_ONCE: usize = 16;

/// How long a pool without blocks that is being deleted remains, if a younger pool waits for its ranges.
///
/// Pools that are deleted together arrive one after the other. Suppose that the first one were gone before the
/// deletion of the second is known. Then nodes would take blocks of the second in between, and these would keep it.
/// `kubectl delete` sends one request after the other, a few milliseconds apart.
const DELETION_SETTLES: Duration = Duration::from_secs(1);

/// The writes that are due for the pool `name`.
pub fn pool(world: &World, name: &PoolName, policy: Policy, now: Now) -> PoolPlan {
    let Some(object) = world.pool_object(name) else {
        return PoolPlan::Unchanged;
    };
    // A passive controller shows that it is passive, and writes nothing else.
    let is_passive = world.publisher().is_none();
    if world.leadership() == Leadership::StandsBy || world.is_in_flight(&Target::Pool(name.clone())) {
        // A change of the mode or of the lead, or the answer, puts the pool on the agenda again.
        return PoolPlan::Unchanged;
    }
    if world.pool_awaits_turn(name) {
        return PoolPlan::Unchanged;
    }
    if let Some(until) = world.pool_pause(name).later_than(now) {
        return PoolPlan::Later(until);
    }
    let settles = settles_at(world, object, now);
    if let Some(finalizers) = finalizers(world, object).filter(|_| settles.is_none() && !is_passive) {
        let write = Write::PoolFinalizers(PoolFinalizersWrite {
            pool: name.clone(),
            uid: object.uid.clone(),
            revision: object.revision,
            finalizers,
        });
        // The status is written all the same: it says which writes are frozen.
        if !world.freeze().stops_write(&write) {
            return PoolPlan::Write(vec![write]);
        }
    }
    if let Some(looked) = world.status_looked_at(name)
        && looked + STATUS_INTERVAL > now.uptime
    {
        return PoolPlan::Later(looked + STATUS_INTERVAL);
    }
    let mut writes: Vec<Write> =
        status_write(world, object, now).into_iter().map(Write::PoolStatus).collect();
    let up_to_date = || next_sample(object, now).map_or(PoolPlan::UpToDate, PoolPlan::UpToDateUntil);
    if is_passive {
        return if writes.is_empty() { up_to_date() } else { PoolPlan::Write(writes) };
    }
    writes.extend(claim_statuses(world, name).into_iter().map(Write::ClaimStatus));
    let of_cilium = pod_ip_pools::writes_due(world, object, policy).map(Write::PodIpPool);
    writes.extend(of_cilium.filter(|write| !world.freeze().stops_write(write)));
    match (writes.is_empty(), settles) {
        (false, _) => PoolPlan::Write(writes),
        (true, Some(settles)) => PoolPlan::Later(settles),
        (true, None) => up_to_date(),
    }
}

/// The write of the pool's status, if it differs from the one of the object.
fn status_write(world: &World, object: &PoolObject, now: Now) -> Option<PoolStatusWrite> {
    let status = status(world, object);
    let history = history(object, &status, now);
    if status == object.status && history == object.history {
        return None;
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
    let waits_since = status
        .longest_wait
        .iter()
        .map(|(need, node)| (*need, waits::since(object, world, *need, node, now)))
        .collect();
    Some(PoolStatusWrite {
        pool: object.name.clone(),
        uid: object.uid.clone(),
        revision: object.revision,
        status,
        transitions,
        waits_since: Box::new(waits_since),
        history: Box::new(history),
    })
}

/// The counts that the history of a pool samples.
fn sampled(object: &PoolObject, status: &PoolStatus, family: Family, counts: FamilyCounts) -> FamilyCounts {
    forecast::in_usual_blocks(object.pool.as_ref().ok(), family, counts, status.sizes.get(&family))
}

/// The history of the pool that its status should have.
pub(super) fn history(object: &PoolObject, status: &PoolStatus, now: Now) -> BTreeMap<Family, Vec<Sample>> {
    let families = status.families.iter().map(|(family, counts)| {
        let before = object.history.get(family).map(Vec::as_slice).unwrap_or_default();
        (*family, forecast::history(before, sampled(object, status, *family, *counts), now.wall))
    });
    families.collect()
}

/// When the next sample of the pool's history is due, if its status shows the counts of now.
fn next_sample(object: &PoolObject, now: Now) -> Option<Duration> {
    let samples = object.status.families.iter().filter_map(|(family, counts)| {
        let history = object.history.get(family).map(Vec::as_slice).unwrap_or_default();
        forecast::next_sample(history, sampled(object, &object.status, *family, *counts), now.wall)
    });
    let in_time = |at: Timestamp| Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
    samples.min().map(|at| now.uptime + in_time(at))
}

/// The earliest time at which a deleted pool may drop its finalizer, if that is in the future.
fn settles_at(world: &World, object: &PoolObject, now: Now) -> Option<Duration> {
    let settles = world.deletion_seen(&object.name).unwrap_or(now.uptime) + DELETION_SETTLES;
    let is_awaited = || !world.ledger().younger_than(&object.name).is_empty();
    (object.deleting && settles > now.uptime && is_awaited()).then_some(settles)
}

/// The finalizers that the pool should have; `None` if it has them. Ours is added as soon as the pool is seen. It is
/// removed when the pool is being deleted and its last block is free. The executor of that write looks for claims
/// that the watch has not shown yet.
fn finalizers(world: &World, object: &PoolObject) -> Option<Vec<String>> {
    let has_ours = object.has_finalizer();
    if !object.deleting && !has_ours {
        let mut finalizers = object.finalizers.clone();
        finalizers.push(PoolObject::FINALIZER.to_owned());
        return Some(finalizers);
    }
    (object.deleting && has_ours && !world.may_have_blocks(&object.name)).then(|| {
        object.finalizers.iter().filter(|finalizer| *finalizer != PoolObject::FINALIZER).cloned().collect()
    })
}

/// The statuses of claims of the pool that are due next. The answer puts the pool on the agenda again.
fn claim_statuses(world: &World, name: &PoolName) -> Vec<ClaimStatusWrite> {
    if world.freeze().is_on(Switch::Writes) {
        return Vec::new();
    }
    let claims = world.claims_of_pool(name).filter(|known| known.shown).map(|known| &known.claim);
    claims
        .filter(|claim| {
            !world.is_unreadable_claim(claim.cidr) && !world.is_in_flight(&Target::Claim(claim.cidr))
        })
        .filter_map(|claim| {
            Some(ClaimStatusWrite {
                cidr: claim.cidr,
                pool: claim.pool.clone(),
                uid: claim.uid.clone(),
                revision: claim.revision,
                status: drains::status_due(world, claim)?,
            })
        })
        .take(STATUSES_AT_ONCE)
        .collect()
}
