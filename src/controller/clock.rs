//! The clock: the only source of the time that decisions and the model are given.

use std::time::{Duration, Instant};

use crate::model::time::{Now, Timestamp};

/// The time since this clock was started, and the wall clock time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// Starts a clock at zero.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// The time now.
    #[must_use]
    pub fn now(self) -> Now {
        let wall = Timestamp::now();
        // As the API shows it: a time that is written is read back as the same.
        let wall = Timestamp::from_millisecond(wall.as_millisecond()).unwrap_or(wall);
        Now { uptime: self.began.elapsed(), wall }
    }

    /// How long ago `then` was.
    #[must_use]
    pub fn since(self, then: Now) -> Duration {
        self.began.elapsed().saturating_sub(then.uptime)
    }
}
