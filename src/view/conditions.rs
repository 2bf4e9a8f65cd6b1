//! The status of a pool as it follows from the world: its counts, and its conditions in words.

use std::collections::{BTreeMap, BTreeSet};

use super::agents;
use super::drains;
use super::failures;
use super::holders::{self, Holders};
use super::pod_ip_pools;
use super::remedy::Remedy;
use super::tally::{self, Tally};
use super::unclaimed_occupants::UnclaimedOccupants;
use super::waits;
use crate::model::claim::ClaimState;
use crate::model::counted::{counted, shown};
use crate::model::freeze::{Freeze, Switch};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName, ten_by_number, ten_of};
use crate::model::observation::PoolObject;
use crate::model::pool::{Expand, FirstLast, PerNode, Pool, RangeState, Ranges, Reclaim, ReclaimMode};
use crate::model::printable::printable;
use crate::model::status::{BlockSizes, Condition, ConditionReason, ConditionType, FamilyCounts, PoolStatus};
use crate::net::cidr::{Cidr, Family};
use crate::publisher::Publisher;
use crate::publisher::mode::Mode;
use crate::world::World;

/// The status that the pool should show.
#[must_use]
pub fn status(world: &World, object: &PoolObject) -> PoolStatus {
    if let (Mode::Passive(why), Ok(_)) = (world.mode(), &object.pool) {
        return passive(object, why);
    }
    let tally = tally::of(world, &object.name);
    if object.pool.is_err() {
        // Its counts stay as they are, and so do its former sizes: they can't be known without its ranges.
        return PoolStatus {
            observed_generation: object.generation,
            conditions: conditions(world, object, &tally),
            nodes: tally.nodes,
            longest_wait: waits::longest(world, object),
            ..object.status.clone()
        };
    }
    PoolStatus {
        observed_generation: object.generation,
        conditions: conditions(world, object, &tally),
        nodes: tally.nodes,
        families: tally.families,
        cidrs: tally.cidrs,
        sizes: tally.sizes,
        longest_wait: waits::longest(world, object),
    }
}

/// The status while the controller is passive. Counts and other conditions stay as they are: the mode of Cilium in
/// which they could be read may be unknown.
fn passive(object: &PoolObject, why: &str) -> PoolStatus {
    let mut status = object.status.clone();
    status.observed_generation = object.generation;
    status.conditions.extend([condition(not_serving(why))]);
    status
}

fn not_serving(why: &str) -> Explained {
    (ConditionReason::Passive, format!("the controller is passive and gives no blocks: {why}"))
}

/// The conditions that the pool should show, given its counts.
pub(super) fn conditions(
    world: &World,
    object: &PoolObject,
    tally: &Tally,
) -> BTreeMap<ConditionType, Condition> {
    let explained = match &object.pool {
        Err(invalid) => {
            let findings = invalid.findings.join("; ");
            let ranges = &invalid.reserved.cidrs;
            if object.deleting {
                let kept = deleting(world, &object.name, ranges);
                vec![
                    (ConditionReason::Invalid, format!("{kept}; the pool is unreadable: {findings}")),
                    drains::draining(world, &object.name),
                ]
            } else {
                vec![(ConditionReason::Invalid, findings)]
            }
        }
        Ok(pool) => {
            let occupants = UnclaimedOccupants::of_unavailable(world, pool, &tally.families);
            let full = holders::of_full_families(world, pool, &tally.families, occupants.as_ref());
            let always = [
                ready(world, pool, &full),
                overlapping(world, &pool.name),
                exhausted(world, pool, &full, tally),
                obstructed(world, &tally.families, occupants.as_ref()),
                drains::draining(world, &pool.name),
            ];
            let of_mode = [
                without_effect(world, pool),
                mixed_block_sizes(world, pool),
                pod_ip_pools::unfit(world, pool),
            ];
            always.into_iter().chain(of_mode.into_iter().flatten()).collect()
        }
    };
    explained.into_iter().chain(frozen(world.freeze())).map(condition).collect()
}

fn condition((reason, message): Explained) -> (ConditionType, Condition) {
    let message = printable(&message).chars().take(MAX_MESSAGE).collect();
    (reason.condition(), Condition { holds: reason.holds(), reason: reason.as_str().into(), message })
}

/// The maximum number of characters in the message of a condition that the API allows (metav1.Condition). The findings
/// of an invalid pool may be longer.
const MAX_MESSAGE: usize = 32_768;

/// The reason of a condition, and a sentence for a person.
type Explained = (ConditionReason, String);

fn ready(world: &World, pool: &Pool, full: &BTreeMap<Family, Holders>) -> Explained {
    if pool.deleting {
        let ranges = pool.families.values().flat_map(|ranges| ranges.cidrs.keys());
        return (ConditionReason::Deleting, deleting(world, &pool.name, ranges));
    }
    if let Mode::Passive(why) = world.mode() {
        return not_serving(why);
    }
    if !world.ledger().gives_out(&pool.name) {
        return if is_cordoned(pool) {
            let message = "all CIDRs are Cordoned or Draining: nodes keep their blocks and get no more";
            (ConditionReason::Cordoned, message.to_owned())
        } else if let Some(overlap) = overlap_of(world, &pool.name) {
            (
                ConditionReason::Overlapped,
                format!("no block is left: {overlap}; {}", Remedy::RemoveOverlap.as_str()),
            )
        } else {
            (
                ConditionReason::Empty,
                "the pool has no CIDR with room for a block: add one to `cidrs`".to_owned(),
            )
        };
    }
    let too_wide = too_wide(world, pool);
    let is_all_wide = |family: Family| world.is_too_wide(pool, family);
    if let Some(why) = &too_wide
        && Family::ALL.into_iter().any(is_all_wide)
    {
        return (ConditionReason::BlockTooWide, why.clone());
    }
    // The pool gives out blocks, and there are two families, so it lacks one at most.
    let mut explained = match Family::ALL.iter().find(|family| !world.gives_out_of(pool, **family)) {
        None => (ConditionReason::Serving, SERVING.to_owned()),
        Some(missing) => family_missing(world, pool, *missing),
    };
    if explained.0 == ConditionReason::Serving {
        explained = nothing_for_new_nodes(world, pool, full).unwrap_or(explained);
    }
    let (reason, mut message) = with_releases(world, pool, explained);
    if let Some(why) = too_wide {
        message = format!("{message}; but {why}");
    }
    // Other obstacles of the pool remain after the freeze, so they are reported first.
    if reason == ConditionReason::Serving && world.freeze().is_on(Switch::Writes) {
        let message = "writes are frozen: nodes get no blocks; see the condition Frozen";
        return (ConditionReason::Frozen, message.to_owned());
    }
    if reason == ConditionReason::Serving
        && let Some(failure) = failures::of_pool(world, &pool.name)
    {
        return (
            ConditionReason::WritesFail,
            format!("nodes wait for their blocks: {}", failure.description()),
        );
    }
    (reason, message)
}

/// Why a node that joins now gets nothing of a pool that gives out blocks: the pool has no free block of a family
/// that the node's agent runs, or the CiliumPodIPPool does not fit. Says nothing about other pools that may serve the
/// node instead: their free blocks change all the time. Costs a pass over the pool's nodes.
fn nothing_for_new_nodes(world: &World, pool: &Pool, full: &BTreeMap<Family, Holders>) -> Option<Explained> {
    let nodes: Vec<&NodeName> = world.nodes_of_pool(&pool.name).collect();
    let is_run = |family: Family| {
        let readers = nodes.iter().map(|node| world.reader_of(node));
        std::iter::once(world.reader()).chain(readers).any(|reader| reader.families().contains(&family))
    };
    if let Some((family, holders)) = full.iter().find(|(family, _)| is_run(**family)) {
        let message = format!(
            "no free {family} block: a node that joins gets nothing of this pool; {}",
            holders.remedy().as_str()
        );
        return Some((ConditionReason::Exhausted, message));
    }
    pod_ip_pools::keeps_all_blocks(world, pool, &nodes)
        .map(|message| (ConditionReason::PodIPPoolUnfit, message))
}

/// The same, where some of the pool's nodes have agents that are too old. Costs a pass over its nodes.
fn with_releases(world: &World, pool: &Pool, (reason, message): Explained) -> Explained {
    let Some(unsupported) = agents::unsupported(world, world.nodes_of_pool(&pool.name)) else {
        return (reason, message);
    };
    let serves_some = world.nodes_of_pool(&pool.name).any(|node| world.support(node).0.publishes());
    let reason = if serves_some { reason } else { ConditionReason::UnsupportedCilium };
    let message = if serves_some { format!("{message}; but {unsupported}") } else { unsupported };
    (reason, message)
}

/// That blocks of the pool are wider than the mode of Cilium accepts, and the remedy. Nodes may get blocks of its other
/// sizes.
fn too_wide(world: &World, pool: &Pool) -> Option<String> {
    let reader = world.reader();
    let wide = pool.families.iter().filter_map(|(family, ranges)| {
        let widest = reader.widest_block(*family);
        let sizes = ranges.sizes().into_iter().filter(|size| *size < widest);
        let sizes: Vec<String> = sizes.map(|size| format!("/{size}")).collect();
        (!sizes.is_empty()).then(|| {
            format!(
                "`spec.{family}` has blocks of {}, and the widest possible is /{widest}",
                sizes.join(" and ")
            )
        })
    });
    let wide: Vec<String> = wide.collect();
    (!wide.is_empty()).then(|| {
        format!(
            "blocks are too wide for Cilium's mode {}: {}; nodes get no such \
             blocks; set a larger `blockSize`",
            reader.ipam_mode().as_str(),
            wide.join(", ")
        )
    })
}

const SERVING: &str = "selected nodes get blocks";

/// Whether a pool has CIDRs, and none of them is active.
fn is_cordoned(pool: &Pool) -> bool {
    let mut states = pool.families.values().flat_map(|ranges| ranges.cidrs.values()).peekable();
    states.peek().is_some() && states.all(|state| *state != RangeState::Active)
}

/// For a pool that gives out no blocks of a family: whether agents of its nodes run the family, and whether these nodes
/// get its blocks from another pool. Costs a pass over its nodes and their pools.
fn family_missing(world: &World, pool: &Pool, missing: Family) -> Explained {
    let gives_it = |reader: &Publisher, other: &Pool| {
        world.gives_out_of(other, missing) && reader.pod_ip_pool_of(other) == reader.pod_ip_pool_of(pool)
    };
    let any_gives_it = || world.readable_pools().any(|other| gives_it(world.reader(), other));
    let is_shown = |node: &&NodeName| !world.is_unreadable(Kind::Node, node.as_str());
    let (mut n_selected, mut n_running, mut without) = (0_usize, 0_usize, Vec::new());
    for node in world.nodes_of_pool(&pool.name).filter(is_shown) {
        n_selected += 1;
        // A CiliumNodeConfig may say otherwise for this node than `cilium-config` does for most.
        let reader = world.reader_of(node);
        if reader.families().contains(&missing) {
            n_running += 1;
            if !world.pools_of(node).any(|other| gives_it(reader, other)) {
                without.push(node);
            }
        }
    }
    let is_run = if n_selected == 0 { world.reader().families().contains(&missing) } else { n_running > 0 };
    if !is_run {
        return (ConditionReason::Serving, SERVING.to_owned());
    }
    let starts_with_nothing = "a node that joins gets no block of any family; add an active CIDR to";
    if n_selected == 0 && any_gives_it() {
        let message = format!(
            "{SERVING} if another pool gives them {missing}, which the agents also run; no node is selected \
             now"
        );
        (ConditionReason::Serving, message)
    } else if n_selected == 0 {
        let message = format!(
            "the agents also run {missing}, and no pool gives {missing} blocks: {starts_with_nothing} \
             `spec.{missing}`, or create a pool with {missing} ranges for the same nodes"
        );
        (ConditionReason::FamilyMissing, message)
    } else if without.is_empty() {
        (ConditionReason::Serving, format!("{SERVING}, and {missing} blocks from other pools"))
    } else if without.len() == n_selected {
        let message = format!(
            "the agents also run {missing}, and no pool of these nodes gives {missing} blocks: \
             {starts_with_nothing} `spec.{missing}`, or create a pool with {missing} ranges that selects them: \
             {}",
            ten_by_number(without)
        );
        (ConditionReason::FamilyMissing, message)
    } else {
        let message = format!(
            "{SERVING}, except those whose agents also run {missing} and that no pool gives {missing} blocks: \
             {}",
            ten_by_number(without)
        );
        (ConditionReason::Serving, message)
    }
}

/// The obstacles to the deletion of a pool with these ranges, and the remedy. Costs a pass over its claims.
fn deleting<'a>(world: &World, name: &PoolName, ranges: impl IntoIterator<Item = &'a Cidr>) -> String {
    let claims = world.claims_of_pool(name).map(|known| &known.claim);
    let readable = claims.filter(|claim| !world.is_unreadable_claim(claim.cidr));
    let (mut nodes, mut counts) = (BTreeSet::new(), BTreeMap::<Family, (usize, usize)>::new());
    for claim in readable {
        nodes.insert(&claim.node);
        let (held, cooling) = counts.entry(claim.cidr.family()).or_default();
        let is_cooling = matches!(claim.state, ClaimState::Cooling(_));
        *if is_cooling { cooling } else { held } += 1;
    }
    let ranges = ranges.into_iter();
    let unreadable: BTreeSet<Cidr> = ranges.flat_map(|range| world.unreadable_blocks_in(*range)).collect();
    let gives_nothing = "the pool is being deleted and gives no blocks";
    let unreadable = if unreadable.is_empty() {
        String::new()
    } else {
        format!("; unreadable claims in its ranges may keep it: {}", ten_of(unreadable))
    };
    if nodes.is_empty() {
        return format!("{gives_nothing}; no blocks are left{unreadable}");
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(family, (held, cooling))| format!("{family}: {held} held, {cooling} cooling"))
        .collect();
    let younger = world.ledger().younger_than(name);
    let waiting = if younger.is_empty() {
        String::new()
    } else {
        format!("until then it keeps its ranges from younger pools: {}; ", ten_of(younger))
    };
    format!(
        "{gives_nothing}; it exists until its last block is free ({}), on nodes {}; {waiting}its blocks drain \
         as soon as their nodes have other addresses: see the condition Draining; to speed this up, drain and \
         delete the nodes; to free all other ranges now, empty its `cidrs`{unreadable}",
        counts.join(", "),
        ten_by_number(nodes),
    )
}

fn overlapping(world: &World, name: &PoolName) -> Explained {
    match overlap_of(world, name) {
        None => (ConditionReason::NoOverlap, String::new()),
        Some(message) => (ConditionReason::OverlapsOlderPool, message),
    }
}

/// The first range of the pool that an older pool keeps, and the number of such ranges.
pub(super) fn overlap_of(world: &World, name: &PoolName) -> Option<String> {
    let overlaps = world.ledger().overlaps(name);
    let overlap = overlaps.first()?;
    let until = if world.pool_object(&overlap.older).is_some_and(|older| older.deleting) {
        " until it is deleted (see its condition Ready)"
    } else {
        ""
    };
    Some(format!(
        "{} overlaps {} of the older pool {}, which keeps these addresses{until}; {} in total",
        overlap.mine,
        overlap.theirs,
        overlap.older,
        counted(overlaps.len(), "overlap")
    ))
}

fn exhausted(world: &World, pool: &Pool, full: &BTreeMap<Family, Holders>, tally: &Tally) -> Explained {
    // If no family gives out blocks, free or not, the pool is closed on purpose, or `Ready` names the problem.
    if !pool.families.keys().any(|family| world.gives_out_of(pool, *family)) {
        return (ConditionReason::Closed, "the pool gives no blocks; see the condition Ready".to_owned());
    }
    let mut lacks: Vec<String> =
        full.iter().map(|(family, holders)| format!("{family}: {holders}")).collect();
    let has_free = |family: Family| !full.contains_key(&family) && world.gives_out_of(pool, family);
    for (family, ranges) in pool.families.iter().filter(|(family, _)| has_free(**family)) {
        lacks.extend(
            sizes_without_free_block(ranges, tally.sizes.get(family)).map(|lack| format!("{family}: {lack}")),
        );
    }
    if lacks.is_empty() {
        return (ConditionReason::FreeBlocks, String::new());
    }
    let message = format!(
        "{}; waiting: {} without addresses, {} for growth; {}",
        lacks.join("; "),
        counted(tally.nodes.waiting, "node"),
        tally.nodes.want_growth,
        full.values().map(Holders::remedy).min().unwrap_or(Remedy::AddCidr).as_str()
    );
    (ConditionReason::NoFreeBlocks, message)
}

/// The sizes that nodes have and the pool gives out, but no free block has.
fn sizes_without_free_block(ranges: &Ranges, sizes: Option<&BlockSizes>) -> impl Iterator<Item = String> {
    let given = ranges.sizes();
    let counts = sizes.into_iter().flat_map(|sizes| &sizes.counts);
    let lacks = counts
        .filter(move |(size, of_size)| given.contains(size) && of_size.free == 0 && of_size.on_nodes > 0);
    lacks.map(|(size, of_size)| format!("no free /{size} block ({} on nodes)", of_size.on_nodes))
}

/// The occupants of blocks of the pool that are not its claims.
fn obstructed(
    world: &World,
    families: &BTreeMap<Family, FamilyCounts>,
    occupants: Option<&UnclaimedOccupants<'_>>,
) -> Explained {
    let Some(occupants) = occupants else { return (ConditionReason::Unobstructed, String::new()) };
    let counts: Vec<String> =
        families.iter().map(|(family, counts)| format!("{family}: {}", shown(counts.unavailable))).collect();
    let culprits = occupants.lines(world);
    let message = format!("unavailable blocks ({}): {}", counts.join(", "), culprits.join("; "));
    (ConditionReason::BlocksUnavailable, message)
}

/// The fields of the pool that have no effect in the mode of Cilium, if it sets any. Defaults are left out, and so are
/// values with the same result: a pool that never reclaims, or allows one block.
fn without_effect(world: &World, pool: &Pool) -> Option<Explained> {
    let reader = world.reader();
    let (reason, why) = if reader.traits().gives_one_block {
        let why = "a node has exactly one block of each family";
        (ConditionReason::OneBlockPerNode, why)
    } else if reader.traits().agents_request_addresses {
        let why = "the agent requests and returns blocks itself";
        (ConditionReason::AgentsAsk, why)
    } else {
        return without_names(pool);
    };
    let (per_node, usual) = (pool.per_node, PerNode::DEFAULT);
    let largest = pool.families.iter().map(|(family, ranges)| pool.max_offered(*family, ranges.block_prefix));
    let largest = largest.max().unwrap_or_default();
    let is_limited = reader.traits().gives_one_block;
    let fields = [
        ("perNode.initialBlocks", per_node.initial_blocks > 1),
        (
            "perNode.maxBlocks",
            is_limited && per_node.max_blocks != usual.max_blocks && per_node.max_blocks > 1,
        ),
        (
            "perNode.maxAddresses",
            is_limited
                && per_node.max_addresses != usual.max_addresses
                && u128::from(per_node.max_addresses) != largest,
        ),
        ("expand", pool.expand != Expand::DEFAULT),
        ("reclaim", pool.reclaim != Reclaim::DEFAULT && pool.reclaim.mode != ReclaimMode::Disabled),
    ];
    let set: Vec<&str> = fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect();
    let mode = reader.ipam_mode().as_str();
    let of_mode = (!set.is_empty())
        .then(|| format!("in Cilium's mode {mode} {why}; these fields have no effect: {}", set.join(", ")));
    let ends = (pool.first_last == FirstLast::Offered).then(|| WITHOUT_ENDS.to_owned());
    let without_names = without_names(pool).filter(|_| !reader.traits().has_pod_ip_pools);
    if of_mode.is_none() && ends.is_none() {
        return without_names;
    }
    let names = without_names.map(|(_, message)| message);
    let messages: Vec<String> = [of_mode, ends, names].into_iter().flatten().collect();
    Some((reason, messages.join("; ")))
}

/// That `allowFirstLastIPs` has no effect: in the other modes the agent decides which addresses of a block pods get.
const WITHOUT_ENDS: &str = "allowFirstLastIPs has an effect in Cilium's mode crd only";

/// That `podIPPool` has no effect, if the pool sets it.
fn without_names(pool: &Pool) -> Option<Explained> {
    let name = pool.pod_ip_pool.as_ref()?;
    let message = format!(
        "podIPPool ({name}) has no effect: only Cilium's mode multi-pool has \
         CiliumPodIPPools"
    );
    Some((ConditionReason::NoPodIPPools, message))
}

/// That another pool gives blocks of another size under the same name. Cilium's BGP announces those of one size alone.
fn mixed_block_sizes(world: &World, pool: &Pool) -> Option<Explained> {
    let reader = world.reader();
    let name = reader.pod_ip_pool_of(pool)?;
    let pools = world.readable_pools();
    let others = pools.filter(|other| other.name != pool.name && reader.pod_ip_pool_of(other) == Some(name));
    let of_other_size = others.flat_map(|other| {
        let sizes = pool.families.iter().filter_map(|(family, ranges)| {
            let size = other.families.get(family)?.block_prefix;
            (size != ranges.block_prefix).then(|| format!("{} ({family}: /{size})", other.name))
        });
        sizes.collect::<Vec<_>>()
    });
    let of_other_size: Vec<String> = of_other_size.collect();
    if of_other_size.is_empty() {
        return None;
    }
    let message = format!(
        "other pools of the Cilium pool {name} have another block size: {}; agents use all of them, but \
         Cilium's BGP announces only blocks of the CiliumPodIPPool's maskSize; use one `blockSize`, or another \
         `podIPPool` for each size",
        ten_of(of_other_size)
    );
    Some((ConditionReason::OtherBlockSize, message))
}

/// The frozen switches and the ConfigMap that froze them; `None` without a freeze.
fn frozen(freeze: &Freeze) -> Option<Explained> {
    let reported: Vec<String> =
        Switch::ALL.into_iter().filter_map(|switch| freeze.description(switch)).collect();
    let is_of_writes = freeze.is_on(Switch::Writes);
    let reason = if is_of_writes { ConditionReason::WritesFrozen } else { ConditionReason::ReclaimFrozen };
    (!reported.is_empty()).then(|| (reason, reported.join("; ")))
}
