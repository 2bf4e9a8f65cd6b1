//! How long reads and watches wait after failures in a row, so that a server in trouble is not asked more often.
//!
//! Counts the failures of one read or watch. Knows no requests: its owner says when one failed and when one
//! succeeded. No wait is longer than [`LONGEST`], unless the server asks for it. So a server that returns is used again
//! within that time, and the reads and watches need to know nothing of each other.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::backoff::Backoff;

/// The longest wait between two tries of a read, a watch or a request for the Lease. A process has some twenty of
/// them, so a server in trouble gets a few requests per second from it at most.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// A lost connection is usually back at once, and a server that restarts is away for tens of seconds.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: LONGEST };

/// Two watches of one kind that expire within this time mean that something is wrong. A watch starts at the revision
/// of its list, and etcd keeps revisions for 5 m by default.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// The failures in a row of one read or watch.
#[derive(Debug, Default)]
pub(super) struct Retries {
    n_failures: u32,
    /// How many watches in a row expired within [`EXPIRY_INTERVAL`] of each other, and when the last did.
    expired: Option<(u32, Instant)>,
}

impl Retries {
    /// It succeeded: the next wait is the first one again.
    pub(super) fn reset(&mut self) {
        self.n_failures = 0;
    }

    /// It failed: how long to wait before the next try, which is no less than the wait that the server asks for.
    pub(super) fn failed(&mut self, asked: Option<Duration>) -> Duration {
        self.n_failures = self.n_failures.saturating_add(1);
        BACKOFF.wait(self.n_failures).max(asked.unwrap_or_default())
    }

    /// A watch has expired (410), which is news: the next list starts at once, unless the last has hardly started.
    pub(super) fn expired(&mut self) -> Duration {
        let now = Instant::now();
        let before = self.expired.filter(|(_, at)| now.saturating_duration_since(*at) < EXPIRY_INTERVAL);
        let n_before = before.map_or(0, |(n_expired, _)| n_expired);
        self.expired = Some((n_before.saturating_add(1), now));
        BACKOFF.wait(n_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_short_unless_the_server_asks_for_more() {
        let mut retries = Retries::default();
        let mut check = |asked: Option<u64>, expected: u64| {
            assert_eq!(retries.failed(asked.map(Duration::from_millis)), Duration::from_millis(expected));
        };
        check(None, 200);
        check(Some(300), 400);
        check(Some(7_000), 7_000);
        for expected in [1_600, 3_200, 5_000, 5_000] {
            check(None, expected);
        }
        check(Some(30_000), 30_000);
        retries.reset();
        assert_eq!(retries.failed(None), BACKOFF.first);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_expiry_of_a_watch_is_no_failure_and_those_right_after_it_are() {
        let mut retries = Retries::default();
        let mut check = |expected: u64| {
            assert_eq!(retries.expired(), Duration::from_millis(expected));
            retries.reset();
        };
        check(0);
        check(200);
        check(400);
        tokio::time::advance(EXPIRY_INTERVAL).await;
        check(0);
    }
}
