//! The effect of a write on blocks, and the cause: the content of the log line that follows when the write is done.
//!
//! Pure. It is computed when the write is decided, because the world at that time shows the cause.

use std::fmt;

use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::names::{NodeName, PoolName};
use crate::model::request::{
    ClaimChange, ClaimUpdate, NewClaim, Publication, Withdrawal, WithdrawalStep, Write,
};
use crate::model::stable_names;
use crate::net::cidr::Cidr;
use crate::world::World;

/// A step in the life of one or more blocks of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockEvent {
    /// The step in the life of the block.
    pub step: Step,
    /// Why.
    pub cause: Cause,
    /// The node.
    pub node: NodeName,
    /// The pools of the blocks, without repetition.
    pub pools: Vec<PoolName>,
    /// The blocks.
    pub blocks: Vec<Cidr>,
    /// How many more addresses the node can use than before.
    pub n_addresses: usize,
}

stable_names! {
    /// The steps in the life of a block.
    pub enum Step {
        /// A claim was created.
        Claimed,
        /// The block was published on the carrier.
        Published,
        /// The claim is held for its node again.
        Held,
        /// The block starts draining: new pods get no address of it.
        Draining,
        /// Its addresses on the CiliumNode are closed to new pods.
        Fenced,
        /// The agent is asked to release its addresses.
        Marked,
        /// Its addresses are confirmed to the agent as released.
        Confirmed,
        /// The block was removed from the CiliumNode.
        TakenOff,
        /// The block is being removed from its node.
        Releasing,
        /// The block is off its node, and cools.
        Cooling,
        /// The claim was deleted, and the block is free.
        Freed,
    }
}

stable_names! {
    /// The cause of a step.
    pub enum Cause {
        /// The node has nothing published.
        FirstGrant,
        /// The node uses so many addresses that it needs more.
        Growth,
        /// The node's CiliumNode has the block, and no claim exists for it.
        Carried,
        /// A published block lacked addresses in the pool of the CiliumNode.
        MissingEntries,
        /// The Node came back.
        NodeReturned,
        /// The Node and its CiliumNode are gone.
        NodeGone,
        /// The node needs fewer addresses.
        Surplus,
        /// Its pool, or its range of the pool, reclaims its blocks.
        PoolDrains,
        /// It is needed after all, or the agent did not consent.
        Stays,
        /// The agent consented.
        Reclaimed,
        /// It was never published, or a user gave it up.
        Unused,
        /// It has cooled for long enough.
        Cooled,
    }
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Reclaimed => Self::Reclaimed,
            Reason::NodeGone => Self::NodeGone,
            Reason::Unused => Self::Unused,
        }
    }
}

/// The event of `write`; `None` if it is not a step in the life of a block.
#[must_use]
pub fn of(world: &World, write: &Write) -> Option<BlockEvent> {
    match write {
        Write::CreateClaim(claim) => Some(of_claim(world, claim)),
        Write::Publish(publication) => Some(of_publication(world, publication)),
        Write::UpdateClaim(update) => of_update(world, update),
        Write::Withdraw(withdrawal) => of_withdrawal(world, withdrawal),
        Write::BumpVersion(_)
        | Write::UsageQuery(_)
        | Write::CreateCiliumNode(_)
        | Write::PoolStatus(_)
        | Write::PoolFinalizers(_)
        | Write::ClaimStatus(_)
        | Write::NodeCondition(_)
        | Write::PodIpPool(_)
        | Write::Frr(_) => None,
    }
}

fn of_withdrawal(world: &World, withdrawal: &Withdrawal) -> Option<BlockEvent> {
    let step = match withdrawal.step {
        WithdrawalStep::Fence => Step::Fenced,
        WithdrawalStep::Mark => Step::Marked,
        WithdrawalStep::Confirm => Step::Confirmed,
        WithdrawalStep::Remove => Step::TakenOff,
        WithdrawalStep::Clear => return None,
    };
    let claim = withdrawal.blocks.first().and_then(|cidr| world.claim(*cidr));
    let cause = claim.map_or(Cause::Reclaimed, |known| cause_of_drain(world, &known.claim));
    Some(of_claimed(world, step, cause, &withdrawal.node, withdrawal.blocks.clone()))
}

/// Why a block leaves a node that still exists.
fn cause_of_drain(world: &World, claim: &Claim) -> Cause {
    match claim.state {
        ClaimState::Releasing(reason) | ClaimState::Cooling(reason) => reason.into(),
        ClaimState::Held | ClaimState::Draining(_) if world.must_leave(claim) => Cause::PoolDrains,
        ClaimState::Held | ClaimState::Draining(_) => Cause::Surplus,
    }
}

fn of_claim(world: &World, claim: &NewClaim) -> BlockEvent {
    let is_carried = world
        .carrier(&claim.node)
        .is_some_and(|carrier| world.reader_of(&claim.node).lists(carrier, claim.cidr));
    BlockEvent {
        step: Step::Claimed,
        cause: if is_carried { Cause::Carried } else { cause_of_grant(world, &claim.node) },
        node: claim.node.clone(),
        pools: vec![claim.pool.clone()],
        blocks: vec![claim.cidr],
        n_addresses: 0,
    }
}

fn of_publication(world: &World, publication: &Publication) -> BlockEvent {
    let (cause, blocks) = if publication.added.is_empty() {
        let claimed = publication.completed.iter().filter(|cidr| world.claim(**cidr).is_some());
        (Cause::MissingEntries, claimed.copied().collect())
    } else {
        (cause_of_grant(world, &publication.node), publication.added.clone())
    };
    BlockEvent {
        n_addresses: publication.n_addresses,
        ..of_claimed(world, Step::Published, cause, &publication.node, blocks)
    }
}

fn of_update(world: &World, update: &ClaimUpdate) -> Option<BlockEvent> {
    let claim = world.claim(update.cidr).map(|known| &known.claim);
    let state_reason = claim.and_then(|claim| claim.state.reason());
    let (step, cause) = match &update.change {
        ClaimChange::Hold(_) => (
            Step::Held,
            match (state_reason, claim.map(|claim| &claim.state)) {
                (Some(Reason::Unused | Reason::Reclaimed), _) => Cause::Carried,
                (None, Some(ClaimState::Draining(_))) => Cause::Stays,
                (Some(Reason::NodeGone) | None, _) => Cause::NodeReturned,
            },
        ),
        // The controller removed it from the carrier, and the agent keeps using it.
        ClaimChange::Drain(_) if state_reason.is_some() => (Step::Draining, Cause::Stays),
        ClaimChange::Drain(_) => {
            (Step::Draining, claim.map_or(Cause::Surplus, |claim| cause_of_drain(world, claim)))
        }
        ClaimChange::Keep => return None,
        ClaimChange::Release(reason) => (Step::Releasing, Cause::from(*reason)),
        ClaimChange::Cool => (Step::Cooling, state_reason.map_or(Cause::NodeGone, Cause::from)),
        ClaimChange::Delete => (Step::Freed, Cause::Cooled),
    };
    Some(of_claimed(world, step, cause, &update.node, vec![update.cidr]))
}

/// A step of blocks that have claims.
fn of_claimed(world: &World, step: Step, cause: Cause, node: &NodeName, blocks: Vec<Cidr>) -> BlockEvent {
    let claims = blocks.iter().filter_map(|cidr| world.claim(*cidr));
    let mut pools: Vec<PoolName> = claims.map(|known| known.claim.pool.clone()).collect();
    pools.sort();
    pools.dedup();
    BlockEvent { step, cause, node: node.clone(), pools, blocks, n_addresses: 0 }
}

/// Why a node gets a block: it has none, or too few addresses.
fn cause_of_grant(world: &World, node: &NodeName) -> Cause {
    if world.is_served(node) { Cause::Growth } else { Cause::FirstGrant }
}

/// The items separated by commas, as logs and event notes show them.
#[must_use]
pub fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<String>>().join(",")
}
