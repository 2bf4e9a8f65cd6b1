//! Every way in which an answer can be lost, on every write: nothing leaks, and nothing is given twice.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::fleet::Fleet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::{Fault, Often, Planted, Proxy, Requests, Verb};
use crate::support::rig::under_oracle;

/// For each wait: some answers are lost several times in a row, each costs three seconds and a growing pause.
const SOON: Duration = Duration::from_secs(90);

/// How long the controller waits for an answer. A machine that is busy with other tests needs a second for some.
const REQUEST_TIMEOUT: &str = "3s";

/// Later than the controller waits: by then it has read that nothing was written, and may have done something else.
const LATE: Duration = Duration::from_secs(4);

/// Every way.
const FAULTS: [Fault; 9] = [
    Fault::AnswerLost,
    Fault::Late(LATE),
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::Status(409),
    Fault::Status(422),
    Fault::TooMany(1),
    Fault::Status(500),
    Fault::Status(504),
];

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_to_writes_leak_nothing() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"]);
        let pool = pool.ipv6(124, &["fd00:10:1::/112"]).with("reuseAfterNodeLoss", "1s");
        rig.cluster.create_pool(&pool).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let flags = ["--min-write-interval", "1s", "--request-timeout", REQUEST_TIMEOUT];
        let mut controller = Controller::start_ready_behind(&rig.control_plane, &proxy, &flags).await?;

        let mut planted: Vec<Planted> = Vec::new();
        for (verb, kind) in [
            (Verb::Create, Kind::Block),
            (Verb::Patch, Kind::CiliumNode),
            (Verb::Patch, Kind::Block),
            (Verb::Delete, Kind::Block),
        ] {
            let plant = |fault| proxy.plant(Requests::new(verb, kind), fault, Often::Sometimes(0.15, 4));
            planted.extend(FAULTS.map(plant));
        }
        for fault in [Fault::AnswerLost, Fault::CutBefore, Fault::Status(500), Fault::TooMany(1)] {
            // The reads that settle an unknown outcome.
            for kind in [Kind::Block, Kind::CiliumNode] {
                planted.push(proxy.plant(Requests::new(Verb::Read, kind), fault, Often::Sometimes(0.1, 2)));
            }
        }

        let mut fleet = Fleet::new(rig);
        let staying = Fleet::names(0..20);
        fleet.join(&staying).await?;
        fleet.wait_ready(SOON).await?;
        fleet.fill(&staying, 11);
        for round in 1..10 {
            if planted.iter().all(|planted| planted.fired() > 0) {
                break;
            }
            let passing = Fleet::names(round * 100..round * 100 + 20);
            fleet.join(&passing).await?;
            fleet.wait_ready(SOON).await?;
            fleet.leave(&passing).await?;
            fleet.wait_gone(&passing, SOON).await?;
            fleet.wait_nothing_leaks(SOON).await?;
        }
        for planted in &planted {
            eprintln!("{planted}");
            ensure!(planted.fired() > 0, "{planted}");
        }
        fleet.wait_blocks(&staying, 4, SOON).await?;
        fleet.wait_one_more_pod_each(SOON).await?;
        fleet.wait_all_cooled(SOON).await?;
        controller.wait_ready().await?;
        Ok((controller, proxy))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_to_first_lists_and_watches_are_asked_for_again() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"])).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let mut planted = Vec::new();
        for fault in [Fault::AnswerLost, Fault::CutBefore, Fault::Status(500), Fault::TooMany(1)] {
            for verb in [Verb::Read, Verb::Watch] {
                planted.extend(
                    Kind::ALL.map(|kind| proxy.plant(Requests::new(verb, kind), fault, Often::Times(1))),
                );
            }
        }
        let flags = ["--min-write-interval", "1s", "--request-timeout", REQUEST_TIMEOUT];
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, &flags).await?;
        let mut fleet = Fleet::new(rig);
        let names = Fleet::names(0..3);
        fleet.join(&names).await?;
        fleet.wait_ready(SOON).await?;
        for planted in &planted {
            eprintln!("{planted}");
            ensure!(planted.fired() == 1, "{planted}");
        }
        Ok((controller, proxy))
    })
    .await
}

/// One line for each step in the life of a block, also where the answer to it was lost.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_lose_no_line_of_the_log() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/24"]);
        rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", "1s")).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let flags = ["--request-timeout", REQUEST_TIMEOUT];
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, &flags).await?;
        let planted = [
            (Verb::Create, Kind::Block),
            (Verb::Patch, Kind::CiliumNode),
            (Verb::Patch, Kind::Block),
            (Verb::Delete, Kind::Block),
        ]
        // Of patches of the claim both: to Releasing and to Cooling.
        .map(|(verb, kind)| proxy.plant(Requests::new(verb, kind), Fault::AnswerLost, Often::Times(2)));

        let reported = |step: &str| format!("{step} node=n000 pool=\"p\" block=");
        let mut fleet = Fleet::new(rig);
        let names = Fleet::names(0..2);
        fleet.join(&names).await?;
        fleet.wait_ready(SOON).await?;
        // Before that is settled, it would be found deleted.
        controller.wait_logged(&reported("Published"), SOON).await?;
        fleet.leave(&names[..1]).await?;
        fleet.wait_gone(&names[..1], SOON).await?;
        fleet.wait_all_cooled(SOON).await?;

        for planted in &planted[..3] {
            ensure!(planted.fired() == 2, "{planted}");
        }
        ensure!(planted[3].fired() > 0, "{}", planted[3]);
        for step in ["Releasing", "Cooling", "Freed"] {
            controller.wait_logged(&reported(step), SOON).await?;
        }
        let log = std::fs::read_to_string(controller.log())?;
        for step in ["Claimed", "Published", "Releasing", "Cooling", "Freed"] {
            ensure!(log.matches(&reported(step)).count() == 1, "{step}:\n{log}");
        }
        ensure!(
            log.contains("no answer to the update of the claim; read the claim instead"),
            "no move was \
             settled by reading:\n{log}"
        );
        Ok((controller, proxy))
    })
    .await
}
