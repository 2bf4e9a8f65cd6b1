//! Outcomes of requests as values: the server's answer, the object as it was seen, and whether a write took effect.
//!
//! Never a guess: if an answer was lost, the object was read.

use std::time::Duration;

use super::request::{ClaimChange, Request, Write};
use crate::model::agent::PodsOnNode;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::frr::{FrrChange, FrrConfiguration};
use crate::model::names::Uid;
use crate::model::node::{CiliumNode, Node};
use crate::model::observation::{PoolObject, Unreadable};
use crate::model::pod_ip_pool::PodIpPool;
use crate::model::revision::{AnyRevision, Core, Revision};

/// The outcome of a request. It is never a guess: if the answer was lost, the object was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The request.
    pub request: Request,
    /// The answer of the server.
    pub answer: Answer,
    /// The object as the answer, or the read after a lost answer, shows it.
    pub seen: Seen,
}

impl Outcome {
    /// Whether a write has taken effect by now.
    #[must_use]
    pub fn took_effect(&self) -> bool {
        let Request::Write(write) = &self.request else { return false };
        match &self.answer {
            Answer::Done => write.is_applied_in(&self.seen) && !write.is_held_up(&self.seen),
            // Only the answer may have been lost.
            Answer::Unknown(_) => write.took_effect_in(&self.seen),
            Answer::Conflict(_) | Answer::Refused(..) => false,
        }
    }

    /// Whether the object shows the write that the server accepted.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match (&self.answer, &self.request) {
            (Answer::Done, Request::Write(write)) if !write.is_applied_in(&self.seen) => Effect::Missing,
            (Answer::Done | Answer::Conflict(_) | Answer::Refused(..) | Answer::Unknown(_), _) => {
                Effect::Shown
            }
        }
    }
}

/// Whether the object shows the write that the server accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It does, or the server accepted nothing.
    Shown,
    /// It does not: a mutating webhook may have undone the write.
    Missing,
}

/// The answer of the server to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The write was applied, or the read was answered.
    Done,
    /// The object has changed since the write was decided.
    Conflict(String),
    /// The server refused it for this reason, and may have asked to wait for this long.
    Refused(String, Option<Duration>),
    /// No answer reports whether it was applied; the object was read afterwards.
    Unknown(String),
}

/// An object as an answer shows it.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Nothing was read.
    Nothing,
    /// A claim.
    Claim(Box<Claim>),
    /// A CiliumNode.
    CiliumNode(Box<CiliumNode>),
    /// A Node, as a write of ours has left it.
    PatchedNode(Box<Node>),
    /// A pool.
    Pool(Box<PoolObject>),
    /// A CiliumPodIPPool.
    PodIpPool(Box<PodIpPool>),
    /// An FRRConfiguration.
    Frr(Box<FrrConfiguration>),
    /// We have deleted the object with this uid.
    Deleted(Uid),
    /// The object does not exist, as of this revision.
    Absent(Revision),
    /// The result of a read of a Node. Its claims were known as of a revision when the read was sent.
    Node {
        /// That revision.
        as_of: Revision,
        /// The revision of the read, in the store of Nodes.
        read_at: Revision<Core>,
        /// Whether the Node exists.
        presence: Presence,
    },
    /// The Pods of a node, read after this version of its carrier was seen.
    PodsOf {
        /// That version.
        after: AnyRevision,
        /// The Pods.
        pods: PodsOnNode,
    },
    /// All claims of a node, as of a revision.
    ClaimsOf {
        /// The revision of the list.
        revision: Revision,
        /// The claims.
        claims: Vec<Claim>,
        /// Those that could not be read.
        unreadable: Vec<Unreadable>,
    },
    /// The object exists, but could not be read.
    Unreadable(String),
}

impl Seen {
    /// The carrier that is seen, if one is.
    fn carrier(&self) -> Option<Carrier<'_>> {
        match self {
            Self::CiliumNode(cilium_node) => Some(Carrier::CiliumNode(cilium_node)),
            Self::PatchedNode(node) => Some(Carrier::Node(node)),
            Self::Nothing
            | Self::Claim(_)
            | Self::Pool(_)
            | Self::PodIpPool(_)
            | Self::Frr(_)
            | Self::Deleted(_)
            | Self::Absent(_)
            | Self::Node { .. }
            | Self::PodsOf { .. }
            | Self::ClaimsOf { .. }
            | Self::Unreadable(_) => None,
        }
    }
}

/// Whether a Node exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// It does not.
    Gone,
    /// It does, with this uid.
    Is(Uid),
    /// It does, but can't be read.
    Unreadable,
}

impl Write {
    /// Whether `found` shows that this write was applied. This is for a write without an answer: it may have been
    /// applied.
    #[must_use]
    fn took_effect_in(&self, found: &Seen) -> bool {
        match self {
            Self::CreateClaim(new) => matches!(found, Seen::Claim(found) if new.is_made_as(found)),
            Self::UpdateClaim(update) if update.change == ClaimChange::Delete => {
                matches!(found, Seen::Absent(_))
            }
            Self::UpdateClaim(update) => {
                matches!(found, Seen::Claim(found) if found.uid == update.uid && update.change.is_shown_by(found))
            }
            Self::Publish(publication) => found.carrier().is_some_and(|found| {
                *found.uid() == publication.uid && publication.change.is_shown_by(found, &publication.added)
            }),
            Self::Withdraw(withdrawal) => found.carrier().is_some_and(|found| {
                *found.uid() == withdrawal.uid && withdrawal.change.is_shown_by(found, &[])
            }),
            Self::PodIpPool(write) => matches!(found, Seen::PodIpPool(found) if write.is_shown_by(found)),
            Self::NodeCondition(write) => matches!(found, Seen::PatchedNode(found)
                if found.uid == write.uid && found.availability == Some(write.availability)),
            Self::Frr(write) => matches!(found, Seen::Frr(found) if write.is_shown_by(found)),
            Self::BumpVersion(_)
            | Self::UsageQuery(_)
            | Self::CreateCiliumNode(_)
            | Self::PoolStatus(_)
            | Self::PoolFinalizers(_)
            | Self::ClaimStatus(_) => false,
        }
    }

    /// Whether `found` shows the intended result of this write, in a later version than the one that it was decided on.
    /// This is for the object that the server shows when it has accepted the write. A mutating webhook may have undone
    /// the write on the way. If no readable object is shown, the write counts as applied.
    #[must_use]
    fn is_applied_in(&self, found: &Seen) -> bool {
        if matches!(found, Seen::Nothing | Seen::Unreadable(_)) {
            return true;
        }
        match self {
            Self::CreateClaim(new) => matches!(found, Seen::Claim(found) if new.is_shown_by(found)),
            Self::UpdateClaim(update) if update.change == ClaimChange::Delete => {
                matches!(found, Seen::Deleted(_) | Seen::Absent(_))
                    || matches!(found, Seen::Claim(later) if later.revision > update.revision && later.is_terminating())
            }
            Self::UpdateClaim(update) => {
                matches!(found, Seen::Claim(later) if later.revision > update.revision)
                    && self.took_effect_in(found)
            }
            Self::Publish(publication) => {
                found.carrier().is_some_and(|later| later.revision() > publication.revision)
                    && self.took_effect_in(found)
            }
            Self::BumpVersion(bump) => found.carrier().is_some_and(|later| later.revision() > bump.revision),
            Self::UsageQuery(query) => found.carrier().is_some_and(|later| {
                later.revision() > query.revision && query.change.is_shown_by(later, &[])
            }),
            Self::Withdraw(withdrawal) => found.carrier().is_some_and(|later| {
                later.revision() > withdrawal.revision && withdrawal.change.is_shown_by(later, &[])
            }),
            Self::CreateCiliumNode(_) => matches!(found, Seen::CiliumNode(_)),
            Self::Frr(write) if matches!(write.change, FrrChange::Delete { .. }) => {
                matches!(found, Seen::Deleted(_))
            }
            Self::PodIpPool(_) | Self::NodeCondition(_) | Self::Frr(_) => self.took_effect_in(found),
            Self::PoolStatus(write) => matches!(found, Seen::Pool(later)
                if later.revision > write.revision && later.status == write.status),
            Self::PoolFinalizers(write) => matches!(found, Seen::Pool(later)
                if later.revision > write.revision
                    && later.has_finalizer() == write.finalizers.iter().any(|name| name == PoolObject::FINALIZER)),
            Self::ClaimStatus(write) => matches!(found, Seen::Claim(later)
                if later.revision > write.revision && later.status == write.status),
        }
    }

    /// Whether `found` shows that this write was accepted but is not complete yet: a finalizer of another writer delays
    /// a deletion.
    #[must_use]
    fn is_held_up(&self, found: &Seen) -> bool {
        matches!((self, found), (Self::UpdateClaim(update), Seen::Claim(_)) if update.change == ClaimChange::Delete)
    }
}

impl ClaimChange {
    /// Whether a claim shows the intended result of this change. No claim shows a deletion.
    #[must_use]
    pub fn is_shown_by(&self, found: &Claim) -> bool {
        match self {
            Self::Hold(node_uid) => found.state == ClaimState::Held && found.node_uid == *node_uid,
            Self::Keep => found.has_finalizer(),
            Self::Drain(uid) => found.state == ClaimState::Draining(uid.clone()),
            Self::Release(reason) => found.state == ClaimState::Releasing(*reason),
            Self::Cool => matches!(found.state, ClaimState::Cooling(_)),
            Self::Delete => false,
        }
    }
}
