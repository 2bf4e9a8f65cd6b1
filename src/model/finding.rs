//! Findings: problems that the controller has seen and reports, each with a stable name.

use std::collections::BTreeSet;
use std::fmt;

use crate::model::claim::block_name;
use crate::model::kind::{Kind, ObjectKind};
use crate::model::names::NodeName;
use crate::model::stable_names;
use crate::net::cidr::Cidr;

/// A problem that was seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The problem.
    pub kind: FindingKind,
    /// The kind of the object that it was seen on.
    pub subject: ObjectKind,
    /// The name of that object.
    pub name: String,
    /// A sentence for a person: the field, the value and the rule.
    pub message: String,
}

stable_names! {
    /// The stable names of findings.
    pub enum FindingKind {
        /// An object can't be read; the addresses in it are treated as taken.
        UnreadableObject,
        /// A CiliumNode has an address or prefix that can't be read.
        MalformedCiliumNode,
        /// The same of a Node, in modes in which agents read its podCIDRs or annotations.
        MalformedNode,
        /// A CiliumNode asks for more addresses at start than it offers.
        MinAllocate,
        /// A node has podCIDRs that can't be its blocks, so it is left alone.
        ForeignPodCIDRs,
        /// The CiliumNode lists a block under another CiliumPodIPPool than its claim.
        MisplacedBlock,
        /// The CiliumPodIPPool of a name is missing or does not fit the blocks under that name.
        UnfitPodIPPool,
        /// A claim overlaps another claim or foreign addresses, and no more of it is published.
        Overlap,
        /// A claim is of a block that is too wide for the mode of Cilium, and is not published.
        BlockTooWide,
        /// The node gets nothing until a person acts: a claim that is in use can't be published.
        Blocked,
        /// The agent of a node ran in another mode of Cilium, and its pods would lose their network in crd mode.
        FormerMode,
        /// A node got its first addresses without a check whether its agent ran before.
        PodsUnchecked,
        /// Nothing is published for a node, because its agent version undoes it.
        UnsupportedCilium,
        /// Two claims overlap, and both are published on the CiliumNodes of their nodes.
        BothPublished,
        /// Another writer deletes a claim that belongs to a node.
        ClaimBeingDeleted,
        /// A node asks for more than its first pool allows it.
        NodeAtLimit,
        /// Another allocator also gives addresses to the node.
        SecondAllocator,
        /// A CiliumNodeConfig gives a node settings that are not supported.
        OtherSettings,
        /// A node has no addresses or is nearly full, and no pool selects it.
        NoPool,
        /// A block that stays as long as its node exists is of a pool that does not select the node.
        StrayBlock,
        /// Another block of a node is of a pool that does not select the node.
        StrayFurtherBlock,
        /// A node has no addresses, and its agent requests none.
        NothingRequested,
        /// The server has refused a write for a while, or has not answered it.
        WriteFailed,
        /// The server accepts a write repeatedly, and another writer undoes it.
        WriteWithoutEffect,
        /// Nodes with one block for life hold claims of blocks that they do not have.
        LeftOverClaims,
        /// A CiliumNode keeps blocks long after its Node was deleted.
        NodeMissing,
        /// Nodes hold blocks and have had no Pod of Cilium's agent for an hour.
        AgentMissing,
        /// A block can't be drained from its node yet.
        DrainWaits,
        /// A pool in DryRun would reclaim a block.
        WouldReclaim,
        /// Too many blocks started draining at once, so reclaim has stopped.
        ReclaimStopped,
        /// Routes of a node can't be announced.
        RouteWithheld,
        /// The API server refuses an FRRConfiguration.
        RouteRefused,
        /// The route of a block that left its node may still be announced.
        RouteRemains,
        /// Cilium itself announces the blocks of nodes too.
        RouteAnnouncedTwice,
        /// The template has routers of VRFs, which announce the routes of nodes too.
        RouteInVrf,
        /// Foreign addresses in the ranges of a pool make blocks unavailable.
        ForeignAddresses,
        /// Nodes have podCIDRs that agents do not read, and that other nodes hold.
        PodCIDRConflict,
        /// Served CiliumNodes list CIDRs that are in no pool.
        PodCIDROutsidePools,
        /// The addresses of nodes themselves are in the ranges of a pool.
        NodeNetworkInPool,
        /// Several Nodes have the same `InternalIP`.
        SharedInternalIP,
        /// The definition of pools or of claims is being deleted or is missing.
        DefinitionDeleted,
        /// The clock of the controller's machine differs from the API server by more than a minute.
        ClockDiffers,
        /// The controller's own bookkeeping disagrees with the objects that it knows.
        BrokenInvariant,
    }
}

impl FindingKind {
    /// Whether the finding is a problem. `WouldReclaim` is information: DryRun is the default, and most clusters have
    /// surplus blocks. So is `StrayFurtherBlock`: the node is served, and only the pool has a block less. `RouteInVrf` may
    /// be intended.
    #[must_use]
    pub fn is_wrong(self) -> bool {
        !matches!(self, Self::WouldReclaim | Self::StrayFurtherBlock | Self::RouteInVrf)
    }
}

/// The findings of `before` that are resolved: `after` has none of their kind about their object, in any words.
pub fn ended<'a>(
    before: &'a BTreeSet<Finding>,
    after: &'a BTreeSet<Finding>,
) -> impl Iterator<Item = &'a Finding> {
    let subject = |finding: &'a Finding| (finding.kind, finding.subject, &finding.name);
    let going_on: BTreeSet<_> = after.iter().map(subject).collect();
    before.iter().filter(move |finding| !going_on.contains(&subject(finding)))
}

impl Finding {
    /// A finding about an object.
    #[must_use]
    pub fn new(kind: FindingKind, subject: impl Into<ObjectKind>, name: &str, message: String) -> Self {
        Self { kind, subject: subject.into(), name: name.to_owned(), message }
    }

    /// A finding about a Node.
    #[must_use]
    pub fn of_node(kind: FindingKind, node: &NodeName, message: String) -> Self {
        Self::new(kind, Kind::Node, node.as_str(), message)
    }

    /// A finding about the claim of a block.
    #[must_use]
    pub fn of_claim(kind: FindingKind, block: Cidr, message: String) -> Self {
        Self::new(kind, Kind::Claim, &block_name(block), message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}: {}", self.kind.as_str(), self.subject.as_str(), self.name, self.message)
    }
}
