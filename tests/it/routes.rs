//! Routes by FRRConfigurations, on a real API server with frr-k8s's own definitions: one object per node, with the
//! prefixes of its blocks.
//!
//! No daemon runs here: the test plays it where a block waits for its report.

mod at_length;

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::model::frr::name_of;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::Cidr;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::chronicle::Chronicle;
use crate::scene::{PROMPT, SOON, fill, insist, join_one, wait_claims_carried};
use crate::support::agent::Agent;
use crate::support::control_plane::{Options, tool};
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

pub(crate) const NAMESPACE: &str = "frr-k8s-system";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The flags of a controller that announces routes.
pub(crate) const ROUTES: &[&str] = &["--routes", "frr-k8s", "--routes-template", "frr-k8s-system/template"];

pub(crate) fn options() -> Options {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rights = root.join("tests/it/install/rendered/routes.yaml");
    let mut options = Options::default();
    options.crds.push(root.join("tests/data/frr-k8s/crds"));
    options.manifests = vec![root.join("tests/data/frr-k8s/namespace.yaml"), rights];
    options
}

pub(crate) fn flags(more: &[&'static str]) -> Vec<&'static str> {
    [PROMPT, ROUTES, more].concat()
}

pub(crate) fn configurations(rig: &Rig) -> (Api<DynamicObject>, ApiResource) {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("frrk8s.metallb.io", "v1beta1", "FRRConfiguration"));
    (Api::namespaced_with(rig.cluster.client.clone(), NAMESPACE, &resource), resource)
}

pub(crate) fn node_states(rig: &Rig) -> (Api<DynamicObject>, ApiResource) {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("frrk8s.metallb.io", "v1beta1", "FRRNodeState"));
    (Api::all_with(rig.cluster.client.clone(), &resource), resource)
}

pub(crate) async fn create_configuration(rig: &Rig, name: &str, spec: Value) -> Result<DynamicObject> {
    let (api, resource) = configurations(rig);
    let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &object).await.context("creating the FRRConfiguration")
}

async fn create_template(rig: &Rig) -> Result<DynamicObject> {
    let neighbor = json!({"address": "192.0.2.1", "asn": 64513, "holdTime": "90s", "keepaliveTime": "30s",
        "toAdvertise": {"withCommunity": [{"community": "64512:1", "prefixes": ["192.0.2.0/24"]}]}});
    let spec = json!({
        "nodeSelector": {"matchLabels": {"nodeipam.io/template": "true"}},
        "bgp": {"routers": [{"asn": 64512, "neighbors": [neighbor]}]},
    });
    create_configuration(rig, "template", spec).await
}

/// The FRRConfiguration of a node.
pub(crate) async fn of_node(rig: &Rig, node: &str) -> Result<DynamicObject> {
    configurations(rig).0.get(name_of(&node.into()).as_str()).await.context("no FRRConfiguration")
}

/// Returns the FRRConfiguration of a node when it announces exactly the blocks of the node, this number of them, with
/// everything of the template.
async fn wait_announced(rig: &Rig, node: &str, hold_time: &str, n_blocks: usize) -> Result<DynamicObject> {
    insist(rig, async || {
        let blocks = rig.cluster.published(node).unwrap_or_default().pod_cidrs;
        ensure!(blocks.len() == n_blocks, "{blocks:?}");
        let blocks: AddressSet =
            blocks.iter().map(|block| block.parse::<Cidr>()).collect::<Result<_, _>>()?;
        let prefixes: Vec<String> = blocks.cidrs().map(|prefix| prefix.to_string()).collect();
        let object = of_node(rig, node).await?;
        let router = &object.data["spec"]["bgp"]["routers"][0];
        let neighbor = &router["neighbors"][0];
        let advertised = &neighbor["toAdvertise"];
        ensure!(router["prefixes"] == json!(prefixes), "{prefixes:?} are expected: {router}");
        // The session of the template is of IPv4.
        let of_session: Vec<&String> = prefixes.iter().filter(|prefix| !prefix.contains(':')).collect();
        ensure!(advertised["allowed"] == json!({"mode": "filtered", "prefixes": of_session}), "{neighbor}");
        let marked = json!([{"community": "64512:1", "prefixes": of_session}]);
        ensure!(advertised["withCommunity"] == marked, "{neighbor}");
        ensure!(neighbor["holdTime"] == hold_time, "{neighbor}");
        let selector = json!({"matchLabels": {(HOSTNAME): format!("host-{node}")}});
        ensure!(object.data["spec"]["nodeSelector"] == selector, "{:?}", object.data);
        Ok(object)
    })
    .await
}

fn prefixes(rig: &Rig, node: &str) -> Vec<String> {
    rig.cluster.published(node).unwrap_or_default().pod_cidrs
}

/// The answer of a command, with the administrator's rights.
pub(crate) async fn command(rig: &Rig, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(arguments).env("KUBECONFIG", &rig.control_plane.admin_kubeconfig).stdin(Stdio::null());
    Ok(serde_json::from_slice(&command.output().await?.stdout)?)
}

pub(crate) fn node(name: &str) -> NodeSpec {
    NodeSpec::new(name).label(HOSTNAME, &format!("host-{name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_announces_what_it_holds_through_every_change() -> Result<()> {
    under_oracle(options(), async |rig| {
        create_template(rig).await?;
        let foreign = create_configuration(rig, "foreign", json!({"bgp": {"routers": []}})).await?;
        // A full node does not ask for a third block.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("perNode", json!({"maxBlocks": 2}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        let first = Agent::Fake(join_one(rig, node("a")).await?);
        let second = join_one(rig, node("b")).await?;
        wait_announced(rig, "a", "90s", 1).await?;
        wait_announced(rig, "b", "90s", 1).await?;

        // A node that grows announces more.
        fill(rig, &first, "a", 2).await?;
        wait_announced(rig, "a", "90s", 2).await?;

        // The template changes, and another writer lets an object select every node, and edits another.
        let neighbor = json!({"address": "192.0.2.1", "asn": 64513, "holdTime": "30s", "keepaliveTime": "10s",
            "toAdvertise": {"withCommunity": [{"community": "64512:1", "prefixes": ["192.0.2.0/24"]}]}});
        let patch = |spec: Value| Patch::Merge(json!({"spec": spec}));
        let api = configurations(rig).0;
        let changed = patch(json!({"bgp": {"routers": [{"asn": 64512, "neighbors": [neighbor]}]}}));
        api.patch("template", &PatchParams::default(), &changed).await?;
        wait_announced(rig, "a", "30s", 2).await?;
        wait_announced(rig, "b", "30s", 1).await?;
        let before = of_node(rig, "b").await?;
        let all = patch(json!({"nodeSelector": null}));
        api.patch(name_of(&"b".into()).as_str(), &PatchParams::default(), &all).await?;
        let more = patch(json!({"bgp": {"routers": [{"asn": 64512, "prefixes": ["10.9.0.0/16"]}]}}));
        api.patch(name_of(&"a".into()).as_str(), &PatchParams::default(), &more).await?;
        let after = wait_announced(rig, "b", "30s", 1).await?;
        ensure!(after.metadata.uid != before.metadata.uid, "it was not deleted: {after:?}");
        let unchanged = wait_announced(rig, "a", "30s", 2).await?;

        // A restart writes nothing, and a new node shows that it has looked.
        controller.sigterm_and_wait().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        let third = join_one(rig, node("c")).await?;
        wait_announced(rig, "c", "30s", 1).await?;
        for object in [&unchanged, &after, &foreign] {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let found = api.get(name).await?;
            ensure!(found.metadata.resource_version == object.metadata.resource_version, "{found:?}");
        }

        // Removing the objects withdraws the routes.
        controller.sigterm_and_wait().await?;
        let flags = [PROMPT, &["--routes", "remove"], &ROUTES[2..]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        insist(rig, async || {
            let left = api.list(&kube::api::ListParams::default()).await?.items;
            let names: Vec<_> = left.into_iter().filter_map(|object| object.metadata.name).collect();
            ensure!(names == ["foreign", "template"], "{names:?}");
            Ok(())
        })
        .await?;
        wait_claims_carried(rig).await?;
        Ok((controller, first, second, third))
    })
    .await
}

/// The webhook of frr-k8s refuses an object that its daemons can't convert, together with all others of a node.
#[tokio::test(flavor = "multi_thread")]
async fn frr_k8s_accepts_the_objects() -> Result<()> {
    let options = Options { families: Families::Dual, ..options() };
    under_oracle(options, async |rig| {
        create_template(rig).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/120"]);
        rig.cluster.create_pool(&pool).await?;
        // Another object of every node, with the same session.
        let neighbor = json!({"address": "192.0.2.1", "asn": 64513, "holdTime": "90s", "keepaliveTime": "30s",
            "toReceive": {"allowed": {"mode": "all"}}});
        let others = json!({"bgp": {"routers": [{"asn": 64512, "neighbors": [neighbor]}]}});
        create_configuration(rig, "others", others).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        let folder = tempfile::tempdir()?;
        let mut agents = Vec::new();
        for name in ["a", "b"] {
            rig.cluster.create_node(&node(name)).await?;
            accepted(rig, folder.path()).await?;
            let mut agent = rig.agents.fake(name);
            agent.start()?;
            wait_announced(rig, name, "90s", 2).await?;
            accepted(rig, folder.path()).await?;
            agents.push(agent);
        }
        Ok((controller, agents))
    })
    .await
}

/// Fails if the webhook of frr-k8s would refuse an FRRConfiguration.
async fn accepted(rig: &Rig, folder: &Path) -> Result<()> {
    let (configurations, nodes) = (folder.join("configurations.json"), folder.join("nodes.json"));
    let plane = &rig.control_plane;
    let found = kubectl(plane, &["get", "frrconfigurations", "-n", NAMESPACE, "-o", "json"]).await?;
    std::fs::write(&configurations, found)?;
    std::fs::write(&nodes, kubectl(plane, &["get", "nodes", "-o", "json"]).await?)?;
    let mut command = Command::new(tool("NODEIPAM_FRR_K8S_WEBHOOK", "frr-k8s-webhook"));
    let output = command.args([configurations, nodes]).stdin(Stdio::null()).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_cools_only_when_its_daemon_runs_without_it() -> Result<()> {
    under_oracle(options(), async |rig| {
        create_template(rig).await?;
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfterNodeLoss", "1h");
        rig.cluster.create_pool(&pool).await?;
        // The controller lists it as it starts.
        let (states, resource) = node_states(rig);
        states.create(&PostParams::default(), &DynamicObject::new("a", &resource)).await?;
        let running = |text: &str| Patch::Merge(json!({"status": {"runningConfig": text}}));
        let with = running("router bgp 64512\n address-family ipv4 unicast\n  network 10.1.0.0/28\n");
        states.patch_status("a", &PatchParams::default(), &with).await?;
        let chronicle = Chronicle::start(rig);
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        let agent = join_one(rig, node("a")).await?;
        wait_announced(rig, "a", "90s", 1).await?;

        agent.power_off().await;
        rig.cluster.delete_node("a").await?;
        insist(rig, async || {
            let found = of_node(rig, "a").await;
            ensure!(found.is_err(), "{found:?}");
            Ok(())
        })
        .await?;
        // The controller has decided for other nodes since.
        let other = join_one(rig, node("b")).await?;
        wait_announced(rig, "b", "90s", 1).await?;
        let story = chronicle.of_block("10.1.0.0/28");
        ensure!(!story.iter().any(|step| step.contains("Cooling")), "{story:?}");
        let compared = command(rig, &["routes", "--compare", "-o", "json"]).await?;
        ensure!(compared["items"][1]["missing"] == json!(prefixes(rig, "b")), "{compared}");
        ensure!(compared["items"][0]["unexpected"] == json!(["10.1.0.0/28"]), "{compared}");
        let without = running("router bgp 64512\n");
        states.patch_status("a", &PatchParams::default(), &without).await?;
        rig.cluster
            .wait_until("the block to cool", SOON, async || {
                Ok(chronicle.of_block("10.1.0.0/28").iter().any(|step| step == "a Cooling NodeGone"))
            })
            .await?;
        states.delete("a", &DeleteParams::default()).await?;
        Ok((controller, other))
    })
    .await
}
