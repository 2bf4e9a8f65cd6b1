//! The Pods of Cilium's agents, which are followed beside the world, or read once. Knows no policy.

use super::client::Clients;
use super::input::Input;
use super::side_watch::{SideWatch, Source};
use super::watch::Watches;
use crate::model::agent::AgentPod;
use crate::telemetry::api_health;
use crate::wire::agent_pod::SELECTOR;

/// The Pods of agents in `namespace`.
pub(super) fn pods(clients: &Clients, namespace: &str) -> SideWatch<AgentPod> {
    SideWatch {
        source: Source::Fixed(Box::new(kube::Api::namespaced_with(clients.reads.clone(), namespace, &()))),
        selector: Some(SELECTOR),
        kind: api_health::AGENT_PODS,
        what: format!("Pods with {SELECTOR} in namespace {namespace}"),
        without: "the agent versions and agent restarts are unknown; nodes are served anyway",
    }
}

/// Follows the Pods of agents in `namespace` until the watches are stopped.
pub(super) async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    pods(&watches.clients, &namespace).follow(&watches, |news| Input::Agents(news.into())).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::client::tests::{NO_ANSWER, refusal};
    use super::super::side_watch::PATIENCE;
    use super::super::side_watch::tests::first_input;
    use super::*;
    use crate::model::agent::AgentNews;

    /// Follows the agents of a server with these answers. Returns the first input of the loop, and how long it took.
    async fn first_news(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (AgentNews, Duration) {
        let (input, waited) = first_input(answer, |watches| follow(watches, "kube-system".to_owned())).await;
        let Some(Input::Agents(news)) = input else { panic!("{input:?}") };
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
