//! Claims whose every address another claim of the same node keeps as well.
//!
//! Two replicas that see pools of different block sizes may claim a block and a part of it for one node. Where an earlier
//! CiliumNode may have carried either, neither proves to be unused. But only one of them was ever published, and nobody
//! knows which (safety rule 2); the wider one has all addresses of both. So the narrower one can go, whichever it was
//! (`docs/decisions/0034-the-wider-of-two-claims-of-a-node-takes-over.md`).
//!
//! What follows for the wider one must not depend on who remembers the other: it is recorded first that any CiliumNode
//! may have carried it, and it counts as possibly in use as long as its node lives.

use super::draft::Draft;
use super::evidence::{is_carried, may_be_in_use_still};
use super::publishable::may_publish_without;
use super::subject::Subject;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::request::{ClaimChange, ClaimUpdate, Write};
use crate::model::time::Now;
use crate::net::cidr::Cidr;
use crate::publisher::Publisher;
use crate::world::{KnownClaim, World};

impl Subject<'_> {
    /// Records of each claim that takes over another one that any CiliumNode may have carried it.
    pub(super) fn take_over(&self, draft: &mut Draft, now: Now) {
        let takes_over = self.world.claims_of(&self.node.name).filter(|wider| {
            wider.claim.created_for.is_some()
                && self.world.overlapping(&wider.claim).any(|part| {
                    keeps_all_of(self.world, self.publisher, wider, &part.claim)
                        && may_take_over(self.world, self.publisher, wider, &part.claim)
                })
        });
        let changes =
            takes_over.map(|wider| ClaimUpdate::of(&wider.claim, ClaimChange::CreatedFor(None), now.wall));
        draft.requests.extend(changes.map(|change| Write::UpdateClaim(change).into()));
    }
}

/// Whether a claim that is held gives way to one that takes it over.
pub(super) fn is_to_be_taken_over(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    taken_over_by(world, publisher, claim).is_some_and(|wider| may_take_over(world, publisher, wider, claim))
}

/// The claim that keeps for good what a claim keeps, if there is one.
///
/// Only what objects say counts here. A process that remembers more holds nothing again that another one has given
/// back: the two would go on like that for ever.
pub(super) fn taken_over_by<'a>(
    world: &'a World,
    publisher: &Publisher,
    claim: &Claim,
) -> Option<&'a KnownClaim> {
    world
        .overlapping(claim)
        .filter(|wider| wider.claim.created_for.is_none())
        .find(|wider| keeps_all_of(world, publisher, wider, claim))
}

/// Whether `wider` keeps and offers for their node every address that `claim` does, and its carrier lists nothing of
/// `claim` itself.
fn keeps_all_of(world: &World, publisher: &Publisher, wider: &KnownClaim, claim: &Claim) -> bool {
    let wider = &wider.claim;
    // Where an agent gets whole blocks, it may have this one under another name, or in another order.
    if publisher.gives_whole_blocks() || wider.node != claim.node || !wider.cidr.covers(claim.cidr) {
        return false;
    }
    wider.offers_all_of(claim)
        && wider.state == ClaimState::Held
        && wider.has_finalizer()
        && !world.is_unreadable_claim(wider.cidr)
        && wider.node_uid == claim.node_uid
        && world.carrier(&claim.node).is_some()
        && !is_carried(world, claim)
}

/// Whether a node that is not served waits because neither of two claims proves to be unused, and can get the wider one as
/// soon as all that this keeps is gone.
fn may_take_over(world: &World, publisher: &Publisher, wider: &KnownClaim, claim: &Claim) -> bool {
    let goes = |cidr: Cidr| {
        world.claim(cidr).is_some_and(|part| {
            matches!(part.claim.state, ClaimState::Held | ClaimState::Releasing(Reason::Unused))
                && keeps_all_of(world, publisher, wider, &part.claim)
        })
    };
    claim.state == ClaimState::Held
        && may_be_in_use_still(world, claim)
        && may_be_in_use_still(world, &wider.claim)
        && !world.is_served(&claim.node)
        && world.node(&claim.node).is_some_and(|node| may_publish_without(world, node, wider, goes).is_ok())
}
