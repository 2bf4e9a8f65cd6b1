//! The status of a pool as a value, and how it follows from the world.
//!
//! Deterministic: no time stands in it, so an unchanged world writes nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::stable_names;
use crate::net::cidr::Family;

/// Where counts end: the largest integer that every JSON reader holds exactly (RFC 8259 section 6).
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// A count as it is shown.
#[must_use]
pub fn capped_count(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT)
}

/// What is shown of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// The generation of the pool that it describes.
    pub observed_generation: i64,
    /// The conditions, by type.
    pub conditions: BTreeMap<ConditionType, Condition>,
    /// The nodes that it selects.
    pub nodes: NodeCounts,
    /// What it offers, by family.
    pub families: BTreeMap<Family, FamilyCounts>,
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
        /// The pool asks for something that this version does not do.
        Limited,
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
        /// Nothing of it is declared by an older pool.
        NoOverlap,
        /// Something of it is declared by an older pool.
        OverlapsOlderPool,
        /// Every family has a free block.
        FreeBlocks,
        /// A family has none.
        NoFreeBlocks,
        /// Everything that it asks for is done.
        NoLimit,
        /// Something that it asks for is not.
        NotYetImplemented,
    }
}

impl ConditionReason {
    /// The condition that has this reason.
    #[must_use]
    pub const fn condition(self) -> ConditionType {
        match self {
            Self::Serving | Self::Invalid | Self::Deleting | Self::Empty => ConditionType::Ready,
            Self::NoOverlap | Self::OverlapsOlderPool => ConditionType::Overlapping,
            Self::FreeBlocks | Self::NoFreeBlocks => ConditionType::Exhausted,
            Self::NoLimit | Self::NotYetImplemented => ConditionType::Limited,
        }
    }

    /// Whether the condition holds for this reason.
    #[must_use]
    pub const fn holds(self) -> bool {
        match self {
            Self::Serving | Self::OverlapsOlderPool | Self::NoFreeBlocks | Self::NotYetImplemented => true,
            Self::Invalid
            | Self::Deleting
            | Self::Empty
            | Self::NoOverlap
            | Self::FreeBlocks
            | Self::NoLimit => false,
        }
    }
}

/// A condition without its time, which the API layer keeps from the last real transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether it holds.
    pub holds: bool,
    /// A stable reason name.
    pub reason: Cow<'static, str>,
    /// A sentence for a person.
    pub message: String,
}

/// The nodes that a pool selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Nodes that the selector matches.
    pub selected: u64,
    /// Those of them that have blocks published, and wait for no more.
    pub served: u64,
    /// Those of them that ask for a block that no pool of theirs can give.
    pub waiting: u64,
}

/// Blocks and addresses of one family of a pool. Counts end at [`MAX_COUNT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyCounts {
    /// All blocks that it can cut.
    pub blocks: u64,
    /// Blocks held by nodes.
    pub held: u64,
    /// Blocks being taken back.
    pub draining: u64,
    /// Blocks that rest.
    pub cooling: u64,
    /// Blocks that a node could get now.
    pub free: u64,
    /// Addresses that stand on CiliumNodes.
    pub published: u64,
    /// Of these, addresses in use.
    pub used: u64,
    /// Addresses offered to no node yet, and published ones that are not used.
    pub addresses_free: u64,
}
