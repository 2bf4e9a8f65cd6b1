//! Claims that a user deletes because they can't be published.
//!
//! Such a claim keeps its block, because an earlier CiliumNode of its node may have carried it. `kubectl delete` of it is
//! the consent of a person. The block is free only on the proof that its mode asks for, and after a read of the node's
//! Pods has found none with an address of it. Its node stays blocked until then: the wrong one may have been deleted.

use super::draft::Draft;
use super::evidence::is_carried_or_used;
use super::publishable::{NotPublishable, may_publish};
use super::reclaim::PODS_AGAIN;
use super::subject::Subject;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState, Reason, block_name};
use crate::model::names::ten_of;
use crate::model::node::Node;
use crate::model::outcome::Presence;
use crate::model::request::Read;
use crate::model::time::Now;
use crate::publisher::Publisher;
use crate::world::{KnownClaim, World};

/// Whether a held claim is deleted that can't be published and is not in use as far as objects show.
pub(super) fn is_given_up(world: &World, publisher: &Publisher, node: &Node, known: &KnownClaim) -> bool {
    let claim = &known.claim;
    claim.deleting
        && claim.state == ClaimState::Held
        && claim.has_finalizer()
        && !world.freeze().stops_reclaim()
        && may_be_given_up(world, publisher, claim)
        && match may_publish(world, node, known) {
            Ok(()) => is_part_of_a_start(world, publisher, node),
            Err(NotPublishable::State | NotPublishable::OtherNodeObject) => false,
            Err(NotPublishable::Overlaps(_) | NotPublishable::TooWide(_) | NotPublishable::PodIpPool(..)) => {
                true
            }
        }
}

/// Whether nothing of a node is published, because its agent can't start with what the node holds.
fn is_part_of_a_start(world: &World, publisher: &Publisher, node: &Node) -> bool {
    let Some(carrier) = world.carrier(&node.name) else { return false };
    let subject = Subject { world, node, carrier, publisher };
    !subject.is_served() && !subject.can_start_with(&subject.publishable())
}

/// Whether a released claim is about to be free because a user deleted it. What a process remembers of its block does not
/// count: the next process may not.
pub(super) fn is_leaving(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    claim.deleting
        && claim.has_finalizer()
        && claim.state == ClaimState::Releasing(Reason::Unused)
        && may_be_given_up(world, publisher, claim)
}

/// What a user can do about a claim that can't be published, as the end of a sentence.
pub(super) fn advice(world: &World, publisher: &Publisher, claim: &Claim) -> String {
    if claim.deleting || world.freeze().stops_reclaim() || !may_be_given_up(world, publisher, claim) {
        return String::new();
    }
    format!("; if it is not needed, give it up: `kubectl delete nib {}`", block_name(claim.cidr))
}

/// Where a node has one block for its life, its agent continues with that, and no Pod shows it. So does an agent with an
/// address of the block for itself.
fn may_be_given_up(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    let has_agents_own = |carrier: Carrier<'_>| match carrier {
        Carrier::CiliumNode(seen) => {
            let mut own = seen.crd.own.keys().chain(seen.pools.own.keys());
            own.any(|address| claim.cidr.contains(*address))
        }
        Carrier::Node(_) => false,
    };
    !publisher.gives_one_block()
        && !world.is_unreadable_claim(claim.cidr)
        && !is_carried_or_used(world, claim)
        && !world.carrier(&claim.node).is_some_and(has_agents_own)
}

/// Whether no Pod of the node has an address of a claim that is leaving, and its Node was there when they were read: the
/// Pods of a lost node are deleted, and its machine may run on. Adds the read that comes first.
pub(super) fn no_pod_has_what_was_given_up(
    world: &World,
    draft: &mut Draft,
    claim: &Claim,
    now: Now,
) -> bool {
    // An agent whose CiliumNode is gone runs on, and the next CiliumNode shows what it has.
    let Some(carrier) = world.carrier(&claim.node) else { return false };
    let pods = Read::PodsOf(claim.node.clone(), carrier.revision()).into();
    if let Some(look) = world.look(&claim.node)
        && (look.found.is_err() || holders(world, claim).is_some())
        && look.at + PODS_AGAIN > now.uptime
    {
        draft.wake_at(look.at + PODS_AGAIN);
        return false;
    }
    let Some(look) = world.look_after(carrier).filter(|look| look.at + PODS_AGAIN > now.uptime) else {
        draft.prove(pods);
        return false;
    };
    let read = world.presence_read(&claim.node).filter(|(answered_at, _)| *answered_at >= look.at);
    if let Some((_, presence)) = read {
        return *presence == Presence::Is(claim.node_uid.clone());
    }
    draft.prove(Read::Node(claim.node.clone(), claim.revision).into());
    false
}

/// What keeps the block of a claim that is leaving, for a person.
pub(super) fn told(world: &World, claim: &Claim) -> String {
    if let Some(holders) = holders(world, claim) {
        return format!("a user gave the claim up, but these pods have an address of it: {holders}");
    }
    if let Some(Err(why)) = world.look(&claim.node).map(|look| &look.found) {
        return format!("a user gave the claim up, but the pods of its node can't be read: {why}");
    }
    "a user gave the claim up; its block is free when its CiliumNode and the pods of its node show that they do \
     not have it, and it has cooled"
        .to_owned()
}

/// The Pods that have an address of the block, as the last read of the node's Pods found them.
fn holders(world: &World, claim: &Claim) -> Option<String> {
    let pods = world.look(&claim.node)?.found.as_ref().ok()?;
    let holders = pods.holders_in(claim.cidr);
    (!holders.is_empty()).then(|| ten_of(holders))
}
