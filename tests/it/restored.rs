//! etcd is restored from a backup while a controller runs (safety rule 8). An administrator then follows
//! `docs/how-to/restore-etcd.md`.

mod definitions;
pub(crate) mod page;
mod procedure;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::scene::{PROMPT, SOON, fill, join_one, wait_claims_carried};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::under_oracle;

/// A controller checks once a minute whether the store went back, and after every broken watch.
const NOTICED: Duration = Duration::from_secs(90);

/// More revisions than two starts of the API server write. A store that has passed the last seen revision before any
/// check can't be distinguished from one that continued.
const LOST_REVISIONS: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_ends_the_controller_and_no_address_in_use_is_given_again() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]);
        rig.cluster.create_pool(&pool.with("perNode", json!({"maxBlocks": 2}))).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        // An agent exits when a write of its CiliumNode fails ten times, and the servers are down for seconds.
        agent.stop().await?;
        rig.control_plane.backup().await?;
        agent.start()?;
        agent.wait_ready(SOON).await?;
        for round in 0..LOST_REVISIONS {
            let annotation = json!({"metadata": {"annotations": {"round": round.to_string()}}});
            rig.cluster.patch(Kind::Pool, "p", annotation).await?;
        }
        fill(rig, &agent, "n", 2).await?;
        let lost = rig.cluster.published("n").context("its CiliumNode")?.pod_cidrs[1].clone();
        ensure!(lost == "10.1.0.16/28", "{lost}");

        let log = controller.log().to_owned();
        rig.control_plane.restore().await?;
        let status = controller.wait_ended(NOTICED).await?;
        ensure!(!status.success(), "{status}");
        let log = std::fs::read_to_string(log)?;
        ensure!(log.contains("its store was restored from a backup"), "{log}");
        rig.cluster.cache().begin_anew().await?;
        ensure!(rig.cluster.claims_of("n").len() == 1, "{:?}", rig.cluster.claims_of("n"));
        ensure!(rig.cluster.published("n").is_some_and(|seen| seen.pod_cidrs == ["10.1.0.0/28"]), "restored");

        // The agent writes its use, including the addresses that no claim names any more.
        let pods = agent.held().await?;
        let (_, ended) = pods.iter().find(|(_, owner)| owner.starts_with("ns/")).context("a pod")?;
        agent.release(ended).await?;
        let held: BTreeSet<String> = agent.held().await?.keys().map(ToString::to_string).collect();
        rig.cluster
            .wait_published("n", "what its pods hold", SOON, |seen| {
                seen.used.as_ref().is_some_and(|used| used.keys().cloned().collect::<BTreeSet<_>>() == held)
            })
            .await?;

        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        // The oracle knows the addresses of pods, and would find one that is given twice.
        let newcomer = Agent::Fake(join_one(rig, NodeSpec::new("newcomer")).await?);
        fill(rig, &newcomer, "newcomer", 2).await?;
        let theirs = rig.cluster.published("newcomer").context("its CiliumNode")?.pod_cidrs;
        ensure!(!theirs.contains(&lost), "{theirs:?}");
        // The node is full, so it gets another block. Pods on lost addresses are recreated there.
        rig.cluster.wait_published("n", "another block", SOON, |seen| seen.pod_cidrs.len() == 2).await?;
        let offered = rig.cluster.published("n").context("its CiliumNode")?.pool;
        for (address, owner) in agent.held().await? {
            if !offered.contains_key(&address.to_string()) {
                agent.release(&owner).await?;
                agent.allocate(&owner).await?;
            }
        }
        let held = agent.held().await?;
        ensure!(
            held.keys().all(|address| offered.contains_key(&address.to_string())),
            "{held:?} of {offered:?}"
        );
        wait_claims_carried(rig).await?;
        Ok((controller, agent, newcomer))
    })
    .await
}
