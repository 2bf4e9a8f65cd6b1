//! The settings of the controller that decisions depend on.

use std::time::Duration;

use crate::model::patience::INITIALIZATION;
use crate::model::startup_taint;

/// The settings of the controller that decisions depend on; the others are those of the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The minimum time between two patches of one served CiliumNode. First and restored blocks, the end of release
    /// marks and the annotation that proves a block absent do not wait.
    /// Conflicts kill agents (`docs/cilium.md`, Who else writes).
    pub min_write_interval: Duration,
    /// How long an agent may be silent before a usage query, and the time between two queries.
    pub query_interval: Duration,
    /// The maximum time that the first block of a node waits while its Node has a startup taint. Zero turns the wait
    /// off.
    pub initialization: Duration,
    /// The prefixes of the keys of startup taints. They live as long as the process.
    pub startup_taints: &'static [&'static str],
    /// Who creates a CiliumNode.
    pub cilium_nodes: CiliumNodeOrigin,
    /// Who creates a CiliumPodIPPool.
    pub pod_ip_pools: PodIpPoolOrigin,
    /// How blocks are reclaimed from nodes that still exist.
    pub reclaim: ReclaimPolicy,
    /// Whether the condition of each Node is written.
    pub node_conditions: NodeConditions,
    /// Which report of an agent lets its node grow, in modes whose agents report their use.
    pub growth: GrowthProof,
}

impl Policy {
    /// The values that apply unless the command line says otherwise.
    pub const DEFAULT: Self = Self {
        min_write_interval: Duration::from_secs(2),
        // A starting agent reports its use within two of its update periods of 15 s (`docs/cilium.md`, Use).
        query_interval: Duration::from_secs(30),
        initialization: INITIALIZATION,
        startup_taints: startup_taint::KNOWN,
        cilium_nodes: CiliumNodeOrigin::Agent,
        pod_ip_pools: PodIpPoolOrigin::Administrator,
        reclaim: ReclaimPolicy::DEFAULT,
        node_conditions: NodeConditions::Off,
        growth: GrowthProof::Listed,
    };

    /// The same with further startup taints.
    #[must_use]
    pub fn with_startup_taints(self, further: &[String]) -> Self {
        if further.is_empty() {
            return self;
        }
        let further = further.iter().map(|prefix| &*Box::leak(prefix.clone().into_boxed_str()));
        let all: Vec<&'static str> = startup_taint::KNOWN.iter().copied().chain(further).collect();
        Self { startup_taints: all.leak(), ..self }
    }
}

/// Which report of an agent lets its node grow. An agent that still runs in another mode of Cilium reports nothing, and
/// gives no address of a further block to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthProof {
    /// The carrier lists the use.
    Listed,
    /// This process has seen the running agent report it. The list of an agent that went back to another mode stays on
    /// the carrier.
    Seen,
}

/// How blocks are reclaimed from nodes that still exist, for all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReclaimPolicy {
    /// Whether to reclaim also from agents of unknown version (`docs/cilium.md`, Support).
    pub unknown_agents: bool,
    /// The maximum number of nodes whose agents are asked at the same time to release addresses.
    pub at_once: usize,
    /// The maximum number of blocks that may start draining per minute. Blocks of draining ranges and deleted pools
    /// wait for the next minute. If surplus blocks exceed the maximum, no block of any kind starts draining until
    /// an administrator has looked.
    pub per_minute: usize,
}

impl ReclaimPolicy {
    /// The values that apply unless the command line says otherwise.
    pub const DEFAULT: Self = Self { unknown_agents: false, at_once: 20, per_minute: 120 };
}

/// Whether each Node gets a condition that says whether the node can give addresses to pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeConditions {
    /// None does.
    Off,
    /// Each does.
    Written,
}

/// Who creates the CiliumNode of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiliumNodeOrigin {
    /// Its agent, when it starts.
    Agent,
    /// The controller, when the Node appears.
    Controller,
}

/// Who creates the CiliumPodIPPool of a name, and adds the missing ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodIpPoolOrigin {
    /// An administrator.
    Administrator,
    /// The controller, from the pools that give blocks under the name. It does not change objects of other writers.
    Controller,
}
