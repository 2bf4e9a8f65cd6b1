//! Nodes: their podCIDRs, their addresses, and the pods that kubelet allows on them.

use super::catalog::Check;
use super::found::Found;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number};
use crate::model::node::Node;
use crate::net::cidr::Cidr;
use crate::publisher;
use crate::view::{in_the_way, max_pods};
use crate::world::World;

const NODE: &str = Kind::Node.as_str();

pub(super) fn look(world: &World, found: &mut Found) {
    for node in world.nodes() {
        for cidr in publisher::pod_cidrs_of(node) {
            of_pod_cidr(world, node, *cidr, found);
        }
    }
    for (address, shared) in in_the_way::shared_internal_ips(world) {
        let only = shared.without_another.first();
        let check = if only.is_some() { Check::InternalIpTwice } else { Check::InternalIpVirtual };
        let Some(first) = only.or(shared.nodes.first()).copied() else { continue };
        let others = shared.nodes.iter().filter(|node| **node != first);
        let cause = format!("Node {} has the same InternalIP {address}", ten_by_number(others));
        found.add(check, NODE, first.as_str(), cause, String::new());
    }
    for (excess, nodes) in max_pods::by_excess(world) {
        for node in nodes {
            found.add(Check::MaxPods, NODE, node.as_str(), excess.to_string(), String::new());
        }
    }
}

fn of_pod_cidr(world: &World, node: &Node, cidr: Cidr, found: &mut Found) {
    let name = node.name.as_str();
    let holders: Vec<&NodeName> = world.claims_over(cidr).map(|known| &known.claim.node).collect();
    let mut others: Vec<&NodeName> = holders.iter().copied().filter(|holder| **holder != node.name).collect();
    others.dedup();
    if !others.is_empty() {
        let cause = format!("its podCIDR has addresses of node {}", ten_by_number(others));
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
