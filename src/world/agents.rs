//! The known agents of Cilium: their Pods, by node.
//!
//! They are followed beside the kinds of the world ([`AgentNews`]). A world without them is complete: it serves, and
//! only knows less of each agent. Keeps one invariant: for each change of a Pod, the result names its node.

use std::collections::{BTreeMap, BTreeSet};

use super::index::differing;
use crate::model::agent::{AgentNews, AgentPod, ContainerStart, NoAgent};
use crate::model::cilium_version::CiliumVersion;
use crate::model::names::NodeName;

/// The known agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agents {
    /// Their Pods by node; each node has at least one, in the order of their names. Or why they have not been listed.
    pods: Result<BTreeMap<NodeName, Vec<AgentPod>>, String>,
    /// The version that all of them run, if an administrator vouches for it.
    vouched: Option<CiliumVersion>,
}

impl Default for Agents {
    fn default() -> Self {
        Self { pods: Err("they are not listed yet".to_owned()), vouched: None }
    }
}

/// The agent that runs on a node, alone and Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningAgent<'a> {
    /// Its Pod.
    pub pod: &'a AgentPod,
    /// Since when it runs.
    pub started: ContainerStart,
}

/// The nodes whose agents have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Changed {
    Nodes(BTreeSet<NodeName>),
    /// Every node: something new is known of each, if only that it has no agent.
    All,
}

impl Agents {
    /// Takes in news of the agents' Pods.
    pub(super) fn observe(&mut self, news: AgentNews) -> Changed {
        let changed = match (&mut self.pods, news) {
            (_, AgentNews::Vouched(release)) => {
                self.vouched = Some(release);
                return Changed::All;
            }
            (Err(before), AgentNews::Unlisted(why)) => {
                *before = why;
                BTreeSet::new()
            }
            (_, AgentNews::Listed(pods)) => return self.observe_all(pods),
            (Ok(known), AgentNews::Applied(pod)) => {
                let node = pod.node.clone();
                insert(known.entry(node.clone()).or_default(), pod);
                [node].into()
            }
            (Ok(known), AgentNews::Deleted(pod)) => {
                if let Some(pods) = known.get_mut(&pod.node) {
                    pods.retain(|other| other.name != pod.name);
                    if pods.is_empty() {
                        known.remove(&pod.node);
                    }
                }
                [pod.node].into()
            }
            // A list comes before news of single Pods, and stays valid after it.
            (Err(_), AgentNews::Applied(_) | AgentNews::Deleted(_)) | (Ok(_), AgentNews::Unlisted(_)) => {
                BTreeSet::new()
            }
        };
        Changed::Nodes(changed)
    }

    /// Whether this news of a Pod shows that its agent may give addresses to pods, or may have: it is Ready, or the Pod
    /// is another one.
    pub(super) fn may_serve(&self, pod: &AgentPod) -> bool {
        !pod.ended && (pod.ready || self.on(&pod.node).all(|known| known.uid != pod.uid))
    }

    fn observe_all(&mut self, pods: Vec<AgentPod>) -> Changed {
        let mut listed: BTreeMap<NodeName, Vec<AgentPod>> = BTreeMap::new();
        for pod in pods {
            insert(listed.entry(pod.node.clone()).or_default(), pod);
        }
        let changed = match &self.pods {
            Err(_) => Changed::All,
            Ok(before) => Changed::Nodes(differing(before, &listed).cloned().collect()),
        };
        self.pods = Ok(listed);
        changed
    }

    /// Why the Pods are unknown; `None` if they are known.
    pub(super) fn unlisted(&self) -> Option<&str> {
        self.pods.as_ref().err().map(String::as_str)
    }

    /// The Pods in which an agent of this node may run; none if they are unknown.
    pub(super) fn on(&self, node: &NodeName) -> impl Iterator<Item = &AgentPod> {
        let pods = self.pods.as_ref().ok().and_then(|known| known.get(node));
        pods.into_iter().flatten().filter(|pod| !pod.ended)
    }

    /// The versions of the agents that may run on a node; `None` for an unknown version. Empty if no agent is known to
    /// run there.
    pub(super) fn releases_on(&self, node: &NodeName) -> impl Iterator<Item = Option<CiliumVersion>> {
        let of_pods = self.on(node).map(|pod| pod.release).filter(|_| self.vouched.is_none());
        self.vouched.map(Some).into_iter().chain(of_pods)
    }

    /// The agent that runs on a node.
    pub(super) fn running_on(&self, node: &NodeName) -> Result<RunningAgent<'_>, NoAgent> {
        self.pods.as_ref().map_err(|why| NoAgent::Unlisted(why.clone()))?;
        let mut pods = self.on(node);
        let pod = pods.next().ok_or(NoAgent::Absent)?;
        if let Some(other) = pods.next() {
            return Err(NoAgent::Several(pod.name.clone(), other.name.clone()));
        }
        if pod.deleting {
            return Err(NoAgent::Leaving(pod.name.clone()));
        }
        let started = pod.started.filter(|_| pod.ready).ok_or_else(|| NoAgent::NotReady(pod.name.clone()))?;
        Ok(RunningAgent { pod, started })
    }
}

/// Enters a Pod in the place of its earlier version.
fn insert(pods: &mut Vec<AgentPod>, pod: AgentPod) {
    match pods.binary_search_by(|other| other.name.cmp(&pod.name)) {
        Ok(place) => pods[place] = pod,
        Err(place) => pods.insert(place, pod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> AgentPod {
        AgentPod {
            name: name.into(),
            uid: format!("uid of {name}").into(),
            node: "n".into(),
            deleting: false,
            ended: false,
            ready: true,
            started: Some(ContainerStart { at: "2026-11-22T06:31:33Z".parse().unwrap(), n_restarts: 0 }),
            release: None,
        }
    }

    /// The state of the agent of node `n` if these are all Pods.
    fn known(pods: &[AgentPod]) -> String {
        let mut agents = Agents::default();
        agents.observe(AgentNews::Listed(pods.to_vec()));
        reported(&agents)
    }

    fn reported(agents: &Agents) -> String {
        match agents.running_on(&"n".into()) {
            Ok(agent) => format!("{} since {}", agent.pod.name, agent.started.at),
            Err(why) => why.to_string(),
        }
    }

    const NONE: &str = "the node has no Pod of Cilium's agent";

    #[test]
    fn an_agent_counts_where_exactly_one_can_run_and_it_is_ready() {
        assert_eq!(known(&[]), NONE);
        assert_eq!(known(&[pod("a")]), "a since 2026-11-22T06:31:33Z");
        assert_eq!(known(&[AgentPod { ended: true, ..pod("a") }]), NONE);
        assert_eq!(known(&[AgentPod { ended: true, ..pod("a") }, pod("b")]), "b since 2026-11-22T06:31:33Z");
        let leaving = AgentPod { deleting: true, ..pod("a") };
        assert_eq!(known(std::slice::from_ref(&leaving)), "the Pod a of Cilium's agent is being deleted");
        let not_ready = "the Pod a of Cilium's agent is not Ready";
        assert_eq!(known(&[AgentPod { ready: false, ..pod("a") }]), not_ready);
        assert_eq!(known(&[AgentPod { started: None, ..pod("a") }]), not_ready);
        // The old agent may still write, even if the new one is Ready.
        let both = "the node has several Pods of Cilium's agent: a and b";
        assert_eq!(known(&[pod("b"), leaving]), both);
        assert_eq!(known(&[AgentPod { node: "other".into(), ..pod("a") }]), NONE);
    }

    #[test]
    fn a_later_version_replaces_the_earlier_and_a_deletion_ends_it() {
        let mut agents = Agents::default();
        let n: Changed = Changed::Nodes(["n".into()].into());
        assert_eq!(reported(&agents), "the Pods of Cilium's agents are unknown: they are not listed yet");
        assert_eq!(agents.observe(AgentNews::Unlisted("forbidden".to_owned())), Changed::Nodes([].into()));
        assert_eq!(reported(&agents), "the Pods of Cilium's agents are unknown: forbidden");
        let starting = AgentPod { ready: false, ..pod("a") };
        assert_eq!(agents.observe(AgentNews::Listed(vec![starting])), Changed::All);
        assert_eq!(agents.observe(AgentNews::Applied(pod("a"))), n);
        assert_eq!(reported(&agents), "a since 2026-11-22T06:31:33Z");
        assert_eq!(agents.observe(AgentNews::Listed(vec![pod("a")])), Changed::Nodes([].into()));
        agents.observe(AgentNews::Deleted(pod("b")));
        assert_eq!(agents.observe(AgentNews::Deleted(pod("a"))), n);
        assert_eq!(reported(&agents), NONE);
        agents.observe(AgentNews::Applied(pod("a")));
        assert_eq!(agents.observe(AgentNews::Listed(Vec::new())), n);
        assert_eq!(reported(&agents), NONE);
    }

    #[test]
    fn every_agent_that_may_run_counts_for_its_release_unless_somebody_vouches() {
        let of = |text: &str| AgentPod { release: text.parse().ok(), ..pod(text) };
        let mut agents = Agents::default();
        let shown = |agents: &Agents| {
            let node = "n".into();
            let releases = agents.releases_on(&node);
            let shown = releases.map(|known| known.map_or("unknown".to_owned(), |known| known.to_string()));
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&agents), "");
        let ended = AgentPod { ended: true, ..of("1.12.1") };
        let leaving = AgentPod { deleting: true, ready: false, ..of("1.13.10") };
        agents.observe(AgentNews::Listed(vec![of("1.17.8"), leaving, ended, of("by digest")]));
        assert_eq!(shown(&agents), "1.13.10 1.17.8 unknown");
        assert_eq!(agents.observe(AgentNews::Vouched(CiliumVersion::new(1, 20, 2))), Changed::All);
        assert_eq!(shown(&agents), "1.20.2");
    }
}
