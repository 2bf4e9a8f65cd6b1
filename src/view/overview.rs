//! The state of the cluster on one screen: how nodes are served, the pools, and the problems with their remedies.
//!
//! Derived from the world and from one plan per node, which is passed in. Equal problems of many nodes are one problem
//! with a count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::audit::catalog::{Check, Severity};
use super::conditions;
use super::duplicates::{self, DUPLICATE_ADDRESSES, Duplicate};
use super::findings;
use super::forecast;
use super::holders;
use super::max_pods::{self, MAX_PODS};
use super::remedy::Remedy;
use super::tally::{self, NodeState, Tally};
use super::waits;
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::{NodeName, PoolName, by_number};
use crate::model::patience::Patience;
use crate::model::plan::{NodePlan, Unmet, Verdict, Wait};
use crate::model::pool::Pool;
use crate::model::status::{CidrCounts, ConditionType, FamilyCounts, Need, word};
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};
use crate::world::World;

/// The kind of a problem of nodes for which no pool has a free block.
const NO_CAPACITY: &str = "NoCapacity";
/// The kind of a problem of nodes that wait for a person without a finding about them.
const WAITING: &str = "Waiting";

/// The state of the cluster on one screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    /// How nodes are served.
    pub nodes: NodeTotals,
    /// The pools, by name, with numbers sorted as numbers.
    pub pools: Vec<PoolRow>,
    /// The problems: first the nodes that can't start pods, last those that can and want more.
    pub problems: Vec<Problem>,
}

/// How nodes are served. A node counts once, except that a served one may also want growth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeTotals {
    /// All Nodes.
    pub all: usize,
    /// Those with a published block.
    pub served: usize,
    /// Those that a pool selects and that have no published block.
    pub without_addresses: usize,
    /// Those with a published block that ask for another one, which no pool has.
    pub want_growth: usize,
    /// Those that no pool selects.
    pub no_pool: usize,
    /// Those that do not run Linux, and get nothing.
    pub not_linux: usize,
}

/// A pool in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRow {
    /// Its name.
    pub name: PoolName,
    /// In one word: `Ready`, `Exhausted`, `Draining`, or the reason why it is not ready.
    pub state: String,
    /// Its priority and its selector, if it can be read.
    pub asked: Option<(i32, String)>,
    /// The blocks of each of its CIDRs.
    pub cidrs: BTreeMap<Cidr, CidrCounts>,
    /// The prefix length of its largest free CIDR, by family; none without a free block.
    pub largest_free: BTreeMap<Family, u8>,
    /// How many nodes it selects.
    pub selects: u64,
    /// How many blocks nodes hold, over all families.
    pub held: u64,
    /// How many blocks it has, over all families.
    pub blocks: u64,
    /// How many blocks are free, over all families.
    pub free: u64,
    /// How many nodes without addresses wait for a block of it.
    pub wait_first: usize,
    /// How many served nodes wait for a further block of it.
    pub wait_growth: usize,
    /// Since when the longest wait for a block of it lasts, by need, as its status says.
    pub oldest: BTreeMap<Need, Timestamp>,
    /// The time until it has no free block, by family, where there is a trend. In whole hours, or in whole minutes
    /// where it is shorter than two hours.
    pub full_in: BTreeMap<Family, Duration>,
}

/// Something that is wrong, with all the nodes or objects that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of the finding, or of the condition.
    pub kind: &'static str,
    /// How serious it is, as `check` says of findings.
    pub severity: Severity,
    /// The names of the nodes or objects.
    pub subjects: Vec<String>,
    /// A sentence for a person.
    pub message: String,
    /// The arguments of the next command of this program, if one shows more.
    pub next: Option<String>,
}

/// The overview of a world at a time, with the plan of each of its nodes.
#[must_use]
pub fn overview(world: &World, plans: &[NodePlan], now: Timestamp) -> Overview {
    let plans: BTreeMap<&NodeName, &NodePlan> = plans.iter().map(|plan| (&plan.node, plan)).collect();
    let mut nodes = NodeTotals::default();
    let (mut first, mut growth) = (BTreeSet::new(), BTreeSet::new());
    let states = tally::node_states(world);
    for (node, state) in &states {
        let waits = plans.get(node).is_some_and(|plan| waits_for_block(plan));
        let is_served = tally::is_served(world, node);
        nodes.all += 1;
        if *state == NodeState::NotLinux {
            nodes.not_linux += 1;
        } else if *state == NodeState::Unselected && !is_served {
            nodes.no_pool += 1;
        } else if is_served {
            nodes.served += 1;
            nodes.want_growth += usize::from(waits);
        } else {
            nodes.without_addresses += 1;
        }
        if waits {
            let waiting = if is_served { &mut growth } else { &mut first };
            waiting.insert(*node);
        }
    }
    let tallies = tally::of_all(world, &states);
    let rows = tallies.iter().map(|(name, tally)| row(world, name, tally, &first, &growth, now));
    let mut pools: Vec<PoolRow> = rows.collect();
    pools.sort_by(|one, other| by_number(one.name.as_str(), other.name.as_str()));
    Overview { nodes, pools, problems: problems(world, &plans, &first, &|_, _| true) }
}

/// Puts the worst first, and before everything else addresses with two owners: they harm pods that run, and nothing
/// else does so unseen.
pub fn sort(problems: &mut [Problem]) {
    let is_duplicate = |problem: &Problem| {
        problem.kind == DUPLICATE_ADDRESSES || problem.kind == FindingKind::BothPublished.as_str()
    };
    problems.sort_by_key(|problem| (!is_duplicate(problem), problem.severity));
}

/// The problems of a world that another overview does not have, or not for the same nodes or objects.
#[must_use]
pub fn problems_beyond(world: &World, plans: &[NodePlan], other: &Overview) -> Vec<Problem> {
    let known: BTreeSet<(&str, &str)> = other
        .problems
        .iter()
        .flat_map(|problem| problem.subjects.iter().map(|subject| (problem.kind, subject.as_str())))
        .collect();
    let plans: BTreeMap<&NodeName, &NodePlan> = plans.iter().map(|plan| (&plan.node, plan)).collect();
    let waiting = plans.values().filter(|plan| waits_for_block(plan)).map(|plan| &plan.node);
    let first = waiting.filter(|node| world.node(node).is_some() && !tally::is_served(world, node)).collect();
    problems(world, &plans, &first, &|kind, subject| !known.contains(&(kind, subject)))
}

/// Whether a node waits for a block that no pool of it has.
fn waits_for_block(plan: &NodePlan) -> bool {
    plan.unmet.iter().any(|unmet| matches!(unmet, Unmet::NoCapacity(_)))
}

fn row(
    world: &World,
    name: &PoolName,
    tally: &Tally,
    first: &BTreeSet<&NodeName>,
    growth: &BTreeSet<&NodeName>,
    now: Timestamp,
) -> PoolRow {
    let sum =
        |count: fn(&FamilyCounts) -> u64| tally.families.values().map(count).fold(0u64, u64::saturating_add);
    let of_pool =
        |nodes: &BTreeSet<&NodeName>| world.nodes_of_pool(name).filter(|node| nodes.contains(node)).count();
    PoolRow {
        name: name.clone(),
        state: state(world, name, tally),
        asked: world.pool(name).map(|pool| (pool.priority, pool.selector.to_string())),
        cidrs: tally.cidrs.clone(),
        largest_free: tally
            .sizes
            .iter()
            .filter_map(|(family, sizes)| Some((*family, sizes.largest_free?)))
            .collect(),
        selects: tally.nodes.selected,
        held: sum(|counts| counts.held),
        blocks: sum(|counts| counts.blocks),
        free: sum(|counts| counts.free),
        wait_first: of_pool(first),
        wait_growth: of_pool(growth),
        oldest: waits::of_pool(world, name).map(|(need, _, since)| (need, since)).collect(),
        full_in: forecast::of_pool(world, name, tally, now)
            .into_iter()
            .map(|(family, left)| (family, rounded(left)))
            .collect(),
    }
}

/// A time span as it is shown. So an answer stays the same while nothing happens.
fn rounded(span: Duration) -> Duration {
    let (seconds, hour) = (span.as_secs(), 3600);
    let unit = if seconds < 2 * hour { 60 } else { hour };
    Duration::from_secs(seconds - seconds % unit)
}

/// The state of a pool in one word.
pub(super) fn state(world: &World, name: &PoolName, tally: &Tally) -> String {
    let Some(object) = world.pool_object(name) else { return "Unknown".to_owned() };
    word(&conditions::conditions(world, object, tally)).to_owned()
}

/// The problems about which `is_wanted` says so, by their kind and the name of the node or object.
fn problems(
    world: &World,
    plans: &BTreeMap<&NodeName, &NodePlan>,
    first: &BTreeSet<&NodeName>,
    is_wanted: &dyn Fn(&str, &str) -> bool,
) -> Vec<Problem> {
    let is_new = |problem: &Problem| problem.subjects.iter().any(|name| is_wanted(problem.kind, name));
    let mut found: Vec<Problem> = of_duplicates(world).into_iter().filter(is_new).collect();
    let waiting = |nodes: Vec<&NodeName>, severity: Severity, what: &str| {
        let mut by_pools: BTreeMap<Vec<PoolName>, Vec<&NodeName>> = BTreeMap::new();
        for node in nodes.into_iter().filter(|node| is_wanted(NO_CAPACITY, node.as_str())) {
            let pools = world.pools_of(node).map(|pool| pool.name.clone()).collect();
            by_pools.entry(pools).or_default().push(node);
        }
        let problem = |(pools, nodes): (Vec<PoolName>, Vec<&NodeName>)| {
            let remedy = match remedy_for(world, &pools) {
                (remedy, Some(command)) => format!("{remedy}: {command}"),
                (remedy, None) => remedy,
            };
            let pools: Vec<String> = pools.iter().map(ToString::to_string).collect();
            let n_nodes = counted(nodes.len(), "node");
            let message = format!("{n_nodes} {what}: no free block in {}; {remedy}", pools.join(", "));
            of_nodes(NO_CAPACITY, severity, &nodes, message)
        };
        by_pools.into_iter().map(problem).collect::<Vec<_>>()
    };
    found.extend(waiting(first.iter().copied().collect(), Severity::Error, "can't start pods"));
    let mut by_wait: BTreeMap<Wait, Vec<&NodeName>> = BTreeMap::new();
    for plan in plans.values().filter(|plan| plan.findings.is_empty()) {
        if let Verdict::Wait(wait) = plan.verdict
            && wait.patience() == Patience::AtOnce
            && is_wanted(WAITING, plan.node.as_str())
        {
            by_wait.entry(wait).or_default().push(&plan.node);
        }
    }
    found.extend(by_wait.into_iter().map(|(wait, nodes)| {
        let message = format!("{} can't be served: {wait}", counted(nodes.len(), "node"));
        of_nodes(WAITING, Severity::Error, &nodes, message)
    }));
    let of_world: Vec<Finding> = findings::of_world(world).collect();
    let of_plans = plans.values().flat_map(|plan| &plan.findings);
    let mut by_kind: BTreeMap<(FindingKind, Option<&str>), Vec<&Finding>> = BTreeMap::new();
    let wrong = of_plans.chain(&of_world).filter(|finding| finding.kind.is_wrong());
    for finding in wrong.filter(|finding| is_wanted(finding.kind.as_str(), &finding.name)) {
        // Each cause is a problem of its own.
        let is_alone = matches!(finding.kind, FindingKind::WriteFailed | FindingKind::DefinitionDeleted);
        let cause = is_alone.then_some(finding.message.as_str());
        by_kind.entry((finding.kind, cause)).or_default().push(finding);
    }
    let mut of_kinds: Vec<Problem> =
        by_kind.into_iter().map(|((kind, _), findings)| of_findings(kind, &findings)).collect();
    of_kinds.sort_by_key(|problem| std::cmp::Reverse(problem.subjects.len()));
    found.extend(of_kinds);
    found.extend(overlaps(world).filter(|problem| is_wanted(problem.kind, &problem.subjects[0])));
    for (excess, mut nodes) in max_pods::by_excess(world) {
        nodes.retain(|node| is_wanted(MAX_PODS, node.as_str()));
        if !nodes.is_empty() {
            let n_nodes = counted(nodes.len(), "node");
            let message = format!("{n_nodes} with more pods than addresses: {excess}");
            found.push(of_nodes(MAX_PODS, Check::MaxPods.severity(), &nodes, message));
        }
    }
    // Pods run on these nodes.
    let is_growing = |plan: &&&NodePlan| waits_for_block(plan) && !first.contains(&plan.node);
    let growing = plans.values().filter(is_growing).map(|plan| &plan.node).collect();
    found.extend(waiting(growing, Severity::Warning, "waiting for another block"));
    found
}

/// The remedy for nodes for which these pools have no free block, and its command.
#[must_use]
pub fn remedy_for(world: &World, pools: &[PoolName]) -> (String, Option<String>) {
    // A pool that is being deleted takes no remedy.
    let mut lasting = pools.iter().filter(|name| world.pool_object(name).is_none_or(|pool| !pool.deleting));
    match lasting.next().map(|pool| (pool, holders::remedy(world, pool))) {
        None => ("create a pool that selects them".to_owned(), None),
        Some((pool, Remedy::AddCidr)) => ("add a CIDR".to_owned(), Some(format!("kubectl edit nip {pool}"))),
        Some((pool, remedy)) => (remedy.as_str().to_owned(), Some(format!("kubectl describe nip {pool}"))),
    }
}

/// The pools that lose addresses to older ones.
fn overlaps(world: &World) -> impl Iterator<Item = Problem> {
    let problem = |pool: &Pool| {
        let overlap = conditions::overlap_of(world, &pool.name)?;
        let remedy = Remedy::RemoveOverlap.as_str();
        Some(Problem {
            kind: ConditionType::Overlapping.as_str(),
            severity: Severity::Warning,
            subjects: vec![pool.name.to_string()],
            message: format!("pool {}: {overlap}; {remedy}: kubectl edit nip {}", pool.name, pool.name),
            next: None,
        })
    };
    world.readable_pools().filter_map(problem)
}

/// A problem of nodes. The command `why` explains it for the first one.
fn of_nodes(kind: &'static str, severity: Severity, nodes: &[&NodeName], message: String) -> Problem {
    let mut subjects: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    subjects.sort_by(|one, other| by_number(one, other));
    Problem { kind, severity, message, next: subjects.first().map(|node| format!("why {node}")), subjects }
}

fn of_findings(kind: FindingKind, findings: &[&Finding]) -> Problem {
    let mut findings = findings.to_vec();
    findings.sort_by(|one, other| by_number(&one.name, &other.name));
    let mut subjects: Vec<String> = findings.iter().map(|finding| finding.name.clone()).collect();
    subjects.dedup();
    let (what, example) = (findings[0].subject.as_str(), findings[0]);
    let more = subjects.len().saturating_sub(1);
    let others = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    Problem {
        kind: kind.as_str(),
        severity: Check::of(kind).severity(),
        message: format!("{what} {}{others}: {}", example.name, example.message),
        next: None,
        subjects,
    }
}

/// The problem of all duplicates.
fn of_duplicates(world: &World) -> Option<Problem> {
    let found = duplicates::duplicates(world);
    let first = found.first()?;
    let cidrs: BTreeSet<Cidr> = found.iter().map(|duplicate| duplicate.cidr).collect();
    let nodes: BTreeSet<&NodeName> =
        found.iter().flat_map(|duplicate| [&duplicate.node, &duplicate.other]).collect();
    let Duplicate { node, other, cidr } = first;
    let others = match cidrs.len() {
        1 => String::new(),
        n => format!(" (and {} more)", counted(n - 1, "range")),
    };
    let (kind, holders) = (world.reader().traits().carrier.as_str(), first.holders(world));
    Some(Problem {
        kind: DUPLICATE_ADDRESSES,
        severity: Check::CarriedTwice.severity(),
        message: format!(
            "{kind} {node} and {other} have the same addresses {cidr}{others}, and {holders}: two pods may have one \
             address; drain the node without the claim, and remove the addresses from its carrier"
        ),
        next: Some(format!("who {cidr}")),
        subjects: nodes.into_iter().map(ToString::to_string).collect(),
    })
}
