//! Warnings about one pool by itself: settings that the server accepts and that will not work as written, or do harm.
//!
//! Knows no cluster. A warning is a [`FieldError`] with the consequence as its rule.

use std::time::Duration;

use super::NodeIPPool;
use crate::ledger::grid::{Declared, Grid};
use crate::model::counted::{counted, shown};
use crate::model::pool::{PerNode, Pool, RangeState, Ranges};
use crate::net::cidr::{Cidr, Family};
use crate::wire::FieldError;

/// The warnings about `pool`, which was read from `wire`.
pub(in crate::wire) fn warnings(wire: &NodeIPPool, pool: &Pool) -> Vec<FieldError> {
    let mut warnings = Vec::new();
    warnings.extend(every_node(wire));
    warnings.extend(short_loss(wire, pool));
    for (family, ranges) in &pool.families {
        let declared = match family {
            Family::V4 => &wire.spec.ipv4,
            Family::V6 => &wire.spec.ipv6,
        };
        // The model keeps CIDRs in numeric order; the path of a field has their order in the object.
        let written: Vec<&str> =
            declared.iter().flat_map(|ranges| &ranges.cidrs).map(|range| range.cidr.as_str()).collect();
        warnings.extend(excluded(pool, *family, ranges, &written));
        warnings.extend(excluding_nothing(*family, ranges));
        warnings.extend(not_private(*family, ranges, &written));
        warnings.extend(few_blocks(pool, *family));
        if let Some(warning) = wide(*family, ranges) {
            warnings.push(warning);
            continue;
        }
        let beyond = beyond_limits(pool, *family);
        // A threshold that no node can reach is the larger problem of the two.
        if beyond.is_empty() {
            warnings.extend(small_blocks(pool, *family));
        }
        warnings.extend(beyond);
    }
    warnings
}

/// How many blocks of `family` a pool has, and how many are left if `older` is the older pool.
#[must_use]
pub fn blocks_beside(pool: &Pool, older: &Pool, family: Family) -> (u128, u128) {
    let mut declared = Declared::default();
    for (family, ranges) in &older.families {
        for cidr in ranges.cidrs.keys() {
            declared.insert(*cidr, (older.name.clone(), *family));
        }
    }
    let level = (family, pool.block_prefix(family).unwrap_or_default());
    let left = Grid::of(pool, level, &declared).map_or(0, |grid| grid.usable().len());
    (blocks(pool, family), left)
}

/// How many blocks a pool has by itself.
fn blocks(pool: &Pool, family: Family) -> u128 {
    let level = (family, pool.block_prefix(family).unwrap_or_default());
    Grid::of(pool, level, &Declared::default()).map_or(0, |grid| grid.usable().len())
}

/// A pool without a selector.
fn every_node(wire: &NodeIPPool) -> Option<FieldError> {
    let selector = wire.spec.node_selector.as_ref();
    let is_empty = selector
        .is_none_or(|selector| selector.match_labels.is_empty() && selector.match_expressions.is_empty());
    is_empty.then(|| {
        let rule =
            "is empty: the pool serves every node at once, and each node keeps its first block for its life";
        FieldError::absent("spec.nodeSelector", rule)
    })
}

/// The shortest wait for the blocks of a lost node that gives an administrator time to turn its machine off.
const SHORTEST_LOSS: Duration = Duration::from_secs(10 * 60);

/// A wait after which the machine of a deleted Node may still run.
fn short_loss(wire: &NodeIPPool, pool: &Pool) -> Option<FieldError> {
    (pool.reuse_after_node_loss < SHORTEST_LOSS).then(|| {
        let rule = "is short: the machine of a deleted Node may still run, and another node gets the addresses of its \
             pods after this time; use at least 10m";
        FieldError::new("spec.reuseAfterNodeLoss", &wire.spec.reuse_after_node_loss, rule)
    })
}

/// RFC 1918.
const PRIVATE: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];
/// RFC 6598.
const SHARED: &str = "100.64.0.0/10";

/// IPv4 ranges outside of private space. IPv6 has global addresses for every pod.
fn not_private(family: Family, ranges: &Ranges, written: &[&str]) -> Vec<FieldError> {
    let is_in = |cidr: Cidr, outer: &str| outer.parse::<Cidr>().is_ok_and(|outer| outer.covers(cidr));
    let cidrs = ranges.cidrs.keys().filter(|_| family == Family::V4);
    let warned = cidrs.filter_map(|cidr| {
        let instead = "prefer 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16";
        if PRIVATE.iter().any(|outer| is_in(*cidr, outer)) {
            return None;
        }
        let rule = if is_in(*cidr, SHARED) {
            format!("is shared address space ({SHARED}), which some clouds and VPNs use for nodes; {instead}")
        } else {
            format!("is public address space: pods can't reach its owners; {instead}")
        };
        Some(about_cidr(family, written, *cidr, rule))
    });
    warned.collect()
}

/// A warning about one of the CIDRs, which were written in this order.
fn about_cidr(family: Family, written: &[&str], cidr: Cidr, rule: String) -> FieldError {
    let text = cidr.to_string();
    let index = written.iter().position(|written| *written == text).unwrap_or_default();
    FieldError::new(format!("spec.{family}.cidrs[{index}].cidr"), &text, rule)
}

/// A pool that has fewer blocks than one node may take.
fn few_blocks(pool: &Pool, family: Family) -> Option<FieldError> {
    let (n_blocks, per_node) = (blocks(pool, family), pool.per_node);
    let has = format!("has {}", counted(n_blocks, "block"));
    let rule = if n_blocks == 0 {
        // All are excluded or not Active: on purpose, or another warning says so.
        return None;
    } else if n_blocks < per_node.initial_blocks.into() {
        format!(
            "{has}, fewer than perNode.initialBlocks of {}: no node gets its whole first grant",
            per_node.initial_blocks
        )
    } else if n_blocks == 1 {
        format!("{has}: one node can start, and no other")
    } else if n_blocks <= per_node.max_blocks.into() && per_node.max_blocks != PerNode::DEFAULT.max_blocks {
        format!("{has}, and perNode.maxBlocks is {}: one node can take all of them", per_node.max_blocks)
    } else {
        return None;
    };
    Some(FieldError::absent(format!("spec.{family}.cidrs"), rule))
}

/// Addresses that an agent takes for itself before the first pod: router, health endpoint and ingress.
const OF_AGENT: u32 = 3;

/// Blocks so small that a new node needs more of them at once than its first grant has.
fn small_blocks(pool: &Pool, family: Family) -> Option<FieldError> {
    let prefix = pool.block_prefix(family).unwrap_or_default();
    let of_block = pool.max_offered(family, prefix);
    let wanted = u128::from(pool.expand.free_below + OF_AGENT);
    let n_blocks = wanted.div_ceil(of_block.max(1));
    (n_blocks > pool.per_node.initial_blocks.into()).then(|| {
        let rule = format!(
            "is small: a block has {}, so a new node takes {} at once; expand.freeBelow is {}, and its agent uses \
             up to {OF_AGENT}",
            counted(of_block, "address"),
            counted(n_blocks, "block"),
            pool.expand.free_below
        );
        FieldError::new(format!("spec.{family}.blockSize"), &prefix, rule)
    })
}

/// CIDRs that give no block, because every address in them is excluded.
fn excluded(pool: &Pool, family: Family, ranges: &Ranges, written: &[&str]) -> Vec<FieldError> {
    // If no small block is left of a range, no large one is.
    let narrowest = ranges.sizes().last().copied().unwrap_or_default();
    let Some(grid) = Grid::of(pool, (family, narrowest), &Declared::default()) else {
        return Vec::new();
    };
    let gives_none = |cidr: &Cidr| grid.usable().runs_within(grid.span(*cidr)).next().is_none();
    let active = ranges.cidrs.iter().filter(|(_, state)| **state == RangeState::Active);
    active
        .filter(|(cidr, _)| gives_none(cidr))
        .map(|(cidr, _)| {
            let rule = format!("gives no block: spec.{family}.exclude excludes all of its addresses");
            about_cidr(family, written, *cidr, rule)
        })
        .collect()
}

/// Exclusions that lie outside of every CIDR.
fn excluding_nothing(family: Family, ranges: &Ranges) -> impl Iterator<Item = FieldError> {
    let outside = |exclusion: &Cidr| !ranges.cidrs.keys().any(|cidr| cidr.overlaps(*exclusion));
    ranges.exclude.iter().enumerate().filter(move |(_, exclusion)| outside(exclusion)).map(
        move |(index, exclusion)| {
            FieldError::new(
                format!("spec.{family}.exclude[{index}]"),
                &exclusion.to_string(),
                format!("excludes nothing: it is outside of spec.{family}.cidrs"),
            )
        },
    )
}

/// Blocks that are too large for some modes of Cilium. A file does not show the mode.
fn wide(family: Family, ranges: &Ranges) -> Option<FieldError> {
    // 1024 addresses: the default of `perNode.maxAddresses`.
    let everywhere = family.bits() - 10;
    let widest = ranges.sizes().first().copied()?;
    (widest < everywhere).then(|| {
        let rule = format!(
            "works only in Cilium's modes cluster-pool and kubernetes: in mode crd the limit is /{everywhere}, \
             in mode multi-pool a block of perNode.maxAddresses"
        );
        let field = if widest == ranges.block_prefix { "blockSize" } else { "blockSizes" };
        FieldError::new(format!("spec.{family}.{field}"), &widest, rule)
    })
}

/// A first grant or a threshold that no node can reach within `perNode`, if it holds only complete blocks of this pool.
fn beyond_limits(pool: &Pool, family: Family) -> Vec<FieldError> {
    let (per_node, free_below) = (pool.per_node, pool.expand.free_below);
    let of_block = pool.max_offered(family, pool.block_prefix(family).unwrap_or_default());
    let addresses = |n: u128| counted(n, &format!("{family} address"));
    let blocks_that_fit = u128::from(per_node.max_addresses) / of_block.max(1);
    if blocks_that_fit == 0 {
        let rule = format!("is less than the {} of one block: nodes get no block", addresses(of_block));
        return vec![FieldError::new("spec.perNode.maxAddresses", &per_node.max_addresses, rule)];
    }
    let mut warnings = Vec::new();
    if u128::from(per_node.initial_blocks) > blocks_that_fit {
        let rule = format!(
            "is more than nodes can get: perNode.maxAddresses of {} has room for {} of {}",
            per_node.max_addresses,
            counted(blocks_that_fit, "block"),
            addresses(of_block)
        );
        warnings.push(FieldError::new("spec.perNode.initialBlocks", &per_node.initial_blocks, rule));
    }
    let most = of_block * blocks_that_fit.min(per_node.max_blocks.into());
    // An agent keeps an address of the first block for itself, so a node never has all of them free.
    if u128::from(free_below) >= most {
        let rule = format!(
            "is more than a node can have free: it gets at most {} (perNode.maxBlocks {}, perNode.maxAddresses \
             {}, {} in a block); every node takes its maximum and is then reported as NodeAtLimit",
            addresses(most),
            per_node.max_blocks,
            per_node.max_addresses,
            shown(of_block)
        );
        warnings.push(FieldError::new("spec.expand.freeBelow", &free_below, rule));
    }
    warnings
}
