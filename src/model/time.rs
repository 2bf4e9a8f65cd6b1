//! The time of a decision, given from outside: nothing below `wire` reads a clock.

use std::time::Duration;

/// The time of a decision, given from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Since the process began; for intervals.
    pub uptime: Duration,
    /// Milliseconds since the epoch; for what is written into objects.
    pub wall: i64,
}
