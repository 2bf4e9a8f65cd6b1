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

/// The tone of a Kubernetes event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// The controller does its work.
    Normal,
    /// A person should look.
    Warning,
}

/// The Kubernetes events that report findings of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// None.
    Never,
    /// One on the Node of each finding.
    Each(Tone),
    /// One for each cause, which may concern many nodes.
    Grouped(Tone),
}

/// Makes the kinds of findings from a table: the name, its events, the id of its check, its alert.
macro_rules! findings {
    (@reported none) => { Reported::Never };
    (@reported each $tone:ident) => { Reported::Each(Tone::$tone) };
    (@reported grouped $tone:ident) => { Reported::Grouped(Tone::$tone) };
    (@alert none) => { None };
    (@alert $alert:literal) => { Some($alert) };
    ($($(#[$doc:meta])* $variant:ident: $how:ident $($tone:ident)?, $check:literal, $alert:tt;)+) => {
        stable_names! {
            /// The stable names of findings.
            pub enum FindingKind {
                $($(#[$doc])* $variant,)+
            }
        }

        impl FindingKind {
            /// The Kubernetes events that report it.
            #[must_use]
            pub const fn reported(self) -> Reported {
                match self {
                    $(Self::$variant => findings!(@reported $how $($tone)?),)+
                }
            }

            /// The id of the check that it violates. The check has the severity, the remedy and a page.
            #[must_use]
            pub const fn check_id(self) -> &'static str {
                match self {
                    $(Self::$variant => $check,)+
                }
            }

            /// The alert that fires on it, without the prefix of all alerts. `None` for information.
            #[must_use]
            pub const fn alert(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => findings!(@alert $alert),)+
                }
            }
        }
    };
}

findings! {
    /// An object can't be read; the addresses in it are treated as taken.
    UnreadableObject: none, "NIP0702", "FindingRemains";
    /// A CiliumNode has an address or prefix that can't be read.
    MalformedCiliumNode: each Warning, "NIP0702", "NodesBlocked";
    /// The same of a Node, in modes in which agents read its podCIDRs or annotations.
    MalformedNode: each Warning, "NIP0702", "NodesBlocked";
    /// A CiliumNode asks for more addresses at start than it offers.
    MinAllocate: each Warning, "NIP0801", "NodesBlocked";
    /// A node has podCIDRs that can't be its blocks, so it is left alone.
    ForeignPodCIDRs: each Warning, "NIP0801", "SecondAllocator";
    /// The CiliumNode lists a block under another CiliumPodIPPool than its claim.
    MisplacedBlock: each Warning, "NIP0801", "DuplicateAddresses";
    /// The CiliumPodIPPool of a name is missing or does not fit the blocks under that name.
    UnfitPodIPPool: each Warning, "NIP0802", "FindingRemains";
    /// A claim overlaps another claim or foreign addresses, and no more of it is published.
    Overlap: each Warning, "NIP0101", "DuplicateAddresses";
    /// A claim is of a block that is too wide for the mode of Cilium, and is not published.
    BlockTooWide: none, "NIP0801", "NodesBlocked";
    /// The node gets nothing until a person acts: a claim that is in use can't be published.
    Blocked: each Warning, "NIP0801", "NodesBlocked";
    /// The agent of a node ran in another mode of Cilium, and its pods would lose their network in crd mode.
    FormerMode: each Warning, "NIP0801", "NodesBlocked";
    /// A node got its first addresses without a check whether its agent ran before.
    PodsUnchecked: each Warning, "NIP0801", "FindingRemains";
    /// Nothing is published for a node, because its agent version undoes it.
    UnsupportedCilium: each Warning, "NIP0801", "UnsupportedAgents";
    /// Two claims overlap, and both are published on the CiliumNodes of their nodes.
    BothPublished: each Warning, "NIP0102", "DuplicateAddresses";
    /// Another writer deletes a claim that belongs to a node.
    ClaimBeingDeleted: each Warning, "NIP0604", "FindingRemains";
    /// A node asks for more than its first pool allows it.
    NodeAtLimit: each Warning, "NIP0803", "FindingRemains";
    /// A node asks for more, and an annotation of its Node holds its growth.
    GrowthHeld: each Warning, "NIP0803", "FindingRemains";
    /// Another allocator also gives addresses to the node.
    SecondAllocator: each Warning, "NIP0603", "SecondAllocator";
    /// A CiliumNodeConfig gives a node settings that are not supported.
    OtherSettings: each Warning, "NIP0801", "NodesBlocked";
    /// A node has no addresses or is nearly full, and no pool selects it.
    NoPool: grouped Warning, "NIP0801", "NodesWithoutPool";
    /// A block that stays as long as its node exists is of a pool that does not select the node.
    StrayBlock: none, "NIP0405", "FindingRemains";
    /// Another block of a node is of a pool that does not select the node.
    StrayFurtherBlock: none, "NIP0406", none;
    /// A node has no addresses, and its agent requests none.
    NothingRequested: each Warning, "NIP0801", "FindingRemains";
    /// The server has refused a write for a while, or has not answered it.
    WriteFailed: grouped Warning, "NIP0802", "FindingRemains";
    /// The server accepts a write repeatedly, and another writer undoes it.
    WriteWithoutEffect: none, "NIP0802", "WritesUndone";
    /// Nodes with one block for life hold claims of blocks that they do not have.
    LeftOverClaims: none, "NIP0201", "FindingRemains";
    /// A CiliumNode keeps blocks long after its Node was deleted.
    NodeMissing: none, "NIP0205", "FindingRemains";
    /// Nodes hold blocks and have had no Pod of Cilium's agent for an hour.
    AgentMissing: none, "NIP0802", "FindingRemains";
    /// A block can't be drained from its node yet.
    DrainWaits: each Warning, "NIP0803", "DrainBlocked";
    /// A pool in DryRun would reclaim a block.
    WouldReclaim: each Normal, "NIP0803", none;
    /// Too many blocks started draining at once, so reclaim has stopped.
    ReclaimStopped: each Warning, "NIP0802", "FindingRemains";
    /// Routes of a node can't be announced.
    RouteWithheld: none, "NIP0802", "FindingRemains";
    /// The API server refuses an FRRConfiguration.
    RouteRefused: none, "NIP0802", "FindingRemains";
    /// The route of a block that left its node may still be announced.
    RouteRemains: none, "NIP0802", "FindingRemains";
    /// Cilium itself announces the blocks of nodes too.
    RouteAnnouncedTwice: none, "NIP0802", "FindingRemains";
    /// The template has routers of VRFs, which announce the routes of nodes too.
    RouteInVrf: none, "NIP0803", none;
    /// Foreign addresses in the ranges of a pool make blocks unavailable.
    ForeignAddresses: none, "NIP0202", "SecondAllocator";
    /// Nodes have podCIDRs that agents do not read, and that other nodes hold.
    PodCIDRConflict: none, "NIP0401", "FindingRemains";
    /// Served CiliumNodes list CIDRs that are in no pool.
    PodCIDROutsidePools: none, "NIP0203", "FindingRemains";
    /// The addresses of nodes themselves are in the ranges of a pool.
    NodeNetworkInPool: none, "NIP0502", "FindingRemains";
    /// Several Nodes have the same `InternalIP`.
    SharedInternalIP: none, "NIP0404", "SharedInternalIP";
    /// The definition of pools or of claims is being deleted or is missing.
    DefinitionDeleted: none, "NIP0703", "DefinitionDeleted";
    /// The clock of the controller's machine differs from the API server by more than a minute.
    ClockDiffers: none, "NIP0802", "FindingRemains";
    /// The controller's own bookkeeping disagrees with the objects that it knows.
    BrokenInvariant: none, "NIP0802", "BrokenInvariant";
}

impl FindingKind {
    /// Whether the finding is a problem. `WouldReclaim` is information: DryRun is the default, and most clusters have
    /// surplus blocks. So is `StrayFurtherBlock`: the node is served, and only the pool has a block less. `RouteInVrf` may
    /// be intended.
    #[must_use]
    pub const fn is_wrong(self) -> bool {
        self.alert().is_some()
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
