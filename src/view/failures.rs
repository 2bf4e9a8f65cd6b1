//! Writes that fail, as findings of the nodes and pools that wait for them, and as a reason of pools.
//!
//! A command that looks once knows of those that the leader has noted on its Lease.

use crate::model::failure::Failure;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::PoolName;
use crate::model::plan::NodePlan;
use crate::world::World;

/// One finding for each node that waits, or for each pool, if it is a pool that waits.
pub(super) fn findings(world: &World) -> impl Iterator<Item = Finding> {
    world.failures().into_iter().flat_map(|failure| {
        let message = failure.description();
        let of_pool = |pool: &PoolName| {
            Finding::new(FindingKind::WriteFailed, Kind::Pool, pool.as_str(), message.clone())
        };
        if failure.nodes.is_empty() {
            return failure.pools.iter().map(of_pool).collect::<Vec<_>>();
        }
        let nodes = failure.nodes.iter();
        nodes.map(|node| Finding::of_node(FindingKind::WriteFailed, node, message.clone())).collect()
    })
}

/// The failures that concern a node: those that it has met, and those of the writes that it will send next.
#[must_use]
pub fn of_node(world: &World, plan: &NodePlan) -> Vec<Failure> {
    let actions: Vec<String> =
        plan.requests().iter().filter_map(|request| Some(request.as_write()?.action())).collect();
    let mut failures = world.failures();
    failures.retain(|failure| failure.nodes.contains(&plan.node) || actions.contains(&failure.action));
    failures
}

/// The first failure for which nodes of this pool wait, or the pool itself.
pub(super) fn of_pool(world: &World, pool: &PoolName) -> Option<Failure> {
    world.failures().into_iter().filter(|failure| failure.pools.contains(pool)).min()
}
