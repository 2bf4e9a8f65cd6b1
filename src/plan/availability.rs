//! Whether a node can give addresses to pods, for the condition of its Node, and the next write of such a condition.
//!
//! The verdict follows from the plan of the node: a node is short only if its plan finds that it can't get more. It
//! does not depend on a freeze or on the lead, because it is found before the requests of a plan are stopped. Keeps one
//! invariant: an unknown fact changes no verdict.

use super::facts::Facts;
use super::subject::{FirstPool, Subject};
use crate::model::address_class::AddressClass;
use crate::model::availability::Availability;
use crate::model::names::NodeName;
use crate::model::plan::{NodePlan, Unmet, Verdict, Wait};
use crate::model::pool::Pool;
use crate::model::request::NodeConditionWrite;
use crate::model::time::Now;
use crate::publisher::demand::Demand;
use crate::world::World;

/// A node with fewer free addresses is short, if it has so many. The report of an agent is up to 15 s old, and these
/// addresses serve the pods that start meanwhile.
const FLOOR: u128 = 4;

/// Whether the node of a plan can give addresses to pods. `None` if that is not known now.
pub(super) fn availability(world: &World, plan: &NodePlan) -> Option<Availability> {
    let facts = Facts::of(world, &plan.node, world.publisher_of(&plan.node)?);
    let subject = Subject::of(&facts)?;
    let is_leaving = subject.node.deleting || subject.carrier.is_terminating();
    if is_leaving || !subject.node.runs_linux() || is_unreadable(plan) {
        return None;
    }
    if world.set_aside(&plan.node).is_some() || subject.publisher.second_allocator(subject.carrier).is_some()
    {
        return Some(Availability::NotMeasured);
    }
    let Some(class) = subject.classes().iter().find(|class| subject.is_short_of(class)) else {
        let is_measured = subject.traits.shows_use || subject.traits.agents_request_addresses;
        return Some(if is_measured { Availability::Free } else { Availability::NotMeasured });
    };
    let unmet = plan.unmet.iter().find(|unmet| unmet.class() == class);
    match unmet {
        _ if is_blocked(plan) => Some(Availability::Blocked),
        _ if subject.lacks_pool().is_some() => Some(Availability::NoPool),
        Some(Unmet::NoCapacity(_)) => Some(Availability::PoolExhausted),
        Some(Unmet::AtLimit(_)) => Some(Availability::AtLimit),
        Some(Unmet::Held(_)) => Some(Availability::Blocked),
        // Its next plan says whether it gets a block.
        None if !plan.saw_everything() => None,
        // It asks for nothing yet, but it will.
        None if !subject.can_get(class) => Some(Availability::PoolExhausted),
        None if subject.node.availability == Some(Availability::AtLimit) && subject.is_at_limit_of(class) => {
            Some(Availability::AtLimit)
        }
        None => Some(Availability::Free),
    }
}

const fn is_unreadable(plan: &NodePlan) -> bool {
    matches!(plan.verdict, Verdict::Wait(Wait::Readable(_)))
}

/// Whether the node gets nothing until a person acts.
const fn is_blocked(plan: &NodePlan) -> bool {
    matches!(
        plan.verdict,
        Verdict::Wait(Wait::Correction(_) | Wait::Upgrade | Wait::CompleteSet | Wait::FormerMode)
    )
}

impl Subject<'_> {
    /// Whether the node has too few free addresses of a class. While its condition is False, it needs more of them to
    /// count as available again, so that one pod does not change it.
    fn is_short_of(&self, class: &AddressClass) -> bool {
        let demand = self.demand(class);
        if demand.capacity == 0 {
            return true;
        }
        if self.traits.agents_request_addresses {
            // The need of an agent counts as used, and contains its own reserve.
            return demand.capacity < demand.used;
        }
        self.traits.shows_use && demand.free() < self.least_free(demand)
    }

    /// Whether a pool of the node has a free block of a class.
    fn can_get(&self, class: &AddressClass) -> bool {
        let free = |pool: &Pool| {
            let (size, _) = pool.size_for(self.node, class.family)?;
            self.world.ledger().free_blocks(&pool.name, class.family, size)
        };
        self.world
            .pools_for(&self.node.name, class)
            .any(|pool| free(pool).is_some_and(|free| free.free_count() > 0))
    }

    /// Whether the node has as many blocks of a class as its first pool allows.
    fn is_at_limit_of(&self, class: &AddressClass) -> bool {
        let n_blocks = self.offering().filter(|claim| self.is_of(claim, class)).count();
        let limit = self.first_pool(class).and_then(FirstPool::max_blocks);
        limit.is_some_and(|limit| n_blocks >= limit as usize)
    }

    fn least_free(&self, demand: Demand) -> u128 {
        let floor = (demand.capacity / 4).clamp(1, FLOOR);
        let is_short_now = self.node.availability.is_some_and(|shown| !shown.holds());
        if is_short_now { (floor * 2).min(demand.capacity) } else { floor }
    }
}

/// The next condition of a Node that differs from the verdict, if a write of it may start now.
#[must_use]
pub fn next_condition(world: &World, now: Now) -> Option<NodeConditionWrite> {
    let name: &NodeName = world.next_condition(now.uptime)?;
    let (node, availability) = (world.node(name)?, world.serving(name)?.availability?);
    let has_changed = node.availability.is_none_or(|shown| shown.holds() != availability.holds());
    Some(NodeConditionWrite {
        node: name.clone(),
        uid: node.uid.clone(),
        revision: node.revision,
        availability,
        transition: has_changed.then_some(now.wall),
        at: now.wall,
    })
}
