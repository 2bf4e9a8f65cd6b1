//! The state beside the objects: how well a claim is known, how a node is being served, and the observations of this
//! process that no object shows.
//!
//! Knows no world: values with their own small rules only.

use std::collections::BTreeSet;
use std::time::Duration;

use super::applied::Writes;
use super::pause::Pause;
use crate::model::address_class::AddressClass;
use crate::model::agent::{PodSnapshot, UseWriter};
use crate::model::availability::Availability;
use crate::model::carrier::FormerCarrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::names::{NodeName, PoolName, Uid};
use crate::model::outcome::Presence;
use crate::model::plan::{Coverage, NodePlan, TimedState, Unmet};
use crate::model::revision::Revision;
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// A claim and how well it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClaim {
    /// The claim in its newest version.
    pub claim: Claim,
    /// Whether a watch or list has shown it, in any version. An answer to our own create does not count: it does not
    /// show overlapping claims (safety rule 2).
    pub shown: bool,
    /// The revision of the last consistent read that showed it.
    pub confirmed: Option<Revision>,
}

/// A claim that was deleted without our consent, or in an unknown way. Its block stays taken. If its node exists and it
/// was not leaving, it is recreated. Otherwise its carrier must be known at a later revision (safety rule 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The block, or the range that an unreadable claim seemed to take.
    pub cidr: Cidr,
    /// A revision at which no replica could publish its block any more: the claim was deleted, or forbade it.
    pub at: Revision,
    /// The claim in its last known version; `None` if it could not be read.
    pub claim: Option<Claim>,
    /// Whether its last version is known. Otherwise it may have gone through every state since.
    pub was_seen: bool,
}

/// How a node is being served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeProgress {
    /// When the last patch of its carrier was sent.
    pub last_patch: Option<Duration>,
    /// How long it waits because its writes are not applied.
    pub pause: Pause,
    /// The lasting states that its last plans found, each with its start.
    pub lasting: Vec<(TimedState, Duration)>,
    /// When a block of it that was leaving was last kept.
    pub last_kept: Option<Duration>,
    /// How often in a row a removed block was kept, because its agent or a pod kept using it.
    pub n_refused: u32,
    /// When the last usage query was sent to its agent, unless the server refused it.
    pub last_query: Option<Duration>,
    /// The blocks that it asks for and can't get.
    pub unmet: BTreeSet<Unmet>,
    /// The last verdict whether it can give addresses to pods.
    pub availability: Option<Availability>,
    /// Since when it has had unmet requests.
    pub waits_since: Option<Duration>,
}

impl NodeProgress {
    /// Since when this state has lasted.
    #[must_use]
    pub fn since(&self, lasting: TimedState) -> Option<Duration> {
        self.lasting.iter().find(|(of, _)| *of == lasting).map(|(_, since)| *since)
    }

    /// The time of this state counts from the next plan that finds it.
    pub(super) fn begin_anew(&mut self, lasting: TimedState) {
        self.lasting.retain(|(of, _)| *of != lasting);
    }

    /// Takes in the lasting states that a plan found, as far as it looked.
    pub(super) fn note_lasting(&mut self, plan: &NodePlan, now: Duration) {
        self.lasting
            .retain(|(lasting, _)| plan.lasting.contains(lasting) || (plan.coverage != Coverage::Full));
        let found =
            plan.lasting.iter().filter(|found| plan.coverage == Coverage::Full || found.is_seen_early());
        for found in found {
            if self.since(*found).is_none() {
                self.lasting.push((*found, now));
            }
        }
    }

    /// Takes in the unmet requests of a plan. A wait is over when the node needs nothing more: another replica may take
    /// the block that a plan claims, and a standby or frozen process claims none.
    pub(super) fn note_unmet(&mut self, plan: &NodePlan, now: Duration) {
        self.unmet.clone_from(&plan.unmet);
        if !plan.unmet.is_empty() {
            self.waits_since.get_or_insert(now);
        } else if plan.coverage == Coverage::Full && plan.requests().is_empty() && !plan.is_stopped() {
            self.waits_since = None;
        }
    }

    /// The classes for which it asks for a block that no pool of its node has.
    pub fn waits_for(&self) -> impl Iterator<Item = &AddressClass> {
        self.unmet.iter().filter_map(|unmet| match unmet {
            Unmet::NoCapacity(class) => Some(class),
            Unmet::AtLimit(_) | Unmet::Held(_) => None,
        })
    }

    /// Whether it asks for a block that no pool of its node has.
    #[must_use]
    pub fn waits_for_capacity(&self) -> bool {
        self.waits_for().next().is_some()
    }
}

/// The memory of a node beside its objects. There is none if nothing is left of the node
/// ([`World::is_gone`](super::World::is_gone)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Remembered {
    /// How it is being served.
    pub(super) serving: NodeProgress,
    /// The last writes to its objects.
    pub(super) writes: Writes,
    /// The result of the last read of its Node since the watch last showed it.
    pub(super) presence: Option<NodeRead>,
    /// The latest revision at which a consistent read did not find its CiliumNode.
    pub(super) absent_as_of: Option<Revision>,
    /// The latest revision at which all of its claims were read.
    pub(super) claims_read: Option<Revision>,
    /// The carrier that was known when the last read of all of its claims was sent.
    pub(super) claims_read_for: Option<Uid>,
    /// The fields of its last carrier, which was deleted or replaced while the Node exists.
    pub(super) former_carrier: Option<FormerCarrier>,
    /// The agent that was last seen to write its use; `None` if it could not be identified.
    pub(super) use_writer: Option<UseWriter>,
    /// The draining blocks that were fenced before the agent last wrote its use, each with the version of its claim.
    pub(super) fenced_before_use: Box<[(Cidr, Revision)]>,
    /// The agent that was Ready when this process last sent it a usage query or a fence.
    pub(super) asked: Option<UseWriter>,
    /// The last answer of its agent to a usage query.
    pub(super) answered: Option<Answered>,
    /// The result of the last read of its Pods.
    pub(super) look: Option<Box<PodSnapshot>>,
}

/// The answer of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answered {
    /// The carrier.
    pub(super) carrier: Uid,
    /// The latest revision at which the answered usage query was sent.
    pub(super) as_of: Revision,
    /// Every address that the answer shows on the carrier.
    pub(super) carried: AddressSet,
    /// Every address on the carrier in the version before: the last that has shown the usage query.
    pub(super) carried_before: AddressSet,
}

/// The result of a read of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRead {
    /// A revision at which the claims of the node were known when the read was decided.
    pub(super) as_of: Revision,
    /// When it was answered.
    pub(super) answered_at: Duration,
    /// The result.
    pub(super) presence: Presence,
}

/// A cooling of a block that this process has seen. A claim that cools again, or another claim of the block, starts
/// anew, even if this process saw nothing in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenCooling {
    /// The claim.
    pub(super) uid: Uid,
    /// When it started, as the claim says.
    pub(super) since: Timestamp,
    /// When it was first looked at, or first again after the Node was seen to be deleted.
    pub(super) seen_at: Option<Duration>,
    /// Whether the Node was seen to be deleted after it started: until then the machine existed, despite the claim.
    pub(super) node_went: bool,
}

impl SeenCooling {
    /// One without a first look.
    pub(super) fn of(claim: &Claim) -> Self {
        Self { uid: claim.uid.clone(), since: claim.since, seen_at: None, node_went: false }
    }

    /// Whether it is the present cooling of the claim.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        matches!(claim.state, ClaimState::Cooling(_)) && claim.uid == self.uid && claim.since == self.since
    }
}

/// A released block; its route may still be announced. Another claim of the block, or another release, starts anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenRemaining {
    /// The claim.
    pub(super) uid: Uid,
    /// When it was released, as the claim says.
    pub(super) since: Timestamp,
    /// When its route was first looked for.
    pub(super) seen_at: Duration,
    /// Since when only the daemon of the node may have it.
    pub(super) running_since: Option<Duration>,
}

impl SeenRemaining {
    /// Whether it is the present release of the claim.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        let is_released = matches!(claim.state, ClaimState::Releasing(_));
        is_released && claim.uid == self.uid && claim.since == self.since
    }
}

/// The memory of a request in flight.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// The node on whose behalf it was sent.
    pub(super) node: Option<NodeName>,
    /// The block of the claim that it creates, and the pool of that claim, if it creates one.
    pub(super) creates: Option<(Cidr, PoolName)>,
    /// If it reads all claims of the node: the carrier of the node that was known when it was sent.
    pub(super) reads_claims_for: Option<Uid>,
    /// When it was sent.
    pub(super) at: Duration,
}
