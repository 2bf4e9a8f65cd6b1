//! The acts of the agents, each independent of the others, and the state of their Pods.

use std::net::IpAddr;
use std::time::Duration;

use cilium_node_ipam::model::claim::ClaimState;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::time::Timestamp;

use super::super::agent::Agent;
use super::super::mode::{Mode, offered};
use super::{Cluster, Step, wall};

/// How long a machine uses its addresses after its Node is gone. Blocks cool longer, with any error of the clocks.
const LAST_BREATH: Duration = Duration::from_secs(30);

impl Cluster {
    pub(super) fn agent_step(&mut self, name: &NodeName, step: &Step) -> Result<(), String> {
        match step {
            Step::AgentStarts { .. } => {
                self.runs(name);
                self.creates_cilium_node(name);
            }
            Step::AgentLooks { .. } => {
                self.runs(name);
                self.looks(name);
                // An agent that restarts restores its pods one by one.
                self.restores(name, 1)?;
            }
            Step::PodsAreWanted { pods, from, .. } => {
                // A machine whose Node is gone gets no new pods.
                if let Some(agent) = self.agents.get_mut(name).filter(|_| !self.lost.contains_key(name)) {
                    let mut pods = usize::from(*pods);
                    if self.cordoned.contains(name) {
                        pods = pods.min(agent.n_running());
                    }
                    let taken = agent.wants(pods, usize::from(*from));
                    self.may_be_given_out(name, &taken)?;
                }
            }
            Step::AgentReports { .. } => {
                self.reports(name);
                if self.agents.get(name).is_some_and(Agent::hears_itself) {
                    self.looks(name);
                }
            }
            Step::AgentPodIsRecreated { .. } => self.is_recreated(name),
            Step::AgentRestarts { release, .. } => self.restarts(name, *release, wall(self.clock)),
            Step::AgentIsReady { .. } => self.comes_up(name)?,
            _ => {}
        }
        Ok(())
    }

    fn restarts(&mut self, name: &NodeName, release: u8, at: Timestamp) {
        let has_one_block = self.agents.get(name).is_some_and(|agent| agent.mode().gives_one_block());
        if !self.may_restart(name) || has_one_block && self.loses_its_first_block(name) {
            return;
        }
        let n_pods_before = self.store.agent_pods.n_made();
        if let Some(agent) = self.agents.get_mut(name) {
            agent.restart(release, n_pods_before, at);
            self.copied.remove(name);
            self.creates_cilium_node(name);
            self.show_pod(name);
        }
    }

    /// The Pod of an agent is deleted, and another starts.
    fn is_recreated(&mut self, name: &NodeName) {
        let mode = self.store.mode_of(name);
        let is_left = mode.gives_one_block() && self.loses_its_first_block(name);
        if self.store.node(name).is_none() || !self.may_restart(name) || is_left {
            return;
        }
        let n_pods_before = self.store.agent_pods.n_made();
        if let Some(agent) = self.agents.get_mut(name) {
            agent.is_recreated(mode, &self.setting.families, n_pods_before, wall(self.clock));
            self.copied.remove(name);
            self.creates_cilium_node(name);
            self.show_pod(name);
        }
    }

    /// The agent of a node creates the CiliumNode where there is none. One that has CIDRs of its Node names them at once.
    fn creates_cilium_node(&mut self, name: &NodeName) {
        Agent::start(&mut self.store, name);
        self.copies(name);
    }

    /// An agent of the mode kubernetes writes the CIDRs of its Node onto the CiliumNode before it is ready, where nodes have
    /// several modes.
    fn copies(&mut self, name: &NodeName) {
        let is_of_node = |agent: &Agent| agent.mode().node_field().is_some();
        if self.setting.modes.are_several() && self.agents.get(name).is_some_and(is_of_node) {
            self.reports(name);
        }
    }

    /// An agent writes its report. Where nodes have several modes, one of the mode kubernetes copies its CIDRs only at its
    /// start, onto a new CiliumNode, and when its Node has changed: the controller may have added further ones.
    fn reports(&mut self, name: &NodeName) {
        let Some(agent) = self.agents.get_mut(name) else { return };
        if self.setting.modes.are_several() && agent.mode().node_field().is_some() {
            let Some(present) = self.store.stored(Kind::CiliumNode, name.as_str()) else { return };
            let uid = present.json["metadata"]["uid"].to_string();
            if agent.keeps().is_empty() || self.copied.get(name) == Some(&uid) {
                return;
            }
            self.copied.insert(name.clone(), uid);
        }
        agent.report(&mut self.store, name);
    }

    /// An agent counts wrongly after CIDRs in use were removed from it, until it restarts (known gaps). So an
    /// administrator restarts it. The clock of its node is right: the controller could not see a restart by a slow
    /// clock (known gaps).
    pub(super) fn restart_agents_that_count_wrongly(&mut self) {
        // So does an agent that took back a block during its removal: the controller does not count that (known gaps).
        let is_refused = |name: &NodeName| {
            let mut claims = self.store.claims().filter(|claim| claim.node == *name);
            self.setting.modes.of_all == Mode::MultiPool
                && claims.any(|claim| matches!(claim.state, ClaimState::Draining(_)))
        };
        let wrong = self.agents.iter().filter(|(name, agent)| agent.counts_wrongly() || is_refused(name));
        for name in wrong.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let moved = self.store.claims().filter(|claim| claim.node == name).map(|claim| claim.since);
            let at = moved
                .max()
                .map_or(wall(self.clock), |moved| wall(self.clock).max(moved + Duration::from_secs(1)));
            self.restarts(&name, 0, at);
        }
    }

    /// An agent becomes ready, and has seen and written everything.
    pub(super) fn agent_catches_up(&mut self, name: &NodeName) -> Result<(), String> {
        self.runs(name);
        self.looks(name);
        self.comes_up(name)?;
        // The agent looks again at a version that has changed, and after its own write it may have more to answer.
        for _ in 0..3 {
            let reached = self.store.revision();
            self.reports(name);
            let Some(agent) = self.agents.get(name) else { return Ok(()) };
            if self.store.revision() != reached {
                let memory = agent.memory();
                self.say(|| format!("    the agent of {name} reports, with {memory} in memory"));
            }
            self.looks(name);
        }
        Ok(())
    }

    /// From now on the agent of an existing Node runs.
    pub(super) fn runs(&mut self, name: &NodeName) {
        if self.store.node(name).is_some() && !self.agents.contains_key(name) {
            let agent = Agent::new(
                self.store.mode_of(name),
                &self.setting.families,
                self.store.agent_pods.n_made(),
                wall(self.clock),
            );
            self.agents.insert(name.clone(), agent);
            self.show_pod(name);
        }
    }

    pub(super) fn looks(&mut self, name: &NodeName) {
        let Some(agent) = self.agents.get_mut(name) else { return };
        agent.look(&self.store, name);
        self.show_pod(name);
    }

    /// An agent that starts again restores its pods, and becomes ready.
    fn comes_up(&mut self, name: &NodeName) -> Result<(), String> {
        if self.agents.get(name).is_none_or(Agent::is_ready) {
            return Ok(());
        }
        if self.agents.get(name).is_some_and(|agent| !agent.has_looked()) {
            self.looks(name);
        }
        self.copies(name);
        self.restores(name, usize::MAX)?;
        if let Some(agent) = self.agents.get_mut(name)
            && agent.updates_first(&mut self.store, name)
            && agent.has_restored()
        {
            agent.begin();
            self.show_pod(name);
        }
        Ok(())
    }

    fn restores(&mut self, name: &NodeName, at_most: usize) -> Result<(), String> {
        let Some(agent) = self.agents.get_mut(name).filter(|agent| !agent.is_ready()) else { return Ok(()) };
        if !agent.updates_first(&mut self.store, name) {
            return Ok(());
        }
        for address in agent.restore(at_most) {
            if !self.taint.is(name) {
                return Err(format!("the pod with {address} on {name} lost its network"));
            }
            self.say(|| format!("    the pod with {address} on {name} loses its network"));
        }
        Ok(())
    }

    /// An agent gives out no address that has left its pool: it consents first, unless another writer removed the
    /// address, or all of them.
    fn may_be_given_out(&self, name: &NodeName, taken: &[IpAddr]) -> Result<(), String> {
        let (Some(stored), Some(agent)) =
            (self.store.stored(Kind::CiliumNode, name.as_str()), self.agents.get(name))
        else {
            return Ok(());
        };
        let Some(present) =
            self.store.cilium_node(name).filter(|_| agent.gives_what_is_shown() && agent.has_seen(stored))
        else {
            return Ok(());
        };
        if offered(present).is_empty() {
            return Ok(());
        }
        let has_left = |address: &&IpAddr| !offered(present).contains(**address) && !self.taint.is(name);
        match taken.iter().find(has_left) {
            None => Ok(()),
            Some(address) => Err(format!("{name} gives {address} to a pod, which has left its pool")),
        }
    }

    /// Shows the present state of an agent's Pod on the API server.
    pub(super) fn show_pod(&mut self, name: &NodeName) {
        if let Some(agent) = self.agents.get(name) {
            self.store.agent_pods.show(agent.pod(name));
        }
    }

    /// A replica receives at most `at_most` pieces of news of the agents' Pods. Returns whether there were any.
    pub(super) fn hear_of_agents(&mut self, number: usize, at_most: usize) -> bool {
        let mut heard = false;
        for _ in 0..at_most {
            let Some(said) = self.replicas[number].hear_of_agents(&self.store.agent_pods) else { break };
            heard = true;
            self.say(|| format!("    r{number} {said}"));
        }
        heard
    }

    /// The machine of a lost Node keeps running for a while.
    pub(super) fn loses_node(&mut self, name: NodeName) {
        self.lost.insert(name, self.clock);
    }

    /// Machines are gone a while after their Nodes.
    pub(super) fn lose_machines(&mut self) {
        let clock = self.clock;
        // A Node that was being deleted is gone with any write that removes its last finalizer.
        let is_gone = |name: &&NodeName| self.store.stored(Kind::Node, name.as_str()).is_none();
        let gone: Vec<NodeName> = self.agents.keys().filter(is_gone).cloned().collect();
        for name in gone {
            if !self.lost.contains_key(&name) {
                self.loses_node(name);
            }
        }
        let mut is_gone = Vec::new();
        let (agents, lost, pods) = (&mut self.agents, &mut self.lost, &mut self.store.agent_pods);
        lost.retain(|node, since| {
            let runs = *since + LAST_BREATH > clock;
            if !runs {
                agents.remove(node);
                pods.remove(node);
                is_gone.push(node.clone());
            }
            runs
        });
        // A block of a node in the mode kubernetes is free after its Node, whether the CiliumNode of another mode shows it or
        // not. So the garbage collector of Kubernetes has removed that by then, as it does within seconds.
        for name in is_gone.iter().filter(|_| self.setting.modes.are_several()) {
            if self.store.node(name).is_none() {
                self.store.remove(Kind::CiliumNode, name.as_str());
            }
        }
    }
}
