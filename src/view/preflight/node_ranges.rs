//! The podCIDRs of Nodes as agents read them in modes that give nodes no single range.
//!
//! In the mode crd an agent takes its own range from `spec.podCIDRs` of its Node, and invents an IPv4 range otherwise
//! (`docs/cilium.md`, The own range of an agent). The range gets a local route unless there are endpoint routes, and
//! `IPsec` builds its policies from it.

use std::net::{IpAddr, Ipv4Addr};

use super::points::{Lines, Point, Settings};
use crate::model::counted::counted;
use crate::model::installation::Installation;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number};
use crate::model::node::{AddressKind, Node};
use crate::net::cidr::{Cidr, Family};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::pod_cidrs_of;
use crate::publisher::settings::{IfAbsent, is_on};
use crate::world::World;

/// The prefix length of a range that an agent invents.
const INVENTED: u8 = 16;

pub(super) fn look(world: &World, installation: &Installation, settings: &Settings, lines: &mut Lines) {
    let mode = world.mode().ipam_mode();
    if mode != Some(IpamMode::Crd) {
        return;
    }
    if let Some(why) = installation.unlisted.get(&Kind::Node) {
        for point in [Point::OwnRange, Point::RequiredPodCidrs] {
            lines.unseen(point, format!("Nodes can't be listed: {why}"), "kubectl get nodes -o yaml");
        }
        return;
    }
    own_range(world, settings, lines);
    required(world, settings, lines);
}

fn without(world: &World, family: Family) -> impl Iterator<Item = &Node> {
    let has = move |node: &&Node| pod_cidrs_of(node).iter().any(|cidr| cidr.family() == family);
    world.nodes().filter(|node| node.runs_linux()).filter(move |node| !has(node))
}

fn own_range(world: &World, settings: &Settings, lines: &mut Lines) {
    let point = Point::OwnRange;
    let is_set = settings.get("ipv4-range").is_some_and(|range| !matches!(range.trim(), "" | "auto"));
    if is_set || !world.reader().families().contains(&Family::V4) {
        lines.ok(point, "agents invent no range of their own");
        return;
    }
    let invented: Vec<(&NodeName, Cidr)> =
        without(world, Family::V4).filter_map(|node| Some((&node.name, invented_by(node)?))).collect();
    if invented.is_empty() {
        lines.ok(point, "agents take their own range from spec.podCIDRs of their Nodes");
        return;
    }
    let is_taken = |range: Cidr| {
        world.ledger().pools_over(range).next().is_some()
            || world.addresses_of_nodes_in(range).next().is_some()
            || world.ledger().overlapping(range).next().is_some()
    };
    let pairs = ten_by_number(invented.iter().map(|(node, range)| format!("{node} {range}")));
    let nodes = counted(invented.len(), "node");
    let remedy = "Set `ipv4-range` in a CiliumNodeConfig per node, or `spec.podCIDRs` of the Node, which is immutable.";
    if is_on(settings, "enable-ipsec", IfAbsent::Off) {
        lines.fail(
            point,
            format!("IPsec covers the own range of an agent, and the agents of {nodes} invent one: {pairs}"),
            remedy,
        );
    } else if !is_on(settings, "enable-endpoint-routes", IfAbsent::Off)
        && invented.iter().any(|(_, range)| is_taken(*range))
    {
        lines.warn(
            point,
            format!(
                "the agents of {nodes} without spec.podCIDRs invent a local range over addresses of pools, nodes or pods: {pairs}"
            ),
            remedy,
        );
    } else {
        lines.ok(
            point,
            format!("the agents of {nodes} invent a range of their own, which harms nothing here"),
        );
    }
}

/// The range that the agent of a node without podCIDRs invents: `10.X.0.0/16` with the last number of its address.
fn invented_by(node: &Node) -> Option<Cidr> {
    let internal = node.addresses.iter().filter(|address| address.kind == AddressKind::Internal);
    let mut octets = internal.filter_map(|address| match address.address {
        IpAddr::V4(address) => Some(address.octets()),
        IpAddr::V6(_) => None,
    });
    let [.., last] = octets.next()?;
    Cidr::containing(Ipv4Addr::new(10, last, 0, 0).into(), INVENTED)
}

fn required(world: &World, settings: &Settings, lines: &mut Lines) {
    let point = Point::RequiredPodCidrs;
    for (family, key, value) in [
        (Family::V4, "k8s-require-ipv4-pod-cidr", "k8s.requireIPv4PodCIDR"),
        (Family::V6, "k8s-require-ipv6-pod-cidr", "k8s.requireIPv6PodCIDR"),
    ] {
        let waiting: Vec<&NodeName> = without(world, family).map(|node| &node.name).collect();
        if is_on(settings, key, IfAbsent::Off) && !waiting.is_empty() {
            let nodes = counted(waiting.len(), "Node");
            lines.fail(
                point,
                format!(
                    "`{key}` is true, and agents wait forever on {nodes} without podCIDRs: {}",
                    ten_by_number(waiting)
                ),
                format!("Helm: {value}=false."),
            );
        }
    }
    lines.ok_if_silent(point, "no agent waits for spec.podCIDRs of its Node");
}
