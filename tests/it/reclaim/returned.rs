//! Nodes that are deleted and join again while the range of their only block drains. They get a replacement first, and
//! the old block leaves as soon as its agent consents.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde_json::json;

use super::node::{BLOCK, FLAGS, Scene, pod_of, pool};
use crate::agent_pods::delete_at_once;
use crate::chronicle::{Chronicle, delete_node};
use crate::scene::{SOON, ask};
use crate::support::agent::{Release, Settings};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::NodeSpec;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

const PODS: usize = 3;

/// The fate of the machine while its Node and its CiliumNode were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    /// Its agent and its pods have kept running.
    Living,
    /// Its agent has restarted, and its pods have kept running.
    Restarted,
    /// It has booted again, without a pod.
    Booted,
}

impl Machine {
    const ALL: [Self; 3] = [Self::Living, Self::Restarted, Self::Booted];

    const fn node(self) -> &'static str {
        match self {
            Self::Living => "living",
            Self::Restarted => "restarted",
            Self::Booted => "booted",
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_return_to_a_draining_range_leave_it() -> Result<()> {
    nodes_return(Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_return_to_a_draining_range_leave_it_with_the_oldest_agent() -> Result<()> {
    nodes_return(Release::Oldest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_return_to_a_draining_range_leave_it_with_an_agent_of_1_17() -> Result<()> {
    nodes_return(Release::V1_17).await
}

async fn nodes_return(release: Release) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/26")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let settings = Settings { release, ..rig.agents.settings() };
        let mut scenes = Vec::new();
        for machine in Machine::ALL {
            let scene = Scene::join_with(rig, machine.node(), settings.clone()).await?;
            for number in 0..PODS {
                ask(rig, &scene.agent, &pod(number)).await?;
            }
            let block = rig.cluster.published(machine.node()).context("its CiliumNode")?.pod_cidrs.remove(0);
            scenes.push((machine, scene, block));
        }
        let draining = json!({"ipv4": {"cidrs": [{"cidr": "10.1.0.0/26", "state": "Draining"}]}});
        rig.cluster.patch_pool("p", draining).await?;
        rig.cluster.create_pool(&pool("q", "10.2.0.0/26")).await?;

        let chronicle = Chronicle::start(rig);
        for (machine, scene, block) in scenes {
            let scene = returned(rig, machine, scene, settings.clone()).await?;
            let both = |seen: &Published| seen.pod_cidrs.len() == 2 && seen.pool.len() == 2 * BLOCK;
            let seen = rig.cluster.wait_published(machine.node(), "two blocks", SOON, both).await?;
            ensure!(seen.pod_cidrs[0].starts_with("10.2.0."), "{machine:?}: {:?}", seen.pod_cidrs);
            ensure!(seen.pod_cidrs[1] == block, "{machine:?}: {:?}", seen.pod_cidrs);
            let story = chronicle.of_cilium_node(machine.node());
            let expected = [String::new(), seen.pod_cidrs.join(" ")];
            ensure!(story.ends_with(&expected), "{machine:?} got the blocks one after the other: {story:?}");
            leaves(rig, &controller, machine, &scene, &block).await?;
            scene.agent.power_off().await?;
        }
        Ok(controller)
    })
    .await
}

fn pod(number: usize) -> String {
    format!("ns/pod-{number}")
}

/// The node is deleted with its CiliumNode, and joins again.
async fn returned(rig: &Rig, machine: Machine, mut scene: Scene, settings: Settings) -> Result<Scene> {
    let node = machine.node();
    let before = pods_of(&scene).await?;
    match machine {
        Machine::Living => {
            delete_node(rig, node).await?;
            rig.cluster.create_node(&NodeSpec::new(node)).await?;
            scene.agent.touch_node().await?;
        }
        Machine::Restarted => {
            scene.agent.stop().await?;
            delete_node(rig, node).await?;
            rig.cluster.create_node(&NodeSpec::new(node)).await?;
            scene.agent.start()?;
            let started = scene.agent.wait_ready(SOON).await?;
            ensure!(started.lost.is_empty(), "not restored: {:?}", started.lost);
        }
        Machine::Booted => {
            scene.agent.power_off().await?;
            delete_node(rig, node).await?;
            delete_at_once(rig, &pod_of(node)).await?;
            return Scene::join_with(rig, node, settings).await;
        }
    }
    let after = pods_of(&scene).await?;
    ensure!(after == before, "{machine:?}: {after:?} and not {before:?}");
    Ok(scene)
}

async fn pods_of(scene: &Scene) -> Result<BTreeMap<IpAddr, String>> {
    let mut held = scene.held().await?;
    held.retain(|_, owner| owner.starts_with("ns/"));
    Ok(held)
}

/// The old block is free when no pod uses it. If the agent has an address of it for itself, it stays, and that is the
/// reported reason.
async fn leaves(
    rig: &Rig,
    controller: &Controller,
    machine: Machine,
    scene: &Scene,
    block: &str,
) -> Result<()> {
    for owner in pods_of(scene).await?.into_values() {
        scene.agent.release(&owner).await?;
    }
    let cidr: IpNet = block.parse()?;
    let held = scene.held().await?;
    // An agent that has found its state keeps its router. One that has booted may take another address.
    let keeps = held.keys().any(|address| cidr.contains(address));
    ensure!(keeps || machine == Machine::Booted, "{machine:?} took other addresses: {held:?}");
    if keeps {
        controller.wait_logged(&format!("node {} yet: the agent uses 10.1.0.", machine.node()), SOON).await?;
        Ok(())
    } else {
        scene.wait_free(rig, block).await
    }
}
