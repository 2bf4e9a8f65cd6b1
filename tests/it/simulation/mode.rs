//! The modes of Cilium that a cluster runs, and the blocks that a node shows in each mode.
//!
//! The judge looks at all fields at once: in a sound cluster of one mode only those of its own mode are used. In the modes with one
//! block for life, the judge sees the CIDRs of the carrier as if they were allocated to the agent. The reason is that
//! the agent may give all of them to pods.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cilium_node_ipam::model::crd::CrdFields;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::multi_pool::{Allocated, Entry, PoolsFields};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::node_config::{NodeConfig, NodeConfigNews};
use cilium_node_ipam::model::revision::Revision;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::publisher::mode::Publishers;
use cilium_node_ipam::publisher::multi_pool::{Bgp, MultiPool};
use cilium_node_ipam::publisher::static_mode::{ClusterPool, Kubernetes, NodeField, Static};
use kube_core::Expression;

/// The Cilium pool of Pods that ask for none.
pub(super) const POOL: &str = "default";
/// The Cilium pool that every third Pod asks for. Agents keep none of its addresses in reserve.
pub(super) const OTHER_POOL: &str = "mars";
/// The Cilium pools under which blocks of ours are published.
pub(super) const POOLS: [&str; 2] = [POOL, OTHER_POOL];

/// A mode of Cilium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Crd,
    MultiPool,
    ClusterPool,
    /// With the field of a Node that the controller writes. Agents read annotations if it writes those.
    Kubernetes(NodeField),
}

impl Mode {
    /// The publisher for agents that run these families.
    pub(super) fn publisher(self, families: &BTreeSet<Family>) -> Publisher {
        let families = families.clone();
        match self {
            Self::Crd => Publisher::Crd(Crd { families, infrastructure: vec!["router", "health"] }),
            Self::MultiPool => {
                Publisher::MultiPool(MultiPool { families, default_pool: POOL.into(), bgp: Bgp::Off })
            }
            Self::ClusterPool => Publisher::ClusterPool(Static::new(families, ClusterPool)),
            Self::Kubernetes(writes) => {
                let agents_read_annotations = writes == NodeField::Annotations;
                let kubernetes = Kubernetes { writes, agents_read_annotations };
                Publisher::Kubernetes(Static::new(families, kubernetes))
            }
        }
    }

    /// Whether a node has one block of each family for its life.
    pub(super) const fn gives_one_block(self) -> bool {
        match self {
            Self::Crd | Self::MultiPool => false,
            Self::ClusterPool | Self::Kubernetes(_) => true,
        }
    }

    /// The kind of the carriers.
    pub(super) const fn carrier_kind(self) -> Kind {
        match self {
            Self::Crd | Self::MultiPool | Self::ClusterPool => Kind::CiliumNode,
            Self::Kubernetes(_) => Kind::Node,
        }
    }

    /// The field of a Node that the controller writes, where Nodes are the carriers.
    pub(super) const fn node_field(self) -> Option<NodeField> {
        match self {
            Self::Crd | Self::MultiPool | Self::ClusterPool => None,
            Self::Kubernetes(field) => Some(field),
        }
    }

    /// A CiliumNode as the judge sees the blocks of its node.
    pub(super) fn shown_by(self, seen: &CiliumNode) -> Cow<'_, CiliumNode> {
        match self {
            Self::Crd | Self::MultiPool | Self::Kubernetes(_) => Cow::Borrowed(seen),
            Self::ClusterPool => {
                let crd = CrdFields { pod_cidrs: Vec::new(), ..seen.crd.clone() };
                Cow::Owned(CiliumNode { crd, pools: listed(&seen.crd.pod_cidrs), ..seen.clone() })
            }
        }
    }
}

/// The label of Nodes that the CiliumNodeConfig selects, and its value.
pub(super) const MODE_LABEL: (&str, &str) = ("ipam", "other");

/// The modes of Cilium that the nodes of a cluster have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Modes {
    /// That of `cilium-config`.
    pub(super) of_all: Mode,
    /// That of the nodes with [`MODE_LABEL`], if a CiliumNodeConfig gives them another one.
    pub(super) of_labelled: Option<Mode>,
}

impl From<Mode> for Modes {
    fn from(of_all: Mode) -> Self {
        Self { of_all, of_labelled: None }
    }
}

impl Modes {
    /// Whether nodes may have different modes.
    pub(super) const fn are_several(self) -> bool {
        self.of_labelled.is_some()
    }

    pub(super) fn all(self) -> impl Iterator<Item = Mode> {
        [self.of_all].into_iter().chain(self.of_labelled)
    }

    /// Whether nodes may have the mode kubernetes.
    pub(super) fn use_nodes(self) -> bool {
        self.all().any(|mode| mode.carrier_kind() == Kind::Node)
    }

    /// The mode of a node with these labels.
    pub(super) fn of_labels(self, labels: &BTreeMap<String, String>) -> Mode {
        let (key, value) = MODE_LABEL;
        let is_labelled = labels.get(key).is_some_and(|found| found == value);
        self.of_labelled.filter(|_| is_labelled).unwrap_or(self.of_all)
    }

    /// The publishers for agents that run these families.
    pub(super) fn publishers(self, families: &BTreeSet<Family>) -> Publishers {
        let others = self.of_labelled.map(|mode| mode.publisher(families));
        let others = others.map(|publisher| (publisher.ipam_mode(), Ok(publisher)));
        Publishers::from(self.of_all.publisher(families)).beside(others.into_iter().collect(), Vec::new())
    }

    /// The CiliumNodeConfigs of the cluster.
    pub(super) fn node_configs(self) -> NodeConfigNews {
        let (key, value) = MODE_LABEL;
        let config = |mode: Mode| {
            let ipam = mode.publisher(&BTreeSet::new()).ipam_mode();
            NodeConfig {
                name: "other".to_owned(),
                selector: Some(Expression::Equal(key.to_owned(), value.to_owned()).into()),
                defaults: [("ipam".to_owned(), ipam.as_str().to_owned())].into(),
            }
        };
        NodeConfigNews::Listed(self.of_labelled.map(config).into_iter().collect())
    }
}

/// A Node as the judge sees it where it is the carrier. For a family that its podCIDRs lack, all annotations count if
/// agents read them. Agents of this version take the first of them.
pub(super) fn shown_by_node(node: &Node, field: NodeField) -> CiliumNode {
    let mut cidrs = node.pod_cidrs.clone();
    let mut malformed = node.malformed.clone();
    if field == NodeField::Annotations {
        let has_family = |family| node.pod_cidrs.iter().any(|cidr| cidr.family() == family);
        let annotated = node.annotated.iter().map(|annotated| annotated.cidr);
        cidrs.extend(annotated.filter(|cidr| !has_family(cidr.family())));
        let mut known = BTreeSet::new();
        cidrs.retain(|cidr| known.insert(*cidr));
        malformed.extend(node.malformed_annotations.clone());
    }
    CiliumNode {
        name: node.name.clone(),
        uid: node.uid.clone(),
        revision: Revision::of(node.revision.number()),
        created: node.created,
        // Its CIDRs count until it is gone.
        deleting: false,
        addresses: Vec::new(),
        crd: CrdFields::default(),
        pools: listed(&cidrs),
        operator: None,
        malformed,
    }
}

fn listed(cidrs: &[Cidr]) -> PoolsFields {
    let entry = Allocated { pool: POOL.to_owned(), cidrs: cidrs.to_vec(), entry: Entry::default() };
    let allocated = if cidrs.is_empty() { Vec::new() } else { vec![entry] };
    PoolsFields { allocated, ..PoolsFields::default() }
}

/// The blocks that a CiliumNode lists.
pub(super) fn blocks(seen: &CiliumNode) -> Vec<Cidr> {
    seen.crd.pod_cidrs.iter().copied().chain(seen.pools.listed()).collect()
}

/// The addresses that its agent may give to pods.
pub(super) fn offered(seen: &CiliumNode) -> AddressSet {
    let mut offered = seen.crd.pool.clone();
    offered.extend_with(&seen.pools.listed().flat_map(given_of).collect());
    offered
}

/// Whether an agent that has this whole CIDR can give or leave an address to a pod.
pub(super) fn is_assignable(cidr: Cidr, address: IpAddr) -> bool {
    let ends = [cidr.first_address(), cidr.last_address()];
    cidr.contains(address) && (cidr.size() <= 2 || !ends.contains(&address))
}

/// The addresses of a CIDR that an agent gives to pods where it has whole CIDRs.
pub(super) fn given_of(cidr: Cidr) -> impl Iterator<Item = IpAddr> {
    let ends = u128::from(cidr.size() > 2);
    (cidr.first() + ends..=cidr.last() - ends).map(address)
}
