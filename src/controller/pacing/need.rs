//! Which decisions need a turn in the event budget, and their class.

use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::plan::NodePlan;
use crate::model::request::{ClaimChange, ClaimUpdate, Read, Request, WithdrawalStep, Write};
use crate::model::revision::AnyRevision;
use crate::model::write_class::WriteClass;
use crate::plan;
use crate::world::World;

/// The writes of the controller to a CiliumNode by which one block is reclaimed: a fence, a usage query, marks, a
/// confirmation, and the removal (`docs/performance.md`).
const WRITES_OF_DRAIN: u32 = 5;

/// The same in a mode whose agents take blocks as a whole: the removal, and the end of its query.
const WRITES_OF_REMOVAL: u32 = 2;

/// The purpose of a turn. Of several the last counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// A read that such a write may wait for.
    Look,
    /// A read that such a write waits for.
    Read,
    /// A write of a reclaim that has started.
    Step,
    /// The writes of a reclaim that starts. A reclaim that were slower than its time-outs would never end.
    Start,
    /// These writes.
    Write,
}

/// The turn that a decision needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) class: WriteClass,
    pub(super) n_writes: u32,
    pub(super) purpose: Purpose,
}

/// The turn that a decision needs; `None` if it writes no CiliumNode.
///
/// Claims, the Lease, events and pools have few watchers, and a Node is watched by its own agent only.
pub(super) fn of(world: &World, plan: &NodePlan) -> Option<Need> {
    let needs = plan.requests().iter().filter_map(|request| of_request(world, &plan.node, request));
    needs.reduce(|first, second| Need {
        class: first.class.min(second.class),
        n_writes: first.n_writes.saturating_add(second.n_writes),
        purpose: first.purpose.max(second.purpose),
    })
}

/// Whether blocks of a node are being reclaimed.
pub(super) fn is_in_reclaim(world: &World, node: &NodeName) -> bool {
    let is_leaving = |claim: &Claim| claim.is_reclaimed() || matches!(claim.state, ClaimState::Draining(_));
    world.claims_of(node).any(|known| is_leaving(&known.claim))
}

fn of_request(world: &World, node: &NodeName, request: &Request) -> Option<Need> {
    let need = |class, purpose| Some(Need { class, n_writes: 1, purpose });
    match request {
        Request::Read(Read::ClaimsOf(_)) if is_in_reclaim(world, node) => {
            need(class_of_publication(world, node)?, Purpose::Look)
        }
        Request::Read(Read::ClaimsOf(_)) => need(class_of_publication(world, node)?, Purpose::Read),
        Request::Read(Read::PodsOf(..)) => need(WriteClass::Growth, Purpose::Look),
        Request::Read(Read::Claim(..) | Read::CiliumNode(_) | Read::Node(..)) => None,
        Request::Write(write) => match write {
            Write::Publish(publication) => match publication.change.carrier_kind() {
                Kind::CiliumNode => {
                    let is_repair = !publication.completed.is_empty();
                    let class =
                        if is_repair { WriteClass::First } else { class_of_publication(world, node)? };
                    need(class, Purpose::Write)
                }
                Kind::Node | Kind::Pool | Kind::Claim => None,
            },
            Write::CreateCiliumNode(_) => need(WriteClass::First, Purpose::Write),
            // An agent that restarts before that restores no pod whose address has a mark.
            Write::Withdraw(withdrawal) if withdrawal.step == WithdrawalStep::Clear => {
                need(WriteClass::First, Purpose::Write)
            }
            Write::UsageQuery(_) | Write::Withdraw(_) => {
                let is_step = is_in_reclaim(world, node);
                need(WriteClass::Growth, if is_step { Purpose::Step } else { Purpose::Write })
            }
            Write::BumpVersion(bump) => match bump.revision {
                AnyRevision::Custom(_) => need(WriteClass::Growth, Purpose::Write),
                AnyRevision::Core(_) => None,
            },
            Write::UpdateClaim(update) => {
                let n_writes = writes_of_start(world, update)?;
                Some(Need { class: WriteClass::Reclaim, n_writes, purpose: Purpose::Start })
            }
            Write::CreateClaim(_)
            | Write::PoolStatus(_)
            | Write::PoolFinalizers(_)
            | Write::ClaimStatus(_)
            | Write::NodeCondition(_)
            | Write::PodIpPool(_)
            | Write::Frr(_) => None,
        },
    }
}

/// The class of a patch that publishes the held blocks of a node. `None` if its carrier is no CiliumNode.
fn class_of_publication(world: &World, node: &NodeName) -> Option<WriteClass> {
    world.carrier(node)?.cilium_node()?;
    Some(if plan::starts_or_restores(world, node) { WriteClass::First } else { WriteClass::Growth })
}

/// The number of writes to the CiliumNode that follow if this change of a claim starts a reclaim; otherwise `None`.
fn writes_of_start(world: &World, update: &ClaimUpdate) -> Option<u32> {
    let claim = &world.claim(update.cidr)?.claim;
    if claim.state != ClaimState::Held {
        return None;
    }
    match &update.change {
        ClaimChange::Drain(_) => Some(WRITES_OF_DRAIN),
        ClaimChange::Release(Reason::Reclaimed) => {
            let reader = world.reader_of(&claim.node);
            let carrier = world.carrier(&claim.node)?;
            (reader.traits().removes_with_query && reader.lists(carrier, claim.cidr))
                .then_some(WRITES_OF_REMOVAL)
        }
        ClaimChange::Hold(_)
        | ClaimChange::Keep
        | ClaimChange::Release(_)
        | ClaimChange::Cool
        | ClaimChange::Delete => None,
    }
}
