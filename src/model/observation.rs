//! News for the world: objects as watches and lists show them.
//!
//! A closed vocabulary. An object that can't be read is a value too ([`Unreadable`]), so that it is taken into account
//! and reported, and never stops the others.

use std::collections::BTreeMap;

use crate::model::claim::{Claim, block_name};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName, Uid};
use crate::model::pool::{Pool, Reservation};
use crate::model::revision::{AnyRevision, Revision};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Family;

use crate::model::node::{CiliumNode, Node};
use crate::model::status::{Need, PoolStatus, Sample};

/// An object that exists and could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its name.
    pub name: String,
    /// The version of the object, if even that could be read.
    pub revision: Option<AnyRevision>,
    /// The node that a claim names, if that could be read.
    pub node: Option<NodeName>,
    /// The pool that a claim names, if that could be read.
    pub pool: Option<PoolName>,
    /// The reason, and the ranges in it that are too wide to be taken.
    pub reason: String,
    /// Every address and prefix that was found in it, except those that are too wide. They are treated as taken.
    pub addresses: AddressSet,
}

/// A NodeIPPool: its declaration, if that could be read, and the status that it shows.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolObject {
    /// Its name.
    pub name: PoolName,
    /// Its uid.
    pub uid: Uid,
    /// The version that was read.
    pub revision: Revision,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// All of its finalizers: ours and those of others.
    pub finalizers: Vec<String>,
    /// Its declaration, or the reason why that can't be read.
    pub pool: Result<Pool, InvalidPool>,
    /// The generation of its declaration.
    pub generation: i64,
    /// The status that it shows.
    pub status: PoolStatus,
    /// When each of its conditions last changed.
    pub transitions: BTreeMap<String, Timestamp>,
    /// Since when each node that its status names waits.
    pub waits_since: BTreeMap<Need, Timestamp>,
    /// How many blocks nodes had in the last hours, the oldest first.
    pub history: BTreeMap<Family, Vec<Sample>>,
}

impl PoolObject {
    /// The finalizer that keeps a pool until its last block is free.
    pub const FINALIZER: &str = "nodeipam.io/pool";

    /// Whether it has our finalizer.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == Self::FINALIZER)
    }

    /// The part that concerns nodes and other pools: the declaration, or the ranges that are reserved if it can't be
    /// read.
    pub fn declaration(&self) -> Result<&Pool, &Reservation> {
        self.pool.as_ref().map_err(|invalid| &invalid.reserved)
    }
}

/// A declaration that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPool {
    /// The reasons.
    pub findings: Vec<String>,
    /// The ranges that are kept from younger pools all the same.
    pub reserved: Reservation,
}

/// One object as a watch shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A Node.
    Node(Node),
    /// A CiliumNode.
    CiliumNode(CiliumNode),
    /// A pool.
    Pool(PoolObject),
    /// A claim.
    Claim(Claim),
    /// An object of this kind that could not be read.
    Unreadable(Kind, Unreadable),
}

impl Object {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::CiliumNode(_) => Kind::CiliumNode,
            Self::Pool(_) => Kind::Pool,
            Self::Claim(_) => Kind::Claim,
            Self::Unreadable(kind, _) => *kind,
        }
    }

    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Node(node) => node.name.to_string(),
            Self::CiliumNode(cilium_node) => cilium_node.name.to_string(),
            Self::Pool(pool) => pool.name.to_string(),
            Self::Claim(claim) => block_name(claim.cidr),
            Self::Unreadable(_, unreadable) => unreadable.name.clone(),
        }
    }

    /// The version that was read, if it could be read.
    #[must_use]
    pub fn revision(&self) -> Option<AnyRevision> {
        match self {
            Self::Node(node) => Some(node.revision.into()),
            Self::CiliumNode(cilium_node) => Some(cilium_node.revision.into()),
            Self::Pool(pool) => Some(pool.revision.into()),
            Self::Claim(claim) => Some(claim.revision.into()),
            Self::Unreadable(_, unreadable) => unreadable.revision,
        }
    }
}

/// A consistent read has shown an object at an earlier version than was known before the read was sent. So the store
/// was restored from a backup (safety rule 8), and nothing that is known can be trusted any more.
///
/// This finds a restore in which revisions do not go back, as etcd recommends it for Kubernetes
/// (`etcdutl snapshot restore --bump-revision`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server shows {} {name} at version {shown} as of {as_of}, after version {known}: its store was \
     restored from a backup; the process exits and must restart from lists",
    kind.as_str()
)]
pub struct Contradiction {
    /// The kind of the object.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The version in the answer.
    pub shown: AnyRevision,
    /// A revision that the store had reached before the read was sent.
    pub as_of: AnyRevision,
    /// The version that was known.
    pub known: AnyRevision,
}

/// All objects of a kind, as a consistent list shows them.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The kind.
    pub kind: Kind,
    /// A revision that the store had reached before the list was requested: the list is not older.
    pub at_least: AnyRevision,
    /// A revision that the store had reached after the list was answered: the list is not newer.
    pub at_most: AnyRevision,
    /// The objects.
    pub objects: Vec<Object>,
}

/// One observation of a watch or a list.
#[derive(Debug, Clone, PartialEq)]
pub enum Observation {
    /// All objects of a kind. They replace the known ones of that kind.
    Listed(Listing),
    /// An object exists in this version.
    Applied(Box<Object>),
    /// An object was deleted.
    Deleted {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// The revision of the deletion.
        revision: AnyRevision,
    },
}
