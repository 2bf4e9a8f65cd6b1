//! The content of the API at one moment, as far as it is shown, waited for or checked.
//!
//! Read from the objects alone: neither the agents nor the controller are asked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use crate::script::PER_BLOCK;
use crate::support::cluster::Cluster;
use crate::support::objects::Kind;
use crate::support::views::{Claim, Published};

/// The whole picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// By name.
    pub(crate) pools: Vec<PoolState>,
    /// Every Node, by name.
    pub(crate) nodes: BTreeMap<String, NodeState>,
    pub(crate) claims: Vec<Claim>,
}

/// A pool: a line of the table, from its spec and its status.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolState {
    pub(crate) name: String,
    pub(crate) priority: i64,
    pub(crate) selector: String,
    pub(crate) selected: usize,
    pub(crate) served: usize,
    pub(crate) waiting: usize,
    pub(crate) held: usize,
    pub(crate) total: usize,
    /// Blocks that a node could get now.
    pub(crate) free_blocks: usize,
    pub(crate) used: usize,
    /// Addresses that are not used.
    pub(crate) free: usize,
    /// The types of the conditions that hold, Ready before the others.
    pub(crate) conditions: Vec<String>,
    /// Whether the status is about the pool as it is declared now.
    current: bool,
    /// Claims of it in state Held.
    claims: usize,
}

/// A node, from its CiliumNode.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) n_blocks: usize,
    /// Addresses in use, if the agent has reported them. It does so only in crd mode.
    pub(crate) n_used: Option<usize>,
    /// Addresses that the agent asks for, in multi-pool mode.
    pub(crate) n_asked: usize,
    /// Whether the agent has taken an address of its own: from then on it serves pods.
    is_served: bool,
}

impl NodeState {
    /// How many addresses its agent can give out, in the modes in which it has whole blocks.
    pub(crate) const fn n_offered(&self) -> usize {
        self.n_blocks * PER_BLOCK
    }
}

impl PoolState {
    /// Whether the condition holds.
    pub(crate) fn says(&self, condition: &str) -> bool {
        self.conditions.iter().any(|each| each == condition)
    }
}

impl State {
    /// As the watch has shown it: cheap, and late by moments.
    pub(crate) fn seen(cluster: &Cluster) -> Self {
        let [nodes, cilium_nodes, pools, blocks] = Kind::ALL.map(|kind| cluster.objects(kind));
        Self::of(
            nodes.iter().map(AsRef::as_ref),
            cilium_nodes.iter().map(AsRef::as_ref),
            pools.iter().map(AsRef::as_ref),
            blocks.iter().map(AsRef::as_ref),
        )
    }

    /// As the server has it now, kind after kind.
    pub(crate) async fn read(cluster: &Cluster) -> Result<Self> {
        let list = async |kind: Kind| {
            Ok::<_, kube::Error>(kind.api(&cluster.client).list(&ListParams::default()).await?.items)
        };
        let [nodes, cilium_nodes, pools, blocks] = Kind::ALL;
        Ok(Self::of(
            list(nodes).await?.iter(),
            list(cilium_nodes).await?.iter(),
            list(pools).await?.iter(),
            list(blocks).await?.iter(),
        ))
    }

    fn of<'a>(
        nodes: impl Iterator<Item = &'a DynamicObject>,
        cilium_nodes: impl Iterator<Item = &'a DynamicObject>,
        pools: impl Iterator<Item = &'a DynamicObject>,
        blocks: impl Iterator<Item = &'a DynamicObject>,
    ) -> Self {
        let mut state = Self { claims: blocks.map(Claim::of).collect(), ..Self::default() };
        state.nodes = nodes.map(|node| (name(node), NodeState::default())).collect();
        for cilium_node in cilium_nodes {
            state.nodes.insert(name(cilium_node), node_state(cilium_node));
        }
        state.pools = pools.map(|pool| pool_state(pool, &state.claims)).collect();
        state.pools.sort_by(|one, other| one.name.cmp(&other.name));
        state
    }

    /// Nodes whose agents serve pods: they have taken addresses of their own.
    pub(crate) fn n_served(&self) -> usize {
        self.nodes.values().filter(|node| node.is_served).count()
    }

    /// Claims in this state.
    pub(crate) fn n_claims(&self, state: &str) -> usize {
        self.claims.iter().filter(|claim| claim.state == state).count()
    }

    /// Addresses in use on all nodes.
    pub(crate) fn n_used(&self) -> usize {
        self.nodes.values().filter_map(|node| node.n_used).sum()
    }

    /// Addresses that agents ask for.
    pub(crate) fn n_asked(&self) -> usize {
        self.nodes.values().map(|node| node.n_asked).sum()
    }

    /// Blocks on all nodes.
    pub(crate) fn n_blocks(&self) -> usize {
        self.nodes.values().map(|node| node.n_blocks).sum()
    }

    /// The same number as the pools have it.
    pub(crate) fn n_used_by_pools(&self) -> usize {
        self.pools.iter().map(|pool| pool.used).sum()
    }

    /// Pools whose status agrees with their spec and their blocks, and that serve all the nodes that they select.
    pub(crate) fn n_pools_up_to_date(&self) -> usize {
        let agrees =
            |pool: &&PoolState| pool.current && pool.held == pool.claims && pool.served == pool.selected;
        self.pools.iter().filter(agrees).count()
    }

    /// The pools whose blocks each node holds.
    pub(crate) fn pools_of_nodes(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut pools = BTreeMap::<_, BTreeSet<_>>::new();
        for claim in self.claims.iter().filter(|claim| claim.state == "Held") {
            pools.entry(claim.node.as_str()).or_default().insert(claim.pool.as_str());
        }
        pools
    }
}

fn node_state(cilium_node: &DynamicObject) -> NodeState {
    let published = Published::of(cilium_node);
    let addresses = cilium_node.data["spec"]["addresses"].as_array();
    let router = addresses.into_iter().flatten().any(|address| address["type"] == "CiliumInternalIP");
    NodeState {
        n_blocks: published.pod_cidrs.len(),
        n_used: published.used.as_ref().map(BTreeMap::len),
        n_asked: published.needed.values().filter_map(|needed| usize::try_from(*needed).ok()).sum(),
        is_served: match &published.used {
            Some(used) => !used.is_empty(),
            None => router && published.pool.is_empty() && !published.pod_cidrs.is_empty(),
        },
    }
}

fn pool_state(pool: &DynamicObject, claims: &[Claim]) -> PoolState {
    let (spec, status) = (&pool.data["spec"], &pool.data["status"]);
    let (nodes, ipv4) = (&status["nodes"], &status["ipv4"]);
    let name = name(pool);
    PoolState {
        priority: spec["priority"].as_i64().unwrap_or_default(),
        selector: selector(&spec["nodeSelector"]["matchLabels"]),
        selected: count(&nodes["selected"]),
        served: count(&nodes["served"]),
        waiting: count(&nodes["waiting"]),
        held: count(&ipv4["blocks"]["held"]),
        total: count(&ipv4["blocks"]["total"]),
        free_blocks: count(&ipv4["blocks"]["free"]),
        used: count(&ipv4["addresses"]["used"]),
        free: count(&ipv4["addresses"]["free"]),
        conditions: conditions(&status["conditions"]),
        current: status["observedGeneration"].as_i64() == pool.metadata.generation,
        claims: claims.iter().filter(|claim| claim.pool == name && claim.state == "Held").count(),
        name,
    }
}

fn conditions(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    let holding = all.filter(|condition| condition["status"] == "True");
    let mut types: Vec<_> =
        holding.filter_map(|condition| condition["type"].as_str().map(str::to_owned)).collect();
    // A person looks for that one first.
    types.sort_by_key(|condition| condition != "Ready");
    types
}

/// `zone=a`: the names of well-known labels are long, and their last part is enough.
fn selector(labels: &Value) -> String {
    let all = labels.as_object().into_iter().flatten();
    let short = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
    all.map(|(key, value)| format!("{}={}", short(key), value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

fn count(value: &Value) -> usize {
    value.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}
