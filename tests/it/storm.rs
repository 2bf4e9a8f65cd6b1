//! Everything at once: three controllers without election, each with views that stop and go, writes that come late,
//! lost answers, pauses and deaths, while nodes join, grow, leave and return and pools change.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::{Fault, Often, Planted, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};

/// For each wait.
const SOON: Duration = Duration::from_secs(90);

/// How long it lasts.
const STORM: Duration = Duration::from_secs(30);

/// The nodes of a wave.
const WAVE: usize = 10;

const REPLICAS: usize = 3;

const FLAGS: [&str; 4] = ["--min-write-interval", "1s", "--request-timeout", "2s"];

#[tokio::test(flavor = "multi_thread")]
async fn storm_leaves_every_address_with_one_node() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool(0)).await?;
        rig.cluster.create_pool(&pool(1)).await?;
        let mut proxies = Vec::new();
        for _ in 0..REPLICAS {
            proxies.push(Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?);
        }
        let mut fleet = Fleet::new(rig);
        let until = Instant::now() + STORM;
        let (first, second, third, ()) = tokio::try_join!(
            suffer(rig, &proxies[0], until, 1),
            suffer(rig, &proxies[1], until, 2),
            suffer(rig, &proxies[2], until, 3),
            load(rig, &mut fleet, until),
        )?;
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_rested(SOON).await?;
        Ok(([first, second, third], proxies))
    })
    .await
}

/// Two pools of one range, of which the older has it, with blocks of different sizes.
fn pool(number: u8) -> PoolSpec {
    let pool = PoolSpec::new(format!("p{number}")).select("zone", "a").with("reuseAfterNodeLoss", "1s");
    pool.ipv4(28 - number, &["10.1.0.0/18"])
}

/// What there is of the range in the older pool: all, or none, so that the younger has it.
fn range(wave: usize) -> Value {
    let cidrs = if wave.is_multiple_of(2) { json!([]) } else { json!([{"cidr": "10.1.0.0/18"}]) };
    json!({"ipv4": {"cidrs": cidrs}})
}

/// The life of one replica: returns the process that survives.
async fn suffer(rig: &Rig, proxy: &Proxy, until: Instant, seed: u64) -> Result<Controller> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let planted: Vec<Planted> =
        [(Verb::Create, Kind::Block), (Verb::Patch, Kind::Block), (Verb::Delete, Kind::Block)]
            .into_iter()
            .chain([(Verb::Patch, Kind::CiliumNode)])
            .flat_map(|(verb, kind)| {
                let faults = [
                    Fault::Delay(Duration::from_millis(700)),
                    Fault::Late(Duration::from_millis(2500)),
                    Fault::AnswerLost,
                    Fault::CutAfter,
                ];
                faults.map(|fault| proxy.plant(Requests::new(verb, kind), fault, Often::Sometimes(0.05, 50)))
            })
            .collect();
    let mut controller = Controller::start_ready_behind(&rig.control_plane, proxy, &FLAGS).await?;
    while Instant::now() < until {
        let pause = Duration::from_millis(rng.u64(200..3000));
        // Storms have no events to wait for.
        match rng.u8(0..6) {
            0 => {
                controller.sigkill().await?;
                tokio::time::sleep(pause / 4).await;
                controller = Controller::start_ready_behind(&rig.control_plane, proxy, &FLAGS).await?;
            }
            1 => {
                controller.signal("STOP").await?;
                tokio::time::sleep(pause).await;
                controller.signal("CONT").await?;
            }
            _ => {
                let held: Vec<_> =
                    Kind::ALL.into_iter().filter(|_| rng.bool()).map(|kind| proxy.hold(kind)).collect();
                tokio::time::sleep(pause).await;
                drop(held);
            }
        }
    }
    for planted in planted {
        eprintln!("replica {seed}: {planted}");
    }
    Ok(controller)
}

async fn load(rig: &Rig, fleet: &mut Fleet<'_>, until: Instant) -> Result<()> {
    let mut wave = 0;
    while Instant::now() < until {
        let names = Fleet::names(wave * WAVE..(wave + 1) * WAVE);
        let (leaving, returning) = (names[..WAVE / 2].to_vec(), names[..WAVE / 4].to_vec());
        fleet.join(&names).await?;
        fleet.wait_ready(SOON).await?;
        rig.cluster.patch_pool("p0", range(wave)).await?;
        fleet.fill(&names, 11);
        fleet.wait_blocks(&names[WAVE / 2..], 1, SOON).await?;
        fleet.leave(&leaving).await?;
        fleet.wait_gone(&leaving, SOON).await?;
        fleet.join(&returning).await?;
        wave += 1;
    }
    eprintln!("{wave} waves");
    fleet.wait_ready(SOON).await
}
