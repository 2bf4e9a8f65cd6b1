//! The Pods of Cilium's agents as the world keeps them: whether an agent runs on a node, since when, and in which
//! version.
//!
//! They are no kind of the world: no address follows from them alone, and the controller serves nodes without them
//! (`docs/decisions/0021-agents-beside-the-world.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::cilium_version::CiliumVersion;
use super::names::{NodeName, PodName, Uid};
use super::news::News;
use super::revision::AnyRevision;
use super::time::Timestamp;
use crate::net::cidr::Cidr;

/// The Pod of an agent that is bound to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPod {
    /// Its name.
    pub name: PodName,
    /// Its uid; a Pod that is recreated has another one.
    pub uid: Uid,
    /// The node that it is bound to.
    pub node: NodeName,
    /// Whether it is being deleted. Its agent may run until the Pod no longer exists.
    pub deleting: bool,
    /// Whether its containers have exited for good. No agent runs in it any more, and the object is a leftover.
    pub ended: bool,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// When its container `cilium-agent` last started; `None` if that does not run.
    pub started: Option<ContainerStart>,
    /// The agent version, if the Pod shows it.
    pub release: Option<CiliumVersion>,
}

/// One start of a container. A later start in the same Pod has another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerStart {
    /// When it started, to the second, by the clock of its node.
    pub at: Timestamp,
    /// How often the container had exited before.
    pub n_restarts: u32,
}

/// The Pods that are bound to a node, as one read of all of them found them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodsOnNode {
    /// Those of Cilium's agents.
    pub agents: Vec<AgentPod>,
    /// The addresses that pods have, each with the pod as `namespace/name`. Pods on the network of the host, whose
    /// addresses are those of the node, and finished pods are not among them.
    pub holders: BTreeMap<IpAddr, String>,
    /// How many pods wait for an address, without agents, finished pods and pods on the network of the host. The next
    /// address may be of any block.
    pub n_starting: usize,
}

impl PodsOnNode {
    /// The pods that have an address of a block.
    #[must_use]
    pub fn holders_in(&self, block: Cidr) -> BTreeSet<&String> {
        block.entries_in(&self.holders).map(|(_, pod)| pod).collect()
    }

    /// Whether a pod has an address of a block.
    #[must_use]
    pub fn use_any_of(&self, block: Cidr) -> bool {
        block.entries_in(&self.holders).next().is_some()
    }
}

/// The result of the last read of a node's Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSnapshot {
    /// The version of the carrier that was known when the read was decided. The result is later.
    pub after: AnyRevision,
    /// When it was answered.
    pub at: Duration,
    /// The Pods; the reason if the server refused the read.
    pub found: Result<PodsOnNode, String>,
    /// The addresses of pods that their agent did not list as used when the read was answered.
    pub unlisted: BTreeSet<IpAddr>,
}

/// News of the agents' Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentNews {
    /// All agents run this version, whether or not their Pods show it: an administrator vouches for it.
    Vouched(CiliumVersion),
    /// They can't be listed, for this reason. Sent at most once, before the first list.
    Unlisted(String),
    /// These are all. They replace the earlier ones.
    Listed(Vec<AgentPod>),
    /// A Pod exists in this version.
    Applied(AgentPod),
    /// A Pod was deleted, or no longer is that of an agent. This was its last version.
    Deleted(AgentPod),
}

impl From<News<AgentPod>> for AgentNews {
    fn from(news: News<AgentPod>) -> Self {
        match news {
            News::Unlisted(why) => Self::Unlisted(why),
            News::Listed(pods) => Self::Listed(pods),
            News::Applied(pod) => Self::Applied(pod),
            News::Deleted(pod) => Self::Deleted(pod),
        }
    }
}

/// Why the agent that runs on a node is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAgent {
    /// The agents' Pods have not been listed.
    #[error("the Pods of Cilium's agents are unknown: {0}")]
    Unlisted(String),
    /// The node has none.
    #[error("the node has no Pod of Cilium's agent")]
    Absent,
    /// The agent will exit soon, or its successor has not started.
    #[error("the Pod {0} of Cilium's agent is being deleted")]
    Leaving(PodName),
    /// Two agents may run, and both write the same CiliumNode.
    #[error("the node has several Pods of Cilium's agent: {0} and {1}")]
    Several(PodName, PodName),
    /// Its Pod is not Ready, or its container does not run.
    #[error("the Pod {0} of Cilium's agent is not Ready")]
    NotReady(PodName),
}

/// The agent that was seen to write its use, and the object that it wrote. Either may be replaced. Only a write of this
/// agent onto this object counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseWriter {
    /// The carrier.
    pub carrier: Uid,
    /// The Pod of the agent.
    pub pod: Uid,
    /// The start of its container.
    pub started: ContainerStart,
}

/// Why the addresses that an agent uses are unknown, even if its carrier lists some (safety rule 7).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UseUnknown {
    /// The node has no carrier.
    #[error("the node has no CiliumNode")]
    NoCarrier,
    /// The carrier has no list. An agent whose CiliumNode was recreated writes nothing until something changes.
    #[error("its CiliumNode has no list of used addresses")]
    Silent,
    /// There is not exactly one Ready agent. An agent that starts may write an empty list before it has restored its
    /// pods.
    #[error(transparent)]
    NoAgent(#[from] NoAgent),
    /// The list on the carrier was written by an earlier start of the agent, or before this process looked.
    #[error("the agent has not reported its use since it started")]
    NotSeen,
}
