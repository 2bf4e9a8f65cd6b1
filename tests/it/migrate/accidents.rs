//! Accidents while a cluster moves: CiliumNodes are deleted in each state, nodes join, the allocator of cilium-operator
//! runs again, and no controller leads. No two nodes get one address, and no pod loses its own.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::FLAGS;
use super::daemons::{
    CLUSTER_POOL, CRD, Daemon, Daemons, FOR_CRD, NODES, Ranges, configure, expect, run_while, says,
    served_before, start_pod,
};
use crate::chronicle::wait_gone;
use crate::migration::{set_ipam, wait_passive};
use crate::multi_pool::SLOW;
use crate::scene::{SOON, wait_claims_carried};
use crate::second_allocator::remove_signs;
use crate::support::agent::{Agent, Make, Release, Settings};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::create_running;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// With the router, the health endpoint and four earlier pods, nearly all addresses of a /24.
const MANY: usize = 246;

const WIDE: Ranges = Ranges { mask_v4: "24", mask_v6: "120" };

/// The CiliumNode is deleted under its agent, which creates it again. It shows the same as before.
async fn loses_its_cilium_node(rig: &Rig, daemons: &Daemons, node: &str) -> Result<()> {
    let before = rig.cluster.published(node).context("its CiliumNode")?;
    rig.cluster.delete(Kind::CiliumNode, node).await?;
    wait_gone(rig, Kind::CiliumNode, node).await?;
    daemons[node].agent.touch_node().await?;
    let again = |seen: &Published| {
        seen.uid != before.uid
            && seen.pod_cidrs == before.pod_cidrs
            && seen.pool.keys().eq(before.pool.keys())
    };
    rig.cluster.wait_published(node, "the same blocks and addresses", SOON, again).await?;
    Ok(())
}

/// A node joins with an agent in this mode, and runs a pod.
async fn joins(rig: &Rig, daemons: &mut Daemons, node: &'static str, mode: &'static str) -> Result<()> {
    let spec = NodeSpec::new(node);
    let spec = if mode == CRD { spec.label("nodeipam.io/ipam", CRD) } else { spec };
    rig.cluster.create_node(&spec).await?;
    let settings = Settings { ipam: mode, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, node, settings);
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    let mut daemon = Daemon { agent, from: CLUSTER_POOL, release: Release::Newest, n_pods: 0 };
    daemon.create_pod(rig, node).await?;
    daemons.insert(node, daemon);
    start_pod(rig, daemons, node, &format!("{node}-0")).await
}

/// Nearly every address of the node has a pod.
async fn fill(rig: &Rig, daemons: &Daemons, node: &str) -> Result<()> {
    let filled = daemons[node].agent.allocate_many("default/many-", MANY).await?;
    ensure!(filled.allocated.len() == MANY, "{} pods: {:?}", filled.allocated.len(), filled.error);
    let of_default: Api<Pod> = Api::default_namespaced(rig.cluster.client.clone());
    let created = filled.allocated.iter().map(async |(owner, addresses)| {
        let name = owner.trim_start_matches("default/");
        let addresses: Vec<_> = addresses.each().collect();
        create_running(&of_default, name, node, &addresses).await
    });
    try_join_all(created).await?;
    Ok(())
}

/// The Lease of a leader that is away. The controllers of these tests run without an election.
async fn without_leader(rig: &Rig) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    let lease = serde_json::from_value(json!({
        "metadata": {"name": "cilium-node-ipam"},
        "spec": {
            "holderIdentity": "gone_1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }))?;
    leases.create(&PostParams::default(), &lease).await?;
    let shown = expect(rig, &["migrate", "next", "a"], 1).await?;
    says(&shown, "FAIL controller no leader: gone renewed its Lease")?;
    leases.delete("cilium-node-ipam", &DeleteParams::default()).await?;
    let shown = expect(rig, &["migrate", "next", "a"], 0).await?;
    says(&shown, "kubectl label node a")
}

/// The allocator of the operator runs again, until it has seen a node with a block of another range.
async fn operator_by_mistake(rig: &Rig, seen: &str) -> Result<()> {
    let operator = WIDE.operator(rig).await?;
    let has_answered = async || {
        let object = rig.cluster.object(Kind::CiliumNode, seen).context("its CiliumNode")?;
        Ok(object.data["status"]["ipam"]["operator-status"]["error"].is_string())
    };
    rig.cluster.wait_until("the operator to complain", SOON, has_answered).await?;
    operator.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn accidents_while_a_cluster_moves_cost_no_pod_its_address() -> Result<()> {
    under_oracle(Options { ipam: CRD, families: Families::Dual, ..Options::default() }, async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        let mut daemons = served_before(rig, CLUSTER_POOL, Release::Newest, WIDE).await?;
        fill(rig, &daemons, "a").await?;
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("move").to_string_lossy().into_owned();
        expect(rig, &["migrate", "init", "--out", &out], 0).await?;
        let files = [format!("{out}/pools.yaml"), format!("{out}/ciliumnodeconfig.yaml")];
        kubectl(&rig.control_plane, &["apply", "-f", &files[0], "-f", &files[1]]).await?;
        rig.cluster
            .create_pool(&PoolSpec::new("rack").ipv4(28, &["10.64.0.0/24"]).ipv6(124, &["fd00:64::/112"]))
            .await?;
        configure(rig, FOR_CRD.into()).await?;
        let flags = [FLAGS, &["--modes", CLUSTER_POOL, "--modes", CRD]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        wait_claims_carried(rig).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Claimed")?;
        without_leader(rig).await?;

        // Claimed. Nodes that join are served in their own modes.
        loses_its_cilium_node(rig, &daemons, "b").await?;
        joins(rig, &mut daemons, "old", CLUSTER_POOL).await?;
        joins(rig, &mut daemons, "new", CRD).await?;
        let of_rack = |seen: &Published| {
            seen.pod_cidrs.iter().all(|cidr| cidr.contains("64:") || cidr.starts_with("10.64."))
        };
        let old = rig.cluster.wait_published("old", "one block of its rack", SOON, of_rack).await?;
        ensure!(old.pool.is_empty() && old.pod_cidrs.len() == 2, "{old:?}");
        let new = rig.cluster.wait_published("new", "addresses", SOON, |seen| !seen.pool.is_empty()).await?;
        ensure!(of_rack(&new), "{new:?}");

        // Prepared.
        kubectl(&rig.control_plane, &["annotate", "node", "b", "nodeipam.io/hold-growth="]).await?;
        kubectl(&rig.control_plane, &["label", "node", "b", "nodeipam.io/ipam=crd"]).await?;
        rig.cluster.wait_published("b", "its addresses", SOON, |seen| !seen.pool.is_empty()).await?;
        loses_its_cilium_node(rig, &daemons, "b").await?;
        says(&expect(rig, &["migrate", "next", "b"], 0).await?, "b: Prepared, next: delete Pod")?;

        let carried =
            || daemons.keys().map(|node| (*node, rig.cluster.published(node).unwrap_or_default().pod_cidrs));
        let before: Vec<_> = carried().collect();
        operator_by_mistake(rig, "old").await?;
        remove_signs(rig).await?;
        ensure!(carried().collect::<Vec<_>>() == before, "the operator has changed {before:?}");

        let batch = ["migrate", "next", "a", "b", "c", "old", "--yes", "--timeout", "150s"];
        let said = run_while(rig, &mut daemons, &batch, &["a", "b", "c", "old"]).await?;
        ensure!(said.code == Some(0), "{}{}", said.text, said.errors);
        // It needs a second block, which it gets after the commit.
        let full = expect(rig, &["migrate", "status"], 1).await?;
        says(&full, "5 nodes: 4 Moved, 1 Committed")?;
        says(&full, "a: it needs more addresses, and its growth is held")?;

        // Moved. A usage query brings the report of the agent again.
        loses_its_cilium_node(rig, &daemons, "b").await?;
        eventually(SOON, async || {
            says(&expect(rig, &["migrate", "status"], 1).await?, "5 nodes: 4 Moved, 1 Committed")
        })
        .await?;
        expect(rig, &["migrate", "commit", "--all", "--yes"], 0).await?;
        let grown = |seen: &Published| seen.pod_cidrs.len() >= 4;
        rig.cluster.wait_published("a", "further blocks of each family", SOON, grown).await?;

        set_ipam(rig, CRD).await?;
        wait_passive(rig, &controller, CLUSTER_POOL, CRD).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        for node in NODES {
            daemons.get_mut(node).context("it is there")?.agent.restart_and_restore(SLOW).await?;
        }
        wait_claims_carried(rig).await?;
        let agents: Vec<Agent> = daemons.into_values().map(|daemon| daemon.agent).collect();
        Ok((controller, agents))
    })
    .await
}
