//! `NodeIPPool` on the wire: declared ranges, and the rules by which nodes get blocks of them.
//!
//! Rules of one field are at the field, or in [`super::schema`] where they are text; rules between fields are at the
//! struct that holds both. [`convert`] makes a [`crate::model::pool::Pool`] of it.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]
#![allow(clippy::duplicated_attributes, reason = "one printcolumn has the type of another")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mirror::mirror;
use super::precondition::bound_to;
use super::{rules, schema};
use crate::model::pool as domain;
use crate::model::request::PoolFinalizersWrite;

pub(in crate::wire) mod advice;
mod convert;
mod counts;
pub(in crate::wire) mod forms;
mod headroom;
mod ranges;
mod read;
mod reserved;
mod selector;
mod sizes;
mod status;

pub use ranges::{ByMaxPods, Range, RangeState, Ranges, SizedNodes};
pub use selector::{NodeSelector, Operator, Requirement};
pub use sizes::SizeCounts;
pub use status::{
    AddressCounts, BlockCounts, CidrCounts, FamilyCounts, NodeCounts, NodeIPPoolStatus, Summary, status_patch,
};

/// NodeIPPools.
#[derive(Debug, Clone)]
pub struct Pools;

/// Ranges of addresses for the nodes that a selector chooses.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "nodeipam.io",
    version = "v1alpha1",
    kind = "NodeIPPool",
    plural = "nodeippools",
    singular = "nodeippool",
    shortname = "nip",
    category = "nodeipam",
    status = "NodeIPPoolStatus",
    derive = "PartialEq",
    doc = "NodeIPPool declares ranges of pod addresses and selects the nodes that get blocks of them.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.summary.state",
        description = "Ready, Exhausted, Draining, or the reason why the pool is not ready"
    ),
    printcolumn(
        name = "Selects",
        type_ = "integer",
        json_path = ".status.nodes.selected",
        description = "Selected nodes"
    ),
    printcolumn(
        name = "Without",
        type_ = "integer",
        json_path = ".status.nodes.without",
        description = "Selected nodes without a block",
        priority = 1
    ),
    printcolumn(
        name = "Wait",
        type_ = "string",
        json_path = ".status.summary.wait",
        description = "Nodes that wait: for the first block / for another block",
        priority = 1
    ),
    printcolumn(
        name = "Blocks",
        type_ = "string",
        json_path = ".status.summary.blocks",
        description = "Held blocks / all blocks, per family"
    ),
    printcolumn(
        name = "Free",
        type_ = "string",
        json_path = ".status.summary.free",
        description = "Free blocks, per family"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        json_path = ".status.summary.used",
        description = "Addresses that agents report as used, in percent of all that pods can have, per family"
    ),
    printcolumn(
        name = "Largest",
        type_ = "string",
        json_path = ".status.summary.largest",
        description = "The largest free CIDR, per family",
        priority = 1
    ),
    printcolumn(
        name = "Priority",
        type_ = "integer",
        json_path = ".spec.priority",
        description = "Pools with a higher priority are asked first",
        priority = 1
    ),
    printcolumn(
        name = "Selector",
        type_ = "string",
        json_path = ".spec.nodeSelector",
        description = "The labels of the nodes that the pool selects",
        priority = 1
    ),
    printcolumn(
        name = "CIDRs",
        type_ = "string",
        json_path = ".status.summary.cidrs",
        description = "The first CIDRs: held blocks / all blocks",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.ipv4) || has(self.ipv6)").message(rules::ONE_FAMILY),
    validation = Rule::new("!has(oldSelf.ipv4) || has(self.ipv4)").message(rules::FAMILY_STAYS).field_path(".ipv4"),
    validation = Rule::new("!has(oldSelf.ipv6) || has(self.ipv6)").message(rules::FAMILY_STAYS).field_path(".ipv6"),
    validation = Rule::new(
        "has(self.podIPPool) == has(oldSelf.podIPPool) && (!has(self.podIPPool) || self.podIPPool == oldSelf.podIPPool)"
    )
    .message(rules::POD_IP_POOL_FIXED)
    .field_path(".podIPPool"),
    validation = Rule::new(
        "!has(self.podIPPool) || !has(self.ipv4) || !has(oldSelf.ipv4) || self.ipv4.blockSize == oldSelf.ipv4.blockSize"
    )
    .message(rules::BLOCK_SIZE_OF_NAME)
    .field_path(".ipv4.blockSize"),
    validation = Rule::new(
        "!has(self.podIPPool) || !has(self.ipv6) || !has(oldSelf.ipv6) || self.ipv6.blockSize == oldSelf.ipv6.blockSize"
    )
    .message(rules::BLOCK_SIZE_OF_NAME)
    .field_path(".ipv6.blockSize"),
    validation = Rule::new(
        "!has(self.podIPPool) || !has(self.ipv4) || \
         !has(self.ipv4.blockSizes) && !has(self.ipv4.blockSizeByMaxPods)"
    )
    .message(rules::ONE_SIZE_OF_NAME)
    .field_path(".ipv4.blockSizes"),
    validation = Rule::new(
        "!has(self.podIPPool) || !has(self.ipv6) || \
         !has(self.ipv6.blockSizes) && !has(self.ipv6.blockSizeByMaxPods)"
    )
    .message(rules::ONE_SIZE_OF_NAME)
    .field_path(".ipv6.blockSizes"),
    validation = Rule::new("self.reclaim.usedBelow < self.expand.usedAbove")
        .message(rules::USED_BELOW_ABOVE)
        .field_path(".reclaim.usedBelow")
)]
pub struct NodeIPPoolSpec {
    /// Order of the pools that select a node: a higher priority comes first, and equal priorities are ordered by name.
    /// Default: 0.
    #[serde(default)]
    #[schemars(range(min = -rules::MAX_PRIORITY, max = rules::MAX_PRIORITY))]
    pub priority: i32,

    /// Labels of the nodes that may get blocks of the pool. Default: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,

    /// In Cilium's mode multi-pool: the CiliumPodIPPool under which Cilium serves this pool's blocks. Immutable.
    /// Default: Cilium's default pool (`ipam-default-ip-pool`). No effect in other modes.
    #[serde(default, rename = "podIPPool", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_ip_pool")]
    pub pod_ip_pool: Option<String>,

    /// The IPv4 ranges. A pool needs at least one family. A family can't be removed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ranges::ipv4_ranges")]
    pub ipv4: Option<Ranges>,

    /// The IPv6 ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ranges::ipv6_ranges")]
    pub ipv6: Option<Ranges>,

    /// Whether pods may get the first and last address of an IPv4 block. Blocks of /31 and /32 always offer all
    /// addresses. Default: false.
    #[serde(default, rename = "allowFirstLastIPs")]
    pub allow_first_last_ips: bool,

    /// Limits of one node in each family, over its blocks of all pools. Only the limits of the node's first pool count:
    /// the pool with the highest priority that can give blocks of the family. In the mode multi-pool each
    /// CiliumPodIPPool has its own first pool.
    #[serde(default)]
    pub per_node: PerNode,

    /// When a node gets another block: one of the two thresholds is enough. Only the thresholds of the node's first
    /// pool count.
    #[serde(default)]
    pub expand: Expand,

    /// When surplus blocks of this pool are reclaimed from nodes.
    #[serde(default)]
    pub reclaim: Reclaim,

    /// How routers see the routes of the pool's blocks, with `--routes gobgp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Routes>,

    /// How long a reclaimed block cools before another node may get it. Default: 5m.
    #[serde(default = "defaults::reuse_after")]
    #[schemars(schema_with = "schema::duration")]
    pub reuse_after: String,

    /// How long the blocks of a deleted node cool before another node may get them. Default: 1h.
    #[serde(default = "defaults::reuse_after_node_loss")]
    #[schemars(schema_with = "schema::duration")]
    pub reuse_after_node_loss: String,
}

/// Limits of one node in each family.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.initialBlocks <= self.maxBlocks")
        .message(rules::INITIAL_WITHIN_MAX)
        .field_path(".initialBlocks")
)]
pub struct PerNode {
    /// Minimum number of blocks in the first grant. Default: 1.
    #[serde(default = "defaults::initial_blocks")]
    #[schemars(range(min = 1, max = rules::MAX_BLOCKS_PER_NODE))]
    pub initial_blocks: i32,

    /// Maximum number of blocks. Default: 16.
    #[serde(default = "defaults::max_blocks")]
    #[schemars(range(min = 1, max = rules::MAX_BLOCKS_PER_NODE))]
    pub max_blocks: i32,

    /// Maximum number of addresses. All agents of the cluster receive every change of a node's addresses. Default:
    /// 1024.
    #[serde(default = "defaults::max_addresses")]
    #[schemars(range(min = rules::MIN_ADDRESSES_PER_NODE, max = crate::model::pool::MAX_ADDRESSES_PER_NODE))]
    pub max_addresses: i32,
}

/// When a node gets another block.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expand {
    /// The node gets another block if more than this percentage of its addresses is used. Default: 80.
    #[serde(default = "defaults::used_above")]
    #[schemars(range(min = 1, max = 100))]
    pub used_above: i32,

    /// The node gets another block if it has fewer free addresses. 0 turns this threshold off. Default: 8.
    #[serde(default = "defaults::free_below")]
    #[schemars(range(min = 0, max = crate::model::pool::MAX_ADDRESSES_PER_NODE))]
    pub free_below: i32,
}

/// When blocks are reclaimed.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reclaim {
    /// Enabled reclaims blocks. DryRun reports the blocks that Enabled would reclaim. Disabled does neither. Default:
    /// DryRun.
    #[serde(default)]
    pub mode: ReclaimMode,

    /// A block is surplus only if the node uses less than this percentage of its remaining addresses. Default: 40.
    #[serde(default = "defaults::used_below")]
    #[schemars(range(min = 0, max = 99))]
    pub used_below: i32,

    /// A block is reclaimed only if it has been surplus for this long. Default: 10m.
    #[serde(default = "defaults::after")]
    #[schemars(schema_with = "schema::duration")]
    pub after: String,
}

/// How routers see the routes of blocks.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Routes {
    /// The standard communities of each route, such as 64512:100. Adjacent blocks with other communities stay routes of
    /// their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::communities")]
    pub communities: Vec<String>,
}

/// Whether a pool reclaims blocks.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
#[allow(
    missing_docs,
    reason = "comments on variants make schemars write a `oneOf`, which no structural schema has"
)]
pub enum ReclaimMode {
    Enabled,
    #[default]
    DryRun,
    Disabled,
}

mirror!(ReclaimMode, domain::ReclaimMode { Enabled, DryRun, Disabled });

impl Default for PerNode {
    fn default() -> Self {
        Self {
            initial_blocks: defaults::initial_blocks(),
            max_blocks: defaults::max_blocks(),
            max_addresses: defaults::max_addresses(),
        }
    }
}

impl Default for Expand {
    fn default() -> Self {
        Self { used_above: defaults::used_above(), free_below: defaults::free_below() }
    }
}

impl Default for Reclaim {
    fn default() -> Self {
        Self { mode: ReclaimMode::default(), used_below: defaults::used_below(), after: defaults::after() }
    }
}

/// The finalizers as a merge patch, carrying uid and version.
#[must_use]
pub fn finalizers_patch(write: &PoolFinalizersWrite) -> Value {
    bound_to(&write.uid, write.revision, json!({ "metadata": { "finalizers": write.finalizers } }))
}

/// The defaults of the model as the API writes them: they are in the schema, and are read if the schema wrote none.
mod defaults {
    use std::time::Duration;

    use crate::model::pool::{DEFAULT_REUSE_AFTER, DEFAULT_REUSE_AFTER_NODE_LOSS, Expand, PerNode, Reclaim};

    pub(super) const fn initial_blocks() -> i32 {
        PerNode::DEFAULT.initial_blocks.cast_signed()
    }
    pub(super) const fn max_blocks() -> i32 {
        PerNode::DEFAULT.max_blocks.cast_signed()
    }
    pub(super) const fn max_addresses() -> i32 {
        PerNode::DEFAULT.max_addresses.cast_signed()
    }
    pub(super) const fn used_above() -> i32 {
        Expand::DEFAULT.used_above.cast_signed()
    }
    pub(super) const fn free_below() -> i32 {
        Expand::DEFAULT.free_below.cast_signed()
    }
    pub(super) const fn used_below() -> i32 {
        Reclaim::DEFAULT.used_below.cast_signed()
    }
    pub(super) fn after() -> String {
        text(Reclaim::DEFAULT.after)
    }
    pub(super) fn reuse_after() -> String {
        text(DEFAULT_REUSE_AFTER)
    }
    pub(super) fn reuse_after_node_loss() -> String {
        text(DEFAULT_REUSE_AFTER_NODE_LOSS)
    }

    /// `humantime` separates units with spaces, which the API does not allow.
    fn text(duration: Duration) -> String {
        humantime::format_duration(duration).to_string().replace(' ', "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_says_nothing_has_the_defaults_of_the_model() {
        let pool: NodeIPPool = serde_json::from_value(json!({
            "apiVersion": "nodeipam.io/v1alpha1",
            "kind": "NodeIPPool",
            "metadata": { "name": "p", "uid": "u", "creationTimestamp": "1970-01-01T00:00:09Z" },
            "spec": { "ipv4": { "blockSize": 28 } },
        }))
        .unwrap();
        let pool = domain::Pool::try_from(&pool).unwrap();
        assert_eq!(pool.per_node, domain::PerNode::DEFAULT);
        assert_eq!(pool.expand, domain::Expand::DEFAULT);
        assert_eq!(pool.reclaim, domain::Reclaim::DEFAULT);
        assert_eq!(pool.reuse_after, domain::DEFAULT_REUSE_AFTER);
        assert_eq!(pool.reuse_after_node_loss, domain::DEFAULT_REUSE_AFTER_NODE_LOSS);
    }
}
