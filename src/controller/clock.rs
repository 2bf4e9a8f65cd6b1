//! The clock: the only source of the time that decisions and the model are given.
//!
//! Intervals are on the monotonic clock of the process. Times in objects are those of the API server, because several
//! processes write and compare them, and the clock of a machine may be wrong.

use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::DATE;
use jiff::SignedDuration;
use jiff::fmt::rfc2822::DateTimeParser;
use tokio::sync::watch;
use tracing::warn;

use super::server_time::{DatedAnswer, ServerTime};
use crate::model::time::{Now, Timestamp};

/// A date in a header (RFC 9110, section 5.6.7) is one of RFC 2822.
const PARSER: DateTimeParser = DateTimeParser::new();

/// The time since this clock was started, and the time of the API server. Clones share it.
#[derive(Debug, Clone)]
pub struct Clock {
    began: Instant,
    server: watch::Sender<ServerTime>,
}

impl Default for Clock {
    /// A clock that starts now, before any answer of a server.
    fn default() -> Self {
        Self { began: Instant::now(), server: watch::Sender::default() }
    }
}

impl Clock {
    /// The time now. Before the first answer with a date, and without a server, the wall clock of this machine counts.
    #[must_use]
    pub fn now(&self) -> Now {
        let uptime = self.uptime();
        let wall = self.server.borrow().at(uptime).unwrap_or_else(Timestamp::now);
        // As the API shows it: a time that is written is read back as the same.
        let wall = Timestamp::from_millisecond(wall.as_millisecond()).unwrap_or(wall);
        Now { uptime, wall }
    }

    /// The time since this clock was started.
    pub(super) fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// How long ago `then` was.
    #[must_use]
    pub fn since(&self, then: Now) -> Duration {
        self.uptime().saturating_sub(then.uptime)
    }

    /// How far the wall clock of this machine is ahead of the API server. `None` before the first answer with a date.
    #[must_use]
    pub fn ahead(&self) -> Option<SignedDuration> {
        let server = self.server.borrow().at(self.uptime())?;
        Some(Timestamp::now().duration_since(server))
    }

    /// The head of an answer of the API server to a request that was sent at the uptime `sent` has just arrived.
    pub(super) fn hear(&self, headers: &HeaderMap, sent: Duration) {
        let received = self.uptime();
        let date = headers.get(DATE).and_then(|date| PARSER.parse_timestamp(date.as_bytes()).ok());
        let Some(answer) = date.map(|date| DatedAnswer { date, sent, received }) else { return };
        let mut jump = None;
        self.server.send_modify(|server| jump = server.hear(&answer));
        if let Some(jump) = jump {
            warn!(by_seconds = jump.as_secs(), "the time of the API server has jumped");
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::fmt::rfc2822::DateTimePrinter;

    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    /// A clock after an answer of a server. The machine is ahead of the server by so much.
    fn ahead_by(difference: SignedDuration) -> Clock {
        let clock = Clock::default();
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&(Timestamp::now() - difference));
        let headers = [(DATE, date.unwrap().parse().unwrap())].into_iter().collect();
        clock.hear(&headers, clock.uptime());
        clock
    }

    fn is_about(one: SignedDuration, other: SignedDuration) -> bool {
        one.saturating_sub(other).abs() < SignedDuration::from_secs(10)
    }

    #[test]
    fn a_date_counts_and_the_clock_of_the_machine_does_not() {
        for difference in [-HOUR, SignedDuration::ZERO, HOUR] {
            let clock = ahead_by(difference);
            let wall = clock.clone().now().wall;
            assert!(is_about(Timestamp::now().duration_since(wall), difference), "{wall}");
            assert!(is_about(clock.ahead().unwrap(), difference), "{:?}", clock.ahead());
        }
    }

    #[test]
    fn without_a_date_that_can_be_read_the_clock_of_the_machine_counts() {
        let clock = Clock::default();
        clock.hear(&HeaderMap::new(), Duration::ZERO);
        clock.hear(&[(DATE, "yesterday".parse().unwrap())].into_iter().collect(), Duration::ZERO);
        assert_eq!(clock.ahead(), None);
        assert!(is_about(Timestamp::now().duration_since(clock.now().wall), SignedDuration::ZERO));
    }
}
