//! The API server and etcd are killed and start again on their data, while writes of the controller are in flight.

use std::time::Duration;

use anyhow::Result;

use crate::support::control_plane::{Options, Target};
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::PoolSpec;
use crate::support::rig::under_oracle;

/// For each wait: a server that starts again takes some seconds, and the pauses between tries grow meanwhile.
const SOON: Duration = Duration::from_secs(90);

/// How long the servers may be away, with claims that are Releasing.
const OUTAGE: Duration = Duration::from_secs(300);

/// The nodes that join in each round.
const WAVE: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn servers_killed_and_restarted_lose_nothing() -> Result<()> {
    under_oracle(Options { fsync: true, ..Options::default() }, async |rig| {
        rig.control_plane.limit_releasing(OUTAGE).await?;
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/18"]);
        rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", "2s")).await?;
        let mut controller = Controller::start_ready(
            &rig.control_plane,
            &["--min-write-interval", "1s", "--request-timeout", "2s"],
        )
        .await?;
        let mut fleet = Fleet::new(rig);
        let rounds: [&[Target]; 3] =
            [&[Target::ApiServer], &[Target::Etcd], &[Target::ApiServer, Target::Etcd]];
        for (round, targets) in rounds.into_iter().enumerate() {
            let names = Fleet::names(round * WAVE..(round + 1) * WAVE);
            let leaving = names[..WAVE / 2].to_vec();
            fleet.join(&names).await?;
            fleet.wait_ready(SOON).await?;
            fleet.fill(&names, 11);
            fleet.leave(&leaving).await?;
            // The remaining agents write their use, and so ask for growth, about now.
            for target in targets {
                rig.control_plane.kill(*target).await?;
            }
            for target in targets.iter().rev() {
                rig.control_plane.restart(*target).await?;
            }
            fleet.wait_blocks(&names[WAVE / 2..], 2, SOON).await?;
            fleet.wait_gone(&leaving, SOON).await?;
        }
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_cooled(SOON).await?;
        // The same process survived all of it.
        controller.wait_ready().await?;
        Ok(controller)
    })
    .await
}
