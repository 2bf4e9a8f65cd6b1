//! The states of a node's claims: when a claim moves to another state, and which proof it needs first.
//!
//! [`crate::model::transitions`] lists the moves. `docs/invariants.md`, The states of a claim, says when each is
//! made.
//!
//! A replica with a stale view may start any move. Each move carries uid and version of the claim, so only the first
//! one succeeds. The proof of absence is always later than the move (safety rule 3).
//!
//! After the move no replica publishes the block. A patch with a version of the CiliumNode later than the move needs
//! a view of the claim that is as late (safety rule 4). A patch with an earlier version fails, because a later one
//! exists.

use std::time::Duration;

use super::abandoned::{self, is_abandoned};
use super::draft::Draft;
use super::evidence::{is_carried, was_never_published};
use super::reclaim::no_pod_uses_removed_block;
use super::withdrawal;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::{NodeName, Uid};
use crate::model::outcome::Presence;
use crate::model::plan::Lasting;
use crate::model::request::{ClaimChange, ClaimUpdate, Read, Request, Write};
use crate::model::time::Now;
use crate::net::cidr::Cidr;
use crate::publisher::Publisher;
use crate::publisher::answer::{Absence, Leaving, Removal};
use crate::view::orphans;
use crate::world::{KnownClaim, World};

/// How long this process must have seen a block cool, unless its pool says less. The `since` of the claim may be from
/// the clock of another process.
const SEEN_COOLING: Duration = Duration::from_secs(30);

/// How long a read that did not find the Node counts before its block is free. The machine may return at any time,
/// and the server may refuse the deletion for long: each repetition needs a fresh read.
const ABSENCE_COUNTS_FOR: Duration = Duration::from_secs(5);

/// How long a read that found the Node after all counts. It frees nothing, and the watch of Nodes mostly shows more.
const PRESENCE_COUNTS_FOR: Duration = Duration::from_secs(60);

/// Adds the moves of the claims of `draft.node` that are due.
pub(super) fn advance(world: &World, publisher: &Publisher, draft: &mut Draft) {
    let name = draft.node.clone();
    // Whether the CiliumNode of a node that is gone still carries the block of a lost claim is known only from a
    // version later than the loss. Other lost claims are recreated (`recreation`), or can't be.
    let to_settle = world.lost_claims_of(&name).filter(|lost| !world.keeps_lost(&name, lost));
    if let Some(latest) = to_settle.map(|lost| lost.at).max() {
        draft.requests.extend(publisher.later_version(&name, world.carrier(&name), latest));
    }
    let claims: Vec<&KnownClaim> = world.claims_of(&name).collect();
    for known in claims {
        let claim = &known.claim;
        match claim.state {
            ClaimState::Held | ClaimState::Draining(_) => advance_held(world, publisher, draft, known),
            ClaimState::Releasing(reason) => advance_releasing(world, publisher, draft, claim, reason),
            ClaimState::Cooling(reason) => advance_cooling(world, draft, claim, reason),
        }
        // One that has cooled is deleted by us.
        let is_expected = draft.requests.iter().any(|request| is_deletion_of(request, claim.cidr));
        if claim.deleting && !is_expected {
            draft.findings.push(being_deleted(world, publisher, claim));
        }
    }
}

/// The moves that restore our finalizer on the claims of a node that lost it. It must be there before a user deletes
/// them (safety rule 1).
pub(super) fn restore_finalizers(world: &World, name: &NodeName, now: Now) -> Vec<Request> {
    let claims = world.claims_of(name).map(|known| &known.claim);
    let without = claims.filter(|claim| !claim.has_finalizer() && !claim.deleting);
    let keep = |claim: &Claim| ClaimUpdate::of(claim, ClaimChange::Keep, now.wall);
    without.map(|claim| Write::UpdateClaim(keep(claim)).into()).collect()
}

fn is_deletion_of(request: &Request, cidr: Cidr) -> bool {
    matches!(request, Request::Write(Write::UpdateClaim(update)) if update.cidr == cidr && update.change == ClaimChange::Delete)
}

/// A CiliumNode without a Node keeps its blocks, because its agent may still use them. One that remains is reported
/// together with all others ([`orphans::finding`]).
pub(super) fn look_for_orphan(world: &World, draft: &mut Draft) {
    if world.cilium_node(&draft.node).is_none() || world.claims_of(&draft.node).next().is_none() {
        return;
    }
    let since = draft.note_lasting_since(world, Lasting::Orphaned);
    let next = orphans::DUE_AFTER.map(|after| since + after).into_iter().find(|due| *due > draft.now.uptime);
    if let Some(next) = next {
        draft.wake_at(next);
    }
}

fn being_deleted(world: &World, publisher: &Publisher, claim: &Claim) -> Finding {
    let message = if claim.is_going() {
        format!(
            "only finalizers of other writers keep the deleted claim ({}); remove them to free its block",
            claim.finalizers.join(", ")
        )
    } else if matches!(claim.state, ClaimState::Cooling(_)) {
        "another writer deleted the claim while its block is cooling; its finalizer keeps it until then"
            .to_owned()
    } else if abandoned::is_leaving(world, publisher, claim) {
        abandoned::explanation(world, publisher, claim)
    } else {
        format!(
            "another writer deleted the claim while node {} has its block; its finalizer keeps it until the \
             node is deleted and the block has cooled",
            claim.node
        )
    };
    Finding::of_claim(FindingKind::ClaimBeingDeleted, claim.cidr, message)
}

fn advance_held(world: &World, publisher: &Publisher, draft: &mut Draft, known: &KnownClaim) {
    let claim = &known.claim;
    match (world.node(&claim.node), world.carrier(&claim.node)) {
        (None, None) => {
            if presence(world, draft, claim) == Some(Presence::Gone) {
                draft.change_claim(claim, ClaimChange::Release(Reason::NodeGone));
            }
        }
        (Some(node), _) if node.uid != claim.node_uid => {
            if presence(world, draft, claim) == Some(Presence::Is(node.uid.clone())) {
                draft.change_claim(claim, ClaimChange::Hold(node.uid.clone()));
            }
        }
        // Its CiliumNode still exists, so its agent may still use the blocks there.
        (None, Some(_)) => {}
        (Some(_), Some(carrier)) if is_released_by_agent(world, publisher, claim, carrier) => {
            draft.change_claim(claim, ClaimChange::Release(Reason::Reclaimed));
        }
        (Some(node), Some(carrier)) if shows_no_drain(world, claim, carrier) => {
            if carrier.revision().within() > Some(claim.revision) {
                draft.change_claim(claim, ClaimChange::Hold(node.uid.clone()));
            } else if let Some(request) = publisher.later_version(&claim.node, Some(carrier), claim.revision)
            {
                draft.prove(request);
            }
        }
        (Some(node), Some(_)) if is_abandoned(world, publisher, node, known) => {
            if presence(world, draft, claim) == Some(Presence::Is(node.uid.clone())) {
                draft.change_claim(claim, ClaimChange::Release(Reason::Unused));
            }
        }
        (Some(_), Some(_)) if was_never_published(world, publisher, claim) => {
            draft.change_claim(claim, ClaimChange::Release(Reason::Unused));
        }
        (Some(_), _) => draft.findings.extend(both_published(world, claim)),
    }
}

/// Whether a claim drains although its agent finds no address of the block on the carrier, or the drain is from another
/// carrier. The entries that the drain was about no longer exist, and the agent may keep using the block. A version
/// later than the claim must show that.
fn shows_no_drain(world: &World, claim: &Claim, carrier: Carrier<'_>) -> bool {
    let reader = world.reader();
    let is_emptied =
        || reader.carries(carrier, claim.cidr) && reader.n_published_in(carrier, claim.cidr) == 0;
    matches!(
        &claim.state,
        ClaimState::Draining(uid) if carrier.uid() != uid || !is_carried(world, claim) || is_emptied()
    )
}

/// Whether an agent has released or lost a block that it had refused to release. While the block must leave, it is
/// not published again, and the proof comes after the move.
fn is_released_by_agent(world: &World, publisher: &Publisher, claim: &Claim, carrier: Carrier<'_>) -> bool {
    claim.state == ClaimState::Draining(carrier.uid().clone())
        && publisher.traits().removes_with_query
        && world.must_leave(claim)
        && !is_carried(world, claim)
}

/// Whether a block on its carrier will be removed, or was removed and its agent kept it (`Subject::remove_blocks`).
/// Then its presence on the carrier does not prove that the agent refuses to release it.
fn must_be_removed(world: &World, publisher: &Publisher, claim: &Claim) -> bool {
    publisher.traits().removes_with_query
        && world.must_leave(claim)
        && !world.freeze().stops_reclaim()
        && is_carried(world, claim)
}

/// Whether the Node of a claim exists. `None` if that is not known well enough to move the claim. Then a read comes
/// first: the watch may not have shown yet that the Node was deleted or has returned.
fn presence(world: &World, draft: &mut Draft, claim: &Claim) -> Option<Presence> {
    let known = world.presence(claim);
    if known.is_none() {
        read_node(world, draft, claim);
    }
    known
}

/// Adds a read of the Node of a claim. One read serves all claims of the node.
fn read_node(world: &World, draft: &mut Draft, claim: &Claim) {
    let latest = world.claims_of(&claim.node).map(|known| known.claim.revision).max();
    draft.prove(Read::Node(claim.node.clone(), latest.unwrap_or(claim.revision)).into());
}

/// The findings about published claims of other nodes that overlap this claim, if it is published too.
fn both_published(world: &World, claim: &Claim) -> Vec<Finding> {
    let others = world.overlapping(claim).map(|known| &known.claim).filter(|other| other.node != claim.node);
    let published = others.filter(|other| is_carried(world, claim) && is_carried(world, other));
    let findings = published.map(|other| {
        let message = format!(
            "it is published on node {} and overlaps a block of node {}, {}: the controller changes neither; drain \
             one of the nodes, and delete it for at least reuseAfterNodeLoss of its pool",
            claim.node, other.node, other.cidr
        );
        Finding::of_claim(FindingKind::BothPublished, claim.cidr, message)
    });
    findings.collect()
}

/// What becomes of a claim that was released.
enum NextOfReleased {
    /// It is held again, for the Node of this uid.
    HeldFor(Uid),
    /// Another decision or a read comes first.
    Undecided,
    /// It continues on its way to be free.
    Continues,
}

fn advance_releasing(world: &World, publisher: &Publisher, draft: &mut Draft, claim: &Claim, reason: Reason) {
    let next = match reason {
        Reason::NodeGone => next_if_node_gone(world, draft, claim),
        Reason::Unused => next_if_unused(world, publisher, draft, claim),
        Reason::Reclaimed => next_if_reclaimed(world, publisher, claim),
    };
    match next {
        NextOfReleased::HeldFor(uid) => {
            draft.change_claim(claim, ClaimChange::Hold(uid));
        }
        NextOfReleased::Undecided => {}
        NextOfReleased::Continues => cool_if_off(world, publisher, draft, claim, reason),
    }
}

/// The Node for which a claim was released may have returned.
fn next_if_node_gone(world: &World, draft: &mut Draft, claim: &Claim) -> NextOfReleased {
    let Some(node) = world.node(&claim.node) else { return NextOfReleased::Continues };
    match presence(world, draft, claim) {
        Some(Presence::Is(uid)) if uid == node.uid => NextOfReleased::HeldFor(uid),
        // The watch of Nodes has not shown the deletion yet.
        Some(Presence::Gone) => NextOfReleased::Continues,
        Some(Presence::Is(_) | Presence::Unreadable) | None => NextOfReleased::Undecided,
    }
}

/// The claim of an abandoned block, or of one that was never published.
fn next_if_unused(world: &World, publisher: &Publisher, draft: &mut Draft, claim: &Claim) -> NextOfReleased {
    match world.node(&claim.node) {
        // Its absence can't be proven any more. It is held for its own Node object; the next plan releases it as the
        // block of a lost node.
        None if presence(world, draft, claim) == Some(Presence::Gone) => {
            NextOfReleased::HeldFor(claim.node_uid.clone())
        }
        None => NextOfReleased::Undecided,
        Some(node) => {
            let is_leaving = abandoned::is_leaving(world, publisher, claim)
                || was_never_published(world, publisher, claim);
            if is_leaving && node.uid == claim.node_uid {
                NextOfReleased::Continues
            } else {
                // It may have been published and no user gave it up; or it is in use after all, or its Node is another
                // one.
                NextOfReleased::HeldFor(node.uid.clone())
            }
        }
    }
}

/// Only the word of its agent lets a block leave before its node does, and the CiliumNode carries that word.
fn next_if_reclaimed(world: &World, publisher: &Publisher, claim: &Claim) -> NextOfReleased {
    // A replica with an old view may have started this. The claim is held for its own Node object. A read then
    // decides whether another Node has replaced that one.
    let Some(carrier) = world.carrier(&claim.node) else {
        return NextOfReleased::HeldFor(claim.node_uid.clone());
    };
    let Some(node) = world.node(&claim.node) else { return NextOfReleased::Continues };
    if must_be_removed(world, publisher, claim) {
        return NextOfReleased::Undecided;
    }
    // A version of the carrier later than the move shows the block without the consent of its agent.
    if publisher.leaving(carrier, claim) == Leaving::NoConsent {
        return NextOfReleased::HeldFor(node.uid.clone());
    }
    NextOfReleased::Continues
}

/// The block of a released claim cools as soon as three facts hold: it is proven absent, no pod has an address of it,
/// and its route is withdrawn.
fn cool_if_off(world: &World, publisher: &Publisher, draft: &mut Draft, claim: &Claim, reason: Reason) {
    match absence(world, publisher, claim) {
        Absence::Proven => {
            let may_cool = (reason != Reason::Unused
                || abandoned::no_pod_uses_abandoned_block(world, draft, claim))
                && no_pod_uses_removed_block(world, publisher, draft, claim)
                && withdrawal::is_gone(world, draft, claim);
            if may_cool {
                draft.change_claim(claim, ClaimChange::Cool);
            }
        }
        Absence::Provable(request) => draft.prove(request),
        // The Node is deleted, and its CiliumNode has the block. The deletion of the CiliumNode will be the proof.
        Absence::NotYet => {}
    }
}

fn absence(world: &World, publisher: &Publisher, claim: &Claim) -> Absence {
    publisher.absence(Removal {
        claim,
        carrier: world.carrier(&claim.node),
        is_carried: is_carried(world, claim),
        absent_as_of: world.absent_as_of(&claim.node),
        presence: world.presence(claim).as_ref(),
        answered: world.answered(claim),
    })
}

fn advance_cooling(world: &World, draft: &mut Draft, claim: &Claim, reason: Reason) {
    if claim.is_going() {
        // It is being deleted, and only finalizers of other writers keep it. A node that returns gets other blocks,
        // because no finalizer of ours would keep this claim.
        return;
    }
    if reason == Reason::NodeGone {
        match next_if_node_gone(world, draft, claim) {
            NextOfReleased::HeldFor(uid) => return draft.change_claim(claim, ClaimChange::Hold(uid)),
            NextOfReleased::Undecided => return,
            NextOfReleased::Continues => {}
        }
    }
    draft.cooling.push(claim.cidr);
    let Some(cooling_time) = world.cooling_time(claim, reason) else {
        return;
    };
    let due = cooled_at(world, claim, cooling_time, draft.now);
    if draft.waits_until(due) {
        return;
    }
    let free = Write::UpdateClaim(ClaimUpdate::of(claim, ClaimChange::Delete, draft.now.wall));
    // A read counts for a short time. While a freeze stops the deletion, the read would be repeated in vain; the plan
    // drops the request then (`stopped_requests.rs`).
    if world.freeze().stops_write(&free)
        || reason != Reason::NodeGone
        || is_still_lost(world, draft, claim, due)
    {
        draft.requests.push(free.into());
    }
}

/// The time at which a block has cooled, by the clock of this process.
fn cooled_at(world: &World, claim: &Claim, cooling_time: Duration, now: Now) -> Duration {
    let seen = world.cooling_since(claim).unwrap_or(now.uptime);
    // A `since` in the future comes from a wrong clock. So a block never cools for longer than its cooling time after
    // this process has first seen it cool.
    let as_seen = seen + cooling_time;
    if world.went_while_cooling(claim) {
        return as_seen;
    }
    let cooled = Duration::try_from(now.wall.duration_since(claim.since)).unwrap_or_default();
    let by_clock = (now.uptime + cooling_time).saturating_sub(cooled).min(as_seen);
    by_clock.max(seen + cooling_time.min(SEEN_COOLING))
}

/// Whether the node of a claim that has cooled by `due` is still lost, according to a read since then. The watch of
/// Nodes may be late or may have stopped, and this is the last move. If the machine has returned and no replica has
/// held the claim yet, its pods use the block. So a read must decide. A new CiliumNode of the name proves by itself
/// that the machine has returned.
fn is_still_lost(world: &World, draft: &mut Draft, claim: &Claim, due: Duration) -> bool {
    if world.carrier(&claim.node).is_some() {
        return false;
    }
    let counts_until = |(answered_at, presence): &(Duration, &Presence)| match presence {
        Presence::Gone => *answered_at + ABSENCE_COUNTS_FOR,
        Presence::Is(_) | Presence::Unreadable => *answered_at + PRESENCE_COUNTS_FOR,
    };
    let now = draft.now.uptime;
    let counts = |read: &(Duration, &Presence)| read.0 >= due && counts_until(read) > now;
    match world.presence_read(&claim.node).filter(counts) {
        Some((_, Presence::Gone)) => true,
        Some(read @ (_, Presence::Is(_) | Presence::Unreadable)) => {
            // The watch of Nodes will show it, unless the Node is deleted before that. Then no event comes.
            draft.wake_at(counts_until(&read));
            false
        }
        None => {
            read_node(world, draft, claim);
            false
        }
    }
}
