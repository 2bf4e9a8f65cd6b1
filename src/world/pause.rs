//! How long a node or a pool waits if its writes are not applied, or have no lasting effect.
//!
//! Knows no objects and no reasons: its owner reports the outcome of each write. Keeps one invariant: in a row of
//! failed writes only the second is sent at once, and the waits between the others grow. A row is over after a success,
//! or if nothing is left to write: another replica may have done it. A write that fails for a cause which others may
//! share waits for its turn instead (`failures`).

use std::time::Duration;

use crate::model::backoff::Backoff;
use crate::model::outcome::{Answer, Seen};
use crate::model::time::Now;

/// The waits from the second failure in a row on. After the first, the next try is at once if the object has been read
/// since, because a conflict is news. If it has not, the same write would fail again.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: LONGEST };
/// The longest wait.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The failures in a row of one node or pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pause {
    failures: u32,
    until: Option<Duration>,
}

impl Pause {
    /// The time before which nothing may be written, if it is later than `now`.
    #[must_use]
    pub fn later_than(self, now: Now) -> Option<Duration> {
        self.until.filter(|until| *until > now.uptime)
    }

    /// The number of failed writes in a row.
    #[must_use]
    pub const fn failures(self) -> u32 {
        self.failures
    }

    /// Whether the latest write failed.
    #[must_use]
    pub const fn has_failed(self) -> bool {
        self.failures > 0
    }

    /// A write was applied and had an effect, or nothing is left to write.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// A write was applied, and is one of `n_in_vain` in a row without lasting effect. The wait is that after so many
    /// failures without news.
    pub(super) fn lengthen_ineffective(&mut self, n_ineffective: u32, now: Now) {
        self.failures = self.failures.max(n_ineffective.saturating_sub(1));
        self.lengthen(Cause::Nothing, now);
    }

    /// A write was not applied, for a cause that others may share. The wait is for a turn.
    pub(super) fn count(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// A write was not applied, for a cause of this node or pool alone.
    pub(super) fn lengthen(&mut self, cause: Cause, now: Now) {
        let growing = BACKOFF.wait(self.failures);
        self.failures = self.failures.saturating_add(1);
        let least = match cause {
            Cause::News => Duration::ZERO,
            Cause::Nothing => BACKOFF.first,
            Cause::Asked(wait) => wait,
        };
        let wait = least.max(growing).min(BACKOFF.longest);
        self.until = (!wait.is_zero()).then(|| now.uptime + wait);
    }
}

/// The state after a write that was not applied. It decides how soon the next try makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The object has been read since.
    News,
    /// Nothing has been read since: the same write would fail again.
    Nothing,
    /// The server asks for this wait.
    Asked(Duration),
}

impl Cause {
    /// The cause, from the answer to a write that was not applied.
    pub(super) fn of(answer: &Answer, seen: &Seen) -> Self {
        match answer {
            Answer::Refused(_, Some(wait)) => Self::Asked(*wait),
            Answer::Done | Answer::Conflict(_) | Answer::Refused(_, None) | Answer::Unknown(_) => {
                if *seen == Seen::Nothing { Self::Nothing } else { Self::News }
            }
        }
    }
}
