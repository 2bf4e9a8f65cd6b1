//! The controller is killed at any moment, and the next one continues from the objects of the cluster.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::scene::{
    PROMPT, SOON, cilium_node, join, n_claims, nodes, versions, wait_claims_carried, wait_ready,
};
use crate::support::agent::FakeAgent;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, PoolSpec, claim};
use crate::support::rig::under_oracle;

const MANY: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn killed_five_times_while_two_hundred_nodes_join() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(27, &["10.1.0.0/18"])).await?;
        let killed = async {
            let mut controller = Controller::start_ready(&rig.control_plane, &[]).await?;
            let mut n_in_the_middle = 0;
            for claims in [10, 30, 50, 75, 100] {
                let reached = async || Ok(n_claims(rig) >= claims);
                rig.cluster.wait_until(&format!("{claims} claims"), SOON, reached).await?;
                controller.sigkill().await?;
                let n_claimed = versions(rig, &[Kind::Block]).await?.len();
                eprintln!("killed at {n_claimed} claims");
                n_in_the_middle += usize::from(n_claimed < MANY);
                controller = Controller::start(&rig.control_plane, &[])?;
            }
            // If this process is slow, some kills come too late.
            ensure!(n_in_the_middle >= 3, "all were served before the other kills");
            Ok(controller)
        };
        let specs = nodes("n", MANY);
        let (mut controller, agents) = tokio::try_join!(killed, join(rig, &specs))?;
        controller.wait_ready().await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        ensure!(n_claims(rig) == MANY, "{} claims for {MANY} nodes", n_claims(rig));
        Ok(controller)
    })
    .await
}

/// A claim is made before it is published, and a controller may be killed between the two.
#[tokio::test(flavor = "multi_thread")]
async fn half_finished_grants_are_finished_without_another_claim() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/20"])).await?;
        rig.cluster.create_nodes(&nodes("n", 3)).await?;
        // Claimed and not published; claimed, and half of it published; claimed before the agent has come.
        for (number, third) in [0, 64, 128].into_iter().enumerate() {
            let name = format!("n{number}");
            let uid = rig.cluster.read(Kind::Node, &name).await?.metadata.uid.unwrap_or_default();
            let claim = claim(&format!("10.1.0.{third}/28"), "p", &name, &uid, "Held");
            rig.cluster.create(&claim, Kind::Block).await?;
        }
        rig.cluster.create(&cilium_node("n0", &json!({"pools": {}})), Kind::CiliumNode).await?;
        let half = json!({"podCIDRs": ["10.1.0.64/28"], "pool": {"10.1.0.65": {}, "10.1.0.66": {}}});
        rig.cluster.create(&cilium_node("n1", &half), Kind::CiliumNode).await?;
        let before = versions(rig, &[Kind::Block]).await?;

        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agents: Vec<_> = ["n0", "n1", "n2"].map(|name| rig.agents.fake(name)).into();
        agents.iter_mut().try_for_each(FakeAgent::start)?;
        wait_ready(rig, &agents).await?;
        for (number, third) in [0, 64, 128].into_iter().enumerate() {
            let (name, block) = (format!("n{number}"), format!("10.1.0.{third}/28"));
            // These claims exclude nothing: the addresses that a block offers are in its claim.
            rig.cluster
                .wait_published(&name, &block, SOON, |seen| {
                    seen.pod_cidrs == [block.clone()] && seen.pool.len() == 16
                })
                .await?;
        }
        ensure!(names(&versions(rig, &[Kind::Block]).await?) == names(&before), "claims were made or lost");
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}

/// SIGTERM stops it at once and cleanly during its work. It completes the writes in flight, and the next controller
/// does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_it_cleanly_in_the_middle_of_work() -> Result<()> {
    const WAVE: usize = 60;
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(27, &["10.1.0.0/19"])).await?;
        let (mut agents, mut n_left) = (Vec::new(), 0);
        // If this process is slow, the signal comes after the work. Then there is more of it.
        for wave in 0..3 {
            let controller = Controller::start_ready(&rig.control_plane, &[]).await?;
            let specs = nodes(&format!("n{wave}-"), WAVE);
            let ended = async {
                let begun = async || Ok(n_claims(rig) >= wave * WAVE + 10);
                rig.cluster.wait_until("ten claims", SOON, begun).await?;
                let log = controller.log().to_owned();
                let status = controller.sigterm_and_wait().await?;
                ensure!(status.success(), "it ended with {status}");
                let log = std::fs::read_to_string(log)?;
                ensure!(log.contains("all_writes_ended=true"), "writes were cut off:\n{log}");
                // No process writes any more. The store shows the writes in flight as they were answered.
                Ok(versions(rig, &[Kind::Block]).await?.len())
            };
            let (n_claimed, joined) = tokio::try_join!(ended, join(rig, &specs))?;
            agents.extend(joined);
            n_left = agents.len() - n_claimed;
            eprintln!("{n_left} of {WAVE} nodes were left to the next");
            if n_left > 0 {
                break;
            }
        }
        ensure!(n_left > 0, "no signal came in the middle of work");
        let controller = Controller::start_ready(&rig.control_plane, &[]).await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        ensure!(n_claims(rig) == agents.len(), "{} claims for {} nodes", n_claims(rig), agents.len());
        Ok((controller, agents))
    })
    .await
}

fn names(versions: &BTreeSet<(Kind, String, String)>) -> BTreeSet<&str> {
    versions.iter().map(|(_, name, _)| name.as_str()).collect()
}
