//! A cluster that could be reached and not be read: the missing part, and how to get it.

use anyhow::anyhow;

use super::preflight::rights;
use crate::cli::access::Access;
use crate::cli::program::program;
use crate::controller::client::{Clients, ReadError};
use crate::view::definitions::PAGE as DELETED;
use crate::wire;

/// Why a cluster can't be read until an administrator changes it.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Unreadable {
    /// The server does not serve a kind.
    #[error("{0}")]
    NotInstalled(String),
    /// The user lacks rights.
    #[error("{0}")]
    Forbidden(String),
}

/// The same error with everything that is missing, instead of the first object that could not be read.
pub(super) async fn explained(error: anyhow::Error, clients: &Clients, access: &Access) -> anyhow::Error {
    let answer = error.chain().find_map(|cause| cause.downcast_ref::<ReadError>()?.answer());
    let explained = match answer.map(|status| status.code) {
        Some(403) => rights::missing_to_read(clients, access).await.map(Unreadable::Forbidden),
        Some(404) => not_installed(clients).await.map(Unreadable::NotInstalled),
        Some(_) | None => None,
    };
    explained.map_or(error, |explained| anyhow!(explained))
}

/// The part that the cluster lacks.
async fn not_installed(clients: &Clients) -> Option<String> {
    let ours = format!("{}/{}", wire::GROUP, wire::VERSION);
    for plural in ["nodeippools", "nodeipblocks"] {
        if !serves(clients, &ours, plural).await? {
            return Some(format!(
                "cilium-node-ipam is not installed in this cluster: the definition {plural}.{} is missing; check the \
                 cluster with `{} preflight`, and install the chart (docs/install.md); if the definition was deleted, \
                 follow {DELETED} first",
                wire::GROUP,
                program()
            ));
        }
    }
    if !serves(clients, "cilium.io/v2", "ciliumnodes").await? {
        return Some(
            "Cilium is not installed in this cluster, which has no CiliumNodes: install Cilium first"
                .to_owned(),
        );
    }
    None
}

/// Whether the server serves the kind; `None` if it does not say.
async fn serves(clients: &Clients, version: &str, plural: &str) -> Option<bool> {
    let answer =
        tokio::time::timeout(clients.timeout, clients.reads.list_api_group_resources(version)).await.ok()?;
    match answer {
        Ok(found) => Some(found.resources.iter().any(|resource| resource.name == plural)),
        Err(kube::Error::Api(status)) if status.code == 404 => Some(false),
        Err(_) => None,
    }
}
