//! Writes as values: what the plan decides and the controller carries out without a decision of its own.
//!
//! Each carries the versions that it was decided on (safety rule 4).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::objects::CiliumNode;
use super::observe::PoolObject;
use super::status::PoolStatus;
use crate::ipam::addresses::AddressSet;
use crate::ipam::block::Cidr;
use crate::ipam::claim::Claim;
use crate::ipam::names::{NodeName, PoolName, Revision, Uid};

/// One write, or one read that settles a doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Create a claim. Its name is the lock on the block (safety rule 1).
    CreateClaim(NewClaim),
    /// Patch blocks onto a CiliumNode.
    Publish(Publication),
    /// Read all claims of a node consistently, to know them at a later revision (safety rule 4).
    ConfirmClaims(NodeName),
    /// Read one claim that an answer showed and no watch did.
    ReadClaim(Cidr, NodeName),
    /// Write the status of a pool.
    PoolStatus(PoolStatusWrite),
}

/// A claim that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewClaim {
    /// The block.
    pub cidr: Cidr,
    /// The pool it is cut from.
    pub pool: PoolName,
    /// The node that gets it.
    pub node: NodeName,
    /// The uid of that Node.
    pub node_uid: Uid,
    /// What it does not offer.
    pub withheld: AddressSet,
    /// The time of the decision, in milliseconds since the epoch.
    pub since: i64,
}

/// One difference to one version of one CiliumNode: addresses that become allocatable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that it was computed from.
    pub uid: Uid,
    /// That version.
    pub revision: Revision,
    /// `podCIDRs` as it shall be; a list is replaced as a whole.
    pub pod_cidrs: Vec<Cidr>,
    /// The CIDRs that are new in it.
    pub added: Vec<Cidr>,
    /// The new entries of `pool`, with the owner for whom an address is kept.
    pub entries: BTreeMap<IpAddr, Option<&'static str>>,
}

/// A new status of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolStatusWrite {
    /// The pool.
    pub pool: PoolName,
    /// Its uid.
    pub uid: Uid,
    /// The version that it was decided on.
    pub revision: Revision,
    /// The status.
    pub status: PoolStatus,
    /// When each of its conditions last changed, in milliseconds since the epoch.
    pub transitions: BTreeMap<&'static str, i64>,
}

/// The object that a write is about. One write an object is in flight at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKey {
    /// A NodeIPBlock.
    Claim(Cidr),
    /// A CiliumNode.
    CiliumNode(NodeName),
    /// All claims of one node, being read.
    ClaimsOf(NodeName),
    /// A NodeIPPool.
    Pool(PoolName),
}

impl Write {
    /// The object that it is about.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::CreateClaim(claim) => ObjectKey::Claim(claim.cidr),
            Self::ReadClaim(cidr, _) => ObjectKey::Claim(*cidr),
            Self::Publish(publication) => ObjectKey::CiliumNode(publication.node.clone()),
            Self::ConfirmClaims(node) => ObjectKey::ClaimsOf(node.clone()),
            Self::PoolStatus(write) => ObjectKey::Pool(write.pool.clone()),
        }
    }

    /// The node on whose behalf it is sent.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::CreateClaim(claim) => Some(&claim.node),
            Self::ReadClaim(_, node) | Self::ConfirmClaims(node) => Some(node),
            Self::Publish(publication) => Some(&publication.node),
            Self::PoolStatus(_) => None,
        }
    }

    /// Whether it changes an object, or only reads.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Self::CreateClaim(_) | Self::Publish(_) | Self::PoolStatus(_) => true,
            Self::ConfirmClaims(_) | Self::ReadClaim(..) => false,
        }
    }
}

/// One line for a person, as `run --dry-run` prints it.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateClaim(claim) => {
                write!(f, "claim {} of pool {} for node {}", claim.cidr, claim.pool, claim.node)
            }
            Self::Publish(publication) => {
                let added: Vec<String> = publication.added.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "publish [{}] and {} addresses on ciliumnode {}",
                    added.join(" "),
                    publication.entries.len(),
                    publication.node
                )
            }
            Self::ConfirmClaims(node) => write!(f, "read the claims of node {node}"),
            Self::ReadClaim(cidr, node) => write!(f, "read the claim of {cidr} for node {node}"),
            Self::PoolStatus(write) => write!(f, "write the status of pool {}", write.pool),
        }
    }
}

/// What became of a write. Never a guess: what was unknown has been settled by reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The object that the write was about.
    pub key: ObjectKey,
    /// The node on whose behalf it was sent.
    pub node: Option<NodeName>,
    /// What came back.
    pub answer: Answer,
    /// The object as the answer, or the read that settled it, shows it.
    pub seen: Seen,
}

/// How the server answered a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was applied; a read was answered.
    Done,
    /// The object is not as it was when the write was decided.
    Moved(String),
    /// The server refused it, and said why. Asked to wait, for so long.
    Refused(String, Option<Duration>),
    /// No answer that says whether it was applied; the object was read since.
    Unknown(String),
}

/// An object as an answer shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Nothing was read.
    Nothing,
    /// A claim.
    Claim(Box<Claim>),
    /// A CiliumNode.
    CiliumNode(Box<CiliumNode>),
    /// A pool.
    Pool(Box<PoolObject>),
    /// The object does not exist, as of this revision where the answer told it.
    Absent(Option<Revision>),
    /// All claims of a node, as of a revision.
    ClaimsOf {
        /// The revision of the list.
        revision: Revision,
        /// The claims.
        claims: Vec<Claim>,
    },
    /// The object exists, but could not be read.
    Unreadable(String),
}
