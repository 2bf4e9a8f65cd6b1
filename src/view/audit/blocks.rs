//! Pools, claims and carriers compared with each other.

use super::catalog::Check;
use super::found::Found;
use crate::model::claim::{Claim, ClaimState, block_name};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_of};
use crate::net::cidr::Cidr;
use crate::view::duplicates::duplicates;
use crate::view::free;
use crate::world::World;

const BLOCK: &str = Kind::Claim.as_str();
const CILIUM_NODE: &str = Kind::CiliumNode.as_str();

pub(super) fn look(world: &World, found: &mut Found) {
    for pool in world.pool_objects() {
        for overlap in world.ledger().overlaps(&pool.name) {
            let cause = format!("the older pool {} keeps the addresses that both declare", overlap.older);
            let detail = overlap.mine.to_string();
            found.add(Check::PoolsOverlap, Kind::Pool.as_str(), pool.name.as_str(), cause, detail);
        }
    }
    for known in world.claims() {
        of_claim(world, &known.claim, found);
    }
    carried_twice(world, found);
    for node in world.nodes() {
        outside_pools(world, &node.name, found);
    }
    for finding in free::findings(world) {
        let check = if finding.subject == Kind::Pool.into() {
            Check::NodeAddresses
        } else {
            Check::RangeWithoutClaim
        };
        found.add(check, finding.subject.as_str(), finding.name, finding.message, String::new());
    }
}

fn of_claim(world: &World, claim: &Claim, found: &mut Found) {
    let name = || block_name(claim.cidr);
    let (block, node, pool) = (claim.cidr, &claim.node, &claim.pool);
    if !world.pools_of_block(block).any(|of| of.name == *pool) {
        let cause = match world.pool_object(pool) {
            None => format!("pool {pool} does not exist"),
            Some(_) => format!("pool {pool} does not declare the block in this size"),
        };
        found.add(Check::ClaimWithoutPool, BLOCK, name(), cause, block.to_string());
    }
    let Some(carrier) = world.carrier(node) else { return };
    let reader = world.reader_of(node);
    let kind = carrier.kind().as_str();
    if claim.is_published_state() && !reader.lists(carrier, block) {
        let cause = format!("{kind} {node} does not have the block");
        found.add(Check::ClaimUnpublished, BLOCK, name(), cause, block.to_string());
    }
    if let ClaimState::Cooling(reason) = claim.state {
        let used = reader.used_in(carrier, block);
        if reader.lists(carrier, block) || !used.is_empty() {
            let cause = format!("the block cools ({reason}), and {kind} {node} still has it");
            found.add(Check::CooledAndCarried, BLOCK, name(), cause, block.to_string());
        }
    }
    if claim.is_published_state() && reader.has_stale_marks(carrier, block) {
        let cause = format!("the claim is {}, and its addresses have release marks", claim.state);
        found.add(Check::StaleMarks, CILIUM_NODE, node.as_str(), cause, block.to_string());
    }
    if !world.has_node(node) {
        let cause = "the Node does not exist, and the CiliumNode keeps its blocks".to_owned();
        found.add(Check::NodeOfClaimMissing, kind, node.as_str(), cause, block.to_string());
    }
}

/// The addresses that two carriers have.
fn carried_twice(world: &World, found: &mut Found) {
    for duplicate in duplicates(world) {
        let cause = format!("{} has the same addresses, and {}", duplicate.other, duplicate.holders(world));
        let (node, detail) = (duplicate.node.as_str(), duplicate.cidr.to_string());
        found.add(
            Check::CarriedTwice,
            world.reader_of(&duplicate.node).traits().carrier.as_str(),
            node,
            cause,
            detail,
        );
    }
}

/// The blocks on a carrier outside of every pool, without a claim.
fn outside_pools(world: &World, node: &NodeName, found: &mut Found) {
    let Some(carrier) = world.carrier(node) else { return };
    let is_outside = |cidr: &Cidr| {
        world.ledger().pools_over(*cidr).next().is_none()
            && world.ledger().overlapping_claims(*cidr).next().is_none()
    };
    let outside: Vec<Cidr> = world.reader_of(node).blocks(carrier).into_iter().filter(is_outside).collect();
    if !outside.is_empty() {
        let cause = "the carrier has blocks outside of every pool".to_owned();
        let kind = carrier.kind().as_str();
        found.add(Check::RangeOutsidePools, kind, node.as_str(), cause, ten_of(outside));
    }
}
