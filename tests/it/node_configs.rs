//! CiliumNodeConfigs override `cilium-config` for some nodes. The controller follows them, and leaves nodes alone if
//! their agents run in another mode.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::multi_pool::{by_name, create_pod_ip_pool, is_named_by_its_claim, multi_pool};
use crate::scene::{PROMPT, SOON, ask, cilium_node, wait_claims_carried};
use crate::support::agent::{Agent, Make};
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

pub(crate) const RACK: (&str, &str) = ("rack", "1");

fn api(rig: &Rig) -> (Api<DynamicObject>, ApiResource) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2", "CiliumNodeConfig"));
    (Api::namespaced_with(rig.cluster.client.clone(), "kube-system", &resource), resource)
}

/// Sets these defaults for the nodes of the rack.
pub(crate) async fn set(rig: &Rig, name: &str, defaults: Value) -> Result<()> {
    let (api, resource) = api(rig);
    let spec = json!({"nodeSelector": {"matchLabels": {(RACK.0): RACK.1}}, "defaults": defaults});
    let config = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &config).await.context("creating the CiliumNodeConfig")?;
    Ok(())
}

/// A node whose agent starts with this default pool.
async fn join(rig: &Rig, node: NodeSpec, name: &str, default_pool: &'static str) -> Result<Agent> {
    rig.cluster.create_node(&node).await?;
    let settings = crate::support::agent::Settings { default_pool, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, name, settings);
    agent.start()?;
    agent.wait_ready(SOON).await?;
    Ok(agent)
}

/// Returns when the node has blocks under these names. Its agent may see them before the test does.
async fn wait_names(rig: &Rig, node: &str, expected: &[&str]) -> Result<()> {
    let names = || by_name(rig, node).into_keys().collect::<Vec<String>>();
    let what = format!("{node} to have blocks under the names {expected:?}");
    let waited = rig.cluster.wait_until(&what, SOON, async || Ok(names() == expected)).await;
    waited.with_context(|| format!("it has them under {:?}", names()))
}

pub(crate) async fn wait_findings(rig: &Rig, controller: &Controller, count: usize) -> Result<()> {
    let line = format!("cilium_node_ipam_findings{{kind=\"OtherSettings\"}} {count}\n");
    let says_so =
        |answer: &Result<(u16, String)>| Ok(answer.as_ref().is_ok_and(|(_, text)| text.contains(&line)));
    let what = format!("/metrics to say {line}");
    rig.control_plane.alarm.over(controller.wait_answer("/metrics", &what, SOON, says_so)).await
}

/// The one pool has no name of its own, so its blocks are for the default of each node.
#[tokio::test(flavor = "multi_thread")]
async fn each_node_gets_blocks_under_the_default_that_is_set_for_it() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        for name in ["default", "rack", "shelf"] {
            create_pod_ip_pool(rig, name).await?;
        }
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        set(rig, "a", json!({"ipam-default-ip-pool": "other", "debug": "true"})).await?;
        set(rig, "b", json!({"ipam-default-ip-pool": "rack"})).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut of_rack = join(rig, NodeSpec::new("n").label(RACK.0, RACK.1), "n", "rack").await?;
        let beside = join(rig, NodeSpec::new("m"), "m", "default").await?;
        ask(rig, &of_rack, "ns/pod").await?;
        ask(rig, &beside, "ns/other").await?;
        wait_names(rig, "n", &["rack"]).await?;
        wait_names(rig, "m", &["default"]).await?;
        wait_claims_carried(rig).await?;
        is_named_by_its_claim(rig, "n")?;

        // It changes while everything runs. The agent sees the change when it restarts, and its pods keep their
        // addresses.
        let shelf = Patch::Merge(json!({"spec": {"defaults": {"ipam-default-ip-pool": "shelf"}}}));
        api(rig).0.patch("b", &PatchParams::default(), &shelf).await?;
        of_rack.change_default_pool("shelf")?;
        of_rack.restart_and_restore(SOON).await?;
        ask(rig, &of_rack, "ns/later").await?;
        wait_names(rig, "n", &["rack", "shelf"]).await?;
        wait_claims_carried(rig).await?;
        is_named_by_its_claim(rig, "n")?;
        Ok((controller, of_rack, beside))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_another_mode_is_left_alone_until_that_is_undone() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        create_pod_ip_pool(rig, "default").await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        set(rig, "a", json!({"ipam": "cluster-pool"})).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let needs = json!({"pools": {"requested": [{"pool": "default", "needed": {"ipv4-addrs": 8}}]}});
        rig.cluster.create_node(&NodeSpec::new("n").label(RACK.0, RACK.1)).await?;
        rig.cluster.create(&cilium_node("n", &needs), Kind::CiliumNode).await?;
        wait_findings(rig, &controller, 1).await?;
        controller.wait_logged("sets `ipam: cluster-pool` for this node", SOON).await?;
        // Another node is served meanwhile.
        let beside = join(rig, NodeSpec::new("m"), "m", "default").await?;
        ensure!(by_name(rig, "n").is_empty(), "{:?}", by_name(rig, "n"));
        let claims = rig.cluster.objects(Kind::Block);
        ensure!(claims.iter().all(|claim| claim.data["spec"]["node"] == "m"), "{claims:?}");

        api(rig).0.delete("a", &DeleteParams::default()).await?;
        rig.cluster.wait_published("n", "a block", SOON, |seen| !seen.pod_cidrs.is_empty()).await?;
        wait_findings(rig, &controller, 0).await?;
        Ok((controller, beside))
    })
    .await
}

/// Then nothing is known of CiliumNodeConfigs, and `/readyz` names the missing right.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_nodes_are_served_and_it_is_told() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        create_pod_ip_pool(rig, "default").await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let role = ["-n", "kube-system", "get", "role", "cilium-node-ipam", "-o", "json"];
        let role: Value = serde_json::from_str(&kubectl(&rig.control_plane, &role).await?)?;
        let mut granted = role["rules"].as_array().context("the Role has rules")?.iter();
        let index = granted.position(|rule| rule["resources"][0] == "ciliumnodeconfigs");
        let index = index.context("the Role allows to read CiliumNodeConfigs")?;
        let removal = format!(r#"[{{"op": "remove", "path": "/rules/{index}"}}]"#);
        let patch = ["-n", "kube-system", "patch", "role", "cilium-node-ipam", "--type=json", "-p", &removal];
        kubectl(&rig.control_plane, &patch).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = join(rig, NodeSpec::new("n"), "n", "default").await?;
        let (part, right) =
            ("forbidden (403)", "list ciliumnodeconfigs of cilium.io in namespace kube-system");
        let says_so = |answer: &Result<(u16, String)>| {
            Ok(answer.as_ref().is_ok_and(|(_, text)| text.contains(part) && text.contains(right)))
        };
        let reported = controller.wait_answer("/readyz", "it to name the right", SOON, says_so);
        rig.control_plane.alarm.over(reported).await?;
        Ok((controller, agent))
    })
    .await
}
