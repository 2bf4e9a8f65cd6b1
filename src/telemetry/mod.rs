//! The process reports about itself: logs, metrics, and the HTTP endpoints.

pub mod access;
pub mod api_health;
pub mod certificate;
mod connections;
pub mod event_reason;
pub mod heartbeat;
pub mod http;
pub mod leader;
pub mod logs;
pub mod map_requests;
pub mod metrics;
pub mod readiness;
pub mod scrape;
pub mod serving;

use tokio::sync::watch;

use api_health::ApiHealth;
use heartbeat::Heartbeat;
use leader::Leader;
use map_requests::MapRequests;
use metrics::Metrics;
use readiness::Readiness;
use serving::NotServing;

use crate::model::failure::Failure;
use crate::model::freeze::{Freeze, Switch};

/// The state that the controller writes and the HTTP endpoints show.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Whether the loop is still running.
    pub heartbeat: Heartbeat,
    /// The metrics.
    pub metrics: Metrics,
    /// The relation of the process to the API server: kinds that it does not follow, and forbidden requests.
    pub api_health: ApiHealth,
    /// Who asks for the map of the address space.
    pub maps: MapRequests,
    readiness: watch::Sender<Readiness>,
    freeze: watch::Sender<Freeze>,
    remarks: watch::Sender<Vec<String>>,
    failures: watch::Sender<Vec<Failure>>,
    pace: watch::Sender<Option<String>>,
    leader: watch::Sender<Leader>,
}

impl Telemetry {
    /// The telemetry of a process that starts.
    #[must_use]
    pub fn start() -> Self {
        Self {
            heartbeat: Heartbeat::start(),
            metrics: Metrics::default(),
            api_health: ApiHealth::default(),
            maps: MapRequests::default(),
            readiness: watch::Sender::new(Readiness::NotReady("starting".to_owned())),
            freeze: watch::Sender::default(),
            remarks: watch::Sender::default(),
            failures: watch::Sender::default(),
            pace: watch::Sender::default(),
            leader: watch::Sender::new(Leader::Unelected),
        }
    }

    /// Sets whether the controller serves, as far as the loop knows.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.readiness.send_replace(readiness);
    }

    /// Whether the controller serves.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match self.readiness.borrow().clone() {
            Readiness::Ready => {
                self.api_health.verdict().map_or_else(Readiness::NotReady, |()| Readiness::Ready)
            }
            not_ready @ (Readiness::NotReady(_) | Readiness::Passive(_)) => not_ready,
        }
    }

    /// Sets the freeze, and returns the one before.
    #[allow(clippy::must_use_candidate, reason = "the freeze before is for a log line")]
    pub fn set_freeze(&self, freeze: Freeze) -> Freeze {
        self.freeze.send_replace(freeze)
    }

    /// The freeze, as far as the loop knows.
    #[must_use]
    pub fn freeze(&self) -> Freeze {
        self.freeze.borrow().clone()
    }

    /// Sets the lines of `/readyz` beside its verdict.
    pub fn set_remarks(&self, remarks: Vec<String>) {
        self.remarks.send_replace(remarks);
    }

    /// The lines of `/readyz` beside its verdict: one for each task that the controller skips although it serves.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.remarks.borrow().clone()
    }

    /// Sets the writes that fail.
    pub fn set_failures(&self, failures: Vec<Failure>) {
        self.failures.send_replace(failures);
    }

    /// The writes that fail, for `/readyz` and for the Lease.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.borrow().clone()
    }

    /// Sets the pace of writes in words; `None` if no node waits for its turn.
    pub fn set_pace(&self, pace: Option<String>) {
        self.pace.send_replace(pace);
    }

    /// The pace of writes in words, for the Lease.
    #[must_use]
    pub fn pace(&self) -> Option<String> {
        self.pace.borrow().clone()
    }

    /// Sets who leads.
    pub fn set_leader(&self, leader: Leader) {
        self.leader.send_replace(leader);
    }

    /// Who leads, as far as this process knows.
    #[must_use]
    pub fn leader(&self) -> Leader {
        self.leader.borrow().clone()
    }

    /// Why this process gives no node a block; `None` if it does.
    #[must_use]
    pub fn not_serving(&self) -> Option<NotServing> {
        match self.readiness() {
            Readiness::NotReady(_) => Some(NotServing::NotReady),
            Readiness::Passive(_) => Some(NotServing::Passive),
            Readiness::Ready if !self.leader().is_this() => Some(NotServing::Standby),
            Readiness::Ready => self.freeze().is_on(Switch::Writes).then_some(NotServing::Frozen),
        }
    }

    /// The content of `/metrics`.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.metrics.set_readiness(&self.readiness());
        self.metrics.set_serving(self.not_serving());
        self.metrics.set_leader(self.leader().is_this());
        self.metrics.set_lapses(&self.api_health.lapses());
        self.metrics.text()
    }
}
