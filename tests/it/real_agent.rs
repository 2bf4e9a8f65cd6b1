//! Cilium's own agent on a node that this controller serves: the whole life of a node that fills up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::scene::{PROMPT, SOON, ask, wait_claims_carried};
use crate::support::agent::{Addresses, Agent, Make, Settings, Started, plain};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::{Families, Family};
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// Addresses of a block in either family: all are offered, so that both fill up with the same pod.
const BLOCK: usize = 16;

/// Router and health.
const OWN: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_agent_starts_fills_its_block_grows_and_restarts() -> Result<()> {
    fills_up(Families::V4).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_agent_starts_fills_its_block_grows_and_restarts() -> Result<()> {
    fills_up(Families::V6).await
}

#[tokio::test(flavor = "multi_thread")]
async fn dual_stack_agent_starts_fills_its_blocks_grows_and_restarts() -> Result<()> {
    fills_up(Families::Dual).await
}

async fn fills_up(families: Families) -> Result<()> {
    under_oracle(Options::of(families), async |rig| {
        // Growth only when no address is left, so that the agent must find none.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/112"]);
        let pool =
            pool.with("allowFirstLastIPs", true).with("expand", json!({"usedAbove": 100, "freeBelow": 1}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let mut agent = rig.agents.agent_with(Make::Real, "n", rig.agents.settings());
        agent.start()?;
        let started = agent.wait_ready(SOON).await?;
        let first = blocks(rig, families, 1).await?;
        // Its own addresses are those that were kept for it, in the block that is never reclaimed.
        let seen = rig.cluster.published("n").context("its CiliumNode")?;
        for (owner, taken) in [("router", started.router), ("health", started.health)] {
            for address in taken.each() {
                let kept_for = seen.pool.get(&address.to_string());
                ensure!(
                    kept_for.is_some_and(|kept| kept == owner),
                    "{owner} took {address}, kept for {kept_for:?}"
                );
            }
        }

        let filled = agent.allocate_many("ns/first-", BLOCK).await?;
        ensure!(filled.allocated.len() == BLOCK - OWN, "{} pods in the first block", filled.allocated.len());
        let refused = filled.error.unwrap_or_default();
        ensure!(refused.contains("no IPs currently available"), "the block should be full: {refused}");

        let second = blocks(rig, families, 2).await?;
        ensure!(second.is_superset(&first), "{first:?} became {second:?}");
        for number in 0..4 {
            let pod = ask(rig, &agent, &format!("ns/second-{number}")).await?;
            ensure!(lies_in(pod, &second) && !lies_in(pod, &first), "{pod:?} and the first blocks {first:?}");
        }

        let held = whose(&agent).await?;
        agent.restart_and_restore(SOON).await?;
        ensure!(whose(&agent).await? == held, "{held:?} became {:?}", whose(&agent).await?);
        let restored = |seen: &Published| {
            seen.used.iter().flatten().filter(|(_, owner)| owner.ends_with("[restored]")).count()
                == held.len() - OWN * families.each().count()
        };
        rig.cluster.wait_published("n", "restored pods", SOON, restored).await?;

        // It continues from there: an address that was given back may be given again, and no other.
        agent.release("ns/first-0").await?;
        let pods = agent.allocate_many("ns/third-", BLOCK).await?;
        ensure!(pods.allocated.len() == BLOCK - 4 + 1, "{pods:?}");
        let third = blocks(rig, families, 3).await?;
        let pod = ask(rig, &agent, "ns/last").await?;
        ensure!(lies_in(pod, &third) && !lies_in(pod, &second), "{pod:?} and {second:?}");
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn router_alone_has_addresses_in_the_first_blocks() -> Result<()> {
    takes_what_is_kept(&["router"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn router_and_ingress_have_addresses_in_the_first_blocks() -> Result<()> {
    takes_what_is_kept(&["router", "ingress"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn router_health_and_ingress_have_addresses_in_the_first_blocks() -> Result<()> {
    takes_what_is_kept(&["router", "health", "ingress"]).await
}

/// Addresses of the first block of each family are kept only for the parts that the agent runs. The agent takes them,
/// also when it restarts with later blocks.
async fn takes_what_is_kept(run: &[&str]) -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        let (health, ingress) = (run.contains(&"health"), run.contains(&"ingress"));
        let configs: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
        let settings = json!({"data": {
            "enable-endpoint-health-checking": health.to_string(),
            "enable-ingress-controller": ingress.to_string(),
        }});
        configs.patch("cilium-config", &PatchParams::default(), &Patch::Merge(settings)).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/112"]);
        rig.cluster.create_pool(&pool.with("allowFirstLastIPs", true)).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let settings = Settings { health, ingress, ..rig.agents.settings() };
        let mut agent = rig.agents.agent_with(Make::Real, "n", settings);
        agent.start()?;
        let started = agent.wait_ready(SOON).await?;
        let first = blocks(rig, Families::Dual, 1).await?;
        let own = |started: &Started| {
            [("router", started.router), ("health", started.health), ("ingress", started.ingress)]
        };
        let taken: BTreeMap<String, String> = own(&started)
            .iter()
            .flat_map(|(owner, taken)| taken.each().map(|address| (address.to_string(), (*owner).to_owned())))
            .collect();
        ensure!(taken.len() == 2 * run.len(), "{run:?} have {taken:?}");
        let of_first = |address: &String| {
            address.parse::<IpAddr>().is_ok_and(|address| first.iter().any(|block| block.contains(&address)))
        };
        ensure!(taken.keys().all(of_first), "{taken:?} are not all of {first:?}");
        ensure_kept(rig, &taken)?;

        agent.allocate_many("ns/first-", BLOCK).await?;
        blocks(rig, Families::Dual, 2).await?;
        let again = agent.restart(SOON).await?;
        ensure!(again.lost.is_empty() && own(&again) == own(&started), "{started:?} became {again:?}");
        ensure_kept(rig, &taken)?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// Fails unless exactly these addresses are kept for these owners.
fn ensure_kept(rig: &Rig, expected: &BTreeMap<String, String>) -> Result<()> {
    let mut kept = rig.cluster.published("n").context("its CiliumNode")?.pool;
    kept.retain(|_, owner| !owner.is_empty());
    ensure!(kept == *expected, "kept for {kept:?}, taken by {expected:?}");
    Ok(())
}

/// Waits until the node has this number of blocks of each family, and returns them.
async fn blocks(rig: &Rig, families: Families, count: usize) -> Result<BTreeSet<IpNet>> {
    let complete = |seen: &Published| {
        let n_of = |family| seen.pod_cidrs.iter().filter(|cidr| Family::of_text(cidr) == family).count();
        families.each().all(|family| n_of(family) == count)
            && seen.pool.len() == BLOCK * seen.pod_cidrs.len()
            && seen.pod_cidrs.len() == count * families.each().count()
    };
    let seen = rig.cluster.wait_published("n", &format!("{count} blocks per family"), SOON, complete).await?;
    seen.pod_cidrs.iter().map(|cidr| cidr.parse().with_context(|| cidr.clone())).collect()
}

fn lies_in(pod: Addresses, blocks: &BTreeSet<IpNet>) -> bool {
    pod.each().all(|address| blocks.iter().any(|block| block.contains(&address)))
}

/// The addresses that the agent holds, without the text that a restart adds to the owners.
async fn whose(agent: &Agent) -> Result<BTreeMap<IpAddr, String>> {
    Ok(agent.held().await?.into_iter().map(|(address, owner)| (address, plain(&owner).to_owned())).collect())
}
