//! The status of a pool: conditions, counts and the columns of `kubectl get`, as wire types, and their conversion in
//! both directions.
//!
//! The world compares values without times. The time of a condition's last transition is kept apart, so that an
//! unchanged world writes nothing.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::counts::{from_wire, to_wire};
use super::headroom::{self, Headroom};
use super::sizes::{self, SizeCounts};
use crate::model::counted::shown;
use crate::model::request::PoolStatusWrite;
use crate::model::status::{self as domain, ConditionType, Need};
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};
use crate::wire::precondition::bound_to;
use crate::wire::{rules, schema};

/// The status of a pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIPPoolStatus {
    /// Always `Ready`, `Overlapping`, `Exhausted`, `Obstructed` and `Draining`. `Frozen`, `WithoutEffect`,
    /// `MixedBlockSizes` and `UnfitPodIPPool` only while they need attention.
    #[serde(default)]
    #[schemars(schema_with = "schema::conditions")]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The generation of the pool that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count")]
    pub observed_generation: Option<i64>,

    /// The nodes that the pool selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,

    /// Its IPv4 blocks and addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<FamilyCounts>,

    /// Its IPv6 blocks and addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyCounts>,

    /// The blocks of each CIDR of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2 * rules::MAX_CIDRS))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["cidr".into()]))]
    pub cidrs: Vec<CidrCounts>,

    /// The nodes that wait longest for a block of the pool. The times survive a restart of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_wait: Option<LongestWait>,

    /// The nodes and pods that its free blocks can serve, for the limits of autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,

    /// The counts as short text for `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// Nodes of a pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Selected nodes.
    #[schemars(schema_with = "schema::count")]
    pub selected: i64,
    /// Selected nodes with published blocks.
    #[schemars(schema_with = "schema::count")]
    pub served: i64,
    /// Selected nodes without published blocks that need a block while none is free.
    #[schemars(schema_with = "schema::count")]
    pub waiting: i64,
    /// Served nodes that need another block while none is free.
    #[serde(default)]
    #[schemars(schema_with = "schema::count")]
    pub want_growth: i64,
    /// Selected nodes without published blocks, whether they wait for a block or not.
    #[serde(default)]
    #[schemars(schema_with = "schema::count")]
    pub without: i64,
}

/// The nodes that wait longest for a block of the pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LongestWait {
    /// The node that waits longest for its first block: it can't start pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Waiter>,
    /// The served node that waits longest for another block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<Waiter>,
}

/// A node that waits for a block.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiter {
    /// The name of the Node.
    #[schemars(schema_with = "schema::object_name")]
    pub node: String,
    /// Since when it waits.
    #[schemars(schema_with = "schema::timestamp")]
    pub since: Timestamp,
}

/// Blocks and addresses of one family.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyCounts {
    /// Its blocks.
    pub blocks: BlockCounts,
    /// Its addresses.
    pub addresses: AddressCounts,
    /// The sizes of its blocks. A size that the pool had once stays: a CIDR of this size in the ranges of the pool is a block
    /// of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 65))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Map(vec!["blockSize".into()]))]
    pub sizes: Vec<SizeCounts>,
    /// The prefix length of the largest CIDR without a taken block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 128))]
    pub largest_free: Option<u8>,
    /// How many blocks nodes had in the last hours, for the forecast. The oldest first, at least an hour apart, and
    /// none while the number does not change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub history: Vec<Sample>,
}

/// How many blocks nodes had at a time.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// The time.
    #[schemars(schema_with = "schema::timestamp")]
    pub time: Timestamp,
    /// The held and the draining blocks.
    #[schemars(schema_with = "schema::count")]
    pub on_nodes: i64,
}

/// Blocks of one family of a pool. Counts end at 2^53-1.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockCounts {
    /// All blocks of its ranges.
    #[schemars(schema_with = "schema::count")]
    pub total: i64,
    /// Blocks that nodes hold.
    #[schemars(schema_with = "schema::count")]
    pub held: i64,
    /// Blocks that are draining from nodes.
    #[schemars(schema_with = "schema::count")]
    pub draining: i64,
    /// Blocks that are cooling.
    #[schemars(schema_with = "schema::count")]
    pub cooling: i64,
    /// Blocks that a node can get now.
    #[schemars(schema_with = "schema::count")]
    pub free: i64,
    /// Blocks that no node can get: taken without a claim of this pool, or without a usable address.
    #[serde(default)]
    #[schemars(schema_with = "schema::count")]
    pub unavailable: i64,
}

/// Blocks of one CIDR of a pool. Counts end at 2^53-1.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CidrCounts {
    /// The CIDR.
    #[schemars(length(max = rules::MAX_RANGE_TEXT))]
    pub cidr: String,
    /// All blocks of it.
    #[schemars(schema_with = "schema::count")]
    pub total: i64,
    /// Blocks that nodes hold.
    #[schemars(schema_with = "schema::count")]
    pub held: i64,
    /// Blocks that are draining from nodes.
    #[schemars(schema_with = "schema::count")]
    pub draining: i64,
    /// Blocks that are cooling.
    #[schemars(schema_with = "schema::count")]
    pub cooling: i64,
    /// Blocks that a node can get now.
    #[schemars(schema_with = "schema::count")]
    pub free: i64,
    /// Blocks that no node can get, because something other than a claim of this pool takes them, or an older pool has
    /// them.
    #[schemars(schema_with = "schema::count")]
    pub foreign: i64,
    /// Blocks that no node can get, because of exclusions or addresses of nodes.
    #[schemars(schema_with = "schema::count")]
    pub excluded: i64,
}

/// Addresses of one family of a pool. Counts end at 2^53-1.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressCounts {
    /// Addresses published on nodes.
    #[schemars(schema_with = "schema::count")]
    pub published: i64,
    /// Addresses that agents report as used. Absent in modes of Cilium without such reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count")]
    pub used: Option<i64>,
    /// Addresses that pods can still get: those in free blocks, and those on nodes that agents report as unused.
    #[schemars(schema_with = "schema::count")]
    pub free: i64,
}

/// Columns of `kubectl get`, where one column is one path.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Served nodes / selected nodes, such as `38/40`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub nodes: String,
    /// Held blocks / all blocks per family, such as `12/256,3/64`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub blocks: String,
    /// The share of the published and free addresses that is used, per family, such as `43%`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub used: String,
    /// The first CIDRs, each with held blocks / all blocks, such as `10.64.0.0/19=12/256`.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub cidrs: String,
    /// Free blocks per family.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub free: String,
    /// The state of the pool in one word: `Ready`, `Exhausted`, `Draining`, or the reason why it is not ready.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub state: String,
    /// Nodes that wait: without addresses / for another block, such as `6/8`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub wait: String,
    /// The largest free CIDR per family, such as `/22`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub largest: String,
}

/// The status that a pool shows, as the world has it.
pub(super) fn read_status(wire: &NodeIPPoolStatus) -> domain::PoolStatus {
    // Conditions of other types are left out of comparisons.
    let conditions = ConditionType::ALL
        .iter()
        .filter_map(|kind| {
            let found = wire.conditions.iter().find(|condition| condition.type_ == kind.as_str())?;
            let condition = domain::Condition {
                holds: found.status == "True",
                reason: found.reason.clone().into(),
                message: found.message.clone(),
            };
            Some((*kind, condition))
        })
        .collect();
    let nodes = wire.nodes.clone().unwrap_or_default();
    let families = [(Family::V4, &wire.ipv4), (Family::V6, &wire.ipv6)]
        .into_iter()
        .filter_map(|(family, counts)| {
            let counts = domain::FamilyCounts {
                headroom: headroom::read(wire.headroom.as_ref(), family),
                ..read_counts(counts.as_ref()?)
            };
            Some((family, counts))
        })
        .collect();
    // An earlier version wrote no `state`. No object has generation zero, so all columns are written once.
    let is_complete = wire.summary.as_ref().is_none_or(|summary| !summary.state.is_empty());
    domain::PoolStatus {
        observed_generation: wire.observed_generation.filter(|_| is_complete).unwrap_or_default(),
        conditions,
        nodes: domain::NodeCounts {
            selected: from_wire(nodes.selected),
            served: from_wire(nodes.served),
            waiting: from_wire(nodes.waiting),
            want_growth: from_wire(nodes.want_growth),
        },
        families,
        cidrs: wire.cidrs.iter().filter_map(read_cidr).collect(),
        sizes: [(Family::V4, &wire.ipv4), (Family::V6, &wire.ipv6)]
            .into_iter()
            .filter_map(|(family, counts)| {
                let counts = counts.as_ref()?;
                Some((family, sizes::read(&counts.sizes, counts.largest_free)))
            })
            .collect(),
        longest_wait: waiters(wire).map(|(need, waiter)| (need, waiter.node.as_str().into())).collect(),
    }
}

/// Since when the nodes in the status wait.
pub(super) fn read_waits(wire: &NodeIPPoolStatus) -> BTreeMap<Need, Timestamp> {
    waiters(wire).map(|(need, waiter)| (need, waiter.since)).collect()
}

/// How many blocks nodes had, by family.
pub(super) fn read_history(wire: &NodeIPPoolStatus) -> BTreeMap<Family, Vec<domain::Sample>> {
    let families = [(Family::V4, &wire.ipv4), (Family::V6, &wire.ipv6)];
    let histories = families.into_iter().filter_map(|(family, counts)| {
        let samples = counts.as_ref()?.history.iter();
        let samples =
            samples.map(|sample| domain::Sample { at: sample.time, on_nodes: from_wire(sample.on_nodes) });
        Some((family, samples.collect::<Vec<_>>()))
    });
    histories.filter(|(_, samples)| !samples.is_empty()).collect()
}

fn waiters(wire: &NodeIPPoolStatus) -> impl Iterator<Item = (Need, &Waiter)> {
    let longest = wire.longest_wait.as_ref();
    let of = move |need: Need| match need {
        Need::First => longest?.first.as_ref(),
        Need::Growth => longest?.growth.as_ref(),
    };
    Need::ALL.into_iter().filter_map(move |need| Some((need, of(need)?)))
}

fn read_counts(wire: &FamilyCounts) -> domain::FamilyCounts {
    domain::FamilyCounts {
        blocks: from_wire(wire.blocks.total),
        held: from_wire(wire.blocks.held),
        draining: from_wire(wire.blocks.draining),
        cooling: from_wire(wire.blocks.cooling),
        free: from_wire(wire.blocks.free),
        unavailable: from_wire(wire.blocks.unavailable),
        published: from_wire(wire.addresses.published),
        used: wire.addresses.used.map(from_wire),
        addresses_free: from_wire(wire.addresses.free),
        headroom: domain::Headroom::default(),
    }
}

/// The counts of one CIDR; `None` if the CIDR can't be read, and then it is written again.
fn read_cidr(wire: &CidrCounts) -> Option<(Cidr, domain::CidrCounts)> {
    let counts = domain::CidrCounts {
        blocks: from_wire(wire.total),
        held: from_wire(wire.held),
        draining: from_wire(wire.draining),
        cooling: from_wire(wire.cooling),
        free: from_wire(wire.free),
        foreign: from_wire(wire.foreign),
        excluded: from_wire(wire.excluded),
    };
    Some((wire.cidr.parse().ok()?, counts))
}

/// The status as a merge patch of the status subresource, carrying uid and version.
#[must_use]
pub fn status_patch(write: &PoolStatusWrite) -> Value {
    let status = &write.status;
    let conditions: Vec<Condition> = status
        .conditions
        .iter()
        .map(|(kind, condition)| Condition {
            type_: kind.as_str().to_owned(),
            status: if condition.holds { "True" } else { "False" }.to_owned(),
            reason: condition.reason.to_string(),
            message: condition.message.clone(),
            last_transition_time: Time(write.transitions.get(kind).copied().unwrap_or_default()),
            observed_generation: Some(status.observed_generation),
        })
        .collect();
    let wire = NodeIPPoolStatus {
        conditions,
        observed_generation: Some(status.observed_generation),
        nodes: Some(NodeCounts {
            selected: to_wire(status.nodes.selected),
            served: to_wire(status.nodes.served),
            waiting: to_wire(status.nodes.waiting),
            want_growth: to_wire(status.nodes.want_growth),
            without: to_wire(status.nodes.selected.saturating_sub(status.nodes.served)),
        }),
        ipv4: counts(write, Family::V4),
        ipv6: counts(write, Family::V6),
        cidrs: status.cidrs.iter().map(|(cidr, counts)| cidr_counts(*cidr, counts)).collect(),
        summary: Some(Summary {
            nodes: format!("{}/{}", status.nodes.served, status.nodes.selected),
            blocks: by_family(&status.families, |counts| {
                format!("{}/{}", shown(counts.held), shown(counts.blocks))
            }),
            used: by_family(&status.families, used_share),
            cidrs: cidrs_column(&status.cidrs),
            free: by_family(&status.families, |counts| shown(counts.free)),
            state: domain::word(&status.conditions).to_owned(),
            wait: format!("{}/{}", status.nodes.waiting, status.nodes.want_growth),
            largest: largest_free(status),
        }),
        headroom: Some(headroom::written(&status.families)),
        longest_wait: Some(LongestWait {
            first: waiter(write, Need::First),
            growth: waiter(write, Need::Growth),
        }),
    };
    let mut patch = bound_to(&write.uid, write.revision, json!({ "status": wire }));
    // A merge patch keeps the fields that it does not name. So the counts of a family that the pool no longer has would
    // stay, and the status would be written again for ever.
    for family in Family::ALL.iter().filter(|family| !status.families.contains_key(family)) {
        patch["status"][family.as_str()] = Value::Null;
        patch["status"]["headroom"][family.as_str()] = Value::Null;
    }
    if status.cidrs.is_empty() {
        patch["status"]["cidrs"] = Value::Null;
    }
    for (family, _) in status.families.iter().filter(|(_, counts)| counts.used.is_none()) {
        patch["status"][family.as_str()]["addresses"]["used"] = Value::Null;
    }
    let none_free =
        |family: &&Family| status.sizes.get(family).is_none_or(|sizes| sizes.largest_free.is_none());
    for family in status.families.keys().filter(none_free) {
        patch["status"][family.as_str()]["largestFree"] = Value::Null;
    }
    for need in Need::ALL.iter().filter(|need| !status.longest_wait.contains_key(need)) {
        patch["status"]["longestWait"][need.as_str()] = Value::Null;
    }
    patch
}

fn waiter(write: &PoolStatusWrite, need: Need) -> Option<Waiter> {
    let node = write.status.longest_wait.get(&need)?.to_string();
    Some(Waiter { node, since: write.waits_since.get(&need).copied()? })
}

/// The largest free CIDR of each family.
fn largest_free(status: &domain::PoolStatus) -> String {
    let of = |family: &Family| status.sizes.get(family).and_then(|sizes| sizes.largest_free);
    let sizes = status
        .families
        .keys()
        .map(|family| of(family).map_or_else(|| "-".to_owned(), |size| format!("/{size}")));
    sizes.collect::<Vec<_>>().join(",")
}

/// The used addresses in percent of all that pods can have.
fn used_share(counts: &domain::FamilyCounts) -> String {
    if counts.used.is_none() {
        return "?".to_owned();
    }
    counts.used_percent().map_or_else(|| "-".to_owned(), |share| format!("{share}%"))
}

fn counts(write: &PoolStatusWrite, family: Family) -> Option<FamilyCounts> {
    let (counts, sizes) = (write.status.families.get(&family)?, write.status.sizes.get(&family));
    let sample = |sample: &domain::Sample| Sample { time: sample.at, on_nodes: to_wire(sample.on_nodes) };
    Some(FamilyCounts {
        blocks: BlockCounts {
            total: to_wire(counts.blocks),
            held: to_wire(counts.held),
            draining: to_wire(counts.draining),
            cooling: to_wire(counts.cooling),
            free: to_wire(counts.free),
            unavailable: to_wire(counts.unavailable),
        },
        addresses: AddressCounts {
            published: to_wire(counts.published),
            used: counts.used.map(to_wire),
            free: to_wire(counts.addresses_free),
        },
        sizes: sizes::written(sizes),
        largest_free: sizes.and_then(|sizes| sizes.largest_free),
        history: write.history.get(&family).into_iter().flatten().map(sample).collect(),
    })
}

fn cidr_counts(cidr: Cidr, counts: &domain::CidrCounts) -> CidrCounts {
    CidrCounts {
        cidr: cidr.to_string(),
        total: to_wire(counts.blocks),
        held: to_wire(counts.held),
        draining: to_wire(counts.draining),
        cooling: to_wire(counts.cooling),
        free: to_wire(counts.free),
        foreign: to_wire(counts.foreign),
        excluded: to_wire(counts.excluded),
    }
}

/// How many CIDRs the column names: more do not fit on a line.
const CIDRS_IN_COLUMN: usize = 4;

fn cidrs_column(cidrs: &BTreeMap<Cidr, domain::CidrCounts>) -> String {
    let named = cidrs.iter().take(CIDRS_IN_COLUMN);
    let mut parts: Vec<String> = named
        .map(|(cidr, counts)| format!("{cidr}={}/{}", shown(counts.held), shown(counts.blocks)))
        .collect();
    if let more @ 1.. = cidrs.len().saturating_sub(CIDRS_IN_COLUMN) {
        parts.push(format!("+{more}"));
    }
    parts.join(",")
}

/// A column for both families: IPv4, then IPv6.
fn by_family(
    families: &BTreeMap<Family, domain::FamilyCounts>,
    show: impl Fn(&domain::FamilyCounts) -> String,
) -> String {
    families.values().map(show).collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::revision::Revision;
    use crate::model::status::capped_count;
    use crate::wire::MAX_COUNT;

    /// Applies a merge patch as the server does (RFC 7396).
    fn merge(object: &mut Value, patch: &Value) {
        let Value::Object(changes) = patch else {
            *object = patch.clone();
            return;
        };
        if !object.is_object() {
            *object = json!({});
        }
        for (key, value) in changes {
            if value.is_null() {
                object.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut object[key], value);
            }
        }
    }

    /// The columns are for people; the counts beside them are numbers that every JSON reader holds.
    #[test]
    fn columns_say_that_a_count_was_capped() {
        let write = PoolStatusWrite {
            pool: "p".into(),
            uid: "u".into(),
            revision: Revision::of(7),
            status: status(&[(Family::V4, 256), (Family::V6, capped_count(1 << 64))]),
            transitions: BTreeMap::new(),
            waits_since: Box::default(),
            history: Box::default(),
        };
        let status = &status_patch(&write)["status"];
        assert_eq!(status["summary"]["blocks"], "0/256,0/>2^53");
        assert_eq!(status["ipv6"]["blocks"]["total"], MAX_COUNT);
    }

    fn status(families: &[(Family, u64)]) -> domain::PoolStatus {
        let counts = |blocks| domain::FamilyCounts {
            blocks,
            free: blocks,
            headroom: domain::Headroom { nodes: blocks, pods: blocks },
            ..domain::FamilyCounts::default()
        };
        let sizes = |free| domain::BlockSizes {
            counts: [(26, domain::SizeCounts { on_nodes: 0, free })].into(),
            largest_free: (free > 1).then_some(24),
        };
        domain::PoolStatus {
            observed_generation: 1,
            conditions: BTreeMap::new(),
            nodes: domain::NodeCounts::default(),
            families: families.iter().map(|(family, blocks)| (*family, counts(*blocks))).collect(),
            cidrs: BTreeMap::new(),
            sizes: families.iter().map(|(family, blocks)| (*family, sizes(*blocks))).collect(),
            longest_wait: BTreeMap::new(),
        }
    }

    fn waits_of(status: &domain::PoolStatus) -> BTreeMap<Need, Timestamp> {
        status.longest_wait.keys().map(|need| (*need, Timestamp::UNIX_EPOCH)).collect()
    }

    /// The columns of an earlier version had other texts.
    #[test]
    fn a_status_of_an_earlier_version_is_written_once_more() {
        let read = |state: &str| {
            let summary = Some(Summary { state: state.to_owned(), ..Summary::default() });
            let wire =
                NodeIPPoolStatus { observed_generation: Some(1), summary, ..NodeIPPoolStatus::default() };
            read_status(&wire).observed_generation
        };
        assert_eq!((read(""), read("Ready")), (0, 1));
    }

    #[test]
    fn the_used_share_is_of_all_addresses_that_pods_can_have() {
        let share = |used, addresses_free| {
            used_share(&domain::FamilyCounts { used, addresses_free, ..domain::FamilyCounts::default() })
        };
        assert_eq!([share(Some(3), 4), share(Some(0), 0), share(None, 7)], ["42%", "-", "?"]);
    }

    /// A pool that can no longer be read has no families, and may lose a family in that time.
    #[test]
    fn a_status_that_was_written_is_read_back_whatever_was_there_before() {
        let (one, both) = ([(Family::V6, 3)], [(Family::V4, 1), (Family::V6, 2)]);
        let waits = |need: Need| {
            let longest_wait = BTreeMap::from([(need, "n".into())]);
            domain::PoolStatus { longest_wait, ..status(&both) }
        };
        let statuses = [status(&[]), status(&one), status(&both), waits(Need::First), waits(Need::Growth)];
        for (before, after) in statuses.iter().flat_map(|a| statuses.iter().map(move |b| (a, b))) {
            let mut object = json!({});
            for status in [before, after] {
                let write = PoolStatusWrite {
                    pool: "p".into(),
                    uid: "u".into(),
                    revision: Revision::of(7),
                    status: status.clone(),
                    transitions: BTreeMap::new(),
                    waits_since: Box::new(waits_of(status)),
                    history: Box::default(),
                };
                merge(&mut object, &status_patch(&write));
            }
            let read: NodeIPPoolStatus = serde_json::from_value(object["status"].clone()).unwrap();
            assert_eq!(read_status(&read), *after, "after {before:?}");
        }
    }

    #[test]
    fn the_column_of_cidrs_names_the_first_of_them() {
        let cidrs = |n: u8| {
            let of = |index: u8| {
                let counts =
                    domain::CidrCounts { blocks: 16, held: index.into(), ..domain::CidrCounts::default() };
                (format!("10.0.{index}.0/24").parse().unwrap(), counts)
            };
            cidrs_column(&(0..n).map(of).collect())
        };
        assert_eq!(cidrs(0), "");
        assert_eq!(cidrs(2), "10.0.0.0/24=0/16,10.0.1.0/24=1/16");
        assert_eq!(cidrs(6), "10.0.0.0/24=0/16,10.0.1.0/24=1/16,10.0.2.0/24=2/16,10.0.3.0/24=3/16,+2");
    }
}
