//! The names of carried blocks change: the ranges of a pool get another name, or the default name of `cilium-config`
//! changes. Blocks keep the name for which they were claimed, and no pod is lost.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::removed::{LEAVING, RANGE, Scene};
use super::{
    BLOCK, SLOW, ask_mars, by_name, create_pod_ip_pool, is_named_by_its_claim, join, multi_pool,
    wait_given_back,
};
use crate::agent_pods::{delete_at_once, pods};
use crate::scene::{PROMPT, ask, wait_claims_carried, wait_use_listed};
use crate::support::controller::Controller;
use crate::support::kubelet::create_running;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

fn pool(name: &str, range: &str) -> PoolSpec {
    PoolSpec::new(name).ipv4(28, &[range]).with("reuseAfter", "1s")
}

/// A pool can't get another name, so it is deleted, and another one is created with its ranges and the other name.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_pool_are_another_names_when_its_last_block_is_free() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut scene) = Scene::grown(rig).await?;
        create_pod_ip_pool(rig, "mars").await?;
        let (_, address) = scene.use_block(rig).await?;
        create_running(&pods(rig), "web", "n", &[address]).await?;

        rig.cluster.delete_pool(LEAVING).await?;
        rig.cluster.create_pool(&pool("renamed", RANGE).with("podIPPool", "mars")).await?;
        let too_early = scene.agent.allocate_from("mars", "ns/too-early").await;
        ensure!(too_early.is_err(), "a pod of default is still there: {too_early:?}");
        scene.restart(rig).await?;
        ensure!(scene.state(rig).as_deref() == Some("Held"), "it is {:?}", scene.state(rig));
        is_named_by_its_claim(rig, "n")?;

        delete_at_once(rig, "web").await?;
        scene.end_pods().await?;
        let is_gone = async || Ok(rig.cluster.object(Kind::Pool, LEAVING).is_none());
        let waited = rig.cluster.wait_until("the pool to go with its last block", SLOW, is_gone).await;
        waited.with_context(|| format!("{:?}", rig.cluster.claims_of("n")))?;
        for number in 0..BLOCK {
            ask_mars(rig, &scene.agent, &format!("ns/mars-{number}")).await?;
        }
        wait_use_listed(rig, &scene.agent, "n").await?;
        wait_claims_carried(rig).await?;
        let named = by_name(rig, "n");
        let is_of_range = |cidr: &String| cidr.starts_with("10.2.0.");
        ensure!(
            named["mars"].iter().all(is_of_range) && !named["default"].iter().any(is_of_range),
            "{named:?}"
        );
        is_named_by_its_claim(rig, "n")?;
        scene.restart(rig).await?;
        Ok((controller, scene.agent))
    })
    .await
}

async fn set_default_pool(rig: &Rig, name: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"data": {"ipam-default-ip-pool": name}}));
    api.patch("cilium-config", &PatchParams::default(), &patch).await.context("changing cilium-config")?;
    Ok(())
}

/// Agents see the change when they restart, long after the controller.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_default_name_changes_keeps_what_it_has_and_grows_under_the_other() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        rig.control_plane.limit_releasing(SLOW + SLOW).await?;
        for name in ["default", "other"] {
            create_pod_ip_pool(rig, name).await?;
        }
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = join(rig, "n").await?;
        for number in 0..BLOCK {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        wait_use_listed(rig, &agent, "n").await?;
        wait_claims_carried(rig).await?;
        let before = by_name(rig, "n");
        ensure!(before.keys().eq(["default"]), "{before:?}");

        set_default_pool(rig, "other").await?;
        // Another start with the old name, as after a crash of its container.
        agent.restart_and_restore(SLOW).await?;
        ensure!(by_name(rig, "n")["default"].is_superset(&before["default"]), "{:?}", by_name(rig, "n"));
        is_named_by_its_claim(rig, "n")?;

        agent.change_default_pool("other")?;
        agent.restart_and_restore(SLOW).await?;
        for number in 0..BLOCK {
            ask(rig, &agent, &format!("ns/later-{number}")).await?;
        }
        wait_use_listed(rig, &agent, "n").await?;
        wait_claims_carried(rig).await?;
        is_named_by_its_claim(rig, "n")?;
        let both: BTreeSet<String> = by_name(rig, "n").into_keys().collect();
        ensure!(both == ["default", "other"].map(str::to_owned).into(), "{both:?}");

        // The remaining CIDRs under the old name are given back with their last pods.
        for number in 0..BLOCK {
            agent.release(&format!("ns/pod-{number}")).await?;
        }
        let is_empty = async || Ok(by_name(rig, "n").remove("default").unwrap_or_default().is_empty());
        let waited = rig.cluster.wait_until("nothing to be left under the name before", SLOW, is_empty).await;
        waited.with_context(|| format!("{:?}", by_name(rig, "n")))?;
        agent.restart_and_restore(SLOW).await?;
        ask(rig, &agent, "ns/last").await?;
        // The answer to the last usage query may come a minute later.
        wait_given_back(rig).await?;
        Ok((controller, agent))
    })
    .await
}
