//! Pools with blocks of several sizes, with Cilium's own agents: sizes that follow from the pods of a node, a size that
//! changes while nodes run, and a range that becomes full.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::answers::ask;
use crate::scene::{
    PROMPT, SOON, ask_many, cilium_node, join, pool_status, wait_claims_carried, wait_status,
};
use crate::support::agent::{Agent, Make};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::{Rig, under_oracle};

/// A Node whose kubelet allows so many pods.
async fn register(rig: &Rig, name: &str, max_pods: u32) -> Result<()> {
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let allocatable = json!({"status": {"allocatable": {"pods": max_pods.to_string()}}});
    rig.cluster.patch_status(Kind::Node, name, allocatable).await.map(drop)
}

/// The blocks of a node.
fn blocks(rig: &Rig, node: &str) -> Vec<String> {
    rig.cluster.claims_of(node).into_iter().map(|claim| claim.cidr).collect()
}

/// The number of addresses in all blocks.
fn n_claimed(rig: &Rig) -> u32 {
    let blocks = rig.cluster.objects(Kind::Block);
    let sizes = blocks.iter().filter_map(|block| block.data["spec"]["cidr"].as_str()?.split_once('/'));
    sizes.filter_map(|(_, size)| Some(1 << (32 - size.parse::<u32>().ok()?))).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_range_serves_nodes_of_three_sizes_changes_its_size_and_ends_full() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let by_max_pods = json!({"headroom": 0, "smallest": 28, "largest": 24});
        let mut pool = PoolSpec::new("p").ipv4(27, &["10.1.0.0/20"]);
        pool.spec["ipv4"]["blockSizeByMaxPods"] = by_max_pods.clone();
        rig.cluster.create_pool(&pool).await?;
        let plane = &rig.control_plane;
        let controller = Controller::start_ready(plane, PROMPT).await?;
        let mut agents: BTreeMap<u32, Agent> = BTreeMap::new();
        for (max_pods, size) in [(30, "/27"), (110, "/25"), (250, "/24")] {
            let name = format!("n{max_pods}");
            register(rig, &name, max_pods).await?;
            let mut agent = rig.agents.agent_with(Make::Real, &name, rig.agents.settings());
            agent.start()?;
            agent.wait_ready(SOON).await?;
            let held = blocks(rig, &name);
            ensure!(held.len() == 1 && held[0].ends_with(size), "{name} has {held:?}");
            let why = ask(plane, &["why", &name]).await?;
            ensure!(why.says(&format!("ipv4 {size} for {max_pods} pods")), "{}{}", why.text, why.errors);
            agents.insert(max_pods, agent);
        }

        // The size changes while they run, and a node grows by a block of the new one: into one prefix.
        let small = blocks(rig, "n30");
        rig.cluster.patch_pool("p", json!({"ipv4": {"blockSize": 26, "blockSizeByMaxPods": null}})).await?;
        let both = |status: &serde_json::Value| {
            let sizes = status["ipv4"]["sizes"].as_array().into_iter().flatten();
            let on_nodes: Vec<_> = sizes.map(|size| (&size["blockSize"], &size["onNodes"])).collect();
            on_nodes.contains(&(&json!(27), &json!(1))) && on_nodes.contains(&(&json!(26), &json!(0)))
        };
        wait_status(rig, "p", "the former and the new size", both).await?;
        rig.cluster.patch_pool("p", json!({"ipv4": {"blockSize": 27}})).await?;
        let agent = agents.get(&30).context("it runs")?;
        ask_many(rig, agent, "ns/more-", 26).await?;
        rig.cluster.wait_until("a second block", SOON, async || Ok(blocks(rig, "n30").len() == 2)).await?;
        wait_claims_carried(rig).await?;
        ensure!(blocks(rig, "n30").contains(&small[0]), "the first block stays");
        let routes = ask(plane, &["routes", "--node", "n30"]).await?;
        ensure!(routes.text.contains("/26") && !routes.text.contains("/27"), "{}", routes.text);

        // Nodes of 250 pods join until one finds no room.
        rig.cluster.patch_pool("p", json!({"ipv4": {"blockSizeByMaxPods": by_max_pods}})).await?;
        let mut n_joined = 0;
        let is_short = loop {
            let name = format!("large{n_joined}");
            register(rig, &name, 250).await?;
            rig.cluster.create(&cilium_node(&name, &json!({"pools": {}})), Kind::CiliumNode).await?;
            n_joined += 1;
            let waits = || pool_status(rig, "p")["nodes"]["waiting"] == 1;
            let settled = async || Ok(waits() || !blocks(rig, &name).is_empty());
            rig.cluster.wait_until("a block, or a node that waits", SOON, settled).await?;
            if waits() {
                break name;
            }
        };
        let lost = 4096 - n_claimed(rig);
        ensure!(lost * 100 < 4096 * 5, "{lost} of 4096 addresses are in pieces when {is_short} finds no /24");
        let status = pool_status(rig, "p");
        ensure!(status["ipv4"]["largestFree"].as_u64() > Some(24), "{status}");
        // Smaller ones use the rest.
        for n_more in 0..lost / 16 {
            let name = format!("small{n_more}");
            register(rig, &name, 14).await?;
            rig.cluster.create(&cilium_node(&name, &json!({"pools": {}})), Kind::CiliumNode).await?;
            let settled = async || Ok(!blocks(rig, &name).is_empty());
            rig.cluster.wait_until("a small block", SOON, settled).await?;
        }
        ensure!(n_claimed(rig) == 4096, "{} addresses are claimed", n_claimed(rig));
        rig.cluster.delete_node(&is_short).await?;
        Ok((controller, agents))
    })
    .await
}

/// As node-ipam-controller gives them: each class of nodes has a size of its own out of one range.
#[tokio::test(flavor = "multi_thread")]
async fn imported_cluster_cidrs_give_each_class_of_nodes_its_size() -> Result<()> {
    under_oracle(Options { ipam: "kubernetes", ..Options::default() }, async |rig| {
        prepare(rig, 26).await?;
        let classes = [("xs", 4), ("s", 5), ("m", 6), ("l", 7), ("xl", 8), ("xxl", 9)];
        let documents: Vec<_> = classes
            .iter()
            .map(|(class, bits)| {
                let expression = json!({"key": "class", "operator": "In", "values": [class]});
                json!({
                    "apiVersion": "networking.x-k8s.io/v1", "kind": "ClusterCIDR", "metadata": {"name": class},
                    "spec": {
                        "perNodeHostBits": bits, "ipv4": "10.1.0.0/16",
                        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]},
                    },
                })
            })
            .collect();
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("cluster-cidrs.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
        std::fs::write(&file, serde_json::to_vec(&list)?)?;
        let imported = ask(&rig.control_plane, &["import", "-f", &file.to_string_lossy()]).await?;
        ensure!(imported.code == Some(0), "{}{}", imported.text, imported.errors);
        let made: serde_json::Value = serde_saphyr::from_str(&imported.text)?;
        let pool = PoolSpec { name: "xs".to_owned(), spec: made["spec"].clone() };
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let nodes: Vec<NodeSpec> =
            classes.iter().map(|(class, _)| NodeSpec::new(format!("n-{class}")).label("class", class)).collect();
        let agents = join(rig, &nodes).await?;
        for agent in &agents {
            agent.wait_ready(SOON).await?;
        }
        wait_claims_carried(rig).await?;
        for (class, bits) in classes {
            let held = blocks(rig, &format!("n-{class}"));
            let size = format!("/{}", 32 - bits);
            ensure!(held.len() == 1 && held[0].ends_with(&size), "class {class} has {held:?}, and not a {size}");
        }
        Ok((controller, agents))
    })
    .await
}
