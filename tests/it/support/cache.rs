//! The shared watch cache: the newest seen version of every object of the four kinds, and news of every change.
//!
//! One list and watch per kind serves the whole test process: every wait, and every imitated agent. The cache is late,
//! as every watch is. Facts that must be true at one moment are read from the server instead. The cache survives
//! restarts of the API server. It forgets an object only after a complete list without it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event, watcher};
use tokio::task::JoinSet;

use super::alarm::Bell;
use super::objects::Kind;

/// The pause before a retry of a failed list or watch. It replaces client-go's back-off, which starts at 800 ms; a test
/// that restarts the API server has no use for the growth.
const RETRY: Duration = Duration::from_millis(200);

/// How long the first lists may take; five thousand CiliumNodes take three seconds.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

/// A change: the object's kind, its name, and its version, or `None` if it was deleted.
pub(crate) type Listener = Box<dyn Fn(Kind, &str, Option<&Arc<DynamicObject>>) + Send + Sync>;

/// The cache. Dropping it stops its watches.
pub(crate) struct Cache {
    client: Client,
    shared: Arc<Shared>,
    followed: BTreeSet<Kind>,
    followers: Mutex<JoinSet<()>>,
}

struct Shared {
    kept: Mutex<Kept>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    bell: Bell,
}

#[derive(Default)]
struct Kept {
    objects: BTreeMap<Kind, BTreeMap<String, Arc<DynamicObject>>>,
    synced: BTreeSet<Kind>,
}

impl Cache {
    /// Follows every kind that the server knows, and returns when each was listed once.
    pub(crate) async fn start(client: &Client, bell: Bell) -> Result<Self> {
        let shared =
            Arc::new(Shared { kept: Mutex::default(), listeners: Mutex::default(), bell: bell.clone() });
        let mut followed = BTreeSet::new();
        for kind in Kind::ALL {
            match kind.api(client).list(&ListParams::default().limit(1)).await {
                Ok(_) => drop(followed.insert(kind)),
                // Its CRD is not installed in this test.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
        let cache = Self { client: client.clone(), shared, followed, followers: Mutex::default() };
        cache.begin().await?;
        Ok(cache)
    }

    /// Forgets everything and starts anew, for a store that was restored to an earlier state. A watch from a revision
    /// that such a store does not know is silent, and a list returns older versions than those in the cache.
    pub(crate) async fn begin_anew(&self) -> Result<()> {
        {
            let mut kept = self.shared.kept();
            let known = std::mem::take(&mut kept.objects);
            for (kind, name) in known.iter().flat_map(|(kind, of)| of.keys().map(move |name| (*kind, name))) {
                self.shared.notify(&kept, kind, name, None);
            }
        }
        self.begin().await
    }

    /// Follows every kind from a list on. Returns when each kind was listed.
    async fn begin(&self) -> Result<()> {
        let mut news = self.shared.bell.listen();
        let mut followers = JoinSet::new();
        std::mem::swap(&mut followers, &mut *self.followers.lock().unwrap_or_else(PoisonError::into_inner));
        followers.shutdown().await;
        self.shared.kept().synced.clear();
        {
            let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
            for kind in &self.followed {
                followers.spawn(follow(*kind, self.client.clone(), Arc::clone(&self.shared)));
            }
        }
        let synced = async {
            while self.shared.kept().synced != self.followed {
                news.changed().await?;
            }
            Ok(())
        };
        match tokio::time::timeout(SYNC_TIMEOUT, synced).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("the first lists took longer than {SYNC_TIMEOUT:?}"),
        }
    }

    pub(crate) fn object(&self, kind: Kind, name: &str) -> Option<Arc<DynamicObject>> {
        self.shared.kept().objects.get(&kind)?.get(name).cloned()
    }

    pub(crate) fn objects(&self, kind: Kind) -> Vec<Arc<DynamicObject>> {
        self.shared
            .kept()
            .objects
            .get(&kind)
            .map(|objects| objects.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Shows the known versions of these objects. No listener gets a newer version before this returns.
    pub(crate) fn show(&self, kinds: &[Kind], name: &str, mut take: impl FnMut(Kind, &Arc<DynamicObject>)) {
        let kept = self.shared.kept();
        for kind in kinds {
            if let Some(object) = kept.objects.get(kind).and_then(|objects| objects.get(name)) {
                take(*kind, object);
            }
        }
    }

    /// Calls `listener` for every later change, in the order of the watch. It must neither block nor call the cache. A
    /// version is visible in the cache only after the listeners got it.
    pub(crate) fn subscribe(&self, listener: Listener) {
        self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(listener));
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, kind: Kind, mut object: DynamicObject) {
        let Some(name) = object.metadata.name.clone() else { return };
        // They are half of the bytes, and a PUT without them leaves them unchanged.
        object.metadata.managed_fields = None;
        let object = Arc::new(object);
        let mut kept = self.kept();
        kept.objects.entry(kind).or_default().insert(name.clone(), Arc::clone(&object));
        self.notify(&kept, kind, &name, Some(&object));
    }

    fn forget(&self, kind: Kind, name: &str) {
        let mut kept = self.kept();
        if kept.objects.entry(kind).or_default().remove(name).is_some() {
            self.notify(&kept, kind, name, None);
        }
    }

    fn listed(&self, kind: Kind, names: &BTreeSet<String>) {
        let known: Vec<_> = self.kept().objects.entry(kind).or_default().keys().cloned().collect();
        for name in known.iter().filter(|name| !names.contains(*name)) {
            self.forget(kind, name);
        }
        self.kept().synced.insert(kind);
        self.bell.ring();
    }

    /// Calls the listeners, while nothing can read the cache.
    fn notify(
        &self,
        _kept: &MutexGuard<'_, Kept>,
        kind: Kind,
        name: &str,
        object: Option<&Arc<DynamicObject>>,
    ) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners {
            listener(kind, name, object);
        }
        self.bell.ring();
    }
}

async fn follow(kind: Kind, client: Client, shared: Arc<Shared>) {
    let mut events = pin!(watcher(kind.api(&client), watcher::Config::default()));
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.extend(object.metadata.name.clone());
                shared.keep(kind, object);
            }
            Ok(Event::InitDone) => shared.listed(kind, &listed),
            Ok(Event::Apply(object)) => shared.keep(kind, object),
            Ok(Event::Delete(object)) => {
                shared.forget(kind, object.metadata.name.as_deref().unwrap_or_default());
            }
            // The server is away, or the watch was too old. The watcher recovers by itself.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}
