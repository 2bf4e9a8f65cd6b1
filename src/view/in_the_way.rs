//! Obstacles without a claim: podCIDRs that agents do not read, CIDRs in no pool, and the addresses of nodes.
//!
//! Nothing here changes a decision. Each finding is about many nodes, with their number and the names of ten, because
//! one mistake mostly concerns a whole cluster. Costs a pass over the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number, ten_of};
use crate::model::node::AddressKind;
use crate::model::pool::Pool;
use crate::net::cidr::{Cidr, Family};
use crate::publisher;
use crate::publisher::ipam_mode::IpamMode;
use crate::world::World;

/// All findings of this kind.
pub(super) fn findings(world: &World) -> impl Iterator<Item = Finding> {
    let of_nodes = [pod_cidrs_of_others(world), cidrs_outside_pools(world), shared_addresses(world)];
    of_nodes.into_iter().flatten().chain(world.readable_pools().filter_map(|pool| own_network(world, pool)))
}

/// Nodes whose podCIDRs other nodes hold.
fn pod_cidrs_of_others(world: &World) -> Option<Finding> {
    if world.agents_read_nodes() {
        return None;
    }
    let mut conflicts = BTreeMap::<&NodeName, String>::new();
    for node in world.nodes() {
        let held = publisher::pod_cidrs_of(node).iter().find_map(|cidr| {
            let mut others =
                world.claims_over(*cidr).map(|known| &known.claim).filter(|claim| claim.node != node.name);
            Some((cidr, others.next()?))
        });
        if let Some((cidr, claim)) = held {
            conflicts.insert(
                &node.name,
                format!("{} has {cidr}, and node {} has {}", node.name, claim.node, claim.cidr),
            );
        }
    }
    let message = format!(
        "{} in spec.podCIDRs of the Node that other nodes hold: {}; routers, cloud route controllers and BGP \
         speakers that follow this field send pod traffic to the wrong node; Cilium's mode {} does not use it; \
         turn its allocator off (--allocate-node-cidrs=false of kube-controller-manager, or that of the cloud), \
         and recreate these Nodes",
        if conflicts.len() == 1 {
            "1 node has a CIDR".to_owned()
        } else {
            format!("{} nodes have CIDRs", conflicts.len())
        },
        ten_by_number(conflicts.values()),
        world.reader().ipam_mode().as_str(),
    );
    let (first, _) = conflicts.first_key_value()?;
    Some(Finding::of_node(FindingKind::PodCIDRConflict, first, message))
}

/// Served CiliumNodes that list a CIDR which is in no pool.
fn cidrs_outside_pools(world: &World) -> Option<Finding> {
    if world.reader().ipam_mode() != IpamMode::Crd {
        return None;
    }
    let is_outside =
        |cidr: &&Cidr| world.ledger().pools_over(**cidr).next().is_none() && world.claim(**cidr).is_none();
    let mut listed = BTreeMap::<&NodeName, String>::new();
    for node in world.nodes().filter(|node| world.is_served(&node.name)) {
        let Some(cilium_node) = world.cilium_node(&node.name) else { continue };
        let cidrs = publisher::pod_cidrs_on(cilium_node);
        let Some(outside) = cidrs.iter().find(is_outside) else { continue };
        let is_first = cidrs.iter().find(|cidr| cidr.family() == outside.family()) == Some(outside);
        let place = if is_first { ", as the first of its family" } else { "" };
        listed.insert(&node.name, format!("{} ({outside}{place})", node.name));
    }
    let message = format!(
        "{} with spec.ipam.podCIDRs in no pool: {}; the controller leaves them there, and nodes keep them beside \
         their blocks; Cilium takes the first CIDR of a family as that of the node; drain the node and remove \
         the CIDR, or add its range to a pool",
        counted(listed.len(), "CiliumNode"),
        ten_by_number(listed.values()),
    );
    let (first, _) = listed.first_key_value()?;
    Some(Finding::new(FindingKind::PodCIDROutsidePools, Kind::CiliumNode, first.as_str(), message))
}

/// A pool over the network of nodes.
fn own_network(world: &World, pool: &Pool) -> Option<Finding> {
    let mut inside = BTreeMap::<&NodeName, IpAddr>::new();
    for ranges in pool.families.values() {
        for range in ranges.cidrs.keys() {
            let addresses = world.addresses_of_nodes_in(*range);
            let is_offered = |address: IpAddr| !ranges.exclude.iter().any(|cidr| cidr.contains(address));
            inside.extend(
                addresses.filter(|(address, _)| is_offered(*address)).map(|(address, node)| (node, address)),
            );
        }
    }
    if inside.is_empty() {
        return None;
    }
    let message = format!(
        "{} with an own address in its ranges: {}; pods do not get these addresses, but gateways, DHCP servers \
         and other machines of that network are in no object, and pods may get theirs; add the network to \
         `exclude` of the pool, or give the pool other ranges",
        counted(inside.len(), "node"),
        ten_by_number(inside.iter().map(|(node, address)| format!("{node} ({address})"))),
    );
    Some(Finding::new(FindingKind::NodeNetworkInPool, Kind::Pool, pool.name.as_str(), message))
}

/// An `InternalIP` that several Nodes have.
pub(super) struct SharedIp<'a> {
    /// These Nodes.
    pub(super) nodes: BTreeSet<&'a NodeName>,
    /// Those of them that have no other `InternalIP` of the family. Other nodes reach their pods by this one. The
    /// others have a virtual address beside their own, such as that of kube-vip, and Cilium uses the first one.
    pub(super) without_another: BTreeSet<&'a NodeName>,
}

/// Each `InternalIP` that several Nodes have.
pub(super) fn shared_internal_ips(world: &World) -> BTreeMap<IpAddr, SharedIp<'_>> {
    let is_internal = |node: &NodeName, address: IpAddr| {
        let own = world.node(node).into_iter().flat_map(|node| &node.addresses);
        own.into_iter().any(|own| own.address == address && own.kind == AddressKind::Internal)
    };
    let has_another = |node: &NodeName, address: IpAddr| {
        let own = world.node(node).into_iter().flat_map(|node| &node.addresses);
        let mut internal = own.filter(|own| own.kind == AddressKind::Internal && own.address != address);
        internal.any(|own| Family::of(own.address) == Family::of(address))
    };
    let mut shared = BTreeMap::<IpAddr, SharedIp<'_>>::new();
    for (address, nodes) in world.shared_node_addresses() {
        let nodes: BTreeSet<&NodeName> = nodes.filter(|node| is_internal(node, address)).collect();
        if nodes.len() > 1 {
            let without_another = nodes.iter().copied().filter(|node| !has_another(node, address)).collect();
            shared.insert(address, SharedIp { nodes, without_another });
        }
    }
    shared
}

/// Nodes with the same `InternalIP`, if it is the only one of its family of one of them.
fn shared_addresses(world: &World) -> Option<Finding> {
    let mut shared = shared_internal_ips(world);
    shared.retain(|_, shared| !shared.without_another.is_empty());
    let message = format!(
        "{} of several Nodes, and the only one of some: {}; Cilium sends the pod traffic of all of them to one machine; set --node-ip of \
         kubelet to an address of the machine itself, not to a virtual one such as that of kube-vip; delete a Node \
         only if its machine is gone",
        counted(shared.len(), "InternalIP"),
        ten_of(
            shared.iter().map(|(address, shared)| format!("{address} ({})", ten_by_number(&shared.nodes)))
        ),
    );
    let first = shared.values().find_map(|shared| shared.without_another.first())?;
    Some(Finding::of_node(FindingKind::SharedInternalIP, first, message))
}
