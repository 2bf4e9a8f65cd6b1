//! The guards of the table of claims: when each of its rows applies.

use std::time::Duration;

use super::abandoned;
use super::draft::Draft;
use super::evidence::{is_carried, was_never_published as never_published};
use super::facts::{Answer, ClaimFacts, Facts};
use super::pods::{no_pod_uses_abandoned_block, no_pod_uses_removed_block};
use super::route_withdrawal;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::finding::{Finding, FindingKind};
use crate::model::outcome::Presence;
use crate::model::request::{ClaimChange, ClaimUpdate, Read, Request, Write};
use crate::model::time::Now;
use crate::model::transitions::State;
use crate::publisher::answer::{Absence, Leaving, Removal};
use crate::world::World;

/// How long this process must have seen a block cool, unless its pool says less. The `since` of the claim may be from
/// the clock of another process.
const SEEN_COOLING: Duration = Duration::from_secs(30);

/// How long a read that did not find the Node counts before its block is free. The machine may return at any time,
/// and the server may refuse the deletion for long: each repetition needs a fresh read.
const ABSENCE_COUNTS_FOR: Duration = Duration::from_secs(5);

/// How long a read that found the Node after all counts. It frees nothing, and the watch of Nodes mostly shows more.
const PRESENCE_COUNTS_FOR: Duration = Duration::from_secs(60);

/// The Node and its carrier are gone.
pub(super) fn node_is_lost(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    if facts.node.is_some() || facts.carrier.is_some() {
        return Answer::No;
    }
    if_presence(claim, facts, |presence| *presence == Presence::Gone)
}

/// The claim is held for an earlier Node of this name.
pub(super) fn node_is_another(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    match facts.node {
        Some(node) if node.uid != claim.claim.node_uid => {
            if_presence(claim, facts, |presence| *presence == Presence::Is(node.uid.clone()))
        }
        Some(_) | None => Answer::No,
    }
}

/// Only the CiliumNode still exists, so the agent may still use the blocks there. The row before has left the case
/// that it is gone too.
pub(super) fn only_carrier_remains(_: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(facts.node.is_none())
}

/// An agent has released or lost a block that it had refused to release. While the block must leave, it is not
/// published again, and the proof comes after the move.
pub(super) fn agent_released(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(
        facts.node.is_some()
            && claim.drain.is_some()
            && facts.traits.removes_with_query
            && claim.must_leave
            && !claim.is_carried
            && !claim.is_shown_by_other_mode,
    )
}

/// A claim drains although its agent finds no address of the block on the carrier, or the drain is from another
/// carrier. The entries that the drain was about no longer exist, and the agent may keep using the block. A version
/// later than the claim must show that.
pub(super) fn drain_is_not_shown(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    let (Some(_), Some(carrier)) = (facts.node, facts.carrier) else { return Answer::No };
    let (cidr, reader) = (claim.claim.cidr, facts.publisher);
    let is_emptied = || reader.lists(carrier, cidr) && reader.n_published_in(carrier, cidr) == 0;
    if claim.drain.is_some() && claim.is_carried && !is_emptied() {
        return Answer::No;
    }
    if carrier.revision().within() > Some(claim.claim.revision) {
        return Answer::Yes;
    }
    let later = facts.publisher.later_version(facts.name, Some(carrier), claim.claim.revision);
    later.map_or(Answer::Unknown, Answer::first)
}

/// A user has deleted a claim that can't be published.
pub(super) fn is_given_up(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    match facts.node {
        Some(node) if facts.carrier.is_some() && abandoned::is_abandoned(claim, facts) => {
            if_presence(claim, facts, |presence| *presence == Presence::Is(node.uid.clone()))
        }
        Some(_) | None => Answer::No,
    }
}

/// No carrier has ever shown the block.
pub(super) fn was_never_published(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(facts.node.is_some() && never_published(facts.world, facts.publisher, claim.claim))
}

/// The claim is being deleted, and only finalizers of other writers keep it. A node that returns gets other blocks,
/// because no finalizer of ours would keep this claim.
pub(super) fn is_terminating(claim: &ClaimFacts<'_>, _: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(claim.claim.is_terminating())
}

/// The Node for which the claim was released has returned.
pub(super) fn node_returned(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    let Some(node) = facts.node else { return Answer::No };
    match facts.world.presence(claim.claim) {
        Some(Presence::Is(uid)) if uid == node.uid => Answer::Yes,
        // The watch of Nodes has not shown the deletion yet.
        Some(Presence::Gone) => Answer::No,
        Some(Presence::Is(_) | Presence::Unreadable) => Answer::Unknown,
        None => Answer::first(read_node(claim.claim, facts)),
    }
}

/// The Node of an unused claim is gone too. Its absence from the node can't be proven any more. The next decision
/// releases it as the block of a lost node.
pub(super) fn node_is_gone(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    if facts.node.is_some() {
        return Answer::No;
    }
    if_presence(claim, facts, |presence| *presence == Presence::Gone)
}

/// The claim may have been published and no user gave it up; or it is in use after all, or its Node is another one.
pub(super) fn is_not_given_up(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    let is_leaving = abandoned::is_leaving(facts.world, facts.publisher, claim.claim)
        || never_published(facts.world, facts.publisher, claim.claim);
    yes_if(facts.node.is_some_and(|node| !is_leaving || node.uid != claim.claim.node_uid))
}

/// Only the word of its agent lets a block leave before its node does, and the CiliumNode carries that word. Without
/// one, a replica with an old view may have started this. A read then decides whether another Node has replaced that
/// of the claim.
pub(super) fn carrier_is_gone(_: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(facts.carrier.is_none())
}

/// A block on its carrier will be removed, or was removed and its agent kept it (`Subject::remove_blocks`). Then its
/// presence on the carrier does not prove that the agent refuses to release it.
pub(super) fn removal_is_due(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(
        facts.node.is_some()
            && facts.traits.removes_with_query
            && claim.must_leave
            && !facts.stops_reclaim()
            && claim.is_carried,
    )
}

/// A version of the carrier later than the move shows the block without the consent of its agent.
pub(super) fn agent_withdrew(claim: &ClaimFacts<'_>, facts: &Facts<'_>, _: &mut Draft) -> Answer {
    yes_if(facts.node.is_some() && claim.leaving == Some(Leaving::NoConsent))
}

/// Three facts hold: the block is proven absent, no pod has an address of it, and its route is withdrawn.
pub(super) fn is_absent(claim: &ClaimFacts<'_>, facts: &Facts<'_>, draft: &mut Draft) -> Answer {
    match absence(claim, facts) {
        Absence::Proven => {}
        Absence::Provable(request) => return Answer::first(request),
        // Its agent, a later step or the deletion of its CiliumNode continues. Any request would end the plan before
        // that step.
        Absence::NotYet => return Answer::Unknown,
    }
    let is_unused = claim.claim.state == ClaimState::Releasing(Reason::Unused);
    let pods = if is_unused {
        no_pod_uses_abandoned_block(claim.claim, facts, draft)
    } else {
        no_pod_uses_removed_block(claim, facts, draft)
    };
    match pods {
        Answer::Yes if !route_withdrawal::is_gone(facts.world, draft, claim.claim) => Answer::Unknown,
        answer => answer,
    }
}

/// The block has cooled for long enough, and its node is still lost if it was.
pub(super) fn has_cooled(claim: &ClaimFacts<'_>, facts: &Facts<'_>, draft: &mut Draft) -> Answer {
    let (claim, world) = (claim.claim, facts.world);
    let Some(reason) = State::from(&claim.state).reason() else { return Answer::No };
    draft.cooling.push(claim.cidr);
    if world.is_named_by_its_node(claim) {
        return Answer::Unknown;
    }
    let Some(cooling_time) = world.cooling_time(claim, reason) else { return Answer::Unknown };
    let due = cooled_at(world, claim, cooling_time, draft.now);
    if draft.waits_until(due) {
        return Answer::Unknown;
    }
    let free = Write::UpdateClaim(ClaimUpdate::of(claim, ClaimChange::Delete, draft.now.wall));
    // A read counts for a short time. While a freeze stops the deletion, the read would be repeated in vain; the plan
    // drops the request then (`stopped_requests.rs`).
    if world.freeze().stops_write(&free) || reason != Reason::NodeGone {
        return Answer::Yes;
    }
    is_still_lost(claim, facts, draft, due)
}

/// The findings about published claims of other nodes that overlap this claim, if it is published too.
pub(super) fn both_published(claim: &ClaimFacts<'_>, facts: &Facts<'_>) -> Vec<Finding> {
    let world = facts.world;
    let others = world.overlapping(claim.claim).map(|known| &known.claim);
    let others = others.filter(|other| other.node != claim.claim.node);
    let published = others.filter(|other| claim.is_carried && is_carried(world, other));
    let findings = published.map(|other| {
        let message = format!(
            "it is published on node {} and overlaps a block of node {}, {}: the controller changes neither; drain \
             one of the nodes, and delete it for at least reuseAfterNodeLoss of its pool",
            claim.claim.node, other.node, other.cidr
        );
        Finding::of_claim(FindingKind::BothPublished, claim.claim.cidr, message)
    });
    findings.collect()
}

const fn yes_if(holds: bool) -> Answer {
    if holds { Answer::Yes } else { Answer::No }
}

/// Whether the Node of the claim is in this state. If that is not known well enough to move the claim, a read comes
/// first: the watch may not have shown yet that the Node was deleted or has returned.
fn if_presence(claim: &ClaimFacts<'_>, facts: &Facts<'_>, is_so: impl Fn(&Presence) -> bool) -> Answer {
    match facts.world.presence(claim.claim) {
        Some(presence) if is_so(&presence) => Answer::Yes,
        Some(_) => Answer::Unknown,
        None => Answer::first(read_node(claim.claim, facts)),
    }
}

/// The read of the Node of a claim. One read serves all claims of the node.
fn read_node(claim: &Claim, facts: &Facts<'_>) -> Request {
    let latest = facts.claims.iter().map(|known| known.claim.revision).max();
    Read::Node(claim.node.clone(), latest.unwrap_or(claim.revision)).into()
}

fn absence(claim: &ClaimFacts<'_>, facts: &Facts<'_>) -> Absence {
    // In a mode with usage queries the answer of the agent shows in which mode it runs.
    let may_run_in_other_mode = |carrier: &Carrier<'_>| {
        !facts.traits.removes_with_query && facts.publisher.may_run_in_other_mode(*carrier)
    };
    if let Some(carrier) = facts.carrier.filter(may_run_in_other_mode) {
        let later = || facts.publisher.later_version(facts.name, Some(carrier), claim.claim.revision);
        let later = (claim.leaving == Some(Leaving::NotSeen)).then(later).flatten();
        return later.map_or(Absence::NotYet, Absence::Provable);
    }
    facts.publisher.absence(Removal {
        claim: claim.claim,
        carrier: facts.carrier,
        is_carried: claim.is_carried,
        absent_as_of: facts.world.absent_as_of(facts.name),
        presence: facts.world.presence(claim.claim).as_ref(),
        answered: facts.world.answered(claim.claim),
    })
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
fn is_still_lost(claim: &Claim, facts: &Facts<'_>, draft: &mut Draft, due: Duration) -> Answer {
    if facts.carrier.is_some() {
        return Answer::Unknown;
    }
    let counts_until = |(answered_at, presence): &(Duration, &Presence)| match presence {
        Presence::Gone => *answered_at + ABSENCE_COUNTS_FOR,
        Presence::Is(_) | Presence::Unreadable => *answered_at + PRESENCE_COUNTS_FOR,
    };
    let now = draft.now.uptime;
    let counts = |read: &(Duration, &Presence)| read.0 >= due && counts_until(read) > now;
    match facts.world.presence_read(facts.name).filter(counts) {
        Some((_, Presence::Gone)) => Answer::Yes,
        Some(read @ (_, Presence::Is(_) | Presence::Unreadable)) => {
            // The watch of Nodes will show it, unless the Node is deleted before that. Then no event comes.
            draft.wake_at(counts_until(&read));
            Answer::Unknown
        }
        None => Answer::first(read_node(claim, facts)),
    }
}
