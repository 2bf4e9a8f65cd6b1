//! The cluster as an administrator has it: Nodes and pools are made, changed and deleted here, and every object is
//! seen.
//!
//! Waits end on news from the watch cache, never on a clock, and never later than the first alarm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};

use super::alarm::{Alarm, Bell};
use super::cache::Cache;
use super::families::{Families, Family};
use super::objects::{Kind, NodeSpec, PoolSpec};
use super::views::{Claim, Published, pod_cidrs};

/// How many requests of an administrator are in flight at once; the API server's CPU is the limit from about eight on.
const PARALLEL: usize = 16;

/// How long the watch may take to show a write.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// The cluster as seen with the administrator's rights.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) alarm: Alarm,
    pub(crate) bell: Bell,
    families: Families,
    /// The mode of Cilium. In all but crd a node is served without a `pool` of single addresses.
    pub(crate) ipam: &'static str,
    cache: Arc<Cache>,
    next_node: AtomicU32,
    /// A Node that is recreated gets the addresses that it had.
    node_indices: Mutex<BTreeMap<String, u32>>,
}

impl Cluster {
    /// Returns when everything that exists is known.
    pub(crate) async fn start(client: Client, families: Families, alarm: Alarm) -> Result<Self> {
        let bell = Bell::new();
        Ok(Self {
            cache: Arc::new(Cache::start(&client, bell.clone()).await?),
            client,
            alarm,
            bell,
            families,
            ipam: "crd",
            next_node: AtomicU32::new(0),
            node_indices: Mutex::default(),
        })
    }

    /// Makes a Node, and returns when the watch shows it: an agent that starts after this finds no former Node of the
    /// name, which would own its CiliumNode.
    pub(crate) async fn create_node(&self, node: &NodeSpec) -> Result<()> {
        let index = *self
            .node_indices
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(node.name.clone())
            .or_insert_with(|| self.next_node.fetch_add(1, Ordering::Relaxed));
        let api = Kind::Node.api(&self.client);
        let object = node.object(index);
        api.create(&PostParams::default(), &object).await.with_context(|| node.name.clone())?;
        // As a kubelet, which writes the status of a Node by itself. Without a version: the controller may have written
        // onto the Node already.
        let status = json!({"status": object.data["status"]});
        let made = self.patch_status(Kind::Node, &node.name, status).await?;
        let version = |object: &DynamicObject| object.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        let shown = || self.object(Kind::Node, &node.name);
        let is_shown = async || Ok(shown().is_some_and(|shown| version(&shown) >= version(&made)));
        self.wait_until(&format!("the new Node {}", node.name), SHOWN_TIMEOUT, is_shown).await
    }

    /// Makes many Nodes, some at a time.
    pub(crate) async fn create_nodes(&self, nodes: &[NodeSpec]) -> Result<()> {
        stream::iter(nodes).map(|node| self.create_node(node)).buffer_unordered(PARALLEL).try_collect().await
    }

    pub(crate) async fn delete_node(&self, name: &str) -> Result<()> {
        self.delete(Kind::Node, name).await
    }

    /// Sets labels; `None` removes one.
    pub(crate) async fn relabel_node(&self, name: &str, labels: &[(&str, Option<&str>)]) -> Result<()> {
        let labels: serde_json::Map<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        self.patch(Kind::Node, name, json!({"metadata": {"labels": labels}})).await.map(drop)
    }

    pub(crate) async fn create_pool(&self, pool: &PoolSpec) -> Result<DynamicObject> {
        self.create(&pool.object(), Kind::Pool).await
    }

    /// Changes a pool by a merge patch of its `spec`.
    pub(crate) async fn patch_pool(&self, name: &str, spec: Value) -> Result<DynamicObject> {
        self.patch(Kind::Pool, name, json!({"spec": spec})).await
    }

    pub(crate) async fn delete_pool(&self, name: &str) -> Result<()> {
        self.delete(Kind::Pool, name).await
    }

    pub(crate) async fn create(&self, object: &DynamicObject, kind: Kind) -> Result<DynamicObject> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let created = kind.api(&self.client).create(&PostParams::default(), object).await;
        created.with_context(|| format!("creating {kind:?} {name}"))
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, kind: Kind, name: &str, patch: Value) -> Result<DynamicObject> {
        let patched = kind.api(&self.client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patching {kind:?} {name}"))
    }

    /// A merge patch of the status.
    pub(crate) async fn patch_status(&self, kind: Kind, name: &str, patch: Value) -> Result<DynamicObject> {
        let patched =
            kind.api(&self.client).patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patching the status of {kind:?} {name}"))
    }

    pub(crate) async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        let deleted = kind.api(&self.client).delete(name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("deleting {kind:?} {name}"))
    }

    /// The newest version, from the server.
    pub(crate) async fn read(&self, kind: Kind, name: &str) -> Result<DynamicObject> {
        kind.api(&self.client).get(name).await.with_context(|| format!("reading {kind:?} {name}"))
    }

    /// The newest version that the watch has shown.
    pub(crate) fn object(&self, kind: Kind, name: &str) -> Option<Arc<DynamicObject>> {
        self.cache.object(kind, name)
    }

    /// Every object of the kind that the watch has shown, by name.
    pub(crate) fn objects(&self, kind: Kind) -> Vec<Arc<DynamicObject>> {
        self.cache.objects(kind)
    }

    /// The watch cache, for callers that listen to it themselves.
    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The addresses that the CiliumNode carries, if there is one.
    pub(crate) fn published(&self, node: &str) -> Option<Published> {
        self.object(Kind::CiliumNode, node).map(|object| Published::of(&object))
    }

    /// The claims of a node, by name.
    pub(crate) fn claims_of(&self, node: &str) -> Vec<Claim> {
        let claims = self.objects(Kind::Block).into_iter().map(|block| Claim::of(&block));
        claims.filter(|claim| claim.node == node).collect()
    }

    /// Waits until `look` returns something. `what` completes the sentence "waited in vain for …".
    pub(crate) async fn wait_for<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut news = self.bell.listen();
        let seen = async {
            loop {
                // Marked before the look, so that a ring during the look causes another look.
                news.mark_unchanged();
                if let Some(found) = look().await? {
                    return Ok(found);
                }
                news.changed().await?;
            }
        };
        match tokio::time::timeout(deadline, self.alarm.over(seen)).await {
            Ok(outcome) => outcome.with_context(|| format!("while waiting for {what}")),
            Err(_) => bail!("waited {deadline:?} in vain for {what}\n{}", self.summary()),
        }
    }

    /// Waits until `look` says yes.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.wait_for(what, deadline, async || Ok(look().await?.then_some(()))).await
    }

    /// Waits until the CiliumNode of `node` is as `look` wants it, and returns it.
    pub(crate) async fn wait_published(
        &self,
        node: &str,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Published) -> bool,
    ) -> Result<Published> {
        let what = format!("{what} on the CiliumNode {node}");
        self.wait_for(&what, deadline, async || Ok(self.published(node).filter(|published| look(published))))
            .await
    }

    /// Waits until every node with a CiliumNode that a pool selects has a block of every family, and entries to it.
    /// The nodes of `excused` need none.
    pub(crate) async fn wait_served(&self, deadline: Duration, excused: &BTreeSet<String>) -> Result<()> {
        self.wait_until("all selected nodes to be served", deadline, async || {
            Ok(self.unserved()?.iter().all(|name| excused.contains(name)))
        })
        .await
    }

    /// The selected nodes with a carrier that do not have their addresses yet.
    pub(crate) fn unserved(&self) -> Result<Vec<String>> {
        let pools: Vec<_> = self.objects(Kind::Pool);
        let selectors = pools.iter().map(|pool| selector(pool)).collect::<Result<Vec<_>>>()?;
        let mut unserved = Vec::new();
        for node in self.objects(Kind::Node) {
            let Some(name) = node.metadata.name.clone() else { continue };
            let labels = node.metadata.labels.clone().unwrap_or_default();
            let carried = if self.ipam == "kubernetes" {
                // Its agent makes the CiliumNode when it has its CIDRs.
                Published { pod_cidrs: pod_cidrs(&node), ..Published::default() }
            } else {
                let Some(published) = self.published(&name) else { continue };
                published
            };
            if selectors.iter().any(|selector| selector.matches(&labels))
                && !serves(&carried, self.families, self.ipam)
            {
                unserved.push(name);
            }
        }
        Ok(unserved)
    }

    /// A few lines for the message of a wait that failed.
    fn summary(&self) -> String {
        let n = |kind| self.objects(kind).len();
        let unserved = self.unserved().unwrap_or_default();
        let mut states = BTreeMap::<String, usize>::new();
        for block in self.objects(Kind::Block) {
            *states.entry(Claim::of(&block).state).or_default() += 1;
        }
        format!(
            "{} nodes, {} CiliumNodes, {} pools, claims: {states:?}, {} selected nodes not served: {:?}",
            n(Kind::Node),
            n(Kind::CiliumNode),
            n(Kind::Pool),
            unserved.len(),
            unserved.iter().take(10).collect::<Vec<_>>(),
        )
    }
}

/// The Nodes that a pool selects. Without a selector it selects every node.
fn selector(pool: &DynamicObject) -> Result<Selector> {
    let selector = &pool.data["spec"]["nodeSelector"];
    if selector.is_null() {
        return Ok(Selector::default());
    }
    let selector: LabelSelector = serde_json::from_value(selector.clone())?;
    Ok(Selector::try_from(selector)?)
}

fn serves(published: &Published, families: Families, ipam: &str) -> bool {
    let has = |family| {
        let of_family = |text: &String| Family::of_text(text) == family;
        published.pod_cidrs.iter().any(of_family) && (ipam != "crd" || published.pool.keys().any(of_family))
    };
    families.each().all(has)
}
