//! Writes of other writers to a node in multi-pool mode while Cilium's own agent runs on it: objects are deleted, CIDRs
//! are removed, moved and misspelt. The agent also restarts between its release and its answer.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::chronicle::Chronicle;
use crate::multi_pool::{SLOW, carried, joins_beside, multi_pool, wait_none_on_its_way};
use crate::scene::{PROMPT, SOON, ask, insist, wait_claims_carried, wait_use_listed};
use crate::support::agent::{Agent, Make};
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// More pods than two blocks have addresses.
const PODS: usize = 30;

async fn join(rig: &Rig, make: Make, name: &str) -> Result<Agent> {
    rig.cluster.create_node(&NodeSpec::new(name)).await?;
    let mut agent = rig.agents.agent_with(make, name, rig.agents.settings());
    agent.start()?;
    agent.wait_ready(SLOW).await?;
    Ok(agent)
}

/// A controller and the node `n` with pods in at least three blocks.
async fn populated(rig: &Rig, make: Make) -> Result<(Controller, Agent)> {
    rig.control_plane.limit_releasing(SLOW).await?;
    prepare(rig, 28).await?;
    let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s");
    rig.cluster.create_pool(&pool).await?;
    let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
    let agent = join(rig, make, "n").await?;
    for number in 0..PODS {
        ask(rig, &agent, &format!("ns/pod-{number}")).await?;
    }
    wait_use_listed(rig, &agent, "n").await?;
    wait_claims_carried(rig).await?;
    ensure!(carried(rig, "n").len() >= 3, "{:?}", carried(rig, "n"));
    Ok((controller, agent))
}

/// `spec.ipam.pools.allocated` as the server has it.
async fn allocated(rig: &Rig, node: &str) -> Result<Value> {
    let object = rig.cluster.read(Kind::CiliumNode, node).await?;
    object.data.pointer("/spec/ipam/pools/allocated").cloned().context("it has CIDRs")
}

async fn set_allocated(rig: &Rig, node: &str, allocated: Value) -> Result<()> {
    let patch = json!({"spec": {"ipam": {"pools": {"allocated": allocated}}}});
    rig.cluster.patch(Kind::CiliumNode, node, patch).await.map(drop)
}

/// Its agent writes all of them back, and may restart before or after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_ciliumnode_that_is_deleted_under_its_agent_keeps_its_blocks() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut agent) = populated(rig, Make::Real).await?;
        let before = carried(rig, "n");
        rig.cluster.delete(Kind::CiliumNode, "n").await?;
        let other = joins_beside(rig, &before).await?;
        agent.touch_node().await?;
        let has_all = |seen: &Published| before.iter().all(|cidr| seen.pod_cidrs.contains(cidr));
        rig.cluster.wait_published("n", "what it had", SLOW, has_all).await?;
        agent.restart_and_restore(SLOW).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent, other))
    })
    .await
}

/// It is written again while its agent needs it, even if another node asks for blocks meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_cidr_in_use_that_a_hand_takes_off_comes_back_to_its_node() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut agent) = populated(rig, Make::Real).await?;
        let before = carried(rig, "n");
        rig.control_plane.allow("held-address-withdrawn", Some("n"), None).await?;
        let mut without = allocated(rig, "n").await?;
        let taken = without[0]["cidrs"].as_array_mut().context("CIDRs")?.remove(0);
        set_allocated(rig, "n", without).await?;
        let other = joins_beside(rig, &before).await?;
        let has_it = |seen: &Published| seen.pod_cidrs.iter().any(|cidr| taken == cidr.as_str());
        rig.cluster.wait_published("n", "the CIDR", SLOW, has_it).await?;
        agent.restart_and_restore(SLOW).await?;
        ask(rig, &agent, "ns/last").await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent, other))
    })
    .await
}

/// Only a person knows which name is right, so the CIDR is reported and stays there.
#[tokio::test(flavor = "multi_thread")]
async fn a_cidr_that_a_hand_moves_to_another_name_is_told_and_given_to_nobody() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut agent) = populated(rig, Make::Real).await?;
        let before = carried(rig, "n");
        let as_it_was = allocated(rig, "n").await?;
        let mut moved = as_it_was.clone();
        let cidr = moved[0]["cidrs"].as_array_mut().context("CIDRs")?.remove(0);
        moved.as_array_mut().context("entries")?.push(json!({"pool": "mars", "cidrs": [cidr]}));
        set_allocated(rig, "n", moved).await?;
        controller.wait_logged("MisplacedBlock", SOON).await?;
        let other = joins_beside(rig, &before).await?;
        set_allocated(rig, "n", as_it_was).await?;
        agent.restart_and_restore(SLOW).await?;
        ask(rig, &agent, "ns/last").await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent, other))
    })
    .await
}

/// While that text is there, the agent of 1.20 sees no version of its CiliumNode. It recovers when the text is removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_in_allocated_that_is_no_cidr_stops_its_node_until_it_is_gone() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, agent) = populated(rig, Make::Real).await?;
        for rule in ["undecodable", "cidr-without-claim"] {
            rig.control_plane.allow(rule, Some("n"), None).await?;
        }
        let as_it_was = allocated(rig, "n").await?;
        let mut odd = as_it_was.clone();
        odd[0]["cidrs"].as_array_mut().context("CIDRs")?.push(json!("010.001.000.240/28"));
        set_allocated(rig, "n", odd).await?;
        controller.wait_logged("MalformedCiliumNode", SOON).await?;
        let claims = rig.cluster.claims_of("n").len();
        let asked = json!({"spec": {"ipam": {"pools": {"requested": [
            {"pool": "default", "needed": {"ipv4-addrs": 200}},
        ]}}}});
        let asked = rig.cluster.patch(Kind::CiliumNode, "n", asked).await?;
        // The pool is created after the demand, so its answer comes after an answer to the demand would have come.
        rig.cluster.create_pool(&PoolSpec::new("late").ipv4(28, &["10.9.0.0/24"])).await?;
        crate::scene::wait_status(rig, "late", "its conditions", |status| !status["conditions"].is_null())
            .await?;
        ensure!(rig.cluster.claims_of("n").len() == claims, "it got a block");
        let now = rig.cluster.read(Kind::CiliumNode, "n").await?;
        ensure!(now.metadata.resource_version == asked.metadata.resource_version, "it was written");
        rig.cluster.delete_pool("late").await?;

        set_allocated(rig, "n", as_it_was).await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/more-{number}")).await?;
        }
        // The false demand may have been served, if its agent was late to correct it.
        wait_none_on_its_way(rig).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// The agent has forgotten the usage query, and no other node gets the block in question.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_restarts_before_it_answers_loses_no_pod() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut agent) = populated(rig, Make::Real).await?;
        let (chronicle, blocks) = (Chronicle::start(rig), carried(rig, "n"));
        for number in 1..PODS {
            agent.release(&format!("ns/pod-{number}")).await?;
        }
        let has_gone =
            |block: &String| chronicle.of_block(block).iter().any(|state| state.contains("Releasing"));
        let is_given_back = || blocks.iter().any(has_gone);
        rig.cluster.wait_until("a block to be given back", SLOW, async || Ok(is_given_back())).await?;
        agent.restart_and_restore(SLOW).await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/again-{number}")).await?;
        }
        agent.restart_and_restore(SLOW).await?;
        wait_none_on_its_way(rig).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, agent))
    })
    .await
}

/// A later version may add fields to an entry. A writer that adds CIDRs drops none of them.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_newer_release_stay() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        have_server_keep_unknown_fields(rig).await?;
        let (controller, mut agent) = populated(rig, Make::Fake).await?;
        // It is of this version, and its next write would drop the fields that it does not know.
        agent.stop().await?;
        // The server takes some time to follow the change of the schema.
        let field = json!({"of": ["a", "newer", "release"]});
        insist(rig, async || {
            let mut newer = allocated(rig, "n").await?;
            newer[0]["someday"] = field.clone();
            set_allocated(rig, "n", newer).await?;
            ensure!(allocated(rig, "n").await?[0]["someday"] == field, "the server drops it");
            Ok(())
        })
        .await?;
        let before = carried(rig, "n");
        let more = json!([{"pool": "default", "needed": {"ipv4-addrs": 3 * PODS}}]);
        let more = json!({"spec": {"ipam": {"pools": {"requested": more}}}});
        rig.cluster.patch(Kind::CiliumNode, "n", more).await?;
        let is_grown = |seen: &Published| seen.pod_cidrs.len() * 14 >= 3 * PODS;
        rig.cluster.wait_published("n", "more CIDRs", SOON, is_grown).await?;
        ensure!(carried(rig, "n").is_superset(&before), "{before:?} became {:?}", carried(rig, "n"));
        let kept = allocated(rig, "n").await?;
        ensure!(kept[0]["someday"] == field, "{kept}");
        agent.restart_and_restore(SLOW).await?;
        Ok((controller, agent))
    })
    .await
}

/// The schema of a later version has fields that this one does not know.
async fn have_server_keep_unknown_fields(rig: &Rig) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(rig.cluster.client.clone(), &ApiResource::from_gvk(&kind));
    let mut definition = api.get("ciliumnodes.cilium.io").await?;
    let items = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/ipam/properties/pools/properties/\
                 allocated/items";
    let items = definition.data.pointer_mut(items).context("the schema of an entry")?;
    items["x-kubernetes-preserve-unknown-fields"] = json!(true);
    api.replace("ciliumnodes.cilium.io", &PostParams::default(), &definition).await?;
    Ok(())
}
