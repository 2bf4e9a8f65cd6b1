//! The history of claims and CiliumNodes, version by version, and waits for their last states.
//!
//! A wait shows the last state; the [`Chronicle`] shows the states of a block before it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;

use crate::scene::SOON;
use crate::support::objects::{Kind, claim_name};
use crate::support::rig::Rig;
use crate::support::views::{Claim, Published};

/// Every version of every claim and CiliumNode from its start on, in words.
#[derive(Clone)]
pub(crate) struct Chronicle(Arc<Mutex<Entries>>);

/// The versions of each object that were seen, in order.
type Entries = BTreeMap<(Kind, String), Vec<Entry>>;

/// The content of a version, as far as it differs from the version before.
#[derive(Clone, Debug)]
struct Entry {
    words: String,
    since: Option<Timestamp>,
}

impl Chronicle {
    pub(crate) fn start(rig: &Rig) -> Self {
        let chronicle = Self(Arc::default());
        let written = chronicle.clone();
        rig.cluster.cache().subscribe(Box::new(move |kind, name, object| {
            if let Some(entry) = entry(kind, object.map(Arc::as_ref)) {
                let mut entries = written.entries();
                let entries = entries.entry((kind, name.to_owned())).or_default();
                if entries.last().is_none_or(|last| last.words != entry.words) {
                    entries.push(entry);
                }
            }
        }));
        chronicle
    }

    /// The states of the claim of a block: `node Held`, `node Releasing NodeGone`, `gone`, ….
    pub(crate) fn of_block(&self, cidr: &str) -> Vec<String> {
        self.words(Kind::Block, &claim_name(cidr))
    }

    /// The `podCIDRs` that the CiliumNode had, joined by spaces; `gone` when it was deleted.
    pub(crate) fn of_cilium_node(&self, node: &str) -> Vec<String> {
        self.words(Kind::CiliumNode, node)
    }

    /// From the start of the last state `from` of a block to the start of the first `to` after it. The controller wrote
    /// both times with one clock.
    pub(crate) fn between(&self, cidr: &str, from: &str, to: &str) -> Result<Duration> {
        let entries = self.entries();
        let entries = entries.get(&(Kind::Block, claim_name(cidr))).context("never claimed")?;
        let start = entries.iter().rposition(|entry| entry.words == from).with_context(|| from.to_owned())?;
        let end = entries[start..].iter().find(|entry| entry.words == to).with_context(|| to.to_owned())?;
        let (start, end) = entries[start].since.zip(end.since).context("no `since`")?;
        Ok(end.duration_since(start).try_into()?)
    }

    fn words(&self, kind: Kind, name: &str) -> Vec<String> {
        let entries = self.entries();
        entries.get(&(kind, name.to_owned())).into_iter().flatten().map(|entry| entry.words.clone()).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<(Kind, String), Vec<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(kind: Kind, object: Option<&DynamicObject>) -> Option<Entry> {
    let words = match (kind, object) {
        (Kind::Node | Kind::Pool, _) => return None,
        (Kind::CiliumNode | Kind::Block, None) => "gone".to_owned(),
        (Kind::CiliumNode, Some(object)) => Published::of(object).pod_cidrs.join(" "),
        (Kind::Block, Some(object)) => {
            let claim = Claim::of(object);
            format!("{} {} {}", claim.node, claim.state, claim.reason).trim_end().to_owned()
        }
    };
    let since = object.and_then(|object| object.data["spec"]["since"].as_str()?.parse().ok());
    Some(Entry { words, since })
}

/// Returns the claims of a node when `look` accepts them.
pub(crate) async fn wait_claims(
    rig: &Rig,
    node: &str,
    what: &str,
    mut look: impl FnMut(&[Claim]) -> bool,
) -> Result<Vec<Claim>> {
    let what = format!("{what} of node {node}");
    rig.cluster
        .wait_for(&what, SOON, async || Ok(Some(rig.cluster.claims_of(node)).filter(|claims| look(claims))))
        .await
        .with_context(|| format!("they are {:?}", rig.cluster.claims_of(node)))
}

/// Returns the claims of a node when there are `count`, all in this state.
pub(crate) async fn wait_all(rig: &Rig, node: &str, count: usize, state: &str) -> Result<Vec<Claim>> {
    wait_claims(rig, node, &format!("{count} claims in {state}"), |claims| {
        claims.len() == count && claims.iter().all(|claim| claim.state == state)
    })
    .await
}

/// Returns when the object does not exist any more.
pub(crate) async fn wait_gone(rig: &Rig, kind: Kind, name: &str) -> Result<()> {
    let gone = async || Ok(rig.cluster.object(kind, name).is_none());
    rig.cluster.wait_until(&format!("the end of {kind:?} {name}"), SOON, gone).await
}

/// The uid of an object, as the server has it now.
pub(crate) async fn uid(rig: &Rig, kind: Kind, name: &str) -> Result<String> {
    rig.cluster.read(kind, name).await?.metadata.uid.context("its uid")
}

/// Deletes the Node and returns when its CiliumNode is collected too.
pub(crate) async fn delete_node(rig: &Rig, node: &str) -> Result<()> {
    rig.cluster.delete_node(node).await?;
    wait_gone(rig, Kind::CiliumNode, node).await
}

/// Returns when a new object would get another creation time than this one. Creation times have whole seconds, and only
/// the clock brings the next.
pub(crate) async fn in_another_second(object: &DynamicObject) -> Result<()> {
    let created = object.metadata.creation_timestamp.as_ref().context("its creation time")?.0;
    after_second(created.as_second()).await
}

/// Returns when this second of the clock is over.
pub(crate) async fn after_second(second: i64) -> Result<()> {
    let now = || Timestamp::now().as_second();
    ensure!(now() < second + 60, "the clock that has shown {second} is not ours");
    // The state to wait for is the time of the clock.
    while now() <= second {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
