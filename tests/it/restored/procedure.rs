//! An administrator restores etcd by `docs/how-to/restore-etcd.md` while machines run that the backup does not
//! know. The commands are those of the page.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;

use super::page::{Page, Shell};
use crate::scene::{
    PROMPT, SOON, ask_many, join, nodes, versions, wait_claims_carried, wait_ready, wait_status,
    wait_use_written,
};
use crate::support::agent::{Agent, Make, plain};
use crate::support::control_plane::{Options, Target};
use crate::support::controller::{Controller, ELECTED};
use crate::support::families::Families;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The nodes of the backup. The first one grows after the backup.
const KNOWN: [(&str, Make); 2] = [("known0", Make::Real), ("known1", Make::Fake)];

/// The machines that join after the backup.
const LATE: [(&str, Make); 4] =
    [("late0", Make::Real), ("late1", Make::Fake), ("late2", Make::Fake), ("late3", Make::Fake)];

/// The pods that run since before the backup, on each node of it.
const OLD_PODS: usize = 2;

/// The pods of each machine that has joined after the backup.
const LATE_PODS: usize = 5;

/// Pods with which a node grows.
const MORE_THAN_A_BLOCK: usize = 20;

/// The prefixes of pods that started before and after the backup.
const OLD: &str = "ns/old-";
const NEW: &str = "ns/new-";

/// The first characters of the ids of checks that must be silent while the freeze is on.
const BLOCKING: [&str; 3] = ["NIP01", "NIP02", "NIP03"];

#[tokio::test(flavor = "multi_thread")]
async fn the_procedure_gives_no_address_of_a_running_pod_to_another_machine() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        let (mut page, shell) = (Page::of_the_restore(), Shell::new(&rig.control_plane)?);
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/120"]);
        rig.cluster.create_pool(&pool.with("perNode", json!({"maxBlocks": 2}))).await?;
        let before = start_replica(rig)?;
        let known = switch_on(rig, &KNOWN).await?;
        for (agent, (name, _)) in known.iter().zip(KNOWN) {
            ask_many(rig, agent, OLD, OLD_PODS).await?;
            wait_use_written(rig, agent, name).await?;
        }
        shell.run("etcdctl snapshot save backup.db").await?;

        let mut late = switch_on(rig, &LATE).await?;
        for (agent, (name, _)) in late.iter().zip(LATE) {
            ask_many(rig, agent, NEW, LATE_PODS).await?;
            wait_use_written(rig, agent, name).await?;
        }
        let (grown, _) = KNOWN[0];
        ask_many(rig, &known[0], NEW, MORE_THAN_A_BLOCK).await?;
        wait_use_written(rig, &known[0], grown).await?;

        // An agent that finds no Node exits. Its pods keep running, and no object names their addresses.
        for agent in &mut late {
            agent.stop().await?;
        }
        // One that ran through the restore may create the claims again that only it remembers, and then exits
        // (`a_restored_store_ends_the_controller_and_no_address_in_use_is_given_again`).
        before.sigkill().await?;
        let inventory: Vec<&str> = LATE.iter().chain(&KNOWN).map(|(name, _)| *name).collect();
        std::fs::write(shell.file("machines.txt"), inventory.join("\n") + "\n")?;
        shell.run(&page.next()?).await?;
        restore(rig, &mut page, &shell).await?;

        // The replicas of the restored Deployment start by themselves, and more machines join.
        let mut replicas = [start_replica(rig)?, start_replica(rig)?];
        rig.cluster.cache().begin_anew().await?;
        let granted = versions(rig, &[Kind::Block]).await?;
        let joiners = join(rig, &nodes("joiner", LATE.len())).await?;
        for replica in &mut replicas {
            replica.wait_ready().await?;
        }
        wait_selected(rig, KNOWN.len() + joiners.len()).await?;
        let (_, status) = shell.answer(&page.next()?).await?;
        ensure!(status.contains("FROZEN"), "{status}");

        let (missing, names) = (page.next()?, LATE.map(|(name, _)| format!("{name}\n")).concat());
        let printed = shell.run(&missing).await?;
        ensure!(printed == names, "machines without a Node:\n{printed}");
        page.stand_in_for(&["reboot"])?;
        let mut late = reboot(rig, late).await?;
        ensure!(shell.run(&missing).await?.is_empty(), "a machine has no Node");
        page.stand_in_for(&["systemctl restart kubelet"])?;
        let (missing, audit) = (page.next()?, page.next()?);
        let exists = |name: &&str| rig.cluster.published(name).is_some();
        rig.cluster.wait_until("all CiliumNodes", SOON, async || Ok(inventory.iter().all(exists))).await?;
        let printed = shell.run(&missing).await?;
        ensure!(printed.is_empty(), "machines without a CiliumNode:\n{printed}");
        end_new_pods(rig, &shell, &audit, &known[0]).await?;

        // Nothing was given or moved until now, by no replica.
        wait_selected(rig, inventory.len() + joiners.len()).await?;
        let still = versions(rig, &[Kind::Block]).await?;
        ensure!(still == granted, "a frozen controller has written: {granted:?}, then {still:?}");
        let planned = shell.run(&page.next()?).await?;
        ensure!(planned.contains("joiner0") && planned.contains("late0"), "{planned}");
        shell.run(&page.next()?).await?;
        let settled = shell.run(&page.next()?).await?;
        ensure!(settled.contains("not frozen"), "{settled}");
        page.assert_done()?;

        wait_ready(rig, &joiners).await?;
        for agent in &mut late {
            agent.wait_ready(SOON).await?;
        }
        let mut all = known;
        all.extend(late);
        all.extend(joiners.into_iter().map(Agent::Fake));
        // Pods start everywhere. The oracle knows the addresses of all agents, and would find one that two have.
        for agent in &all {
            ask_many(rig, agent, "ns/last-", LATE_PODS).await?;
        }
        // No pod of the backup has lost its address: their agents restore them.
        for agent in &mut all[..KNOWN.len()] {
            agent.restart_and_restore(SOON).await?;
            ensure!(pods(agent, OLD).await?.len() == OLD_PODS, "{:?}", agent.held().await?);
        }
        wait_claims_carried(rig).await?;
        Ok((replicas, all))
    })
    .await
}

/// Steps 2 to 5 of the page: from servers that run to servers that run on the frozen backup.
async fn restore(rig: &Rig, page: &mut Page, shell: &Shell<'_>) -> Result<()> {
    page.stand_in_for(&[
        "mkdir /etc/kubernetes/stopped",
        "mv /etc/kubernetes/manifests/*.yaml /etc/kubernetes/stopped/",
    ])?;
    shell.run(&page.next()?).await?;
    page.stand_in_for(&[
        "mv /var/lib/etcd /var/lib/etcd-before",
        "mv restored /var/lib/etcd",
        "mv /etc/kubernetes/stopped/etcd.yaml /etc/kubernetes/manifests/",
    ])?;
    rig.control_plane.restore_store(&shell.file("restored")).await?;
    page.stand_in_for(&[
        "export ETCDCTL_ENDPOINTS=https://127.0.0.1:2379 ETCDCTL_CACERT=/etc/kubernetes/pki/etcd/ca.crt",
        "export ETCDCTL_CERT=/etc/kubernetes/pki/etcd/server.crt ETCDCTL_KEY=/etc/kubernetes/pki/etcd/server.key",
    ])?;
    let answer = shell.run(&page.next()?).await?;
    ensure!(answer == "OK\n", "{answer}");
    page.stand_in_for(&[
        "mv /etc/kubernetes/stopped/*.yaml /etc/kubernetes/manifests/",
        "rmdir /etc/kubernetes/stopped",
    ])?;
    rig.control_plane.restart(Target::ApiServer).await
}

/// A replica with election, as an installation has it.
fn start_replica(rig: &Rig) -> Result<Controller> {
    Controller::start(&rig.control_plane, &[PROMPT, &[ELECTED]].concat())
}

/// Machines that register themselves, with agents that serve pods.
async fn switch_on(rig: &Rig, machines: &[(&str, Make)]) -> Result<Vec<Agent>> {
    let mut agents = start_machines(rig, machines).await?;
    try_join_all(agents.iter_mut().map(|agent| agent.wait_ready(SOON))).await?;
    Ok(agents)
}

async fn start_machines(rig: &Rig, machines: &[(&str, Make)]) -> Result<Vec<Agent>> {
    let mut agents = Vec::new();
    for (name, make) in machines {
        rig.cluster.create_node(&NodeSpec::new(*name)).await?;
        let mut agent = rig.agents.agent_with(*make, name, rig.agents.settings());
        agent.start()?;
        agents.push(agent);
    }
    Ok(agents)
}

/// The late machines start again: their pods are terminated, kubelet registers the Node, and the new agent waits.
async fn reboot(rig: &Rig, late: Vec<Agent>) -> Result<Vec<Agent>> {
    for agent in late {
        agent.power_off().await?;
    }
    start_machines(rig, &LATE).await
}

/// Kubelet terminates the pods that the store lacks on the node that has grown. Between the first and the last one the
/// audit finds addresses that no claim has.
async fn end_new_pods(rig: &Rig, shell: &Shell<'_>, audit: &str, agent: &Agent) -> Result<()> {
    let (grown, _) = KNOWN[0];
    let mut terminated = pods(agent, NEW).await?;
    agent.release(&terminated.pop_first().context("a pod")?).await?;
    wait_use_written(rig, agent, grown).await?;
    let (_, found) = shell.answer(audit).await?;
    ensure!(found.contains("NIP0301"), "{found}");
    for pod in terminated {
        agent.release(&pod).await?;
    }
    wait_use_written(rig, agent, grown).await?;
    let (_, found) = shell.answer(audit).await?;
    ensure!(!BLOCKING.iter().any(|id| found.contains(id)), "{found}");
    Ok(())
}

/// The pods with addresses and this prefix.
async fn pods(agent: &Agent, prefix: &str) -> Result<BTreeSet<String>> {
    let held = agent.held().await?;
    let names = held.values().map(|owner| plain(owner).to_owned());
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Returns when a controller has seen this number of nodes.
async fn wait_selected(rig: &Rig, count: usize) -> Result<()> {
    wait_status(rig, "p", "all nodes", |status| status["nodes"]["selected"] == count).await.map(drop)
}
