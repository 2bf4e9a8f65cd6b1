//! Blocks that drain from nodes that still exist, with Cilium's own agent: no pod ever loses anything by it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use self::node::{
    BLOCK, FENCE, FLAGS, KEPT, LATE, LONG_PERIOD, OWN, QUESTION, Scene, has_any, of_block, pool,
};
use crate::agent_pods::{delete_at_once, pods};
use crate::scene::{PROMPT, SOON, ask, wait_claims_carried, wait_status, wait_use_written};
use crate::support::agent::Settings;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::Kind;
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::{Claim, Published};

mod conflicts;
mod disturbed;
mod dual_stack;
mod marks;
mod node;
mod own;
mod returned;
mod steps;

/// How long a node must need fewer addresses there: longer than a period, as with Cilium's and our defaults.
const AFTER: Duration = Duration::from_secs(4);

/// How long a block cools.
const REUSE_AFTER: Duration = Duration::from_secs(1);

/// A Pod that its agent does not know.
const GHOST: &str = "ghost";

/// Checks every version of the CiliumNodes, and keeps the texts of the objections of `look`.
fn objections(
    rig: &Rig,
    look: impl Fn(&Published) -> Option<String> + Send + Sync + 'static,
) -> Arc<Mutex<Vec<String>>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&found);
    rig.cluster.cache().subscribe(Box::new(move |kind, name, object| {
        if let (Kind::CiliumNode, Some(object)) = (kind, object)
            && let Some(objection) = look(&Published::of(object))
        {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(format!("{name}: {objection}"));
        }
    }));
    found
}

fn ensure_none(objections: &Mutex<Vec<String>>) -> Result<()> {
    let found = objections.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}

/// The number of writes of this kind that the controller has done.
async fn n_writes(controller: &Controller, kind: &str) -> Result<u64> {
    let (_, metrics) = controller.get("/metrics").await?;
    let line = format!("cilium_node_ipam_writes_total{{kind=\"{kind}\",outcome=\"done\"}} ");
    let found = metrics.lines().find_map(|metric| metric.strip_prefix(&line));
    Ok(found.map_or(Ok(0), str::parse)?)
}

/// The number of its writes of CiliumNodes for draining blocks.
async fn n_steps(controller: &Controller) -> Result<u64> {
    Ok(n_writes(controller, "withdraw").await? + n_writes(controller, "usage_query").await?)
}

/// The state of a draining block in this version, in one line.
fn summary(kind: Kind, object: &DynamicObject) -> String {
    if kind == Kind::Block {
        return format!("the claim of {} is {}", Claim::of(object).cidr, Claim::of(object).state);
    }
    let seen = Published::of(object);
    let n_fenced = seen.pool.values().filter(|owner| *owner == FENCE).count();
    let mut marks: BTreeMap<&str, usize> = BTreeMap::new();
    seen.release.values().for_each(|state| *marks.entry(state).or_default() += 1);
    format!("{} addresses, {n_fenced} fenced, {} used, {marks:?}", seen.pool.len(), seen.n_used())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_not_needed_goes_back_in_five_writes() -> Result<()> {
    goes_back_in_five_writes(Options::default()).await
}

pub(crate) async fn goes_back_in_five_writes(options: Options) -> Result<()> {
    under_oracle(options, async |rig| {
        let reclaim = json!({"mode": "Enabled", "usedBelow": 80, "after": format!("{}s", AFTER.as_secs())});
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24").with("reclaim", reclaim)).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let settings = Settings { update_rate: LONG_PERIOD, ..rig.agents.settings() };
        let mut scene = Scene::join_with(rig, "n", settings).await?;
        let block = scene.grow(rig).await?;
        let (before, moves) = (n_steps(&controller).await?, n_writes(&controller, "move_claim").await?);
        scene.shrink().await?;
        let begun = Instant::now();
        let version: u64 = rig.cluster.published("n").context("its CiliumNode")?.resource_version.parse()?;
        let seen = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&seen);
        rig.cluster.cache().subscribe(Box::new(move |kind, _, object| {
            let is_later = |object: &Arc<DynamicObject>| {
                Published::of(object).resource_version.parse::<u64>().is_ok_and(|found| found > version)
            };
            if kind == Kind::CiliumNode && object.is_some_and(is_later) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            if let (Kind::CiliumNode | Kind::Block, Some(object)) = (kind, object) {
                eprintln!("{:?}: {}", begun.elapsed(), summary(kind, object));
            }
        }));
        scene.wait_free(rig, &block).await?;
        let delayed = begun.elapsed().saturating_sub(AFTER + REUSE_AFTER);
        let periods = delayed.as_secs_f64() / LONG_PERIOD.as_secs_f64();
        let steps = n_steps(&controller).await? - before;
        let moves = n_writes(&controller, "move_claim").await? - moves;
        let all = seen.load(Ordering::Relaxed);
        eprintln!(
            "{block} was free after {:?}, which is {periods:.1} periods beside the delays; {steps} writes of its \
             CiliumNode, {} of the agent, {moves} moves of the claim",
            begun.elapsed(),
            all.saturating_sub(steps),
        );
        ensure!(steps <= 5, "{steps} writes of the CiliumNode");
        scene.restart(rig).await?;
        // The next node that needs the block gets it.
        ensure!(scene.fill(rig).await? == block, "another block than {block}");
        wait_claims_carried(rig).await?;
        Ok((controller, scene))
    })
    .await
}

/// A pool overlaps the need of nodes by mistake. They take blocks of it, it is deleted, and none of its blocks remains.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_made_by_mistake_is_undone_by_its_deletion() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster
            .create_pool(&pool("right", "10.1.0.0/24").with("reclaim", json!({"mode": "Disabled"})))
            .await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let (busy, calm) = tokio::try_join!(Scene::join(rig, "busy"), Scene::join(rig, "calm"))?;
        let mistake = pool("mistake", "10.2.0.0/24").with("priority", 10);
        rig.cluster.create_pool(&mistake.with("reclaim", json!({"mode": "Disabled"}))).await?;
        wait_status(rig, "mistake", "its nodes", |status| status["nodes"]["selected"] == 2).await?;
        for scene in [&busy, &calm] {
            let block = scene.grow(rig).await?;
            ensure!(block.starts_with("10.2.0."), "{block} was taken");
        }
        calm.shrink().await?;

        rig.cluster.delete_pool("mistake").await?;
        let begun = Instant::now();
        // The full node gets a replacement elsewhere first. Its pods in the block of the mistake keep running until
        // they are deleted.
        let three = |seen: &Published| seen.pod_cidrs.len() == 3 && seen.pool.len() == 3 * BLOCK;
        let seen = rig.cluster.wait_published("busy", "room elsewhere", SOON, three).await?;
        ensure!(seen.pod_cidrs[2].starts_with("10.1.0."), "{:?}", seen.pod_cidrs);
        let none_of_it = |node: &str| {
            let seen = rig.cluster.published(node).unwrap_or_default();
            !seen.pod_cidrs.iter().any(|cidr| cidr.starts_with("10.2.0."))
        };
        rig.cluster.wait_until("calm to have nothing of it", LATE, async || Ok(none_of_it("calm"))).await?;
        eprintln!("the calm node had nothing of it after {:?}", begun.elapsed());
        ask(rig, &calm.agent, "ns/meanwhile").await?;
        ask(rig, &busy.agent, "ns/meanwhile").await?;
        for number in 0..3 {
            busy.agent.release(&format!("ns/second-{number}")).await?;
        }
        let begun = Instant::now();
        let gone = async || Ok(rig.cluster.object(Kind::Pool, "mistake").is_none());
        rig.cluster
            .wait_until("the pool to be gone", LATE, gone)
            .await
            .context(busy.reported(rig, "10.2.0.0/28"))?;
        eprintln!("the pool was gone {:?} after the last pod in it", begun.elapsed());
        let nothing = async || Ok(none_of_it("busy") && none_of_it("calm"));
        rig.cluster.wait_until("nothing of it to be left", SOON, nothing).await?;
        let mut scenes = [busy, calm];
        for scene in &mut scenes {
            scene.restart(rig).await?;
        }
        // Its range is free.
        rig.cluster.create_pool(&pool("next", "10.2.0.0/24").select("zone", "next")).await?;
        wait_status(rig, "next", "free blocks", |status| status["ipv4"]["blocks"]["free"] == 16).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, scenes))
    })
    .await
}

/// The only pool is deleted by mistake: its blocks stay open to pods where a node needs them.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_pool_is_deleted_and_every_pod_still_starts() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut scene, block) = Scene::grown(rig).await?;
        let fences = objections(rig, |seen| {
            let fenced = seen.pool.iter().find(|(_, owner)| *owner == FENCE);
            fenced.map(|(address, _)| format!("{address} is fenced"))
        });
        rig.cluster.delete_pool("p").await?;
        controller.wait_logged("the node needs it, and its other pools have no room", SOON).await?;
        scene
            .wait_reported(
                rig,
                &block,
                "its node needs it, its agent is not Ready, or it is not its turn yet (?: )",
            )
            .await?;
        // Also after a restart of the agent.
        scene.restart(rig).await?;
        let filled = scene.agent.allocate_many("ns/late-", BLOCK).await?;
        ensure!(
            filled.allocated.len() == BLOCK - 3,
            "{} pods started: {:?}",
            filled.allocated.len(),
            filled.error
        );
        wait_use_written(rig, &scene.agent, "n").await?;
        ensure_none(&fences)?;

        // The surplus leaves, and the rest is open as before.
        scene.shrink().await?;
        scene.wait_free(rig, &block).await?;
        let filled = scene.agent.allocate_many("ns/last-", BLOCK).await?;
        ensure!(filled.allocated.len() == BLOCK - OWN - KEPT, "{} pods started", filled.allocated.len());
        ensure!(
            rig.cluster.object(Kind::Pool, "p").is_some(),
            "the pool is gone, and its first block is not"
        );
        scene.restart(rig).await?;
        Ok((controller, scene))
    })
    .await
}

/// A Pod on the node with an address of the block that its agent has not given to it.
async fn create_ghost(rig: &Rig, scene: &Scene, block: IpNet) -> Result<()> {
    let held = scene.held().await?;
    let address = block.hosts().find(|address| !held.contains_key(address)).context("all are in use")?;
    create_pod(rig, GHOST, &scene.node, Network::OfThePod, "Running", address).await
}

/// The network that a Pod is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    OfThePod,
    OfTheHost,
}

/// A Pod as the kubelet reports it.
async fn create_pod(
    rig: &Rig,
    name: &str,
    node: &str,
    network: Network,
    phase: &str,
    address: IpAddr,
) -> Result<()> {
    let on_host = network == Network::OfTheHost;
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "hostNetwork": on_host, "containers": [{"name": "app", "image": "app"}]},
    }))?;
    pods(rig).create(&PostParams::default(), &pod).await?;
    let text = address.to_string();
    let status = json!({"status": {"phase": phase, "podIP": text, "podIPs": [{"ip": text}]}});
    pods(rig).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// A pod has an address that its agent does not list: the agent is never asked to release the block.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_a_pod_in_no_list_stays() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut scene, block) = Scene::grown(rig).await?;
        let cidr: IpNet = block.parse()?;
        create_ghost(rig, &scene, cidr).await?;
        let marks =
            objections(rig, move |seen| has_any(&seen.release, cidr).then(|| format!("{:?}", seen.release)));
        scene.shrink().await?;
        // Twice: each drain needs a new observation.
        for _ in 0..2 {
            let asked = |seen: &Published| seen.release.contains_key(QUESTION);
            rig.cluster.wait_published("n", "a question", LATE, asked).await?;
            let cleared = |seen: &Published| !seen.release.contains_key(QUESTION);
            rig.cluster.wait_published("n", "the question to be cleared", LATE, cleared).await?;
        }
        ensure_none(&marks)?;
        let state = scene.claim(rig, &block).map(|claim| claim.state);
        ensure!(state.as_deref() == Some("Draining"), "{}", scene.reported(rig, &block));

        controller
            .wait_logged("the agent lists no address of it, but these pods have one: kube-system/ghost", SOON)
            .await?;
        let unlisted = "pods have addresses of it that the agent does not list (1: kube-system/ghost)";
        scene.wait_reported(rig, &block, unlisted).await?;

        delete_at_once(rig, GHOST).await?;
        scene.wait_free(rig, &block).await?;
        scene.restart(rig).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, scene))
    })
    .await
}

/// A Pod on the network of the host has no address of ours, even if the kubelet reports one as the address of the host.
/// A Pod that has finished has none any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_leaves_beside_pods_that_have_no_address_of_it() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut scene, block) = Scene::grown(rig).await?;
        let cidr: IpNet = block.parse()?;
        let mut addresses = cidr.hosts();
        for (name, network, phase) in [
            ("static", Network::OfTheHost, "Running"),
            ("done", Network::OfThePod, "Succeeded"),
            ("failed", Network::OfThePod, "Failed"),
        ] {
            let address = addresses.next().context("an address")?;
            create_pod(rig, name, "n", network, phase, address).await?;
        }
        scene.shrink().await?;
        scene.wait_free(rig, &block).await?;
        scene.restart(rig).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, scene))
    })
    .await
}

/// A pod that its agent does not list comes while the agent is asked to release the block. The block is held again, and
/// no mark is left that would keep a pod from being restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_no_list_that_comes_late_keeps_its_block_whole() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        // The agent has just reported when it is asked, so its answers come a period later.
        let settings = Settings { update_rate: LONG_PERIOD, ..rig.agents.settings() };
        let mut scene = Scene::join_with(rig, "n", settings).await?;
        let block = scene.grow(rig).await?;
        let cidr: IpNet = block.parse()?;
        scene.shrink().await?;
        let asked = |seen: &Published| has_any(&seen.release, cidr);
        let seen = rig.cluster.wait_published("n", "marks", LATE, asked).await?;
        create_ghost(rig, &scene, cidr).await?;
        let let_go = of_block(&seen.release, cidr).any(|state| state != "marked-for-release");
        ensure!(!let_go, "the agent has answered already: {:?}", seen.release);
        scene.wait_whole(rig, &block).await?;
        scene.restart(rig).await?;
        delete_at_once(rig, GHOST).await?;
        scene.wait_free(rig, &block).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, scene))
    })
    .await
}

/// A pod comes when the claim drains and the fence is not there yet. It keeps its address, and the block waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_before_the_fence_keeps_its_address() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, FLAGS).await?;
        let mut scene = Scene::join(rig, "n").await?;
        let block = scene.grow(rig).await?;
        let cidr: IpNet = block.parse()?;
        let patches = Requests::new(Verb::Patch, Kind::CiliumNode).of("n");
        let fence = proxy.plant(patches, Fault::Stall, Often::Times(1));
        scene.shrink().await?;
        let state = || scene.claim(rig, &block).map(|claim| claim.state);
        let drains = async || Ok(state().as_deref() == Some("Draining") && fence.fired() > 0);
        rig.cluster.wait_until("the claim to drain and the fence to be on its way", LATE, drains).await?;
        let filled = scene.agent.allocate_many("ns/late-", 2 * BLOCK - OWN - KEPT).await?;
        drop(fence);
        let lies_in = |address: &IpAddr| cidr.contains(address);
        let late: Vec<&String> = filled
            .allocated
            .iter()
            .filter(|(_, addresses)| addresses.each().any(|address| lies_in(&address)))
            .map(|(owner, _)| owner)
            .collect();
        ensure!(!late.is_empty(), "the fence was there first: {filled:?}");
        eprintln!("{} pods came before the fence", late.len());
        // The node needs the block again.
        scene.wait_whole(rig, &block).await?;
        scene.restart(rig).await?;
        for (owner, _) in filled.allocated.iter().filter(|(owner, _)| *owner != *late[0]) {
            scene.agent.release(owner).await?;
        }
        // It drains again, now with the fence, and one pod is left in it.
        let fenced = |seen: &Published| of_block(&seen.pool, cidr).all(|owner| owner == FENCE);
        rig.cluster.wait_published("n", "the fence", LATE, fenced).await?;
        scene
            .wait_reported(
                rig,
                &block,
                "its agent uses addresses of it (status.ipam.used of the CiliumNode) (1: )",
            )
            .await?;
        scene.restart(rig).await?;
        scene.agent.release(late[0]).await?;
        scene.wait_reported(rig, &block, "nothing").await?;
        scene.wait_free(rig, &block).await?;
        scene.restart(rig).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, proxy, scene))
    })
    .await
}
