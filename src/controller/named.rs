//! One object of a known name that is followed beside the world.
//!
//! Does not know the meaning of its content: the follower turns it, or its absence, into something else.

use std::fmt::Debug;

use futures::StreamExt;
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::backoff::Retries;
use super::client::WATCH_SECONDS;
use super::watch::{Watches, next_event};

/// The field selector of the object of this name.
pub(super) fn selector(name: &str) -> String {
    format!("metadata.name={name}")
}

/// An object of a known name.
pub(super) struct Named<K> {
    /// Where it is asked for.
    pub(super) api: Api<K>,
    /// Its name.
    pub(super) name: &'static str,
    /// Its name among the kinds that are followed.
    pub(super) kind: &'static str,
}

/// Follows an object until the watches are stopped, or until the receiver is dropped. Sends the value that `news`
/// makes of it, or of its absence, whenever it may have changed.
pub(super) async fn follow<K, T>(
    watches: Watches,
    Named { api, name, kind }: Named<K>,
    receiver: mpsc::Sender<T>,
    news: impl Fn(Option<&K>) -> T,
) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&selector(name)).timeout(WATCH_SECONDS);
    let follow = async {
        watches.clients.connectivity.api_health.starts_to_follow(kind);
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
                Event::InitApply(object) => {
                    found = Some(object);
                    continue;
                }
                Event::InitDone => {}
                Event::Apply(object) => found = Some(object),
                Event::Delete(_) => found = None,
            }
            if receiver.send(news(found.as_ref())).await.is_err() {
                return;
            }
        }
    };
    watches.stop.run_until_cancelled(follow).await;
    Ok(())
}
