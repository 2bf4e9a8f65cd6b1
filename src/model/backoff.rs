//! The waits after failures in a row: one schedule for everything that is tried again.
//!
//! A value without state or clock. The caller counts the failures, and documents the source of its numbers.

use std::time::Duration;

/// Waits that double with each failure in a row, up to a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The maximum wait.
    pub longest: Duration,
}

impl Backoff {
    /// The wait after this many failures in a row; zero if nothing has failed.
    #[must_use]
    pub fn wait(self, n_failures: u32) -> Duration {
        match n_failures {
            0 => Duration::ZERO,
            more => self.first.saturating_mul(2u32.saturating_pow(more - 1)).min(self.longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(20) };
        let waits: Vec<u128> = (0..10).map(|n_failures| backoff.wait(n_failures).as_millis()).collect();
        assert_eq!(waits, [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 20_000, 20_000]);
        assert_eq!(backoff.wait(u32::MAX), backoff.longest);
    }
}
