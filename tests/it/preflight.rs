//! `preflight` on a real API server: a cluster that is not ready, the same one after its remedies, and a user without
//! rights. Nothing is installed yet, and nothing is written.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::answers::{Said, documented};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::kubectl::{apply, kubectl};
use crate::support::kubelet::create_agent_pod;
use crate::support::objects::{Kind, NodeSpec};

/// Faults of a cluster, beside its settings.
const FAULTS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: calico-node, namespace: kube-system}
spec:
  selector: {matchLabels: {app: calico}}
  template:
    metadata: {labels: {app: calico}}
    spec: {containers: [{name: node, image: "docker.io/calico/node:v3.28.0"}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: metrics-server, namespace: kube-system}
"#;

/// kube-controller-manager as kubeadm runs it.
const MANAGER: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: kube-controller-manager-n1, namespace: kube-system, labels: {component: kube-controller-manager}}
spec:
  nodeName: n1
  containers: [{name: m, image: m, command: [kube-controller-manager, --allocate-node-cidrs=ALLOCATES]}]
";

fn pools(network: &str) -> String {
    format!(
        "apiVersion: nodeipam.io/v1alpha1\nkind: NodeIPPool\nmetadata:\n  name: rack\nspec:\n  nodeSelector:\n    \
         matchLabels:\n      zone: a\n  ipv4:\n    blockSize: 26\n    cidrs:\n    - cidr: {network}\n"
    )
}

async fn ask(plane: &ControlPlane, kubeconfig: &Path, folder: &Path, arguments: &[&str]) -> Result<Said> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(arguments).env("KUBECONFIG", kubeconfig).current_dir(folder).stdin(Stdio::null());
    let output = plane.alarm.over(async { Ok(command.output().await?) }).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { text: text(&output.stdout), errors: text(&output.stderr), code: output.status.code() })
}

/// The settings of Cilium, with `null` for a key that is removed.
async fn settings(plane: &ControlPlane, data: Value) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(plane.admin.clone(), "kube-system");
    let patch = Patch::Merge(json!({"data": data}));
    api.patch("cilium-config", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The kubelet of `n1` allows so many pods.
async fn allow_pods(plane: &ControlPlane, max_pods: u32) -> Result<()> {
    let allocatable = json!({"status": {"allocatable": {"pods": max_pods.to_string()}}});
    let patch = Patch::Merge(allocatable);
    Kind::Node.api(&plane.admin).patch_status("n1", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A cluster of three nodes with a fault for most points.
async fn spoil(plane: &ControlPlane) -> Result<()> {
    for (index, (name, zone)) in [("n1", "a"), ("n2", "a"), ("n3", "b")].into_iter().enumerate() {
        let node = NodeSpec::new(name).label("zone", zone).object(u32::try_from(index)?);
        Kind::Node.api(&plane.admin).create(&PostParams::default(), &node).await?;
        create_agent_pod(
            &plane.admin,
            &format!("cilium-{name}"),
            name,
            if name == "n3" { "1.14.1" } else { "1.17.8" },
        )
        .await?;
    }
    allow_pods(plane, 1000).await?;
    settings(
        plane,
        json!({
            "routing-mode": "tunnel", "ipv4-native-routing-cidr": "10.1.0.0/16", "annotate-k8s-node": "true",
            "enable-endpoint-routes": "false", "enable-bpf-masquerade": null, "egress-masquerade-interfaces": null,
        }),
    )
    .await?;
    apply(plane, FAULTS).await?;
    apply(plane, &MANAGER.replace("ALLOCATES", "true")).await?;
    kubectl(
        plane,
        &[
            "patch",
            "node",
            "n2",
            "--type=merge",
            "-p",
            r#"{"spec":{"podCIDR":"10.2.1.0/24","podCIDRs":["10.2.1.0/24"]}}"#,
        ],
    )
    .await?;
    let condition = "--for=condition=Available=False";
    kubectl(plane, &["wait", condition, "--timeout=60s", "apiservice/v1beta1.metrics.k8s.io"]).await?;
    Ok(())
}

/// Fails unless each point has the state that follows from the faults.
fn assert_states(object: &Value) -> Result<()> {
    ensure!(object["kind"] == "Preflight" && object["apiVersion"] == "cli.nodeipam.io/v1", "{object}");
    let state = |point: &str| {
        let items = object["items"].as_array().into_iter().flatten();
        let states = items.filter(|item| item["point"] == point).filter_map(|item| item["state"].as_str());
        states.collect::<Vec<_>>().join(" ")
    };
    for (point, expected) in [
        ("kubernetes", "ok"),
        ("agents", "fail ok"),
        ("ipam", "ok"),
        ("routing-mode", "fail"),
        ("native-routing-cidr", "fail"),
        ("endpoint-routes", "fail"),
        ("masquerade", "warn"),
        ("require-pod-cidrs", "ok"),
        ("announcements", "ok"),
        ("annotate-k8s-node", "fail"),
        ("kvstore", "ok"),
        ("kube-controller-manager", "warn"),
        ("other-cni", "warn"),
        ("pod-cidrs", "warn"),
        ("service-ranges", "ok"),
        ("pools", "warn"),
        ("max-pods", "warn"),
        ("definitions", "ok"),
        ("admission", "ok"),
        ("apiservices", "warn"),
        ("your-rights", "ok"),
        ("controller-rights", "ok"),
    ] {
        ensure!(state(point) == expected, "{point}: {} and not {expected}\n{object}", state(point));
    }
    Ok(())
}

/// Each remedy is applied.
async fn cure(plane: &ControlPlane) -> Result<()> {
    settings(
        plane,
        json!({
            "routing-mode": "native", "ipv4-native-routing-cidr": "10.0.0.0/8", "annotate-k8s-node": null,
            "enable-endpoint-routes": "true", "enable-bpf-masquerade": "true", "auto-direct-node-routes": "true",
        }),
    )
    .await?;
    kubectl(
        plane,
        &["-n", "kube-system", "delete", "daemonset/calico-node", "pod/cilium-n3", "--wait=false"],
    )
    .await?;
    kubectl(
        plane,
        &[
            "-n",
            "kube-system",
            "delete",
            "pod/kube-controller-manager-n1",
            "pod/cilium-n3",
            "--force",
            "--ignore-not-found",
        ],
    )
    .await?;
    kubectl(plane, &["delete", "apiservice/v1beta1.metrics.k8s.io", "node/n2"]).await?;
    apply(plane, &MANAGER.replace("ALLOCATES", "false")).await?;
    create_agent_pod(&plane.admin, "cilium-n3-new", "n3", "1.17.8").await?;
    kubectl(plane, &["label", "node", "n3", "zone=a", "--overwrite"]).await?;
    kubectl(plane, &["label", "node", "n1", "zone=b", "--overwrite"]).await?;
    allow_pods(plane, 110).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_ready_after_the_remedies_of_all_lines() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::default() };
    let plane = ControlPlane::start(bare).await?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let look = async |more: &[&str]| {
        let arguments = [&["preflight", "-f", "pools.yaml"], more].concat();
        ask(&plane, &plane.admin_kubeconfig, folder, &arguments).await
    };
    spoil(&plane).await?;
    std::fs::write(folder.join("pools.yaml"), pools("10.2.0.0/16"))?;
    let unready = look(&[]).await?;
    documented("preflight -f pools.yaml", &unready)?;
    ensure!(unready.code == Some(1), "{:?} {}", unready.code, unready.errors);
    ensure!(unready.text.lines().all(|line| line.chars().count() <= 100), "{}", unready.text);
    assert_states(&look(&["-o", "json"]).await?.json()?)?;

    // A range of the Services.
    let services =
        kubectl(&plane, &["get", "servicecidrs", "-o", "jsonpath={.items[0].spec.cidrs[0]}"]).await?;
    std::fs::write(folder.join("pools.yaml"), pools(&services))?;
    let overlapping = look(&["-o", "json"]).await?;
    let expected = format!("pool rack and ServiceCIDR kubernetes have the same addresses: {services}");
    ensure!(overlapping.says(&expected), "{}", overlapping.text);

    cure(&plane).await?;
    let both = format!(
        "{}---\n{}",
        pools("10.2.0.0/16"),
        pools("10.3.0.0/16").replace("rack", "edge").replace("zone: a", "zone: b")
    );
    std::fs::write(folder.join("pools.yaml"), both)?;
    let ready = look(&[]).await?;
    ensure!(ready.code == Some(0), "{:?} {}{}", ready.code, ready.text, ready.errors);
    ensure!(ready.text.contains("0 failures, 0 warnings, "), "{}", ready.text);
    let pools_left =
        kubectl(&plane, &["get", "crd", "nodeippools.nodeipam.io", "--ignore-not-found"]).await?;
    ensure!(pools_left.is_empty(), "it installed {pools_left}");

    // From files of the same objects, which say nothing of rights.
    let kinds = "nodes,daemonsets,apiservices,servicecidrs,configmaps,pods,deployments,ciliumnodes";
    let objects = kubectl(&plane, &["get", kinds, "-A", "-o", "json"]).await?;
    std::fs::create_dir(folder.join("objects"))?;
    std::fs::write(folder.join("objects/all.json"), objects)?;
    let from_files = look(&["--from", "objects"]).await?;
    ensure!(from_files.code == Some(0), "{:?} {}{}", from_files.code, from_files.text, from_files.errors);
    ensure!(from_files.text.contains("?     your-rights"), "{}", from_files.text);

    // A user without rights reads the cause and the remedy.
    let blind = ask(&plane, &plane.controller_kubeconfig, folder, &["preflight"]).await?;
    let last = blind.errors.trim().lines().last().unwrap_or_default();
    ensure!(
        blind.code == Some(2) && blind.text.is_empty(),
        "{:?} {}{}",
        blind.code,
        blind.text,
        blind.errors
    );
    ensure!(last.contains("neither Nodes nor cilium-config") && last.contains("docs/commands.md"), "{last}");
    plane.assert_clean().await
}
