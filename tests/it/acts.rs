//! The commands that write, on a real API server: the states of CIDRs, and the freeze.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use crate::answers::{ask, documented, sixty_nodes};
use crate::scene::versions;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::objects::Kind;
use crate::support::rig::{Rig, without_product};

/// The CIDRs of a pool, with their states.
async fn cidrs(rig: &Rig, pool: &str) -> Result<Value> {
    Ok(rig.cluster.read(Kind::Pool, pool).await?.data["spec"]["ipv4"]["cidrs"].clone())
}

async fn freeze(plane: &ControlPlane) -> Result<Option<Value>> {
    let api: Api<ConfigMap> = Api::namespaced(plane.admin.clone(), "kube-system");
    let found = api.get_opt("cilium-node-ipam").await?;
    Ok(found.map(|found| serde_json::to_value(found.data)).transpose()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_write_show_the_consequences_and_ask_first() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        plane.allow("cidr-without-claim", None, None).await?;
        sixty_nodes(rig).await?;
        let shown = ask(plane, &["cordon", "10.4.0.0/22", "--yes"]).await?;
        documented("cordon 10.4.0.0/22 --yes", &shown)?;
        let second = json!([{"cidr": "10.4.0.0/22", "state": "Active"}, {"cidr": "10.5.0.0/24", "state": "Active"}]);
        rig.cluster.patch(Kind::Pool, "rack", json!({"spec": {"ipv4": {"cidrs": second}}})).await?;
        let before = versions(rig, &Kind::ALL).await?;

        // The user can not be asked.
        for command in [
            &["cordon", "rack"][..],
            &["uncordon", "rack"],
            &["drain", "rack"],
            &["freeze"],
            &["unfreeze"],
        ] {
            let refused = ask(plane, command).await?;
            ensure!(
                refused.code == Some(2) && refused.errors.contains("repeat it with --yes"),
                "{command:?}: {}{}",
                refused.text,
                refused.errors
            );
        }
        for (command, why) in [
            (&["cordon", "none", "--yes"][..], "NodeIPPool none does not exist"),
            (&["drain", "10.4.0.0/24", "--yes"], "10.4.0.0/24 is a part of the CIDR 10.4.0.0/22 of pool rack"),
            (&["uncordon", "10.9.0.0/24", "--yes"], "no pool has a CIDR within 10.9.0.0/24"),
        ] {
            let refused = ask(plane, command).await?;
            ensure!(refused.code == Some(2) && refused.errors.contains(why), "{command:?}: {}", refused.errors);
        }
        ensure!(versions(rig, &Kind::ALL).await? == before, "a refused command wrote something");

        // One of two CIDRs.
        let cordoned = ask(plane, &["cordon", "10.4.0.0/22", "--yes"]).await?;
        ensure!(cordoned.code == Some(0), "{:?} {}", cordoned.code, cordoned.errors);
        cordoned.assert_lines(&[
            "write pool rack: 10.4.0.0/22 Active -> Cordoned",
            "pool rack cordoned (10.4.0.0/22)",
        ])?;
        let states = |first: &str, second: &str| {
            json!([{"cidr": "10.4.0.0/22", "state": first}, {"cidr": "10.5.0.0/24", "state": second}])
        };
        ensure!(cidrs(rig, "rack").await? == states("Cordoned", "Active"), "{}", cidrs(rig, "rack").await?);
        let again = ask(plane, &["cordon", "10.4.0.0/22", "--yes"]).await?;
        ensure!(again.code == Some(0) && again.errors.contains("Cordoned already"), "{}", again.errors);
        ensure!(!again.text.contains("pool rack cordoned"), "{}", again.text);
        // All of a pool.
        let active = ask(plane, &["uncordon", "rack", "--yes", "-o", "json"]).await?;
        ensure!(active.code == Some(0) && active.json()?["written"] == true, "{}{}", active.text, active.errors);
        ensure!(cidrs(rig, "rack").await? == states("Active", "Active"), "{}", cidrs(rig, "rack").await?);

        // A drain that finishes, and one that waits for nodes.
        let empty = ask(plane, &["drain", "10.5.0.0/24", "--yes", "--wait"]).await?;
        ensure!(empty.code == Some(0), "{:?} {}", empty.code, empty.errors);
        ensure!(empty.errors.contains("all blocks of 10.5.0.0/24 have left their nodes"), "{}", empty.errors);
        ensure!(cidrs(rig, "rack").await? == states("Active", "Draining"), "{}", cidrs(rig, "rack").await?);
        let waiting = ask(plane, &["drain", "edge", "--yes", "--wait", "--timeout", "5s"]).await?;
        ensure!(waiting.code == Some(1), "{:?} {}", waiting.code, waiting.errors);
        waiting.assert_lines(&["pool edge draining (10.2.0.0/24)"])?;
        for line in [
            "14 blocks of pool edge on nodes",
            "  14 blocks when the node rejoins (reboot): ",
            "timed out: 14 blocks remain; the drain continues",
        ] {
            ensure!(waiting.errors.lines().any(|shown| shown.starts_with(line)), "{}", waiting.errors);
        }
        ensure!(cidrs(rig, "edge").await?[0]["state"] == "Draining", "{}", cidrs(rig, "edge").await?);

        // The freeze.
        let frozen = ask(plane, &["freeze", "--yes", "--reason", "maintenance"]).await?;
        documented("freeze --yes --reason maintenance", &frozen)?;
        ensure!(frozen.code == Some(0), "{:?} {}", frozen.code, frozen.errors);
        let data = json!({"freeze-writes": "true", "reason": "maintenance"});
        ensure!(freeze(plane).await? == Some(data), "{:?}", freeze(plane).await?);
        let screen = ask(plane, &["status"]).await?;
        ensure!(screen.text.contains("FROZEN"), "{}", screen.text);
        ask(plane, &["freeze", "--yes", "--reclaim"]).await?.assert_lines(&["reclaim frozen"])?;
        let data = json!({"freeze-reclaim": "true", "freeze-writes": "true", "reason": "maintenance"});
        ensure!(freeze(plane).await? == Some(data), "{:?}", freeze(plane).await?);
        ask(plane, &["unfreeze", "--yes", "--reclaim"]).await?.assert_lines(&["reclaim unfrozen"])?;
        let data = json!({"freeze-writes": "true", "reason": "maintenance"});
        ensure!(freeze(plane).await? == Some(data), "{:?}", freeze(plane).await?);
        let thawed = ask(plane, &["unfreeze", "--yes"]).await?;
        ensure!(thawed.code == Some(0) && thawed.text.contains("\nproposed "), "{}{}", thawed.text, thawed.errors);
        thawed.assert_lines(&["unfrozen"])?;
        ensure!(freeze(plane).await?.is_none(), "{:?}", freeze(plane).await?);
        let nothing = ask(plane, &["unfreeze", "--yes"]).await?;
        ensure!(nothing.code == Some(0) && nothing.errors.contains("does not exist"), "{}", nothing.errors);
        Ok(())
    })
    .await
}
