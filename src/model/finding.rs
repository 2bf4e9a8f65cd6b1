//! Findings: something wrong that was seen and is reported, each with a stable name.

use std::collections::BTreeSet;
use std::fmt;

use crate::model::kind::ObjectKind;
use crate::model::stable_names;

/// Something wrong that was seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What is wrong.
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
        /// A block stands under another Pod IP pool on its CiliumNode than its claim says.
        MisplacedBlock,
        /// The CiliumPodIPPool of a name is missing or does not fit the blocks that are carried under that name.
        UnfitPodIPPool,
        /// A claim overlaps something else, and nothing more of it is published.
        Overlap,
        /// A claim is of a block that is too wide for the mode of Cilium, and is not published.
        BlockTooWide,
        /// Nothing is published for a node, because a claim that its agent may be using can't be.
        HeldBack,
        /// Nothing is published for a node, because its agent is of a release that undoes it.
        UnsupportedCilium,
        /// Two claims overlap, and both are carried by the CiliumNodes of their nodes.
        BothCarried,
        /// Somebody deletes a claim that belongs to a node.
        ClaimBeingDeleted,
        /// A node asks for more than its first pool allows it.
        NodeAtLimit,
        /// Somebody else allocates for the node, too.
        SecondAllocator,
        /// A CiliumNodeConfig sets something for a node with which it is not served.
        OtherSettings,
        /// A node has no addresses or is nearly full, and no pool selects it.
        NoPool,
        /// The server accepts a write to an object again and again, and it has no effect, or none that lasts.
        WriteWithoutEffect,
        /// A CiliumNode keeps blocks long after its Node has gone.
        NodeMissing,
        /// A block that is to leave its node can't yet.
        DrainWaits,
        /// A pool that only tries it out would take a block back.
        WouldReclaim,
        /// Too many blocks began to leave nodes at once, and no more do.
        ReclaimStopped,
        /// Addresses in the ranges of a pool belong to somebody else, and keep blocks from being given out.
        ForeignAddresses,
        /// The controller's own bookkeeping disagrees with the objects that it knows.
        BrokenInvariant,
    }
}

impl FindingKind {
    /// Whether it says that something is wrong. Reclaim is only tried out unless a pool says otherwise, and most clusters
    /// have nodes that could do with less.
    #[must_use]
    pub fn is_wrong(self) -> bool {
        self != Self::WouldReclaim
    }
}

/// The findings of `before` that have ended: nothing of their kind is found about their object in `after`, in whatever
/// words.
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
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}: {}", self.kind.as_str(), self.subject.as_str(), self.name, self.message)
    }
}
