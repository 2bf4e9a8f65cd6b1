//! The nodes that wait longest for a block of each pool.
//!
//! The status of the pool names them with their times, so that a restart of the controller does not lose the times. A
//! node stays named as long as it waits, also by the next leader, which first saw it wait at another time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tally;
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::PoolObject;
use crate::model::status::Need;
use crate::model::time::{Now, Timestamp};
use crate::world::World;

/// The nodes that a pool should name in its status. Costs a pass over the nodes that it selects.
#[must_use]
pub fn longest(world: &World, object: &PoolObject) -> BTreeMap<Need, NodeName> {
    let shown = &object.status.longest_wait;
    let mut longest: BTreeMap<Need, &NodeName> = BTreeMap::new();
    for node in world.nodes_of_pool(&object.name) {
        let Some(need) = need(world, node, object) else { continue };
        let first = longest.entry(need).or_insert(node);
        let is_shown = |node: &NodeName| shown.get(&need) == Some(node);
        if is_shown(node) || !is_shown(first) && place(world, node) < place(world, first) {
            *first = node;
        }
    }
    longest.into_iter().map(|(need, node)| (need, node.clone())).collect()
}

/// The need of a node that waits for a block of the pool. One that the status names waits as before while a
/// decision for it is due, such as after a restart.
fn need(world: &World, node: &NodeName, object: &PoolObject) -> Option<Need> {
    tally::need(world, node, &object.name).or_else(|| {
        let shown = object.status.longest_wait.iter().find(|(_, shown)| *shown == node)?;
        world.is_due(node).then_some(*shown.0)
    })
}

/// The order of those that wait: since when this process has seen it, then the age of the Node.
fn place<'a>(world: &World, node: &'a NodeName) -> (Duration, Timestamp, &'a NodeName) {
    let since = world.serving(node).and_then(|serving| serving.waits_since).unwrap_or(Duration::MAX);
    (since, world.node(node).map(|node| node.created).unwrap_or_default(), node)
}

/// Since when a node waits that the status of a pool should name: as the object says, or else as this process has seen
/// it.
#[must_use]
pub fn since(object: &PoolObject, world: &World, need: Need, node: &NodeName, now: Now) -> Timestamp {
    let shown = object.status.longest_wait.get(&need).filter(|shown| *shown == node);
    if let Some(since) = shown.and_then(|_| object.waits_since.get(&need)) {
        return *since;
    }
    let seen = world.serving(node).and_then(|serving| serving.waits_since);
    let lasted = seen.map(|seen| now.uptime.saturating_sub(seen)).unwrap_or_default();
    now.wall.checked_sub(lasted).unwrap_or(now.wall)
}

/// Since when the longest wait for a block of a pool lasts, as its status says. By need.
pub fn of_pool<'a>(
    world: &'a World,
    pool: &PoolName,
) -> impl Iterator<Item = (Need, &'a NodeName, Timestamp)> {
    let object = world.pool_object(pool);
    object.into_iter().flat_map(|object| {
        let named = object.status.longest_wait.iter();
        named.filter_map(|(need, node)| Some((*need, node, *object.waits_since.get(need)?)))
    })
}

/// Since when a node waits, and the object that says so: a pool that names it in its status, or else the carrier of a
/// node without blocks.
#[must_use]
pub fn of_node(world: &World, node: &NodeName) -> Option<(Timestamp, String)> {
    let named = world.pools_of(node).flat_map(|pool| {
        let waits = of_pool(world, &pool.name).filter(|(_, waiting, _)| *waiting == node);
        waits.map(|(_, _, since)| (since, format!("the status of pool {}", pool.name)))
    });
    named.min().or_else(|| {
        let carrier = world.carrier(node).filter(|_| !tally::is_served(world, node))?;
        Some((carrier.created(), format!("its {} was created", carrier.kind().as_str())))
    })
}
