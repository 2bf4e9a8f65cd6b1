//! What the server accepts and what will not work as it is written: warnings about one pool by itself.
//!
//! Knows no cluster. A warning is a [`FieldError`] whose rule says what will happen.

use super::NodeIPPool;
use crate::ledger::grid::{Declared, Grid};
use crate::model::counted::{counted, shown};
use crate::model::pool::{Pool, RangeState, Ranges};
use crate::net::cidr::{Cidr, Family};
use crate::wire::FieldError;

/// The warnings about `pool`, which was read from `wire`.
pub(in crate::wire) fn warnings(wire: &NodeIPPool, pool: &Pool) -> Vec<FieldError> {
    let mut warnings = Vec::new();
    for (family, ranges) in &pool.families {
        let declared = match family {
            Family::V4 => &wire.spec.ipv4,
            Family::V6 => &wire.spec.ipv6,
        };
        // The model keeps CIDRs in numeric order, the field says where they are written.
        let written: Vec<&str> =
            declared.iter().flat_map(|ranges| &ranges.cidrs).map(|range| range.cidr.as_str()).collect();
        warnings.extend(excluded(pool, *family, ranges, &written));
        warnings.extend(excluding_nothing(*family, ranges));
        match wide(*family, ranges) {
            Some(warning) => warnings.push(warning),
            None => warnings.extend(beyond_limits(pool, *family)),
        }
    }
    warnings
}

/// CIDRs that give no block, because every address in them is excluded.
fn excluded(pool: &Pool, family: Family, ranges: &Ranges, written: &[&str]) -> Vec<FieldError> {
    let Some((grid, _)) = Grid::of(pool, family, &Declared::default()) else {
        return Vec::new();
    };
    let gives_none = |cidr: &Cidr| grid.usable().runs_within(grid.span(*cidr)).next().is_none();
    let active = ranges.cidrs.iter().filter(|(_, state)| **state == RangeState::Active);
    active
        .filter(|(cidr, _)| gives_none(cidr))
        .map(|(cidr, _)| {
            let text = cidr.to_string();
            let index = written.iter().position(|written| *written == text).unwrap_or_default();
            FieldError::new(
                format!("spec.{family}.cidrs[{index}].cidr"),
                &text,
                format!("gives no block: spec.{family}.exclude excludes all of its addresses"),
            )
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

/// Blocks that not every mode of Cilium takes. A file does not tell the mode.
fn wide(family: Family, ranges: &Ranges) -> Option<FieldError> {
    // 1024 addresses, which `perNode.maxAddresses` has room for unless it is set.
    let everywhere = family.bits() - 10;
    (ranges.block_prefix < everywhere).then(|| {
        let rule = format!(
            "works only in Cilium's modes cluster-pool and kubernetes: in mode crd the limit is /{everywhere}, \
             in mode multi-pool a block of perNode.maxAddresses"
        );
        FieldError::new(format!("spec.{family}.blockSize"), &ranges.block_prefix, rule)
    })
}

/// A first grant or a threshold that no node can reach within `perNode`, if it holds whole blocks of this pool only.
fn beyond_limits(pool: &Pool, family: Family) -> Vec<FieldError> {
    let (per_node, free_below) = (pool.per_node, pool.expand.free_below);
    let of_block = pool.max_offered(family);
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
    // An agent keeps an address of the first block for itself, so that many are never free.
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
