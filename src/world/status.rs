//! The status of a pool as a value, and how it follows from the world.
//!
//! Deterministic: no time stands in it, so an unchanged world writes nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::ipam::block::Family;

/// Where counts end: the largest integer that every JSON reader holds exactly (RFC 8259 section 6).
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// A count as it is shown.
#[must_use]
pub fn shown_count(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT)
}

/// What is shown of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// The generation of the pool that it describes.
    pub observed_generation: i64,
    /// The conditions, by type.
    pub conditions: BTreeMap<&'static str, Condition>,
    /// The nodes that it selects.
    pub nodes: NodeCounts,
    /// What it offers, by family.
    pub families: BTreeMap<Family, FamilyCounts>,
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
