//! A scene as data: a sentence for the watcher, an action, and the goals that must then be seen in the API.
//!
//! Does not know how it is played (see [`Stage`](crate::stage::Stage)) nor which scenes there are (see
//! [`Script`](crate::script::Script)). A new scene is a new value, at most with a new action or goal here.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::state::{NodeState, PoolState, State};
use crate::support::objects::PoolSpec;

/// One scene. It is over when its action has been carried out and every goal is reached.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// The sentence that a person should understand.
    pub(crate) title: String,
    pub(crate) action: Action,
    pub(crate) until: Vec<Goal>,
    /// How long it may take with few nodes.
    pub(crate) patience: Duration,
}

/// Most scenes take seconds.
const PATIENCE: Duration = Duration::from_secs(60);

impl Scene {
    /// A scene that takes seconds.
    pub(crate) fn new(title: impl Into<String>, action: Action, until: Vec<Goal>) -> Self {
        Self { title: title.into(), action, until, patience: PATIENCE }
    }
}

/// The action of a scene.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Nothing: only time passes until the goals are reached.
    Watch,
    /// An administrator makes pools.
    DeclarePools(Vec<PoolSpec>),
    /// The controller is started, and ready.
    StartController,
    /// The controller is killed, without a chance to finish anything.
    KillController,
    /// All nodes join the cluster, and their agents start.
    JoinNodes,
    /// An administrator makes a pool for the nodes that are waiting; their names are remembered for the checks.
    Relieve(PoolSpec),
    /// This many machines, the first ones, are lost with their pods, and their Nodes are deleted.
    LoseNodes(usize),
    /// Those join again under their old names, as new machines.
    ReturnNodes(usize),
    /// Each node gets new pods, or loses some, until it has this many.
    Load(usize),
    /// The same, on the first `nodes` nodes alone.
    LoadFirst { nodes: usize, n_pods: usize },
    /// The same, on the nodes with Cilium's own agents alone.
    LoadReal(usize),
    /// The kubelets of those nodes report the Pods of the agents, without which no block is reclaimed.
    ReportAgents,
    /// An administrator deletes a pool.
    DeletePool(String),
    /// An administrator changes the `spec` of a pool by a merge patch. The load of the nodes with Cilium's own agents
    /// becomes this many pods.
    Edit { pool: String, spec: Value, n_pods: usize },
}

/// A fact that must be seen before the next scene.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// This many pools exist.
    Pools(usize),
    /// This many pools say that they are ready or full.
    PoolsReady(usize),
    /// The agents of this many nodes have taken and reported addresses of their own.
    Served(usize),
    /// This many nodes that the pool selects wait for a block, and it says that it has none.
    Waiting { pool: String, nodes: usize },
    /// The controller has made an event of this reason. A killed controller loses the events that wait.
    Reported(&'static str),
    /// This many addresses are in use on all nodes together, as the agents report it.
    Used(usize),
    /// This many addresses are asked for by all agents together, in the mode in which they ask.
    Asked(usize),
    /// This many nodes carry at least as many addresses as their agents ask for.
    Enough(usize),
    /// This many nodes hold at most `at_most` blocks, and the blocks that they released are free.
    GivenBack { nodes: usize, at_most: usize },
    /// This many nodes hold exactly `blocks` blocks: as many as they need, and no more.
    Hold { nodes: usize, blocks: usize },
    /// This many nodes exist.
    Nodes(usize),
    /// This many blocks of lost nodes are cooling before another node may get them.
    Cooling(usize),
    /// The status of every pool agrees with the blocks and the CiliumNodes.
    StatusAgrees,
}

/// How far a goal is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    what: String,
    now: usize,
    goal: usize,
}

impl Count {
    pub(crate) fn is_reached(&self) -> bool {
        self.now == self.goal
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.what, self.now, self.goal)
    }
}

impl Goal {
    /// How far it is reached, with this many events of each reason.
    pub(crate) fn counts(&self, state: &State, reported: &BTreeMap<String, usize>) -> Vec<Count> {
        let count = |what: &str, now, goal| Count { what: what.to_owned(), now, goal };
        match self {
            Self::Pools(goal) => vec![count("pools made", state.pools.len(), *goal)],
            Self::PoolsReady(goal) => {
                let is_ready = |pool: &&PoolState| pool.says("Ready") || pool.says("Exhausted");
                vec![count("pools ready or full", state.pools.iter().filter(is_ready).count(), *goal)]
            }
            Self::Served(goal) => vec![count("nodes served", state.n_served(), *goal)],
            Self::Waiting { pool, nodes } => {
                let pool = state.pools.iter().find(|each| each.name == *pool);
                let waiting = pool.filter(|pool| pool.says("Exhausted")).map_or(0, |pool| pool.waiting);
                vec![count("nodes waiting for a full pool", waiting, *nodes)]
            }
            Self::Reported(reason) => {
                let is_reported = usize::from(reported.contains_key(*reason));
                vec![count(&format!("events {reason}, at least"), is_reported, 1)]
            }
            Self::Used(goal) => vec![count("addresses in use", state.n_used(), *goal)],
            Self::Asked(goal) => vec![count("addresses asked for", state.n_asked(), *goal)],
            Self::Enough(goal) => {
                let enough = |node: &&NodeState| node.n_offered() >= node.n_asked;
                vec![count(
                    "nodes with what they ask for",
                    state.nodes.values().filter(enough).count(),
                    *goal,
                )]
            }
            Self::GivenBack { nodes, at_most } => {
                let n_fewer = state.nodes.values().filter(|node| node.n_blocks <= *at_most).count();
                let n_leaving = state.claims.iter().filter(|claim| claim.state != "Held").count();
                vec![
                    count(&format!("nodes with at most {at_most} blocks"), n_fewer, *nodes),
                    count("blocks on their way back", n_leaving, 0),
                    count("claims of what is carried", state.claims.len(), state.n_blocks()),
                ]
            }
            Self::Hold { nodes, blocks } => {
                let holding = state.nodes.values().filter(|node| node.n_blocks == *blocks).count();
                let blocks = if *blocks == 1 { "1 block".to_owned() } else { format!("{blocks} blocks") };
                vec![count(&format!("nodes with {blocks}"), holding, *nodes)]
            }
            Self::Nodes(goal) => vec![count("nodes", state.nodes.len(), *goal)],
            Self::Cooling(goal) => vec![count("blocks cooling", state.n_claims("Cooling"), *goal)],
            Self::StatusAgrees => vec![
                count("pools up to date", state.n_pools_up_to_date(), state.pools.len()),
                count("addresses in use, by the pools", state.n_used_by_pools(), state.n_used()),
            ],
        }
    }
}
