//! The tests that take longer than `make test` has time for; `make test-routes` runs them.

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::net::cidr::Cidr;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::oracle::{assert_never_two_ways, assert_no_flap, is_down, wait_right, wait_sessions};
use super::{MOVES_WITHIN, Scene, dual};
use crate::routes::{configurations, create_configuration, flags, of_node, options};
use crate::scene::{SOON, insist, insist_for};
use crate::support::agent::Agent;
use crate::support::controller::{Controller, ELECTED};
use crate::support::lab::{ROUTER, Sessions};
use crate::support::objects::PoolSpec;
use crate::support::rig::{Rig, under_oracle};

/// Flags of replicas with an election, in less time than by default.
const REPLICA: [&str; 7] =
    [ELECTED, "--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "1s"];

#[tokio::test(flavor = "multi_thread")]
async fn routes_return_after_each_failure() -> Result<()> {
    under_oracle(dual(), async |rig| {
        let mut scene = Scene::start_with(rig, Sessions::Keep).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/120"]);
        rig.cluster.create_pool(&pool.with("perNode", json!({"maxBlocks": 4}))).await?;
        let replicas = flags(&REPLICA);
        let leader = Controller::start_ready(&rig.control_plane, &replicas).await?;
        for name in ["a", "b", "c"] {
            scene.join(rig, name).await?;
        }
        wait_right(rig, &scene.lab, 3).await?;
        let quiet = scene.lab.changes().await?.len();

        // The daemon of a node is killed, and its node grows meanwhile.
        scene.lab.act("kill-daemon", "a").await?;
        scene.grow(rig, "a", 2).await?;
        scene.lab.act("start-daemon", "a").await?;
        wait_right(rig, &scene.lab, 3).await?;
        assert_no_flap(&scene.lab, "a", quiet).await?;

        // FRR is killed, and returns with the configuration of its last reload.
        scene.lab.act("kill-frr", "b").await?;
        wait_sessions(rig, &scene.lab, "b", 0).await?;
        scene.lab.act("start-frr", "b").await?;
        wait_sessions(rig, &scene.lab, "b", 2).await?;
        wait_right(rig, &scene.lab, 3).await?;

        // The sessions of a node are cut for longer than their hold time.
        scene.lab.link("c", false).await?;
        wait_sessions(rig, &scene.lab, "c", 0).await?;
        scene.lab.link("c", true).await?;
        wait_sessions(rig, &scene.lab, "c", 2).await?;
        wait_right(rig, &scene.lab, 3).await?;

        // The template changes, then the leader.
        let quiet = scene.lab.changes().await?.len();
        edit_template(rig).await?;
        let standby = Controller::start_ready(&rig.control_plane, &replicas).await?;
        leader.sigkill().await?;
        scene.join(rig, "d").await?;
        wait_right(rig, &scene.lab, 4).await?;
        for name in ["a", "b", "c", "d"] {
            wait_hold_time(rig, name).await?;
            assert_no_flap(&scene.lab, name, quiet).await?;
        }
        assert_never_two_ways(&scene.lab).await?;

        // The exporter withdraws its routes before it deletes its objects: a router keeps the routes of a closed
        // session.
        standby.sigterm_and_wait().await?;
        let before = scene.lab.changes().await?.len();
        let remove =
            [&flags(&[])[..2], &["--routes", "remove", "--routes-template", "frr-k8s-system/template"]]
                .concat();
        let controller = Controller::start_ready(&rig.control_plane, &remove).await?;
        insist(rig, async || {
            let left = scene.lab.table().await?;
            ensure!(left.is_empty(), "{left:?}");
            let objects = configurations(rig).0.list(&ListParams::default()).await?.items;
            ensure!(objects.len() == 1, "more than the template is left: {objects:?}");
            Ok(())
        })
        .await?;
        let changes = scene.lab.changes().await?;
        let removed = changes[before..].iter().take_while(|change| !is_down(change));
        let n_removed = removed.filter(|change| change.what == "removed").count();
        ensure!(n_removed >= 8, "routes of both families and of 4 nodes: {:?}", &changes[before..]);
        Ok((controller, scene))
    })
    .await
}

/// Other times for all sessions. BGP agrees on them at the start of a session, so none has to be reset.
async fn edit_template(rig: &Rig) -> Result<()> {
    let neighbor = |address: &&str| json!({"address": address, "asn": 64513, "holdTime": "60s", "keepaliveTime": "20s", "connectTime": "1s"});
    let neighbors: Vec<Value> = ROUTER.iter().map(neighbor).collect();
    let spec = json!({"spec": {"bgp": {"routers": [{"asn": 64512, "neighbors": neighbors}]}}});
    configurations(rig).0.patch("template", &PatchParams::default(), &Patch::Merge(spec)).await?;
    Ok(())
}

async fn wait_hold_time(rig: &Rig, node: &str) -> Result<()> {
    insist(rig, async || {
        let object = of_node(rig, node).await?;
        let neighbor = &object.data["spec"]["bgp"]["routers"][0]["neighbors"][0];
        ensure!(neighbor["holdTime"] == "60s", "{neighbor}");
        Ok(())
    })
    .await
}

/// A webhook that refuses the withdrawal keeps a block from the next node; the other nodes do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_moves_only_when_its_route_is_gone() -> Result<()> {
    under_oracle(options(), async |rig| {
        let mut scene = Scene::start(rig).await?;
        // Four blocks; a node has three at most.
        let pool = PoolSpec::new("p")
            .ipv4(28, &["10.1.0.0/26"])
            .with("allowFirstLastIPs", true)
            .with("perNode", json!({"maxBlocks": 3}))
            .with("expand", json!({"usedAbove": 100, "freeBelow": 1}))
            .with("reclaim", json!({"mode": "Enabled", "usedBelow": 80, "after": "1s"}))
            .with("reuseAfter", "1s");
        rig.cluster.create_pool(&pool).await?;
        let controller =
            Controller::start_ready(&rig.control_plane, &flags(&["--usage-query-interval", "5s"])).await?;
        scene.join(rig, "a").await?;
        scene.join(rig, "b").await?;
        // Enough for two more blocks.
        let n_pods = scene.grow(rig, "a", 3).await?;
        wait_right(rig, &scene.lab, 2).await?;
        let quiet = scene.lab.changes().await?.len();

        // Another object of node a has other times for the same session: frr-k8s can't convert both together.
        let neighbor = json!({"address": ROUTER[0], "asn": 64513, "holdTime": "90s", "keepaliveTime": "30s"});
        let conflicting = json!({
            "nodeSelector": {"matchLabels": {"conflict": "yes"}},
            "bgp": {"routers": [{"asn": 64512, "neighbors": [neighbor]}]},
        });
        create_configuration(rig, "conflicting", conflicting).await?;
        rig.cluster.relabel_node("a", &[("conflict", Some("yes"))]).await?;

        // The pods of a end, and its blocks should go to b.
        rig.excuse("b");
        let Agent::Fake(agent) = scene.agents.get("a").context("a has no agent")? else {
            unreachable!("all agents here are imitations")
        };
        for pod in 0..n_pods {
            agent.release(&format!("ns/many-{pod}"))?;
        }
        insist_for(rig, MOVES_WITHIN, async || {
            let releasing = rig.cluster.claims_of("a").iter().any(|claim| claim.state == "Releasing");
            ensure!(releasing, "{:?}", rig.cluster.claims_of("a"));
            Ok(())
        })
        .await?;
        controller.wait_logged("RouteRefused", SOON).await?;
        // The leaving block has a prefix of its own by now, or is in one with the others. The router knows a way to it.
        let claims = rig.cluster.claims_of("a");
        ensure!(claims.iter().all(|claim| claim.state != "Cooling"), "{claims:?}");
        let leaving = claims.iter().find(|claim| claim.state == "Releasing").context("none is leaving")?;
        let leaving: Cidr = leaving.cidr.parse()?;
        let table = scene.lab.table().await?;
        let mut ways = table.iter().filter(|route| {
            route.node == "a" && route.prefix.parse::<Cidr>().is_ok_and(|prefix| prefix.overlaps(leaving))
        });
        ensure!(ways.next().is_some(), "no route of {leaving} in {table:?}");

        configurations(rig).0.delete("conflicting", &DeleteParams::default()).await?;
        rig.cluster.relabel_node("a", &[("conflict", None)]).await?;
        scene.grow(rig, "b", 2).await?;
        wait_right(rig, &scene.lab, 2).await?;
        assert_no_flap(&scene.lab, "b", quiet).await?;
        assert_never_two_ways(&scene.lab).await?;
        let downs = scene.lab.changes().await?.into_iter().skip(quiet).filter(is_down).count();
        ensure!(downs == 0, "{downs} sessions went down");
        Ok((controller, scene))
    })
    .await
}
