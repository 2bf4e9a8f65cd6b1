//! The classes of writes to CiliumNodes, by which they share the event budget.

use std::time::Duration;

use super::stable_names;

stable_names! {
    /// The classes of writes to CiliumNodes, the most urgent first.
    pub enum WriteClass {
        /// The first blocks of a node, and repairs of blocks that it has.
        First => "first",
        /// Growth, steps of a reclaim that has started, and proofs that free a block.
        Growth => "growth",
        /// The start of a reclaim.
        Reclaim => "reclaim",
    }
}

/// The nodes of one class that wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// Their number.
    pub n_nodes: usize,
    /// How long the first of them has waited.
    pub longest: Duration,
}
