//! The plan for one node: the steps of a decision in their order, up to those of a node with a carrier
//! ([`Subject::decide`]).

use std::ops::ControlFlow;

use super::availability::availability;
use super::draft::{Detail, Draft, End, NEXT, Step, act, act_now};
use super::facts::Facts;
use super::needs::unmet;
use super::policy::{CiliumNodeOrigin, NodeConditions, Policy};
use super::subject::Subject;
use super::{claims, publication, reasons, recreation, stopped_requests};
use crate::model::agent::NoAgent;
use crate::model::carrier::Carrier;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::model::plan::{Coverage, NodePlan, TimedState, Verdict, Wait};
use crate::model::request::{ClaimChange, NewCiliumNode, Request, Write};
use crate::model::time::Now;
use crate::publisher::Publisher;
use crate::view::{agents, orphans};
use crate::world::World;

/// The plan for `name` at this time.
pub fn node(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    stopped_requests::stop_requests(world, decide(world, Draft::new(name, Detail::Verdict, policy, now)))
}

/// The same plan, with the reason of every pool that gives the node nothing, even if the node did not ask it.
pub fn explain(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    let mut draft = Draft::new(name, Detail::Reasons, policy, now);
    reasons::of_pools_not_asked(world, name, &mut draft);
    stopped_requests::stop_requests(world, decide(world, draft))
}

/// The needs of the node come first. If it needs nothing, claims that lost our finalizer get it back. Another writer
/// may remove the finalizer again and again, and that must not keep a node from its blocks.
fn decide(world: &World, mut draft: Draft) -> NodePlan {
    let (name, now, policy) = (draft.node.clone(), draft.now, draft.policy);
    let last = steps(world, &name, &mut draft);
    let mut plan = draft.finish(last);
    let may_write = plan.saw_everything() && !matches!(plan.verdict, Verdict::Wait(Wait::Readable(_)));
    if may_write && plan.requests().is_empty() {
        let restored = claims::restore_finalizers(world, &name, now);
        if !restored.is_empty() {
            plan.verdict = Verdict::Act(restored);
        }
    }
    if policy.node_conditions == NodeConditions::Written {
        plan.availability = availability(world, &plan);
    }
    plan
}

/// The steps of a decision. Most nodes stop at one of the first steps, because nothing can be done before an answer
/// or an object comes.
fn steps(world: &World, name: &NodeName, draft: &mut Draft) -> Step {
    let publisher = known_mode(world, name)?;
    readable_objects(world, name)?;
    look_for_agent(world, draft);
    await_answers(world, draft)?;
    let facts = Facts::of(world, name, publisher);
    await_end_of_pause(&facts, draft)?;
    leave_to_other_settings(&facts, draft)?;
    advance_claims(&facts, draft)?;
    // The blocks of the node are known only when its lost claims are recreated. An agent that finds only a part of its
    // blocks restores only a part of its pods.
    act(recreation::of_lost_claims(world, name, draft.now))?;
    let node = existing_node(&facts, draft)?;
    let carrier = existing_carrier(&facts, node, draft)?;
    correct_carrier(&facts, carrier, draft)?;
    leave_to_second_allocator(&facts, carrier, draft)?;
    Subject { facts: &facts, node, carrier }.decide(draft)
}

fn known_mode<'a>(world: &'a World, name: &NodeName) -> Step<&'a Publisher> {
    match world.publisher_of(name) {
        Some(publisher) => ControlFlow::Continue(publisher),
        None => ControlFlow::Break(End::Idle(Wait::Mode)),
    }
}

fn readable_objects(world: &World, name: &NodeName) -> Step {
    let unreadable =
        [Kind::Node, Kind::CiliumNode].into_iter().find(|kind| world.is_unreadable(*kind, name.as_str()));
    unreadable.map_or(NEXT, |kind| ControlFlow::Break(End::Idle(Wait::Readable(kind))))
}

/// While a request about the node is not answered, the shortage of the last plan counts.
fn await_answers(world: &World, draft: &mut Draft) -> Step {
    if !world.is_busy(&draft.node) {
        return NEXT;
    }
    draft.unmet = world.serving(&draft.node).map(|serving| serving.unmet.clone()).unwrap_or_default();
    ControlFlow::Break(End::Waits(Wait::Answer))
}

fn await_end_of_pause(facts: &Facts<'_>, draft: &mut Draft) -> Step {
    let Some(pause) = facts.serving().map(|serving| serving.pause) else { return NEXT };
    let until = pause.later_than(draft.now);
    if until.is_none() && !facts.world.node_awaits_turn(facts.name) {
        return NEXT;
    }
    if let Some(until) = until {
        draft.wake_at(until);
    }
    draft.unmet = unmet(facts, draft);
    ControlFlow::Break(End::Waits(Wait::Pause))
}

/// An agent with settings of its own reads other fields, and does not answer in the fields of this mode.
fn leave_to_other_settings(facts: &Facts<'_>, draft: &mut Draft) -> Step {
    let Some(why) = facts.world.set_aside(facts.name) else { return NEXT };
    draft.findings.push(Finding::of_node(FindingKind::OtherSettings, facts.name, why.to_owned()));
    ControlFlow::Break(End::Idle(Wait::Settings))
}

/// Whether the CiliumNode of a node that is gone still carries the block of a lost claim is known only from a version
/// later than the loss. Other lost claims are recreated, or can't be.
fn settle_lost_claims(facts: &Facts<'_>) -> Option<Request> {
    let (world, name) = (facts.world, facts.name);
    let to_settle = world.lost_claims_of(name).filter(|lost| !world.keeps_lost(name, lost));
    let latest = to_settle.map(|lost| lost.at).max()?;
    facts.publisher.later_version(name, facts.carrier, latest)
}

fn advance_claims(facts: &Facts<'_>, draft: &mut Draft) -> Step {
    let mut requests: Vec<Request> = settle_lost_claims(facts).into_iter().collect();
    claims::advance(facts, draft, &mut requests);
    publication::postpone_queries(facts, draft, &mut requests);
    // A node that is about to hold a block again does not lack it.
    if !requests.is_empty() && !requests.iter().any(holds_again) {
        draft.unmet = unmet(facts, draft);
    }
    act(requests)
}

fn existing_node<'a>(facts: &Facts<'a>, draft: &mut Draft) -> Step<&'a Node> {
    let Some(node) = facts.node else {
        look_for_orphan(facts, draft);
        return ControlFlow::Break(End::Idle(Wait::Existence(Kind::Node)));
    };
    if !node.runs_linux() {
        return ControlFlow::Break(End::Idle(Wait::Linux));
    }
    ControlFlow::Continue(node)
}

fn existing_carrier<'a>(facts: &Facts<'a>, node: &Node, draft: &mut Draft) -> Step<Carrier<'a>> {
    let Some(carrier) = facts.carrier else {
        if draft.policy.cilium_nodes == CiliumNodeOrigin::Controller && !node.deleting {
            create_cilium_node(facts.world, node, draft)?;
        }
        return ControlFlow::Break(End::Idle(Wait::Existence(Kind::CiliumNode)));
    };
    if carrier.is_terminating() {
        return ControlFlow::Break(End::Idle(Wait::Deletion));
    }
    ControlFlow::Continue(carrier)
}

fn correct_carrier(facts: &Facts<'_>, carrier: Carrier<'_>, draft: &mut Draft) -> Step {
    let Some(malformed) = facts.publisher.malformed(carrier) else { return NEXT };
    let kind = match carrier {
        Carrier::CiliumNode(_) => FindingKind::MalformedCiliumNode,
        Carrier::Node(_) => FindingKind::MalformedNode,
    };
    let message = format!(
        "{} is `{}`, which is not a canonical address or prefix; correct it: until then the controller does not \
         write this {}",
        malformed.field,
        malformed.value,
        carrier.kind().as_str(),
    );
    draft.findings.push(Finding::new(kind, carrier.kind(), facts.name.as_str(), message));
    ControlFlow::Break(End::Idle(Wait::Correction(carrier.kind())))
}

fn leave_to_second_allocator(facts: &Facts<'_>, carrier: Carrier<'_>, draft: &mut Draft) -> Step {
    let Some(finding) = facts.publisher.second_allocator(carrier) else { return NEXT };
    draft.findings.push(finding);
    ControlFlow::Break(End::Idle(Wait::OtherAllocator))
}

/// Whether a node with the finding `NoPool` still needs a pool. Without a known mode it does.
#[must_use]
pub fn still_lacks_pool(world: &World, name: &NodeName) -> bool {
    if world.node(name).is_none() {
        return false;
    }
    let Some(publisher) = world.publisher_of(name) else { return true };
    match Subject::of(&Facts::of(world, name, publisher)) {
        Some(subject) => subject.lacks_pool().is_some(),
        None => world.pools_of(name).next().is_none(),
    }
}

/// A CiliumNode without a Node keeps its blocks, because its agent may still use them. One that remains is reported
/// together with all others ([`orphans::finding`]).
fn look_for_orphan(facts: &Facts<'_>, draft: &mut Draft) {
    if facts.world.cilium_node(facts.name).is_none() || facts.claims.is_empty() {
        return;
    }
    let since = draft.note_lasting_since(facts.world, TimedState::Orphaned);
    let next = orphans::DUE_AFTER.map(|after| since + after).into_iter().find(|due| *due > draft.now.uptime);
    if let Some(next) = next {
        draft.wake_at(next);
    }
}

/// A node that holds blocks and has no agent, perhaps forever. All such nodes are one finding ([`agents::missing`]).
fn look_for_agent(world: &World, draft: &mut Draft) {
    let holds_blocks = world.node(&draft.node).is_some() && world.claims_of(&draft.node).next().is_some();
    if !holds_blocks || world.agent_on(&draft.node) != Err(NoAgent::Absent) {
        return;
    }
    let since = draft.note_lasting_since(world, TimedState::AgentAbsent);
    draft.waits_until(since + agents::MAY_LACK_AGENT_FOR);
}

/// Whether the request holds a released claim again.
fn holds_again(request: &Request) -> bool {
    matches!(request, Request::Write(Write::UpdateClaim(update)) if matches!(update.change, ClaimChange::Hold(_)))
}

/// Creates the CiliumNode of a node that a pool selects. Any other node gets none, and a finding reports it: where
/// the controller creates CiliumNodes, that node waits for nothing else.
fn create_cilium_node(world: &World, node: &Node, draft: &mut Draft) -> Step {
    if world.pools_of(&node.name).next().is_none() {
        let message = "no readable pool selects it: it gets no CiliumNode from the controller, and no \
             addresses";
        draft.findings.push(Finding::of_node(FindingKind::NoPool, &node.name, message.to_owned()));
        return NEXT;
    }
    draft.coverage = Coverage::Full;
    draft.wait_for(Wait::Existence(Kind::CiliumNode));
    act_now(Write::CreateCiliumNode(NewCiliumNode {
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        labels: node.labels.clone(),
        addresses: node.addresses.clone(),
    }))
}
