//! The imitation of Cilium's node discovery (`pkg/nodediscovery`): the facts about its Node that the agent writes on
//! the CiliumNode.
//!
//! The agent reads the object, replaces its own fields, and PUTs the whole object. The fields of other writers stay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{Addresses, Started};
use crate::support::families::{Families, Family};
use crate::support::views::pod_cidrs;

/// The agent's knowledge of its Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalNode {
    pub(super) name: String,
    uid: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    /// Type and address, in the order of the Node.
    addresses: Vec<(String, String)>,
    /// The CIDRs that the mode kubernetes uses.
    pub(super) pod_cidrs: Vec<String>,
}

impl LocalNode {
    pub(super) fn of(node: &DynamicObject) -> Self {
        let metadata = node.metadata.clone();
        let listed = node.data["status"]["addresses"].as_array().into_iter().flatten();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let addresses = listed.map(|entry| (text(entry, "type"), text(entry, "address")));
        // Only Cilium's own annotations are copied.
        let annotations: BTreeMap<_, _> =
            metadata.annotations.unwrap_or_default().into_iter().filter(|(key, _)| is_ciliums(key)).collect();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.filter(|labels| !labels.is_empty()),
            annotations: (!annotations.is_empty()).then_some(annotations),
            addresses: addresses.filter(|(_, address)| address.parse::<IpAddr>().is_ok()).collect(),
            pod_cidrs: pod_cidrs(node),
        }
    }

    /// The node's own addresses, which no pod may get.
    pub(super) fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let internal = self.addresses.iter().filter(|(kind, _)| kind == "InternalIP");
        internal.filter_map(|(_, address)| address.parse().ok()).collect()
    }

    /// Writes the agent's own fields into the CiliumNode.
    pub(super) fn mutate(&self, cilium_node: &mut DynamicObject, infra: &Started, families: Families) {
        cilium_node.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        }]);
        cilium_node.metadata.labels.clone_from(&self.labels);
        cilium_node.metadata.annotations.clone_from(&self.annotations);
        let spec = &mut cilium_node.data["spec"];
        // The router's address is kept until there is a new one.
        let kept = spec["addresses"].as_array().into_iter().flatten().filter(|entry| {
            let family = Family::of_text(entry["ip"].as_str().unwrap_or_default());
            let enabled = families.each().any(|enabled| enabled == family);
            entry["type"] == ROUTER && enabled && infra.router.of(family).is_none()
        });
        let of_node = self.addresses.iter().map(|(kind, ip)| json!({"type": kind, "ip": ip}));
        let router = infra.router.each().map(|ip| json!({"type": ROUTER, "ip": ip}));
        spec["addresses"] = kept.cloned().chain(of_node).chain(router).collect();
        spec["health"] = by_family(infra.health);
        spec["ingress"] = by_family(infra.ingress);
        // Fixed for all imitations: the value matters only to Cilium.
        spec["bootid"] = "00000000-0000-4000-8000-000000000000".into();
    }
}

const ROUTER: &str = "CiliumInternalIP";

/// The router's addresses and those of the health endpoint that an earlier agent left on the CiliumNode.
pub(super) fn left_behind(cilium_node: &DynamicObject) -> Started {
    let spec = &cilium_node.data["spec"];
    let mut left = Started::default();
    for entry in spec["addresses"].as_array().into_iter().flatten().filter(|entry| entry["type"] == ROUTER) {
        if let Some(address) = entry["ip"].as_str().and_then(|ip| ip.parse().ok()) {
            left.router.set(Family::of(address), Some(address));
        }
    }
    let health = |family: &str| spec["health"][family].as_str().and_then(|ip| ip.parse().ok());
    left.health = Addresses { ipv4: health("ipv4"), ipv6: health("ipv6") };
    left
}

fn by_family(addresses: Addresses) -> Value {
    let mut object = json!({});
    for address in addresses.each() {
        object[if address.is_ipv4() { "ipv4" } else { "ipv6" }] = address.to_string().into();
    }
    object
}

/// Whether Cilium regards the annotation as its own: `cilium.io/` or a subdomain of it before the slash.
fn is_ciliums(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| domain == "cilium.io" || domain.ends_with(".cilium.io"))
}
