//! Tests of watches against a server that expires, fails and forbids, in a time that is advanced.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::client::tests::{Asked, NO_ANSWER, answered_by, list, refusal};
use super::super::events::{Event, Subject, Waiting};
use super::super::log_lines::LogLines;
use super::super::side_watch::tests::watches_of;
use super::*;
use crate::model::kind::Kind;
use crate::telemetry::event_reason::EventReason;
use crate::wire::{Claims, Nodes};

/// Watches of a server that answers so.
struct Rig {
    watches: Watches,
    inputs: mpsc::Receiver<Input>,
    reported: Waiting,
    asked: Asked,
    began: Instant,
}

impl Rig {
    /// A server that answers a request so, given its path and query and the time since the start.
    fn of(answer: impl Fn(&str, Duration) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let began = Instant::now();
        let (clients, asked) = answered_by(move |target| answer(target, began.elapsed()));
        let (watches, inputs, reported) = watches_of(clients);
        Self { watches, inputs, reported, asked, began }
    }

    /// Follows the Nodes for this time, and returns when each list of them arrived.
    async fn lists_within(&mut self, limit: Duration) -> Vec<Duration> {
        let watches = self.watches.clone();
        let mut lists = Vec::new();
        let taking_in = async {
            while let Some(input) = self.inputs.recv().await {
                if matches!(&input, Input::Observed(Observation::Listed(listing)) if listing.kind == Kind::Node)
                {
                    lists.push(self.began.elapsed());
                }
            }
            Ok(())
        };
        tokio::select! {
            end = Box::pin(watches.clone().follow::<Nodes>()) => panic!("{end:?}"),
            end = Box::pin(watches.guard_timeline::<Claims>()) => panic!("{end:?}"),
            end = taking_in => { let end: anyhow::Result<()> = end; panic!("{end:?}") }
            () = tokio::time::sleep(limit) => {}
        }
        lists
    }

    fn n_lists_asked_for(&self) -> usize {
        self.asked.lock().unwrap().iter().filter(|path| path.starts_with("nodes?&limit=100")).count()
    }

    fn lines(&self) -> Vec<String> {
        self.watches.clients.connectivity.api_health.lines()
    }
}

fn is_watch(target: &str) -> bool {
    target.contains("watch=true")
}

/// The event that closes a watch whose revision the server no longer has.
fn expiry() -> (u16, Value) {
    (200, json!({"type": "ERROR", "object": refusal(410).1}))
}

/// A watch that the server accepts, and on which it shows that it has come this far.
fn bookmark() -> (u16, Value) {
    let object =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": "8", "annotations": {}}});
    (200, json!({"type": "BOOKMARK", "object": object}))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_is_news_and_lists_again_at_once() {
    for expired in [expiry(), refusal(410)] {
        let is_first = AtomicBool::new(true);
        let mut rig = Rig::of(move |target, _| match target {
            _ if !is_watch(target) => (200, list(7, &[], "")),
            _ if is_first.swap(false, Ordering::SeqCst) => expired.clone(),
            _ => (NO_ANSWER, Value::Null),
        });
        let lists = rig.lists_within(seconds(5)).await;
        assert_eq!(lists, [Duration::ZERO; 2]);
        let text = rig.watches.metrics.text();
        assert!(text.contains("watch_errors_total{kind=\"Node\"} 0"), "{text}");
    }
}

/// kube lists again by itself where the version is missing, but not where it is no number.
#[tokio::test(start_paused = true)]
async fn a_deletion_whose_version_is_no_number_lists_again_at_once_and_then_ever_more_seldom() {
    let deletion = || {
        // The type comes first, as the server writes it: the rest is decoded by it.
        let text = r#"{"type":"DELETED","object":{"metadata":{"name":"a","uid":"u","resourceVersion":"x"}}}"#;
        (200, json!(text))
    };
    let is_first = AtomicBool::new(true);
    let mut once = Rig::of(move |target, _| match target {
        _ if !is_watch(target) => (200, list(7, &[], "")),
        _ if is_first.swap(false, Ordering::SeqCst) => deletion(),
        _ => (NO_ANSWER, Value::Null),
    });
    assert_eq!(once.lists_within(seconds(5)).await, [Duration::ZERO; 2]);

    let mut always =
        Rig::of(move |target, _| if is_watch(target) { deletion() } else { (200, list(7, &[], "")) });
    let n_lists = always.lists_within(seconds(60)).await.len();
    assert!((12..=20).contains(&n_lists), "{n_lists} in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_expires_right_after_each_list_lists_ever_more_seldom() {
    let mut rig = Rig::of(|target, _| if is_watch(target) { expiry() } else { (200, list(7, &[], "")) });
    let n_lists = rig.lists_within(seconds(60)).await.len();
    assert!((12..=20).contains(&n_lists), "{n_lists} in a minute");
}

/// When the Nodes are listed after an outage of this length, counted from the answer 200 to such a list. A server that
/// starts answers 503 while its paths are not installed, then 429 while the store of a kind initializes.
async fn listed_after(outage: Duration) -> Duration {
    let initializing = || {
        let (code, mut status) = refusal(429);
        status["details"] = json!({"retryAfterSeconds": 1});
        (code, status)
    };
    let serves = outage + seconds(9);
    let mut rig = Rig::of(move |target, time| match target {
        _ if time < outage + seconds(4) => refusal(503),
        _ if target.contains("/nodes?") && time < serves => initializing(),
        _ if is_watch(target) => (NO_ANSWER, Value::Null),
        _ => (200, list(7, &[], "")),
    });
    let lists = rig.lists_within(serves + seconds(30)).await;
    let [listed] = lists[..] else { panic!("{lists:?}") };
    let n_asked = rig.asked.lock().unwrap().len();
    assert!(n_asked < 30, "asked {n_asked} times");
    listed.saturating_sub(serves)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_returns_is_used_again_within_six_seconds() {
    let mut slowest = Duration::ZERO;
    // Wherever the return is in the waits between two tries.
    for tenths in 150..300 {
        slowest = slowest.max(listed_after(Duration::from_millis(100 * tenths)).await);
    }
    assert!(slowest <= seconds(6), "{slowest:?}");
    assert!(slowest > seconds(4), "{slowest:?}: no return was in a long wait");
}

/// It answers the small lists of all others.
#[tokio::test(start_paused = true)]
async fn a_kind_that_alone_fails_is_asked_every_five_seconds() {
    let mut rig =
        Rig::of(
            |target, _| {
                if target.contains("/nodes?&limit=100") { refusal(500) } else { (200, list(7, &[], "")) }
            },
        );
    assert!(rig.lists_within(seconds(600)).await.is_empty());
    let n_lists = rig.n_lists_asked_for();
    assert!((110..135).contains(&n_lists), "{n_lists} in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_forbidden_is_reported_until_it_is_allowed() {
    let is_first = AtomicBool::new(true);
    let mut rig = Rig::of(move |target, time| match target {
        _ if is_watch(target) && is_first.swap(false, Ordering::SeqCst) => bookmark(),
        _ if is_watch(target) => (NO_ANSWER, Value::Null),
        _ if target.contains("/nodes?") && time < seconds(45) => refusal(403),
        _ => (200, list(7, &[], "")),
    });
    assert!(rig.lists_within(seconds(40)).await.is_empty());
    let [lapse, forbidden] = &rig.lines()[..] else { panic!("{:?}", rig.lines()) };
    assert_eq!(lapse, "no watch of Node for 40 s: refused with 403 (403)");
    let rule = "{apiGroups: [\"\"], resources: [\"nodes\"], verbs: [\"list\"]}";
    assert!(forbidden.starts_with("forbidden (403) for 40 s: list nodes: "), "{forbidden}");
    assert!(forbidden.contains(rule), "{forbidden}");
    let Some(Event { subject, reason, note, .. }) = rig.reported.next().await else { panic!("no event") };
    assert_eq!((subject, reason), (Subject::ClusterRole, EventReason::ReadForbidden));
    assert!(
        note.starts_with("the controller is not allowed to list nodes: ") && note.contains(rule),
        "{note}"
    );

    assert_eq!(rig.lists_within(seconds(60)).await.len(), 1);
    assert_eq!(rig.lines(), [""; 0]);
}

/// Checks the lines within 5 s if the server answers lists of Nodes and watches of them so for half a second. After
/// that it accepts a watch.
async fn check_lines(list_answer: (u16, Value), watch_answer: (u16, Value), expected: &[&str]) {
    const OUTAGE: Duration = Duration::from_millis(500);
    let captured = LogLines::capture();
    let is_accepted = AtomicBool::new(false);
    let mut rig = Rig::of(move |target, time| match target {
        _ if is_watch(target) && time < OUTAGE => watch_answer.clone(),
        _ if is_watch(target) && !is_accepted.swap(true, Ordering::SeqCst) => bookmark(),
        _ if is_watch(target) => (NO_ANSWER, Value::Null),
        _ if target.contains("/nodes?") && time < OUTAGE => list_answer.clone(),
        _ => (200, list(7, &[], "")),
    });
    rig.lists_within(seconds(5)).await;
    assert_eq!(captured.take().lines().collect::<Vec<_>>(), expected);
}

const LISTED: &str = " INFO listed kind=\"Node\" objects=0";

#[tokio::test(start_paused = true)]
async fn lines_say_for_how_long_a_kind_could_not_be_listed() {
    let failed = " WARN list failed kind=\"Node\" error=\"refused with 503 (503)\"";
    let expected = [
        &format!("{failed} retry_in=200ms not_followed_for=0ns"),
        &format!("{failed} retry_in=400ms not_followed_for=200ms"),
        LISTED,
        " INFO watching again kind=\"Node\" after=600ms",
    ];
    check_lines(refusal(503), bookmark(), &expected).await;
}

#[tokio::test(start_paused = true)]
async fn lines_say_for_how_long_the_watches_of_a_kind_expired() {
    let answer = refusal(410);
    let status = serde_json::from_value(answer.1.clone()).unwrap();
    let error = watcher::Error::WatchStartFailed(kube::Error::Api(status));
    let expired = format!(" INFO the watch expired: listing again kind=\"Node\" error={error}");
    let expected = [
        LISTED,
        &format!("{expired} list_in=0ns not_followed_for=0ns"),
        LISTED,
        &format!("{expired} list_in=200ms not_followed_for=0ns"),
        LISTED,
        &format!("{expired} list_in=400ms not_followed_for=200ms"),
        LISTED,
        " INFO watching again kind=\"Node\" after=600ms",
    ];
    check_lines((200, list(7, &[], "")), answer, &expected).await;
}
