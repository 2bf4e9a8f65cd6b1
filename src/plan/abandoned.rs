//! Claims that a user deletes because they can't be published.
//!
//! Such a claim keeps its block, because an earlier CiliumNode of its node may have carried it. `kubectl delete` of
//! the claim is the consent of a person.
//!
//! The block is free only after two proofs: the one that its mode asks for, and a read of the node's Pods that finds
//! none with an address of the block. The node stays blocked until then: the user may have deleted the wrong claim.

use super::evidence::is_carried_or_used;
use super::facts::{ClaimFacts, Facts};
use super::pods::holders;
use super::publishable::NotPublishable;
use super::subject::Subject;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState, Reason, block_name};
use crate::model::finding::{Finding, FindingKind};
use crate::publisher::Publisher;
use crate::world::World;

/// Whether a user deleted a held claim that can't be published and whose block no object shows as in use.
pub(super) fn is_abandoned(known: &ClaimFacts<'_>, facts: &Facts<'_>) -> bool {
    let claim = known.claim;
    claim.deleting
        && claim.state == ClaimState::Held
        && claim.has_finalizer()
        && !facts.world.freeze().stops_reclaim()
        && may_be_abandoned(facts.world, facts.publisher, claim)
        && match &known.publishable {
            Some(Ok(())) => is_incomplete(facts),
            None | Some(Err(NotPublishable::State | NotPublishable::OtherNodeObject)) => false,
            Some(Err(
                NotPublishable::Overlaps(_) | NotPublishable::TooWide(_) | NotPublishable::PodIpPool(..),
            )) => true,
        }
}

/// Whether the node is not served because its agent can't start with the blocks that it holds.
fn is_incomplete(facts: &Facts<'_>) -> bool {
    !facts.is_served
        && Subject::of(facts).is_some_and(|subject| !subject.can_start_with(&subject.publishable()))
}

/// Whether a released claim will be free soon because a user deleted it. The memory of this process about its block
/// does not count, because the next process may not have it.
pub(super) fn is_leaving(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    claim.deleting
        && claim.has_finalizer()
        && claim.state == ClaimState::Releasing(Reason::Unused)
        && may_be_abandoned(world, publisher, claim)
}

/// The advice to a user about a claim that can't be published, as the last part of a sentence.
pub(super) fn advice(world: &World, publisher: &Publisher, claim: &Claim) -> String {
    if claim.deleting || world.freeze().stops_reclaim() || !may_be_abandoned(world, publisher, claim) {
        return String::new();
    }
    format!("; if it is not needed, give it up: `kubectl delete nib {}`", block_name(claim.cidr))
}

/// Where a node has one block for its life, its agent keeps using that block, and no Pod shows this. The same is true
/// of an agent that uses an address of the block for itself.
fn may_be_abandoned(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    let has_agents_own = |carrier: Carrier<'_>| {
        carrier.cilium_node().is_some_and(|seen| {
            let in_pool = seen.crd.own.entries_in(claim.cidr);
            in_pool.chain(seen.pools.own.entries_in(claim.cidr)).next().is_some()
        })
    };
    !publisher.traits().gives_one_block
        && !world.is_unreadable_claim(claim.cidr)
        && !is_carried_or_used(world, claim)
        && !world.carrier(&claim.node).is_some_and(has_agents_own)
}

/// The finding about a claim that another writer deleted.
pub(super) fn being_deleted(known: &ClaimFacts<'_>, facts: &Facts<'_>) -> Finding {
    let (claim, world, publisher) = (known.claim, facts.world, facts.publisher);
    let message = if claim.is_terminating() {
        format!(
            "only finalizers of other writers keep the deleted claim ({}); remove them to free its block",
            claim.finalizers.join(", ")
        )
    } else if matches!(claim.state, ClaimState::Cooling(_)) {
        "another writer deleted the claim while its block is cooling; its finalizer keeps it until then"
            .to_owned()
    } else if is_leaving(world, publisher, claim) {
        explanation(world, publisher, claim)
    } else {
        format!(
            "another writer deleted the claim while node {} has its block; its finalizer keeps it until the \
             node is deleted and the block has cooled",
            claim.node
        )
    };
    Finding::of_claim(FindingKind::ClaimBeingDeleted, claim.cidr, message)
}

/// The reason why the block of a claim that is leaving is kept, for a person.
pub(super) fn explanation(world: &World, publisher: &Publisher, claim: &Claim) -> String {
    if let Some(holders) = holders(world, claim) {
        return format!("a user gave the claim up, but these pods have an address of it: {holders}");
    }
    if let Some(Err(why)) = world.look(&claim.node).map(|look| &look.found) {
        return format!("a user gave the claim up, but the pods of its node can't be read: {why}");
    }
    let carrier = publisher.traits().carrier.as_str();
    let agent = if publisher.traits().removes_with_query { ", its agent" } else { "" };
    format!(
        "a user gave the claim up; its block is free when its {carrier}{agent} and the pods of its node show that \
         they do not have it, and it has cooled"
    )
}
