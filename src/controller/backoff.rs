//! How long reads and watches wait after failures in a row, so that a server in trouble is not asked more often.
//!
//! Counts the failures of one read or watch. Knows no requests: its owner says when one failed and when one
//! succeeded. A wait is cut short when the server answers again. For a time after that each read and watch is tried
//! once per second: a server that starts serves its kinds one after another. A read or watch has only so many of
//! these tries, because its trouble may be its own.

use std::time::Duration;

use tokio::time::Instant;

use super::contact::Contact;
use crate::model::backoff::Backoff;

/// A lost connection is usually back at once, and a server that restarts is away for tens of seconds.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(20) };
/// The pause between two tries while the server has just come back.
const RETURN_INTERVAL: Duration = Duration::from_secs(1);
/// How many tries a read or watch has whose wait is cut short because the server has come back. A wait of the longest
/// length gives one of them back.
pub(super) const RETURN_TRIES: u32 = 40;
/// Two watches of one kind that expire within this time mean that something is wrong. A watch starts at the revision
/// of its list, and etcd keeps revisions for 5 m by default.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// The failures in a row of one read or watch.
#[derive(Debug, Default)]
pub(super) struct Retries {
    n_failures: u32,
    /// How many waits were cut short since the last success, without those that were given back.
    n_cut_short: u32,
    /// Whether the last wait was cut short.
    was_woken: bool,
    /// How often the server had answered again when the last try started.
    n_returns_before: u64,
    /// How many watches in a row expired within [`EXPIRY_INTERVAL`] of each other, and when the last did.
    expired: Option<(u32, Instant)>,
}

/// A wait before the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rest {
    /// How long it is.
    pub(super) wait: Duration,
    /// The minimum that the server asks for, even if something cuts the wait short. `None` if nothing may cut it short.
    at_least: Option<Duration>,
    /// Whether it is shorter than the back-off because the server has come back.
    is_cut_short: bool,
}

impl Retries {
    /// A try starts. Should it fail, the wait is over as soon as the server has answered again since. Others may get
    /// an answer before this one knows that it has failed.
    pub(super) fn begins(&mut self, contact: &Contact) {
        self.n_returns_before = contact.n_returns();
    }

    /// It succeeded: the next wait is the first one again.
    pub(super) fn reset(&mut self) {
        (self.n_failures, self.n_cut_short, self.was_woken) = (0, 0, false);
    }

    /// It failed: how long to wait before the next try, which is no less than the wait that the server asks for.
    pub(super) fn failed(&mut self, asked: Option<Duration>, contact: &Contact) -> Rest {
        self.n_failures = self.n_failures.saturating_add(1);
        let was_woken = std::mem::take(&mut self.was_woken);
        let may_be_cut_short = self.n_cut_short < RETURN_TRIES;
        let wait = BACKOFF.wait(self.n_failures);
        let is_cut_short = wait > RETURN_INTERVAL && may_be_cut_short && contact.has_just_returned();
        let wait = if is_cut_short { RETURN_INTERVAL } else { wait };
        let asked = asked.unwrap_or_default();
        let at_least = (may_be_cut_short && !was_woken).then_some(asked);
        Rest { wait: wait.max(asked), at_least, is_cut_short }
    }

    /// A watch has expired (410), which is news: the next list starts at once, unless the last has hardly started.
    pub(super) fn expired(&mut self) -> Rest {
        let now = Instant::now();
        let before = self.expired.filter(|(_, at)| now.saturating_duration_since(*at) < EXPIRY_INTERVAL);
        let n_before = before.map_or(0, |(n_expired, _)| n_expired);
        self.expired = Some((n_before.saturating_add(1), now));
        Rest { wait: BACKOFF.wait(n_before), at_least: None, is_cut_short: false }
    }

    /// Waits, at most until the server answers again.
    pub(super) async fn rest(&mut self, rest: Rest, contact: &Contact) {
        if let Some(at_least) = rest.at_least {
            tokio::time::sleep(at_least).await;
            let rest_of_it = rest.wait.saturating_sub(at_least);
            let end = tokio::time::timeout(rest_of_it, contact.returns(self.n_returns_before)).await;
            self.was_woken = !rest_of_it.is_zero() && end.is_ok();
        } else {
            tokio::time::sleep(rest.wait).await;
        }
        if self.was_woken || rest.is_cut_short {
            self.n_cut_short = self.n_cut_short.saturating_add(1);
        } else if rest.wait >= BACKOFF.longest {
            self.n_cut_short = self.n_cut_short.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_starts_again_and_the_server_may_ask_for_more() {
        let mut retries = Retries::default();
        let contact = Contact::default();
        let mut check = |asked: Option<u64>, expected: u64| {
            let rest = retries.failed(asked.map(Duration::from_millis), &contact);
            assert_eq!(rest.wait, Duration::from_millis(expected));
        };
        check(None, 200);
        check(Some(300), 400);
        check(Some(5_000), 5_000);
        retries.reset();
        assert_eq!(retries.failed(None, &contact).wait, BACKOFF.first);
    }

    /// How often a request fails within ten minutes if the server answers another one after each failure.
    async fn n_failures(asked: Option<Duration>) -> usize {
        let (contact, mut retries) = (Contact::default(), Retries::default());
        let began = Instant::now();
        let mut n_failures = 0;
        while began.elapsed() < Duration::from_secs(600) {
            n_failures += 1;
            retries.begins(&contact);
            let rest = retries.failed(asked, &contact);
            contact.lose();
            tokio::join!(retries.rest(rest, &contact), async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                contact.answered();
            });
        }
        n_failures
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_server_answers_again() {
        let (contact, mut retries) = (Contact::default(), Retries::default());
        for _ in 0..10 {
            let _ = retries.failed(None, &contact);
        }
        let rest = retries.failed(None, &contact);
        assert_eq!(rest.wait, BACKOFF.longest);
        contact.lose();
        let began = Instant::now();
        tokio::join!(retries.rest(rest, &contact), async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            contact.answered();
        });
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        // The server answers others and not this one: it tries again soon, and this wait is not cut short.
        let rest = retries.failed(None, &contact);
        assert_eq!(rest, Rest { wait: RETURN_INTERVAL, at_least: None, is_cut_short: true });
    }

    /// Its first answers refuse: its paths are not installed yet, or the store of a kind is initializing.
    #[tokio::test(start_paused = true)]
    async fn each_kind_is_tried_once_per_second_from_the_first_answer_on() {
        for asked in [None, Some(Duration::from_secs(1))] {
            let (contact, mut retries) = (Contact::default(), Retries::default());
            for _ in 0..10 {
                let _ = retries.failed(None, &contact);
            }
            contact.lose();
            retries.begins(&contact);
            let rest = retries.failed(asked, &contact);
            let began = Instant::now();
            tokio::join!(retries.rest(rest, &contact), async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                contact.answered();
            });
            assert_eq!(began.elapsed(), Duration::from_secs(3), "{asked:?}");
            for second in 1..=30 {
                retries.begins(&contact);
                let rest = retries.failed(asked, &contact);
                retries.rest(rest, &contact).await;
                assert_eq!(began.elapsed(), Duration::from_secs(3 + second), "{asked:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_return_between_the_failure_and_the_wait_is_not_missed() {
        let (contact, mut retries) = (Contact::default(), Retries::default());
        for _ in 0..10 {
            let _ = retries.failed(None, &contact);
        }
        retries.begins(&contact);
        contact.lose();
        contact.answered();
        let (rest, began) = (retries.failed(None, &contact), Instant::now());
        retries.rest(rest, &contact).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        // A return before the start of the try does not cut its wait short.
        retries.reset();
        retries.begins(&contact);
        let rest = retries.failed(None, &contact);
        retries.rest(rest, &contact).await;
        assert_eq!(began.elapsed(), BACKOFF.first);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_while_others_are_answered_waits_ever_longer() {
        let n_failures = n_failures(None).await;
        assert!((60..110).contains(&n_failures), "{n_failures} times in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_the_server_asks_for_does_not_end_early() {
        assert_eq!(n_failures(Some(Duration::from_secs(30))).await, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_expiry_of_a_watch_is_no_failure_and_those_right_after_it_are() {
        let mut retries = Retries::default();
        let mut check = |expected: u64| {
            let rest = retries.expired();
            assert_eq!(rest.wait, Duration::from_millis(expected));
            retries.reset();
        };
        check(0);
        check(200);
        check(400);
        tokio::time::advance(EXPIRY_INTERVAL).await;
        check(0);
    }
}
