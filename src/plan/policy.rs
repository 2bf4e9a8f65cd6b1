//! The settings of the controller that decisions depend on.

use std::time::Duration;

/// The settings of the controller that decisions depend on; the others are those of the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The minimum time between two patches of one served CiliumNode, except the annotation that proves a block absent.
    /// Conflicts kill agents (`docs/cilium.md`, Who else writes).
    pub min_write_interval: Duration,
    /// How long an agent may not say what it was to say before it is asked which addresses it uses, and how long before it
    /// is asked again.
    pub question_interval: Duration,
    /// How long the first block of a node waits at most while a cloud controller has not initialized its Node; zero turns
    /// the wait off.
    pub initialization: Duration,
    /// Who creates a CiliumNode.
    pub cilium_nodes: CiliumNodeOrigin,
    /// Who creates a CiliumPodIPPool.
    pub pod_ip_pools: PodIpPoolOrigin,
    /// How blocks are taken back from nodes that live.
    pub reclaim: ReclaimPolicy,
}

impl Policy {
    /// What is done unless the command line says otherwise.
    pub const DEFAULT: Self = Self {
        min_write_interval: Duration::from_secs(2),
        // A starting agent says what it uses within two of its update periods of 15 s (`docs/cilium.md`, Use).
        question_interval: Duration::from_secs(30),
        // Cloud controllers take seconds. A Node whose taint stays must not stay without pods.
        initialization: Duration::from_secs(60),
        cilium_nodes: CiliumNodeOrigin::Agent,
        pod_ip_pools: PodIpPoolOrigin::Administrator,
        reclaim: ReclaimPolicy::DEFAULT,
    };
}

/// How blocks are taken back from nodes that live, whatever their pools say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimPolicy {
    /// Whether also where the release of the agent is one for which it has to be asked for (`docs/cilium.md`, Support).
    pub opt_in: bool,
    /// On how many nodes at once agents are asked to let addresses go.
    pub at_once: usize,
    /// How many blocks may begin to leave within a minute. Those of pools that drain wait for the next minute; if nodes
    /// give up more of themselves, none begins to leave until somebody has looked.
    pub per_minute: usize,
}

impl ReclaimPolicy {
    /// What is done unless the command line says otherwise.
    pub const DEFAULT: Self = Self { opt_in: false, at_once: 20, per_minute: 120 };
}

/// Who creates the CiliumNode of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiliumNodeOrigin {
    /// Its agent, when it starts.
    Agent,
    /// The controller, when the Node appears.
    Controller,
}

/// Who creates the CiliumPodIPPool of a name, and adds to it what it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodIpPoolOrigin {
    /// An administrator.
    Administrator,
    /// The controller, from the pools that give blocks under the name. It leaves those of others as they are.
    Controller,
}
