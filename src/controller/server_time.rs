//! The time of the API server, from the `Date` of its answers and the monotonic clock of this process.
//!
//! Knows neither headers nor clocks: it gets the times. Keeps two invariants. No single answer makes the time jump. The
//! time is the earliest that the answers allow, because a time that is ahead shortens the cooling of blocks. It is
//! less than 1 s behind, and with every few answers less.

use std::time::Duration;

use jiff::SignedDuration;

use crate::model::time::Timestamp;

/// How far an answer may differ from the time and still correct it at once. Clocks that follow NTP differ by less, and
/// monotonic clocks drift by less between two answers.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// How many answers in a row must agree on another time before it is taken over. A clock that was set shows it in every
/// answer. One answer may come from a proxy, or from one of several servers whose clock is wrong.
const AGREEING_ANSWERS: u32 = 3;

/// An answer with a `Date`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatedAnswer {
    /// Its `Date`, in whole seconds: the server's time when it wrote the head of the answer, rounded down.
    pub date: Timestamp,
    /// When the request was sent, in the time since the start of this process.
    pub sent: Duration,
    /// When its head was received, in the same time. The rest of a watch may follow a minute later.
    pub received: Duration,
}

/// The time of the API server, as far as answers have shown it.
#[derive(Debug, Clone, Default)]
pub struct ServerTime {
    /// The server's time at the start of this process, since 1970. `None` before the first answer.
    start: Option<SignedDuration>,
    /// The same as the last answers say, which contradict it and agree with each other; and their number.
    other: Option<(SignedDuration, u32)>,
}

impl DatedAnswer {
    /// The server's time at the start of this process that differs least from `start`, and that this answer allows. It
    /// was written between `sent` and `received`, and less than 1 s after its date.
    fn nearest(&self, start: SignedDuration) -> SignedDuration {
        let end_of_second = self.date.as_duration() + SignedDuration::from_secs(1);
        start.clamp(self.earliest(), since(end_of_second, self.sent))
    }

    /// The earliest of these times.
    fn earliest(&self) -> SignedDuration {
        since(self.date.as_duration(), self.received)
    }
}

impl ServerTime {
    /// Takes in an answer. Returns by how much the time jumps, if it does.
    #[must_use]
    pub fn hear(&mut self, answer: &DatedAnswer) -> Option<SignedDuration> {
        let Some(start) = self.start else {
            self.start = Some(answer.earliest());
            return None;
        };
        if let Some(nearest) = within_tolerance(answer, start) {
            (self.start, self.other) = (Some(nearest), None);
            return None;
        }
        let agreed =
            self.other.and_then(|(other, n)| Some((within_tolerance(answer, other)?, n.saturating_add(1))));
        let (other, n_answers) = agreed.unwrap_or((answer.earliest(), 1));
        if n_answers < AGREEING_ANSWERS {
            self.other = Some((other, n_answers));
            return None;
        }
        (self.start, self.other) = (Some(other), None);
        Some(other.saturating_sub(start))
    }

    /// The server's time at this time since the start of this process. `None` before the first answer.
    #[must_use]
    pub fn at(&self, uptime: Duration) -> Option<Timestamp> {
        let uptime = SignedDuration::try_from(uptime).ok()?;
        Timestamp::from_duration(self.start?.saturating_add(uptime)).ok()
    }
}

/// A time at the start of this process, from one at `uptime`.
fn since(time: SignedDuration, uptime: Duration) -> SignedDuration {
    time.saturating_sub(SignedDuration::try_from(uptime).unwrap_or(SignedDuration::MAX))
}

/// The time that an answer allows, if it differs from `start` by no more than the tolerance.
fn within_tolerance(answer: &DatedAnswer, start: SignedDuration) -> Option<SignedDuration> {
    let nearest = answer.nearest(start);
    (nearest.saturating_sub(start).abs() <= TOLERANCE).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The server's time when the process starts: in the middle of a second.
    fn true_start() -> Timestamp {
        "2026-11-27T10:00:00.5Z".parse().unwrap()
    }

    /// The answer of the server at this uptime, if its clock is ahead by `ahead` seconds, and each way takes `way`.
    fn answer(at: Duration, way: Duration, ahead: i64) -> DatedAnswer {
        let written = true_start() + at + SignedDuration::from_secs(ahead);
        let date = Timestamp::from_second(written.as_second()).unwrap();
        DatedAnswer { date, sent: at.saturating_sub(way), received: at + way }
    }

    /// How far the time is ahead of the true time of the server.
    fn ahead(time: &ServerTime) -> SignedDuration {
        time.at(SECOND).unwrap().duration_since(true_start() + SECOND)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn there_is_no_time_before_the_first_answer() {
        assert_eq!(ServerTime::default().at(SECOND), None);
    }

    #[test]
    fn each_answer_makes_the_time_more_exact_and_none_puts_it_ahead() {
        let mut time = ServerTime::default();
        let mut errors = Vec::new();
        for at in [3_250, 4_000, 5_750, 6_200, 7_510, 8_400] {
            assert_eq!(time.hear(&answer(millis(at), millis(5), 0)), None);
            errors.push(ahead(&time).as_millis());
        }
        assert_eq!(errors, [-755, -505, -255, -255, -15, -15]);
    }

    /// The server may think for long before it answers, and an answer may wait in a buffer of this process.
    #[test]
    fn a_late_answer_does_not_move_the_time() {
        let mut time = ServerTime::default();
        let _ = time.hear(&answer(millis(10_510), millis(5), 0));
        let before = time.clone();
        let slow = DatedAnswer { received: 90 * SECOND, ..answer(20 * SECOND, millis(5), 0) };
        assert_eq!(time.hear(&slow), None);
        assert_eq!(time.at(SECOND), before.at(SECOND));
    }

    #[test]
    fn one_answer_with_a_wrong_date_does_not_move_the_time() {
        for wrong in [-3600, 3600] {
            let mut time = ServerTime::default();
            let _ = time.hear(&answer(millis(1_510), millis(5), 0));
            // Two wrong answers in a row, and wrong ones that contradict each other.
            for ahead_by in [wrong, wrong, 0, wrong, -wrong, wrong, 2 * wrong] {
                assert_eq!(time.hear(&answer(millis(2_510), millis(5), ahead_by)), None);
            }
            assert!(ahead(&time).abs() < SignedDuration::from_millis(20), "{}", ahead(&time));
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_after_three_answers() {
        for set_by in [-3600, 3600] {
            let mut time = ServerTime::default();
            let _ = time.hear(&answer(millis(1_510), millis(5), 0));
            let jumps = [2_510, 3_700, 5_900].map(|at| time.hear(&answer(millis(at), millis(5), set_by)));
            let [None, None, Some(jump)] = jumps else { panic!("{jumps:?}") };
            assert!((jump.as_secs() - set_by).abs() <= 1, "{jump}");
            assert!((ahead(&time).as_secs() - set_by).abs() <= 1, "{}", ahead(&time));
        }
    }

    /// The first answer may be a wrong one too, and nothing is decided before lists of all kinds.
    #[test]
    fn a_first_answer_with_a_wrong_date_is_outvoted() {
        let mut time = ServerTime::default();
        for ahead_by in [7200, 0, 0, 0] {
            let _ = time.hear(&answer(millis(1_510), millis(5), ahead_by));
        }
        assert!(ahead(&time).abs() < SignedDuration::from_millis(20), "{}", ahead(&time));
    }

    /// A monotonic clock may drift by 500 ppm: 1.8 s in an hour.
    #[test]
    fn a_clock_that_drifts_is_followed_in_both_directions() {
        for drift in [-0.0005, 0.0005] {
            let mut time = ServerTime::default();
            for n in 0..3600_u32 {
                // Answers at all parts of a second.
                let at = SECOND * n + millis(u64::from(n) * 37 % 1000);
                let drifted = at.mul_f64(1.0 + drift);
                let DatedAnswer { date, .. } = answer(at, Duration::ZERO, 0);
                let heard = DatedAnswer { date, sent: drifted, received: drifted + millis(5) };
                assert_eq!(time.hear(&heard), None);
                let error = time.at(drifted).unwrap().duration_since(true_start() + at);
                assert!(error < SignedDuration::from_millis(100), "{error} after {at:?}");
                assert!(error > SignedDuration::from_millis(if n < 60 { -1100 } else { -100 }), "{error}");
            }
        }
    }
}
