//! The content of `/metrics`: counters that the controller feeds, and the last snapshot of the world.
//!
//! Names start with `cilium_node_ipam_`, or with `process_` as in every program, and are stable; `docs/reference/metrics.md`
//! has an entry for each. Labels are pools, families and names that this program defines, and never nodes, so the
//! number of series grows only with the pools.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use tokio::sync::watch;

use super::api_health::{AUXILIARY_KINDS, CONFIG_MAPS, LEASE};
use super::event_reason::{EventFate, EventReason};
use super::readiness::Readiness;
use super::serving::NotServing;
use crate::model::kind::Kind;
use crate::model::names::PoolName;
use crate::model::outcome::Outcome;
use crate::model::status::Need;
use crate::model::write_class::{Queue, WriteClass};
use crate::view::snapshot::Snapshot;

mod kinds;
mod process;
mod requests;
mod series;
mod world;

pub use kinds::{Decision, GrantReason, InputKind, RequestKind, ReturnReason};
pub use requests::{ApiRequests, SentRequest};

use kinds::OutcomeKind;
use series::{Labels, Series};
use world::Published;

/// The prefix of every name.
pub const PREFIX: &str = "cilium_node_ipam";

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Blocks by pool and reason.
type Blocks = Series<[(&'static str, String); 2], Counter>;

/// All metrics. Clones share their counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    ready: Gauge,
    leader: Gauge,
    writes: Series<Labels<2>, Counter>,
    write_duration: Series<Labels<1>, Histogram>,
    grant_duration: Series<Labels<1>, Histogram>,
    blocks_granted: Blocks,
    blocks_returned: Blocks,
    api_requests: ApiRequests,
    writes_in_flight: Gauge,
    writes_in_flight_limit: Gauge,
    watch_events_caused: Counter,
    paced_nodes: Series<Labels<1>, Gauge>,
    paced_wait: Series<Labels<1>, Gauge<f64, AtomicU64>>,
    inputs: Series<Labels<1>, Counter>,
    decision_duration: Series<Labels<1>, Histogram>,
    watch_lists: Series<Labels<1>, Counter>,
    watch_errors: Series<Labels<1>, Counter>,
    watch_lapse: Series<Labels<1>, Gauge<f64, AtomicU64>>,
    watch_lag: Series<Labels<1>, Histogram>,
    self_checks: Counter,
    self_check_differences: Gauge,
    clock_difference: Gauge<f64, AtomicU64>,
    events: Series<Labels<2>, Counter>,
    serving: watch::Sender<Option<NotServing>>,
    snapshot: watch::Sender<Published>,
    registry: Arc<Registry>,
}

/// Buckets from 1 ms, because no API server answers faster, to half a minute, which is more than the time-out of a
/// request.
fn of_requests() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

/// Buckets from 50 ms, because a grant is two writes, to four hours: a node then waits for a person. The threshold of
/// the alert on slow grants is one of them, so that a quantile beside it is not a guess.
const GRANT_BUCKETS: [f64; 16] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0];

fn of_grants() -> Histogram {
    Histogram::new(GRANT_BUCKETS)
}

/// Buckets from 10 µs, which a decision without a change takes, to more than 100 ms, when a stop of the loop is
/// noticed.
fn of_decisions() -> Histogram {
    Histogram::new(exponential_buckets(0.000_01, 4.0, 9))
}

impl Default for Metrics {
    fn default() -> Self {
        let serving = watch::Sender::new(Some(NotServing::NotReady));
        let snapshot = watch::Sender::new(Published::from(Snapshot::default()));
        let mut all = Registry::default();
        all.register_collector(Box::new(process::Process::start()));
        let ours = all.sub_registry_with_prefix(PREFIX);
        ours.register_collector(Box::new(process::Serving(serving.subscribe())));
        ours.register_collector(Box::new(world::World(snapshot.subscribe())));
        ours.register("build", "The version of this program", Info::new([("version", VERSION)]));
        let metrics = Self {
            ready: shown(ours, "ready", "Readiness: 1 if /readyz answers 200"),
            leader: shown(ours, "leader", "Leadership: 1 if this replica leads and writes, 0 on standby"),
            writes: shown(ours, "writes", "Writes and single reads by kind and outcome"),
            write_duration: in_seconds(
                ours,
                "write_duration",
                "Duration of writes and single reads until the outcome was known",
                of_requests,
            ),
            grant_duration: in_seconds(
                ours,
                "grant_duration",
                "Time from a node's need of blocks to their publication",
                of_grants,
            ),
            blocks_granted: shown(ours, "blocks_granted", "Blocks for which this replica created a claim"),
            blocks_returned: shown(
                ours,
                "blocks_returned",
                "Blocks whose claim this replica deleted, so that they are free",
            ),
            api_requests: ApiRequests(shown(
                ours,
                "api_requests",
                "Requests to the API server by verb, kind and code of the answer",
            )),
            writes_in_flight: shown(ours, "writes_in_flight", "Writes and single reads in flight"),
            writes_in_flight_limit: shown(
                ours,
                "writes_in_flight_limit",
                "Maximum number of concurrent writes and single reads (--max-parallel-writes)",
            ),
            watch_events_caused: shown(
                ours,
                "watch_events_caused",
                "Watch events that writes to CiliumNodes caused: one per write and CiliumNode",
            ),
            paced_nodes: shown(
                ours,
                "paced_nodes",
                "Nodes with a write that waits for its turn in the event budget",
            ),
            paced_wait: in_seconds(
                ours,
                "paced_wait",
                "How long the first of these nodes has waited; 0 if none waits",
                Gauge::default,
            ),
            inputs: shown(ours, "inputs", "Inputs of the main loop"),
            decision_duration: in_seconds(ours, "decision_duration", "Duration of decisions", of_decisions),
            watch_lists: shown(
                ours,
                "watch_lists",
                "Complete lists of a kind; the first one belongs to the start",
            ),
            watch_errors: shown(ours, "watch_errors", "Failures of watches and lists"),
            watch_lapse: in_seconds(
                ours,
                "watch_lapse",
                "Time without a watch of a kind; 0 with a watch",
                Gauge::default,
            ),
            watch_lag: in_seconds(
                ours,
                "watch_lag",
                "Time from the answer to a write until the watch of its kind shows it; 0 if the watch was faster",
                of_requests,
            ),
            self_checks: shown(
                ours,
                "self_checks",
                "Self-checks, which compare the internal state with all objects",
            ),
            self_check_differences: shown(
                ours,
                "self_check_differences",
                "Differences in the last self-check; any value but 0 is a bug",
            ),
            clock_difference: clock_difference(ours),
            events: shown(ours, "events", "Kubernetes events by reason and outcome"),
            serving,
            snapshot,
            registry: Arc::new(all),
        };
        metrics.begin_at_zero();
        metrics
    }
}

/// A new metric, which is shown from now on.
fn shown<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// The same for series whose metrics `new` creates, in seconds.
fn in_seconds<M>(registry: &mut Registry, name: &str, help: &str, new: fn() -> M) -> Series<Labels<1>, M>
where
    M: Clone,
    Series<Labels<1>, M>: Metric,
{
    let metric = Series::new(new);
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn clock_difference(registry: &mut Registry) -> Gauge<f64, AtomicU64> {
    let (metric, help) =
        (Gauge::default(), "Time by which the clock of this machine is ahead of the API server");
    registry.register_with_unit("clock_difference", help, Unit::Seconds, metric.clone());
    metric
}

impl Metrics {
    /// Everything as Prometheus reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a string does not fail; a collector that did would be a defect.
            Err(error) => format!("# {error}\n# EOF\n"),
        }
    }

    /// Counts a write as in flight until the returned value is dropped.
    pub fn write_starts(&self) -> InFlight {
        self.writes_in_flight.inc();
        InFlight(self.writes_in_flight.clone())
    }

    /// A write of this kind has finished.
    pub fn write_finished(&self, kind: RequestKind, outcome: &Outcome, took: Duration) {
        let outcome = OutcomeKind::from(outcome);
        self.writes.of(&[("kind", kind.as_str()), ("outcome", outcome.as_str())]).inc();
        self.write_duration.of(&[("kind", kind.as_str())]).observe(took.as_secs_f64());
    }

    /// A node with this need has got blocks, this long after the need was seen.
    pub fn granted(&self, need: Need, took: Duration) {
        self.grant_duration.of(&[("need", need.as_str())]).observe(took.as_secs_f64());
    }

    /// A node has got a block of this pool.
    pub fn block_granted(&self, pool: &PoolName, reason: GrantReason) {
        self.blocks_granted.of(&[("pool", pool.to_string()), ("reason", reason.as_str().to_owned())]).inc();
    }

    /// A block of this pool is free again.
    pub fn block_returned(&self, pool: &PoolName, reason: ReturnReason) {
        self.blocks_returned.of(&[("pool", pool.to_string()), ("reason", reason.as_str().to_owned())]).inc();
    }

    /// The counts of requests to the API server.
    #[must_use]
    pub fn api_requests(&self) -> ApiRequests {
        self.api_requests.clone()
    }

    /// Sets the maximum number of concurrent writes that is shown.
    pub fn set_write_limit(&self, limit: usize) {
        self.writes_in_flight_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    /// A write to a CiliumNode took effect, and as many agents watch it.
    pub fn watch_events_caused(&self, n_watchers: usize) {
        self.watch_events_caused.inc_by(n_watchers.try_into().unwrap_or(u64::MAX));
    }

    /// Shows which nodes wait for their turn in the event budget.
    pub fn set_paced(&self, class: WriteClass, queue: Queue) {
        let labels = [("class", class.as_str())];
        self.paced_nodes.of(&labels).set(i64::try_from(queue.n_nodes).unwrap_or(i64::MAX));
        self.paced_wait.of(&labels).set(queue.longest.as_secs_f64());
    }

    /// The loop has taken in an input.
    pub fn input(&self, kind: InputKind) {
        self.inputs.of(&[("kind", kind.as_str())]).inc();
    }

    /// A decision has been made.
    pub fn decided(&self, decision: Decision, took: Duration) {
        self.decision_duration.of(&[("kind", decision.as_str())]).observe(took.as_secs_f64());
    }

    /// A kind has been listed.
    pub fn listed(&self, kind: Kind) {
        self.watch_lists.of(&[("kind", kind.as_str())]).inc();
    }

    /// A watch or list of a kind has failed.
    pub fn watch_failed(&self, kind: Kind) {
        self.watch_errors.of(&[("kind", kind.as_str())]).inc();
    }

    /// Notes how long after its answer a write was shown by the watch of its kind.
    pub fn watch_lagged(&self, kind: Kind, lag: Duration) {
        self.watch_lag.of(&[("kind", kind.as_str())]).observe(lag.as_secs_f64());
    }

    /// For how long kinds have not been followed; all others are.
    pub fn set_lapses(&self, lapses: &[(&'static str, Duration)]) {
        let config_maps = CONFIG_MAPS.iter().map(|config_map| config_map.kind);
        let kinds = Kind::ALL.iter().map(|kind| kind.as_str());
        for followed in kinds.chain(config_maps).chain([LEASE]).chain(AUXILIARY_KINDS) {
            let lapse = lapses.iter().find(|(kind, _)| *kind == followed).map(|(_, lapse)| *lapse);
            let seconds = lapse.unwrap_or_default().as_secs_f64();
            self.watch_lapse.of(&[("kind", followed)]).set(seconds);
        }
    }

    /// The self-check has found this many differences.
    pub fn checked(&self, differences: usize) {
        self.self_checks.inc();
        self.self_check_differences.set(i64::try_from(differences).unwrap_or(i64::MAX));
    }

    /// An event of this reason had this outcome.
    pub fn event(&self, reason: EventReason, fate: EventFate) {
        self.events.of(&[("reason", reason.as_str()), ("outcome", fate.as_str())]).inc();
    }

    /// Whether the controller serves.
    pub fn set_readiness(&self, readiness: &Readiness) {
        self.ready.set(i64::from(*readiness == Readiness::Ready));
    }

    /// Whether this process may write: it leads, or there is no election.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Why this process gives no node a block; `None` if it does.
    pub fn set_serving(&self, not_serving: Option<NotServing>) {
        self.serving.send_replace(not_serving);
    }

    /// Shows `snapshot` from now on.
    pub fn publish(&self, snapshot: Snapshot) {
        let is_pool = |[(_, pool), _]: &[(&str, String); 2]| {
            snapshot.pools.contains_key(&PoolName::from(pool.as_str()))
        };
        self.blocks_granted.retain(is_pool);
        self.blocks_returned.retain(is_pool);
        self.snapshot.send_replace(snapshot.into());
    }

    /// Sets how many seconds the clock of this machine is ahead of the API server.
    pub fn set_clock_difference(&self, seconds: f64) {
        self.clock_difference.set(seconds);
    }

    /// Creates the series whose labels are known from the start, so that a rate does not miss the first increase.
    /// Events have too many reasons for that.
    fn begin_at_zero(&self) {
        for kind in RequestKind::ALL {
            drop(self.write_duration.of(&[("kind", kind.as_str())]));
            for outcome in OutcomeKind::ALL {
                drop(self.writes.of(&[("kind", kind.as_str()), ("outcome", outcome.as_str())]));
            }
        }
        for class in WriteClass::ALL {
            self.set_paced(class, Queue::default());
        }
        for need in Need::ALL {
            drop(self.grant_duration.of(&[("need", need.as_str())]));
        }
        for kind in InputKind::ALL {
            drop(self.inputs.of(&[("kind", kind.as_str())]));
        }
        for decision in Decision::ALL {
            drop(self.decision_duration.of(&[("kind", decision.as_str())]));
        }
        for kind in Kind::ALL {
            drop(self.watch_lists.of(&[("kind", kind.as_str())]));
            drop(self.watch_errors.of(&[("kind", kind.as_str())]));
            drop(self.watch_lag.of(&[("kind", kind.as_str())]));
        }
        self.set_lapses(&[]);
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One write in progress, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
pub(crate) mod tests;
