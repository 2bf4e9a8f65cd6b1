//! The controller and the API server are away for a minute. A node leaves, and returns.

use anyhow::{Result, ensure};

use super::machine::Setup;
use super::ping::Pings;
use super::{FLAGS, address, reach, with_lab};
use crate::chronicle::delete_node;
use crate::support::control_plane::{Options, Target};
use crate::support::controller::Controller;
use crate::support::objects::PoolSpec;

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_network_while_controller_and_api_server_are_away() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let one = lab.join(rig, "one", Setup::default()).await?;
        let two = lab.join(rig, "two", Setup::default()).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a, "a to b", address(&b)?).await?);
        pings.add(two.ping_from(rig, &b, "b to a", address(&a)?).await?);

        controller.sigkill().await?;
        rig.control_plane.kill(Target::ApiServer).await?;
        pings.wait_minute(rig).await?;
        rig.control_plane.restart(Target::ApiServer).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let (later_a, later_b) = (one.add_pod(rig, "later-a").await?, two.add_pod(rig, "later-b").await?);
        reach(rig, &one, &[&later_b]).await?;
        reach(rig, &two, &[&later_a]).await?;
        pings.none_lost(rig, "crd: controller and API server away for a minute").await?;
        Ok((controller, one, two))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_leaves_and_returns() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let one = lab.join(rig, "one", Setup::default()).await?;
        let two = lab.join(rig, "two", Setup::default()).await?;
        let three = lab.join(rig, "three", Setup::default()).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        let c = three.add_pod(rig, "c").await?;
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a, "a to b", address(&b)?).await?);
        pings.add(two.ping_from(rig, &b, "b to a", address(&a)?).await?);
        reach(rig, &one, &[&c]).await?;

        let had = rig.cluster.published("three").unwrap_or_default().pod_cidrs;
        three.power_off(rig, &[&c]).await?;
        delete_node(rig, "three").await?;
        for cidr in &had {
            one.wait_route(rig, cidr, None).await?;
        }
        let three = lab.join(rig, "three", Setup::default()).await?;
        let has = rig.cluster.published("three").unwrap_or_default().pod_cidrs;
        ensure!(had == has, "three had {had:?} and has {has:?}");
        let c = three.add_pod(rig, "c").await?;
        reach(rig, &one, &[&c]).await?;
        reach(rig, &two, &[&c]).await?;
        pings.none_lost(rig, "crd: a node leaves and returns").await?;
        Ok((controller, one, two, three))
    })
    .await
}
