//! The freeze on the real API server: its effects, where they are shown, and that all work continues after it.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::agent_pods::wait_reported;
use crate::operator::wait_events;
use crate::scene::{PROMPT, SOON, join, nodes, wait_claims_carried, wait_ready, wait_status};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, dry_run_output};
use crate::support::kubectl::kubectl;
use crate::support::objects::PoolSpec;
use crate::support::rig::{Rig, under_oracle};

const NAME: &str = "cilium-node-ipam";
/// A freeze with both switches on, and this reason.
const EXAMPLE: &str = "manifests/examples/freeze.yaml";
const REASON: &str = "ticket 4711, ask the network team";

fn config_maps(rig: &Rig) -> Api<ConfigMap> {
    Api::namespaced(rig.cluster.client.clone(), "kube-system")
}

async fn thaw(rig: &Rig) -> Result<()> {
    config_maps(rig).delete(NAME, &DeleteParams::default()).await?;
    Ok(())
}

async fn wait_readyz(
    rig: &Rig,
    controller: &Controller,
    expected: u16,
    look: impl Fn(&str) -> bool,
) -> Result<()> {
    let look = |answer: &Result<(u16, String)>| {
        Ok(answer.as_ref().is_ok_and(|(code, text)| *code == expected && look(text)))
    };
    let waits = controller.wait_answer("/readyz", "the text that is expected of /readyz", SOON, look);
    rig.control_plane.alarm.over(waits).await
}

/// Whether the status of a pool has this condition with this reason.
fn says(status: &Value, condition: &str, reason: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["reason"] == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_stops_writes_and_is_shown_until_it_ends() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let served = join(rig, &nodes("n", 1)).await?;
        wait_ready(rig, &served).await?;

        kubectl(&rig.control_plane, &["apply", "-f", EXAMPLE]).await?;
        let line = format!(
            "ok\nfrozen: no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: ConfigMap \
             kube-system/{NAME} says `freeze-writes: true`; reason: {REASON}\nfrozen: no block is reclaimed: \
             ConfigMap kube-system/{NAME} says `freeze-reclaim: true`; reason: {REASON}\n"
        );
        wait_readyz(rig, &controller, 200, |text| text == line).await?;
        wait_status(rig, "p", "the freeze", |status| {
            says(status, "Frozen", "WritesFrozen") && says(status, "Ready", "Frozen")
        })
        .await?;
        let gauges =
            ["writes", "reclaim"].map(|switch| format!("cilium_node_ipam_frozen{{switch=\"{switch}\"}} 1\n"));
        wait_reported(rig, &controller, "/metrics", &gauges.each_ref().map(String::as_str)).await?;

        // It sees the node and does nothing for it, and neither does the next process.
        let late = join(rig, &nodes("late", 1)).await?;
        rig.cluster.wait_published("late0", "its CiliumNode", SOON, |_| true).await?;
        wait_status(rig, "p", "two nodes", |status| status["nodes"]["selected"] == 2).await?;
        controller.sigterm_and_wait().await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_readyz(rig, &controller, 200, |text| text == line).await?;
        rig.cluster.create_pool(&PoolSpec::new("q").select("zone", "b").ipv4(28, &["10.2.0.0/24"])).await?;
        wait_status(rig, "q", "the freeze", |status| says(status, "Frozen", "WritesFrozen")).await?;
        ensure!(rig.cluster.claims_of("late0").is_empty(), "a claim was made");
        let shown = rig.cluster.published("late0").map(|shown| shown.pod_cidrs);
        ensure!(shown.as_ref().is_some_and(Vec::is_empty), "something was published: {shown:?}");
        let output = dry_run_output(&rig.control_plane).await?;
        for part in [
            "frozen: no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: ",
            "\nfrozen; would claim 10.1.0.",
            "\nthe freeze stops 1 write\nproposed 0 writes\n",
        ] {
            ensure!(output.contains(part), "no {part:?} in\n{output}");
        }

        // An unreadable value freezes too.
        let odd = Patch::Merge(json!({"data": {"freeze-writes": "no"}}));
        config_maps(rig).patch(NAME, &PatchParams::default(), &odd).await?;
        wait_readyz(rig, &controller, 200, |text| text.contains("`freeze-writes: no`, which is neither"))
            .await?;

        thaw(rig).await?;
        wait_ready(rig, &late).await?;
        wait_claims_carried(rig).await?;
        wait_readyz(rig, &controller, 200, |text| text == "ok\n").await?;
        wait_status(rig, "p", "the end of the freeze", |status| {
            !status.to_string().contains("\"Frozen\"") && says(status, "Ready", "Serving")
        })
        .await?;
        wait_events(rig, &[("NodeIPPool", "Frozen", "Warning"), ("NodeIPPool", "FreezeEnded", "Normal")])
            .await?;
        Ok((controller, served, late))
    })
    .await
}

/// As after an upgrade without the permissions of the new version.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_without_the_right_to_read_the_freeze() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let bindings: Api<RoleBinding> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
        let binding = bindings.get("cilium-node-ipam-freeze").await?;
        bindings.delete("cilium-node-ipam-freeze", &DeleteParams::default()).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let agents = join(rig, &nodes("n", 1)).await?;
        let mut controller = Controller::start(&rig.control_plane, PROMPT)?;
        wait_readyz(rig, &controller, 503, |text| {
            text.starts_with("waiting for ConfigMap cilium-node-ipam")
                && text.contains(": list configmaps named cilium-node-ipam in namespace kube-system: ")
                && text.contains("resourceNames: [\"cilium-node-ipam\"]")
        })
        .await?;
        ensure!(rig.cluster.claims_of("n0").is_empty(), "a claim was made");
        let binding = serde_json::from_value(json!({
            "metadata": {"name": "cilium-node-ipam-freeze"},
            "roleRef": binding.role_ref, "subjects": binding.subjects,
        }))?;
        bindings.create(&PostParams::default(), &binding).await?;
        controller.wait_ready().await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agents))
    })
    .await
}
