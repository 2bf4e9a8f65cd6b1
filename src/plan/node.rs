//! What to do for one node: asks the parts of the planner in their order, and returns one plan.

use std::collections::BTreeSet;

use super::draft::{Detail, Draft};
use super::policy::{CiliumNodeOrigin, Policy};
use super::publishable::may_others_publish;
use super::subject::Subject;
use super::{lifecycle, publication, reasons, recreation, withhold};
use crate::model::agent::NoAgent;
use crate::model::carrier::Carrier;
use crate::model::finding::{Finding, FindingKind};
use crate::model::guard::Guard;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::model::plan::{Lasting, NodePlan, Scope, Unmet, Verdict, Wait};
use crate::model::request::{ClaimChange, NewCiliumNode, Request, Write};
use crate::model::share::Share;
use crate::model::time::Now;
use crate::publisher::Publisher;
use crate::view::agents;
use crate::world::World;

/// What to do for `name` now.
pub fn node(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    withhold::withhold(world, decide(world, Draft::new(name, Detail::Verdict), policy, now))
}

/// The same plan, with the reason of every pool that gives the node nothing, whether or not it was asked.
pub fn explain(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    let mut draft = Draft::new(name, Detail::Reasons);
    reasons::of_pools_not_asked(world, name, &mut draft);
    withhold::withhold(world, decide(world, draft, policy, now))
}

/// What the node needs goes first. Where that is nothing, claims that lost our finalizer get it back: somebody may take
/// it off again and again, and that is to keep no node from its blocks.
fn decide(world: &World, draft: Draft, policy: Policy, now: Now) -> NodePlan {
    let mut plan = decide_what_is_needed(world, draft, policy, now);
    let may_write = plan.saw_everything() && !matches!(plan.verdict, Verdict::Wait(Wait::Readable(_)));
    if may_write && plan.requests().is_empty() {
        let restored = lifecycle::restore_finalizers(world, &plan.node, now);
        if !restored.is_empty() {
            plan.verdict = Verdict::Act(restored);
        }
    }
    plan
}

fn decide_what_is_needed(world: &World, mut draft: Draft, policy: Policy, now: Now) -> NodePlan {
    let name = draft.node.clone();
    let Some(publisher) = world.publisher_of(&name) else {
        return draft.asking_for_nothing_before(Wait::Mode);
    };
    for kind in [Kind::Node, Kind::CiliumNode] {
        if world.unreadable(kind, name.as_str()).is_some() {
            return draft.asking_for_nothing_before(Wait::Readable(kind));
        }
    }
    look_for_agent(world, &mut draft, now);
    if world.is_busy(&name) {
        draft.unmet = world.serving(&name).map(|serving| serving.unmet.clone()).unwrap_or_default();
        return draft.waiting_for(Wait::Answer);
    }
    if let Some(until) = world.serving(&name).and_then(|serving| serving.pause.later_than(now))
        && !world.guards().is_off(Guard::Pause)
    {
        draft.wake_at(until);
        draft.unmet = unmet(world, publisher, &name);
        return draft.waiting_for(Wait::Pause);
    }
    // Its agent reads other fields, and answers nothing there.
    if let Some(why) = world.set_aside(&name) {
        let finding = Finding::new(FindingKind::OtherSettings, Kind::Node, name.as_str(), why.to_owned());
        draft.findings.push(finding);
        return draft.asking_for_nothing_before(Wait::Settings);
    }
    lifecycle::advance(world, publisher, &mut draft, now);
    publication::put_off_questions(world, &mut draft, policy, now);
    if !draft.requests.is_empty() {
        // What it is about to hold again it does not lack.
        if !draft.requests.iter().any(holds_again) {
            draft.unmet = unmet(world, publisher, &name);
        }
        return draft.finish();
    }
    // What the node has is known only when its lost claims are recreated, and an agent that finds only a part of its
    // blocks restores only a part of its pods.
    draft.requests = recreation::of_lost_claims(world, &name, now);
    if !draft.requests.is_empty() {
        return draft.finish();
    }
    let Some(node) = world.node(&name) else {
        lifecycle::look_for_orphan(world, &mut draft, now);
        return draft.asking_for_nothing_before(Wait::Existence(Kind::Node));
    };
    if !node.runs_linux() {
        return draft.asking_for_nothing_before(Wait::Linux);
    }
    let Some(carrier) = world.carrier(&name) else {
        match policy.cilium_nodes {
            CiliumNodeOrigin::Controller if !node.deleting => create_cilium_node(world, node, &mut draft),
            CiliumNodeOrigin::Controller | CiliumNodeOrigin::Agent => {}
        }
        return draft.asking_for_nothing_before(Wait::Existence(Kind::CiliumNode));
    };
    if carrier.is_going() {
        return draft.asking_for_nothing_before(Wait::Deletion);
    }
    if let Some(malformed) = publisher.malformed(carrier) {
        let kind = match carrier {
            Carrier::CiliumNode(_) => FindingKind::MalformedCiliumNode,
            Carrier::Node(_) => FindingKind::MalformedNode,
        };
        draft.findings.push(Finding::new(
            kind,
            carrier.kind(),
            name.as_str(),
            format!(
                "{} is `{}`, which is not a canonical address or prefix; correct it: until then the controller \
                 does not write this {}",
                malformed.field,
                malformed.value,
                carrier.kind().as_str(),
            ),
        ));
        return draft.asking_for_nothing_before(Wait::Correction(carrier.kind()));
    }
    let subject = Subject { world, node, carrier, publisher };
    if let Some(finding) = publisher.second_allocator(carrier) {
        draft.findings.push(finding);
        return draft.asking_for_nothing_before(Wait::OtherAllocator);
    }
    subject.decide(&mut draft, policy, now);
    draft.finish()
}

/// What a node asks for and can't get, where something else has to be done first, or its writes are not applied. Every
/// process that knows the same objects has to count the same nodes as waiting, however far its last plans have come.
fn unmet(world: &World, publisher: &Publisher, name: &NodeName) -> BTreeSet<Unmet> {
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
    Subject { world, node, carrier, publisher }.unmet()
}

/// A node that holds blocks and has no agent, perhaps for ever. All such nodes are one finding ([`agents::missing`]).
fn look_for_agent(world: &World, draft: &mut Draft, now: Now) {
    let holds_blocks = world.node(&draft.node).is_some() && world.claims_of(&draft.node).next().is_some();
    if !holds_blocks || world.agent_on(&draft.node) != Err(NoAgent::Absent) {
        return;
    }
    draft.finds(Lasting::AgentAbsent);
    let since = world.serving(&draft.node).and_then(|serving| serving.since(Lasting::AgentAbsent));
    let due = since.unwrap_or(now.uptime) + agents::MAY_LACK_AGENT_FOR;
    if due > now.uptime {
        draft.wake_at(due);
    }
}

/// Whether a node holds a claim again that it had given back.
fn holds_again(request: &Request) -> bool {
    matches!(request, Request::Write(Write::UpdateClaim(update)) if matches!(update.change, ClaimChange::Hold(_)))
}

/// Creates the CiliumNode of a node that a pool selects. No other node gets one, and it is reported, because where agents
/// leave that to the controller it waits for nothing else.
fn create_cilium_node(world: &World, node: &Node, draft: &mut Draft) {
    if world.pools_of(&node.name).next().is_none() {
        let message = "no readable pool selects it: it gets no CiliumNode from the controller, and no \
             addresses";
        draft.findings.push(Finding::new(
            FindingKind::NoPool,
            Kind::Node,
            node.name.as_str(),
            message.to_owned(),
        ));
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

impl Subject<'_> {
    /// What the node would ask for in vain if it came to that, in the order of [`Self::decide`].
    fn unmet(&self) -> BTreeSet<Unmet> {
        let mut draft = Draft::new(&self.node.name, Detail::Verdict);
        if self.foreign_hand().is_some() {
            return BTreeSet::new();
        }
        if !self.is_served() {
            let claims = self.world.claims_of(&self.node.name);
            let publishable: Vec<_> =
                claims.filter(|known| may_others_publish(self.world, self.node, known)).collect();
            if self.can_start_with(&publishable) {
                return BTreeSet::new();
            }
        }
        self.note_unmet(&mut draft);
        draft.unmet
    }

    /// Notes the findings about the published blocks of a served node.
    fn look_at_carrier(&self, draft: &mut Draft) {
        draft.findings.extend(self.publisher.finding(self.carrier));
        let claims = self.world.claims_of(&self.node.name).map(|known| &known.claim);
        draft.findings.extend(claims.filter_map(|claim| self.publisher.misplaced(self.carrier, claim)));
        draft.findings.extend(self.stray_blocks());
        if self.publisher.shows_use() && !self.publisher.use_is_known(self.carrier) {
            draft.finds(Lasting::UseUnknown);
        }
    }

    /// If nothing of a node is published, what it holds is published first, so that a node that returns gets all its
    /// blocks at once and does not wait for more. Otherwise growth comes first, so that one patch publishes all of it.
    fn decide(&self, draft: &mut Draft, policy: Policy, now: Now) {
        if self.is_served() {
            self.look_at_carrier(draft);
        }
        if let Some(finding) = self.foreign_hand() {
            self.leave_alone(draft, finding, now);
            return;
        }
        let is_supported = self.has_supported_agent();
        if is_supported {
            self.clear_answer(draft, policy, now);
        }
        if is_supported && draft.requests.is_empty() && self.is_served() {
            self.keep_what_is_needed(draft, policy, now);
        }
        if !draft.requests.is_empty() {
            draft.unmet = self.unmet();
            return;
        }
        let publishable = self.publishable(&mut draft.findings);
        // What the node has is not known either while its CiliumNode carries a block without a claim.
        draft.requests = self.claim_carried_blocks(now);
        if !draft.requests.is_empty() {
            draft.unmet = self.unmet();
            return;
        }
        if self.publisher.gives_one_block() && self.has_unclaimed_block() {
            // It becomes a claim when what is in its way has ended, and the node has no other one.
            draft.wait_for(Wait::Answer);
            return;
        }
        if self.publisher.gives_one_block() && self.is_served() {
            self.give_back_at_once(draft, now);
        }
        if !draft.requests.is_empty() {
            return;
        }
        draft.scope = Scope::Whole;
        if !is_supported {
            self.wait_for_upgrade(draft);
            return;
        }
        if !self.is_served() {
            if self.hold_what_is_on_its_way(draft, now) {
                return;
            }
            if self.is_held_back(draft) {
                // Another replica may not remember what holds it back, and counts it among those who wait.
                draft.unmet = self.unmet();
                return;
            }
        }
        let going = self.about_to_go(policy, now);
        // An agent that has nothing at all may not have written yet what it has. One that has CIDRs has.
        if self.is_served() || !self.publisher.blocks(self.carrier).is_empty() || self.lets_all_go() {
            self.take_back_what_is_needed(draft, now);
            if !draft.requests.is_empty() {
                return;
            }
            self.give_back_what_was_let_go(draft, &going, now);
            if !draft.requests.is_empty() {
                draft.unmet = self.unmet();
                return;
            }
        }
        if !self.is_served() && self.can_start_with(&publishable) {
            self.publish_first(draft, &publishable, policy, now);
            return;
        }
        if self.holds_nothing() && self.awaits_initialization(draft, policy, now) {
            return;
        }
        self.grow(draft, now);
        if self.is_served() && draft.requests.is_empty() && !draft.unmet.is_empty() {
            let unmet: Vec<Share> = draft.unmet.iter().map(|unmet| unmet.share().clone()).collect();
            self.keep_what_nobody_replaces(draft, &unmet, now);
        }
        if !self.is_served() && self.to_give_back().next().is_some() {
            draft.finds(Lasting::Incomplete);
        }
        if !draft.requests.is_empty() {
            return;
        }
        if self.is_served() {
            let room = self.room_for_what_goes(&going);
            let publishable: Vec<_> =
                publishable.into_iter().filter(|known| !room.contains(&known.claim.cidr)).collect();
            self.publish(draft, &publishable, policy, now);
        } else {
            self.give_back(draft, now);
        }
        self.ask_for_use(draft, policy, now);
        if draft.requests.is_empty() && draft.unmet.is_empty() {
            self.grow_for_pods(draft, policy, now);
        }
        let lacks_nothing = draft.requests.is_empty() && draft.unmet.is_empty();
        if lacks_nothing && self.is_served() && !self.world.freeze().stops_reclaim() {
            self.make_room(draft, now);
        }
        if draft.requests.is_empty() {
            self.take_back(draft, policy, now);
        }
    }
}
