//! A wave of reclaim: pods of nodes that have grown end, and each of these nodes gives a block back.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use crate::audience::Audience;
use crate::support::agent::FakeAgent;
use crate::support::kubelet::{self, Health};
use crate::support::rig::Rig;
use crate::support::views::Published;
use crate::{PARALLEL, PATIENCE};

/// How many pods stay on a node.
const KEPT: usize = 3;

/// Starts an imitated agent on each of these nodes, and fills its first block, so that it takes a second one. Then all
/// pods but a few end.
pub(crate) async fn grow(rig: &Rig, names: &[String], block_size: u8) -> Result<Vec<FakeAgent>> {
    let n_addresses = 1 << (32 - block_size);
    let agents = stream::iter(names).map(async |name| -> Result<FakeAgent> {
        let settings = rig.agents.settings();
        let (client, pod) = (&rig.cluster.client, format!("cilium-{name}"));
        kubelet::create_agent_pod(client, &pod, name, settings.release.as_str()).await?;
        let mut agent = rig.agents.fake_with(name, settings);
        agent.start()?;
        agent.wait_ready(PATIENCE).await?;
        kubelet::report(client, &pod, 0, Health::Ready).await?;
        let pods = agent.allocate_many("ns/pod-", n_addresses).allocated;
        let has_grown = |seen: &_| n_blocks(seen) == 2;
        rig.cluster.wait_published(name, "a second block", PATIENCE, has_grown).await?;
        for (owner, _) in pods.iter().skip(KEPT) {
            agent.release(owner)?;
        }
        Ok(agent)
    });
    agents.buffer_unordered(PARALLEL).try_collect().await
}

fn n_blocks(seen: &Published) -> usize {
    seen.pod_cidrs.len()
}

/// Allows reclaim, waits until each of these nodes has one block, and prints the cost.
#[expect(clippy::cast_precision_loss, reason = "counts of one run")]
pub(crate) async fn reclaim(
    rig: &Rig,
    names: &[String],
    audience: &Audience,
    n_watchers: usize,
) -> Result<()> {
    audience.count_from_now();
    let began = Instant::now();
    // With the default of `freeBelow` a node with small blocks keeps both.
    let spec = json!({"reclaim": {"mode": "Enabled", "after": "1s"}, "expand": {"freeBelow": 2}});
    rig.cluster.patch_pool("default", spec).await?;
    let n_left =
        || names.iter().filter(|name| rig.cluster.published(name).as_ref().map(n_blocks) != Some(1)).count();
    let mut reported = Instant::now();
    let is_over = async || {
        if reported.elapsed() > Duration::from_secs(30) {
            reported = Instant::now();
            eprintln!("{} blocks are left", n_left());
        }
        Ok(n_left() == 0)
    };
    rig.cluster.wait_until("the blocks to leave", PATIENCE, is_over).await?;
    let seconds = began.elapsed().as_secs_f64();
    let heard = audience.heard(n_watchers)?;
    let (count, events, bytes) = (names.len() as f64, heard.events as f64, heard.bytes as f64);
    println!(
        "| blocks | in | events/s | versions per block, with those of agents | KiB per event | cut | lists |"
    );
    println!("|---|---|---|---|---|---|---|");
    println!(
        "| {count} | {seconds:.0} s | {:.0} | {:.1} | {:.1} | {} | {} |",
        events / seconds,
        events / n_watchers.max(1) as f64 / count,
        if heard.events == 0 { 0.0 } else { bytes / events / 1024.0 },
        heard.cuts,
        heard.lists,
    );
    Ok(())
}
