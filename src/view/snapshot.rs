//! The state of the world in numbers, as metrics show it.
//!
//! Pure. It names pools but never nodes, because the number of series must not grow with the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::agents::{self, Census};
use super::conditions;
use super::forecast;
use super::waits;
use crate::model::agent::UseUnknown;
use crate::model::cilium_version::Minor;
use crate::model::finding::FindingKind;
use crate::model::freeze::Switch;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::pool::RangeState;
use crate::model::stable_names;
use crate::model::status::{CidrCounts, ConditionType, FamilyCounts, MAX_COUNT, Need};
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::support::Support;
use crate::view::tally::{self, Lack, NodeState, Tally};
use crate::world::World;

/// The state of the world in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Timestamp,
    /// The pools, by name.
    pub pools: BTreeMap<PoolName, PoolSnapshot>,
    /// Whether each switch of the freeze is on.
    pub frozen: BTreeMap<Switch, bool>,
    /// Nodes, by how they are served.
    pub nodes: BTreeMap<NodeState, u64>,
    /// Nodes, by how far their agents are supported, and by the minor version of these.
    pub agents: BTreeMap<(Support, String), u64>,
    /// Nodes with a carrier, by whether their use is known.
    pub usage: BTreeMap<UseState, u64>,
    /// Objects that are known, by kind.
    pub objects: BTreeMap<Kind, u64>,
    /// Objects that exist but can't be read, by kind.
    pub unreadable: BTreeMap<Kind, u64>,
    /// Current findings, by kind.
    pub findings: BTreeMap<FindingKind, u64>,
}

/// One pool in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolSnapshot {
    /// Its counts.
    pub tally: Tally,
    /// The counts of its blocks in blocks of its usual size, by family.
    pub usual_blocks: BTreeMap<Family, FamilyCounts>,
    /// Whether each of its conditions holds.
    pub conditions: BTreeMap<ConditionType, bool>,
    /// The nodes that it selects and that have no address, by reason.
    pub without_addresses: BTreeMap<Lack, u64>,
    /// Since when the longest wait for a block of it lasts, by need.
    pub waits_since: BTreeMap<Need, Timestamp>,
    /// The time until it has no free block, by family, where there is a trend.
    pub full_in: BTreeMap<Family, Duration>,
    /// The blocks of each CIDR that is cordoned or drains.
    pub closed: BTreeMap<Cidr, CidrCounts>,
}

/// Counts everything once. `findings` are the kinds of the current findings.
#[must_use]
pub fn snapshot(world: &World, findings: impl Iterator<Item = FindingKind>, now: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot { at: now, ..Snapshot::default() };
    let states = tally::node_states(world);
    for (name, tally) in tally::of_all(world, &states) {
        let conditions = world
            .pool_object(&name)
            .map(|object| conditions::conditions(world, object, &tally))
            .into_iter()
            .flatten()
            .map(|(kind, condition)| (kind, condition.holds))
            .collect();
        let without_addresses = Lack::ALL.into_iter().map(|lack| (lack, 0)).collect();
        let waits_since = waits::of_pool(world, &name).map(|(need, _, since)| (need, since)).collect();
        let full_in = forecast::of_pool(world, &name, &tally, now);
        let closed = closed(world, &name, &tally);
        let usual_blocks = forecast::usual_blocks(world.pool(&name), &tally);
        let pool =
            PoolSnapshot { tally, usual_blocks, conditions, without_addresses, waits_since, full_in, closed };
        snapshot.pools.insert(name, pool);
    }
    snapshot.frozen = Switch::ALL.into_iter().map(|switch| (switch, world.freeze().is_on(switch))).collect();
    snapshot.nodes = NodeState::ALL.into_iter().map(|state| (state, 0)).collect();
    snapshot.usage = UseState::ALL.into_iter().map(|state| (state, 0)).collect();
    for (node, state) in states {
        add(&mut snapshot.nodes, state);
        for pool in world.pools_of(node) {
            let lack = tally::lack(world, node, tally::state_for(world, node, state, &pool.name));
            if let (Some(lack), Some(pool)) = (lack, snapshot.pools.get_mut(&pool.name)) {
                add(&mut pool.without_addresses, lack);
            }
        }
        if let Some(state) = use_state(world, node) {
            add(&mut snapshot.usage, state);
        }
    }
    snapshot.agents = by_minor(agents::census(world));
    for kind in Kind::ALL {
        snapshot.objects.insert(kind, u64::try_from(world.n_objects(kind)).unwrap_or(MAX_COUNT));
        snapshot.unreadable.insert(kind, 0);
    }
    let invalid = world.pool_objects().filter(|object| object.pool.is_err()).map(|_| Kind::Pool);
    for kind in world.all_unreadable().map(|(kind, _)| kind).chain(invalid) {
        add(&mut snapshot.unreadable, kind);
    }
    snapshot.findings = FindingKind::ALL.iter().map(|kind| (*kind, 0)).collect();
    for kind in findings {
        add(&mut snapshot.findings, kind);
    }
    snapshot
}

/// The blocks of the CIDRs of a pool that give out none.
fn closed(world: &World, name: &PoolName, tally: &Tally) -> BTreeMap<Cidr, CidrCounts> {
    let ranges = world.pool(name).into_iter().flat_map(|pool| pool.families.values());
    let closed = ranges.flat_map(|ranges| &ranges.cidrs).filter(|(_, state)| **state != RangeState::Active);
    closed.filter_map(|(cidr, _)| Some((*cidr, *tally.cidrs.get(cidr)?))).collect()
}

stable_names! {
    /// Whether it is known which addresses the agent of a node uses.
    pub enum UseState {
        /// It is.
        Known => "known",
        /// Its CiliumNode does not say.
        Silent => "silent",
        /// The node has no agent that is Ready, or more than one.
        NoAgent => "no_agent",
        /// The report is older than the agent or than this process.
        NotSeen => "not_seen",
    }
}

/// Whether the use of a node is known; `None` where there is nothing to know.
fn use_state(world: &World, node: &NodeName) -> Option<UseState> {
    if !world.reader().traits().shows_use {
        return None;
    }
    match world.use_of(node) {
        Ok(_) => Some(UseState::Known),
        Err(UseUnknown::NoCarrier) => None,
        Err(UseUnknown::Silent) => Some(UseState::Silent),
        Err(UseUnknown::NoAgent(_)) => Some(UseState::NoAgent),
        Err(UseUnknown::NotSeen) => Some(UseState::NotSeen),
    }
}

/// The maximum number of minor versions that are shown by name. A cluster has one, and two during an upgrade; only tags
/// with another meaning are more.
const MAX_MINORS: usize = 8;

/// Nodes by support and minor version. Minor versions beyond [`MAX_MINORS`] count as `other`.
fn by_minor(census: Vec<Census<'_>>) -> BTreeMap<(Support, String), u64> {
    let minors: BTreeSet<Minor> =
        census.iter().filter_map(|of| of.release.map(|release| release.minor)).collect();
    let named: BTreeSet<Minor> = minors.into_iter().rev().take(MAX_MINORS).collect();
    let mut counts = BTreeMap::new();
    for Census { support, release, nodes } in census {
        let minor = match release.map(|release| release.minor) {
            None => "unknown".to_owned(),
            Some(minor) if named.contains(&minor) => minor.to_string(),
            Some(_) => "other".to_owned(),
        };
        *counts.entry((support, minor)).or_default() += u64::try_from(nodes.len()).unwrap_or(MAX_COUNT);
    }
    counts
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    *counts.entry(key).or_default() += 1;
}
