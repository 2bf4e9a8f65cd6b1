//! The blocks of a node in the last read of its Pods.

use std::time::Duration;

use super::draft::Draft;
use super::facts::{Answer, ClaimFacts, Facts};
use crate::model::claim::Claim;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::ten_of;
use crate::model::outcome::Presence;
use crate::model::request::Read;
use crate::world::World;

/// How often the Pods of a node are read while they keep its blocks.
pub(super) const PODS_AGAIN: Duration = Duration::from_secs(60);

/// The time before the next read of a node's Pods, if the last one contradicts the known agent, or if the server
/// refused it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(10);
pub(super) const LOOK_AGAIN_AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// Whether no Pod of the node has an address of a claim that a user gave up, and the Node existed when the Pods were
/// read. The Pods of a lost node are deleted, and its machine may still run.
pub(super) fn no_pod_uses_abandoned_block(claim: &Claim, facts: &Facts<'_>, draft: &mut Draft) -> Answer {
    let world = facts.world;
    // An agent without a CiliumNode keeps running, and the next CiliumNode will show its addresses.
    let Some(carrier) = facts.carrier else { return Answer::Unknown };
    if let Some(look) = world.look(facts.name)
        && (look.found.is_err() || holders(world, claim).is_some())
        && draft.waits_until(look.at + PODS_AGAIN)
    {
        return Answer::Unknown;
    }
    let Some(look) = world.look_after(carrier).filter(|look| look.at + PODS_AGAIN > draft.now.uptime) else {
        return Answer::first(Read::PodsOf(facts.name.clone(), carrier.revision()));
    };
    match world.presence_read(facts.name).filter(|(answered_at, _)| *answered_at >= look.at) {
        Some((_, presence)) if *presence == Presence::Is(claim.node_uid.clone()) => Answer::Yes,
        Some(_) => Answer::Unknown,
        None => Answer::first(Read::Node(facts.name.clone(), claim.revision)),
    }
}

/// Whether no pod is known to have an address of a block that is absent from the answer of its agent. A pod may have
/// got one just before its agent exited, and the next agent does not know of it.
///
/// It is unknown whether the agent released the block by itself or the controller removed it: its pool may have
/// changed since.
pub(super) fn no_pod_uses_removed_block(
    claim: &ClaimFacts<'_>,
    facts: &Facts<'_>,
    draft: &mut Draft,
) -> Answer {
    // A removal under the name of a Pod IP pool may have started in the mode that has such names.
    let may_be_forced =
        claim.claim.is_reclaimed() && (facts.traits.removes_with_query || claim.claim.pod_ip_pool.is_some());
    let Some(carrier) = facts.carrier.filter(|_| may_be_forced) else { return Answer::Yes };
    if facts.node.is_none() {
        // Pods are deleted with their Node, and its machine may keep running. When its CiliumNode is deleted too, the
        // block cools as any block of a lost node.
        return Answer::Unknown;
    }
    let look = facts.world.look_after(carrier);
    let again = match look.map(|look| &look.found) {
        None => Duration::ZERO,
        // Without the right to read Pods the controller removes no block, so most likely the agent released this
        // one by itself.
        Some(Err(_)) if !claim.must_leave => return Answer::Yes,
        Some(Err(_)) => LOOK_AGAIN_AFTER_REFUSAL,
        Some(Ok(pods)) => {
            let holders = pods.holders_in(claim.claim.cidr);
            if holders.is_empty() {
                return Answer::Yes;
            }
            let why =
                format!("its agent released it, but these pods have an address of it: {}", ten_of(holders));
            draft.findings.push(drain_waits(claim.claim, &why));
            PODS_AGAIN
        }
    };
    if look.is_some_and(|look| draft.waits_until(look.at + again)) {
        return Answer::Unknown;
    }
    Answer::first(Read::PodsOf(facts.name.clone(), carrier.revision()))
}

/// The Pods that have an address of the block, as the last read of the node's Pods found them.
pub(super) fn holders(world: &World, claim: &Claim) -> Option<String> {
    let pods = world.look(&claim.node)?.found.as_ref().ok()?;
    let holders = pods.holders_in(claim.cidr);
    (!holders.is_empty()).then(|| ten_of(holders))
}

/// The finding about a block that must leave, and why it does not yet.
pub(super) fn drain_waits(claim: &Claim, why: &str) -> Finding {
    let message = format!("can't be drained from node {} yet: {why}", claim.node);
    Finding::of_claim(FindingKind::DrainWaits, claim.cidr, message)
}
