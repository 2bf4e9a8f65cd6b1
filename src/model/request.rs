//! Requests to the API server as values.
//!
//! A plan decides them, and the controller sends them without a decision of its own. Each carries the versions of the
//! objects that it was decided on (safety rule 4).

use super::carrier::CarrierChange;
use crate::model::claim::block_name;
use crate::model::frr::FrrWrite;
use crate::model::kind::{Kind, ObjectKind};
use crate::model::names::{FrrName, NodeName, PodIpPoolName, PoolName};
use crate::model::revision::{AnyRevision, Revision};
use crate::net::cidr::Cidr;

mod display;
mod writes;

pub use writes::{
    BumpVersion, ClaimChange, ClaimStatusWrite, ClaimUpdate, NewCiliumNode, NewClaim, NodeConditionWrite,
    PodIpPoolWrite, PoolFinalizersWrite, PoolStatusWrite, Publication, QueryStep, UsageQuery, Withdrawal,
    WithdrawalStep,
};

/// A request to the API server. It has one [`Target`], and its [`Outcome`](super::outcome::Outcome) contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Changes nothing.
    Read(Read),
    /// Changes an object.
    Write(Write),
}

/// A consistent read. It is repeated until it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// All claims of a node, to know them as of a later revision (safety rule 4).
    ClaimsOf(NodeName),
    /// The Pods that are bound to a node, after this version of its carrier was seen.
    PodsOf(NodeName, AnyRevision),
    /// One claim of this node that an answer has shown, but no watch yet.
    Claim(Cidr, NodeName),
    /// Whether a CiliumNode exists.
    CiliumNode(NodeName),
    /// Whether a Node exists. Its claims were known as of this revision when the read was decided.
    Node(NodeName, Revision),
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Create a claim. Its name is the lock on the block (safety rule 1).
    CreateClaim(NewClaim),
    /// Patch blocks onto a carrier.
    Publish(Publication),
    /// Change the state of a claim, or delete it.
    UpdateClaim(ClaimUpdate),
    /// Write a later version of a carrier without a change of its content (safety rule 3).
    BumpVersion(BumpVersion),
    /// Send a usage query to an agent, or clear it.
    UsageQuery(UsageQuery),
    /// A step of the removal of blocks from the carrier of a node that exists.
    Withdraw(Withdrawal),
    /// Create a CiliumNode before its agent creates it.
    CreateCiliumNode(NewCiliumNode),
    /// Write the status of a pool.
    PoolStatus(PoolStatusWrite),
    /// Write the finalizers of a pool.
    PoolFinalizers(PoolFinalizersWrite),
    /// Write the status of a claim.
    ClaimStatus(ClaimStatusWrite),
    /// Write the condition of a Node.
    NodeCondition(NodeConditionWrite),
    /// Create a CiliumPodIPPool, or add its missing parts.
    PodIpPool(PodIpPoolWrite),
    /// Create, replace or delete an FRRConfiguration.
    Frr(FrrWrite),
}

impl From<Read> for Request {
    fn from(read: Read) -> Self {
        Self::Read(read)
    }
}

impl From<Write> for Request {
    fn from(write: Write) -> Self {
        Self::Write(write)
    }
}

/// The object that a request is about. At most one request about an object is in flight at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A NodeIPBlock.
    Claim(Cidr),
    /// A CiliumNode.
    CiliumNode(NodeName),
    /// All claims of one node, being read.
    ClaimsOf(NodeName),
    /// A Node.
    Node(NodeName),
    /// The condition of a Node.
    NodeCondition(NodeName),
    /// The Pods of one node, being read.
    PodsOf(NodeName),
    /// A NodeIPPool.
    Pool(PoolName),
    /// A CiliumPodIPPool.
    PodIpPool(PodIpPoolName),
    /// An FRRConfiguration.
    Frr(FrrName),
}

impl Target {
    /// The kind and the name of the object; those of the node for reads of its claims and Pods.
    #[must_use]
    pub fn object(&self) -> (ObjectKind, String) {
        match self {
            Self::Claim(cidr) => (Kind::Claim.into(), block_name(*cidr)),
            Self::CiliumNode(node) => (Kind::CiliumNode.into(), node.to_string()),
            Self::ClaimsOf(node) | Self::Node(node) | Self::NodeCondition(node) | Self::PodsOf(node) => {
                (Kind::Node.into(), node.to_string())
            }
            Self::Pool(pool) => (Kind::Pool.into(), pool.to_string()),
            Self::PodIpPool(name) => (ObjectKind::PodIpPool, name.to_string()),
            Self::Frr(name) => (ObjectKind::FrrConfiguration, name.to_string()),
        }
    }

    /// The word for the object in a line of text.
    const fn word(&self) -> &'static str {
        match self {
            Self::Node(_) | Self::NodeCondition(_) | Self::ClaimsOf(_) | Self::PodsOf(_) => "node",
            Self::CiliumNode(_) => "ciliumnode",
            Self::Claim(_) => "claim",
            Self::Pool(_) => "pool",
            Self::PodIpPool(_) => "ciliumpodippool",
            Self::Frr(_) => "frrconfiguration",
        }
    }

    /// The carrier of this node that a change is for.
    fn carrier(change: &CarrierChange, node: &NodeName) -> Self {
        match change.carrier_kind() {
            Kind::Node => Self::Node(node.clone()),
            Kind::CiliumNode | Kind::Pool | Kind::Claim => Self::CiliumNode(node.clone()),
        }
    }
}

impl Request {
    /// The object that it is about.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Read(read) => read.target(),
            Self::Write(write) => write.target(),
        }
    }

    /// The node that it is sent for.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Read(read) => Some(read.node()),
            Self::Write(write) => write.node(),
        }
    }

    /// The write, if it is one.
    #[must_use]
    pub fn as_write(&self) -> Option<&Write> {
        match self {
            Self::Read(_) => None,
            Self::Write(write) => Some(write),
        }
    }
}

impl Read {
    /// The object that it is about.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::ClaimsOf(node) => Target::ClaimsOf(node.clone()),
            Self::PodsOf(node, _) => Target::PodsOf(node.clone()),
            Self::Claim(cidr, _) => Target::Claim(*cidr),
            Self::CiliumNode(node) => Target::CiliumNode(node.clone()),
            Self::Node(node, _) => Target::Node(node.clone()),
        }
    }

    /// The node that it is sent for.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        match self {
            Self::ClaimsOf(node)
            | Self::PodsOf(node, _)
            | Self::Claim(_, node)
            | Self::CiliumNode(node)
            | Self::Node(node, _) => node,
        }
    }
}

impl Write {
    /// The object that it is about.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::CreateClaim(claim) => Target::Claim(claim.cidr),
            Self::UpdateClaim(update) => Target::Claim(update.cidr),
            Self::Publish(publication) => Target::carrier(&publication.change, &publication.node),
            Self::BumpVersion(bump) => match bump.revision {
                AnyRevision::Custom(_) => Target::CiliumNode(bump.node.clone()),
                AnyRevision::Core(_) => Target::Node(bump.node.clone()),
            },
            Self::UsageQuery(query) => Target::carrier(&query.change, &query.node),
            Self::Withdraw(withdrawal) => Target::carrier(&withdrawal.change, &withdrawal.node),
            Self::CreateCiliumNode(new) => Target::CiliumNode(new.node.clone()),
            Self::PoolStatus(write) => Target::Pool(write.pool.clone()),
            Self::PoolFinalizers(write) => Target::Pool(write.pool.clone()),
            Self::ClaimStatus(write) => Target::Claim(write.cidr),
            Self::NodeCondition(write) => Target::NodeCondition(write.node.clone()),
            Self::PodIpPool(write) => Target::PodIpPool(write.name.clone()),
            Self::Frr(write) => Target::Frr(write.name.clone()),
        }
    }

    /// The node that it is sent for.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::CreateClaim(claim) => Some(&claim.node),
            Self::Publish(publication) => Some(&publication.node),
            Self::UpdateClaim(update) => Some(&update.node),
            Self::BumpVersion(bump) => Some(&bump.node),
            Self::UsageQuery(query) => Some(&query.node),
            Self::Withdraw(withdrawal) => Some(&withdrawal.node),
            Self::CreateCiliumNode(new) => Some(&new.node),
            // No node waits for its routes or for its condition.
            Self::PoolStatus(_)
            | Self::PoolFinalizers(_)
            | Self::ClaimStatus(_)
            | Self::NodeCondition(_)
            | Self::PodIpPool(_)
            | Self::Frr(_) => None,
        }
    }

    /// Its verb and the kind of its object, as RBAC names them: `create NodeIPBlock`.
    #[must_use]
    pub fn action(&self) -> String {
        let verb = match self {
            Self::CreateClaim(_) | Self::CreateCiliumNode(_) => "create",
            Self::UpdateClaim(update) if update.change == ClaimChange::Delete => "delete",
            Self::PoolStatus(_) | Self::ClaimStatus(_) | Self::NodeCondition(_) => "patch the status of",
            Self::UsageQuery(UsageQuery { change, .. }) | Self::Withdraw(Withdrawal { change, .. })
                if change.is_of_status() =>
            {
                "patch the status of"
            }
            Self::UpdateClaim(_)
            | Self::Publish(_)
            | Self::BumpVersion(_)
            | Self::UsageQuery(_)
            | Self::Withdraw(_)
            | Self::PoolFinalizers(_) => "patch",
            Self::PodIpPool(_) | Self::Frr(_) => "write",
        };
        format!("{verb} {}", self.target().object().0.as_str())
    }

    /// The pool whose plan contains it.
    #[must_use]
    pub const fn pool(&self) -> Option<&PoolName> {
        match self {
            Self::PoolStatus(write) => Some(&write.pool),
            Self::PoolFinalizers(write) => Some(&write.pool),
            Self::ClaimStatus(write) => Some(&write.pool),
            Self::PodIpPool(write) => Some(&write.pool),
            Self::CreateClaim(_)
            | Self::Publish(_)
            | Self::UpdateClaim(_)
            | Self::BumpVersion(_)
            | Self::UsageQuery(_)
            | Self::Withdraw(_)
            | Self::CreateCiliumNode(_)
            | Self::NodeCondition(_)
            | Self::Frr(_) => None,
        }
    }
}
