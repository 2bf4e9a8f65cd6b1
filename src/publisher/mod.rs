//! Everything that is true of only one mode of Cilium: how the blocks of a node reach its agent.
//!
//! [`Publisher`] is the boundary: one closed enum with one variant per mode. [`CiliumMode`] has the answers of each
//! mode about one node, from values:
//!
//! - the carrier, and the blocks on it,
//! - the need of the node, and the blocks that may be added,
//! - when the agent can start,
//! - the proof that a block is absent from the node.
//!
//! This room knows neither the world nor other nodes, and decides nothing that is the same in every mode. The facts
//! are in `docs/cilium.md`.

use std::fmt;
use std::ops::Deref;

use crate::model::carrier::{Carrier, FormerCarrier};
use crate::model::crd::CrdFields;
use crate::model::kind::Kind;
use crate::model::multi_pool::{Entry, PoolsFields, Requested};
use crate::model::names::NodeName;
use crate::model::node::{CiliumNode, Node};
use crate::model::request::{Read, Request};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

pub mod answer;
mod cilium_mode;
pub mod crd;
pub mod demand;
mod edges;
pub mod ipam_mode;
pub mod mode;
pub mod multi_pool;
mod one_store;
mod operator;
mod overrides;
pub mod settings;
pub mod static_mode;
pub mod support;
pub mod traits;
mod unclaimed;

pub use cilium_mode::CiliumMode;
use crd::Crd;
pub(crate) use edges::edge_addresses;
use ipam_mode::IpamMode;
use multi_pool::MultiPool;
use static_mode::{ClusterPool, Kubernetes, Static};
pub use unclaimed::{own_addresses_on, unclaimed_on, use_mark};

/// How the blocks of nodes reach Cilium's agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publisher {
    /// `ipam: crd`.
    Crd(Crd),
    /// `ipam: multi-pool`.
    MultiPool(MultiPool),
    /// `ipam: cluster-pool`.
    ClusterPool(Static<ClusterPool>),
    /// `ipam: kubernetes`.
    Kubernetes(Static<Kubernetes>),
}

impl Default for Publisher {
    /// The publisher that reads carriers before a mode is known.
    fn default() -> Self {
        Self::Crd(Crd::default())
    }
}

impl Publisher {
    /// The mode of Cilium that it serves.
    #[must_use]
    pub fn ipam_mode(&self) -> IpamMode {
        match self {
            Self::Crd(_) => IpamMode::Crd,
            Self::MultiPool(_) => IpamMode::MultiPool,
            Self::ClusterPool(_) => IpamMode::ClusterPool,
            Self::Kubernetes(_) => IpamMode::Kubernetes,
        }
    }

    /// The CiliumNode as the agent of a new node creates it, before it has any addresses.
    #[must_use]
    pub fn joining(&self, node: &Node, revision: Revision) -> CiliumNode {
        let mut pools = PoolsFields::default();
        if let Some(name) = self.default_pool() {
            pools.requested.push(Requested {
                pool: name.to_string(),
                needed: self.families().iter().map(|family| (*family, multi_pool::PRE_ALLOCATED)).collect(),
                asked_as_of: None,
                entry: Entry::default(),
            });
        }
        CiliumNode {
            name: node.name.clone(),
            uid: node.uid.clone(),
            revision,
            created: node.created,
            deleting: false,
            addresses: Vec::new(),
            crd: CrdFields { used: Some(AddressSet::new()), ..CrdFields::default() },
            pools,
            operator: None,
            malformed: Vec::new(),
        }
    }

    /// The CiliumNode if its agent used this percentage of its addresses of each family, or more where it already
    /// does. `None` in modes whose agents report no use.
    #[must_use]
    pub fn using(&self, cilium_node: &CiliumNode, percent: u8) -> Option<CiliumNode> {
        let mut supposed = cilium_node.clone();
        match self {
            Self::Crd(_) => crd::raise_use(&mut supposed.crd, percent),
            Self::MultiPool(_) => multi_pool::raise_need(&mut supposed.pools, percent),
            Self::ClusterPool(_) | Self::Kubernetes(_) => return None,
        }
        Some(supposed)
    }

    /// The request that shows either a version of the carrier later than `later_than` or that there is no carrier.
    /// `None` if we can't cause such a version, and must wait for it.
    #[must_use]
    pub fn later_version(
        &self,
        node: &NodeName,
        carrier: Option<Carrier<'_>>,
        later_than: Revision,
    ) -> Option<Request> {
        match carrier {
            Some(carrier) => self.later_version_of(carrier, later_than),
            None => Some(match self.traits().carrier {
                Kind::Node => Read::Node(node.clone(), later_than).into(),
                Kind::CiliumNode | Kind::Pool | Kind::Claim => Read::CiliumNode(node.clone()).into(),
            }),
        }
    }
}

/// A publisher gives the answers of its mode.
impl Deref for Publisher {
    type Target = dyn CiliumMode;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Crd(mode) => mode,
            Self::MultiPool(mode) => mode,
            Self::ClusterPool(mode) => mode,
            Self::Kubernetes(mode) => mode,
        }
    }
}

impl fmt::Display for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// Every address on a CiliumNode, of any mode. All of them count as taken (safety rule 6).
#[must_use]
pub fn carried_by_cilium_node(cilium_node: &CiliumNode) -> AddressSet {
    let mut carried = crd::carried(&cilium_node.crd);
    carried.extend_with(&cilium_node.pools.listed().collect());
    carried
}

/// Whether a CiliumNode has any sign of cilium-operator's allocator, also an old one.
#[must_use]
pub fn shows_operator(cilium_node: &CiliumNode) -> bool {
    cilium_node.operator.is_some() || cilium_node.pools.operator_error.is_some()
}

/// `spec.podCIDRs` of a Node, in any mode. In most modes no agent uses them, but cloud routes may.
#[must_use]
pub fn pod_cidrs_of(node: &Node) -> &[Cidr] {
    &node.pod_cidrs
}

/// `spec.ipam.podCIDRs` of a CiliumNode, in any mode.
#[must_use]
pub fn pod_cidrs_on(cilium_node: &CiliumNode) -> &[Cidr] {
    &cilium_node.crd.pod_cidrs
}

/// The fields that are remembered of a deleted CiliumNode. If the Node still exists, its agent keeps using those
/// blocks.
#[must_use]
pub fn remember(gone: CiliumNode) -> Option<FormerCarrier> {
    crd::remember(gone.crd).map(FormerCarrier::Crd)
}
