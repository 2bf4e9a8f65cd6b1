//! Nodes that another allocator has served, their agents, and the part of the DaemonSet that replaces the Pods of these.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::agent_pods::{create_agent_pod, delete_at_once, pods, report};
use crate::answers::{Said, ask as run};
use crate::migration::set_ipam;
use crate::multi_pool::SLOW;
use crate::scene::{SOON, ask};
use crate::support::agent::{Agent, Make, Release, Settings};
use crate::support::cilium_operator::CiliumOperator;
use crate::support::eventually::eventually;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::{Health, create_running};
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::Rig;
use crate::support::views::Published;

pub(super) const CLUSTER_POOL: &str = "cluster-pool";
pub(super) const KUBERNETES: &str = "kubernetes";
pub(super) const CRD: &str = "crd";
pub(super) const NODES: [&str; 3] = ["a", "b", "c"];

/// The ranges of the operator, and the lengths of the blocks that it cuts out of them.
#[derive(Clone, Copy)]
pub(super) struct Ranges {
    pub(super) mask_v4: &'static str,
    pub(super) mask_v6: &'static str,
}

impl Ranges {
    /// As `cilium-config` has them.
    fn config(self) -> [(&'static str, &'static str); 4] {
        [
            ("cluster-pool-ipv4-cidr", "10.9.0.0/16"),
            ("cluster-pool-ipv4-mask-size", self.mask_v4),
            ("cluster-pool-ipv6-cidr", "fd00:9::/112"),
            ("cluster-pool-ipv6-mask-size", self.mask_v6),
        ]
    }

    /// Starts the allocator of the operator.
    pub(super) async fn operator(self, rig: &Rig) -> Result<CiliumOperator> {
        let flags: Vec<String> =
            self.config().iter().flat_map(|(key, value)| [format!("--{key}"), (*value).to_owned()]).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        CiliumOperator::start(rig, CLUSTER_POOL, &flags).await
    }
}

/// The settings of Cilium with which agents can run in the mode crd.
pub(super) const FOR_CRD: [(&str, &str); 6] = [
    ("routing-mode", "native"),
    ("enable-endpoint-routes", "true"),
    ("enable-ipv4-masquerade", "false"),
    ("enable-ipv6-masquerade", "false"),
    ("ipv4-native-routing-cidr", "10.0.0.0/8"),
    ("ipv6-native-routing-cidr", "fd00::/16"),
];

/// The agent of a node, and the number of its Pods so far.
pub(super) struct Daemon {
    pub(super) agent: Agent,
    /// The mode in which it runs without a label.
    pub(super) from: &'static str,
    pub(super) release: Release,
    pub(super) n_pods: usize,
}

pub(super) type Daemons = BTreeMap<&'static str, Daemon>;

impl Daemon {
    pub(super) fn pod(node: &str, number: usize) -> String {
        format!("cilium-{node}-{number}")
    }

    pub(super) async fn create_pod(&mut self, rig: &Rig, node: &str) -> Result<()> {
        self.n_pods += 1;
        let pod = Self::pod(node, self.n_pods);
        create_agent_pod(rig, &pod, node, self.release.as_str()).await?;
        report(rig, &pod, 0, Health::Ready).await
    }

    /// Waits until the Pod of the agent is deleted, and starts the next one.
    pub(super) async fn replace(&mut self, rig: &Rig, node: &str) -> Result<()> {
        let pod = Self::pod(node, self.n_pods);
        eventually(SLOW, async || {
            let found = pods(rig).get(&pod).await?;
            ensure!(found.metadata.deletion_timestamp.is_some(), "Pod {pod} is not deleted");
            Ok(())
        })
        .await?;
        let labels = rig.cluster.read(Kind::Node, node).await?.metadata.labels.unwrap_or_default();
        let mode =
            if labels.get("nodeipam.io/ipam").is_some_and(|mode| mode == CRD) { CRD } else { self.from };
        self.agent.change_mode(mode)?;
        delete_at_once(rig, &pod).await?;
        self.agent.restart_and_restore(SLOW).await?;
        self.create_pod(rig, node).await
    }
}

/// Runs a command, while the Pods of these agents are replaced in turn.
pub(super) async fn run_while(
    rig: &Rig,
    daemons: &mut Daemons,
    command: &[&str],
    restarts: &[&'static str],
) -> Result<Said> {
    let replaced = async {
        for node in restarts {
            daemons.get_mut(node).context("no such node")?.replace(rig, node).await?;
        }
        Ok::<(), anyhow::Error>(())
    };
    let said = run(&rig.control_plane, command);
    tokio::pin!(said, replaced);
    tokio::select! {
        said = &mut said => {
            let said = said?;
            if said.code == Some(0) {
                replaced.await.with_context(|| format!("{command:?}: {}{}", said.text, said.errors))?;
            }
            Ok(said)
        }
        replaced = &mut replaced => {
            replaced?;
            said.await
        }
    }
}

/// Runs a command that has to end with this code.
pub(super) async fn expect(rig: &Rig, command: &[&str], code: i32) -> Result<Said> {
    let said = run(&rig.control_plane, command).await?;
    ensure!(said.code == Some(code), "{command:?}: {:?} {}{}", said.code, said.text, said.errors);
    Ok(said)
}

/// Fails unless this text was printed.
pub(super) fn says(said: &Said, text: &str) -> Result<()> {
    ensure!(said.says(text), "no {text:?} in:\n{}{}", said.text, said.errors);
    Ok(())
}

/// A pod with the addresses that the agent of its node gives it, as agent and API server know it.
pub(super) async fn start_pod(rig: &Rig, daemons: &Daemons, node: &'static str, name: &str) -> Result<()> {
    let agent = &daemons[node].agent;
    let addresses: Vec<_> = ask(rig, agent, &format!("default/{name}")).await?.each().collect();
    let of_default: Api<Pod> = Api::default_namespaced(rig.cluster.client.clone());
    create_running(&of_default, name, node, &addresses).await
}

/// Sets these keys of `cilium-config`.
pub(super) async fn configure(rig: &Rig, data: BTreeMap<&str, &str>) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    api.patch("cilium-config", &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await?;
    Ok(())
}

/// Nodes with blocks of another allocator, agents in the mode of that allocator, and pods.
pub(super) async fn served_before(
    rig: &Rig,
    from: &'static str,
    release: Release,
    ranges: Ranges,
) -> Result<Daemons> {
    set_ipam(rig, from).await?;
    configure(rig, ranges.config().into()).await?;
    let operator = match from {
        CLUSTER_POOL => Some(ranges.operator(rig).await?),
        _ => None,
    };
    let mut daemons = Daemons::new();
    for (number, node) in NODES.into_iter().enumerate() {
        let rack = if node == "a" { "r2" } else { "r1" };
        rig.cluster.create_node(&NodeSpec::new(node).label("rack", rack)).await?;
        if from == KUBERNETES {
            // As kube-controller-manager does it.
            let first = 32 * (number + 1);
            let cidrs = [format!("10.9.0.{first}/27"), format!("fd00:9::{first:x}/123")];
            let given = json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}});
            rig.cluster.patch(Kind::Node, node, given).await?;
        }
        let settings = Settings { ipam: from, release, ..rig.agents.settings() };
        let mut agent = rig.agents.agent_with(Make::Real, node, settings);
        agent.start()?;
        agent.wait_ready(SLOW).await?;
        let mut daemon = Daemon { agent, from, release, n_pods: 0 };
        daemon.create_pod(rig, node).await?;
        daemons.insert(node, daemon);
        for number in 0..4 {
            start_pod(rig, &daemons, node, &format!("{node}-{number}")).await?;
        }
    }
    if let Some(operator) = operator {
        operator.end().await?;
    }
    Ok(daemons)
}

/// The agent of a node restarts by chance, when the addresses of the node are on its CiliumNode.
pub(super) async fn restarts_by_chance(rig: &Rig, daemons: &mut Daemons, node: &'static str) -> Result<()> {
    let hold = ["annotate", "node", node, "nodeipam.io/hold-growth="];
    kubectl(&rig.control_plane, &hold).await?;
    kubectl(&rig.control_plane, &["label", "node", node, "nodeipam.io/ipam=crd"]).await?;
    rig.cluster.wait_published(node, "its addresses", SOON, |seen: &Published| !seen.pool.is_empty()).await?;
    let daemon = daemons.get_mut(node).context("no such node")?;
    let pod = Daemon::pod(node, daemon.n_pods);
    pods(rig).delete(&pod, &DeleteParams::default()).await?;
    daemon.replace(rig, node).await
}
