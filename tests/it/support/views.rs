//! The content of a CiliumNode and a claim, read from the untyped objects.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::Value;

/// The part of a CiliumNode that addresses are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// Its podCIDRs, and in multi-pool mode the allocated ones of every Cilium pool.
    pub(crate) pod_cidrs: Vec<String>,
    /// Multi-pool mode: how many IPv4 addresses the agent needs, by Cilium pool.
    pub(crate) needed: BTreeMap<String, u64>,
    /// Address to owner, which is empty for most.
    pub(crate) pool: BTreeMap<String, String>,
    /// Address to owner. `None` if the agent has never reported its use.
    pub(crate) used: Option<BTreeMap<String, String>>,
    /// Address to the state of its release.
    pub(crate) release: BTreeMap<String, String>,
}

impl Published {
    pub(crate) fn of(cilium_node: &DynamicObject) -> Self {
        let (spec, status) = (&cilium_node.data["spec"]["ipam"], &cilium_node.data["status"]["ipam"]);
        let owner = |entry: &Value| entry["owner"].as_str().unwrap_or_default().to_owned();
        let pools = &spec["pools"];
        let allocated = each(&pools["allocated"]).flat_map(|entry| strings(&entry["cidrs"]));
        let needed = each(&pools["requested"]).map(|entry| {
            let name = entry["pool"].as_str().unwrap_or_default().to_owned();
            (name, entry["needed"]["ipv4-addrs"].as_u64().unwrap_or_default())
        });
        Self {
            uid: cilium_node.metadata.uid.clone().unwrap_or_default(),
            resource_version: cilium_node.metadata.resource_version.clone().unwrap_or_default(),
            pod_cidrs: strings(&spec["podCIDRs"]).into_iter().chain(allocated).collect(),
            needed: needed.collect(),
            pool: entries(&spec["pool"], owner).unwrap_or_default(),
            used: entries(&status["used"], owner),
            release: entries(&status["release-ips"], |state| state.as_str().unwrap_or_default().to_owned())
                .unwrap_or_default(),
        }
    }

    /// The number of addresses that the agent reports as used.
    pub(crate) fn n_used(&self) -> usize {
        self.used.as_ref().map_or(0, BTreeMap::len)
    }
}

/// The part of a claim that tests ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) cidr: String,
    pub(crate) pool: String,
    pub(crate) node: String,
    pub(crate) node_uid: String,
    pub(crate) state: String,
    pub(crate) reason: String,
}

impl Claim {
    pub(crate) fn of(block: &DynamicObject) -> Self {
        let text = |field: &str| block.data["spec"][field].as_str().unwrap_or_default().to_owned();
        Self {
            name: block.metadata.name.clone().unwrap_or_default(),
            cidr: text("cidr"),
            pool: text("pool"),
            node: text("node"),
            node_uid: text("nodeUID"),
            state: text("state"),
            reason: text("reason"),
        }
    }
}

/// The CIDRs that a Node itself carries, in its spec or else in annotations.
pub(crate) fn pod_cidrs(node: &DynamicObject) -> Vec<String> {
    let annotation = |key: &&str| node.metadata.annotations.as_ref()?.get(*key).cloned();
    let listed = strings(&node.data["spec"]["podCIDRs"]);
    if listed.is_empty() { POD_CIDR_ANNOTATIONS.iter().filter_map(annotation).collect() } else { listed }
}

/// The annotations that agents read first.
const POD_CIDR_ANNOTATIONS: [&str; 2] =
    ["network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr"];

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn strings(list: &Value) -> Vec<String> {
    each(list).filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn entries(map: &Value, value: impl Fn(&Value) -> String) -> Option<BTreeMap<String, String>> {
    Some(map.as_object()?.iter().map(|(key, entry)| (key.clone(), value(entry))).collect())
}
