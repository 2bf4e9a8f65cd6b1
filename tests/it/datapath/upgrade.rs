//! Agents of 1.17, which are upgraded to the newest version under their pods.

use anyhow::{Result, ensure};

use super::machine::Setup;
use super::ping::Pings;
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, reach, with_lab_of};
use crate::support::agent::Release;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::PoolSpec;

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_upgraded_from_1_17_under_their_pods() -> Result<()> {
    with_lab_of(&[Release::V1_17, Release::Newest], Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let old = Setup { release: Release::V1_17, ..Setup::default() };
        let mut one = lab.join(rig, "one", old).await?;
        let mut two = lab.join(rig, "two", old).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a, "a to b", address(&b)?).await?);
        pings.add(two.ping_from(rig, &b, "b to a", address(&a)?).await?);
        pings.add(two.ping(rig, "the node of b to a", address(&a)?).await?);

        let grown = one.add_pods(rig, "grown-", MORE_THAN_ONE_BLOCK).await?;
        let blocks = rig.cluster.published("one").unwrap_or_default().pod_cidrs;
        ensure!(blocks.len() > 1, "{blocks:?}");
        for block in &blocks {
            two.wait_route(rig, block, Some(&one)).await?;
        }
        let of_second: Vec<_> = grown.iter().filter(|pod| pod.is_in(&blocks[1])).collect();
        reach(rig, &two, &of_second).await?;
        pings.add(two.ping_from(rig, &b, "b to the second block", address(of_second[0])?).await?);
        one.restart_agent(rig, "KILL").await?;

        for machine in [&mut one, &mut two] {
            machine.set_up(Setup::default());
            machine.restart_agent(rig, "TERM").await?;
        }
        let last = one.add_pod(rig, "last").await?;
        reach(rig, &two, &[&last]).await?;
        pings.none_lost(rig, "crd: growth with agents of 1.17, and their upgrade to 1.20").await?;
        Ok((controller, one, two))
    })
    .await
}
