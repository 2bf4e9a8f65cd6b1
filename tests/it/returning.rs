//! Nodes that return, and Nodes and CiliumNodes that are recreated while an agent runs. They get all their blocks again
//! at once, before a pod can be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::chronicle::{Chronicle, delete_node, uid, wait_all, wait_claims, wait_gone};
use crate::scene::{PROMPT, SOON, ask_many, fill, join_one, versions, wait_claims_carried, wait_use_written};
use crate::support::agent::{Agent, Make};
use crate::support::control_plane::{Collect, Options};
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim_name};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// Not `PROMPT`: a returning node is not served yet, so its first patch must come at once and be the only one.
const SLOW: &[&str] = &["--min-write-interval", "1h"];

/// A node with three blocks. Pods use all their addresses.
async fn full_node(rig: &Rig, name: &str) -> Result<(Agent, Vec<String>)> {
    let agent = Agent::Fake(join_one(rig, NodeSpec::new(name)).await?);
    fill(rig, &agent, name, 3).await?;
    let blocks = rig.cluster.published(name).context("its CiliumNode")?.pod_cidrs;
    ensure!(blocks.len() == 3, "{blocks:?}");
    Ok((agent, blocks))
}

fn pool() -> PoolSpec {
    PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("perNode", json!({"maxBlocks": 3}))
}

/// An agent restores all pods that have an address in the first version of the pool that it accepts. The others lose
/// their network. So that version must have all addresses.
fn carried_at_once(chronicle: &Chronicle, node: &str, blocks: &[String]) -> Result<()> {
    let story = chronicle.of_cilium_node(node);
    let end = story.iter().rposition(|words| words == "gone").context("it was never gone")?;
    ensure!(story[end + 1..] == [String::new(), blocks.join(" ")], "{story:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_returns_while_its_blocks_cool_gets_all_of_them_in_one_patch() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let (mut agent, blocks) = full_node(rig, "n").await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, SLOW).await?;
        let chronicle = Chronicle::start(rig);

        // The machine is switched off with its pods, returns long after, and its pods have the same addresses.
        agent.stop().await?;
        delete_node(rig, "n").await?;
        wait_all(rig, "n", 3, "Cooling").await?;
        // Its limits do not count for its former blocks.
        rig.cluster.patch_pool("p", json!({"perNode": {"maxBlocks": 1}})).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        agent.start()?;
        agent.wait_ready(SOON).await?;
        carried_at_once(&chronicle, "n", &blocks)?;
        wait_claims_carried(rig).await?;
        for block in &blocks {
            let story = chronicle.of_block(block);
            ensure!(story == ["n Releasing NodeGone", "n Cooling NodeGone", "n Held"], "{block}: {story:?}");
        }
        Ok((controller, agent))
    })
    .await
}

/// `kubectl delete` of a cooling claim frees nothing: the machine may only have been away. It gets the same block
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_cooling_claim_somebody_deletes_returns_to_its_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/27"])).await?;
        let chronicle = Chronicle::start(rig);
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        let first = rig.cluster.published("n").context("its CiliumNode")?.pod_cidrs;
        agent.stop().await?;
        delete_node(rig, "n").await?;
        wait_all(rig, "n", 1, "Cooling").await?;
        rig.cluster.delete(Kind::Block, &claim_name(&first[0])).await?;

        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        agent.start()?;
        agent.wait_ready(SOON).await?;
        let second = rig.cluster.published("n").context("its CiliumNode")?.pod_cidrs;
        ensure!(second == first, "{second:?} after {first:?}");
        wait_claims_carried(rig).await?;
        let story = chronicle.of_block(&first[0]);
        let expected = ["n Held", "n Releasing NodeGone", "n Cooling NodeGone", "n Held"];
        ensure!(story == expected, "{story:?}");
        Ok((controller, agent))
    })
    .await
}

/// A user removed our finalizer, and another writer's finalizer keeps the claim. The server lets no finalizer be added
/// to it any more. So it can't be kept, and the node must not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_cooling_claim_lost_its_finalizer_returns_to_another_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/27"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        let first = rig.cluster.published("n").context("its CiliumNode")?.pod_cidrs;
        agent.stop().await?;
        delete_node(rig, "n").await?;
        wait_all(rig, "n", 1, "Cooling").await?;
        let cooling = claim_name(&first[0]);
        // Before the deletion the controller would restore our finalizer.
        for finalizers in [json!(["nodeipam.io/claim", "example.com/audit"]), json!(["example.com/audit"])] {
            rig.cluster.patch(Kind::Block, &cooling, json!({"metadata": {"finalizers": finalizers}})).await?;
            rig.cluster.delete(Kind::Block, &cooling).await?;
        }

        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        agent.start()?;
        // Its agent shows its address of the first block, so two reads of its Pods come first, a minute apart.
        agent.wait_ready(SOON * 3).await?;
        let second = rig.cluster.published("n").context("its CiliumNode")?.pod_cidrs;
        ensure!(second.len() == 1 && second != first, "{second:?} after {first:?}");

        rig.cluster.patch(Kind::Block, &cooling, json!({"metadata": {"finalizers": null}})).await?;
        wait_gone(rig, Kind::Block, &cooling).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// A controller may be killed between any two of the moves. The next one finds the claims of a node in three states.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_returns_from_releasing_as_from_cooling() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let (mut agent, blocks) = full_node(rig, "n").await?;
        controller.sigkill().await?;
        agent.stop().await?;
        delete_node(rig, "n").await?;
        let since = k8s_openapi::jiff::Timestamp::now().to_string();
        let releasing = json!({"spec": {"state": "Releasing", "reason": "NodeGone", "since": since}});
        for block in &blocks[1..] {
            rig.cluster.patch(Kind::Block, &claim_name(block), releasing.clone()).await?;
        }
        // An earlier version of the controller removed the finalizer with this move.
        let cooling = json!({"spec": {"state": "Cooling"}, "metadata": {"finalizers": null}});
        rig.cluster.patch(Kind::Block, &claim_name(&blocks[2]), cooling).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;

        let chronicle = Chronicle::start(rig);
        agent.start()?;
        rig.cluster.wait_published("n", "nothing yet", SOON, |seen| seen.pod_cidrs.is_empty()).await?;
        let controller = Controller::start_ready(&rig.control_plane, SLOW).await?;
        agent.wait_ready(SOON).await?;
        let story = chronicle.of_cilium_node("n");
        ensure!(story == [String::new(), blocks.join(" ")], "{story:?}");
        wait_claims_carried(rig).await?;
        for block in &blocks {
            let finalizers = rig.cluster.read(Kind::Block, &claim_name(block)).await?.metadata.finalizers;
            ensure!(finalizers.as_ref().is_some_and(|all| all.len() == 1), "{block}: {finalizers:?}");
        }
        Ok((controller, agent))
    })
    .await
}

/// A Node is deleted and recreated while its agent and its pods keep running, as by `kubeadm reset` or an impatient
/// administrator. The new Node is another object, and the claims are rewritten for its uid.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_recreated_under_a_running_agent_keeps_its_blocks() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let (agent, blocks) = full_node(rig, "n").await?;
        let chronicle = Chronicle::start(rig);

        // The agent is faster than the garbage collector: it makes the new Node the owner of the CiliumNode.
        rig.control_plane.collect_garbage(Collect::Off).await?;
        rig.cluster.delete_node("n").await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        owned_by_the_node(rig, "n").await?;
        rig.control_plane.collect_garbage(Collect::On).await?;
        wait_claims_carried(rig).await?;
        ensure!(chronicle.of_cilium_node("n") == [blocks.join(" ")], "{:?}", chronicle.of_cilium_node("n"));

        // The garbage collector is faster: the CiliumNode is deleted, and the agent recreates it without addresses.
        rig.cluster.delete(Kind::CiliumNode, "n").await?;
        wait_gone(rig, Kind::CiliumNode, "n").await?;
        rig.control_plane.collect_garbage(Collect::Off).await?;
        rig.cluster.delete_node("n").await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        owned_by_the_node(rig, "n").await?;
        rig.control_plane.collect_garbage(Collect::On).await?;
        rig.cluster.wait_published("n", "all blocks", SOON, |seen| seen.pod_cidrs == blocks).await?;
        wait_claims_carried(rig).await?;
        ensure!(agent.held().await?.len() == 3 * 14, "{:?}", agent.held().await?);
        Ok((controller, agent))
    })
    .await
}

/// Returns when the CiliumNode exists and names the present Node as its owner.
async fn owned_by_the_node(rig: &Rig, node: &str) -> Result<()> {
    let uid = uid(rig, Kind::Node, node).await?;
    rig.cluster
        .wait_until("the CiliumNode to have its new owner", SOON, async || {
            let object = rig.cluster.object(Kind::CiliumNode, node);
            let owners = object.and_then(|object| object.metadata.owner_references.clone());
            Ok(owners.is_some_and(|owners| owners.iter().any(|owner| owner.uid == uid)))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_ciliumnode_shows_what_the_last_one_did_fake() -> Result<()> {
    a_recreated_ciliumnode_shows_what_the_last_one_did(Make::Fake, Families::Dual).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_ciliumnode_shows_what_the_last_one_did_real() -> Result<()> {
    a_recreated_ciliumnode_shows_what_the_last_one_did(Make::Real, Families::V4).await
}

async fn a_recreated_ciliumnode_shows_what_the_last_one_did(make: Make, families: Families) -> Result<()> {
    under_oracle(Options::of(families), async |rig| {
        // Blocks of both families offer 16 addresses, so that both can be full at a time.
        let pool = pool().ipv6(124, &["fd00:1::/64"]).with("allowFirstLastIPs", true);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = rig.agents.agent_with(make, "n", rig.agents.settings());
        agent.start()?;
        agent.wait_ready(SOON).await?;
        let n_families = families.each().count();
        fill(rig, &agent, "n", 2 * n_families).await?;
        // When it is full, it gets the last blocks that it may have, as soon as its agent has written that.
        wait_claims(rig, "n", "three claims per family", |claims| claims.len() == 3 * n_families).await?;
        wait_use_written(rig, &agent, "n").await?;
        wait_claims_carried(rig).await?;
        let before = rig.cluster.published("n").context("its CiliumNode")?;
        let claims = versions(rig, &[Kind::Block]).await?;

        rig.cluster.delete(Kind::CiliumNode, "n").await?;
        wait_gone(rig, Kind::CiliumNode, "n").await?;
        agent.touch_node().await?;
        let again = |seen: &Published| {
            seen.uid != before.uid && seen.pod_cidrs == before.pod_cidrs && seen.pool == before.pool
        };
        rig.cluster.wait_published("n", "the same blocks, addresses and owners", SOON, again).await?;
        ensure!(versions(rig, &[Kind::Block]).await? == claims, "claims were written");
        // Every pod is restored from it.
        agent.restart_and_restore(SOON).await?;
        Ok((controller, agent))
    })
    .await
}

/// An agent writes its use at its next change, and on a full node nothing can change. Without a usage query the use
/// would stay unknown forever, and the node would never grow.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_whose_ciliumnode_was_recreated_is_asked_and_grows_fake() -> Result<()> {
    a_full_node_whose_ciliumnode_was_recreated_is_asked_and_grows(Make::Fake).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_whose_ciliumnode_was_recreated_is_asked_and_grows_real() -> Result<()> {
    a_full_node_whose_ciliumnode_was_recreated_is_asked_and_grows(Make::Real).await
}

async fn a_full_node_whose_ciliumnode_was_recreated_is_asked_and_grows(make: Make) -> Result<()> {
    /// A starting agent reports unasked within a few of its periods.
    const FLAGS: &[&str] = &["--min-write-interval", "0s", "--usage-query-interval", "5s"];
    under_oracle(Options::default(), async |rig| {
        let pool = pool().with("perNode", json!({"maxBlocks": 1}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = rig.agents.agent_with(make, "n", rig.agents.settings());
        agent.start()?;
        agent.wait_ready(SOON).await?;
        fill(rig, &agent, "n", 1).await?;
        wait_use_written(rig, &agent, "n").await?;
        let questions = Questions::listen(rig, "n");

        // A write of the status in flight may reach the new object, and reports unasked. For the next object the agent
        // has nothing to report.
        for _ in 0..3 {
            rig.cluster.delete(Kind::CiliumNode, "n").await?;
            wait_gone(rig, Kind::CiliumNode, "n").await?;
            agent.touch_node().await?;
            let used = |seen: &Published| seen.pool.len() == 14 && seen.used.is_some();
            rig.cluster.wait_published("n", "its block, and its use", SOON, used).await?;
            if questions.heard() {
                break;
            }
        }
        ensure!(questions.heard(), "its agent was not asked");
        rig.cluster.patch_pool("p", json!({"perNode": {"maxBlocks": 2}})).await?;
        rig.cluster.wait_published("n", "two blocks", SOON, |seen| seen.pod_cidrs.len() == 2).await?;
        rig.cluster.wait_published("n", "no question", SOON, |seen| seen.release.is_empty()).await?;
        // No event reports that the agent has seen it.
        ask_many(rig, &agent, "ns/more-", 10).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// Whether any version of a CiliumNode had a usage query on it: a release mark.
struct Questions(Arc<AtomicBool>);

impl Questions {
    fn listen(rig: &Rig, node: &'static str) -> Self {
        let heard = Arc::new(AtomicBool::new(false));
        let written = Arc::clone(&heard);
        rig.cluster.cache().subscribe(Box::new(move |kind, name, object| {
            let asked = |object: &Arc<_>| !Published::of(object).release.is_empty();
            if kind == Kind::CiliumNode && name == node && object.is_some_and(asked) {
                written.store(true, Ordering::SeqCst);
            }
        }));
        Self(heard)
    }

    fn heard(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
