//! Pods, as the kubelet reports them. No kubelet runs here, and the controller looks at these Pods.

use std::net::IpAddr;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// Whether the agent is up.
#[derive(Clone, Copy)]
pub(crate) enum Health {
    Ready,
    Starting,
}

/// The Pods in the namespace of Cilium.
pub(crate) fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "kube-system")
}

/// Creates the Pod of an agent of this version.
pub(crate) async fn create_agent_pod(client: &Client, name: &str, node: &str, release: &str) -> Result<()> {
    let image = format!("registry.example.com:5000/cilium:v{release}");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"k8s-app": "cilium"}},
        "spec": {
            "nodeName": node, "hostNetwork": true, "containers": [{"name": "cilium-agent", "image": image}],
        },
    }))?;
    pods(client).create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// Creates a Pod with these addresses that runs on the node.
pub(crate) async fn create_running(
    pods: &Api<Pod>,
    name: &str,
    node: &str,
    addresses: &[IpAddr],
) -> Result<()> {
    create_bound(pods, name, node).await?;
    report_addresses(pods, name, addresses).await
}

/// Creates a Pod that is bound to the node, and has no addresses yet.
pub(crate) async fn create_bound(pods: &Api<Pod>, name: &str, node: &str) -> Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app"}]},
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// Reports that the Pod runs, and has these addresses.
pub(crate) async fn report_addresses(pods: &Api<Pod>, name: &str, addresses: &[IpAddr]) -> Result<()> {
    let ips: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
    let status = json!({"status": {"phase": "Running", "podIP": addresses.first(), "podIPs": ips}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Reports the agent that has started this often before.
pub(crate) async fn report(client: &Client, name: &str, n_restarts: u32, health: Health) -> Result<()> {
    let ready = match health {
        Health::Ready => "True",
        Health::Starting => "False",
    };
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{
            "name": "cilium-agent", "image": "cilium", "imageID": "", "ready": ready == "True",
            "restartCount": n_restarts,
            "state": {"running": {"startedAt": format!("2026-01-01T00:00:{n_restarts:02}Z")}},
        }],
    }});
    pods(client).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}
