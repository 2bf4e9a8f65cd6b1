//! Cilium's agent on one node, as far as addresses go. What is the same in every mode is here: its process, its Pod, and
//! the CiliumNode that it creates. How it reads its CiliumNode, gives addresses to pods and reports is its model, one per
//! mode.
//!
//! Its pods keep their addresses while it restarts, whatever it knows of them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_node_ipam::model::agent::{AgentPod, ContainerStart};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::release::Release;
use cilium_node_ipam::model::request::NewCiliumNode;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::wire::carrier_patch::new_cilium_node;

pub(super) use self::fixed::annotations_of;
use super::cluster::in_seconds;
use super::mode::Mode;
use super::store::{Store, Stored};

pub(crate) mod bench;
mod crd;
mod fixed;
mod pools;
mod tests;

/// The releases that agents run, by mode; the first is that of every agent which nobody has set back.
const fn releases(mode: Mode) -> [Release; 3] {
    let newest = Release::new(1, 20, 2);
    match mode {
        Mode::Crd => [newest, Release::new(1, 13, 18), Release::new(1, 12, 19)],
        Mode::MultiPool => [newest, Release::new(1, 17, 8), newest],
        Mode::ClusterPool | Mode::Kubernetes(_) => [newest; 3],
    }
}

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    mode: Mode,
    release: Release,
    /// How many Pods the node had before this one, with an agent in each.
    n_pods_before: u64,
    started: ContainerStart,
    model: Model,
}

/// How an agent does its work in one mode.
#[derive(Debug, Clone)]
enum Model {
    Crd(crd::Agent),
    Pools(pools::Agent),
    Fixed(fixed::Agent),
}

macro_rules! by_model {
    ($agent:expr, $model:ident => $answer:expr) => {
        match &$agent.model {
            Model::Crd($model) => $answer,
            Model::Pools($model) => $answer,
            Model::Fixed($model) => $answer,
        }
    };
    (mut $agent:expr, $model:ident => $answer:expr) => {
        match &mut $agent.model {
            Model::Crd($model) => $answer,
            Model::Pools($model) => $answer,
            Model::Fixed($model) => $answer,
        }
    };
}

impl Agent {
    /// The first process of an agent, in the Pod that comes after so many others.
    pub(super) fn new(mode: Mode, families: &BTreeSet<Family>, n_pods_before: u64, wall: Timestamp) -> Self {
        let [release, ..] = releases(mode);
        let model = match mode {
            Mode::Crd => Model::Crd(crd::Agent::new(release)),
            Mode::MultiPool => Model::Pools(pools::Agent::new(release, families.clone())),
            Mode::ClusterPool | Mode::Kubernetes(_) => {
                Model::Fixed(fixed::Agent::new(mode, families.clone()))
            }
        };
        let started = ContainerStart { at: in_seconds(wall), n_restarts: 0 };
        Self { mode, release, n_pods_before, started, model }
    }

    /// Creates the CiliumNode where there is none.
    pub(super) fn start(store: &mut Store, name: &NodeName) {
        let Some(node) = store.node(name) else { return };
        let new = NewCiliumNode {
            node: name.clone(),
            node_uid: node.uid.clone(),
            labels: node.labels.clone(),
            addresses: node.addresses.clone(),
        };
        // It takes the one that is there.
        drop(store.create(Kind::CiliumNode, new_cilium_node(&new)));
    }

    /// Its process ends, and another begins: in the same Pod, or in a new one where the release is another.
    pub(super) fn restart(&mut self, release: u8, n_pods_before: u64, wall: Timestamp) {
        let releases = releases(self.mode);
        let release = releases[usize::from(release) % releases.len()];
        let mut n_restarts = self.started.n_restarts + 1;
        if release != self.release {
            (self.release, self.n_pods_before, n_restarts) = (release, n_pods_before, 0);
        }
        self.started = ContainerStart { at: in_seconds(wall), n_restarts };
        by_model!(mut self, model => model.restart(release));
    }

    /// Its Pod, as the API server shows it.
    pub(super) fn pod(&self, node: &NodeName) -> AgentPod {
        let name = format!("cilium-{node}-{}", self.n_pods_before);
        AgentPod {
            uid: format!("uid of {name}").into(),
            name: name.as_str().into(),
            node: node.clone(),
            deleting: false,
            ended: false,
            ready: self.is_ready(),
            started: Some(self.started),
            release: Some(self.release),
        }
    }

    /// Sees the present version of its CiliumNode. While there is none, or none that can be read, it goes on with what it
    /// had. One that has nothing to restore is ready as soon as it can be.
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        by_model!(mut self, model => {
            model.look(store, name);
            if !model.is_ready && model.held.is_empty() {
                model.begin();
            }
        });
    }

    /// The addresses that pods have, and its own, whether it knows of them or not.
    pub(super) fn held(&self) -> &BTreeSet<IpAddr> {
        by_model!(self, model => &model.held)
    }

    /// The blocks that it has in its memory, whatever its carrier shows.
    pub(super) fn keeps(&self) -> Vec<Cidr> {
        match &self.model {
            Model::Crd(_) => Vec::new(),
            Model::Pools(model) => model.keeps().collect(),
            Model::Fixed(model) => model.keeps().collect(),
        }
    }

    /// Its start goes on only when it has updated its CiliumNode for the first time, where it takes whole blocks by itself.
    /// Whether it has.
    pub(super) fn updates_first(&mut self, store: &mut Store, name: &NodeName) -> bool {
        match &mut self.model {
            Model::Crd(_) | Model::Fixed(_) => true,
            Model::Pools(model) => model.updates_first(store, name),
        }
    }

    /// Whether it counts what it does not give out, because that was taken off while in use.
    pub(super) fn counts_wrongly(&self) -> bool {
        match &self.model {
            Model::Crd(_) | Model::Fixed(_) => false,
            Model::Pools(model) => model.counts_wrongly(),
        }
    }

    /// Whether it has an address by its own doing, of which no object tells before it writes that.
    pub(super) fn has_taken_back(&self, address: IpAddr) -> bool {
        match &self.model {
            Model::Crd(_) | Model::Fixed(_) => false,
            Model::Pools(model) => model.has_taken_back(address),
        }
    }

    /// So many pods are to run. Starts and ends some until they do, or no address is left; `from` varies which it takes
    /// and which end. An agent that is not ready starts none. Returns the addresses that are newly given out.
    pub(super) fn wants(&mut self, pods: usize, from: usize) -> Vec<IpAddr> {
        by_model!(mut self, model => {
            model.pods = pods;
            model.schedule(from)
        })
    }

    /// Restores at most so many of its pods. Returns the addresses that it can't restore: their pods lose their network.
    pub(super) fn restore(&mut self, at_most: usize) -> Vec<IpAddr> {
        by_model!(mut self, model => model.restore(at_most))
    }

    /// Whether all of its pods are restored.
    pub(super) fn has_restored(&self) -> bool {
        by_model!(self, model => model.has_restored())
    }

    /// Takes its own addresses, after the pods have theirs, and is ready. Without those it goes on starting.
    pub(super) fn begin(&mut self) {
        by_model!(mut self, model => model.begin());
    }

    /// Writes what it has to say onto the version that it has seen. One that has moved since it writes onto later.
    pub(super) fn report(&mut self, store: &mut Store, name: &NodeName) {
        by_model!(mut self, model => model.report(store, name));
    }

    /// Has written all that it uses, as those ask it to who restore a store from a backup.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        by_model!(mut self, model => model.report_all(store, name));
    }

    /// Whether what it writes is at once heard by itself. Otherwise its watch tells it like anybody else.
    pub(super) const fn hears_itself(&self) -> bool {
        matches!(self.model, Model::Crd(_))
    }

    /// Whether an address that it gives to a pod is always one that its CiliumNode shows, as far as it has seen that one.
    pub(super) const fn gives_what_is_shown(&self) -> bool {
        matches!(self.model, Model::Crd(_))
    }

    /// Whether what it has seen is of the CiliumNode that is there now.
    pub(super) fn has_seen(&self, present: &Stored) -> bool {
        let seen = by_model!(self, model => model.seen());
        seen.is_some_and(|seen| seen.json["metadata"]["uid"] == present.json["metadata"]["uid"])
    }

    /// Whether the present process has seen its CiliumNode.
    pub(super) fn has_looked(&self) -> bool {
        by_model!(self, model => model.seen()).is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        by_model!(self, model => model.is_ready)
    }
}
