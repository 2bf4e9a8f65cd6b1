//! The alerts that are shipped, evaluated by a real Prometheus that scrapes the real controller: each state of the cluster
//! that an alert is about makes it fire, and the remedy of its page resolves it.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::scene::{SOON, join, nodes, wait_ready};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::kubectl::kubectl;
use crate::support::objects::PoolSpec;
use crate::support::prometheus::Prometheus;
use crate::support::rig::under_oracle;

/// A replica without a standby makes this one fire.
const ALONE: &str = "StandbyMissing";

#[tokio::test(flavor = "multi_thread")]
async fn alerts_fire_and_their_remedies_resolve_them() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        let prometheus = Prometheus::start(plane).await?;
        let expect = async |alerts: &[&str]| plane.alarm.over(prometheus.wait_firing(alerts, SOON)).await;
        expect(&["ControllerAbsent"]).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"])).await?;
        let controller = Controller::start_ready(plane, &[]).await?;
        prometheus.scrape(&[controller.address()?])?;
        expect(&[ALONE]).await?;

        // The pool has one block, so the second node starts without addresses.
        let served = join(rig, &nodes("served", 1)).await?;
        wait_ready(rig, &served).await?;
        let waits = join(rig, &nodes("waits", 1)).await?;
        expect(&[ALONE, "NodesWaiting", "NodesWithoutAddresses", "PoolFull"]).await?;
        let set_cidrs = async |first: &str, second: &str| {
            let cidrs =
                json!([{"cidr": "10.1.0.0/28", "state": first}, {"cidr": "10.1.1.0/24", "state": second}]);
            let patch = json!({"spec": {"ipv4": {"cidrs": cidrs}}}).to_string();
            kubectl(plane, &["patch", "nip", "p", "--type=merge", "-p", &patch]).await
        };
        set_cidrs("Active", "Active").await?;
        wait_ready(rig, &waits).await?;
        expect(&[ALONE]).await?;

        // The first block of a node stays with it.
        set_cidrs("Draining", "Active").await?;
        expect(&[ALONE, "DrainBlocked"]).await?;
        set_cidrs("Cordoned", "Cordoned").await?;
        expect(&[ALONE, "PoolNotReady"]).await?;
        set_cidrs("Active", "Active").await?;
        expect(&[ALONE]).await?;

        let freeze = ["-n", "kube-system", "create", "configmap", "cilium-node-ipam"];
        kubectl(plane, &[&freeze[..], &["--from-literal=freeze-writes=true"]].concat()).await?;
        expect(&[ALONE, "Frozen"]).await?;
        kubectl(plane, &["-n", "kube-system", "delete", "configmap", "cilium-node-ipam"]).await?;
        expect(&[ALONE]).await?;

        let set_mode = async |mode: &str| {
            let data = json!({"data": {"ipam": mode}}).to_string();
            let patch = ["-n", "kube-system", "patch", "configmap", "cilium-config", "--type=merge", "-p"];
            kubectl(plane, &[&patch[..], &[&data]].concat()).await
        };
        set_mode("eni").await?;
        expect(&[ALONE, "Passive"]).await?;
        set_mode("crd").await?;
        expect(&[ALONE]).await?;

        ensure!(controller.sigterm_and_wait().await?.success(), "SIGTERM");
        expect(&["ControllerAbsent"]).await?;
        let controller = Controller::start_ready(plane, &[]).await?;
        prometheus.scrape(&[controller.address()?])?;
        expect(&[ALONE]).await?;
        Ok((controller, served, waits))
    })
    .await
}

/// The Lease names a holder that does not exist, as after a restored backup; the page says how to free it.
#[tokio::test(flavor = "multi_thread")]
async fn alerts_on_replicas_follow_the_lease() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        let prometheus = Prometheus::start(plane).await?;
        let expect = async |alerts: &[&str]| plane.alarm.over(prometheus.wait_firing(alerts, SOON)).await;
        let first = Controller::start_ready(plane, &[ELECTED]).await?;
        prometheus.scrape(&[first.address()?])?;
        expect(&[ALONE]).await?;
        let second = Controller::start_ready(plane, &[ELECTED]).await?;
        prometheus.scrape(&[first.address()?, second.address()?])?;
        expect(&[]).await?;

        let lease = async |spec: serde_json::Value| {
            let patch = json!({ "spec": spec }).to_string();
            let name = ["-n", "kube-system", "patch", "lease", "cilium-node-ipam", "--type=merge", "-p"];
            kubectl(plane, &[&name[..], &[&patch]].concat()).await
        };
        lease(json!({"holderIdentity": "lost", "leaseDurationSeconds": 300})).await?;
        expect(&["NoLeader"]).await?;
        lease(json!({"holderIdentity": null})).await?;
        expect(&[]).await?;

        first.sigkill().await?;
        expect(&[ALONE]).await?;
        Ok(second)
    })
    .await
}
