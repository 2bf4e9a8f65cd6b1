//! The reasons of Kubernetes events, their tones, and the outcome of each event.

use crate::model::stable_names;

stable_names! {
    /// The reasons of events.
    pub enum EventReason {
        /// The CiliumNode of the Node carries new blocks, and its agent may use them.
        BlocksPublished,
        /// The Node came back, and its blocks are held for it again.
        BlocksReturned,
        /// The Node could not get enough addresses for its agent to start, and gave back the blocks that it had got.
        BlocksGivenBack,
        /// Blocks begin to leave the Node, which lives: it can do without them, or their pool takes them back.
        BlocksDraining,
        /// Blocks that had begun to leave the Node stay: it needs them, or they can't leave.
        BlocksKept,
        /// Blocks have left the Node with the consent of its agent.
        BlocksReclaimed,
        /// A block that is to leave the Node can't yet.
        DrainWaits,
        /// With reclaim enabled, a pool would take a block back from the Node.
        WouldReclaim,
        /// Too many blocks began to leave nodes at once, and no more do.
        ReclaimStopped,
        /// No pool of the Node has a free block.
        NoCapacity,
        /// The Node asks for more than its first pool allows it.
        NodeAtLimit,
        /// Somebody else allocates for the Node, too.
        SecondAllocator,
        /// A CiliumNodeConfig sets something for the Node with which it is not served.
        OtherSettings,
        /// The Node has no addresses or is nearly full, and no pool selects it.
        NoPool,
        /// A block of the Node overlaps something else, and nothing more of it is published.
        Overlap,
        /// Nothing is published for the Node, because a block that its agent may be using can't be.
        HeldBack,
        /// Nothing is published for the Node, because its agent is of a release that undoes it.
        UnsupportedCilium,
        /// A block of the Node and a block of another Node overlap, and both are carried.
        BothCarried,
        /// Somebody deletes a claim of the Node.
        ClaimBeingDeleted,
        /// The CiliumNode of the Node has an address or prefix that can't be read.
        MalformedCiliumNode,
        /// The Node has a podCIDR or an annotation that can't be read.
        MalformedNode,
        /// The CiliumNode of the Node asks for more addresses at start than it offers.
        MinAllocate,
        /// The Node has podCIDRs that can't be its blocks.
        ForeignPodCIDRs,
        /// A block stands under another Pod IP pool on the CiliumNode than its claim says.
        MisplacedBlock,
        /// The CiliumPodIPPool of a name is missing or does not fit the blocks of the pool.
        UnfitPodIPPool,
        /// The pool has no free block any more.
        Exhausted,
        /// The pool has free blocks again.
        CapacityReturned,
        /// The pool shares addresses with an older one and does not get them.
        Overlapping,
        /// The pool can't be read.
        InvalidPool,
        /// Writes or reclaim were frozen.
        Frozen,
        /// Nothing is frozen any more.
        FreezeEnded,
        /// The API server forbids what the controller writes for the Node or to the pool.
        WriteForbidden,
        /// The API server forbids the controller to list or watch a kind.
        ReadForbidden,
    }
}

/// The type of an event, as Kubernetes calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Normal,
    Warning,
}

impl EventReason {
    pub(crate) fn tone(self) -> Tone {
        match self {
            Self::BlocksPublished
            | Self::BlocksReturned
            | Self::BlocksDraining
            | Self::BlocksKept
            | Self::BlocksReclaimed
            | Self::WouldReclaim
            | Self::CapacityReturned
            | Self::FreezeEnded => Tone::Normal,
            Self::BlocksGivenBack
            | Self::DrainWaits
            | Self::ReclaimStopped
            | Self::NoCapacity
            | Self::NodeAtLimit
            | Self::SecondAllocator
            | Self::OtherSettings
            | Self::NoPool
            | Self::Overlap
            | Self::HeldBack
            | Self::UnsupportedCilium
            | Self::BothCarried
            | Self::ClaimBeingDeleted
            | Self::MalformedCiliumNode
            | Self::MalformedNode
            | Self::MinAllocate
            | Self::ForeignPodCIDRs
            | Self::MisplacedBlock
            | Self::UnfitPodIPPool
            | Self::Exhausted
            | Self::Overlapping
            | Self::InvalidPool
            | Self::Frozen
            | Self::WriteForbidden
            | Self::ReadForbidden => Tone::Warning,
        }
    }

    /// The name of its tone in the API of events.
    #[cfg(test)]
    pub(crate) fn tone_name(self) -> &'static str {
        match self.tone() {
            Tone::Normal => "Normal",
            Tone::Warning => "Warning",
        }
    }

    /// The action of the controller, which the API of events requires.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::BlocksPublished => "Publish",
            Self::BlocksReturned | Self::BlocksKept => "Hold",
            Self::BlocksDraining => "Drain",
            Self::BlocksReclaimed => "TakeOff",
            Self::BlocksGivenBack => "Release",
            Self::NoCapacity | Self::NodeAtLimit | Self::NoPool => "Claim",
            Self::DrainWaits
            | Self::WouldReclaim
            | Self::ReclaimStopped
            | Self::Overlap
            | Self::HeldBack
            | Self::UnsupportedCilium
            | Self::BothCarried
            | Self::ClaimBeingDeleted
            | Self::SecondAllocator
            | Self::OtherSettings
            | Self::MalformedCiliumNode
            | Self::MalformedNode
            | Self::MinAllocate
            | Self::ForeignPodCIDRs
            | Self::MisplacedBlock => "Plan",
            Self::UnfitPodIPPool
            | Self::Exhausted
            | Self::CapacityReturned
            | Self::Overlapping
            | Self::InvalidPool
            | Self::Frozen
            | Self::FreezeEnded => "Report",
            Self::WriteForbidden => "Write",
            Self::ReadForbidden => "Watch",
        }
    }
}

stable_names! {
    /// The outcome of an event.
    pub enum EventFate {
        /// The API server has created it.
        Created => "created",
        /// An event of the same reason on the same object about the same was created less than five minutes ago.
        HeldBack => "held_back",
        /// Too many events were waiting to be sent.
        Dropped => "dropped",
        /// The API server refused it or did not answer.
        Failed => "failed",
    }
}
