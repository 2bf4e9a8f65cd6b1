//! The pools and the nodes that they select.

use std::collections::BTreeSet;

use super::points::{Lines, Point};
use crate::model::counted::counted;
use crate::model::installation::Installation;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number};
use crate::net::cidr::Family;
use crate::view::conditions;
use crate::view::max_pods::{self, Excess};
use crate::world::World;

pub(super) fn look(world: &World, installation: &Installation, lines: &mut Lines) {
    if let Some(why) = installation.unlisted.get(&Kind::Node) {
        lines.unseen(
            Point::Pools,
            format!("Nodes can't be listed: {why}"),
            "kubectl get nodes --show-labels",
        );
        return;
    }
    let has_pools = world.pool_objects().next().is_some();
    if let Some(why) = installation.unlisted.get(&Kind::Pool).filter(|_| !has_pools) {
        lines.unseen(Point::Pools, why.clone(), "cilium-node-ipam preflight -f pools.yaml");
        return;
    }
    if !has_pools {
        lines.warn(
            Point::Pools,
            "there is no NodeIPPool: no node gets addresses",
            "cilium-node-ipam preflight -f pools.yaml",
        );
        return;
    }
    let nodes: Vec<&NodeName> =
        world.nodes().filter(|node| node.runs_linux()).map(|node| &node.name).collect();
    for object in world.pool_objects() {
        let Err(invalid) = &object.pool else { continue };
        lines.fail(
            Point::Pools,
            format!("NodeIPPool {} can't be read: {}", object.name, invalid.findings.join("; ")),
            format!("kubectl edit nip {}", object.name),
        );
    }
    for pool in world.readable_pools() {
        let selected: BTreeSet<&NodeName> = world.nodes_of_pool(&pool.name).collect();
        let is_everywhere = nodes.len() > 1 && nodes.iter().all(|node| selected.contains(node));
        if pool.selector.selects_all() || is_everywhere {
            lines.warn(
                Point::Pools,
                format!(
                    "pool {} selects every node ({}): each gets a block at once, and keeps its first one for life",
                    pool.name,
                    nodes.len()
                ),
                "Start with a `nodeSelector` for a few nodes, and widen it later.",
            );
        }
    }
    for pool in world.readable_pools() {
        let Some(overlap) = conditions::overlap_of(world, &pool.name) else { continue };
        let remedy = format!("Remove the range from one of the two pools: kubectl edit nip {}", pool.name);
        if world.ledger().gives_out(&pool.name) {
            lines.warn(Point::Pools, format!("pool {}: {overlap}", pool.name), remedy);
        } else {
            lines.fail(Point::Pools, format!("pool {} gives no block: {overlap}", pool.name), remedy);
        }
    }
    let unselected: Vec<&NodeName> =
        nodes.iter().copied().filter(|node| world.pools_of(node).next().is_none()).collect();
    if !unselected.is_empty() {
        lines.warn(
            Point::Pools,
            format!("no pool selects {}: {}", counted(unselected.len(), "node"), ten_by_number(unselected)),
            "Label these Nodes, or add a pool that selects them.",
        );
    }
    let n_selected = nodes.iter().filter(|node| world.pools_of(node).next().is_some()).count();
    lines.ok_if_silent(
        Point::Pools,
        format!("pools select {} of {}", n_selected, counted(nodes.len(), "node")),
    );
    families(world, &nodes, lines);
    pods_allowed(world, lines);
}

/// The pods that kubelet allows against the addresses that nodes can have.
fn pods_allowed(world: &World, lines: &mut Lines) {
    if world.publisher().is_none() {
        return;
    }
    for (excess, nodes) in max_pods::by_excess(world) {
        let (n_nodes, nodes) = (counted(nodes.len(), "node"), ten_by_number(nodes));
        lines.warn(Point::MaxPods, format!("{n_nodes} ({nodes}): {excess}"), Excess::remedy());
    }
    lines.ok_if_silent(Point::MaxPods, "no node has more pods than it can have addresses");
}

/// The families that agents run against those of the pools of their nodes.
fn families(world: &World, nodes: &[&NodeName], lines: &mut Lines) {
    for family in Family::ALL {
        let lacks = |node: &&NodeName| {
            let mut pools = world.pools_of(node).peekable();
            pools.peek().is_some()
                && world.reader_of(node).families().contains(&family)
                && !pools.any(|pool| pool.families.contains_key(&family))
        };
        let without: Vec<&NodeName> = nodes.iter().copied().filter(lacks).collect();
        if !without.is_empty() {
            lines.fail(
                Point::Families,
                format!(
                    "agents run {family}, and no pool of {} has it: {}; they get no block of any family",
                    counted(without.len(), "node"),
                    ten_by_number(without)
                ),
                format!("Add `spec.{family}` to a new pool for these nodes, or turn {family} off in Cilium."),
            );
        }
    }
    lines.ok_if_silent(Point::Families, "pools have the families that the agents run");
}
