//! The headroom in the status of a pool, as wire types, and its conversion in both directions.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::counts::{from_wire, to_wire};
use crate::model::status::{self as domain, FamilyCounts};
use crate::net::cidr::Family;
use crate::wire::schema;

/// The nodes and pods that the free blocks of a pool can serve. Where agents run both families, the smaller numbers
/// count.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Headroom {
    /// That of its IPv4 blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<FamilyHeadroom>,
    /// That of its IPv6 blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyHeadroom>,
}

/// The nodes and pods that the free blocks of one family can serve. Counts end at 2^53-1.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyHeadroom {
    /// Nodes that can still get their first blocks.
    #[schemars(schema_with = "schema::count")]
    pub nodes: i64,
    /// Pods that can have an address in the free blocks after these nodes have joined. The nodes that exist may use some
    /// of these blocks too.
    #[schemars(schema_with = "schema::count")]
    pub pods: i64,
}

/// The headroom of a family in a status.
pub(super) fn read(wire: Option<&Headroom>, family: Family) -> domain::Headroom {
    let found = wire.and_then(|headroom| match family {
        Family::V4 => headroom.ipv4.as_ref(),
        Family::V6 => headroom.ipv6.as_ref(),
    });
    let read = |found: &FamilyHeadroom| domain::Headroom {
        nodes: from_wire(found.nodes),
        pods: from_wire(found.pods),
    };
    found.map(read).unwrap_or_default()
}

/// The headroom of all families of a pool.
pub(super) fn written(families: &BTreeMap<Family, FamilyCounts>) -> Headroom {
    let of = |family: Family| {
        let domain::Headroom { nodes, pods } = families.get(&family)?.headroom;
        Some(FamilyHeadroom { nodes: to_wire(nodes), pods: to_wire(pods) })
    };
    Headroom { ipv4: of(Family::V4), ipv6: of(Family::V6) }
}
