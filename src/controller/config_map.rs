//! A ConfigMap of one name: reads it once, or follows it.
//!
//! Does not know the meaning of its content: the caller turns it, or its absence, into an input.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};

use super::client::{Clients, ReadError};
use super::input::Input;
use super::named::{self, Named};
use super::watch::Watches;
use crate::telemetry::api_health::FollowedConfigMap;

/// Where a ConfigMap lies.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) config_map: FollowedConfigMap,
}

impl Place {
    /// Reads the ConfigMap once. A list, as at the start of a watch: the right to list is enough.
    pub(super) async fn read(&self, clients: &Clients) -> Result<Option<ConfigMap>, ReadError> {
        let api: Api<ConfigMap> = Api::namespaced(clients.reads.clone(), &self.namespace);
        let params = ListParams::default().fields(&named::selector(self.config_map.name));
        let found = clients.within_timeout(api.list(&params)).await?;
        Ok(found.items.into_iter().next())
    }

    /// Follows the ConfigMap until the watches are stopped. Sends the input that `news` makes of it, or of its
    /// absence, whenever it may have changed.
    pub(super) async fn follow(
        self,
        watches: Watches,
        news: impl Fn(Option<&ConfigMap>) -> Input,
    ) -> anyhow::Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(watches.clients.reads.clone(), &self.namespace);
        let FollowedConfigMap { name, kind } = self.config_map;
        let inputs = watches.inputs.clone();
        named::follow(watches, Named { api, name, kind }, inputs, news).await
    }
}
