//! Cilium's own agent in multi-pool mode on nodes that this controller serves: it says what it needs, takes whole CIDRs,
//! and gives them back by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use crate::scene::{PROMPT, SOON, ask, wait_claims_carried};
use crate::support::agent::{Agent, Make};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::{Claim, Published};

/// How many addresses an agent gives to pods out of a /28.
const BLOCK: usize = 14;

/// Longer than a block may take that its agent gave back: an agent looks after its pools, and so answers the question,
/// once per minute at the latest.
const SLOW: Duration = Duration::from_secs(180);

fn multi_pool() -> Options {
    Options { ipam: "multi-pool", ..Options::default() }
}

/// Cilium's own object of the default pool, without which an agent of 1.20 does not start.
async fn create_default_pool(rig: &Rig) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2alpha1", "CiliumPodIPPool"));
    let api: Api<DynamicObject> = Api::all_with(rig.cluster.client.clone(), &resource);
    let spec = json!({"ipv4": {"cidrs": ["10.1.0.0/24"], "maskSize": 28}});
    let pool = DynamicObject::new("default", &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &pool).await.context("creating the CiliumPodIPPool")?;
    Ok(())
}

async fn join(rig: &Rig, name: &str) -> Result<Agent> {
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let mut agent = rig.agents.agent_with(Make::Real, name, rig.agents.settings());
    agent.start()?;
    agent.wait_ready(SOON).await?;
    Ok(agent)
}

fn carried(rig: &Rig, node: &str) -> BTreeSet<String> {
    rig.cluster.published(node).unwrap_or_default().pod_cidrs.into_iter().collect()
}

/// Returns when every block that an agent gave back is free, and those that are left are carried.
async fn wait_given_back(rig: &Rig) -> Result<()> {
    let is_carried = |claim: &Claim| claim.state == "Held" && carried(rig, &claim.node).contains(&claim.cidr);
    let done =
        async || Ok(rig.cluster.objects(Kind::Block).iter().all(|block| is_carried(&Claim::of(block))));
    rig.cluster.wait_until("what the agents gave back to be free", SLOW, done).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_grows_gives_back_and_restarts_with_what_it_has() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        rig.control_plane.limit_releasing(SLOW).await?;
        create_default_pool(rig).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = join(rig, "n").await?;
        let first = carried(rig, "n");
        ensure!(first.len() == 1, "one block is enough at the start: {first:?}");

        for number in 0..2 * BLOCK {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        wait_claims_carried(rig).await?;
        let grown = carried(rig, "n");
        ensure!(grown.len() >= 3 && grown.is_superset(&first), "{first:?} became {grown:?}");

        let again = agent.restart(SOON).await?;
        ensure!(again.lost.is_empty(), "not restored: {:?}", again.lost);

        // Whatever is left, the agent says that it needs less, and gives the blocks back that are empty then.
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
