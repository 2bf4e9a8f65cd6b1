//! Routes in the table of a real GoBGP daemon, on a real API server. Each prefix that a node announces has one path, by
//! the address of the node.

mod bird;
pub(crate) mod routers;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::model::community::Community;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::wire::gobgp::PathId;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;

use crate::answers::{Said, ask};
use crate::chronicle::{Chronicle, after_second};
use crate::scene::{PROMPT, SOON, ask_many, insist, join_one, wait_claims_carried};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::families::Families;
use crate::support::gobgp_daemon::{Daemon, Shown};
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The path identifier of the controller.
const OWN: u32 = PathId::DEFAULT.0;
/// The short times of an election: a controller that is killed leaves its Lease behind.
const TIMES: [&str; 6] = ["--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "1s"];

/// The flags of a controller that exports to this daemon.
fn flags<'a>(daemon: &'a Daemon, more: &[&'a str]) -> Vec<&'a str> {
    let exports = ["--routes", "gobgp", "--gobgp-address", &daemon.address, ELECTED];
    [PROMPT, &exports, &TIMES, more].concat()
}

/// The address of a node to which its traffic is sent.
async fn hop(rig: &Rig, node: &str, family: Family) -> Result<String> {
    let node = Api::<Node>::all(rig.cluster.client.clone()).get(node).await?;
    let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
    let internal = addresses.into_iter().filter(|address| address.type_ == "InternalIP");
    let mut parsed = internal.filter_map(|address| address.address.parse::<IpAddr>().ok());
    let found = parsed.find(|address| Family::of(*address) == family);
    Ok(found.context("no InternalIP")?.to_string())
}

/// The controller's paths, by prefix.
fn own(table: &BTreeMap<String, Vec<Shown>>) -> BTreeMap<String, Shown> {
    let own = |(prefix, paths): (&String, &Vec<Shown>)| {
        let path = paths.iter().find(|path| path.identifier == OWN)?;
        Some((prefix.clone(), path.clone()))
    };
    table.iter().filter_map(own).collect()
}

/// Returns the paths when the daemon has exactly those of the blocks of these nodes, with this number of blocks each.
async fn wait_exact(rig: &Rig, daemon: &Daemon, nodes: &[(&str, usize)]) -> Result<BTreeMap<String, Shown>> {
    insist(rig, async || {
        let mut expected = BTreeMap::new();
        for (node, n_blocks) in nodes {
            let blocks = rig.cluster.published(node).unwrap_or_default().pod_cidrs;
            ensure!(blocks.len() == *n_blocks, "{node}: {blocks:?}");
            for family in Family::ALL {
                let blocks = blocks.iter().map(|block| block.parse::<Cidr>());
                let blocks: Vec<Cidr> = blocks.collect::<Result<_, _>>()?;
                let of_family: AddressSet =
                    blocks.into_iter().filter(|block| block.family() == family).collect();
                for prefix in of_family.cidrs() {
                    expected.insert(prefix.to_string(), hop(rig, node, family).await?);
                }
            }
        }
        let found = own(&daemon.table().await?);
        let hops: BTreeMap<String, String> =
            found.iter().map(|(prefix, path)| (prefix.clone(), path.next_hop.clone())).collect();
        ensure!(hops == expected, "{expected:?} is expected: {hops:?}");
        Ok(found)
    })
    .await
}

/// The answer of `routes --compare` about the table.
async fn compare(rig: &Rig, address: &str) -> Result<Said> {
    let flags = ["routes", "--compare", "--gobgp-address", address, "-o", "json"];
    ask(&rig.control_plane, &flags).await
}

/// Returns when a path that is added from now on would show another second than these.
async fn wait_next_second(paths: &BTreeMap<String, Shown>) -> Result<()> {
    after_second(paths.values().map(|path| path.second).max().unwrap_or_default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_has_one_path_per_prefix_through_restarts_of_both() -> Result<()> {
    let options = Options { families: Families::Dual, ..Options::default() };
    under_oracle(options, async |rig| {
        let folder = tempfile::tempdir()?;
        let daemon = Daemon::start(folder.path()).await?;
        daemon.add_foreign("10.9.0.0/24", "192.0.2.77").await?;
        // One of an earlier life of the controller, whose node is gone.
        daemon.add("10.8.0.0/24", "192.0.2.66", PathId(OWN)).await?;
        // A full node does not ask for a third block of a family.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/120"]);
        let pool = pool.with("perNode", json!({"maxBlocks": 2}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let first = Agent::Fake(join_one(rig, NodeSpec::new("a")).await?);
        let second = join_one(rig, NodeSpec::new("b")).await?;
        let before = wait_exact(rig, &daemon, &[("a", 2), ("b", 2)]).await?;
        let same = compare(rig, &daemon.address).await?;
        ensure!(same.code == Some(0), "{} {}", same.text, same.errors);

        // A restart of the controller changes no path, and a new node shows that it has looked.
        wait_next_second(&before).await?;
        controller.sigterm_and_wait().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let third = join_one(rig, NodeSpec::new("c")).await?;
        let after = wait_exact(rig, &daemon, &[("a", 2), ("b", 2), ("c", 2)]).await?;
        let changed: Vec<_> =
            before.iter().filter(|(prefix, path)| after.get(*prefix) != Some(path)).collect();
        ensure!(changed.is_empty(), "{changed:?} was before, and then {after:?}");

        // A daemon that restarts gets all of them again, but not those of other writers.
        let foreign = daemon.table().await?;
        ensure!(foreign["10.9.0.0/24"].len() == 1, "{foreign:?}");
        let daemon = daemon.restart().await?;
        wait_exact(rig, &daemon, &[("a", 2), ("b", 2), ("c", 2)]).await?;

        // Another writer's path of the same prefix stays.
        let prefix = after.keys().next().context("no path")?.clone();
        daemon.add_foreign(&prefix, "192.0.2.77").await?;
        ask_many(rig, &first, "ns/a-", 20).await?;
        wait_exact(rig, &daemon, &[("a", 4), ("b", 2), ("c", 2)]).await?;
        controller.sigterm_and_wait().await?;
        let removes = ["--routes", "remove", "--gobgp-address", &daemon.address];
        let controller = Controller::start_ready(&rig.control_plane, &[PROMPT, &removes].concat()).await?;
        wait_exact(rig, &daemon, &[]).await?;
        let missing = compare(rig, &daemon.address).await?;
        ensure!(missing.code == Some(1), "{} {}", missing.text, missing.errors);
        let lacks = missing.json()?["items"][0]["missing"].clone();
        ensure!(lacks.as_array().is_some_and(|prefixes| !prefixes.is_empty()), "{}", missing.text);
        let left = daemon.table().await?;
        ensure!(left.keys().eq([&prefix]) && left[&prefix][0].identifier == 0, "{left:?}");
        wait_claims_carried(rig).await?;
        Ok((controller, daemon, first, second, third))
    })
    .await
}

/// The daemon shows each change. The table is also listed every 30 s, which would return at most two of these paths in
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_another_writer_withdraws_returns_soon() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let folder = tempfile::tempdir()?;
        let daemon = Daemon::start(folder.path()).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let agent = join_one(rig, NodeSpec::new("a")).await?;
        wait_exact(rig, &daemon, &[("a", 1)]).await?;
        let began = Instant::now();
        for _ in 0..3 {
            daemon.withdraw("10.1.0.0/28", PathId(OWN)).await?;
            wait_exact(rig, &daemon, &[("a", 1)]).await?;
        }
        ensure!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
        Ok((controller, daemon, agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_cools_only_when_the_daemon_shows_that_its_path_is_gone() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let folder = tempfile::tempdir()?;
        let daemon = Daemon::start(folder.path()).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"]).with("reuseAfterNodeLoss", "0s");
        rig.cluster.create_pool(&pool).await?;
        let chronicle = Chronicle::start(rig);
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let agent = join_one(rig, NodeSpec::new("a")).await?;
        wait_exact(rig, &daemon, &[("a", 1)]).await?;

        // The node is lost while the controller can't query the daemon.
        let daemon_address = daemon.address.clone();
        let stopped = daemon.stop().await?;
        agent.power_off().await;
        rig.cluster.delete_node("a").await?;
        let words = "it can't be read, so no route is announced or withdrawn";
        rig.control_plane.alarm.over(controller.wait_logged(words, SOON)).await?;
        let states = || chronicle.of_block("10.1.0.0/28");
        rig.cluster
            .wait_until("the block to be released", SOON, async || {
                Ok(states().iter().any(|step| step.contains("Releasing")))
            })
            .await?;
        let story = states();
        ensure!(!story.iter().any(|step| step.contains("Cooling")), "{story:?}");

        let away = compare(rig, &daemon_address).await?;
        ensure!(
            away.code == Some(2) && away.errors.contains("can't list the table of GoBGP"),
            "{}",
            away.errors
        );

        // The daemon returns with the path of a replica that was paused.
        let daemon = stopped.start().await?;
        daemon.add("10.1.0.0/28", "192.0.2.66", PathId(OWN)).await?;
        let agent = join_one(rig, NodeSpec::new("b")).await?;
        wait_exact(rig, &daemon, &[("b", 1)]).await?;
        let story = states();
        ensure!(story.iter().any(|step| step == "a Cooling NodeGone"), "{story:?}");
        Ok((controller, daemon, agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_have_the_communities_of_the_pool_and_above_the_cap_none_is_added() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let folder = tempfile::tempdir()?;
        let daemon = Daemon::start(folder.path()).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]);
        rig.cluster.create_pool(&pool.with("routes", json!({"communities": ["64512:100"]}))).await?;
        let capped = flags(&daemon, &["--gobgp-max-prefixes", "1"]);
        let controller = Controller::start_ready(&rig.control_plane, &capped).await?;
        let first = join_one(rig, NodeSpec::new("a")).await?;
        let table = wait_exact(rig, &daemon, &[("a", 1)]).await?;
        let communities: Vec<_> = table.values().map(|path| &path.communities).collect();
        let expected = Community::parse("64512:100").map(Community::number);
        ensure!(communities == [&Vec::from_iter(expected)], "{table:?}");
        let second = join_one(rig, NodeSpec::new("b")).await?;
        let words = "and --gobgp-max-prefixes allows 1";
        rig.control_plane.alarm.over(controller.wait_logged(words, SOON)).await?;
        let table = own(&daemon.table().await?);
        ensure!(table.len() == 1, "{table:?}");
        Ok((controller, daemon, first, second))
    })
    .await
}
