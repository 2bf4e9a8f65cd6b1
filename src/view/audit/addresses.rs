//! Addresses in use, by agents and by Pods, against claims.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::catalog::Check;
use super::found::Found;
use crate::model::carrier::Carrier;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_of};
use crate::model::surroundings::PodAddresses;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::{edge_addresses, pod_cidrs_on};
use crate::world::World;

const POD: &str = "Pod";
const CILIUM_NODE: &str = Kind::CiliumNode.as_str();

pub(super) fn look(world: &World, pods: &[PodAddresses], found: &mut Found) {
    for node in world.nodes() {
        used_outside_claims(world, &node.name, found);
    }
    let mut holders: BTreeMap<IpAddr, Vec<&PodAddresses>> = BTreeMap::new();
    for pod in pods {
        for address in &pod.addresses {
            of_pod(world, pod, *address, found);
            holders.entry(*address).or_default().push(pod);
        }
    }
    for (address, pods) in holders.into_iter().filter(|(_, pods)| pods.len() > 1) {
        let cause = format!("it classes {address} with {}", ten_of(pods[1..].iter().map(|pod| &pod.name)));
        found.add(Check::PodAddressTwice, POD, pods[0].name.clone(), cause, String::new());
    }
}

/// The addresses of pools that the agent of a node uses without a claim of this node.
fn used_outside_claims(world: &World, node: &NodeName, found: &mut Found) {
    let Some(carrier) = world.carrier(node) else { return };
    let reader = world.reader_of(node);
    let mut used = AddressSet::new();
    for pool in world.readable_pools() {
        for range in pool.families.values().flat_map(|ranges| ranges.cidrs.keys()) {
            used.extend_with(&reader.used_in(carrier, *range));
        }
    }
    for known in world.claims_of(node) {
        used.remove_cidr(known.claim.cidr);
    }
    if !used.is_empty() {
        let cause = "its agent reports addresses in use that no claim of the node has".to_owned();
        found.add(Check::UsedOutsideClaims, CILIUM_NODE, node.as_str(), cause, ten_of(used.iter()));
    }
}

fn of_pod(world: &World, pod: &PodAddresses, address: IpAddr, found: &mut Found) {
    let single = Cidr::single(address);
    if let Some(node) = pod.node.as_ref().filter(|node| is_of_former_mode(world, node, single)) {
        let cause = format!("the agent of node {node} gave it this address in another mode of Cilium");
        found.add(Check::PodOfFormerMode, POD, pod.name.clone(), cause, address.to_string());
        return;
    }
    let mut claims = world.claims_over(single).peekable();
    if claims.peek().is_none() {
        if let Some(pool) = world.ledger().pools_over(single).next() {
            let cause = format!("its address is in pool {pool}, and no claim has it");
            found.add(Check::PodOutsideClaims, POD, pod.name.clone(), cause, address.to_string());
        }
        return;
    }
    let holders: Vec<&NodeName> = claims.map(|known| &known.claim.node).collect();
    if let Some(node) = pod.node.as_ref().filter(|node| !holders.contains(node)) {
        let cause = format!("it runs on node {node}, and node {} holds its address", ten_of(holders));
        found.add(Check::PodInForeignClaim, POD, pod.name.clone(), cause, address.to_string());
    }
}

/// Whether the CiliumNode of a node shows this address in a field of another mode only. Then the agent gave it to a pod
/// in that mode, and does not restore the pod at its next start.
fn is_of_former_mode(world: &World, node: &NodeName, address: Cidr) -> bool {
    let reader = world.reader_of(node);
    let Some(seen) = world.cilium_node(node).filter(|_| world.publisher_of(node).is_some()) else {
        return false;
    };
    let carrier = Carrier::CiliumNode(seen);
    let is_crd = reader.ipam_mode() == IpamMode::Crd;
    let is_listed = is_crd && pod_cidrs_on(seen).iter().any(|range| range.covers(address));
    let is_shown = is_listed || reader.is_shown_by_other_mode(carrier, address);
    let is_offered = if is_crd {
        reader.n_published_in(carrier, address) > 0
    } else {
        reader
            .blocks(carrier)
            .iter()
            .any(|block| block.covers(address) && !edge_addresses(*block).contains(address.first_address()))
    };
    is_shown && !is_offered
}
