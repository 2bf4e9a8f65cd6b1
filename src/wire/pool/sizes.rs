//! The sizes of the blocks of a pool in its status, as wire types, and their conversion in both directions.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::counts::{from_wire, to_wire};
use crate::model::status as domain;
use crate::wire::schema;

/// Blocks of one size. Counts end at 2^53-1.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeCounts {
    /// The prefix length.
    #[schemars(range(min = 0, max = 128))]
    pub block_size: u8,
    /// Blocks on nodes.
    #[schemars(schema_with = "schema::count")]
    pub on_nodes: i64,
    /// Blocks that a node of this size can get now. Other sizes share them.
    #[schemars(schema_with = "schema::count")]
    pub free: i64,
}

pub(super) fn read(sizes: &[SizeCounts], largest_free: Option<u8>) -> domain::BlockSizes {
    let counts = sizes.iter().map(|size| {
        let counts = domain::SizeCounts { on_nodes: from_wire(size.on_nodes), free: from_wire(size.free) };
        (size.block_size, counts)
    });
    domain::BlockSizes { counts: counts.collect(), largest_free }
}

pub(super) fn written(sizes: Option<&domain::BlockSizes>) -> Vec<SizeCounts> {
    let counts = sizes.into_iter().flat_map(|sizes| &sizes.counts);
    let written = counts.map(|(prefix, counts)| SizeCounts {
        block_size: *prefix,
        on_nodes: to_wire(counts.on_nodes),
        free: to_wire(counts.free),
    });
    written.collect()
}
