//! Pods of a machine: the test does what kubelet and a container runtime do, with Cilium's CNI plugin.

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{Machine, ask_agent, cilium, each};
use crate::scene::insist_for;
use crate::support::eventually::eventually;
use crate::support::families::Family;
use crate::support::objects::Kind;
use crate::support::rig::Rig;
use crate::support::views::Published;

/// For a pod that waits for an address, through the growth of its node.
pub(super) const POD_STARTS: Duration = Duration::from_secs(120);

/// The pods of the namespace `default` that get an identity of their labels. Smaller numbers are reserved.
pub(super) const FIRST_IDENTITY: u64 = 256;

/// A running pod.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    uid: String,
}

impl Pod {
    /// Its address of a family.
    pub(crate) fn address(&self, family: Family) -> Result<IpAddr> {
        let address = self.addresses.iter().find(|address| Family::of(**address) == family);
        address.copied().with_context(|| format!("{} has no address of {family:?}", self.name))
    }

    pub(crate) fn is_in(&self, cidr: &str) -> bool {
        cidr.parse::<IpNet>().is_ok_and(|cidr| self.addresses.iter().any(|address| cidr.contains(address)))
    }
}

impl Machine {
    /// Starts a pod, as kubelet does: it tries again until the pod has its addresses. Returns when the pod has an
    /// identity. Before that, the datapath drops everything to it.
    pub(crate) async fn add_pod(&self, rig: &Rig, name: &str) -> Result<Pod> {
        let object = create_pod(&rig.cluster.client, name, &self.name).await?;
        let uid = object.uid().context("a Pod without a uid")?;
        let network = "ip netns add \"$1\" && ip -n \"$1\" link set lo up";
        self.namespaces.sh(network, &[name]).await?;
        let result = insist_for(rig, POD_STARTS, async || self.cni("ADD", name, &uid).await).await?;
        let result: Value = serde_json::from_str(&result)?;
        let addresses: Vec<IpAddr> = each(&result["ips"])
            .filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok())
            .collect();
        ensure!(!addresses.is_empty(), "{name} has no address: {result}");
        let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        rig.control_plane
            .holds(&self.name, &texts.iter().map(String::as_str).collect::<Vec<_>>(), &[])
            .await?;
        self.require_published(rig, name, &addresses).await?;
        let ips: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
        let host = self.addresses.first();
        let status =
            json!({"status": {"phase": "Running", "hostIP": host, "podIP": addresses[0], "podIPs": ips}});
        pods(&rig.cluster.client).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        let endpoints: Api<DynamicObject> =
            Api::namespaced_with(rig.cluster.client.clone(), "default", &cilium_endpoint());
        let identified = eventually(POD_STARTS, async || {
            let endpoint = endpoints.get(name).await?;
            let identity = endpoint.data["status"]["identity"]["id"].as_u64().unwrap_or_default();
            ensure!(identity >= FIRST_IDENTITY, "{name} has the identity {identity}");
            Ok(())
        });
        rig.control_plane.alarm.over(identified).await?;
        Ok(Pod { name: name.to_owned(), addresses, uid })
    }

    /// Pods `prefix1`, `prefix2`, …, one after the other.
    pub(crate) async fn add_pods(&self, rig: &Rig, prefix: &str, count: usize) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        for number in 1..=count {
            pods.push(self.add_pod(rig, &format!("{prefix}{number}")).await?);
        }
        Ok(pods)
    }

    /// A pod can use an address only if other nodes know the way: the CiliumNode on the server already has a CIDR around
    /// it.
    async fn require_published(&self, rig: &Rig, pod: &str, addresses: &[IpAddr]) -> Result<()> {
        let published = Published::of(&rig.cluster.read(Kind::CiliumNode, &self.name).await?).pod_cidrs;
        let cidrs: Vec<IpNet> = published.iter().filter_map(|cidr| cidr.parse().ok()).collect();
        for address in addresses {
            let is_covered = cidrs.iter().any(|cidr| cidr.contains(address));
            ensure!(is_covered, "{pod} has {address}, and CiliumNode {} has only {published:?}", self.name);
        }
        Ok(())
    }

    /// Removes a pod.
    pub(crate) async fn remove_pod(&self, rig: &Rig, pod: &Pod) -> Result<()> {
        report_end(rig, &self.name, pod).await?;
        self.cni("DEL", &pod.name, &pod.uid).await?;
        self.namespaces.sh("ip netns delete \"$1\"", &[&pod.name]).await?;
        delete_pod(rig, &pod.name).await
    }

    /// Calls Cilium's CNI plugin, as a container runtime does.
    async fn cni(&self, what: &str, pod: &str, uid: &str) -> Result<String> {
        let folder = cilium(self.setup.release);
        let container = uid.replace('-', "");
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={container};\
             K8S_POD_UID={uid}"
        );
        let config = json!({
            "cniVersion": "0.3.1", "name": "cilium", "type": "cilium-cni", "enable-debug": false,
            "log-file": "/run/cni.log",
        });
        let mut command = self.namespaces.command(folder.join("cilium-cni"));
        command
            .env("CNI_COMMAND", what)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{pod}"))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", &folder)
            .env("CNI_ARGS", arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut plugin = command.spawn()?;
        let mut stdin = plugin.stdin.take().context("no standard input")?;
        stdin.write_all(config.to_string().as_bytes()).await?;
        drop(stdin);
        let output = tokio::time::timeout(POD_STARTS, plugin.wait_with_output()).await??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "CNI {what} of {pod}: {said}{complaint}");
        Ok(said)
    }

    /// Returns when the agent has compiled an ingress policy into the programs of a pod.
    pub(crate) async fn wait_ingress_policy(&self, rig: &Rig, pod: &Pod) -> Result<()> {
        let address = pod.address(Family::V4)?.to_string();
        let realized = eventually(POD_STARTS, async || {
            let endpoints = ask_agent(self.namespaces.pid, "/endpoint").await?;
            let is_of_pod = |endpoint: &&Value| {
                each(&endpoint["status"]["networking"]["addressing"])
                    .any(|each| each["ipv4"] == address.as_str())
            };
            let endpoint = each(&endpoints).find(is_of_pod).context("the agent has no such endpoint")?;
            let status = &endpoint["status"];
            let enabled = &status["policy"]["realized"]["policy-enabled"];
            ensure!(enabled == "ingress" && status["state"] == "ready", "{}: {status}", pod.name);
            Ok(())
        });
        rig.control_plane.alarm.over(realized).await
    }
}

/// Reports to the oracle that the pod no longer has its addresses.
pub(super) async fn report_end(rig: &Rig, node: &str, pod: &Pod) -> Result<()> {
    let texts: Vec<String> = pod.addresses.iter().map(IpAddr::to_string).collect();
    rig.control_plane.holds(node, &[], &texts.iter().map(String::as_str).collect::<Vec<_>>()).await
}

pub(super) async fn delete_pod(rig: &Rig, name: &str) -> Result<()> {
    let now = DeleteParams::default().grace_period(0);
    pods(&rig.cluster.client).delete(name, &now).await?;
    Ok(())
}

fn pods(client: &Client) -> Api<PodObject> {
    Api::namespaced(client.clone(), "default")
}

async fn create_pod(client: &Client, name: &str, node: &str) -> Result<PodObject> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "datapath"}},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app"}]},
    }))?;
    Ok(pods(client).create(&PostParams::default(), &pod).await?)
}

fn cilium_endpoint() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2", "CiliumEndpoint"))
}
