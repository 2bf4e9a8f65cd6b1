//! Cilium's mode, as its ConfigMap `cilium-config` says it: whether the controller may write at all.
//!
//! The publisher knows the meaning of the settings.

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::watch;

use super::client::{Clients, ReadError};
use super::config_map::Place;
use super::input::Input;
use super::pod_ip_pools;
use super::watch::Watches;
use crate::model::cilium_version::CiliumVersion;
use crate::publisher::mode::Mode;
use crate::publisher::settings::{Settings, from_config};
use crate::telemetry::api_health::CILIUM_CONFIG;

/// Where Cilium's mode is learned from.
#[derive(Debug, Clone)]
pub enum ModeSource {
    /// From Cilium's ConfigMap in this namespace, and an administrator's settings about it.
    ConfigMapIn(String, Settings),
    /// From the command line: an administrator vouches for it, and for the version of the agents.
    Assumed(Mode, CiliumVersion),
}

/// Reads Cilium's ConfigMap in `namespace` once.
pub(super) async fn read(clients: &Clients, namespace: &str, settings: &Settings) -> Result<Mode, ReadError> {
    let found = place(namespace).read(clients).await?;
    Ok(mode_of(found.as_ref(), namespace, settings))
}

/// Follows Cilium's ConfigMap in `namespace` until the watches are stopped. `wants_pod_ip_pools` receives whether
/// CiliumPodIPPools should be followed too; from then on they are.
pub async fn follow(
    watches: Watches,
    namespace: String,
    settings: Settings,
    wants_pod_ip_pools: watch::Sender<bool>,
) -> anyhow::Result<()> {
    let news = |found: Option<&ConfigMap>| {
        let mode = mode_of(found, &namespace, &settings);
        wants_pod_ip_pools.send_replace(pod_ip_pools::are_of_use(&mode));
        Input::Mode(mode)
    };
    place(&namespace).follow(watches, news).await
}

fn place(namespace: &str) -> Place {
    Place { namespace: namespace.to_owned(), config_map: CILIUM_CONFIG }
}

/// The mode by the ConfigMap, or passive without one.
fn mode_of(found: Option<&ConfigMap>, namespace: &str, settings: &Settings) -> Mode {
    match found {
        Some(config) => from_config(&config.data.clone().unwrap_or_default(), settings),
        None => Mode::Passive(format!(
            "ConfigMap {namespace}/{} does not exist: set --cilium-namespace, or set --assume-cilium if Cilium \
             has no ConfigMap",
            CILIUM_CONFIG.name
        )),
    }
}
