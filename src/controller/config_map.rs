//! A ConfigMap of one name: reads it once, or follows it.
//!
//! Does not know what its content means: whoever follows it turns it into an input, and so its absence.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event, watcher};

use super::backoff::Retries;
use super::client::{Clients, ReadError, WATCH_SECONDS};
use super::input::Input;
use super::watch::{Watches, next_event};
use crate::telemetry::standing::FollowedConfigMap;

/// Where a ConfigMap lies.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) config_map: FollowedConfigMap,
}

impl Place {
    /// Reads the ConfigMap once. A list, as the watch begins with: the right to list is enough.
    pub(super) async fn read(&self, clients: &Clients) -> Result<Option<ConfigMap>, ReadError> {
        let api: Api<ConfigMap> = Api::namespaced(clients.reads.clone(), &self.namespace);
        let params = ListParams::default().fields(&self.selector());
        let found = clients.within_timeout(api.list(&params)).await?;
        Ok(found.items.into_iter().next())
    }

    /// Follows the ConfigMap until told to stop. Sends what `news` makes of it, or of its absence, whenever it may have
    /// changed.
    pub(super) async fn follow(
        self,
        watches: Watches,
        news: impl Fn(Option<&ConfigMap>) -> Input,
    ) -> anyhow::Result<()> {
        let stop = watches.stop.clone();
        stop.run_until_cancelled(self.follow_for_ever(watches, news)).await.unwrap_or(Ok(()))
    }

    async fn follow_for_ever(
        self,
        watches: Watches,
        news: impl Fn(Option<&ConfigMap>) -> Input,
    ) -> anyhow::Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(watches.clients.reads.clone(), &self.namespace);
        let config = watcher::Config::default().fields(&self.selector()).timeout(WATCH_SECONDS);
        let kind = self.config_map.kind;
        watches.clients.contact.standing.begins_to_follow(kind);
        let begin = || watcher(api.clone(), config.clone()).boxed();
        let mut events = begin();
        let mut retries = Retries::default();
        let mut found = None;
        while let Some(event) = next_event(&watches, begin, &mut events, &mut retries, kind).await {
            match event {
                Event::Init => {
                    found = None;
                    continue;
                }
                Event::InitApply(config_map) => {
                    found = Some(config_map);
                    continue;
                }
                Event::InitDone => {}
                Event::Apply(config_map) => found = Some(config_map),
                Event::Delete(_) => found = None,
            }
            if watches.inputs.send(news(found.as_ref())).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn selector(&self) -> String {
        format!("metadata.name={}", self.config_map.name)
    }
}
