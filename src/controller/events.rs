//! Creates Kubernetes events on Nodes and pools, for people who look with `kubectl describe`.
//!
//! One task behind a bounded channel. It never blocks or fails the loop: an event that finds the channel full, or
//! that the server does not accept, is counted and dropped. The log has everything.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::client::FIELD_MANAGER;
use super::lead::Lead;
use crate::model::finding::Tone;
use crate::model::names::{NodeName, PoolName, Uid};
use crate::model::printable::printable;
use crate::telemetry::event_reason::{EventFate, EventReason};
use crate::telemetry::metrics::Metrics;
use crate::wire::{GROUP, VERSION};

/// How many events of each kind may wait. The start of a cluster of a thousand nodes brings one per node; more are
/// not worth the memory, and are dropped.
pub const CAPACITY: usize = 1024;
/// The shortest time between two events of one reason on one object about the same.
pub const INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The pause after each event: at most 20 per second, which is little beside the writes of a starting cluster, two per
/// node and hundreds per second.
const PAUSE: Duration = Duration::from_millis(50);

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A Node of this uid.
    Node(NodeName, Uid),
    /// A pool of this uid.
    Pool(PoolName, Uid),
    /// The `ClusterRole` of the controller, under the name that the manifests give it.
    ClusterRole,
}

impl Subject {
    fn reference(&self) -> ObjectReference {
        let (kind, api_version, name, uid) = match self {
            Self::Node(name, uid) => ("Node", "v1".to_owned(), name.as_str(), Some(uid)),
            Self::Pool(name, uid) => ("NodeIPPool", format!("{GROUP}/{VERSION}"), name.as_str(), Some(uid)),
            Self::ClusterRole => {
                ("ClusterRole", "rbac.authorization.k8s.io/v1".to_owned(), FIELD_MANAGER, None)
            }
        };
        ObjectReference {
            kind: Some(kind.to_owned()),
            api_version: Some(api_version),
            name: Some(name.to_owned()),
            uid: uid.map(|uid| uid.as_str().to_owned()),
            ..ObjectReference::default()
        }
    }
}

/// An event to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its object.
    pub subject: Subject,
    /// Its reason.
    pub reason: EventReason,
    /// A sentence for a person.
    pub note: String,
    /// The topic beside the object, such as blocks: events of one reason about different topics are kept apart.
    pub about: String,
}

/// The sending end of the channel. It never waits.
#[derive(Debug, Clone)]
pub struct Events {
    cluster: mpsc::Sender<Event>,
    warnings: mpsc::Sender<Event>,
    normal: mpsc::Sender<Event>,
    metrics: Metrics,
    /// A standby creates no event: the leader does.
    lead: Lead,
}

/// The receiving end of the channel. Events about pools and the whole cluster come first, then warnings. The news
/// that a pool is full must not wait behind a thousand events on nodes. Events that still wait when the process exits
/// are lost.
#[derive(Debug)]
pub struct Waiting {
    cluster: mpsc::Receiver<Event>,
    warnings: mpsc::Receiver<Event>,
    normal: mpsc::Receiver<Event>,
}

impl Events {
    /// A channel: the sending end, and the receiving end for [`record`].
    #[must_use]
    pub fn channel(metrics: Metrics, lead: Lead) -> (Self, Waiting) {
        let (cluster, waiting_cluster) = mpsc::channel(CAPACITY);
        let (warnings, waiting_warnings) = mpsc::channel(CAPACITY);
        let (normal, waiting_normal) = mpsc::channel(CAPACITY);
        let waiting =
            Waiting { cluster: waiting_cluster, warnings: waiting_warnings, normal: waiting_normal };
        (Self { cluster, warnings, normal, metrics, lead }, waiting)
    }

    /// Queues an event, while this process leads. It is dropped and counted when too many of its kind wait.
    pub fn report(&self, event: Event) {
        if !self.lead.holds() {
            return;
        }
        let reason = event.reason;
        let lane = match (&event.subject, reason.tone()) {
            (Subject::Pool(..) | Subject::ClusterRole, _) => &self.cluster,
            (Subject::Node(..), Tone::Warning) => &self.warnings,
            (Subject::Node(..), Tone::Normal) => &self.normal,
        };
        if lane.try_send(event).is_err() {
            self.metrics.event(reason, EventFate::Dropped);
        }
    }
}

impl Waiting {
    /// The next event, or `None` when no sender is left.
    pub(super) async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            Some(event) = self.cluster.recv() => Some(event),
            Some(warning) = self.warnings.recv() => Some(warning),
            Some(normal) = self.normal.recv() => Some(normal),
            else => None,
        }
    }
}

/// Creates events until no sender is left, or the future is dropped.
pub async fn record(
    client: Client,
    timeout: Duration,
    mut waiting: Waiting,
    metrics: Metrics,
) -> anyhow::Result<()> {
    // In a pod the host name is the name of the pod.
    let reporter =
        Reporter { instance: Reporter::from(FIELD_MANAGER).instance, controller: FIELD_MANAGER.to_owned() };
    let mut recently = Recently::default();
    let mut warned = false;
    while let Some(event) = waiting.next().await {
        if !recently.admits(&event, Instant::now()) {
            metrics.event(event.reason, EventFate::Suppressed);
            continue;
        }
        // A new recorder each time: one that has seen a reason before repeats the note that it had then.
        let recorder = Recorder::new(client.clone(), reporter.clone());
        let kube_event = KubeEvent {
            type_: match event.reason.tone() {
                Tone::Normal => EventType::Normal,
                Tone::Warning => EventType::Warning,
            },
            reason: event.reason.as_str().to_owned(),
            note: Some(shown(&event.note)),
            action: event.reason.action().to_owned(),
            secondary: None,
        };
        let reference = event.subject.reference();
        let failure = match tokio::time::timeout(timeout, recorder.publish(&kube_event, &reference)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {}", humantime::format_duration(timeout))),
        };
        if failure.is_none() {
            recently.created(&event, Instant::now());
        }
        metrics.event(event.reason, if failure.is_none() { EventFate::Created } else { EventFate::Failed });
        if let Some(why) = failure {
            if warned {
                debug!(reason = event.reason.as_str(), why, "event not created");
            } else {
                warn!(
                    reason = event.reason.as_str(),
                    why, "event not created; the log omits further failures, the metrics count them"
                );
                warned = true;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// The note as people read it. The API server takes notes of at most 1 kB.
fn shown(note: &str) -> String {
    const MOST: usize = 1023;
    let note = printable(note);
    let end = (0..=note.len().min(MOST)).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
    note[..end].to_owned()
}

/// When an event of each reason was last created on each object, about each topic.
#[derive(Debug, Default)]
struct Recently {
    last: BTreeMap<(Subject, EventReason, String), Instant>,
    swept: Option<Instant>,
}

impl Recently {
    /// Whether the event may be created now.
    fn admits(&mut self, event: &Event, now: Instant) -> bool {
        let is_recent = |made: &Instant| now.saturating_duration_since(*made) < INTERVAL;
        // Once per interval: the map never holds more than the events of two intervals.
        if !self.swept.as_ref().is_some_and(is_recent) {
            self.last.retain(|_, made| is_recent(made));
            self.swept = Some(now);
        }
        !self.last.get(&Self::key(event)).is_some_and(is_recent)
    }

    /// The event was created. An event that failed does not suppress the next of its kind, which may be the first
    /// that exists.
    fn created(&mut self, event: &Event, now: Instant) {
        self.last.insert(Self::key(event), now);
    }

    fn key(event: &Event) -> (Subject, EventReason, String) {
        (event.subject.clone(), event.reason, event.about.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(node: &str, reason: EventReason) -> Event {
        let subject = Subject::Node(node.into(), "u".into());
        Event { subject, reason, note: String::new(), about: String::new() }
    }

    /// Creates the event if it may be created; returns whether.
    fn is_reported(recently: &mut Recently, event: &Event, now: Instant) -> bool {
        let admitted = recently.admits(event, now);
        if admitted {
            recently.created(event, now);
        }
        admitted
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_could_not_be_created_holds_none_back() {
        let tried = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = tried.clone();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("away")))
        });
        let metrics = Metrics::default();
        let (events, waiting) = Events::channel(metrics.clone(), Lead::unelected());
        for _ in 0..2 {
            events.report(event("a", EventReason::NoCapacity));
        }
        drop(events);
        record(Client::new(service, "default"), Duration::from_secs(10), waiting, metrics).await.unwrap();
        assert_eq!(tried.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    #[test]
    fn a_reason_on_an_object_is_told_once_in_five_minutes() {
        let mut recently = Recently::default();
        let start = Instant::now();
        let mut check = |node, reason, after, admitted| {
            assert_eq!(
                is_reported(&mut recently, &event(node, reason), start + Duration::from_secs(after)),
                admitted
            );
        };
        check("a", EventReason::NoCapacity, 0, true);
        check("a", EventReason::NoCapacity, 299, false);
        check("a", EventReason::BlocksPublished, 299, true);
        check("b", EventReason::NoCapacity, 299, true);
        check("a", EventReason::NoCapacity, 300, true);
        check("a", EventReason::NoCapacity, 599, false);
        assert_eq!(recently.last.len(), 3);
        assert!(is_reported(
            &mut recently,
            &event("c", EventReason::NoCapacity),
            start + Duration::from_secs(1200)
        ));
        assert_eq!(recently.last.len(), 1, "what is long ago is forgotten");
    }

    #[test]
    fn events_about_different_blocks_are_kept_apart() {
        let mut recently = Recently::default();
        let now = Instant::now();
        let published =
            |about: &str| Event { about: about.to_owned(), ..event("a", EventReason::BlocksPublished) };
        assert!(is_reported(&mut recently, &published("10.0.0.0/28"), now));
        assert!(is_reported(&mut recently, &published("10.0.0.16/28"), now));
        assert!(!is_reported(&mut recently, &published("10.0.0.0/28"), now));
    }

    #[test]
    fn a_full_channel_drops_and_counts() {
        let metrics = Metrics::default();
        let (events, _waiting) = Events::channel(metrics.clone(), Lead::unelected());
        for _ in 0..CAPACITY + 3 {
            events.report(event("a", EventReason::NoCapacity));
        }
        let line = "cilium_node_ipam_events_total{reason=\"NoCapacity\",outcome=\"dropped\"} 3";
        assert!(metrics.text().lines().any(|found| found == line), "{}", metrics.text());
    }

    #[tokio::test]
    async fn events_of_pools_are_sent_first_and_then_warnings() {
        let (events, mut waiting) = Events::channel(Metrics::default(), Lead::unelected());
        for node in ["a", "b"] {
            events.report(event(node, EventReason::BlocksPublished));
        }
        events.report(event("c", EventReason::NoCapacity));
        let full =
            Event { subject: Subject::Pool("p".into(), "u".into()), ..event("", EventReason::Exhausted) };
        events.report(full.clone());
        drop(events);
        let mut reported = Vec::new();
        while let Some(event) = waiting.next().await {
            reported.push(event);
        }
        let expected = [
            full,
            event("c", EventReason::NoCapacity),
            event("a", EventReason::BlocksPublished),
            event("b", EventReason::BlocksPublished),
        ];
        assert_eq!(reported, expected);
    }

    #[test]
    fn a_note_is_cut_between_characters() {
        let note = "é".repeat(600);
        assert_eq!(shown(&note), "é".repeat(511));
        assert_eq!(shown("short"), "short");
    }

    #[test]
    fn a_note_shows_escapes() {
        assert_eq!(shown("a\u{1b}[2J\n\u{9b}\u{202e}"), r"a\u{1b}[2J\n\u{9b}\u{202e}");
    }
}
