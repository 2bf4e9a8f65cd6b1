//! Applied writes without lasting effect: the last write to each object, and how often in a row it was the same.
//!
//! A mutating webhook may undo a write that the server accepts, or a part of it; or another writer undoes it later.
//! Then the plan must ask for the same write again, and the answer is never a refusal. Keeps one invariant: an applied
//! write is not repeated without a pause. A rate limit could not keep it: the status of a pool may rightly change every
//! second.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pause::{LONGEST, Pause};
use crate::model::availability::Availability;
use crate::model::frr::FrrWrite;
use crate::model::names::{NodeName, Uid};
use crate::model::outcome::Effect;
use crate::model::pod_ip_pool::PodIpRanges;
use crate::model::request::{
    ClaimChange, PoolFinalizersWrite, PoolStatusWrite, Publication, QueryStep, Target, Withdrawal,
    WithdrawalStep, Write,
};
use crate::model::revision::Revision;
use crate::model::status::{ClaimStatus, PoolStatus};
use crate::model::time::Now;
use crate::net::cidr::{Cidr, Family};
use crate::net::short_list;

/// How long after a write the same write counts as its repetition. The pauses between repetitions grow to half of this
/// time, so a repetition never counts as a first write.
const REMEMBERED_FOR: Duration = LONGEST.saturating_mul(2);

/// The number of writes in a row without lasting effect that is reported. One may be chance: another writer wrote.
const REPORTED_FROM: u32 = 2;

/// The content of a write, without the version and the time of its decision. Two writes with the same content would
/// have the same effect.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Claim {
        node: NodeName,
        node_uid: Uid,
    },
    Change {
        uid: Uid,
        change: ClaimChange,
    },
    /// Instead of the change itself, which names every address.
    Blocks {
        uid: Uid,
        added: Vec<Cidr>,
        completed: Vec<Cidr>,
        n_addresses: usize,
    },
    Version {
        uid: Uid,
        later_than: Revision,
    },
    Query {
        uid: Uid,
        step: QueryStep,
    },
    Withdrawal {
        uid: Uid,
        step: WithdrawalStep,
        blocks: Vec<Cidr>,
    },
    CiliumNode {
        node_uid: Uid,
    },
    Status(Box<PoolStatus>),
    Finalizers(Vec<String>),
    ClaimStatus(Box<ClaimStatus>),
    Condition(Availability),
    PodIpPool(BTreeMap<Family, PodIpRanges>),
    Frr(Box<FrrWrite>),
}

impl Content {
    fn of(write: &Write) -> Self {
        match write {
            Write::CreateClaim(new) => Self::Claim { node: new.node.clone(), node_uid: new.node_uid.clone() },
            Write::UpdateClaim(update) => {
                Self::Change { uid: update.uid.clone(), change: update.change.clone() }
            }
            Write::Publish(Publication { uid, added, completed, n_addresses, .. }) => Self::Blocks {
                uid: uid.clone(),
                added: added.clone(),
                completed: completed.clone(),
                n_addresses: *n_addresses,
            },
            Write::BumpVersion(bump) => Self::Version { uid: bump.uid.clone(), later_than: bump.later_than },
            Write::UsageQuery(query) => Self::Query { uid: query.uid.clone(), step: query.step },
            Write::Withdraw(Withdrawal { uid, step, blocks, .. }) => {
                Self::Withdrawal { uid: uid.clone(), step: *step, blocks: blocks.clone() }
            }
            Write::CreateCiliumNode(new) => Self::CiliumNode { node_uid: new.node_uid.clone() },
            Write::PoolStatus(PoolStatusWrite { status, .. }) => Self::Status(Box::new(status.clone())),
            Write::PoolFinalizers(PoolFinalizersWrite { finalizers, .. }) => {
                Self::Finalizers(finalizers.clone())
            }
            Write::ClaimStatus(write) => Self::ClaimStatus(Box::new(write.status.clone())),
            Write::NodeCondition(write) => Self::Condition(write.availability),
            Write::PodIpPool(write) => Self::PodIpPool(write.families.clone()),
            Write::Frr(write) => Self::Frr(Box::new(write.clone())),
        }
    }
}

/// The last write to one object that the server accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Applied {
    target: Target,
    content: Content,
    at: Duration,
    /// The number of last writes with this content that had no effect or no lasting one.
    n_ineffective: u32,
    /// The write as a line for people, once so many are reported.
    line: Option<String>,
}

impl Applied {
    fn is_remembered(&self, now: Now) -> bool {
        self.at + REMEMBERED_FOR > now.uptime
    }
}

/// The success of the writes about one node or pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Writes {
    /// The last write to each object: one or two for a node; for a pool also one per claim whose status changed.
    last: Vec<Applied>,
}

impl Writes {
    /// Takes in that the server accepted a write: `pause` is over, or grows if the write had no lasting effect.
    pub(super) fn accepted(&mut self, write: &Write, effect: Effect, pause: &mut Pause, now: Now) {
        self.last.retain(|applied| applied.is_remembered(now));
        let (target, content) = (write.target(), Content::of(write));
        let place = self.last.iter().position(|applied| applied.target == target);
        let before = place.map(|place| self.last.swap_remove(place));
        let before = before.filter(|applied| applied.content == content);
        let n_ineffective = match (before, effect) {
            (Some(applied), Effect::Shown | Effect::Missing) => applied.n_ineffective.saturating_add(1),
            (None, Effect::Missing) => 1,
            (None, Effect::Shown) => 0,
        };
        if n_ineffective == 0 {
            pause.end();
        } else {
            pause.lengthen_ineffective(n_ineffective, now);
        }
        let line = (n_ineffective >= REPORTED_FROM).then(|| write.to_string());
        let applied = Applied { target, content, at: now.uptime, n_ineffective, line };
        let end = self.last.len();
        short_list::insert(&mut self.last, end, applied);
    }

    /// The objects that do not keep our writes, each with the write as a line for people.
    pub(super) fn ineffective(&self, now: Now) -> impl Iterator<Item = (&Target, &str)> {
        let remembered = self.last.iter().filter(move |applied| applied.is_remembered(now));
        remembered.filter_map(|applied| Some((&applied.target, applied.line.as_deref()?)))
    }
}
