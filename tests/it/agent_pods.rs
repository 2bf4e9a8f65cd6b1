//! The use of the knowledge about agents' Pods: the report of an agent that has not restored its pods yet is not
//! trusted.
//!
//! No kubelet runs in these tests, so each plays its part for the Pod of an agent ([`kubelet`]).

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::scene::{PROMPT, SOON, wait_use_written};
use crate::support::agent::Make;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubelet::{self, Health};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

pub(crate) fn pods(rig: &Rig) -> Api<Pod> {
    kubelet::pods(&rig.cluster.client)
}

/// Deletes a Pod without waiting for its containers.
pub(crate) async fn delete_at_once(rig: &Rig, name: &str) -> Result<()> {
    pods(rig).delete(name, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Creates the Pod of an agent of this version.
pub(crate) async fn create_agent_pod(rig: &Rig, name: &str, node: &str, release: &str) -> Result<()> {
    kubelet::create_agent_pod(&rig.cluster.client, name, node, release).await
}

/// Returns when the answer at this path has all of these parts.
pub(crate) async fn wait_reported(
    rig: &Rig,
    controller: &Controller,
    path: &str,
    parts: &[&str],
) -> Result<()> {
    let reports = |answer: &Result<(u16, String)>| {
        Ok(answer.as_ref().is_ok_and(|(_, text)| parts.iter().all(|part| text.contains(part))))
    };
    let what = format!("{path} to tell {parts:?}");
    rig.control_plane.alarm.over(controller.wait_answer(path, &what, SOON, reports)).await
}

/// Reports the agent that has started this often before.
pub(crate) async fn report(rig: &Rig, name: &str, n_restarts: u32, health: Health) -> Result<()> {
    kubelet::report(&rig.cluster.client, name, n_restarts, health).await
}

/// Returns when the one node of the cluster is in this state of use.
async fn wait_use(rig: &Rig, controller: &Controller, state: &str) -> Result<()> {
    let line = format!("cilium_node_ipam_node_use{{state=\"{state}\"}} 1");
    wait_reported(rig, controller, "/metrics", &[&line]).await
}

/// A `released` entry exists while an agent restarts. The agent removes the entry and writes an empty `used` in the
/// same update, before it has restored a single pod.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_writes_before_it_has_restored_its_pods_is_not_believed() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        create_agent_pod(rig, "cilium-n", "n", "1.20.2").await?;
        let mut agent = rig.agents.agent_with(Make::Real, "n", rig.agents.settings());
        agent.start()?;
        agent.wait_ready(SOON).await?;
        wait_use_written(rig, &agent, "n").await?;
        wait_use(rig, &controller, "no_agent").await?;
        report(rig, "cilium-n", 0, Health::Ready).await?;
        wait_use(rig, &controller, "not_seen").await?;
        let filled = agent.allocate_many("ns/p-", 5).await?;
        ensure!(filled.error.is_none(), "{filled:?}");
        wait_use(rig, &controller, "known").await?;

        agent.stop().await?;
        report(rig, "cilium-n", 1, Health::Starting).await?;
        wait_use(rig, &controller, "no_agent").await?;
        // Delays the start where a real cluster has a race.
        let minimum = |count| json!({"spec": {"ipam": {"min-allocate": count}}});
        rig.cluster.patch(Kind::CiliumNode, "n", minimum(json!(100))).await?;
        let released = json!({"status": {"ipam": {"release-ips": {"10.9.9.9": "released"}}}});
        rig.cluster.patch_status(Kind::CiliumNode, "n", released).await?;
        agent.start()?;
        // An empty list is omitted when it is written.
        let lie = |seen: &Published| seen.release.is_empty() && seen.n_used() == 0;
        rig.cluster.wait_published("n", "an empty use", SOON, lie).await?;
        wait_use(rig, &controller, "silent").await?;

        rig.cluster.patch(Kind::CiliumNode, "n", minimum(Value::Null)).await?;
        let started = agent.wait_ready(SOON).await?;
        ensure!(started.lost.is_empty(), "{:?}", started.lost);
        wait_use_written(rig, &agent, "n").await?;
        // The controller has seen it too.
        wait_use(rig, &controller, "no_agent").await?;
        // For all that the controller knows, this may be the earlier list.
        report(rig, "cilium-n", 1, Health::Ready).await?;
        wait_use(rig, &controller, "not_seen").await?;
        agent.allocate("ns/after").await?;
        wait_use(rig, &controller, "known").await?;
        Ok((controller, agent))
    })
    .await
}
