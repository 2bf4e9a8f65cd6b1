//! Nodes that fill up: further blocks, from the next pool if the first is empty, up to a limit, and new capacity for
//! waiting nodes.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::scene::{
    PROMPT, SOON, cilium_node, fill, join, join_one, n_claims, nodes, pool_status, versions,
    wait_claims_carried, wait_n_claims, wait_ready, wait_status,
};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, assert_no_writes_proposed};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::under_oracle;

/// A restart counts nothing twice, and the counts of the status are never higher than the objects show.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_under_load_grows_to_four_blocks_and_no_further() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(27, &["10.1.0.0/20"]).with("perNode", json!({"maxBlocks": 4}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let busy = Agent::Fake(join_one(rig, NodeSpec::new("busy")).await?);
        let idle = join_one(rig, NodeSpec::new("idle")).await?;
        fill(rig, &busy, "busy", 4).await?;
        ensure!(busy.held().await?.len() == 4 * 30, "four blocks of 30 addresses");

        // All addresses are used, and it gets no fifth block. It does not count as waiting, and the log reports its
        // limit.
        let full = |status: &Value| status["ipv4"]["addresses"]["used"] == 4 * 30 + 2;
        let status = wait_status(rig, "p", "all use", full).await?;
        ensure!(
            status["nodes"]
                == json!({"selected": 2, "served": 2, "waiting": 0, "wantGrowth": 0, "without": 0}),
            "{status}"
        );
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(log.lines().any(|line| line.contains("NodeAtLimit") && line.contains("busy")), "{log}");
        ensure!(status["ipv4"]["addresses"]["published"] == 5 * 30, "{status}");
        ensure!(status["ipv4"]["blocks"]["held"] == 5, "{status}");
        assert_no_writes_proposed(&rig.control_plane).await?;
        wait_n_claims(rig, 5).await?;
        ensure!(rig.cluster.claims_of("idle").len() == 1, "{:?}", rig.cluster.claims_of("idle"));

        // The same counts after a restart, by a process that did not see their causes.
        ensure!(controller.sigterm_and_wait().await?.success(), "SIGTERM");
        let before = rig.cluster.read(Kind::Pool, "p").await?.data["status"].clone();
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        idle.allocate("ns/one-more")?;
        let one_more = |status: &Value| status["ipv4"]["addresses"]["used"] == 4 * 30 + 3;
        let after = wait_status(rig, "p", "one more pod", one_more).await?;
        ensure!(before["ipv4"]["blocks"] == after["ipv4"]["blocks"], "{before} and {after}");
        ensure!(after["ipv4"]["addresses"]["published"] == 5 * 30, "{after}");
        Ok(controller)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_spills_over_into_the_next() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // The first pool has two blocks, and two nodes take one each.
        let first = PoolSpec::new("first").ipv4(28, &["10.1.0.0/27"]).with("priority", 10);
        let limits = json!({"maxBlocks": 3});
        rig.cluster.create_pool(&first.with("perNode", limits)).await?;
        rig.cluster.create_pool(&PoolSpec::new("second").ipv4(29, &["10.2.0.0/24"])).await?;
        let others = PoolSpec::new("others").select("zone", "other").ipv4(28, &["10.3.0.0/24"]);
        rig.cluster.create_pool(&others.with("priority", 20)).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let grows = Agent::Fake(join_one(rig, NodeSpec::new("grows")).await?);
        let _beside = join_one(rig, NodeSpec::new("beside")).await?;
        fill(rig, &grows, "grows", 3).await?;
        wait_claims_carried(rig).await?;
        let from: Vec<_> = rig.cluster.claims_of("grows").into_iter().map(|claim| claim.pool).collect();
        ensure!(from == ["first", "second", "second"], "{from:?}");
        let exhausted = |status: &Value| {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions
                .filter(|condition| condition["type"] == "Exhausted" && condition["status"] == "True")
                .count()
                == 1
        };
        wait_status(rig, "first", "the condition Exhausted", exhausted).await?;
        ensure!(!exhausted(&pool_status(rig, "second")), "the second pool has free blocks");
        Ok(controller)
    })
    .await
}

/// Nothing looks for work by time: from quiet to growth, one change of `status.ipam.used` is the only input.
/// `one_status_change_is_the_only_input_that_growth_needs` proves without a clock that the plan needs no other.
#[tokio::test(flavor = "multi_thread")]
async fn one_change_of_used_leads_to_claim_and_patch() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/20"])).await?;
        // The test plays the agent, so that it is the only writer.
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        rig.cluster.create(&cilium_node("n", &json!({"pools": {}})), Kind::CiliumNode).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let first = rig.cluster.wait_published("n", "a block", SOON, |seen| seen.pool.len() == 14).await?;
        wait_status(rig, "p", "a served node", |status| {
            status["nodes"]["served"] == 1 && status["ipv4"]["addresses"]["published"] == 14
        })
        .await?;
        assert_no_writes_proposed(&rig.control_plane).await?;
        let quiet = versions(rig, &Kind::ALL).await?;
        ensure!(controller.get("/readyz").await?.0 == 200, "not ready");
        let (code, page) = controller.get("/map").await?;
        ensure!(code == 200 && page.contains("Address space"), "{code} {page}");
        ensure!(versions(rig, &Kind::ALL).await? == quiet, "something was written in between");

        let used: serde_json::Map<_, _> =
            first.pool.keys().take(10).map(|address| (address.clone(), json!({"owner": "ns/pod"}))).collect();
        let status = json!({"status": {"ipam": {"used": used}}});
        rig.cluster.patch_status(Kind::CiliumNode, "n", status).await?;
        let grown = rig.cluster.wait_published("n", "two blocks", SOON, |seen| seen.pool.len() == 28).await?;
        ensure!(grown.pod_cidrs.len() == 2, "{:?}", grown.pod_cidrs);
        ensure!(grown.pod_cidrs[0] == first.pod_cidrs[0], "the primary block moved: {:?}", grown.pod_cidrs);
        wait_n_claims(rig, 2).await?;
        controller
            .wait_answer("/metrics", "one grant of each need", SOON, |answer| {
                let count = |need| format!("grant_duration_seconds_count{{need=\"{need}\"}} 1\n");
                let counts = ["first", "growth"].map(count);
                Ok(answer.as_ref().is_ok_and(|(_, text)| counts.iter().all(|count| text.contains(count))))
            })
            .await?;
        Ok(controller)
    })
    .await
}

/// New capacity of any kind wakes waiting nodes. They need no further event of their own.
#[tokio::test(flavor = "multi_thread")]
async fn new_capacity_serves_those_who_wait() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // A range of another writer, in the middle of the pool and without a claim.
        let foreign = Some("10.1.4.0/28");
        rig.control_plane.allow("cidr-without-claim", Some("foreign"), foreign).await?;
        rig.cluster.create_node(&NodeSpec::new("foreign").label("other", "yes")).await?;
        let carried = json!({"podCIDRs": foreign.into_iter().collect::<Vec<_>>()});
        rig.cluster.create(&cilium_node("foreign", &carried), Kind::CiliumNode).await?;

        let selector = json!({"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]});
        let mut pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"]).with("nodeSelector", selector.clone());
        pool.spec["ipv4"]["cidrs"] =
            json!([{"cidr": "10.1.0.0/28"}, {"cidr": "10.1.1.0/28", "state": "Cordoned"}, {"cidr": "10.1.4.0/28"}]);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("n", 5)).await?;

        let served = |n: usize| {
            async move |what: &str| {
                let held = async || Ok(n_claims(rig) == n);
                rig.cluster.wait_until(what, SOON, held).await?;
                let waiting = 5 - n;
                wait_status(rig, "p", &format!("{waiting} waiting nodes"), |status| {
                    status["nodes"]["waiting"] == waiting
                })
                .await
                .map(drop)
            }
        };
        served(1)("the only block to be taken").await?;
        pool.spec["ipv4"]["cidrs"][1] = json!({"cidr": "10.1.1.0/28", "state": "Active"});
        rig.cluster.patch_pool("p", json!({"ipv4": pool.spec["ipv4"]})).await?;
        served(2)("the uncordoned range to be taken").await?;
        let cidrs = pool.spec["ipv4"]["cidrs"].as_array_mut().context("a list")?;
        cidrs.push(json!({"cidr": "10.1.2.0/28"}));
        rig.cluster.patch_pool("p", json!({"ipv4": pool.spec["ipv4"]})).await?;
        served(3)("the added range to be taken").await?;
        rig.cluster.delete(Kind::CiliumNode, "foreign").await?;
        rig.cluster.delete_node("foreign").await?;
        served(4)("the range to be taken that somebody else left").await?;
        let next = PoolSpec::new("next").ipv4(28, &["10.2.0.0/28"]).with("nodeSelector", selector);
        rig.cluster.create_pool(&next).await?;
        served(5)("the new pool to be used").await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}
