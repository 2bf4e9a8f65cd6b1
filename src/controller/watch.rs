//! The watch of one kind: lists, then follows without end, and sends the loop the observations in the server's order.
//!
//! A list reaches the loop only when it is complete, so the model is replaced and never cleared. The watch has its
//! own back-off, because kube's is reset whenever a list starts, even one that fails.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use kube::api::Api;
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::backoff::Retries;
use super::client::{Clients, PAGE_SIZE, ReadError, WATCH_SECONDS, words_of_answer};
use super::events::Events;
use super::forbidden;
use super::input::Input;
use super::retry_after;
use super::timeline::Timeline;
use crate::model::observation::{Listing, Object, Observation};
use crate::model::revision::Revision;
use crate::telemetry::metrics::Metrics;
use crate::wire::watched::{Watched, Wire};

/// How often it is checked whether the store went back. This alone notices a server that sends nothing any more, and
/// well within the time after which the controller counts as not ready.
const GUARD_INTERVAL: Duration = Duration::from_secs(20);

/// The parts that the watches share.
#[derive(Clone)]
pub struct Watches {
    /// The clients.
    pub clients: Clients,
    /// The revisions seen.
    pub timeline: Arc<Timeline>,
    /// Where observations are sent.
    pub inputs: mpsc::Sender<Input>,
    /// Where lists and errors are counted.
    pub metrics: Metrics,
    /// The events that say that the server forbids to list or watch.
    pub events: Events,
    /// Stops the watch.
    pub stop: CancellationToken,
}

impl Watches {
    /// Watches one kind until it is stopped. After an error the process has to exit.
    pub async fn follow<W: Wire>(self) -> anyhow::Result<()> {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.follow_for_ever::<W>()).await.unwrap_or(Ok(()))
    }

    async fn follow_for_ever<W: Wire>(self) -> anyhow::Result<()> {
        let api: Api<Watched<W>> = Api::all(self.clients.reads.clone());
        let config = watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
        let mut events = watcher(api.clone(), config.clone()).boxed();
        let mut retries = Retries::default();
        let mut listed: Vec<Object> = Vec::new();
        let mut at_least = None;
        loop {
            let Some(event) = events.next().await else { return Ok(()) };
            let observation = match event {
                Ok(Event::Init) => {
                    listed.clear();
                    at_least = Some(self.revision::<W>().await?);
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    let object = object.into_object();
                    self.timeline.saw_object(&object);
                    listed.push(object);
                    continue;
                }
                Ok(Event::InitDone) => {
                    // Every list starts with `Init`.
                    let Some(at_least) = at_least.take() else { continue };
                    let at_most = self.revision::<W>().await?;
                    self.metrics.listed(W::KIND);
                    info!(kind = W::KIND.as_str(), objects = listed.len(), "listed");
                    let objects = std::mem::take(&mut listed);
                    let (at_least, at_most) = (at_least.into(), at_most.into());
                    Observation::Listed(Listing { kind: W::KIND, at_least, at_most, objects })
                }
                Ok(Event::Apply(object)) => {
                    let object = object.into_object();
                    self.timeline.saw_object(&object);
                    Observation::Applied(Box::new(object))
                }
                Ok(Event::Delete(object)) => {
                    let object = object.into_object();
                    self.timeline.saw_object(&object);
                    let Some(revision) = object.revision() else {
                        warn!(
                            kind = W::KIND.as_str(),
                            name = object.name(),
                            "the watch sent a deletion with a version that is no number; listing again"
                        );
                        tokio::time::sleep(retries.expired()).await;
                        // The world can't order such a deletion among other news. A list shows that the object is gone.
                        events = watcher(api.clone(), config.clone()).boxed();
                        continue;
                    };
                    Observation::Deleted { kind: W::KIND, name: object.name(), revision }
                }
                Err(error) if has_expired(&error) => {
                    tokio::time::sleep(self.expired(W::KIND.as_str(), &error, &mut retries)).await;
                    // By itself the stream lists again only where a watch that had started expires.
                    events = watcher(api.clone(), config.clone()).boxed();
                    continue;
                }
                Err(error) => {
                    self.metrics.watch_failed(W::KIND);
                    let wait =
                        self.failed(W::KIND.as_str(), "watch failed", &error, answer(&error), &mut retries);
                    tokio::time::sleep(wait).await;
                    if !W::GROUP.is_empty() {
                        // A store is restored while its servers are down, and a watch that continues afterwards may
                        // be silent.
                        self.revision::<W>().await?;
                    }
                    continue;
                }
            };
            retries.reset();
            if self.inputs.send(Input::Observed(observation)).await.is_err() {
                return Ok(());
            }
        }
    }

    /// The revision that the store has reached; asks until there is an answer.
    async fn revision<W: Wire>(&self) -> anyhow::Result<Revision<W::Store>> {
        let mut retries = Retries::default();
        loop {
            match self.clients.revision::<W>(&self.timeline).await {
                Ok(revision) => return Ok(revision),
                Err(ReadError::StoreRewound(error)) => return Err(error.into()),
                Err(error) => {
                    self.metrics.watch_failed(W::KIND);
                    let wait =
                        self.failed(W::KIND.as_str(), "list failed", &error, error.answer(), &mut retries);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// A watch or list of a kind has failed, with this answer if the server gave one: how long to wait.
    pub(super) fn failed(
        &self,
        kind: &'static str,
        what: &str,
        error: &dyn std::fmt::Display,
        answer: Option<&Status>,
        retries: &mut Retries,
    ) -> Duration {
        let api_health = &self.clients.connectivity.api_health;
        let wait = retries.failed(answer.and_then(retry_after::asked_for));
        // kube's errors show a whole `Status`.
        let error = answer.map_or_else(|| error.to_string(), words_of_answer);
        let not_followed_for = api_health.lapsed(kind, error.clone());
        warn!(kind, error, retry_in = ?wait, ?not_followed_for, "{what}");
        if let Some(event) = forbidden::event_of_reads(api_health) {
            self.events.report(event);
        }
        wait
    }

    /// The server does not know a kind, and so there is no object of it: how long to wait before it is asked again.
    pub(super) fn undefined(&self, kind: &'static str, retries: &mut Retries) -> Duration {
        let wait = retries.failed(None);
        self.clients.connectivity.api_health.follows(kind);
        debug!(kind, retry_in = ?wait, "the server does not know this kind: is its CRD installed?");
        wait
    }

    /// A watch has expired, as after an outage: how long to wait before the next list.
    pub(super) fn expired(
        &self,
        kind: &'static str,
        error: &watcher::Error,
        retries: &mut Retries,
    ) -> Duration {
        let wait = retries.expired();
        let not_followed_for = self.clients.connectivity.api_health.lapsed(kind, error.to_string());
        info!(kind, %error, list_in = ?wait, ?not_followed_for, "the watch expired: listing again");
        wait
    }

    /// Checks three times per minute whether the store went back (safety rule 8). The watches may not notice: a watch
    /// from a revision that the store no longer knows is silent.
    pub async fn guard_timeline<W: Wire>(self) -> anyhow::Result<()> {
        let stop = self.stop.clone();
        let guard = async {
            loop {
                tokio::time::sleep(GUARD_INTERVAL).await;
                if let Err(ReadError::StoreRewound(error)) = self.clients.revision::<W>(&self.timeline).await
                {
                    return Err(error.into());
                }
            }
        };
        stop.run_until_cancelled(guard).await.unwrap_or(Ok(()))
    }
}

/// The answer of the server to a list or to a watch, if there was one.
pub(super) fn answer(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// Whether the server no longer has the revision that was asked for. That is news: the changes since are listed.
pub(super) fn has_expired(error: &watcher::Error) -> bool {
    answer(error).is_some_and(|status| status.code == StatusCode::GONE.as_u16())
}

/// The next event of a watch of a kind that is not part of the world; waits longer after each failure in a row. The
/// closure starts the watch, and starts it anew when it has expired.
pub(super) async fn next_event<K, S>(
    watches: &Watches,
    begin: impl Fn() -> S,
    events: &mut S,
    retries: &mut Retries,
    kind: &'static str,
) -> Option<Event<K>>
where
    S: futures::Stream<Item = Result<Event<K>, watcher::Error>> + Unpin,
{
    loop {
        match events.try_next().await {
            Ok(event) => {
                // Every list starts with `Init`, even one that fails.
                if !matches!(event, Some(Event::Init)) {
                    retries.reset();
                }
                return event;
            }
            Err(error) => {
                let wait = if has_expired(&error) {
                    *events = begin();
                    watches.expired(kind, &error, retries)
                } else {
                    watches.failed(kind, "watch failed", &error, answer(&error), retries)
                };
                tokio::time::sleep(wait).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
