//! Follows the Pods of Cilium's agents, or reads them once.
//!
//! The controller serves without them. So the start waits for their first list only as long as that may come, and
//! whoever lacks the right to list them learns what is not done without it. Knows no policy.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ListParams};
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::Instant;
use tracing::{info, warn};

use super::backoff::Retries;
use super::client::{Clients, PAGE_SIZE, ReadError, WATCH_SECONDS};
use super::input::Input;
use super::watch::{Watches, answer, has_expired};
use crate::model::agent::{AgentNews, AgentPod};
use crate::telemetry::standing;
use crate::wire::agent_pod::{SELECTOR, WatchedPod};

/// How long the start waits for a list that fails. The lists of the world fail no less then, and a server that starts
/// answers within it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is not done without the agents' Pods, for the log.
const WITHOUT: &str = "which release of Cilium each agent runs, and whether it restarts, is not known; nodes are served all the same";

/// All Pods of agents, page by page.
pub(super) async fn read(clients: &Clients, namespace: &str) -> Result<Vec<AgentPod>, ReadError> {
    let api: Api<WatchedPod> = Api::namespaced(clients.reads.clone(), namespace);
    let mut params = ListParams::default().labels(SELECTOR).limit(PAGE_SIZE);
    let mut pods = Vec::new();
    loop {
        let page = clients.within_timeout(api.list(&params)).await?;
        pods.extend(page.items.into_iter().filter_map(WatchedPod::into_agent));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(pods),
        }
    }
}

/// Follows the Pods of agents in `namespace` until told to stop.
pub(super) async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let stop = watches.stop.clone();
    stop.run_until_cancelled(follow_for_ever(watches, namespace)).await.unwrap_or(Ok(()))
}

async fn follow_for_ever(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let api: Api<WatchedPod> = Api::namespaced(watches.clients.reads.clone(), &namespace);
    let config = watcher::Config::default().labels(SELECTOR).page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
    watches.clients.contact.standing.begins_to_follow(standing::AGENT_PODS);
    let begin = || watcher(api.clone(), config.clone()).boxed();
    let mut events = begin();
    let mut retries = Retries::default();
    let mut listed = Vec::new();
    let mut patience = Patience::Until(Instant::now() + PATIENCE);
    loop {
        let news = match events.try_next().await {
            Ok(None) => return Ok(()),
            // Every list begins with `Init`, even one that fails.
            Ok(Some(Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(Event::InitApply(pod))) => {
                listed.extend(pod.into_agent());
                continue;
            }
            Ok(Some(Event::InitDone)) => {
                info!(kind = standing::AGENT_PODS, objects = listed.len(), namespace, "listed");
                patience = Patience::Over;
                Some(AgentNews::Listed(std::mem::take(&mut listed)))
            }
            Ok(Some(Event::Apply(pod))) => pod.into_agent().map(AgentNews::Applied),
            Ok(Some(Event::Delete(pod))) => pod.into_agent().map(AgentNews::Deleted),
            Err(error) => {
                let rest = if has_expired(&error) {
                    events = begin();
                    watches.expired(standing::AGENT_PODS, &error, &mut retries)
                } else {
                    let answer = answer(&error);
                    watches.failed(standing::AGENT_PODS, "watch failed", &error, answer, &mut retries)
                };
                if patience.ends_with(answer(&error)) {
                    let why =
                        answer(&error).map_or_else(|| error.to_string(), |status| status.message.clone());
                    let why = format!("can't list Pods with {SELECTOR} in namespace {namespace}: {why}");
                    warn!(why, "{WITHOUT}");
                    patience = Patience::Over;
                    if watches.inputs.send(Input::Agents(AgentNews::Unlisted(why))).await.is_err() {
                        return Ok(());
                    }
                }
                retries.rest(rest, &watches.clients.contact).await;
                continue;
            }
        };
        retries.reset();
        let Some(news) = news else { continue };
        if watches.inputs.send(Input::Agents(news)).await.is_err() {
            return Ok(());
        }
    }
}

/// How long the start waits for the first list.
#[derive(Debug, Clone, Copy)]
enum Patience {
    Until(Instant),
    /// It does not wait any more.
    Over,
}

impl Patience {
    /// Whether a failure with this answer is the one that ends it: what nobody but an administrator can change, or one
    /// more after a long time of failures.
    fn ends_with(self, answer: Option<&Status>) -> bool {
        match self {
            Self::Until(end) => {
                answer.is_some_and(|status| matches!(status.code, 401 | 403 | 404)) || Instant::now() >= end
            }
            Self::Over => false,
        }
    }
}

/// The words on Pods that could not be read, for a command that goes on without them.
pub(super) fn unlisted(error: &anyhow::Error) -> AgentNews {
    let why = format!("{error:#}");
    warn!(why, "{WITHOUT}");
    AgentNews::Unlisted(why)
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

    /// Follows the agents of a server that answers so, and returns what the loop is told first, and after how long.
    async fn first_news(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (AgentNews, Duration) {
        let (clients, _) = answered_by(answer);
        let (inputs, mut told) = mpsc::channel(8);
        let metrics = Metrics::default();
        let watches = Watches {
            clients,
            timeline: std::sync::Arc::default(),
            inputs,
            events: Events::channel(metrics.clone()).0,
            metrics,
            stop: CancellationToken::new(),
        };
        let stop = watches.stop.clone();
        let began = Instant::now();
        let first = async {
            let news = told.recv().await;
            stop.cancel();
            (news, began.elapsed())
        };
        let (end, (news, waited)) = tokio::join!(follow(watches, "kube-system".to_owned()), first);
        end.unwrap();
        let Some(Input::Agents(news)) = news else { panic!("{news:?}") };
        (news, waited)
    }

    fn pods(names: &[&str], token: &str) -> (u16, Value) {
        let pod = |name: &&str| {
            json!({
                "metadata": {"name": name, "uid": "u", "resourceVersion": "5"},
                "spec": {"nodeName": "n", "containers": [{"name": "cilium-agent", "image": "cilium:v1.17.8"}]},
            })
        };
        let items: Vec<Value> = names.iter().map(pod).collect();
        (200, json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}))
    }

    #[tokio::test(start_paused = true)]
    async fn the_agents_are_listed_page_by_page_by_their_label() {
        let (news, _) = first_news(|target| {
            assert!(target.contains("/namespaces/kube-system/pods?"), "{target}");
            assert!(target.contains("labelSelector=k8s-app%3Dcilium"), "{target}");
            match target {
                _ if target.contains("watch=true") => (NO_ANSWER, Value::Null),
                _ if target.ends_with("continue=more") => pods(&["c"], ""),
                _ => pods(&["a", "b"], "more"),
            }
        })
        .await;
        let AgentNews::Listed(listed) = news else { panic!("{news:?}") };
        let names: Vec<&str> = listed.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_the_start_does_not_wait() {
        let (news, waited) = first_news(|_| refusal(403)).await;
        let why = "can't list Pods with k8s-app=cilium in namespace kube-system: refused with 403";
        assert_eq!((news, waited), (AgentNews::Unlisted(why.to_owned()), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_in_trouble_is_waited_for_a_while() {
        let (news, waited) = first_news(|_| refusal(503)).await;
        assert!(matches!(news, AgentNews::Unlisted(_)), "{news:?}");
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
        let n_answers = std::sync::atomic::AtomicUsize::new(0);
        let (news, _) =
            first_news(move |target| match n_answers.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => refusal(503),
                _ if target.contains("watch=true") => (NO_ANSWER, Value::Null),
                _ => pods(&["a"], ""),
            })
            .await;
        assert!(matches!(news, AgentNews::Listed(_)), "{news:?}");
    }
}
