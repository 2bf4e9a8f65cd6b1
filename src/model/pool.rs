//! A pool: a declared set of ranges, and the rules by which nodes get blocks of it.
//!
//! Made from a NodeIPPool by `crate::wire::pool`, which parses and checks it, so a `Pool` is always valid by itself.
//! The ledger decides everything that depends on other pools (overlap). A pool that can't be read leaves a
//! [`Reservation`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube_core::{Selector, SelectorExt};

use crate::model::community::Community;
use crate::model::names::{PodIpPoolName, PoolName, Uid};
use crate::model::node::Node;
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// The largest number of addresses of one family that a node may ever hold (`docs/cilium.md`, Size).
pub const MAX_ADDRESSES_PER_NODE: u32 = 4096;

/// The prefix length of the largest block that the API accepts: the largest one that a cluster without pools gives to a
/// node. A mode may accept less.
#[must_use]
pub const fn widest_block(family: Family) -> u8 {
    match family {
        Family::V4 => 16,
        Family::V6 => 64,
    }
}

/// How long a reclaimed block cools if its pool sets no time.
pub const DEFAULT_REUSE_AFTER: Duration = Duration::from_secs(5 * 60);
/// The same for the blocks of a lost node: its machine may still run, and its pods may still send.
pub const DEFAULT_REUSE_AFTER_NODE_LOSS: Duration = Duration::from_secs(60 * 60);

/// A declared set of ranges and the rules by which nodes get blocks of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// Its uid: a pool that is recreated under the same name is another pool.
    pub uid: Uid,
    /// When it was created. If two pools overlap, the older one keeps the range.
    pub created: Timestamp,
    /// Whether it is being deleted: it gives out no more blocks, and is gone when its last block is free.
    pub deleting: bool,
    /// Nodes get blocks from pools with a higher priority first.
    pub priority: i32,
    /// The nodes that may take from it; an empty selector selects every node.
    pub selector: Selector,
    /// The Cilium pool that its blocks are published under; `None` for the default one of Cilium.
    pub pod_ip_pool: Option<PodIpPoolName>,
    /// Its ranges in each family; at least one.
    pub families: BTreeMap<Family, Ranges>,
    /// Whether first and last address of an IPv4 block are offered.
    pub first_last: FirstLast,
    /// The limits of one node. They apply only to nodes whose first pool this is: in each family, the first one that
    /// selects the node and can give blocks of it.
    pub per_node: PerNode,
    /// When a node gets more blocks; applies only to nodes whose first pool this is.
    pub expand: Expand,
    /// When blocks of this pool are reclaimed.
    pub reclaim: Reclaim,
    /// The communities of the routes of its blocks.
    pub communities: BTreeSet<Community>,
    /// How long a reclaimed block cools.
    pub reuse_after: Duration,
    /// How long the block of a lost node cools.
    pub reuse_after_node_loss: Duration,
}

/// The ranges that stay with a pool that can't be read: it gives out nothing, and no younger pool gets them.
///
/// It follows from the object alone, so that a process that has just started reserves the same
/// (`docs/decisions/0014-an-invalid-pool-keeps-its-ranges.md`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The name of the pool.
    pub name: PoolName,
    /// Its uid.
    pub uid: Uid,
    /// When it was created.
    pub created: Timestamp,
    /// Those of its ranges that can be read. They may overlap each other, unlike the ranges of a valid pool.
    pub cidrs: BTreeSet<Cidr>,
}

/// The ranges of a pool in one family, and the sizes of their blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranges {
    /// The prefix length of one block: up to 32 for IPv4, up to 128 for IPv6. Some nodes may get another size.
    pub block_prefix: u8,
    /// The sizes for some nodes: the first entry that selects a node counts.
    pub sized: Vec<SizedNodes>,
    /// The size of all other nodes, if it follows from the number of their pods.
    pub by_max_pods: Option<ByMaxPods>,
    /// The declared CIDRs; they do not overlap each other.
    pub cidrs: BTreeMap<Cidr, RangeState>,
    /// Prefixes whose addresses are never offered.
    pub exclude: Vec<Cidr>,
}

/// The size of the blocks of some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct SizedNodes {
    /// The nodes.
    pub selector: Selector,
    /// The prefix length of their blocks.
    pub block_prefix: u8,
}

/// The size of a block follows from the number of pods that kubelet allows on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByMaxPods {
    /// The addresses that a block has beside one for each pod.
    pub headroom: u32,
    /// The prefix length of the smallest block.
    pub smallest: u8,
    /// The prefix length of the largest block. At most `smallest`.
    pub largest: u8,
}

/// Where the size of the blocks of a node comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeSource {
    /// It is that of all nodes of the pool.
    Pool,
    /// An entry for the nodes of a selector has it.
    Entry,
    /// It follows from this number of pods that kubelet allows on the node.
    MaxPods(u32),
    /// It would follow from the number of pods, and kubelet has not reported that. It is that of the pool.
    UnknownMaxPods,
}

impl Ranges {
    /// Ranges with blocks of one size, and without exclusions.
    #[must_use]
    pub fn of_blocks(block_prefix: u8, cidrs: BTreeMap<Cidr, RangeState>) -> Self {
        Self { block_prefix, sized: Vec::new(), by_max_pods: None, cidrs, exclude: Vec::new() }
    }

    /// The prefix lengths of the blocks that nodes can get, from the widest.
    #[must_use]
    pub fn sizes(&self) -> BTreeSet<u8> {
        let by_max_pods = self.by_max_pods.map(|by| by.largest..=by.smallest);
        let sized = self.sized.iter().map(|nodes| nodes.block_prefix);
        sized.chain(by_max_pods.into_iter().flatten()).chain([self.block_prefix]).collect()
    }

    /// Whether a CIDR lies wholly in one of its ranges.
    #[must_use]
    pub fn contains(&self, cidr: Cidr) -> bool {
        self.cidrs.keys().any(|declared| declared.covers(cidr))
    }
}

/// Whether a CIDR of a pool gives out blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeState {
    /// Blocks are given out.
    Active,
    /// No new blocks; held ones stay.
    Cordoned,
    /// No new blocks, and held ones are reclaimed when no pod uses them any more.
    Draining,
}

/// Whether first and last address of an IPv4 block are offered (Cilium's `allowFirstLastIPs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLast {
    /// They are not, except in `/31` and `/32`, which offer all addresses.
    Excluded,
    /// They are.
    Offered,
}

/// The limits of one node, per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerNode {
    /// The minimum number of blocks of the first grant.
    pub initial_blocks: u32,
    /// The maximum number of blocks.
    pub max_blocks: u32,
    /// The maximum number of offered addresses, at most [`MAX_ADDRESSES_PER_NODE`].
    pub max_addresses: u32,
}

impl PerNode {
    /// The limits if a pool declares none.
    pub const DEFAULT: Self = Self { initial_blocks: 1, max_blocks: 16, max_addresses: 1024 };
}

/// When a node gets more blocks: as soon as one of the two thresholds is crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expand {
    /// More than this percentage of the published addresses is used.
    pub used_above: u32,
    /// Fewer addresses than this are free.
    pub free_below: u32,
}

impl Expand {
    /// The thresholds if a pool declares none.
    pub const DEFAULT: Self = Self { used_above: 80, free_below: 8 };
}

/// When blocks are reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reclaim {
    /// Whether they are reclaimed at all.
    pub mode: ReclaimMode,
    /// A block is reclaimed only if less than this percentage would be used without it.
    pub used_below: u32,
    /// How long this must have been true; it is checked twice.
    pub after: Duration,
}

impl Reclaim {
    /// The values if a pool declares none.
    pub const DEFAULT: Self =
        Self { mode: ReclaimMode::DryRun, used_below: 40, after: Duration::from_secs(10 * 60) };
}

/// Whether a pool reclaims blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimMode {
    /// It does.
    Enabled,
    /// It reports the blocks that it would reclaim.
    DryRun,
    /// It does not look for blocks to reclaim.
    Disabled,
}

impl Pool {
    /// The prefix length of its blocks of a family, for nodes that no entry gives another size. `None` if the pool has no
    /// ranges of the family.
    #[must_use]
    pub fn block_prefix(&self, family: Family) -> Option<u8> {
        self.families.get(&family).map(|ranges| ranges.block_prefix)
    }

    /// The prefix length of the blocks of a family that a node gets, and why. `None` as for [`Self::block_prefix`].
    #[must_use]
    pub fn size_for(&self, node: &Node, family: Family) -> Option<(u8, SizeSource)> {
        let ranges = self.families.get(&family)?;
        if let Some(sized) = ranges.sized.iter().find(|sized| sized.selector.matches(&node.labels)) {
            return Some((sized.block_prefix, SizeSource::Entry));
        }
        let Some(by) = ranges.by_max_pods else { return Some((ranges.block_prefix, SizeSource::Pool)) };
        let Some(max_pods) = node.max_pods.filter(|max_pods| *max_pods > 0) else {
            return Some((ranges.block_prefix, SizeSource::UnknownMaxPods));
        };
        let wanted = u128::from(max_pods) + u128::from(by.headroom);
        // Agents of other modes than crd never give out the first and the last address of a block.
        let fits = |prefix: &u8| family.size_of(*prefix).saturating_sub(2) >= wanted;
        let size = (by.largest..=by.smallest).rev().find(fits).unwrap_or(by.largest);
        Some((size, SizeSource::MaxPods(max_pods)))
    }

    /// The maximum number of addresses that a block of the family and this prefix length offers: one without exclusions
    /// and addresses of nodes in it.
    #[must_use]
    pub fn max_offered(&self, family: Family, prefix: u8) -> u128 {
        let size = family.size_of(prefix);
        if self.excludes_edges(family, size) { size - 2 } else { size }
    }

    /// Whether the first and the last address of a block of this size are not offered.
    fn excludes_edges(&self, family: Family, size: u128) -> bool {
        family == Family::V4 && self.first_last == FirstLast::Excluded && size > 2
    }

    /// The addresses of `block` that this pool does not offer: exclusions, first and last address, and those of
    /// `node_addresses` that lie in it.
    ///
    /// They are fixed in the claim when it is created; later edits of the pool apply to new blocks only.
    #[must_use]
    pub fn excluded(&self, block: Cidr, node_addresses: &AddressSet) -> AddressSet {
        let mut excluded = AddressSet::new();
        for exclusion in self.families.get(&block.family()).map_or(&[][..], |ranges| &ranges.exclude) {
            if exclusion.covers(block) {
                excluded.insert_cidr(block);
            } else if block.covers(*exclusion) {
                excluded.insert_cidr(*exclusion);
            }
        }
        excluded.extend_with(&self.excluded_edges(block));
        excluded.extend_with(&node_addresses.within(block));
        excluded
    }

    /// Of these, the first and the last address, which are kept back in every block.
    #[must_use]
    pub fn excluded_edges(&self, block: Cidr) -> AddressSet {
        let ends = [block.first_address(), block.last_address()];
        ends.into_iter().filter(|_| self.excludes_edges(block.family(), block.size())).collect()
    }
}
