//! Tests of decisions as text: a small cluster goes in, and what to do for one node comes out.

mod annotations;
mod availability;
mod cluster_pool;
mod drain;
mod first_publication;
mod forecast;
mod former_mode;
mod freeze;
mod growth;
mod headroom;
mod held_growth;
mod in_the_way;
mod kubernetes;
mod late;
mod leaving;
mod lines;
mod lost_claims;
mod max_pods;
mod mixed_modes;
mod moving;
mod multi_pool;
mod no_effect;
mod node_configs;
mod others;
mod overlap;
mod pod_ip_pools;
mod pools;
mod preflight;
mod publication;
mod reasons;
mod rejoin;
mod releases;
mod returning;
mod routes;
mod routes_by_gobgp;
mod routes_exported;
mod rows;
mod sizes;
mod usage;
mod wakeups;
mod wide;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{CiliumNodeOrigin, GrowthProof, Policy, ReclaimPolicy, node};
use crate::model::agent::{AgentNews, AgentPod, ContainerStart, PodsOnNode};
use crate::model::carrier::CarrierChange;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::crd::{CrdFields, FENCE, ReleaseMark};
use crate::model::freeze::{Freeze, Switch};
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::{AddressKind, Annotated, CiliumNode, Malformed, Node, NodeAddress, OperatorWrite};
use crate::model::observation::{InvalidPool, Listing, Object, Observation, PoolObject, Unreadable};
use crate::model::outcome::{Answer, Outcome, Presence, Seen};
use crate::model::plan::{Coverage, NodePlan, PoolPlan, Verdict, Wait};
use crate::model::pool::{
    Expand, FirstLast, PerNode, Pool, RangeState, Ranges, Reclaim, ReclaimMode, Reservation,
};
use crate::model::request::{ClaimChange, ClaimUpdate, Publication, Read, Request, Target, Write};
use crate::model::revision::{AnyRevision, Revision};
use crate::model::status::{ConditionType, PoolStatus};
use crate::model::time::{Now, Timestamp};
use crate::model::transitions::{Rule, State};
use crate::net::address_map::AddressMap;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::crd::QUERY_ADDRESS;
use crate::publisher::mode::Mode;
use crate::view::block_event::{self, listed};
use crate::view::conditions;
use crate::world::World;
use crate::world::gather::Gathering;
use lines::{agent, cidrs, mode, object, value, written_out};

/// The revision up to which every list of a fixture shows the store.
const LISTED: u64 = 100;

/// A cluster, which is written in lines (`lines`).
#[derive(Clone)]
struct Cluster {
    world: World,
    now: Now,
    in_flight: Vec<Request>,
}

impl Cluster {
    fn of(text: &str) -> Self {
        Self::serving("crd v4", text)
    }

    /// A cluster in the mode of these words ([`mode`]).
    fn serving(words: &str, text: &str) -> Self {
        Self::in_mode(mode(words), text)
    }

    fn in_mode(mode: Mode, text: &str) -> Self {
        let mut listings: BTreeMap<Kind, Vec<Object>> = BTreeMap::new();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(written_out);
        let (agents, objects): (Vec<String>, Vec<String>) =
            lines.partition(|line| line.starts_with("agent "));
        for line in objects {
            let object = object(&line);
            listings.entry(object.kind()).or_default().push(object);
        }
        let mut gathering = Gathering::default();
        gathering.set_mode(mode);
        gathering.set_freeze(Freeze::default());
        for kind in Kind::AS_LISTED {
            let objects = listings.remove(&kind).unwrap_or_default();
            gathering.observe(Observation::Listed(Listing {
                kind,
                at_least: AnyRevision::of(kind, LISTED),
                at_most: AnyRevision::of(kind, LISTED),
                objects,
            }));
        }
        gathering.observe_agents(AgentNews::Listed(agents.iter().map(|line| agent(line)).collect()));
        let world = gathering.complete().expect("every kind is listed");
        Self {
            world,
            now: Now { uptime: Duration::from_secs(1000), wall: Timestamp::default() },
            in_flight: Vec::new(),
        }
    }

    /// A watch shows the object in this line.
    fn observe(&mut self, line: &str) {
        self.world.observe(Observation::Applied(Box::new(object(line))));
        assert_eq!(self.world.check(), []);
    }

    /// A list of this revision shows the object in this line, and no other of its kind.
    fn lists_only(&mut self, line: &str, revision: u64) {
        let object = object(line);
        let kind = object.kind();
        let at = AnyRevision::of(kind, revision);
        let listing = Listing { kind, at_least: at, at_most: at, objects: vec![object] };
        self.world.observe(Observation::Listed(listing));
        assert_eq!(self.world.check(), []);
    }

    /// Something is told of the agents' Pods.
    fn observe_agents(&mut self, news: AgentNews) {
        self.world.observe_agents(news);
        assert_eq!(self.world.check(), []);
    }

    fn delete(&mut self, kind: Kind, name: &str, revision: u64) {
        self.world.observe(Observation::Deleted {
            kind,
            name: name.to_owned(),
            revision: AnyRevision::of(kind, revision),
        });
        assert_eq!(self.world.check(), []);
    }

    fn pass(&mut self, seconds: u64) {
        self.now.uptime += Duration::from_secs(seconds);
        self.now.wall += Duration::from_secs(seconds);
        self.world.advance(self.now);
    }

    fn plan(&self, name: &str) -> NodePlan {
        let policy = Policy::DEFAULT;
        let plan = node(&self.world, &NodeName::from(name), policy, self.now);
        self.check_moves(&plan);
        plan
    }

    /// The rows of the table of claims that apply to the claims of a node.
    fn rules(&self, name: &str) -> Vec<Rule> {
        self.plan(name).rules.into_iter().map(|(_, rule)| rule).collect()
    }

    /// Every move of a claim is one of the table of states.
    fn check_moves(&self, plan: &NodePlan) {
        for request in plan.requests() {
            let Request::Write(Write::UpdateClaim(update)) = request else { continue };
            let known = self.world.claim(update.cidr).expect("only claims that are known are moved");
            let from = State::from(&known.claim.state);
            let to = from.after(&update.change).unwrap_or_else(|| panic!("{request} from {from}"));
            let is_kept = update.change == ClaimChange::Keep;
            assert!(is_kept || from.moves().contains(&to), "{from} to {to:?}");
        }
    }

    /// Decides for every node that is due, until none is left, and returns them; what is decided is then in flight.
    fn drain(&mut self) -> Vec<String> {
        let mut decided = Vec::new();
        while let Some(node) = self.world.next_node().cloned() {
            decided.push(node.to_string());
            let plan = self.plan(node.as_str());
            self.begin(&plan);
        }
        decided
    }

    /// Checks the plan of a node; its requests are then in flight.
    #[track_caller]
    fn expect(&mut self, name: &str, expected: &str) {
        let plan = self.plan(name);
        assert_eq!(rendered(&plan), expected);
        assert_eq!(plan, self.plan(name), "equal worlds, equal plans");
        self.begin(&plan);
    }

    /// The same is decided now and after so many seconds.
    #[track_caller]
    fn expect_for(&mut self, seconds: u64, name: &str, expected: &str) {
        self.expect(name, expected);
        self.pass(seconds);
        self.expect(name, expected);
    }

    /// Checks the plan of a node that gets its only block: its claims are read first, and are those that are known.
    #[track_caller]
    fn expect_after_claims(&mut self, name: &str, expected: &str) {
        self.reads_claims(name, LISTED);
        self.expect(name, expected);
    }

    /// The claims of a node are read, at this revision, and are those that are known.
    #[track_caller]
    fn reads_claims(&mut self, name: &str, revision: u64) {
        let node = NodeName::from(name);
        self.expect(name, &format!("read the claims of node {name}"));
        let seen = claims_of(&self.world, &node, revision);
        self.settle(&Target::ClaimsOf(node), seen);
    }

    /// The request about `target` that is in flight ends, and its answer shows `seen`.
    #[track_caller]
    fn settle(&mut self, target: &Target, seen: Seen) {
        let place = self.in_flight.iter().position(|request| request.target() == *target);
        let request = self.in_flight.remove(place.expect("a request about it is in flight"));
        self.finish(request, seen);
    }

    /// The write in flight of the object in this line is carried out. Its answer shows nothing, and then a watch does.
    #[track_caller]
    fn carried_out(&mut self, line: &str) {
        let target = match object(line) {
            Object::Claim(claim) => Target::Claim(claim.cidr),
            Object::CiliumNode(cilium_node) => Target::CiliumNode(cilium_node.name),
            other => panic!("no write: {other:?}"),
        };
        self.settle(&target, Seen::Nothing);
        self.observe(line);
    }

    /// The write in flight of the object in this line is answered with it. No watch shows it yet.
    #[track_caller]
    fn answered_with(&mut self, line: &str) {
        let (target, seen) = match object(line) {
            Object::Claim(claim) => (Target::Claim(claim.cidr), Seen::Claim(Box::new(claim))),
            Object::Node(node) => (Target::Node(node.name.clone()), Seen::PatchedNode(Box::new(node))),
            other => panic!("no write: {other:?}"),
        };
        self.settle(&target, seen);
    }

    /// Node `a` is read, as of this revision of its claims.
    #[track_caller]
    fn reads_node(&mut self, presence: Presence, as_of: u64) {
        self.expect("a", "read Node a");
        self.settle(&Target::Node("a".into()), found(presence, as_of));
    }

    /// A node whose block has cooled is asked for once more, and is gone.
    #[track_caller]
    fn confirm_loss(&mut self, name: &str) {
        let plan = self.plan(name);
        let [Request::Read(Read::Node(node, as_of))] = plan.requests() else {
            panic!("{}", rendered(&plan));
        };
        let (target, as_of) = (Target::Node(node.clone()), *as_of);
        self.begin(&plan);
        self.settle(&target, found(Presence::Gone, as_of.number()));
    }

    /// The Pods of node `a` are read: its agent, and pods with these addresses.
    #[track_caller]
    fn looked(&mut self, pods: &[(&str, &str)]) {
        self.looked_at(pods, 0);
    }

    /// The same, and so many pods that are starting.
    #[track_caller]
    fn looked_at(&mut self, pods: &[(&str, &str)], n_starting: usize) {
        let plan = self.plan("a");
        assert!(rendered(&plan).starts_with("read the pods of node a"), "{}", rendered(&plan));
        self.begin(&plan);
        let Request::Read(Read::PodsOf(node, after)) = self.in_flight.remove(0) else { unreachable!() };
        let agents = self.world.agents_on(&node).cloned().collect();
        let holders =
            pods.iter().map(|(address, pod)| (address.parse().unwrap(), (*pod).to_owned())).collect();
        let seen = Seen::PodsOf { after, pods: PodsOnNode { agents, holders, n_starting } };
        self.finish(Read::PodsOf(node, after).into(), seen);
    }

    /// The status that the pool should show.
    fn status(&self, name: &str) -> PoolStatus {
        let object = self.world.pool_object(&name.into()).expect("it is a pool");
        conditions::status(&self.world, object)
    }

    /// A condition that the pool should show, as `REASON STATUS: MESSAGE`; empty without it.
    fn condition(&self, name: &str, kind: ConditionType) -> String {
        let status = self.status(name);
        let shown = status.conditions.get(&kind);
        shown.map_or_else(String::new, |of| format!("{} {}: {}", of.reason, of.holds, of.message))
    }

    /// A request ends, and its answer shows `seen`.
    fn finish(&mut self, request: Request, seen: Seen) {
        self.world.finish(Outcome { request, answer: Answer::Done, seen }, self.now);
    }

    /// Of these requests, the writes to claims, CiliumNodes and finalizers that begin although writes are frozen.
    fn held_back(&self, requests: &[Request]) -> Vec<String> {
        let is_frozen = self.world.freeze().is_on(Switch::Writes);
        let moves_addresses = |request: &&Request| match request {
            Request::Write(Write::PoolStatus(_)) | Request::Read(_) => false,
            Request::Write(_) => true,
        };
        requests.iter().filter(|_| is_frozen).filter(moves_addresses).map(ToString::to_string).collect()
    }

    /// The requests of the plan are sent.
    fn begin(&mut self, plan: &NodePlan) {
        self.world.begin(plan, self.now);
        self.in_flight.extend(plan.requests().iter().cloned());
    }
}

/// The answer to a read of a Node whose claims are known as of this revision.
fn found(presence: Presence, as_of: u64) -> Seen {
    Seen::Node { as_of: Revision::of(as_of), read_at: Revision::of(u64::MAX), presence }
}

/// The only request of a plan, which publishes.
#[track_caller]
fn publication(plan: &NodePlan) -> &Publication {
    let [Request::Write(Write::Publish(publication))] = plan.requests() else { panic!("{}", rendered(plan)) };
    publication
}

/// The only finding of a plan.
#[track_caller]
fn message(plan: &NodePlan) -> String {
    let [finding] = &plan.findings[..] else { panic!("{}", rendered(plan)) };
    format!("{} {}: {}", finding.subject.as_str(), finding.name, finding.message)
}

/// Fails unless the text starts like this.
#[track_caller]
fn assert_starts(text: &str, start: &str) {
    assert!(text.starts_with(start), "{text}\ndoes not start with\n{start}");
}

/// Fails unless this is a part of the text.
#[track_caller]
fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "{part}\nis not in\n{text}");
}

/// The answer to a read of the claims of a node, which finds those that are known.
fn claims_of(world: &World, node: &NodeName, revision: u64) -> Seen {
    let claims = world.claims_of(node).map(|known| known.claim.clone()).collect();
    Seen::ClaimsOf { revision: Revision::of(revision), claims, unreadable: Vec::new() }
}

fn rendered(plan: &NodePlan) -> String {
    let mut parts: Vec<String> = plan.requests().iter().map(ToString::to_string).collect();
    let unmet = plan.unmet.iter().filter(|_| plan.coverage == Coverage::Full);
    parts.extend(unmet.map(|unmet| format!("unmet: {unmet}")));
    parts.extend(plan.findings.iter().map(|finding| format!("finding: {}", finding.kind.as_str())));
    match plan.verdict {
        Verdict::Wait(Wait::Capacity) | Verdict::Act(_) | Verdict::AtRest => {}
        Verdict::Wait(wait) => parts.push(format!("waits: {wait}")),
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}
