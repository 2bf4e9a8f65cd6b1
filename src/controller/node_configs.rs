//! CiliumNodeConfigs, which are followed beside the world, or read once. Knows no policy.
//!
//! They lie beside `cilium-config`, where the agents' Pods look for them. Where their definition is not installed,
//! there are none.

use super::client::Clients;
use super::input::Input;
use super::side_watch::{SideWatch, Source};
use super::watch::Watches;
use crate::model::node_config::NodeConfig;
use crate::telemetry::api_health::NODE_CONFIGS;
use crate::wire::node_config;

/// Those in this namespace.
pub(super) fn node_configs(clients: &Clients, namespace: &str) -> SideWatch<NodeConfig> {
    let (client, own) = (clients.reads.clone(), namespace.to_owned());
    SideWatch {
        source: Source::Cilium {
            plural: node_config::PLURAL,
            api: Box::new(move |version| kube::Api::namespaced_with(client.clone(), &own, &version)),
        },
        selector: None,
        kind: NODE_CONFIGS,
        what: format!("CiliumNodeConfigs in namespace {namespace}"),
        without: "the CiliumNodeConfigs are unknown; all nodes are served according to cilium-config",
    }
}

/// Follows those in `namespace` until the watches are stopped.
pub(super) async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    node_configs(&watches.clients, &namespace).follow(&watches, Input::NodeConfigs).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::client::tests::{NO_ANSWER, answered_by, refusal};
    use super::super::side_watch::PATIENCE;
    use super::super::side_watch::tests::{first_input, inputs};
    use super::*;
    use crate::model::node_config::NodeConfigNews;

    /// Follows those of a server with these answers. Returns the first input of the loop, and how long it took.
    async fn first_news(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (NodeConfigNews, Duration) {
        let (input, waited) = first_input(answer, |watches| follow(watches, "kube-system".to_owned())).await;
        let Some(Input::NodeConfigs(news)) = input else { panic!("{input:?}") };
        (news, waited)
    }

    fn list(name: &str) -> (u16, Value) {
        let spec = json!({"nodeSelector": {}, "defaults": {"ipam": "crd"}});
        let item = json!({"metadata": {"name": name, "uid": "u", "resourceVersion": "5"}, "spec": spec});
        (200, json!({"metadata": {"resourceVersion": "7"}, "items": [item]}))
    }

    /// The one that a server has which serves these versions.
    fn of_versions(
        versions: &'static [&'static str],
    ) -> impl Fn(&str) -> (u16, Value) + Send + Sync + 'static {
        move |target| {
            let version = |version: &&&str| target.contains(&format!("/apis/cilium.io/{version}"));
            // `v2alpha1` has the prefix `v2`.
            let Some(version) = versions.iter().filter(version).max_by_key(|version| version.len()) else {
                return refusal(404);
            };
            match target {
                _ if target.ends_with(version) => discovered(),
                _ if !target.contains(&format!("/{version}/namespaces/kube-system/ciliumnodeconfigs")) => {
                    refusal(404)
                }
                _ if target.contains("watch=true") => (NO_ANSWER, Value::Null),
                _ => list(version),
            }
        }
    }

    /// The answer of discovery about one version.
    fn discovered() -> (u16, Value) {
        (200, json!({"resources": [{"name": "ciliumnodes"}, {"name": "ciliumnodeconfigs"}]}))
    }

    fn names(news: &NodeConfigNews) -> Vec<&str> {
        let NodeConfigNews::Listed(configs) = news else { panic!("{news:?}") };
        configs.iter().map(|config| config.name.as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_found_in_the_newest_version_that_the_server_serves() {
        for (versions, expected) in
            [(&["v2"][..], "v2"), (&["v2alpha1"], "v2alpha1"), (&["v2alpha1", "v2"], "v2")]
        {
            let (news, waited) = first_news(of_versions(versions)).await;
            assert_eq!((names(&news), waited), (vec![expected], Duration::ZERO), "{versions:?}");
            let (clients, _) = answered_by(of_versions(versions));
            let read = node_configs(&clients, "kube-system").read(&clients).await.unwrap();
            assert_eq!(NodeConfigNews::Listed(read), news, "{versions:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_tell_its_versions_is_asked_for_each() {
        for version in [&["v2"][..], &["v2alpha1"]] {
            let of_version = of_versions(version);
            let answer = move |target: &str| {
                if target.ends_with("/v2") || target.ends_with("/v2alpha1") {
                    refusal(403)
                } else {
                    of_version(target)
                }
            };
            let (news, waited) = first_news(answer).await;
            assert_eq!((names(&news), waited), (version.to_vec(), Duration::ZERO));
        }
    }

    /// At first discovery names a version that is no longer served.
    #[tokio::test(start_paused = true)]
    async fn a_version_that_is_gone_is_looked_up_again() {
        let n_asked = std::sync::atomic::AtomicUsize::new(0);
        let served = of_versions(&["v2"]);
        let answer = move |target: &str| match n_asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            1 => discovered(),
            0 | 2 => refusal(404),
            _ => served(target),
        };
        let (news, waited) = first_news(answer).await;
        assert_eq!(names(&news), ["v2"]);
        assert!(waited < Duration::from_secs(1), "{waited:?}");
    }

    /// As when a definition changes its versions, is deleted, and comes back. While one version takes the place of
    /// another a server may serve neither for a moment.
    #[tokio::test(start_paused = true)]
    async fn a_kind_is_followed_through_its_versions_and_its_end() {
        let served: std::sync::Mutex<(usize, usize)> = std::sync::Mutex::default();
        let answer = move |target: &str| {
            let mut state = served.lock().unwrap();
            // Each step has the served versions, and how many requests in vain it lasts where there is none.
            let steps: [(&[&str], usize); 6] =
                [(&["v2alpha1"], 0), (&[], 2), (&["v2"], 0), (&[], 4), (&["v2"], 0), (&["v2"], 0)];
            let (step, n_ineffective) = *state;
            let (versions, ineffective) = steps[step];
            let is_last = step + 1 == steps.len();
            if versions.is_empty() {
                *state =
                    if n_ineffective + 1 == ineffective { (step + 1, 0) } else { (step, n_ineffective + 1) };
                return refusal(404);
            }
            let version = versions[0];
            match target {
                _ if target.ends_with(&format!("/{version}")) => discovered(),
                _ if !target.contains(&format!("/{version}/namespaces")) => refusal(404),
                _ if target.contains("watch=true") && is_last => (NO_ANSWER, Value::Null),
                _ if target.contains("watch=true") => {
                    *state = (step + 1, 0);
                    refusal(404)
                }
                _ => list(version),
            }
        };
        let follow = |watches| follow(watches, "kube-system".to_owned());
        let reported = inputs(5, answer, follow).await;
        let reported: Vec<Vec<&str>> = reported
            .iter()
            .map(|input| match input {
                Input::NodeConfigs(news) => names(news),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: [&[&str]; 5] = [&["v2alpha1"], &["v2"], &[], &["v2"], &["v2"]];
        assert_eq!(reported, expected);
    }

    /// As beside Cilium 1.12, or before Cilium itself is installed.
    #[tokio::test(start_paused = true)]
    async fn where_the_kind_is_not_defined_there_are_none() {
        assert_eq!(first_news(|_| refusal(404)).await, (NodeConfigNews::Listed(Vec::new()), Duration::ZERO));
        let (clients, _) = answered_by(|_| refusal(404));
        assert_eq!(node_configs(&clients, "kube-system").read(&clients).await.unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_the_start_does_not_wait() {
        let (news, waited) = first_news(|_| refusal(403)).await;
        let why = "can't list CiliumNodeConfigs in namespace kube-system: refused with 403";
        assert_eq!((news, waited), (NodeConfigNews::Unlisted(why.to_owned()), Duration::ZERO));
        let (news, waited) = first_news(|_| refusal(503)).await;
        assert!(matches!(news, NodeConfigNews::Unlisted(_)), "{news:?}");
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
    }
}
