//! The loop: one owner of the world, serial decisions, parallel writes.
//!
//! Decides only as long as a write can start at once, so that no decision grows old in a queue. Knows no policy.
//!
//! Keeps one invariant: nothing is decided, and no write starts, once the self-check has found that the world differs
//! from its objects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::agents;
use super::broken_invariant::BrokenInvariant;
use super::client::Clients;
use super::clock::Clock;
use super::definitions;
use super::events::{self, Events};
use super::execute::Executor;
use super::freeze;
use super::gather::gather;
use super::gobgp::Daemon;
use super::input::{CAPACITY, Input};
use super::lease::{self, Election, Wish};
use super::mode::{self, ModeSource};
use super::node_configs;
use super::pacing::Pacing;
use super::pod_ip_pools;
use super::report::Reporter;
use super::routes::{self, RouteExport};
use super::tasks::{Tasks, ended};
use super::timeline::Timeline;
use super::watch::Watches;
use super::write_slots::WriteSlots;
use crate::model::agent::AgentNews;
use crate::model::gobgp::RibRequest;
use crate::model::kind::Kind;
use crate::model::leadership::Leadership;
use crate::model::node_config::NodeConfigNews;
use crate::model::request::{Request, Write};
use crate::plan::{self, ScalingPolicy};
use crate::publisher::mode::Mode;
use crate::telemetry::metrics::{Decision, RequestKind};
use crate::telemetry::{Telemetry, heartbeat};
use crate::wire::carrier_patch::ManagedFields;
use crate::wire::{Claims, Pools};
use crate::world::World;

/// How many inputs are taken in before the next decisions: decisions on a burst are made once.
const BATCH: usize = 256;

/// How the controller runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where Cilium's mode is learned from.
    pub mode: ModeSource,
    /// The controller's namespace, in which the ConfigMap with its freeze lies.
    pub namespace: String,
    /// The namespace of Cilium's agents.
    pub cilium_namespace: String,
    /// The policy of decisions, and the event budget.
    pub policy: ScalingPolicy,
    /// The maximum number of concurrent writes.
    pub max_parallel_writes: usize,
    /// Whether patches of CiliumNodes remove `managedFields`.
    pub managed_fields: ManagedFields,
    /// How often the world is compared with the objects that it has seen. It costs a pass over everything.
    pub self_check_interval: Duration,
    /// How routes are announced; `None` if the controller has nothing to do with them.
    pub routes: Option<RouteExport>,
}

/// Runs until `stop`, or until something happens after which it has to start again.
pub async fn run(
    clients: Clients,
    election: Option<Election>,
    options: Options,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (sender, mut inputs) = mpsc::channel(CAPACITY);
    let timeline = Arc::new(Timeline::default());
    let (events, reported) = Events::channel(telemetry.metrics.clone(), clients.lead.clone());
    let watches = Watches {
        clients: clients.clone(),
        timeline: timeline.clone(),
        inputs: sender.clone(),
        metrics: telemetry.metrics.clone(),
        events: events.clone(),
        stop: stop.clone(),
    };
    let mut tasks = Tasks::default();
    let record = events::record(clients.writes.clone(), clients.timeout, reported, telemetry.metrics.clone());
    tasks.spawn("events", record);
    let (wants_pod_ip_pools, is_wanted) = watch::channel(false);
    match &options.mode {
        ModeSource::Assumed(mode, release) => {
            sender.send(Input::Mode(mode.clone())).await?;
            sender.send(Input::Agents(AgentNews::Vouched(*release))).await?;
            sender.send(Input::NodeConfigs(NodeConfigNews::Listed(Vec::new()))).await?;
        }
        ModeSource::ConfigMapIn(namespace, settings) => {
            let (namespace, settings) = (namespace.clone(), settings.clone());
            tasks.spawn("watch ciliumnodeconfigs", node_configs::follow(watches.clone(), namespace.clone()));
            tasks.spawn("mode", mode::follow(watches.clone(), namespace, settings, wants_pod_ip_pools));
        }
    }
    let (wish, wished) = watch::channel(Wish::LookOn);
    if let Some(election) = election {
        let (shown, versions) = lease::channel();
        tasks.spawn("watch lease", election.clone().follow(watches.clone(), shown));
        let lead = clients.lead.clone();
        tasks.spawn("lease", election.take_part(lead, telemetry.clone(), sender.clone(), wished, versions));
    } else {
        drop(wished);
    }
    tasks.spawn("freeze", freeze::follow(watches.clone(), options.namespace.clone()));
    tasks.spawn("watch agents", agents::follow(watches.clone(), options.cilium_namespace.clone()));
    tasks.spawn("watch ciliumpodippools", pod_ip_pools::follow(watches.clone(), is_wanted));
    tasks.spawn("watch pools", watches.clone().follow::<Pools>());
    tasks.spawn("watch claims", watches.clone().follow::<Claims>());
    tasks.spawn("definitions", definitions::follow(watches.clone()));
    tasks.spawn("timeline", watches.clone().guard_timeline::<Claims>());

    let Some(mut world) = gather(&mut inputs, &mut tasks, &watches, &telemetry).await? else {
        return Ok(());
    };
    let (mut frr_namespace, mut daemon) = (String::new(), None);
    match options.routes.clone() {
        Some(RouteExport::FrrK8s { namespace, exporting }) => {
            world.export_routes(exporting);
            let configurations = routes::follow_configurations(watches.clone(), namespace.clone());
            tasks.spawn("watch frrconfigurations", configurations);
            tasks.spawn("watch frrnodestates", routes::follow_node_states(watches.clone()));
            frr_namespace = namespace;
        }
        Some(RouteExport::Gobgp { daemon: exporter, policy }) => {
            world.export_to_gobgp(policy);
            tasks.spawn("follow gobgp", routes::follow_table(watches.clone(), exporter.clone()));
            daemon = Some(exporter);
        }
        None => {}
    }
    if options.routes.is_some() {
        watch_speakers(&mut tasks, &watches);
    }
    wish.send_replace(Wish::Lead);
    telemetry.metrics.set_write_limit(options.max_parallel_writes);
    let clock = clients.connectivity.clock.clone();
    let executor = Arc::new(Executor {
        clients,
        timeline,
        managed_fields: options.managed_fields,
        events: events.clone(),
        cilium_namespace: options.cilium_namespace.clone(),
        frr_namespace,
    });
    let mut serving = Loop {
        configured: world.mode().clone(),
        world,
        clock,
        places: WriteSlots::new(options.max_parallel_writes),
        pacing: Pacing::new(options.policy.budget),
        daemon,
        options,
        executor,
        sender,
        writers: Tasks::default(),
        reporter: Reporter::new(telemetry, events),
        mode_to_come: None,
    };
    let end = serving.serve(&mut inputs, &mut tasks, &stop).await;
    let finished = serving.finish(&end, &mut inputs).await;
    // The Lease of a process that may still write expires by itself.
    if finished {
        lease::release(&wish).await;
    }
    stop.cancel();
    info!(all_writes_ended = finished, "stopped");
    end
}

/// Follows the objects of the speakers that may announce blocks too.
fn watch_speakers(tasks: &mut Tasks, watches: &Watches) {
    for (name, kind) in routes::SPEAKERS {
        tasks.spawn(name, routes::follow_speakers(watches.clone(), kind));
    }
}

/// The owner of the world.
struct Loop {
    world: World,
    clock: Clock,
    options: Options,
    executor: Arc<Executor>,
    sender: mpsc::Sender<Input>,
    writers: Tasks,
    /// The budget of concurrent writes: the plan of one node may have several.
    places: WriteSlots,
    /// The budget of watch events, and the nodes that wait for their turn in it.
    pacing: Pacing,
    /// The daemon to which routes are exported, if they are.
    daemon: Option<Daemon>,
    reporter: Reporter,
    /// The mode that the configuration says.
    configured: Mode,
    /// The mode that is served as soon as there is news of CiliumPodIPPools.
    mode_to_come: Option<Mode>,
}

impl Loop {
    async fn serve(
        &mut self,
        inputs: &mut mpsc::Receiver<Input>,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        self.set_leadership(self.executor.clients.lead.leadership());
        self.check()?;
        self.set_mode(self.configured.clone());
        self.reporter.freeze(&self.world);
        Reporter::releases(&self.world);
        self.reporter.show(&self.world, self.clock.now());
        self.turn(inputs, tasks, stop).await
    }

    async fn turn(
        &mut self,
        inputs: &mut mpsc::Receiver<Input>,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut beats = tokio::time::interval(heartbeat::INTERVAL);
        let interval = self.options.self_check_interval;
        let mut self_check = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        self_check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            self.reporter.beat();
            self.reporter.clock(self.clock.ahead());
            if let Some(contradiction) = self.world.contradiction() {
                return Err(contradiction.clone().into());
            }
            // The lead may have been lost, and won again, before the news of it.
            self.set_leadership(self.executor.clients.lead.leadership());
            self.decide();
            self.reporter.pace(&self.pacing, self.clock.now().uptime);
            self.reporter.show_if_due(&self.world, self.clock.now());
            let snapshot_due = self.reporter.due();
            // Without a place the answer to a write comes first.
            let routes_at = self.world.next_look_at_routes().filter(|_| self.has_place());
            let turn_at = self.pacing.next_turn().filter(|_| self.has_place());
            let condition_at = self.world.next_condition_at().filter(|_| self.has_place());
            let wakes = [self.world.next_wake(), routes_at, turn_at, condition_at];
            let wake = wakes.into_iter().flatten().min();
            let wake = wake.map(|at| at.saturating_sub(self.clock.now().uptime));
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                (name, end) = tasks.next_end() => return Err(ended(name, end)),
                (name, end) = self.writers.next_end() => {
                    // A write that returned without an error has sent its outcome.
                    if end.is_err() {
                        return Err(ended(name, end));
                    }
                }
                // Before the inputs, which may never stop.
                _ = self_check.tick() => self.check()?,
                received = inputs.recv_many(&mut batch, BATCH) => {
                    debug!(received, "inputs");
                    for input in batch.drain(..) {
                        self.take_in(input);
                    }
                    self.world.look_at_routes_soon(self.clock.now());
                }
                () = tokio::time::sleep(wake.unwrap_or_default()), if wake.is_some() => {}
                () = tokio::time::sleep_until(snapshot_due.unwrap_or_else(tokio::time::Instant::now)),
                    if snapshot_due.is_some() => {}
                () = self.reporter.map_is_wanted() => self.reporter.draw_map(&self.world, self.clock.now()),
                _ = beats.tick() => {}
            }
            self.world.advance(self.clock.now());
        }
    }

    /// Compares the world with the objects that it has seen.
    fn check(&mut self) -> Result<(), BrokenInvariant> {
        let differences = self.world.check();
        self.reporter.checked(&self.world, &differences, self.clock.now());
        BrokenInvariant::of(differences)
    }

    /// Lets the writes in flight finish, because the next process would have to settle one that is cut off. A write
    /// that has not started never starts. Returns whether all finished in time.
    async fn finish(&mut self, end: &anyhow::Result<()>, inputs: &mut mpsc::Receiver<Input>) -> bool {
        self.places.close();
        self.reporter.ends(end);
        // The loop takes in no outcomes any more, so no write may wait for room in the channel.
        inputs.close();
        tokio::time::timeout(self.executor.clients.timeout, self.writers.finish()).await.is_ok()
    }

    fn take_in(&mut self, input: Input) {
        self.reporter.input(&input);
        match input {
            Input::Observed(observation) => self.world.observe(observation),
            Input::Mode(mode) => self.set_mode(mode),
            Input::Freeze(freeze) => {
                self.world.set_freeze(freeze);
                self.reporter.freeze(&self.world);
            }
            // This input only wakes the loop, which looks at the lead itself.
            Input::Leadership(_) => {}
            Input::Agents(news) => {
                let is_list = matches!(news, AgentNews::Listed(_));
                self.world.observe_agents(news);
                if is_list {
                    Reporter::releases(&self.world);
                }
            }
            Input::PodIpPools(news) => {
                self.world.observe_pod_ip_pools(news);
                if let Some(mode) = self.mode_to_come.take() {
                    self.set_mode(mode);
                }
            }
            Input::NodeConfigs(news) => {
                let was_unlisted = self.world.node_configs_unlisted().is_some();
                self.world.observe_node_configs(news);
                if was_unlisted != self.world.node_configs_unlisted().is_some() {
                    self.set_mode(self.configured.clone());
                }
            }
            Input::Definition(news) => self.world.observe_definition(news),
            Input::FrrConfigurations(news) => self.world.observe_frr_configurations(news),
            Input::FrrNodeStates(news) => self.world.observe_frr_node_states(news),
            Input::Speakers(kind, news) => self.world.observe_speakers(kind, news),
            Input::Rib(outcome) => self.world.finish_rib(outcome, self.clock.now()),
            Input::RibNews(news) => self.world.observe_rib(news),
            Input::Finished(outcome) => {
                self.reporter.finished(&outcome, self.pacing.n_watchers());
                if outcome.took_effect() && matches!(outcome.request, Request::Write(_)) {
                    self.executor.clients.lead.has_written(self.clock.now().wall);
                }
                self.world.finish(*outcome, self.clock.now());
            }
        }
    }

    /// This process leads from now on, or is on standby.
    fn set_leadership(&mut self, leadership: Leadership) {
        let stops = leadership == Leadership::StandsBy && self.world.leadership() == Leadership::Leads;
        self.world.set_leadership(leadership);
        if stops {
            self.reporter.stands_by();
        }
    }

    /// Cilium's mode is known, or has changed. As long as it is unknown whether CiliumPodIPPools fit, no block is
    /// given under their names.
    fn set_mode(&mut self, mode: Mode) {
        self.configured = mode.clone();
        let mode = mode.without_node_configs(self.world.node_configs_unlisted());
        let is_to_come = pod_ip_pools::are_of_use(&mode) && !self.world.knows_of_pod_ip_pools();
        self.mode_to_come = is_to_come.then(|| mode.clone());
        self.world.set_mode(if is_to_come {
            Mode::Passive("CiliumPodIPPools are not listed yet".to_owned())
        } else {
            mode
        });
        self.reporter.readiness(&self.world);
    }

    /// Decides for one node after another, then for the pools, then for the conditions of Nodes, as long as a write can start at once.
    fn decide(&mut self) {
        let unconfirmed = self.world.unconfirmed();
        self.world.begin_confirming(&unconfirmed, self.clock.now());
        self.send(unconfirmed.into_iter().map(Request::Read));
        let uptime = self.clock.now().uptime;
        self.pacing.advance(uptime, || self.world.n_objects(Kind::CiliumNode));
        let policy = self.options.policy.with_nodes(self.pacing.n_watchers());
        while self.has_place()
            && let Some(node) = self.pacing.next().or_else(|| self.world.next_node()).cloned()
        {
            let now = self.clock.now();
            let plan = plan::node(&self.world, &node, policy, now);
            let plan = self.pacing.pace(&self.world, plan, now.uptime);
            self.reporter.plan(&self.world, &plan);
            for (block, rule) in &plan.rules {
                debug!(%node, %block, rule = rule.as_str(), "{}", plan::when(*rule));
            }
            self.world.begin(&plan, now);
            self.reporter.metrics().decided(Decision::Node, self.clock.since(now));
            self.send(plan.into_requests());
        }
        while self.has_place()
            && let Some(pool) = self.world.next_pool().cloned()
        {
            let now = self.clock.now();
            let status = plan::pool(&self.world, &pool, policy, now);
            self.world.begin_status(&pool, &status, now);
            self.reporter.metrics().decided(Decision::Pool, self.clock.since(now));
            self.send(status.into_writes().into_iter().map(Request::from));
        }
        while self.has_place()
            && let Some(write) = plan::next_condition(&self.world, self.clock.now())
        {
            self.world.begin_condition(&write, self.clock.now());
            self.send([Write::NodeCondition(write).into()]);
        }
        if self.has_place() && self.world.is_to_look_at_routes(self.clock.now()) {
            self.decide_routes();
        }
    }

    /// Decides the routes of all nodes, and sends as many writes as can start at once.
    fn decide_routes(&mut self) {
        let now = self.clock.now();
        let mut plan = crate::routes::routes(&self.world, now);
        let n_running = self.world.n_in_flight().saturating_sub(self.places.n_aside());
        let n_free = self.options.max_parallel_writes.saturating_sub(n_running);
        // Each may hang in the webhook of frr-k8s: nodes get their blocks by the other half of the places.
        let n_of_routes = (self.options.max_parallel_writes / 2).max(1);
        let n_places = n_free.min(n_of_routes.saturating_sub(self.world.n_routes_in_flight()));
        if plan.requests.len() > n_places {
            plan.requests.truncate(n_places);
            plan.wake = Some(now.uptime);
        }
        self.reporter.routes(&plan);
        self.world.begin_routes(&plan, now);
        self.reporter.metrics().decided(Decision::Routes, self.clock.since(now));
        self.send(plan.requests);
        if let Some(request) = plan.rib {
            self.send_to_daemon(request);
        }
    }

    /// Sends a request to the GoBGP daemon. It takes no place of a write to the API server, and there is at most one.
    fn send_to_daemon(&mut self, request: RibRequest) {
        let Some(daemon) = self.daemon.clone() else { return };
        let (lead, places, outcomes) =
            (self.executor.clients.lead.clone(), self.places.clone(), self.sender.clone());
        self.writers.spawn("gobgp", async move {
            let outcome = daemon.carry_out(request, &lead, &places).await;
            // Without a receiver the process is about to exit.
            let _ = outcomes.send(Input::Rib(outcome)).await;
            Ok(())
        });
    }

    /// Whether a request that is decided now starts at once. One that steps aside is noticed by the next heartbeat.
    fn has_place(&self) -> bool {
        let n_running = self.world.n_in_flight().saturating_sub(self.places.n_aside());
        n_running < self.options.max_parallel_writes
    }

    fn send(&mut self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            let announcement = Reporter::announcement(&self.world, &request);
            let kind = RequestKind::from(&request);
            let executor = Arc::clone(&self.executor);
            let outcomes = self.sender.clone();
            let places = self.places.clone();
            let (metrics, events) = (self.reporter.metrics().clone(), self.reporter.events().clone());
            self.writers.spawn("write", async move {
                let Some(place) = places.take().await else {
                    return Ok(());
                };
                let in_flight = metrics.write_starts();
                let began = Instant::now();
                let outcome = executor.carry_out(request, &place).await?;
                metrics.write_finished(kind, &outcome, began.elapsed());
                drop((in_flight, place));
                if outcome.took_effect() {
                    announcement.report(&events, &metrics);
                }
                // Without a receiver the process is about to exit.
                let _ = outcomes.send(Input::Finished(Box::new(outcome))).await;
                Ok(())
            });
        }
    }
}

#[cfg(test)]
mod tests;
