//! Follows a kind that stands beside the world, or reads it once.
//!
//! The controller serves without such a kind. So the start waits for its first list only as long as that may come, and
//! whoever lacks the right to list it learns what is not done without it. Knows no policy.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{info, warn};

use super::backoff::Retries;
use super::client::{Clients, PAGE_SIZE, ReadError, WATCH_SECONDS};
use super::input::Input;
use super::watch::{Watches, answer, has_expired};

/// How long the start waits for a list that fails. The lists of the world fail no less then, and a server that starts
/// answers within it.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Objects of a kind beside the world: `K` as the server has them, `V` as the core knows them.
pub(super) struct Beside<K, V> {
    /// Where they are.
    pub(super) api: Api<K>,
    /// The same in an earlier version of their API, for a server that does not know the other.
    pub(super) earlier: Option<Api<K>>,
    /// The labels that they have, if not all objects of the kind are meant.
    pub(super) selector: Option<&'static str>,
    /// The kind, as the log and metrics name it.
    pub(super) kind: &'static str,
    /// What they are called where they can't be listed.
    pub(super) what: String,
    /// What is not done without them, for the log.
    pub(super) without: &'static str,
    /// The value of an object; `None` where nothing can be known of it.
    pub(super) value: fn(K) -> Option<V>,
    /// What it means that the server does not know the kind.
    pub(super) undefined: Undefined,
}

/// What it means that the server does not know a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undefined {
    /// Nothing is known of its objects.
    Unlisted,
    /// There are none.
    Empty,
}

/// What is told of such objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News<V> {
    /// They can't be listed, for this reason. Sent once at most, and before the first list.
    Unlisted(String),
    /// These are all.
    Listed(Vec<V>),
    /// One exists in this version.
    Applied(V),
    /// One was deleted, or is not meant any more. This was its last version.
    Deleted(V),
}

impl<K, V> Beside<K, V>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// All of them, page by page.
    pub(super) async fn read(&self, clients: &Clients) -> Result<Vec<V>, ReadError> {
        for api in self.apis() {
            match self.read_from(api, clients).await {
                Err(error) if self.are_none(error.answer()) => {}
                read => return read,
            }
        }
        Ok(Vec::new())
    }

    /// In each version of their API.
    fn apis(&self) -> impl Iterator<Item = &Api<K>> + Clone {
        [&self.api].into_iter().chain(&self.earlier)
    }

    async fn read_from(&self, api: &Api<K>, clients: &Clients) -> Result<Vec<V>, ReadError> {
        let mut params = ListParams::default().limit(PAGE_SIZE);
        params.label_selector = self.selector.map(str::to_owned);
        let mut found = Vec::new();
        loop {
            let page = clients.within_timeout(api.list(&params)).await?;
            found.extend(page.items.into_iter().filter_map(self.value));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Follows them without end, and tells the loop what `input` makes of the news.
    pub(super) async fn follow(&self, watches: &Watches, input: fn(News<V>) -> Input) -> anyhow::Result<()> {
        let mut config = watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
        config.label_selector = self.selector.map(str::to_owned);
        let contact = &watches.clients.contact;
        contact.standing.begins_to_follow(self.kind);
        let begin = |api: &Api<K>| watcher(api.clone(), config.clone()).boxed();
        let mut versions = self.apis().cycle();
        let mut api = &self.api;
        versions.next();
        let mut n_unknown = 0;
        let mut events = begin(api);
        let mut retries = Retries::default();
        let mut listed = Vec::new();
        let mut told = Told::NothingUntil(Instant::now() + PATIENCE);
        loop {
            retries.begins(contact);
            let news = match events.try_next().await {
                Ok(None) => return Ok(()),
                // Every list begins with `Init`, even one that fails.
                Ok(Some(Event::Init)) => {
                    listed.clear();
                    continue;
                }
                Ok(Some(Event::InitApply(object))) => {
                    listed.extend((self.value)(object));
                    continue;
                }
                Ok(Some(Event::InitDone)) => {
                    info!(
                        kind = self.kind,
                        objects = listed.len(),
                        namespace = self.api.namespace(),
                        "listed"
                    );
                    Some(News::Listed(std::mem::take(&mut listed)))
                }
                Ok(Some(Event::Apply(object))) => (self.value)(object).map(News::Applied),
                Ok(Some(Event::Delete(object))) => (self.value)(object).map(News::Deleted),
                Err(error) => {
                    let answer = answer(&error);
                    if self.are_none(answer) {
                        n_unknown += 1;
                        if let Some(other) = versions.next() {
                            api = other;
                            events = begin(api);
                        }
                        if n_unknown < self.apis().count() {
                            continue;
                        }
                    }
                    let rest = if self.are_none(answer) {
                        watches.undefined(self.kind, &mut retries)
                    } else if has_expired(&error) {
                        events = begin(api);
                        watches.expired(self.kind, &error, &mut retries)
                    } else {
                        watches.failed(self.kind, "watch failed", &error, answer, &mut retries)
                    };
                    if let Some(news) = self.news_of(&error, &mut told)
                        && watches.inputs.send(input(news)).await.is_err()
                    {
                        return Ok(());
                    }
                    retries.rest(rest, contact).await;
                    continue;
                }
            };
            retries.reset();
            n_unknown = 0;
            let Some(news) = news else { continue };
            told = Told::Some;
            if watches.inputs.send(input(news)).await.is_err() {
                return Ok(());
            }
        }
    }

    /// What a failure tells, if it is new.
    fn news_of(&self, error: &watcher::Error, told: &mut Told) -> Option<News<V>> {
        let answer = answer(error);
        if self.are_none(answer) {
            let is_new = *told != Told::None;
            *told = Told::None;
            return is_new.then(|| News::Listed(Vec::new()));
        }
        let Told::NothingUntil(end) = *told else { return None };
        // What nobody but an administrator can change, or one more after a long time of failures.
        let is_lasting = answer.is_some_and(|status| matches!(status.code, 401 | 403 | 404));
        if !is_lasting && Instant::now() < end {
            return None;
        }
        *told = Told::Some;
        let why = answer.map_or_else(|| error.to_string(), |status| status.message.clone());
        let why = format!("can't list {}: {why}", self.what);
        warn!(why, "{}", self.without);
        Some(News::Unlisted(why))
    }

    /// Whether a list was answered with the word that there is no such kind, and so no object of it.
    fn are_none(&self, answer: Option<&Status>) -> bool {
        self.undefined == Undefined::Empty
            && answer.is_some_and(|status| status.code == StatusCode::NOT_FOUND.as_u16())
    }
}

/// What the loop has been told, which waits for the first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing yet; if nothing is known at this time, that is told.
    NothingUntil(Instant),
    /// That nothing is known, or which there are.
    Some,
    /// That their kind is not defined, and so that there are none.
    None,
}

/// The words on objects that could not be read, for a command that goes on without them.
pub(super) fn unlisted(error: &anyhow::Error, without: &str) -> String {
    let why = format!("{error:#}");
    warn!(why, "{without}");
    why
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Value;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::super::client::tests::answered_by;
    use super::super::events::Events;
    use super::super::lead::Lead;
    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// What watches share that talk to this server, and what they tell the loop.
    pub(in super::super) fn watches_of(clients: Clients) -> (Watches, mpsc::Receiver<Input>) {
        let (inputs, told) = mpsc::channel(8);
        let metrics = Metrics::default();
        let watches = Watches {
            clients,
            timeline: std::sync::Arc::default(),
            inputs,
            events: Events::channel(metrics.clone(), Lead::unelected()).0,
            metrics,
            stop: CancellationToken::new(),
        };
        (watches, told)
    }

    /// Follows objects of a server that answers so, and returns what the loop is told first, and after how long.
    pub(in super::super) async fn first_input<F: Future<Output = anyhow::Result<()>>>(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
        follow: impl FnOnce(Watches) -> F,
    ) -> (Option<Input>, Duration) {
        let (clients, _) = answered_by(answer);
        let (watches, mut told) = watches_of(clients);
        let stop = watches.stop.clone();
        let began = Instant::now();
        let first = async {
            let input = told.recv().await;
            stop.cancel();
            (input, began.elapsed())
        };
        let (end, first) = tokio::join!(follow(watches), first);
        end.unwrap();
        first
    }
}
