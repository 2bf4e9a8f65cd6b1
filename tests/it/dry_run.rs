//! `run --dry-run` decides as the controller does and writes nothing.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::scene::{PROMPT, SOON, cilium_node, versions, wait_claims_carried};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, dry_run, dry_run_output};
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim};
use crate::support::rig::under_oracle;

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_reports_every_write_and_makes_none() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/24"])).await?;
        for (name, zone) in [("claimed", "a"), ("fresh", "a"), ("elsewhere", "b")] {
            rig.cluster.create_node(&NodeSpec::new(name).label("zone", zone)).await?;
            rig.cluster.create(&cilium_node(name, &json!({"pools": {}})), Kind::CiliumNode).await?;
        }
        let uid = rig.cluster.read(Kind::Node, "claimed").await?.metadata.uid.unwrap_or_default();
        rig.cluster.create(&claim("10.1.0.0/28", "p", "claimed", &uid, "Held"), Kind::Block).await?;

        // A node whose only pool is full.
        rig.cluster
            .create_pool(&PoolSpec::new("full").select("zone", "c").ipv4(28, &["10.2.0.0/28"]))
            .await?;
        rig.cluster.create_node(&NodeSpec::new("waiting").label("zone", "c")).await?;
        rig.cluster.create(&cilium_node("waiting", &json!({"pools": {}})), Kind::CiliumNode).await?;
        rig.cluster.create(&claim("10.2.0.0/28", "full", "claimed", &uid, "Held"), Kind::Block).await?;

        let before = versions(rig, &Kind::ALL).await?;
        let proposed = dry_run(&rig.control_plane).await?;
        ensure!(versions(rig, &Kind::ALL).await? == before, "the dry run wrote something");
        for line in [
            "would publish [10.1.0.0/28 10.2.0.0/28] and 32 addresses on ciliumnode claimed",
            "would claim 10.1.0.32/28 of pool p for node fresh",
        ] {
            ensure!(proposed.iter().any(|proposed| proposed == line), "no line {line:?} in {proposed:#?}");
        }
        ensure!(!proposed.iter().any(|line| line.contains("elsewhere")), "{proposed:#?}");
        let output = dry_run_output(&rig.control_plane).await?;
        for line in [
            "node waiting waits: no pool that selects it has a free block",
            "  pool p gives nothing: the node does not match `zone=a`",
            "  pool full gives no ipv4 block: all blocks are taken",
            "1 node without a pool: elsewhere",
        ] {
            ensure!(output.lines().any(|shown| shown == line), "no line {line:?} in:\n{output}");
        }
        let finding = "finding NoPool Node elsewhere: ";
        ensure!(output.lines().any(|line| line.starts_with(finding)), "no line {finding:?} in:\n{output}");
        ensure!(dry_run(&rig.control_plane).await? == proposed, "asked twice, it decides differently");

        rig.cluster.delete_node("waiting").await?;
        rig.cluster.delete(Kind::CiliumNode, "waiting").await?;
        // The controller then does as the dry run said.
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        for (name, blocks) in [("claimed", &["10.1.0.0/28", "10.2.0.0/28"][..]), ("fresh", &["10.1.0.32/28"])]
        {
            rig.cluster.wait_published(name, blocks[0], SOON, |seen| seen.pod_cidrs == blocks).await?;
        }
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}

/// The controller reads the claims of such a node before it claims its only block. A user who takes over a cluster
/// wants to know which block that is.
#[tokio::test(flavor = "multi_thread")]
async fn dry_run_says_which_block_a_node_of_one_block_would_get() -> Result<()> {
    under_oracle(Options { ipam: "kubernetes", ..Options::default() }, async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        let proposed = dry_run(&rig.control_plane).await?;
        let line = "would claim 10.1.0.0/28 of pool p for node n";
        ensure!(proposed.iter().any(|proposed| proposed == line), "no line {line:?} in {proposed:#?}");
        rig.cluster.delete_node("n").await?;
        Controller::start_ready(&rig.control_plane, PROMPT).await
    })
    .await
}
