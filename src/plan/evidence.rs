//! What the carrier of a node tells of one of its claims: whether the block is on it, is used, or may be.
//!
//! What is there by another claim of the same node is that one's: two replicas that see pools of different block sizes
//! may claim a block and a part of it for one node, and only one of the two is published (safety rule 2).

use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::net::addresses::AddressSet;
use crate::world::World;

/// Whether anything of the block is on the carrier of the claim's node.
pub(super) fn is_carried(world: &World, claim: &Claim) -> bool {
    let Some(carrier) = world.carrier(&claim.node) else {
        return false;
    };
    world.reader().carries(carrier, claim.cidr)
        || !without_other_claims(world, world.reader().offered_in(carrier, claim.cidr), claim, carrier)
            .is_empty()
}

/// Whether the agent of the claim's node uses an address of the block.
fn is_used(world: &World, claim: &Claim, carrier: Carrier<'_>) -> bool {
    !without_other_claims(world, world.reader().used_in(carrier, claim.cidr), claim, carrier).is_empty()
}

/// Whether the block of a claim may be in use on its node: it is on its carrier, or it may have been on one that is
/// gone (safety rules 3 and 6).
///
/// An agent whose CiliumNode is deleted goes on with the addresses that it had, and the one that it creates then shows
/// none. So only the CiliumNode for which the claim was made can tell. (Times can't: each API server stamps its own.)
pub(super) fn may_be_in_use(world: &World, claim: &Claim) -> bool {
    world.carrier(&claim.node).is_none_or(|carrier| {
        matches!(claim.state, ClaimState::Draining(_))
            || claim.created_for.as_ref() != Some(carrier.uid())
            || is_carried(world, claim)
            || is_used(world, claim, carrier)
    })
}

/// `addresses` without those that are there by another claim of the same node.
fn without_other_claims(
    world: &World,
    mut addresses: AddressSet,
    claim: &Claim,
    carrier: Carrier<'_>,
) -> AddressSet {
    for other in world.ledger().overlapping_claims(claim.cidr).filter(|other| *other != claim.cidr) {
        let is_of_node = world.claim(other).is_some_and(|known| known.claim.node == claim.node);
        if is_of_node && world.reader().carries(carrier, other) {
            addresses.remove_cidr(other);
        }
    }
    addresses
}
