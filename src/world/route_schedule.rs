//! When the routes of all nodes are decided next. Knows no routes.

use std::time::Duration;

/// The minimum time between two passes over the routes of all nodes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// When the routes of all nodes are decided.
#[derive(Debug, Clone, Default)]
pub(super) struct RouteSchedule {
    last: Option<Duration>,
    /// When the next look is due; `None` if nothing has changed since the last.
    next: Option<Duration>,
}

impl RouteSchedule {
    /// The routes of all nodes are decided now, and again at `wake`.
    pub(super) fn begin(&mut self, wake: Option<Duration>, now: Duration) {
        self.last = Some(now);
        self.next = wake.map(|wake| wake.max(now + LOOK_INTERVAL));
    }

    /// Something has changed that routes depend on.
    pub(super) fn look_soon(&mut self, now: Duration) {
        let soon = self.last.map_or(now, |last| now.max(last + LOOK_INTERVAL));
        self.next = Some(self.next.map_or(soon, |at| at.min(soon)));
    }

    /// The same, as soon as the last look allows.
    pub(super) fn look_next(&mut self) {
        self.look_soon(self.last.unwrap_or_default());
    }

    /// When the next look is due.
    pub(super) const fn next(&self) -> Option<Duration> {
        self.next
    }
}
