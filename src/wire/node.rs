//! The Node on the wire: labels and addresses, and nothing else of it.
//!
//! Addresses that are no IP addresses are skipped. The controller never writes a Node.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::watched::{Meta, Wire};
use crate::model::kind::Kind;
use crate::model::node::{Node, NodeAddress};
use crate::model::observation::Object;
use crate::model::revision::{Core, Revision};

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
    })
}

#[derive(Deserialize)]
struct WireNode {
    metadata: WireNodeMeta,
    status: Option<WireNodeStatus>,
}

#[derive(Deserialize)]
struct WireNodeMeta {
    labels: Option<BTreeMap<String, String>>,
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
