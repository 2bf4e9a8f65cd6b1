//! What a plan is told of the controller's own settings.

use std::time::Duration;

/// The policies of a plan that are the controller's and not a pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The shortest time between two patches of one served CiliumNode, but for one that proves a block absent.
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
