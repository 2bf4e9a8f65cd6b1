//! A node leaves the old range by a rejoin: the test makes the steps that `migrate rejoin` prints.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use super::daemons::{CRD, Daemon, Daemons, KUBERNETES, NODES, expect, says, start_pod};
use crate::agent_pods::report;
use crate::answers::ask;
use crate::multi_pool::SLOW;
use crate::support::agent::{Make, Settings};
use crate::support::kubectl::kubectl;
use crate::support::kubelet::Health;
use crate::support::objects::{Kind, claim_name};
use crate::support::rig::Rig;
use crate::support::views::{Claim, Published};

/// The addresses of the pods on a node, as its agent knows them.
async fn held(daemons: &Daemons, node: &str) -> Result<BTreeMap<IpAddr, String>> {
    daemons[node].agent.held().await
}

/// The range of the first blocks drains, and this node rejoins.
pub(super) async fn leaves_the_old_range(rig: &Rig, daemons: &mut Daemons, node: &'static str) -> Result<()> {
    rig.cluster.patch_pool("legacy", json!({"reuseAfter": "1s"})).await?;
    says(&expect(rig, &["migrate", "rejoin", node], 0).await?, "none of its first blocks must leave")?;
    let drained = expect(rig, &["drain", "legacy", "--yes"], 0).await?;
    says(&drained, "3 nodes must: a, b, c")?;
    says(&drained, "kubectl delete ciliumnode a")?;
    let shown = expect(rig, &["migrate", "next", node], 0).await?;
    says(&shown, &format!("kubectl delete ciliumnode {node}"))?;
    let of_rack =
        expect(rig, &["migrate", "rejoin", "--batch", "10", "-l", "rack=r2", "-o", "json"], 0).await?;
    let of_rack = of_rack.json()?;
    let is_other = of_rack["nodes"][0]["name"] == "a" && of_rack["nodes"][1].is_null();
    ensure!(is_other && of_rack["left"] == json!([]), "{of_rack:#}");
    let rejoin = expect(rig, &["migrate", "rejoin", node, "-o", "json"], 0).await?.json()?;
    let is_named = daemons[node].from == KUBERNETES;
    let costs = rejoin["nodes"][0]["costs"].to_string();
    ensure!(costs.contains("podCIDRs of Node") == is_named, "{rejoin:#}");
    let commands: Vec<&str> =
        rejoin["nodes"][0]["commands"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();

    let old = rig.cluster.published(node).context("its CiliumNode")?.pod_cidrs;
    let others: Vec<&str> = NODES.into_iter().filter(|other| *other != node).collect();
    let mut before = BTreeMap::new();
    for other in &others {
        before.insert(*other, held(daemons, other).await?);
    }
    for command in &commands {
        make_step(rig, daemons, node, command).await?;
    }
    ensure!(!commands.is_empty(), "{rejoin:#}");

    let is_new = |cidr: &String| cidr.starts_with("10.64.") || cidr.starts_with("fd00:64:");
    let only_new = |seen: &Published| !seen.pod_cidrs.is_empty() && seen.pod_cidrs.iter().all(is_new);
    rig.cluster.wait_published(node, "blocks of its rack alone", SLOW, only_new).await?;
    for block in &old {
        let is_gone = async || {
            let claim = rig.cluster.object(Kind::Block, &claim_name(block));
            let state = claim.map(|claim| Claim::of(&claim).state);
            // While the podCIDRs of the Node name it, no other node gets it.
            Ok(state.as_deref() == is_named.then_some("Cooling"))
        };
        rig.cluster.wait_until(&format!("{block} to have left {node}"), SLOW, is_gone).await?;
    }
    if is_named {
        let found = ask(&rig.control_plane, &["who", &old[0]]).await?;
        says(&found, &format!("while spec.podCIDRs of Node {node} name it"))?;
    }
    start_pod(rig, daemons, node, &format!("{node}-new")).await?;
    for (other, addresses) in before {
        ensure!(held(daemons, other).await? == addresses, "{other} has other addresses than before");
    }
    let after = expect(rig, &["migrate", "rejoin", node], 0).await?;
    says(&after, "none of its first blocks must leave")
}

/// Makes a step as `kubectl`, the machine and its kubelet do it.
async fn make_step(rig: &Rig, daemons: &mut Daemons, node: &'static str, command: &str) -> Result<()> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        // No kubelet deletes the Pods that are evicted.
        ["kubectl", "drain", ..] => {
            kubectl(&rig.control_plane, &["cordon", node]).await?;
            let of_default: Api<Pod> = Api::default_namespaced(rig.cluster.client.clone());
            let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
            for pod in of_default.list(&on_node).await? {
                let name = pod.metadata.name.context("its name")?;
                of_default.delete(&name, &DeleteParams::default().grace_period(0)).await?;
                daemons[node].agent.release(&format!("default/{name}")).await?;
            }
        }
        ["kubectl", arguments @ ..] => {
            kubectl(&rig.control_plane, arguments).await?;
        }
        ["#", "shut", ..] => {
            let daemon = daemons.remove(node).context("no such node")?;
            report(rig, &Daemon::pod(node, daemon.n_pods), 0, Health::Starting).await?;
            set_ready(rig, node, "Unknown").await?;
            let Daemon { agent, from, release, n_pods } = daemon;
            agent.power_off().await?;
            let settings = Settings { ipam: CRD, release, ..rig.agents.settings() };
            let agent = rig.agents.agent_with(Make::Real, node, settings);
            daemons.insert(node, Daemon { agent, from, release, n_pods });
        }
        ["#", "start", ..] => {
            let daemon = daemons.get_mut(node).context("no such node")?;
            daemon.agent.start()?;
            daemon.agent.wait_ready(SLOW).await?;
            report(rig, &Daemon::pod(node, daemon.n_pods), 1, Health::Ready).await?;
            set_ready(rig, node, "True").await?;
        }
        _ => bail!("no step: {command}"),
    }
    Ok(())
}

/// As kubelet, and for a machine that is off as the controller of Nodes.
async fn set_ready(rig: &Rig, node: &str, status: &str) -> Result<()> {
    let ready = json!({"type": "Ready", "status": status, "reason": "OfATest"});
    rig.cluster.patch_status(Kind::Node, node, json!({"status": {"conditions": [ready]}})).await.map(drop)
}
