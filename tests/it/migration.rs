//! A running cluster changes its mode of Cilium: the agents, Cilium's own code, restart one by one in the new mode, and
//! pods keep their addresses. `docs/migration.md` gives the same steps.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::agent_pods::{create_agent_pod, report};
use crate::multi_pool::{SLOW, by_name, carried};
use crate::node_configs;
use crate::scene::{PROMPT, SOON, ask, wait_claims_carried};
use crate::support::agent::{Agent, Make, Release, Settings};
use crate::support::cilium_operator::CiliumOperator;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::Health;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::{KUBERNETES_MODE, create_default_pool, prepare};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

const CRD: &str = "crd";
const MULTI_POOL: &str = "multi-pool";
const CLUSTER_POOL: &str = "cluster-pool";
const KUBERNETES: &str = "kubernetes";

/// More pods than the former blocks of a node have addresses, where it can grow.
const MORE: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_becomes_multi_pool() -> Result<()> {
    changes(CLUSTER_POOL, MULTI_POOL).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_becomes_cluster_pool() -> Result<()> {
    changes(KUBERNETES, CLUSTER_POOL).await
}

#[tokio::test(flavor = "multi_thread")]
async fn crd_becomes_multi_pool() -> Result<()> {
    changes(CRD, MULTI_POOL).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_becomes_crd() -> Result<()> {
    changes(CLUSTER_POOL, CRD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_becomes_crd() -> Result<()> {
    changes(KUBERNETES, CRD).await
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_pool_becomes_crd() -> Result<()> {
    changes(MULTI_POOL, CRD).await
}

async fn changes(from: &'static str, to: &'static str) -> Result<()> {
    under_oracle(Options { ipam: to, ..Options::default() }, async |rig| {
        set_ipam(rig, from).await?;
        prepare(rig, 28).await?;
        if from == MULTI_POOL {
            create_default_pool(&rig.cluster.client, 28).await?;
        }
        if from == KUBERNETES {
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", KUBERNETES_MODE];
            kubectl(&rig.control_plane, &apply).await?;
        }
        rig.cluster.create_pool(&pool()).await?;
        let flags = [PROMPT, &["--modes", from, "--modes", to]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let n_pods = if matches!(from, CRD | MULTI_POOL) { 20 } else { 6 };
        let mut agents = Vec::new();
        for node in ["a", "b"] {
            let agent = join(rig, from, node).await?;
            for number in 0..n_pods {
                ask(rig, &agent, &format!("ns/{node}-{number}")).await?;
            }
            agents.push((node, agent));
        }
        wait_claims_carried(rig).await?;
        let had = [claimed(rig, "a"), claimed(rig, "b")];

        set_ipam(rig, to).await?;
        wait_passive(rig, &controller, from, to).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        for (node, agent) in &agents {
            // It runs in the old mode.
            agent.allocate(&format!("ns/{node}-between")).await?;
        }
        for (node, agent) in &mut agents {
            restarts_in(agent, to).await?;
            if to == MULTI_POOL {
                if from == CRD {
                    // The oracle judges by the single addresses, which the agent no longer reads.
                    rig.control_plane.allow("held-address-withdrawn", Some(node), None).await?;
                    rig.control_plane.allow("withdrawn-without-consent", Some(node), None).await?;
                }
                forget_the_mode_before(rig, node).await?;
            }
            if from == MULTI_POOL {
                // The oracle judges by the CIDRs, which the agent no longer reads.
                rig.control_plane.allow("held-address-withdrawn", Some(node), None).await?;
                let nothing = r#"{"spec":{"ipam":{"pools":null}}}"#;
                kubectl(&rig.control_plane, &["patch", "ciliumnode", node, "--type=merge", "-p", nothing])
                    .await?;
            }
            if matches!(to, CRD | MULTI_POOL) {
                for number in 0..MORE {
                    ask(rig, agent, &format!("ns/{node}-late-{number}")).await?;
                }
            }
            restarts_in(agent, to).await?;
        }
        let has = [claimed(rig, "a"), claimed(rig, "b")];
        ensure!(has[0].is_superset(&had[0]) && has[1].is_superset(&had[1]), "{had:?} became {has:?}");
        let newcomer = join(rig, to, "c").await?;
        newcomer.allocate("ns/c").await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agents, newcomer))
    })
    .await
}

/// A node grows in crd mode and returns, while the fields of both modes are there. Its blocks come back to
/// `allocated` before its agent restarts.
#[tokio::test(flavor = "multi_thread")]
async fn multi_pool_becomes_crd_and_returns() -> Result<()> {
    under_oracle(Options { ipam: MULTI_POOL, ..Options::default() }, async |rig| {
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&pool()).await?;
        let flags = [PROMPT, &["--modes", MULTI_POOL, "--modes", CRD]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let mut a = join(rig, MULTI_POOL, "a").await?;
        ask(rig, &a, "ns/a").await?;
        wait_claims_carried(rig).await?;
        let mut controller = becomes(rig, controller, &flags, MULTI_POOL, CRD).await?;
        rig.cluster.wait_published("a", "its map", SOON, |seen| !seen.pool.is_empty()).await?;
        restarts_in(&mut a, CRD).await?;
        for number in 0..MORE {
            ask(rig, &a, &format!("ns/a-{number}")).await?;
        }
        let had = claimed(rig, "a");
        controller = becomes(rig, controller, &flags, CRD, MULTI_POOL).await?;
        let listed =
            async || Ok(by_name(rig, "a").get("default").is_some_and(|listed| listed.is_superset(&had)));
        rig.cluster.wait_until("its blocks in allocated", SOON, listed).await?;
        restarts_in(&mut a, MULTI_POOL).await?;
        ask(rig, &a, "ns/a-late").await?;
        ensure!(claimed(rig, "a").is_superset(&had), "{had:?} became {:?}", claimed(rig, "a"));
        Ok((controller, a))
    })
    .await
}

/// The controller restarts, because `cilium-config` has another mode.
async fn becomes(
    rig: &Rig,
    controller: Controller,
    flags: &[&str],
    from: &str,
    to: &str,
) -> Result<Controller> {
    set_ipam(rig, to).await?;
    wait_passive(rig, &controller, from, to).await?;
    controller.sigkill().await?;
    Controller::start_ready(&rig.control_plane, flags).await
}

/// Node a moves by its label, as do its agent, and all nodes beside it stay. It returns, and moves again.
#[tokio::test(flavor = "multi_thread")]
async fn one_node_moves_to_crd_and_back_while_the_others_stay() -> Result<()> {
    under_oracle(Options { ipam: CRD, ..Options::default() }, async |rig| {
        set_ipam(rig, CLUSTER_POOL).await?;
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&pool()).await?;
        node_configs::set(rig, "move", json!({"ipam": CRD})).await?;
        let flags = [PROMPT, &["--modes", CLUSTER_POOL, "--modes", CRD]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let mut a = join(rig, CLUSTER_POOL, "a").await?;
        let mut b = join(rig, CLUSTER_POOL, "b").await?;
        for number in 0..2 {
            ask(rig, &a, &format!("ns/a-{number}")).await?;
            ask(rig, &b, &format!("ns/b-{number}")).await?;
        }
        wait_claims_carried(rig).await?;
        let of_b = claimed(rig, "b");

        let label = |value: &str| format!("{}{value}", node_configs::RACK.0);
        let moved = label(&format!("={}", node_configs::RACK.1));
        for _ in 0..2 {
            kubectl(&rig.control_plane, &["label", "node", "a", &moved]).await?;
            let has_map = |seen: &Published| !seen.pool.is_empty();
            rig.cluster.wait_published("a", "its map", SOON, has_map).await?;
            restarts_in(&mut a, CRD).await?;
            a.allocate("ns/a-new").await?;
            ensure!(claimed(rig, "a").len() == 1, "it grew: {:?}", claimed(rig, "a"));
            kubectl(&rig.control_plane, &["label", "node", "a", &label("-")]).await?;
            restarts_in(&mut a, CLUSTER_POOL).await?;
            a.release("ns/a-new").await?;
        }
        kubectl(&rig.control_plane, &["label", "node", "a", &moved]).await?;
        restarts_in(&mut a, CRD).await?;
        for number in 0..MORE {
            ask(rig, &a, &format!("ns/a-late-{number}")).await?;
        }
        restarts_in(&mut a, CRD).await?;
        b.allocate("ns/b-new").await?;
        ensure!(claimed(rig, "a").len() > 1 && claimed(rig, "b") == of_b, "{:?}", claimed(rig, "b"));
        // The other follows, and then all nodes have the mode that `cilium-config` says.
        kubectl(&rig.control_plane, &["label", "node", "b", &moved]).await?;
        rig.cluster.wait_published("b", "its map", SOON, |seen| !seen.pool.is_empty()).await?;
        restarts_in(&mut b, CRD).await?;
        set_ipam(rig, CRD).await?;
        wait_passive(rig, &controller, CLUSTER_POOL, CRD).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, a, b))
    })
    .await
}

/// Cilium's own operator moves the CIDRs of nodes that it has served. Then it is turned off.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_has_migrated_is_taken_over() -> Result<()> {
    under_oracle(Options { ipam: MULTI_POOL, ..Options::default() }, async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        prepare(rig, 28).await?;
        let ranges = ["--cluster-pool-ipv4-cidr", "10.1.0.0/24", "--cluster-pool-ipv4-mask-size", "28"];
        let operator = CiliumOperator::start(rig, CLUSTER_POOL, &ranges).await?;
        let mut agents = Vec::new();
        for node in ["a", "b"] {
            let agent = join(rig, CLUSTER_POOL, node).await?;
            ask(rig, &agent, &format!("ns/{node}")).await?;
            agents.push((node, agent));
        }
        operator.end().await?;
        let had = [carried(rig, "a"), carried(rig, "b")];

        let migration = ["--enable-cluster-pool-to-multi-pool-migration"];
        let operator = CiliumOperator::start(rig, MULTI_POOL, &migration).await?;
        let has_moved = async || {
            let objects = rig.cluster.objects(Kind::CiliumNode);
            Ok(objects.iter().all(|object| {
                let ipam = &object.data["spec"]["ipam"];
                ipam["podCIDRs"].is_null() && !ipam["pools"]["allocated"].is_null()
            }))
        };
        rig.cluster.wait_until("the CIDRs to move", SOON, has_moved).await?;
        operator.end().await?;
        ensure!(had == [carried(rig, "a"), carried(rig, "b")], "others than {had:?}");
        for node in ["a", "b"] {
            let names = r#"{"metadata":{"managedFields":[{}]}}"#;
            kubectl(&rig.control_plane, &["patch", "ciliumnode", node, "--type=merge", "-p", names]).await?;
        }

        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_claims_carried(rig).await?;
        for (node, agent) in &mut agents {
            restarts_in(agent, MULTI_POOL).await?;
            for number in 0..MORE {
                ask(rig, agent, &format!("ns/{node}-late-{number}")).await?;
            }
            restarts_in(agent, MULTI_POOL).await?;
        }
        wait_claims_carried(rig).await?;
        Ok((controller, agents))
    })
    .await
}

fn pool() -> PoolSpec {
    PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s")
}

pub(crate) async fn set_ipam(rig: &Rig, ipam: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"data": {"ipam": ipam}}));
    api.patch("cilium-config", &PatchParams::default(), &patch).await.context("changing cilium-config")?;
    Ok(())
}

/// Returns when the controller is passive because of the change.
pub(crate) async fn wait_passive(rig: &Rig, controller: &Controller, from: &str, to: &str) -> Result<()> {
    let change = format!("from `ipam: {from}` to `ipam: {to}`");
    let says_so =
        |answer: &Result<(u16, String)>| Ok(matches!(answer, Ok((503, reason)) if reason.contains(&change)));
    let waits = controller.wait_answer("/readyz", "it to be passive", SOON, says_so);
    rig.control_plane.alarm.over(waits).await
}

async fn join(rig: &Rig, ipam: &'static str, node: &str) -> Result<Agent> {
    rig.cluster.create_node(&NodeSpec::new(node)).await?;
    let settings = Settings { ipam, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, node, settings);
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    // With several modes a node grows only by the report of an agent that is known to run.
    let pod = format!("cilium-{node}");
    create_agent_pod(rig, &pod, node, Release::Newest.as_str()).await?;
    report(rig, &pod, 0, Health::Ready).await?;
    Ok(agent)
}

async fn restarts_in(agent: &mut Agent, ipam: &'static str) -> Result<()> {
    agent.change_mode(ipam)?;
    agent.restart_and_restore(SLOW).await?;
    Ok(())
}

/// Removes the fields that agents read in the old mode.
pub(crate) async fn forget_the_mode_before(rig: &Rig, node: &str) -> Result<()> {
    let nothing = r#"{"spec":{"ipam":{"podCIDRs":null,"pool":null}}}"#;
    kubectl(&rig.control_plane, &["patch", "ciliumnode", node, "--type=merge", "-p", nothing]).await?;
    let is_off = |seen: &Published| seen.pool.is_empty();
    rig.cluster.wait_published(node, "nothing of the mode before", SOON, is_off).await.map(drop)
}

fn claimed(rig: &Rig, node: &str) -> BTreeSet<String> {
    rig.cluster.claims_of(node).into_iter().map(|claim| claim.cidr).collect()
}
