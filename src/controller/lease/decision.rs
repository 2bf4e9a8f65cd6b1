//! The decision of the election: the next step about the Lease. Pure: it gets the time, and sends nothing.
//!
//! Does not know how a Lease is stored or sent. Keeps two invariants. A record of another holder is taken over only
//! when this process has not seen it change for the duration that the record states. That time is measured on its own
//! monotonic clock: the times in a record, which other clocks wrote, decide nothing.

use std::time::Duration;

/// The longest time for which another holder's record is honoured after it was last seen to change. A longer one is a
/// typing error: it would leave the nodes that join without addresses for that time.
const LONGEST_DURATION: Duration = Duration::from_secs(300);

/// How much longer than the retry period the renew deadline is at least, so that one failed renewal does not end a
/// lead.
const RETRIES_WITHIN_DEADLINE: f64 = 1.2;

/// The times of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long another process honours the record after it last saw it change.
    duration: Duration,
    /// How long a lead lasts after its last successful renewal was sent.
    renew_deadline: Duration,
    /// The time between two renewals, and after an attempt that failed.
    retry_period: Duration,
}

/// Times that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A standby could take over while the leader still writes.
    #[error("--lease-duration ({0:?}) must be longer than --renew-deadline ({1:?})")]
    DurationTooShort(Duration, Duration),
    /// One late answer would end the lead.
    #[error("--renew-deadline ({0:?}) must be longer than 1.2 times --retry-period ({1:?})")]
    DeadlineTooShort(Duration, Duration),
    /// The API has whole seconds only.
    #[error("--lease-duration ({0:?}) must be a whole number of seconds, from 1s to 5m")]
    NotInSeconds(Duration),
    /// The loop would send renewals without pause.
    #[error("--retry-period must be longer than zero")]
    NoRetryPeriod,
}

impl Timing {
    /// Times that fit together.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        if retry_period.is_zero() {
            return Err(TimingError::NoRetryPeriod);
        }
        if duration.subsec_nanos() != 0 || duration.is_zero() || duration > LONGEST_DURATION {
            return Err(TimingError::NotInSeconds(duration));
        }
        if duration <= renew_deadline {
            return Err(TimingError::DurationTooShort(duration, renew_deadline));
        }
        if renew_deadline <= retry_period.mul_f64(RETRIES_WITHIN_DEADLINE) {
            return Err(TimingError::DeadlineTooShort(renew_deadline, retry_period));
        }
        Ok(Self { duration, renew_deadline, retry_period })
    }

    /// The duration that a record of ours states.
    pub(super) fn duration(self) -> Duration {
        self.duration
    }

    /// The time after an attempt before the next one.
    pub(super) fn retry_period(self) -> Duration {
        self.retry_period
    }

    /// When a lead expires whose last successful renewal was sent at this time.
    pub(super) fn ends(self, renewed: Duration) -> Duration {
        renewed + self.renew_deadline
    }

    /// The time limit of one request. At least two fit into the renew deadline.
    pub(super) fn request_limit(self) -> Duration {
        self.renew_deadline / 2
    }

    /// How long a record that states this duration is honoured. A record without a valid one gets ours.
    fn honoured(self, stated: Option<Duration>) -> Duration {
        stated.unwrap_or(self.duration).min(LONGEST_DURATION)
    }
}

/// The part of a Lease that the election reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Who holds it; `None` if the Lease is free.
    pub(super) holder: Option<String>,
    /// The duration that it states, if that is valid.
    pub(super) duration: Option<Duration>,
    /// All of its `spec` as text. The holder lives if this changes.
    pub(super) text: String,
}

impl Record {
    /// When the time of its holder is over, if it was last seen to change at `changed_at`.
    fn honoured_until(&self, changed_at: Duration, timing: Timing) -> Duration {
        changed_at + timing.honoured(self.duration)
    }
}

/// The Lease as this process last saw it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Sight {
    /// Nothing yet.
    #[default]
    Unknown,
    /// There is no Lease. A holder that was seen before may not know that yet, and is honoured until this time.
    Absent { free_at: Duration },
    /// The Lease, and when its record was last seen to change.
    Present { record: Record, changed_at: Duration },
}

impl Sight {
    /// The sight after a look that found this.
    pub(super) fn after(self, found: Option<Record>, own: &str, timing: Timing, now: Duration) -> Self {
        match (self, found) {
            (Self::Present { record, changed_at }, Some(found)) if record == found => {
                Self::Present { record, changed_at }
            }
            (_, Some(record)) => Self::Present { record, changed_at: now },
            (Self::Present { record, changed_at }, None) => {
                let is_of_another = record.holder.as_deref().is_some_and(|holder| holder != own);
                let honoured = record.honoured_until(changed_at, timing);
                Self::Absent { free_at: if is_of_another { honoured } else { now } }
            }
            (Self::Absent { free_at }, None) => Self::Absent { free_at },
            (Self::Unknown, None) => Self::Absent { free_at: now },
        }
    }

    /// Who holds the Lease, as far as this process knows.
    pub(super) fn holder(&self) -> Option<&str> {
        match self {
            Self::Present { record, .. } => record.holder.as_deref(),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }

    /// Whether another than `own` holds the Lease, and its time is not over.
    pub(super) fn is_led_by_another(&self, own: &str, timing: Timing, now: Duration) -> bool {
        match self {
            Self::Present { record, changed_at } => {
                record.holder.as_deref().is_some_and(|holder| holder != own)
                    && now < record.honoured_until(*changed_at, timing)
            }
            Self::Unknown | Self::Absent { .. } => false,
        }
    }

    /// Whether a lead of `own` may continue. A Lease that was deleted names no other holder: it is created anew.
    pub(super) fn allows_lead_of(&self, own: &str) -> bool {
        match self {
            Self::Unknown | Self::Absent { .. } => true,
            Self::Present { record, .. } => record.holder.as_deref() == Some(own),
        }
    }
}

/// The next step about the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Read it.
    Read,
    /// Create it.
    Create,
    /// Write the own name into it.
    Take,
    /// Renew the own record.
    Renew,
    /// Look again at this time, or when something is seen before.
    Wait(Duration),
}

/// The knowledge of a process about its own part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Own {
    /// Its identity.
    pub(super) name: String,
    /// When its last successful renewal was sent, if it leads.
    pub(super) renewed: Option<Duration>,
    /// Whether the outcome of its last write is unknown, or its knowledge was out of date.
    pub(super) is_unsettled: bool,
}

/// The next step of a process that wants to lead.
pub(super) fn decide(sight: &Sight, own: &Own, timing: Timing, now: Duration) -> Step {
    if own.is_unsettled {
        return Step::Read;
    }
    match sight {
        Sight::Unknown => Step::Read,
        Sight::Absent { free_at } if *free_at <= now => Step::Create,
        Sight::Absent { free_at } => Step::Wait(*free_at),
        Sight::Present { record, changed_at } => match (&record.holder, own.renewed) {
            (None, _) => Step::Take,
            // A container that restarts in its Pod has the name of the one before, which has exited.
            (Some(holder), None) if *holder == own.name => Step::Take,
            (Some(holder), Some(renewed)) if *holder == own.name => {
                let next = renewed + timing.retry_period;
                if next <= now { Step::Renew } else { Step::Wait(next) }
            }
            (Some(_), _) => {
                let free_at = record.honoured_until(*changed_at, timing);
                if free_at <= now { Step::Take } else { Step::Wait(free_at) }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "me_1";

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn timing() -> Timing {
        Timing::new(s(15), s(10), s(2)).unwrap()
    }

    fn record(holder: &str, duration: Option<u64>, text: &str) -> Record {
        let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
        Record { holder, duration: duration.map(s), text: text.to_owned() }
    }

    fn present(holder: &str, duration: Option<u64>, changed_at: u64) -> Sight {
        Sight::Present { record: record(holder, duration, "a"), changed_at: s(changed_at) }
    }

    #[test]
    fn the_table_of_decisions() {
        let absent = |free_at| Sight::Absent { free_at: s(free_at) };
        let cases: &[(&str, Sight, Option<u64>, u64, Step)] = &[
            ("nothing seen yet", Sight::Unknown, None, 100, Step::Read),
            ("no Lease", absent(100), None, 100, Step::Create),
            ("its Lease was deleted while it leads", absent(100), Some(99), 100, Step::Create),
            ("another's Lease was deleted", absent(110), None, 100, Step::Wait(s(110))),
            ("the time of that one is over", absent(110), None, 110, Step::Create),
            ("an empty holder is free at once", present("", Some(15), 100), None, 100, Step::Take),
            ("so is an empty spec", present("", None, 100), None, 100, Step::Take),
            ("a hand has emptied its own record", present("", Some(15), 100), Some(99), 100, Step::Take),
            ("another holds it", present("you_2", Some(15), 100), None, 114, Step::Wait(s(115))),
            ("it has not changed for its duration", present("you_2", Some(15), 100), None, 115, Step::Take),
            ("a longer duration is honoured", present("you_2", Some(60), 100), None, 115, Step::Wait(s(160))),
            ("so is a shorter one", present("you_2", Some(5), 100), None, 105, Step::Take),
            ("an absurd one is not", present("you_2", Some(86400), 100), None, 400, Step::Take),
            ("one that is missing is ours", present("you_2", None, 100), None, 114, Step::Wait(s(115))),
            (
                "another took it while this one led",
                present("you_2", Some(15), 100),
                Some(99),
                100,
                Step::Wait(s(115)),
            ),
            ("its Pod's record after a restart", present(OWN, Some(15), 100), None, 100, Step::Take),
            (
                "its own record, the next renewal is later",
                present(OWN, Some(15), 100),
                Some(100),
                101,
                Step::Wait(s(102)),
            ),
            ("its own record, a renewal is due", present(OWN, Some(15), 100), Some(100), 102, Step::Renew),
        ];
        for (what, sight, renewed, now, expected) in cases {
            let own = |is_unsettled| Own { name: OWN.to_owned(), renewed: renewed.map(s), is_unsettled };
            assert_eq!(decide(sight, &own(false), timing(), s(*now)), *expected, "{what}");
            // An answer that never came, or a conflict with a faster replica, is settled first.
            assert_eq!(decide(sight, &own(true), timing(), s(*now)), Step::Read, "{what}");
        }
    }

    /// The same record again, or a change outside of `spec`, is no sign of life; any other change is.
    #[test]
    fn only_a_change_of_the_record_is_a_sign_of_life() {
        let other = |text: &str| Some(record("you_2", Some(15), text));
        let look = |sight: Sight, found, now| sight.after(found, OWN, timing(), s(now));
        let first = look(Sight::Unknown, other("a"), 100);
        let again = look(first.clone(), other("a"), 110);
        assert_eq!(again, first);
        let renewed = look(again.clone(), other("b"), 110);
        assert!(matches!(renewed, Sight::Present { changed_at, .. } if changed_at == s(110)));
        // Its holder may not know yet that a user deleted it.
        assert_eq!(look(renewed.clone(), None, 112), Sight::Absent { free_at: s(125) });
        assert_eq!(look(look(renewed, None, 112), None, 120), Sight::Absent { free_at: s(125) });
        assert_eq!(look(Sight::Unknown, None, 112), Sight::Absent { free_at: s(112) });
        let own = look(Sight::Unknown, Some(record(OWN, Some(15), "a")), 100);
        assert_eq!(look(own, None, 112), Sight::Absent { free_at: s(112) });
    }

    #[test]
    fn a_record_that_names_another_or_nobody_ends_a_lead() {
        assert!(present(OWN, Some(15), 100).allows_lead_of(OWN));
        assert!(!present("you_2", Some(15), 100).allows_lead_of(OWN));
        assert!(!present("", Some(15), 100).allows_lead_of(OWN));
        assert!(Sight::Absent { free_at: s(100) }.allows_lead_of(OWN));
        assert!(Sight::Unknown.allows_lead_of(OWN));
    }

    #[test]
    fn times_that_do_not_fit_together_are_refused_by_the_names_of_their_flags() {
        let ms = Duration::from_millis;
        for (duration, deadline, period, expected) in [
            (s(15), s(10), s(2), None),
            (s(10), s(10), s(2), Some("--lease-duration (10s) must be longer than --renew-deadline (10s)")),
            (
                s(15),
                ms(2400),
                s(2),
                Some("--renew-deadline (2.4s) must be longer than 1.2 times --retry-period (2s)"),
            ),
            (s(15), ms(2401), s(2), None),
            (
                ms(1500),
                s(1),
                ms(200),
                Some("--lease-duration (1.5s) must be a whole number of seconds, from 1s to 5m"),
            ),
            (
                s(301),
                s(1),
                ms(200),
                Some("--lease-duration (301s) must be a whole number of seconds, from 1s to 5m"),
            ),
            (s(15), s(10), s(0), Some("--retry-period must be longer than zero")),
        ] {
            let error = Timing::new(duration, deadline, period).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{duration:?} {deadline:?} {period:?}");
        }
    }
}
