//! The four kinds of objects that a test writes and reads, untyped, and builders for those that it makes.
//!
//! Untyped on purpose: the tests of the product must see the fields that the product's types omit.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

/// The kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    CiliumNode,
    Pool,
    Block,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Node, Self::CiliumNode, Self::Pool, Self::Block];

    pub(crate) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Node => ("", "v1", "Node", "nodes"),
            Self::CiliumNode => ("cilium.io", "v2", "CiliumNode", "ciliumnodes"),
            Self::Pool => ("nodeipam.io", "v1alpha1", "NodeIPPool", "nodeippools"),
            Self::Block => ("nodeipam.io", "v1alpha1", "NodeIPBlock", "nodeipblocks"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    pub(crate) fn api(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// An object of this kind from its fields beside the metadata.
    pub(crate) fn object(self, name: &str, data: Value) -> DynamicObject {
        DynamicObject::new(name, &self.resource()).data(data)
    }
}

/// A Node to be made.
#[derive(Clone, Debug)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Its InternalIP; `None` for one of each family, which the test does not choose.
    pub(crate) address: Option<IpAddr>,
}

impl NodeSpec {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), labels: BTreeMap::new(), annotations: BTreeMap::new(), address: None }
    }

    #[must_use]
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With this InternalIP alone.
    #[must_use]
    pub(crate) fn at(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// The Node with its status. `index` chooses the addresses.
    pub(crate) fn object(&self, index: u32) -> DynamicObject {
        let internal = self.address.map_or_else(|| node_addresses(index).to_vec(), |address| vec![address]);
        let internal =
            internal.iter().map(|address| json!({"type": "InternalIP", "address": address.to_string()}));
        let hostname = json!({"type": "Hostname", "address": self.name});
        let addresses: Vec<Value> = internal.chain([hostname]).collect();
        let mut node = Kind::Node.object(&self.name, json!({"spec": {}, "status": {"addresses": addresses}}));
        node.metadata.labels = Some(self.labels.clone());
        node.metadata.annotations = Some(self.annotations.clone());
        node
    }
}

/// The addresses of the node with this index: one of 172.16.0.0/12 and one of `fd00:cafe::/96`.
pub(crate) fn node_addresses(index: u32) -> [IpAddr; 2] {
    let host = index % 0x000f_fffe + 1;
    let ipv4 = Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 16, 0, 0)) + host);
    let ipv6 = Ipv6Addr::from(u128::from(Ipv6Addr::new(0xfd00, 0xcafe, 0, 0, 0, 0, 0, 0)) + u128::from(host));
    [ipv4.into(), ipv6.into()]
}

/// A `NodeIPPool` to be made.
#[derive(Clone, Debug)]
pub(crate) struct PoolSpec {
    pub(crate) name: String,
    /// The `spec`, to be changed at will before it is written.
    pub(crate) spec: Value,
}

impl PoolSpec {
    /// A pool without ranges that selects every node.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), spec: json!({}) }
    }

    /// Selects nodes with this label; several calls narrow the choice.
    #[must_use]
    pub(crate) fn select(mut self, key: &str, value: &str) -> Self {
        self.spec["nodeSelector"]["matchLabels"][key] = value.into();
        self
    }

    #[must_use]
    pub(crate) fn ipv4(self, block_size: u8, cidrs: &[&str]) -> Self {
        self.family("ipv4", block_size, cidrs)
    }

    #[must_use]
    pub(crate) fn ipv6(self, block_size: u8, cidrs: &[&str]) -> Self {
        self.family("ipv6", block_size, cidrs)
    }

    /// Sets a top-level field of the spec, such as `priority` or `reclaim`.
    #[must_use]
    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.spec[field] = value.into();
        self
    }

    pub(crate) fn object(&self) -> DynamicObject {
        Kind::Pool.object(&self.name, json!({"spec": self.spec}))
    }

    fn family(mut self, family: &str, block_size: u8, cidrs: &[&str]) -> Self {
        let cidrs: Vec<_> = cidrs.iter().map(|cidr| json!({"cidr": cidr})).collect();
        self.spec[family]["blockSize"] = block_size.into();
        self.spec[family]["cidrs"] = cidrs.into();
        self
    }
}

/// The `NodeIPBlock` that claims `cidr`, as the controller would make it, for tests that play the controller.
pub(crate) fn claim(cidr: &str, pool: &str, node: &str, node_uid: &str, state: &str) -> DynamicObject {
    let spec = json!({
        "cidr": cidr, "pool": pool, "node": node, "nodeUID": node_uid, "state": state, "since": "2026-01-01T00:00:00Z",
    });
    Kind::Block.object(&claim_name(cidr), json!({"spec": spec}))
}

/// The claim as a controller makes it for this CiliumNode, of a block that no CiliumNode has ever carried.
pub(crate) fn created_for(mut claim: DynamicObject, cilium_node_uid: &str) -> DynamicObject {
    claim.data["spec"]["createdForCiliumNodeUID"] = cilium_node_uid.into();
    claim
}

/// The claim with the finalizer that a controller gives it. The deletion of a claim without it counts as forced.
pub(crate) fn with_finalizer(mut claim: DynamicObject) -> DynamicObject {
    claim.metadata.finalizers = Some(vec!["nodeipam.io/claim".to_owned()]);
    claim
}

/// The name of the claim of a CIDR: IPv6 is written out in full.
pub(crate) fn claim_name(cidr: &str) -> String {
    let (address, length) = cidr.split_once('/').unwrap_or((cidr, ""));
    let address = match address.parse::<Ipv6Addr>() {
        Ok(ipv6) => ipv6.segments().map(|segment| format!("{segment:04x}")).join("-"),
        Err(_) => address.to_owned(),
    };
    format!("{address}-{length}")
}
