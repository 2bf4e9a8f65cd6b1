//! The cluster itself: versions, definitions, APIServices and rights.

use super::points::{Lines, Point};
use crate::model::counted::counted;
use crate::model::installation::{Installation, Right};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number, ten_of};
use crate::publisher::support::Support;
use crate::view::agents::{Census, census, explained};
use crate::world::World;

/// The oldest minor version of Kubernetes 1 (`docs/requirements.md`).
const OLDEST: u16 = 33;

pub(super) fn versions(world: &World, installation: &Installation, lines: &mut Lines) {
    if let Some(version) = lines.seen(Point::Kubernetes, &installation.server, "kubectl version") {
        match minor_of(version) {
            Some((1, minor)) if minor < OLDEST => lines.fail(
                Point::Kubernetes,
                format!(
                    "the API server has version {version}, and the oldest supported version is 1.{OLDEST}"
                ),
                "Upgrade Kubernetes first.",
            ),
            Some(_) => lines.ok(Point::Kubernetes, format!("the API server has version {version}")),
            None => lines.unseen(
                Point::Kubernetes,
                format!("the API server has version {version}, which is not a Kubernetes version"),
                format!("Compare it with 1.{OLDEST}, the oldest supported version."),
            ),
        }
    }
    let namespace = &installation.cilium_namespace;
    let how = format!("kubectl -n {namespace} get pods -l k8s-app=cilium -o wide");
    if let Some(why) = installation.unlisted.get(&Kind::Node) {
        lines.unseen(Point::Agents, format!("Nodes can't be listed: {why}"), "kubectl get nodes");
        return;
    }
    if let Some(why) = world.agents_unlisted() {
        lines.unseen(Point::Agents, why, how);
        return;
    }
    if !world.nodes().any(|node| world.agents_on(&node.name).next().is_some()) {
        lines.fail(
            Point::Agents,
            format!("namespace {namespace} has no Pod with the label k8s-app=cilium on any Node"),
            format!("Install Cilium, or name its namespace with --cilium-namespace: {how}"),
        );
        return;
    }
    let without = |node: &&NodeName| world.agents_on(node).next().is_none();
    for group in census(world) {
        let Census { support, nodes, .. } = &group;
        // A node that has just joined has no agent yet.
        let (absent, present): (Vec<_>, Vec<_>) = nodes.iter().copied().partition(without);
        if !absent.is_empty() {
            lines.warn(
                Point::Agents,
                format!("{} without an agent: {}", counted(absent.len(), "node"), ten_by_number(absent)),
                how.clone(),
            );
        }
        if present.is_empty() {
            continue;
        }
        let text = explained(world, &Census { nodes: present, ..group.clone() });
        match support {
            Support::None | Support::Outdated => {
                lines.fail(Point::Agents, text, "Upgrade Cilium to 1.14.2 or newer.");
            }
            Support::Unknown => {
                lines.warn(
                    Point::Agents,
                    text,
                    "Upgrade Cilium to 1.14.2 or newer, or read docs/cilium.md (Support).",
                );
            }
            Support::Full => lines.ok(Point::Agents, text),
        }
    }
}

/// The major and minor number of a version such as `v1.35.4+k3s1`.
fn minor_of(version: &str) -> Option<(u16, u16)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).split('.');
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    Some((digits(parts.next()?).parse().ok()?, digits(parts.next()?).parse().ok()?))
}

pub(super) fn look(installation: &Installation, lines: &mut Lines) {
    definitions(installation, lines);
    let how = "kubectl get apiservices";
    if let Some(unavailable) = lines.seen(Point::ApiServices, &installation.unavailable, how) {
        for service in unavailable {
            lines.warn(
                Point::ApiServices,
                format!(
                    "APIService {} is not available ({}): garbage collection stops, so CiliumNodes of deleted Nodes \
                     keep their blocks",
                    service.name, service.reason
                ),
                format!("Repair its backend, or delete it: kubectl describe apiservice {}", service.name),
            );
        }
        lines.ok_if_silent(Point::ApiServices, "all APIServices are available");
    }
    if let Some(rights) = lines.seen(Point::YourRights, &installation.user, "kubectl auth can-i --list") {
        if let Some(missing) = missing(rights) {
            lines.warn(
                Point::YourRights,
                format!("your user lacks rights for the installation: {missing}"),
                "Ask an administrator of the cluster for them, or to install the controller.",
            );
        }
        lines.ok_if_silent(Point::YourRights, "your user may install the controller and create pools");
    }
    let account = format!("system:serviceaccount:{}:cilium-node-ipam", installation.namespace);
    let how = format!("kubectl auth can-i --list --as {account}");
    match lines.seen(Point::ControllerRights, &installation.controller, how) {
        Some(Some(rights)) => {
            if let Some(missing) = missing(rights) {
                lines.fail(
                    Point::ControllerRights,
                    format!("the controller lacks rights: {missing}"),
                    "Install the chart or manifests/install.yaml again: they grant these rights.",
                );
            }
            lines.ok_if_silent(Point::ControllerRights, "the controller has the rights that its mode needs");
        }
        Some(None) => {
            lines.ok(
                Point::ControllerRights,
                "its ServiceAccount does not exist yet: the installation grants its rights",
            );
        }
        None => {}
    }
}

/// The rights that are not granted, if there are any.
fn missing(rights: &[Right]) -> Option<String> {
    let missing: Vec<&String> =
        rights.iter().filter(|right| !right.granted).map(|right| &right.name).collect();
    (!missing.is_empty()).then(|| ten_of(missing))
}

fn definitions(installation: &Installation, lines: &mut Lines) {
    let how = "kubectl get crd nodeippools.nodeipam.io nodeipblocks.nodeipam.io";
    let Some(found) = lines.seen(Point::Definitions, &installation.definitions, how) else { return };
    if found.is_empty() {
        lines.ok(Point::Definitions, "not installed yet: the chart and the folder crds have them");
    }
    for definition in found {
        let name = &definition.name;
        if definition.deleting {
            lines.fail(
                Point::Definitions,
                format!("CustomResourceDefinition {name} is being deleted, with all its objects"),
                "Wait until it is deleted, and install it again.",
            );
        } else if let Some(old) = &definition.old {
            lines.warn(
                Point::Definitions,
                format!(
                    "CustomResourceDefinition {name} is of another version, without {}",
                    ten_of(&old.missing)
                ),
                "cilium-node-ipam crd | kubectl apply --server-side -f -",
            );
        }
    }
    lines.ok_if_silent(Point::Definitions, "both CustomResourceDefinitions are those of this version");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_with_any_suffix() {
        for (version, expected) in [
            ("v1.35.4", Some((1, 35))),
            ("v1.33.1+k3s1", Some((1, 33))),
            ("v1.32+", Some((1, 32))),
            ("latest", None),
        ] {
            assert_eq!(minor_of(version), expected, "{version}");
        }
    }
}
