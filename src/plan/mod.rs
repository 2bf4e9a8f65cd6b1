//! What to do for one node next, as data: claims to create or to move, blocks to publish, reads to make first.
//!
//! Pure, total and deterministic: it takes the world and the time, fails on nothing, and reports what it saw. One
//! node at a time, because each decision enters the world before the next is made (`World::begin`), so the cost of
//! a decision does not grow with the cluster (`docs/decisions/0002-one-node-at-a-time.md`).
//!
//! - [`lifecycle`]: the states of a node's claims, safety rules 1 to 3.
//! - [`publication`]: what may stand on the CiliumNode, safety rules 3 to 5.
//! - [`growth`]: which blocks to claim.

mod draft;
mod evidence;
pub mod growth;
pub mod lifecycle;
pub mod pool;
pub mod publication;
mod reasons;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::model::plan::{NodePlan, Wait};
use crate::model::time::Now;

use crate::model::claim::Claim;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::NodeName;
use publication::may_publish;

use draft::{Detail, Draft};

pub use pool::pool;

use crate::model::carrier::Carrier;
use crate::model::node::Node;
use crate::model::observation::Kind;
use crate::model::request::{NewCiliumNode, Write};
use crate::publisher::Publisher;
use crate::world::{Serving, World};

/// The policies of a plan that are the controller's and not a pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The shortest time between two patches of one served CiliumNode, but for one that proves a block absent.
    /// Conflicts kill agents (`docs/cilium.md`, Who else writes).
    pub min_write_interval: Duration,
    /// Who creates a CiliumNode.
    pub cilium_nodes: CiliumNodeOrigin,
}

/// Who creates the CiliumNode of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiliumNodeOrigin {
    /// Its agent, when it starts.
    Agent,
    /// The controller, when the Node appears.
    Controller,
}

/// What to do for `name` now.
pub fn node(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    decide(world, Draft::new(name, Detail::Verdict), policy, now)
}

/// The same, with the reason of every pool that gives the node nothing, whether or not it was asked.
pub fn explain(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    let mut draft = Draft::new(name, Detail::Reasons);
    reasons::of_pools_not_asked(world, name, &mut draft);
    decide(world, draft, policy, now)
}

fn decide(world: &World, mut draft: Draft, policy: Policy, now: Now) -> NodePlan {
    let name = draft.node.clone();
    let Some(publisher) = world.publisher() else {
        return draft.waiting_for(Wait::Mode);
    };
    for kind in [Kind::Node, Kind::CiliumNode] {
        if world.unreadable(kind, name.as_str()).is_some() {
            return draft.waiting_for(Wait::Readable(kind));
        }
    }
    if world.is_busy(&name) {
        return draft.waiting_for(Wait::Answer);
    }
    if let Some(until) = world.serving(&name).and_then(|serving| serving.pause.later_than(now)) {
        draft.wake_at(until);
        return draft.waiting_for(Wait::Pause);
    }
    lifecycle::advance(world, publisher, &mut draft, now);
    if !draft.requests.is_empty() {
        return draft.finish();
    }
    let Some(node) = world.node(&name) else {
        return draft.waiting_for(Wait::Existence(Kind::Node));
    };
    let Some(carrier) = world.carrier(&name) else {
        draft
            .requests
            .extend(cilium_node_for(world, node, policy).map(|new| Write::CreateCiliumNode(new).into()));
        return draft.waiting_for(Wait::Existence(Kind::CiliumNode));
    };
    if carrier.is_going() {
        return draft.waiting_for(Wait::Deletion);
    }
    if let Some(malformed) = carrier.malformed().first() {
        draft.findings.push(Finding::new(
            FindingKind::MalformedCiliumNode,
            carrier.kind(),
            name.as_str(),
            format!(
                "{} is `{}`, which is no canonical address or prefix; the node is not written until it is fixed",
                malformed.field, malformed.value
            ),
        ));
        return draft.waiting_for(Wait::Correction);
    }
    let view = View { world, node, carrier, publisher };
    view.decide(&mut draft, policy, now);
    draft.finish()
}

/// The CiliumNode that the agent would create, where the controller is to create it.
fn cilium_node_for(world: &World, node: &Node, policy: Policy) -> Option<NewCiliumNode> {
    let wanted = policy.cilium_nodes == CiliumNodeOrigin::Controller
        && world.pools_of(&node.name).next().is_some()
        && !node.deleting;
    wanted.then(|| NewCiliumNode {
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        labels: node.labels.clone(),
        addresses: node.addresses.clone(),
    })
}

/// One node that has a carrier, with all that a decision about it looks at.
struct View<'a> {
    world: &'a World,
    node: &'a Node,
    carrier: Carrier<'a>,
    publisher: &'a Publisher,
}

impl<'a> View<'a> {
    /// A node that has nothing published gets what it holds first, so that a node that returns finds all its blocks
    /// at once and waits for nothing; otherwise growth comes first, so that one patch publishes all of it.
    fn decide(&self, draft: &mut Draft, policy: Policy, now: Now) {
        if self.is_served() {
            draft.findings.extend(self.publisher.finding(self.carrier));
            draft.use_unknown = !self.publisher.use_is_known(self.carrier);
        }
        self.ask_for_use(draft, policy, now);
        if !draft.requests.is_empty() {
            return;
        }
        let publishable = self.publishable(&mut draft.findings);
        // What the node has is known only when these are its claims again; and an agent that finds a part of its blocks
        // restores a part of its pods.
        draft.requests = self.recreate_lost_claims(now);
        if !draft.requests.is_empty() {
            return;
        }
        if !self.is_served() && self.can_start_with(&publishable) {
            self.publish(draft, &publishable, policy, now);
            return;
        }
        self.grow(draft, now);
        if !draft.requests.is_empty() {
            return;
        }
        if self.is_served() {
            self.publish(draft, &publishable, policy, now);
        } else {
            self.give_back(draft, now);
        }
    }

    fn serving(&self) -> Option<&'a Serving> {
        self.world.serving(&self.node.name)
    }

    /// The claims that count for this node: held or draining.
    fn held(&self) -> impl Iterator<Item = &'a Claim> {
        self.world
            .claims_of(&self.node.name)
            .map(|known| &known.claim)
            .filter(|claim| claim.is_published_state())
    }

    /// Those of them that the agent has, or will have as soon as it is told. One that something overlaps is no
    /// capacity.
    fn offering(&self) -> impl Iterator<Item = &'a Claim> {
        self.world
            .claims_of(&self.node.name)
            .filter(|known| {
                evidence::is_carried(self.world, &known.claim)
                    || may_publish(self.world, self.node, known).is_ok()
            })
            .map(|known| &known.claim)
            .filter(|claim| claim.is_published_state())
    }

    /// Whether the carrier has any block of ours: the first grant is over.
    fn is_served(&self) -> bool {
        self.held().any(|claim| self.publisher.carries(self.carrier, claim.cidr))
    }
}
