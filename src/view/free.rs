//! The free blocks of a pool, and the occupants without a claim that take the others.
//!
//! The memory of this process counts too: lost claims, and the addresses of a CiliumNode that is away. A claim that is
//! being created does not count: the server may refuse it, and each try would change the status of the pool twice.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::ledger::Occupant;
use crate::ledger::free_blocks::FreeBlocks;
use crate::model::claim::Claim;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName, ten_of};
use crate::model::pool::Pool;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::world::World;

/// The free blocks of a pool of this prefix length, and those whose claims are being created; `None` if they are too
/// wide. Costs a copy of them while a claim is being created in its ranges.
pub(super) fn free_blocks<'a>(
    world: &'a World,
    pool: &Pool,
    family: Family,
    prefix: u8,
) -> Option<Cow<'a, FreeBlocks>> {
    if prefix < world.reader().widest_block(family) {
        return None;
    }
    let free = world.ledger().free_blocks(&pool.name, family, prefix)?;
    let pending: Vec<Cidr> = ranges(pool, family).flat_map(|range| world.pending_in(range)).collect();
    if pending.is_empty() {
        return Some(Cow::Borrowed(free));
    }
    let mut free = free.clone();
    for cidr in pending {
        // A held block counts as a block, also where the pool gives out none.
        free.unhold(cidr);
        let region = free.grid().whole(cidr);
        let taken = world.ledger().overlapping(region).filter(|(_, of)| **of != Occupant::Pending);
        free.vacate(region, taken.map(|(cidr, _)| cidr));
    }
    Some(Cow::Owned(free))
}

/// The free blocks that no node gets, because every address is excluded or belongs to a node itself. Where agents can't
/// be kept from single addresses, one such address is enough. Costs a look at the addresses of nodes in the ranges of
/// the pool.
pub(super) fn useless_blocks(world: &World, pool: &Pool, family: Family, free: &FreeBlocks) -> Vec<Cidr> {
    let mut useless = Vec::new();
    let exclusions = pool.families.get(&family).map_or(&[][..], |ranges| &ranges.exclude);
    let is_whole_only = world.reader().traits().gives_whole_blocks;
    for range in ranges(pool, family) {
        let addresses = world.node_addresses_in(range);
        let mut suspects = addresses.clone();
        for exclusion in exclusions {
            if is_whole_only && range.covers(*exclusion) {
                suspects.insert(exclusion.first_address());
            }
        }
        let mut last = None;
        for address in suspects.iter() {
            let block = free.grid().block(free.grid().span(Cidr::single(address)).first);
            let is_useless = || world.reader().n_offered(block, &pool.excluded(block, &addresses)) == 0;
            if last.replace(block) != Some(block)
                && free.is_free(block)
                // Most nodes have one address in a block of many, so excluded addresses are rarely computed.
                && (is_whole_only
                    || !exclusions.is_empty()
                    || addresses.count_in(block) >= pool.max_offered(family, block.prefix_len()))
                && is_useless()
            {
                useless.push(block);
            }
        }
    }
    useless
}

/// The occupants of addresses in the ranges of a pool, as far as they have no claim of these. An unreadable claim is
/// the occupant itself, and not the CiliumNode that carries its block.
pub(super) fn unclaimed<'a>(world: &'a World, pool: &Pool) -> BTreeMap<&'a Occupant, Vec<Cidr>> {
    let mut unclaimed: BTreeMap<&Occupant, Vec<Cidr>> = BTreeMap::new();
    for range in pool.families.keys().flat_map(|family| ranges(pool, *family)) {
        for (cidr, occupant) in world.ledger().unclaimed_in(range) {
            // Other pools report the addresses beside the range, and these do not wake this pool.
            unclaimed.entry(occupant).or_default().push(if cidr.covers(range) { range } else { cidr });
        }
    }
    for (occupant, cidrs) in &mut unclaimed {
        if matches!(occupant, Occupant::Carried(_)) {
            *cidrs = without_unreadable_claims(world, cidrs);
        }
    }
    unclaimed.retain(|_, cidrs| !cidrs.is_empty());
    unclaimed
}

/// The claims that take blocks of a pool and are not of this pool. Costs a pass over everything
/// taken in its ranges.
pub(super) fn other_claims<'a>(world: &'a World, pool: &Pool) -> BTreeMap<Cidr, &'a Claim> {
    let blocks = pool.families.keys().flat_map(|family| ranges(pool, *family));
    let blocks = blocks.flat_map(|range| world.ledger().overlapping_claims(range));
    let claims = blocks.filter(|block| !world.is_unreadable_claim(*block));
    let claims = claims.filter_map(|block| world.claim(block)).map(|known| &known.claim);
    let is_other = |claim: &&Claim| claim.pool != pool.name;
    let takes_some = |claim: &&Claim| takes_blocks_of(world, pool, claim.cidr);
    claims.filter(is_other).filter(takes_some).map(|claim| (claim.cidr, claim)).collect()
}

/// Whether these addresses take blocks that the pool would give out. Blocks that an older pool keeps, excluded blocks,
/// and blocks of closed ranges are not among them.
pub(super) fn takes_blocks_of(world: &World, pool: &Pool, cidr: Cidr) -> bool {
    world.ledger().levels(&pool.name, cidr.family()).any(|free| {
        let grid = free.grid();
        grid.usable().runs_touching(grid.span(cidr)).next().is_some()
    })
}

/// These ranges without those of unreadable claims.
fn without_unreadable_claims(world: &World, cidrs: &[Cidr]) -> Vec<Cidr> {
    let unclaimed = cidrs.iter().flat_map(|cidr| world.ledger().unclaimed_in(*cidr));
    let claimed = unclaimed.filter(|(_, occupant)| matches!(occupant, Occupant::Unreadable(Kind::Claim, _)));
    let mut claimed = claimed.map(|(claimed, _)| claimed).peekable();
    if claimed.peek().is_none() {
        return cidrs.to_vec();
    }
    let mut left: AddressSet = cidrs.iter().copied().collect();
    for claimed in claimed {
        left.remove_cidr(claimed);
    }
    left.cidrs().collect()
}

pub(super) fn ranges(pool: &Pool, family: Family) -> impl Iterator<Item = Cidr> {
    pool.families.get(&family).into_iter().flat_map(|ranges| ranges.cidrs.keys().copied())
}

/// The findings about addresses in the ranges of pools that are not ours to give. Objects that can't be read have
/// findings of their own.
#[must_use]
pub fn findings(world: &World) -> Vec<Finding> {
    let mut carried: BTreeMap<&NodeName, (Vec<Cidr>, Vec<&PoolName>)> = BTreeMap::new();
    let mut findings = Vec::new();
    for pool in world.readable_pools() {
        for (occupant, mut cidrs) in unclaimed(world, pool) {
            let Occupant::Carried(node) = occupant else { continue };
            cidrs.retain(|cidr| !is_about_to_be_claimed(world, pool, node, *cidr));
            if !cidrs.is_empty() {
                let (of_node, pools) = carried.entry(node).or_default();
                of_node.extend(cidrs);
                pools.push(&pool.name);
            }
        }
        for family in pool.families.keys() {
            let Some(free) =
                pool.block_prefix(*family).and_then(|prefix| free_blocks(world, pool, *family, prefix))
            else {
                continue;
            };
            let useless = useless_blocks(world, pool, *family, &free);
            if !useless.is_empty() {
                let (reader, blocks, name) = (world.reader(), ten_of(useless), pool.name.as_str());
                let message = if reader.traits().gives_whole_blocks {
                    format!(
                        "agents in Cilium's mode {reader} use every address of a block, and these blocks have \
                         excluded or reserved addresses; nodes don't get them: {blocks}; exclude whole blocks"
                    )
                } else {
                    format!(
                        "these blocks have only addresses of nodes themselves, and nodes don't get them: \
                         {blocks}; exclude the network of the nodes, or remove it from `cidrs`"
                    )
                };
                findings.push(Finding::new(FindingKind::ForeignAddresses, Kind::Pool, name, message));
            }
        }
    }
    findings.extend(carried.into_iter().map(|(node, (cidrs, pools))| {
        let kind = world.reader().traits().carrier;
        let message = format!(
            "it has {} without a claim, in the ranges of pool {}: other nodes get no blocks there; remove them \
             from the {} once no pod uses them",
            ten_of(cidrs),
            ten_of(pools),
            kind.as_str(),
        );
        Finding::new(FindingKind::ForeignAddresses, kind, node.as_str(), message)
    }));
    findings
}

/// Whether a CIDR on a CiliumNode is a block of the pool, and its claim is being created or will be created at once.
fn is_about_to_be_claimed(world: &World, pool: &Pool, node: &NodeName, cidr: Cidr) -> bool {
    let is_block = world.sizes_of(pool, cidr.family()).contains(&cidr.prefix_len());
    let is_own = |(taken, occupant): (Cidr, &Occupant)| match occupant {
        Occupant::Carried(holder) => holder == node,
        Occupant::Pending => taken == cidr,
        Occupant::Claim | Occupant::LostClaim(_) | Occupant::Unreadable(..) => false,
    };
    is_block
        && world.node(node).is_some()
        && world.ledger().overlapping(cidr).all(is_own)
        && world.carrier(node).is_some_and(|carrier| {
            let reader = world.reader();
            reader.blocks(carrier).contains(&cidr) && reader.is_of_pool(carrier, cidr, pool)
        })
}
