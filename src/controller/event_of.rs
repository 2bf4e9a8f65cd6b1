//! Which Kubernetes event reports which news: steps of blocks, and changes in the status of a pool.

use super::events::{Event, Subject};
use crate::model::counted::counted;
use crate::model::finding::FindingKind;
use crate::model::names::NodeName;
use crate::model::request::PoolStatusWrite;
use crate::model::status::{ConditionReason, ConditionType, PoolStatus};
use crate::net::cidr::Cidr;
use crate::telemetry::event_reason::EventReason;
use crate::view::block_event::{BlockEvent, Cause, Step, listed};
use crate::world::World;

/// The event on the Node about a step in the life of a block; `None` for steps without an event.
pub(super) fn event_of_block(world: &World, block_event: &BlockEvent) -> Option<Event> {
    let blocks = listed(&block_event.blocks);
    let pools = listed(&block_event.pools);
    let is_answered_later = world.reader().traits().removes_with_query;
    let (reason, note) = match (block_event.step, block_event.cause) {
        (Step::Published, _) => (
            EventReason::BlocksPublished,
            format!(
                "published {blocks} of pool {pools}: {} more ({}){}",
                counted(block_event.n_addresses, "address"),
                block_event.cause.as_str(),
                routed_to_another(world, block_event)
            ),
        ),
        (Step::Held, Cause::NodeReturned) => {
            (EventReason::BlocksReturned, format!("the Node came back and keeps {blocks} of pool {pools}"))
        }
        (Step::Releasing, Cause::Unused) => (
            EventReason::BlocksGivenBack,
            format!("gives {blocks} back to pool {pools}: never published, or given up by a user"),
        ),
        (Step::Draining, Cause::Stays) => (
            EventReason::BlocksKept,
            format!("the agent still uses {blocks} of pool {pools} and kept them; they take no new pods"),
        ),
        (Step::Draining, cause) => {
            (EventReason::BlocksDraining, format!("draining {blocks} of pool {pools} ({})", cause.as_str()))
        }
        (Step::Held, Cause::Stays) => (
            EventReason::BlocksKept,
            format!("stopped draining {blocks} of pool {pools}: this node keeps them"),
        ),
        // Its agent may keep using it.
        (Step::TakenOff, _) if is_answered_later => (
            EventReason::BlocksDraining,
            format!("removing {blocks} of pool {pools} from this node; the agent may still refuse"),
        ),
        (Step::Cooling, Cause::Reclaimed) if is_answered_later => (
            EventReason::BlocksReclaimed,
            format!("removed {blocks} of pool {pools} from this node: the agent confirmed it"),
        ),
        (Step::TakenOff, _) => (
            EventReason::BlocksReclaimed,
            format!("removed {blocks} of pool {pools} from this node: the agent released every address"),
        ),
        (
            Step::Claimed
            | Step::Held
            | Step::Fenced
            | Step::Marked
            | Step::Releasing
            | Step::Confirmed
            | Step::Cooling
            | Step::Freed,
            _,
        ) => return None,
    };
    let uid = world.node_uid(&block_event.node)?.clone();
    Some(Event { subject: Subject::Node(block_event.node.clone(), uid), reason, note, about: blocks })
}

/// That routes to a block may lead to another node, because that Node has it in its podCIDRs.
fn routed_to_another(world: &World, block_event: &BlockEvent) -> String {
    let node = &block_event.node;
    let routed = block_event.blocks.iter().find_map(|block| world.routed_to_others(*block, node).next());
    let reported = |(cidr, other): (Cidr, &NodeName)| {
        format!(
            "; Node {other} has {cidr} in spec.podCIDRs, so routes may lead there: see the finding {}",
            FindingKind::PodCIDRConflict.as_str()
        )
    };
    routed.map(reported).unwrap_or_default()
}

/// The events about the changes between the status that a pool shows and the status that is written.
pub(super) fn events_of_status(world: &World, write: &PoolStatusWrite) -> Vec<Event> {
    let Some(object) = world.pool_object(&write.pool) else {
        return Vec::new();
    };
    let holds =
        |status: &PoolStatus, kind| status.conditions.get(&kind).is_some_and(|condition| condition.holds);
    let has = |status: &PoolStatus, reason: ConditionReason| {
        let condition = status.conditions.get(&reason.condition());
        condition.is_some_and(|condition| condition.reason == reason.as_str())
    };
    let before = &object.status;
    let after = &write.status;
    let became = |kind| holds(after, kind) && !holds(before, kind);
    let has_new = |reasons: &[ConditionReason]| {
        reasons.iter().any(|reason| has(after, *reason) && !has(before, *reason))
    };
    // A pool that can't be read has no such condition any more. A pool that was closed since is not exhausted, and
    // that does not mean that capacity returned.
    let returned = holds(before, ConditionType::Exhausted) && has(after, ConditionReason::FreeBlocks);
    let transitions = [
        (became(ConditionType::Exhausted), EventReason::Exhausted, ConditionType::Exhausted),
        (returned, EventReason::CapacityReturned, ConditionType::Exhausted),
        (became(ConditionType::Overlapping), EventReason::Overlapping, ConditionType::Overlapping),
        (has_new(&[ConditionReason::Invalid]), EventReason::InvalidPool, ConditionType::Ready),
        (
            has_new(&[
                ConditionReason::PodIPPoolMissing,
                ConditionReason::PodIPPoolLacksFamily,
                ConditionReason::PodIPPoolOtherMaskSize,
            ]),
            EventReason::Finding(FindingKind::UnfitPodIPPool),
            ConditionType::UnfitPodIPPool,
        ),
        (has_new(&[ConditionReason::Passive]), EventReason::Passive, ConditionType::Ready),
        (
            // One switch more or less is news too.
            has_new(&[ConditionReason::WritesFrozen, ConditionReason::ReclaimFrozen]),
            EventReason::Frozen,
            ConditionType::Frozen,
        ),
        (
            holds(before, ConditionType::Frozen) && !holds(after, ConditionType::Frozen),
            EventReason::FreezeEnded,
            ConditionType::Frozen,
        ),
    ];
    transitions
        .into_iter()
        .filter(|(happened, ..)| *happened)
        .map(|(_, reason, condition)| Event {
            subject: Subject::Pool(write.pool.clone(), write.uid.clone()),
            reason,
            note: if reason == EventReason::CapacityReturned {
                "every family has a free block again".to_owned()
            } else if reason == EventReason::FreezeEnded {
                "no longer frozen".to_owned()
            } else {
                after.conditions.get(&condition).map(|shown| shown.message.clone()).unwrap_or_default()
            },
            about: String::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
