//! The time of a decision. It is passed in from outside, because no room below `wire` reads a clock.

use std::time::Duration;

pub use jiff::Timestamp;

/// The time of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// The time since the process started; for intervals.
    pub uptime: Duration,
    /// The time of the API server, in whole milliseconds; for times in objects.
    pub wall: Timestamp,
}

/// The first whole second that is not before this time, for people.
#[must_use]
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    let has_part = time.subsec_nanosecond() > 0;
    Timestamp::from_second(time.as_second() + i64::from(has_part)).unwrap_or(time)
}
