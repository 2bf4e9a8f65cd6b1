//! CiliumPodIPPools in multi-pool mode. An unfit pool is reported and gives no blocks. With a flag the controller
//! creates CiliumPodIPPools and adds missing fields and ranges.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::agent_pods::create_agent_pod;
use crate::multi_pool::SLOW;
use crate::scene::{
    PROMPT, SOON, ask, insist, pool_status, wait_claims_carried, wait_status, wait_use_listed,
};
use crate::support::agent::{Agent, Make};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The chart's output with the right to create and patch them.
pub(crate) const CREATING: &str = "tests/it/install/rendered/create-podippools.yaml";

fn multi_pool() -> Options {
    Options { ipam: "multi-pool", ..Options::default() }
}

fn pod_ip_pools(rig: &Rig) -> (Api<DynamicObject>, ApiResource) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2alpha1", "CiliumPodIPPool"));
    (Api::all_with(rig.cluster.client.clone(), &resource), resource)
}

async fn create(rig: &Rig, name: &str, spec: Value) -> Result<DynamicObject> {
    let (api, resource) = pod_ip_pools(rig);
    let pool = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &pool).await.context("creating the CiliumPodIPPool")
}

async fn patch(rig: &Rig, name: &str, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    pod_ip_pools(rig).0.patch(name, &PatchParams::default(), &patch).await.context("patching it")?;
    Ok(())
}

/// Turns BGP on, as `cilium-config` says it. No agent of these tests runs it.
async fn turn_bgp_on(rig: &Rig) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"data": {"enable-bgp-control-plane": "true"}}));
    api.patch("cilium-config", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Returns when the condition of a pool has this reason.
pub(crate) async fn wait_reported(rig: &Rig, pool: &str, reason: &str) -> Result<()> {
    let is_reported = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut of_type = conditions.filter(|condition| condition["type"] == "UnfitPodIPPool");
        of_type.any(|condition| condition["reason"] == reason)
    };
    wait_status(rig, pool, reason, is_reported).await.map(drop)
}

/// Returns when a pool no longer has the condition.
pub(crate) async fn wait_fits(rig: &Rig, pool: &str) -> Result<()> {
    let fits = |status: &Value| {
        let conditions = status["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().all(|condition| condition["type"] != "UnfitPodIPPool"))
    };
    wait_status(rig, pool, "that its CiliumPodIPPool fits", fits).await.map(drop)
}

fn starting(rig: &Rig, name: &str) -> Result<Agent> {
    let mut agent = rig.agents.agent_with(Make::Real, name, rig.agents.settings());
    agent.start()?;
    Ok(agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_without_the_family_keeps_blocks_back_until_it_has_it() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        turn_bgp_on(rig).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_reported(rig, "p", "PodIPPoolMissing").await?;
        create(rig, "default", json!({})).await?;
        wait_reported(rig, "p", "PodIPPoolLacksFamily").await?;

        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = starting(rig, "n")?;
        let waits = |status: &Value| status["nodes"]["waiting"] == 1;
        wait_status(rig, "p", "a node that waits", waits).await?;
        ensure!(rig.cluster.claims_of("n").is_empty(), "{:?}", rig.cluster.claims_of("n"));

        patch(rig, "default", json!({"ipv4": {"cidrs": ["10.1.0.0/24"], "maskSize": 28}})).await?;
        agent.wait_ready(SLOW).await?;
        wait_fits(rig, "p").await?;
        ask(rig, &agent, "ns/pod").await?;

        // Published blocks stay. There may be more than the first one: the agent keeps some addresses in reserve.
        patch(rig, "default", json!({"ipv4": null})).await?;
        wait_reported(rig, "p", "PodIPPoolLacksFamily").await?;
        let has_first = |cidrs: &[String]| cidrs.iter().any(|cidr| cidr == "10.1.0.0/28");
        ensure!(rig.cluster.published("n").is_some_and(|seen| has_first(&seen.pod_cidrs)), "it is gone");
        patch(rig, "default", json!({"ipv4": {"cidrs": ["10.1.0.0/24"], "maskSize": 28}})).await?;
        wait_fits(rig, "p").await?;
        Ok((controller, agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_flag_the_controller_creates_what_is_missing_and_completes_it() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let foreign =
            create(rig, "mars", json!({"ipv4": {"cidrs": ["10.9.0.0/24"], "maskSize": 26}})).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        rig.cluster
            .create_pool(&PoolSpec::new("m").ipv4(28, &["10.9.0.0/24"]).with("podIPPool", "mars"))
            .await?;
        let flags = [PROMPT, &["--create-podippools"]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        controller.wait_logged("needs the right to create and patch ciliumpodippools", SOON).await?;
        // Another field manager has applied the manifests to the server already.
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", CREATING];
        kubectl(&rig.control_plane, &apply).await?;
        wait_fits(rig, "p").await?;

        let api = pod_ip_pools(rig).0;
        let created = api.get("default").await?;
        let expected = json!({"cidrs": ["10.1.0.0/24"], "maskSize": 28});
        ensure!(created.data["spec"]["ipv4"] == expected, "{:?}", created.data);
        let labels = created.metadata.labels.clone().unwrap_or_default();
        ensure!(labels["app.kubernetes.io/managed-by"] == "cilium-node-ipam", "{labels:?}");

        // With it an agent of 1.20 starts, and grows.
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        create_agent_pod(rig, "cilium-n", "n", "1.20.2").await?;
        let mut agent = starting(rig, "n")?;
        agent.wait_ready(SLOW).await?;
        for number in 0..20 {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        wait_use_listed(rig, &agent, "n").await?;
        wait_claims_carried(rig).await?;
        ensure!(rig.cluster.claims_of("n").len() >= 2, "{:?}", rig.cluster.claims_of("n"));

        rig.cluster.create_pool(&PoolSpec::new("q").ipv4(28, &["10.2.0.0/24"])).await?;
        // No watch of the test shows them.
        let both = json!(["10.1.0.0/24", "10.2.0.0/24"]);
        let has_both = async || {
            let ranges = api.get("default").await?.data["spec"]["ipv4"]["cidrs"].clone();
            ensure!(ranges == both, "the ranges are {ranges}");
            Ok(())
        };
        insist(rig, has_both).await?;
        patch(rig, "default", json!({"ipv4": null})).await?;
        insist(rig, has_both).await?;

        // A CiliumPodIPPool of another writer is reported and left unchanged.
        wait_reported(rig, "m", "PodIPPoolOtherMaskSize").await?;
        let left = api.get("mars").await?;
        ensure!(left.metadata.resource_version == foreign.metadata.resource_version, "{left:?}");
        let reported = pool_status(rig, "m").to_string();
        ensure!(reported.contains("has spec.ipv4.maskSize 26, and the blocks are /28"), "{reported}");
        Ok((controller, agent))
    })
    .await
}
