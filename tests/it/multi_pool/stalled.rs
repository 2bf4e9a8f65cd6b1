//! An agent that does not see its own writes takes a block again that it gave back. No other node gets the block
//! meanwhile. The node has the block again when the agent sees new versions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;

use super::{BLOCK, SLOW, carried, create_pod_ip_pool, joins_beside, multi_pool, wait_none_on_its_way};
use crate::scene::{PROMPT, SOON, ask, insist, wait_claims_carried, wait_use_listed};
use crate::support::agent::{Agent, Make, Settings};
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};

const PODS: usize = 3 * BLOCK;

/// The server's answer to an update that is based on an old version.
const CONFLICT: u16 = 409;

fn lies_in(address: IpAddr, cidrs: &BTreeSet<String>) -> bool {
    cidrs.iter().filter_map(|cidr| cidr.parse::<IpNet>().ok()).any(|cidr| cidr.contains(&address))
}

/// The CIDRs that a node has had and that its CiliumNode does not list.
fn given_back(rig: &Rig, before: &BTreeSet<String>) -> BTreeSet<String> {
    before.difference(&carried(rig, "n")).cloned().collect()
}

/// The node `n` with pods in all of its blocks.
async fn filled(rig: &Rig) -> Result<(Controller, Proxy, Agent)> {
    let plane = &rig.control_plane;
    let proxy = Proxy::start_as(plane, &plane.admin_kubeconfig, rig.cluster.bell.clone()).await?;
    rig.control_plane.limit_releasing(SLOW + SLOW).await?;
    create_pod_ip_pool(rig, "default").await?;
    let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s");
    rig.cluster.create_pool(&pool).await?;
    let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
    rig.cluster.create_node(&NodeSpec::new("n")).await?;
    let server = Some(proxy.kubeconfig().to_owned());
    let settings = Settings { server, ..rig.agents.settings() };
    let mut agent = rig.agents.agent_with(Make::Real, "n", settings);
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    for number in 0..PODS {
        ask(rig, &agent, &format!("ns/pod-{number}")).await?;
    }
    wait_use_listed(rig, &agent, "n").await?;
    wait_claims_carried(rig).await?;
    Ok((controller, proxy, agent))
}

/// Deletes all pods except those with addresses in the first of these blocks.
async fn keep_one_block(agent: &Agent, blocks: &BTreeSet<String>) -> Result<()> {
    let first: BTreeSet<String> = blocks.first().cloned().into_iter().collect();
    let held: BTreeMap<IpAddr, String> = agent.held().await?;
    for (address, owner) in held {
        if owner.starts_with("ns/") && !lies_in(address, &first) {
            agent.release(&owner).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_does_not_hear_of_its_release_takes_the_block_back() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, proxy, mut agent) = filled(rig).await?;
        let before = carried(rig, "n");

        // One update lists everything that is given back, because the earlier ones are refused. Then the agent sees no
        // more news.
        let updates = Requests::new(Verb::Update, Kind::CiliumNode).of("n");
        let refused = proxy.plant(updates, Fault::Status(CONFLICT), Often::Always);
        keep_one_block(&agent, &before).await?;
        let held = proxy.hold(Kind::CiliumNode);
        drop(refused);
        let is_given_back = async || Ok(!given_back(rig, &before).is_empty());
        rig.cluster.wait_until("a block to be given back", SLOW, is_given_back).await?;
        let gone = given_back(rig, &before);

        // Its pods get addresses of the blocks that it gave back, and another node gets none of these blocks.
        let started = std::cell::Cell::new(0);
        insist(rig, async || {
            agent.allocate(&format!("ns/again-{}", started.get())).await?;
            started.set(started.get() + 1);
            let in_use = agent.held().await?;
            ensure!(
                in_use.into_keys().any(|address| lies_in(address, &gone)),
                "no pod has an address of {gone:?}"
            );
            Ok(())
        })
        .await?;
        let other = joins_beside(rig, &before).await?;
        let claims = rig.cluster.claims_of("n");
        ensure!(
            gone.iter().all(|cidr| claims.iter().any(|claim| claim.cidr == *cidr)),
            "{gone:?}: {claims:?}"
        );

        drop(held);
        let is_carried = async || {
            let listed = carried(rig, "n");
            let used = agent.held().await?;
            Ok(used.into_keys().all(|address| lies_in(address, &listed)))
        };
        rig.cluster.wait_until("what pods use to be listed again", SLOW, is_carried).await?;
        wait_none_on_its_way(rig).await?;
        agent.restart_and_restore(SLOW).await?;
        ask(rig, &agent, "ns/last").await?;
        wait_claims_carried(rig).await?;
        Ok((controller, proxy, agent, other))
    })
    .await
}

/// The process is halted before it can answer, and its first work afterwards is the pods that start then.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_waits_for_the_answer_of_an_agent_that_is_stopped() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, proxy, mut agent) = filled(rig).await?;
        let before = carried(rig, "n");
        // One update lists everything that is given back, and the agent answers with the next one at the earliest.
        let updates = Requests::new(Verb::Update, Kind::CiliumNode).of("n");
        let refused = proxy.plant(updates, Fault::Status(CONFLICT), Often::Always);
        keep_one_block(&agent, &before).await?;
        drop(refused);
        let is_given_back = async || Ok(!given_back(rig, &before).is_empty());
        rig.cluster.wait_until("a block to be given back", SLOW, is_given_back).await?;
        agent.signal("STOP").await?;
        let is_on_its_way =
            async || Ok(rig.cluster.claims_of("n").iter().any(|claim| claim.state == "Releasing"));
        let waited = rig.cluster.wait_until("a block to be on its way", SOON, is_on_its_way).await;
        waited.with_context(|| format!("{:?}", rig.cluster.claims_of("n")))?;
        let in_flight: BTreeSet<String> = rig
            .cluster
            .claims_of("n")
            .into_iter()
            .filter(|claim| claim.state != "Cooling")
            .map(|claim| claim.cidr)
            .collect();
        let other = joins_beside(rig, &in_flight).await?;
        let still: BTreeSet<String> =
            rig.cluster.claims_of("n").into_iter().map(|claim| claim.cidr).collect();
        ensure!(still.is_superset(&in_flight), "nobody has answered: {in_flight:?} became {still:?}");

        agent.signal("CONT").await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/again-{number}")).await?;
        }
        wait_none_on_its_way(rig).await?;
        agent.restart_and_restore(SLOW).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, proxy, agent, other))
    })
    .await
}
