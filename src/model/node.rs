//! Nodes and CiliumNodes as the world keeps them: only what decisions need.
//!
//! Made from the wire by `crate::wire`. Text that could not be read is kept beside what could, never dropped.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::crd::CrdFields;
use super::names::{NodeName, Uid};
use super::revision::{Core, Revision};

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its uid; a Node re-created under the same name is another one.
    pub uid: Uid,
    /// The version that was read, of the store of Nodes.
    pub revision: Revision<Core>,
    /// Its labels, which pools select by.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted. It keeps everything until it is gone.
    pub deleting: bool,
    /// Its own addresses; no pod may get one.
    pub addresses: Vec<NodeAddress>,
}

/// An address of a Node, with its type, such as `InternalIP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// The type.
    pub kind: String,
    /// The address.
    pub address: IpAddr,
}

/// A CiliumNode: what the agent of a node published, and what it may hand out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiliumNode {
    /// Its name, that of the Node.
    pub name: NodeName,
    /// Its uid; changes when it is deleted and created again.
    pub uid: Uid,
    /// The version that was read. Every write carries it.
    pub revision: Revision,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.addresses`.
    pub addresses: Vec<IpAddr>,
    /// What it shows in the crd mode of Cilium; known to `publisher` and `wire`.
    pub crd: CrdFields,
    /// Where in the object a text stands that could not be read, with that text.
    pub malformed: Vec<Malformed>,
}

/// A text in an object of somebody else's that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Malformed {
    /// The field, such as `spec.ipam.podCIDRs[1]`.
    pub field: String,
    /// The text.
    pub value: String,
}
