//! Requests to the API server as values.
//!
//! A plan decides them, and the controller sends them without a decision of its own. Each carries the versions of the
//! objects that it was decided on (safety rule 4).

use std::collections::BTreeMap;
use std::fmt;

use super::carrier::{Carrier, CarrierChange};
use crate::model::claim::{Claim, Reason, block_name};
use crate::model::counted::counted;
use crate::model::kind::{Kind, ObjectKind};
use crate::model::names::{NodeName, PodIpPoolName, PoolName, Uid};
use crate::model::node::NodeAddress;
use crate::model::pod_ip_pool::{PodIpPool, PodIpRanges};
use crate::model::revision::{AnyRevision, Revision};
use crate::model::stable_names;
use crate::model::status::{ConditionType, DrainStatus, PoolStatus};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

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
    /// Patch blocks onto a CiliumNode.
    Publish(Publication),
    /// Change the state of a claim, or delete it.
    UpdateClaim(ClaimUpdate),
    /// Write a later version of a CiliumNode without a change of its content (safety rule 3).
    BumpVersion(BumpVersion),
    /// Ask an agent which addresses it uses, or clear the question.
    UsageProbe(UsageProbe),
    /// A step by which blocks leave a carrier whose node lives.
    Withdraw(Withdrawal),
    /// Create a CiliumNode before its agent creates it.
    CreateCiliumNode(NewCiliumNode),
    /// Write the status of a pool.
    PoolStatus(PoolStatusWrite),
    /// Write the finalizers of a pool.
    PoolFinalizers(PoolFinalizersWrite),
    /// Write the status of a claim.
    ClaimStatus(ClaimStatusWrite),
    /// Create a CiliumPodIPPool, or add what it lacks.
    PodIpPool(PodIpPoolWrite),
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

/// A change of the state of a claim. It carries uid and version, so that only the first of several replicas succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimUpdate {
    /// The block.
    pub cidr: Cidr,
    /// The node that the claim belongs to.
    pub node: NodeName,
    /// The uid of the version that it was decided on.
    pub uid: Uid,
    /// That version.
    pub revision: Revision,
    /// The finalizers of that version.
    pub finalizers: Vec<String>,
    /// Whether that version is being deleted: the API server does not let finalizers be added to it any more.
    pub deleting: bool,
    /// The change.
    pub change: ClaimChange,
    /// The time of the decision.
    pub since: Timestamp,
}

impl ClaimUpdate {
    /// A change that is decided on this version of the claim, at this time.
    #[must_use]
    pub fn of(claim: &Claim, change: ClaimChange, since: Timestamp) -> Self {
        Self {
            cidr: claim.cidr,
            node: claim.node.clone(),
            uid: claim.uid.clone(),
            revision: claim.revision,
            finalizers: claim.finalizers.clone(),
            deleting: claim.deleting,
            change,
            since,
        }
    }
}

/// A change of the state of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimChange {
    /// To Held, for the Node object of this uid.
    Hold(Uid),
    /// Still Held, and recorded as created for the CiliumNode of this uid: the one that it was created for is gone, and
    /// never carried it.
    CreatedFor(Uid),
    /// The state goes on, and our finalizer, which the claim had lost, is there again.
    Keep,
    /// To Draining, on the carrier of this uid: no new pod is to get an address of it.
    Drain(Uid),
    /// To Releasing: from now on nobody may publish it.
    Release(Reason),
    /// To Cooling: it is off its node.
    Cool,
    /// The claim is deleted, and the block is free.
    Delete,
}

/// A write of a later version of a carrier without a change of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BumpVersion {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that is replaced.
    pub uid: Uid,
    /// That version; its store says whether it is a Node or a CiliumNode.
    pub revision: AnyRevision,
    /// The revision that the new version has to be later than.
    pub later_than: Revision,
}

impl BumpVersion {
    /// A later version of this carrier.
    #[must_use]
    pub fn of(carrier: Carrier<'_>, later_than: Revision) -> Self {
        Self {
            node: carrier.name().clone(),
            uid: carrier.uid().clone(),
            revision: carrier.revision(),
            later_than,
        }
    }
}

/// A question to an agent which addresses it uses, or the end of that question (`docs/cilium.md`, Ping).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageProbe {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that it was decided on.
    pub uid: Uid,
    /// That version.
    pub revision: AnyRevision,
    /// Whether the question is asked or cleared.
    pub step: ProbeStep,
    /// The change.
    pub change: CarrierChange,
}

/// A step of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeStep {
    /// The mark is set.
    Ask,
    /// The mark is removed: it is answered, or a later version of the CiliumNode is needed at once.
    Clear,
}

/// A step by which blocks leave one version of one carrier, with the consent of its agent, or by which they stay after
/// all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawal {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that it was decided on.
    pub uid: Uid,
    /// That version.
    pub revision: AnyRevision,
    /// The step.
    pub step: WithdrawalStep,
    /// The blocks.
    pub blocks: Vec<Cidr>,
    /// The change.
    pub change: CarrierChange,
}

stable_names! {
    /// What a write does so that blocks leave a carrier, in the order of the steps.
    pub enum WithdrawalStep {
        /// The agent is to give no more addresses of them to new pods.
        Fence => "fence",
        /// The agent is asked whether it lets each address go.
        Mark => "mark",
        /// The agent is told that each address is released.
        Confirm => "confirm",
        /// They are taken off.
        TakeOff => "take_off",
        /// What is left of such steps is removed from the status.
        Clear => "clear",
    }
}

/// A CiliumNode that is to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCiliumNode {
    /// The node.
    pub node: NodeName,
    /// The uid of the Node that will own it.
    pub node_uid: Uid,
    /// The labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// The addresses of the Node.
    pub addresses: Vec<NodeAddress>,
}

/// A write of the finalizers of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFinalizersWrite {
    /// The pool.
    pub pool: PoolName,
    /// Its uid.
    pub uid: Uid,
    /// The version that it was decided on.
    pub revision: Revision,
    /// All finalizers after the write.
    pub finalizers: Vec<String>,
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
    /// The Pod IP pool under whose name it is to be carried; `None` in modes that have no such names.
    pub pod_ip_pool: Option<PodIpPoolName>,
    /// The addresses of the block that are not offered.
    pub withheld: AddressSet,
    /// The CiliumNode that it is created for; `None` if an earlier one may have carried the block.
    pub created_for: Option<Uid>,
    /// The time of the decision.
    pub since: Timestamp,
}

impl NewClaim {
    /// Whether `found` is such a claim as this creates: for the same node, and for the same Node object. Another
    /// request may have created it.
    #[must_use]
    pub fn is_made_as(&self, found: &Claim) -> bool {
        found.node == self.node && found.node_uid == self.node_uid
    }

    /// Whether `found` has everything that this creates, and has not moved since.
    #[must_use]
    pub fn is_shown_by(&self, found: &Claim) -> bool {
        self.is_made_as(found)
            && found.pool == self.pool
            && found.pod_ip_pool == self.pod_ip_pool
            && found.withheld == self.withheld.within(self.cidr)
            && found.created_for == self.created_for
            && found.has_finalizer()
    }
}

/// Blocks and addresses that are added to one version of one carrier, so that its agent can allocate them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that it was computed from.
    pub uid: Uid,
    /// That version.
    pub revision: AnyRevision,
    /// The blocks that are new on it.
    pub added: Vec<Cidr>,
    /// Blocks that were on it already, but lacked addresses.
    pub completed: Vec<Cidr>,
    /// How many more addresses the node can use than before.
    pub n_addresses: usize,
    /// The change.
    pub change: CarrierChange,
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
    /// When each of its conditions last changed.
    pub transitions: BTreeMap<ConditionType, Timestamp>,
}

/// A new status of a claim. It is one of the writes about its pool: no node waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimStatusWrite {
    /// The block.
    pub cidr: Cidr,
    /// The pool of the claim.
    pub pool: PoolName,
    /// The uid of the version that it was decided on.
    pub uid: Uid,
    /// That version.
    pub revision: Revision,
    /// What its drain waits for; `None` removes what was said before.
    pub drain: Option<DrainStatus>,
}

/// A CiliumPodIPPool that is created, or what is added to one of ours. It is one of the writes about a pool that gives blocks
/// under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIpPoolWrite {
    /// That pool.
    pub pool: PoolName,
    /// The name.
    pub name: PodIpPoolName,
    /// The uid and the version that it was decided on; `None` where it is created.
    pub on: Option<(Uid, Revision)>,
    /// The families that are written, each as it is to be then.
    pub families: BTreeMap<Family, PodIpRanges>,
}

impl PodIpPoolWrite {
    /// Whether `found` has everything that this writes.
    #[must_use]
    pub fn is_shown_by(&self, found: &PodIpPool) -> bool {
        self.families.iter().all(|(family, ranges)| found.families.get(family) == Some(ranges))
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
    /// A Node, being read.
    Node(NodeName),
    /// The Pods of one node, being read.
    PodsOf(NodeName),
    /// A NodeIPPool.
    Pool(PoolName),
    /// A CiliumPodIPPool.
    PodIpPool(PodIpPoolName),
}

impl Target {
    /// The kind and the name of the object; those of the node for what is only read.
    #[must_use]
    pub fn object(&self) -> (ObjectKind, String) {
        match self {
            Self::Claim(cidr) => (Kind::Claim.into(), block_name(*cidr)),
            Self::CiliumNode(node) => (Kind::CiliumNode.into(), node.to_string()),
            Self::ClaimsOf(node) | Self::Node(node) | Self::PodsOf(node) => {
                (Kind::Node.into(), node.to_string())
            }
            Self::Pool(pool) => (Kind::Pool.into(), pool.to_string()),
            Self::PodIpPool(name) => (ObjectKind::PodIpPool, name.to_string()),
        }
    }

    /// What a line calls the object.
    const fn word(&self) -> &'static str {
        match self {
            Self::Node(_) | Self::ClaimsOf(_) | Self::PodsOf(_) => "node",
            Self::CiliumNode(_) => "ciliumnode",
            Self::Claim(_) => "claim",
            Self::Pool(_) => "pool",
            Self::PodIpPool(_) => "ciliumpodippool",
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

    /// The node on whose behalf it is sent.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Read(read) => Some(read.node()),
            Self::Write(write) => write.node(),
        }
    }

    /// The write that it is, if it is one.
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

    /// The node on whose behalf it is sent.
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
            Self::UsageProbe(probe) => Target::carrier(&probe.change, &probe.node),
            Self::Withdraw(withdrawal) => Target::carrier(&withdrawal.change, &withdrawal.node),
            Self::CreateCiliumNode(new) => Target::CiliumNode(new.node.clone()),
            Self::PoolStatus(write) => Target::Pool(write.pool.clone()),
            Self::PoolFinalizers(write) => Target::Pool(write.pool.clone()),
            Self::ClaimStatus(write) => Target::Claim(write.cidr),
            Self::PodIpPool(write) => Target::PodIpPool(write.name.clone()),
        }
    }

    /// The node on whose behalf it is sent.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::CreateClaim(claim) => Some(&claim.node),
            Self::Publish(publication) => Some(&publication.node),
            Self::UpdateClaim(update) => Some(&update.node),
            Self::BumpVersion(bump) => Some(&bump.node),
            Self::UsageProbe(probe) => Some(&probe.node),
            Self::Withdraw(withdrawal) => Some(&withdrawal.node),
            Self::CreateCiliumNode(new) => Some(&new.node),
            Self::PoolStatus(_) | Self::PoolFinalizers(_) | Self::ClaimStatus(_) | Self::PodIpPool(_) => None,
        }
    }

    /// The pool whose plan it is of.
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
            | Self::UsageProbe(_)
            | Self::Withdraw(_)
            | Self::CreateCiliumNode(_) => None,
        }
    }
}

/// One line for a person, as `run --dry-run` prints it.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(read) => fmt::Display::fmt(read, f),
            Self::Write(write) => fmt::Display::fmt(write, f),
        }
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClaimsOf(node) => write!(f, "read the claims of node {node}"),
            Self::PodsOf(node, _) => write!(f, "read the pods of node {node}"),
            Self::Claim(cidr, node) => write!(f, "read the claim of {cidr} for node {node}"),
            Self::CiliumNode(node) => write!(f, "read whether ciliumnode {node} exists"),
            Self::Node(node, _) => write!(f, "read whether node {node} exists"),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateClaim(claim) => {
                write!(f, "claim {} of pool {} for node {}", claim.cidr, claim.pool, claim.node)?;
                claim.pod_ip_pool.as_ref().map_or(Ok(()), |name| write!(f, " under {name}"))
            }
            Self::Publish(publication) => {
                let added: Vec<String> = publication.added.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "publish [{}] and {} on {} {}",
                    added.join(" "),
                    counted(publication.n_addresses, "address"),
                    self.target().word(),
                    publication.node
                )
            }
            Self::UpdateClaim(update) => {
                let (cidr, node) = (update.cidr, &update.node);
                match &update.change {
                    ClaimChange::Hold(_) => write!(f, "hold {cidr} for node {node} again"),
                    ClaimChange::CreatedFor(_) => {
                        write!(f, "note that no earlier ciliumnode of node {node} carried {cidr}")
                    }
                    ClaimChange::Keep => {
                        write!(f, "put the finalizer on the claim of {cidr} for node {node} again")
                    }
                    ClaimChange::Drain(_) => write!(f, "drain {cidr} of node {node}"),
                    ClaimChange::Release(reason) => write!(f, "release {cidr} of node {node} ({reason})"),
                    ClaimChange::Cool => write!(f, "cool {cidr} of node {node}"),
                    ClaimChange::Delete => write!(f, "free {cidr} of node {node}"),
                }
            }
            Self::BumpVersion(bump) => {
                write!(f, "make a later version of {} {}", self.target().word(), bump.node)
            }
            Self::UsageProbe(probe) => match probe.step {
                ProbeStep::Ask => write!(f, "ask the agent of node {} what it uses", probe.node),
                ProbeStep::Clear => write!(f, "clear the question on ciliumnode {}", probe.node),
            },
            Self::Withdraw(withdrawal) => {
                let blocks: Vec<String> = withdrawal.blocks.iter().map(ToString::to_string).collect();
                let (blocks, node) = (blocks.join(" "), &withdrawal.node);
                match withdrawal.step {
                    WithdrawalStep::Fence => write!(f, "fence [{blocks}] on ciliumnode {node}"),
                    WithdrawalStep::Mark => write!(f, "ask the agent of node {node} to let [{blocks}] go"),
                    WithdrawalStep::Confirm => {
                        write!(f, "tell the agent of node {node} that [{blocks}] is released")
                    }
                    WithdrawalStep::TakeOff => write!(f, "take [{blocks}] off ciliumnode {node}"),
                    WithdrawalStep::Clear => {
                        write!(f, "clear the release marks in [{blocks}] on ciliumnode {node}")
                    }
                }
            }
            Self::CreateCiliumNode(new) => write!(f, "create ciliumnode {}", new.node),
            Self::PoolStatus(write) => write!(f, "write the status of pool {}", write.pool),
            Self::PoolFinalizers(write) => {
                write!(f, "set the finalizers of pool {} to [{}]", write.pool, write.finalizers.join(" "))
            }
            Self::ClaimStatus(write) => match &write.drain {
                Some(drain) => write!(f, "note on the claim of {}: {}", write.cidr, drain.waiting_for),
                None => write!(f, "note on the claim of {} that nothing is waited for", write.cidr),
            },
            Self::PodIpPool(write) => {
                let families = write.families.iter().map(|(family, ranges)| {
                    format!("{family} [{}] /{}", ranges.cidrs.join(" "), ranges.mask_size)
                });
                let step = if write.on.is_some() { "complete" } else { "create" };
                let families: Vec<String> = families.collect();
                write!(f, "{step} ciliumpodippool {} with {}", write.name, families.join(" and "))
            }
        }
    }
}
