//! If Cilium does not run in `ipam: crd`, nothing is written, and `/readyz` says why. Agents that are too old are
//! reported there.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::agent_pods::{create_agent_pod, delete_at_once, wait_reported};
use crate::scene::{SOON, cilium_node, join, nodes, versions, wait_claims_carried, wait_ready, wait_status};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, dry_run};
use crate::support::families::Families;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The kinds that a passive controller never writes. The status of pools says that it is passive.
const SERVED: [Kind; 3] = [Kind::Node, Kind::CiliumNode, Kind::Block];

/// Returns when the pool says that the controller is passive, for this reason.
async fn wait_passive(rig: &Rig, why: &str) -> Result<()> {
    wait_status(rig, "p", "the controller to be passive", |status| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
        ready.any(|condition| {
            condition["reason"] == "Passive"
                && condition["message"].as_str().is_some_and(|message| message.contains(why))
        })
    })
    .await
    .map(drop)
}

/// A pool, and a node that would be served at once if it were allowed.
async fn tempt(rig: &Rig) -> Result<BTreeSet<(Kind, String, String)>> {
    rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
    rig.cluster.create_node(&NodeSpec::new("n0")).await?;
    rig.cluster.create(&cilium_node("n0", &json!({"pools": {}})), Kind::CiliumNode).await?;
    versions(rig, &SERVED).await
}

/// Returns when `/readyz` answers 503 with a reason that has `part` in it.
async fn wait_refusal(rig: &Rig, controller: &Controller, part: &str) -> Result<()> {
    // Before it listens there is no answer, and before its lists are complete there is another reason.
    let says_so = |answer: &Result<(u16, String)>| match answer {
        Ok((503, reason)) => Ok(reason.contains(part)),
        Ok((200, _)) => bail!("it is ready, and should not be for {part:?}"),
        _ => Ok(false),
    };
    let what = format!("/readyz to say {part:?}");
    rig.control_plane.alarm.over(controller.wait_answer("/readyz", &what, SOON, says_so)).await
}

fn configs(rig: &Rig) -> Api<ConfigMap> {
    Api::namespaced(rig.cluster.client.clone(), "kube-system")
}

async fn create_config(rig: &Rig, ipam: &str) -> Result<()> {
    let config = serde_json::from_value(json!({
        "metadata": {"name": "cilium-config"},
        "data": {"ipam": ipam, "enable-ipv4": "true", "enable-ipv6": "false"},
    }))?;
    configs(rig).create(&PostParams::default(), &config).await?;
    Ok(())
}

async fn set_ipam(rig: &Rig, ipam: &str) -> Result<()> {
    let data = Patch::Merge(json!({"data": {"ipam": ipam}}));
    configs(rig).patch("cilium-config", &PatchParams::default(), &data).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cilium_config_nothing_is_written() -> Result<()> {
    let options = Options { cilium_config: false, ..Options::default() };
    under_oracle(options, async |rig| {
        let before = tempt(rig).await?;
        let mut controller = Controller::start(&rig.control_plane, &[])?;
        wait_refusal(rig, &controller, "ConfigMap kube-system/cilium-config does not exist").await?;
        wait_passive(rig, "does not exist").await?;
        ensure!(dry_run(&rig.control_plane).await?.is_empty(), "a dry run proposes writes");
        ensure!(versions(rig, &SERVED).await? == before, "something was written");

        create_config(rig, "crd").await?;
        rig.cluster.wait_published("n0", "a block", SOON, |seen| seen.pod_cidrs.len() == 1).await?;
        controller.wait_ready().await?;
        Ok(controller)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mode_of_cilium_is_left_alone_until_it_changes() -> Result<()> {
    let options = Options { cilium_config: false, ..Options::default() };
    under_oracle(options, async |rig| {
        create_config(rig, "cluster-pool").await?;
        let before = tempt(rig).await?;
        let mut controller = Controller::start(&rig.control_plane, &[])?;
        wait_refusal(rig, &controller, "`ipam: cluster-pool`").await?;
        wait_passive(rig, "`ipam: cluster-pool`").await?;
        ensure!(versions(rig, &SERVED).await? == before, "something was written");

        set_ipam(rig, "crd").await?;
        rig.cluster.wait_published("n0", "a block", SOON, |seen| seen.pod_cidrs.len() == 1).await?;
        controller.wait_ready().await?;

        // And back: a change of the mode in a running cluster stops the writes of this controller.
        set_ipam(rig, "kubernetes").await?;
        wait_not_ready(rig, &controller).await?;
        wait_passive(rig, "`ipam: kubernetes`").await?;
        let newcomer = join(rig, &nodes("late", 1)).await?;
        rig.cluster.wait_published("late0", "its CiliumNode", SOON, |_| true).await?;
        ensure!(dry_run(&rig.control_plane).await?.is_empty(), "a dry run proposes writes");
        ensure!(rig.cluster.claims_of("late0").is_empty(), "a claim was made");
        set_ipam(rig, "crd").await?;
        wait_ready(rig, &newcomer).await?;
        Ok(controller)
    })
    .await
}

/// Returns when a controller that was ready says that it no longer is.
async fn wait_not_ready(rig: &Rig, controller: &Controller) -> Result<()> {
    // A busy machine may refuse a connection, which proves nothing.
    let refuses = |answer: &Result<(u16, String)>| Ok(answer.as_ref().is_ok_and(|(code, _)| *code != 200));
    let waits = controller.wait_answer("/readyz", "it to be ready no more", SOON, refuses);
    rig.control_plane.alarm.over(waits).await
}

/// If `cilium-config` can't be read, an administrator vouches for its content.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_may_vouch_for_cilium() -> Result<()> {
    let options = Options { cilium_config: false, ..Options::of(Families::Dual) };
    under_oracle(options, async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/120"]);
        rig.cluster.create_pool(&pool).await?;
        let vouched = ["--assume-cilium", "1.20.2", "--families", "ipv4,ipv6"];
        let controller = Controller::start_ready(&rig.control_plane, &vouched).await?;
        let agents = join(rig, &nodes("n", 2)).await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        // The final checks run a controller without these flags.
        create_config_for_both(rig).await?;
        Ok((controller, agents))
    })
    .await
}

async fn create_config_for_both(rig: &Rig) -> Result<()> {
    create_config(rig, "crd").await?;
    let data = Patch::Merge(json!({"data": {"enable-ipv6": "true"}}));
    configs(rig).patch("cilium-config", &PatchParams::default(), &data).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_too_old_is_served_and_reported_until_it_is_upgraded() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        create_agent_pod(rig, "cilium-old", "n0", "1.13.5").await?;
        tempt(rig).await?;
        let controller = Controller::start_ready(&rig.control_plane, &[]).await?;
        rig.cluster.wait_published("n0", "a block", SOON, |seen| seen.pod_cidrs.len() == 1).await?;
        let agents = r#"cilium_node_ipam_agents{support="outdated",release="1.13"} 1"#;
        let findings = |n: u8| format!(r#"cilium_node_ipam_findings{{kind="UnsupportedCilium"}} {n}"#);
        wait_reported(rig, &controller, "/metrics", &[agents, &findings(1)]).await?;
        wait_reported(rig, &controller, "/readyz", &["ok\n", "older than 1.14.2", "1 node, n0 (1.13.5)"])
            .await?;

        // The new one comes before the old one is gone.
        create_agent_pod(rig, "cilium-new", "n0", "1.17.8").await?;
        delete_at_once(rig, "cilium-old").await?;
        let agents = r#"{support="full",release="1.17"} 1"#;
        wait_reported(rig, &controller, "/metrics", &[agents, &findings(0)]).await?;
        Ok(controller)
    })
    .await
}
