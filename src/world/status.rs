//! The status of a pool as a value, and how it follows from the world.
//!
//! Deterministic: no time stands in it, so an unchanged world writes nothing.

use std::collections::BTreeMap;

use crate::ipam::block::Family;

/// What is shown of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolStatus {
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
    pub reason: &'static str,
    /// A sentence for a person.
    pub message: String,
}

/// The nodes that a pool selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Nodes that the selector matches.
    pub selected: u64,
    /// Those of them that have all that they ask for.
    pub served: u64,
    /// Those of them that ask for a block that no pool of theirs can give.
    pub waiting: u64,
}

/// Blocks and addresses of one family of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyCounts {
    /// All blocks that it can cut.
    pub blocks: u128,
    /// Blocks held by nodes.
    pub held: u128,
    /// Blocks being taken back.
    pub draining: u128,
    /// Blocks that rest.
    pub cooling: u128,
    /// Blocks that a node could get now.
    pub free: u128,
    /// Addresses that stand on CiliumNodes.
    pub published: u128,
    /// Of these, addresses in use.
    pub used: u128,
    /// Addresses offered to no node yet, and published ones that are not used.
    pub addresses_free: u128,
}
