//! How far each node has moved from a mode with one block of each family to the mode crd. All of it is derived from
//! objects, so each look finds the same, also after steps by other means.
//!
//! The mode of a node is that in which the next Pod of its agent starts. The running agent may still be in another one:
//! the annotation [`HOLD_GROWTH`](crate::model::node::HOLD_GROWTH) names the Pod that started before the change.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::model::agent::AgentPod;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::installation::Seen;
use crate::model::names::{NodeName, PodName, Uid};
use crate::model::node::{CiliumNode, Node};
use crate::model::plan::{NodePlan, Unmet};
use crate::model::stable_names;
use crate::model::surroundings::PodAddresses;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::Mode;
use crate::publisher::{self, Publisher, edge_addresses, pod_cidrs_on};
use crate::world::World;

mod gates;

pub use gates::{Direction, Gate, Step, next_step};

stable_names! {
    /// How far a node has moved. A node that needs a person comes first.
    pub enum State {
        /// Its next step would lose pods, or it can't move: a person must look.
        Blocked => "Blocked",
        /// Its agent has ranges or addresses that are no claims of it.
        Foreign => "Foreign",
        /// It has gone back, and its agent or some of its blocks are still those of the mode crd.
        Back => "Back",
        /// All of its addresses are on its CiliumNode, and its agent has not shown that it uses them.
        Prepared => "Prepared",
        /// Its blocks are claims, and its agent runs in the former mode.
        Claimed => "Claimed",
        /// It has no block yet.
        New => "New",
        /// Its agent uses the addresses on its CiliumNode. Its growth is held, so that it can go back.
        Moved => "Moved",
        /// The same, and it grows.
        Committed => "Committed",
    }
}

/// The Pods with addresses, by node; the reason if they can't be listed.
pub type PodsByNode = Seen<BTreeMap<NodeName, Vec<PodAddresses>>>;

/// Which Pod of the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// The Pod that started before the mode of the node changed.
    Before,
    /// Another one.
    Since,
    /// It is not known, because the annotation of the Node names no Pod.
    Unnamed,
    /// It is not known, because the Node has no annotation.
    Unknown,
    /// No Pod of an agent is known.
    Nothing,
}

/// The state before the mode of a node changed, as the annotation keeps it: `[POD][/USE]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Before {
    /// The Pod of the agent, if it is named already.
    pub pod: Option<Uid>,
    /// The mark of the use on the CiliumNode: an earlier move has left it there.
    pub used: Option<u64>,
}

impl Before {
    fn parse(text: &str) -> Self {
        let (pod, used) = text.split_once('/').map_or((text, None), |(pod, used)| (pod, Some(used)));
        let used = used.and_then(|used| u64::from_str_radix(used, 16).ok());
        Self { pod: (!pod.is_empty()).then(|| pod.into()), used }
    }
}

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pod.iter().try_for_each(|pod| write!(f, "{pod}"))?;
        self.used.iter().try_for_each(|used| write!(f, "/{used:016x}"))
    }
}

/// The signs of an agent in the mode crd on a CiliumNode. The use that an earlier Pod of the agent has reported remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Proof {
    /// No agent reports its use.
    None,
    /// An agent reports or has reported its use.
    Use,
    /// It reports all addresses of the node's pods, and its own ones.
    Complete,
}

/// How far one node has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The node.
    pub node: NodeName,
    /// How far it has moved.
    pub state: State,
    /// The mode in which the next Pod of its agent starts; the reason if the node is not served.
    pub mode: Result<IpamMode, String>,
    /// Its claims.
    pub blocks: Vec<Cidr>,
    /// The ranges and own addresses of its agent that are no claims of it.
    pub unclaimed: Vec<Cidr>,
    /// Its pods with an address in one of its blocks, and those with another one; why its Pods are not known.
    pub pods: Seen<(usize, Vec<String>)>,
    /// The agent: its version, and whether it is Ready.
    pub agent: String,
    /// Which Pod of the agent runs.
    pub runs: Runs,
    /// The mark of the use that is on its CiliumNode.
    pub used: Option<u64>,
    /// The mark of the use that was there before its mode changed. The same use proves nothing about the present agent.
    pub used_before: Option<u64>,
    /// The Pods of its agent.
    pub agent_pods: Vec<(PodName, Uid)>,
    /// The pods that lose their network if the agent restarts now; why its Pods are not known.
    pub lost_at_restart: Seen<Vec<String>>,
    /// The pods that lose their network if the node returns to a mode with one block of each family.
    pub lost_on_return: Seen<Vec<String>>,
    /// Its blocks behind the first one of each family, which no agent of such a mode uses.
    pub further: Vec<Cidr>,
    /// How many addresses of these its agent reports as used.
    pub n_used_further: u128,
    /// Whether the Node takes no new pods.
    pub is_cordoned: bool,
    /// Whether a person holds its growth.
    pub is_held: bool,
    /// Whether it needs more addresses, and its growth is held.
    pub is_full: bool,
    /// How many addresses its CiliumNode lacks of those that its blocks offer.
    pub n_missing: u128,
}

/// The moves of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Moves<'a> {
    world: &'a World,
    crd: &'a Publisher,
}

impl<'a> Moves<'a> {
    /// `Err` says why no node of the cluster can move.
    pub fn of(world: &'a World) -> Result<Self, String> {
        let Mode::Active(publishers) = world.mode() else {
            return Err("the mode of Cilium is not served, or cilium-config can't be read".to_owned());
        };
        if let Some(why) = world.node_configs_unlisted() {
            return Err(format!("{why}, and they say in which mode each node runs"));
        }
        match publishers.of_mode(IpamMode::Crd) {
            Some(crd) => Ok(Self { world, crd }),
            None => Err(format!(
                "cilium-config sets `ipam: {}`, and nodes of that mode can't move one by one",
                publishers.ipam_mode()
            )),
        }
    }

    /// All nodes that run Linux: those that need a person come first.
    #[must_use]
    pub fn all(&self, pods: &PodsByNode, plans: &[NodePlan]) -> Vec<Move> {
        let is_held = |plan: &&NodePlan| plan.unmet.iter().any(|unmet| matches!(unmet, Unmet::Held(_)));
        let full: Vec<&NodeName> = plans.iter().filter(is_held).map(|plan| &plan.node).collect();
        let nodes = self.world.nodes().filter(|node| node.runs_linux());
        let mut moves: Vec<Move> = nodes
            .map(|node| Move { is_full: full.binary_search(&&node.name).is_ok(), ..self.of_node(node, pods) })
            .collect();
        moves.sort_by_key(|found| found.state);
        moves
    }

    /// One node.
    #[must_use]
    pub fn of_node(&self, node: &Node, pods: &PodsByNode) -> Move {
        let world = self.world;
        let name = &node.name;
        let mode = match world.set_aside(name) {
            Some(why) => Err(why.to_owned()),
            None => Ok(world.reader_of(name).ipam_mode()),
        };
        let claims: Vec<&Claim> = world
            .claims_of(name)
            .map(|known| &known.claim)
            .filter(|claim| claim.is_published_state() && claim.node_uid == node.uid)
            .collect();
        let nothing = Vec::new();
        let pods = match pods {
            Ok(pods) => Ok(pods.get(name).unwrap_or(&nothing)),
            Err(why) => Err(why.clone()),
        };
        let cilium_node = world.cilium_node(name);
        let unclaimed = cilium_node.map(|found| publisher::unclaimed_on(found, &claims)).unwrap_or_default();
        let agents: Vec<&AgentPod> = world.agents_on(name).collect();
        let agent = match world.agent_on(name) {
            Ok(_) => world.support(name).1.map_or("Ready".to_owned(), |release| release.to_string()),
            Err(why) => why.to_string(),
        };
        let names = |keeps: &dyn Fn(IpAddr) -> bool| -> Seen<Vec<String>> {
            let pods = pods.clone()?.iter();
            let lost = pods.filter(|pod| !pod.addresses.iter().all(|address| keeps(*address)));
            Ok(lost.map(|pod| pod.name.clone()).collect())
        };
        let outside = names(&|address| claims.iter().any(|claim| claim.offers(address)));
        let counted = |outside: Vec<String>| {
            let n_pods = pods.as_ref().map_or(0, |pods| pods.len());
            (n_pods - outside.len(), outside)
        };
        let first = self.first_on_return(node, cilium_node);
        let further: Vec<Cidr> =
            claims.iter().map(|claim| claim.cidr).filter(|block| !first.contains(block)).collect();
        let carrier = cilium_node.map(Carrier::CiliumNode);
        let n_used = |block: &Cidr| carrier.map_or(0, |carrier| self.crd.n_used_in(carrier, *block));
        let before = node.growth_hold.as_deref().map(Before::parse);
        let used = cilium_node.and_then(publisher::use_mark);
        let mut found = Move {
            used,
            used_before: before.as_ref().and_then(|before| before.used),
            node: name.clone(),
            state: State::New,
            blocks: claims.iter().map(|claim| claim.cidr).collect(),
            pods: outside.map(counted),
            agent,
            runs: runs(before.as_ref(), &agents),
            agent_pods: agents.iter().map(|pod| (pod.name.clone(), pod.uid.clone())).collect(),
            lost_at_restart: names(&|address| self.survives_restart(node, address)),
            lost_on_return: names(&|address| mode != Ok(IpamMode::Crd) || is_in_first(&first, address)),
            n_used_further: further.iter().map(n_used).sum(),
            further,
            is_cordoned: node.taints.iter().any(|taint| taint == UNSCHEDULABLE),
            is_held: node.growth_hold.is_some(),
            is_full: false,
            n_missing: match cilium_node {
                Some(found) => self.n_missing(found, &claims),
                None => claims.iter().map(|claim| claim.offered_count()).sum(),
            },
            mode,
            unclaimed,
        };
        let proof = cilium_node.map_or(Proof::None, |found| self.proof(found, pods.ok()));
        let is_of_this_start = world.agent_on(name).is_ok() && !found.use_is_old();
        found.state = found.state(if is_of_this_start { proof } else { proof.min(Proof::Use) });
        found
    }

    /// The first CIDR of each family, as an agent finds them that returns to a mode with one block of each family.
    fn first_on_return(&self, node: &Node, cilium_node: Option<&CiliumNode>) -> Vec<Cidr> {
        let may_be = |mode: IpamMode| {
            self.world.publishers().ipam_mode() == mode
                || self.world.relabelling(node, |new| new == mode).is_some()
        };
        let on_node = publisher::pod_cidrs_of(node);
        let listed = if !on_node.is_empty() && may_be(IpamMode::Kubernetes) {
            on_node
        } else {
            cilium_node.map(pod_cidrs_on).unwrap_or_default()
        };
        let first = |family: Family| listed.iter().copied().find(|cidr| cidr.family() == family);
        Family::ALL.into_iter().filter_map(first).collect()
    }

    /// How many of the addresses that the claims offer the CiliumNode lacks.
    fn n_missing(&self, cilium_node: &CiliumNode, claims: &[&Claim]) -> u128 {
        let carrier = Carrier::CiliumNode(cilium_node);
        let missing = |claim: &&Claim| {
            claim.offered_count().saturating_sub(self.crd.n_published_in(carrier, claim.cidr))
        };
        claims.iter().map(missing).sum()
    }

    /// The signs of an agent in the mode crd.
    fn proof(&self, cilium_node: &CiliumNode, pods: Option<&Vec<PodAddresses>>) -> Proof {
        let carrier = Carrier::CiliumNode(cilium_node);
        let is_used = |address: IpAddr| self.crd.n_used_in(carrier, Cidr::single(address)) > 0;
        let of_pods = |pods: &Vec<PodAddresses>| {
            pods.iter().flat_map(|pod| &pod.addresses).all(|address| is_used(*address))
        };
        if !self.crd.use_is_known(carrier) {
            Proof::None
        } else if publisher::own_addresses_on(cilium_node).all(is_used) && pods.is_some_and(of_pods) {
            Proof::Complete
        } else {
            Proof::Use
        }
    }

    /// Whether a pod with this address keeps its network if the agent of its node restarts now. An agent in the mode crd
    /// that finds no address waits, and its pods run on. One that finds some restores only the pods with these. An agent
    /// in a mode with one block restores the pods of the first CIDR of each family.
    fn survives_restart(&self, node: &Node, address: IpAddr) -> bool {
        let reader = self.world.reader_of(&node.name);
        let Some(carrier) = self.world.carrier(&node.name) else { return true };
        let blocks = reader.blocks(carrier);
        if reader.traits().gives_one_block {
            return blocks.is_empty() || is_in_first(&blocks, address);
        }
        let waits = reader.former_ranges(carrier, &[]).is_some();
        waits || reader.n_published_in(carrier, Cidr::single(address)) > 0
    }
}

/// The taint of a Node that takes no new pods.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Whether an agent that takes the first CIDR of each family restores a pod with this address. It restores none with the
/// first or last address of that CIDR, which the mode crd gives to pods.
fn is_in_first(cidrs: &[Cidr], address: IpAddr) -> bool {
    let family = Cidr::single(address).family();
    let first = cidrs.iter().find(|cidr| cidr.family() == family);
    first.is_some_and(|first| first.contains(address) && !edge_addresses(*first).contains(address))
}

fn runs(before: Option<&Before>, agents: &[&AgentPod]) -> Runs {
    match before.map(|before| &before.pod) {
        _ if agents.is_empty() => Runs::Nothing,
        None => Runs::Unknown,
        Some(None) => Runs::Unnamed,
        Some(Some(before)) if agents.iter().any(|pod| pod.uid == *before) => Runs::Before,
        Some(Some(_)) => Runs::Since,
    }
}

impl Move {
    /// The state that follows from everything else.
    fn state(&self, proof: Proof) -> State {
        match self.mode {
            Err(_) => State::Blocked,
            Ok(_) if self.lost_at_restart.as_ref().is_ok_and(|lost| !lost.is_empty()) => State::Blocked,
            Ok(_) if self.blocks.is_empty() && self.unclaimed.is_empty() => State::New,
            Ok(IpamMode::Crd) if self.n_missing > 0 || self.blocks.is_empty() => {
                if self.unclaimed.is_empty() { State::Claimed } else { State::Foreign }
            }
            // Its growth is not held, so it is in no move. Its agent reports pods some seconds late.
            Ok(IpamMode::Crd) if !self.is_held && proof >= Proof::Use => State::Committed,
            Ok(IpamMode::Crd) if self.is_held && self.runs == Runs::Since && proof == Proof::Complete => {
                State::Moved
            }
            Ok(IpamMode::Crd) => State::Prepared,
            Ok(_) if matches!(self.runs, Runs::Before | Runs::Unnamed) => State::Back,
            Ok(_) if !self.unclaimed.is_empty() => State::Foreign,
            Ok(_) if !self.further.is_empty() => State::Back,
            Ok(_) => State::Claimed,
        }
    }

    /// Whether the use on its CiliumNode is that of before its mode changed.
    fn use_is_old(&self) -> bool {
        self.used.is_some() && self.used == self.used_before
    }

    /// The pods in its blocks and outside of them, as `IN/OUT`.
    #[must_use]
    pub fn pods_in_out(&self) -> String {
        self.pods
            .as_ref()
            .map_or_else(|_| "?".to_owned(), |(inside, outside)| format!("{inside}/{}", outside.len()))
    }

    /// The cost of a return, for a person.
    #[must_use]
    pub fn way_back(&self) -> String {
        match (&self.mode, &self.lost_on_return) {
            (Ok(IpamMode::Crd), Err(_)) => "?".to_owned(),
            (Ok(IpamMode::Crd), Ok(lost)) if lost.is_empty() && self.n_used_further == 0 => "free".to_owned(),
            (Ok(IpamMode::Crd), Ok(lost)) => format!("loses {}", counted(lost.len(), "pod")),
            _ => "-".to_owned(),
        }
    }
}
