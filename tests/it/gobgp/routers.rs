//! Routes in a real router: a BIRD with a session to gobgpd, as the how-to page shows it. The controller sends no BGP.
//!
//! At each quiet point the router has exactly the prefixes that the claims say, by the addresses of the right nodes.
//! Its log says which routes it never had, or never lacked.

mod at_length;
mod racks;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::bird::{ADDRESS, Bird};
use super::{flags, hop};
use crate::routers::oracle::{expected, never_two_ways, no_flap};
use crate::scene::{PROMPT, SOON, ask_many, insist, insist_for, join, join_one, wait_claims_carried};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::gobgp_daemon::Daemon;
use crate::support::lab::{Change, Route};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// The page with the configuration of gobgpd.
const PAGE: &str = include_str!("../../../docs/how-to/gobgp.md");

/// How long gobgpd waits after a start before it sends routes, in tests that have no minute for that. The controller
/// adds its paths within a few seconds.
pub(crate) const SHORT: Duration = Duration::from_secs(15);

/// The same on the page.
const LONG: Duration = Duration::from_secs(60);

/// A daemon may have started, and the lead may have changed.
const QUIET_WITHIN: Duration = Duration::from_secs(150);

/// The configuration of the page, for a session to the router by this port.
pub(crate) fn configuration(port: u16, deferral: Duration) -> Result<String> {
    ensure!(
        PAGE.contains("gobgpd --graceful-restart"),
        "the page starts gobgpd without the flag of the tests"
    );
    let (_, rest) = PAGE.split_once("```toml\n").context("no configuration")?;
    let (text, _) = rest.split_once("```").context("no end of it")?;
    let mut text = text.to_owned();
    let session = format!("peer-as = 64513\n[neighbors.transport.config]\nremote-port = {port}");
    let address = format!("neighbor-address = \"{ADDRESS}\"");
    let time = format!("deferral-time = {}", deferral.as_secs());
    let page_time = format!("deferral-time = {}", LONG.as_secs());
    for (from, to) in [
        // It connects to the router, and no other test can take a port from it.
        ("[global.config]", "[global.config]\nport = -1"),
        ("neighbor-address = \"192.0.2.1\"", &*address),
        ("peer-as = 64513", &*session),
        (&*page_time, &*time),
    ] {
        ensure!(text.matches(from).count() == 1, "{from} is not on the page, or not once: {text}");
        text = text.replace(from, to);
    }
    Ok(text)
}

/// Starts a router, and a daemon that has a session to it.
async fn start(rig: &Rig, deferral: Duration) -> Result<(Bird, Daemon)> {
    // Their logs are printed if the test fails.
    let folder = rig.control_plane.dir();
    let bird = Bird::start(folder).await?;
    let daemon = Daemon::start_with(folder, &configuration(bird.port, deferral)?).await?;
    Ok((bird, daemon))
}

/// Returns the next hops when the router has exactly the routes that follow from the claims, and this number of nodes
/// have some.
async fn wait_right(rig: &Rig, bird: &Bird, n_nodes: usize) -> Result<BTreeSet<Route>> {
    insist_for(rig, QUIET_WITHIN, async || {
        let expected = expected(rig)?;
        let nodes: BTreeSet<&String> = expected.iter().map(|route| &route.node).collect();
        ensure!(nodes.len() == n_nodes, "{nodes:?} have blocks");
        let by_hop = expected.iter().map(|route| Route { node: route.via.clone(), ..route.clone() });
        let (by_hop, found) = (by_hop.collect::<BTreeSet<_>>(), bird.table().await?);
        ensure!(found.len() == by_hop.len(), "the router has {found:#?}, and {by_hop:#?} are expected");
        let found: BTreeSet<Route> = found.into_iter().collect();
        ensure!(found == by_hop, "the router has {found:#?}, and {by_hop:#?} are expected");
        Ok(found)
    })
    .await
}

/// Returns when the router has got all routes of a daemon that has restarted.
async fn wait_restarted(rig: &Rig, bird: &Bird, n_restarts: usize) -> Result<()> {
    insist_for(rig, QUIET_WITHIN, async || {
        let found = bird.n_restarts()?;
        ensure!(found == n_restarts, "{found} of {n_restarts} restarts have ended");
        Ok(())
    })
    .await
}

/// The changes of routes since the change with this number.
fn since(changes: &[Change], from: usize) -> Vec<&Change> {
    changes[from..].iter().filter(|change| !change.prefix.is_empty()).collect()
}

/// Fails if an address of a route was ever by two next hops, or a next hop ever lost one.
async fn assert_sound(bird: &Bird) -> Result<()> {
    let changes = bird.changes()?;
    never_two_ways(&changes, &bird.table().await?)?;
    let hops: BTreeSet<&String> = since(&changes, 0).into_iter().map(|change| &change.node).collect();
    hops.into_iter().try_for_each(|hop| no_flap(&changes, hop, 0))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_keeps_its_routes_through_restarts_of_the_controller_and_the_daemon() -> Result<()> {
    let options = Options { families: Families::Dual, ..Options::default() };
    under_oracle(options, async |rig| {
        let (bird, daemon) = start(rig, SHORT).await?;
        // A full node does not ask for a third block of a family.
        let pool = PoolSpec::new("p")
            .ipv4(28, &["10.1.0.0/24"])
            .ipv6(124, &["fd00:1::/120"])
            .with("perNode", json!({"maxBlocks": 2}))
            .with("routes", json!({"communities": ["64512:100"]}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let first = Agent::Fake(join_one(rig, NodeSpec::new("a")).await?);
        wait_right(rig, &bird, 1).await?;
        let found = bird.communities().await?;
        ensure!(found.iter().eq(["(64512,100)"]), "{found:?}");

        // It grows by the blocks beside its own, and both become one prefix.
        ask_many(rig, &first, "ns/a-", 20).await?;
        let has_grown = |published: &Published| published.pod_cidrs.len() == 4;
        rig.cluster.wait_published("a", "two blocks of each family", SOON, has_grown).await?;
        let of_first = wait_right(rig, &bird, 1).await?;
        ensure!(of_first.len() == 2, "one prefix of each family: {of_first:?}");
        assert_sound(&bird).await?;

        // The controller is killed. The next one adds the routes of another node, and changes no other.
        let quiet = bird.changes()?.len();
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let second = join_one(rig, NodeSpec::new("b")).await?;
        wait_right(rig, &bird, 2).await?;
        let changes = bird.changes()?;
        let changes = since(&changes, quiet);
        let is_of_first = |change: &Change| of_first.iter().any(|route| route.via == change.node);
        let is_new = |change: &&Change| change.what == "added" && !is_of_first(change);
        ensure!(changes.len() == 2 && changes.iter().all(is_new), "{changes:#?}");

        // The daemon is killed, and restarts with an empty table.
        let quiet = bird.changes()?.len();
        let daemon = daemon.restart().await?;
        wait_restarted(rig, &bird, 1).await?;
        wait_right(rig, &bird, 2).await?;
        let changes = bird.changes()?;
        let changes = since(&changes, quiet);
        ensure!(changes.is_empty(), "{changes:#?}");
        assert_sound(&bird).await?;

        // The exporter withdraws its routes.
        controller.sigterm_and_wait().await?;
        let removes = ["--routes", "remove", "--gobgp-address", &daemon.address];
        let controller = Controller::start_ready(&rig.control_plane, &[PROMPT, &removes].concat()).await?;
        insist(rig, async || {
            let left = bird.table().await?;
            ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await?;
        wait_claims_carried(rig).await?;
        Ok((controller, daemon, bird, first, second))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_a_lost_node_has_no_route_when_the_next_node_gets_it() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (bird, daemon) = start(rig, SHORT).await?;
        // Two blocks.
        let pool = PoolSpec::new("p")
            .ipv4(28, &["10.1.0.0/27"])
            .with("perNode", json!({"maxBlocks": 1}))
            .with("reuseAfterNodeLoss", "1s");
        rig.cluster.create_pool(&pool).await?;
        let leader = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let lost = join_one(rig, NodeSpec::new("a")).await?;
        let stays = join_one(rig, NodeSpec::new("b")).await?;
        wait_right(rig, &bird, 2).await?;
        let [hop_of_lost, hop_of_stays] = [hop_of(rig, "a").await?, hop_of(rig, "b").await?];

        // The leader is killed with the node. The next node has no block before the other replica leads.
        let published = published_at(rig, "c");
        let standby = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let next = join(rig, &[NodeSpec::new("c")]).await?;
        leader.sigkill().await?;
        lost.power_off().await;
        rig.cluster.delete_node("a").await?;
        let has_block = |published: &Published| !published.pod_cidrs.is_empty();
        rig.cluster.wait_published("c", "the block of a", QUIET_WITHIN, has_block).await?;
        let routes = wait_right(rig, &bird, 2).await?;
        ensure!(routes.iter().all(|route| route.via != hop_of_lost), "{routes:?}");

        let changes = bird.changes()?;
        never_two_ways(&changes, &bird.table().await?)?;
        no_flap(&changes, &hop_of_stays, 0)?;
        let removed = changes.iter().rfind(|change| change.node == hop_of_lost).context("never announced")?;
        let published = published.get().context("it was never published")?.duration_since(UNIX_EPOCH)?;
        ensure!(
            removed.what == "removed" && removed.at < published.as_secs_f64(),
            "{removed:?}, and the next node had the block at {published:?}"
        );
        Ok((standby, daemon, bird, stays, next))
    })
    .await
}

async fn hop_of(rig: &Rig, node: &str) -> Result<String> {
    hop(rig, node, cilium_node_ipam::net::cidr::Family::V4).await
}

/// When the CiliumNode of this node first has a block, as soon as it does.
fn published_at(rig: &Rig, node: &str) -> Arc<OnceLock<SystemTime>> {
    let at = Arc::new(OnceLock::new());
    let (seen, node) = (Arc::clone(&at), node.to_owned());
    rig.cluster.cache().subscribe(Box::new(move |kind, name, object| {
        let blocks = object.map(|object| Published::of(object).pod_cidrs).unwrap_or_default();
        if kind == Kind::CiliumNode && name == node && !blocks.is_empty() {
            // The first time counts.
            let _ = seen.set(SystemTime::now());
        }
    }));
    at
}
