//! A fixed address: a pool of one address, and pods that ask for its name.

use anyhow::{Result, ensure};

use super::{SLOW, multi_pool};
use crate::pod_ip_pools::{CREATING, wait_fits};
use crate::scene::{PROMPT, ask, insist, insist_for, wait_claims_carried, wait_use_listed};
use crate::support::agent::{Agent, Make};
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const ADDRESS: &str = "10.7.0.9";

/// Like a pod with the annotation `ipam.cilium.io/ip-pool: web`.
async fn ask_web(agent: &Agent, pod: &str) -> Result<String> {
    let address = agent.allocate_from("web", pod).await?.ipv4;
    Ok(address.map(|address| address.to_string()).unwrap_or_default())
}

async fn joined(rig: &Rig, name: &str) -> Result<Agent> {
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let mut agent = rig.agents.agent_with(Make::Real, name, rig.agents.settings());
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    ask(rig, &agent, &format!("ns/usual-on-{name}")).await?;
    Ok(agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_the_only_address_of_its_pool_on_each_node_that_it_moves_to() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        rig.control_plane.limit_releasing(SLOW).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let web = PoolSpec::new("web").ipv4(32, &["10.7.0.9/32"]).with("podIPPool", "web");
        rig.cluster.create_pool(&web.with("reuseAfter", "1s")).await?;
        // Another field manager has applied the manifests to the server already.
        kubectl(&rig.control_plane, &["apply", "--server-side", "--force-conflicts", "-f", CREATING]).await?;
        let flags = [PROMPT, &["--create-podippools"]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        wait_fits(rig, "p").await?;
        wait_fits(rig, "web").await?;

        let mut first = joined(rig, "first").await?;
        let other = joined(rig, "other").await?;
        ensure!(rig.cluster.claims_of("first").len() == 1, "an agent asks for web in advance");
        let given = insist(rig, async || ask_web(&first, "ns/web-0").await).await?;
        ensure!(given == ADDRESS, "{given}");
        wait_use_listed(rig, &first, "first").await?;
        wait_claims_carried(rig).await?;

        // The address is of one pod.
        ensure!(ask_web(&first, "ns/second").await.is_err(), "two pods of one node have it");
        ensure!(ask_web(&other, "ns/second").await.is_err(), "pods of two nodes have it");
        first.restart_and_restore(SLOW).await?;

        // A pod that starts again on its node gets it at once.
        first.release("ns/web-0").await?;
        let given = ask_web(&first, "ns/web-0").await?;
        ensure!(given == ADDRESS, "{given}");

        // On another node it gets it when the agent of the former one has released the block, and it has cooled.
        first.release("ns/web-0").await?;
        let given = insist_for(rig, 2 * SLOW, async || ask_web(&other, "ns/web-0").await).await?;
        ensure!(given == ADDRESS, "{given}");
        wait_use_listed(rig, &other, "other").await?;
        wait_claims_carried(rig).await?;
        let holds = |node: &str| rig.cluster.claims_of(node).iter().any(|claim| claim.cidr == "10.7.0.9/32");
        ensure!(holds("other") && !holds("first"), "{:?}", rig.cluster.claims_of("first"));
        Ok((controller, first, other))
    })
    .await
}
