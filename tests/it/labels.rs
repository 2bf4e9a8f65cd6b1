//! Labels choose pools for future blocks and never affect held ones, and the labels belong to users.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::model::pool::Pool;
use cilium_node_ipam::wire::NodeIPPool;
use kube::api::ListParams;
use kube::core::SelectorExt as _;
use serde_json::{Value, json};

use crate::scene::{PROMPT, fill, join_one, versions, wait_claims_carried, wait_status};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED, command};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

/// The owner of a block follows from its claim, never from the present labels of the node. Relabel, restart, expand:
/// the old block stays, and the new one comes from the pool that selects the node now.
#[tokio::test(flavor = "multi_thread")]
async fn relabelled_node_keeps_its_block_and_grows_from_its_new_pool() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        for (zone, range) in [("a", "10.1.0.0/24"), ("b", "10.2.0.0/24")] {
            rig.cluster.create_pool(&PoolSpec::new(zone).select("zone", zone).ipv4(28, &[range])).await?;
        }
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let moves = Agent::Fake(join_one(rig, NodeSpec::new("moves").label("zone", "a")).await?);
        let leaves = join_one(rig, NodeSpec::new("leaves").label("zone", "a")).await?;
        let kinds = [Kind::Block];
        let before = versions(rig, &kinds).await?;

        rig.cluster.relabel_node("moves", &[("zone", Some("b"))]).await?;
        rig.cluster.relabel_node("leaves", &[("zone", None)]).await?;
        let selects = |n: u64| move |status: &Value| status["nodes"]["selected"] == n;
        wait_status(rig, "a", "no node", selects(0)).await?;
        wait_status(rig, "b", "one node", selects(1)).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_status(rig, "b", "one served node", |status| status["nodes"]["served"] == 1).await?;
        ensure!(versions(rig, &kinds).await? == before, "the claims changed with the labels");
        // A node that no pool selects keeps its blocks, and its pods come and are deleted.
        leaves.allocate("ns/pod")?;

        fill(rig, &moves, "moves", 2).await?;
        wait_claims_carried(rig).await?;
        let held: Vec<_> = rig.cluster.claims_of("moves").into_iter().map(|claim| claim.pool).collect();
        ensure!(held.starts_with(&["a".to_owned(), "b".to_owned()]), "{held:?}");
        let seen = rig.cluster.published("moves").context("its CiliumNode")?;
        ensure!(seen.pod_cidrs[0].starts_with("10.1."), "the primary block moved: {:?}", seen.pod_cidrs);
        Ok((controller, leaves))
    })
    .await
}

/// A cloud controller sets labels seconds after the Node appears. Until then a pool that selects every node must not
/// give the node its first block, because the node keeps it for life.
#[tokio::test(flavor = "multi_thread")]
async fn late_labels_choose_the_pool_of_the_first_block() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("all").ipv4(28, &["10.1.0.0/24"])).await?;
        let west = PoolSpec::new("west").select("zone", "west").ipv4(28, &["10.2.0.0/24"]);
        rig.cluster.create_pool(&west.with("priority", 10)).await?;
        let waits = ["--wait-for-initialization", "1h", "--startup-taint", "example.com/"];
        let flags = [PROMPT, &[ELECTED], &waits].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        rig.cluster.create_node(&NodeSpec::new("late")).await?;
        let taint = json!({"key": "example.com/labels-missing", "effect": "NoSchedule"});
        rig.cluster.patch(Kind::Node, "late", json!({"spec": {"taints": [taint]}})).await?;
        let mut late = Agent::Fake(rig.agents.fake("late"));
        late.start()?;
        // The controller has seen the node before it serves one that comes after it.
        let later = join_one(rig, NodeSpec::new("later")).await?;
        let is_selected = |status: &Value| status["nodes"]["selected"] == 2 && status["nodes"]["served"] == 1;
        wait_status(rig, "all", "one served node of two", is_selected).await?;
        ensure!(rig.cluster.claims_of("late").is_empty(), "its first block came before its labels");
        let output =
            command(&rig.control_plane.admin_kubeconfig).args(["why", "late"]).output().await?.stdout;
        let answer = String::from_utf8(output)?;
        ensure!(answer.contains("its Node has the startup taint example.com/ "), "{answer}");

        rig.cluster.relabel_node("late", &[("zone", Some("west"))]).await?;
        rig.cluster.patch(Kind::Node, "late", json!({"spec": {"taints": []}})).await?;
        late.wait_ready(crate::scene::SOON).await?;
        let pools: Vec<_> = rig.cluster.claims_of("late").into_iter().map(|claim| claim.pool).collect();
        ensure!(pools == ["west"], "its first block is of {pools:?}");
        Ok((controller, late, later))
    })
    .await
}

/// The labels of Nodes belong to their users: pools read them, and nothing is controlled by writing them. The
/// controller neither writes Nodes nor has the right to do so.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_never_written() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"])).await?;
        rig.cluster.create_node(&NodeSpec::new("n").label("zone", "a")).await?;
        let before = versions(rig, &[Kind::Node]).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = Agent::Fake(rig.agents.fake("n"));
        agent.start()?;
        agent.wait_ready(crate::scene::SOON).await?;
        fill(rig, &agent, "n", 2).await?;
        ensure!(versions(rig, &[Kind::Node]).await? == before, "a Node was written");

        let mine = Kind::Node.api(&rig.control_plane.controller);
        let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"zone": "b"}}}));
        match mine.patch("n", &kube::api::PatchParams::default(), &label).await {
            Err(kube::Error::Api(refusal)) if refusal.code == 403 => {}
            other => anyhow::bail!("the controller may write Nodes: {other:?}"),
        }
        Ok(controller)
    })
    .await
}

/// The nodes of the table below, by name, with their labels.
const NODES: [(&str, &[(&str, &str)]); 5] = [
    ("bare", &[]),
    ("east", &[("zone", "east")]),
    ("east-gpu", &[("zone", "east"), ("gpu", "true")]),
    ("west", &[("zone", "west"), ("gpu", "")]),
    ("odd", &[("zone", ""), ("example.com/rack", "7")]),
];

/// Selectors, the same in the form of a list request to the API server, and the nodes that they choose.
fn selectors() -> Vec<(Value, &'static str, Vec<&'static str>)> {
    let any = |key: &str, operator: &str, values: &[&str]| {
        let mut expression = json!({"key": key, "operator": operator});
        if !values.is_empty() {
            expression["values"] = json!(values);
        }
        json!({"matchExpressions": [expression]})
    };
    vec![
        (Value::Null, "", vec!["bare", "east", "east-gpu", "odd", "west"]),
        (json!({}), "", vec!["bare", "east", "east-gpu", "odd", "west"]),
        (json!({"matchLabels": {"zone": "east"}}), "zone=east", vec!["east", "east-gpu"]),
        (json!({"matchLabels": {"zone": ""}}), "zone=", vec!["odd"]),
        // Both must hold.
        (json!({"matchLabels": {"zone": "east", "gpu": "true"}}), "zone=east,gpu=true", vec!["east-gpu"]),
        (any("zone", "In", &["east", "west"]), "zone in (east,west)", vec!["east", "east-gpu", "west"]),
        // A node without the key is not in the set, and neither is one with an empty value.
        (any("zone", "NotIn", &["east"]), "zone notin (east)", vec!["bare", "odd", "west"]),
        (any("gpu", "NotIn", &["true"]), "gpu notin (true)", vec!["bare", "east", "odd", "west"]),
        (any("gpu", "Exists", &[]), "gpu", vec!["east-gpu", "west"]),
        (any("gpu", "DoesNotExist", &[]), "!gpu", vec!["bare", "east", "odd"]),
        (any("example.com/rack", "In", &["7"]), "example.com/rack in (7)", vec!["odd"]),
        (
            json!({"matchLabels": {"zone": "east"}, "matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}),
            "zone=east,!gpu",
            vec!["east"],
        ),
        (
            json!({"matchExpressions": [
                {"key": "zone", "operator": "Exists"},
                {"key": "zone", "operator": "NotIn", "values": ["west", ""]},
            ]}),
            "zone,zone notin (west,)",
            vec!["east", "east-gpu"],
        ),
        (json!({"matchExpressions": []}), "", vec!["bare", "east", "east-gpu", "odd", "west"]),
        (any("zone", "In", &["north"]), "zone in (north)", vec![]),
    ]
}

/// Selectors have the semantics of Kubernetes: a selector here chooses the same objects as anywhere in Kubernetes. The
/// test compares the API server, the product's reading of the pool, and the counts of the running controller.
#[tokio::test(flavor = "multi_thread")]
async fn selectors_mean_what_they_mean_in_kubernetes() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        for (name, labels) in NODES {
            let node = labels.iter().fold(NodeSpec::new(name), |node, (key, value)| node.label(key, value));
            rig.cluster.create_node(&node).await?;
        }
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        for (index, (selector, query, expected)) in selectors().into_iter().enumerate() {
            let range = format!("10.{index}.0.0/24");
            let mut spec = PoolSpec::new(format!("p{index}")).ipv4(28, &[&range]);
            if !selector.is_null() {
                spec = spec.with("nodeSelector", selector.clone());
            }
            let pool = rig.cluster.create_pool(&spec).await.with_context(|| selector.to_string())?;
            ensure!(listed(rig, query).await? == expected, "the server disagrees about {query}");
            ensure!(
                chosen(&serde_json::to_value(&pool)?)? == expected,
                "the product disagrees about {selector}"
            );
            let what = format!("{} nodes selected by {selector}", expected.len());
            wait_status(rig, &spec.name, &what, |status| status["nodes"]["selected"] == expected.len())
                .await?;
        }
        Ok(controller)
    })
    .await
}

/// The nodes that the API server lists for a selector.
async fn listed(rig: &Rig, query: &str) -> Result<Vec<String>> {
    let params = ListParams { label_selector: Some(query.to_owned()), ..ListParams::default() };
    let nodes = Kind::Node.api(&rig.cluster.client).list(&params).await.with_context(|| query.to_owned())?;
    Ok(nodes.items.into_iter().filter_map(|node| node.metadata.name).collect())
}

/// The nodes that the product's reading of the pool chooses.
fn chosen(pool: &Value) -> Result<Vec<String>> {
    let pool: NodeIPPool = serde_json::from_value(pool.clone())?;
    let pool = Pool::try_from(&pool).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let mut chosen: Vec<String> = NODES
        .into_iter()
        .filter(|(_, labels)| {
            let labels: BTreeMap<String, String> =
                labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            pool.selector.matches(&labels)
        })
        .map(|(name, _)| name.to_owned())
        .collect();
    chosen.sort();
    Ok(chosen)
}
