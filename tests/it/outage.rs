//! The API server is away, or forbids something. `/readyz` says so, and recovers soon after the cause is gone.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::operator::wait_events;
use crate::support::control_plane::{Options, Target};
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};

/// For each wait that is not the subject of a test, on a machine that may be busy with other tests.
const SOON: Duration = Duration::from_secs(60);

/// The seconds without the API server. The back-off of a watch has grown to its longest wait by then.
const OUTAGE: u64 = 13;

/// The watched kinds; each `ConfigMap` by its name.
const FOLLOWED: [&str; 6] =
    ["Node", "CiliumNode", "NodeIPPool", "NodeIPBlock", "ConfigMap", "ConfigMap cilium-node-ipam"];

/// The maximum time until every watch works again, after a newly started process has its watches: 5 s until the next
/// attempt, and a list.
const RECOVERY: Duration = Duration::from_secs(8);

/// The rig starts the server when the test asks for it, so the outage lasts until the controller has reported it for
/// long enough.
#[tokio::test(flavor = "multi_thread")]
async fn everything_is_followed_soon_after_an_outage() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut fleet) =
            served(rig, Controller::start_ready(&rig.control_plane, &[]).await?).await?;
        rig.control_plane.kill(Target::ApiServer).await?;
        wait_readyz(&controller, SOON, |text| {
            FOLLOWED.iter().all(|kind| seconds_lost(text, kind).is_some_and(|seconds| seconds >= OUTAGE))
        })
        .await?;
        rig.control_plane.restart(Target::ApiServer).await?;
        // The new process waits only for this machine, which may be busy.
        let started = Instant::now();
        let another = Controller::start_ready(&rig.control_plane, &[]).await?;
        wait_readyz(&controller, RECOVERY.max(3 * started.elapsed()), |text| text == "ok\n").await?;
        fleet.join(&Fleet::names(1..2)).await?;
        fleet.wait_ready(SOON).await?;
        Ok((controller, another))
    })
    .await
}

/// Prints the time for `docs/performance.md`. By then each watch waits 5 s after a failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_as_the_server_comes_back_gets_its_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut fleet) =
            served(rig, Controller::start_ready(&rig.control_plane, &[]).await?).await?;
        rig.control_plane.kill(Target::ApiServer).await?;
        wait_readyz(&controller, SOON, |text| {
            FOLLOWED.iter().all(|kind| seconds_lost(text, kind).is_some_and(|seconds| seconds >= 25))
        })
        .await?;
        rig.control_plane.restart(Target::ApiServer).await?;
        let is_ready = Instant::now();
        let names = Fleet::names(1..2);
        fleet.join(&names).await?;
        fleet.wait_blocks(&names, 1, SOON).await?;
        println!("from /readyz of the server to the block: {:?}", is_ready.elapsed());
        fleet.wait_ready(SOON).await?;
        Ok(controller)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forbidden_is_reported_until_it_is_allowed() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, &[]).await?;
        let patches = Requests::new(Verb::Patch, Kind::Pool);
        let planted = proxy.plant(patches, Fault::Status(403), Often::Always);
        let (controller, _fleet) = served(rig, controller).await?;
        let line = ": patch nodeippools of nodeipam.io: add to the ClusterRole of the controller ";
        wait_readyz(&controller, SOON, |text| text.starts_with("ok\n") && text.contains(line)).await?;
        wait_events(rig, &[("NodeIPPool", "WriteForbidden", "Warning")]).await?;
        drop(planted);
        wait_readyz(&controller, SOON, |text| text == "ok\n").await?;
        Ok((controller, proxy))
    })
    .await
}

/// The number of seconds without a watch of the kind, by the text of `/readyz`.
fn seconds_lost(text: &str, kind: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("\nno watch of {kind} for "))?;
    rest.split_once(" s: ")?.0.parse().ok()
}

/// One pool, and one node that is served.
async fn served(rig: &Rig, controller: Controller) -> Result<(Controller, Fleet<'_>)> {
    rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/24"])).await?;
    let mut fleet = Fleet::new(rig);
    fleet.join(&Fleet::names(0..1)).await?;
    fleet.wait_ready(SOON).await?;
    Ok((controller, fleet))
}

async fn wait_readyz(controller: &Controller, limit: Duration, look: impl Fn(&str) -> bool) -> Result<()> {
    let look = |answer: &Result<(u16, String)>| Ok(answer.as_ref().is_ok_and(|(_, text)| look(text)));
    controller.wait_answer("/readyz", "the text that is expected of /readyz", limit, look).await
}
