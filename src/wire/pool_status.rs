//! A NodeIPPool between the wire and the world, and above all its status.
//!
//! What the world compares has no times in it; the time of a condition's last transition is kept beside it, so that
//! an unchanged world writes nothing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as WireCondition, ObjectMeta, Time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pool::{AddressCounts, BlockCounts, FamilyCounts as WireCounts, NodeCounts as WireNodes};
use super::pool::{NodeIPPoolSpec, NodeIPPoolStatus, Summary, reserved};
use super::watched::Meta;
use super::{MAX_COUNT, NodeIPPool};
use crate::model::names::{PoolName, Uid};
use crate::model::observation::{InvalidPool, PoolObject};
use crate::model::pool::{Pool, Reservation};
use crate::model::request::{PoolFinalizersWrite, PoolStatusWrite};
use crate::model::status::{Condition, ConditionType, FamilyCounts, NodeCounts, PoolStatus};
use crate::net::cidr::Family;

/// The parts of a pool, each of which may be of a form that another version wrote.
#[derive(Deserialize)]
struct Parts {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// Reads a pool: what it declares, and the status that it shows.
///
/// A declaration that can't be read is a value too. A status that can't be read counts as none: it is ours, and is
/// written anew.
pub(super) fn read(json: &str, meta: &Meta) -> serde_json::Result<PoolObject> {
    let Parts { metadata, spec, status } = serde_json::from_str(json)?;
    let status = serde_json::from_value::<NodeIPPoolStatus>(status).unwrap_or_default();
    let (name, uid): (PoolName, Uid) = (meta.name.as_str().into(), meta.uid.as_str().into());
    let generation = metadata.generation.unwrap_or_default();
    let finalizers = metadata.finalizers.clone().unwrap_or_default();
    let pool = pool(metadata, &spec).map_err(|findings| InvalidPool {
        findings,
        reserved: Reservation {
            name: name.clone(),
            uid: uid.clone(),
            created: meta.created(),
            cidrs: reserved::ranges(&spec),
        },
    });
    Ok(PoolObject {
        name,
        uid,
        revision: meta.revision(),
        generation,
        deleting: meta.is_deleting(),
        finalizers,
        pool,
        transitions: status
            .conditions
            .iter()
            .map(|condition| (condition.type_.clone(), condition.last_transition_time.0))
            .collect(),
        status: read_status(&status),
    })
}

/// What the pool declares, or every rule that it breaks.
fn pool(metadata: ObjectMeta, spec: &Value) -> Result<Pool, Vec<String>> {
    let spec = NodeIPPoolSpec::deserialize(spec).map_err(|error| vec![format!("spec: {error}")])?;
    Pool::try_from(&NodeIPPool { metadata, spec, status: None })
        .map_err(|invalid| invalid.errors.iter().map(ToString::to_string).collect())
}

fn read_status(wire: &NodeIPPoolStatus) -> PoolStatus {
    // Conditions of other types are left out of comparisons.
    let conditions = ConditionType::ALL
        .iter()
        .filter_map(|kind| {
            let found = wire.conditions.iter().find(|condition| condition.type_ == kind.as_str())?;
            let condition = Condition {
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
    PoolStatus {
        observed_generation: wire.observed_generation.unwrap_or_default(),
        conditions,
        nodes: NodeCounts {
            selected: from_wire(nodes.selected),
            served: from_wire(nodes.served),
            waiting: from_wire(nodes.waiting),
        },
        families,
    }
}

fn read_counts(wire: &WireCounts) -> FamilyCounts {
    FamilyCounts {
        blocks: from_wire(wire.blocks.total),
        held: from_wire(wire.blocks.held),
        draining: from_wire(wire.blocks.draining),
        cooling: from_wire(wire.blocks.cooling),
        free: from_wire(wire.blocks.free),
        published: from_wire(wire.addresses.published),
        used: from_wire(wire.addresses.used),
        addresses_free: from_wire(wire.addresses.free),
    }
}

/// A count as the world has it. It is written by us and never negative.
fn from_wire(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// A count as the API writes it. The world has capped it already.
fn to_wire(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT)
}

/// The status as a merge patch of the status subresource, carrying uid and version.
#[must_use]
pub fn merge_patch(write: &PoolStatusWrite) -> Value {
    let status = &write.status;
    let conditions: Vec<WireCondition> = status
        .conditions
        .iter()
        .map(|(kind, condition)| WireCondition {
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
        nodes: Some(WireNodes {
            selected: to_wire(status.nodes.selected),
            served: to_wire(status.nodes.served),
            waiting: to_wire(status.nodes.waiting),
        }),
        ipv4: status.families.get(&Family::V4).map(counts),
        ipv6: status.families.get(&Family::V6).map(counts),
        summary: Some(Summary {
            nodes: format!("{}/{}", status.nodes.served, status.nodes.selected),
            blocks: by_family(&status.families, |counts| format!("{}/{}", counts.held, counts.blocks)),
            used: by_family(&status.families, |counts| counts.used.to_string()),
            free: by_family(&status.families, |counts| counts.addresses_free.to_string()),
        }),
    };
    let mut patch = json!({
        "metadata": { "uid": write.uid.as_str(), "resourceVersion": write.revision.to_string() },
        "status": wire,
    });
    // What a merge patch does not name stays: the counts of a family that the pool has no more would stand for ever,
    // and so would the difference to what they should be.
    for family in Family::ALL.iter().filter(|family| !status.families.contains_key(family)) {
        patch["status"][family.as_str()] = Value::Null;
    }
    patch
}

/// The finalizers as a merge patch, carrying uid and version.
#[must_use]
pub fn finalizers_patch(write: &PoolFinalizersWrite) -> Value {
    json!({
        "metadata": {
            "uid": write.uid.as_str(),
            "resourceVersion": write.revision.to_string(),
            "finalizers": write.finalizers,
        },
    })
}

fn counts(counts: &FamilyCounts) -> WireCounts {
    WireCounts {
        blocks: BlockCounts {
            total: to_wire(counts.blocks),
            held: to_wire(counts.held),
            draining: to_wire(counts.draining),
            cooling: to_wire(counts.cooling),
            free: to_wire(counts.free),
        },
        addresses: AddressCounts {
            published: to_wire(counts.published),
            used: to_wire(counts.used),
            free: to_wire(counts.addresses_free),
        },
    }
}

/// A column for both families: IPv4, then IPv6.
fn by_family(families: &BTreeMap<Family, FamilyCounts>, show: impl Fn(&FamilyCounts) -> String) -> String {
    families.values().map(show).collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::Revision;

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

    fn status(families: &[(Family, u64)]) -> PoolStatus {
        let counts = |blocks| FamilyCounts { blocks, free: blocks, ..FamilyCounts::default() };
        PoolStatus {
            observed_generation: 1,
            conditions: BTreeMap::new(),
            nodes: NodeCounts::default(),
            families: families.iter().map(|(family, blocks)| (*family, counts(*blocks))).collect(),
        }
    }

    /// A pool that can't be read any more has no families, and one may lose a family while it can't.
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
                    revision: Revision(7),
                    status: status.clone(),
                    transitions: BTreeMap::new(),
                };
                merge(&mut object, &merge_patch(&write));
            }
            let read: NodeIPPoolStatus = serde_json::from_value(object["status"].clone()).unwrap();
            assert_eq!(read_status(&read), *after, "after {before:?}");
        }
    }
}
