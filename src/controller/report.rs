//! Reports the work of the loop: log lines, findings, events, readiness, the heartbeat, and the snapshot behind
//! `/metrics`.
//!
//! Decides nothing about nodes and pools. It costs little per input. Reports that cost a pass over the world are made
//! at most once per second, and only when something changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;
use tracing::{error, info, warn};

use failures::ReportedFailures;
use finding_log::FindingLog;
use flow::Flow;
use grants::Grants;
use lag::WatchLag;
use without_block::{WithoutBlock, classes_without_block};
use without_pool::{PoolWait, WithoutPool};

use super::event_of::{event_of_block, events_of_status};
use super::events::{Event, Events, Subject};
use super::input::Input;
use super::pacing::Pacing;
use crate::model::failure::Failure;
use crate::model::finding::{self, Finding, FindingKind, Reported};
use crate::model::freeze::Switch;
use crate::model::kind::{Kind, ObjectKind};
use crate::model::leadership::Leadership;
use crate::model::names::NodeName;
use crate::model::observation::Observation;
use crate::model::outcome::Outcome;
use crate::model::plan::{NodePlan, RoutesPlan, Verdict, Wait};
use crate::model::request::{Request, Write};
use crate::model::status::Need;
use crate::model::time::Now;
use crate::publisher::mode::Mode;
use crate::telemetry::Telemetry;
use crate::telemetry::event_reason::EventReason;
use crate::telemetry::metrics::{InputKind, Metrics};
use crate::telemetry::readiness::Readiness;
use crate::view::agents;
use crate::view::block_event::{self, BlockEvent, listed};
use crate::view::findings;
use crate::view::map::map;
use crate::view::orphans;
use crate::view::snapshot::snapshot;
use crate::world::World;
use crate::world::check::Inconsistency;

mod clock_difference;
mod failures;
mod finding_log;
mod flow;
mod grants;
mod lag;
mod shortages;
mod without_block;
mod without_pool;

/// The shortest time between two snapshots. A scrape comes every 15 s or so. Each snapshot is a pass over all claims
/// and nodes, as each look at the status of a pool is.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time between two snapshots, if something changed.
const LONGEST_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(10);
/// The time between two snapshots as a multiple of the time that one takes: they cost 0.5 % of a CPU, as long as one
/// takes less than 50 ms.
const SNAPSHOT_FACTOR: u32 = 200;
/// When the next snapshot is due at the latest, as long as writes have no effect.
const INEFFECTIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Reports the work of the loop.
#[derive(Debug)]
pub(super) struct Reporter {
    telemetry: Telemetry,
    events: Events,
    log: FindingLog,
    /// Findings of the last plan of each node.
    findings: BTreeMap<NodeName, BTreeSet<Finding>>,
    /// The nodes that need addresses for which no pool selects them. They are reported again and again, as are those
    /// below.
    without_pool: WithoutPool,
    /// The nodes for which none of their pools has a block.
    without_block: WithoutBlock,
    /// Findings about objects that can't be read, addresses of others in pools, and nodes without agents.
    unreadable: BTreeSet<Finding>,
    /// Findings about writes without effect.
    ineffective: BTreeSet<Finding>,
    /// The writes that fail, as events have reported them.
    failures: ReportedFailures,
    /// Findings about routes.
    routes: BTreeSet<Finding>,
    /// The finding about the clock of this machine, if there is one.
    clock: BTreeSet<Finding>,
    /// The nodes that need blocks now.
    grants: Grants,
    /// How late the watches are.
    lag: WatchLag,
    /// How many differences the self-check found.
    n_differences: usize,
    /// When the next snapshot is due, if something changed since the last.
    due: Option<Instant>,
    /// The earliest time of the next snapshot.
    not_before: Option<Instant>,
}

/// The report about a write, for when it has been applied.
#[derive(Debug)]
pub(super) struct Announcement {
    block_event: Option<BlockEvent>,
    flow: Option<Flow>,
    reported: Vec<Event>,
}

impl Reporter {
    pub(super) fn new(telemetry: Telemetry, events: Events) -> Self {
        Self {
            telemetry,
            events,
            log: FindingLog::default(),
            findings: BTreeMap::new(),
            without_pool: WithoutPool::default(),
            without_block: WithoutBlock::default(),
            unreadable: BTreeSet::new(),
            ineffective: BTreeSet::new(),
            failures: ReportedFailures::default(),
            routes: BTreeSet::new(),
            clock: BTreeSet::new(),
            grants: Grants::default(),
            lag: WatchLag::default(),
            n_differences: 0,
            due: None,
            not_before: None,
        }
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.telemetry.metrics
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// The loop has made another turn.
    pub(super) fn beat(&self) {
        self.telemetry.heartbeat.beat();
    }

    /// The clock of this machine is ahead of the API server by so much. `None` as long as that is unknown.
    pub(super) fn clock(&mut self, ahead: Option<SignedDuration>) {
        self.telemetry.metrics.set_clock_difference(ahead.unwrap_or_default().as_secs_f64());
        let found = clock_difference::finding(ahead, self.clock.first());
        if found.as_ref() != self.clock.first() {
            self.log.replace(&mut self.clock, found.into_iter().collect());
            self.changed();
        }
    }

    /// When the next snapshot is due, or the next report about a node that waits.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.due, self.without_pool.next_due(), self.without_block.next_due()].into_iter().flatten().min()
    }

    /// Something changed that a snapshot shows.
    fn changed(&mut self) {
        let now = Instant::now();
        let soon = self.not_before.map_or(now, |at| now.max(at));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Publishes a snapshot if one is due, and reports nodes that have waited for a while.
    pub(super) fn show_if_due(&mut self, world: &World, now: Now) {
        for due in self.without_pool.pop_due(world, Instant::now()) {
            self.report_no_pool(world, &due);
        }
        for due in self.without_block.pop_due(world, Instant::now()) {
            self.report_no_block(world, &due);
        }
        self.report_first_waits(world, Instant::now());
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.show(world, now);
        }
    }

    /// Publishes a snapshot of the world, and reports unreadable objects and writes without effect.
    pub(super) fn show(&mut self, world: &World, now: Now) {
        let shown_at = Instant::now();
        self.look_at_world(world, now);
        self.look_at_writes(world, now);
        let failing: Vec<(&Write, Failure)> = world.failing_writes().collect();
        for event in self.failures.due(world, &self.telemetry.api_health, &failing) {
            self.events.report(event);
        }
        self.telemetry.set_failures(failing.into_iter().map(|(_, failure)| failure).collect());
        self.log.summarize();
        // The finding of a write that is not repeated any more is resolved by time alone.
        self.due = (!self.ineffective.is_empty()).then_some(shown_at + INEFFECTIVE_INTERVAL);
        let of_no_node =
            self.unreadable.iter().chain(&self.ineffective).chain(&self.routes).chain(&self.clock);
        let seen = self.findings.values().flatten().chain(of_no_node).map(|finding| finding.kind);
        let broken = std::iter::repeat_n(FindingKind::BrokenInvariant, self.n_differences);
        self.telemetry.metrics.publish(snapshot(world, seen.chain(broken), now.wall));
        let nodes = world.nodes().map(|node| &node.name);
        self.telemetry.set_remarks(agents::unsupported(world, nodes).into_iter().collect());
        let wait = shown_at.elapsed().saturating_mul(SNAPSHOT_FACTOR);
        self.not_before = Some(shown_at + wait.clamp(SNAPSHOT_INTERVAL, LONGEST_SNAPSHOT_INTERVAL));
    }

    /// Waits until the HTTP server is asked for the map of the address space.
    pub(super) async fn map_is_wanted(&self) {
        self.telemetry.maps.wanted().await;
    }

    /// Answers with the map. The loop does not plan all nodes for a page.
    pub(super) fn draw_map(&self, world: &World, now: Now) {
        self.telemetry.maps.answer(map(world, &[], now.wall));
    }

    pub(super) fn input(&mut self, input: &Input) {
        self.telemetry.metrics.input(match input {
            Input::Observed(Observation::Listed(_)) => InputKind::Listed,
            Input::Observed(Observation::Applied(_)) => InputKind::Applied,
            Input::Observed(Observation::Deleted { .. }) => InputKind::Deleted,
            Input::Mode(_) => InputKind::Mode,
            Input::Freeze(_) => InputKind::Freeze,
            Input::Agents(_) => InputKind::Agents,
            Input::PodIpPools(_) => InputKind::PodIpPools,
            Input::NodeConfigs(_) => InputKind::NodeConfigs,
            Input::FrrConfigurations(_) | Input::FrrNodeStates(_) | Input::Speakers(..) => InputKind::Frr,
            Input::RibNews(_) => InputKind::Gobgp,
            Input::Definition(_) => InputKind::Definitions,
            Input::Leadership(_) => InputKind::Leadership,
            Input::Finished(_) | Input::Rib(_) => InputKind::Finished,
        });
        if let Input::Observed(observation) = input
            && let Some((kind, lags)) = self.lag.observed(observation, Instant::now())
        {
            for lag in lags {
                self.telemetry.metrics.watch_lagged(kind, lag);
            }
        }
        self.changed();
    }

    /// The loop has decided as far as the event budget allows.
    pub(super) fn pace(&self, pacing: &Pacing, uptime: Duration) {
        for (class, queue) in pacing.queues(uptime) {
            self.telemetry.metrics.set_paced(class, queue);
        }
        self.telemetry.set_pace(pacing.in_words(uptime));
    }

    /// A request has an outcome, which has not entered the world yet. As many agents watch each CiliumNode.
    pub(super) fn finished(&mut self, outcome: &Outcome, n_watchers: usize) {
        if let Request::Write(write) = &outcome.request
            && write.target().object().0 == ObjectKind::World(Kind::CiliumNode)
            && outcome.took_effect()
        {
            self.telemetry.metrics.watch_events_caused(n_watchers);
        }
        if let Some(kind) = self.lag.finished(outcome, Instant::now()) {
            self.telemetry.metrics.watch_lagged(kind, Duration::ZERO);
        }
        if let Request::Write(Write::Publish(publication)) = &outcome.request
            && outcome.took_effect()
            && !publication.added.is_empty()
            && let Some((need, took)) = self.grants.published(&publication.node, Instant::now())
        {
            self.telemetry.metrics.granted(need, took);
        }
    }

    pub(super) fn readiness(&self, world: &World) {
        self.telemetry.set_readiness(match world.mode() {
            Mode::Active(publisher) => {
                info!(families = ?publisher.families(), mode = %publisher, "serving");
                Readiness::Ready
            }
            Mode::Passive(why) => {
                warn!(why, "passive: nodes get no blocks");
                Readiness::Passive(why.clone())
            }
        });
    }

    /// The freeze may have changed.
    pub(super) fn freeze(&self, world: &World) {
        let freeze = world.freeze();
        let before = self.telemetry.set_freeze(freeze.clone());
        for switch in Switch::ALL {
            match (before.description(switch), freeze.description(switch)) {
                (before, Some(reported)) if before.as_ref() != Some(&reported) => {
                    warn!(switch = switch.as_str(), "frozen: {reported}");
                }
                (Some(_), None) => info!(switch = switch.as_str(), "no longer frozen"),
                (_, Some(_)) | (None, None) => {}
            }
        }
    }

    /// This process is on standby from now on: the leader reports the findings of nodes. When it leads again it
    /// reports all anew.
    pub(super) fn stands_by(&mut self) {
        self.findings.clear();
        (self.without_pool, self.without_block) = (WithoutPool::default(), WithoutBlock::default());
        self.grants = Grants::default();
        self.changed();
    }

    /// Logs which agent versions the nodes run, and which functions do not work with them.
    pub(super) fn releases(world: &World) {
        for line in agents::lines(world) {
            info!("{line}");
        }
    }

    /// The loop has returned this result, and the process exits.
    pub(super) fn ends(&self, end: &anyhow::Result<()>) {
        let why = end.as_ref().map_or_else(ToString::to_string, |()| "it received a signal".to_owned());
        self.telemetry.set_readiness(Readiness::NotReady(format!("shutting down: {why}")));
    }

    /// A plan has been made for a node, and has not entered `world` yet.
    pub(super) fn plan(&mut self, world: &World, plan: &NodePlan) {
        self.changed();
        if world.leadership() == Leadership::StandsBy {
            return;
        }
        self.note_need(world, plan);
        let subject = world.node_uid(&plan.node).map(|uid| Subject::Node(plan.node.clone(), uid.clone()));
        let now = Instant::now();
        let pool_wait = self.without_pool.note(world, plan, now);
        self.without_block.note(world, plan, now);
        self.findings_of(plan, subject.as_ref(), pool_wait);
    }

    /// A node needs blocks from the plan that claims one, or finds none.
    fn note_need(&mut self, world: &World, plan: &NodePlan) {
        let claims = |request: &Request| matches!(request, Request::Write(Write::CreateClaim(_)));
        let is_short = !classes_without_block(plan).is_empty();
        if is_short || plan.requests().iter().any(claims) {
            let need = if world.is_served(&plan.node) { Need::Growth } else { Need::First };
            self.grants.needs(&plan.node, need, Instant::now());
        } else if matches!(
            plan.verdict,
            Verdict::AtRest
                | Verdict::Wait(
                    Wait::Existence(_)
                        | Wait::Linux
                        | Wait::Settings
                        | Wait::Deletion
                        | Wait::Request
                        | Wait::Correction(_)
                        | Wait::OtherAllocator
                )
        ) {
            self.grants.rests(&plan.node);
        }
    }

    /// The routes of all nodes have been decided.
    pub(super) fn routes(&mut self, plan: &RoutesPlan) {
        if plan.findings != self.routes {
            self.log.replace(&mut self.routes, plan.findings.clone());
            self.changed();
        }
    }

    /// The findings of a plan replace those of the node's last plan. Where this plan stopped before it had seen
    /// everything, those stay too. A new finding is logged, and becomes an event.
    fn findings_of(&mut self, plan: &NodePlan, subject: Option<&Subject>, pool_wait: PoolWait) {
        let known = self.findings.remove(&plan.node).unwrap_or_default();
        for finding in &plan.findings {
            // A node without a pool is reported with the reasons, and again as long as it waits.
            if !known.contains(finding) && finding.kind != FindingKind::NoPool {
                self.log.found(finding);
                if let (Some(subject), Reported::Each(_)) = (subject, finding.kind.reported()) {
                    let reason = EventReason::Finding(finding.kind);
                    let note = format!("{} {}: {}", finding.subject.as_str(), finding.name, finding.message);
                    let about = format!("{} {}", finding.subject.as_str(), finding.name);
                    self.events.report(Event { subject: subject.clone(), reason, note, about });
                }
            }
        }
        let mut found: BTreeSet<Finding> = plan.findings.iter().cloned().collect();
        if !plan.saw_everything() {
            let stays = |kind| kind != FindingKind::NoPool || pool_wait == PoolWait::Lasts;
            found.extend(known.iter().filter(|finding| stays(finding.kind)).cloned());
        }
        let was_reported =
            |kind| kind != FindingKind::NoPool || pool_wait == PoolWait::Over { was_reported: true };
        let ended = finding::ended(&known, &found).filter(|finding| was_reported(finding.kind));
        ended.for_each(|finding| self.log.resolved(finding));
        if !found.is_empty() {
            self.findings.insert(plan.node.clone(), found);
        }
    }

    fn look_at_world(&mut self, world: &World, now: Now) {
        let unreadable = world.all_unreadable().map(|(kind, unreadable)| {
            let message = format!("it is unreadable: {}; its addresses count as in use", unreadable.reason);
            Finding::new(FindingKind::UnreadableObject, kind, &unreadable.name, message)
        });
        let invalid = world.pool_objects().filter_map(|object| {
            let invalid = object.pool.as_ref().err()?;
            let reserved: Vec<String> = invalid.reserved.cidrs.iter().map(ToString::to_string).collect();
            let message = format!(
                "it is unreadable and gives no blocks; younger pools get nothing of [{}]: {}",
                reserved.join(" "),
                invalid.findings.join("; ")
            );
            Some(Finding::new(FindingKind::UnreadableObject, Kind::Pool, object.name.as_str(), message))
        });
        let found: BTreeSet<Finding> = unreadable
            .chain(invalid)
            .chain(findings::of_world(world))
            .chain(agents::missing(world, now))
            .chain(orphans::finding(world, now))
            .collect();
        self.log.replace(&mut self.unreadable, found);
    }

    fn look_at_writes(&mut self, world: &World, now: Now) {
        let found: BTreeSet<Finding> = world
            .ineffective_writes(now)
            .map(|(target, write)| {
                let (kind, name) = target.object();
                let message = format!(
                    "the API server accepts `{write}`, but the object does not change: a mutating webhook or \
                     another writer undoes it; see kubectl get mutatingwebhookconfigurations; the controller \
                     retries with pauses of up to 30 s"
                );
                Finding::new(FindingKind::WriteWithoutEffect, kind, &name, message)
            })
            .collect();
        self.log.replace(&mut self.ineffective, found);
    }

    /// The report for when `request` is done; a read has none.
    pub(super) fn announcement(world: &World, request: &Request) -> Announcement {
        let Request::Write(write) = request else {
            return Announcement { block_event: None, flow: None, reported: Vec::new() };
        };
        let block_event = block_event::of(world, write);
        let reported = match (&block_event, write) {
            (Some(block_event), _) => event_of_block(world, block_event).into_iter().collect(),
            (None, Write::PoolStatus(status)) => events_of_status(world, status),
            (None, _) => Vec::new(),
        };
        let flow = Flow::of(world, write, block_event.as_ref());
        Announcement { block_event, flow, reported }
    }

    /// The self-check has found these differences. With any of them the process exits, so they are shown at once.
    pub(super) fn checked(&mut self, world: &World, differences: &[Inconsistency], now: Now) {
        self.telemetry.metrics.checked(differences.len());
        for difference in differences {
            error!(finding = FindingKind::BrokenInvariant.as_str(), "{difference}");
        }
        if !differences.is_empty() {
            self.n_differences = differences.len();
            self.show(world, now);
        }
    }
}

impl Announcement {
    /// The write has been applied.
    pub(super) fn report(self, events: &Events, metrics: &Metrics) {
        if let Some(flow) = &self.flow {
            flow.count(metrics);
        }
        if let Some(block_event) = &self.block_event {
            info!(
                node = %block_event.node,
                pool = listed(&block_event.pools),
                block = listed(&block_event.blocks),
                reason = block_event.cause.as_str(),
                addresses = block_event.n_addresses,
                "{}",
                block_event.step.as_str()
            );
        }
        for event in self.reported {
            events.report(event);
        }
    }
}

#[cfg(test)]
mod tests;
