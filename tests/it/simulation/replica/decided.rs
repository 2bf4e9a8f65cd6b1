//! The rules for the decisions of one process, as far as it knows the objects.

use std::collections::BTreeSet;

use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::request::{NewClaim, Publication};
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::world::World;

use super::super::mode::{Mode, Modes, blocks, shown_by_node};

/// A block is published only for the Node object that its claim is held for, as far as this process knows the two.
pub(super) fn is_for_its_node(world: &World, publication: &Publication) -> Result<(), String> {
    let present = world.node(&publication.node).map(|node| &node.uid);
    for cidr in &publication.added {
        let held_for = world.claim(*cidr).map(|known| &known.claim.node_uid);
        if held_for != present {
            return Err(format!(
                "{cidr} is published on {}, and held for another Node object",
                publication.node
            ));
        }
    }
    Ok(())
}

/// The mode of a node, as far as this process knows its labels.
pub(super) fn mode_in(world: &World, runs: Modes, node: &NodeName) -> Mode {
    world.node(node).map_or(runs.of_all, |node| runs.of_labels(&node.labels))
}

/// The blocks that the carrier of a node shows, as far as this process knows it.
pub(super) fn shown_in(world: &World, runs: Mode, node: &NodeName) -> Vec<Cidr> {
    match runs {
        Mode::Kubernetes(field) => world.node(node).map(|seen| blocks(&shown_by_node(seen, field))),
        mode => world.cilium_node(node).map(|seen| blocks(&mode.shown_by(seen))),
    }
    .unwrap_or_default()
}

/// The rule where a node has one block of each family, and its carrier shows CIDRs without a claim, as far as this
/// process knows. All of them become claims, if they are one of each family that pools have, and nothing else is
/// claimed.
pub(super) fn is_all_that_stands(
    world: &World,
    runs: Mode,
    families: &BTreeSet<Family>,
    new: &NewClaim,
) -> Result<(), String> {
    let shown = shown_in(world, runs, &new.node);
    let is_lost = world.lost_claims_of(&new.node).any(|lost| lost.cidr == new.cidr);
    let is_claimed = |cidr: &&Cidr| world.claim(**cidr).is_some_and(|known| known.claim.node == new.node);
    if is_lost || shown.iter().all(|cidr| is_claimed(&cidr)) {
        return Ok(());
    }
    let n_of = |family: &Family| shown.iter().filter(|cidr| cidr.family() == *family).count();
    let is_in_a_pool = |cidr: &&Cidr| {
        let pools = world.pool_objects().filter_map(|object| object.pool.as_ref().ok());
        let mut ranges = pools.filter_map(|pool| pool.families.get(&cidr.family()));
        ranges.any(|ranges| ranges.contains(**cidr))
    };
    let mut others = shown.iter().filter(|cidr| families.contains(&cidr.family()));
    if !shown.contains(&new.cidr)
        || families.iter().any(|family| n_of(family) != 1)
        || others.any(|cidr| !is_claimed(&cidr) && !is_in_a_pool(&cidr))
    {
        return Err(format!("{} is claimed for {}, which has {shown:?}", new.cidr, new.node));
    }
    Ok(())
}
