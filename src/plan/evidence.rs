//! What the carrier of a node shows about one of its claims: whether the block is carried, and whether it may be in
//! use.
//!
//! Addresses that are on the carrier because of another claim of the same node do not count. Two replicas that see
//! pools of different block sizes may claim a block and a part of it for one node, and only one of the two is published
//! (safety rule 2).

use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::guard::Guard;
use crate::net::addresses::AddressSet;
use crate::world::World;

/// Whether the carrier of the claim's node carries any address of the block.
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

/// Whether the present carrier shows anything of the block: it carries it, or its agent uses an address of it.
pub(super) fn is_carried_or_used(world: &World, claim: &Claim) -> bool {
    is_carried(world, claim)
        || world.carrier(&claim.node).is_some_and(|carrier| is_used(world, claim, carrier))
}

/// Whether the block of a claim may be in use on its node: the carrier carries it, or an earlier carrier may have
/// (safety rules 3 and 6).
///
/// An agent whose CiliumNode is deleted goes on with the addresses that it had, and the CiliumNode that it then creates
/// shows none of them. So only the CiliumNode that the claim was created for can prove that the block is not in use.
/// (Times can't prove it, because each API server has its own clock.)
pub(super) fn may_be_in_use(world: &World, claim: &Claim) -> bool {
    world.carrier(&claim.node).is_none_or(|carrier| {
        matches!(claim.state, ClaimState::Draining(_))
            || (claim.created_for.as_ref() != Some(carrier.uid())
                && !world.guards().is_off(Guard::CreatedFor))
            || is_carried_or_used(world, claim)
            || world.may_have_been_replaced(claim, || world.reader().blocks(carrier).into())
    })
}

/// The same, or this process has seen the present carrier carry it: somebody took it off, and the agent may not have said
/// yet that it goes on with it. Only this process knows that. So it keeps a claim in its state, and others give way to it.
pub(super) fn may_be_in_use_still(world: &World, claim: &Claim) -> bool {
    may_be_in_use(world, claim) || world.has_carried(claim)
}

/// `addresses` without those of other carried claims of the same node.
fn without_other_claims(
    world: &World,
    mut addresses: AddressSet,
    claim: &Claim,
    carrier: Carrier<'_>,
) -> AddressSet {
    for other in world.overlapping(claim).map(|known| &known.claim) {
        if other.node == claim.node && world.reader().carries(carrier, other.cidr) {
            addresses.remove_cidr(other.cidr);
        }
    }
    addresses
}
