//! Claims that another writer changed: removed by force, overlapping, or moved by a request whose answer was lost.

use anyhow::{Context as _, Result, ensure};
use kube::api::DynamicObject;
use serde_json::json;

use crate::chronicle::{Chronicle, uid, wait_claims, wait_gone};
use crate::scene::{
    PROMPT, SOON, cilium_node, join, join_one, pool_status, versions, wait_claims_carried, wait_n_claims,
    wait_ready, wait_status,
};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim, claim_name, created_for, with_finalizer};
use crate::support::rig::{Rig, under_oracle};
use crate::support::signals;
use crate::support::views::Published;

/// A user who removes the finalizer of a claim and deletes it frees nothing. A block that a CiliumNode carries is
/// taken. It is claimed again for that node, both by a controller that saw the deletion and by one that did not.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_removed_by_force_is_recreated_for_its_node() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (name, cidr) = ("10.1.0.0-28", "10.1.0.0/28");
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &[cidr])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = join_one(rig, NodeSpec::new("n")).await?;
        agent.allocate("ns/pod")?;
        let waiting = join(rig, &[NodeSpec::new("waiting")]).await?;
        rig.excuse("waiting");
        wait_status(rig, "p", "a waiting node", |status| status["nodes"]["waiting"] == 1).await?;
        let before = rig.cluster.read(Kind::Block, name).await?;
        let shown = rig.cluster.published("n").context("its CiliumNode")?;
        rig.control_plane.allow("claim-deleted-while-carried", Some("n"), Some(cidr)).await?;

        let is_another = |uid: &Option<String>| {
            let found = rig.cluster.object(Kind::Block, name);
            found.is_some_and(|found| found.metadata.uid.is_some() && found.metadata.uid != *uid)
        };
        remove_by_force(rig, name).await?;
        rig.cluster.wait_until("another claim", SOON, async || Ok(is_another(&before.metadata.uid))).await?;
        let again = rig.cluster.read(Kind::Block, name).await?;
        for field in ["cidr", "pool", "node", "nodeUID", "excluded", "state"] {
            ensure!(
                again.data["spec"][field] == before.data["spec"][field],
                "{field}: {}",
                again.data["spec"]
            );
        }

        controller.sigkill().await?;
        remove_by_force(rig, name).await?;
        wait_gone(rig, Kind::Block, name).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        rig.cluster.wait_until("a third claim", SOON, async || Ok(is_another(&again.metadata.uid))).await?;
        wait_claims_carried(rig).await?;
        agent.allocate("ns/another")?;
        let carried = rig.cluster.published("n").context("its CiliumNode")?;
        ensure!(carried.pool == shown.pool && carried.pod_cidrs == shown.pod_cidrs, "{carried:?}");
        ensure!(rig.cluster.claims_of("waiting").is_empty(), "the other node got it");
        Ok((controller, agent, waiting))
    })
    .await
}

async fn remove_by_force(rig: &Rig, name: &str) -> Result<()> {
    // In the reverse order a controller may restore its finalizer in between.
    rig.cluster.delete(Kind::Block, name).await?;
    rig.cluster.patch(Kind::Block, name, json!({"metadata": {"finalizers": null}})).await.map(drop)
}

/// A claim as a controller with another view of the pools would make it.
async fn claim_for(rig: &Rig, cidr: &str, node: &str) -> Result<()> {
    let mut claim = claim(cidr, "p", node, &uid(rig, Kind::Node, node).await?, "Held");
    if let Ok(cilium_node) = uid(rig, Kind::CiliumNode, node).await {
        claim = created_for(claim, &cilium_node);
    }
    rig.cluster.create(&with_finalizer(claim), Kind::Block).await.map(drop)
}

/// A CiliumNode that carries these blocks, with all addresses but the first and last.
fn carrying(name: &str, cidrs: &[&str]) -> Result<DynamicObject> {
    let mut pool = json!({});
    for cidr in cidrs {
        let cidr: ipnet::Ipv4Net = cidr.parse()?;
        for address in cidr.hosts() {
            pool[address.to_string()] = json!({});
        }
    }
    Ok(cilium_node(name, &json!({"podCIDRs": cidrs, "pool": pool})))
}

/// Of two overlapping claims neither is published before a person deletes one, and a published one stays. A CiliumNode
/// for which a claim was made proves no more than another one.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_claims_that_overlap_the_one_goes_that_a_person_deletes() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s");
        rig.cluster.create_pool(&pool).await?;
        for (node, cidr) in [("a", "10.1.0.0/27"), ("b", "10.1.0.16/28")] {
            rig.cluster.create_node(&NodeSpec::new(node)).await?;
            claim_for(rig, cidr, node).await?;
            rig.cluster.create(&cilium_node(node, &json!({"pools": {}})), Kind::CiliumNode).await?;
        }
        for (node, cidr) in [("c", "10.1.0.64/27"), ("d", "10.1.0.80/28")] {
            rig.cluster.create_node(&NodeSpec::new(node)).await?;
            rig.cluster.create(&cilium_node(node, &json!({"pools": {}})), Kind::CiliumNode).await?;
            claim_for(rig, cidr, node).await?;
        }
        let shown = json!({"spec": carrying("d", &["10.1.0.80/28"])?.data["spec"]});
        rig.cluster.patch(Kind::CiliumNode, "d", shown).await?;
        wait_n_claims(rig, 4).await?;
        let chronicle = Chronicle::start(rig);
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        for given_up in ["10.1.0.16-28", "10.1.0.64-27"] {
            controller.wait_logged(&format!("give it up: `kubectl delete nib {given_up}`"), SOON).await?;
            rig.cluster.delete(Kind::Block, given_up).await?;
            wait_gone(rig, Kind::Block, given_up).await?;
        }
        let is_first = |seen: &Published| seen.pod_cidrs == ["10.1.0.0/27"];
        rig.cluster.wait_published("a", "the block that stays", SOON, is_first).await?;
        for node in ["b", "c"] {
            rig.cluster
                .wait_published(node, "another block", SOON, |seen| !seen.pod_cidrs.is_empty())
                .await?;
        }
        ensure!(chronicle.of_block("10.1.0.80/28").iter().all(|words| words == "d Held"));
        let story = chronicle.of_block("10.1.0.16/28");
        let steps = ["b Releasing Unused", "b Cooling Unused", "gone"];
        ensure!(story.ends_with(&steps.map(str::to_owned)), "{story:?}");
        Ok(controller)
    })
    .await
}

/// Two claims from an earlier time overlap, and both blocks are carried. Neither is moved, neither node is written, and
/// no other node gets any of their addresses. When one claim is gone, the other continues.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_claims_that_overlap_and_are_carried_none_is_moved() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"])).await?;
        rig.control_plane.allow("overlapping-podcidrs", None, None).await?;
        rig.control_plane.allow("address-in-two-pools", None, None).await?;
        for (node, cidr) in [("a", "10.1.0.0/27"), ("b", "10.1.0.16/28")] {
            rig.cluster.create_node(&NodeSpec::new(node)).await?;
            claim_for(rig, cidr, node).await?;
            rig.cluster.create(&carrying(node, &[cidr])?, Kind::CiliumNode).await?;
        }
        // Agents that reported nothing of their use would get a usage query after half a minute, which is a write.
        for (node, address) in [("a", "10.1.0.1"), ("b", "10.1.0.17")] {
            let used = json!({"status": {"ipam": {"used": {address: {"owner": "ns/pod"}}}}});
            rig.cluster.patch_status(Kind::CiliumNode, node, used).await?;
        }
        let before = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &["c", "d"].map(NodeSpec::new)).await?;
        wait_ready(rig, &agents).await?;
        controller.wait_logged("BothPublished", SOON).await?;
        let after = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
        ensure!(after.is_superset(&before), "{before:?} and then {after:?}");

        // The machine `a` is lost with everything on it.
        rig.cluster.delete_node("a").await?;
        rig.cluster.delete(Kind::CiliumNode, "a").await?;
        wait_claims(rig, "a", "a claim in Cooling", |claims| {
            !claims.is_empty() && claims.iter().all(|claim| claim.state == "Cooling")
        })
        .await?;
        Ok((controller, agents))
    })
    .await
}

/// A claim is releasing as unused, and then its node turns out to carry the block. The claim follows this observation,
/// and not the earlier intention.
#[tokio::test(flavor = "multi_thread")]
async fn an_unused_claim_whose_block_is_found_carried_is_held_again() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        claim_for(rig, "10.1.0.0/28", "n").await?;
        rig.cluster.create(&carrying("n", &["10.1.0.0/28"])?, Kind::CiliumNode).await?;
        let since = k8s_openapi::jiff::Timestamp::now().to_string();
        let unused = json!({"spec": {"state": "Releasing", "reason": "Unused", "since": since}});
        rig.cluster.patch(Kind::Block, "10.1.0.0-28", unused).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_claims(rig, "n", "a claim in Held", |claims| claims.len() == 1 && claims[0].state == "Held")
            .await?;
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}

/// A block that has cooled is free only after a read that does not find its Node. While the store hangs that read has
/// no answer, and no answer is no proof. The read is repeated until there is one, and no block is lost or given twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_frees_no_block_before_it_answers() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // Longer than the test takes to see the start of the cooling and to halt the store.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/27"]).with("reuseAfterNodeLoss", "15s");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &["--request-timeout", "1s"]).await?;
        let lost = join_one(rig, NodeSpec::new("lost")).await?;
        let stays = join_one(rig, NodeSpec::new("stays")).await?;
        let next = join(rig, &[NodeSpec::new("next")]).await?;
        let chronicle = Chronicle::start(rig);

        lost.power_off().await;
        rig.cluster.delete_node("lost").await?;
        wait_claims(rig, "lost", "a claim in Cooling", |claims| {
            !claims.is_empty() && claims.iter().all(|claim| claim.state == "Cooling")
        })
        .await?;
        // The watch may show the write before its answer has left the store, and without its answer nothing continues.
        controller.wait_logged("Cooling node=lost", SOON).await?;
        // The same is true of the status that shows the end of the cooling.
        let is_shown = || {
            let found = rig.cluster.object(Kind::Block, "10.1.0.0-28");
            found.is_some_and(|found| found.data["status"]["until"].is_string())
        };
        rig.cluster.wait_until("the end of the cooling", SOON, async || Ok(is_shown())).await?;
        // The cooling is over while the store hangs.
        signal_etcd(rig, "STOP").await?;
        let read = "read failed kind=\"Node\" selector=\"metadata.name=lost\"";
        let hung = controller.wait_logged(read, SOON).await;
        signal_etcd(rig, "CONT").await?;
        hung.context("no read was given up")?;

        wait_ready(rig, &next).await?;
        stays.allocate("ns/pod")?;
        wait_claims_carried(rig).await?;
        let story = chronicle.of_block("10.1.0.0/28");
        let expected = ["lost Releasing NodeGone", "lost Cooling NodeGone", "gone", "next Held"];
        ensure!(story == expected, "{story:?}, {}", pool_status(rig, "p"));
        ensure!(rig.cluster.object(Kind::Block, &claim_name("10.1.0.16/28")).is_some());
        Ok((controller, stays, next))
    })
    .await
}

async fn signal_etcd(rig: &Rig, signal: &str) -> Result<()> {
    let pid = rig.control_plane.ready["etcdPid"].as_u64().context("the pid of etcd")?;
    signals::send(pid, signal).await
}
