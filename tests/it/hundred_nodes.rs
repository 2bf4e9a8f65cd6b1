//! A cluster of a hundred nodes in each mode except crd. They join, grow where they can, leave and return, while
//! controllers are killed. Three nodes have Cilium's own agent, the others imitations.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::scene::PROMPT;
use crate::support::agent::{Agent, Make};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::{Rig, under_oracle};

const BLOCK_SIZE: u8 = 28;

/// The nodes with imitated agents, and those that leave and return.
const N_IMITATED: usize = 97;
const N_LEAVING: usize = 20;
const N_RETURNING: usize = 10;

/// The nodes with Cilium's own agent.
const REAL: [&str; 3] = ["real-1", "real-2", "real-3"];

/// Pods that leave room in a block beside the agent's own addresses, and pods that are more than a block has.
const FEW: usize = 5;
const MANY: usize = 16;

/// For each wait. In multi-pool mode an agent checks its pools once per minute.
const SOON: Duration = Duration::from_secs(150);

/// Whether nodes get more than their first block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    AsAsked,
    Never,
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_pool_serves_a_hundred_nodes() -> Result<()> {
    serves_a_hundred_nodes("multi-pool", Growth::AsAsked).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_pool_serves_a_hundred_nodes() -> Result<()> {
    serves_a_hundred_nodes("cluster-pool", Growth::Never).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_serves_a_hundred_nodes() -> Result<()> {
    serves_a_hundred_nodes("kubernetes", Growth::Never).await
}

async fn serves_a_hundred_nodes(ipam: &'static str, growth: Growth) -> Result<()> {
    under_oracle(Options { ipam, ..Options::default() }, async |rig| {
        rig.control_plane.limit_releasing(SOON).await?;
        prepare(rig, BLOCK_SIZE).await?;
        rig.cluster.create_pool(&pool()).await?;
        let controller = start(rig).await?;
        let mut fleet = Fleet::new(rig);
        let names = Fleet::names(0..N_IMITATED);
        let (early, late) = names.split_at(N_IMITATED / 2);
        fleet.join(early).await?;
        // It dies while it serves.
        controller.sigkill().await?;
        fleet.join(late).await?;
        let mut real = join(rig).await?;
        let controller = start(rig).await?;
        fleet.wait_ready(SOON).await?;
        for agent in real.values_mut() {
            agent.wait_ready(SOON).await?;
            agent.allocate_many("ns/early-", FEW).await?;
        }

        fleet.fill(&names, FEW);
        if growth == Growth::AsAsked {
            // The last of them fail, so their agents ask for more.
            fleet.fill(&names, MANY);
            controller.sigkill().await?;
            let controller = start(rig).await?;
            fleet.wait_blocks(&names, 2, SOON).await?;
            controller.sigkill().await?;
        } else {
            controller.sigkill().await?;
        }

        // No controller runs: nodes are deleted, one returns, and an agent restarts with its former state.
        let leaving = names[..N_LEAVING].to_vec();
        fleet.leave(&leaving).await?;
        fleet.wait_gone(&leaving, SOON).await?;
        let first = real.get_mut(REAL[0]).context("it has joined")?;
        first.restart_and_restore(SOON).await?;
        let (early, late) = leaving[..N_RETURNING].split_at(N_RETURNING / 2);
        fleet.join(early).await?;
        let controller = start(rig).await?;
        fleet.join(late).await?;
        fleet.wait_ready(SOON).await?;
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_cooled(SOON).await?;
        Ok((controller, fleet.into_agents(), real))
    })
    .await
}

fn pool() -> PoolSpec {
    PoolSpec::new("p")
        .select("zone", "a")
        .ipv4(BLOCK_SIZE, &["10.1.0.0/19"])
        .with("reuseAfter", "1s")
        .with("reuseAfterNodeLoss", "1s")
}

async fn start(rig: &Rig) -> Result<Controller> {
    Controller::start_ready(&rig.control_plane, PROMPT).await
}

async fn join(rig: &Rig) -> Result<BTreeMap<&'static str, Agent>> {
    let mut agents = BTreeMap::new();
    for name in REAL {
        rig.cluster.create_node(&NodeSpec::new(name).label("zone", "a")).await?;
        let mut agent = rig.agents.agent_with(Make::Real, name, rig.agents.settings());
        agent.start()?;
        agents.insert(name, agent);
    }
    Ok(agents)
}
