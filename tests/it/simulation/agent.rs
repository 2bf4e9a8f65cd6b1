//! The model of Cilium's agent on one node, as far as addresses matter. This file has the parts that all modes share:
//! its process, its Pod, and the CiliumNode that it creates. One model per mode reads the CiliumNode, gives addresses
//! to pods and reports.
//!
//! Its pods keep their addresses while it restarts, whether it knows of them or not.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_node_ipam::model::agent::{AgentPod, ContainerStart};
use cilium_node_ipam::model::cilium_version::CiliumVersion;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::request::NewCiliumNode;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::wire::carrier_patch::new_cilium_node;
use serde_json::Value;

pub(super) use self::fixed::annotations_of;
use super::cluster::in_seconds;
use super::mode::Mode;
use super::store::{Store, Stored};

pub(crate) mod bench;
mod crd;
mod fixed;
mod pools;
mod tests;

/// The versions that agents run, by mode. An agent starts with the first, and only a restart changes it.
const fn releases(mode: Mode) -> [CiliumVersion; 3] {
    let newest = CiliumVersion::new(1, 20, 2);
    match mode {
        Mode::Crd => [newest, CiliumVersion::new(1, 14, 19), CiliumVersion::new(1, 13, 18)],
        Mode::MultiPool => [newest, CiliumVersion::new(1, 17, 8), newest],
        Mode::ClusterPool | Mode::Kubernetes(_) => [newest; 3],
    }
}

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    mode: Mode,
    release: CiliumVersion,
    /// How many agents' Pods the cluster had before this one. The number is in its name.
    n_pods_before: u64,
    started: ContainerStart,
    model: Model,
}

/// The work of an agent in one mode.
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
use by_model;

impl Agent {
    /// The first process of an agent, in a Pod that comes after `n_pods_before` others.
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
        // If there is one, the agent takes that.
        drop(store.create(Kind::CiliumNode, new_cilium_node(&new)));
    }

    /// Its process exits, and another starts: in the same Pod, or in a new one if the agent version is another.
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

    /// Its Pod is deleted, and another starts, in the mode that its node has now. Its pods keep running. An agent in
    /// another mode takes other addresses for itself.
    pub(super) fn is_recreated(
        &mut self,
        mode: Mode,
        families: &BTreeSet<Family>,
        n_pods_before: u64,
        wall: Timestamp,
    ) {
        if mode == self.mode {
            by_model!(mut self, model => model.restart(self.release));
        } else {
            let (pods, held) = (by_model!(self, model => model.pods), self.of_pods());
            let [release, ..] = releases(mode);
            self.release = release;
            self.model = match mode {
                Mode::Crd => Model::Crd(crd::Agent::after(release, pods, held)),
                Mode::ClusterPool | Mode::Kubernetes(_) => {
                    Model::Fixed(fixed::Agent::after(mode, families.clone(), pods, held))
                }
                Mode::MultiPool => unreachable!("multi-pool is for all nodes or none"),
            };
            self.mode = mode;
        }
        self.n_pods_before = n_pods_before;
        self.started = ContainerStart { at: in_seconds(wall), n_restarts: 0 };
    }

    /// The mode in which its Pod has started.
    pub(super) const fn mode(&self) -> Mode {
        self.mode
    }

    /// The addresses that pods have, without its own.
    pub(super) fn of_pods(&self) -> BTreeSet<IpAddr> {
        match &self.model {
            Model::Crd(model) => model.of_pods(),
            Model::Pools(model) => model.held.clone(),
            Model::Fixed(model) => model.held.clone(),
        }
    }

    /// How many pods run: of the family that has fewer.
    pub(super) fn n_running(&self) -> usize {
        let of_pods = self.of_pods();
        match &self.model {
            Model::Crd(_) | Model::Pools(_) => of_pods.len(),
            Model::Fixed(_) => {
                let of = |family| of_pods.iter().filter(|address| Family::of(**address) == family).count();
                Family::ALL.into_iter().map(of).filter(|n| *n > 0).min().unwrap_or_default()
            }
        }
    }

    /// Its process runs in another mode until it restarts, and gives its pods addresses of this range. Only agents of
    /// the crd mode can do that.
    pub(super) fn runs_in_another_mode(&mut self, range: Cidr) {
        if let Model::Crd(model) = &mut self.model {
            model.runs_in_another_mode(range);
        }
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

    /// Reads the present version of its carrier. If there is none, or it can't be read, the agent keeps using the last
    /// one. An agent with nothing to restore is ready as soon as it can be.
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

    /// Its memory, as Cilium's agent shows it (`tests/agent`, `dump`).
    pub(super) fn memory(&self) -> Value {
        by_model!(self, model => model.memory())
    }

    /// The blocks in its memory, whether its carrier shows them or not.
    pub(super) fn keeps(&self) -> Vec<Cidr> {
        match &self.model {
            Model::Crd(_) => Vec::new(),
            Model::Pools(model) => model.keeps().collect(),
            Model::Fixed(model) => model.keeps().collect(),
        }
    }

    /// Whether the agent has made its first update of its CiliumNode, or makes it now. Where it takes whole blocks by
    /// itself, its start waits for that.
    pub(super) fn updates_first(&mut self, store: &mut Store, name: &NodeName) -> bool {
        match &mut self.model {
            Model::Crd(_) | Model::Fixed(_) => true,
            Model::Pools(model) => model.updates_first(store, name),
        }
    }

    /// Whether it counts addresses that it does not give out, because their block was removed while in use.
    pub(super) fn counts_wrongly(&self) -> bool {
        match &self.model {
            Model::Crd(_) | Model::Fixed(_) => false,
            Model::Pools(model) => model.counts_wrongly(),
        }
    }

    /// Whether it took an address again by itself, which no object shows before the agent writes it.
    pub(super) fn has_taken_back(&self, address: IpAddr) -> bool {
        match &self.model {
            Model::Crd(_) | Model::Fixed(_) => false,
            Model::Pools(model) => model.has_taken_back(address),
        }
    }

    /// Starts and terminates pods until `pods` run, or no address is left. `from` varies which addresses it takes and
    /// which pods terminate. An agent that is not ready starts none. Returns the addresses that are newly given out.
    pub(super) fn wants(&mut self, pods: usize, from: usize) -> Vec<IpAddr> {
        by_model!(mut self, model => {
            model.pods = pods;
            model.schedule(from)
        })
    }

    /// Restores at most `at_most` of its pods. Returns the addresses that it can't restore, and did not lose by itself:
    /// their pods lose their network.
    pub(super) fn restore(&mut self, at_most: usize) -> Vec<IpAddr> {
        let mut lost = by_model!(mut self, model => {
            if !model.goes_on() {
                return Vec::new();
            }
            let mut lost: Vec<IpAddr> = model.not_restored().take(at_most).collect();
            lost.retain(|address| !model.restores(*address));
            lost
        });
        if let Model::Pools(model) = &self.model {
            lost.retain(|address| !model.lost_by_itself.contains(address));
        }
        lost
    }

    /// Whether all of its pods are restored.
    pub(super) fn has_restored(&self) -> bool {
        by_model!(self, model => model.not_restored().next().is_none())
    }

    /// Takes its own addresses, after the pods have theirs, and is ready. Without those it is still starting.
    pub(super) fn begin(&mut self) {
        by_model!(mut self, model => model.begin());
    }

    /// Writes its report onto the version that it has seen. If another version is present, it writes later.
    pub(super) fn report(&mut self, store: &mut Store, name: &NodeName) {
        by_model!(mut self, model => model.report(store, name));
    }

    /// Writes everything that it uses, as administrators who restore a store from a backup ask it to.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        by_model!(mut self, model => model.report_all(store, name));
    }

    /// Whether it sees its own writes at once. Otherwise its watch shows them, as to all others.
    pub(super) const fn hears_itself(&self) -> bool {
        matches!(self.model, Model::Crd(_))
    }

    /// Whether its CiliumNode always shows an address that it gives to a pod, in the version that it has seen.
    pub(super) const fn gives_what_is_shown(&self) -> bool {
        matches!(self.model, Model::Crd(_))
    }

    /// Whether it has seen a version of the present CiliumNode.
    pub(super) fn has_seen(&self, present: &Stored) -> bool {
        let seen = by_model!(self, model => model.seen());
        seen.is_some_and(|seen| seen.json["metadata"]["uid"] == present.json["metadata"]["uid"])
    }

    /// Whether the present process has seen its carrier.
    pub(super) fn has_looked(&self) -> bool {
        by_model!(self, model => model.seen()).is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        by_model!(self, model => model.is_ready)
    }
}

/// The running pods that terminate, so that `n_wanted` are left: those with the highest addresses, or any.
fn surplus(mut running: Vec<IpAddr>, n_wanted: usize, from: usize) -> impl Iterator<Item = IpAddr> {
    if !from.is_multiple_of(2) && !running.is_empty() {
        let n_running = running.len();
        running.rotate_left(from % n_running);
    }
    running.into_iter().skip(n_wanted)
}
