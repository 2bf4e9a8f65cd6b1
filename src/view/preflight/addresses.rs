//! The ranges of the pools against everything else that has addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::former_mode;
use super::points::{Lines, Point};
use crate::ledger::Occupant;
use crate::model::counted::counted;
use crate::model::installation::Installation;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number, ten_of};
use crate::model::pool::Pool;
use crate::net::cidr::Cidr;
use crate::publisher;
use crate::view::audit::ranges::{offered, shared};
use crate::world::World;

/// Shared address space (RFC 6598), which clouds and VPNs use for nodes.
const SHARED: &str = "100.64.0.0/10";

pub(super) fn look(world: &World, installation: &Installation, lines: &mut Lines) {
    let former = former_mode::nodes(world);
    former_mode::look(world, &former, lines);
    let unlisted = [Kind::Pool, Kind::Node].iter().find_map(|kind| installation.unlisted.get(kind));
    if world.readable_pools().next().is_none() {
        return;
    }
    if let Some(why) = unlisted {
        for point in [Point::PodCidrs, Point::NodeAddresses] {
            lines.unseen(point, why.clone(), "kubectl get nodes -o yaml");
        }
    } else {
        taken_ranges(world, installation, &former, lines);
        node_addresses(world, lines);
    }
    ranges(world, installation, lines);
}

fn taken_ranges(world: &World, installation: &Installation, former: &[(&NodeName, Cidr)], lines: &mut Lines) {
    let is_foreign = |node: &NodeName, cidr: Cidr| {
        world.ledger().pools_over(cidr).next().is_some()
            && !world.claims_over(cidr).any(|known| known.claim.node == *node)
    };
    let mut on_nodes = BTreeMap::<&NodeName, Cidr>::new();
    for node in world.nodes() {
        let mut cidrs = publisher::pod_cidrs_of(node).iter();
        let foreign = cidrs.find(|cidr| is_foreign(&node.name, **cidr));
        on_nodes.extend(foreign.map(|cidr| (&node.name, *cidr)));
    }
    let pairs = |found: &BTreeMap<&NodeName, Cidr>| {
        ten_by_number(found.iter().map(|(node, cidr)| format!("{node} {cidr}")))
    };
    if !on_nodes.is_empty() {
        let n_nodes = counted(on_nodes.len(), "Node");
        lines.warn(
            Point::PodCidrs,
            format!("{n_nodes} with spec.podCIDRs in the pools: {}", pairs(&on_nodes)),
            "Add these ranges to `exclude` of the pool, or recreate the Nodes without podCIDRs.",
        );
    }
    let mut on_carriers = BTreeMap::<&NodeName, Cidr>::new();
    for (cidr, occupant) in world.ledger().entries() {
        let Occupant::Carried(node) = occupant else { continue };
        if is_foreign(node, cidr) && former.iter().all(|(former, _)| *former != node) {
            on_carriers.entry(node).or_insert(cidr);
        }
    }
    if let Some(why) = installation.unlisted.get(&Kind::CiliumNode) {
        lines.unseen(
            Point::PodCidrs,
            format!("CiliumNodes can't be listed: {why}"),
            "kubectl get ciliumnodes -o yaml",
        );
    }
    if !on_carriers.is_empty() {
        let n_nodes = counted(on_carriers.len(), "CiliumNode");
        lines.warn(
            Point::PodCidrs,
            format!("{n_nodes} with addresses of the pools and without a claim: {}", pairs(&on_carriers)),
            "The blocks of a pool among them become claims in the modes cluster-pool and kubernetes. Exclude all others.",
        );
    }
    lines.ok_if_silent(Point::PodCidrs, "no node has other addresses of the pools");
}

fn node_addresses(world: &World, lines: &mut Lines) {
    for pool in world.readable_pools() {
        let offered = offered(pool);
        let inside: Vec<String> = offered
            .cidrs()
            .flat_map(|range| world.addresses_of_nodes_in(range).collect::<Vec<_>>())
            .map(|(address, node)| format!("{node} {address}"))
            .collect();
        if !inside.is_empty() {
            lines.warn(
                Point::NodeAddresses,
                format!(
                    "pool {} has addresses of {}: {}; gateways of that network are not excluded",
                    pool.name,
                    counted(inside.len(), "node"),
                    ten_of(&inside)
                ),
                "Add the network of the nodes to `exclude` of the pool.",
            );
        } else if let Some((node, address)) = in_shared_space(world, pool) {
            lines.warn(
                Point::NodeAddresses,
                format!(
                    "pool {} is in {SHARED}, and node {node} has {address} in it: the network of the nodes may use more of it",
                    pool.name
                ),
                "Prefer 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, or ask the provider of the network.",
            );
        }
    }
    lines.ok_if_silent(Point::NodeAddresses, "no pool has an address of a node");
}

/// A node with an address in shared address space, if the pool has ranges there too.
fn in_shared_space<'a>(world: &'a World, pool: &Pool) -> Option<(&'a NodeName, IpAddr)> {
    let shared: Cidr = SHARED.parse().ok()?;
    let mut cidrs = pool.families.values().flat_map(|ranges| ranges.cidrs.keys());
    cidrs.any(|cidr| cidr.overlaps(shared)).then_some(())?;
    world.addresses_of_nodes_in(shared).next().map(|(address, node)| (node, address))
}

fn ranges(world: &World, installation: &Installation, lines: &mut Lines) {
    let point = Point::ServiceRanges;
    for pool in world.readable_pools() {
        for shared in shared(&installation.ranges, &offered(pool)) {
            lines.fail(
                point,
                format!(
                    "pool {} and {} have the same addresses: {}",
                    pool.name,
                    shared.holders(),
                    ten_of(&shared.cidrs)
                ),
                "Add these addresses to `exclude` of the pool.",
            );
        }
    }
    for why in &installation.unlisted_ranges {
        lines.unseen(
            point,
            format!("not seen: {why}"),
            "Ask for the rights that docs/commands.md (Conventions) lists.",
        );
    }
    if installation.ranges.iter().any(|range| range.kind == "ServiceCIDR") {
        lines.ok_if_silent(point, "no pool has addresses of Services or load balancers");
    } else if installation.unlisted_ranges.is_empty() {
        let how = "kubectl get servicecidrs, or kubectl cluster-info dump | grep service-cluster-ip-range";
        lines.unseen(point, "the API server shows no ServiceCIDR", how);
    }
}
