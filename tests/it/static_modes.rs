//! The modes in which a node has one block of each family for its whole life, each with Cilium's own agent.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use ipnet::IpNet;
use serde_json::json;

use crate::chronicle::{delete_node, uid, wait_all};
use crate::scene::{PROMPT, SOON, wait_claims_carried, wait_n_claims};
use crate::support::agent::{Addresses, Agent, Make, Release, Settings};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::pod_cidrs;

const KUBERNETES: &str = "kubernetes";

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_serves_a_node_for_its_life() -> Result<()> {
    serves_a_node_for_its_life(
        Release::Newest,
        Options { ipam: "cluster-pool", ..Options::of(Families::Dual) },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_serves_a_node_for_its_life() -> Result<()> {
    serves_a_node_for_its_life(Release::Newest, Options { ipam: KUBERNETES, ..Options::of(Families::Dual) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_serves_a_node_for_its_life_in_annotations() -> Result<()> {
    let options = Options { ipam: KUBERNETES, annotations: true, ..Options::of(Families::Dual) };
    serves_a_node_for_its_life(Release::Newest, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_serves_a_node_of_1_17_for_its_life() -> Result<()> {
    let options = Options { ipam: "cluster-pool", ..Options::of(Families::Dual) };
    serves_a_node_for_its_life(Release::V1_17, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_serves_a_node_of_1_17_for_its_life() -> Result<()> {
    serves_a_node_for_its_life(Release::V1_17, Options { ipam: KUBERNETES, ..Options::of(Families::Dual) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_serves_a_node_of_1_17_for_its_life_in_annotations() -> Result<()> {
    let options = Options { ipam: KUBERNETES, annotations: true, ..Options::of(Families::Dual) };
    serves_a_node_for_its_life(Release::V1_17, options).await
}

/// The controller is killed between each two events.
pub(crate) async fn serves_a_node_for_its_life(release: Release, options: Options) -> Result<()> {
    let ipam = options.ipam;
    under_oracle(options, async |rig| {
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = start_as(rig, release, "n")?;
        wait_n_claims(rig, 2).await?;
        let controller = kill(rig, controller).await?;
        agent.wait_ready(SOON).await?;
        let blocks = blocks(rig, "n").await?;
        ensure!(blocks.len() == 2, "{blocks:?}");
        let pod = agent.allocate("ns/pod").await?;
        ensure!(lies_in(pod, &blocks), "{pod:?} and {blocks:?}");
        let filled = agent.allocate_many("ns/more-", 20).await?;
        ensure!(filled.allocated.len() == 16 - 2 - 3, "first, last, router, health and a pod: {filled:?}");

        let controller = kill(rig, controller).await?;
        agent.restart_and_restore(SOON).await?;

        // Its CiliumNode is deleted while the agent runs, and is recreated with the same CIDRs.
        rig.cluster.delete(Kind::CiliumNode, "n").await?;
        let controller = kill(rig, controller).await?;
        agent.touch_node().await?;
        let in_order = |seen: &crate::support::views::Published| networks(&seen.pod_cidrs) == blocks;
        rig.cluster.wait_published("n", "the same CIDRs in the same order", SOON, in_order).await?;
        agent.restart_and_restore(SOON).await?;

        // Its Node is deleted while the agent runs, and registered again, as a running kubelet does.
        let controller =
            if ipam == KUBERNETES { node_anew(rig, controller, &mut agent).await? } else { controller };

        // The node leaves, and its blocks cool, also under another controller. It returns, and gets them again.
        agent.power_off().await?;
        delete_node(rig, "n").await?;
        let controller = kill(rig, controller).await?;
        wait_all(rig, "n", 2, "Cooling").await?;
        rig.cluster.create_node(&NodeSpec::new("other")).await?;
        let mut other = start_as(rig, release, "other")?;
        other.wait_ready(SOON).await?;
        let others = self::blocks(rig, "other").await?;
        ensure!(others.iter().all(|block| !blocks.contains(block)), "{others:?} cool for another node");
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = start_as(rig, release, "n")?;
        agent.wait_ready(SOON).await?;
        ensure!(self::blocks(rig, "n").await? == blocks, "it had {blocks:?}");
        wait_claims_carried(rig).await?;
        Ok((controller, agent, other))
    })
    .await
}

/// A cluster that Cilium's own allocator has served is taken over unchanged: nothing restarts, nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_takes_over_a_node_that_has_its_cidrs() -> Result<()> {
    takes_over_a_node_that_has_its_cidrs(
        Release::Newest,
        Options { ipam: "cluster-pool", ..Options::default() },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_takes_over_a_node_that_has_its_cidrs() -> Result<()> {
    takes_over_a_node_that_has_its_cidrs(Release::Newest, Options { ipam: KUBERNETES, ..Options::default() })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_takes_over_a_node_that_has_its_cidrs_in_an_annotation() -> Result<()> {
    let options = Options { ipam: KUBERNETES, annotations: true, ..Options::default() };
    takes_over_a_node_that_has_its_cidrs(Release::Newest, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_takes_over_a_node_of_1_17_that_has_its_cidrs() -> Result<()> {
    let options = Options { ipam: "cluster-pool", ..Options::default() };
    takes_over_a_node_that_has_its_cidrs(Release::V1_17, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_takes_over_a_node_of_1_17_that_has_its_cidrs() -> Result<()> {
    takes_over_a_node_that_has_its_cidrs(Release::V1_17, Options { ipam: KUBERNETES, ..Options::default() })
        .await
}

async fn takes_over_a_node_that_has_its_cidrs(release: Release, options: Options) -> Result<()> {
    let Options { ipam, annotations, .. } = options;
    under_oracle(options, async |rig| {
        prepare(rig, 28).await?;
        rig.control_plane.allow("cidr-without-claim", Some("n"), Some("10.1.0.64/28")).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = start_as(rig, release, "n")?;
        if annotations {
            // A version before 1.13 left it like this. The agent then also writes it under the name that it knows.
            let by_hand =
                json!({"metadata": {"annotations": {"io.cilium.network.ipv4-pod-cidr": "10.1.0.64/28"}}});
            rig.cluster.patch(Kind::Node, "n", by_hand).await?;
        } else if ipam == KUBERNETES {
            let by_kube = json!({"spec": {"podCIDR": "10.1.0.64/28", "podCIDRs": ["10.1.0.64/28"]}});
            rig.cluster.patch(Kind::Node, "n", by_kube).await?;
        } else {
            let is_there = async || Ok(rig.cluster.object(Kind::CiliumNode, "n").is_some());
            rig.cluster.wait_until("its CiliumNode", SOON, is_there).await?;
            let by_the_operator = json!({"spec": {"ipam": {"podCIDRs": ["10.1.0.64/28"]}}});
            rig.cluster.patch(Kind::CiliumNode, "n", by_the_operator).await?;
        }
        agent.wait_ready(SOON).await?;
        agent.allocate("ns/pod").await?;
        let before = uid(rig, Kind::CiliumNode, "n").await?;

        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let claims = wait_all(rig, "n", 1, "Held").await?;
        ensure!(claims[0].cidr == "10.1.0.64/28", "{claims:?}");
        let judged = rig.control_plane.oracle().await?;
        ensure!(judged.planted_total > 0, "the oracle has not seen who wrote: {judged:?}");
        ensure!(uid(rig, Kind::CiliumNode, "n").await? == before);
        // From now on it is an ordinary node of the cluster.
        agent.restart_and_restore(SOON).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// The widest blocks that kube-controller-manager gives.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_gives_the_widest_blocks() -> Result<()> {
    gives_the_widest_blocks(Options { ipam: "cluster-pool", ..Options::of(Families::Dual) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_gives_the_widest_blocks() -> Result<()> {
    gives_the_widest_blocks(Options { ipam: KUBERNETES, ..Options::of(Families::Dual) }).await
}

async fn gives_the_widest_blocks(options: Options) -> Result<()> {
    under_oracle(options, async |rig| {
        prepare(rig, 16).await?;
        let widest = PoolSpec::new("p").ipv4(16, &["10.16.0.0/15"]).ipv6(64, &["fd00:16::/62"]);
        rig.cluster.create_pool(&widest).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agents = Vec::new();
        for name in ["a", "b"] {
            rig.cluster.create_node(&NodeSpec::new(name)).await?;
            let mut agent = start(rig, name)?;
            agent.wait_ready(SOON).await?;
            let blocks = blocks(rig, name).await?;
            let widths: Vec<u8> = blocks.iter().map(IpNet::prefix_len).collect();
            ensure!(widths == [16, 64], "{blocks:?}");
            let filled = agent.allocate_many("ns/pod-", 1500).await?;
            ensure!(filled.allocated.len() == 1500, "{:?}", filled.error);
            ensure!(filled.allocated.iter().all(|(_, pod)| lies_in(*pod, &blocks)), "not in {blocks:?}");
            agents.push(agent);
        }
        agents[0].restart_and_restore(SOON).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agents))
    })
    .await
}

async fn node_anew(rig: &Rig, controller: Controller, agent: &mut Agent) -> Result<Controller> {
    let before = rig.cluster.read(Kind::Node, "n").await?;
    rig.cluster.delete_node("n").await?;
    rig.cluster.create_node(&NodeSpec::new("n")).await?;
    let controller = kill(rig, controller).await?;
    let cidrs = pod_cidrs;
    let is_served = async || {
        let now = rig.cluster.read(Kind::Node, "n").await?;
        Ok(now.metadata.uid != before.metadata.uid && cidrs(&now) == cidrs(&before))
    };
    rig.cluster.wait_until("the new Node to have the same CIDRs", SOON, is_served).await?;
    agent.touch_node().await?;
    agent.restart_and_restore(SOON).await?;
    Ok(controller)
}

fn pool() -> PoolSpec {
    PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/112"])
}

fn start(rig: &Rig, node: &str) -> Result<Agent> {
    start_as(rig, Release::Newest, node)
}

fn start_as(rig: &Rig, release: Release, node: &str) -> Result<Agent> {
    let settings = Settings { release, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, node, settings);
    agent.start()?;
    Ok(agent)
}

/// Kills the controller and starts another one.
async fn kill(rig: &Rig, controller: Controller) -> Result<Controller> {
    controller.sigkill().await?;
    Controller::start_ready(&rig.control_plane, PROMPT).await
}

/// The node's CIDRs, in the order in which the agent finds them.
async fn blocks(rig: &Rig, node: &str) -> Result<Vec<IpNet>> {
    let seen = rig.cluster.wait_published(node, "its CIDRs", SOON, |seen| !seen.pod_cidrs.is_empty()).await?;
    ensure!(seen.pool.is_empty(), "an entry for each address: {seen:?}");
    Ok(networks(&seen.pod_cidrs))
}

fn networks(texts: &[String]) -> Vec<IpNet> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn lies_in(pod: Addresses, blocks: &[IpNet]) -> bool {
    let is_in = |address: IpAddr| blocks.iter().any(|block| block.contains(&address));
    pod.each().count() == blocks.len() && pod.each().all(is_in)
}
