//! Two controllers at work without any election, one of them with old views of each kind in turn: they get into each
//! other's way, and never make two nodes hold one address.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::Proxy;
use crate::support::rig::under_oracle;

/// For each wait: growth waits for a second of an agent's silence and a second of the controller's.
const SOON: Duration = Duration::from_secs(60);

/// Nodes that join with each kind that is held back.
const JOINING: usize = 50;

/// How long each is held back at least.
const HELD_BACK: Duration = Duration::from_secs(5);

/// How often the two may write one object in the whole test. What is needed is below ten; two that undo each other for
/// seconds write hundreds of times.
const MOST_WRITES: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_without_election_never_share_an_address() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/16"]);
        rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", "3s")).await?;
        let [ahead, behind] = [
            Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?,
            Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?,
        ];
        let flags = ["--min-write-interval", "1s"];
        let mut first = Controller::start_ready_behind(&rig.control_plane, &ahead, &flags).await?;
        let mut second = Controller::start_ready_behind(&rig.control_plane, &behind, &flags).await?;

        let mut fleet = Fleet::new(rig);
        for (round, kind) in [Kind::Block, Kind::CiliumNode, Kind::Node, Kind::Pool].into_iter().enumerate() {
            let joining = Fleet::names(round * JOINING..(round + 1) * JOINING);
            let leaving = joining[..JOINING / 4].to_vec();
            let returning = leaving[..leaving.len() / 2].to_vec();
            // They are there when the view grows old, so that it is old and not empty.
            let (early, late) = joining.split_at(JOINING / 2);
            fleet.join(early).await?;
            fleet.wait_ready(SOON).await?;

            let held = behind.hold(kind);
            let until = Instant::now() + HELD_BACK;
            fleet.join(late).await?;
            fleet.wait_ready(SOON).await?;
            fleet.fill(&joining, 11);
            fleet.wait_blocks(&joining, 2, SOON).await?;
            fleet.leave(&leaving).await?;
            fleet.wait_gone(&leaving, SOON).await?;
            fleet.join(&returning).await?;
            fleet.wait_ready(SOON).await?;
            // What two that disagree do to each other takes time to show.
            tokio::time::sleep_until(until).await;
            drop(held);
        }
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_rested(SOON).await?;

        let (one, other) = (ahead.passing(), behind.passing());
        let create_conflicts = one.create_conflicts + other.create_conflicts;
        let refused_patches = one.refused_patches + other.refused_patches;
        eprintln!("{create_conflicts} create conflicts, {refused_patches} refused patches");
        ensure!(create_conflicts >= 20, "only {create_conflicts} create conflicts");
        ensure!(refused_patches >= 20, "only {refused_patches} refused patches of CiliumNodes");
        for passing in [&one, &other] {
            for kind in [Kind::Block, Kind::CiliumNode] {
                let (name, n_writes) = passing.most_written(kind);
                eprintln!("{kind:?} {name} was written {n_writes} times");
                ensure!(
                    n_writes <= MOST_WRITES,
                    "{kind:?} {name} was written {n_writes} times by one controller"
                );
            }
        }
        // They have lived all the time: one that ends is not ready.
        first.wait_ready().await?;
        second.wait_ready().await?;
        Ok((first, second, ahead, behind))
    })
    .await
}
