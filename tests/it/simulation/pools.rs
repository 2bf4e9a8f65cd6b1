//! Pools in a universe so small that they keep meeting each other: 256 addresses per family, in quarters.

use std::collections::BTreeMap;
use std::time::Duration;

use cilium_node_ipam::model::names::{PoolName, Uid};
use cilium_node_ipam::model::observation::PoolObject;
use cilium_node_ipam::model::pool::{
    Expand, FirstLast, PerNode, Pool, RangeState, Ranges, Reclaim, ReclaimMode,
};
use cilium_node_ipam::model::revision::Revision;
use cilium_node_ipam::model::status::PoolStatus;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::Selector;
use proptest::prelude::*;

/// The label that pools select by.
pub(super) const LABEL: &str = "zone";

/// Where nodes are and what pools select; no node is ever in the last one.
pub(super) const ZONES: [&str; 3] = ["a", "b", "nowhere"];

/// What a pool of a script looks like.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Index into [`ZONES`]; none selects every node.
    zone: Option<u8>,
    priority: i32,
    /// Bits of a block's size; kept by edits.
    bits: u8,
    /// The states of the four quarters of the universe, where they belong to the pool.
    quarters: [Option<RangeState>; 4],
    /// A place in the universe and the bits of the size of what is excluded there.
    exclude: Option<(u8, u8)>,
    first_last: FirstLast,
    per_node: PerNode,
    expand: Expand,
}

pub(super) fn shape() -> impl Strategy<Value = Shape> {
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
        2u8..=4,
        [quarter(), quarter(), quarter(), quarter()],
        proptest::option::weighted(0.3, (any::<u8>(), 0u8..=5)),
        prop_oneof![Just(FirstLast::Offered), Just(FirstLast::Withheld)],
        per_node,
        expand,
    )
        .prop_map(|(zone, priority, bits, quarters, exclude, first_last, per_node, expand)| Shape {
            zone,
            priority,
            bits,
            quarters,
            exclude,
            first_last,
            per_node,
            expand,
        })
}

/// The first address of the universe of a family.
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
    /// One that declares the whole universe, for every node.
    pub(super) fn whole() -> Self {
        Self {
            zone: None,
            priority: 0,
            bits: 4,
            quarters: [Some(RangeState::Active); 4],
            exclude: None,
            first_last: FirstLast::Withheld,
            per_node: PerNode { initial_blocks: 1, max_blocks: 4, max_addresses: 1024 },
            expand: Expand { used_above: 80, free_below: 0 },
        }
    }

    /// A new pool of this shape, in these families.
    pub(super) fn made(
        &self,
        name: &PoolName,
        uid: Uid,
        created: Timestamp,
        families: impl Iterator<Item = Family>,
    ) -> PoolObject {
        let families =
            families.map(|family| (family, self.ranges(family, family.bits() - self.bits))).collect();
        let pool = Pool {
            name: name.clone(),
            uid: uid.clone(),
            created,
            deleting: false,
            priority: self.priority,
            selector: self.selector(),
            families,
            first_last: self.first_last,
            per_node: self.per_node,
            expand: self.expand,
            reclaim: Reclaim { mode: ReclaimMode::Enabled, used_below: 40, after: Duration::from_secs(10) },
            reuse_after: Duration::from_secs(20),
            reuse_after_node_loss: Duration::from_secs(60),
        };
        PoolObject {
            name: name.clone(),
            uid,
            revision: Revision::of(1),
            pool: Ok(pool),
            deleting: false,
            finalizers: Vec::new(),
            generation: 1,
            status: PoolStatus::default(),
            transitions: BTreeMap::new(),
        }
    }

    /// The pool `before` edited to this shape. Block sizes and families can't be.
    pub(super) fn edited(&self, before: &PoolObject) -> PoolObject {
        let mut after = before.clone();
        if let Ok(pool) = &mut after.pool {
            for (family, ranges) in &mut pool.families {
                *ranges = self.ranges(*family, ranges.block_prefix);
            }
            pool.selector = self.selector();
            pool.priority = self.priority;
            pool.first_last = self.first_last;
            pool.per_node = self.per_node;
            pool.expand = self.expand;
            after.generation += 1;
        }
        after
    }

    fn ranges(&self, family: Family, block_prefix: u8) -> Ranges {
        let quarters = self.quarters.iter().zip([0, 64, 128, 192]);
        let within = |at: u8, bits: u8| Cidr::containing(place(family, at), family.bits() - bits);
        Ranges {
            block_prefix,
            cidrs: quarters.filter_map(|(state, at)| Some((within(at, 6)?, (*state)?))).collect(),
            exclude: self.exclude.into_iter().filter_map(|(at, bits)| within(at, bits)).collect(),
        }
    }

    fn selector(&self) -> Selector {
        let Some(zone) = self.zone else { return Selector::default() };
        let labels = [(LABEL.to_owned(), ZONES[usize::from(zone)].to_owned())];
        let selector = LabelSelector { match_labels: Some(labels.into()), match_expressions: None };
        selector.try_into().expect("a label and a value make a selector")
    }
}
