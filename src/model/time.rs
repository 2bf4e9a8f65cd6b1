//! The time of a decision. It is passed in from outside, because no room below `wire` reads a clock.

use std::time::Duration;

pub use jiff::Timestamp;

/// The time of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Since the process began; for intervals.
    pub uptime: Duration,
    /// The time of the wall clock, in whole milliseconds; for what is written into objects.
    pub wall: Timestamp,
}
