//! The Pods of Cilium's agents, one per node at most, and what is told of them.

use std::collections::BTreeMap;

use cilium_node_ipam::model::agent::{AgentNews, AgentPod};
use cilium_node_ipam::model::names::NodeName;

/// The Pods, and all that was ever told of them.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct AgentPods {
    pods: BTreeMap<NodeName, AgentPod>,
    news: Vec<AgentNews>,
    n_made: u64,
}

impl AgentPods {
    /// How many there have been.
    pub(in super::super) const fn n_made(&self) -> u64 {
        self.n_made
    }

    /// The Pod of a node's agent is this now, and if it has another name than before, another one.
    pub(in super::super) fn show(&mut self, pod: AgentPod) {
        let before = self.pods.get(&pod.node);
        if before == Some(&pod) {
            return;
        }
        if before.is_none_or(|before| before.name != pod.name) {
            self.remove(&pod.node);
            self.n_made += 1;
        }
        self.news.push(AgentNews::Applied(pod.clone()));
        self.pods.insert(pod.node.clone(), pod);
    }

    /// The node is gone, and its agent with it.
    pub(in super::super) fn remove(&mut self, node: &NodeName) {
        self.news.extend(self.pods.remove(node).map(AgentNews::Deleted));
    }

    /// All that there are now.
    pub(in super::super) fn listed(&self) -> AgentNews {
        AgentNews::Listed(self.pods.values().cloned().collect())
    }

    /// The one of a node.
    pub(in super::super) fn on(&self, node: &NodeName) -> impl Iterator<Item = &AgentPod> {
        self.pods.get(node).into_iter()
    }

    /// How much has been told so far.
    pub(in super::super) fn n_news(&self) -> usize {
        self.news.len()
    }

    /// What was told after so much.
    pub(in super::super) fn news(&self, n_told: usize) -> Option<&AgentNews> {
        self.news.get(n_told)
    }
}
