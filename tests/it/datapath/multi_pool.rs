//! Mode multi-pool with native routing and in VXLAN, and mode crd in VXLAN: growth, and restarts of agents.

use anyhow::{Context as _, Result, ensure};

use super::machine::{Routing, Setup};
use super::ping::Pings;
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, reach, with_lab};
use crate::multi_pool::SLOW;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::PoolSpec;
use crate::support::preparation::prepare;

#[tokio::test(flavor = "multi_thread")]
async fn multi_pool_with_native_routing() -> Result<()> {
    grows_and_restarts("multi-pool", Routing::Native).await
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_pool_in_a_tunnel() -> Result<()> {
    grows_and_restarts("multi-pool", Routing::Tunnel).await
}

#[tokio::test(flavor = "multi_thread")]
async fn crd_in_a_tunnel() -> Result<()> {
    grows_and_restarts("crd", Routing::Tunnel).await
}

async fn grows_and_restarts(ipam: &'static str, routing: Routing) -> Result<()> {
    with_lab(Options { ipam, ..Options::default() }, async |rig, lab| {
        rig.control_plane.limit_releasing(SLOW).await?;
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let setup = Setup { ipam, routing, ..Setup::default() };
        let mut one = lab.join(rig, "one", setup).await?;
        let mut two = lab.join(rig, "two", setup).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a, "a to b", address(&b)?).await?);
        pings.add(two.ping_from(rig, &b, "b to a", address(&a)?).await?);
        pings.add(two.ping(rig, "the node of b to a", address(&a)?).await?);

        let grown = one.add_pods(rig, "grown-", MORE_THAN_ONE_BLOCK).await?;
        // Multi-pool agents may have asked for the second block before.
        let blocks = rig.cluster.published("one").unwrap_or_default().pod_cidrs;
        let first = blocks.iter().find(|block| a.is_in(block)).context("the block of a is not published")?;
        let second: Vec<_> = grown.iter().filter(|pod| !pod.is_in(first)).collect();
        ensure!(!second.is_empty(), "{grown:?} of {blocks:?}");
        if routing == Routing::Native {
            for block in &blocks {
                two.wait_route(rig, block, Some(&one)).await?;
            }
        }
        reach(rig, &two, &second).await?;
        pings.add(two.ping_from(rig, &b, "b to the second block", address(second[0])?).await?);

        one.restart_agent(rig, "TERM").await?;
        two.restart_agent(rig, "KILL").await?;
        let last = one.add_pod(rig, "last").await?;
        reach(rig, &two, &[&last]).await?;
        let scenario = format!("{ipam}, {routing:?}: growth, restarts of agents");
        pings.none_lost(rig, &scenario).await?;
        Ok((controller, one, two))
    })
    .await
}
