//! A real Prometheus that scrapes the real controller has data for each query of the dashboard.

use anyhow::Result;

use super::dashboard::expressions;
use crate::scene::{SOON, join, let_blocks_be_of_today, nodes, wait_ready};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::objects::PoolSpec;
use crate::support::prometheus::Prometheus;
use crate::support::rig::under_oracle;

/// A query without its last comparison: this cluster has no waiting nodes and no drains.
fn unfiltered(expression: &str) -> String {
    expression.trim_end_matches(" > 0").trim_end_matches(" == 0").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_returns_data() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        let prometheus = Prometheus::start(plane).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let leader = Controller::start_ready(plane, &[ELECTED]).await?;
        let standby = Controller::start_ready(plane, &[ELECTED]).await?;
        prometheus.scrape(&[leader.address()?, standby.address()?])?;
        let agents = join(rig, &nodes("n", 2)).await?;
        // A query asks for nodes without addresses: the agent of this one never starts.
        rig.cluster.create_nodes(&nodes("without-agent", 1)).await?;
        rig.excuse("without-agent0");
        wait_ready(rig, &agents).await?;
        let_blocks_be_of_today(rig, "p", 2).await?;
        for expression in &expressions() {
            plane.alarm.over(prometheus.wait_data(&unfiltered(expression), SOON)).await?;
        }
        Ok((leader, standby, agents))
    })
    .await
}
