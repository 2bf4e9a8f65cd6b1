//! The settings of Cilium in `cilium-config`, as `docs/cilium.md` (Configuration) explains them.

use std::collections::BTreeMap;

use super::node_ranges;
use super::points::{Lines, Point, Settings};
use crate::model::cilium_version::Minor;
use crate::model::installation::Installation;
use crate::model::names::{NodeName, ten_of};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::Mode;
use crate::publisher::settings::{IfAbsent, is_on};
use crate::world::World;

pub(super) fn look(world: &World, installation: &Installation, lines: &mut Lines) {
    let namespace = &installation.cilium_namespace;
    let how = format!("kubectl -n {namespace} get configmap cilium-config -o yaml");
    let Some(settings) = lines.seen(Point::Ipam, &installation.settings, how) else { return };
    let Some(settings) = settings else {
        lines.fail(
            Point::Ipam,
            format!("ConfigMap {namespace}/cilium-config does not exist"),
            "Install Cilium, or name its namespace with --cilium-namespace.",
        );
        return;
    };
    ipam(world, lines);
    let mode = world.mode().ipam_mode();
    // Pods of these modes have addresses outside of the range of their node.
    let has_free_pools = matches!(mode, Some(IpamMode::Crd | IpamMode::MultiPool));
    routing(settings, mode, lines);
    native_cidrs(world, settings, lines);
    if has_free_pools {
        if is_on(settings, "enable-endpoint-routes", IfAbsent::Off) {
            lines.ok(
                Point::EndpointRoutes,
                "`enable-endpoint-routes` is true (pods that ran before it was have no such route until they are recreated)",
            );
        } else {
            lines.fail(
                Point::EndpointRoutes,
                "`enable-endpoint-routes` is not true: a node has no route to pods outside of its first range",
                "Helm: endpointRoutes.enabled=true. Running pods get no endpoint routes: recreate them after the restart of \
                 the agents, or their ingress policies are enforced only with BPF host routing.",
            );
        }
        masquerade(world, settings, lines);
    }
    node_ranges::look(world, installation, settings, lines);
    announcements(installation, settings, mode, lines);
    if mode == Some(IpamMode::Crd) {
        only_in_other_modes(settings, lines);
    }
    kvstore(settings, lines);
    if is_on(settings, "auto-create-cilium-node-resource", IfAbsent::On) {
        lines.ok(Point::CiliumNodes, "agents create their CiliumNodes");
    } else {
        lines.fail(
            Point::CiliumNodes,
            "`auto-create-cilium-node-resource` is false: agents do not publish their addresses on CiliumNodes",
            "Remove `auto-create-cilium-node-resource` from cilium-config.",
        );
    }
}

fn ipam(world: &World, lines: &mut Lines) {
    match world.mode() {
        Mode::Passive(why) => {
            lines.fail(Point::Ipam, why.clone(), "Helm: ipam.mode=crd; see docs/requirements.md.");
        }
        Mode::Active(publisher) => match publisher.ipam_mode() {
            IpamMode::Crd => lines.ok(Point::Ipam, "`ipam` is crd, where no other allocator runs"),
            other @ (IpamMode::MultiPool | IpamMode::ClusterPool | IpamMode::Kubernetes) => {
                let name = other.as_str();
                lines.warn(
                    Point::Ipam,
                    format!("`ipam` is {name}: another allocator serves nodes by default, and the controller is passive"),
                    format!("Turn the other allocator off, and then set `modes` of the chart to [{name}]."),
                );
            }
        },
    }
}

fn routing(settings: &Settings, mode: Option<IpamMode>, lines: &mut Lines) {
    let remedy = "Helm: routingMode=native, with autoDirectNodeRoutes=true or routes of your network.";
    if is_native(settings) {
        lines.ok(Point::Routing, "routing is native");
        return;
    }
    match mode {
        Some(IpamMode::Crd) => {
            let text = "Cilium runs with a tunnel, which its documentation excludes in mode crd";
            lines.fail(Point::Routing, text, remedy);
        }
        Some(IpamMode::MultiPool) => lines.warn(
            Point::Routing,
            "Cilium runs with a tunnel: only VXLAN with agents of 1.20.2 was tested",
            format!("{remedy} Agents of 1.17 must not run with a tunnel in multi-pool."),
        ),
        Some(IpamMode::ClusterPool | IpamMode::Kubernetes) | None => lines.warn(
            Point::Routing,
            "Cilium runs with a tunnel, which was not tested with the controller",
            remedy,
        ),
    }
}

fn native_cidrs(world: &World, settings: &Settings, lines: &mut Lines) {
    let mut declared = BTreeMap::<Family, AddressSet>::new();
    for pool in world.readable_pools() {
        for (family, ranges) in &pool.families {
            let all = declared.entry(*family).or_default();
            ranges.cidrs.keys().for_each(|cidr| all.insert_cidr(*cidr));
        }
    }
    for family in world.reader().families() {
        let (key, value) = match family {
            Family::V4 => ("ipv4-native-routing-cidr", "ipv4NativeRoutingCIDR"),
            Family::V6 => ("ipv6-native-routing-cidr", "ipv6NativeRoutingCIDR"),
        };
        // The only key before 1.10, which later agents still read.
        let old = settings.get("native-routing-cidr").filter(|_| *family == Family::V4);
        let text = settings.get(key).or(old).map_or("", |text| text.trim());
        let remedy = format!("Helm: {value} with a CIDR around all pools.");
        let pools = declared.get(family).filter(|pools| !pools.is_empty());
        if text.is_empty() {
            let text = format!(
                "`{key}` is not set: traffic between pods may leave nodes with the address of the node"
            );
            // Agents mostly do not masquerade IPv6, and do not ask for it then.
            if *family == Family::V4 || is_on(settings, "enable-ipv6-masquerade", IfAbsent::On) {
                lines.fail(Point::NativeCidr, text, remedy);
            }
            continue;
        }
        let Ok(native) = text.parse::<Cidr>() else {
            lines.fail(Point::NativeCidr, format!("`{key}` is `{text}`, which is not a CIDR"), remedy);
            continue;
        };
        let Some(pools) = pools else {
            lines.unseen(
                Point::NativeCidr,
                format!("`{key}` is {native}, and there is no pool of {family} to compare"),
                "cilium-node-ipam preflight -f pools.yaml",
            );
            continue;
        };
        let mut outside = pools.clone();
        outside.remove_cidr(native);
        if outside.is_empty() {
            lines.ok(Point::NativeCidr, format!("`{key}` {native} is around all pools"));
        } else {
            let ranges = ten_of(outside.cidrs());
            let text = format!("`{key}` is {native}, and pools have ranges outside of it: {ranges}");
            lines.fail(Point::NativeCidr, text, remedy);
        }
    }
}

/// The first version whose agents panic at their start if iptables masquerades without interfaces, in all modes but
/// cluster-pool and kubernetes (cilium/cilium#42531; read: `pkg/datapath/iptables/iptables.go` of 1.19.0; 1.18.11 starts).
const PANICS_FROM: Minor = Minor(1, 19);

fn masquerade(world: &World, settings: &Settings, lines: &mut Lines) {
    let on =
        ["enable-ipv4-masquerade", "enable-ipv6-masquerade"].map(|key| is_on(settings, key, IfAbsent::On));
    let by_interface =
        settings.get("egress-masquerade-interfaces").is_some_and(|names| !names.trim().is_empty());
    let panics = |node: &&NodeName| {
        let mut releases = world.agents_on(node).filter_map(|agent| agent.release);
        releases.any(|release| release.minor >= PANICS_FROM)
    };
    let nodes = world.nodes().map(|node| &node.name);
    let panicking: Vec<&NodeName> = nodes.filter(panics).collect();
    let remedy =
        "Helm: bpf.masquerade=true, or egressMasqueradeInterfaces. Agents of 1.19 and later exit without it.";
    if on == [false, false] {
        lines.ok(Point::Masquerade, "masquerading is off");
    } else if is_on(settings, "enable-bpf-masquerade", IfAbsent::Off) {
        lines.ok(Point::Masquerade, "masquerading is done by BPF");
    } else if by_interface {
        lines.ok(Point::Masquerade, "masquerading is done by interface");
    } else if panicking.is_empty() {
        lines.warn(
            Point::Masquerade,
            "iptables masquerades only the first range of a node: pods of other blocks can't leave the cluster",
            remedy,
        );
    } else {
        lines.fail(
            Point::Masquerade,
            format!(
                "iptables masquerades, and `egress-masquerade-interfaces` is not set: agents of Cilium 1.19 and later \
                 exit at their start ({})",
                ten_of(panicking)
            ),
            remedy,
        );
    }
}

/// Who makes routers and other nodes know the blocks. Tunnels need no routes.
fn announcements(
    installation: &Installation,
    settings: &Settings,
    mode: Option<IpamMode>,
    lines: &mut Lines,
) {
    let point = Point::Announcements;
    let routes = installation.exporter.as_ref().ok().and_then(Option::as_deref);
    let has_bgp = is_on(settings, "enable-bgp-control-plane", IfAbsent::Off);
    if !is_native(settings) {
        lines.ok(point, "Cilium runs with a tunnel, so blocks need no routes");
    } else if let Some(routes) = routes.filter(|routes| !["none", "remove"].contains(routes)) {
        lines.ok(point, format!("the controller announces the blocks (--routes {routes})"));
    } else if is_on(settings, "auto-direct-node-routes", IfAbsent::Off) {
        lines.ok(point, "nodes of one network have routes to each other (`auto-direct-node-routes`)");
    } else if has_bgp && mode == Some(IpamMode::Crd) {
        lines.warn(
            point,
            "Cilium's BGP announces no addresses of pods in crd mode: a node loses its route when its agent restarts",
            "Announce the blocks with --routes of the controller before the change (docs/how-to/routes.md).",
        );
    } else if has_bgp {
        lines.ok(point, "Cilium's BGP can announce the blocks");
    } else {
        lines.unseen(
            point,
            "neither Cilium nor the controller announces the blocks of nodes",
            "Compare `cilium-node-ipam routes` with the routes of your network.",
        );
    }
}

fn is_native(settings: &Settings) -> bool {
    match settings.get("routing-mode") {
        Some(named) => named.trim() == "native",
        None => settings.get("tunnel").is_some_and(|old| old.trim() == "disabled"),
    }
}

/// Settings that give nodes ranges from elsewhere in the mode crd.
fn only_in_other_modes(settings: &Settings, lines: &mut Lines) {
    if is_on(settings, "annotate-k8s-node", IfAbsent::Off) {
        lines.fail(
            Point::AnnotateNode,
            "`annotate-k8s-node` is true: agents take ranges from annotations of their Nodes",
            "Helm: annotateK8sNode=false.",
        );
    } else {
        lines.ok(Point::AnnotateNode, "agents read no annotations of Nodes");
    }
    match settings.get("ipam-static-ip-tags").map_or("", |tags| tags.trim()) {
        "" => lines.ok(Point::StaticIpTags, "no static IP tags are set"),
        tags => lines.fail(
            Point::StaticIpTags,
            format!(
                "`ipam-static-ip-tags` is {tags}: agents from 1.20.2 on wait forever for such an address"
            ),
            "Remove `ipam-static-ip-tags` from cilium-config.",
        ),
    }
}

fn kvstore(settings: &Settings, lines: &mut Lines) {
    match settings.get("kvstore").map_or("", |kvstore| kvstore.trim()) {
        "" => lines.ok(Point::Kvstore, "Cilium has no kvstore"),
        kvstore => lines.fail(
            Point::Kvstore,
            format!("Cilium has the kvstore {kvstore}: agents do not read the blocks of other nodes from CiliumNodes"),
            "Helm: etcd.enabled=false, with identityAllocationMode=crd.",
        ),
    }
}
