//! The carrier, in any mode of Cilium, and the changes that a write makes on it.
//!
//! `publisher` knows the meaning of its contents, and `wire` knows its JSON.

use super::crd::{CrdChange, FormerCrd};
use super::kind::Kind;
use super::multi_pool::PoolsChange;
use super::names::{NodeName, Uid};
use super::node::{Annotated, CiliumNode, Malformed, Node, POD_CIDR_ANNOTATIONS};
use super::observation::Object;
use super::revision::AnyRevision;
use super::time::Timestamp;
use crate::net::cidr::Cidr;

/// The object that carries a node's blocks, in the newest known version.
#[derive(Debug, Clone, Copy)]
pub enum Carrier<'a> {
    /// A CiliumNode.
    CiliumNode(&'a CiliumNode),
    /// The Node itself.
    Node(&'a Node),
}

impl<'a> Carrier<'a> {
    /// Its kind.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::CiliumNode(_) => Kind::CiliumNode,
            Self::Node(_) => Kind::Node,
        }
    }

    /// The CiliumNode; `None` for a Node, which carries blocks only in kubernetes mode.
    #[must_use]
    pub fn cilium_node(self) -> Option<&'a CiliumNode> {
        match self {
            Self::CiliumNode(cilium_node) => Some(cilium_node),
            Self::Node(_) => None,
        }
    }

    /// Its name, which is also the name of the node.
    #[must_use]
    pub fn name(self) -> &'a NodeName {
        match self {
            Self::CiliumNode(cilium_node) => &cilium_node.name,
            Self::Node(node) => &node.name,
        }
    }

    /// Its uid. An object that is recreated under the same name has another one.
    #[must_use]
    pub fn uid(self) -> &'a Uid {
        match self {
            Self::CiliumNode(cilium_node) => &cilium_node.uid,
            Self::Node(node) => &node.uid,
        }
    }

    /// When it was created; the epoch if that can't be read.
    #[must_use]
    pub fn created(self) -> Timestamp {
        match self {
            Self::CiliumNode(cilium_node) => cilium_node.created,
            Self::Node(node) => node.created,
        }
    }

    /// Whether it is a CiliumNode that is being deleted: anything written to it now is deleted with it. A Node that is
    /// being deleted is still written to, because it keeps everything until it no longer exists.
    #[must_use]
    pub fn is_terminating(self) -> bool {
        self.cilium_node().is_some_and(|cilium_node| cilium_node.deleting)
    }

    /// The texts on it that could not be read.
    #[must_use]
    pub fn malformed(self) -> &'a [Malformed] {
        match self {
            Self::CiliumNode(cilium_node) => &cilium_node.malformed,
            Self::Node(node) => &node.malformed,
        }
    }

    /// The newest known version. Every write carries it.
    #[must_use]
    pub fn revision(self) -> AnyRevision {
        match self {
            Self::CiliumNode(cilium_node) => cilium_node.revision.into(),
            Self::Node(node) => node.revision.into(),
        }
    }
}

/// The memory of a deleted carrier, for the one that replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormerCarrier {
    /// A CiliumNode of the crd mode.
    Crd(FormerCrd),
}

/// The change that a write makes on a carrier, in the terms of one mode. `publisher` makes it, and `wire` writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarrierChange {
    /// In the crd mode.
    Crd(CrdChange),
    /// In the multi-pool mode.
    MultiPool(PoolsChange),
    /// In cluster-pool mode: the `podCIDRs` of a CiliumNode that had none.
    ClusterPool(Vec<Cidr>),
    /// In kubernetes mode: the `podCIDRs` of a Node that had none.
    Kubernetes(Vec<Cidr>),
    /// In kubernetes mode: the annotations of a Node that had neither these nor `podCIDRs`.
    Annotations(Vec<Cidr>),
}

impl CarrierChange {
    /// The kind of the carrier that it changes.
    #[must_use]
    pub fn carrier_kind(&self) -> Kind {
        match self {
            Self::Crd(_) | Self::MultiPool(_) | Self::ClusterPool(_) => Kind::CiliumNode,
            Self::Kubernetes(_) | Self::Annotations(_) => Kind::Node,
        }
    }

    /// Whether it is a change of the status, which the server keeps apart from the rest of the object.
    #[must_use]
    pub fn is_of_status(&self) -> bool {
        match self {
            Self::Crd(change) => change.is_of_status(),
            Self::MultiPool(_) | Self::ClusterPool(_) | Self::Kubernetes(_) | Self::Annotations(_) => false,
        }
    }

    /// The carrier after this change has published blocks on it; `None` for any other change, because its effect
    /// depends on the agent.
    #[must_use]
    pub fn published_on(&self, carrier: Carrier<'_>) -> Option<Object> {
        match (self, carrier) {
            (Self::Crd(change), Carrier::CiliumNode(found)) => {
                let crd = change.published_in(&found.crd)?;
                Some(Object::CiliumNode(CiliumNode { crd, ..found.clone() }))
            }
            (Self::MultiPool(change), Carrier::CiliumNode(found)) => {
                let pools = change.published_in(&found.pools)?;
                Some(Object::CiliumNode(CiliumNode { pools, ..found.clone() }))
            }
            (Self::ClusterPool(cidrs), Carrier::CiliumNode(found)) => {
                let crd = found.crd.listing(cidrs);
                Some(Object::CiliumNode(CiliumNode { crd, ..found.clone() }))
            }
            (Self::Kubernetes(cidrs), Carrier::Node(found)) => Some(Object::Node(found.listing(cidrs))),
            (Self::Annotations(cidrs), Carrier::Node(found)) => {
                let annotated = POD_CIDR_ANNOTATIONS.into_iter().filter_map(|(family, key)| {
                    let cidr = *cidrs.iter().find(|cidr| cidr.family() == family)?;
                    Some(Annotated { key, cidr })
                });
                Some(Object::Node(Node { annotated: annotated.collect(), ..found.clone() }))
            }
            (Self::Kubernetes(_) | Self::Annotations(_), Carrier::CiliumNode(_))
            | (Self::Crd(_) | Self::MultiPool(_) | Self::ClusterPool(_), Carrier::Node(_)) => None,
        }
    }

    /// Whether a carrier shows the intended result of this change, which added the blocks `added`.
    #[must_use]
    pub fn is_shown_by(&self, carrier: Carrier<'_>, added: &[Cidr]) -> bool {
        match (self, carrier) {
            (Self::Crd(change), Carrier::CiliumNode(found)) => change.is_shown_by(&found.crd, added),
            (Self::MultiPool(change), Carrier::CiliumNode(found)) => change.is_shown_by(&found.pools, added),
            (Self::ClusterPool(cidrs), Carrier::CiliumNode(found)) => found.crd.lists_exactly(cidrs),
            (Self::Kubernetes(cidrs), Carrier::Node(found)) => found.lists_exactly(cidrs),
            (Self::Annotations(cidrs), Carrier::Node(found)) => found.annotates_exactly(cidrs),
            (Self::Kubernetes(_) | Self::Annotations(_), Carrier::CiliumNode(_))
            | (Self::Crd(_) | Self::MultiPool(_) | Self::ClusterPool(_), Carrier::Node(_)) => false,
        }
    }
}
