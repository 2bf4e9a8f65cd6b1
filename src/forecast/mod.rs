//! The future of a world, computed by the same planner: the writes of the controller, and the world after them.
//!
//! Works on values and sends nothing. It does not know who asks, nor how an answer is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::claim::{Claim, ClaimState, block_name};
use crate::model::freeze::Freeze;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::{Object, Observation};
use crate::model::outcome::{Answer, Outcome, Seen};
use crate::model::plan::{NodePlan, Verdict, Wait};
use crate::model::request::{NewClaim, Publication, Read, Request, Write};
use crate::model::revision::Revision;
use crate::model::time::Now;
use crate::net::cidr::Cidr;
use crate::plan::{self, Policy};
use crate::world::World;

pub mod change;
pub mod outlook;
pub mod rejoin;
mod sizes;

/// The maximum number of rounds of decisions for all nodes. A first grant takes two: its claims, and their
/// publication.
const MAX_ROUNDS: usize = 16;

/// A block that a node would get.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The node.
    pub node: NodeName,
    /// The block.
    pub cidr: Cidr,
    /// Its pool.
    pub pool: PoolName,
}

/// A world in which the controller has done everything that it can do by itself.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The world.
    pub world: World,
    /// The plan of each node then.
    pub plans: Vec<NodePlan>,
    /// The blocks that nodes got on the way, by node.
    pub grants: Vec<Grant>,
}

/// Decides for all nodes again and again, until no node gets more. Every claim is created, and every block is
/// published. Steps that need an answer of an agent, such as the drain of a block, start and do not finish.
#[must_use]
pub fn settle(mut world: World, policy: Policy, now: Now) -> Settled {
    let policy = Policy { min_write_interval: Duration::ZERO, ..policy };
    let mut grants = Vec::new();
    let mut plans = plan_all(&mut world, policy, now);
    for _ in 0..MAX_ROUNDS {
        let requests = plans.iter().flat_map(|plan| plan.requests().to_vec());
        let requests: Vec<Request> = requests.filter(|request| answer(&mut world, request, now)).collect();
        if requests.is_empty() {
            break;
        }
        grants.extend(requests.iter().filter_map(|request| match request.as_write() {
            Some(Write::CreateClaim(new)) => {
                Some(Grant { node: new.node.clone(), cidr: new.cidr, pool: new.pool.clone() })
            }
            Some(_) | None => None,
        }));
        plans = later(plans, plan_all(&mut world, policy, now));
    }
    grants.sort();
    Settled { world, plans, grants }
}

/// The later plans, except those of nodes that wait for an answer that never comes here. Their earlier plans say
/// more.
fn later(before: Vec<NodePlan>, after: Vec<NodePlan>) -> Vec<NodePlan> {
    let mut before: BTreeMap<NodeName, NodePlan> =
        before.into_iter().map(|plan| (plan.node.clone(), plan)).collect();
    let newest = after.into_iter().map(|plan| match (&plan.verdict, before.remove(&plan.node)) {
        (Verdict::Wait(Wait::Answer), Some(before)) => before,
        (Verdict::Wait(_) | Verdict::Act(_) | Verdict::AtRest, _) => plan,
    });
    newest.collect()
}

/// Decides once for every node. A plan that waits has the reason of each pool that gives its node nothing. Each decision counts as in
/// progress for the next one. Frozen writes are decided too.
#[must_use]
pub fn plan_all(world: &mut World, policy: Policy, now: Now) -> Vec<NodePlan> {
    let freeze = world.freeze().clone();
    world.set_freeze(Freeze::default());
    world.suppose_all_claims_known();
    world.mark_all();
    let mut plans = Vec::new();
    while let Some(node) = world.next_node().cloned() {
        let mut plan = plan::node(world, &node, policy, now);
        // The reasons of all pools for all nodes would be too many.
        if matches!(plan.verdict, Verdict::Wait(_)) || !plan.unmet.is_empty() {
            plan = plan::explain(world, &node, policy, now);
        }
        world.begin(&plan, now);
        plans.push(plan);
    }
    // The status of a pool names the freeze.
    world.set_freeze(freeze);
    plans
}

/// The server accepts a request, and the watches show it. Returns whether the answer follows from the world alone.
fn answer(world: &mut World, request: &Request, now: Now) -> bool {
    let (shown, seen) = match request {
        Request::Write(Write::CreateClaim(new)) => {
            (Some(Object::Claim(created(new, revision(world, Kind::Claim)))), Seen::Nothing)
        }
        Request::Write(Write::Publish(publication)) => match published(world, publication) {
            Some(object) => (Some(object), Seen::Nothing),
            None => return false,
        },
        Request::Read(Read::ClaimsOf(node)) => {
            let claims = world.claims_of(node).map(|known| known.claim.clone()).collect();
            let kinds = [Kind::Claim, Kind::CiliumNode, Kind::Pool];
            let newest = kinds.into_iter().filter_map(|kind| world.position(kind)).max();
            let revision = newest.unwrap_or(Revision::of(1));
            (None, Seen::ClaimsOf { revision, claims, unreadable: Vec::new() })
        }
        Request::Write(
            Write::UpdateClaim(_)
            | Write::BumpVersion(_)
            | Write::UsageQuery(_)
            | Write::Withdraw(_)
            | Write::CreateCiliumNode(_)
            | Write::PoolStatus(_)
            | Write::PoolFinalizers(_)
            | Write::ClaimStatus(_)
            | Write::NodeCondition(_)
            | Write::PodIpPool(_)
            | Write::Frr(_),
        )
        | Request::Read(Read::PodsOf(..) | Read::Claim(..) | Read::CiliumNode(_) | Read::Node(..)) => {
            return false;
        }
    };
    if let Some(object) = shown {
        world.observe(Observation::Applied(Box::new(object)));
    }
    world.finish(Outcome { request: request.clone(), answer: Answer::Done, seen }, now);
    true
}

/// The claim that this creates.
fn created(new: &NewClaim, revision: Revision) -> Claim {
    Claim {
        cidr: new.cidr,
        pool: new.pool.clone(),
        node: new.node.clone(),
        node_uid: new.node_uid.clone(),
        pod_ip_pool: new.pod_ip_pool.clone(),
        excluded: new.excluded.clone(),
        state: ClaimState::Held,
        since: new.since,
        created_for: new.created_for.clone(),
        uid: block_name(new.cidr).into(),
        revision,
        created: new.since,
        deleting: false,
        finalizers: vec![Claim::FINALIZER.to_owned()],
        status: crate::model::status::ClaimStatus::default(),
    }
}

fn published(world: &World, publication: &Publication) -> Option<Object> {
    let carrier = world.carrier(&publication.node).filter(|carrier| *carrier.uid() == publication.uid)?;
    publication.change.published_on(carrier)
}

/// The revision up to which the watch of a kind has come. A supposed object has it, so that nothing real is older.
fn revision(world: &World, kind: Kind) -> Revision {
    world.position(kind).unwrap_or(Revision::of(1))
}
