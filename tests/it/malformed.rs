//! Writes of other writers: an unreadable object stops only its own node, and no node gets addresses that another
//! CiliumNode carries.

use anyhow::{Result, ensure};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::scene::{
    PROMPT, SOON, cilium_node, join, join_one, nodes, versions, wait_claims_carried, wait_ready, wait_status,
};
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, dry_run};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::under_oracle;

/// Entries that an administrator, an old agent or another writer may have left on a CiliumNode, and their fixes.
fn oddities() -> Vec<(&'static str, Value, Value)> {
    vec![
        ("no-address", json!({"pool": {"not-an-ip": {}}}), json!({"pool": {"not-an-ip": null}})),
        ("leading-zeros", json!({"pool": {"010.1.0.9": {}}}), json!({"pool": {"010.1.0.9": null}})),
        // The server accepts it as a CIDR, but it has host bits.
        ("host-bits", json!({"podCIDRs": ["10.1.0.37/27"]}), json!({"podCIDRs": []})),
    ]
}

/// One malformed object does not stop the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_cilium_node_stops_that_node_only() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(27, &["10.1.0.0/24"])).await?;
        for (name, ipam, _) in oddities() {
            for rule in ["undecodable", "cidr-without-claim", "address-outside-podcidrs"] {
                rig.control_plane.allow(rule, Some(name), None).await?;
            }
            rig.cluster.create_node(&NodeSpec::new(name)).await?;
            rig.cluster.create(&cilium_node(name, &ipam), Kind::CiliumNode).await?;
        }
        let before = versions(rig, &[Kind::CiliumNode]).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("sound", 4)).await?;
        wait_ready(rig, &agents).await?;
        wait_status(rig, "p", "four served nodes", |status| status["nodes"]["served"] == 4).await?;
        let log = std::fs::read_to_string(controller.log())?;
        for (name, ..) in oddities() {
            ensure!(rig.cluster.claims_of(name).is_empty(), "{name} got a block");
            let reported =
                log.lines().any(|line| line.contains("MalformedCiliumNode") && line.contains(name));
            ensure!(reported, "the log does not tell of {name}:\n{log}");
        }
        let after = versions(rig, &[Kind::CiliumNode]).await?;
        ensure!(before.is_subset(&after), "a malformed CiliumNode was written");
        // No node gets the possible meaning of the odd prefix: of eight blocks the second is left out.
        let given: Vec<_> = agents.iter().flat_map(|agent| rig.cluster.claims_of(agent.name())).collect();
        ensure!(given.iter().all(|claim| claim.cidr != "10.1.0.32/27"), "{given:?}");

        for (name, _, fixed) in oddities() {
            rig.cluster.patch(Kind::CiliumNode, name, json!({"spec": {"ipam": fixed}})).await?;
            rig.cluster
                .wait_published(name, "a block", SOON, |seen| {
                    seen.pod_cidrs.len() == 1 && seen.pool.len() == 30
                })
                .await?;
        }
        wait_claims_carried(rig).await?;
        Ok((controller, agents))
    })
    .await
}

/// Foreign owners are known before any block is given. A pool that is nearly full is no slower: other writers have all
/// but two of 4096 blocks, and these two are given at once and after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_carried_without_a_claim_is_never_given_away() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // The whole pool except its last 64 addresses, on nodes that no pool selects.
        let foreign = [
            "10.1.0.0/17",
            "10.1.128.0/18",
            "10.1.192.0/19",
            "10.1.224.0/20",
            "10.1.240.0/21",
            "10.1.248.0/22",
            "10.1.252.0/23",
            "10.1.254.0/24",
            "10.1.255.0/25",
            "10.1.255.128/26",
        ];
        for (number, cidr) in foreign.into_iter().enumerate() {
            let name = format!("foreign{number}");
            rig.control_plane.allow("cidr-without-claim", Some(&name), Some(cidr)).await?;
            rig.cluster.create_node(&NodeSpec::new(&name).label("zone", "other")).await?;
            rig.cluster.create(&carried(&name, cidr), Kind::CiliumNode).await?;
        }
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/16"]);
        rig.cluster.create_pool(&pool.with("perNode", json!({"maxBlocks": 1}))).await?;
        let before = versions(rig, &[Kind::CiliumNode]).await?;
        let mut controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agents = Vec::new();
        for (number, last) in [192, 224, 208, 240].into_iter().enumerate() {
            let name = format!("n{number}");
            agents.push(join_one(rig, NodeSpec::new(&name).label("zone", "a")).await?);
            let cidrs = rig.cluster.published(&name).unwrap_or_default().pod_cidrs;
            ensure!(cidrs == [format!("10.1.255.{last}/28")], "{name} got {cidrs:?}");
            controller.sigkill().await?;
            controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        }
        let after = versions(rig, &[Kind::CiliumNode]).await?;
        ensure!(before.is_subset(&after), "a CiliumNode was written that no pool selects");
        // One more node finds the pool full, and gets no block of another node.
        rig.excuse("late");
        rig.cluster.create_node(&NodeSpec::new("late").label("zone", "a")).await?;
        rig.cluster.create(&cilium_node("late", &json!({"pools": {}})), Kind::CiliumNode).await?;
        wait_status(rig, "p", "a waiting node", |status| status["nodes"]["waiting"] == 1).await?;
        ensure!(dry_run(&rig.control_plane).await?.iter().all(|line| !line.contains("late")), "it is served");
        Ok((controller, agents))
    })
    .await
}

fn carried(name: &str, cidr: &str) -> DynamicObject {
    cilium_node(name, &json!({"podCIDRs": [cidr]}))
}
