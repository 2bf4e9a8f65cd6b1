//! crd mode is set where agents, Cilium's own code, ran in another mode: no pod loses its network without a word.
//!
//! An agent that finds no addresses waits, and an agent that finds a part of them loses all other pods for ever
//! (`docs/migration.md`, Coming to crd mode).

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use crate::agent_pods::{create_agent_pod, report, wait_reported};
use crate::multi_pool::SLOW;
use crate::scene::{PROMPT, SOON, ask};
use crate::support::agent::{Agent, Make, Release, Settings};
use crate::support::cilium_operator::CiliumOperator;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::{Health, create_running};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

const CLUSTER_POOL: &str = "cluster-pool";
const NODE: &str = "n";
const POD: &str = "cilium-n";
const N_PODS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_former_mode_outlive_a_change_to_crd() -> Result<()> {
    pods_outlive_the_change(Release::Newest, Families::Dual).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_former_mode_outlive_a_change_to_crd_with_agents_of_1_17() -> Result<()> {
    pods_outlive_the_change(Release::V1_17, Families::Dual).await
}

/// Pools over other ranges, no claims, and an agent that restarts in crd mode before a person has read anything.
async fn pods_outlive_the_change(release: Release, families: Families) -> Result<()> {
    under_oracle(Options { families, ..Options::default() }, async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        let mut agent = served_by_operator(rig, release).await?;
        let mut held: Vec<IpAddr> = Vec::new();
        for number in 0..N_PODS {
            held.extend(ask(rig, &agent, &format!("ns/{number}")).await?.each());
        }
        let pods: Api<Pod> = Api::default_namespaced(rig.cluster.client.clone());
        // A Pod has one address per family.
        create_running(&pods, "web", NODE, &held[..2]).await?;
        create_agent_pod(rig, POD, NODE, release.as_str()).await?;
        report(rig, POD, 0, Health::Ready).await?;
        let pool = PoolSpec::new("p").ipv4(26, &["10.1.0.0/24"]).ipv6(122, &["fd00:1::/112"]);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_reported(rig, &controller, "/metrics", &["cilium_node_ipam_findings{kind=\"FormerMode\"} 1"])
            .await?;
        offers_nothing(rig)?;

        // The agent finds no addresses, and waits.
        agent.change_mode("crd")?;
        agent.stop().await?;
        agent.start()?;
        report(rig, POD, 1, Health::Starting).await?;
        wait_finding(rig, "would lose their network: default/web").await?;
        offers_nothing(rig)?;

        // The way back loses nothing.
        agent.change_mode(CLUSTER_POOL)?;
        agent.restart_and_restore(SLOW).await?;

        // A person gives the pods up.
        let Agent::Real(real) = &mut agent else { unreachable!("it is Cilium's own") };
        real.expect_losses();
        agent.change_mode("crd")?;
        agent.stop().await?;
        let uid = rig.cluster.read(Kind::CiliumNode, NODE).await?.metadata.uid.context("it has a uid")?;
        let word = format!("nodeipam.io/ignore-former-mode={uid}");
        kubectl(&rig.control_plane, &["annotate", "node", NODE, &word]).await?;
        let is_served = |seen: &Published| !seen.pool.is_empty();
        rig.cluster.wait_published(NODE, "its first addresses", SOON, is_served).await?;
        agent.start()?;
        let started = agent.wait_ready(SLOW).await?;
        ensure!(started.lost.len() == N_PODS, "{:?} are lost", started.lost);
        Ok((controller, agent))
    })
    .await
}

/// Node [`NODE`] with an agent in cluster-pool mode, which has its CIDRs from Cilium's own operator.
async fn served_by_operator(rig: &Rig, release: Release) -> Result<Agent> {
    let ranges = [
        "--cluster-pool-ipv4-cidr",
        "10.9.0.0/16",
        "--cluster-pool-ipv4-mask-size",
        "24",
        "--cluster-pool-ipv6-cidr",
        "fd00:9::/104",
        "--cluster-pool-ipv6-mask-size",
        "120",
    ];
    let operator = CiliumOperator::start(rig, CLUSTER_POOL, &ranges).await?;
    rig.cluster.create_node(&NodeSpec::new(NODE)).await?;
    let settings = Settings { ipam: CLUSTER_POOL, release, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, NODE, settings);
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    operator.end().await?;
    Ok(agent)
}

/// Returns when an event of the Node has these words.
async fn wait_finding(rig: &Rig, words: &str) -> Result<()> {
    let has_event = async || {
        let events = kubectl(&rig.control_plane, &["get", "events", "-A", "-o", "json"]).await?;
        Ok(events.contains(words))
    };
    rig.cluster.wait_until("an event about the former mode", SOON, has_event).await
}

fn offers_nothing(rig: &Rig) -> Result<()> {
    let seen = rig.cluster.published(NODE).context("it has a CiliumNode")?;
    ensure!(seen.pool.is_empty(), "{:?} is published", seen.pool);
    ensure!(rig.cluster.claims_of(NODE).is_empty(), "it has claims");
    Ok(())
}
