//! When a node is tainted and for how long, and what no script does to a node that is not.
//!
//! What no script does are the known gaps of `docs/invariants.md`: faults that the program does not promise to survive.

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::publisher::carried_by_cilium_node;

use super::super::agent::Agent;
use super::super::mode::{Mode, blocks};
use super::{Cluster, Suite};

impl Cluster {
    /// Another writer edits a node, or one of its objects.
    pub(super) fn taint(&mut self, name: &NodeName) {
        assert_eq!(self.setting.suite, Suite::OtherWriters, "{name} is edited in a script of promises");
        if self.taint.nodes.insert(name.clone()) {
            self.say(|| format!("    {name} is tainted"));
        }
        self.follow_taint();
    }

    /// Another writer edits what all nodes depend on.
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

    /// Remembers what tainted nodes have, and ends the taint of those of which nothing is left.
    pub(super) fn follow_taint(&mut self) {
        let store = &self.store;
        // A block that another allocator gave, and that has become a claim, is like any other.
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
            // One that can't be read may be of any node.
            store.names(Kind::Claim).len() != store.claims().count()
                || claims.any(|claim| claim.json["spec"]["node"] == name.as_str())
        };
        self.taint.nodes.retain(|name| {
            [Kind::Node, Kind::CiliumNode].iter().any(|kind| store.stored(*kind, name.as_str()).is_some())
                || agents.contains_key(name)
                || has_claim(name)
        });
    }

    /// Whether a Node may be deleted. While blocks cool that it lost when it was away before, no event tells a process that
    /// the machine was back; and what another allocator gave it cools only when it has been claimed.
    pub(super) fn may_lose_node(&self, name: &NodeName) -> bool {
        let is_cooling =
            |claim: &Claim| claim.node == *name && claim.state == ClaimState::Cooling(Reason::NodeGone);
        self.taint.is(name) || !self.has_unclaimed(name) && !self.store.claims().any(is_cooling)
    }

    /// Whether a CiliumNode may be deleted. An agent that is restoring its pods goes on with the next one, whatever that
    /// shows; and nothing else says what another allocator gave to the node.
    pub(super) fn may_lose_cilium_node(&self, name: &NodeName) -> bool {
        self.taint.is(name) || !self.has_unclaimed(name) && !self.is_restoring(name)
    }

    /// Whether an agent may start again. In multi-pool mode a pod may get an address of a block before its agent hears that
    /// this was taken off; it loses that if its agent starts again before it has written the block back.
    pub(super) fn may_restart(&self, name: &NodeName) -> bool {
        let is_kept = |address| {
            self.store.claims().any(|claim| {
                claim.node == *name
                    && claim.cidr.contains(address)
                    && matches!(claim.state, ClaimState::Held | ClaimState::Draining(_))
            })
        };
        self.setting.mode != Mode::MultiPool
            || self.taint.is(name)
            || self.agents.get(name).is_none_or(|agent| agent.held().iter().all(|address| is_kept(*address)))
    }

    pub(super) fn is_restoring(&self, name: &NodeName) -> bool {
        let is_restoring =
            |agent: &Agent| agent.has_looked() && !agent.is_ready() && !agent.held().is_empty();
        self.agents.get(name).is_some_and(is_restoring)
    }

    /// Whether a carrier shows what another allocator gave to its node, and what has not become a claim.
    fn has_unclaimed(&self, name: &NodeName) -> bool {
        let is_unclaimed = |(of, cidr): &(NodeName, Cidr)| of == name && self.store.claim(*cidr).is_none();
        self.given.iter().any(is_unclaimed)
    }
}
