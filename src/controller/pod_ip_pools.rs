//! Follows CiliumPodIPPools where blocks are carried under their names, or reads them once.
//!
//! The controller serves without them, as it does without the agents' Pods. Where Cilium's operator has not installed their
//! definition, there are none. Knows no policy.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use kube::api::{Api, ListParams};
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::backoff::Retries;
use super::client::{Clients, PAGE_SIZE, ReadError, WATCH_SECONDS};
use super::input::Input;
use super::watch::{Watches, answer, has_expired};
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews};
use crate::publisher::Mode;
use crate::telemetry::standing::POD_IP_POOLS;
use crate::wire::pod_ip_pool::WatchedPodIpPool;

/// How long the start waits for a list that fails, as for that of the agents' Pods.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is not done without them, for the log.
const WITHOUT: &str =
    "whether CiliumPodIPPools fit the blocks of pools is not known; nodes are served all the same";

/// Whether blocks are carried under names in this mode.
pub(super) fn are_of_use(mode: &Mode) -> bool {
    match mode {
        Mode::Active(publisher) => publisher.has_pod_ip_pools(),
        Mode::Passive(_) => false,
    }
}

/// All CiliumPodIPPools, page by page; none where they are not defined.
pub(super) async fn read(clients: &Clients) -> Result<Vec<PodIpPool>, ReadError> {
    let api: Api<WatchedPodIpPool> = Api::all(clients.reads.clone());
    let mut params = ListParams::default().limit(PAGE_SIZE);
    let mut pools = Vec::new();
    loop {
        let page = match clients.within_timeout(api.list(&params)).await {
            Ok(page) => page,
            Err(error) if is_not_defined(error.answer()) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        pools.extend(page.items.into_iter().filter_map(WatchedPodIpPool::into_pool));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(pools),
        }
    }
}

/// The words on those that could not be read, for a command that goes on without them.
pub(super) fn unlisted(error: &anyhow::Error) -> PodIpPoolNews {
    let why = format!("{error:#}");
    warn!(why, "{WITHOUT}");
    PodIpPoolNews::Unlisted(why)
}

/// Follows them from when `is_wanted` says so, until told to stop.
pub(super) async fn follow(watches: Watches, mut is_wanted: watch::Receiver<bool>) -> anyhow::Result<()> {
    let stop = watches.stop.clone();
    let follow = async {
        // Where the mode can't change any more, nobody will want them.
        if is_wanted.wait_for(|wanted| *wanted).await.is_err() {
            std::future::pending::<()>().await;
        }
        follow_for_ever(watches).await
    };
    stop.run_until_cancelled(follow).await.unwrap_or(Ok(()))
}

async fn follow_for_ever(watches: Watches) -> anyhow::Result<()> {
    let api: Api<WatchedPodIpPool> = Api::all(watches.clients.reads.clone());
    let config = watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
    watches.clients.contact.standing.begins_to_follow(POD_IP_POOLS);
    let begin = || watcher(api.clone(), config.clone()).boxed();
    let mut events = begin();
    let mut retries = Retries::default();
    let mut listed = Vec::new();
    let mut told = Told::NothingUntil(Instant::now() + PATIENCE);
    loop {
        let news = match events.try_next().await {
            Ok(None) => return Ok(()),
            // Every list begins with `Init`, even one that fails.
            Ok(Some(Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(Event::InitApply(pool))) => {
                listed.extend(pool.into_pool());
                continue;
            }
            Ok(Some(Event::InitDone)) => {
                info!(kind = POD_IP_POOLS, objects = listed.len(), "listed");
                Some(PodIpPoolNews::Listed(std::mem::take(&mut listed)))
            }
            Ok(Some(Event::Apply(pool))) => pool.into_pool().map(PodIpPoolNews::Applied),
            Ok(Some(Event::Delete(pool))) => {
                pool.into_pool().map(|pool| PodIpPoolNews::Deleted(pool.name, pool.revision))
            }
            Err(error) => {
                let rest = if has_expired(&error) {
                    events = begin();
                    watches.expired(POD_IP_POOLS, &error, &mut retries)
                } else {
                    let answer = answer(&error);
                    watches.failed(POD_IP_POOLS, "watch failed", &error, answer, &mut retries)
                };
                let why = || {
                    let answer = answer(&error);
                    let why = answer.map_or_else(|| error.to_string(), |status| status.message.clone());
                    format!("can't list CiliumPodIPPools: {why}")
                };
                if let Some(news) = told.news_of(answer(&error), why)
                    && watches.inputs.send(Input::PodIpPools(news)).await.is_err()
                {
                    return Ok(());
                }
                retries.rest(rest, &watches.clients.contact).await;
                continue;
            }
        };
        retries.reset();
        let Some(news) = news else { continue };
        told = Told::Some;
        if watches.inputs.send(Input::PodIpPools(news)).await.is_err() {
            return Ok(());
        }
    }
}

/// What the loop has been told, which waits for the first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing yet; if nothing is known at this time, that is told.
    NothingUntil(Instant),
    /// That nothing is known, or which there are.
    Some,
    /// That they are not defined, and so that there are none.
    None,
}

impl Told {
    /// What a failure with this answer tells, if it is new.
    fn news_of(&mut self, answer: Option<&Status>, why: impl Fn() -> String) -> Option<PodIpPoolNews> {
        if is_not_defined(answer) {
            let is_new = *self != Self::None;
            *self = Self::None;
            return is_new.then(|| PodIpPoolNews::Listed(Vec::new()));
        }
        let Self::NothingUntil(end) = *self else { return None };
        // What nobody but an administrator can change, or one more after a long time of failures.
        if !answer.is_some_and(|status| matches!(status.code, 401 | 403)) && Instant::now() < end {
            return None;
        }
        *self = Self::Some;
        let why = why();
        warn!(why, "{WITHOUT}");
        Some(PodIpPoolNews::Unlisted(why))
    }
}

/// Whether a list was answered with the word that there is no such kind.
fn is_not_defined(answer: Option<&Status>) -> bool {
    answer.is_some_and(|status| status.code == StatusCode::NOT_FOUND.as_u16())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::super::client::tests::{NO_ANSWER, answered_by, refusal};
    use super::super::events::Events;
    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn watches_of(clients: Clients) -> (Watches, mpsc::Receiver<Input>) {
        let (inputs, told) = mpsc::channel(8);
        let metrics = Metrics::default();
        let watches = Watches {
            clients,
            timeline: std::sync::Arc::default(),
            inputs,
            events: Events::channel(metrics.clone()).0,
            metrics,
            stop: CancellationToken::new(),
        };
        (watches, told)
    }

    /// Follows those of a server that answers so, and returns what the loop is told first, and after how long.
    async fn first_news(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (PodIpPoolNews, Duration) {
        let (clients, _) = answered_by(answer);
        let (watches, mut told) = watches_of(clients);
        let stop = watches.stop.clone();
        let began = Instant::now();
        let first = async {
            let news = told.recv().await;
            stop.cancel();
            (news, began.elapsed())
        };
        let (gate, is_wanted) = watch::channel(false);
        gate.send(true).unwrap();
        let (end, (news, waited)) = tokio::join!(follow(watches, is_wanted), first);
        end.unwrap();
        let Some(Input::PodIpPools(news)) = news else { panic!("{news:?}") };
        (news, waited)
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_the_cluster_are_listed() {
        let (news, _) = first_news(|target| {
            assert!(target.contains("ciliumpodippools"), "{target}");
            let pool = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "5"},
                              "spec": {"ipv4": {"cidrs": ["10.1.0.0/16"], "maskSize": 26}}});
            match target {
                _ if target.contains("watch=true") => (NO_ANSWER, Value::Null),
                _ => (200, json!({"metadata": {"resourceVersion": "7"}, "items": [pool]})),
            }
        })
        .await;
        let PodIpPoolNews::Listed(listed) = news else { panic!("{news:?}") };
        assert_eq!(listed.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_they_are_not_defined_there_are_none() {
        let (news, waited) = first_news(|_| refusal(404)).await;
        assert_eq!((news, waited), (PodIpPoolNews::Listed(Vec::new()), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_the_start_does_not_wait() {
        let (news, waited) = first_news(|_| refusal(403)).await;
        let why = "can't list CiliumPodIPPools: refused with 403";
        assert_eq!((news, waited), (PodIpPoolNews::Unlisted(why.to_owned()), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_in_trouble_is_waited_for_a_while() {
        let (news, waited) = first_news(|_| refusal(503)).await;
        assert!(matches!(news, PodIpPoolNews::Unlisted(_)), "{news:?}");
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_asks_for_them_before_they_are_wanted() {
        let (clients, asked) = answered_by(|_| refusal(500));
        let (watches, _told) = watches_of(clients);
        let stop = watches.stop.clone();
        let (_gate, is_wanted) = watch::channel(false);
        let later = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            stop.cancel();
        };
        let (end, ()) = tokio::join!(follow(watches, is_wanted), later);
        end.unwrap();
        assert!(asked.lock().unwrap().is_empty());
    }
}
