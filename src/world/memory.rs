//! What is kept beside the objects: how well a claim is known, how a node is being served, and what this process has seen
//! that no object says.
//!
//! Knows no world: values with their own small rules only.

use std::collections::BTreeSet;
use std::time::Duration;

use super::applied::Writes;
use super::pause::Pause;
use crate::model::agent::{Look, UseWriter};
use crate::model::carrier::FormerCarrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::names::{NodeName, PoolName, Uid};
use crate::model::outcome::Presence;
use crate::model::plan::{Lasting, NodePlan, Scope, Unmet};
use crate::model::revision::Revision;
use crate::model::share::Share;
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// A claim and how well it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClaim {
    /// The claim in its newest version.
    pub claim: Claim,
    /// Whether a watch or list has reached it. An answer to our own create does not count: it says nothing about
    /// claims that overlap (safety rule 2).
    pub shown: bool,
    /// The revision of the last consistent read that showed it.
    pub confirmed: Option<Revision>,
}

/// A claim that went in any way but by its states. Its block stays taken. For a node that lives the claim is recreated,
/// unless it was on its way out; otherwise its CiliumNode has to be known as of later than that (safety rule 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The block, or the range that an unreadable claim seemed to take.
    pub cidr: Cidr,
    /// A revision as of which nobody could publish its block any more: it was gone, or in a state that forbids it.
    pub at: Revision,
    /// The claim as it was known; `None` where it could not be read.
    pub claim: Option<Claim>,
    /// Whether its last version is known: otherwise it may have gone through every state since.
    pub was_seen: bool,
}

impl LostClaim {
    /// Whether the claim was last known in a state in which it may be deleted. Then its end was probably in order, and
    /// only a later version of the CiliumNode is missing that shows it. It is not recreated.
    #[must_use]
    pub fn was_leaving(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::may_be_deleted)
    }
}

/// How a node is being served.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Serving {
    /// When the last patch of its CiliumNode was sent.
    pub last_patch: Option<Duration>,
    /// How long it waits because its writes are not applied.
    pub pause: Pause,
    /// Since when what its last plans found of it is the case.
    pub lasting: Vec<(Lasting, Duration)>,
    /// When a block of it was last kept that was on its way off.
    pub last_kept: Option<Duration>,
    /// How often in a row its agent has gone on with a block that was taken off.
    pub n_refused: u32,
    /// When its agent was last asked for that use, unless the server refused the write.
    pub last_query: Option<Duration>,
    /// What it asks for and no pool can give.
    pub unmet: BTreeSet<Unmet>,
    /// Since when it has had unmet requests.
    pub waits_since: Option<Duration>,
}

impl Serving {
    /// Since when this has been the case.
    #[must_use]
    pub fn since(&self, lasting: Lasting) -> Option<Duration> {
        self.lasting.iter().find(|(of, _)| *of == lasting).map(|(_, since)| *since)
    }

    /// Takes in what a plan found that looked this far.
    pub(super) fn note_lasting(&mut self, plan: &NodePlan, now: Duration) {
        self.lasting.retain(|(lasting, _)| plan.lasting.contains(lasting) || (plan.scope != Scope::Whole));
        let found = plan.lasting.iter().filter(|found| plan.scope == Scope::Whole || found.is_seen_early());
        for found in found {
            if self.since(*found).is_none() {
                self.lasting.push((*found, now));
            }
        }
    }

    /// Takes in the unmet requests of a plan. A wait ends when the node needs nothing more: another replica may take the
    /// block that a plan claims, and a standby or frozen process claims none.
    pub(super) fn note_unmet(&mut self, plan: &NodePlan, now: Duration) {
        self.unmet.clone_from(&plan.unmet);
        if !plan.unmet.is_empty() {
            self.waits_since.get_or_insert(now);
        } else if plan.scope == Scope::Whole && plan.requests().is_empty() && !plan.is_stopped() {
            self.waits_since = None;
        }
    }

    /// The shares of which it asks for a block that no pool of its node has.
    pub fn waits_for(&self) -> impl Iterator<Item = &Share> {
        self.unmet.iter().filter_map(|unmet| match unmet {
            Unmet::NoCapacity(share) => Some(share),
            Unmet::AtLimit(_) => None,
        })
    }

    /// Whether it asks for a block that no pool of its node has.
    #[must_use]
    pub fn waits_for_capacity(&self) -> bool {
        self.waits_for().next().is_some()
    }
}

/// What is remembered of a node beside its objects. Never of one of which nothing is left
/// ([`World::is_gone`](super::World::is_gone)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Remembered {
    /// How it is being served.
    pub(super) serving: Serving,
    /// What was last written to its objects.
    pub(super) writes: Writes,
    /// What the last read of its Node found since the watch said something of it.
    pub(super) presence: Option<NodeRead>,
    /// The latest revision at which a consistent read did not find its CiliumNode.
    pub(super) absent_as_of: Option<Revision>,
    /// The latest revision at which all of its claims were read.
    pub(super) claims_read: Option<Revision>,
    /// The carrier that was known when the last read of all of its claims was sent.
    pub(super) claims_read_for: Option<Uid>,
    /// What its last carrier showed, which is gone while the Node lives.
    pub(super) former_carrier: Option<FormerCarrier>,
    /// Which agent was last seen to write its use; `None` if it was not one that could be told.
    pub(super) use_writer: Option<UseWriter>,
    /// The agent that was Ready when this process last asked it which addresses it uses.
    pub(super) asked: Option<UseWriter>,
    /// The last answer of its agent to a question.
    pub(super) answered: Option<Answered>,
    /// What the last read of its Pods found.
    pub(super) look: Option<Box<Look>>,
}

/// What an agent has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answered {
    /// The carrier.
    pub(super) carrier: Uid,
    /// The latest revision as of which it was asked.
    pub(super) as_of: Revision,
    /// Every address that the answer shows the agent to have.
    pub(super) carried: AddressSet,
    /// Every address that the version before showed it to have: the last that is known to have shown the question.
    pub(super) carried_before: AddressSet,
}

/// What a read of a Node found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRead {
    /// A revision as of which the claims of the node were known when the read was decided.
    pub(super) as_of: Revision,
    /// When it was answered.
    pub(super) answered_at: Duration,
    /// What was found.
    pub(super) presence: Presence,
}

/// A cooling of a block that this process has seen. A claim that cools again, or another claim of the block, begins anew,
/// also where nothing of what came between was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenCooling {
    /// The claim.
    pub(super) uid: Uid,
    /// When it began, as the claim says.
    pub(super) since: Timestamp,
    /// When it was first looked at, or first again after the Node was seen to go.
    pub(super) seen_at: Option<Duration>,
    /// Whether the Node was seen to go after it began: until then the machine was there, whatever the claim says.
    pub(super) node_went: bool,
}

impl SeenCooling {
    /// One that nobody has looked at.
    pub(super) fn of(claim: &Claim) -> Self {
        Self { uid: claim.uid.clone(), since: claim.since, seen_at: None, node_went: false }
    }

    /// Whether it is the cooling that the claim is in.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        matches!(claim.state, ClaimState::Cooling(_)) && claim.uid == self.uid && claim.since == self.since
    }
}

/// A released block; its route may still be announced. A claim that is released again, or another claim of the block, starts anew.
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
    /// Whether it is the release that the claim is in.
    pub(super) fn is_of(&self, claim: &Claim) -> bool {
        let is_released = matches!(claim.state, ClaimState::Releasing(_));
        is_released && claim.uid == self.uid && claim.since == self.since
    }
}

/// What is kept of a request in flight.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// The node on whose behalf it was sent.
    pub(super) node: Option<NodeName>,
    /// The block whose claim it creates, and the pool of that, where it creates one.
    pub(super) creates: Option<(Cidr, PoolName)>,
    /// The carrier of that node that was known when it was sent, where it reads all claims of the node.
    pub(super) reads_claims_for: Option<Uid>,
}
