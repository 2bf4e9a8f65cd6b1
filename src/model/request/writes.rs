//! The contents of each write: the versions of the objects that it was decided on, and the change.

use std::collections::BTreeMap;

use crate::model::availability::Availability;
use crate::model::carrier::{Carrier, CarrierChange};
use crate::model::claim::{Claim, Reason};
use crate::model::names::{NodeName, PodIpPoolName, PoolName, Uid};
use crate::model::node::NodeAddress;
use crate::model::pod_ip_pool::{PodIpPool, PodIpRanges};
use crate::model::revision::{AnyRevision, Core, Revision};
use crate::model::stable_names;
use crate::model::status::{ClaimStatus, ConditionType, Need, PoolStatus, Sample};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

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
    /// Whether that version is being deleted: then the API server accepts no new finalizers for it.
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
    /// The state stays, and our finalizer, which the claim had lost, is restored.
    Keep,
    /// To Draining, on the carrier of this uid: no new pod may get an address of it.
    Drain(Uid),
    /// To Releasing: from now on no replica may publish it.
    Release(Reason),
    /// To Cooling: it is removed from its node.
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
    /// That version; its store shows whether it is a Node or a CiliumNode.
    pub revision: AnyRevision,
    /// The revision that the new version must be later than.
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

/// A usage query to an agent, or the end of it (`docs/cilium.md`, Ping).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that it was decided on.
    pub uid: Uid,
    /// That version.
    pub revision: AnyRevision,
    /// Whether the query is sent or cleared.
    pub step: QueryStep,
    /// The change.
    pub change: CarrierChange,
}

/// A step of a usage query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryStep {
    /// The mark is set.
    Ask,
    /// The mark is removed: the query is answered, or a later version of the CiliumNode is needed at once.
    Clear,
}

/// A step of the removal of blocks from one version of one carrier, with the consent of its agent; or a step by which
/// they stay after all.
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
    /// The steps that remove blocks from a carrier, in their order.
    pub enum WithdrawalStep {
        /// Their addresses are closed to new pods.
        Fence => "fence",
        /// The agent is asked to release each address.
        Mark => "mark",
        /// Each address is confirmed to the agent as released.
        Confirm => "confirm",
        /// They are removed from the carrier.
        Remove => "take_off",
        /// Leftovers of these steps are removed from the status.
        Clear => "clear",
    }
}

/// A CiliumNode that will be created.
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

/// A claim that will be created.
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
    /// The Cilium pool that the block will be published under; `None` in modes without such pools.
    pub pod_ip_pool: Option<PodIpPoolName>,
    /// The addresses of the block that are not offered.
    pub excluded: AddressSet,
    /// The carrier that it is created for; `None` if the block may have been on an earlier one.
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

    /// Whether `found` has everything that this creates, and our finalizer.
    #[must_use]
    pub fn is_shown_by(&self, found: &Claim) -> bool {
        self.is_made_as(found)
            && found.pool == self.pool
            && found.pod_ip_pool == self.pod_ip_pool
            && found.excluded == self.excluded.within(self.cidr)
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
    /// For each need, since when the node that the status names waits. In a box, to keep requests small.
    pub waits_since: Box<BTreeMap<Need, Timestamp>>,
    /// How many blocks nodes had in the last hours. In a box, as above.
    pub history: Box<BTreeMap<Family, Vec<Sample>>>,
}

/// A new status of a claim. It belongs to the writes about its pool: no node waits for it.
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
    /// The new status. It replaces all of the old one.
    pub status: ClaimStatus,
}

/// The condition of a Node that says whether the node can give addresses to pods. No decision waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConditionWrite {
    /// The node.
    pub node: NodeName,
    /// The uid of the version that it was decided on.
    pub uid: Uid,
    /// That version.
    pub revision: Revision<Core>,
    /// The new verdict.
    pub availability: Availability,
    /// The time of the transition, if the condition becomes True or False by this write.
    pub transition: Option<Timestamp>,
    /// The time of the decision.
    pub at: Timestamp,
}

/// A CiliumPodIPPool that is created, or the parts that are added to one of ours. It belongs to the writes about a pool
/// that gives blocks under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodIpPoolWrite {
    /// That pool.
    pub pool: PoolName,
    /// The name.
    pub name: PodIpPoolName,
    /// The uid and the version that it was decided on; `None` if it is created.
    pub on: Option<(Uid, Revision)>,
    /// The families that are written, each in its new form.
    pub families: BTreeMap<Family, PodIpRanges>,
}

impl PodIpPoolWrite {
    /// Whether `found` has everything that this writes.
    #[must_use]
    pub fn is_shown_by(&self, found: &PodIpPool) -> bool {
        self.families.iter().all(|(family, ranges)| found.families.get(family) == Some(ranges))
    }
}
