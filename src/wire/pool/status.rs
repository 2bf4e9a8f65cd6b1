//! What the controller says of a pool: conditions, counts and the columns of `kubectl get`, as wire types, and their
//! conversion in both directions.
//!
//! What the world compares has no times in it; the time of a condition's last transition is kept apart, so that an
//! unchanged world writes nothing.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::counted::shown;
use crate::model::request::PoolStatusWrite;
use crate::model::status::{self as domain, ConditionType};
use crate::net::cidr::Family;
use crate::wire::precondition::bound_to;
use crate::wire::{MAX_COUNT, schema};

/// The status of a pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIPPoolStatus {
    /// Always `Ready`, `Overlapping`, `Exhausted`, `Obstructed` and `Draining`. `Frozen`, `WithoutEffect`, `MixedBlockSizes` and
    /// `UnfitPodIPPool` only while they need attention.
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
}

/// Blocks and addresses of one family.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyCounts {
    /// Its blocks.
    pub blocks: BlockCounts,
    /// Its addresses.
    pub addresses: AddressCounts,
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
    /// Used addresses per family.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub used: String,
    /// Free addresses per family, in free blocks and on nodes.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub free: String,
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
        .filter_map(|(family, counts)| Some((family, read_counts(counts.as_ref()?))))
        .collect();
    domain::PoolStatus {
        observed_generation: wire.observed_generation.unwrap_or_default(),
        conditions,
        nodes: domain::NodeCounts {
            selected: from_wire(nodes.selected),
            served: from_wire(nodes.served),
            waiting: from_wire(nodes.waiting),
            want_growth: from_wire(nodes.want_growth),
        },
        families,
    }
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
    }
}

/// A count as the world has it. Only we write it, and never a negative one.
fn from_wire(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// A count as the API writes it. The world has capped it already.
fn to_wire(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT)
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
        }),
        ipv4: status.families.get(&Family::V4).map(counts),
        ipv6: status.families.get(&Family::V6).map(counts),
        summary: Some(Summary {
            nodes: format!("{}/{}", status.nodes.served, status.nodes.selected),
            blocks: by_family(&status.families, |counts| {
                format!("{}/{}", shown(counts.held), shown(counts.blocks))
            }),
            used: by_family(&status.families, |counts| counts.used.map_or_else(|| "?".to_owned(), shown)),
            free: by_family(&status.families, |counts| shown(counts.addresses_free)),
        }),
    };
    let mut patch = bound_to(&write.uid, write.revision, json!({ "status": wire }));
    // What a merge patch does not name stays: the counts of a family that the pool no longer has would never go
    // away, and the status would be written again for ever.
    for family in Family::ALL.iter().filter(|family| !status.families.contains_key(family)) {
        patch["status"][family.as_str()] = Value::Null;
    }
    for (family, _) in status.families.iter().filter(|(_, counts)| counts.used.is_none()) {
        patch["status"][family.as_str()]["addresses"]["used"] = Value::Null;
    }
    patch
}

fn counts(counts: &domain::FamilyCounts) -> FamilyCounts {
    FamilyCounts {
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
    }
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

    /// What the server makes of a merge patch (RFC 7396).
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
        };
        let status = &status_patch(&write)["status"];
        assert_eq!(status["summary"]["blocks"], "0/256,0/>2^53");
        assert_eq!(status["ipv6"]["blocks"]["total"], MAX_COUNT);
    }

    fn status(families: &[(Family, u64)]) -> domain::PoolStatus {
        let counts =
            |blocks| domain::FamilyCounts { blocks, free: blocks, ..domain::FamilyCounts::default() };
        domain::PoolStatus {
            observed_generation: 1,
            conditions: BTreeMap::new(),
            nodes: domain::NodeCounts::default(),
            families: families.iter().map(|(family, blocks)| (*family, counts(*blocks))).collect(),
        }
    }

    /// A pool that can no longer be read has no families, and may lose a family in that time.
    #[test]
    fn a_status_that_was_written_is_read_back_whatever_was_there_before() {
        let (one, both) = ([(Family::V6, 3)], [(Family::V4, 1), (Family::V6, 2)]);
        let statuses = [status(&[]), status(&one), status(&both)];
        for (before, after) in statuses.iter().flat_map(|a| statuses.iter().map(move |b| (a, b))) {
            let mut object = json!({});
            for status in [before, after] {
                let write = PoolStatusWrite {
                    pool: "p".into(),
                    uid: "u".into(),
                    revision: Revision::of(7),
                    status: status.clone(),
                    transitions: BTreeMap::new(),
                };
                merge(&mut object, &status_patch(&write));
            }
            let read: NodeIPPoolStatus = serde_json::from_value(object["status"].clone()).unwrap();
            assert_eq!(read_status(&read), *after, "after {before:?}");
        }
    }
}
