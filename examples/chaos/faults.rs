//! The faults of requests, of servers and of the router's daemon.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::summary::Summary;
use crate::support::control_plane::{ControlPlane, Store, Target};
use crate::support::gobgp_daemon::Daemon;
use crate::support::objects::Kind;
use crate::support::proxy::{Fault, Often, Planted, Proxy, Requests, Verb};
use crate::world::Over;

/// The requests that change a node or a claim.
const WRITES: [(Verb, Kind); 4] = [
    (Verb::Create, Kind::Block),
    (Verb::Patch, Kind::Block),
    (Verb::Delete, Kind::Block),
    (Verb::Patch, Kind::CiliumNode),
];

/// Their faults: before the server has seen them, and after it has carried them out.
const OF_WRITES: [Fault; 10] = [
    Fault::Delay(Duration::from_millis(700)),
    Fault::Late(Duration::from_millis(2500)),
    Fault::SlowAnswer(Duration::from_millis(900)),
    Fault::AnswerLost,
    Fault::CutAfter,
    Fault::StatusAfter(500),
    Fault::StatusAfter(504),
    Fault::StatusAfter(429),
    Fault::Status(500),
    Fault::Status(504),
];

/// The faults of every request, reads, watches and the Lease among them.
const OF_ALL: [Fault; 5] = [
    Fault::CutBefore,
    Fault::Status(500),
    Fault::Status(504),
    Fault::TooMany(1),
    Fault::Delay(Duration::from_millis(1500)),
];

/// The share of writes that each fault meets. With ten of them, one write in ten has one.
const SHARE_OF_WRITES: f64 = 0.01;

/// The share of all requests. A leader writes its Lease twice per second, and one fault may cost it the lead.
const SHARE_OF_ALL: f64 = 0.003;

/// Plants all of them.
pub(crate) fn plant(proxy: &Proxy) -> Vec<Planted> {
    let writes = WRITES
        .into_iter()
        .flat_map(|(verb, kind)| OF_WRITES.map(|fault| (Requests::new(verb, kind), fault, SHARE_OF_WRITES)));
    let all = OF_ALL.map(|fault| (Requests::all(), fault, SHARE_OF_ALL));
    let plant = |(requests, fault, share)| proxy.plant(requests, fault, Often::Sometimes(share, usize::MAX));
    writes.chain(all).map(plant).collect()
}

/// Counts the planted faults that have happened.
pub(crate) fn tally(planted: &[Planted], summary: &Summary) {
    for planted in planted {
        let fired = u64::try_from(planted.fired()).unwrap_or(u64::MAX);
        summary.add(&format!("request: {:?}", planted.fault()), fired);
    }
}

/// Takes servers away and brings them back, until the chaos is over.
pub(crate) async fn disturb_servers(
    plane: &ControlPlane,
    over: &Over,
    mut rng: fastrand::Rng,
    summary: &Summary,
) -> Result<()> {
    loop {
        if over.within(Duration::from_millis(rng.u64(20_000..60_000))).await {
            return Ok(());
        }
        let down = Duration::from_millis(rng.u64(100..8000));
        let (what, targets): (_, &[Target]) = match rng.u8(..4) {
            0 => ("etcd killed", &[Target::Etcd]),
            1 => ("API server killed", &[Target::ApiServer]),
            2 => ("API server and etcd killed", &[Target::ApiServer, Target::Etcd]),
            _ => ("store of etcd full", &[]),
        };
        if targets.is_empty() {
            plane.fill_store(Store::Full).await?;
            sleep(down).await;
            plane.fill_store(Store::Open).await?;
        }
        for target in targets {
            plane.kill(*target).await?;
        }
        if !targets.is_empty() {
            sleep(down).await;
        }
        for target in targets.iter().rev() {
            plane.restart(*target).await?;
        }
        summary.count(&format!("server: {what}"));
    }
}

/// Kills the daemon of the router and starts it with an empty table, until the chaos is over.
pub(crate) async fn disturb_daemon(
    mut daemon: Daemon,
    over: &Over,
    mut rng: fastrand::Rng,
    summary: &Summary,
) -> Result<Daemon> {
    while !over.within(Duration::from_millis(rng.u64(30_000..90_000))).await {
        daemon = daemon.restart().await?;
        summary.count("server: GoBGP daemon killed");
    }
    Ok(daemon)
}
