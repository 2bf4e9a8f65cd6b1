//! Which blocks of a pool should leave nodes that still exist, how far they are, and the obstacles of the others. The
//! condition `Draining` of the pool shows it, and the status of each claim, which also says when its block has cooled.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::tally;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::counted::counted;
use crate::model::names::{MAX_LISTED, PoolName, ten_of};
use crate::model::printable::printable;
use crate::model::status::{ClaimStatus, ConditionReason, DrainStatus, ShownAs, capped_count};
use crate::model::time::whole_seconds;
use crate::net::addresses::AddressSet;
use crate::publisher::answer::Drain;
use crate::world::World;

/// How far the drain of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its node holds it, and new pods get addresses of it.
    Held,
    /// It is closed to new pods, and pods still have addresses of it.
    InUse,
    /// The controller removed it from the carrier. Its agent kept it for the addresses in use, and gives no more of it
    /// to new pods.
    Refused,
    /// It is closed to new pods, and its agent is about to be asked, or is asked.
    Asked,
    /// Its agent has released it.
    Leaving,
}

impl Stage {
    const fn label(self) -> &'static str {
        match self {
            Self::Held => "open to new pods",
            Self::InUse => "closed to new pods and in use",
            Self::Refused => "kept by its agent and closed to new pods",
            Self::Asked => "unused and waiting for the agent's release",
            Self::Leaving => "being removed",
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
        return (ConditionReason::NoneToLeave, String::new());
    }
    let stages: Vec<String> =
        counts.iter().map(|(stage, n)| format!("{} {}", counted(*n, "block"), stage.label())).collect();
    let waits = if waits.is_empty() { String::new() } else { format!("; waiting: {}", ten_of(waits)) };
    (ConditionReason::BlocksToLeave, format!("{}{waits}", stages.join(", ")))
}

fn stage(world: &World, claim: &Claim) -> Option<Stage> {
    let carrier = tally::readable_carrier(world, &claim.node);
    match &claim.state {
        ClaimState::Held if world.must_leave(claim) => Some(Stage::Held),
        ClaimState::Draining(_) if world.reader_of(&claim.node).traits().removes_with_query => {
            Some(Stage::Refused)
        }
        ClaimState::Draining(_) => {
            Some(match carrier.map(|carrier| world.reader_of(&claim.node).drain(carrier, claim)) {
                Some(Drain::Closed(used)) if !used.is_empty() => Stage::InUse,
                Some(Drain::Closed(_) | Drain::Asked | Drain::Consented) => Stage::Asked,
                Some(Drain::Open | Drain::Stays(_)) | None => Stage::Held,
            })
        }
        ClaimState::Releasing(Reason::Reclaimed) => Some(Stage::Leaving),
        ClaimState::Held | ClaimState::Releasing(_) | ClaimState::Cooling(_) => None,
    }
}

/// The reason why a block stays on its node, as far as objects show it.
fn hindrance(world: &World, claim: &Claim, stage: Stage) -> Option<String> {
    let carrier = tally::readable_carrier(world, &claim.node)?;
    match stage {
        Stage::Held => world.why_kept(carrier, claim),
        Stage::InUse => Some(format!(
            "{} in use",
            counted(world.reader_of(&claim.node).n_used_in(carrier, claim.cidr), "address")
        )),
        Stage::Refused | Stage::Asked | Stage::Leaving => None,
    }
}

/// The reason for a block that its node still needs, or that waits for its turn. Whether the agent is Ready changes
/// with every restart. So only the condition and the finding say that, and it costs no version of the claim.
const NOT_YET: &str = "its node needs it, its agent is not Ready, or it is not its turn yet";
/// The same where the agent does not say which addresses are in use.
const NOT_YET_OR_USED: &str =
    "pods have addresses of it, its node needs it, its agent is not Ready, or it is not its turn yet";
const REFUSED: &str = "its agent still uses it and kept it; it takes no new pods";
const PODS: &str = "its agent uses addresses of it (status.ipam.used of the CiliumNode)";
const UNLISTED: &str = "pods have addresses of it that the agent does not list";

/// The status that the claim should show, if it differs from the one that it shows; `None` otherwise.
///
/// Facts that only this process remembers do not change the status alone: the next leader remembers none, and would
/// undo the change. The status also stays unchanged from the usage query until the block is off its node. A later
/// version of the claim would require every proof anew.
#[must_use]
pub fn status_due(world: &World, claim: &Claim) -> Option<ClaimStatus> {
    let reported = &claim.status;
    if claim.is_terminating() {
        return None;
    }
    let carrier = world.carrier(&claim.node);
    if carrier.is_some_and(|of| world.is_unreadable(of.kind(), claim.node.as_str())) {
        return None;
    }
    let drain = match (&claim.state, carrier) {
        (ClaimState::Held, Some(carrier)) if world.must_leave(claim) => {
            let not_yet = if world.reader_of(&claim.node).traits().removes_with_query {
                NOT_YET_OR_USED
            } else {
                NOT_YET
            };
            let stays = world.reader_of(&claim.node).may_leave(carrier, claim).err();
            let why = stays.map_or_else(|| not_yet.to_owned(), |stays| stays.to_string());
            Some(waits_for(&why, None, Vec::new()))
        }
        (ClaimState::Held | ClaimState::Cooling(_), _) => None,
        (ClaimState::Draining(_), _) if world.reader_of(&claim.node).traits().removes_with_query => {
            Some(waits_for(REFUSED, None, Vec::new()))
        }
        (ClaimState::Draining(uid), Some(carrier)) if carrier.uid() == uid => {
            match world.reader_of(&claim.node).drain(carrier, claim) {
                Drain::Closed(used) if !used.is_empty() => {
                    let pods = holders(world, claim, Some(&used));
                    Some(waits_for(PODS, Some(used.len()), pods))
                }
                Drain::Closed(_) => match holders(world, claim, None) {
                    // The leader before may have known of such a pod.
                    pods if pods.is_empty() && says_unlisted(reported) => {
                        return None;
                    }
                    pods if pods.is_empty() => None,
                    pods => Some(waits_for(UNLISTED, Some(pods.len() as u128), pods)),
                },
                Drain::Open | Drain::Asked | Drain::Consented | Drain::Stays(_) => return None,
            }
        }
        (ClaimState::Draining(_) | ClaimState::Releasing(_), _) => return None,
    };
    let will_drain = claim.state == ClaimState::Held && drain.is_some();
    let shown_as =
        if claim.deleting { Some(ShownAs::Deleting) } else { will_drain.then_some(ShownAs::WillDrain) };
    let until = world.cooled_at(claim).map(whole_seconds);
    let due = ClaimStatus { shown_as, until, drain };
    let is_drain_reported = match (&reported.drain, &due.drain) {
        (None, None) => true,
        (Some(reported), Some(due)) => {
            reported.waiting_for == due.waiting_for
                && reported.pod_count == due.pod_count
                && (!reported.pods.is_empty() || due.pods.is_empty())
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    let is_reported = is_drain_reported && (reported.shown_as, reported.until) == (due.shown_as, due.until);
    (!is_reported).then_some(due)
}

fn says_unlisted(reported: &ClaimStatus) -> bool {
    reported.drain.as_ref().is_some_and(|drain| drain.waiting_for == UNLISTED)
}

/// The longest sentence that the status of a claim takes, in characters.
const LONGEST: usize = 256;

fn waits_for(what: &str, n_pods: Option<u128>, mut pods: Vec<(IpAddr, String)>) -> DrainStatus {
    pods.truncate(MAX_LISTED);
    DrainStatus {
        waiting_for: printable(what).chars().take(LONGEST).collect(),
        pod_count: n_pods.map(capped_count),
        pods,
    }
}

/// The pods that have an address of a block, by the last read of the node's Pods. With the addresses that the agent
/// lists now, these are the pods on listed addresses. Without them, these are the pods on addresses that the agent
/// did not list at that read.
fn holders(world: &World, claim: &Claim, listed: Option<&AddressSet>) -> Vec<(IpAddr, String)> {
    let Some(look) = world.look(&claim.node) else { return Vec::new() };
    // A listed Pod may have terminated since, and only then no list has it.
    let counts = |address: IpAddr| match listed {
        Some(listed) => listed.contains(address),
        None => look.unlisted.contains(&address),
    };
    let entries = look.found.iter().flat_map(|pods| claim.cidr.entries_in(&pods.holders));
    entries.filter(|(address, _)| counts(**address)).map(|(address, pod)| (*address, pod.clone())).collect()
}
