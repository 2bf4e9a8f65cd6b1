//! The condition `Draining` of a pool: which of its blocks are to leave living nodes, how far they are, and what keeps the
//! others.

use std::collections::BTreeMap;

use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::counted::counted;
use crate::model::kind::Kind;
use crate::model::names::{PoolName, ten_of};
use crate::model::status::ConditionReason;
use crate::publisher::answer::Drain;
use crate::world::World;

/// How far a block is that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its node holds it, and new pods get addresses of it.
    Held,
    /// It is closed to new pods, and pods still have addresses of it.
    InUse,
    /// It is closed to new pods, and its agent is about to be asked, or is asked.
    Asked,
    /// Its agent has let it go.
    Leaving,
}

impl Stage {
    const fn told(self) -> &'static str {
        match self {
            Self::Held => "open to new pods",
            Self::InUse => "closed to new pods and in use",
            Self::Asked => "unused and to be let go by its agent",
            Self::Leaving => "being taken off",
        }
    }
}

/// The condition. Costs a pass over the claims of the pool.
pub(super) fn draining(world: &World, name: &PoolName) -> (ConditionReason, String) {
    let claims = world.claims_of_pool(name).map(|known| &known.claim);
    let readable = claims.filter(|claim| !world.is_unreadable_claim(claim.cidr));
    let (mut counts, mut waits) = (BTreeMap::<Stage, usize>::new(), Vec::new());
    for claim in readable {
        let Some(stage) = stage(world, claim) else { continue };
        *counts.entry(stage).or_default() += 1;
        waits.extend(
            hindrance(world, claim, stage).map(|why| format!("{} of {} ({why})", claim.cidr, claim.node)),
        );
    }
    if counts.is_empty() {
        return (ConditionReason::NoneToLeave, "no block of the pool is to leave its node".to_owned());
    }
    let stages: Vec<String> =
        counts.iter().map(|(stage, n)| format!("{} {}", counted(*n, "block"), stage.told())).collect();
    let waits = if waits.is_empty() { String::new() } else { format!("; these wait: {}", ten_of(waits)) };
    (ConditionReason::BlocksToLeave, format!("{}{waits}", stages.join(", ")))
}

fn stage(world: &World, claim: &Claim) -> Option<Stage> {
    let carrier =
        world.carrier(&claim.node).filter(|of| !world.is_unreadable(of.kind(), claim.node.as_str()));
    match &claim.state {
        ClaimState::Held if world.is_to_leave(claim) => Some(Stage::Held),
        ClaimState::Draining(_) => Some(match carrier.map(|carrier| world.reader().drain(carrier, claim)) {
            Some(Drain::Closed(used)) if !used.is_empty() => Stage::InUse,
            Some(Drain::Closed(_) | Drain::Asked | Drain::Consented) => Stage::Asked,
            Some(Drain::Open | Drain::Stays(_)) | None => Stage::Held,
        }),
        ClaimState::Releasing(Reason::Reclaimed) => Some(Stage::Leaving),
        ClaimState::Held | ClaimState::Releasing(_) | ClaimState::Cooling(_) => None,
    }
}

/// What keeps a block on its node, as far as objects say.
fn hindrance(world: &World, claim: &Claim, stage: Stage) -> Option<String> {
    let carrier = world.carrier(&claim.node)?;
    if world.is_unreadable(Kind::CiliumNode, claim.node.as_str()) {
        return None;
    }
    match stage {
        Stage::Held => world.reader().may_leave(carrier, claim).err().map(|stays| stays.to_string()),
        Stage::InUse => {
            Some(format!("{} in use", counted(world.reader().n_used_in(carrier, claim.cidr), "address")))
        }
        Stage::Asked | Stage::Leaving => None,
    }
}
