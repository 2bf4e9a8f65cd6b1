//! The shipped alerts, evaluated by a real Prometheus that scrapes the real controller. Each state of the cluster that
//! causes an alert makes it fire, and the remedy of its page resolves it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::agent_pods::create_agent_pod;
use crate::scene::{
    SOON, cilium_node, join, join_one, let_blocks_be_of_today, nodes, pool_status, wait_ready,
};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED, command};
use crate::support::eventually::eventually;
use crate::support::fleet::Fleet;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::prometheus::Prometheus;
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};

/// A replica without a standby makes this one fire.
const ALONE: &str = "StandbyMissing";

/// The alerts that no test here provokes, and the reason. `tests/prometheus` evaluates them like all others.
///
/// The self-check compares the state that a process derives from objects with the objects that it has seen. Both change
/// in one step. So no edit of an object or of the store can make them differ. Only a defect can, and a known defect
/// would be fixed. `controller/run.rs` tests that a difference is shown in the metrics and stops the process.
const NOT_PROVOKED: [(&str, &str); 2] = [
    ("BrokenInvariant", "no state of a cluster breaks an invariant"),
    ("DefinitionDeleted", "the test of its page deletes the definitions, and waits for the finding"),
];

/// The replica whose process starts again.
const REPLICA: &str = "replica-0";

/// For alerts that resolve a minute after their cause is gone, on a machine that is busy with other tests.
const MINUTES: Duration = Duration::from_secs(180);

#[test]
fn every_alert_is_provoked_or_has_a_reason_why_not() {
    let rules: Value = serde_saphyr::from_str(include_str!("../../manifests/alerts.yaml")).unwrap();
    let source = include_str!("alerting.rs");
    let (_, tests) = source.split_once("alerts_fire_and_their_remedies_resolve_them() ->").unwrap();
    let excused: BTreeSet<&str> = NOT_PROVOKED.map(|(name, _)| name).into();
    let mut n_alerts = 0;
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().and_then(|name| name.strip_prefix("CiliumNodeIPAM")).unwrap();
        let is_provoked = name == ALONE || tests.contains(&format!("\"{name}\""));
        assert!(is_provoked != excused.contains(name), "{name}: provoked {is_provoked}");
        n_alerts += 1;
    }
    assert!(n_alerts > 20, "{n_alerts}");
}

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

/// The pools are full, the nodes odd, and the API server away: each cause by itself.
#[tokio::test(flavor = "multi_thread")]
async fn alerts_on_odd_nodes_and_lost_servers_end_with_their_cause() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        let prometheus = Prometheus::start(plane).await?;
        let expect = async |alerts: &[&str]| plane.alarm.over(prometheus.wait_firing(alerts, SOON)).await;
        let zone = |name: &str, zone: &str| NodeSpec::new(name).label("zone", zone);
        let add_cidr = async |pool: &str, cidrs: Value| {
            let patch = json!({"spec": {"ipv4": {"cidrs": cidrs}}}).to_string();
            kubectl(plane, &["patch", "nip", pool, "--type=merge", "-p", &patch]).await
        };

        // The API server is away when the controller starts.
        let proxy = Proxy::start(plane, cluster.bell.clone()).await?;
        let away = proxy.plant(Requests::all(), Fault::Status(503), Often::Always);
        let mut controller = Controller::start_behind(plane, &proxy, &[])?;
        controller.wait_answer("/livez", "its HTTP server", SOON, |answer| Ok(answer.is_ok())).await?;
        prometheus.scrape(&[controller.address()?])?;
        expect(&[ALONE, "NotServing", "ReplicaNotReady", "WatchNotFollowed"]).await?;
        drop(away);
        plane.alarm.over(controller.wait_ready()).await?;
        expect(&[ALONE]).await?;

        // One of 16 blocks is free.
        let narrow = PoolSpec::new("narrow").select("zone", "a").ipv4(28, &["10.1.0.0/24"]);
        cluster.create_pool(&narrow.with("perNode", json!({"initialBlocks": 15, "maxBlocks": 32}))).await?;
        let mut agents = vec![join_one(rig, zone("greedy", "a")).await?];
        expect(&[ALONE, "PoolNearlyFull"]).await?;
        add_cidr("narrow", json!([{"cidr": "10.1.0.0/24"}, {"cidr": "10.2.0.0/16"}])).await?;
        expect(&[ALONE]).await?;

        // Six nodes wait for the second block of their pool.
        cluster.create_pool(&PoolSpec::new("slow").select("zone", "b").ipv4(28, &["10.3.0.0/28"])).await?;
        agents.push(join_one(rig, zone("fast", "b")).await?);
        let waiting: Vec<NodeSpec> = (0..6).map(|number| zone(&format!("slow{number}"), "b")).collect();
        let waiting = join(rig, &waiting).await?;
        expect(&[ALONE, "NodesWaiting", "NodesWithoutAddresses", "PoolFull"]).await?;
        add_cidr("slow", json!([{"cidr": "10.3.0.0/28"}, {"cidr": "10.4.0.0/16"}])).await?;
        wait_ready(rig, &waiting).await?;
        plane.alarm.over(prometheus.wait_fires("SlowGrants", SOON)).await?;
        expect(&[ALONE]).await?;
        agents.extend(waiting);

        let lost = join(rig, &[zone("lost", "elsewhere")]).await?;
        expect(&[ALONE, "NodesWithoutPool"]).await?;
        kubectl(plane, &["label", "node", "lost", "zone=b", "--overwrite"]).await?;
        wait_ready(rig, &lost).await?;
        expect(&[ALONE]).await?;
        agents.extend(lost);

        for rule in ["undecodable", "cidr-without-claim", "address-outside-podcidrs"] {
            plane.allow(rule, Some("odd"), None).await?;
        }
        cluster.create_node(&zone("odd", "b")).await?;
        cluster.create(&cilium_node("odd", &json!({"pool": {"not-an-ip": {}}})), Kind::CiliumNode).await?;
        expect(&[ALONE, "NodesBlocked", "NodesWithoutAddresses"]).await?;
        let fixed = json!({"spec": {"ipam": {"pool": {"not-an-ip": null}}}});
        cluster.patch(Kind::CiliumNode, "odd", fixed).await?;
        expect(&[ALONE]).await?;

        // The agent of another node is too old. The node is served all the same.
        create_agent_pod(rig, "cilium-old", "old", "1.13.5").await?;
        cluster.create_node(&zone("old", "b")).await?;
        cluster.create(&cilium_node("old", &json!({})), Kind::CiliumNode).await?;
        expect(&[ALONE, "UnsupportedAgents"]).await?;
        kubectl(plane, &["-n", "kube-system", "delete", "pod", "cilium-old", "--force"]).await?;
        expect(&[ALONE]).await?;

        // Another allocator gives a range of a pool to a node, first a free one and then one that is published.
        for rule in ["cidr-without-claim", "overlapping-podcidrs"] {
            plane.allow(rule, None, None).await?;
        }
        let fires = async |alert: &str| plane.alarm.over(prometheus.wait_fires(alert, SOON)).await;
        cluster.create_node(&zone("foreign", "elsewhere")).await?;
        cluster
            .create(&cilium_node("foreign", &json!({"podCIDRs": ["10.2.9.0/28"]})), Kind::CiliumNode)
            .await?;
        fires("SecondAllocator").await?;
        let published = cluster.published("fast").context("no CiliumNode")?.pod_cidrs;
        let overlap = json!({"spec": {"ipam": {"podCIDRs": published}}});
        cluster.patch(Kind::CiliumNode, "foreign", overlap).await?;
        fires("DuplicateAddresses").await?;
        kubectl(plane, &["delete", "ciliumnode/foreign", "node/foreign"]).await?;
        expect(&[ALONE]).await?;

        // The network of the nodes.
        let clash = PoolSpec::new("clash").select("zone", "none").ipv4(28, &["172.16.0.0/24"]);
        cluster.create_pool(&clash).await?;
        expect(&[ALONE, "FindingRemains"]).await?;
        kubectl(plane, &["delete", "nip", "clash"]).await?;
        expect(&[ALONE]).await?;

        // A node says that it has the only address of another.
        for twin in ["twin", "other-twin"] {
            cluster.create_node(&zone(twin, "none")).await?;
        }
        let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "172.16.0.250"}]}});
        for twin in ["twin", "other-twin"] {
            cluster.patch_status(Kind::Node, twin, address.clone()).await?;
        }
        expect(&[ALONE, "SharedInternalIP"]).await?;
        kubectl(plane, &["delete", "node/twin", "node/other-twin"]).await?;
        expect(&[ALONE]).await?;

        // A right is missing.
        let refused =
            proxy.plant(Requests::new(Verb::Create, Kind::Block), Fault::Status(403), Often::Always);
        let waiting: Vec<NodeSpec> = (0..8).map(|number| zone(&format!("refused{number}"), "b")).collect();
        let waiting = join(rig, &waiting).await?;
        fires("WritesRefused").await?;
        drop(refused);
        wait_ready(rig, &waiting).await?;
        expect(&[ALONE]).await?;
        agents.extend(waiting);
        // The controller reaches the server through the proxy until it has written all.
        Ok((controller, agents, proxy))
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

/// Each of these alerts looks back, so it resolves some time after its cause.
#[tokio::test(flavor = "multi_thread")]
async fn alerts_on_trends_restarts_and_undone_writes_end_with_their_cause() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        let prometheus = Prometheus::start(plane).await?;
        let expect = async |alerts: &[&str]| plane.alarm.over(prometheus.wait_firing(alerts, MINUTES)).await;
        cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/25"])).await?;
        let mut controller = Controller::start_ready(plane, &[]).await?;
        prometheus.scrape_as(REPLICA, &controller.address()?)?;
        expect(&[ALONE]).await?;

        // At 3 of 8 blocks within six hours the pool is full in ten hours, and with the new range in years.
        let agents = join(rig, &nodes("n", 3)).await?;
        wait_ready(rig, &agents).await?;
        let_blocks_be_of_today(rig, "p", 3).await?;
        expect(&[ALONE, "PoolFullSoon"]).await?;
        let cidrs = json!([{"cidr": "10.1.0.0/25"}, {"cidr": "10.64.0.0/10"}]);
        let patch = json!({"spec": {"ipv4": {"cidrs": cidrs}}}).to_string();
        kubectl(plane, &["patch", "nip", "p", "--type=merge", "-p", &patch]).await?;
        expect(&[ALONE]).await?;

        for restart in 1..=3 {
            controller.sigkill().await?;
            controller = Controller::start_ready(plane, &[]).await?;
            prometheus.scrape_as(REPLICA, &controller.address()?)?;
            let restarts = format!("changes(process_start_time_seconds[1m]) >= {restart}");
            plane.alarm.over(prometheus.wait_data(&restarts, SOON)).await?;
        }
        expect(&[ALONE, "Restarts"]).await?;

        tokio::select! {
            never = undo_status(rig, "p") => match never? {},
            fires = plane.alarm.over(prometheus.wait_fires("WritesUndone", MINUTES)) => fires?,
        }
        expect(&[ALONE]).await?;
        Ok((controller, agents))
    })
    .await
}

/// Removes the count of nodes from the status of a pool, whenever the controller has written it.
async fn undo_status(rig: &Rig, pool: &str) -> Result<Infallible> {
    loop {
        let is_written = async || Ok(pool_status(rig, pool)["nodes"].is_object());
        rig.cluster.wait_until("a status to undo", SOON, is_written).await?;
        rig.cluster.patch_status(Kind::Pool, pool, json!({"status": {"nodes": null}})).await?;
    }
}

/// Eight agents need a second block, and the budget is enough for two of them at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_is_too_small_delays_growth_until_it_is_raised() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        let prometheus = Prometheus::start(plane).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/16"])).await?;
        let tight = Controller::start_ready(plane, &[ELECTED, "--watch-event-budget", "1"]).await?;
        prometheus.scrape(&[tight.address()?])?;
        let mut fleet = Fleet::new(rig);
        let names = Fleet::names(0..8);
        fleet.join(&names).await?;
        fleet.wait_ready(SOON).await?;
        fleet.fill(&names, 16);
        plane.alarm.over(prometheus.wait_fires("WritesPaced", SOON)).await?;
        let says_so = async || {
            // Exits with 1 if nodes wait long.
            let output = command(&plane.admin_kubeconfig).arg("status").output().await?;
            let screen = String::from_utf8(output.stdout)?;
            ensure!(screen.contains("paced: 0.1 writes/s, "), "{screen}");
            Ok(())
        };
        plane.alarm.over(eventually(SOON, says_so)).await?;
        plane
            .alarm
            .over(prometheus.wait_data("cilium_node_ipam_watch_events_caused_total > 8", SOON))
            .await?;

        ensure!(tight.sigterm_and_wait().await?.success(), "SIGTERM");
        let ample = Controller::start_ready(plane, &[ELECTED]).await?;
        prometheus.scrape(&[ample.address()?])?;
        fleet.wait_blocks(&names, 2, SOON).await?;
        plane.alarm.over(prometheus.wait_firing(&[ALONE], MINUTES)).await?;
        Ok((ample, fleet.into_agents()))
    })
    .await
}
