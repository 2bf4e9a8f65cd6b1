//! A controller on a machine with a wrong clock. Every time in an object is that of the API server.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::chronicle::uid;
use crate::scene::{PROMPT, SOON, join_one};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim, claim_name, with_finalizer};
use crate::support::proxy::Proxy;
use crate::support::rig::{Rig, judged_for_safety};

/// How long the blocks of lost nodes cool.
const REUSE_AFTER_NODE_LOSS: SignedDuration = SignedDuration::from_hours(1);

/// A block of a lost node that cools since this time.
async fn cooling(rig: &Rig, cidr: &str, node: &str, since: Timestamp) -> Result<()> {
    rig.cluster.create_node(&NodeSpec::new(node)).await?;
    let node_uid = uid(rig, Kind::Node, node).await?;
    let held = with_finalizer(claim(cidr, "p", node, &node_uid, "Held"));
    rig.cluster.create(&held, Kind::Block).await?;
    rig.cluster.delete_node(node).await?;
    for state in ["Releasing", "Cooling"] {
        let moved = json!({"spec": {"state": state, "reason": "NodeGone", "since": since.to_string()}});
        rig.cluster.patch(Kind::Block, &claim_name(cidr), moved).await?;
    }
    Ok(())
}

/// Of two blocks that cool, a node gets the one that has cooled by the clock of the server, which is ahead of the
/// machine by this time. By the clock of the machine, both or none has cooled.
async fn blocks_cool_by_the_clock_of_the_server(ahead: SignedDuration) -> Result<()> {
    judged_for_safety(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/27"]).with("reuseAfterNodeLoss", "1h");
        rig.cluster.create_pool(&pool).await?;
        let on_server = || Timestamp::now() + ahead;
        cooling(rig, "10.1.0.0/28", "lost", on_server() - REUSE_AFTER_NODE_LOSS).await?;
        cooling(rig, "10.1.0.16/28", "lost-now", on_server()).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        proxy.put_clock_ahead(ahead);
        let controller = Controller::start_ready_behind(&rig.control_plane, &proxy, PROMPT).await?;

        // No process frees a block that it has not seen cooling for 30 s.
        let agent = join_one(rig, NodeSpec::new("n")).await?;
        let shown = rig.cluster.object(Kind::Block, "10.1.0.0-28").context("the claim of n")?;
        let since: Timestamp = shown.data["spec"]["since"].as_str().context("a time")?.parse()?;
        let error = since.duration_since(on_server());
        ensure!(error.abs() < SignedDuration::from_mins(10), "{since} is {error} ahead");
        let cooling = rig.cluster.claims_of("lost-now");
        ensure!(cooling.len() == 1 && cooling[0].state == "Cooling", "{cooling:?}");

        let direction = if ahead.is_positive() { "behind the API server" } else { "ahead of the API server" };
        controller.wait_logged(direction, SOON).await?;
        let (_, metrics) = controller.get("/metrics").await?;
        ensure!(metrics.contains("cilium_node_ipam_findings{kind=\"ClockDiffers\"} 1"), "{metrics}");
        Ok((controller, agent, proxy))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_clock_is_behind_frees_what_has_cooled() -> Result<()> {
    blocks_cool_by_the_clock_of_the_server(SignedDuration::from_hours(2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_clock_is_ahead_frees_nothing_too_early() -> Result<()> {
    blocks_cool_by_the_clock_of_the_server(SignedDuration::from_hours(-2)).await
}
