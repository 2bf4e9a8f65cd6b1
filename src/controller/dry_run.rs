//! `run --dry-run`: lists the writes that the controller would send to the cluster as it is now, and writes nothing.
//!
//! Decides with the same planner as the loop, on a cluster that is listed once.

use std::collections::BTreeSet;

use super::broken_invariant::BrokenInvariant;
use super::client::Clients;
use super::gather::{GatherOptions, list_cluster};
use crate::forecast::plan_all;
use crate::model::counted::counted;
use crate::model::finding::Finding;
use crate::model::freeze::Switch;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number};
use crate::model::plan::{NodePlan, Verdict, Wait};
use crate::model::request::Request;
use crate::model::time::Now;
use crate::plan::{self, Policy, ScalingPolicy};
use crate::publisher::mode::Mode;
use crate::view::tally::{self, NodeState};
use crate::view::{agents, findings};
use crate::world::World;

/// The consequences of the world as it is.
#[derive(Debug, Default)]
pub struct Proposal {
    /// The requests, in order. Those that depend on the answer to one of them are not among them.
    pub requests: Vec<Request>,
    /// The plans of the nodes that wait for something that an administrator can change, with the reason of each pool.
    pub waiting: Vec<NodePlan>,
    /// The problems of nodes, claims and pools.
    pub findings: BTreeSet<Finding>,
    /// The nodes that no pool selects.
    pub unselected: Vec<NodeName>,
}

impl Proposal {
    /// Decides for every node and pool once, each decision counting as under way for the next. Frozen writes are
    /// proposed too, except for finalizers of pools: an administrator wants to know which writes follow the end of
    /// the freeze.
    #[must_use]
    pub fn of(mut world: World, policy: Policy, now: Now) -> Self {
        let mut proposal = Self::default();
        let is_unselected = |node: &&NodeName| tally::node_state(&world, node) == NodeState::Unselected;
        proposal.unselected = world.nodes().map(|node| &node.name).filter(is_unselected).cloned().collect();
        for plan in plan_all(&mut world, policy, now) {
            proposal.findings.extend(plan.findings.iter().cloned());
            match plan.verdict {
                Verdict::Wait(
                    Wait::Capacity
                    | Wait::CompleteSet
                    | Wait::Upgrade
                    | Wait::Completion
                    | Wait::FormerMode
                    | Wait::Use
                    | Wait::Correction(_)
                    | Wait::OtherAllocator
                    | Wait::Settings
                    | Wait::Initialization(_)
                    | Wait::MaxPods
                    | Wait::Request
                    | Wait::Readable(_),
                ) => {
                    proposal.waiting.push(plan);
                }
                Verdict::Act(requests) => proposal.requests.extend(requests),
                Verdict::Wait(
                    Wait::Mode
                    | Wait::Thaw
                    | Wait::Lead
                    | Wait::Existence(_)
                    | Wait::Deletion
                    | Wait::Linux
                    | Wait::Answer
                    | Wait::Pause
                    | Wait::Interval
                    | Wait::FormerUse
                    | Wait::Pace,
                )
                | Verdict::AtRest => {}
            }
        }
        proposal.findings.extend(findings::of_world(&world));
        while let Some(pool) = world.next_pool().cloned() {
            let status = plan::pool(&world, &pool, policy, now);
            world.begin_status(&pool, &status, now);
            proposal.requests.extend(status.into_writes().into_iter().map(Request::from));
        }
        proposal
    }
}

/// Lists the cluster. Returns lines with the freeze, the waiting nodes with their reasons, and the nodes without a pool,
/// then the findings, the writes that would follow, one line per write, and their number.
pub async fn run(
    clients: &Clients,
    options: &GatherOptions,
    policy: ScalingPolicy,
) -> anyhow::Result<Vec<String>> {
    let world = list_cluster(clients, options).await?;
    BrokenInvariant::of(world.check())?;
    let policy = policy.with_nodes(world.n_objects(Kind::CiliumNode));
    let proposal = Proposal::of(world.clone(), policy, clients.connectivity.clock.now());
    Ok(lines(&world, &proposal))
}

/// The report of a world and its proposal, as [`run`] prints it.
#[must_use]
pub fn lines(world: &World, proposal: &Proposal) -> Vec<String> {
    let mut lines = Vec::new();
    if let Mode::Passive(why) = world.mode() {
        lines.push(format!("passive: nodes get no blocks: {why}"));
    }
    let freeze = world.freeze().clone();
    lines.extend(
        Switch::ALL
            .into_iter()
            .filter_map(|switch| freeze.description(switch))
            .map(|reported| format!("frozen: {reported}")),
    );
    lines.extend(agents::lines(world));
    for plan in &proposal.waiting {
        if let Verdict::Wait(wait) = plan.verdict {
            lines.push(format!("node {} waits: {wait}", plan.node));
        }
        lines.extend(plan.refusals.iter().map(|refusal| format!("  {refusal}")));
    }
    if !proposal.unselected.is_empty() {
        lines.push(format!(
            "{} without a pool: {}",
            counted(proposal.unselected.len(), "node"),
            ten_by_number(&proposal.unselected)
        ));
    }
    lines.extend(proposal.findings.iter().map(|finding| format!("finding {finding}")));
    let (mut n_writes, mut n_stopped) = (0u64, 0u64);
    for request in &proposal.requests {
        lines.push(match request {
            Request::Write(write) if freeze.stops_write(write) => {
                n_stopped += 1;
                format!("frozen; would {write}")
            }
            Request::Write(write) => {
                n_writes += 1;
                format!("would {write}")
            }
            Request::Read(read) => format!("would first {read}"),
        });
    }
    if n_stopped > 0 {
        lines.push(format!("the freeze stops {}", counted(n_stopped, "write")));
    }
    lines.push(format!("proposed {}", counted(n_writes, "write")));
    lines
}
