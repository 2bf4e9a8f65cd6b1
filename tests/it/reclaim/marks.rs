//! Release marks that no controller of the test has written, and the controller's marks on addresses that another
//! writer has put back.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::model::request::WithdrawalStep;
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::node::{BLOCK, FLAGS, LATE, LONG_PERIOD, Scene, pod_of, pool};
use super::steps::{Moment, gives_back};
use crate::agent_pods::report;
use crate::scene::SOON;
use crate::support::agent::Settings;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubelet::Health;
use crate::support::objects::Kind;
use crate::support::rig::under_oracle;
use crate::support::views::Published;

/// Any writer may write `release-ips`, and an earlier controller may have left anything there. Agents answer some of
/// the marks, and clean up none of them.
#[tokio::test(flavor = "multi_thread")]
async fn marks_of_an_earlier_controller_are_cleared_at_the_start() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut scene, block) = Scene::grown(rig).await?;
        controller.sigkill().await?;

        // One mark of each state on addresses that no pod has, and a mark on one that a pod has.
        let cidr: IpNet = block.parse()?;
        let held = scene.held().await?;
        let free: Vec<IpAddr> = cidr.hosts().filter(|address| !held.contains_key(address)).collect();
        let used = *held.keys().find(|address| cidr.contains(*address)).context("a pod in it")?;
        let states = ["marked-for-release", "ready-for-release", "released", "do-not-release"];
        let mut marks: Map<String, Value> =
            free.iter().zip(states).map(|(address, state)| (address.to_string(), state.into())).collect();
        marks.insert(used.to_string(), states[0].into());
        let marks = json!({"status": {"ipam": {"release-ips": marks}}});
        rig.cluster.patch_status(Kind::CiliumNode, "n", marks).await?;
        let answered = |seen: &Published| {
            let state = |address: IpAddr| seen.release.get(&address.to_string()).map(String::as_str);
            state(free[0]) == Some("ready-for-release") && state(used) == Some("do-not-release")
        };
        let seen = rig.cluster.wait_published("n", "answers", SOON, answered).await?;
        ensure!(seen.release.len() == 5, "the agent has cleaned up: {:?}", seen.release);

        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        scene.wait_whole(rig, &block).await?;
        scene.restart(rig).await?;
        scene.fill_both(rig).await?;
        gives_back(rig, &mut scene, &block).await?;
        Ok((controller, scene))
    })
    .await
}

/// The agent is down when its block is removed, so `released` is still there when another writer puts an address back.
/// No pod would get that address again: the agent removes the mark only of an address that is not in the pool.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_comes_back_as_released_is_given_to_pods_again() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        // It has just written when the block is removed, and sees the removal at its next write at the earliest.
        let settings = Settings { update_rate: LONG_PERIOD, ..rig.agents.settings() };
        let mut scene = Scene::join_with(rig, "n", settings).await?;
        let block = scene.grow(rig).await?;
        let cidr: IpNet = block.parse()?;
        let address = cidr.addr().to_string();
        Moment::Step(WithdrawalStep::Confirm).reach(rig, &scene, &block).await?;
        scene.agent.stop().await?;
        let off = |seen: &Published| !seen.pod_cidrs.contains(&block);
        let seen = rig.cluster.wait_published("n", "the block to be off", LATE, off).await?;
        let state = seen.release.get(&address).map(String::as_str);
        ensure!(state == Some("released"), "the agent has seen it: {:?}", seen.release);

        let cidrs = [seen.pod_cidrs, vec![block.clone()]].concat();
        let back = json!({"spec": {"ipam": {"podCIDRs": cidrs, "pool": {&address: {}}}}});
        rig.cluster.patch(Kind::CiliumNode, "n", back).await?;
        let cleared = |seen: &Published| !seen.release.contains_key(&address);
        let seen = rig.cluster.wait_published("n", "its mark to be cleared", LATE, cleared).await?;
        // The agent removes the other marks. Their addresses do not come back before that.
        ensure!(seen.release.len() == BLOCK - 1, "{:?}", seen.release);
        scene.agent.start()?;
        let started = scene.agent.wait_ready(SOON).await?;
        ensure!(started.lost.is_empty(), "not restored: {:?}", started.lost);
        report(rig, &pod_of("n"), 1, Health::Ready).await?;
        scene.wait_whole(rig, &block).await?;
        scene.fill_both(rig).await?;
        gives_back(rig, &mut scene, &block).await?;
        Ok((controller, scene))
    })
    .await
}
