//! Which nodes are tainted and for how long, and which faults no script does to a node that is not tainted.
//!
//! These faults are known gaps of `docs/invariants.md`: the program does not promise to survive them.

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::publisher::carried_by_cilium_node;

use super::super::agent::Agent;
use super::super::mode::{Mode, blocks};
use super::super::rules;
use super::{Cluster, Suite};

impl Cluster {
    /// Another writer edits a node, or one of its objects: the node becomes tainted.
    pub(super) fn taint(&mut self, name: &NodeName) {
        assert_eq!(self.setting.suite, Suite::OtherWriters, "{name} is edited in a script of promises");
        if self.taint.nodes.insert(name.clone()) {
            self.say(|| format!("    {name} is tainted"));
        }
        self.follow_taint();
    }

    /// Another writer edits the settings or the store that all nodes depend on.
    pub(super) fn taint_all(&mut self) {
        let mut names: Vec<NodeName> =
            self.store.names(Kind::Node).iter().map(|name| name.as_str().into()).collect();
        names.extend(self.store.names(Kind::CiliumNode).iter().map(|name| name.as_str().into()));
        names.extend(self.store.claims().map(|claim| claim.node.clone()));
        names.extend(self.agents.keys().cloned());
        for name in names {
            self.taint(&name);
        }
    }

    /// Records the ranges of tainted nodes. A taint is over when Node, CiliumNode, agent and claims are gone.
    pub(super) fn follow_taint(&mut self) {
        let store = &self.store;
        // A block of another allocator that has a claim is like any other.
        self.given.retain(|(name, cidr)| store.claim(*cidr).is_none_or(|claim| claim.node != *name));
        if self.taint.nodes.is_empty() {
            return;
        }
        let mut ranges: Vec<Cidr> = Vec::new();
        for name in &self.taint.nodes {
            ranges.extend(self.store.claims().filter(|claim| claim.node == *name).map(|claim| claim.cidr));
            ranges.extend(self.store.carrier(name).into_iter().flat_map(|seen| blocks(&seen)));
            let carried = self.store.cilium_node(name).map(carried_by_cilium_node);
            ranges.extend(carried.iter().flat_map(|carried| carried.cidrs().collect::<Vec<_>>()));
            if let Some(agent) = self.agents.get(name) {
                ranges.extend(agent.keeps());
                ranges.extend(agent.held().iter().map(|address| Cidr::single(*address)));
            }
        }
        self.taint.ranges.extend(ranges);
        let (store, agents) = (&self.store, &self.agents);
        let has_claim = |name: &NodeName| {
            let mut claims = store.claims_as_stored();
            // A claim that can't be read may be of any node.
            store.names(Kind::Claim).len() != store.claims().count()
                || claims.any(|claim| claim.json["spec"]["node"] == name.as_str())
        };
        self.taint.nodes.retain(|name| {
            [Kind::Node, Kind::CiliumNode].iter().any(|kind| store.stored(*kind, name.as_str()).is_some())
                || agents.contains_key(name)
                || has_claim(name)
        });
    }

    /// Whether a Node may be deleted. While blocks cool that it lost in an earlier absence, no event shows a process
    /// that the machine was back. And CIDRs of another allocator cool only after they were claimed.
    pub(super) fn may_lose_node(&self, name: &NodeName) -> bool {
        let is_cooling =
            |claim: &Claim| claim.node == *name && claim.state == ClaimState::Cooling(Reason::NodeGone);
        self.taint.is(name) || !self.has_unclaimed(name) && !self.store.claims().any(is_cooling)
    }

    /// Whether a CiliumNode may be deleted. An agent that is restoring its pods continues with the next CiliumNode,
    /// even if that shows nothing. Only that object shows the CIDRs of another allocator, and which of several blocks is the
    /// first.
    pub(super) fn may_lose_cilium_node(&self, name: &NodeName) -> bool {
        self.taint.is(name)
            || !self.has_unclaimed(name)
                && !self.is_restoring(name)
                && !self.may_get_another_first_block(name)
    }

    /// Whether an agent may restart. In multi-pool mode, a pod may get an address of a removed block before its agent
    /// sees the removal. If the agent restarts before it has written the block back, the pod loses that address. A claim
    /// that overlaps the removed block does not keep it.
    pub(super) fn may_restart(&self, name: &NodeName) -> bool {
        let is_kept = |address| {
            let claims = self.store.claims().filter(|claim| claim.node == *name);
            let mut over = claims.filter(|claim| claim.cidr.contains(address)).peekable();
            over.peek().is_some()
                && over.all(|claim| matches!(claim.state, ClaimState::Held | ClaimState::Draining(_)))
        };
        self.setting.modes.of_all != Mode::MultiPool
            || self.taint.is(name)
            || self.agents.get(name).is_none_or(|agent| agent.held().iter().all(|address| is_kept(*address)))
    }

    pub(super) fn is_restoring(&self, name: &NodeName) -> bool {
        let is_restoring =
            |agent: &Agent| agent.has_looked() && !agent.is_ready() && !agent.held().is_empty();
        self.agents.get(name).is_some_and(is_restoring)
    }

    /// Whether a carrier shows CIDRs of another allocator that have not become claims.
    fn has_unclaimed(&self, name: &NodeName) -> bool {
        let is_unclaimed = |(of, cidr): &(NodeName, Cidr)| {
            of == name && rules::is_given(&self.store, &self.given, of, *cidr)
        };
        self.given.iter().any(is_unclaimed)
    }
}
