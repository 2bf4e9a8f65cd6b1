//! Nodes and CiliumNodes as the world keeps them: only the parts that decisions need.
//!
//! Made by `crate::wire`. Text that could not be read is never dropped: it is kept beside the text that could.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::availability::Availability;
use super::crd::CrdFields;
use super::multi_pool::PoolsFields;
use super::names::{NodeName, Uid};
use super::revision::{Core, Revision};
use super::time::Timestamp;
use crate::net::cidr::{Cidr, Family};

/// The annotations from which agents learn the pod CIDRs of a Node. Agents of 1.13 and newer look for the first of a
/// family, and for the second if that is absent. Agents of 1.12 know only the second (`docs/cilium.md`, Annotations of
/// Nodes).
pub const POD_CIDR_ANNOTATIONS: [(Family, &str); 4] = [
    (Family::V4, "network.cilium.io/ipv4-pod-cidr"),
    (Family::V4, "io.cilium.network.ipv4-pod-cidr"),
    (Family::V6, "network.cilium.io/ipv6-pod-cidr"),
    (Family::V6, "io.cilium.network.ipv6-pod-cidr"),
];

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its uid; a Node that is recreated under the same name has another one.
    pub uid: Uid,
    /// The version that was read, of the store of Nodes.
    pub revision: Revision<Core>,
    /// When it was created; the epoch if that can't be read.
    pub created: Timestamp,
    /// Its labels, which pools select by.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted. It keeps everything until it no longer exists.
    pub deleting: bool,
    /// The keys of its taints. One of them may say that labels are missing ([`super::startup_taint`]).
    pub taints: Vec<String>,
    /// Its own addresses; no pod may get one.
    pub addresses: Vec<NodeAddress>,
    /// `spec.podCIDRs` in their order. Only `publisher` and `wire` look into them: in most modes no agent reads them.
    pub pod_cidrs: Vec<Cidr>,
    /// The revision of claims that its last version bump had to be later than, if there was one.
    pub later_than: Option<Revision>,
    /// The texts among its podCIDRs that could not be read.
    pub malformed: Vec<Malformed>,
    /// Its annotations that name a pod CIDR; agents that annotate their Nodes read them. Only `publisher` and `wire`
    /// look into them.
    pub annotated: Vec<Annotated>,
    /// Those of them that could not be read.
    pub malformed_annotations: Vec<Malformed>,
    /// The uid of the CiliumNode that gets blocks although its agent ran in another mode of Cilium: a person's word in
    /// [`IGNORE_FORMER_MODE`].
    pub former_mode_ignored: Option<Uid>,
    /// The value of [`HOLD_GROWTH`], by which a person holds its growth.
    pub growth_hold: Option<String>,
    /// The verdict that its condition [`NODE_CONDITION`](super::availability::NODE_CONDITION) shows; `None` without a
    /// condition that this controller can have written.
    pub availability: Option<Availability>,
    /// How many pods kubelet allows on it (`status.allocatable.pods`), those on the network of the host included.
    /// `None` if kubelet has not reported it.
    pub max_pods: Option<u32>,
}

/// The annotation of a Node by which a person lets it get blocks although its agent ran in another mode of Cilium, with
/// the uid of its CiliumNode. Pods outside these blocks lose their network when the agent starts.
pub const IGNORE_FORMER_MODE: &str = "nodeipam.io/ignore-former-mode";

/// The annotation of a Node by which a person holds its growth. With any value, a node that has addresses gets no
/// further block, and none is taken from it. So it can return to a mode with one block of each family for its life, and
/// no pod loses its network. `migrate` sets it to the uid of the agent's Pod that started in the mode before.
pub const HOLD_GROWTH: &str = "nodeipam.io/hold-growth";

impl Node {
    /// A Node as kubelet registers it, without addresses.
    #[must_use]
    pub fn joining(
        name: NodeName,
        uid: Uid,
        revision: Revision<Core>,
        created: Timestamp,
        labels: BTreeMap<String, String>,
    ) -> Self {
        Self {
            name,
            uid,
            revision,
            created,
            labels,
            deleting: false,
            taints: Vec::new(),
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            later_than: None,
            malformed: Vec::new(),
            annotated: Vec::new(),
            malformed_annotations: Vec::new(),
            former_mode_ignored: None,
            growth_hold: None,
            availability: None,
            max_pods: None,
        }
    }

    /// The same Node with these podCIDRs.
    #[must_use]
    pub fn listing(&self, cidrs: &[Cidr]) -> Self {
        Self { pod_cidrs: cidrs.to_vec(), ..self.clone() }
    }

    /// Whether an agent of Cilium can run there, which needs Linux. A Node without the label counts as Linux.
    #[must_use]
    pub fn runs_linux(&self) -> bool {
        self.labels.get("kubernetes.io/os").is_none_or(|os| os == "linux")
    }

    /// Whether the podCIDRs are these, in this order.
    #[must_use]
    pub fn lists_exactly(&self, cidrs: &[Cidr]) -> bool {
        self.pod_cidrs == cidrs
    }

    /// Whether its annotations name these CIDRs and no others.
    #[must_use]
    pub fn annotates_exactly(&self, cidrs: &[Cidr]) -> bool {
        self.annotated.iter().all(|annotated| cidrs.contains(&annotated.cidr))
            && cidrs.iter().all(|cidr| self.annotated.iter().any(|annotated| annotated.cidr == *cidr))
    }
}

/// An annotation of a Node that names a pod CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotated {
    /// Its key.
    pub key: &'static str,
    /// The CIDR, of the family that the key names.
    pub cidr: Cidr,
}

/// An address of a Node, with its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAddress {
    /// The type.
    pub kind: AddressKind,
    /// The address.
    pub address: IpAddr,
}

/// The type of an address of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// `InternalIP`.
    Internal,
    /// `ExternalIP`.
    External,
    /// Any other, such as `InternalDNS`.
    Other,
}

/// A CiliumNode: the report of a node's agent, and the addresses that the agent may give to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiliumNode {
    /// Its name, which is also the name of the Node.
    pub name: NodeName,
    /// Its uid; a CiliumNode that is recreated has another one.
    pub uid: Uid,
    /// The version that was read. Every write carries it.
    pub revision: Revision,
    /// When it was created; the epoch if that can't be read.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.addresses`.
    pub addresses: Vec<IpAddr>,
    /// Its fields in the crd mode of Cilium. Only `publisher` and `wire` look into them.
    pub crd: CrdFields,
    /// Its fields in the multi-pool mode of Cilium. Only `publisher` and `wire` look into them.
    pub pools: PoolsFields,
    /// The field manager in `metadata.managedFields` that is a cilium-operator, which allocates itself in some modes
    /// (`docs/cilium.md`, A second allocator).
    pub operator: Option<OperatorWrite>,
    /// The texts on it that could not be read.
    pub malformed: Vec<Malformed>,
}

/// A write of cilium-operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorWrite {
    /// The name of the field manager.
    pub manager: String,
    /// The time of its last write, as the API server has noted it.
    pub at: Option<Timestamp>,
}

/// A text that could not be read, on an object that others write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Malformed {
    /// The field, such as `spec.ipam.podCIDRs[1]`.
    pub field: String,
    /// The text.
    pub value: String,
}
