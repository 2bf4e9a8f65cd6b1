//! The reasons of Kubernetes events, their tones, and the outcome of each event.

use kube::runtime::events::EventType;

use crate::model::stable_names;

stable_names! {
    /// The reasons of events.
    pub enum EventReason {
        /// New blocks were published for the Node, and its agent may use them.
        BlocksPublished,
        /// The Node came back and keeps its blocks.
        BlocksReturned,
        /// The Node could not get enough addresses for its agent to start, and gave back the blocks that it had got.
        BlocksGivenBack,
        /// Blocks of the Node start draining: they are surplus, or their pool drains.
        BlocksDraining,
        /// Draining blocks stay on the Node: it needs them, or the agent still uses them.
        BlocksKept,
        /// Blocks were reclaimed from the Node with the consent of its agent.
        BlocksReclaimed,
        /// A block can't be drained from the Node yet.
        DrainWaits,
        /// With reclaim enabled, a pool would reclaim a block from the Node.
        WouldReclaim,
        /// Too many blocks started draining at once, so reclaim has stopped.
        ReclaimStopped,
        /// No pool of the Node has a free block.
        NoCapacity,
        /// The Node asks for more than its first pool allows it.
        NodeAtLimit,
        /// Another allocator also gives addresses to the Node.
        SecondAllocator,
        /// A CiliumNodeConfig gives the Node settings that are not supported.
        OtherSettings,
        /// The Node has no addresses or is nearly full, and no pool selects it.
        NoPool,
        /// The Node has no addresses, and its agent requests none.
        NothingRequested,
        /// A block of the Node overlaps another claim or foreign addresses, and no more of it is published.
        Overlap,
        /// The Node gets nothing until a person acts: a block that is in use can't be published.
        Blocked,
        /// The agent of the Node ran in another mode of Cilium, and its pods would lose their network in crd mode.
        FormerMode,
        /// The Node got its first addresses without a check whether its agent ran before.
        PodsUnchecked,
        /// Nothing is published for the Node, because its agent version undoes it.
        UnsupportedCilium,
        /// A block of the Node and a block of another Node overlap, and both are published.
        BothPublished,
        /// Another writer deletes a claim of the Node.
        ClaimBeingDeleted,
        /// The CiliumNode of the Node has an address or prefix that can't be read.
        MalformedCiliumNode,
        /// The Node has a podCIDR or an annotation that can't be read.
        MalformedNode,
        /// The CiliumNode of the Node asks for more addresses at start than it offers.
        MinAllocate,
        /// The Node has podCIDRs that can't be its blocks.
        ForeignPodCIDRs,
        /// The CiliumNode lists a block under another CiliumPodIPPool than its claim.
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
        /// The controller is passive: the pool gives no blocks.
        Passive,
        /// Writes or reclaim were frozen.
        Frozen,
        /// Nothing is frozen any more.
        FreezeEnded,
        /// The API server forbids a write for the Node or the pool.
        WriteForbidden,
        /// A write for the Node or the pool fails for another reason.
        WriteFailed,
        /// The API server forbids the controller to list or watch a kind.
        ReadForbidden,
    }
}

impl EventReason {
    pub(crate) fn tone(self) -> EventType {
        match self {
            Self::BlocksPublished
            | Self::BlocksReturned
            | Self::BlocksDraining
            | Self::BlocksKept
            | Self::BlocksReclaimed
            | Self::WouldReclaim
            | Self::CapacityReturned
            | Self::FreezeEnded => EventType::Normal,
            Self::BlocksGivenBack
            | Self::DrainWaits
            | Self::ReclaimStopped
            | Self::NoCapacity
            | Self::NodeAtLimit
            | Self::SecondAllocator
            | Self::OtherSettings
            | Self::NoPool
            | Self::NothingRequested
            | Self::Overlap
            | Self::Blocked
            | Self::FormerMode
            | Self::PodsUnchecked
            | Self::UnsupportedCilium
            | Self::BothPublished
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
            | Self::Passive
            | Self::Frozen
            | Self::WriteForbidden
            | Self::WriteFailed
            | Self::ReadForbidden => EventType::Warning,
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
            Self::NoCapacity | Self::NodeAtLimit | Self::NoPool | Self::NothingRequested => "Claim",
            Self::DrainWaits
            | Self::WouldReclaim
            | Self::ReclaimStopped
            | Self::Overlap
            | Self::Blocked
            | Self::FormerMode
            | Self::PodsUnchecked
            | Self::UnsupportedCilium
            | Self::BothPublished
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
            | Self::Passive
            | Self::Frozen
            | Self::FreezeEnded => "Report",
            Self::WriteForbidden | Self::WriteFailed => "Write",
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
        Suppressed => "suppressed",
        /// Too many events were waiting to be sent.
        Dropped => "dropped",
        /// The API server refused it or did not answer.
        Failed => "failed",
    }
}
