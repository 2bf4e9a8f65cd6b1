//! The steps of the replicas, and the changes that their writes make to the objects that they were decided on.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use cilium_node_ipam::model::claim::{ClaimState, Reason};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node::CiliumNode;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::request::{Read, Request, Write};
use cilium_node_ipam::model::revision::AnyRevision;
use cilium_node_ipam::net::cidr::Cidr;

use super::super::mode::{Mode, offered, shown_by_node};
use super::super::replica::Stray;
use super::super::{requests, rules};
use super::{Cluster, Step, one_of};

impl Cluster {
    pub(super) fn replica_step(&mut self, number: usize, step: &Step) -> Result<(), String> {
        let replica = &mut self.replicas[number];
        let n_flights = replica.in_flight.len();
        match step {
            Step::News { kind, events, .. } => {
                for _ in 0..*events {
                    let Some(said) = self.replicas[number].hear(*kind, &self.store) else { break };
                    self.say(|| format!("    r{number} {said}"));
                }
            }
            Step::Relist { kind, .. } => replica.relist(*kind, &self.store),
            Step::GoesDeaf { kind, .. } => replica.goes_deaf_to(*kind),
            Step::HearsAgain { .. } => replica.hears_again(),
            Step::AgentNewsArrives { events, .. } => drop(self.hear_of_agents(number, usize::from(*events))),
            Step::GoesDeafToAgents { .. } => replica.goes_deaf_to_agents(),
            Step::Restart { .. } => {
                let strays = replica.restart(self.clock, self.store.revision(), self.mode);
                self.strays.extend(strays);
            }
            Step::Decision { decisions, .. } => {
                for _ in 0..*decisions {
                    let Some(said) = self.replicas[number].decide(self.clock)? else { break };
                    self.say(|| format!("    r{number} {said}"));
                }
            }
            Step::WriteProceeds { write, .. } => {
                if let Some(flight) = one_of(*write, n_flights) {
                    self.proceed(number, flight)?;
                }
            }
            Step::AnswerIsLost { write, .. } => {
                if let Some((said, stray)) = one_of(*write, n_flights).and_then(|flight| replica.lose(flight))
                {
                    self.strays.extend(stray);
                    self.say(|| format!("    r{number} {said}"));
                }
            }
            Step::WriteIsRefused { write, .. } => {
                if let Some(said) =
                    one_of(*write, n_flights).and_then(|flight| replica.refuse(flight, self.clock))
                {
                    self.say(|| format!("    r{number} {said}"));
                }
            }
            Step::ReplicaWorks { .. } => {
                replica.hears_mode(self.mode);
                self.hear_all(number);
                self.decide_all(number)?;
                self.end_all(number)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(in super::super) fn hear_all(&mut self, number: usize) -> bool {
        // Some replicas see the agents' Pods first, others last.
        let is_first = number.is_multiple_of(2);
        let mut heard = is_first && self.hear_of_agents(number, usize::MAX);
        // The second pass is for the lists that start when that of claims has come.
        for kind in Kind::AS_LISTED.into_iter().chain(Kind::ALL) {
            while let Some(said) = self.replicas[number].hear(kind, &self.store) {
                heard = true;
                self.say(|| format!("    r{number} {said}"));
            }
        }
        heard | self.hear_of_agents(number, usize::MAX)
    }

    pub(super) fn decide_all(&mut self, number: usize) -> Result<(), String> {
        // The decision about one node may put another on the agenda, but not for ever.
        for _ in 0..1000 {
            let Some(said) = self.replicas[number].decide(self.clock)? else { return Ok(()) };
            self.say(|| format!("    r{number} {said}"));
        }
        Err(format!("r{number} does not stop deciding"))
    }

    pub(super) fn proceed(&mut self, number: usize, flight: usize) -> Result<(), String> {
        let Some(of_flight) = self.replicas[number].in_flight.get(flight) else { return Ok(()) };
        let (request, sent) = (of_flight.request.clone(), of_flight.sent);
        if let Request::Write(Write::CreateClaim(new)) = &request
            && !self.taint.is(&new.node)
        {
            rules::grows_by_report(&self.store, &self.setting, new)?;
        }
        self.judged(&request, sent, |cluster| {
            let said = cluster.replicas[number].proceed(flight, &mut cluster.store, cluster.clock);
            cluster.say(|| format!("    r{number} {}", said.unwrap_or_default()));
        })
    }

    pub(super) fn end_all(&mut self, number: usize) -> Result<(), String> {
        while !self.replicas[number].in_flight.is_empty() {
            self.proceed(number, 0)?;
        }
        Ok(())
    }

    /// A request reaches the server after its sender has given it up.
    pub(super) fn arrives(&mut self, stray: &Stray) -> Result<(), String> {
        self.judged(&stray.write.clone().into(), stray.sent, |cluster| stray.arrive(&mut cluster.store))
    }

    /// Runs `act`, which advances `request`, and judges the change of its object. It was decided when the clock showed
    /// `sent`.
    pub(super) fn judged(
        &mut self,
        request: &Request,
        sent: Duration,
        act: impl FnOnce(&mut Self),
    ) -> Result<(), String> {
        let write = match request {
            Request::Write(write) => write,
            Request::Read(Read::PodsOf(node, after)) => {
                self.shows_pods(node, *after);
                act(self);
                return Ok(());
            }
            Request::Read(_) => {
                act(self);
                return Ok(());
            }
        };
        let decided_on = requests::decided_on(write);
        let before = decided_on.as_ref().and_then(|on| self.store.stored(on.kind, &on.name).cloned());
        let reached = self.store.revision();
        act(self);
        let (Some(decided_on), Some(before)) = (decided_on, before) else { return Ok(()) };
        if self.store.revision() != reached {
            rules::is_gone(&self.store, write, &before.object)?;
            self.cooling.judge(write, &before.object, sent, self.clock)?;
            decided_on.is_of(&before).map_err(|why| format!("`{write}` {why}"))?;
        }
        // A replica that has an old view of the labels of a Node writes a carrier of another mode.
        let (shown, after) = match &before.object {
            Object::CiliumNode(before) => {
                let mode = match self.store.mode_of(&before.name) {
                    mode @ (Mode::Crd | Mode::MultiPool | Mode::ClusterPool) => mode,
                    Mode::Kubernetes(_) if self.setting.modes.are_several() => Mode::Crd,
                    Mode::Kubernetes(_) => return Ok(()),
                };
                let after = self.store.cilium_node(&before.name).map(|after| mode.shown_by(after));
                (mode.shown_by(before), after)
            }
            Object::Node(before) => {
                let mut modes = self.setting.modes.all();
                let Some(field) = modes.find_map(Mode::node_field) else { return Ok(()) };
                let after = self.store.node(&before.name).map(|after| shown_by_node(after, field));
                (Cow::Owned(shown_by_node(before, field)), after.map(Cow::Owned))
            }
            _ => return Ok(()),
        };
        let (shown, after) = (shown.into_owned(), after.map(Cow::into_owned));
        match after {
            Some(after) if shown.revision != after.revision && !self.taint.is(&shown.name) => {
                self.removes(&shown, &after)?;
                let agent = self.agents.get(&shown.name);
                rules::begins_with_all(&self.setting, &shown, &after)?;
                rules::transition(&self.store, &shown, &after, agent)
            }
            _ => Ok(()),
        }
    }

    /// The server shows pods with their addresses where these are a proof: in multi-pool mode, in a block that a user
    /// gave up, and of an agent that ran in another mode. Elsewhere the agent's consent must be enough, because a pod
    /// may have an address before the server shows it.
    fn shows_pods(&mut self, node: &NodeName, after: AnyRevision) {
        let Some(agent) = self.agents.get(node) else { return };
        let is_of_agent = self.setting.modes.of_all == Mode::MultiPool;
        let given_up = self
            .store
            .claims()
            .filter(|claim| claim.state == ClaimState::Releasing(Reason::Unused))
            .map(|claim| claim.cidr);
        let former = self.given.iter().filter(|(name, _)| name == node).map(|(_, cidr)| *cidr);
        let proven: Vec<Cidr> = given_up.chain(former).collect();
        let is_shown = |address: &IpAddr| is_of_agent || proven.iter().any(|cidr| cidr.contains(*address));
        let shown = agent.held().iter().filter(|address| is_shown(address));
        let holders = shown.map(|address| (*address, format!("ns/pod-{address}")));
        self.store.holders.insert(node.clone(), holders.collect());
        if !is_of_agent {
            return;
        }
        let reported =
            self.reported.entry((node.clone(), after.within())).or_insert_with(|| agent.held().clone());
        reported.retain(|address| agent.held().contains(address));
    }

    /// A block with pods is removed only if a read of the Pods after this version has not shown them.
    fn removes(&self, before: &CiliumNode, after: &CiliumNode) -> Result<(), String> {
        let Some(agent) =
            self.agents.get(&after.name).filter(|_| self.setting.modes.of_all == Mode::MultiPool)
        else {
            return Ok(());
        };
        let (offered_before, offered_after) = (offered(before), offered(after));
        let reported = self.reported.get(&(after.name.clone(), Some(before.revision)));
        for address in agent.held() {
            let is_taken = offered_before.contains(*address) && !offered_after.contains(*address);
            if is_taken && reported.is_none_or(|reported| reported.contains(address)) {
                return Err(format!("{address} is taken off {} while a pod is known to have it", after.name));
            }
        }
        Ok(())
    }
}
