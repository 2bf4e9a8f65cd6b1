//! A misfortune that users had: a BGP speaker follows the podCIDRs of Nodes, and agents have other blocks, so routers
//! send the traffic of pods to the wrong machine.

use std::process::Stdio;

use anyhow::{Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::process::Command;

use super::Scene;
use super::oracle::{assert_never_two_ways, wait_right};
use crate::routes::{configurations, create_configuration, flags, options};
use crate::scene::insist;
use crate::support::controller::Controller;
use crate::support::lab::ROUTER;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const NODES: [&str; 3] = ["a", "b", "c"];

#[tokio::test(flavor = "multi_thread")]
async fn a_speaker_that_follows_nodes_sends_traffic_to_the_wrong_machine() -> Result<()> {
    under_oracle(options(), async |rig| {
        let mut scene = Scene::start(rig).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &["--min-write-interval", "0s"]).await?;
        for name in NODES {
            scene.join(rig, name).await?;
        }
        rig.control_plane.alarm.check()?;
        for agent in scene.agents.values_mut() {
            agent.wait_ready(crate::scene::SOON).await?;
        }
        // kube-controller-manager gives each Node the block of the next one.
        let blocks: Vec<String> = NODES.iter().flat_map(|name| blocks(rig, name)).collect();
        ensure!(blocks.len() == NODES.len(), "{blocks:?}");
        for (number, name) in NODES.iter().enumerate() {
            let of_next = &blocks[(number + 1) % NODES.len()];
            let spec = json!({"spec": {"podCIDR": of_next, "podCIDRs": [of_next]}});
            rig.cluster.patch(Kind::Node, name, spec).await?;
            // An address of a pod, on the machine where the pod runs.
            scene.lab.add_address(name, &format!("{}/32", a_pod(&blocks[number]))).await?;
        }
        // A speaker that follows Nodes.
        for (number, name) in NODES.iter().enumerate() {
            let wrong = json!([blocks[(number + 1) % NODES.len()]]);
            let spec = json!({
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": format!("host-{name}")}},
                "bgp": {"routers": [{"asn": 64512, "prefixes": wrong, "neighbors": [{
                    "address": ROUTER[0], "asn": 64513, "holdTime": "30s", "keepaliveTime": "10s", "connectTime": "1s",
                    "toAdvertise": {"allowed": {"mode": "all"}},
                }]}]},
            });
            create_configuration(rig, &format!("follows-{name}"), spec).await?;
        }
        insist(rig, async || {
            let routes = scene.lab.table().await?;
            ensure!(routes.len() == NODES.len(), "{routes:?}");
            Ok(())
        })
        .await?;
        for block in &blocks {
            ensure!(!scene.lab.reaches(&a_pod(block)).await?, "the wrong machine has {}", a_pod(block));
        }
        let checked = check(rig).await?;
        for (number, name) in NODES.iter().enumerate() {
            let cause = format!("its podCIDR has addresses of node {}", NODES[(number + 1) % NODES.len()]);
            let names_it = |item: &Value| item["cause"] == cause && item["objects"][0]["name"] == *name;
            ensure!(checked["items"].as_array().is_some_and(|items| items.iter().any(names_it)), "{checked}");
        }

        // The remedy: that speaker exits, and the exporter announces the blocks of nodes.
        for name in NODES {
            configurations(rig).0.delete(&format!("follows-{name}"), &DeleteParams::default()).await?;
        }
        insist(rig, async || {
            let routes = scene.lab.table().await?;
            ensure!(routes.is_empty(), "{routes:?}");
            Ok(())
        })
        .await?;
        controller.sigterm_and_wait().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        wait_right(rig, &scene.lab, NODES.len()).await?;
        for block in &blocks {
            ensure!(scene.lab.reaches(&a_pod(block)).await?, "no machine has {}", a_pod(block));
        }
        assert_never_two_ways(&scene.lab).await?;
        Ok((controller, scene))
    })
    .await
}

fn blocks(rig: &Rig, node: &str) -> Vec<String> {
    rig.cluster.published(node).unwrap_or_default().pod_cidrs
}

/// An address of this block.
fn a_pod(block: &str) -> String {
    let (first, _) = block.split_once('/').unwrap_or((block, ""));
    match first.parse::<std::net::Ipv4Addr>() {
        Ok(first) => std::net::Ipv4Addr::from(u32::from(first) + 5).to_string(),
        Err(_) => String::new(),
    }
}

/// The answer of `check`, with the administrator's rights.
async fn check(rig: &Rig) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(["check", "-o", "json"]).env("KUBECONFIG", &rig.control_plane.admin_kubeconfig);
    let output = command.stdin(Stdio::null()).output().await?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
