//! A running cluster moves from cluster-pool or kubernetes to crd by the commands of `migrate`, one node returns and moves again, and pings
//! run through all steps.
//!
//! No DaemonSet runs here, so the test plays its part: it replaces the Pod of an agent that a command deletes, by an agent in
//! the mode that the label of its Node says.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::changes::join_with;
use super::lab::Lab;
use super::machine::{Machine, Setup, settings};
use super::ping::Pings;
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, reach, with_lab_of};
use crate::answers::{Said, ask};
use crate::migration::{set_ipam, wait_passive};
use crate::scene::wait_claims_carried;
use crate::support::agent::Release;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::KUBERNETES_MODE;
use crate::support::rig::Rig;

const CLUSTER_POOL: &str = "cluster-pool";
const KUBERNETES: &str = "kubernetes";
const CRD: &str = "crd";

/// Runs a command of `migrate` that must succeed.
async fn migrate(rig: &Rig, command: &[&str]) -> Result<Said> {
    let said = ask(&rig.control_plane, &[&["migrate"], command].concat()).await?;
    ensure!(said.code == Some(0), "migrate {command:?}: {:?} {}{}", said.code, said.text, said.errors);
    Ok(said)
}

/// Runs a command that moves this node, while its agent is replaced. Without the label its mode is the one before. Prints the pings of that time, and fails if one of them
/// is lost.
async fn step(
    rig: &Rig,
    pings: &mut Pings,
    before: Setup,
    machine: &mut Machine,
    command: &[&str],
    state: &str,
) -> Result<()> {
    let name = machine.name.clone();
    let setup = async || {
        let node = rig.cluster.read(Kind::Node, &name).await?;
        let labels = node.metadata.labels.unwrap_or_default();
        let is_moved = labels.get("nodeipam.io/ipam").is_some_and(|mode| mode == CRD);
        Ok(if is_moved { Setup { ipam: CRD, ..before } } else { before })
    };
    let (said, ()) = tokio::try_join!(migrate(rig, command), machine.replace_agent(rig, setup))?;
    ensure!(said.says(state), "no {state:?} in:\n{}{}", said.text, said.errors);
    let tally = pings.since_last(rig).await?;
    println!("datapath: migrate {}: {tally}", command.join(" "));
    ensure!(tally.sent > 0 && tally.lost == 0, "migrate {command:?}: {tally}");
    Ok(())
}

/// The settings of the agents, which `migrate check` reads.
async fn configure(rig: &Rig, setup: Setup) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"data": settings(rig, setup)}));
    api.patch("cilium-config", &PatchParams::default(), &patch).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_by_the_commands() -> Result<()> {
    moves(CLUSTER_POOL, Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_mode_kubernetes_moves_by_the_commands() -> Result<()> {
    moves(KUBERNETES, Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_with_agents_of_1_17() -> Result<()> {
    moves(CLUSTER_POOL, Release::V1_17).await
}

/// A node with the CIDR that the other allocator gave it.
async fn join(rig: &Rig, lab: &mut Lab, name: &str, cidr: &str, setup: Setup) -> Result<Machine> {
    if setup.ipam != KUBERNETES {
        return join_with(rig, lab, name, cidr, setup).await;
    }
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let given = json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}});
    rig.cluster.patch(Kind::Node, name, given).await?;
    lab.serve(rig, name, setup).await
}

async fn moves(from: &'static str, release: Release) -> Result<()> {
    let options = Options { ipam: CRD, ..Options::default() };
    with_lab_of(&[release], options, async |rig, lab| {
        let before = Setup { ipam: from, release, ..Setup::default() };
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        set_ipam(rig, from).await?;
        configure(rig, before).await?;
        if from == KUBERNETES {
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", KUBERNETES_MODE];
            kubectl(&rig.control_plane, &apply).await?;
        }
        let mut one = join(rig, lab, "one", "10.1.0.0/28", before).await?;
        let mut two = join(rig, lab, "two", "10.1.0.16/28", before).await?;
        for (node, rack) in [("one", "r1"), ("two", "r2")] {
            rig.cluster.relabel_node(node, &[("rack", Some(rack))]).await?;
        }
        let (a, b) = (one.add_pods(rig, "a-", 4).await?, two.add_pods(rig, "b-", 4).await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a[0], "a to b", address(&b[0])?).await?);
        pings.add(two.ping_from(rig, &b[1], "b to a", address(&a[1])?).await?);
        pings.add(one.ping_from(rig, &a[2], "a to a", address(&a[3])?).await?);
        pings.add(two.ping(rig, "the node of b to a", address(&a[2])?).await?);
        pings.add(one.ping(rig, "the node of a to b", address(&b[2])?).await?);

        let folder = tempfile::tempdir()?;
        let out = folder.path().join("move").to_string_lossy().into_owned();
        migrate(rig, &["init", "--out", &out]).await?;
        let files = [format!("{out}/pools.yaml"), format!("{out}/ciliumnodeconfig.yaml")];
        kubectl(&rig.control_plane, &["apply", "-f", &files[0], "-f", &files[1]]).await?;
        rig.cluster.create_pool(&PoolSpec::new("rack").ipv4(28, &["10.64.0.0/24"])).await?;
        let flags = [FLAGS, &["--modes", from, "--modes", CRD]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        wait_claims_carried(rig).await?;
        migrate(rig, &["check"]).await?;
        let tally = pings.since_last(rig).await?;
        println!("datapath: {from}, agents of {}, before the first node moves: {tally}", release.as_str());
        ensure!(tally.lost == 0, "{tally}");

        let next = ["next", "one", "--yes", "--timeout", "5m"];
        let back = ["back", "one", "--yes", "--timeout", "5m"];
        step(rig, &mut pings, before, &mut one, &next, "one: Moved").await?;
        step(rig, &mut pings, before, &mut one, &back, "one: Claimed").await?;
        // The use of the second move must differ from that of the first.
        let again = one.add_pod(rig, "again").await?;
        reach(rig, &two, &[&again]).await?;
        step(rig, &mut pings, before, &mut one, &next, "one: Moved").await?;
        let batch = ["next", "--batch", "10", "-l", "rack=r2", "--yes", "--timeout", "5m"];
        step(rig, &mut pings, before, &mut two, &batch, "two: Moved").await?;

        migrate(rig, &["commit", "--all", "--yes"]).await?;
        // All nodes have the mode that `cilium-config` says from now on.
        set_ipam(rig, CRD).await?;
        wait_passive(rig, &controller, from, CRD).await?;
        let object = ["-n", "kube-system", "delete", "ciliumnodeconfig", "cilium-node-ipam-move"];
        kubectl(&rig.control_plane, &object).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let status = migrate(rig, &["status"]).await?;
        ensure!(status.says("2 nodes: 2 Committed"), "{}{}", status.text, status.errors);
        let first = rig.cluster.claims_of("one").first().context("its claim")?.cidr.clone();
        let grown = one.add_pods(rig, "grown-", MORE_THAN_ONE_BLOCK).await?;
        let second: Vec<_> = grown.iter().filter(|pod| !pod.is_in(&first)).collect();
        ensure!(!second.is_empty() && second.iter().all(|pod| pod.is_in("10.64.0.0/24")), "{grown:?}");
        reach(rig, &two, &second).await?;
        let tally = pings.since_last(rig).await?;
        println!("datapath: migrate commit --all --yes, and growth: {tally}");
        let scenario =
            format!("{from} becomes crd by migrate, with a way back, agents of {}", release.as_str());
        pings.none_lost(rig, &scenario).await?;
        Ok((controller, one, two))
    })
    .await
}
