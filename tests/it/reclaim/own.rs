//! An agent with its own addresses outside of the first block, on a node that was served before it was ours.

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::node::{FLAGS, KEPT, Scene, pool};
use crate::scene::{SOON, ask, ask_many, wait_use_written};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, claim};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

const FIRST: &str = "10.1.0.0/28";
const OWN: &str = "10.1.0.16/28";

/// Claims and publishes two blocks, the first without addresses, so that the agent takes its own from the second.
async fn publish_by_hand(rig: &Rig) -> Result<()> {
    rig.cluster.wait_published("n", "nothing yet", SOON, |_| true).await?;
    let uid = rig.cluster.read(Kind::Node, "n").await?.metadata.uid.context("its uid")?;
    for cidr in [FIRST, OWN] {
        rig.cluster.create(&claim(cidr, "p", "n", &uid, "Held"), Kind::Block).await?;
    }
    let entries: Map<String, Value> =
        OWN.parse::<IpNet>()?.hosts().map(|address| (address.to_string(), json!({}))).collect();
    let ipam = json!({"spec": {"ipam": {"podCIDRs": [FIRST, OWN], "pool": entries}}});
    rig.cluster.patch(Kind::CiliumNode, "n", ipam).await.map(drop)
}

/// The block with the addresses of the agent would never be empty: it does not start to drain, and others do.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_the_agents_own_addresses_stays_and_others_leave() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let (mut scene, ()) = tokio::try_join!(Scene::join(rig, "n"), publish_by_hand(rig))?;
        let own = scene.held().await?;
        let cidr: IpNet = OWN.parse()?;
        ensure!(own.len() == 2 && own.keys().all(|address| cidr.contains(address)), "{own:?}");

        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        rig.cluster.wait_published("n", "both blocks", SOON, |seen| seen.pool.len() > 30).await?;
        let n_free = rig.cluster.published("n").unwrap_or_default().pool.len() - own.len();
        ask_many(rig, &scene.agent, "ns/first-", n_free).await?;
        let three = |seen: &Published| seen.pod_cidrs.len() == 3 && seen.pool.len() > 46;
        let third = rig.cluster.wait_published("n", "a third block", SOON, three).await?.pod_cidrs[2].clone();
        // More than the agent has in the block of its own addresses.
        for number in 0..KEPT {
            ask(rig, &scene.agent, &format!("ns/kept-{number}")).await?;
        }
        wait_use_written(rig, &scene.agent, "n").await?;
        scene.shrink().await?;
        let drains = async || Ok(scene.claim(rig, &third).is_some_and(|claim| claim.state == "Draining"));
        rig.cluster
            .wait_until("the third block to drain", SOON, drains)
            .await
            .context(scene.reported(rig, OWN))?;
        for number in 0..KEPT {
            scene.agent.release(&format!("ns/kept-{number}")).await?;
        }
        scene.wait_free(rig, &third).await?;
        scene.restart(rig).await?;
        ensure!(scene.held().await? == own, "it has other addresses of its own");
        ensure!(
            scene.claim(rig, OWN).is_some_and(|claim| claim.state == "Held"),
            "{}",
            scene.reported(rig, OWN)
        );

        rig.cluster.delete_pool("p").await?;
        controller.wait_logged("the agent uses 10.1.0.", SOON).await?;
        Ok((controller, scene))
    })
    .await
}
