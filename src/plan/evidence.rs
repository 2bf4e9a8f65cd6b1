//! The evidence about one claim on the carrier of its node.
//!
//! Addresses that are on the carrier because of another claim of the same node do not count. Two replicas that see
//! pools of different block sizes may claim a block and a part of it for one node. Only one of the two is published
//! (safety rule 2).

use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::net::addresses::AddressSet;
use crate::publisher::{Publisher, carried_by_cilium_node};
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

/// Whether the block of a claim was never published. Then three facts hold: the carrier has other, immutable CIDRs;
/// the claim was made for this carrier; and no field that an agent may read in another mode shows the block. Only
/// kubernetes mode can prove this.
pub(super) fn was_never_published(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    let is_on_cilium_node = || {
        let cilium_node = world.cilium_node(&claim.node);
        cilium_node.is_some_and(|seen| carried_by_cilium_node(seen).intersects(claim.cidr))
    };
    world.carrier(&claim.node).is_some_and(|carrier| {
        publisher.was_never_listed(carrier, claim.cidr)
            && claim.created_for.as_ref() == Some(carrier.uid())
            && !is_on_cilium_node()
    })
}

/// `addresses` without those of other published claims of the same node.
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
