//! The events that the controller makes, as `kubectl get events` has them: the latest in words, and a tally.

use std::collections::{BTreeMap, VecDeque};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::events::v1::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::task::JoinSet;

use crate::shared::Shared;
use crate::support::alarm::Bell;

/// How many lines are kept.
const LATEST: usize = 5;

/// The events so far, written by a watch of its own until this is dropped.
pub(crate) struct Events {
    reported: Shared<Reported>,
    _watch: JoinSet<()>,
}

#[derive(Default)]
struct Reported {
    latest: VecDeque<String>,
    by_reason: BTreeMap<String, usize>,
}

impl Events {
    /// Reads the events from now on, and rings for each.
    pub(crate) fn start(client: Client, bell: Bell) -> Self {
        let reported = Shared::<Reported>::default();
        let writer = reported.clone();
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let events = watcher(Api::<Event>::all(client), watcher::Config::default()).default_backoff();
            let events = events.touched_objects();
            pin_mut!(events);
            while let Some(event) = events.next().await {
                // A watch that breaks is started again; an event more or less is no reason to stop a demo.
                if let Ok(event) = event {
                    writer.lock().write(&event);
                    bell.ring();
                }
            }
        });
        Self { reported, _watch: watch }
    }

    /// The latest, oldest first.
    pub(crate) fn latest(&self) -> Vec<String> {
        self.reported.lock().latest.iter().cloned().collect()
    }

    /// How many there were of each reason.
    pub(crate) fn by_reason(&self) -> BTreeMap<String, usize> {
        self.reported.lock().by_reason.clone()
    }
}

impl Reported {
    fn write(&mut self, event: &Event) {
        let about = event.regarding.as_ref();
        let kind = about.and_then(|about| about.kind.as_deref()).unwrap_or("?");
        // The API server makes events about itself too.
        if !matches!(kind, "Node" | "NodeIPPool") {
            return;
        }
        let name = about.and_then(|about| about.name.as_deref()).unwrap_or("?");
        let reason = event.reason.as_deref().unwrap_or("?");
        *self.by_reason.entry(reason.to_owned()).or_default() += 1;
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        let note = event.note.as_deref().unwrap_or_default();
        // In this order a narrow terminal cuts the part of the line that it needs least.
        self.latest.push_back(format!("{name:<9}  {reason}: {note}"));
    }
}
