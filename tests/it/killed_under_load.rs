//! The controller is killed at any moment, again and again, while nodes come, grow and are deleted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::PoolSpec;
use crate::support::rig::{Rig, under_oracle};

/// For each wait: a killed controller is started again at once, and serves within a second.
const SOON: Duration = Duration::from_secs(60);

/// How often it is killed.
const DEATHS: usize = 20;

/// The nodes that join at once.
const WAVE: usize = 8;

const FLAGS: [&str; 2] = ["--min-write-interval", "1s"];

#[tokio::test(flavor = "multi_thread")]
async fn controller_killed_twenty_times_under_load_leaks_nothing() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/18"]);
        rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", "2s")).await?;
        let over = AtomicBool::new(false);
        let mut fleet = Fleet::new(rig);
        let (controller, ()) = tokio::try_join!(kill_again_and_again(rig, &over), load(&mut fleet, &over))?;
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_cooled(SOON).await?;
        Ok(controller)
    })
    .await
}

/// Returns the last controller, which keeps running.
async fn kill_again_and_again(rig: &Rig, over: &AtomicBool) -> Result<Controller> {
    let mut rng = fastrand::Rng::with_seed(20);
    for life in 0..DEATHS {
        let mut controller = Controller::start(&rig.control_plane, &FLAGS)?;
        // On a slow machine all would be killed as they start.
        if life % 2 == 0 {
            rig.control_plane.alarm.over(controller.wait_ready()).await?;
        }
        // The random moment is the subject of the test, and no event announces it. A start takes some 200 ms.
        tokio::time::sleep(Duration::from_millis(rng.u64(100..1500))).await;
        controller.sigkill().await?;
    }
    over.store(true, Ordering::SeqCst);
    Controller::start_ready(&rig.control_plane, &FLAGS).await
}

/// Waves of nodes: each wave grows, most of it leaves, and some of those nodes return.
async fn load(fleet: &mut Fleet<'_>, over: &AtomicBool) -> Result<()> {
    let mut wave = 0;
    while !over.load(Ordering::SeqCst) {
        let names = Fleet::names(wave * WAVE..(wave + 1) * WAVE);
        let (leaving, returning) = (names[..WAVE * 3 / 4].to_vec(), names[..WAVE / 4].to_vec());
        fleet.join(&names).await?;
        fleet.wait_ready(SOON).await?;
        fleet.fill(&names, 11);
        fleet.wait_blocks(&names[WAVE / 2..], 2, SOON).await?;
        fleet.leave(&leaving).await?;
        fleet.wait_gone(&leaving, SOON).await?;
        fleet.join(&returning).await?;
        wave += 1;
    }
    fleet.wait_ready(SOON).await
}
