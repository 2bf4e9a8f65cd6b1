//! The plan for one node: the steps of a decision in their order, up to those of a node with a carrier
//! ([`Subject::decide`]).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::draft::{Detail, Draft, Made, NEXT, Step};
use super::policy::{CiliumNodeOrigin, Policy};
use super::subject::Subject;
use super::{lifecycle, publication, reasons, recreation, stopped_requests};
use crate::model::agent::NoAgent;
use crate::model::carrier::Carrier;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::model::plan::{Lasting, NodePlan, Unmet, Verdict, Wait};
use crate::model::request::{ClaimChange, NewCiliumNode, Request, Write};
use crate::model::time::Now;
use crate::publisher::Publisher;
use crate::view::agents;
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
    let now = draft.now;
    let last = steps(world, &mut draft);
    let mut plan = draft.finish(last);
    let may_write = plan.saw_everything() && !matches!(plan.verdict, Verdict::Wait(Wait::Readable(_)));
    if may_write && plan.requests().is_empty() {
        let restored = lifecycle::restore_finalizers(world, &plan.node, now);
        if !restored.is_empty() {
            plan.verdict = Verdict::Act(restored);
        }
    }
    plan
}

/// The steps of a decision. Most nodes stop at one of the first steps, because nothing can be done before an answer
/// or an object comes.
fn steps(world: &World, draft: &mut Draft) -> Step {
    let name = draft.node.clone();
    let publisher = known_mode(world, &name)?;
    readable_objects(world, &name)?;
    look_for_agent(world, draft);
    await_answers(world, draft)?;
    await_end_of_pause(world, publisher, draft)?;
    leave_to_other_settings(world, draft)?;
    advance_claims(world, publisher, draft)?;
    recreate_lost_claims(world, draft)?;
    let node = existing_node(world, draft)?;
    let carrier = existing_carrier(world, node, draft)?;
    correct_carrier(publisher, carrier, draft)?;
    leave_to_second_allocator(publisher, carrier, draft)?;
    Subject { world, node, carrier, publisher }.decide(draft)
}

fn known_mode<'a>(world: &'a World, name: &NodeName) -> Step<&'a Publisher> {
    match world.publisher_of(name) {
        Some(publisher) => ControlFlow::Continue(publisher),
        None => ControlFlow::Break(Made::AsksForNothingBefore(Wait::Mode)),
    }
}

fn readable_objects(world: &World, name: &NodeName) -> Step {
    let unreadable =
        [Kind::Node, Kind::CiliumNode].into_iter().find(|kind| world.is_unreadable(*kind, name.as_str()));
    unreadable.map_or(NEXT, |kind| ControlFlow::Break(Made::AsksForNothingBefore(Wait::Readable(kind))))
}

/// While a request about the node is not answered, the shortage of the last plan counts.
fn await_answers(world: &World, draft: &mut Draft) -> Step {
    if !world.is_busy(&draft.node) {
        return NEXT;
    }
    draft.unmet = world.serving(&draft.node).map(|serving| serving.unmet.clone()).unwrap_or_default();
    ControlFlow::Break(Made::Waits(Wait::Answer))
}

fn await_end_of_pause(world: &World, publisher: &Publisher, draft: &mut Draft) -> Step {
    let Some(pause) = world.serving(&draft.node).map(|serving| serving.pause) else { return NEXT };
    let until = pause.later_than(draft.now);
    if until.is_none() && !world.node_awaits_turn(&draft.node) {
        return NEXT;
    }
    if let Some(until) = until {
        draft.wake_at(until);
    }
    draft.unmet = unmet(world, publisher, draft);
    ControlFlow::Break(Made::Waits(Wait::Pause))
}

/// An agent with settings of its own reads other fields, and does not answer in the fields of this mode.
fn leave_to_other_settings(world: &World, draft: &mut Draft) -> Step {
    let Some(why) = world.set_aside(&draft.node) else { return NEXT };
    draft.findings.push(Finding::of_node(FindingKind::OtherSettings, &draft.node, why.to_owned()));
    ControlFlow::Break(Made::AsksForNothingBefore(Wait::Settings))
}

fn advance_claims(world: &World, publisher: &Publisher, draft: &mut Draft) -> Step {
    lifecycle::advance(world, publisher, draft);
    publication::postpone_queries(world, draft);
    // A node that is about to hold a block again does not lack it.
    if !draft.requests.is_empty() && !draft.requests.iter().any(holds_again) {
        draft.unmet = unmet(world, publisher, draft);
    }
    draft.end_if_any_request()
}

/// The blocks of the node are known only when its lost claims are recreated. An agent that finds only a part of its
/// blocks restores only a part of its pods.
fn recreate_lost_claims(world: &World, draft: &mut Draft) -> Step {
    draft.requests = recreation::of_lost_claims(world, &draft.node, draft.now);
    draft.end_if_any_request()
}

fn existing_node<'a>(world: &'a World, draft: &mut Draft) -> Step<&'a Node> {
    let Some(node) = world.node(&draft.node) else {
        lifecycle::look_for_orphan(world, draft);
        return ControlFlow::Break(Made::AsksForNothingBefore(Wait::Existence(Kind::Node)));
    };
    if !node.runs_linux() {
        return ControlFlow::Break(Made::AsksForNothingBefore(Wait::Linux));
    }
    ControlFlow::Continue(node)
}

fn existing_carrier<'a>(world: &'a World, node: &Node, draft: &mut Draft) -> Step<Carrier<'a>> {
    let Some(carrier) = world.carrier(&node.name) else {
        match draft.policy.cilium_nodes {
            CiliumNodeOrigin::Controller if !node.deleting => create_cilium_node(world, node, draft),
            CiliumNodeOrigin::Controller | CiliumNodeOrigin::Agent => {}
        }
        return ControlFlow::Break(Made::AsksForNothingBefore(Wait::Existence(Kind::CiliumNode)));
    };
    if carrier.is_going() {
        return ControlFlow::Break(Made::AsksForNothingBefore(Wait::Deletion));
    }
    ControlFlow::Continue(carrier)
}

fn correct_carrier(publisher: &Publisher, carrier: Carrier<'_>, draft: &mut Draft) -> Step {
    let Some(malformed) = publisher.malformed(carrier) else { return NEXT };
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
    draft.findings.push(Finding::new(kind, carrier.kind(), draft.node.as_str(), message));
    ControlFlow::Break(Made::AsksForNothingBefore(Wait::Correction(carrier.kind())))
}

fn leave_to_second_allocator(publisher: &Publisher, carrier: Carrier<'_>, draft: &mut Draft) -> Step {
    let Some(finding) = publisher.second_allocator(carrier) else { return NEXT };
    draft.findings.push(finding);
    ControlFlow::Break(Made::AsksForNothingBefore(Wait::OtherAllocator))
}

/// The shortage of a node that its pools can't meet, where another step comes first or its writes are not applied: it
/// waits for a block all the same.
fn unmet(world: &World, publisher: &Publisher, draft: &Draft) -> BTreeSet<Unmet> {
    let name = &draft.node;
    let (Some(node), Some(carrier)) = (world.node(name), world.carrier(name)) else {
        return BTreeSet::new();
    };
    if !node.runs_linux()
        || world.set_aside(name).is_some()
        || carrier.is_going()
        || publisher.malformed(carrier).is_some()
    {
        return BTreeSet::new();
    }
    Subject { world, node, carrier, publisher }.unmet(draft)
}

/// Whether a node with the finding `NoPool` still needs a pool. Without a known mode it does.
#[must_use]
pub fn still_lacks_pool(world: &World, name: &NodeName) -> bool {
    let Some(node) = world.node(name) else { return false };
    let Some(publisher) = world.publisher_of(name) else { return true };
    match world.carrier(name) {
        Some(carrier) => Subject { world, node, carrier, publisher }.lacks_pool().is_some(),
        None => world.pools_of(name).next().is_none(),
    }
}

/// A node that holds blocks and has no agent, perhaps forever. All such nodes are one finding ([`agents::missing`]).
fn look_for_agent(world: &World, draft: &mut Draft) {
    let holds_blocks = world.node(&draft.node).is_some() && world.claims_of(&draft.node).next().is_some();
    if !holds_blocks || world.agent_on(&draft.node) != Err(NoAgent::Absent) {
        return;
    }
    let since = draft.note_lasting_since(world, Lasting::AgentAbsent);
    draft.waits_until(since + agents::MAY_LACK_AGENT_FOR);
}

/// Whether the request holds a released claim again.
fn holds_again(request: &Request) -> bool {
    matches!(request, Request::Write(Write::UpdateClaim(update)) if matches!(update.change, ClaimChange::Hold(_)))
}

/// Creates the CiliumNode of a node that a pool selects. Any other node gets none, and a finding reports it: where
/// the controller creates CiliumNodes, that node waits for nothing else.
fn create_cilium_node(world: &World, node: &Node, draft: &mut Draft) {
    if world.pools_of(&node.name).next().is_none() {
        let message = "no readable pool selects it: it gets no CiliumNode from the controller, and no \
             addresses";
        draft.findings.push(Finding::of_node(FindingKind::NoPool, &node.name, message.to_owned()));
        return;
    }
    let new = NewCiliumNode {
        node: node.name.clone(),
        node_uid: node.uid.clone(),
        labels: node.labels.clone(),
        addresses: node.addresses.clone(),
    };
    draft.requests.push(Write::CreateCiliumNode(new).into());
}
