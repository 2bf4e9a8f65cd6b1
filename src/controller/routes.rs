//! FRRConfigurations and FRRNodeStates, which are followed beside the world where routes are announced by them.
//!
//! Knows no policy.

use super::beside::{Beside, News, Source};
use super::client::{Clients, ReadError};
use super::input::Input;
use super::watch::Watches;
use crate::model::frr::{FrrConfiguration, FrrConfigurationNews, FrrNodeState, FrrNodeStateNews};
use crate::telemetry::standing::{FRR_CONFIGURATIONS, FRR_NODE_STATES};
use crate::wire::frr::{WatchedFrrConfiguration, WatchedFrrNodeState};
use crate::world::frr::Exporting;

/// How routes are announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteExport {
    /// The namespace of the daemons of frr-k8s, and of the template.
    pub namespace: String,
    /// Whether they are announced, and with which template.
    pub exporting: Exporting,
}

fn configurations(clients: &Clients, namespace: &str) -> Beside<WatchedFrrConfiguration, FrrConfiguration> {
    Beside {
        source: Source::Fixed(Box::new(kube::Api::namespaced(clients.reads.clone(), namespace))),
        selector: None,
        kind: FRR_CONFIGURATIONS,
        what: format!("FRRConfigurations in namespace {namespace}"),
        without: "the FRRConfigurations are unknown; no route is announced or withdrawn, and no block cools",
        value: WatchedFrrConfiguration::into_configuration,
    }
}

fn node_states(clients: &Clients) -> Beside<WatchedFrrNodeState, FrrNodeState> {
    Beside {
        source: Source::Fixed(Box::new(kube::Api::all(clients.reads.clone()))),
        selector: None,
        kind: FRR_NODE_STATES,
        what: "FRRNodeStates".to_owned(),
        without: "the FRRNodeStates are unknown; a released block waits 10 min longer before it cools",
        value: WatchedFrrNodeState::into_state,
    }
}

/// All FRRNodeStates.
pub async fn read_node_states(clients: &Clients) -> Result<Vec<FrrNodeState>, ReadError> {
    node_states(clients).read(clients).await
}

/// Follows the FRRConfigurations of a namespace until the process stops.
pub(super) async fn follow_configurations(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let configurations = configurations(&watches.clients, &namespace);
    let follow = configurations.follow(&watches, |news| {
        Input::FrrConfigurations(match news {
            News::Unlisted(why) => FrrConfigurationNews::Unlisted(why),
            News::Listed(all) => FrrConfigurationNews::Listed(all),
            News::Applied(one) => FrrConfigurationNews::Applied(Box::new(one)),
            News::Deleted(one) => FrrConfigurationNews::Deleted(one.name, one.revision),
        })
    });
    watches.stop.run_until_cancelled(follow).await.unwrap_or(Ok(()))
}

/// Follows the FRRNodeStates until the process stops.
pub(super) async fn follow_node_states(watches: Watches) -> anyhow::Result<()> {
    let states = node_states(&watches.clients);
    let follow = states.follow(&watches, |news| {
        Input::FrrNodeStates(match news {
            News::Unlisted(why) => FrrNodeStateNews::Unlisted(why),
            News::Listed(all) => FrrNodeStateNews::Listed(all),
            News::Applied(one) => FrrNodeStateNews::Applied(one),
            News::Deleted(one) => FrrNodeStateNews::Deleted(one.node),
        })
    });
    watches.stop.run_until_cancelled(follow).await.unwrap_or(Ok(()))
}
