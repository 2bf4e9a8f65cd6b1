//! The Node on the wire: labels, addresses and podCIDRs, and nothing else of it.
//!
//! Addresses that are no IP addresses are skipped. A podCIDR that is none is reported. Patches of Nodes, in the mode in
//! which they carry blocks, are made in `carrier_patch`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::cilium_node::read_cidrs;
use super::watched::{Meta, Wire};
use crate::model::kind::Kind;
use crate::model::node::{Node, NodeAddress};
use crate::model::observation::Object;
use crate::model::revision::{Core, Revision};

/// The annotation that makes a later version of a carrier. On a Node it says as of which revision of the claims.
pub(super) const LATER_THAN: &str = "nodeipam.io/later-than";

/// Nodes.
#[derive(Debug, Clone)]
pub struct Nodes;

impl Wire for Nodes {
    const KIND: Kind = Kind::Node;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "nodes";
    type Store = Core;

    fn read(json: &str, meta: &Meta, revision: Revision<Core>) -> Result<Object, String> {
        read_node(json, meta, revision).map(Object::Node).map_err(|error| error.to_string())
    }
}

/// Reads a Node.
fn read_node(json: &str, meta: &Meta, revision: Revision<Core>) -> Result<Node, serde_json::Error> {
    let wire: WireNode = serde_json::from_str(json)?;
    let addresses = wire.status.and_then(|status| status.addresses).unwrap_or_default();
    let mut annotations = wire.metadata.annotations.unwrap_or_default();
    let spec = wire.spec.unwrap_or_default();
    let mut listed = spec.pod_cidrs.unwrap_or_default();
    // The server keeps both alike. Whatever is only in the old field counts too.
    listed.extend(spec.pod_cidr.filter(|cidr| !cidr.is_empty() && !listed.contains(cidr)));
    let mut malformed = Vec::new();
    let pod_cidrs = read_cidrs(Kind::Node, "spec.podCIDRs", listed, &mut malformed);
    Ok(Node {
        name: meta.name.as_str().into(),
        uid: meta.uid.as_str().into(),
        revision,
        labels: wire.metadata.labels.unwrap_or_default(),
        deleting: meta.is_deleting(),
        // Hostnames are among them.
        addresses: addresses
            .into_iter()
            .filter_map(|entry| Some(NodeAddress { address: entry.address.parse().ok()?, kind: entry.kind }))
            .collect(),
        pod_cidrs,
        later_than: annotations.remove(LATER_THAN).and_then(|text| Revision::parse(&text)),
        malformed,
    })
}

#[derive(Deserialize)]
struct WireNode {
    metadata: WireNodeMeta,
    spec: Option<WireNodeSpec>,
    status: Option<WireNodeStatus>,
}

#[derive(Deserialize)]
struct WireNodeMeta {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct WireNodeSpec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct WireNodeStatus {
    addresses: Option<Vec<WireNodeAddress>>,
}

#[derive(Deserialize)]
struct WireNodeAddress {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    address: String,
}
