//! Watches of CiliumNodes as agents hold them: one connection each, with the headers of client-go.
//!
//! They read and discard, because an agent that is slow to decode is a matter of its own. A few of them also note when
//! they have seen each node served. All run on one thread beside the program that measures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::control_plane::ControlPlane;

/// How many watchers note when they have seen a node served. Each of them decodes all events.
const OBSERVERS: usize = 5;

/// client-go asks for 5 to 10 min; the longest measurement must not be longer.
const WATCH_SECONDS: u32 = 1800;

const PATH: &str = "/apis/cilium.io/v2/ciliumnodes";

/// The watchers, until they are dropped.
pub(crate) struct Audience {
    shared: Arc<Shared>,
    ends: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The counts of all watchers since [`Audience::count_from_now`].
#[derive(Default)]
struct Shared {
    n_following: AtomicUsize,
    events: AtomicUsize,
    bytes: AtomicUsize,
    cuts: AtomicUsize,
    lists: AtomicUsize,
    failure: Mutex<Option<String>>,
    /// When each observer has first seen each node served.
    seen: Mutex<BTreeMap<(usize, String), Instant>>,
}

/// The counts of all watchers.
pub(crate) struct Heard {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    /// Watches that the API server cut.
    pub(crate) cuts: usize,
    /// Lists that followed.
    pub(crate) lists: usize,
    /// When an observer has seen a node served, for each node that each observer has seen.
    pub(crate) seen: Vec<Instant>,
    /// How many observers there are.
    pub(crate) observers: usize,
}

impl Audience {
    /// Starts as many watchers, and returns when each of them follows.
    pub(crate) async fn gather(control_plane: &ControlPlane, n_watchers: usize) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(&control_plane.admin_kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let shared = Arc::new(Shared::default());
        let (ends, ending) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audience".to_owned()).spawn(move || {
            runtime.block_on(attend(config, n_watchers, &of_thread, ending));
        })?;
        let audience = Self { shared, ends, thread: Some(thread) };
        while audience.shared.n_following.load(Ordering::Relaxed) < n_watchers {
            audience.ensure_intact()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(audience)
    }

    /// Forgets the first lists and everything that was heard so far.
    pub(crate) fn count_from_now(&self) {
        let Shared { events, bytes, cuts, lists, .. } = &*self.shared;
        for count in [events, bytes, cuts, lists] {
            count.store(0, Ordering::Relaxed);
        }
        locked(&self.shared.seen).clear();
    }

    /// How many nodes the observers have seen served, each node once per observer.
    pub(crate) fn n_seen(&self) -> usize {
        locked(&self.shared.seen).len()
    }

    pub(crate) fn heard(&self, n_watchers: usize) -> Result<Heard> {
        self.ensure_intact()?;
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        Ok(Heard {
            events: count(&self.shared.events),
            bytes: count(&self.shared.bytes),
            cuts: count(&self.shared.cuts),
            lists: count(&self.shared.lists),
            seen: locked(&self.shared.seen).values().copied().collect(),
            observers: n_watchers.min(OBSERVERS),
        })
    }

    fn ensure_intact(&self) -> Result<()> {
        match &*locked(&self.shared.failure) {
            Some(failure) => bail!("a watcher failed: {failure}"),
            None => Ok(()),
        }
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        let _ = self.ends.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn attend(config: Config, n_watchers: usize, shared: &Arc<Shared>, mut ending: watch::Receiver<bool>) {
    let mut watchers = JoinSet::new();
    for number in 0..n_watchers {
        let (config, shared) = (config.clone(), Arc::clone(shared));
        watchers.spawn(async move {
            if let Err(error) = follow(&config, number, &shared).await {
                locked(&shared.failure).get_or_insert(format!("{error:#}"));
            }
        });
    }
    let _ = ending.wait_for(|ends| *ends).await;
    watchers.shutdown().await;
}

/// Lists and watches for ever, as a reflector does. A watch that ends is followed by a list.
async fn follow(config: &Config, number: usize, shared: &Shared) -> Result<()> {
    let client = Client::try_from(config.clone())?;
    let mut is_first = true;
    loop {
        let from = list(&client).await?;
        shared.lists.fetch_add(1, Ordering::Relaxed);
        let path = format!(
            "{PATH}?allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={WATCH_SECONDS}&watch=true"
        );
        let mut body = get(&client, &path).await?;
        if std::mem::take(&mut is_first) {
            shared.n_following.fetch_add(1, Ordering::Relaxed);
        }
        let mut line = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            shared.bytes.fetch_add(data.len(), Ordering::Relaxed);
            shared.events.fetch_add(data.split(|byte| *byte == b'\n').count() - 1, Ordering::Relaxed);
            if number < OBSERVERS {
                for part in data.split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        observe(&line, number, shared)?;
                        line.clear();
                    }
                }
            }
        }
        shared.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

/// The list of a reflector; returns its version.
async fn list(client: &Client) -> Result<String> {
    let body = get(client, &format!("{PATH}?resourceVersion=0")).await?;
    let list: List = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    Ok(list.metadata.resource_version)
}

async fn get(client: &Client, path: &str) -> Result<Body> {
    let request = http::Request::get(path)
        .header("accept", "application/json")
        .header("user-agent", "cilium-agent/1.20.2 (linux/amd64)")
        .body(Body::empty())?;
    let response = client.send(request).await.context(path.to_owned())?;
    ensure!(response.status().is_success(), "{path}: {}", response.status());
    Ok(response.into_body())
}

fn observe(line: &[u8], number: usize, shared: &Shared) -> Result<()> {
    let event: Event = serde_json::from_slice(line)?;
    if event.object.is_served() {
        let name = event.object.metadata.name;
        locked(&shared.seen).entry((number, name)).or_insert_with(Instant::now);
    }
    Ok(())
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

#[derive(Deserialize)]
struct Event {
    object: CiliumNode,
}

/// The part of a CiliumNode that shows whether the node is served.
#[derive(Deserialize)]
struct CiliumNode {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    ipam: Ipam,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Ipam {
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Vec<Box<RawValue>>,
    #[serde(default)]
    pools: Pools,
}

#[derive(Deserialize, Default)]
struct Pools {
    #[serde(default)]
    allocated: Vec<Box<RawValue>>,
}

impl CiliumNode {
    fn is_served(&self) -> bool {
        !self.spec.ipam.pod_cidrs.is_empty() || !self.spec.ipam.pools.allocated.is_empty()
    }
}
