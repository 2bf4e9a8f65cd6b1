//! FRRConfigurations, FRRNodeStates and the table of a GoBGP daemon, which are followed beside the world if routes are
//! announced by them.
//!
//! Knows no policy.

use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;

use super::client::{Clients, ReadError};
use super::gobgp::Daemon;
use super::input::Input;
use super::side_watch::{SideWatch, Source};
use super::watch::Watches;
use crate::model::frr::{FrrConfiguration, FrrNodeState};
use crate::model::speaker::{Speaker, SpeakerKind};
use crate::telemetry::api_health::{FRR_CONFIGURATIONS, FRR_NODE_STATES};
use crate::wire::cilium_bgp;
use crate::world::frr::Exporting;
use crate::world::gobgp::GobgpPolicy;

/// The tasks that follow objects that make Cilium announce blocks.
pub(super) const SPEAKERS: [(&str, SpeakerKind); 2] = [
    ("watch ciliumbgpadvertisements", SpeakerKind::Advertisement),
    ("watch ciliumbgppeeringpolicies", SpeakerKind::PeeringPolicy),
];

/// The pause before a GoBGP daemon is asked again for its changes. Routers wait for the paths of one that has
/// restarted.
const FOLLOWED_AGAIN: Duration = Duration::from_secs(1);

/// How routes are announced.
#[derive(Debug, Clone)]
pub enum RouteExport {
    /// By FRRConfigurations.
    FrrK8s {
        /// The namespace of the daemons of frr-k8s, and of the template.
        namespace: String,
        /// Whether they are announced, and with which template.
        exporting: Exporting,
    },
    /// By the table of a GoBGP daemon.
    Gobgp {
        /// The daemon.
        daemon: Daemon,
        /// Whether they are announced, and how many.
        policy: GobgpPolicy,
    },
}

fn configurations(clients: &Clients, namespace: &str) -> SideWatch<FrrConfiguration> {
    SideWatch {
        source: Source::Fixed(Box::new(kube::Api::namespaced_with(clients.reads.clone(), namespace, &()))),
        selector: None,
        kind: FRR_CONFIGURATIONS,
        what: format!("FRRConfigurations in namespace {namespace}"),
        without: "the FRRConfigurations are unknown; no route is announced or withdrawn, and no block cools",
    }
}

fn node_states(clients: &Clients) -> SideWatch<FrrNodeState> {
    SideWatch {
        source: Source::Fixed(Box::new(kube::Api::all_with(clients.reads.clone(), &()))),
        selector: None,
        kind: FRR_NODE_STATES,
        what: "FRRNodeStates".to_owned(),
        without: "the FRRNodeStates are unknown; a released block waits 10 min longer before it cools",
    }
}

fn speakers(clients: &Clients, kind: SpeakerKind) -> SideWatch<Speaker> {
    let client = clients.reads.clone();
    SideWatch {
        source: Source::Cilium {
            plural: cilium_bgp::plural(kind),
            api: Box::new(move |version| kube::Api::all_with(client.clone(), &(kind, version))),
        },
        selector: None,
        kind: kind.as_str(),
        what: format!("objects of kind {}", kind.as_str()),
        without: "it is unknown whether Cilium announces blocks too; routes are announced anyway",
    }
}

/// All FRRNodeStates.
pub async fn read_node_states(clients: &Clients) -> Result<Vec<FrrNodeState>, ReadError> {
    node_states(clients).read(clients).await
}

/// Follows the FRRConfigurations of a namespace until the process stops.
pub(super) async fn follow_configurations(watches: Watches, namespace: String) -> anyhow::Result<()> {
    configurations(&watches.clients, &namespace).follow(&watches, Input::FrrConfigurations).await
}

/// Follows the FRRNodeStates until the process stops.
pub(super) async fn follow_node_states(watches: Watches) -> anyhow::Result<()> {
    node_states(&watches.clients).follow(&watches, Input::FrrNodeStates).await
}

/// Follows the table of a GoBGP daemon while this process leads, until the process stops.
pub(super) async fn follow_table(watches: Watches, daemon: Daemon) -> anyhow::Result<()> {
    let (lead, inputs) = (&watches.clients.lead, &watches.inputs);
    let follow = async {
        while !watches.stop.is_cancelled() {
            lead.begun().await;
            tokio::select! {
                biased;
                () = lead.ended() => {}
                ended = daemon.follow(inputs) => debug!(?ended, "GoBGP shows no more changes"),
            }
            sleep(FOLLOWED_AGAIN).await;
        }
    };
    watches.stop.run_until_cancelled(follow).await;
    Ok(())
}

/// Follows the objects of a kind that make Cilium announce blocks until the process stops.
pub(super) async fn follow_speakers(watches: Watches, kind: SpeakerKind) -> anyhow::Result<()> {
    let input = match kind {
        SpeakerKind::Advertisement => |news| Input::Speakers(SpeakerKind::Advertisement, news),
        SpeakerKind::PeeringPolicy => |news| Input::Speakers(SpeakerKind::PeeringPolicy, news),
    };
    speakers(&watches.clients, kind).follow(&watches, input).await
}
