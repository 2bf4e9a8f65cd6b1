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
#[must_use]
pub fn is_carried(world: &World, claim: &Claim) -> bool {
    let reader = world.reader_of(&claim.node);
    world.carrier(&claim.node).is_some_and(|carrier| {
        reader.lists(carrier, claim.cidr)
            || any_is_of(world, claim, carrier, reader.offered_in(carrier, claim.cidr))
    })
}

/// Whether the present carrier shows anything of the block: it carries it, its agent uses an address of it, or a field of
/// another mode shows it.
pub(super) fn is_carried_or_used(world: &World, claim: &Claim) -> bool {
    let reader = world.reader_of(&claim.node);
    let is_used =
        |carrier: Carrier<'_>| any_is_of(world, claim, carrier, reader.used_in(carrier, claim.cidr));
    is_carried(world, claim)
        || world
            .carrier(&claim.node)
            .is_some_and(|carrier| is_used(carrier) || reader.is_shown_by_other_mode(carrier, claim.cidr))
}

/// Whether the block of a claim was never published. Then three facts hold: the carrier has other, immutable CIDRs;
/// the claim was made for this carrier; and no field that an agent may read in another mode shows the block. Only
/// kubernetes mode can prove this.
pub(super) fn was_never_published(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    let is_on_cilium_node = || {
        let cilium_node = world.cilium_node(&claim.node);
        cilium_node.is_some_and(|seen| carried_by_cilium_node(seen).intersects(claim.cidr))
    };
    // Where nodes may have several modes, its agent may have had another one meanwhile.
    let has_one_mode = !world.publishers().are_several();
    world.carrier(&claim.node).filter(|_| has_one_mode).is_some_and(|carrier| {
        publisher.was_never_listed(carrier, claim.cidr)
            && claim.created_for.as_ref() == Some(carrier.uid())
            && !is_on_cilium_node()
    })
}

/// Whether any of these addresses is there because of this claim, and not of another published one of the same node.
fn any_is_of(world: &World, claim: &Claim, carrier: Carrier<'_>, mut addresses: AddressSet) -> bool {
    for other in world.overlapping(claim).map(|known| &known.claim) {
        if other.node == claim.node && world.reader_of(&claim.node).lists(carrier, other.cidr) {
            addresses.remove_cidr(other.cidr);
        }
    }
    !addresses.is_empty()
}
