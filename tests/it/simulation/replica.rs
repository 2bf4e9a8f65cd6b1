//! One controller process: its world, its four watches, each with a lag of its own, and its requests in flight.
//!
//! It does the work of `controller::run`, `controller::watch` and `controller::execute`, one observable piece at a
//! time. So a script can put any event between two pieces.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cilium_node_ipam::controller::server_time::{DatedAnswer, ServerTime};
use cilium_node_ipam::model::freeze::Freeze;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node_config::NodeConfigNews;
use cilium_node_ipam::model::observation::{Listing, Observation};
use cilium_node_ipam::model::outcome::{Answer, Outcome, Seen};
use cilium_node_ipam::model::plan::Verdict;
use cilium_node_ipam::model::request::{QueryStep, Request, Write};
use cilium_node_ipam::model::revision::{AnyRevision, Revision};
use cilium_node_ipam::model::time::Now;
use cilium_node_ipam::model::transitions::Rule;
use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::plan::{self, Policy};
use cilium_node_ipam::publisher::mode::{Mode as Heard, Publishers};
use cilium_node_ipam::world::World;
use cilium_node_ipam::world::gather::Gathering;

use k8s_openapi::jiff::SignedDuration;

mod decided;
mod watches;

use super::cluster::{Setting, Setup, in_seconds};
use super::mode::Modes;
use super::requests::{Stage, is_ours, serve, settle};
use super::store::Store;
use watches::Feed;

/// The policy of all replicas.
pub(super) const POLICY: Policy = Policy::DEFAULT;

/// The minimum wait of a node after its writes have failed twice in a row.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

thread_local! {
    /// The rows of the table of claims that the replicas of this thread have applied.
    pub(super) static RULES: RefCell<BTreeSet<Rule>> = const { RefCell::new(BTreeSet::new()) };
}

/// Either the lists so far, or the world.
#[derive(Debug, Clone)]
enum Process {
    Gathering(Gathering),
    Serving(Box<World>),
}

/// A request in flight.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) request: Request,
    /// When it was decided, on the clock of the simulation.
    pub(super) sent: Duration,
    stage: Stage,
}

impl Flight {
    /// The request as it may still reach the server, if its sender no longer waits for the answer.
    fn into_stray(self) -> Option<Stray> {
        match (self.stage, self.request) {
            (stage @ (Stage::Sent | Stage::Unfinalized(_)), Request::Write(write)) => {
                Some(Stray { write, sent: self.sent, stage })
            }
            _ => None,
        }
    }
}

/// A request that its sender has given up, and that may still reach the server.
#[derive(Debug, Clone)]
pub(super) struct Stray {
    pub(super) write: Write,
    /// When it was decided, on the clock of the simulation.
    pub(super) sent: Duration,
    stage: Stage,
}

impl Stray {
    /// It reaches the server. Its sender does not continue with the calls that would follow.
    pub(super) fn arrive(&self, store: &mut Store) {
        drop(serve(&self.write.clone().into(), &self.stage, store));
    }
}

/// The writes of one node that failed in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    n: u32,
    last: Duration,
}

impl Failures {
    /// The second try may come at once, because a conflict is news; none after it.
    fn demand_a_pause(self, clock: Duration) -> bool {
        self.n > 1 && clock < self.last + SHORTEST_PAUSE
    }
}

/// One controller process.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    process: Process,
    feeds: BTreeMap<Kind, Feed>,
    /// The kinds with a watch that is silent at the moment.
    deaf_to: BTreeSet<Kind>,
    /// How much news of the agents' Pods it has received; `None` before it has listed them.
    agent_news: Option<usize>,
    is_deaf_to_agents: bool,
    pub(super) in_flight: Vec<Flight>,
    /// The modes that the agents of the cluster run, as it was set up.
    runs: Modes,
    families: BTreeSet<Family>,
    /// The `ConfigMap`s as this process last read them.
    mode: Setup,
    /// When the process started, on the clock of the simulation.
    born: Duration,
    /// The error of the wall clock of its machine.
    skew: SignedDuration,
    /// The time of the server, as its answers have shown it to this process.
    server: ServerTime,
    /// When it last patched each CiliumNode.
    patched: BTreeMap<NodeName, Duration>,
    /// The writes of each node that failed in a row.
    failures: BTreeMap<NodeName, Failures>,
}

impl Replica {
    pub(super) fn new(setting: &Setting, skew: SignedDuration) -> Self {
        let mut replica = Self {
            process: Process::Gathering(Gathering::default()),
            feeds: BTreeMap::new(),
            deaf_to: BTreeSet::new(),
            agent_news: None,
            is_deaf_to_agents: false,
            in_flight: Vec::new(),
            runs: setting.modes,
            families: setting.families.clone(),
            mode: Setup::Usual,
            born: Duration::ZERO,
            skew,
            server: ServerTime::default(),
            patched: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        replica.restart(Duration::ZERO, Revision::of(1), Setup::Usual);
        replica
    }

    /// The modes that it reads from Cilium's ConfigMap and the CiliumNodeConfigs.
    fn mode_of(&self, setup: Setup) -> Heard {
        setup.mode(self.runs, &self.families)
    }

    /// The process exits and starts again from lists. Returns the requests that may still reach the server.
    pub(super) fn restart(&mut self, clock: Duration, revision: Revision, mode: Setup) -> Vec<Stray> {
        let mut gathering = Gathering::default();
        self.mode = mode;
        gathering.set_mode(self.mode_of(mode));
        gathering.set_freeze(mode.freeze());
        gathering.observe_node_configs(self.runs.node_configs());
        self.process = Process::Gathering(gathering);
        self.feeds = Kind::AS_LISTED.into_iter().map(|kind| (kind, Feed::Asked(revision))).collect();
        // Nodes and CiliumNodes are listed after claims (safety rule 6).
        self.feeds.extend([Kind::Node, Kind::CiliumNode].map(|kind| (kind, Feed::Off)));
        self.born = clock;
        self.server = ServerTime::default();
        self.patched.clear();
        self.hears_again();
        self.agent_news = None;
        self.failures.clear();
        std::mem::take(&mut self.in_flight).into_iter().filter_map(Flight::into_stray).collect()
    }

    pub(super) fn world(&self) -> Option<&World> {
        match &self.process {
            Process::Gathering(_) => None,
            Process::Serving(world) => Some(world),
        }
    }

    pub(super) fn world_mut(&mut self) -> Option<&mut World> {
        match &mut self.process {
            Process::Gathering(_) => None,
            Process::Serving(world) => Some(world),
        }
    }

    /// The process reads the `ConfigMap`s.
    pub(super) fn hears_mode(&mut self, mode: Setup) {
        self.mode = mode;
        let (mode, freeze) = (self.mode_of(mode), mode.freeze());
        match &mut self.process {
            Process::Gathering(gathering) => {
                gathering.set_mode(mode);
                gathering.set_freeze(freeze);
            }
            Process::Serving(world) => {
                world.set_mode(mode);
                world.set_freeze(freeze);
            }
        }
    }

    /// The `ConfigMap`s as it last read them.
    pub(super) fn mode(&self) -> Setup {
        self.mode
    }

    fn now(&self, clock: Duration) -> Now {
        let uptime = clock.saturating_sub(self.born);
        let of_machine = super::wall(clock) + self.skew;
        Now { uptime, wall: self.server.at(uptime).unwrap_or(of_machine) }
    }

    /// The server answers a request of this process now, with its own time in whole seconds.
    fn is_answered(&mut self, store: &Store) {
        let uptime = Duration::try_from(store.wall.duration_since(super::wall(self.born)));
        let uptime = uptime.expect("the process started before now");
        let answer = DatedAnswer { date: in_seconds(store.wall), sent: uptime, received: uptime };
        let jump = self.server.hear(&answer);
        assert_eq!(jump, None, "the server's clock is right");
    }

    fn observe(&mut self, observation: Observation) {
        match &mut self.process {
            Process::Gathering(gathering) => {
                gathering.observe(observation);
                self.process = match std::mem::take(gathering).complete() {
                    Ok(world) => Process::Serving(Box::new(world)),
                    Err(gathering) => Process::Gathering(gathering),
                };
            }
            Process::Serving(world) => {
                world.observe(observation);
                // A node's failures are kept only while the world has the node.
                self.failures.retain(|node, _| world.serving(node).is_some());
            }
        }
    }

    /// One decision: reads of unconfirmed claims, or the next node's, or the next pool's. Returns a line for a person,
    /// or an error if the decision itself is wrong.
    pub(super) fn decide(&mut self, clock: Duration) -> Result<Option<String>, String> {
        let now = self.now(clock);
        let Process::Serving(world) = &mut self.process else { return Ok(None) };
        world.advance(now);
        let unconfirmed = world.unconfirmed();
        if !unconfirmed.is_empty() {
            world.begin_confirming(&unconfirmed, now);
            let reads: Vec<Request> = unconfirmed.into_iter().map(Request::Read).collect();
            let said = shown(&reads);
            self.send(reads, clock);
            return Ok(Some(said));
        }
        if let Some(node) = world.next_node().cloned() {
            let plan = plan::node(world, &node, POLICY, now);
            if plan != plan::node(&world.clone(), &node, POLICY, now) {
                return Err(format!("two plans for {node} in equal worlds differ"));
            }
            RULES.with_borrow_mut(|rules| rules.extend(plan.rules.iter().map(|(_, rule)| *rule)));
            for request in plan.requests() {
                if let Request::Write(write) = request
                    && !self.mode.allows(write)
                {
                    return Err(format!("`{request}` is planned in the mode {:?}", self.mode));
                }
                if self.in_flight.iter().any(|flight| flight.request.target() == request.target()) {
                    return Err(format!(
                        "`{request}` is planned while one about the same object is under way"
                    ));
                }
                if self.failures.get(&node).is_some_and(|failures| failures.demand_a_pause(clock)) {
                    return Err(format!("`{request}` is planned at once after failures in a row"));
                }
                if let Request::Write(Write::Publish(publication)) = request {
                    decided::is_for_its_node(world, publication)?;
                }
                let runs = decided::mode_in(world, self.runs, &node);
                if let Request::Write(Write::CreateClaim(new)) = request
                    && runs.gives_one_block()
                {
                    let families = self.mode.families(&self.families);
                    decided::is_all_that_stands(world, runs, &families, new)?;
                }
                let patched = match request {
                    Request::Write(Write::Publish(publication)) => Some(&publication.node),
                    Request::Write(Write::UsageQuery(query)) => Some(&query.node),
                    _ => None,
                };
                if let Some(patched) = patched {
                    let is_served = !decided::shown_in(world, runs, &node).is_empty();
                    let last = self.patched.insert(patched.clone(), clock);
                    // The end of a usage query may be the later version that proves a block absent, which waits for
                    // nothing.
                    let is_clearing = matches!(
                        request,
                        Request::Write(Write::UsageQuery(query)) if query.step == QueryStep::Clear
                    );
                    // Neither do repairs.
                    let is_repair = matches!(
                        request,
                        Request::Write(Write::Publish(publication))
                            if !publication.completed.is_empty() || plan::starts_or_restores(world, &node)
                    );
                    if is_served
                        && !is_clearing
                        && !is_repair
                        && last.is_some_and(|last| last + POLICY.min_write_interval > clock)
                    {
                        return Err(format!("`{request}` comes too soon after the last one"));
                    }
                }
            }
            world.begin(&plan, now);
            if plan.saw_everything() && plan.requests().is_empty() {
                // Another replica may have done it; there is nothing to retry.
                self.failures.remove(&node);
            }
            let waits = match &plan.verdict {
                Verdict::Wait(wait) => format!("; waits: {wait}"),
                Verdict::Act(_) | Verdict::AtRest => String::new(),
            };
            let said = format!("{node}: {}{waits}", shown(plan.requests()));
            self.send(plan.into_requests(), clock);
            return Ok(Some(said));
        }
        if let Some(pool) = world.next_pool().cloned() {
            let status = plan::pool(world, &pool, POLICY, now);
            world.begin_status(&pool, &status, now);
            let writes = status.into_writes();
            if let Some(write) =
                writes.iter().find(|write| self.mode == Setup::Frozen && !self.mode.allows(write))
            {
                return Err(format!("`{write}` is planned although writes are frozen"));
            }
            let requests: Vec<Request> = writes.into_iter().map(Request::from).collect();
            let said = format!("{pool}: {}", shown(&requests));
            self.send(requests, clock);
            return Ok(Some(said));
        }
        Ok(None)
    }

    fn send(&mut self, requests: Vec<Request>, sent: Duration) {
        let flights = requests.into_iter().map(|request| Flight { request, sent, stage: Stage::Sent });
        self.in_flight.extend(flights);
    }

    /// A write gets one stage further: to the server, back with the answer, or to the read that settles it.
    pub(super) fn proceed(&mut self, flight: usize, store: &mut Store, clock: Duration) -> Option<String> {
        self.is_answered(store);
        let Flight { request, stage, .. } = self.in_flight.get_mut(flight)?;
        match stage {
            Stage::Sent | Stage::Unfinalized(_) => {
                let said = match stage {
                    Stage::Unfinalized(_) => format!("the deletion of `{request}` arrives"),
                    _ => format!("`{request}` arrives"),
                };
                *stage = serve(request, stage, store);
                Some(said)
            }
            Stage::MustRead(answer) => {
                let (seen, said) = (settle(request, store), format!("`{request}` is settled by reading"));
                let answer = if is_ours(request, &seen) { Answer::Done } else { answer.clone() };
                *stage = Stage::Answered(answer, seen);
                Some(said)
            }
            Stage::Answered(..) => {
                let Flight { request, stage, .. } = self.in_flight.remove(flight);
                let Stage::Answered(answer, seen) = stage else { return None };
                let said = format!("`{request}` ends: {answer:?}");
                self.finish(request, answer, seen, clock);
                Some(said)
            }
        }
    }

    /// The outcome of a write is unknown: its request is late, or its answer lost. Returns the request if it has not
    /// reached the server yet, which it still may.
    pub(super) fn lose(&mut self, flight: usize) -> Option<(String, Option<Stray>)> {
        let Flight { request, sent, stage } = self.in_flight.get_mut(flight)?;
        let said = format!("`{request}` is not answered");
        let unknown = Stage::MustRead(Answer::Unknown("lost".to_owned()));
        let stage = std::mem::replace(stage, unknown);
        // A read is repeated until it is answered.
        Some((said, Flight { request: request.clone(), sent: *sent, stage }.into_stray()))
    }

    /// The server refuses a write that it has not done yet, as an overloaded server does.
    pub(super) fn refuse(&mut self, flight: usize, clock: Duration) -> Option<String> {
        if !matches!(
            self.in_flight.get(flight)?,
            Flight { request: Request::Write(_), stage: Stage::Sent, .. }
        ) {
            return None;
        }
        let Flight { request, .. } = self.in_flight.remove(flight);
        let answer = Answer::Refused("too many requests".to_owned(), Some(Duration::from_secs(1)));
        let said = format!("`{request}` is refused");
        self.finish(request, answer, Seen::Nothing, clock);
        Some(said)
    }

    fn finish(&mut self, request: Request, answer: Answer, seen: Seen, clock: Duration) {
        let now = self.now(clock);
        if let Process::Serving(world) = &mut self.process {
            if let (Request::Write(_), Some(node)) = (&request, request.node()) {
                if answer == Answer::Done {
                    self.failures.remove(node);
                } else {
                    let failures = self.failures.entry(node.clone()).or_default();
                    *failures = Failures { n: failures.n + 1, last: clock };
                }
            }
            world.finish(Outcome { request, answer, seen }, now);
            self.failures.retain(|node, _| world.serving(node).is_some());
        }
    }
}

/// The world of a process that has listed a store without objects.
pub(super) fn world_of_nothing(publishers: Publishers, node_configs: NodeConfigNews) -> World {
    let mut gathering = Gathering::default();
    gathering.set_mode(Heard::Active(publishers));
    gathering.observe_node_configs(node_configs);
    gathering.set_freeze(Freeze::default());
    for kind in Kind::AS_LISTED {
        let at = AnyRevision::of(kind, 1);
        gathering.observe(Observation::Listed(Listing {
            kind,
            at_least: at,
            at_most: at,
            objects: Vec::new(),
        }));
    }
    gathering.complete().expect("every kind was listed")
}

fn shown(requests: &[Request]) -> String {
    if requests.is_empty() {
        return "nothing".to_owned();
    }
    requests.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
