//! The status of a pool and that of a claim as values.
//!
//! Their only time is the end of a cooling, which follows from the objects alone. So an unchanged world leads to equal
//! ones, and nothing is written.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::names::NodeName;
use crate::model::stable_names;
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};

/// The largest count that is shown: the largest integer that every JSON reader holds exactly (RFC 8259 section 6).
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// A count as it is shown: at most [`MAX_COUNT`].
#[must_use]
pub fn capped_count(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT)
}

/// The status of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// The generation of the pool that this status describes.
    pub observed_generation: i64,
    /// Its conditions, by type.
    pub conditions: BTreeMap<ConditionType, Condition>,
    /// The nodes that the pool selects.
    pub nodes: NodeCounts,
    /// The blocks and addresses of the pool, by family.
    pub families: BTreeMap<Family, FamilyCounts>,
    /// The blocks of each of its CIDRs.
    pub cidrs: BTreeMap<Cidr, CidrCounts>,
    /// The sizes of its blocks, by family.
    pub sizes: BTreeMap<Family, BlockSizes>,
    /// The node that waits longest for a block, by its need.
    pub longest_wait: BTreeMap<Need, NodeName>,
}

/// The state of a pool with these conditions in one word: `Ready`, `Exhausted`, `Draining`, or the reason why it is not
/// ready.
#[must_use]
pub fn word(conditions: &BTreeMap<ConditionType, Condition>) -> &str {
    let holds = |kind: ConditionType| conditions.get(&kind).is_some_and(|condition| condition.holds);
    match conditions.get(&ConditionType::Ready) {
        Some(ready) if !ready.holds => &ready.reason,
        _ if holds(ConditionType::Exhausted) => "Exhausted",
        _ if holds(ConditionType::Draining) => "Draining",
        _ => "Ready",
    }
}

stable_names! {
    /// The need of a node that waits for a block.
    pub enum Need {
        /// It has no addresses, and can't start pods.
        First => "first",
        /// It is served, and needs another block.
        Growth => "growth",
    }
}

stable_names! {
    /// The types of conditions that this version writes.
    pub enum ConditionType {
        /// Nodes that the selector matches get blocks.
        Ready,
        /// An older pool declares some of its addresses.
        Overlapping,
        /// A family has no free block.
        Exhausted,
        /// Foreign or reserved addresses make blocks of the pool unavailable.
        Obstructed,
        /// Blocks of the pool are draining from nodes that exist.
        Draining,
        /// An administrator has frozen writes or reclaim.
        Frozen,
        /// Fields of the pool have no effect in the mode of Cilium.
        WithoutEffect,
        /// Pools of the same CiliumPodIPPool have another block size.
        MixedBlockSizes,
        /// The pool's CiliumPodIPPool is missing or does not fit its blocks.
        UnfitPodIPPool,
    }
}

stable_names! {
    /// The reasons of conditions.
    pub enum ConditionReason {
        /// The selector and the ranges are in use.
        Serving,
        /// The pool can't be read.
        Invalid,
        /// The pool is being deleted.
        Deleting,
        /// No block fits into its ranges.
        Empty,
        /// Older pools have all blocks of its ranges.
        Overlapped,
        /// All of its ranges are cordoned or draining.
        Cordoned,
        /// Its blocks are too wide for the mode of Cilium.
        BlockTooWide,
        /// The agents run a family, and no pool of their nodes has ranges of it.
        FamilyMissing,
        /// The pool has no free block of a family that agents run, so a node that joins now gets nothing of it.
        Exhausted,
        /// A node that joins now gets no block, because the CiliumPodIPPool does not fit.
        PodIPPoolUnfit,
        /// It would serve, and the API server refuses writes for its nodes, or does not answer them.
        WritesFail,
        /// It would serve, and the controller is passive.
        Passive,
        /// It would serve, and writes are frozen.
        Frozen,
        /// The agent versions of all its nodes are unsupported, and nothing is published for them.
        UnsupportedCilium,
        /// No older pool declares any of its addresses.
        NoOverlap,
        /// An older pool declares some of its addresses.
        OverlapsOlderPool,
        /// Every family has a free block.
        FreeBlocks,
        /// A family has no free block.
        NoFreeBlocks,
        /// It gives out no blocks, free or not.
        Closed,
        /// Only claims of the pool take its blocks.
        Unobstructed,
        /// Blocks are unavailable.
        BlocksUnavailable,
        /// No block of the pool is draining.
        NoneToLeave,
        /// Blocks of the pool are draining or wait for it.
        BlocksToLeave,
        /// Writes that give, move or take addresses are frozen.
        WritesFrozen,
        /// Reclaim is frozen.
        ReclaimFrozen,
        /// A node gets one block of each family for its life, and fields about more blocks, or about first and last
        /// addresses, have no effect.
        OneBlockPerNode,
        /// Agents request and return blocks, and fields about growth, reclaim and first and last addresses have no
        /// effect.
        AgentsAsk,
        /// This mode has no CiliumPodIPPools, and the field `podIPPool` has no effect.
        NoPodIPPools,
        /// The blocks of the CiliumPodIPPool have several sizes.
        OtherBlockSize,
        /// The controller could not read whether it exists.
        PodIPPoolUnknown,
        /// It does not exist.
        PodIPPoolMissing,
        /// It lacks a family of the blocks.
        PodIPPoolLacksFamily,
        /// It has another `maskSize` than the blocks.
        PodIPPoolOtherMaskSize,
    }
}

impl ConditionReason {
    /// The condition that has this reason.
    #[must_use]
    pub const fn condition(self) -> ConditionType {
        self.meaning().0
    }

    /// Whether the condition holds if it has this reason.
    #[must_use]
    pub const fn holds(self) -> bool {
        self.meaning().1
    }

    /// The condition that has this reason, and whether it then holds.
    const fn meaning(self) -> (ConditionType, bool) {
        match self {
            Self::Serving => (ConditionType::Ready, true),
            Self::Invalid
            | Self::Deleting
            | Self::Empty
            | Self::Overlapped
            | Self::Cordoned
            | Self::BlockTooWide
            | Self::FamilyMissing
            | Self::Exhausted
            | Self::PodIPPoolUnfit
            | Self::WritesFail
            | Self::Passive
            | Self::Frozen
            | Self::UnsupportedCilium => (ConditionType::Ready, false),
            Self::NoOverlap => (ConditionType::Overlapping, false),
            Self::OverlapsOlderPool => (ConditionType::Overlapping, true),
            Self::FreeBlocks | Self::Closed => (ConditionType::Exhausted, false),
            Self::NoFreeBlocks => (ConditionType::Exhausted, true),
            Self::Unobstructed => (ConditionType::Obstructed, false),
            Self::BlocksUnavailable => (ConditionType::Obstructed, true),
            Self::NoneToLeave => (ConditionType::Draining, false),
            Self::BlocksToLeave => (ConditionType::Draining, true),
            Self::WritesFrozen | Self::ReclaimFrozen => (ConditionType::Frozen, true),
            Self::OneBlockPerNode | Self::AgentsAsk | Self::NoPodIPPools => {
                (ConditionType::WithoutEffect, true)
            }
            Self::OtherBlockSize => (ConditionType::MixedBlockSizes, true),
            Self::PodIPPoolUnknown => (ConditionType::UnfitPodIPPool, false),
            Self::PodIPPoolMissing | Self::PodIPPoolLacksFamily | Self::PodIPPoolOtherMaskSize => {
                (ConditionType::UnfitPodIPPool, true)
            }
        }
    }
}

/// A condition without its time of transition, which is kept beside the status ([`PoolObject::transitions`]).
///
/// [`PoolObject::transitions`]: crate::model::observation::PoolObject::transitions
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether it holds.
    pub holds: bool,
    /// The name of its reason.
    pub reason: Cow<'static, str>,
    /// A sentence for a person.
    pub message: String,
}

/// The status of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimStatus {
    /// The word that `kubectl get` shows in place of the state.
    pub shown_as: Option<ShownAs>,
    /// The end of its cooling.
    pub until: Option<Timestamp>,
    /// The progress of its drain.
    pub drain: Option<DrainStatus>,
}

impl ClaimStatus {
    /// The pods that have addresses of a block that drains, as far as the status names them.
    #[must_use]
    pub fn drain_pods(&self) -> BTreeSet<&String> {
        self.drain.iter().flat_map(|drain| &drain.pods).map(|(_, pod)| pod).collect()
    }
}

stable_names! {
    /// A word that `kubectl get` shows for a claim in place of its state.
    pub enum ShownAs {
        /// It is held, and its block must leave the node.
        WillDrain,
        /// The object is being deleted.
        Deleting,
    }
}

/// The drain of a claim, as its status reports it: the cause of its wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainStatus {
    /// A sentence for a person.
    pub waiting_for: String,
    /// How many addresses of the block pods still have; `None` if new pods may still get one.
    pub pod_count: Option<u64>,
    /// The first ten of them, each with its pod, as far as that is known.
    pub pods: Vec<(IpAddr, String)>,
}

/// The nodes that a pool selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Nodes that the selector matches.
    pub selected: u64,
    /// Of these, nodes that have published blocks.
    pub served: u64,
    /// Of these, nodes without published blocks that ask for a block that none of their pools can give.
    pub waiting: u64,
    /// Of the served nodes, those that ask for another block that none of their pools can give.
    pub want_growth: u64,
}

/// Blocks of one CIDR of a pool. No count is above [`MAX_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CidrCounts {
    /// All blocks that can be cut from it.
    pub blocks: u64,
    /// Blocks held by nodes.
    pub held: u64,
    /// Blocks that are leaving their nodes: draining or releasing.
    pub draining: u64,
    /// Blocks that are cooling.
    pub cooling: u64,
    /// Blocks that a node could get now.
    pub free: u64,
    /// Blocks with an occupant other than a claim of the pool, or that an older pool has.
    pub foreign: u64,
    /// Blocks that exclusions or addresses of nodes keep from nodes.
    pub excluded: u64,
}

/// The sizes of the blocks of one family of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockSizes {
    /// The blocks of each prefix length that the pool gives out or once gave out. No size ever leaves: a CIDR of one of
    /// them, in the ranges of the pool, is a block of the pool.
    pub counts: BTreeMap<u8, SizeCounts>,
    /// The prefix length of the largest CIDR without a taken block; `None` without a free block.
    pub largest_free: Option<u8>,
}

/// Blocks of one size. No count is above [`MAX_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeCounts {
    /// Blocks on nodes: held, draining or releasing.
    pub on_nodes: u64,
    /// Blocks that a node of this size could get now. Blocks of another size may be in them, so the sizes share them.
    pub free: u64,
}

/// How many blocks of one family of a pool nodes had at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The time.
    pub at: Timestamp,
    /// The held and the draining blocks. At most [`MAX_COUNT`].
    pub on_nodes: u64,
}

/// Blocks and addresses of one family of a pool. No count is above [`MAX_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyCounts {
    /// All blocks that can be cut from its ranges.
    pub blocks: u64,
    /// Blocks held by nodes.
    pub held: u64,
    /// Blocks that are leaving their nodes: draining or releasing.
    pub draining: u64,
    /// Blocks that are cooling.
    pub cooling: u64,
    /// Blocks that a node could get now.
    pub free: u64,
    /// Blocks with an occupant other than a claim of the pool, or that offer no address.
    pub unavailable: u64,
    /// Addresses on the carriers of nodes.
    pub published: u64,
    /// Of these, addresses in use; `None` if agents do not report them.
    pub used: Option<u64>,
    /// Addresses that free blocks offer, and published addresses that are known to be unused.
    pub addresses_free: u64,
    /// The nodes and pods that its free blocks can serve.
    pub headroom: Headroom,
}

/// The nodes and pods that the free blocks of one family of a pool can serve. It follows from the blocks alone, so a pod
/// that starts does not change it. No count is above [`MAX_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headroom {
    /// Nodes that can still get their first blocks.
    pub nodes: u64,
    /// Pods that can have an address in the free blocks after these nodes have joined.
    pub pods: u64,
}

impl FamilyCounts {
    /// The blocks that nodes have.
    #[must_use]
    pub const fn on_nodes(&self) -> u64 {
        self.held.saturating_add(self.draining)
    }

    /// The used addresses in percent of all that pods can have. `None` if agents do not report use, or if there are no
    /// addresses.
    #[must_use]
    pub fn used_percent(&self) -> Option<u128> {
        let used = u128::from(self.used?);
        (used * 100).checked_div(used + u128::from(self.addresses_free))
    }
}
