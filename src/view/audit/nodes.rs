//! Nodes: their podCIDRs, their addresses, and their first blocks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::catalog::Check;
use super::found::Found;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_of};
use crate::model::node::Node;
use crate::net::cidr::{Cidr, Family};
use crate::publisher;
use crate::world::World;

const NODE: &str = Kind::Node.as_str();

pub(super) fn look(world: &World, found: &mut Found) {
    let mut internal: BTreeMap<IpAddr, Vec<&NodeName>> = BTreeMap::new();
    for node in world.nodes() {
        for cidr in publisher::pod_cidrs_of(node) {
            of_pod_cidr(world, node, *cidr, found);
        }
        for address in node.addresses.iter().filter(|address| address.kind == "InternalIP") {
            internal.entry(address.address).or_default().push(&node.name);
        }
        first_blocks(world, &node.name, found);
    }
    for (address, nodes) in internal.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
        let cause = format!("Node {} has the same InternalIP {address}", ten_of(&nodes[1..]));
        found.add(Check::InternalIpTwice, NODE, nodes[0].as_str(), cause, String::new());
    }
}

fn of_pod_cidr(world: &World, node: &Node, cidr: Cidr, found: &mut Found) {
    let name = node.name.as_str();
    let claims = world.ledger().overlapping_claims(cidr).filter_map(|block| world.claim(block));
    let holders: Vec<&NodeName> = claims.map(|known| &known.claim.node).collect();
    let mut others: Vec<&NodeName> = holders.iter().copied().filter(|holder| **holder != node.name).collect();
    others.dedup();
    if !others.is_empty() {
        let cause = format!("its podCIDR has addresses of node {}", ten_of(others));
        found.add(Check::PodCidrOfOtherNode, NODE, name, cause, cidr.to_string());
    } else if holders.is_empty() {
        if let Some(pool) = world.ledger().pools_over(cidr).next() {
            let cause = format!("its podCIDR is in pool {pool}, and no claim has it");
            found.add(Check::PodCidrWithoutClaim, NODE, name, cause, cidr.to_string());
        } else {
            let cause = "its podCIDR is outside of every pool".to_owned();
            found.add(Check::PodCidrOutsidePools, NODE, name, cause, cidr.to_string());
        }
    }
}

/// The first block of each family, where its pool does not select the node any more.
fn first_blocks(world: &World, node: &NodeName, found: &mut Found) {
    for family in Family::ALL {
        let claims = world.claims_of(node).map(|known| &known.claim);
        let ours = claims.filter(|claim| claim.cidr.family() == family && claim.is_published_state());
        let Some(first) = ours.min_by_key(|claim| (claim.created, claim.cidr)) else { continue };
        if !world.pools_of(node).any(|pool| pool.name == first.pool) {
            let cause = format!("pool {} does not select the node, and its first block is of it", first.pool);
            found.add(Check::FirstBlockStray, NODE, node.as_str(), cause, first.cidr.to_string());
        }
    }
}
