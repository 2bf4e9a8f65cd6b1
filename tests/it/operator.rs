//! The view of a cluster operator while a pool fills and is enlarged: conditions, events, metrics and log lines, on a
//! real API server.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

use crate::scene::{SOON, join, nodes, wait_ready, wait_status};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::PoolSpec;
use crate::support::rig::{Rig, under_oracle};

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_fills_and_grows_is_told_in_every_way() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let began = Instant::now();
        // Two blocks for three nodes.
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/27"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &[]).await?;
        ensure!(controller.get("/livez").await? == (200, "ok\n".to_owned()));
        let agents = join(rig, &nodes("n", 3)).await?;

        let status = wait_status(rig, "p", "a node that waits", |status| {
            status["nodes"]
                == json!({"selected": 3, "served": 2, "waiting": 1, "wantGrowth": 0, "without": 1})
        })
        .await?;
        let exhausted = status["conditions"]
            .as_array()
            .and_then(|conditions| conditions.iter().find(|condition| condition["type"] == "Exhausted"))
            .context("no condition Exhausted")?;
        ensure!(exhausted["reason"] == "NoFreeBlocks" && exhausted["status"] == "True", "{exhausted}");
        wait_events(rig, &[("NodeIPPool", "Exhausted", "Warning"), ("Node", "NoCapacity", "Warning")])
            .await?;
        wait_metrics(
            rig,
            &controller,
            &[
                r#"cilium_node_ipam_pool_blocks{pool="p",family="ipv4",state="held"} 2"#,
                r#"cilium_node_ipam_pool_blocks{pool="p",family="ipv4",state="free"} 0"#,
                r#"cilium_node_ipam_pool_nodes{pool="p",state="served"} 2"#,
                r#"cilium_node_ipam_pool_nodes{pool="p",state="waiting"} 1"#,
                r#"cilium_node_ipam_pool_condition{pool="p",condition="Exhausted"} 1"#,
                r#"cilium_node_ipam_writes_total{kind="claim",outcome="done"} 2"#,
                "cilium_node_ipam_ready 1",
                "cilium_node_ipam_writes_in_flight_limit 32",
            ],
        )
        .await?;

        rig.cluster
            .patch_pool("p", json!({"ipv4": {"cidrs": [{"cidr": "10.1.0.0/27"}, {"cidr": "10.2.0.0/27"}]}}))
            .await?;
        wait_ready(rig, &agents).await?;
        wait_events(
            rig,
            &[("NodeIPPool", "CapacityReturned", "Normal"), ("Node", "BlocksPublished", "Normal")],
        )
        .await?;
        wait_metrics(
            rig,
            &controller,
            &[
                r#"cilium_node_ipam_pool_nodes{pool="p",state="served"} 3"#,
                r#"cilium_node_ipam_pool_condition{pool="p",condition="Exhausted"} 0"#,
                r#"cilium_node_ipam_nodes{state="waiting"} 0"#,
                r#"cilium_node_ipam_writes_total{kind="publish",outcome="done"} 3"#,
                "cilium_node_ipam_writes_in_flight 0",
            ],
        )
        .await?;

        let log = std::fs::read_to_string(controller.log())?;
        for step in ["Claimed", "Published"] {
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!(" {step} "))).collect();
            ensure!(lines.len() == 3, "{} lines of {step}:\n{}", lines.len(), lines.join("\n"));
            for line in lines {
                for part in ["node=n", "pool=\"p\"", "block=\"10.", "reason=\"FirstGrant\""] {
                    ensure!(line.contains(part), "{part} is not in {line}");
                }
            }
        }

        let text = controller.get("/metrics").await?.1;
        let written = value(&text, r#"cilium_node_ipam_writes_total{kind="pool_status",outcome="done"}"#)?;
        // One at once, and then at most one a second.
        ensure!(written <= began.elapsed().as_secs_f64() + 1.0, "{written} writes of a status");
        ensure!(!text.contains("n0"), "a node is named:\n{text}");
        Ok(controller)
    })
    .await
}

fn value(text: &str, series: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    Ok(line.with_context(|| format!("{series} is not there"))?.trim().parse()?)
}

async fn wait_metrics(rig: &Rig, controller: &Controller, wanted: &[&str]) -> Result<()> {
    let says_all = |answer: &Result<(u16, String)>| {
        // A machine that is busy with other tests may refuse a connection.
        let Ok((code, text)) = answer else { return Ok(false) };
        ensure!(*code == 200 && text.ends_with("# EOF\n"), "{code}: {text}");
        let shown: BTreeSet<&str> = text.lines().collect();
        Ok(wanted.iter().all(|line| shown.contains(*line)))
    };
    let what = format!("/metrics to say all of {wanted:#?}");
    rig.control_plane.alarm.over(controller.wait_answer("/metrics", &what, SOON, says_all)).await
}

/// Returns when there are events of these kinds, reasons and types.
pub(crate) async fn wait_events(rig: &Rig, wanted: &[(&str, &str, &str)]) -> Result<()> {
    let api: Api<Event> = Api::namespaced(rig.cluster.client.clone(), "default");
    let mut missing: BTreeSet<_> = wanted.iter().collect();
    let come = async {
        // Lists first, and then follows.
        let mut events = pin!(watcher(api, watcher::Config::default()).applied_objects());
        while let Some(event) = events.try_next().await? {
            let regarding = event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref());
            if event.reporting_controller.as_deref() != Some("cilium-node-ipam") {
                continue;
            }
            let found = (regarding, event.reason.as_deref(), event.type_.as_deref());
            missing.retain(|(kind, reason, of_type)| found != (Some(*kind), Some(*reason), Some(*of_type)));
            if missing.is_empty() {
                return Ok(());
            }
        }
        bail!("the watch of events ended")
    };
    let outcome = tokio::time::timeout(SOON, rig.control_plane.alarm.over(come)).await;
    match outcome {
        Ok(outcome) => outcome,
        Err(_) => bail!("waited {SOON:?} in vain for the events {missing:?}"),
    }
}
