//! The difference that changes would make: the world with them beside the world without them, each settled.
//!
//! It does not know how an answer is shown.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Impossible, join, new_names, raise_use};
use super::{Grant, Settled, settle, sizes};
use crate::model::claim::Claim;
use crate::model::finding::FindingKind;
use crate::model::freeze::Freeze;
use crate::model::names::{NodeName, PoolName};
use crate::model::request::{Request, Write};
use crate::model::time::Now;
use crate::plan::{self, Policy};
use crate::view::departures::{Departure, When, departures};
use crate::view::max_pods::{PodCapacity, capacity};
use crate::view::overview::{Overview, Problem, overview, problems_beyond};
use crate::world::World;

/// The number of nodes that are tried to find out where pools become full, unless more are added.
const MAX_TRIED: usize = 1000;

/// The difference that changes would make.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The cluster without them.
    pub before: Overview,
    /// The cluster with them.
    pub after: Overview,
    /// The blocks that nodes would get only with the changes, by node.
    pub grants: Vec<Grant>,
    /// The problems that would appear, for the objects that do not have them today.
    pub appearing: Vec<Problem>,
    /// The problems that would be resolved, for the objects that would not have them any more.
    pub resolved: Vec<Problem>,
    /// The blocks that would leave their nodes.
    pub departures: Vec<Departure>,
    /// The nodes that must rejoin or be recreated for these departures and would then get no block.
    pub nodes_without_replacement: BTreeSet<NodeName>,
    /// The number of nodes with the labels of the added ones for which there is room.
    pub room: Option<Room>,
    /// How many pods the added nodes can run. `None` without added nodes that have addresses.
    pub pods: Option<PodCapacity>,
    /// The first pools that become full as the use of nodes rises.
    pub first_full: Option<FirstFull>,
    /// The effects that can't be undone, a sentence each.
    pub final_effects: Vec<String>,
    /// A sentence for each family of a pool whose block sizes change.
    pub size_effects: Vec<String>,
}

/// The number of nodes with the same labels that would get blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// The number of them that get their first blocks.
    pub n_nodes: usize,
    /// Whether no more were tried.
    pub is_enough: bool,
    /// The pools that select such a node, in the order in which it asks them.
    pub pools: Vec<PoolName>,
}

/// The first pools that become full as the use of nodes rises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFull {
    /// The lowest percentage of use at which nodes wait for a block that no pool has.
    pub percent: u8,
    /// The pools that these nodes wait for.
    pub pools: Vec<PoolName>,
    /// The number of nodes that wait.
    pub n_nodes: usize,
}

/// The difference that these changes would make, all of them together.
pub fn outlook(world: &World, changes: &[Change], policy: Policy, now: Now) -> Result<Outlook, Impossible> {
    let before = settle(world.clone(), policy, now);
    let mut base = world.clone();
    let (joining, others): (Vec<&Change>, Vec<&Change>) =
        changes.iter().partition(|change| matches!(change, Change::AddNodes(..)));
    let (raising, others): (Vec<&Change>, Vec<&Change>) =
        others.into_iter().partition(|change| matches!(change, Change::Use(_)));
    for change in &others {
        change.apply(&mut base, now.wall)?;
    }
    let size_effects = sizes::effects(changes, world, &base);
    let mut joined = base.clone();
    for change in &joining {
        change.apply(&mut joined, now.wall)?;
    }
    let mut first_full = None;
    let mut after = None;
    for change in &raising {
        if let Change::Use(percent) = change {
            let raised = with_use(&joined, *percent, policy, now)?;
            first_full = first_full_below(&joined, &raised, *percent, policy, now)?;
            after = Some(raised);
            base = with_use(&base, *percent, policy, now)?.world;
        }
    }
    let after = after.unwrap_or_else(|| settle(joined, policy, now));
    let mut room = None;
    for change in &joining {
        if let Change::AddNodes(n_nodes, labels) = change {
            room = Some(room_for(base.clone(), labels, (*n_nodes).max(MAX_TRIED), policy, now));
        }
    }
    let added: Vec<&NodeName> =
        after.world.nodes().map(|node| &node.name).filter(|node| world.node(node).is_none()).collect();
    let pods = capacity(&after.world, &added);
    let is_named = |claim: &Claim| {
        changes.iter().any(|change| match change {
            Change::State(ranges, _) => ranges.has(claim),
            Change::DeletePool(pool) => claim.pool == *pool,
            Change::Pool(_) | Change::Relabel(..) | Change::AddNodes(..) | Change::Use(_) => false,
        })
    };
    let left_before = |claim: &Claim| {
        let known = before.world.claim(claim.cidr);
        known.is_some_and(|known| before.world.must_leave(&known.claim))
    };
    let departures = departures(&after.world, |claim| is_named(claim) || !left_before(claim));
    let nodes_without_replacement = nodes_without_replacement(&after, &departures, policy, now);
    let (before_view, after_view) =
        (overview(&before.world, &before.plans, now.wall), overview(&after.world, &after.plans, now.wall));
    let mut resolved = problems_beyond(&before.world, &before.plans, &after_view);
    // A node that waits for another block does not report why its draining blocks remain.
    resolved.retain(|problem| raising.is_empty() || problem.kind != FindingKind::DrainWaits.as_str());
    Ok(Outlook {
        appearing: problems_beyond(&after.world, &after.plans, &before_view),
        resolved,
        grants: after.grants.into_iter().filter(|grant| !before.grants.contains(grant)).collect(),
        before: before_view,
        after: after_view,
        departures,
        nodes_without_replacement,
        room,
        pods,
        first_full,
        size_effects,
        final_effects: changes.iter().flat_map(|change| change.final_effects(world)).collect(),
    })
}

/// The world in which each node uses this percentage of its addresses. A node without addresses uses this percentage
/// of its first blocks.
fn with_use(world: &World, percent: u8, policy: Policy, now: Now) -> Result<Settled, Impossible> {
    let mut raised = world.clone();
    raise_use(&mut raised, percent, |_| true)?;
    let mut settled = settle(raised, policy, now);
    raise_use(&mut settled.world, percent, |node| !world.is_served(node))?;
    let first = settled.grants;
    settled = settle(settled.world, policy, now);
    settled.grants.extend(first);
    settled.grants.sort();
    Ok(settled)
}

/// The lowest percentage of use at which more nodes wait than today, up to that of `raised`. Nodes that wait at one
/// percentage also wait at every higher one.
fn first_full_below(
    world: &World,
    raised: &Settled,
    percent: u8,
    policy: Policy,
    now: Now,
) -> Result<Option<FirstFull>, Impossible> {
    let waiting = |settled: &Settled| {
        let pools = overview(&settled.world, &settled.plans, now.wall).pools.into_iter();
        pools.map(|row| (row.name, row.wait_first + row.wait_growth)).collect::<BTreeMap<PoolName, usize>>()
    };
    let known = waiting(&settle(world.clone(), policy, now));
    let fullness = |settled: &Settled, percent: u8| {
        let mut full = FirstFull { percent, pools: Vec::new(), n_nodes: 0 };
        for (pool, n_waiting) in waiting(settled) {
            let n_more = n_waiting.saturating_sub(known.get(&pool).copied().unwrap_or_default());
            if n_more > 0 {
                full.pools.push(pool);
                full.n_nodes = full.n_nodes.max(n_more);
            }
        }
        (full.n_nodes > 0).then_some(full)
    };
    let Some(mut found) = fullness(raised, percent) else { return Ok(None) };
    let mut low = 0;
    while low + 1 < found.percent {
        let middle = u8::midpoint(low, found.percent);
        match fullness(&with_use(world, middle, policy, now)?, middle) {
            Some(earlier) => found = earlier,
            None => low = middle,
        }
    }
    Ok(Some(found))
}

/// The number of nodes with these labels that get their first blocks, one after the other.
fn room_for(world: World, labels: &BTreeMap<String, String>, limit: usize, policy: Policy, now: Now) -> Room {
    let mut world = unfrozen(settle(world, policy, now).world);
    let names: Vec<NodeName> = new_names(&world, "new").take(limit).collect();
    let mut room = Room { n_nodes: 0, is_enough: true, pools: Vec::new() };
    for name in &names {
        join(&mut world, name, labels, now.wall);
        if room.pools.is_empty() {
            room.pools = world.pools_of(name).map(|pool| pool.name.clone()).collect();
        }
        if !gets_blocks(&mut world, name, policy, now) {
            room.is_enough = false;
            break;
        }
        room.n_nodes += 1;
    }
    room
}

/// The nodes that must rejoin or be recreated before a block can leave, and that would then get no block.
fn nodes_without_replacement(
    after: &Settled,
    departures: &[Departure],
    policy: Policy,
    now: Now,
) -> BTreeSet<NodeName> {
    let returning = departures
        .iter()
        .filter(|departure| matches!(departure.when, When::NodeRejoins(_) | When::NodeRecreated(_)));
    let nodes: BTreeSet<&NodeName> = returning.map(|departure| &departure.node).collect();
    let mut world = unfrozen(after.world.clone());
    let names: Vec<NodeName> = new_names(&world, "recreated").take(nodes.len()).collect();
    let mut nodes_without_replacement = BTreeSet::new();
    for (node, name) in nodes.into_iter().zip(names) {
        let Some(labels) = world.node(node).map(|node| node.labels.clone()) else { continue };
        join(&mut world, &name, &labels, now.wall);
        if !gets_blocks(&mut world, &name, policy, now) {
            nodes_without_replacement.insert(node.clone());
        }
    }
    nodes_without_replacement
}

/// The world without its freeze, which [`settle`] ignores too.
fn unfrozen(mut world: World) -> World {
    world.set_freeze(Freeze::default());
    world
}

/// Whether a node that has just joined gets its first blocks. They count as taken from then on.
fn gets_blocks(world: &mut World, name: &NodeName, policy: Policy, now: Now) -> bool {
    world.suppose_all_claims_known();
    let plan = plan::node(world, name, policy, now);
    world.begin(&plan, now);
    plan.requests().iter().any(|request| matches!(request, Request::Write(Write::CreateClaim(_))))
}
