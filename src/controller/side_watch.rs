//! Follows a kind that is not part of the world, or reads it once.
//!
//! The controller serves without such a kind. So the start waits a limited time for its first list. An administrator
//! who has not granted the right to list it reads the consequence in the log. A kind of Cilium's is followed in the
//! newest version that the server serves. That version is looked up again when it is no longer served. Knows no
//! policy.

use std::fmt::Display;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use kube::api::{Api, ListParams};
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::Instant;
use tracing::{info, warn};

use super::backoff::Retries;
use super::client::{Clients, PAGE_SIZE, ReadError, WATCH_SECONDS};
use super::discovery::{Served, served};
use super::input::Input;
use super::watch::{Watches, answer, has_expired};
use crate::model::news::News;
use crate::wire::cilium_group::ApiVersion;
use crate::wire::side_watched::{SideKind, SideWatched};

/// How long the start waits for a list that fails. The lists of the world fail too in that time, and a server that
/// starts answers within it.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often in a row the server must say that it does not know a kind whose objects are known. One version of it may
/// replace another, and discovery is a step behind.
const UNKNOWN_TIMES: u32 = 2;

/// Objects of a kind beside the world, each with the value `V`.
pub(super) struct SideWatch<V> {
    /// Where they are.
    pub(super) source: Source<V>,
    /// The labels that they have, if not all objects of the kind are meant.
    pub(super) selector: Option<&'static str>,
    /// The kind, as the log and metrics name it.
    pub(super) kind: &'static str,
    /// Their name in the error that they can't be listed.
    pub(super) what: String,
    /// The consequence of missing objects, for the log.
    pub(super) without: &'static str,
}

/// Where the objects of a kind are.
pub(super) enum Source<V> {
    /// Every server should have them here. If one does not, they are unknown.
    Fixed(Box<Api<SideWatched<V>>>),
    /// The kind is Cilium's: here they are in the version that the server serves. If it serves none, there are none.
    Cilium {
        /// The name of the kind in paths.
        plural: &'static str,
        /// Where they are in a version.
        api: Box<dyn Fn(ApiVersion) -> Api<SideWatched<V>> + Send + Sync>,
    },
}

/// Where to look for objects.
struct Places<V> {
    /// In this order.
    apis: Vec<Api<SideWatched<V>>>,
    /// The meaning of a server that knows the kind at none of them.
    unknown: Unknown,
}

/// The meaning of a server that does not know a kind where it was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// The request has failed.
    Failure,
    /// There are no objects.
    NoObjects,
}

impl<V: Clone> Source<V> {
    async fn places(&self, clients: &Clients) -> Result<Places<V>, ReadError> {
        match self {
            Self::Fixed(api) => Ok(Places { apis: vec![Api::clone(api)], unknown: Unknown::Failure }),
            Self::Cilium { plural, api } => {
                let served = served(clients, plural).await?;
                let unknown = match served {
                    Served::In(_) => Unknown::Failure,
                    Served::Nowhere | Served::Unreported => Unknown::NoObjects,
                };
                Ok(Places { apis: served.versions().into_iter().map(api).collect(), unknown })
            }
        }
    }
}

/// Why a kind is not followed any more at one place.
enum End {
    /// The loop takes no news any more.
    Unheard,
    /// The watch has expired, and needs a new start.
    Expired,
    /// The server does not know the kind there.
    Unknown(watcher::Error),
}

/// One kind while it is followed: its failures so far, and the news that the loop has.
struct Following<'a, V> {
    watches: &'a Watches,
    input: fn(News<V>) -> Input,
    retries: Retries,
    reported: Reported,
    /// How often in a row the server has said that it does not know the kind.
    n_unknown: u32,
}

impl<V> Following<'_, V> {
    /// Sends news to the loop; returns whether it still takes them.
    async fn send(&self, news: News<V>) -> bool {
        self.watches.inputs.send((self.input)(news)).await.is_ok()
    }
}

impl<V: SideKind> SideWatch<V> {
    /// All of them, page by page.
    pub(super) async fn read(&self, clients: &Clients) -> Result<Vec<V>, ReadError> {
        let places = self.source.places(clients).await?;
        let mut unknown = None;
        for api in places.apis {
            match self.read_from(&api, clients).await {
                Err(error) if is_unknown(error.answer()) => unknown = Some(error),
                read => return read,
            }
        }
        match (places.unknown, unknown) {
            (Unknown::Failure, Some(error)) => Err(error),
            (Unknown::Failure | Unknown::NoObjects, _) => Ok(Vec::new()),
        }
    }

    /// The reason why they could not be read, for a command that continues without them.
    pub(super) fn unlisted(&self, error: &anyhow::Error) -> String {
        let why = format!("{error:#}");
        warn!(why, "{}", self.without);
        why
    }

    async fn read_from(&self, api: &Api<SideWatched<V>>, clients: &Clients) -> Result<Vec<V>, ReadError> {
        let mut params = ListParams::default().limit(PAGE_SIZE);
        params.label_selector = self.selector.map(str::to_owned);
        let mut found = Vec::new();
        loop {
            let page = clients.within_timeout(api.list(&params)).await?;
            found.extend(page.items.into_iter().filter_map(SideWatched::into_value));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Follows them until the watches are stopped, and sends the loop the news as the inputs that `input` returns.
    pub(super) async fn follow(&self, watches: &Watches, input: fn(News<V>) -> Input) -> anyhow::Result<()> {
        watches.stop.run_until_cancelled(self.follow_for_ever(watches, input)).await;
        Ok(())
    }

    async fn follow_for_ever(&self, watches: &Watches, input: fn(News<V>) -> Input) {
        watches.clients.connectivity.api_health.starts_to_follow(self.kind);
        let reported = Reported::NothingUntil(Instant::now() + PATIENCE);
        let mut following = Following { watches, input, retries: Retries::default(), reported, n_unknown: 0 };
        'places: loop {
            let places = match self.source.places(&watches.clients).await {
                Ok(places) => places,
                Err(error) => {
                    if !self.failed("discovery failed", &error, error.answer(), &mut following).await {
                        return;
                    }
                    continue;
                }
            };
            let mut unknown = None;
            for api in &places.apis {
                match self.follow_at(api, &mut following).await {
                    End::Unheard => return,
                    End::Expired => continue 'places,
                    End::Unknown(error) => unknown = Some(error),
                }
            }
            let still_hears = match (places.unknown, unknown) {
                (Unknown::Failure, Some(error)) => {
                    self.failed("watch failed", &error, answer(&error), &mut following).await
                }
                (Unknown::Failure | Unknown::NoObjects, _) => self.are_none(&mut following).await,
            };
            if !still_hears {
                return;
            }
        }
    }

    /// Follows them at one place, until that needs a new start.
    async fn follow_at(&self, api: &Api<SideWatched<V>>, following: &mut Following<'_, V>) -> End {
        let watches = following.watches;
        let mut config = watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
        config.label_selector = self.selector.map(str::to_owned);
        let mut events = watcher(api.clone(), config).boxed();
        let mut listed = Vec::new();
        loop {
            let news = match events.try_next().await {
                Ok(None) => return End::Unheard,
                // Every list starts with `Init`, even one that fails.
                Ok(Some(Event::Init)) => {
                    listed.clear();
                    continue;
                }
                Ok(Some(Event::InitApply(object))) => {
                    listed.extend(object.into_value());
                    continue;
                }
                Ok(Some(Event::InitDone)) => {
                    info!(kind = self.kind, objects = listed.len(), at = api.resource_url(), "listed");
                    Some(News::Listed(std::mem::take(&mut listed)))
                }
                Ok(Some(Event::Apply(object))) => object.into_value().map(News::Applied),
                Ok(Some(Event::Delete(object))) => object.into_value().map(News::Deleted),
                Err(error) if is_unknown(answer(&error)) => return End::Unknown(error),
                Err(error) if has_expired(&error) => {
                    tokio::time::sleep(watches.expired(self.kind, &error, &mut following.retries)).await;
                    return End::Expired;
                }
                Err(error) => {
                    if self.failed("watch failed", &error, answer(&error), following).await {
                        continue;
                    }
                    return End::Unheard;
                }
            };
            following.retries.reset();
            following.n_unknown = 0;
            let Some(news) = news else { continue };
            following.reported = Reported::Some;
            if !following.send(news).await {
                return End::Unheard;
            }
        }
    }

    /// A request has failed: reports that the objects can't be read, if that is new and will last, and waits. Returns
    /// whether the loop still takes news.
    async fn failed(
        &self,
        what: &str,
        error: &(dyn Display + Sync),
        answer: Option<&Status>,
        following: &mut Following<'_, V>,
    ) -> bool {
        let watches = following.watches;
        let wait = watches.failed(self.kind, what, error, answer, &mut following.retries);
        if let Reported::NothingUntil(end) = following.reported
            && (self.is_lasting(answer) || Instant::now() >= end)
        {
            following.reported = Reported::Some;
            let why = answer.map_or_else(|| error.to_string(), |status| status.message.clone());
            let why = format!("can't list {}: {why}", self.what);
            warn!(why, "{}", self.without);
            if !following.send(News::Unlisted(why)).await {
                return false;
            }
        }
        tokio::time::sleep(wait).await;
        true
    }

    /// Whether only an administrator can change this answer. Discovery may be a moment behind.
    fn is_lasting(&self, answer: Option<&Status>) -> bool {
        answer.is_some_and(|status| match self.source {
            Source::Fixed(_) => matches!(status.code, 401 | 403 | 404),
            Source::Cilium { .. } => matches!(status.code, 401 | 403),
        })
    }

    /// The server does not know the kind: reports that there are none, if that is new, and waits. Returns whether the
    /// loop still takes news.
    async fn are_none(&self, following: &mut Following<'_, V>) -> bool {
        let watches = following.watches;
        following.n_unknown = following.n_unknown.saturating_add(1);
        let wait = watches.undefined(self.kind, &mut following.retries);
        let is_news = match following.reported {
            Reported::NothingUntil(_) => true,
            Reported::Some => following.n_unknown >= UNKNOWN_TIMES,
            Reported::None => false,
        };
        if is_news {
            following.reported = Reported::None;
            if !following.send(News::Listed(Vec::new())).await {
                return false;
            }
        }
        tokio::time::sleep(wait).await;
        true
    }
}

/// Whether the server answers that it does not know the object of the request.
fn is_unknown(answer: Option<&Status>) -> bool {
    answer.is_some_and(|status| status.code == StatusCode::NOT_FOUND.as_u16())
}

/// The first news of the kind, for which the loop waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    /// Not sent yet. If nothing is known at this time, that is the news.
    NothingUntil(Instant),
    /// That the objects are unknown, or which there are.
    Some,
    /// That their kind is not defined, and so that there are none.
    None,
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Value;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::super::client::tests::answered_by;
    use super::super::events::{Events, Waiting};
    use super::super::lead::Lead;
    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// The shared parts of watches of this server, and the channels on which they send inputs and events.
    pub(in super::super) fn watches_of(clients: Clients) -> (Watches, mpsc::Receiver<Input>, Waiting) {
        let (inputs, reported) = mpsc::channel(100);
        let metrics = Metrics::default();
        let (events, waiting) = Events::channel(metrics.clone(), Lead::unelected());
        let timeline = std::sync::Arc::default();
        let watches = Watches { clients, timeline, inputs, events, metrics, stop: CancellationToken::new() };
        (watches, reported, waiting)
    }

    /// Follows objects of a server with these answers. Returns the first input of the loop, and how long it took.
    pub(in super::super) async fn first_input<F: Future<Output = anyhow::Result<()>>>(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
        follow: impl FnOnce(Watches) -> F,
    ) -> (Option<Input>, Duration) {
        let began = Instant::now();
        let mut inputs = inputs(1, answer, follow).await;
        (inputs.pop(), began.elapsed())
    }

    /// Follows objects of a server that answers so, and returns the first inputs of the loop, this many.
    pub(in super::super) async fn inputs<F: Future<Output = anyhow::Result<()>>>(
        count: usize,
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
        follow: impl FnOnce(Watches) -> F,
    ) -> Vec<Input> {
        let (clients, _) = answered_by(answer);
        let (watches, mut reported, _events) = watches_of(clients);
        let stop = watches.stop.clone();
        let first = async {
            let mut inputs = Vec::new();
            while inputs.len() < count {
                inputs.extend(reported.recv().await);
            }
            stop.cancel();
            inputs
        };
        let (end, inputs) = tokio::join!(follow(watches), first);
        end.unwrap();
        inputs
    }
}
