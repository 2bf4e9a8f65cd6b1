//! The definitions of pools and claims: whether a user deletes them, and all objects with them.
//!
//! A watch of the objects does not show it: they stay until their finalizers are removed. Does not know the
//! consequences.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;

use super::client::{Clients, ReadError};
use super::input::Input;
use super::watch::Watches;
use crate::model::definition::{DefinitionNews, DefinitionState};
use crate::wire::watched::Wire;
use crate::wire::{Claims, Pools};

/// How often they are read: two small reads of metadata. An alert needs a scrape more.
const READ_INTERVAL: Duration = Duration::from_secs(20);

/// The name of the definition of a kind.
pub(super) fn name_of<W: Wire>() -> String {
    format!("{}.{}", W::PLURAL, W::GROUP)
}

/// Reads a definition once; an error says that its state is unknown, such as without the right to read it.
async fn read(clients: &Clients, name: String) -> Result<DefinitionNews, ReadError> {
    let api: Api<CustomResourceDefinition> = Api::all(clients.reads.clone());
    let found = clients.within_timeout(api.get_metadata_opt(&name)).await?;
    let state = match found {
        None => DefinitionState::Missing,
        Some(found) if found.metadata.deletion_timestamp.is_some() => DefinitionState::Deleting,
        Some(_) => DefinitionState::Kept,
    };
    Ok(DefinitionNews { name, state })
}

/// The states of the definitions, as far as they can be read.
pub(super) async fn read_all(clients: &Clients) -> Vec<DefinitionNews> {
    let (pools, claims) = tokio::join!(read(clients, name_of::<Pools>()), read(clients, name_of::<Claims>()));
    [pools, claims].into_iter().filter_map(Result::ok).collect()
}

/// Follows the definitions until the watches are stopped, or until the receiver is dropped.
pub(super) async fn follow(watches: Watches) -> anyhow::Result<()> {
    let follow = async {
        let mut known = BTreeMap::new();
        loop {
            for news in read_all(&watches.clients).await {
                if known.insert(news.name.clone(), news.state) != Some(news.state)
                    && watches.inputs.send(Input::Definition(news)).await.is_err()
                {
                    return;
                }
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    };
    watches.stop.run_until_cancelled(follow).await;
    Ok(())
}
