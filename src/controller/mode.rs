//! Cilium's mode, as its ConfigMap `cilium-config` says it: whether the controller may write at all.
//!
//! Reads the ConfigMap once, or follows it. What its settings mean is the publisher's.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event, watcher};

use super::backoff::Retries;
use super::client::{Clients, ReadError, WATCH_SECONDS};
use super::input::Input;
use super::watch::{Watches, next_event};
use crate::publisher::Mode;
use crate::publisher::settings::from_config;
use crate::telemetry::standing;

/// The name of Cilium's ConfigMap.
pub(super) const CONFIG_MAP: &str = "cilium-config";

/// Where Cilium's mode is learned from.
#[derive(Debug, Clone)]
pub enum ModeSource {
    /// From Cilium's ConfigMap in this namespace.
    ConfigMapIn(String),
    /// From the command line: an administrator vouches for it.
    Assumed(Mode),
}

/// Reads Cilium's ConfigMap in `namespace` once. A list, as the watch begins with: the right to list is enough.
pub(super) async fn read(clients: &Clients, namespace: &str) -> Result<Mode, ReadError> {
    let api: Api<ConfigMap> = Api::namespaced(clients.reads.clone(), namespace);
    let params = ListParams::default().fields(&format!("metadata.name={CONFIG_MAP}"));
    let found = clients.within_timeout(api.list(&params)).await?;
    Ok(mode_of(found.items.first(), namespace))
}

/// Follows Cilium's ConfigMap in `namespace` until told to stop.
pub async fn follow(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let stop = watches.stop.clone();
    stop.run_until_cancelled(follow_for_ever(watches, namespace)).await.unwrap_or(Ok(()))
}

async fn follow_for_ever(watches: Watches, namespace: String) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(watches.clients.reads.clone(), &namespace);
    let config =
        watcher::Config::default().fields(&format!("metadata.name={CONFIG_MAP}")).timeout(WATCH_SECONDS);
    watches.clients.contact.standing.begins_to_follow(standing::CONFIG_MAP);
    let begin = || watcher(api.clone(), config.clone()).boxed();
    let mut events = begin();
    let mut retries = Retries::default();
    let mut found = None;
    while let Some(event) = next_event(&watches, begin, &mut events, &mut retries, standing::CONFIG_MAP).await
    {
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
        let mode = mode_of(found.as_ref(), &namespace);
        if watches.inputs.send(Input::Mode(mode)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// What the ConfigMap says, or that there is none.
fn mode_of(found: Option<&ConfigMap>, namespace: &str) -> Mode {
    match found {
        Some(config) => from_config(&config.data.clone().unwrap_or_default()),
        None => Mode::Passive(format!(
            "there is no ConfigMap {namespace}/{CONFIG_MAP}; set --cilium-namespace, or --assume-cilium where Cilium \
             has none"
        )),
    }
}
