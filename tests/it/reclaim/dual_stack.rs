//! Blocks of both families drain from one node. Its pods have an address of each.

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;

use super::node::{BLOCK, FENCE, FLAGS, LATE, Scene, of_block, pool};
use crate::scene::{ask, wait_claims_carried};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::rig::under_oracle;
use crate::support::views::Published;

/// A pod that has addresses of both blocks and outlives the first step.
const INSIDE: &str = "ns/kept-inside";

#[tokio::test(flavor = "multi_thread")]
async fn the_blocks_of_both_families_go_back_and_the_pod_keeps_both_addresses_till_it_ends() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24").ipv6(124, &["fd00:1::/112"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut scene = Scene::join(rig, "n").await?;
        let first = rig.cluster.published("n").context("its CiliumNode")?.pod_cidrs;
        let second = scene.grow_each(rig).await?;
        ensure!(first.len() == 2 && second.len() == 2, "{first:?}, {second:?}");
        let cidrs = second.iter().map(|block| block.parse()).collect::<Result<Vec<IpNet>, _>>()?;
        let inside = ask(rig, &scene.agent, INSIDE).await?;
        let is_inside = |cidr: &IpNet| inside.each().any(|address| cidr.contains(&address));
        ensure!(cidrs.iter().all(is_inside), "{inside:?} is not of {second:?}");

        scene.shrink().await?;
        let is_fenced =
            |seen: &Published, cidr: &IpNet| of_block(&seen.pool, *cidr).all(|owner| owner == FENCE);
        let any = |seen: &Published| cidrs.iter().any(|cidr| is_fenced(seen, cidr));
        rig.cluster.wait_published("n", "a fence", LATE, any).await?;
        scene.restart(rig).await?;
        scene.agent.release(INSIDE).await?;
        for block in &second {
            scene.wait_free(rig, block).await?;
        }
        scene.restart(rig).await?;
        // The remaining blocks are open in both families.
        let seen = rig.cluster.published("n").context("its CiliumNode")?;
        ensure!(seen.pod_cidrs == first && seen.pool.len() == 2 * BLOCK, "{seen:?}");
        ensure!(scene.grow_each(rig).await?.len() == 2, "it has not grown again");
        wait_claims_carried(rig).await?;
        Ok((controller, scene))
    })
    .await
}
