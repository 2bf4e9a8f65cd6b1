//! The columns of `kubectl get` for pools and claims, as a real API server prints it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::scene::{PROMPT, SOON, join_one};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The rows of a table of `kubectl get -o wide`, by name: the cells by column. Cells may be empty, so they are cut at
/// the positions of the headers.
async fn table(rig: &Rig, kind: &str) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let text = kubectl(&rig.control_plane, &["get", kind, "-o", "wide"]).await?;
    let mut lines = text.lines();
    let headers = lines.next().context("no headers")?;
    let mut columns: Vec<(usize, &str)> = Vec::new();
    for name in headers.split("  ").map(str::trim).filter(|name| !name.is_empty()) {
        let from = columns.last().map_or(0, |(at, last)| at + last.len());
        columns.push((from + headers[from..].find(name).context("no such header")?, name));
    }
    let cells = |line: &str| -> BTreeMap<String, String> {
        let ends = columns.iter().skip(1).map(|(at, _)| *at).chain([usize::MAX]);
        let cell = |((at, name), end): (&(usize, &str), usize)| {
            let cell = line.get(*at..end.min(line.len())).unwrap_or_default().trim().to_owned();
            ((*name).to_owned(), cell)
        };
        columns.iter().zip(ends).map(cell).collect()
    };
    Ok(lines.map(cells).map(|row| (row["NAME"].clone(), row)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_pools_show_what_happens_to_each_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"]).with("reuseAfterNodeLoss", "1h");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let lost = join_one(rig, NodeSpec::new("lost")).await?;
        let deleted = join_one(rig, NodeSpec::new("deleted")).await?;
        let drained = join_one(rig, NodeSpec::new("drained")).await?;
        lost.power_off().await;
        rig.cluster.delete_node("lost").await?;
        let claim = rig.cluster.claims_of("deleted").pop().context("it holds a block")?;
        kubectl(&rig.control_plane, &["delete", "nib", &claim.cidr.replace('/', "-"), "--wait=false"])
            .await?;
        let draining = json!({"spec": {"ipv4": {"cidrs": [{"cidr": "10.1.0.0/26", "state": "Draining"}]}}});
        rig.cluster.patch(Kind::Pool, "p", draining).await?;

        let expected = [("deleted", "Deleting"), ("drained", "WillDrain"), ("lost", "Cooling")];
        let states = async || {
            let rows = table(rig, "nib").await?;
            let by_node = rows.into_values().map(|row| (row["NODE"].clone(), row));
            anyhow::Ok(by_node.collect::<BTreeMap<_, _>>())
        };
        let is_shown = async || {
            let rows = states().await?;
            let shown = rows.iter().map(|(node, row)| (node.as_str(), row["STATE"].as_str()));
            Ok(shown.eq(expected) && !rows["lost"]["UNTIL"].is_empty())
        };
        let waited = rig.cluster.wait_until("the words of the claims", SOON, is_shown).await;
        waited.with_context(|| claims_of(rig))?;
        let rows = states().await?;
        let (waiting, until) = (&rows["drained"]["WAITING FOR"], &rows["lost"]["UNTIL"]);
        ensure!(waiting.starts_with("the first block of a node stays"), "{waiting}");
        ensure!(until.len() == "2026-01-01T00:00:00Z".len() && until.ends_with('Z'), "{until}");
        ensure!(rows.values().all(|row| row["POOL"] == "p" && row["PODS"].is_empty()), "{rows:?}");
        ensure!(rows["drained"]["CIDR"].ends_with("/28"), "{rows:?}");

        let expected = json!([{
            "cidr": "10.1.0.0/26", "total": 4, "held": 2, "draining": 0, "cooling": 1, "free": 0,
            "foreign": 0, "excluded": 0,
        }]);
        let is_counted = async || {
            Ok(rig
                .cluster
                .object(Kind::Pool, "p")
                .is_some_and(|pool| pool.data["status"]["cidrs"] == expected))
        };
        rig.cluster.wait_until("the counts of the CIDR", SOON, is_counted).await?;
        let pools = table(rig, "nip").await?;
        ensure!(pools["p"]["CIDRS"] == "10.1.0.0/26=2/4", "{pools:?}");
        Ok((controller, (deleted, drained)))
    })
    .await
}

/// The claims as objects, for the message of a failure.
fn claims_of(rig: &Rig) -> String {
    let claims = rig.cluster.objects(Kind::Block);
    format!("{:#?}", claims.iter().map(|claim| &claim.data).collect::<Vec<_>>())
}
