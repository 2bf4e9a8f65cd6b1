//! Cilium's own agent in multi-pool mode on nodes that this controller serves. It reports its needs, takes complete
//! CIDRs, and gives them back by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::scene::{PROMPT, SOON, ask, insist, wait_claims_carried, wait_use_listed};
use crate::support::agent::{Agent, Make, Release, Settings};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::{Claim, Published};

mod fixed;
mod removed;
mod renamed;
mod stalled;

/// The number of addresses of a /28 that an agent gives to pods.
const BLOCK: usize = 14;

/// Longer than the way of a block that an agent gave back, and than a start or write that a conflict delayed. An agent
/// checks its pools at least once per minute, and answers a usage query then.
pub(crate) const SLOW: Duration = Duration::from_secs(180);

pub(crate) fn multi_pool() -> Options {
    Options { ipam: "multi-pool", ..Options::default() }
}

/// Cilium's own object of a pool, without which an agent of 1.20 gives out no address of it.
pub(crate) async fn create_pod_ip_pool(rig: &Rig, name: &str) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2alpha1", "CiliumPodIPPool"));
    let api: Api<DynamicObject> = Api::all_with(rig.cluster.client.clone(), &resource);
    let spec = json!({"ipv4": {"cidrs": ["10.1.0.0/24"], "maskSize": 28}});
    let pool = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &pool).await.context("creating the CiliumPodIPPool")?;
    Ok(())
}

async fn join(rig: &Rig, name: &str) -> Result<Agent> {
    join_as(rig, Release::Newest, name).await
}

/// Returns when the agent of a new node serves pods. It may see its blocks before the test does.
async fn join_as(rig: &Rig, release: Release, name: &str) -> Result<Agent> {
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let settings = Settings { release, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, name, settings);
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    rig.cluster.wait_published(name, "blocks", SOON, |seen| !seen.pod_cidrs.is_empty()).await?;
    Ok(agent)
}

/// Another node that joins gets none of these.
pub(crate) async fn joins_beside(rig: &Rig, blocks: &BTreeSet<String>) -> Result<Agent> {
    let other = join(rig, "other").await?;
    let others = carried(rig, "other");
    ensure!(others.is_disjoint(blocks), "{others:?} are among those that n may be using: {blocks:?}");
    Ok(other)
}

pub(crate) fn carried(rig: &Rig, node: &str) -> BTreeSet<String> {
    rig.cluster.published(node).unwrap_or_default().pod_cidrs.into_iter().collect()
}

/// The CIDRs that a CiliumNode lists under each name.
pub(crate) fn by_name(rig: &Rig, node: &str) -> BTreeMap<String, BTreeSet<String>> {
    let objects = rig.cluster.objects(Kind::CiliumNode);
    let found = objects.iter().find(|object| object.metadata.name.as_deref() == Some(node));
    let allocated =
        found.and_then(|found| found.data.pointer("/spec/ipam/pools/allocated")?.as_array().cloned());
    let entries = allocated.into_iter().flatten().map(|entry| {
        let cidrs = entry["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        (entry["pool"].as_str().unwrap_or_default().to_owned(), cidrs.map(str::to_owned).collect())
    });
    entries.collect()
}

/// Whether each CIDR is under the name of its claim.
pub(crate) fn is_named_by_its_claim(rig: &Rig, node: &str) -> Result<()> {
    let blocks = rig.cluster.objects(Kind::Block);
    for (name, cidrs) in by_name(rig, node) {
        for cidr in cidrs {
            let of_cidr = |block: &&Arc<DynamicObject>| block.data["spec"]["cidr"] == cidr.as_str();
            let claim = blocks.iter().find(of_cidr).with_context(|| format!("{cidr} has no claim"))?;
            ensure!(
                claim.data["spec"]["podIPPool"] == name.as_str(),
                "{cidr} under {name}: {:?}",
                claim.data
            );
        }
    }
    Ok(())
}

/// Returns when every block that an agent gave back is free, and the remaining ones are carried.
async fn wait_given_back(rig: &Rig) -> Result<()> {
    let is_carried = |claim: &Claim| claim.state == "Held" && carried(rig, &claim.node).contains(&claim.cidr);
    let done =
        async || Ok(rig.cluster.objects(Kind::Block).iter().all(|block| is_carried(&Claim::of(block))));
    rig.cluster.wait_until("what the agents gave back to be free", SLOW, done).await
}

/// Returns when no block of the node `n` is being released. Its agent answers with its tick, once per minute.
pub(crate) async fn wait_none_on_its_way(rig: &Rig) -> Result<()> {
    let is_settled = || rig.cluster.claims_of("n").iter().all(|claim| claim.state == "Held");
    rig.cluster.wait_until("no block to be on its way", SLOW, async || Ok(is_settled())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_grows_gives_back_and_restarts_with_what_it_has() -> Result<()> {
    grows_gives_back_and_restarts(Release::Newest, multi_pool()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_1_17_grows_gives_back_and_restarts_with_what_it_has() -> Result<()> {
    grows_gives_back_and_restarts(Release::V1_17, multi_pool()).await
}

pub(crate) async fn grows_gives_back_and_restarts(release: Release, options: Options) -> Result<()> {
    under_oracle(options, async |rig| {
        rig.control_plane.limit_releasing(SLOW).await?;
        if release == Release::Newest {
            create_pod_ip_pool(rig, "default").await?;
        }
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = join_as(rig, release, "n").await?;
        let first = carried(rig, "n");
        ensure!(first.len() == 1, "one block is enough at the start: {first:?}");

        for number in 0..2 * BLOCK {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        wait_use_listed(rig, &agent, "n").await?;
        wait_claims_carried(rig).await?;
        let grown = carried(rig, "n");
        ensure!(grown.len() >= 3 && grown.is_superset(&first), "{first:?} became {grown:?}");

        agent.restart_and_restore(SLOW).await?;

        // The agent then reports a smaller need, and gives back all empty blocks that it does not need.
        for number in 0..2 * BLOCK {
            agent.release(&format!("ns/pod-{number}")).await?;
        }
        let fewer = |seen: &Published| seen.pod_cidrs.len() < grown.len();
        rig.cluster.wait_published("n", "fewer blocks", SLOW, fewer).await?;
        wait_given_back(rig).await?;
        ask(rig, &agent, "ns/last").await?;
        Ok((controller, agent))
    })
    .await
}

/// Like a pod with the annotation `ipam.cilium.io/ip-pool: mars`.
async fn ask_mars(rig: &Rig, agent: &Agent, pod: &str) -> Result<()> {
    insist(rig, async || agent.allocate_from("mars", pod).await).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_second_pool_get_addresses_of_the_pools_that_name_it() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        rig.control_plane.limit_releasing(SLOW).await?;
        for name in ["default", "mars"] {
            create_pod_ip_pool(rig, name).await?;
        }
        let of_default = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s");
        let of_mars = PoolSpec::new("q").ipv4(28, &["10.2.0.0/24"]).with("reuseAfter", "1s");
        rig.cluster.create_pool(&of_default).await?;
        rig.cluster.create_pool(&of_mars.with("podIPPool", "mars")).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = join(rig, "n").await?;
        let first = by_name(rig, "n");
        ensure!(first.keys().eq(["default"]), "nobody has asked for mars: {first:?}");

        ask(rig, &agent, "ns/pod").await?;
        for number in 0..2 * BLOCK {
            ask_mars(rig, &agent, &format!("ns/mars-{number}")).await?;
        }
        wait_use_listed(rig, &agent, "n").await?;
        wait_claims_carried(rig).await?;
        is_named_by_its_claim(rig, "n")?;
        let grown = by_name(rig, "n");
        ensure!(grown["default"].is_superset(&first["default"]) && grown["mars"].len() >= 2, "{grown:?}");
        for (name, range) in [("default", "10.1.0."), ("mars", "10.2.0.")] {
            ensure!(grown[name].iter().all(|cidr| cidr.starts_with(range)), "{grown:?}");
        }

        agent.restart_and_restore(SLOW).await?;
        is_named_by_its_claim(rig, "n")?;

        // Nothing of it is kept in reserve, so all of it is given back.
        for number in 0..2 * BLOCK {
            agent.release(&format!("ns/mars-{number}")).await?;
        }
        let none_of_mars = |seen: &Published| !seen.pod_cidrs.iter().any(|cidr| cidr.starts_with("10.2.0."));
        rig.cluster.wait_published("n", "nothing of mars", SLOW, none_of_mars).await?;
        wait_given_back(rig).await?;
        let left = by_name(rig, "n");
        ensure!(left.keys().eq(["default"]), "nothing of mars is needed: {left:?}");
        ask_mars(rig, &agent, "ns/last").await?;
        is_named_by_its_claim(rig, "n")?;
        Ok((controller, agent))
    })
    .await
}
