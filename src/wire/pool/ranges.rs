//! The ranges of a pool in one family, and their schema: one struct whose bounds and rules differ by family.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::selector::NodeSelector;
use crate::model::pool::{self as domain, widest_block};
use crate::net::cidr::Family;
use crate::wire::mirror::mirror;
use crate::wire::rules;
use crate::wire::schema::rule;

/// The ranges of a pool in one family.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.cidrs.all(c, !isCIDR(c.cidr) || cidr(c.cidr).prefixLength() <= self.blockSize)")
        .message(rules::BLOCK_FITS)
        .field_path(".cidrs")
)]
pub struct Ranges {
    /// The prefix length of one block, the unit that a node gets. If it changes, held blocks keep their size.
    pub block_size: i32,

    /// Other sizes for some nodes. The first entry that selects a node counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = rules::MAX_SIZED))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub block_sizes: Vec<SizedNodes>,

    /// The size for all other nodes follows from the number of pods that kubelet allows on the node. Until kubelet has
    /// reported it, blockSize counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_by_max_pods: Option<ByMaxPods>,

    /// The ranges that blocks are cut from.
    #[serde(default)]
    #[schemars(length(max = rules::MAX_CIDRS))]
    #[x_kube(
        merge_strategy = kube::core::ListMerge::Map(vec!["cidr".into()]),
        validation = Rule::new(
            "self.all(a, !isCIDR(a.cidr) || self.all(b, a.cidr == b.cidr || !isCIDR(b.cidr) || \
             !cidr(a.cidr).containsCIDR(b.cidr)))"
        )
        .message(rules::NO_OVERLAP)
    )]
    pub cidrs: Vec<Range>,

    /// Ranges whose addresses pods never get. A block inside such a range is never given to a node.
    #[serde(default)]
    #[schemars(length(max = rules::MAX_EXCLUDES))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub exclude: Vec<String>,
}

/// The size of the blocks of some nodes.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizedNodes {
    /// Labels of the nodes.
    pub node_selector: NodeSelector,
    /// The prefix length of their blocks.
    pub block_size: i32,
}

/// The size of a block follows from the number of pods on its node.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.largest <= self.smallest")
        .message(rules::LARGEST_WITHIN_SMALLEST)
        .field_path(".largest")
)]
pub struct ByMaxPods {
    /// Addresses beside one for each pod: for the agent itself, and for pods that start while others end. Default: 2.
    #[serde(default = "default_headroom")]
    #[schemars(range(min = 0, max = rules::MAX_HEADROOM))]
    pub headroom: i32,
    /// The prefix length of the smallest block.
    pub smallest: i32,
    /// The prefix length of the largest block.
    pub largest: i32,
}

const fn default_headroom() -> i32 {
    2
}

/// One range of a pool.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// The range as a masked CIDR in canonical form.
    pub cidr: String,

    /// Active: nodes get blocks of it. Cordoned: nodes get no more blocks. Draining: nodes get no more blocks, and the
    /// controller reclaims its blocks. Absent: Active.
    // Without a default in the schema: `kubectl apply` replaces a list as a whole, and would find a difference each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RangeState>,
}

/// Whether a range gives out blocks.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
#[allow(
    missing_docs,
    reason = "comments on variants make schemars write a `oneOf`, which no structural schema has"
)]
pub enum RangeState {
    #[default]
    Active,
    Cordoned,
    Draining,
}

mirror!(RangeState, domain::RangeState { Active, Cordoned, Draining });

pub(super) fn ipv4_ranges(generator: &mut SchemaGenerator) -> Schema {
    ranges(generator, Family::V4)
}

pub(super) fn ipv6_ranges(generator: &mut SchemaGenerator) -> Schema {
    ranges(generator, Family::V6)
}

/// The schema of [`Ranges`] with the bounds and rules of one family written into it.
fn ranges(generator: &mut SchemaGenerator, family: Family) -> Schema {
    let (number, cidr_rule, unusable) = match family {
        Family::V4 => (4, rules::IPV4_CIDR, &rules::UNUSABLE_IPV4[..]),
        Family::V6 => (6, rules::IPV6_CIDR, &rules::UNUSABLE_IPV6[..]),
    };
    let mut schema = Ranges::json_schema(generator).to_value();
    let mut put = |pointer: &str, key: &str, value: Value| {
        let target = schema.pointer_mut(pointer).and_then(Value::as_object_mut);
        target.expect("the pointer names a property of Ranges").insert(key.into(), value);
    };
    let is_cidr = rule(&format!("isCIDR(self) && cidr(self).ip().family() == {number}"), cidr_rule);
    // The server can't show the right form: it refuses the message expression `string(cidr(self).masked())` for its
    // cost.
    let canonical = rule("!isCIDR(self) || string(cidr(self).masked()) == self", rules::CANONICAL_CIDR);
    let unusable: Vec<String> = unusable.iter().map(|range| format!("'{range}'")).collect();
    let usable = rule(
        &format!(
            "!isCIDR(self) || cidr(self).ip().family() != {number} || [{}].all(r, !cidr(r).containsCIDR(self) && \
             !cidr(self).containsCIDR(r))",
            unusable.join(", ")
        ),
        rules::USABLE_CIDR,
    );
    for (pointer, validations) in [
        ("/properties/cidrs/items/properties/cidr", json!([is_cidr, canonical, usable])),
        ("/properties/exclude/items", json!([is_cidr, canonical])),
    ] {
        put(pointer, "maxLength", rules::MAX_RANGE_TEXT.into());
        put(pointer, "x-kubernetes-validations", validations);
    }
    for size in [
        "/properties/blockSize",
        "/properties/blockSizes/items/properties/blockSize",
        "/properties/blockSizeByMaxPods/properties/smallest",
        "/properties/blockSizeByMaxPods/properties/largest",
    ] {
        put(size, "minimum", widest_block(family).into());
        put(size, "maximum", family.bits().into());
    }
    Schema::try_from(schema).expect("an object is a schema")
}
