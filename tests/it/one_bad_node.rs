//! One node whose writes hang or fail forever delays no other node, and its retries have pauses. (Other systems write
//! under one lock, or freeze on one stuck object.)

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::under_oracle;

/// For each wait.
const SOON: Duration = Duration::from_secs(60);

/// The wait that an overloaded server asks for.
const LONG_WAIT: Duration = Duration::from_secs(20);

/// Long enough for answers to wait side by side even on a busy machine.
const SLOW: Duration = Duration::from_millis(500);

/// The longest pause of a controller between two tries. It doubles from a quarter of a second. So nine tries take half
/// a minute; the first two have no pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Longer than any wait of this test, so that a stuck write stays stuck until the test releases it.
const NEVER: &str = "10m";

#[tokio::test(flavor = "multi_thread")]
async fn stuck_write_of_one_node_delays_no_other() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"])).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let flags = ["--min-write-interval", "1s", "--request-timeout", NEVER];
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, &flags).await?;
        let patches = || Requests::new(Verb::Patch, Kind::CiliumNode);
        let stuck = proxy.plant(patches().of("n000"), Fault::Stall, Often::Always);

        let mut fleet = Fleet::new(rig);
        let mut bad = Fleet::new(rig);
        bad.join(&Fleet::names(0..1)).await?;
        rig.cluster.wait_until("the stuck patch", SOON, async || Ok(stuck.fired() == 1)).await?;
        // Each of the others waits for its own answer only.
        let slow = proxy.plant(patches(), Fault::Delay(SLOW), Often::Always);
        let names = Fleet::names(1..60);
        fleet.join(&names).await?;
        fleet.wait_ready(SOON).await?;
        fleet.fill(&names, 11);
        fleet.wait_blocks(&names, 2, SOON).await?;
        fleet.leave(&names[..5]).await?;
        let all_cool = async || {
            Ok(names[..5].iter().all(|name| {
                let claims = rig.cluster.claims_of(name);
                !claims.is_empty() && claims.iter().all(|claim| claim.state == "Cooling")
            }))
        };
        rig.cluster.wait_until("the blocks of five lost nodes to cool", SOON, all_cool).await?;

        ensure!(stuck.fired() == 1, "{stuck}");
        ensure!(slow.fired() >= 2 * names.len(), "{slow}");
        let most = proxy.passing().most_patched;
        eprintln!("{most} CiliumNodes were patched at one time");
        ensure!(most >= 8, "only {most} CiliumNodes were patched at one time");
        ensure!(
            rig.cluster.published("n000").is_some_and(|bad| bad.pod_cidrs.is_empty()),
            "not stuck at all"
        );
        drop(stuck);
        bad.wait_ready(SOON).await?;
        Ok((controller, proxy))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn node_whose_writes_fail_is_tried_with_growing_pauses() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"])).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let controller =
            Controller::start_ready_behind(&rig.control_plane, &proxy, &["--min-write-interval", "1s"])
                .await?;
        let mut planted = Vec::new();
        for (node, fault) in [
            ("n000", Fault::Status(500)),
            ("n001", Fault::Status(409)),
            ("n002", Fault::Status(422)),
            ("n003", Fault::TooMany(1)),
            ("n004", Fault::CutBefore),
        ] {
            let patches = Requests::new(Verb::Patch, Kind::CiliumNode).of(node);
            planted.push((node, proxy.plant(patches, fault, Often::Always)));
        }
        let patient = Fleet::names(10..11);
        let patches = Requests::new(Verb::Patch, Kind::CiliumNode).of(&patient[0]);
        let asked_to_wait =
            proxy.plant(patches, Fault::TooMany(LONG_WAIT.as_secs().try_into()?), Often::Always);
        let began = Instant::now();
        let mut bad = Fleet::new(rig);
        bad.join(&[Fleet::names(0..planted.len()), patient].concat()).await?;
        let mut fleet = Fleet::new(rig);
        for wave in 1..4 {
            let names = Fleet::names(wave * 20..(wave + 1) * 20);
            fleet.join(&names).await?;
            fleet.wait_ready(SOON).await?;
            fleet.fill(&names, 11);
            fleet.wait_blocks(&names, 2, SOON).await?;
        }
        for (node, planted) in &planted {
            let fired = planted.fired().try_into()?;
            let most = 10 + began.elapsed().as_secs() / LONGEST_PAUSE.as_secs();
            eprintln!("{node}: {planted}");
            // Nodes with the same cause try in turn, and one of them was asked to wait for long.
            ensure!((1..=most).contains(&fired), "{node}: {planted}, at most {most}");
        }
        // The server's wait has priority over our own pauses, however long this took.
        let fired = asked_to_wait.fired().try_into()?;
        let most = began.elapsed().as_secs() / LONG_WAIT.as_secs() + 1;
        eprintln!("asked to wait {LONG_WAIT:?}: {asked_to_wait}");
        ensure!((1..=most).contains(&fired), "{asked_to_wait}, at most {most}");
        drop((planted, asked_to_wait));
        bad.wait_ready(SOON).await?;
        Ok((controller, proxy))
    })
    .await
}
