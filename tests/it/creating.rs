//! `--create-ciliumnodes`: the controller creates the CiliumNode as soon as the Node appears, and the agent takes it
//! over.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::chronicle::{Chronicle, delete_node, uid, wait_all};
use crate::install::values;
use crate::scene::{SOON, join_one, versions, wait_claims_carried};
use crate::support::agent::Make;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const CREATING: &[&str] = &["--create-ciliumnodes", "--min-write-interval", "0s"];

/// The controller with the flag, and with the right that the flag needs.
async fn start_creating(rig: &Rig) -> Result<Controller> {
    // The test's own server has applied the manifests already, as another field manager.
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", values::CREATING];
    kubectl(&rig.control_plane, &apply).await?;
    Controller::start_ready(&rig.control_plane, CREATING).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_takes_over_the_ciliumnode_that_it_finds_fake() -> Result<()> {
    the_agent_takes_over_the_ciliumnode_that_it_finds(Make::Fake, Families::Dual).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_takes_over_the_ciliumnode_that_it_finds_real() -> Result<()> {
    the_agent_takes_over_the_ciliumnode_that_it_finds(Make::Real, Families::Dual).await
}

async fn the_agent_takes_over_the_ciliumnode_that_it_finds(make: Make, families: Families) -> Result<()> {
    under_oracle(Options::of(families), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).ipv6(124, &["fd00:1::/64"]);
        rig.cluster.create_pool(&pool.select("zone", "a")).await?;
        let controller = start_creating(rig).await?;
        rig.cluster.create_node(&NodeSpec::new("n").label("zone", "a")).await?;
        rig.cluster.wait_published("n", "both families", SOON, |seen| seen.pod_cidrs.len() == 2).await?;
        wait_claims_carried(rig).await?;
        let created = rig.cluster.read(Kind::CiliumNode, "n").await?;
        let node = uid(rig, Kind::Node, "n").await?;
        let owners = created.metadata.owner_references.clone().unwrap_or_default();
        ensure!(owners.len() == 1 && owners[0].uid == node && owners[0].kind == "Node", "{owners:?}");

        let claims = versions(rig, &[Kind::Block]).await?;
        let chronicle = Chronicle::start(rig);
        let mut agent = rig.agents.agent_with(make, "n", rig.agents.settings());
        agent.start()?;
        let started = agent.wait_ready(SOON).await?;
        agent.allocate("ns/pod").await?;
        rig.cluster.wait_published("n", "what the agent uses", SOON, |seen| seen.n_used() == 3 * 2).await?;
        let taken = rig.cluster.read(Kind::CiliumNode, "n").await?;
        ensure!(taken.metadata.uid == created.metadata.uid, "it made another");
        // The agent replaces all three, so the controller wrote the same values as any agent.
        let (wrote, found) = (Copied::of(&created), Copied::of(&taken));
        ensure!(wrote == found, "created with {wrote:?}, taken over with {found:?}");
        ensure!(wrote.addresses.len() == families.each().count() && wrote.labels["zone"] == "a", "{wrote:?}");
        // It has the addresses that were kept for it.
        let owner = |address: Option<std::net::IpAddr>| {
            let address = address.map(|address| address.to_string()).unwrap_or_default();
            taken.data["spec"]["ipam"]["pool"][&address]["owner"].as_str().unwrap_or_default().to_owned()
        };
        for family in families.each() {
            let (router, health) = (owner(started.router.of(family)), owner(started.health.of(family)));
            ensure!(router == "router" && health == "health", "{family:?}: {router} and {health}");
        }
        ensure!(versions(rig, &[Kind::Block]).await? == claims, "claims were written");
        ensure!(chronicle.of_cilium_node("n").len() == 1, "{:?}", chronicle.of_cilium_node("n"));

        // The garbage collector deletes it with its owner, the Node.
        agent.stop().await?;
        delete_node(rig, "n").await?;
        wait_all(rig, "n", 2, "Cooling").await?;
        Ok(controller)
    })
    .await
}

/// The fields that a CiliumNode has from its Node, without those that an agent adds.
#[derive(Debug, PartialEq)]
struct Copied {
    /// Type and address.
    addresses: BTreeSet<(String, String)>,
    labels: BTreeMap<String, String>,
    owners: Vec<OwnerReference>,
}

impl Copied {
    fn of(cilium_node: &DynamicObject) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let addresses = cilium_node.data["spec"]["addresses"].as_array().into_iter().flatten();
        let addresses = addresses.map(|address| (text(&address["type"]), text(&address["ip"])));
        Self {
            addresses: addresses.filter(|(kind, _)| kind != "CiliumInternalIP").collect(),
            labels: cilium_node.metadata.labels.clone().unwrap_or_default(),
            owners: cilium_node.metadata.owner_references.clone().unwrap_or_default(),
        }
    }
}

/// No CiliumNode is created for a Node that no pool selects: its agent would not be served. A CiliumNode that an agent
/// has created is left unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_missing_and_wanted_is_created() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).select("zone", "a")).await?;
        let controller = start_creating(rig).await?;
        rig.cluster.create_node(&NodeSpec::new("unselected")).await?;
        let agent = join_one(rig, NodeSpec::new("n").label("zone", "a")).await?;
        ensure!(rig.cluster.object(Kind::CiliumNode, "unselected").is_none(), "nobody wanted it");

        // It is wanted now. A CiliumNode that is deleted while its Node stays is recreated.
        rig.cluster.relabel_node("unselected", &[("zone", Some("a"))]).await?;
        let first =
            rig.cluster.wait_published("unselected", "a block", SOON, |seen| seen.pool.len() == 14).await?;
        rig.cluster.delete(Kind::CiliumNode, "unselected").await?;
        let again =
            |seen: &crate::support::views::Published| seen.uid != first.uid && seen.pool == first.pool;
        rig.cluster.wait_published("unselected", "the same block", SOON, again).await?;

        // None is created for a Node that is being deleted.
        let finalizers = json!({"metadata": {"finalizers": ["example.com/machine"]}});
        rig.cluster.patch(Kind::Node, "unselected", finalizers).await?;
        rig.cluster.delete_node("unselected").await?;
        // The nodes that it serves after this prove that it has seen it: it watches Nodes and CiliumNodes separately.
        let before = join_one(rig, NodeSpec::new("before").label("zone", "a")).await?;
        rig.cluster.delete(Kind::CiliumNode, "unselected").await?;
        let canary = join_one(rig, NodeSpec::new("canary").label("zone", "a")).await?;
        ensure!(
            rig.cluster.object(Kind::CiliumNode, "unselected").is_none(),
            "it was made for a Node that goes"
        );
        let claims = rig.cluster.claims_of("unselected");
        let claim = claims.first().context("its claim")?;
        ensure!(claim.state == "Held", "{claim:?}");
        Ok((controller, agent, before, canary))
    })
    .await
}
