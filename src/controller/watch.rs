//! The watch of one kind: lists, then follows without end, and sends the loop what the server shows, in its order.
//!
//! A list reaches the loop only when it is complete, so the model is replaced and never cleared. The watch has its own
//! back-off, because kube's is reset whenever a list begins, even one that fails.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::backoff::Retries;
use super::client::{Clients, PAGE_SIZE, ReadError, WATCH_SECONDS};
use super::input::Input;
use super::retry_after;
use super::timeline::Timeline;
use crate::model::observation::{Listing, Object, Observation};
use crate::model::revision::Revision;
use crate::telemetry::metrics::Metrics;
use crate::wire::watched::{Watched, Wire};

/// What the watches share.
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
    /// Ends the watch.
    pub stop: CancellationToken,
}

impl Watches {
    /// Watches one kind until told to stop. After an error the process has to end.
    pub async fn follow<W: Wire>(self) -> anyhow::Result<()> {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.follow_for_ever::<W>()).await.unwrap_or(Ok(()))
    }

    async fn follow_for_ever<W: Wire>(self) -> anyhow::Result<()> {
        let api: Api<Watched<W>> = Api::all(self.clients.reads.clone());
        let config = watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
        let mut events = watcher(api, config).boxed();
        let mut retries = Retries::default();
        let mut listed: Vec<Object> = Vec::new();
        let mut at_least = None;
        while let Some(event) = events.next().await {
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
                    // Every list begins with `Init`.
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
                            "a deletion without a version; listing again will show it"
                        );
                        continue;
                    };
                    Observation::Deleted { kind: W::KIND, name: object.name(), revision }
                }
                Err(error) => {
                    let wait = retries.next_wait(asked_by(&error));
                    self.metrics.watch_failed(W::KIND);
                    warn!(kind = W::KIND.as_str(), %error, retry_in = ?wait, "watch failed");
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
        Ok(())
    }

    /// The revision that the store has reached; asks until there is an answer.
    async fn revision<W: Wire>(&self) -> anyhow::Result<Revision<W::Store>> {
        let mut retries = Retries::default();
        loop {
            match self.clients.revision::<W>(&self.timeline).await {
                Ok(revision) => return Ok(revision),
                Err(ReadError::StoreRewound(error)) => return Err(error.into()),
                Err(error) => {
                    let wait = retries.next_wait(error.asked_wait());
                    self.metrics.watch_failed(W::KIND);
                    warn!(kind = W::KIND.as_str(), %error, retry_in = ?wait, "list failed");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Checks once per minute whether the store went back (safety rule 8). The watches may not notice: a watch from a
    /// revision that the store no longer knows is silent.
    pub async fn guard_timeline<W: Wire>(self) -> anyhow::Result<()> {
        let stop = self.stop.clone();
        let guard = async {
            let mut interval = tokio::time::interval(Duration::from_secs(60));
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                if let Err(ReadError::StoreRewound(error)) = self.clients.revision::<W>(&self.timeline).await
                {
                    return Err(error.into());
                }
            }
        };
        stop.run_until_cancelled(guard).await.unwrap_or(Ok(()))
    }
}

/// The wait that the server asks for in the answer to a list or to the start of a watch.
fn asked_by(error: &watcher::Error) -> Option<Duration> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => retry_after::asked_by(error),
        watcher::Error::WatchError(status) => retry_after::asked_for(status),
        watcher::Error::NoResourceVersion => None,
    }
}

/// The next event of a watch; waits longer after each failure in a row. For kinds that are not part of the world.
pub(super) async fn next_event<K, S>(events: &mut S, retries: &mut Retries, what: &str) -> Option<Event<K>>
where
    S: futures::Stream<Item = Result<Event<K>, watcher::Error>> + Unpin,
{
    loop {
        match events.try_next().await {
            Ok(event) => {
                // Every list begins with `Init`, even one that fails.
                if !matches!(event, Some(Event::Init)) {
                    retries.reset();
                }
                return event;
            }
            Err(error) => {
                let wait = retries.next_wait(asked_by(&error));
                warn!(%error, retry_in = ?wait, "watch of {what} failed");
                tokio::time::sleep(wait).await;
            }
        }
    }
}
