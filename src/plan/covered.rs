//! Claims whose every address another claim of the same node keeps as well.
//!
//! Two replicas that see pools of different block sizes may claim a block and a part of it for one node. Where an earlier
//! CiliumNode may have carried either, neither proves to be unused. But only one of them was ever published, and nobody
//! knows which (safety rule 2); the wider one has all addresses of both. So the narrower one can go, whichever it was
//! (`docs/decisions/0034-the-wider-of-two-claims-of-a-node-takes-over.md`).
//!
//! What follows for the wider one must not depend on who remembers the other: it is recorded first that any CiliumNode
//! may have carried it, and it counts as possibly in use as long as its node lives.

use super::evidence::{is_carried, may_be_in_use_still};
use super::publishable::may_publish_without;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::net::cidr::Cidr;
use crate::publisher::Publisher;
use crate::world::{KnownClaim, World};

/// Whether a claim is to be recorded as one that any CiliumNode may have carried, because it covers another one.
pub(super) fn is_to_take_over(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    let Some(wider) = world.claim(claim.cidr).filter(|wider| wider.claim.created_for.is_some()) else {
        return false;
    };
    others(world, claim).any(|known| covers(world, publisher, wider, &known.claim))
}

/// The claim that has taken over what a claim keeps, if one has.
pub(super) fn taken_over_by<'a>(
    world: &'a World,
    publisher: &Publisher,
    claim: &Claim,
) -> Option<&'a KnownClaim> {
    others(world, claim)
        .find(|wider| wider.claim.created_for.is_none() && covers(world, publisher, wider, claim))
}

fn others<'a>(world: &'a World, claim: &Claim) -> impl Iterator<Item = &'a KnownClaim> {
    let others = world.ledger().overlapping_claims(claim.cidr).filter(|other| *other != claim.cidr);
    others.filter_map(|other| world.claim(other))
}

/// Whether `wider` can keep for their node what `claim` keeps: it offers every address that `claim` offers, and can be
/// published as soon as what it covers is gone.
fn covers(world: &World, publisher: &Publisher, wider: &KnownClaim, claim: &Claim) -> bool {
    let is_part = |cidr: Cidr| cidr != wider.claim.cidr && wider.claim.cidr.covers(cidr);
    // Where an agent gets whole blocks, it may have this one under another name, or in another order.
    if publisher.gives_whole_blocks() || !is_part(claim.cidr) || wider.claim.node != claim.node {
        return false;
    }
    let (Some(node), Some(_)) = (world.node(&claim.node), world.carrier(&claim.node)) else {
        return false;
    };
    let may_go = match claim.state {
        ClaimState::Held | ClaimState::Releasing(Reason::Unused) => {
            may_be_in_use_still(world, claim) && !is_carried(world, claim)
        }
        ClaimState::Draining(_) | ClaimState::Releasing(_) | ClaimState::Cooling(_) => false,
    };
    let mut lacking = wider.claim.withheld.within(claim.cidr);
    lacking.remove_all(&claim.withheld);
    let is_going_part = |cidr: Cidr| {
        let part = world.claim(cidr).filter(|part| is_part(cidr) && part.claim.node == claim.node);
        part.is_some_and(|part| !is_carried(world, &part.claim))
    };
    may_go
        && lacking.is_empty()
        && claim.node_uid == node.uid
        && wider.claim.has_finalizer()
        && may_be_in_use_still(world, &wider.claim)
        && may_publish_without(world, node, wider, is_going_part).is_ok()
}
