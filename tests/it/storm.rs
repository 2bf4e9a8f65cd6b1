//! Everything at once. Three controllers have views that stall and continue, late writes, lost answers, pauses and
//! deaths. Meanwhile nodes join, grow, leave and return, and pools change.
//!
//! With an election, after the storm every node is served, and every claim is published or free. Without one only
//! safety is promised: replicas with different views of the pools claim overlapping blocks. Such a claim may be made
//! for a CiliumNode that was replaced while no replica watched. It may then stay for as long as its node
//! (`docs/invariants.md`, Known gaps), so no wait requires that a node is served.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::chronicle::in_another_second;
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::{Fault, Often, Planted, Proxy, Requests, Verb};
use crate::support::rig::{Rig, judged_for_safety, under_oracle};

/// For each wait.
const SOON: Duration = Duration::from_secs(90);

/// Its minimum duration.
const STORM: Duration = Duration::from_secs(30);

/// How long a slow machine may take until every planted fault has happened.
const LONGEST_STORM: Duration = Duration::from_secs(400);

/// The disturbed requests.
const REQUESTS: [(Verb, Kind); 4] = [
    (Verb::Create, Kind::Block),
    (Verb::Patch, Kind::Block),
    (Verb::Delete, Kind::Block),
    (Verb::Patch, Kind::CiliumNode),
];

/// Their faults.
const FAULTS: [Fault; 4] = [
    Fault::Delay(Duration::from_millis(700)),
    Fault::Late(Duration::from_millis(2500)),
    Fault::AnswerLost,
    Fault::CutAfter,
];

/// The nodes of a wave.
const WAVE: usize = 10;

const REPLICAS: usize = 3;

/// How long the load waits for nodes without a promise that they are served.
const A_WHILE: Duration = Duration::from_secs(8);

const FLAGS: [&str; 4] = ["--min-write-interval", "1s", "--request-timeout", "2s"];

/// A lease that is long beside the pauses of a busy machine, and short beside the storm.
const ELECTION: [&str; 7] =
    [ELECTED, "--lease-duration", "4s", "--renew-deadline", "3s", "--retry-period", "500ms"];

/// The promise of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// No address is on two nodes.
    Safety,
    /// Also, every node is served, and every claim is published or free at the end.
    Service,
}

#[tokio::test(flavor = "multi_thread")]
async fn storm_without_election_leaves_every_address_with_one_node() -> Result<()> {
    judged_for_safety(Options::default(), async |rig| {
        let (kept, _) = Box::pin(storm(rig, &FLAGS, Promise::Safety)).await?;
        Ok(kept)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn storm_with_an_election_converges() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let flags = [FLAGS.as_slice(), &ELECTION].concat();
        let (kept, mut fleet) = Box::pin(storm(rig, &flags, Promise::Service)).await?;
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_cooled(SOON).await?;
        Ok(kept)
    })
    .await
}

/// Returns the surviving processes with their proxies, and the nodes that exist at the end.
async fn storm<'a>(
    rig: &'a Rig,
    flags: &[&str],
    promise: Promise,
) -> Result<(([Controller; REPLICAS], Vec<Proxy>), Fleet<'a>)> {
    let older = rig.cluster.create_pool(&pool(0)).await?;
    in_another_second(&older).await?;
    rig.cluster.create_pool(&pool(1)).await?;
    let mut proxies = Vec::new();
    for _ in 0..REPLICAS {
        proxies.push(Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?);
    }
    let mut fleet = Fleet::new(rig);
    let planted: Vec<Vec<Planted>> = proxies.iter().map(plant).collect();
    let began = Instant::now();
    let is_over = || began.elapsed() > STORM && (has_met_all(&planted) || began.elapsed() > LONGEST_STORM);
    let (first, second, third, ()) = tokio::try_join!(
        suffer(rig, &proxies[0], flags, is_over, 1),
        suffer(rig, &proxies[1], flags, is_over, 2),
        suffer(rig, &proxies[2], flags, is_over, 3),
        load(rig, &mut fleet, promise, is_over),
    )?;
    for (replica, planted) in planted.iter().enumerate() {
        for planted in planted {
            eprintln!("replica {replica}: {planted}");
        }
    }
    ensure!(has_met_all(&planted), "something of this never happened in {:?}", began.elapsed());
    drop(planted);
    Ok((([first, second, third], proxies), fleet))
}

/// Two pools of one range with blocks of different sizes. The older pool has the range.
fn pool(number: u8) -> PoolSpec {
    let pool = PoolSpec::new(format!("p{number}")).select("zone", "a").with("reuseAfterNodeLoss", "1s");
    pool.ipv4(28 - number, &["10.1.0.0/18"])
}

/// The range in the older pool: all of it, or none, so that the younger pool has it.
fn range(wave: usize) -> Value {
    let cidrs = if wave.is_multiple_of(2) { json!([]) } else { json!([{"cidr": "10.1.0.0/18"}]) };
    json!({"ipv4": {"cidrs": cidrs}})
}

/// Every fault on every request. Faults on the first request come first.
fn plant(proxy: &Proxy) -> Vec<Planted> {
    let faults = REQUESTS.into_iter().flat_map(|request| FAULTS.map(|fault| (request, fault)));
    let plant =
        |((verb, kind), fault)| proxy.plant(Requests::new(verb, kind), fault, Often::Sometimes(0.05, 50));
    faults.map(plant).collect()
}

/// Whether every fault has happened to some request, and some fault to every request, at any of the replicas.
fn has_met_all(planted: &[Vec<Planted>]) -> bool {
    let fired = |request: usize, fault: usize| {
        planted.iter().any(|of_replica| of_replica[request * FAULTS.len() + fault].fired() > 0)
    };
    let every_request =
        (0..REQUESTS.len()).all(|request| (0..FAULTS.len()).any(|fault| fired(request, fault)));
    let every_fault = (0..FAULTS.len()).all(|fault| (0..REQUESTS.len()).any(|request| fired(request, fault)));
    every_request && every_fault
}

/// The life of one replica. Returns the surviving process.
async fn suffer(
    rig: &Rig,
    proxy: &Proxy,
    flags: &[&str],
    is_over: impl Fn() -> bool,
    seed: u64,
) -> Result<Controller> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut controller = Controller::start_ready_behind(&rig.control_plane, proxy, flags).await?;
    while !is_over() {
        let pause = Duration::from_millis(rng.u64(200..3000));
        // A storm has no event to wait for.
        match rng.u8(0..6) {
            0 => {
                controller.sigkill().await?;
                tokio::time::sleep(pause / 4).await;
                controller = Controller::start_ready_behind(&rig.control_plane, proxy, flags).await?;
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
    Ok(controller)
}

async fn load(rig: &Rig, fleet: &mut Fleet<'_>, promise: Promise, is_over: impl Fn() -> bool) -> Result<()> {
    let mut wave = 0;
    while !is_over() {
        let names = Fleet::names(wave * WAVE..(wave + 1) * WAVE);
        let (leaving, returning) = (names[..WAVE / 2].to_vec(), names[..WAVE / 4].to_vec());
        fleet.join(&names).await?;
        if promise == Promise::Service {
            fleet.wait_ready(SOON).await?;
        } else {
            fleet.wait_ready_or(A_WHILE).await?;
        }
        rig.cluster.patch_pool("p0", range(wave)).await?;
        fleet.fill(&names, 11);
        fleet.leave(&leaving).await?;
        fleet.wait_gone(&leaving, SOON).await?;
        fleet.join(&returning).await?;
        wave += 1;
    }
    eprintln!("{wave} waves");
    if promise == Promise::Service { fleet.wait_ready(SOON).await } else { Ok(()) }
}
