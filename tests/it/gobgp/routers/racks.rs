//! Two racks with a router each, and one daemon with a session to both, as `docs/how-to/bgp-per-rack.md` says: the daemon
//! announces all blocks to each router, and a router accepts those in the range of its rack.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::net::cidr::Cidr;

use super::super::bird::{ADDRESS, Bird, Place};
use super::super::flags;
use super::{QUIET_WITHIN, SHORT, assert_sound, configuration};
use crate::routers::oracle::expected;
use crate::scene::{insist_for, join_one};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::gobgp_daemon::Daemon;
use crate::support::lab::Route;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const OTHER_ADDRESS: &str = "127.0.0.4";
const RANGES: [&str; 2] = ["10.64.0.0/25", "10.64.32.0/25"];
const RACK: &str = "topology.kubernetes.io/zone";

/// The configuration of the page, with a section of neighbors for each router.
fn with_two(ports: [u16; 2]) -> Result<String> {
    let text = configuration(ports[0], SHORT)?;
    let mut sections = text.splitn(3, "[[neighbors]]");
    let [global, first, rest] = [(); 3].map(|()| sections.next());
    let first = first.context("no neighbor")?;
    let [of_first, of_second] = ports.map(|port| format!("remote-port = {port}"));
    ensure!(first.contains(ADDRESS) && first.contains(&of_first), "{first}");
    let second = first.replace(ADDRESS, OTHER_ADDRESS).replace(&of_first, &of_second);
    let sections = [global.context("no text")?, first, &second, rest.context("one neighbor")?];
    Ok(sections.join("[[neighbors]]"))
}

/// Returns when each router has exactly the blocks of its rack, by this number of nodes.
async fn wait_right(rig: &Rig, routers: &[Bird; 2], n_nodes: usize) -> Result<()> {
    insist_for(rig, QUIET_WITHIN, async || {
        for (router, range) in routers.iter().zip(RANGES) {
            let range: Cidr = range.parse()?;
            let is_in = |route: &Route| route.prefix.parse::<Cidr>().is_ok_and(|prefix| range.covers(prefix));
            let expected = expected(rig)?.into_iter().filter(is_in);
            let expected: BTreeSet<Route> =
                expected.map(|route| Route { node: route.via.clone(), ..route }).collect();
            let found: BTreeSet<Route> = router.table().await?.into_iter().collect();
            ensure!(expected.len() == n_nodes, "{range}: {expected:#?}");
            ensure!(found == expected, "the router has {found:#?}, and {expected:#?} are expected");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_router_accepts_the_blocks_of_its_rack() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let folder = rig.control_plane.dir();
        let other = folder.join("other-router");
        std::fs::create_dir(&other)?;
        let of_first = Place { address: ADDRESS, id: "192.0.2.1", accepts: Some("[ 10.64.0.0/25{25,28} ]") };
        let of_second =
            Place { address: OTHER_ADDRESS, id: "192.0.2.65", accepts: Some("[ 10.64.32.0/25{25,28} ]") };
        let routers = [Bird::start_at(folder, of_first).await?, Bird::start_at(&other, of_second).await?];
        let daemon = Daemon::start_with(folder, &with_two([routers[0].port, routers[1].port])?).await?;
        for (name, range) in ["rack-1", "rack-2"].into_iter().zip(RANGES) {
            rig.cluster.create_pool(&PoolSpec::new(name).select(RACK, name).ipv4(28, &[range])).await?;
        }
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let mut agents = Vec::new();
        for (name, rack) in [("a1", "rack-1"), ("b1", "rack-2"), ("a2", "rack-1"), ("b2", "rack-2")] {
            agents.push(join_one(rig, NodeSpec::new(name).label(RACK, rack)).await?);
        }
        wait_right(rig, &routers, 2).await?;
        for router in &routers {
            assert_sound(router).await?;
        }
        Ok((controller, agents, daemon, routers))
    })
    .await
}
