//! The mode of Cilium that a cluster runs, and the blocks that a node shows in each mode.
//!
//! The judge looks at all fields at once: in a sound cluster only those of its own mode are used. In the modes with one
//! block for life, the judge sees the CIDRs of the carrier as if they were allocated to the agent. The reason is that
//! the agent may give all of them to pods.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_node_ipam::model::crd::CrdFields;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::multi_pool::{Allocated, Entry, PoolsFields};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::revision::Revision;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::publisher::multi_pool::{Bgp, MultiPool};
use cilium_node_ipam::publisher::static_mode::{ClusterPool, Kubernetes, NodeField, Static};

/// The Cilium pool of Pods that ask for none.
pub(super) const POOL: &str = "default";
/// The Cilium pool that every third Pod asks for. Agents keep none of its addresses in reserve.
pub(super) const OTHER_POOL: &str = "mars";
/// The Cilium pools under which blocks of ours are published.
pub(super) const POOLS: [&str; 2] = [POOL, OTHER_POOL];

/// The mode of Cilium that a cluster runs.
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

/// The addresses of a CIDR that an agent gives to pods where it has whole CIDRs.
pub(super) fn given_of(cidr: Cidr) -> impl Iterator<Item = IpAddr> {
    let ends = u128::from(cidr.size() > 2);
    (cidr.first() + ends..=cidr.last() - ends).map(address)
}
