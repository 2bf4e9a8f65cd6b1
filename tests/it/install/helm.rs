//! The life of an installation with Helm, in both majors: installed, upgraded, rolled back, scaled, uninstalled,
//! installed under another name, and taken over from `kubectl apply`. After each step the controller serves a new node,
//! with the arguments and exactly the rights that the chart gave.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::values::CREATE;
use super::{MANIFEST, NAME, NAMESPACE, SOON, ZONE, make, roll_out, start_as, wait_granted};
use crate::support::agent::{Agent, Make};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::controller::{Controller, ELECTED};
use crate::support::families::Families;
use crate::support::kubectl::{apply, kubectl, run};
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

pub(crate) const CHART: &str = "manifests/chart/cilium-node-ipam";
pub(super) const MAJORS: [&str; 2] = ["3", "4"];

/// A column of a later version of the definition of claims.
const LATER: &str = "Later";

/// The Helm of a major.
///
/// # Panics
/// If it was not built: no test may pass because of that.
pub(crate) fn program(major: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("build/bin/helm-{major}"));
    assert!(path.is_file(), "{0} is missing: run `make build/bin/helm-{major}`", path.display());
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_a_release_serves_a_new_node_3() -> Result<()> {
    every_step_of_a_release_serves_a_new_node("3").await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_a_release_serves_a_new_node_4() -> Result<()> {
    every_step_of_a_release_serves_a_new_node("4").await
}

async fn every_step_of_a_release_serves_a_new_node(major: &str) -> Result<()> {
    under_oracle(Options { manifests: Vec::new(), ..Options::default() }, async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        plane.keep_to_this_test();
        // The rig needs the definitions at its start, but the chart's own count.
        kubectl(plane, &["delete", "-f", "crds"]).await?;
        helm(plane, major, &["install", NAME, CHART]).await?;
        kubectl(plane, &["wait", "--for=condition=Established", "-f", "crds"]).await?;
        cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).select(ZONE, "a")).await?;
        let controller = start(plane, NAME, &[]).await?;
        let mut agents = vec![join(rig, "installed").await?];

        // The running controller serves nodes while it is replaced; the new one has one more right.
        let later = later_chart()?;
        let chart = later.path().to_str().context("no UTF-8")?;
        helm(plane, major, &["upgrade", NAME, chart, "--set", "createCiliumNodes=true"]).await?;
        ensure!(columns(plane).await?.contains(LATER), "{}", columns(plane).await?);
        agents.push(join(rig, "while-upgraded").await?);
        stop(controller).await?;
        let controller = start(plane, NAME, &[CREATE]).await?;
        agents.push(join(rig, "upgraded").await?);
        stop(controller).await?;

        helm(plane, major, &["rollback", NAME, "1"]).await?;
        ensure!(!columns(plane).await?.contains(LATER), "{}", columns(plane).await?);
        let controller = start(plane, NAME, &[]).await?;
        agents.push(join(rig, "rolled-back").await?);
        stop(controller).await?;

        // The number that `kubectl scale` has set is neither a conflict nor undone.
        let scale = ["-n", NAMESPACE, "scale", &format!("deployment/{NAME}"), "--replicas=3"];
        kubectl(plane, &scale).await?;
        for tag in ["later", "latest"] {
            helm(plane, major, &["upgrade", NAME, CHART, "--set", &format!("image.tag={tag}")]).await?;
            let spec = deployment(plane, NAME).await?.spec.context("no spec")?;
            ensure!(spec.replicas == Some(3), "{:?}", spec.replicas);
            let image = spec.template.spec.context("no pod")?.containers[0].image.clone();
            ensure!(image.as_deref() == Some(&*format!("{NAME}:{tag}")), "{image:?}");
        }

        helm(plane, major, &["uninstall", NAME]).await?;
        let left = kubectl(plane, &["get", "--ignore-not-found", "-f", MANIFEST]).await?;
        ensure!(left.is_empty(), "left behind: {left}");
        let kept = kubectl(plane, &["get", "nodeippools,nodeipblocks", "-o", "name"]).await?;
        ensure!(kept.lines().count() == 1 + agents.len(), "{kept}");

        let other = ["install", "other", CHART];
        let refused = helm(plane, major, &other).await.unwrap_err().to_string();
        ensure!(refused.contains("invalid ownership metadata"), "{refused}");
        // The kubeconfig of the test is that of this account.
        let account = format!("serviceAccount.name={NAME}");
        helm(plane, major, &[&other[..], &["--take-ownership", "--set", &account]].concat()).await?;
        let name = format!("other-{NAME}");
        let controller = start(plane, &name, &[]).await?;
        agents.push(join(rig, "renamed").await?);
        stop(controller).await?;
        helm(plane, major, &["uninstall", "other"]).await?;

        kubectl(plane, &["apply", "--server-side", "-f", "crds", "-f", MANIFEST]).await?;
        helm(plane, major, &["install", NAME, CHART, "--take-ownership"]).await?;
        let controller = start(plane, NAME, &[]).await?;
        agents.push(join(rig, "taken-over").await?);
        rig.assert_settled().await?;
        Ok((controller, agents))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn make_uses_helm_where_it_is_installed() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::of(Families::V4) };
    let plane = ControlPlane::start(bare).await?;
    for major in MAJORS {
        let program = format!("HELM={}", program(major).display());
        // It takes over the installation that was made without Helm, with another image.
        make(&plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        let image = "registry.example.com:5000/nodeipam:2";
        let arguments = ["HELM_ARGS=--set createCiliumNodes=true", &program, &format!("IMAGE={image}")];
        make(&plane, "install", &arguments).await?;
        ensure!(runs(&plane).await? == (image.to_owned(), true), "{:?}", runs(&plane).await?);
        let said = helm(&plane, major, &["list"]).await?;
        ensure!(said.contains("deployed"), "{said}");

        // Values stay, also where the image changes its form.
        let image = format!("registry.example.com/nodeipam:2@sha256:{}", "a".repeat(64));
        let arguments = [&*program, &format!("IMAGE={image}"), "TIMEOUT=60s"];
        tokio::try_join!(make(&plane, "upgrade", &arguments), roll_out(&plane, &image))?;
        ensure!(runs(&plane).await? == (image, true), "{:?}", runs(&plane).await?);

        make(&plane, "uninstall", &[&program, "PURGE="]).await?;
        let left = kubectl(&plane, &["get", "--ignore-not-found", "-f", MANIFEST]).await?;
        ensure!(left.is_empty(), "left behind: {left}");
        kubectl(&plane, &["get", "-f", "crds"]).await?;
        // A repeated uninstall is no error.
        make(&plane, "uninstall", &[&program, "PURGE=1"]).await?;
    }
    plane.assert_clean().await
}

/// The pod of `helm test` has the rights that it needs, and its answer is whether a controller leads.
#[tokio::test(flavor = "multi_thread")]
async fn helm_test_fails_without_a_leader() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::of(Families::V4) };
    let plane = ControlPlane::start(bare).await?;
    plane.keep_to_this_test();
    for major in MAJORS {
        helm(&plane, major, &["install", NAME, CHART, "--take-ownership"]).await?;
        kubectl(&plane, &["wait", "--for=condition=Established", "-f", "crds"]).await?;
        let controller = start(&plane, NAME, &[]).await?;
        let test = ["test", NAME, "--timeout=60s"];
        let (said, status) = tokio::try_join!(helm(&plane, major, &test), run_test_pod(&plane))?;
        ensure!(said.contains("Succeeded"), "helm {major}: {said}\n{status}");
        stop(controller).await?;
        let (said, status) =
            tokio::try_join!(async { Ok(helm(&plane, major, &test).await) }, run_test_pod(&plane))?;
        ensure!(said.is_err() && status.contains("NoLeader"), "helm {major}: {said:?}\n{status}");
        helm(&plane, major, &["uninstall", NAME]).await?;
    }
    plane.assert_clean().await
}

/// Runs the pod of `helm test` as a kubelet does, but without its patience, and returns its log.
async fn run_test_pod(plane: &ControlPlane) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(plane.admin.clone(), NAMESPACE);
    let name = format!("{NAME}-test");
    let is_pending = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Pending")
    };
    let pod = tokio::time::timeout(SOON, await_condition(pods.clone(), &name, is_pending)).await??;
    let spec = pod.and_then(|pod| pod.spec).context("no pod")?;
    ensure!(spec.service_account_name.as_deref() == Some(NAME), "{:?}", spec.service_account_name);
    let arguments = spec.containers[0].args.iter().flatten();
    let output = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .args(arguments.filter(|argument| !argument.starts_with("--timeout=")))
        .arg("--timeout=1s")
        .env("KUBECONFIG", &plane.controller_kubeconfig)
        .output()
        .await?;
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let status = json!({"status": {"phase": phase}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(String::from_utf8([output.stdout, output.stderr].concat())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_is_the_address_that_kubeadm_publishes() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::of(Families::V4) };
    let plane = ControlPlane::start(bare).await?;
    plane.keep_to_this_test();
    let auto = ["template", NAME, CHART, "--dry-run=server", "--set", "k8sServiceHost=auto"];
    for major in MAJORS {
        let refused = helm(&plane, major, &auto).await.unwrap_err().to_string();
        ensure!(refused.contains("set k8sServiceHost and k8sServicePort"), "{refused}");
    }
    for (server, host, port) in [
        ("https://192.0.2.7:6443", "192.0.2.7", "6443"),
        ("https://[fd00::1]:6443", "fd00::1", "6443"),
        ("https://api.example.com", "api.example.com", "443"),
    ] {
        let kubeconfig = json!({"kind": "Config", "clusters": [{"name": "", "cluster": {"server": server}}]});
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": kubeconfig.to_string()},
        });
        apply(&plane, &map.to_string()).await?;
        for major in MAJORS {
            let rendered = helm(&plane, major, &auto).await?;
            for (name, value) in [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)] {
                let line = format!("- name: {name}\n              value: \"{value}\"\n");
                ensure!(rendered.contains(&line), "helm {major}: {line}\n{rendered}");
            }
        }
    }
    Ok(())
}

/// The image of the Deployment, and whether it creates CiliumNodes.
async fn runs(plane: &ControlPlane) -> Result<(String, bool)> {
    let pod = deployment(plane, NAME).await?.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    let creates = pod.containers[0].args.iter().flatten().any(|argument| argument == "--create-ciliumnodes");
    Ok((pod.containers[0].image.clone().unwrap_or_default(), creates))
}

/// Runs Helm as an administrator would, in the namespace of the controller, and returns its output.
pub(super) async fn helm(plane: &ControlPlane, major: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program(major));
    command.args(arguments).args(["--namespace", NAMESPACE]);
    run(plane, command).await
}

/// The chart of a later version, with another definition of claims.
fn later_chart() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([chart.join("."), folder.path().to_path_buf()])
        .status()?;
    ensure!(copied.success(), "{copied}");
    edit(folder.path(), "Chart.yaml", &format!("version: {}", env!("CARGO_PKG_VERSION")), "version: 99.0.0")?;
    let columns = "additionalPrinterColumns:\n";
    let more = format!(
        "{columns}    - jsonPath: .metadata.creationTimestamp\n      name: {LATER}\n      type: date\n"
    );
    edit(folder.path(), "files/crds/nodeipblocks.nodeipam.io.yaml", columns, &more)?;
    Ok(folder)
}

fn edit(folder: &Path, name: &str, from: &str, to: &str) -> Result<()> {
    let path = folder.join(name);
    let before = std::fs::read_to_string(&path)?;
    let after = before.replacen(from, to, 1);
    ensure!(after != before, "{name} has no {from}");
    Ok(std::fs::write(path, after)?)
}

/// The columns of the definition of claims.
async fn columns(plane: &ControlPlane) -> Result<String> {
    let path = "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}";
    kubectl(plane, &["get", "crd/nodeipblocks.nodeipam.io", "-o", path]).await
}

pub(super) async fn deployment(plane: &ControlPlane, name: &str) -> Result<Deployment> {
    let deployments: Api<Deployment> = Api::namespaced(plane.admin.clone(), NAMESPACE);
    Ok(deployments.get(name).await?)
}

/// The controller as the Deployment of this name runs it, once it has exactly its rights, and `more`.
async fn start(plane: &ControlPlane, name: &str, more: &[&str]) -> Result<Controller> {
    for namespace in [NAMESPACE, "default"] {
        wait_granted(plane, namespace, more).await?;
    }
    start_as(plane, deployment(plane, name).await?, &[ELECTED]).await
}

/// Stops a controller, and fails if it lacked a right.
async fn stop(controller: Controller) -> Result<()> {
    let log = std::fs::read_to_string(controller.log())?;
    ensure!(!log.to_lowercase().contains("forbidden"), "it wants more rights than it has:\n{log}");
    let status = controller.sigterm_and_wait().await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// A new node, which is served.
async fn join(rig: &Rig, name: &str) -> Result<Agent> {
    rig.cluster.create_node(&NodeSpec::new(name).label(ZONE, "a")).await?;
    let mut agent = rig.agents.agent_with(Make::Fake, name, rig.agents.settings());
    agent.start()?;
    agent.wait_ready(SOON).await?;
    Ok(agent)
}
