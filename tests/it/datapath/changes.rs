//! A cluster changes its mode of Cilium under running pods, by the steps of `docs/migration.md`.

use anyhow::{Result, ensure};
use serde_json::json;

use super::lab::Lab;
use super::machine::{Machine, Setup};
use super::ping::Pings;
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, reach, with_lab};
use crate::migration::{forget_the_mode_before, set_ipam, wait_passive};
use crate::multi_pool::SLOW;
use crate::scene::{SOON, cilium_node};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::{KUBERNETES_MODE, prepare};
use crate::support::rig::Rig;

/// The flags of a controller that serves both modes.
fn flags(from: &'static str, to: &'static str) -> Vec<&'static str> {
    [FLAGS, &["--modes", from, "--modes", to]].concat()
}

/// Steps 4 and 5: the controller follows the mode when it restarts.
async fn change(
    rig: &Rig,
    controller: Controller,
    from: &'static str,
    to: &'static str,
) -> Result<Controller> {
    set_ipam(rig, to).await?;
    wait_passive(rig, &controller, from, to).await?;
    controller.sigkill().await?;
    Controller::start_ready(&rig.control_plane, &flags(from, to)).await
}

/// Step 6, for one node. Its pods keep their addresses.
async fn restarts_in(rig: &Rig, machine: &mut Machine, ipam: &'static str) -> Result<()> {
    machine.set_up(Setup { ipam, ..Setup::default() });
    machine.restart_agent(rig, "TERM").await
}

#[tokio::test(flavor = "multi_thread")]
async fn crd_becomes_multi_pool() -> Result<()> {
    with_lab(Options { ipam: "multi-pool", ..Options::default() }, async |rig, lab| {
        rig.control_plane.limit_releasing(SLOW).await?;
        set_ipam(rig, "crd").await?;
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags("crd", "multi-pool")).await?;
        let mut one = lab.join(rig, "one", Setup::default()).await?;
        let mut two = lab.join(rig, "two", Setup::default()).await?;
        let a = one.add_pods(rig, "a-", MORE_THAN_ONE_BLOCK).await?;
        let b = two.add_pods(rig, "b-", 3).await?;
        let second = rig.cluster.published("one").unwrap_or_default().pod_cidrs;
        let last = a.iter().find(|pod| second.get(1).is_some_and(|cidr| pod.is_in(cidr)));
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a[0], "a to b", address(&b[0])?).await?);
        pings.add(two.ping_from(rig, &b[1], "b to a", address(&a[1])?).await?);
        pings.add(one.ping(rig, "the node of a to b", address(&b[2])?).await?);
        if let Some(last) = last {
            pings.add(two.ping_from(rig, &b[2], "b to the second block", address(last)?).await?);
        }

        let controller = change(rig, controller, "crd", "multi-pool").await?;
        for machine in [&mut one, &mut two] {
            restarts_in(rig, machine, "multi-pool").await?;
            // It would have started no pod for a minute.
            let conflicts = machine.logged(rig, "Conflict when updating local CiliumNode Status")?;
            ensure!(conflicts.is_empty(), "{conflicts:?}");
            // The oracle judges by the single addresses, which the agent no longer reads.
            rig.control_plane.allow("held-address-withdrawn", Some(&machine.name), None).await?;
            rig.control_plane.allow("withdrawn-without-consent", Some(&machine.name), None).await?;
        }
        for machine in [&one, &two] {
            forget_the_mode_before(rig, &machine.name).await?;
        }
        let (new_a, new_b) = (one.add_pod(rig, "new-a").await?, two.add_pod(rig, "new-b").await?);
        reach(rig, &two, &[&new_a]).await?;
        reach(rig, &one, &[&new_b]).await?;
        pings.none_lost(rig, "crd becomes multi-pool").await?;
        Ok((controller, one, two))
    })
    .await
}

/// A node whose CiliumNode has the CIDR that cilium-operator gave it.
pub(super) async fn join_with(
    rig: &Rig,
    lab: &mut Lab,
    name: &str,
    cidr: &str,
    setup: Setup,
) -> Result<Machine> {
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let mut object = cilium_node(name, &json!({"podCIDRs": [cidr]}));
    let node = rig.cluster.read(Kind::Node, name).await?;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}]);
    object.metadata.owner_references = serde_json::from_value(owner)?;
    rig.cluster.create(&object, Kind::CiliumNode).await?;
    lab.serve(rig, name, setup).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_becomes_crd() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        set_ipam(rig, "cluster-pool").await?;
        let setup = Setup { ipam: "cluster-pool", ..Setup::default() };
        let mut one = join_with(rig, lab, "one", "10.1.0.0/28", setup).await?;
        let mut two = join_with(rig, lab, "two", "10.1.0.16/28", setup).await?;
        let (a, b) = (one.add_pods(rig, "a-", 4).await?, two.add_pods(rig, "b-", 4).await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a[0], "a to b", address(&b[0])?).await?);
        pings.add(two.ping_from(rig, &b[1], "b to a", address(&a[1])?).await?);
        pings.add(one.ping_from(rig, &a[2], "a to a", address(&a[3])?).await?);
        pings.add(two.ping(rig, "the node of b to a", address(&a[2])?).await?);

        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags("cluster-pool", "crd")).await?;
        let is_claimed = |node: &str| rig.cluster.claims_of(node).len() == 1;
        let are_claimed = async || Ok(is_claimed("one") && is_claimed("two"));
        rig.cluster.wait_until("claims of both nodes", SOON, are_claimed).await?;
        let controller = change(rig, controller, "cluster-pool", "crd").await?;
        for machine in [&mut one, &mut two] {
            rig.cluster
                .wait_published(&machine.name, "addresses", SOON, |seen| seen.pool.len() == 14)
                .await?;
            restarts_in(rig, machine, "crd").await?;
        }
        let first = rig.cluster.claims_of("one")[0].cidr.clone();
        let grown = one.add_pods(rig, "grown-", MORE_THAN_ONE_BLOCK).await?;
        let second: Vec<_> = grown.iter().filter(|pod| !pod.is_in(&first)).collect();
        ensure!(!second.is_empty(), "{grown:?}");
        reach(rig, &two, &second).await?;
        pings.none_lost(rig, "cluster-pool becomes crd").await?;
        Ok((controller, one, two))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_becomes_multi_pool() -> Result<()> {
    changes("cluster-pool", "multi-pool").await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_becomes_cluster_pool() -> Result<()> {
    changes("kubernetes", "cluster-pool").await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_becomes_crd() -> Result<()> {
    changes("kubernetes", "crd").await
}

/// A cluster whose nodes got their blocks from the controller in the mode before, too.
async fn changes(from: &'static str, to: &'static str) -> Result<()> {
    with_lab(Options { ipam: to, ..Options::default() }, async |rig, lab| {
        rig.control_plane.limit_releasing(SLOW).await?;
        set_ipam(rig, from).await?;
        prepare(rig, 28).await?;
        if from == "kubernetes" {
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", KUBERNETES_MODE];
            kubectl(&rig.control_plane, &apply).await?;
        }
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(from, to)).await?;
        let setup = Setup { ipam: from, ..Setup::default() };
        let (mut one, mut two) = (lab.join(rig, "one", setup).await?, lab.join(rig, "two", setup).await?);
        let (a, b) = (one.add_pods(rig, "a-", 3).await?, two.add_pods(rig, "b-", 3).await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a[0], "a to b", address(&b[0])?).await?);
        pings.add(two.ping_from(rig, &b[1], "b to a", address(&a[1])?).await?);
        pings.add(two.ping(rig, "the node of b to a", address(&a[2])?).await?);

        let controller = change(rig, controller, from, to).await?;
        for machine in [&mut one, &mut two] {
            restarts_in(rig, machine, to).await?;
            if to == "multi-pool" {
                forget_the_mode_before(rig, &machine.name).await?;
            }
        }
        // Nodes do not grow in mode cluster-pool.
        let n_pods = if to == "cluster-pool" { 1 } else { MORE_THAN_ONE_BLOCK };
        let grown = one.add_pods(rig, "grown-", n_pods).await?;
        reach(rig, &two, &grown.iter().collect::<Vec<_>>()).await?;
        pings.none_lost(rig, &format!("{from} becomes {to}, with blocks of the controller")).await?;
        Ok((controller, one, two))
    })
    .await
}
