//! Whether the loop is still running, for `/livez`.
//!
//! The loop beats at each turn and at least every [`INTERVAL`]. `/livez` fails after [`LONGEST_SILENCE`] without a
//! beat.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How often the loop beats when it has nothing else to do.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// How long the loop may be without a beat before the process counts as stuck. The loop waits only for its inputs and
/// its timers, and requests run in tasks of their own, so thirty missed beats are a defect.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// How long the loop may be without a beat before the process no longer renews its lease. It is as long as five beats:
/// a self-check of a large cluster takes less.
pub const FRESH: Duration = Duration::from_secs(10);

/// The heartbeat of the loop.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    began: Instant,
    /// Milliseconds from the creation of the heartbeat to the last beat.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// A heartbeat whose last beat is now.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now(), last: Arc::default() }
    }

    /// Says that the loop is running.
    pub fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// The time since the last beat.
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// An error that says why the process should be restarted, if the silence is too long.
pub fn verdict(silence: Duration) -> Result<(), String> {
    if silence <= LONGEST_SILENCE {
        return Ok(());
    }
    Err(format!(
        "the main loop has been stuck for {} s (limit {} s)",
        silence.as_secs(),
        LONGEST_SILENCE.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_loop_is_dead_after_a_minute() {
        assert_eq!(verdict(Duration::from_secs(60)), Ok(()));
        let why = verdict(Duration::from_millis(61_001)).unwrap_err();
        assert!(why.contains("stuck for 61 s"), "{why}");
    }

    #[test]
    fn a_beat_ends_the_silence() {
        let heartbeat = Heartbeat {
            began: Instant::now().checked_sub(LONGEST_SILENCE * 2).unwrap(),
            last: Arc::default(),
        };
        assert!(heartbeat.silence() >= LONGEST_SILENCE * 2);
        heartbeat.beat();
        assert!(heartbeat.silence() < LONGEST_SILENCE);
    }
}
