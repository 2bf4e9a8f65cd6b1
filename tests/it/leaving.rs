//! Nodes that are deleted: when their blocks are freed, how long they cool, and which node gets them next.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::chronicle::{Chronicle, delete_node, uid, wait_all, wait_claims, wait_gone};
use crate::scene::{PROMPT, fill, join, join_one, nodes, versions, wait_claims_carried, wait_ready};
use crate::support::agent::Agent;
use crate::support::control_plane::{Collect, Options};
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim, claim_name};
use crate::support::rig::under_oracle;

/// An address is not reused quickly: another node gets the block of a lost one only after it has cooled.
#[tokio::test(flavor = "multi_thread")]
async fn the_block_of_a_lost_node_cools_before_another_gets_it() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"]).with("reuseAfterNodeLoss", "3s");
        rig.cluster.create_pool(&pool.with("reuseAfter", "1h")).await?;
        let chronicle = Chronicle::start(rig);
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let first = join_one(rig, NodeSpec::new("first")).await?;
        first.allocate("ns/pod")?;
        let second = join(rig, &[NodeSpec::new("second")]).await?;

        first.power_off().await;
        rig.cluster.delete_node("first").await?;
        wait_ready(rig, &second).await?;
        wait_claims_carried(rig).await?;
        let story = chronicle.of_block("10.1.0.0/28");
        let expected =
            ["first Held", "first Releasing NodeGone", "first Cooling NodeGone", "gone", "second Held"];
        ensure!(story == expected, "{story:?}");
        let cooled = chronicle.between("10.1.0.0/28", "first Cooling NodeGone", "second Held")?;
        ensure!(cooled >= Duration::from_secs(3), "it cooled for {cooled:?}");
        Ok((controller, second))
    })
    .await
}

/// A `deletionTimestamp` removes nothing: a Node that is being deleted still runs its pods. So does a machine whose
/// Node is deleted and whose CiliumNode is not. Both keep everything, and the first even grows.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_its_blocks_until_node_and_ciliumnode_are_gone() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // Its pods fill two blocks, so without a limit it would ask for a third at some later time.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("perNode", json!({"maxBlocks": 2}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        rig.control_plane.collect_garbage(Collect::Off).await?;

        let finalizers = json!({"metadata": {"finalizers": ["example.com/machine"]}});
        rig.cluster.patch(Kind::Node, "n", finalizers).await?;
        rig.cluster.delete_node("n").await?;
        ensure!(rig.cluster.read(Kind::Node, "n").await?.metadata.deletion_timestamp.is_some());
        fill(rig, &agent, "n", 2).await?;
        wait_claims_carried(rig).await?;

        rig.cluster.patch(Kind::Node, "n", json!({"metadata": {"finalizers": null}})).await?;
        wait_gone(rig, Kind::Node, "n").await?;
        // The controller reacts to the deletion of the Node before it serves a later node.
        let canary = join_one(rig, NodeSpec::new("canary")).await?;
        let claims = rig.cluster.claims_of("n");
        ensure!(claims.iter().all(|claim| claim.state == "Held"), "{claims:?}");
        ensure!(rig.cluster.published("n").is_some_and(|seen| seen.pod_cidrs.len() == 2), "taken off");

        rig.control_plane.collect_garbage(Collect::On).await?;
        wait_all(rig, "n", claims.len(), "Cooling").await?;
        Ok((controller, agent, canary))
    })
    .await
}

/// The reason of a claim determines how long it cools. A `since` of long ago is not enough, because another clock may
/// have written it. This process must itself have seen the claim cooling.
#[tokio::test(flavor = "multi_thread")]
async fn the_reason_tells_how_long_a_block_cools() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let times = [("short", "2s", "1h"), ("long", "1h", "2s")];
        for (index, (name, reclaimed, lost)) in times.into_iter().enumerate() {
            let pool = PoolSpec::new(name).ipv4(28, &[&format!("10.{index}.0.0/24")]);
            let pool = pool.with("reuseAfter", reclaimed).with("reuseAfterNodeLoss", lost);
            rig.cluster.create_pool(&pool.select("zone", name)).await?;
        }
        // A controller before this one left them like this.
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let node = uid(rig, Kind::Node, "n").await?;
        let cidrs = ["10.0.0.0/28", "10.0.0.16/28", "10.1.0.0/28", "10.1.0.16/28"];
        for (index, cidr) in cidrs.into_iter().enumerate() {
            let pool = times[index / 2].0;
            let reclaimed = index % 2 == 0;
            // A reclaimed block belongs to a living node, and a lost one does not.
            let (owner, uid) = if reclaimed { ("n", node.as_str()) } else { ("lost", "uid") };
            rig.cluster.create(&claim(cidr, pool, owner, uid, "Held"), Kind::Block).await?;
            let steps: &[Value] = if reclaimed {
                &[
                    json!({"state": "Draining", "ciliumNodeUID": "uid"}),
                    json!({"state": "Releasing", "reason": "Reclaimed"}),
                    json!({"state": "Cooling"}),
                ]
            } else {
                &[json!({"state": "Releasing", "reason": "NodeGone"}), json!({"state": "Cooling"})]
            };
            for step in steps {
                rig.cluster.patch(Kind::Block, &claim_name(cidr), json!({"spec": step})).await?;
            }
        }

        let began = Instant::now();
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let kept = ["10.0.0.16-28", "10.1.0.0-28"];
        rig.cluster
            .wait_until("two claims to have cooled", crate::scene::SOON, async || {
                Ok(rig.cluster.objects(Kind::Block).len() <= kept.len())
            })
            .await?;
        let cooled = began.elapsed();
        ensure!(cooled >= Duration::from_secs(2), "freed after {cooled:?}, whatever the clock says");
        let left: Vec<_> =
            rig.cluster.objects(Kind::Block).iter().filter_map(|block| block.metadata.name.clone()).collect();
        ensure!(left == kept, "{left:?}");
        Ok(controller)
    })
    .await
}

/// A controller that is down while nodes are deleted misses nothing: its lists at the start do not have them.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_left_while_no_controller_ran_are_noticed_at_the_start() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"]).with("reuseAfterNodeLoss", "1s");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("old", 4)).await?;
        wait_ready(rig, &agents).await?;
        controller.sigkill().await?;
        for agent in agents {
            let name = agent.name().to_owned();
            agent.power_off().await;
            delete_node(rig, &name).await?;
        }
        let agents = join(rig, &nodes("new", 4)).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agents))
    })
    .await
}

/// A claim that a user deletes stays, by its finalizer, as long as its node has the block and then until it has cooled.
/// A machine whose Node is deleted may still run its pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_deleted_by_hand_stays_until_its_node_is_gone_and_it_has_cooled() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"]).with("reuseAfterNodeLoss", "1s");
        rig.cluster.create_pool(&pool).await?;
        let chronicle = Chronicle::start(rig);
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = join_one(rig, NodeSpec::new("n")).await?;
        let before = versions(rig, &[Kind::CiliumNode]).await?;

        rig.cluster.delete(Kind::Block, "10.1.0.0-28").await?;
        let waiting = join(rig, &[NodeSpec::new("waiting")]).await?;
        let said =
            |rig: &crate::support::rig::Rig| crate::scene::pool_status(rig, "p")["nodes"]["waiting"] == 1;
        rig.cluster.wait_until("a waiting node", crate::scene::SOON, async || Ok(said(rig))).await?;
        ensure!(versions(rig, &[Kind::CiliumNode]).await?.is_superset(&before), "its CiliumNode was written");
        agent.allocate("ns/pod")?;
        wait_claims(rig, "n", "a claim in Held", |claims| claims.len() == 1 && claims[0].state == "Held")
            .await?;

        agent.power_off().await;
        rig.cluster.delete_node("n").await?;
        wait_ready(rig, &waiting).await?;
        wait_claims_carried(rig).await?;
        let story = chronicle.of_block("10.1.0.0/28");
        let expected = ["n Held", "n Releasing NodeGone", "n Cooling NodeGone", "gone", "waiting Held"];
        ensure!(story == expected, "{story:?}");
        Ok((controller, waiting))
    })
    .await
}
