//! The model of the cluster: the objects of all four kinds, the taken addresses, and the requests in flight.
//!
//! Pure. It takes in the news of watches, lists and answers ([`Observation`](crate::model::observation::Observation),
//! [`Outcome`](crate::model::outcome::Outcome)) and the decisions ([`World::begin`]); it decides nothing itself. It
//! needs a list of each kind ([`gather::Gathering`]). So everything that exists is taken before anything is decided
//! (safety rule 6).
//!
//! Ownership is looked up by CIDR and claim, never through the present labels of a node.

pub mod gather;

mod absence;
mod absorb;
mod agenda;
mod agents;
mod answers;
mod applied;
mod availability;
mod beside_claims;
pub mod check;
mod conditions;
mod definitions;
mod dependents;
pub mod exporter;
mod failing_writes;
mod failures;
pub mod frr;
pub mod gobgp;
mod index;
mod joined;
mod look;
mod lookup;
mod memory;
mod misfits;
mod node_configs;
mod node_entries;
mod pace;
mod pause;
mod pod_ip_pools;
mod progress;
mod publishers;
mod reclaim;
mod route_schedule;
mod routed;
mod routes;
mod selection;
pub mod speakers;
mod unreadable;
mod usage;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::ledger::{Ledger, Occupant};
use crate::model::definition::{DefinitionNews, DefinitionState};
use crate::model::failure::Failure;
use crate::model::freeze::{Freeze, Switch};
use crate::model::kind::Kind;
use crate::model::leadership::Leadership;
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::{Contradiction, PoolObject};
use crate::model::pool::{Pool, Reservation};
use crate::model::request::Target;
use crate::model::revision::{AnyRevision, Revision};
use crate::model::time::Timestamp;
use crate::net::cidr::Cidr;
use crate::net::prefixes::PrefixIndex;
use crate::net::small_set::SmallSet;
use crate::publisher::Publisher;
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::{Mode, Publishers};
use agenda::{Agenda, Place, Turn};
use agents::Agents;
pub use agents::RunningAgent;
use applied::Writes;
use conditions::Conditions;
use definitions::Definitions;
use exporter::Exporter;
use failures::{Failures, Waiter};
pub use memory::{KnownClaim, LostClaim, NodeProgress};
use memory::{NodeRead, Remembered, SeenCooling, SeenRemaining, Sent};
use node_configs::NodeConfigs;
use node_entries::NodeEntries;
use pace::Pace;
use pause::Pause;
use pod_ip_pools::PodIpPools;
use route_schedule::RouteSchedule;
use speakers::Speakers;
use unreadable::UnreadableObjects;
use waiting::Waiting;

/// The model of the cluster.
#[derive(Debug, Clone)]
pub struct World {
    mode: Mode,
    freeze: Freeze,
    leadership: Leadership,
    /// The publishers that read carriers, also while nothing may be written: the last active ones.
    publishers: Publishers,
    pools: BTreeMap<PoolName, PoolObject>,
    /// The objects, the claims and the memory of each node. An entry is deleted when nothing is left of its node.
    entries: NodeEntries,
    // A map reserves more entries than it has. So large values are in boxes where they are many.
    claims: BTreeMap<Cidr, Box<KnownClaim>>,
    unreadable: UnreadableObjects,
    /// The revision that the watch of each kind has reached.
    positions: BTreeMap<Kind, AnyRevision>,
    /// The latest revision at which the last list of each kind may have been taken. Its watch has not reached it yet.
    listed: BTreeMap<Kind, AnyRevision>,
    /// The claims up to this revision were known before the Nodes were listed.
    nodes_listed_after: Option<Revision>,
    /// Since when this process has seen blocks cool.
    cooling: BTreeMap<Cidr, SeenCooling>,
    /// Since when this process looks for the routes of released blocks.
    remaining: BTreeMap<Cidr, SeenRemaining>,
    /// Lost claims by their node, if that is known; never an empty map.
    lost_claims: BTreeMap<Option<NodeName>, BTreeMap<Cidr, LostClaim>>,
    /// Each revision of a loss that the watch of CiliumNodes has not reached, with the node of the claim.
    lost_by_revision: BTreeSet<(Revision, Option<NodeName>)>,
    ledger: Ledger,
    /// The objects that have each of the nodes' own addresses.
    node_addresses: BTreeMap<IpAddr, SmallSet<(Kind, NodeName)>>,
    /// The podCIDRs of Nodes.
    routed: PrefixIndex<NodeName>,
    /// The Nodes by the time of their creation.
    joined: BTreeSet<(Timestamp, NodeName)>,
    /// The nodes that each pool selects.
    selected: BTreeMap<PoolName, BTreeSet<NodeName>>,
    /// The claims that name each pool.
    claims_in: BTreeMap<PoolName, BTreeSet<Cidr>>,
    /// How long each pool waits because its writes are not applied, and the last writes to it.
    pool_writes: BTreeMap<PoolName, (Pause, Writes)>,
    in_flight: BTreeMap<Target, Sent>,
    /// The writes that fail.
    failures: Failures,
    /// Those of another process, as its Lease says.
    noted_failures: Vec<Failure>,
    agenda: Agenda,
    /// The nodes that wait for a block, by pool.
    waiting: Waiting,
    contradiction: Option<Contradiction>,
    /// The Pods of Cilium's agents.
    agents: Agents,
    /// CiliumPodIPPools: Cilium's own objects for the names under which blocks are published.
    pod_ip_pools: PodIpPools,
    /// The settings of single nodes.
    node_configs: NodeConfigs,
    /// The way in which routes are announced, if they are.
    exporter: Option<Exporter>,
    /// When the routes of all nodes are decided.
    looks: RouteSchedule,
    /// The known objects that make Cilium announce blocks too.
    speakers: Speakers,
    /// The definitions of pools and claims.
    definitions: Definitions,
    /// The conditions of Nodes that must be written.
    conditions: Conditions,
    /// How fast blocks are reclaimed.
    pace: Pace,
    /// The mode of Cilium in which this process writes, or has written.
    served: Option<IpamMode>,
}

impl World {
    /// Whether the controller may write, and how.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// The administrator's freeze.
    #[must_use]
    pub fn freeze(&self) -> &Freeze {
        &self.freeze
    }

    /// Takes in the state of a definition. No decision uses it.
    pub fn observe_definition(&mut self, news: DefinitionNews) {
        self.definitions.observe(news);
    }

    /// The definitions that are being deleted or missing, by name.
    pub fn lost_definitions(&self) -> impl Iterator<Item = (&str, DefinitionState)> {
        self.definitions.iter()
    }

    /// Whether this process is the one of several that may write.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership
    }

    /// The publisher of Cilium's mode, where the controller may write. It lacks the settings of single nodes
    /// ([`Self::publisher_of`]).
    #[must_use]
    pub fn publisher(&self) -> Option<&Publisher> {
        match &self.mode {
            Mode::Active(publishers) => Some(publishers),
            Mode::Passive(_) => None,
        }
    }

    /// The publisher of `cilium-config`, also while nothing may be written: the last active one. For a node
    /// [`Self::reader_of`] counts.
    #[must_use]
    pub fn reader(&self) -> &Publisher {
        &self.publishers
    }

    /// Those of all modes in which nodes may run.
    #[must_use]
    pub fn publishers(&self) -> &Publishers {
        &self.publishers
    }

    /// Takes in Cilium's mode.
    pub fn set_mode(&mut self, mode: Mode) {
        let mode = mode.after(self.served);
        if self.mode != mode {
            self.served = mode.ipam_mode().or(self.served);
            if let Mode::Active(publishers) = &mode {
                self.publishers = publishers.clone();
                self.derive_publishers();
                // The CIDRs on Nodes count in one mode and not in another.
                let nodes: Vec<NodeName> = self.nodes().map(|node| node.name.clone()).collect();
                for node in nodes {
                    self.update_carried(&node);
                }
            }
            self.mode = mode;
            self.mark_all();
        }
    }

    /// Supposes a mode, as if this process had started in it.
    pub fn suppose_mode(&mut self, mode: Mode) {
        self.served = None;
        self.set_mode(mode);
    }

    /// Takes in the freeze.
    pub fn set_freeze(&mut self, freeze: Freeze) {
        if self.freeze != freeze {
            if self.freeze.is_on(Switch::Reclaim) != freeze.is_on(Switch::Reclaim) {
                self.pace.resume();
            }
            self.freeze = freeze;
            self.mark_all();
        }
    }

    /// Takes in whether this process may write.
    pub fn set_leadership(&mut self, leadership: Leadership) {
        if self.leadership != leadership {
            self.leadership = leadership;
            // The leader has failures of its own. The next leader starts anew.
            let waiters = self.failures.clear();
            self.release_waiters(waiters);
            // The writes of the other exporter carry versions.
            if let Some(Exporter::Gobgp(gobgp)) = &mut self.exporter {
                gobgp.forget();
                self.looks.look_next();
            }
            self.mark_all();
        }
    }

    pub(crate) fn mark(&mut self, node: &NodeName) {
        self.agenda.mark_node(self.place_of(node));
    }

    fn mark_nodes(&mut self, nodes: impl IntoIterator<Item = NodeName>) {
        for node in nodes {
            self.mark(&node);
        }
    }

    /// The place of a node on the agenda and among the waiting nodes. A restarted process has seen none of them wait,
    /// and decides for the oldest Node first.
    fn place_of(&self, node: &NodeName) -> Place {
        Place {
            turn: self.turn_of(node),
            waits_since: self.serving(node).and_then(|serving| serving.waits_since).unwrap_or(Duration::MAX),
            created: self.node(node).map(|node| node.created).unwrap_or_default(),
            node: node.clone(),
        }
    }

    fn turn_of(&self, node: &NodeName) -> Turn {
        if self.is_served(node) {
            Turn::Served
        } else if self.blocks_of(node).is_empty() {
            Turn::Newcomer
        } else {
            Turn::Starting
        }
    }

    /// Enters an occupant.
    fn take(&mut self, cidr: Cidr, occupant: Occupant) {
        if self.ledger.take(cidr, occupant) {
            self.addresses_taken(cidr);
        }
    }

    /// Removes an occupant.
    fn release(&mut self, cidr: Cidr, occupant: &Occupant) {
        if self.ledger.release(cidr, occupant) {
            self.addresses_released(cidr);
        }
    }
}

/// The declarations of the readable pools.
fn readable(pools: &BTreeMap<PoolName, PoolObject>) -> impl Iterator<Item = &Pool> {
    pools.values().filter_map(|object| object.declaration().ok())
}

/// The ranges of unreadable pools that younger pools do not get.
fn reservations(pools: &BTreeMap<PoolName, PoolObject>) -> impl Iterator<Item = &Reservation> {
    pools.values().filter_map(|object| object.declaration().err())
}
