//! The settings of the controller that decisions depend on.

use std::time::Duration;

/// The settings of the controller that decisions depend on; the others are those of the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The minimum time between two patches of one served CiliumNode, except those that prove a block absent.
    /// Conflicts kill agents (`docs/cilium.md`, Who else writes).
    pub min_write_interval: Duration,
    /// Who creates a CiliumNode.
    pub cilium_nodes: CiliumNodeOrigin,
}

/// Who creates the CiliumNode of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiliumNodeOrigin {
    /// Its agent, when it starts.
    Agent,
    /// The controller, when the Node appears.
    Controller,
}
