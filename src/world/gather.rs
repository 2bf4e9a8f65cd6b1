//! The start: everything that exists is taken before anything is decided (safety rule 6).
//!
//! A [`World`] comes from [`Gathering::complete`] only. That needs a list of every kind, Cilium's mode, and the freeze.
//! Nothing plans on a `Gathering`.

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use super::agenda::Agenda;
use super::agents::Agents;
use super::conditions::Conditions;
use super::definitions::Definitions;
use super::failures::Failures;
use super::node_configs::NodeConfigs;
use super::node_entries::NodeEntries;
use super::pace::Pace;
use super::pod_ip_pools::PodIpPools;
use super::route_schedule::RouteSchedule;
use super::speakers::Speakers;
use super::unreadable::UnreadableObjects;
use super::waiting::Waiting;
use crate::ledger::Ledger;
use crate::model::agent::AgentNews;
use crate::model::definition::{DefinitionNews, DefinitionState};
use crate::model::freeze::Freeze;
use crate::model::kind::Kind;
use crate::model::leadership::Leadership;
use crate::model::node_config::NodeConfigNews;
use crate::model::observation::{Listing, Observation};
use crate::model::pod_ip_pool::PodIpPoolNews;
use crate::model::revision::Revision;
use crate::net::prefixes::PrefixIndex;
use crate::publisher::mode::{Mode, Publishers};

/// The lists so far.
#[derive(Debug, Clone, Default)]
pub struct Gathering {
    listings: BTreeMap<Kind, Listing>,
    later: Vec<Observation>,
    /// The latest version in the first list of claims, which comes before those of Nodes and CiliumNodes.
    first_claims: Option<Revision>,
    /// In boxes, because a gathering is also an error, and errors are small.
    mode: Option<Box<Mode>>,
    freeze: Option<Box<Freeze>>,
    /// The news of the agents' Pods. A world does not need them.
    agents: Option<Box<Agents>>,
    /// The same of CiliumPodIPPools.
    pod_ip_pools: Option<Box<PodIpPools>>,
    /// The same of CiliumNodeConfigs.
    node_configs: Box<NodeConfigs>,
    definitions: Definitions,
}

impl Gathering {
    /// Takes in an observation. Lists are kept, and later news is applied after its list.
    pub fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Listed(listing) => {
                let kind = listing.kind;
                self.later.retain(|later| kind_of(later) != kind);
                if kind == Kind::Claim && !self.listings.contains_key(&kind) {
                    self.first_claims =
                        listing.objects.iter().filter_map(|object| object.revision()?.within()).max();
                }
                self.listings.insert(kind, listing);
            }
            Observation::Applied(_) | Observation::Deleted { .. } => self.later.push(observation),
        }
    }

    /// Takes in news of the agents' Pods.
    pub fn observe_agents(&mut self, news: AgentNews) {
        // There are no decisions yet, so none is made again.
        self.agents.get_or_insert_default().observe(news);
    }

    /// Whether there was news of the agents' Pods: a list, or that they can't be listed.
    #[must_use]
    pub fn knows_of_agents(&self) -> bool {
        self.agents.is_some()
    }

    /// Takes in news of CiliumPodIPPools.
    pub fn observe_pod_ip_pools(&mut self, news: PodIpPoolNews) {
        self.pod_ip_pools.get_or_insert_default().observe(news);
    }

    /// Whether blocks are published under names, and there was no news yet of their CiliumPodIPPools: neither a list,
    /// nor that they can't be listed.
    #[must_use]
    pub fn lacks_pod_ip_pools(&self) -> bool {
        let has_names = match self.mode.as_deref() {
            Some(Mode::Active(publisher)) => publisher.traits().has_pod_ip_pools,
            Some(Mode::Passive(_)) | None => false,
        };
        has_names && self.pod_ip_pools.is_none()
    }

    /// Takes in news of CiliumNodeConfigs.
    pub fn observe_node_configs(&mut self, news: NodeConfigNews) {
        self.node_configs.observe(news);
    }

    /// Whether there was news of CiliumNodeConfigs: a list, or that they can't be listed.
    #[must_use]
    pub fn knows_of_node_configs(&self) -> bool {
        self.node_configs.are_known()
    }

    /// Takes in the state of a definition.
    pub fn observe_definition(&mut self, news: DefinitionNews) {
        self.definitions.observe(news);
    }

    /// The definitions that are being deleted or missing, by name.
    pub fn lost_definitions(&self) -> impl Iterator<Item = (&str, DefinitionState)> {
        self.definitions.iter()
    }

    /// Takes in Cilium's mode.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = Some(Box::new(mode));
    }

    /// Takes in the freeze.
    pub fn set_freeze(&mut self, freeze: Freeze) {
        self.freeze = Some(Box::new(freeze));
    }

    /// The kinds that have not been listed yet.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        Kind::AS_LISTED.into_iter().filter(|kind| !self.listings.contains_key(kind)).collect()
    }

    /// Whether the freeze is still unknown.
    #[must_use]
    pub fn lacks_freeze(&self) -> bool {
        self.freeze.is_none()
    }

    /// The world, once every kind has been listed, and Cilium's mode and the freeze are known; the gathering so far
    /// otherwise.
    pub fn complete(mut self) -> Result<World, Self> {
        if !self.missing().is_empty() {
            return Err(self);
        }
        let (Some(mode), Some(freeze)) = (self.mode.clone(), self.freeze.clone()) else {
            return Err(self);
        };
        let mut world = World {
            publishers: match &*mode {
                Mode::Active(publishers) => publishers.clone(),
                Mode::Passive(_) => Publishers::default(),
            },
            served: mode.ipam_mode(),
            mode: *mode,
            freeze: *freeze,
            leadership: Leadership::Leads,
            pools: BTreeMap::new(),
            entries: NodeEntries::default(),
            claims: BTreeMap::new(),
            unreadable: UnreadableObjects::default(),
            positions: BTreeMap::new(),
            listed: BTreeMap::new(),
            nodes_listed_after: self.first_claims,
            cooling: BTreeMap::new(),
            lost_claims: BTreeMap::new(),
            lost_by_revision: BTreeSet::new(),
            ledger: Ledger::default(),
            node_addresses: BTreeMap::new(),
            routed: PrefixIndex::default(),
            joined: BTreeSet::new(),
            selected: BTreeMap::new(),
            claims_in: BTreeMap::new(),
            remaining: BTreeMap::new(),
            pool_writes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            failures: Failures::default(),
            noted_failures: Vec::new(),
            agenda: Agenda::default(),
            waiting: Waiting::default(),
            contradiction: None,
            definitions: self.definitions,
            conditions: Conditions::default(),
            pace: Pace::default(),
            exporter: None,
            looks: RouteSchedule::default(),
            speakers: Speakers::default(),
            agents: self.agents.take().map(|agents| *agents).unwrap_or_default(),
            pod_ip_pools: self.pod_ip_pools.take().map(|pools| *pools).unwrap_or_default(),
            node_configs: *self.node_configs,
        };
        for kind in Kind::AS_LISTED {
            if let Some(listing) = self.listings.remove(&kind) {
                world.observe(Observation::Listed(listing));
            }
        }
        for observation in self.later {
            world.observe(observation);
        }
        Ok(world)
    }
}

fn kind_of(observation: &Observation) -> Kind {
    match observation {
        Observation::Listed(listing) => listing.kind,
        Observation::Applied(object) => object.kind(),
        Observation::Deleted { kind, .. } => *kind,
    }
}
