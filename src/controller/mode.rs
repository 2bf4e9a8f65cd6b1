//! The mode guard: follows the `cilium-config` ConfigMap, and so knows whether the controller may write at all.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};

use super::backoff::Retries;
use super::client::WATCH_SECONDS;
use super::input::Input;
use super::watch::{Watches, next_event};
use crate::publisher::Mode;

use crate::publisher::settings::from_config;

/// The name of Cilium's ConfigMap.
const CONFIG_MAP: &str = "cilium-config";

/// Follows Cilium's ConfigMap in `namespace` until told to stop.
pub async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let stop = watches.stop.clone();
    stop.run_until_cancelled(follow_for_ever(watches, namespace)).await.unwrap_or(Ok(()))
}

async fn follow_for_ever(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(watches.clients.reads.clone(), &namespace);
    let config =
        watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}")).timeout(WATCH_SECONDS);
    let mut events = watcher(api, config).boxed();
    let mut retries = Retries::default();
    let mut found = None;
    while let Some(event) = next_event(&mut events, &mut retries, "cilium-config").await {
        match event {
            Event::Init => {
                found = None;
                continue;
            }
            Event::InitApply(config) => {
                found = Some(config);
                continue;
            }
            Event::InitDone => {}
            Event::Apply(config) => found = Some(config),
            Event::Delete(_) => found = None,
        }
        let mode = found.as_ref().map_or_else(
            || {
                Mode::Passive(format!(
                    "there is no ConfigMap {namespace}/{CONFIG_MAP}; set --cilium-namespace, or --assume-cilium where \
                     Cilium has none"
                ))
            },
            |config: &ConfigMap| from_config(&config.data.clone().unwrap_or_default()),
        );
        if watches.inputs.send(Input::Mode(mode)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
