//! Pools in a universe of 256 addresses per family, in quarters: so small that pools often meet each other.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use cilium_node_ipam::model::pool::{Expand, FirstLast, PerNode, RangeState, Reclaim, ReclaimMode};
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::mode::OTHER_POOL;

/// The label that pools select nodes by.
pub(super) const LABEL: &str = "zone";

/// The zones of nodes, which pools select. No node is ever in the last one.
pub(super) const ZONES: [&str; 3] = ["a", "b", "nowhere"];

/// How long the blocks of a lost node cool.
pub(super) const REUSE_AFTER_NODE_LOSS: Duration = Duration::from_secs(60);

/// The shape of a pool in a script.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Index into [`ZONES`]; none selects every node.
    zone: Option<u8>,
    priority: i32,
    /// Bits of a block's size. Edits of a pool under a name of Cilium keep it.
    bits: u8,
    /// Bits of the blocks of the nodes in the first zone, if they have another size.
    other_bits: Option<u8>,
    /// Bits of the smallest and of the largest block, if the sizes of other nodes follow from their number of pods.
    by_max_pods: Option<(u8, u8)>,
    /// The states of the four quarters of the universe; `None` where a quarter is not in the pool.
    quarters: [Option<RangeState>; 4],
    /// A place in the universe, and the size in bits of the range that is excluded there.
    exclude: Option<(u8, u8)>,
    first_last: FirstLast,
    per_node: PerNode,
    expand: Expand,
    reclaim: Reclaim,
}

/// Any shape with blocks of these sizes, in bits.
pub(super) fn shape(sizes: RangeInclusive<u8>) -> impl Strategy<Value = Shape> {
    let quarter = || {
        prop_oneof![
            2 => Just(None),
            4 => Just(Some(RangeState::Active)),
            1 => Just(Some(RangeState::Cordoned)),
            1 => Just(Some(RangeState::Draining)),
        ]
    };
    let per_node = (1u32..=3, 0u32..=4, prop_oneof![1 => Just(16u32), 1 => Just(40), 3 => Just(1024)])
        .prop_map(|(initial_blocks, more, max_addresses)| PerNode {
            initial_blocks,
            max_blocks: initial_blocks + more,
            max_addresses,
        });
    let expand =
        (50u32..=100, 0u32..=8).prop_map(|(used_above, free_below)| Expand { used_above, free_below });
    (
        prop_oneof![3 => Just(None), 3 => Just(Some(0)), 2 => Just(Some(1)), 1 => Just(Some(2))],
        -1..=1i32,
        (
            sizes.clone(),
            proptest::option::weighted(0.3, sizes.clone()),
            proptest::option::weighted(0.2, (sizes.clone(), sizes)),
        ),
        [quarter(), quarter(), quarter(), quarter()],
        proptest::option::weighted(0.3, (any::<u8>(), 0u8..=5)),
        prop_oneof![Just(FirstLast::Offered), Just(FirstLast::Excluded)],
        per_node,
        expand,
        reclaim(),
    )
        .prop_map(
            |(
                zone,
                priority,
                (bits, other_bits, by_max_pods),
                quarters,
                exclude,
                first_last,
                per_node,
                expand,
                reclaim,
            )| {
                Shape {
                    zone,
                    priority,
                    bits,
                    other_bits,
                    by_max_pods: by_max_pods.map(|(one, other)| (one.min(other), one.max(other))),
                    quarters,
                    exclude,
                    first_last,
                    per_node,
                    expand,
                    reclaim,
                }
            },
        )
}

/// How blocks are reclaimed: soon, if that is enabled.
fn reclaim() -> impl Strategy<Value = Reclaim> {
    let mode = prop_oneof![6 => Just(ReclaimMode::Enabled), 1 => Just(ReclaimMode::DryRun), 1 => Just(ReclaimMode::Disabled)];
    // Below any `usedAbove`.
    (mode, 20u32..50, proptest::sample::select(vec![20, 40, 60]))
        .prop_map(|(mode, used_below, after)| Reclaim { mode, used_below, after: Duration::from_secs(after) })
}

/// Sets all ranges of a pool to `Draining`.
pub(super) fn drain(pool: &mut Value) {
    for family in Family::ALL {
        let ranges =
            pool["spec"].get_mut(family.to_string()).and_then(|ranges| ranges["cidrs"].as_array_mut());
        for range in ranges.into_iter().flatten() {
            range["state"] = json!("Draining");
        }
    }
}

/// The universe of a family.
fn universe(family: Family) -> Cidr {
    match family {
        Family::V4 => "10.0.0.0/24".parse().expect("it is a prefix"),
        Family::V6 => "fd00::/120".parse().expect("it is a prefix"),
    }
}

/// The place `at` in the universe of a family.
pub(super) fn place(family: Family, at: u8) -> std::net::IpAddr {
    address(universe(family).first() + u128::from(at))
}

impl Shape {
    /// A shape that declares the whole universe, for every node.
    pub(super) fn whole() -> Self {
        Self {
            zone: None,
            priority: 0,
            bits: 4,
            other_bits: None,
            by_max_pods: None,
            quarters: [Some(RangeState::Active); 4],
            exclude: None,
            first_last: FirstLast::Excluded,
            per_node: PerNode { initial_blocks: 1, max_blocks: 4, max_addresses: 1024 },
            expand: Expand { used_above: 80, free_below: 0 },
            reclaim: Reclaim { mode: ReclaimMode::Enabled, used_below: 40, after: Duration::from_secs(20) },
        }
    }

    /// The same with blocks of half the size.
    pub(super) fn of_small_blocks() -> Self {
        Self { bits: 3, ..Self::whole() }
    }

    /// A new pool of this shape, in these families.
    pub(super) fn made(&self, name: &str, families: &BTreeSet<Family>) -> Value {
        let mut spec = json!({
            "reuseAfter": "20s",
            "reuseAfterNodeLoss": format!("{}s", REUSE_AFTER_NODE_LOSS.as_secs()),
        });
        self.declare(&mut spec);
        // Pools 1 and 3 are for Pods that ask for a Cilium pool by name, where Cilium has such names.
        if name.ends_with(['1', '3']) {
            spec["podIPPool"] = json!(OTHER_POOL);
        }
        for family in families {
            let has_name = spec.get("podIPPool").is_some();
            spec[family.to_string()] = self.ranges(*family, None, has_name);
        }
        json!({
            "apiVersion": "nodeipam.io/v1alpha1",
            "kind": "NodeIPPool",
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    /// Edits a pool to this shape. Its families stay, and its block size under a name of Cilium.
    pub(super) fn edit(&self, pool: &mut Value) {
        let spec = &mut pool["spec"];
        self.declare(spec);
        for family in Family::ALL {
            let has_name = spec.get("podIPPool").is_some();
            if let Some(ranges) = spec.get_mut(family.to_string()) {
                let kept = has_name.then(|| ranges["blockSize"].clone());
                *ranges = self.ranges(family, kept.as_ref(), has_name);
            }
        }
    }

    /// Writes the fields that can be edited, except the ranges.
    fn declare(&self, spec: &mut Value) {
        spec["priority"] = json!(self.priority);
        spec["nodeSelector"] =
            self.zone.map_or(json!({}), |zone| json!({ "matchLabels": { LABEL: ZONES[usize::from(zone)] } }));
        spec["allowFirstLastIPs"] = json!(self.first_last == FirstLast::Offered);
        let PerNode { initial_blocks, max_blocks, max_addresses } = self.per_node;
        spec["perNode"] = json!({
            "initialBlocks": initial_blocks,
            "maxBlocks": max_blocks,
            "maxAddresses": max_addresses,
        });
        let Reclaim { mode, used_below, after } = self.reclaim;
        // The API has the names of the variants.
        let mode = format!("{mode:?}");
        spec["reclaim"] =
            json!({ "mode": mode, "usedBelow": used_below, "after": format!("{}s", after.as_secs()) });
        let Expand { used_above, free_below } = self.expand;
        spec["expand"] = json!({ "usedAbove": used_above, "freeBelow": free_below });
    }

    /// The ranges of a family. Under a name of Cilium a pool has blocks of one size.
    fn ranges(&self, family: Family, kept: Option<&Value>, has_name: bool) -> Value {
        let quarters = self.quarters.iter().zip([0, 64, 128, 192]);
        let within = |at: u8, bits: u8| Cidr::containing(place(family, at), family.bits() - bits);
        let range = |(state, at): (&Option<RangeState>, u8)| {
            let state = (*state)?;
            Some(json!({ "cidr": within(at, 6)?.to_string(), "state": format!("{state:?}") }))
        };
        let cidrs: Vec<Value> = quarters.filter_map(range).collect();
        let exclude: Vec<String> =
            self.exclude.into_iter().filter_map(|(at, bits)| Some(within(at, bits)?.to_string())).collect();
        let size = |bits: u8| json!(family.bits() - bits);
        let mut ranges = json!({
            "blockSize": kept.cloned().unwrap_or_else(|| size(self.bits)), "cidrs": cidrs, "exclude": exclude,
        });
        if let Some(bits) = self.other_bits.filter(|_| !has_name) {
            let of_zone = json!({ "matchLabels": { LABEL: ZONES[0] } });
            ranges["blockSizes"] = json!([{ "nodeSelector": of_zone, "blockSize": size(bits) }]);
        }
        if let Some((smallest, largest)) = self.by_max_pods.filter(|_| !has_name) {
            ranges["blockSizeByMaxPods"] = json!({ "smallest": size(smallest), "largest": size(largest) });
        }
        ranges
    }
}
