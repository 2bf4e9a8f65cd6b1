//! Claims that a person deletes because they can't be published.
//!
//! Such a claim keeps its block, because an earlier CiliumNode of its node may have carried it. `kubectl delete` of it is
//! the word of a person that it may go. The block is free only on the proof that its mode asks for, and after a read of
//! the node's Pods has found none with an address of it.

use std::collections::BTreeSet;

use super::evidence::{is_carried_or_used, may_be_in_use};
use super::publishable::{NotPublishable, may_publish};
use crate::model::claim::{Claim, ClaimState, Reason, block_name};
use crate::model::names::ten_of;
use crate::model::node::Node;
use crate::publisher::Publisher;
use crate::world::{KnownClaim, World};

/// Whether a held claim is deleted that can't be published and is not in use as far as objects show.
pub(super) fn is_given_up(world: &World, publisher: &Publisher, node: &Node, known: &KnownClaim) -> bool {
    let claim = &known.claim;
    claim.deleting
        && claim.state == ClaimState::Held
        && claim.has_finalizer()
        && may_be_given_up(world, publisher, claim)
        && match may_publish(world, node, known) {
            Ok(()) | Err(NotPublishable::State | NotPublishable::OtherNodeObject) => false,
            Err(NotPublishable::Overlaps(_) | NotPublishable::TooWide(_) | NotPublishable::PodIpPool(..)) => {
                true
            }
        }
}

/// Whether a claim that was released is on its way because a person gave it up, though it may be in use.
pub(super) fn is_going_for_a_person(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    claim.deleting
        && claim.state == ClaimState::Releasing(Reason::Unused)
        && may_be_in_use(world, claim)
        && may_be_given_up(world, publisher, claim)
}

/// What a person can do about a claim that can't be published, as the end of a sentence.
pub(super) fn advice(world: &World, publisher: &Publisher, claim: &Claim) -> String {
    if claim.deleting || !may_be_given_up(world, publisher, claim) {
        return String::new();
    }
    format!("; if it is not needed, give it up: `kubectl delete nib {}`", block_name(claim.cidr))
}

/// Where a node has one block for its life, its agent goes on with that, and no Pod tells of it.
fn may_be_given_up(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    !publisher.gives_one_block()
        && !world.is_unreadable_claim(claim.cidr)
        && !is_carried_or_used(world, claim)
}

/// The Pods that keep the block of a claim that a person gave up, as the last read of the node's Pods found them.
pub(super) fn holders(world: &World, claim: &Claim) -> Option<String> {
    let pods = world.look(&claim.node)?.found.as_ref().ok()?;
    let holders: BTreeSet<&String> = claim.cidr.entries_in(&pods.holders).map(|(_, pod)| pod).collect();
    (!holders.is_empty()).then(|| ten_of(holders))
}
