//! Other allocators: cilium-operator, kube-controller-manager and other CNIs.

use super::points::{Lines, Point};
use crate::model::counted::counted;
use crate::model::installation::{DaemonSet, Installation, Process};
use crate::model::names::{NodeName, ten_by_number};
use crate::publisher::{self, ipam_mode::IpamMode};
use crate::world::World;

/// CNIs that give addresses to pods: a word in the name of their DaemonSet or in their image, and the name.
const OTHERS: [(&str, &str); 13] = [
    ("calico-node", "Calico"),
    ("calico/node", "Calico"),
    ("canal", "Canal"),
    ("flannel", "Flannel"),
    ("weave-net", "Weave Net"),
    ("weave-kube", "Weave Net"),
    ("kube-router", "kube-router"),
    ("antrea-agent", "Antrea"),
    ("amazon-k8s-cni", "the AWS VPC CNI"),
    ("azure-cns", "the Azure CNI"),
    ("ovnkube-node", "OVN-Kubernetes"),
    ("kube-ovn-cni", "Kube-OVN"),
    ("kindnet", "kindnet"),
];

pub(super) fn look(world: &World, installation: &Installation, lines: &mut Lines) {
    operator(world, installation, lines);
    controller_manager(world, installation, lines);
    let how = "kubectl get daemonsets -A -o wide";
    if let Some(sets) = lines.seen(Point::OtherCni, &installation.daemon_sets, how) {
        for (set, name) in sets.iter().filter_map(|set| Some((set, cni_of(set)?))) {
            lines.warn(
                Point::OtherCni,
                format!(
                    "DaemonSet {} is that of {name}: pods may get addresses of it beside those of Cilium",
                    set.name
                ),
                "Keep its ranges out of the pools (`exclude`) until its last pod is deleted.",
            );
        }
        lines.ok_if_silent(Point::OtherCni, "no DaemonSet of another CNI is known");
    }
}

/// The name of the CNI that a DaemonSet runs, if it is a known one.
fn cni_of(set: &DaemonSet) -> Option<&'static str> {
    let name = set.name.rsplit('/').next().unwrap_or_default();
    let has = |word: &str| name.contains(word) || set.images.iter().any(|image| image.contains(word));
    OTHERS.into_iter().find(|(word, _)| has(word)).map(|(_, name)| name)
}

fn operator(world: &World, installation: &Installation, lines: &mut Lines) {
    let mode = match world.mode().ipam_mode() {
        None => return,
        Some(mode @ (IpamMode::Crd | IpamMode::Kubernetes)) => {
            let text = format!("cilium-operator allocates nothing in the mode {}", mode.as_str());
            lines.ok(Point::CiliumOperator, text);
            return;
        }
        Some(mode @ (IpamMode::MultiPool | IpamMode::ClusterPool)) => mode.as_str(),
    };
    let namespace = &installation.cilium_namespace;
    let how = format!("kubectl -n {namespace} get deployment cilium-operator -o yaml");
    let Some(operators) = lines.seen(Point::CiliumOperator, &installation.operators, how.clone()) else {
        return;
    };
    if operators.is_empty() {
        let text = format!("namespace {namespace} has no Deployment of cilium-operator");
        lines.unseen(Point::CiliumOperator, text, how);
        return;
    }
    for operator in operators {
        match operator.flag("ipam") {
            Some("kubernetes") => {
                lines.ok(
                    Point::CiliumOperator,
                    format!("{} runs with --ipam=kubernetes and allocates nothing", operator.name),
                );
            }
            Some(_) | None => lines.fail(
                Point::CiliumOperator,
                format!("{} runs without --ipam=kubernetes: it allocates in the mode {mode}", operator.name),
                "Helm: operator.extraArgs={--ipam=kubernetes}.",
            ),
        }
    }
}

fn controller_manager(world: &World, installation: &Installation, lines: &mut Lines) {
    let point = Point::ControllerManager;
    let with: Vec<&NodeName> = world
        .nodes()
        .filter(|node| !publisher::pod_cidrs_of(node).is_empty())
        .map(|node| &node.name)
        .collect();
    let traces = format!("{} have spec.podCIDRs ({})", counted(with.len(), "Node"), ten_by_number(&with));
    let how =
        "at its flags, or ask the provider of the cluster: it must run with --allocate-node-cidrs=false.";
    let Some(processes) = lines.seen(point, &installation.controller_managers, how) else { return };
    if processes.is_empty() {
        let trace = if with.is_empty() { "no Node has spec.podCIDRs".to_owned() } else { traces };
        lines.unseen(point, format!("its Pods can't be seen; {trace}"), how);
        return;
    }
    let allocates =
        |process: &&Process| process.flag("allocate-node-cidrs").is_some_and(|value| value != "false");
    let Some(allocating) = processes.iter().find(allocates) else {
        lines.ok(point, "it runs without --allocate-node-cidrs");
        return;
    };
    let text = format!("{} runs with --allocate-node-cidrs", allocating.name);
    let remedy = "Start kube-controller-manager with --allocate-node-cidrs=false.";
    match world.mode().ipam_mode() {
        Some(IpamMode::Kubernetes) => {
            lines.fail(
                point,
                format!("{text}: it gives nodes their podCIDRs before the controller can"),
                remedy,
            );
        }
        Some(IpamMode::Crd | IpamMode::MultiPool | IpamMode::ClusterPool) | None => {
            lines.warn(
                point,
                format!("{text}: routers and cloud routes may follow the podCIDRs that it gives"),
                remedy,
            );
        }
    }
}
