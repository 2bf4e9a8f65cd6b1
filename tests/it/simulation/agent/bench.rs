//! The model of one agent with its Node and its CiliumNode, for the comparison with Cilium's own agent
//! (`tests/it/models.rs`). Each method is one event; nothing happens by itself.

#![allow(dead_code, reason = "the target `simulation` has no agents to compare with")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::publisher::static_mode::NodeField;
use serde_json::{Value, json};

use super::super::mode::{Mode, POOLS};
use super::super::store::{Store, merge};
use super::{Agent, Model, by_model, fixed};

/// One agent and the store that it sees.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    store: Store,
    name: NodeName,
    agent: Agent,
}

impl Bench {
    /// An agent that has created its CiliumNode and seen nothing. In mode kubernetes it may use annotations.
    ///
    /// # Panics
    /// If the mode has no model.
    pub(crate) fn new(ipam: &str, annotates: bool, families: &BTreeSet<Family>) -> Self {
        let mode = match ipam {
            "crd" => Mode::Crd,
            "multi-pool" => Mode::MultiPool,
            "cluster-pool" => Mode::ClusterPool,
            "kubernetes" if annotates => Mode::Kubernetes(NodeField::Annotations),
            "kubernetes" => Mode::Kubernetes(NodeField::Spec),
            other => panic!("no model of the mode {other}"),
        };
        let store = Store::new(Timestamp::UNIX_EPOCH, mode.into(), None);
        let agent = Agent::new(mode, families, 0, Timestamp::UNIX_EPOCH);
        let mut bench = Self { store, name: NodeName::from("n"), agent };
        bench.registers();
        bench.creates();
        bench
    }

    /// Its Node is created, or recreated.
    ///
    /// # Panics
    /// If the store takes no Node.
    pub(crate) fn registers(&mut self) {
        let name = self.name.as_str();
        self.store.remove(Kind::Node, name);
        let node = json!({ "metadata": { "name": name }, "spec": {}, "status": {} });
        self.store.create(Kind::Node, node).expect("the name is free");
    }

    /// It creates its CiliumNode, where there is none.
    pub(crate) fn creates(&mut self) {
        Agent::start(&mut self.store, &self.name);
    }

    /// A user deletes its CiliumNode.
    pub(crate) fn loses(&mut self) {
        self.store.remove(Kind::CiliumNode, self.name.as_str());
    }

    /// Another client than the agent writes its CiliumNode.
    pub(crate) fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        self.store.edit(Kind::CiliumNode, self.name.as_str(), edit);
    }

    /// The same, with a merge patch.
    pub(crate) fn patch(&mut self, patch: &Value) {
        self.edit(|json| merge(json, patch));
    }

    /// Another client than the agent writes its Node.
    pub(crate) fn patch_node(&mut self, patch: &Value) {
        self.store.edit(Kind::Node, self.name.as_str(), |json| merge(json, patch));
    }

    /// It sees the present version, and does not continue its start.
    pub(crate) fn looks(&mut self) {
        by_model!(mut self.agent, model => model.look(&self.store, &self.name));
    }

    pub(crate) fn reports(&mut self) {
        self.agent.report(&mut self.store, &self.name);
    }

    /// Its process exits, and another starts.
    pub(crate) fn restarts(&mut self) {
        self.agent.restart(0, 0, Timestamp::UNIX_EPOCH);
        self.creates();
    }

    /// A pod gets this address of a Cilium pool. Returns whether it may.
    pub(crate) fn gives(&mut self, pool: &str, address: IpAddr) -> bool {
        self.picks(pool, Family::of(address), |free| free.contains(&address).then_some(address))
    }

    /// A pod that has not asked before gets nothing.
    pub(crate) fn asks_without_answer(&mut self, pool: &str, family: Family) {
        if let (Model::Pools(model), Some(name)) = (&mut self.agent.model, named(pool)) {
            model.asks_without_answer(name, family);
        }
    }

    /// A pod that has asked in vain has an address now.
    pub(crate) fn asked_with_success(&mut self, pool: &str, family: Family) {
        if let (Model::Pools(model), Some(name)) = (&mut self.agent.model, named(pool)) {
            model.asked_with_success(name, family);
        }
    }

    /// Whether it has an address for a pod.
    pub(crate) fn has_free(&self, pool: &str, family: Family) -> bool {
        self.clone().picks(pool, family, |free| free.first().copied())
    }

    fn picks(&mut self, pool: &str, family: Family, pick: impl FnOnce(&[IpAddr]) -> Option<IpAddr>) -> bool {
        match &mut self.agent.model {
            Model::Pools(model) => named(pool).is_some_and(|name| model.gives(name, family, pick).is_some()),
            Model::Crd(model) => {
                let mut free = model.free();
                free.retain(|address| Family::of(*address) == family);
                pick(&free).map(|address| model.gives(address)).is_some()
            }
            Model::Fixed(model) => pick(&model.free(family)).map(|address| model.gives(address)).is_some(),
        }
    }

    /// A pod terminates.
    pub(crate) fn ends(&mut self, address: IpAddr) {
        by_model!(mut self.agent, model => model.ends(address));
    }

    /// Its start continues, if it can. Returns whether it has.
    pub(crate) fn has_begun(&mut self) -> bool {
        by_model!(mut self.agent, model => model.goes_on())
    }

    /// Whether its start can continue, so that it restores pods.
    pub(crate) fn goes_on(&self) -> bool {
        match &self.agent.model {
            Model::Crd(model) => model.can_go_on(),
            Model::Pools(model) => model.clone().goes_on(),
            Model::Fixed(model) => model.clone().goes_on(),
        }
    }

    /// It restores a pod. Returns whether it can.
    pub(crate) fn restores(&mut self, address: IpAddr) -> bool {
        by_model!(mut self.agent, model => model.goes_on() && model.restores(address))
    }

    /// Its pods are restored, and it takes these addresses for itself where it takes one by chance. Returns whether it
    /// is ready.
    pub(crate) fn begins_with(&mut self, own: &BTreeMap<&str, IpAddr>) -> bool {
        if let Model::Crd(model) = &mut self.agent.model {
            model.begin_by(|name, free| own.get(name).copied().filter(|address| free.contains(address)));
        }
        self.agent.is_ready()
    }

    /// The same, with any addresses that it may take. Returns whether it is ready.
    pub(crate) fn begins(&mut self) -> bool {
        self.agent.begin();
        self.agent.is_ready()
    }

    /// Its CiliumNode; null without one.
    pub(crate) fn object(&self) -> Value {
        self.stored(Kind::CiliumNode)
    }

    /// The annotations in which an agent looks for its CIDR of a family, the first before the second.
    pub(crate) const fn annotations_of(family: Family) -> [&'static str; 2] {
        fixed::annotations_of(family)
    }

    /// Its Node; null without one.
    pub(crate) fn node(&self) -> Value {
        self.stored(Kind::Node)
    }

    fn stored(&self, kind: Kind) -> Value {
        let stored = self.store.stored(kind, self.name.as_str());
        stored.map_or(Value::Null, |stored| stored.json.clone())
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> Value {
        self.agent.memory()
    }

    /// Everything that its next acts may depend on, except revisions.
    pub(crate) fn state(&self) -> String {
        let without_revision = |json: &Value| {
            let mut json = json.clone();
            for field in ["resourceVersion", "generation"] {
                json["metadata"][field] = Value::Null;
            }
            json
        };
        let stored =
            |kind| self.store.stored(kind, self.name.as_str()).map(|stored| without_revision(&stored.json));
        let (cilium_node, node) = (stored(Kind::CiliumNode), stored(Kind::Node));
        let (memory, held, is_ready) = (self.memory(), self.agent.held(), self.agent.is_ready());
        let (seen, unwritten) = match &self.agent.model {
            Model::Crd(model) => (model.seen(), model.unwritten()),
            Model::Pools(model) => (model.seen(), model.has_reported.to_string()),
            Model::Fixed(model) => (model.seen(), model.has_annotated.to_string()),
        };
        let seen = seen.map(|seen| without_revision(&seen.json));
        format!("{cilium_node:?} {node:?} {memory} {held:?} {is_ready} {seen:?} {unwritten}")
    }

    /// Whether it does nothing more by itself, except that it gives out addresses in another order.
    pub(crate) fn is_at_rest(&self) -> bool {
        let mut next = self.clone();
        next.looks();
        next.reports();
        next.looks();
        // Each report of a multi-pool agent reverses the order of its CIDRs, and the next report restores it.
        let mut later = next.clone();
        later.reports();
        later.looks();
        let revision = |bench: &Self| bench.store.revision();
        revision(self) == revision(&later) && (self.state() == next.state() || self.state() == later.state())
    }

    /// The observable state of the agent.
    pub(crate) fn reported(&self) -> String {
        format!("{} with {} in memory", self.object()["spec"]["ipam"], self.memory())
    }
}

/// The Cilium pool of this name.
fn named(pool: &str) -> Option<&'static str> {
    POOLS.into_iter().find(|name| *name == pool)
}
