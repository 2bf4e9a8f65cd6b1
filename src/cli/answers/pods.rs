//! The Pods behind an answer: those on some nodes, those with some addresses, and those of some names.
//!
//! Agents name the pods of the addresses that they use in their CiliumNodes, so a user without the right to list Pods
//! sees these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::bail;
use kube::Api;
use kube::api::{DynamicObject, ListParams};

use super::Live;
use super::around::{self, Objects, list_kind, plain, resource};
use crate::controller::client::{Clients, FIELD_MANAGER};
use crate::model::names::NodeName;
use crate::model::surroundings::PodAddresses;
use crate::view::moving::PodsByNode;
use crate::wire::node_pods::NODE_FIELD;
use crate::wire::surroundings;

/// For more nodes or addresses than these, one list of all objects takes less time.
const MAX_EACH: usize = 20;

/// A Pod in an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodArgument {
    /// `None` for those of all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

impl PodArgument {
    /// `NAMESPACE/NAME`, or `pod/NAME` as `kubectl get pods -o name` prints it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        let is_name = |text: &str| {
            let is_inner = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
            !text.is_empty() && text.chars().all(|char| is_inner(char) || matches!(char, '-' | '.'))
        };
        let namespace = (!["pod", "pods", "po"].contains(&namespace)).then(|| namespace.to_owned());
        let is_pod = is_name(name) && namespace.as_deref().is_none_or(is_name);
        is_pod.then(|| Self { namespace, name: name.to_owned() })
    }

    /// Whether it means the pod of this namespace and name.
    fn is(&self, pod: &str) -> bool {
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        name == self.name && self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
    }

    /// The addresses of these Pods.
    pub(super) async fn addresses(&self, live: &Live) -> anyhow::Result<Vec<IpAddr>> {
        let mut listed = Objects::default();
        let objects = match live {
            Live::Files { objects, .. } => objects,
            Live::Cluster(clients) => {
                let name = ListParams::default().fields(&format!("metadata.name={}", self.name));
                add(clients, Kind::Pod, self.namespace.as_deref(), name, &mut listed).await?;
                &listed
            }
        };
        let found = objects.around.by_address().into_iter().filter(|(_, pod)| self.is(pod));
        let addresses: Vec<IpAddr> = found.map(|(address, _)| address).collect();
        if addresses.is_empty() {
            let name = &self.name;
            if let Some(skipped) = listed.skipped.first() {
                bail!("can't look for Pod {name}: not seen: {skipped}");
            }
            let namespace = self.namespace.as_ref().map_or("-A".to_owned(), |name| format!("-n {name}"));
            bail!(
                "no Pod {name} with an address of its own: kubectl get pods {namespace} -o wide --field-selector \
                 metadata.name={name}"
            );
        }
        Ok(addresses)
    }
}

/// The kinds that know Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    CiliumNode,
}

/// The Pods with addresses, by node: of these nodes, or of all. A reason says why they are not known.
pub(in crate::cli) async fn by_node(
    live: &Live,
    nodes: Option<&BTreeSet<NodeName>>,
) -> anyhow::Result<PodsByNode> {
    let mut listed = Objects::default();
    let objects = match (live, nodes) {
        (Live::Files { objects, .. }, _) => objects,
        (Live::Cluster(clients), Some(nodes)) if nodes.len() <= MAX_EACH => {
            for node in nodes {
                let on_node = ListParams::default().fields(&format!("{NODE_FIELD}={node}"));
                add(clients, Kind::Pod, None, on_node, &mut listed).await?;
            }
            &listed
        }
        (Live::Cluster(clients), _) => {
            add(clients, Kind::Pod, None, ListParams::default(), &mut listed).await?;
            &listed
        }
    };
    if let Some(why) = objects.skipped.iter().find(|skipped| skipped.starts_with("Pods, ")) {
        return Ok(Err(why.clone()));
    }
    let mut found: BTreeMap<NodeName, Vec<PodAddresses>> = BTreeMap::new();
    for pod in &objects.around.pods {
        if let Some(node) = &pod.node {
            found.entry(node.clone()).or_default().push(pod.clone());
        }
    }
    Ok(Ok(found))
}

/// Adds the Pods on these nodes, and those with these addresses.
pub(super) async fn add_pods(
    live: &Live,
    nodes: &BTreeSet<NodeName>,
    addresses: &BTreeSet<IpAddr>,
    objects: &mut Objects,
) -> anyhow::Result<()> {
    let Live::Cluster(clients) = live else { return Ok(()) };
    if nodes.len() + addresses.len() > MAX_EACH {
        add(clients, Kind::CiliumNode, None, ListParams::default(), objects).await?;
        return add(clients, Kind::Pod, None, ListParams::default(), objects).await;
    }
    for node in nodes {
        let name = ListParams::default().fields(&format!("metadata.name={node}"));
        add(clients, Kind::CiliumNode, None, name, objects).await?;
        add(clients, Kind::Pod, None, ListParams::default().fields(&format!("{NODE_FIELD}={node}")), objects)
            .await?;
    }
    for address in addresses {
        let with_address = ListParams::default().fields(&format!("status.podIP={address}"));
        add(clients, Kind::Pod, None, with_address, objects).await?;
    }
    Ok(())
}

/// The fields of Pods that are bound and have no address yet. Those on the network of their host have that of the node.
const WAITING: &str = "spec.nodeName!=,status.podIP=,status.phase=Pending";

/// The Pods that are bound to nodes and have no address, and whether some may be missing. A cluster has few of them, so
/// they are selected by the server.
pub(super) async fn waiting(live: &Live) -> anyhow::Result<Objects> {
    let clients = match live {
        Live::Files { objects, .. } => return Ok(objects.clone()),
        Live::Cluster(clients) => clients,
    };
    let mut objects = Objects::default();
    add(clients, Kind::Pod, None, ListParams::default().fields(WAITING), &mut objects).await?;
    Ok(objects)
}

/// Adds the selected objects of a kind. Without the right to list it, the objects say so once.
async fn add(
    clients: &Clients,
    kind: Kind,
    namespace: Option<&str>,
    params: ListParams,
    objects: &mut Objects,
) -> anyhow::Result<()> {
    let (name, resource) = match kind {
        Kind::Pod => ("Pod", resource("", "v1", "Pod", "pods")),
        Kind::CiliumNode => ("CiliumNode", resource("cilium.io", "v2", "CiliumNode", "ciliumnodes")),
    };
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(clients.reads.clone(), namespace, &resource),
        None => Api::all_with(clients.reads.clone(), &resource),
    };
    let Objects { around, skipped } = objects;
    let page = |page: Vec<DynamicObject>| {
        for found in page {
            surroundings::add(around, &plain(found, name)?, FIELD_MANAGER);
        }
        Ok(())
    };
    list_kind(clients, &api, params, name, skipped, page).await?;
    skipped.dedup();
    Ok(())
}

/// Whether a kind that was skipped has Pods.
pub(super) fn is_of_pods(skipped: &str) -> bool {
    skipped.starts_with("Pods, ") || skipped == format!("CiliumNodes, {}", around::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_with_its_namespace_or_its_type() {
        let parsed = |text: &str| {
            let pod = PodArgument::parse(text)?;
            Some(format!("{} {}", pod.namespace.unwrap_or_default(), pod.name))
        };
        assert_eq!(parsed("shop/web-1").as_deref(), Some("shop web-1"));
        assert_eq!(parsed("pod/web-1").as_deref(), Some(" web-1"));
        for text in ["web-1", "shop/", "/web", "10.0.0.0/x/y", "shop/Web", "a b/c"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
