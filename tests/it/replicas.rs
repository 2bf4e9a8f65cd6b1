//! Two controllers work without an election, one of them with old views of each kind in turn. They get into each
//! other's way, and never make two nodes hold one address. (A stale replica could publish a block again that was
//! removed and given to another node.) They promise no more than that: nothing here waits until every node is served.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::wait_status;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::Proxy;
use crate::support::rig::{Rig, judged_for_safety};

/// For each wait: growth waits for a second of silence of the agent and for a second of the controller's.
const SOON: Duration = Duration::from_secs(60);

/// The nodes that join with each kind whose watch is paused.
const JOINING: usize = 50;

/// The minimum pause of each watch.
const HELD_BACK: Duration = Duration::from_secs(5);

const FLAGS: [&str; 2] = ["--min-write-interval", "1s"];

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_without_election_never_share_an_address() -> Result<()> {
    judged_for_safety(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/16"]);
        rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", "3s")).await?;
        let [mut first, mut second] = [Replica::start(rig).await?, Replica::start(rig).await?];
        let (ahead, behind) = (&first.proxy, &second.proxy);
        let mut fleet = Fleet::new(rig);
        for (round, kind) in [Kind::Block, Kind::CiliumNode, Kind::Node, Kind::Pool].into_iter().enumerate() {
            let joining = Fleet::names(round * JOINING..(round + 1) * JOINING);
            let leaving = joining[..JOINING / 4].to_vec();
            let returning = leaving[..leaving.len() / 2].to_vec();
            // They exist before the watch is paused, so that the old view is not empty.
            let (early, late) = joining.split_at(JOINING / 2);
            fleet.join(early).await?;
            fleet.wait_ready_or(SOON).await?;

            let held = behind.hold(kind);
            let until = Instant::now() + HELD_BACK;
            if kind == Kind::Pool {
                // From now on they give out blocks of different ranges.
                let cidrs = json!([{"cidr": "10.1.0.0/16", "state": "Cordoned"}, {"cidr": "10.2.0.0/16"}]);
                let edited = rig.cluster.patch_pool("p", json!({"ipv4": {"cidrs": cidrs}})).await?;
                let is_current =
                    |status: &Value| status["observedGeneration"].as_i64() == edited.metadata.generation;
                wait_status(rig, "p", "the edit", is_current).await?;
            }
            fleet.join(late).await?;
            fleet.wait_ready_or(SOON).await?;
            fleet.fill(&joining, 11);
            fleet.wait_blocks_or(&joining, 2, SOON).await?;
            if kind == Kind::Pool {
                let claims: Vec<_> = late.iter().flat_map(|name| rig.cluster.claims_of(name)).collect();
                let of_range =
                    |range: &str| claims.iter().filter(|claim| claim.cidr.starts_with(range)).count();
                let (old, new) = (of_range("10.1."), of_range("10.2."));
                eprintln!("{old} blocks of the old range and {new} of the new one");
                ensure!(
                    old > 0 && new > 0,
                    "they agreed: {old} blocks of the old range, {new} of the new one"
                );
            }
            fleet.leave(&leaving).await?;
            fleet.wait_gone(&leaving, SOON).await?;
            fleet.join(&returning).await?;
            fleet.wait_ready_or(SOON).await?;
            // The effects of two disagreeing replicas on each other take time to show.
            tokio::time::sleep_until(until).await;
            drop(held);
        }

        let (one, other) = (ahead.passing(), behind.passing());
        let create_conflicts = one.create_conflicts + other.create_conflicts;
        let refused_patches = one.refused_patches + other.refused_patches;
        eprintln!("{create_conflicts} create conflicts, {refused_patches} refused patches");
        ensure!(create_conflicts >= 20, "only {create_conflicts} create conflicts");
        ensure!(refused_patches >= 20, "only {refused_patches} refused patches of CiliumNodes");
        first.assert_runs().await?;
        second.assert_runs().await?;
        Ok([first, second])
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_old_nodes_gives_no_address_twice() -> Result<()> {
    judged_for_safety(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"]);
        rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", "1s")).await?;
        let [mut first, mut second] = [Replica::start(rig).await?, Replica::start(rig).await?];
        let mut fleet = Fleet::new(rig);
        let names = Fleet::names(0..6);
        let (leaving, returning) = names.split_at(3);
        fleet.join(&names).await?;
        fleet.wait_ready_or(SOON).await?;

        let held = second.proxy.hold(Kind::Node);
        let until = Instant::now() + HELD_BACK;
        fleet.leave(&names).await?;
        fleet.wait_gone(&names, SOON).await?;
        fleet.join(returning).await?;
        let new = Fleet::names(6..9);
        fleet.join(&new).await?;
        fleet.wait_ready_or(SOON).await?;
        tokio::time::sleep_until(until).await;
        ensure!(leaving.iter().all(|name| rig.cluster.published(name).is_none()), "they came back");
        drop(held);

        first.assert_runs().await?;
        second.assert_runs().await?;
        Ok([first, second])
    })
    .await
}

/// A pool with another block size replaces one of the same range, and one replica has not seen it. Their claims
/// overlap, and the names of the claims do not prevent that.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_see_different_pools_never_publish_overlapping_blocks() -> Result<()> {
    judged_for_safety(Options::default(), async |rig| {
        let pool = |name: &str, size| PoolSpec::new(name).select("zone", "a").ipv4(size, &["10.1.0.0/20"]);
        rig.cluster.create_pool(&pool("old", 28)).await?;
        let [mut first, mut second] = [Replica::start(rig).await?, Replica::start(rig).await?];
        let mut fleet = Fleet::new(rig);
        // It does not see the claims of the other either, and so claims blocks that overlap them.
        let held = [second.proxy.hold(Kind::Pool), second.proxy.hold(Kind::Block)];
        let until = Instant::now() + HELD_BACK;
        rig.cluster.delete_pool("old").await?;
        let gone = async || Ok(rig.cluster.object(Kind::Pool, "old").is_none());
        rig.cluster.wait_until("the old pool to be gone", SOON, gone).await?;
        rig.cluster.create_pool(&pool("new", 26)).await?;

        for wave in 0..4 {
            let names = Fleet::names(wave * 10..(wave + 1) * 10);
            fleet.join(&names).await?;
            fleet.wait_ready_or(SOON).await?;
            fleet.fill(&names, 11);
        }
        tokio::time::sleep_until(until).await;
        drop(held);
        first.assert_runs().await?;
        second.assert_runs().await?;
        Ok([first, second])
    })
    .await
}

/// A controller and the proxy that it is behind.
struct Replica {
    controller: Controller,
    proxy: Proxy,
}

impl Replica {
    async fn start(rig: &Rig) -> Result<Self> {
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, &FLAGS).await?;
        Ok(Self { controller, proxy })
    }

    /// Fails if it has exited meanwhile.
    async fn assert_runs(&mut self) -> Result<()> {
        self.controller.wait_ready().await
    }
}
