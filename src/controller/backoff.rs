//! How long reads and watches wait after failures in a row, so that a server in trouble is not asked more often.
//!
//! Counts the failures of one read or watch. Knows no requests: its owner says when one failed and when one succeeded.

use std::time::Duration;

use crate::model::backoff::Backoff;

/// A lost connection is usually back at once, and a server that restarts is away for tens of seconds.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(20) };

/// The failures in a row of one read or watch.
#[derive(Debug, Default)]
pub(super) struct Retries {
    n_failures: u32,
}

impl Retries {
    /// It succeeded: the next wait is the first one again.
    pub(super) fn reset(&mut self) {
        self.n_failures = 0;
    }

    /// It failed: how long to wait before the next try, which is no less than what the server asks for.
    pub(super) fn next_wait(&mut self, asked: Option<Duration>) -> Duration {
        self.n_failures = self.n_failures.saturating_add(1);
        BACKOFF.wait(self.n_failures).max(asked.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_starts_again_and_the_server_may_ask_for_more() {
        let mut retries = Retries::default();
        let mut check = |asked: Option<u64>, expected: u64| {
            let wait = retries.next_wait(asked.map(Duration::from_millis));
            assert_eq!(wait, Duration::from_millis(expected));
        };
        check(None, 200);
        check(Some(300), 400);
        check(Some(5_000), 5_000);
        retries.reset();
        assert_eq!(retries.next_wait(None), BACKOFF.first);
    }
}
