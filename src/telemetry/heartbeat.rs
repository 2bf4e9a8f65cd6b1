//! Whether the loop turns: it beats at each turn and at least every [`INTERVAL`], and `/livez` fails when it has not
//! for [`LONGEST_SILENCE`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the loop beats when it has nothing else to do.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// After how long without a beat the process counts as stuck. The loop waits for nothing but its inputs and its
/// timers, and requests run in tasks of their own: six missed beats are a defect.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// The heartbeat of the loop.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    began: Instant,
    /// Milliseconds from `began` to the last beat.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// A heart that has just beaten.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now(), last: Arc::default() }
    }

    /// The loop has turned.
    pub fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// How long ago the last beat was.
    #[must_use]
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Why the process should be started anew, after this much silence.
pub fn verdict(silence: Duration) -> Result<(), String> {
    if silence <= LONGEST_SILENCE {
        return Ok(());
    }
    Err(format!(
        "the loop has not turned for {} s; more than {} s mean that it is stuck",
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
        assert!(why.contains("not turned for 61 s"), "{why}");
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
