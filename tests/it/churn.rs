//! A cluster in which nodes come and are deleted in a random order. Two controllers both believe that they are the only
//! one; one of them is halted, and continues with its old view.
//!
//! There are few blocks for many nodes, and cooling is short, so another node soon gets the block of a deleted one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use serde_json::json;

use crate::chronicle::{wait_claims, wait_gone};
use crate::scene::{PROMPT, wait_claims_carried};
use crate::support::agent::FakeAgent;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// As many nodes as blocks, so that a node that loses its block may have to wait for a block of another node.
const NODES: usize = 8;
const STEPS: usize = 60;

/// Far longer than the absence of a node that returns at once: another node may get a block that has cooled.
const COOLING: Duration = Duration::from_secs(5);

/// A machine that returns without the block that it had shows the router's address of that block. Its first addresses
/// then wait for two reads of its Pods, a minute apart.
const SETTLED: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn nodes_come_and_go_beside_a_replica_that_is_halted_now_and_then() -> Result<()> {
    // A run can be repeated as far as the machine allows: this number determines the actions of the test.
    let seed = std::env::var("NODEIPAM_SEED").ok().and_then(|seed| seed.parse().ok());
    // In CI the seed is fixed, so every change is judged by the same run. Elsewhere each run is another one.
    let fixed = std::env::var_os("CI").map(|_| 1);
    let seed = seed.or(fixed).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("NODEIPAM_SEED={seed}");
    let rng = fastrand::Rng::with_seed(seed);
    under_oracle(Options::default(), async |rig| churn(rig, rng).await)
        .await
        .with_context(|| format!("NODEIPAM_SEED={seed}"))
}

async fn churn(rig: &Rig, mut rng: fastrand::Rng) -> Result<impl Sized + use<>> {
    let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/25"]).with("perNode", json!({"maxBlocks": 1}));
    let cooling = humantime::format_duration(COOLING).to_string();
    rig.cluster.create_pool(&pool.with("reuseAfterNodeLoss", cooling)).await?;
    let controllers = [
        Controller::start_ready(&rig.control_plane, PROMPT).await?,
        Controller::start_ready(&rig.control_plane, PROMPT).await?,
    ];
    let mut halted: Option<usize> = None;
    let mut machines: BTreeMap<String, Option<FakeAgent>> = BTreeMap::new();
    let mut story = Vec::new();
    for _ in 0..STEPS {
        rig.control_plane.alarm.check().with_context(|| story.join("\n"))?;
        let name = format!("n{}", rng.usize(..NODES));
        let step = rng.u8(..8);
        let machine = machines.remove(&name).flatten();
        let done = match (machine, step) {
            // One of the two is behind from now on, or wakes up and acts on its old view.
            (machine, 0) => {
                machines.insert(name, machine);
                if let Some(one) = halted.take() {
                    controllers[one].signal("CONT").await?;
                    format!("controller {one} goes on")
                } else {
                    let one = rng.usize(..controllers.len());
                    controllers[one].signal("STOP").await?;
                    halted = Some(one);
                    format!("controller {one} is halted")
                }
            }
            (None, _) => {
                rig.cluster.create_node(&NodeSpec::new(&name)).await?;
                let mut agent = rig.agents.fake(&name);
                agent.start()?;
                machines.insert(name.clone(), Some(agent));
                format!("{name} joins")
            }
            // Lost, or lost and back at once as another machine.
            (Some(agent), 1..=3) => {
                agent.power_off().await;
                rig.cluster.delete_node(&name).await?;
                wait_gone(rig, Kind::CiliumNode, &name).await?;
                format!("{name} is lost")
            }
            (Some(mut agent), 4) => {
                // Its machine keeps running, with its pods, and it returns as another Node.
                agent.stop().await;
                let absent = Instant::now();
                rig.cluster.delete_node(&name).await?;
                wait_gone(rig, Kind::CiliumNode, &name).await?;
                if absent.elapsed() > COOLING / 2 {
                    // On a slow machine its block may soon be another node's.
                    agent.power_off().await;
                    agent = rig.agents.fake(&name);
                }
                rig.cluster.create_node(&NodeSpec::new(&name)).await?;
                agent.start()?;
                machines.insert(name.clone(), Some(agent));
                format!("{name} returns as another Node")
            }
            (Some(agent), 5) => {
                if agent.wait_ready(Duration::from_millis(500)).await.is_ok() {
                    rig.cluster.delete(Kind::CiliumNode, &name).await?;
                    wait_gone(rig, Kind::CiliumNode, &name).await?;
                    agent.touch_node().await?;
                }
                machines.insert(name.clone(), Some(agent));
                format!("the CiliumNode of {name} is recreated")
            }
            (Some(agent), _) => {
                if agent.wait_ready(Duration::from_secs(1)).await.is_ok() {
                    agent.allocate_many(&format!("ns/{name}-{}-", story.len()), 2);
                }
                machines.insert(name.clone(), Some(agent));
                format!("pods come to {name}")
            }
        };
        story.push(done);
    }
    if let Some(one) = halted {
        controllers[one].signal("CONT").await?;
    }
    let settled = async {
        try_join_all(machines.values().flatten().map(|agent| agent.wait_ready(SETTLED))).await?;
        for (name, machine) in (0..NODES).map(|number| format!("n{number}")).map(|name| {
            let machine = machines.get(&name).is_some_and(Option::is_some);
            (name, machine)
        }) {
            wait_claims(rig, &name, "one claim or none", |claims| claims.len() == usize::from(machine))
                .await?;
        }
        wait_claims_carried(rig).await
    };
    settled.await.with_context(|| story.join("\n"))?;
    Ok((controllers, machines))
}
