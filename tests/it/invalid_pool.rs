//! A pool becomes invalid while nodes hold its blocks, as another version of its definition may allow. No node loses a
//! block, and no other pool gives out its addresses.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::chronicle::in_another_second;
use crate::operator::wait_events;
use crate::scene::{PROMPT, join, join_one, versions, wait_claims_carried, wait_ready, wait_status};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, assert_no_writes_proposed};
use crate::support::families::Families;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// A server that accepts pools of any form.
fn lenient() -> Options {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pools = root.join("tests/it/support/lenient-nodeippools.yaml");
    Options {
        crds: vec![pools, root.join("crds/nodeipblocks.nodeipam.io.yaml")],
        ..Options::of(Families::V4)
    }
}

/// Returns when the pool says that it can or can't be read.
async fn wait_ready_reason(rig: &Rig, pool: &str, reason: &str) -> Result<Value> {
    wait_status(rig, pool, reason, |status| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["reason"] == reason)
    })
    .await
}

/// An error in the spec rewrites nothing: the running controller and one that starts decide alike, for any error.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_turns_invalid_loses_nothing_and_gives_out_nothing() -> Result<()> {
    under_oracle(lenient(), async |rig| {
        let older = PoolSpec::new("older").ipv4(28, &["10.1.0.0/26"]).select("pool", "older");
        let older = rig.cluster.create_pool(&older).await?;
        in_another_second(&older).await?;
        // The older pool has half of it.
        let younger = PoolSpec::new("younger").ipv4(28, &["10.1.0.0/25"]).select("pool", "younger");
        rig.cluster.create_pool(&younger).await?;
        let mut controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agents = vec![join_one(rig, NodeSpec::new("o0").label("pool", "older")).await?];

        let mut late = Vec::new();
        // A value against a rule, and one of another type.
        let slips = [
            (json!({"priority": 2_000_000_000}), json!({"priority": null})),
            (json!({"ipv4": {"blockSize": "28"}}), json!({"ipv4": {"blockSize": 28}})),
        ];
        for (number, (slip, fixed)) in slips.into_iter().enumerate() {
            let held = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
            rig.cluster.patch_pool("older", slip.clone()).await?;
            wait_ready_reason(rig, "older", "Invalid").await?;
            wait_events(rig, &[("NodeIPPool", "InvalidPool", "Warning")]).await?;
            assert_no_writes_proposed(&rig.control_plane).await?;
            let after = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
            ensure!(after == held, "{slip} changed something");

            // One more node waits for the invalid pool, and the younger pool gives out its own blocks.
            let name = format!("o{}", number + 1);
            late.push(join(rig, &[NodeSpec::new(&name).label("pool", "older")]).await?);
            for restart in ["running", "restarted"] {
                let node = NodeSpec::new(format!("{restart}{number}")).label("pool", "younger");
                agents.push(join_one(rig, node).await?);
                controller.sigkill().await?;
                controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
            }
            let given: Vec<String> = agents[1..]
                .iter()
                .flat_map(|agent| rig.cluster.claims_of(agent.name()))
                .map(|claim| claim.cidr)
                .collect();
            let own = ["10.1.0.64/28", "10.1.0.80/28", "10.1.0.96/28", "10.1.0.112/28"];
            ensure!(given.iter().all(|cidr| own.contains(&cidr.as_str())), "{given:?}");
            if number == 1 {
                // All its own blocks are given out, and the rest of the invalid pool is not.
                rig.excuse("waiting");
                late.push(join(rig, &[NodeSpec::new("waiting").label("pool", "younger")]).await?);
                wait_status(rig, "younger", "a waiting node", |status| status["nodes"]["waiting"] == 1)
                    .await?;
            }
            ensure!(rig.cluster.claims_of(&name).is_empty(), "{name} got a block of an invalid pool");
            let after = versions(rig, &[Kind::CiliumNode, Kind::Block]).await?;
            let is_first = |(_, name, _): &&(Kind, String, String)| name == "o0" || name == "10.1.0.0-28";
            ensure!(held.iter().filter(is_first).all(|version| after.contains(version)), "{slip}");

            rig.cluster.patch_pool("older", fixed).await?;
            wait_ready_reason(rig, "older", "Serving").await?;
            wait_ready(rig, &late[number]).await?;
        }
        wait_claims_carried(rig).await?;
        let blocks: Vec<String> = ["o0", "o1", "o2"]
            .iter()
            .flat_map(|node| rig.cluster.claims_of(node))
            .map(|claim| claim.cidr)
            .collect();
        ensure!(blocks == ["10.1.0.0/28", "10.1.0.32/28", "10.1.0.16/28"], "{blocks:?}");
        Ok((controller, agents, late))
    })
    .await
}
