//! Parts that the scenes of the tests share: nodes that join, pods that come, and the invariants of all claims.
//!
//! Nothing here starts a controller or judges one. Waits are over when the cluster shows the expected state.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::multi_pool::SLOW;
use crate::support::agent::{Addresses, Agent, FakeAgent};
use crate::support::eventually::eventually;
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::Rig;
use crate::support::views::Claim;

/// For each wait. Nothing here takes more than a few seconds, but the machine may be busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Flags for tests in which nodes grow: growth is not slowed, because no agent here loses anything by a conflict.
pub(crate) const PROMPT: &[&str] = &["--min-write-interval", "0s"];

/// The pause before kubelet's stand-in asks again for a pod without an address. No event reports a free address.
pub(crate) const KUBELET_PAUSE: Duration = Duration::from_millis(50);

/// More pods than any node here has addresses.
const MORE_THAN_ROOM: usize = 5000;

/// Nodes without labels, `prefix0`, `prefix1`, ….
pub(crate) fn nodes(prefix: &str, count: usize) -> Vec<NodeSpec> {
    (0..count).map(|number| NodeSpec::new(format!("{prefix}{number}"))).collect()
}

/// Creates the nodes and starts an agent on each. Does not wait for addresses.
pub(crate) async fn join(rig: &Rig, nodes: &[NodeSpec]) -> Result<Vec<FakeAgent>> {
    rig.cluster.create_nodes(nodes).await?;
    nodes
        .iter()
        .map(|node| {
            let mut agent = rig.agents.fake(&node.name);
            agent.start()?;
            Ok(agent)
        })
        .collect()
}

/// Returns when all agents have addresses of their own, and have written them.
pub(crate) async fn wait_ready(rig: &Rig, agents: &[FakeAgent]) -> Result<()> {
    wait_ready_within(rig, agents, SOON).await
}

/// As [`wait_ready`], with another limit for each of the two waits.
pub(crate) async fn wait_ready_within(rig: &Rig, agents: &[FakeAgent], limit: Duration) -> Result<()> {
    try_join_all(agents.iter().map(|agent| agent.wait_ready(limit))).await?;
    rig.cluster
        .wait_until("what the agents use to be written", limit, async || {
            Ok(agents.iter().all(|agent| {
                let written = rig.cluster.published(agent.name()).map(|published| published.n_used());
                written == Some(agent.held().len())
            }))
        })
        .await
}

/// Makes one node, starts its agent, and returns when it serves pods.
pub(crate) async fn join_one(rig: &Rig, node: NodeSpec) -> Result<FakeAgent> {
    let mut agents = join(rig, &[node]).await?;
    wait_ready(rig, &agents).await?;
    agents.pop().context("one node was asked for")
}

/// Starts pods until the node has `blocks` blocks and every address of them is given out. Later the agent writes this,
/// and then the node grows, unless it is at its limit.
pub(crate) async fn fill(rig: &Rig, agent: &Agent, node: &str, blocks: usize) -> Result<()> {
    let limit = tokio::time::Instant::now() + SOON;
    for round in 0.. {
        rig.control_plane.alarm.check()?;
        agent.allocate_many(&format!("ns/{node}-{round}-"), MORE_THAN_ROOM).await?;
        let held = agent.held().await?.len();
        let published = rig.cluster.published(node).unwrap_or_default();
        if published.pod_cidrs.len() >= blocks && held == published.pool.len() {
            return Ok(());
        }
        ensure!(
            tokio::time::Instant::now() < limit,
            "{node} has {held} addresses in use of {} in {:?}, and {blocks} blocks were expected",
            published.pool.len(),
            published.pod_cidrs,
        );
        // As kubelet retries: the agent does not report when another address is open.
        tokio::time::sleep(KUBELET_PAUSE).await;
    }
    Ok(())
}

/// Asks until the pod has an address, as kubelet does.
pub(crate) async fn ask(rig: &Rig, agent: &Agent, pod: &str) -> Result<Addresses> {
    insist(rig, async || agent.allocate(pod).await).await
}

/// As [`ask`], for many pods.
pub(crate) async fn ask_many(rig: &Rig, agent: &Agent, prefix: &str, count: usize) -> Result<()> {
    let n_allocated = Cell::new(0);
    insist(rig, async || {
        let prefix = format!("{prefix}{}-", n_allocated.get());
        let filled = agent.allocate_many(&prefix, count - n_allocated.get()).await?;
        n_allocated.set(n_allocated.get() + filled.allocated.len());
        filled.error.map_or(Ok(()), |error| bail!("{} of {count} pods: {error}", n_allocated.get()))
    })
    .await
}

/// Asks until there is an answer, as kubelet does.
pub(crate) async fn insist<T>(rig: &Rig, request: impl AsyncFn() -> Result<T>) -> Result<T> {
    insist_for(rig, SOON, request).await
}

/// As [`insist`], with another limit.
pub(crate) async fn insist_for<T>(
    rig: &Rig,
    limit: Duration,
    request: impl AsyncFn() -> Result<T>,
) -> Result<T> {
    rig.control_plane.alarm.over(eventually(limit, request)).await
}

/// Returns when the agent has written its whole use. The node grows some time after that.
pub(crate) async fn wait_use_written(rig: &Rig, agent: &Agent, node: &str) -> Result<()> {
    let held = agent.held().await?.len();
    rig.cluster.wait_published(node, "all use", SOON, |seen| seen.n_used() == held).await.map(drop)
}

/// Returns when every claim is Held by an existing node and its CiliumNode carries it. No CiliumNode may carry anything
/// else: no claim is left over, and none is lost.
pub(crate) async fn wait_claims_carried(rig: &Rig) -> Result<()> {
    // An agent in multi-pool mode that met a conflict writes again with its next tick, a minute later.
    let limit = if rig.control_plane.options.ipam == "multi-pool" { SLOW } else { SOON };
    rig.cluster
        .wait_until("every claim, and nothing else, to be on its CiliumNode", limit, async || {
            let nodes = rig.cluster.objects(Kind::Node);
            let uids: BTreeSet<(String, String)> = nodes
                .iter()
                .map(|node| {
                    let metadata = &node.metadata;
                    (metadata.name.clone().unwrap_or_default(), metadata.uid.clone().unwrap_or_default())
                })
                .collect();
            let claims: Vec<Claim> =
                rig.cluster.objects(Kind::Block).iter().map(|block| Claim::of(block)).collect();
            let claimed: BTreeSet<(String, String)> =
                claims.iter().map(|claim| (claim.node.clone(), claim.cidr.clone())).collect();
            let carried: BTreeSet<(String, String)> = uids
                .iter()
                .flat_map(|(node, _)| {
                    let cidrs = rig.cluster.published(node).unwrap_or_default().pod_cidrs;
                    cidrs.into_iter().map(|cidr| (node.clone(), cidr))
                })
                .collect();
            let sound = |claim: &Claim| {
                claim.state == "Held" && uids.contains(&(claim.node.clone(), claim.node_uid.clone()))
            };
            Ok(claims.iter().all(sound) && claimed == carried)
        })
        .await
}

/// Returns when the watch shows the CIDRs of every address that the agent uses. The agent has its own watch, which may
/// be ahead of this one.
pub(crate) async fn wait_use_listed(rig: &Rig, agent: &Agent, node: &str) -> Result<()> {
    rig.cluster
        .wait_until("what pods use to be listed", SOON, async || {
            let listed = rig.cluster.published(node).unwrap_or_default().pod_cidrs;
            let listed: Vec<IpNet> = listed.iter().filter_map(|cidr| cidr.parse().ok()).collect();
            let used = agent.held().await?;
            Ok(used.keys().all(|address| listed.iter().any(|cidr| cidr.contains(address))))
        })
        .await
}

/// Returns when there is this number of claims.
pub(crate) async fn wait_n_claims(rig: &Rig, count: usize) -> Result<()> {
    let there = async || Ok(n_claims(rig) == count);
    rig.cluster
        .wait_until(&format!("{count} claims"), SOON, there)
        .await
        .with_context(|| format!("there are {}", n_claims(rig)))
}

/// The number of claims.
pub(crate) fn n_claims(rig: &Rig) -> usize {
    rig.cluster.objects(Kind::Block).len()
}

/// The status of a pool, or null.
pub(crate) fn pool_status(rig: &Rig, pool: &str) -> Value {
    rig.cluster.object(Kind::Pool, pool).map(|pool| pool.data["status"].clone()).unwrap_or_default()
}

/// Waits until nodes hold this many IPv4 blocks of a pool, and writes to its status that they had none six hours ago.
pub(crate) async fn let_blocks_be_of_today(rig: &Rig, pool: &str, n_held: u64) -> Result<()> {
    let is_shown = |status: &Value| status["ipv4"]["blocks"]["held"] == n_held;
    wait_status(rig, pool, &format!("{n_held} held blocks"), is_shown).await?;
    let history = json!([{"time": "2026-01-01T00:00:00Z", "onNodes": 0}]);
    rig.cluster
        .patch_status(Kind::Pool, pool, json!({"status": {"ipv4": {"history": history}}}))
        .await
        .map(drop)
}

/// Returns when `look` accepts the status of the pool.
pub(crate) async fn wait_status(
    rig: &Rig,
    pool: &str,
    what: &str,
    mut look: impl FnMut(&Value) -> bool,
) -> Result<Value> {
    let what = format!("{what} in the status of pool {pool}");
    rig.cluster
        .wait_for(&what, SOON, async || Ok(Some(pool_status(rig, pool)).filter(|status| look(status))))
        .await
        .with_context(|| format!("the status says {}", pool_status(rig, pool)))
}

/// The version of every object of the kinds, as the server has it now. The status of a claim does not count, because it
/// may report a drain at any time.
pub(crate) async fn versions(rig: &Rig, kinds: &[Kind]) -> Result<BTreeSet<(Kind, String, String)>> {
    let mut versions = BTreeSet::new();
    for kind in kinds {
        let objects = kind.api(&rig.cluster.client).list(&kube::api::ListParams::default()).await?;
        versions.extend(objects.items.into_iter().map(|object| {
            let metadata = object.metadata;
            let version = match kind {
                Kind::Block => format!(
                    "{:?} {:?} {:?}",
                    metadata.generation, metadata.finalizers, metadata.deletion_timestamp
                ),
                _ => metadata.resource_version.unwrap_or_default(),
            };
            (*kind, metadata.name.unwrap_or_default(), version)
        }));
    }
    Ok(versions)
}

/// A CiliumNode as an agent makes it, for tests that play the agent themselves.
pub(crate) fn cilium_node(name: &str, ipam: &Value) -> kube::api::DynamicObject {
    Kind::CiliumNode.object(name, serde_json::json!({"spec": {"ipam": ipam}}))
}
