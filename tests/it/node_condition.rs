//! The condition of Nodes that says whether they can give addresses to pods, on a real API server with the rights and
//! policies of the chart: when it is written, its cost, and how a user clears it.

mod readiness;
mod scheduling;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::install::helm::{CHART, program};
use crate::scene::{PROMPT, SOON, fill, join, join_one, wait_ready};
use crate::support::agent::Agent;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle, without_product};

const CONDITION: &str = "nodeipam.io/AddressesAvailable";

/// The page with the commands that are run here.
const PAGE: &str = include_str!("../../docs/how-to/node-condition.md");

/// The rights and policies that the chart renders with the condition.
async fn install(plane: &ControlPlane) -> Result<()> {
    plane.keep_to_this_test();
    let output = Command::new(program("3"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args(["template", "cilium-node-ipam", CHART, "--namespace", "kube-system"])
        .args(["--set", "nodeCondition=true", "--show-only", "templates/admission.yaml"])
        .args(["--show-only", "templates/rbac.yaml"])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), output.stdout)?;
    let file = file.path().to_string_lossy().into_owned();
    kubectl(plane, &["apply", "--server-side", "--force-conflicts", "-f", &file]).await.map(drop)
}

/// The condition of a Node, as `STATUS REASON`.
pub(crate) fn shown(rig: &Rig, node: &str) -> Option<String> {
    let node = rig.cluster.object(Kind::Node, node)?;
    let conditions = node.data["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == CONDITION)?;
    Some(format!("{} {}", found["status"].as_str()?, found["reason"].as_str()?))
}

pub(crate) async fn wait_shown(rig: &Rig, node: &str, expected: &str) -> Result<()> {
    let what = format!("the condition of {node} to be {expected}");
    rig.cluster.wait_until(&what, SOON, async || Ok(shown(rig, node).as_deref() == Some(expected))).await
}

/// Waits until the controller has counted so many written conditions. A watch can deliver a write before its answer has
/// reached the controller.
async fn wait_written(controller: &Controller, expected: u64) -> Result<()> {
    eventually(SOON, async || {
        let (_, metrics) = controller.get("/metrics").await?;
        let name = "cilium_node_ipam_writes_total{kind=\"node_condition\",outcome=\"done\"} ";
        let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or(0);
        ensure!(found == expected, "{found} conditions are written, not {expected}");
        Ok(())
    })
    .await
}

/// The shell commands of the page that contain these words.
fn commands(words: &str) -> Result<&'static str> {
    let blocks = PAGE.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    blocks.into_iter().find(|block| block.contains(words)).context("no such commands on the page")
}

/// Runs commands of a page in a shell, with kubectl for this server.
async fn run_commands(plane: &ControlPlane, commands: &str) -> Result<()> {
    for line in commands.lines() {
        let words: Vec<String> = shell_words(line)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        ensure!(words.first() == Some(&"kubectl"), "{line}");
        kubectl(plane, &words[1..]).await?;
    }
    Ok(())
}

/// The words of a line, in which single quotes keep blanks.
pub(crate) fn shell_words(line: &str) -> Result<Vec<String>> {
    let parts: Vec<&str> = line.split('\'').collect();
    ensure!(parts.len() % 2 == 1, "{line}");
    let mut words = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        if number % 2 == 1 {
            words.push((*part).to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    Ok(words)
}

/// The kubelet's conditions stay, and each change of the verdict costs one write.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_says_so_until_its_pool_has_a_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        install(&rig.control_plane).await?;
        let cluster = &rig.cluster;
        cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"])).await?;
        let flags = [PROMPT, &["--node-condition"]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let full = Agent::Fake(join_one(rig, NodeSpec::new("full")).await?);
        wait_shown(rig, "full", "True AddressesFree").await?;
        let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
        let patch = Patch::Strategic(json!({"status": {"conditions": ready}}));
        Kind::Node.api(&cluster.client).patch_status("full", &PatchParams::default(), &patch).await?;

        fill(rig, &full, "full", 1).await?;
        wait_shown(rig, "full", "False PoolExhausted").await?;
        let late = join(rig, &[NodeSpec::new("late")]).await?;
        wait_shown(rig, "late", "False PoolExhausted").await?;
        wait_written(&controller, 3).await?;

        // A restarted controller reads the conditions, and writes none.
        ensure!(controller.sigterm_and_wait().await?.success(), "SIGTERM");
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let more =
            json!({"ipv4": {"blockSize": 28, "cidrs": [{"cidr": "10.1.0.0/28"}, {"cidr": "10.2.0.0/24"}]}});
        cluster.patch_pool("p", more).await?;
        wait_ready(rig, &late).await?;
        wait_shown(rig, "full", "True AddressesFree").await?;
        wait_shown(rig, "late", "True AddressesFree").await?;
        wait_written(&controller, 2).await?;
        let node = cluster.read(Kind::Node, "full").await?;
        let conditions = node.data["status"]["conditions"].as_array().context("no conditions")?;
        let ready =
            |condition: &&Value| condition["type"] == "Ready" && condition["reason"] == "KubeletReady";
        ensure!(conditions.iter().any(|condition| ready(&condition)), "{conditions:?}");
        Ok((controller, full, late))
    })
    .await
}

/// The commands of the page, after the controller is gone.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_clear_what_a_controller_has_left() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        install(&rig.control_plane).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        rig.cluster.create(&Kind::CiliumNode.object("n", json!({"spec": {}})), Kind::CiliumNode).await?;
        let controller = Controller::start_ready(&rig.control_plane, &["--node-condition"]).await?;
        wait_shown(rig, "n", "False NoPool").await?;
        ensure!(controller.sigterm_and_wait().await?.success(), "SIGTERM");
        let commands = commands("\"$patch\":\"delete\"")?.replace("NODE", "n");
        run_commands(&rig.control_plane, &commands).await?;
        let is_gone = async || Ok(shown(rig, "n").is_none());
        rig.cluster.wait_until("the condition to be gone", SOON, is_gone).await
    })
    .await
}

/// Without the right every node is served, and `/readyz` names the missing right.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_nodes_are_served_and_the_refusal_is_reported() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &["--node-condition"]).await?;
        let agent = join_one(rig, NodeSpec::new("n")).await?;
        eventually(SOON, async || {
            let (code, text) = controller.get("/readyz").await?;
            ensure!(code == 200 && text.contains("nodes/status"), "{code} {text}");
            Ok(())
        })
        .await?;
        install(&rig.control_plane).await?;
        wait_shown(rig, "n", "True AddressesFree").await?;
        Ok((controller, agent))
    })
    .await
}

/// A patch of a Node's status by this account that is not persisted; the message if a policy refuses it.
async fn refusal(client: &kube::Client, patch: Patch<Value>) -> Result<Option<String>> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    match Kind::Node.api(client).patch_status("n", &params, &patch).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => {
            Ok(Some(status.message.clone()))
        }
        Err(error) => Err(error).context("neither allowed nor refused by a policy"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_can_change_only_its_condition_of_a_node() -> Result<()> {
    without_product(Options::default(), async |rig| {
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        rig.cluster.patch_status(Kind::Node, "n", ready).await?;
        install(&rig.control_plane).await?;
        let ours = &rig.control_plane.controller;
        let of_kubelet = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        eventually(SOON, async || {
            let refused = refusal(ours, Patch::Strategic(of_kubelet.clone())).await?;
            ensure!(refused.is_some(), "the policies are not active");
            Ok(())
        })
        .await?;
        let condition = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "False"}]}});
        for (patch, is_allowed) in [
            (Patch::Strategic(condition(CONDITION)), true),
            (Patch::Strategic(condition("DiskPressure")), false),
            (Patch::Merge(json!({"status": {"conditions": null}})), false),
            (Patch::Merge(json!({"status": {"capacity": {"pods": "1"}}})), false),
            (
                Patch::Merge(
                    json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}),
                ),
                false,
            ),
            (Patch::Merge(json!({"metadata": {"labels": {"zone": "a"}}})), false),
            (Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}})), false),
        ] {
            let refused = refusal(ours, patch.clone()).await?;
            ensure!(refused.is_none() == is_allowed, "{patch:?}: {refused:?}");
            let other = refusal(&rig.control_plane.admin, patch.clone()).await?;
            ensure!(other.is_none(), "only the account of the controller is limited: {patch:?}: {other:?}");
        }
        Ok(())
    })
    .await
}
