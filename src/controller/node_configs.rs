//! CiliumNodeConfigs, which are followed beside the world, or read once. Knows no policy.
//!
//! They lie beside `cilium-config`, where the agents' Pods look for them. Where their definition is not installed, there are
//! none.

use super::beside::{self, Beside, News, Undefined};
use super::client::{Clients, ReadError};
use super::input::Input;
use super::watch::Watches;
use crate::model::node_config::{NodeConfig, NodeConfigNews};
use crate::telemetry::standing::NODE_CONFIGS;
use crate::wire::node_config::{Version, WatchedNodeConfig};

/// What is not done without them, for the log.
const WITHOUT: &str = "the CiliumNodeConfigs are unknown; all nodes are served according to cilium-config";

/// Those in this namespace.
fn node_configs(clients: &Clients, namespace: &str) -> Beside<WatchedNodeConfig, NodeConfig> {
    let api = |version| kube::Api::namespaced_with(clients.reads.clone(), namespace, &version);
    Beside {
        api: api(Version::V2),
        earlier: Some(api(Version::V2Alpha1)),
        selector: None,
        kind: NODE_CONFIGS,
        what: format!("CiliumNodeConfigs in namespace {namespace}"),
        without: WITHOUT,
        value: |watched| Some(watched.into_config()),
        undefined: Undefined::Empty,
    }
}

/// All of them; none where they are not defined.
pub(super) async fn read(clients: &Clients, namespace: &str) -> Result<Vec<NodeConfig>, ReadError> {
    node_configs(clients, namespace).read(clients).await
}

/// The words on those that could not be read, for a command that goes on without them.
pub(super) fn unlisted(error: &anyhow::Error) -> NodeConfigNews {
    NodeConfigNews::Unlisted(beside::unlisted(error, WITHOUT))
}

/// Follows those in `namespace` until told to stop.
pub(super) async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let configs = node_configs(&watches.clients, &namespace);
    watches.stop.run_until_cancelled(configs.follow(&watches, input)).await.unwrap_or(Ok(()))
}

fn input(news: News<NodeConfig>) -> Input {
    Input::NodeConfigs(match news {
        News::Unlisted(why) => NodeConfigNews::Unlisted(why),
        News::Listed(configs) => NodeConfigNews::Listed(configs),
        News::Applied(config) => NodeConfigNews::Applied(config),
        News::Deleted(config) => NodeConfigNews::Deleted(config.name),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::beside::PATIENCE;
    use super::super::beside::tests::first_input;
    use super::super::client::tests::{NO_ANSWER, answered_by, refusal};
    use super::*;

    /// Follows those of a server that answers so, and returns what the loop is told first, and after how long.
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

    /// The one that a server of this version has.
    fn of_version(version: &'static str) -> impl Fn(&str) -> (u16, Value) + Send + Sync + 'static {
        move |target| match target {
            _ if !target.contains(&format!("/{version}/namespaces/kube-system/ciliumnodeconfigs")) => {
                refusal(404)
            }
            _ if target.contains("watch=true") => (NO_ANSWER, Value::Null),
            _ => list("one"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_found_in_the_version_that_the_server_has() {
        for version in ["v2", "v2alpha1"] {
            let (news, waited) = first_news(of_version(version)).await;
            let NodeConfigNews::Listed(configs) = news else { panic!("{news:?}") };
            assert_eq!(configs.len(), 1, "{version}");
            assert!(configs[0].selects(&std::collections::BTreeMap::new()));
            assert_eq!(waited, Duration::ZERO, "{version}");
            let (clients, _) = answered_by(of_version(version));
            assert_eq!(read(&clients, "kube-system").await.unwrap(), configs, "{version}");
        }
    }

    /// As beside Cilium 1.12, or before Cilium itself is installed.
    #[tokio::test(start_paused = true)]
    async fn where_the_kind_is_not_defined_there_are_none() {
        assert_eq!(first_news(|_| refusal(404)).await, (NodeConfigNews::Listed(Vec::new()), Duration::ZERO));
        let (clients, _) = answered_by(|_| refusal(404));
        assert_eq!(read(&clients, "kube-system").await.unwrap(), []);
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
