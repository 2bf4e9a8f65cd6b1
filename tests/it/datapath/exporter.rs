//! A host outside the cluster, which has no routes but those of a router: a BIRD with a session to GoBGP, to which the
//! controller exports the blocks of nodes.

use std::net::Ipv4Addr;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::process::Child;

use super::lab::Lab;
use super::machine::{Pod, Setup};
use super::ping::Pings;
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, with_lab};
use crate::gobgp::routers::{SHORT, configuration};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::gobgp_daemon::Daemon;
use crate::support::objects::PoolSpec;
use crate::support::rig::Rig;

/// The ranges of the first blocks, and of a block that moves.
const FIRST: &str = "10.1.0.0/24";
const MOVES: &str = "10.2.0.0/28";

/// The address of the router for GoBGP.
const ROUTER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// It writes the routes into the kernel of the host.
const BIRD: &str = r"
router id 192.0.2.1;
protocol device {}
protocol direct { ipv4; }
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }
protocol bgp gobgp {
  local ADDRESS port PORT as 64513;
  neighbor 127.0.0.1 as 64512;
  multihop;
  strict bind on;
  passive on;
  ipv4 { import all; export none; };
}
";

/// Starts the router on the host outside.
fn start_bird(rig: &Rig, lab: &Lab, port: u16) -> Result<Child> {
    let folder = rig.control_plane.dir();
    let file = folder.join("bird.conf");
    let text = BIRD.replace("ADDRESS", &ROUTER.to_string()).replace("PORT", &port.to_string());
    std::fs::write(&file, text)?;
    let log = std::fs::File::create(folder.join("bird.log"))?;
    let mut command = lab.network.command("/usr/sbin/bird");
    command.arg("-f").arg("-c").arg(file).args(["-s", "/run/bird.ctl"]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("starting BIRD")
}

async fn set_ranges(rig: &Rig, first: &str, moves: &str) -> Result<()> {
    let cidrs = json!([{"cidr": FIRST, "state": first}, {"cidr": MOVES, "state": moves}]);
    rig.cluster.patch_pool("p", json!({"ipv4": {"cidrs": cidrs}})).await.map(drop)
}

/// Fails unless the host outside reaches each pod by its first ping.
async fn reach_from_outside(rig: &Rig, lab: &Lab, pods: &[&Pod]) -> Result<()> {
    for pod in pods {
        let tally = lab.ping(rig, &pod.name, address(pod)?).await?.finish(rig).await?;
        ensure!(tally.lost == 0, "{tally}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_outside_follows_a_block_from_node_to_node() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &[FIRST]).with("reuseAfter", "5s")).await?;
        let port = lab.relay_into(ROUTER).await?;
        let bird = start_bird(rig, lab, port)?;
        let daemon = Daemon::start_with(rig.control_plane.dir(), &configuration(port, SHORT)?).await?;
        let export = ["--routes", "gobgp", "--gobgp-address", &daemon.address, ELECTED];
        let flags = [FLAGS, &export].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let one = lab.join(rig, "one", Setup::default()).await?;
        let two = lab.join(rig, "two", Setup::default()).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        for (machine, pod) in [(&one, &a), (&two, &b)] {
            let block = rig.cluster.published(&machine.name).unwrap_or_default().pod_cidrs[0].clone();
            lab.network.wait_route(rig, "the host outside", &block, Some(machine)).await?;
            reach_from_outside(rig, lab, &[pod]).await?;
        }
        let mut pings = Pings::default();
        pings.add(lab.ping(rig, "outside to a", address(&a)?).await?);
        pings.add(lab.ping(rig, "outside to b", address(&b)?).await?);

        set_ranges(rig, "Cordoned", "Active").await?;
        let grown = one.add_pods(rig, "grown-", MORE_THAN_ONE_BLOCK).await?;
        let second: Vec<&Pod> = grown.iter().filter(|pod| pod.is_in(MOVES)).collect();
        ensure!(!second.is_empty(), "{grown:?}");
        lab.network.wait_route(rig, "the host outside", MOVES, Some(&one)).await?;
        reach_from_outside(rig, lab, &second).await?;
        pings.add(lab.ping(rig, "outside to the second block", address(second[0])?).await?);

        // The pods of the block are deleted, and the other node gets it.
        pings.finish(rig, "outside to the second block").await?;
        for pod in &second {
            one.remove_pod(rig, pod).await?;
        }
        set_ranges(rig, "Active", "Draining").await?;
        lab.network.wait_route(rig, "the host outside", MOVES, None).await?;
        set_ranges(rig, "Cordoned", "Active").await?;
        let moved = two.add_pods(rig, "moved-", MORE_THAN_ONE_BLOCK).await?;
        let moved: Vec<&Pod> = moved.iter().filter(|pod| pod.is_in(MOVES)).collect();
        ensure!(!moved.is_empty(), "{:?}", rig.cluster.published("two"));
        lab.network.wait_route(rig, "the host outside", MOVES, Some(&two)).await?;
        reach_from_outside(rig, lab, &moved).await?;
        pings.none_lost(rig, "crd, routes by GoBGP and BIRD: a block moves, seen from outside").await?;
        Ok((controller, one, two, daemon, bird))
    })
    .await
}
