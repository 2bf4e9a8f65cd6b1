//! Nodes that move from one mode of Cilium to another and back, as `docs/how-to/move-in.md` says.
//!
//! To crd mode a node may move at any time, also before its blocks are claims: the controller must not publish a part of
//! the addresses then. To a mode with one block of each family it returns as `migrate back` allows it: no block drains, and
//! all pods have addresses of the first blocks, which exclude their first and last address at most. While its agent may
//! give others to pods, the node is cordoned, until the agent runs in that mode.

use std::collections::{BTreeMap, BTreeSet};

use cilium_node_ipam::model::claim::{Claim, ClaimState};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node::HOLD_GROWTH;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use serde_json::{Value, json};

use super::super::agent::Agent;
use super::super::mode::{MODE_LABEL, given_of, is_assignable};
use super::{Cluster, Hold};

impl Cluster {
    /// A person changes the label of a Node, if that loses no pod.
    pub(super) fn moves(&mut self, name: &NodeName, hold: Hold) {
        let modes = self.setting.modes;
        let Some(other) = modes.of_labelled else { return };
        if self.store.node(name).is_none_or(|node| node.deleting) || self.drains(name) {
            return;
        }
        let is_labelled = self.store.mode_of(name) == other;
        let to = if is_labelled { modes.of_all } else { other };
        if to.gives_one_block() {
            let Some(return_to) = self.first_blocks(name) else { return };
            if !return_to.holds_all(self.agents.get(name)) {
                return;
            }
            self.returned_to.insert(name.clone(), return_to.first.values().copied().collect());
            if return_to.has_others {
                self.cordoned.insert(name.clone());
            }
        }
        if !to.gives_one_block() && self.shows_too_little(name) {
            return;
        }
        if hold == Hold::Held {
            let agent = self.store.agent_pods.on(name).next().map(|pod| pod.uid.to_string());
            let before = agent.unwrap_or_default();
            self.store.edit(Kind::Node, name.as_str(), |json| {
                json["metadata"]["annotations"][HOLD_GROWTH] = json!(before);
            });
        }
        let (key, value) = MODE_LABEL;
        self.store.edit(Kind::Node, name.as_str(), |json| {
            if is_labelled {
                json["metadata"]["labels"].as_object_mut().map(|labels| labels.remove(key));
            } else {
                json["metadata"]["labels"][key] = json!(value);
            }
        });
        if is_labelled {
            self.labelled.remove(name);
        } else {
            self.labelled.insert(name.clone());
        }
        self.copied.remove(name);
        self.say(|| format!("    {name} gets the mode {to:?}"));
    }

    /// A person removes the annotation that holds the growth of a node, and the cordon.
    pub(super) fn commits(&mut self, name: &NodeName) {
        let mode = self.store.mode_of(name);
        if self.agents.get(name).is_none_or(|agent| agent.mode() != mode) {
            return;
        }
        self.cordoned.remove(name);
        self.store.edit(Kind::Node, name.as_str(), |json| {
            if let Some(annotations) =
                json.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            {
                annotations.remove(HOLD_GROWTH);
            }
        });
    }

    /// Whether the CiliumNode of a node offers addresses, and none of a CIDR that its agent has in a mode with one block of
    /// each family. The next agent in crd mode would lose the pods of that CIDR, so `migrate` moves no such node.
    fn shows_too_little(&self, name: &NodeName) -> bool {
        let Some(seen) = self.store.cilium_node(name) else { return false };
        let pool = &seen.crd.pool;
        let has_another = |agent: &Agent| {
            agent.mode().gives_one_block() && agent.keeps().iter().any(|cidr| pool.count_in(*cidr) == 0)
        };
        !pool.is_empty() && self.agents.get(name).is_some_and(has_another)
    }

    /// Whether a block of a node is leaving it.
    fn drains(&self, name: &NodeName) -> bool {
        self.store.claims().any(|claim| claim.node == *name && claim.state != ClaimState::Held)
    }

    /// Whether the agent of a node has, or will have, one block of each family. A recreated CiliumNode may list another
    /// block first: the replacement of one that must leave by then (known gaps).
    pub(super) fn may_get_another_first_block(&self, name: &NodeName) -> bool {
        let has_one_block = |agent: &Agent| agent.mode().gives_one_block();
        self.setting.modes.are_several()
            && (self.store.mode_of(name).gives_one_block()
                || self.agents.get(name).is_some_and(has_one_block))
    }

    /// Whether an agent with one block of each family would find another one first than these when it starts. The block of a
    /// draining range comes last on a CiliumNode that was deleted and recreated (known gaps).
    pub(super) fn finds_another_first_block(&self, name: &NodeName, taken: &[Cidr]) -> bool {
        let on_cilium_node = self.store.cilium_node(name).map(|seen| seen.crd.pod_cidrs.clone());
        let listed = on_cilium_node.unwrap_or_default();
        let first = |family| listed.iter().copied().find(|cidr| cidr.family() == family);
        self.setting.modes.are_several()
            && taken.iter().any(|cidr| listed.contains(cidr) && first(cidr.family()) != Some(*cidr))
    }

    /// Whether the agent of a node has one block of each family, or takes one at its next start, and would find another.
    pub(super) fn loses_its_first_block(&self, name: &NodeName) -> bool {
        let Some(agent) = self.agents.get(name) else { return false };
        let returned_to = self.returned_to.get(name).map(Vec::as_slice).unwrap_or_default();
        let taken = if agent.mode().gives_one_block() { agent.keeps() } else { returned_to.to_vec() };
        self.finds_another_first_block(name, &taken)
    }

    /// The blocks that the agent of a node finds in a mode with one block of each family. `None` if no object shows
    /// them, or if its blocks have excluded addresses.
    fn first_blocks(&self, name: &NodeName) -> Option<Return> {
        let in_spec = &self.store.node(name)?.pod_cidrs;
        let counts = self.setting.modes.use_nodes() && !in_spec.is_empty();
        let listed = &self.store.cilium_node(name)?.crd.pod_cidrs;
        let mut first = BTreeMap::new();
        for cidr in if counts { in_spec } else { listed } {
            first.entry(cidr.family()).or_insert(*cidr);
        }
        let of_node = || self.store.claims().filter(|claim| claim.node == *name);
        // Its agent would give the excluded addresses to pods.
        if of_node().any(|claim| given_of(claim.cidr).any(|address| claim.excluded.contains(address))) {
            return None;
        }
        let known: BTreeSet<Cidr> = of_node().map(|claim| claim.cidr).chain(listed.iter().copied()).collect();
        // In crd mode a block offers its first and last address too. An agent of the other mode restores the pods between them.
        let offers_ends = |claim: &Claim| {
            let ends = [claim.cidr.first_address(), claim.cidr.last_address()];
            ends.into_iter().any(|end| claim.offers(end) && !is_assignable(claim.cidr, end))
        };
        let has_others =
            known.iter().any(|cidr| first.get(&cidr.family()) != Some(cidr)) || of_node().any(offers_ends);
        Some(Return { first, has_others })
    }
}

/// The way back of a node to a mode with one block of each family.
struct Return {
    first: BTreeMap<Family, Cidr>,
    /// Whether its agent may give a pod an address that it loses on the way.
    has_others: bool,
}

impl Return {
    /// Whether the pods of an agent have addresses of the first blocks.
    fn holds_all(&self, agent: Option<&Agent>) -> bool {
        let held = agent.map(Agent::of_pods).unwrap_or_default();
        held.iter().all(|address| self.first.values().any(|cidr| is_assignable(*cidr, *address)))
    }
}
