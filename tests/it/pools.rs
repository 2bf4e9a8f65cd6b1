//! Pools that change while nodes hold blocks of them: an edit applies to future blocks, and no node loses anything.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::chronicle::{delete_node, in_another_second, wait_all, wait_gone};
use crate::scene::{
    PROMPT, SOON, fill, join, join_one, nodes, pool_status, versions, wait_claims_carried, wait_n_claims,
    wait_ready, wait_status, wait_use_written,
};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, dry_run};
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The status of a condition in the status of a pool.
fn condition(status: &Value, kind: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == kind);
    found
        .next()
        .map(|condition| format!("{} {}", condition["status"], condition["reason"]))
        .unwrap_or_default()
        .replace('"', "")
}

/// Returns when the controller has seen this generation of the pool, and so every earlier edit.
async fn wait_seen(rig: &Rig, pool: &kube::api::DynamicObject) -> Result<Value> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let generation = pool.metadata.generation.context("its generation")?;
    wait_status(rig, name, "the edit", |status| {
        status["conditions"].as_array().is_some_and(|all| {
            !all.is_empty()
                && all.iter().all(|condition| condition["observedGeneration"].as_i64() == Some(generation))
        })
    })
    .await
}

/// The blocks of a node in the order in which they were published.
fn blocks(rig: &Rig, node: &str) -> Vec<String> {
    rig.cluster.published(node).unwrap_or_default().pod_cidrs
}

/// Fails if a fresh controller would write anything to a node or a claim. Its counts in the status of pools may differ,
/// because it lists the kinds one after the other while the running controller watches them.
async fn assert_nothing_moves(rig: &Rig) -> Result<()> {
    let mut proposed = dry_run(&rig.control_plane).await?;
    let is_listed = |line: &String| {
        ["would write the status of ", "would report on the claim of "]
            .iter()
            .any(|listed| line.starts_with(listed))
    };
    proposed.retain(|line| !is_listed(line));
    ensure!(proposed.is_empty(), "a fresh controller would write:\n{}", proposed.join("\n"));
    Ok(())
}

/// An edit of a pool forgets no holder. The running controller sees it, the next one finds it at its start, and then a
/// grant follows: no held block is given twice or removed.
#[tokio::test(flavor = "multi_thread")]
async fn shrinking_cordoning_and_draining_take_no_block_off_its_node() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let first = json!({"cidr": "10.1.0.0/26"});
        // Two blocks per node: a node that fills up takes none of the blocks for the last node.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/26", "10.2.0.0/24"]);
        rig.cluster.create_pool(&pool.with("perNode", json!({"maxBlocks": 2}))).await?;
        let mut controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        ensure!(blocks(rig, "n") == ["10.1.0.0/28"], "{:?}", blocks(rig, "n"));
        let mut others = Vec::new();
        let edits = [
            json!([{"cidr": "10.1.0.0/26", "state": "Cordoned"}, {"cidr": "10.2.0.0/24"}]),
            json!([{"cidr": "10.1.0.0/26", "state": "Draining"}, {"cidr": "10.2.0.0/24"}]),
            json!([{"cidr": "10.2.0.0/24"}]),
            // Now the held block is in no pool. Its neighbour returns to a pool, and is the node's next block.
            json!([{"cidr": "10.1.0.16/28"}, {"cidr": "10.2.0.0/24"}]),
        ];
        for (number, cidrs) in edits.into_iter().enumerate() {
            let held = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
            let pool = rig.cluster.patch_pool("p", json!({"ipv4": {"cidrs": cidrs}})).await?;
            wait_seen(rig, &pool).await?;
            assert_nothing_moves(rig).await?;
            ensure!(
                versions(rig, &[Kind::CiliumNode, Kind::Block]).await? == held,
                "{cidrs} changed something"
            );
            controller.sigkill().await?;
            controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
            let name = format!("m{number}");
            others.push(join_one(rig, NodeSpec::new(&name)).await?);
            ensure!(blocks(rig, &name)[0].starts_with("10.2."), "{name}: {:?}", blocks(rig, &name));
        }
        fill(rig, &agent, "n", 2).await?;
        ensure!(blocks(rig, "n") == ["10.1.0.0/28", "10.1.0.16/28"], "{:?}", blocks(rig, "n"));
        wait_claims_carried(rig).await?;

        let pool =
            rig.cluster.patch_pool("p", json!({"ipv4": {"cidrs": [first, {"cidr": "10.2.0.0/24"}]}})).await?;
        wait_seen(rig, &pool).await?;
        let last = join_one(rig, NodeSpec::new("last")).await?;
        ensure!(blocks(rig, "last") == ["10.1.0.32/28"], "{:?}", blocks(rig, "last"));
        wait_claims_carried(rig).await?;
        Ok((controller, agent, others, last))
    })
    .await
}

/// An address in use never leaves a published pool because a user edits the addresses that pools offer. The addresses
/// that a block offers are fixed when it is claimed, also for a CiliumNode that is recreated.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_offers_is_edited_for_blocks_to_come_only() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        fill(rig, &agent, "n", 1).await?;
        rig.cluster.wait_published("n", "a second block", SOON, |seen| seen.pool.len() == 28).await?;
        wait_claims_carried(rig).await?;
        wait_use_written(rig, &agent, "n").await?;
        let before = rig.cluster.published("n").context("its CiliumNode")?;

        // A part of the first block, the whole second block, and in each future block its third address.
        let exclude: Vec<String> = (0..16).map(|block| format!("10.1.0.{}/32", block * 16 + 2)).collect();
        let exclude: Vec<String> = exclude.into_iter().chain(["10.1.0.16/28".to_owned()]).collect();
        let edits = [
            json!({"ipv4": {"exclude": exclude}}),
            json!({"allowFirstLastIPs": true}),
            json!({"ipv4": {"exclude": ["10.1.0.2/32", "10.1.0.34/32"]}}),
        ];
        for edit in &edits {
            let pool = rig.cluster.patch_pool("p", edit.clone()).await?;
            wait_seen(rig, &pool).await?;
            assert_nothing_moves(rig).await?;
        }
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let newcomer = join_one(rig, NodeSpec::new("m")).await?;
        let theirs = rig.cluster.published("m").context("its CiliumNode")?;
        ensure!(theirs.pod_cidrs == ["10.1.0.32/28"], "{:?}", theirs.pod_cidrs);
        ensure!(theirs.pool.len() == 15 && !theirs.pool.contains_key("10.1.0.34"), "{:?}", theirs.pool);

        rig.cluster.delete(Kind::CiliumNode, "n").await?;
        wait_gone(rig, Kind::CiliumNode, "n").await?;
        agent.touch_node().await?;
        rig.cluster.wait_published("n", "what it carried", SOON, |seen| seen.pool == before.pool).await?;
        agent.restart_and_restore(SOON).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent, newcomer))
    })
    .await
}

/// An edit of a pool never rewrites published fields.
#[tokio::test(flavor = "multi_thread")]
async fn limits_priority_and_selector_are_edited_for_blocks_to_come_only() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let other = PoolSpec::new("q").ipv4(28, &["10.2.0.0/24"]).with("priority", -1);
        rig.cluster.create_pool(&other.with("perNode", json!({"maxBlocks": 4}))).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = Agent::Fake(join_one(rig, NodeSpec::new("n").label("zone", "a")).await?);
        fill(rig, &agent, "n", 2).await?;
        rig.cluster.wait_published("n", "a third block", SOON, |seen| seen.pod_cidrs.len() == 3).await?;
        wait_claims_carried(rig).await?;
        wait_use_written(rig, &agent, "n").await?;
        let held = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;

        // Fewer blocks than the node holds.
        let pool = rig.cluster.patch_pool("p", json!({"perNode": {"maxBlocks": 1}})).await?;
        wait_seen(rig, &pool).await?;
        assert_nothing_moves(rig).await?;
        ensure!(
            versions(rig, &[Kind::CiliumNode, Kind::Block]).await? == held,
            "a lower limit changed something"
        );
        agent.allocate_many("ns/more-", 14).await?;

        // Now the other pool is the first, and its limit is four.
        rig.cluster.patch_pool("q", json!({"priority": 1})).await?;
        rig.cluster.wait_published("n", "a fourth block", SOON, |seen| seen.pod_cidrs.len() == 4).await?;
        ensure!(blocks(rig, "n")[3].starts_with("10.2."), "{:?}", blocks(rig, "n"));
        wait_claims_carried(rig).await?;

        // No pool selects the node any more, and then one that has none of its blocks.
        wait_use_written(rig, &agent, "n").await?;
        let held = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
        for pool in ["p", "q"] {
            let selects = json!({"nodeSelector": {"matchLabels": {"zone": "b"}}});
            let pool = rig.cluster.patch_pool(pool, selects).await?;
            wait_seen(rig, &pool).await?;
        }
        let third = PoolSpec::new("r").ipv4(29, &["10.3.0.0/24"]).select("zone", "a");
        let third = rig.cluster.create_pool(&third.with("perNode", json!({"maxBlocks": 5}))).await?;
        wait_seen(rig, &third).await?;
        assert_nothing_moves(rig).await?;
        ensure!(
            versions(rig, &[Kind::CiliumNode, Kind::Block]).await? == held,
            "a selector changed something"
        );
        fill(rig, &agent, "n", 5).await?;
        ensure!(blocks(rig, "n")[4].starts_with("10.3."), "{:?}", blocks(rig, "n"));
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// The finalizer of a deleted pool is removed only when the last of its blocks is free. No block is removed for that.
/// Nodes that wait for the pool keep waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pool_goes_with_its_last_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"]).with("reuseAfterNodeLoss", "1h");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = join_one(rig, NodeSpec::new("n")).await?;
        let mut waiting = join(rig, &[NodeSpec::new("waiting")]).await?;
        wait_status(rig, "p", "a waiting node", |status| status["nodes"]["waiting"] == 1).await?;

        rig.cluster.delete_pool("p").await?;
        wait_status(rig, "p", "that it is deleted", |status| condition(status, "Ready") == "False Deleting")
            .await?;
        agent.allocate("ns/pod")?;
        wait_claims_carried(rig).await?;

        // Its block cools, and the pool stays until then.
        let name = agent.name().to_owned();
        agent.power_off().await;
        delete_node(rig, &name).await?;
        wait_all(rig, &name, 1, "Cooling").await?;
        rig.cluster
            .patch_pool("p", json!({"reuseAfterNodeLoss": "1s"}))
            .await
            .context("while its block cools")?;
        wait_gone(rig, Kind::Pool, "p").await?;
        wait_n_claims(rig, 0).await?;
        ensure!(blocks(rig, "waiting").is_empty(), "{:?}", blocks(rig, "waiting"));

        // A pool of that name, with other blocks, is another pool.
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(29, &["10.1.0.0/28"])).await?;
        wait_ready(rig, &waiting).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, waiting.pop()))
    })
    .await
}

/// No finalizer is stuck forever: without a running controller, an administrator removes the finalizer of a pool. Its
/// blocks stay claimed and unchanged, and later pools avoid them, also with blocks of another size.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_recreated_with_another_block_size_goes_round_what_is_held() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("n", 3)).await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        controller.sigkill().await?;
        let held = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;

        let mut newcomers = Vec::new();
        for (size, name, expected) in
            // 0, 32 and 64 are held. The first free pair of /27 is at 128, and the first free pair of /29 is beside a
            // held /28.
            [(27, "wide", "10.1.0.128/27"), (29, "narrow", "10.1.0.16/29")]
        {
            rig.cluster.delete_pool("p").await?;
            rig.cluster.patch(Kind::Pool, "p", json!({"metadata": {"finalizers": null}})).await?;
            wait_gone(rig, Kind::Pool, "p").await?;
            rig.cluster.create_pool(&PoolSpec::new("p").ipv4(size, &["10.1.0.0/24"])).await?;
            let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
            newcomers.push(join_one(rig, NodeSpec::new(name)).await?);
            // If one block is not enough for a start, there is another beside it.
            ensure!(blocks(rig, name).contains(&expected.to_owned()), "{size}: {:?}", blocks(rig, name));
            wait_claims_carried(rig).await?;
            controller.sigkill().await?;
        }
        ensure!(
            versions(rig, &[Kind::CiliumNode, Kind::Block]).await?.is_superset(&held),
            "what was held changed"
        );

        // The old blocks cool and are freed by the times of the pool that has their name now.
        rig.cluster.patch_pool("p", json!({"reuseAfterNodeLoss": "1s"})).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        for agent in agents {
            let name = agent.name().to_owned();
            agent.power_off().await;
            delete_node(rig, &name).await?;
            wait_all(rig, &name, 0, "gone").await?;
        }
        wait_claims_carried(rig).await?;
        Ok((controller, newcomers))
    })
    .await
}

/// Of two overlapping pools the older keeps the addresses that both declare, for any sizes of their blocks. The
/// newcomer says so in its status and serves from the rest. When the older pool is deleted, the newcomer has the whole
/// range.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_gets_nothing_that_an_older_one_declares() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let older = PoolSpec::new("older").ipv4(28, &["10.1.0.0/26"]).select("pool", "older");
        let older = rig.cluster.create_pool(&older.with("reuseAfterNodeLoss", "1s")).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agents = vec![join_one(rig, NodeSpec::new("o0").label("pool", "older")).await?];
        in_another_second(&older).await?;
        // Partly, with larger blocks, and completely, with smaller ones.
        let part = PoolSpec::new("part").ipv4(27, &["10.1.0.0/25"]).select("pool", "part");
        let part = rig.cluster.create_pool(&part).await?;
        in_another_second(&part).await?;
        let whole = PoolSpec::new("whole").ipv4(29, &["10.1.0.32/27"]).select("pool", "whole");
        let whole = rig.cluster.create_pool(&whole).await?;
        let status = wait_seen(rig, &part).await?;
        ensure!(condition(&status, "Overlapping") == "True OverlapsOlderPool", "{status}");
        ensure!(
            status["ipv4"]["blocks"]["total"] == 2 && condition(&status, "Ready") == "True Serving",
            "{status}"
        );
        let status = wait_seen(rig, &whole).await?;
        ensure!(condition(&status, "Overlapping") == "True OverlapsOlderPool", "{status}");
        ensure!(condition(&status, "Ready") == "False Overlapped", "{status}");
        ensure!(condition(&pool_status(rig, "older"), "Overlapping") == "False NoOverlap");

        for (name, expected) in [("p0", "10.1.0.64/27"), ("p1", "10.1.0.96/27")] {
            agents.push(join_one(rig, NodeSpec::new(name).label("pool", "part")).await?);
            ensure!(blocks(rig, name) == [expected], "{name}: {:?}", blocks(rig, name));
        }
        let waiting = join(rig, &[NodeSpec::new("w0").label("pool", "whole")]).await?;
        wait_status(rig, "whole", "a waiting node", |status| status["nodes"]["waiting"] == 1).await?;

        // The older pool is deleted with its last block. Then `part` has its whole range, and after an edit of `part`
        // so has `whole`.
        rig.cluster.delete_pool("older").await?;
        let first = agents.remove(0);
        first.power_off().await;
        delete_node(rig, "o0").await?;
        wait_gone(rig, Kind::Pool, "older").await?;
        wait_status(rig, "part", "its whole range", |status| status["ipv4"]["blocks"]["total"] == 4).await?;
        ensure!(condition(&pool_status(rig, "whole"), "Ready") == "False Overlapped");
        rig.cluster.patch_pool("part", json!({"ipv4": {"cidrs": [{"cidr": "10.1.0.64/26"}]}})).await?;
        wait_ready(rig, &waiting).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agents, waiting))
    })
    .await
}

/// The steps of `docs/how-to/block-size.md` for another block size in the same range.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_another_block_size_takes_over_a_range() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let old = rig.cluster.create_pool(&PoolSpec::new("old").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        in_another_second(&old).await?;
        rig.cluster.create_pool(&PoolSpec::new("new").ipv4(27, &["10.1.0.0/24"])).await?;
        rig.cluster.patch_pool("old", json!({"ipv4": {"cidrs": []}})).await?;
        let other = join_one(rig, NodeSpec::new("m")).await?;
        ensure!(blocks(rig, "m")[0].ends_with("/27"), "{:?}", blocks(rig, "m"));
        rig.cluster.delete_pool("old").await?;
        fill(rig, &agent, "n", 2).await?;
        ensure!(blocks(rig, "n").iter().any(|block| block.ends_with("/27")), "{:?}", blocks(rig, "n"));
        wait_claims_carried(rig).await?;
        Ok((controller, agent, other))
    })
    .await
}

/// The steps of `docs/how-to/recover-a-deleted-pool.md` for a pool that was deleted by mistake.
#[tokio::test(flavor = "multi_thread")]
async fn another_pool_serves_in_place_of_one_that_was_deleted_by_mistake() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let lost = rig.cluster.create_pool(&PoolSpec::new("lost").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = join_one(rig, NodeSpec::new("n")).await?;
        rig.cluster.delete_pool("lost").await?;
        let freeze = ["create", "configmap", "cilium-node-ipam", "--from-literal=freeze-reclaim=true"];
        kubectl(&rig.control_plane, &[&["-n", "kube-system"], &freeze[..]].concat()).await?;
        in_another_second(&lost).await?;
        rig.cluster.create_pool(&PoolSpec::new("again").ipv4(28, &["10.1.0.0/24", "10.1.1.0/28"])).await?;
        // The spare range serves at once.
        let first = join_one(rig, NodeSpec::new("m")).await?;
        ensure!(blocks(rig, "m") == ["10.1.1.0/28"], "{:?}", blocks(rig, "m"));
        rig.cluster.patch_pool("lost", json!({"ipv4": {"cidrs": []}})).await?;
        let second = join_one(rig, NodeSpec::new("o")).await?;
        kubectl(&rig.control_plane, &["-n", "kube-system", "delete", "configmap", "cilium-node-ipam"])
            .await?;
        let third = join_one(rig, NodeSpec::new("p")).await?;
        ensure!(blocks(rig, "n") == ["10.1.0.0/28"], "{:?}", blocks(rig, "n"));
        wait_claims_carried(rig).await?;
        Ok((controller, agent, [first, second, third]))
    })
    .await
}

/// A tool that watches a repository applies the same manifest again and again. A permanent difference hides all others.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_applied_again_changes_nothing() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        let plane = &rig.control_plane;
        let controller = Controller::start_ready(plane, PROMPT).await?;
        let folder = tempfile::tempdir()?;
        let manifest = folder.path().join("pool.yaml");
        let ranges = |cidr: &str, size: u8| json!({"blockSize": size, "cidrs": [{"cidr": cidr}]});
        let pool = json!({
            "apiVersion": "nodeipam.io/v1alpha1",
            "kind": "NodeIPPool",
            "metadata": {"name": "applied"},
            "spec": {
                "nodeSelector": {"matchLabels": {"zone": "a"}},
                "perNode": {"maxBlocks": 4},
                "ipv4": ranges("10.1.0.0/24", 28),
                "ipv6": ranges("fd00:1::/120", 124),
            },
        });
        std::fs::write(&manifest, pool.to_string())?;
        let manifest = manifest.to_string_lossy();
        for file in [&*manifest, "manifests/examples/pool.yaml"] {
            kubectl(plane, &["apply", "-f", file]).await?;
        }
        // The controller writes its finalizer and the status.
        wait_status(rig, "applied", "the counts of its blocks", |status| {
            status["ipv6"]["blocks"]["free"] == 16
        })
        .await?;
        for file in [&*manifest, "manifests/examples/pool.yaml"] {
            let said = kubectl(plane, &["apply", "-f", file]).await?;
            ensure!(said.trim_end().ends_with(" unchanged"), "{said}");
            // It exits with 1 if there is a difference.
            kubectl(plane, &["diff", "-f", file]).await?;
        }
        Ok(controller)
    })
    .await
}
