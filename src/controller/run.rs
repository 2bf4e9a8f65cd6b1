//! The loop: one owner of the world, serial decisions, parallel writes.
//!
//! Decides only as long as a write can start at once, so that no decision grows old in a queue. Knows no policy.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::client::Clients;
use super::input::{CAPACITY, Input};
use super::tasks::Tasks;
use super::timeline::Timeline;
use super::watch::Watches;
use super::write::Writer;
use super::{dry_run, mode};
use crate::api::cilium_node::ManagedFields;
use crate::api::watched::{CiliumNodes, Claims, Nodes, Pools};
use crate::ipam::finding::{Finding, FindingKind};
use crate::ipam::plan::{self, Policy};
use crate::ipam::report;
use crate::world::gather::Gathering;
use crate::world::objects::Mode;
use crate::world::observe::{Kind, Observation};
use crate::world::write::Write;
use crate::world::{Now, World};

/// How many inputs are taken in before the next decisions: decisions on a burst are made once.
const BATCH: usize = 256;
/// How often the world is compared with what its objects say. It costs a pass over everything.
const SELF_CHECK: Duration = Duration::from_secs(300);

/// How the controller runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where Cilium's ConfigMap is.
    pub cilium_namespace: String,
    /// Cilium's settings as an administrator vouches for them, instead of the ConfigMap.
    pub assumed: Option<Mode>,
    /// The policies of plans.
    pub policy: Policy,
    /// The most writes at one time.
    pub max_parallel_writes: usize,
    /// Whether patches of CiliumNodes remove `managedFields`.
    pub managed_fields: ManagedFields,
    /// Whether anything is written.
    pub purpose: Purpose,
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To serve the nodes.
    Serve,
    /// To say what would be done, once, and to write nothing.
    DryRun,
}

/// Whether the controller serves, for those who ask from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does not yet, or may not, for this reason.
    NotReady(String),
    /// It does.
    Ready,
}

/// Runs until told to stop, or until something happens after which it has to start again.
pub async fn run(
    clients: Clients,
    options: Options,
    readiness: watch::Sender<Readiness>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (sender, mut inputs) = mpsc::channel(CAPACITY);
    let timeline = Arc::new(Timeline::default());
    let watches = Watches {
        clients: clients.clone(),
        timeline: timeline.clone(),
        inputs: sender.clone(),
        stop: stop.clone(),
    };
    let mut tasks = Tasks::default();
    if let Some(mode) = options.assumed.clone() {
        sender.send(Input::Mode(mode)).await?;
    } else {
        tasks.spawn("mode", mode::follow(watches.clone(), options.cilium_namespace.clone()));
    }
    tasks.spawn("watch pools", watches.clone().follow::<Pools>());
    tasks.spawn("watch nodes", watches.clone().follow::<Nodes>());
    tasks.spawn("watch claims", watches.clone().follow::<Claims>());
    tasks.spawn("timeline", watches.clone().guard_timeline::<Claims>());

    let Some(world) = gather(&mut inputs, &mut tasks, &watches, &readiness).await? else {
        return Ok(());
    };
    if options.purpose == Purpose::DryRun {
        dry_run::report(world, options.policy, Clock::start().now());
        stop.cancel();
        return Ok(());
    }
    let writer = Writer { clients, timeline, managed_fields: options.managed_fields };
    let mut serving = Loop {
        world,
        clock: Clock::start(),
        options,
        writer,
        sender,
        writers: Tasks::default(),
        findings: std::collections::BTreeSet::new(),
        readiness,
    };
    let end = serving.serve(&mut inputs, &mut tasks, &stop).await;
    stop.cancel();
    // What is on its way is carried to its end: a write that is cut off would have to be settled by the next process.
    let finished = tokio::time::timeout(serving.writer.clients.timeout, serving.writers.finish()).await;
    info!(all_writes_ended = finished.is_ok(), "stopped");
    end
}

/// Takes in lists until the world is whole. CiliumNodes are listed after claims (safety rule 6), so that a block that
/// was claimed and published in between is seen at least once. `None` when told to stop.
async fn gather(
    inputs: &mut mpsc::Receiver<Input>,
    tasks: &mut Tasks,
    watches: &Watches,
    readiness: &watch::Sender<Readiness>,
) -> anyhow::Result<Option<World>> {
    let mut gathering = Gathering::default();
    let mut lists_cilium_nodes = false;
    loop {
        let missing: Vec<&str> = gathering.missing().into_iter().map(Kind::as_str).collect();
        readiness.send_replace(Readiness::NotReady(format!("lists still missing: {}", missing.join(", "))));
        let input = tokio::select! {
            biased;
            () = watches.stop.cancelled() => return Ok(None),
            (name, end) = tasks.next_end() => return Err(ended(name, end)),
            input = inputs.recv() => input,
        };
        match input {
            Some(Input::Observed(observation)) => {
                if matches!(&observation, Observation::Listed(listing) if listing.kind == Kind::Claim)
                    && !lists_cilium_nodes
                {
                    lists_cilium_nodes = true;
                    tasks.spawn("watch ciliumnodes", watches.clone().follow::<CiliumNodes>());
                }
                gathering.observe(observation);
            }
            Some(Input::Mode(mode)) => gathering.set_mode(mode),
            // Nothing has been written yet, and the sender lives as long as `watches`.
            Some(Input::Finished(_)) | None => {}
        }
        match gathering.complete() {
            Ok(world) => return Ok(Some(world)),
            Err(incomplete) => gathering = incomplete,
        }
    }
}

fn ended(name: &str, end: anyhow::Result<()>) -> anyhow::Error {
    match end {
        Ok(()) => anyhow::anyhow!("the task `{name}` ended although nobody stopped it"),
        Err(error) => error.context(format!("the task `{name}` failed")),
    }
}

/// The time since the process began to serve, and the time of the wall.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// Starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// The time now.
    #[must_use]
    pub fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { uptime: self.began.elapsed(), wall: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX) }
    }
}

/// The owner of the world.
struct Loop {
    world: World,
    clock: Clock,
    options: Options,
    writer: Writer,
    sender: mpsc::Sender<Input>,
    writers: Tasks,
    findings: std::collections::BTreeSet<Finding>,
    readiness: watch::Sender<Readiness>,
}

impl Loop {
    async fn serve(
        &mut self,
        inputs: &mut mpsc::Receiver<Input>,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        self.report_unreadable();
        self.report_readiness();
        let mut self_check = tokio::time::interval(SELF_CHECK);
        self_check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.decide();
            let wake = self.world.next_wake().map(|at| at.saturating_sub(self.clock.now().uptime));
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                (name, end) = tasks.next_end() => return Err(ended(name, end)),
                (name, end) = self.writers.next_end() => {
                    // A writer that ends well has sent its outcome.
                    if end.is_err() {
                        return Err(ended(name, end));
                    }
                }
                received = inputs.recv_many(&mut batch, BATCH) => {
                    debug!(received, "inputs");
                    for input in batch.drain(..) {
                        self.take_in(input);
                    }
                }
                () = tokio::time::sleep(wake.unwrap_or_default()), if wake.is_some() => {}
                _ = self_check.tick() => self.check(),
            }
            self.world.advance(self.clock.now());
        }
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Observed(observation) => {
                self.world.observe(observation);
                self.report_unreadable();
            }
            Input::Mode(mode) => {
                self.world.set_mode(mode);
                self.report_readiness();
            }
            Input::Finished(outcome) => self.world.finish(*outcome, self.clock.now()),
        }
    }

    /// Decides for one node after the other while a write can start at once.
    fn decide(&mut self) {
        let doubts = self.world.doubts();
        self.world.begin_doubts(&doubts, self.clock.now());
        self.send(doubts);
        while self.world.flights() < self.options.max_parallel_writes
            && let Some(node) = self.world.next_node().cloned()
        {
            let now = self.clock.now();
            let plan = plan::node(&self.world, &node, self.options.policy, now);
            self.world.begin(&plan, now);
            self.report_findings(node.as_str(), plan.findings);
            self.send(plan.writes);
        }
        while self.world.flights() < self.options.max_parallel_writes
            && let Some(pool) = self.world.next_pool().cloned()
        {
            let now = self.clock.now();
            let status = report::pool(&self.world, &pool, now);
            self.world.begin_status(&pool, &status, now);
            if let report::PoolPlan::Write(write) = status {
                self.send(vec![write]);
            }
        }
    }

    fn send(&mut self, writes: Vec<Write>) {
        for write in writes {
            let carrier = self.writer.clone();
            let outcomes = self.sender.clone();
            self.writers.spawn("write", async move {
                let outcome = carrier.carry_out(write).await?;
                // The loop is gone only when the process ends.
                let _ = outcomes.send(Input::Finished(Box::new(outcome))).await;
                Ok(())
            });
        }
    }

    fn report_readiness(&self) {
        let readiness = match self.world.mode() {
            Mode::Active(settings) => {
                info!(families = ?settings.families, kept_for = ?settings.infrastructure, "serving");
                Readiness::Ready
            }
            Mode::Passive(why) => {
                warn!(why, "writing nothing");
                Readiness::NotReady(why.clone())
            }
        };
        self.readiness.send_replace(readiness);
    }

    /// Findings of a node replace those of its last plan; each is logged when it appears.
    fn report_findings(&mut self, name: &str, found: Vec<Finding>) {
        self.findings.retain(|known| {
            known.name != name || known.kind == FindingKind::UnreadableObject || found.contains(known)
        });
        for finding in found {
            if self.findings.insert(finding.clone()) {
                warn!(
                    finding = finding.kind.as_str(),
                    kind = finding.subject.as_str(),
                    name = finding.name,
                    "{}",
                    finding.message
                );
            }
        }
    }

    fn report_unreadable(&mut self) {
        let found: Vec<Finding> = self
            .world
            .all_unreadable()
            .map(|(kind, unreadable)| {
                let message =
                    format!("it can't be read, and what it holds is treated as taken: {}", unreadable.reason);
                Finding::new(FindingKind::UnreadableObject, kind, &unreadable.name, message)
            })
            .collect();
        self.findings.retain(|known| known.kind != FindingKind::UnreadableObject || found.contains(known));
        for finding in found {
            if self.findings.insert(finding.clone()) {
                warn!(
                    finding = finding.kind.as_str(),
                    kind = finding.subject.as_str(),
                    name = finding.name,
                    "{}",
                    finding.message
                );
            }
        }
    }

    fn check(&mut self) {
        for difference in self.world.check() {
            debug_assert!(false, "{difference}");
            error!(finding = FindingKind::BrokenInvariant.as_str(), "{difference}");
        }
    }
}
