//! What the process tells about itself: logs, metrics, and the HTTP endpoints.

pub mod event_reason;
pub mod heartbeat;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod readiness;

use tokio::sync::watch;

use heartbeat::Heartbeat;
use metrics::Metrics;
use readiness::Readiness;

/// What the controller feeds, and the HTTP endpoints show.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Whether the loop is still running.
    pub heartbeat: Heartbeat,
    /// What is measured.
    pub metrics: Metrics,
    readiness: watch::Sender<Readiness>,
}

impl Telemetry {
    /// The telemetry of a process that starts.
    #[must_use]
    pub fn start() -> Self {
        Self {
            heartbeat: Heartbeat::start(),
            metrics: Metrics::default(),
            readiness: watch::Sender::new(Readiness::NotReady("starting".to_owned())),
        }
    }

    /// Sets whether the controller serves.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.metrics.set_readiness(&readiness);
        self.readiness.send_replace(readiness);
    }

    /// Whether the controller serves.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.readiness.borrow().clone()
    }
}
