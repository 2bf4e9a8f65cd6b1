//! How long a node or a pool waits whose writes are not applied.
//!
//! Knows no objects and no reasons: its owner tells it what became of each write. Keeps one invariant: of writes that
//! fail in a row none but the second is sent at once, and the waits between the others grow.

use std::time::Duration;

use crate::model::request::{Answer, Seen};
use crate::model::time::Now;

/// The longest wait before the next try.
const LONGEST: Duration = Duration::from_secs(30);
/// The wait after the second failure in a row; doubles with each further one. The first is tried again at once where
/// the object has been read since, because a conflict is news; where it has not, the same write would fail again.
const FIRST: Duration = Duration::from_millis(250);

/// The failures in a row of one node or pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pause {
    failures: u32,
    until: Option<Duration>,
}

impl Pause {
    /// The time before which nothing is to be written, where that is later than `now`.
    #[must_use]
    pub fn later_than(self, now: Now) -> Option<Duration> {
        self.until.filter(|until| *until > now.uptime)
    }

    /// A write was applied.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// A write was not applied.
    pub(super) fn lengthen(&mut self, cause: Cause, now: Now) {
        self.failures = self.failures.saturating_add(1);
        let growing = match self.failures {
            0 | 1 => Duration::ZERO,
            more => FIRST * 2u32.saturating_pow((more - 2).min(8)),
        };
        let least = match cause {
            Cause::News => Duration::ZERO,
            Cause::Nothing => FIRST,
            Cause::Asked(wait) => wait,
        };
        let wait = least.max(growing).min(LONGEST);
        self.until = (!wait.is_zero()).then(|| now.uptime + wait);
    }
}

/// What a write that was not applied leaves to go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The object has been read since.
    News,
    /// Nothing that was not known before.
    Nothing,
    /// The server asks to wait for so long.
    Asked(Duration),
}

impl Cause {
    /// The cause of an answer that says of a write that it was not applied.
    pub(super) fn of(answer: &Answer, seen: &Seen) -> Self {
        match answer {
            Answer::Refused(_, Some(wait)) => Self::Asked(*wait),
            Answer::Done | Answer::Conflict(_) | Answer::Refused(_, None) | Answer::Unknown(_) => {
                if *seen == Seen::Nothing { Self::Nothing } else { Self::News }
            }
        }
    }
}
