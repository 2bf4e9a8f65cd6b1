//! What the controller says of a pool: conditions, counts, and the columns of `kubectl get`.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::wire::schema;

/// What the controller says of a pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIPPoolStatus {
    /// Ready, Overlapping, Exhausted and Limited.
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

    /// The same as short text, for `kubectl get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
}

/// Nodes of a pool.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that the selector chooses.
    #[schemars(schema_with = "schema::count")]
    pub selected: i64,
    /// Those of them that have blocks published.
    #[schemars(schema_with = "schema::count")]
    pub served: i64,
    /// Those of them that need a block and have not got it.
    #[schemars(schema_with = "schema::count")]
    pub waiting: i64,
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
    /// All that its ranges hold.
    #[schemars(schema_with = "schema::count")]
    pub total: i64,
    /// Given to nodes.
    #[schemars(schema_with = "schema::count")]
    pub held: i64,
    /// Being taken back.
    #[schemars(schema_with = "schema::count")]
    pub draining: i64,
    /// Resting after they were taken back.
    #[schemars(schema_with = "schema::count")]
    pub cooling: i64,
    /// Can be given out.
    #[schemars(schema_with = "schema::count")]
    pub free: i64,
}

/// Addresses of one family of a pool. Counts end at 2^53-1.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressCounts {
    /// Offered to agents.
    #[schemars(schema_with = "schema::count")]
    pub published: i64,
    /// Used, as far as the agents say.
    #[schemars(schema_with = "schema::count")]
    pub used: i64,
    /// Of free blocks, and the published ones that nothing uses.
    #[schemars(schema_with = "schema::count")]
    pub free: i64,
}

/// Columns of `kubectl get`, where one column is one path.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Served nodes of those selected, `38/40`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub nodes: String,
    /// Held blocks of all, `12/256`, of both families with a comma between.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub blocks: String,
    /// Used addresses.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub used: String,
    /// Free addresses: of free blocks, and the published ones that nothing uses.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub free: String,
}
