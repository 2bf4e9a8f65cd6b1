//! The Pods of Cilium's agents, one per node at most, and the news of them.

use std::collections::BTreeMap;

use cilium_node_ipam::model::agent::{AgentNews, AgentPod};
use cilium_node_ipam::model::names::NodeName;

/// The Pods, and all news of them so far.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct AgentPods {
    pods: BTreeMap<NodeName, AgentPod>,
    news: Vec<AgentNews>,
    n_made: u64,
}

impl AgentPods {
    /// How many there have been in the cluster.
    pub(in super::super) const fn n_made(&self) -> u64 {
        self.n_made
    }

    /// Shows the Pod of a node's agent as it is now. If its name has changed, it is another Pod.
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

    /// The agent of a node is gone, and its Pod with it.
    pub(in super::super) fn remove(&mut self, node: &NodeName) {
        self.news.extend(self.pods.remove(node).map(AgentNews::Deleted));
    }

    /// All present Pods.
    pub(in super::super) fn listed(&self) -> AgentNews {
        AgentNews::Listed(self.pods.values().cloned().collect())
    }

    /// The Pod of a node.
    pub(in super::super) fn on(&self, node: &NodeName) -> impl Iterator<Item = &AgentPod> {
        self.pods.get(node).into_iter()
    }

    /// The number of pieces of news so far.
    pub(in super::super) fn n_news(&self) -> usize {
        self.news.len()
    }

    /// The piece of news after the first `n_told`.
    pub(in super::super) fn news(&self, n_reported: usize) -> Option<&AgentNews> {
        self.news.get(n_reported)
    }
}
