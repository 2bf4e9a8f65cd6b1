//! The cluster of a script: the store, the agents, the replicas, and the network between them.
//!
//! [`Cluster::step`] does one step, and judges the rules that hold at any time. [`Cluster::rest`] completes everything
//! that is under way, and also judges the rules at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use cilium_node_ipam::model::claim::block_name;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, PoolName};
use cilium_node_ipam::model::request::Request;
use cilium_node_ipam::model::revision::Revision;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::world::World;

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::agent::Agent;
use super::mode::{MODE_LABEL, Modes};
use super::pools::{self, LABEL, Shape, ZONES, place};
use super::replica::{Flight, Replica, Stray};
use super::rules::{self, Taint};
use super::store::{Defect, Store};

mod agents;
mod broken;
mod hands;
mod moves;
mod others;
mod replicas;
mod rest;
mod restore;
mod taint;

pub(super) use hands::{Given, Hand, Place, Setup};

use self::broken::Broken;

/// The maximum number of nodes in a script.
pub(super) const N_NODES: u8 = 20;
/// The maximum number of pools in a script.
pub(super) const N_POOLS: u8 = 4;

/// The properties of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// The modes that its agents run.
    pub(super) modes: Modes,
    pub(super) n_replicas: usize,
    pub(super) families: BTreeSet<Family>,
    /// Whether everything comes to rest after each step.
    pub(super) pace: Pace,
    pub(super) defect: Option<Defect>,
    pub(super) suite: Suite,
}

/// The faults in scripts, and the excuses of the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// Only faults that `docs/invariants.md` promises to survive. The judge excuses nothing.
    Promises,
    /// Other writers edit nodes and their objects as well. Nothing is promised of a node that one of them has touched.
    /// No other node suffers.
    OtherWriters,
}

/// How fast things follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// All consequences of a step are complete before the next step.
    Calm,
    /// Nothing waits for anything.
    Wild,
}

/// Whether a person holds the growth of a node before it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Held,
    Free,
}

/// One event. A number selects one of the things that there are, modulo their number.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A Node is created. One of its own addresses may be among those for pods.
    NodeJoins { node: u8, zone: u8, own_address: Option<u8> },
    /// Its zone changes.
    NodeIsRelabelled { node: u8, zone: u8 },
    /// It is marked for deletion, and a finalizer keeps it.
    NodeIsBeingDeleted { node: u8 },
    /// It is deleted; its machine keeps running for a while.
    NodeIsDeleted { node: u8 },
    /// It creates its CiliumNode, if there is none.
    AgentStarts { node: u8 },
    /// It reads the present version of its carrier.
    AgentLooks { node: u8 },
    /// Pods of a node start and terminate until this many run; `from` varies which.
    PodsAreWanted { node: u8, pods: u8, from: u8 },
    /// It writes its report.
    AgentReports { node: u8 },
    /// Its process exits, and another of this agent version starts. Its pods keep running.
    AgentRestarts { node: u8, release: u8 },
    /// It has restored its pods.
    AgentIsReady { node: u8 },
    /// Its Pod is deleted, by accident or by a person, and another starts in the mode that its node has now. Its pods
    /// keep running.
    AgentPodIsRecreated { node: u8 },
    /// A person changes the label of a Node that gives it another mode, after holding its growth or not. To a mode with one
    /// block of each family a node returns only if that loses no pod.
    NodeMoves { node: u8, hold: Hold },
    /// A person no longer holds its growth, because its agent runs in its mode.
    NodeCommits { node: u8 },
    /// A user deletes it.
    CiliumNodeIsDeleted { node: u8 },
    /// A user creates it.
    PoolIsMade { pool: u8, shape: Shape },
    /// A user gives it another shape.
    PoolIsEdited { pool: u8, shape: Shape },
    /// A user deletes it; its finalizer may keep it.
    PoolIsDeleted { pool: u8 },
    /// All of its ranges get the state `Draining`.
    PoolDrains { pool: u8 },
    /// Removed with its finalizer while nodes hold its blocks, and recreated.
    PoolIsReplaced { pool: u8, shape: Shape },
    /// Another leader makes it, or in *Other writers* a person, for a node that has a carrier.
    ClaimIsMade { node: u8, at: Place, bits: u8 },
    /// By a user; its finalizer keeps it.
    ClaimIsDeleted { claim: u8 },
    /// Another writer removes it with its finalizer.
    ClaimIsRemoved { claim: u8 },
    /// Another act of a person or program.
    Hand(Hand),
    /// All clocks advance.
    TimePasses { seconds: u8 },
    /// A replica receives events of a kind, at most this many.
    News { replica: u8, kind: Kind, events: u8 },
    /// The watch of a kind breaks and lists anew.
    Relist { replica: u8, kind: Kind },
    /// The watch of a kind is silent from now on, while the others continue.
    GoesDeaf { replica: u8, kind: Kind },
    /// All of its watches continue.
    HearsAgain { replica: u8 },
    /// It sees news of the agents' Pods.
    AgentNewsArrives { replica: u8, events: u8 },
    /// It sees no more news of the agents' Pods.
    GoesDeafToAgents { replica: u8 },
    /// Its process exits, and another starts.
    Restart { replica: u8 },
    /// It makes decisions, at most this many.
    Decision { replica: u8, decisions: u8 },
    /// A request gets one stage further.
    WriteProceeds { replica: u8, write: u8 },
    /// The outcome of a request is unknown.
    AnswerIsLost { replica: u8, write: u8 },
    /// The server refuses a write, as if it were overloaded.
    WriteIsRefused { replica: u8, write: u8 },
    /// A request that its sender has given up reaches the server after all.
    StrayArrives { stray: u8 },
    /// A replica receives all news, makes all decisions, and completes all its writes.
    ReplicaWorks { replica: u8 },
    /// Everything that is under way completes.
    Rest,
}

/// The time of the wall clock, on the clock of the simulation.
pub(super) fn wall(clock: Duration) -> Timestamp {
    Timestamp::constant(1_800_000_000, 0) + clock
}

/// A time as API servers write it into objects: in whole seconds.
pub(super) fn in_seconds(wall: Timestamp) -> Timestamp {
    Timestamp::from_second(wall.as_second()).expect("it is within the calendar")
}

#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) setting: Setting,
    pub(super) store: Store,
    clock: Duration,
    agents: BTreeMap<NodeName, Agent>,
    /// The nodes on which no pod starts, because they return while they have further blocks.
    cordoned: BTreeSet<NodeName>,
    /// The first blocks of each node when it last returned to a mode with one block of each family.
    returned_to: BTreeMap<NodeName, Vec<Cidr>>,
    /// The nodes whose kubelet registers them with [`MODE_LABEL`].
    labelled: BTreeSet<NodeName>,
    /// The CiliumNode onto which each agent of the mode kubernetes has copied its CIDRs, where nodes have several modes.
    copied: BTreeMap<NodeName, String>,
    /// Machines that run although their Node is gone, with the time of its loss.
    lost: BTreeMap<NodeName, Duration>,
    replicas: Vec<Replica>,
    strays: Vec<Stray>,
    taint: Taint,
    /// Entries that another writer has marked for release.
    marked: BTreeSet<(NodeName, IpAddr)>,
    /// The addresses of pods that all reads of a node's Pods have shown, by the version of the carrier before the read.
    reported: BTreeMap<(NodeName, Option<Revision>), BTreeSet<IpAddr>>,
    /// Whether Pods were read in the last round at rest.
    has_looked: bool,
    /// The `ConfigMap`s: Cilium's, and the one that freezes.
    mode: Setup,
    /// The fields that scripts have made unreadable.
    broken: Vec<Broken>,
    /// Since when blocks of lost nodes cool.
    cooling: rules::Coolings,
    /// CIDRs that another allocator gave to nodes that had nothing, where a node has one block.
    given: rules::Given,
    /// The events so far, for a person; `None` if no person will read them.
    pub(super) trace: Option<Vec<String>>,
}

fn node_name(node: u8) -> NodeName {
    format!("n{}", node % N_NODES).into()
}

/// The number of pods that kubelet allows on a node. One that returns in another zone may have another number.
fn max_pods(number: u8) -> &'static str {
    ["2", "6", "14"][usize::from(number) % 3]
}

fn pool_name(pool: u8) -> PoolName {
    format!("p{}", pool % N_POOLS).into()
}

fn one_of(number: u8, of: usize) -> Option<usize> {
    (of > 0).then(|| usize::from(number) % of)
}

impl Cluster {
    pub(super) fn new(setting: Setting) -> Self {
        // The clocks of machines are wrong by an hour, in both directions.
        let skews = [0, 1, -1].map(SignedDuration::from_hours);
        let replicas =
            (0..setting.n_replicas).map(|number| Replica::new(&setting, skews[number % 3])).collect();
        Self {
            store: Store::new(wall(Duration::ZERO), setting.modes, setting.defect),
            setting,
            clock: Duration::ZERO,
            agents: BTreeMap::new(),
            cordoned: BTreeSet::new(),
            returned_to: BTreeMap::new(),
            labelled: BTreeSet::new(),
            copied: BTreeMap::new(),
            lost: BTreeMap::new(),
            replicas,
            strays: Vec::new(),
            taint: Taint::default(),
            marked: BTreeSet::new(),
            reported: BTreeMap::new(),
            has_looked: false,
            mode: Setup::Usual,
            broken: Vec::new(),
            cooling: rules::Coolings::default(),
            given: BTreeSet::new(),
            trace: None,
        }
    }

    /// How many requests of a replica are under way.
    pub(super) fn n_in_flight(&self, replica: u8) -> usize {
        self.replicas[usize::from(replica)].in_flight.len()
    }

    /// Completes all writes about pools.
    pub(super) fn end_pool_writes(&mut self) -> Result<(), String> {
        let is_of_pool =
            |flight: &Flight| matches!(&flight.request, Request::Write(write) if write.pool().is_some());
        for number in 0..self.replicas.len() {
            while let Some(flight) = self.replicas[number].in_flight.iter().position(is_of_pool) {
                self.proceed(number, flight)?;
            }
        }
        Ok(())
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!(
                "{:>8.1?}s @{:<4} {}",
                self.clock.as_secs_f64(),
                self.store.revision(),
                line()
            ));
        }
    }

    /// Does one step, and all its consequences if the pace is calm.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), String> {
        self.say(|| format!("{step:?}"));
        let mut changed = self.do_step(step)?;
        self.follow_taint();
        if self.setting.pace == Pace::Calm {
            self.rest()?;
            changed = None;
        }
        self.look(changed)
    }

    /// Does a step. Returns the replica that it touched.
    fn do_step(&mut self, step: &Step) -> Result<Option<usize>, String> {
        match step {
            Step::NodeJoins { node, zone, own_address } => {
                self.joins(&node_name(*node), *zone, *own_address);
            }
            Step::NodeIsRelabelled { node, zone } => {
                let name = node_name(*node);
                let labels = self.labels(&name, *zone);
                self.store.edit(Kind::Node, name.as_str(), |json| json["metadata"]["labels"] = labels);
                self.copied.remove(&name);
            }
            Step::NodeIsBeingDeleted { node } if !self.may_lose_node(&node_name(*node)) => {}
            Step::NodeIsDeleted { node } if !self.may_lose_node(&node_name(*node)) => {}
            Step::NodeIsBeingDeleted { node } => {
                // The finalizer of another writer keeps it.
                let at = in_seconds(wall(self.clock)).to_string();
                self.store.edit(Kind::Node, node_name(*node).as_str(), |json| {
                    if json["metadata"]["deletionTimestamp"].is_null() {
                        json["metadata"]["deletionTimestamp"] = json!(at);
                    }
                });
            }
            Step::NodeIsDeleted { node } => {
                let name = node_name(*node);
                // The finalizer of another writer may keep it.
                if matches!(self.store.delete(Kind::Node, name.as_str(), None), Ok(None)) {
                    self.loses_node(name);
                }
            }
            Step::AgentStarts { node }
            | Step::AgentLooks { node }
            | Step::PodsAreWanted { node, .. }
            | Step::AgentReports { node }
            | Step::AgentRestarts { node, .. }
            | Step::AgentPodIsRecreated { node }
            | Step::AgentIsReady { node } => self.agent_step(&node_name(*node), step)?,
            Step::NodeMoves { node, hold } => self.moves(&node_name(*node), *hold),
            Step::NodeCommits { node } => self.commits(&node_name(*node)),
            Step::CiliumNodeIsDeleted { node } => {
                // Objects have their age in whole seconds, and users do not create and delete them within one.
                self.pass(Duration::from_secs(1));
                let name = node_name(*node);
                if self.may_lose_cilium_node(&name) {
                    drop(self.store.delete(Kind::CiliumNode, name.as_str(), None));
                }
            }
            Step::PoolIsMade { pool, shape } => self.pool_is_made(*pool, shape),
            Step::PoolIsEdited { pool, shape } => {
                self.store.edit(Kind::Pool, pool_name(*pool).as_str(), |json| shape.edit(json));
            }
            Step::PoolIsDeleted { pool } => {
                drop(self.store.delete(Kind::Pool, pool_name(*pool).as_str(), None));
            }
            Step::PoolDrains { pool } => {
                self.store.edit(Kind::Pool, pool_name(*pool).as_str(), pools::drain);
            }
            Step::PoolIsReplaced { pool, shape } => {
                if self.store.remove(Kind::Pool, pool_name(*pool).as_str()) {
                    self.pool_is_made(*pool, shape);
                }
            }
            Step::ClaimIsDeleted { claim } => {
                // In crd mode a claim that a user gives up cools although the Node of an agent in kubernetes mode names its
                // block. It is not freed then.
                let may_cool = self.setting.modes.are_several() && self.setting.modes.use_nodes();
                if let Some((_, cidr)) = self.some_claim(*claim).filter(|_| !may_cool) {
                    drop(self.store.delete(Kind::Claim, &block_name(cidr), None));
                }
            }
            Step::ClaimIsRemoved { claim } => self.claim_is_removed(*claim),
            Step::ClaimIsMade { node, at, bits } => self.claim_is_made(&node_name(*node), *at, *bits),
            Step::Hand(hand) => {
                self.hand(*hand);
                if let Hand::ModeIsHeard { replica } = hand {
                    return Ok(Some(usize::from(*replica) % self.setting.n_replicas));
                }
            }
            Step::TimePasses { seconds } => self.pass(Duration::from_secs(u64::from(*seconds))),
            Step::StrayArrives { stray } => {
                if let Some(stray) = one_of(*stray, self.strays.len()) {
                    let stray = self.strays.swap_remove(stray);
                    self.say(|| format!("    `{}` arrives late", stray.write));
                    self.arrives(&stray)?;
                }
            }
            Step::Rest => self.rest()?,
            Step::News { replica, .. }
            | Step::Relist { replica, .. }
            | Step::GoesDeaf { replica, .. }
            | Step::HearsAgain { replica }
            | Step::AgentNewsArrives { replica, .. }
            | Step::GoesDeafToAgents { replica }
            | Step::Restart { replica }
            | Step::Decision { replica, .. }
            | Step::WriteProceeds { replica, .. }
            | Step::AnswerIsLost { replica, .. }
            | Step::WriteIsRefused { replica, .. }
            | Step::ReplicaWorks { replica } => {
                let replica = usize::from(*replica) % self.setting.n_replicas;
                self.replica_step(replica, step)?;
                return Ok(Some(replica));
            }
        }
        Ok(None)
    }

    fn joins(&mut self, name: &NodeName, zone: u8, own_address: Option<u8>) {
        if self.store.stored(Kind::Node, name.as_str()).is_some() {
            return;
        }
        let number = name.as_str().trim_start_matches('n').parse().unwrap_or_default();
        let mut addresses: Vec<IpAddr> = vec![std::net::Ipv4Addr::new(192, 168, 0, number).into()];
        // The node's own address may be among those for pods.
        addresses.extend(own_address.map(|at| place(Family::V4, at)));
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|address| json!({ "type": "InternalIP", "address": address.to_string() }))
            .collect();
        self.lost.remove(name);
        let made = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name.as_str(), "labels": self.labels(name, zone) },
            "status": { "addresses": addresses, "allocatable": { "pods": max_pods(number.wrapping_add(zone)) } },
        });
        drop(self.store.create(Kind::Node, made));
        // Its blocks follow the settings of now, or earlier ones that a replica still knows.
        let is_odd = |setup: Setup| matches!(setup, Setup::OnlyV4 | Setup::OtherDefault);
        if is_odd(self.mode) || self.replicas.iter().any(|replica| is_odd(replica.mode())) {
            self.taint(name);
        }
    }

    /// The labels of a Node in this zone. One that returns has the label of its mode.
    fn labels(&self, name: &NodeName, zone: u8) -> Value {
        let mut labels = json!({ LABEL: ZONES[usize::from(zone) % 2] });
        if self.labelled.contains(name) {
            labels[MODE_LABEL.0] = json!(MODE_LABEL.1);
        }
        labels
    }

    fn pool_is_made(&mut self, pool: u8, shape: &Shape) {
        let made = shape.made(pool_name(pool).as_str(), &self.setting.families);
        // The pool may exist.
        drop(self.store.create(Kind::Pool, made));
    }

    fn some_claim(&self, claim: u8) -> Option<(NodeName, Cidr)> {
        let claims: Vec<_> = self.store.claims().collect();
        one_of(claim, claims.len()).map(|claim| (claims[claim].node.clone(), claims[claim].cidr))
    }

    fn pass(&mut self, time: Duration) {
        self.clock += time;
        self.store.wall = wall(self.clock);
        self.lose_machines();
    }

    /// Judges the rules that hold at any time, requests that no replica may send, and the world of the replica that was
    /// touched.
    fn look(&self, touched: Option<usize>) -> Result<(), String> {
        if let Some(objection) = self.store.objections().first() {
            return Err(objection.clone());
        }
        rules::safety(&self.store, &self.agents, &self.given, &self.taint)?;
        if let Some(number) = touched {
            self.look_at(number)?;
        }
        Ok(())
    }

    fn look_at(&self, number: usize) -> Result<(), String> {
        let differences = self.replicas[number].world().map(World::check).unwrap_or_default();
        if differences.is_empty() {
            return Ok(());
        }
        Err(format!(
            "the world of r{number} is not what its objects say: {}",
            differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        ))
    }
}
