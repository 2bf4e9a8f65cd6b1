//! Changes by an administrator to the installation survive or are complete. The number of replicas survives an upgrade.
//! A flag comes with the right that it needs, because one value of the chart renders both.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;

use super::{NAME, NAMESPACE, SOON, ZONE, deployment, granted, make, roll_out, start_with, wait_granted};
use crate::support::agent::Make;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::under_oracle;

/// The chart with the mode kubernetes: rights and policies.
const KUBERNETES_MODE: &str = "tests/it/install/rendered/kubernetes-mode.yaml";
pub(crate) const CREATING: &str = "tests/it/install/rendered/create-ciliumnodes.yaml";
const PATCH_NODES: &str = "patch /nodes";
pub(super) const CREATE: &str = "create cilium.io/ciliumnodes";

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_keeps_the_number_of_replicas() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::of(Families::V4) };
    let plane = ControlPlane::start(bare).await?;
    make(&plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
    ensure!(replicas(&plane).await? == Some(2), "one leads, and one stands by");
    for n in [3, 0, 2] {
        let scale = format!("--replicas={n}");
        kubectl(&plane, &["-n", NAMESPACE, "scale", &format!("deployment/{NAME}"), &scale]).await?;
        let image = format!("registry.example.com/nodeipam:for-{n}");
        let arguments = [&*format!("IMAGE={image}"), "TIMEOUT=60s"];
        tokio::try_join!(make(&plane, "upgrade", &arguments), roll_out(&plane, &image))?;
        let found = replicas(&plane).await?;
        ensure!(found == Some(n), "{n} before the upgrade, {found:?} after it");
    }
    Ok(())
}

async fn replicas(plane: &ControlPlane) -> Result<Option<i32>> {
    let deployments: Api<Deployment> = Api::namespaced(plane.admin.clone(), NAMESPACE);
    Ok(deployments.get(NAME).await?.spec.context("no spec")?.replicas)
}

/// The effect of earlier manifests: `replicas: 1` was applied with everything else.
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_of_a_deployment_that_was_applied_with_replicas_keeps_their_number() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::of(Families::V4) };
    let plane = ControlPlane::start(bare).await?;
    let folder = tempfile::tempdir()?;
    let (file, mut before) = (folder.path().join("deployment.json"), serde_json::to_value(deployment())?);
    before["spec"]["replicas"] = json!(1);
    std::fs::write(&file, before.to_string())?;
    kubectl(&plane, &["apply", "--server-side", "-f", file.to_str().context("no UTF-8")?]).await?;
    kubectl(&plane, &["-n", NAMESPACE, "scale", &format!("deployment/{NAME}"), "--replicas=3"]).await?;
    let image = "registry.example.com/nodeipam:2";
    let arguments = [&*format!("IMAGE={image}"), "TIMEOUT=60s"];
    tokio::try_join!(make(&plane, "upgrade", &arguments), roll_out(&plane, image))?;
    ensure!(replicas(&plane).await? == Some(3), "{:?}", replicas(&plane).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_to_create_ciliumnodes_comes_with_its_value() -> Result<()> {
    under_oracle(Options { manifests: Vec::new(), ..Options::default() }, async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).select(ZONE, "a")).await?;
        cluster.create_node(&NodeSpec::new("n0").label(ZONE, "a")).await?;

        // The flag alone: the log reports the missing right, and nodes are served as without the flag.
        let controller = start_with(plane, &["--create-ciliumnodes"]).await?;
        let needs = "needs the right to create ciliumnodes";
        controller.wait_logged(needs, SOON).await?;
        ensure!(cluster.object(Kind::CiliumNode, "n0").is_none(), "who has created it?");
        let mut agent = rig.agents.agent_with(Make::Fake, "n0", rig.agents.settings());
        agent.start()?;
        agent.wait_ready(SOON).await?;
        agent.allocate("ns/pod").await?;
        controller.sigterm_and_wait().await?;

        kubectl(plane, &["apply", "--server-side", "-f", CREATING]).await?;
        let deployments: Api<Deployment> = Api::namespaced(plane.admin.clone(), NAMESPACE);
        let pod = deployments.get(NAME).await?.spec.and_then(|spec| spec.template.spec).context("no pod")?;
        let arguments = pod.containers[0].args.clone().unwrap_or_default();
        let usual = deployment().spec.and_then(|spec| spec.template.spec).context("no pod")?;
        let mut expected = usual.containers[0].args.clone().unwrap_or_default();
        expected.push("--create-ciliumnodes".to_owned());
        ensure!(arguments == expected, "{arguments:?}");
        wait_granted(plane, "default", &[CREATE]).await?;
        ensure!(granted(plane, NAMESPACE).await?.contains(CREATE), "only in one namespace");
        cluster.create_node(&NodeSpec::new("n1").label(ZONE, "a")).await?;
        let controller = start_with(plane, &["--create-ciliumnodes"]).await?;
        cluster.wait_published("n1", "a block", SOON, |seen| seen.pool.len() == 14).await?;
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(!log.contains(needs), "{log}");

        // The installation without it revokes the right.
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        wait_granted(plane, "default", &[]).await?;
        Ok((agent, controller))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_to_patch_nodes_comes_with_its_mode() -> Result<()> {
    let options = Options { ipam: "kubernetes", manifests: Vec::new(), ..Options::default() };
    under_oracle(options, async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).select(ZONE, "a")).await?;
        cluster.create_node(&NodeSpec::new("n0").label(ZONE, "a")).await?;

        // The mode alone: the log reports the missing right.
        let controller = start_with(plane, &[]).await?;
        controller.wait_logged("needs the right to patch Nodes", SOON).await?;

        kubectl(plane, &["apply", "--server-side", "-f", KUBERNETES_MODE]).await?;
        let deployments: Api<Deployment> = Api::namespaced(plane.admin.clone(), NAMESPACE);
        let pod = deployments.get(NAME).await?.spec.and_then(|spec| spec.template.spec).context("no pod")?;
        let arguments = pod.containers[0].args.clone().unwrap_or_default();
        ensure!(arguments.last().is_some_and(|last| last == "--modes=kubernetes"), "{arguments:?}");
        wait_granted(plane, "default", &[PATCH_NODES]).await?;
        let has_its_block = async || {
            let node = cluster.read(Kind::Node, "n0").await?;
            Ok(node.data["spec"]["podCIDRs"] == json!(["10.1.0.0/28"]))
        };
        cluster.wait_until("the block of the Node", SOON, has_its_block).await?;

        // The installation without it revokes the right.
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        wait_granted(plane, "default", &[]).await?;
        Ok(controller)
    })
    .await
}
