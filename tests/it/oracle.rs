//! The judgement of the oracle: the tests break every rule on purpose through the API, and the oracle must find it
//! under its name.
//!
//! The claims of these tests have no schema, because the product's schema refuses some of these writes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::alarm::Alarm;
use crate::support::cluster::Cluster;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::eventually::eventually;
use crate::support::families::Families;
use crate::support::findings::Finding;
use crate::support::objects::{Kind, NodeSpec, claim, claim_name};
use crate::support::rig::without_product;

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_is_found_when_it_is_broken() -> Result<()> {
    let mut bench = Bench::start().await?;

    bench.claim("10.1.0.0/27", "a1", "Held").await?;
    bench.claim("10.1.0.16/28", "a2", "Held").await?;
    bench.publish("a1", json!({"podCIDRs": ["10.1.0.0/27"]})).await?;
    bench.publish("a2", json!({"podCIDRs": ["10.1.0.16/28"]})).await?;
    bench.expect("podCIDRs of two nodes overlap", &[("overlapping-podcidrs", "10.1.0.16/28")]).await?;

    bench.serve("b1", "10.2.0.0/28", &["10.2.0.1"]).await?;
    bench.serve("b2", "10.2.0.16/28", &["10.2.0.17"]).await?;
    bench.expect("two nodes side by side", &[]).await?;
    bench.publish("b2", json!({"pool": {"10.2.0.1": {}}})).await?;
    let twice = [("address-in-two-pools", "10.2.0.1/32"), ("address-outside-podcidrs", "10.2.0.1/32")];
    bench.expect("one address in the pools of two nodes", &twice).await?;

    bench.serve("c1", "10.3.0.0/28", &["10.3.0.16"]).await?;
    bench.expect("an address beside the block", &[("address-outside-podcidrs", "10.3.0.16/32")]).await?;
    bench.serve("c2", "10.3.1.0/28", &["10.3.1.1"]).await?;
    bench.publish("c2", json!({"podCIDRs": []})).await?;
    bench
        .expect("a block taken off before its addresses", &[("address-outside-podcidrs", "10.3.1.1/32")])
        .await?;

    bench.publish("d1", json!({"podCIDRs": ["10.4.0.0/28"]})).await?;
    bench.claim("10.4.0.0/28", "d1", "Held").await?;
    bench.expect("published before it was claimed", &[("cidr-without-claim", "10.4.0.0/28")]).await?;
    bench.claim("10.4.0.16/28", "d1", "Held").await?;
    bench.publish("d2", json!({"podCIDRs": ["10.4.0.16/28"]})).await?;
    bench.expect("published on another node", &[("cidr-without-claim", "10.4.0.16/28")]).await?;
    bench.serve("d3", "10.4.0.32/28", &["10.4.0.33"]).await?;
    bench.state("10.4.0.32/28", "Releasing").await?;
    bench.expect("still carried while it is being released", &[]).await?;
    bench.state("10.4.0.32/28", "Cooling").await?;
    bench.expect("still carried while it cools", &[("cidr-without-claim", "10.4.0.32/28")]).await?;

    bench.serve("e1", "10.5.0.0/28", &["10.5.0.1"]).await?;
    bench.unclaim("10.5.0.0/28").await?;
    bench.expect("claim deleted too early", &[("claim-deleted-while-carried", "10.5.0.0/28")]).await?;
    bench.serve("e2", "10.5.0.16/28", &["10.5.0.17"]).await?;
    bench.released("e2", "10.5.0.17").await?;
    bench.publish("e2", json!({"podCIDRs": [], "pool": {"10.5.0.17": null}})).await?;
    bench.unclaim("10.5.0.16/28").await?;
    bench.expect("claim deleted in time", &[]).await?;
    bench.publish("e2", json!({"podCIDRs": ["10.5.0.16/28"]})).await?;
    bench
        .expect("published again after the claim is gone", &[("cidr-without-claim", "10.5.0.16/28")])
        .await?;

    bench.serve("f1", "10.6.0.0/28", &["10.6.0.1"]).await?;
    bench.serve("f2", "10.6.0.16/28", &["10.6.0.17"]).await?;
    bench.used("f1", "10.6.0.1").await?;
    bench.used("f2", "10.6.0.1").await?;
    bench.expect("two nodes say that they use one address", &[("used-twice", "10.6.0.1/32")]).await?;

    bench.control_plane.holds("g1", &["10.7.0.1", "fd00::1"], &[]).await?;
    bench.control_plane.holds("g2", &["10.7.0.2"], &[]).await?;
    bench.expect("agents with addresses of their own", &[]).await?;
    bench.control_plane.holds("g2", &["fd00::1"], &[]).await?;
    bench.expect("two agents hold one address", &[("agent-address-twice", "fd00::1/128")]).await?;
    bench.control_plane.holds("g1", &[], &["10.7.0.1"]).await?;
    bench.control_plane.holds("g2", &["10.7.0.1"], &[]).await?;
    bench.expect("an address changes hands", &[]).await?;

    bench.serve("i1", "10.9.0.0/28", &["10.9.0.1", "10.9.0.2"]).await?;
    bench.control_plane.holds("i1", &["10.9.0.1"], &[]).await?;
    bench.released("i1", "10.9.0.2").await?;
    bench.publish("i1", json!({"pool": {"10.9.0.2": null}})).await?;
    bench.expect("an address that its agent has let go is taken back", &[]).await?;
    bench.serve("i2", "10.9.0.16/28", &["10.9.0.17"]).await?;
    bench.publish("i2", json!({"pool": {"10.9.0.17": null}})).await?;
    let asked_nobody = [("withdrawn-without-consent", "10.9.0.17/32")];
    bench.expect("an address is taken back that its agent has not let go", &asked_nobody).await?;
    bench.released("i1", "10.9.0.1").await?;
    bench.publish("i1", json!({"pool": {"10.9.0.1": null}})).await?;
    bench.expect("an address is taken from a pod", &[("held-address-withdrawn", "10.9.0.1/32")]).await?;

    bench.control_plane.limit_releasing(Duration::from_secs(5)).await?;
    for (cidr, ended) in [("10.10.0.0/28", "2026-01-01T00:00:05Z"), ("10.10.0.16/28", "2026-01-01T00:00:06Z")]
    {
        bench.claim(cidr, "j1", "Releasing").await?;
        let patch = Patch::Merge(json!({"spec": {"state": "Cooling", "since": ended}}));
        let blocks = Kind::Block.api(&bench.client);
        blocks.patch(&claim_name(cidr), &PatchParams::default(), &patch).await?;
    }
    bench.expect("a claim is moved on late", &[("releasing-too-long", "10.10.0.16/28")]).await?;
    bench.claim("10.10.0.32/28", "j1", "Releasing").await?;
    bench.expect("a claim is left Releasing", &[("releasing-too-long", "10.10.0.32/28")]).await?;
    bench.expect("it is still left", &[]).await?;

    bench.publish("h1", json!({"pool": {"10.8.0.01": {}}})).await?;
    bench.expect("an address that is none", &[("undecodable", "")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_block_breaks_no_rule() -> Result<()> {
    let mut bench = Bench::start().await?;
    bench.serve("n1", "10.1.0.0/28", &["10.1.0.1", "10.1.0.2"]).await?;
    bench.used("n1", "10.1.0.1").await?;
    bench.serve("n1", "10.1.0.16/28", &["10.1.0.17"]).await?;
    bench.state("10.1.0.16/28", "Draining").await?;
    bench.state("10.1.0.16/28", "Releasing").await?;
    bench.released("n1", "10.1.0.17").await?;
    bench.publish("n1", json!({"podCIDRs": ["10.1.0.0/28"], "pool": {"10.1.0.17": null}})).await?;
    bench.state("10.1.0.16/28", "Cooling").await?;
    bench.unclaim("10.1.0.16/28").await?;
    bench.serve("n2", "10.1.0.16/28", &["10.1.0.17"]).await?;
    // A compaction that the oracle has kept up with is no loss.
    bench.control_plane.compact().await?;
    bench.serve("n2", "10.1.0.32/28", &["10.1.0.33"]).await?;
    bench.expect("a block goes from one node to another", &[]).await?;
    bench.control_plane.assert_clean().await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_lost_to_a_compaction_are_found() -> Result<()> {
    let mut bench = Bench::start().await?;
    bench.serve("n1", "10.1.0.0/28", &["10.1.0.1"]).await?;
    bench.control_plane.compact_behind_oracle().await?;
    bench.expect("compacted before it was read", &[("compacted", "")]).await?;
    // The oracle continues from a snapshot, and has not forgotten the CIDRs on CiliumNodes.
    bench.publish("n2", json!({"podCIDRs": ["10.1.0.0/28"]})).await?;
    let overlap = [("cidr-without-claim", "10.1.0.0/28"), ("overlapping-podcidrs", "10.1.0.0/28")];
    bench.expect("an overlap after the loss", &overlap).await
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_violations_are_listed_apart_and_raise_no_alarm() -> Result<()> {
    let mut bench = Bench::start().await?;
    bench.control_plane.allow("cidr-without-claim", Some("n1"), Some("10.1.0.0/16")).await?;
    bench.publish("n1", json!({"podCIDRs": ["10.1.2.0/28"]})).await?;
    bench.expect("announced", &[]).await?;
    let planted = bench.control_plane.oracle().await?.planted;
    ensure!(planted.len() == 1 && planted[0].cidr == "10.1.2.0/28", "planted: {planted:?}");
    bench.control_plane.assert_clean().await?;

    bench.publish("n2", json!({"podCIDRs": ["10.1.3.0/28"]})).await?;
    bench.expect("of another node", &[("cidr-without-claim", "10.1.3.0/28")]).await?;
    ensure!(bench.control_plane.assert_clean().await.is_err(), "a violation was called clean");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_ends_every_wait() -> Result<()> {
    let bench = Bench::start().await?;
    let alarm = bench.control_plane.alarm.clone();
    let cluster = Cluster::start(bench.client.clone(), Families::V4, alarm).await?;
    let deadline = Duration::from_secs(60);
    let begun = Instant::now();
    let (wait, published) = tokio::join!(
        cluster.wait_until("what never happens", deadline, async || Ok(false)),
        bench.publish("n1", json!({"podCIDRs": ["10.1.0.0/28"]})),
    );
    published?;
    let message = format!("{:#}", wait.err().context("the wait went well")?);
    ensure!(message.contains("cidr-without-claim"), "the wait does not name the violation: {message}");
    ensure!(begun.elapsed() < deadline, "the wait ended with its own deadline");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_hold_one_address_fail_the_test() -> Result<()> {
    let outcome = without_product(Options::without_product(Families::V4), async |rig| {
        let address = "10.1.0.1".parse()?;
        rig.holdings.take("n1", address, "ns/a");
        rig.holdings.take("n2", address, "ns/b");
        Ok(())
    });
    let message = format!("{:#}", outcome.await.err().context("the test went well")?);
    ensure!(message.contains("10.1.0.1 is held twice"), "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_control_plane() -> Result<()> {
    let control_plane = ControlPlane::start(Options::without_product(Families::V4)).await?;
    let pid = |field: &str| control_plane.ready[field].as_u64().with_context(|| field.to_owned());
    let servers = [pid("etcdPid")?, pid("apiserverPid")?];
    ensure!(servers.into_iter().all(runs), "{servers:?} do not run");
    let dirs = [control_plane.dir().to_owned(), control_plane.servers_dir().to_owned()];
    drop(control_plane);
    // If the supervisor had to be killed, the kernel kills the servers a moment later.
    let are_gone = async || {
        ensure!(!servers.into_iter().any(runs), "{servers:?} still run");
        Ok(())
    };
    eventually(Duration::from_secs(60), are_gone).await?;
    ensure!(dirs.iter().all(|dir| !dir.exists()), "of {dirs:?} something is left");
    Ok(())
}

/// Whether the process runs. A zombie does not run, even if no process reaps it.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    let state = stat.as_deref().ok().and_then(|stat| stat.rsplit_once(") ")).map_or("", |(_, after)| after);
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_go_on_after_a_restart_of_the_servers() -> Result<()> {
    use crate::support::control_plane::Target::{ApiServer, Etcd};

    without_product(Options::without_product(Families::V4), async |rig| {
        rig.control_plane.kill(ApiServer).await?;
        rig.control_plane.restart(ApiServer).await?;
        rig.cluster.create_node(&NodeSpec::new("n1")).await?;
        rig.control_plane.stop(ApiServer).await?;
        rig.control_plane.kill(Etcd).await?;
        rig.control_plane.restart(Etcd).await?;
        rig.control_plane.restart(ApiServer).await?;
        rig.cluster.create_node(&NodeSpec::new("n2")).await?;
        rig.cluster
            .wait_until("both nodes", Duration::from_secs(60), async || {
                Ok(rig.cluster.objects(Kind::Node).len() == 2)
            })
            .await
    })
    .await
}

/// A control plane, and its violations that were expected so far.
struct Bench {
    control_plane: ControlPlane,
    client: Client,
    n_seen: usize,
}

impl Bench {
    async fn start() -> Result<Self> {
        let control_plane = ControlPlane::start(Options::without_product(Families::V4)).await?;
        Ok(Self { client: control_plane.admin.clone(), control_plane, n_seen: 0 })
    }

    /// The oracle's new findings are exactly these: rule and CIDR.
    async fn expect(&mut self, what: &str, findings: &[(&str, &str)]) -> Result<()> {
        let report = self.control_plane.oracle().await?;
        let fresh = report.violations.get(self.n_seen..).unwrap_or_default();
        let mut found: Vec<_> =
            fresh.iter().map(|Finding { rule, cidr, .. }| (rule.as_str(), cidr.as_str())).collect();
        found.sort_unstable();
        ensure!(found == findings, "{what}: expected {findings:?}, found {fresh:?}");
        self.n_seen = report.violations.len();
        // Each is also raised at once, as an event.
        ensure!(
            (self.n_seen > 0) == self.control_plane.alarm.check().is_err(),
            "{what}: the alarm says otherwise"
        );
        Ok(())
    }

    async fn claim(&self, cidr: &str, node: &str, state: &str) -> Result<()> {
        let block = claim(cidr, "pool", node, "uid", state);
        Kind::Block.api(&self.client).create(&PostParams::default(), &block).await.map(drop).context("claim")
    }

    /// The claim is in this state from now on.
    async fn state(&self, cidr: &str, state: &str) -> Result<()> {
        let since = k8s_openapi::jiff::Timestamp::now().to_string();
        let patch = Patch::Merge(json!({"spec": {"state": state, "since": since}}));
        let blocks = Kind::Block.api(&self.client);
        blocks.patch(&claim_name(cidr), &PatchParams::default(), &patch).await.map(drop).context("state")
    }

    async fn unclaim(&self, cidr: &str) -> Result<()> {
        let blocks = Kind::Block.api(&self.client);
        blocks.delete(&claim_name(cidr), &DeleteParams::default()).await.map(drop).context("unclaim")
    }

    /// Claims a block and publishes it beside the node's other blocks.
    async fn serve(&self, node: &str, cidr: &str, addresses: &[&str]) -> Result<()> {
        self.claim(cidr, node, "Held").await?;
        let there = Kind::CiliumNode.api(&self.client).get_opt(node).await?;
        let carried = there.map(|object| object.data["spec"]["ipam"]["podCIDRs"].clone()).unwrap_or_default();
        let cidrs: Vec<Value> =
            carried.as_array().into_iter().flatten().cloned().chain([cidr.into()]).collect();
        let mut pool = json!({});
        for address in addresses {
            pool[address] = json!({});
        }
        self.publish(node, json!({"podCIDRs": cidrs, "pool": pool})).await
    }

    /// Merges into `spec.ipam` of the CiliumNode, which is created if it is missing.
    async fn publish(&self, node: &str, ipam: Value) -> Result<()> {
        let nodes = Kind::CiliumNode.api(&self.client);
        if nodes.get_opt(node).await?.is_none() {
            let blank = Kind::CiliumNode.object(node, json!({"spec": {}}));
            nodes.create(&PostParams::default(), &blank).await?;
        }
        let patch = Patch::Merge(json!({"spec": {"ipam": ipam}}));
        nodes.patch(node, &PatchParams::default(), &patch).await.map(drop).context("publish")
    }

    async fn used(&self, node: &str, address: &str) -> Result<()> {
        self.report(node, json!({"used": {address: {"owner": "ns/pod"}}})).await
    }

    async fn released(&self, node: &str, address: &str) -> Result<()> {
        self.report(node, json!({"release-ips": {address: "released"}})).await
    }

    /// Changes the status of a CiliumNode.
    async fn report(&self, node: &str, ipam: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"ipam": ipam}}));
        let nodes = Kind::CiliumNode.api(&self.client);
        nodes.patch_status(node, &PatchParams::default(), &patch).await.map(drop).context("its status")
    }
}

/// The alarm keeps the first cause.
#[tokio::test]
async fn the_first_alarm_is_the_one_reported() {
    let alarm = Alarm::new();
    alarm.raise("first");
    alarm.raise("second");
    assert_eq!(alarm.raised().await.to_string(), "first");
}
