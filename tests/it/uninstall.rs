//! The uninstallation by `docs/how-to/uninstall.md`, and the way back. No pod loses an address, and the fields of a
//! CiliumNode that its agent uses do not change by a byte.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;

use crate::chronicle::delete_node;
use crate::scene::{PROMPT, SOON, fill, join, nodes, wait_claims_carried, wait_ready};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const DEFINITIONS: [&str; 2] = ["nodeipblocks.nodeipam.io", "nodeippools.nodeipam.io"];

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_takes_no_address_from_a_pod_and_the_way_back_changes_none() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // Two blocks at most, so that a full node does not grow on the way back.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("perNode", json!({"maxBlocks": 2}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("n", 3)).await?;
        wait_ready(rig, &agents).await?;
        // One node has grown: it has more to lose.
        let mut agents: Vec<Agent> = agents.into_iter().map(Agent::Fake).collect();
        fill(rig, &agents[0], "n0", 2).await?;
        wait_claims_carried(rig).await?;
        let held = holdings(&agents).await?;

        // 1. Scale the controller to zero.
        let status = controller.sigterm_and_wait().await?;
        ensure!(status.success(), "{status}");
        let before = allocatable(rig).await?;
        ensure!(before.len() == 3, "{before:?}");

        // The oracle rightly reports claims that are deleted while CiliumNodes carry their blocks: uninstalling means
        // that.
        rig.control_plane.allow("claim-deleted-while-carried", None, None).await?;
        // 3. and 4. Remove the finalizers, and delete the objects.
        for kind in [Kind::Block, Kind::Pool] {
            purge(rig, kind).await?;
            ensure!(allocatable(rig).await? == before, "{kind:?}s went, and CiliumNodes changed");
        }
        // 5. Delete the definitions.
        let definitions = delete_definitions(rig).await?;
        ensure!(allocatable(rig).await? == before, "the definitions went, and CiliumNodes changed");

        // Agents keep running, and an agent that restarts finds its pods again.
        ensure!(holdings(&agents).await? == held, "addresses were lost");
        agents[0].restart_and_restore(SOON).await?;
        agents[1].allocate("ns/afterwards").await.context("a pod without the controller")?;
        let held = holdings(&agents).await?;

        // The way back.
        restore(rig, definitions).await?;
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_claims_carried(rig).await?;
        let after = allocatable(rig).await?;
        ensure!(after == before, "before: {before:?}\nafter: {after:?}");
        ensure!(holdings(&agents).await? == held, "addresses were lost on the way back");
        let report = rig.control_plane.oracle().await?;
        ensure!(report.violations.is_empty(), "{:?}", report.violations.first());
        Ok(controller)
    })
    .await
}

/// The claims have finalizers, so the definition waits for them, and the server refuses new ones meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_being_deleted_is_named_as_the_cause() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let first = join(rig, &nodes("n", 1)).await?;
        wait_ready(rig, &first).await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(rig.cluster.client.clone());
        let definition = definitions.get(DEFINITIONS[0]).await?;
        definitions.delete(DEFINITIONS[0], &DeleteParams::default()).await?;
        let second = join(rig, &nodes("late-", 1)).await?;
        controller.wait_logged("the CustomResourceDefinition of this kind is being deleted", SOON).await?;
        rig.control_plane.allow("claim-deleted-while-carried", None, None).await?;
        let status = controller.sigterm_and_wait().await?;
        ensure!(status.success(), "{status}");
        for object in Kind::Block.api(&rig.cluster.client).list(&ListParams::default()).await? {
            let name = object.metadata.name.unwrap_or_default();
            rig.cluster.patch(Kind::Block, &name, json!({"metadata": {"finalizers": null}})).await?;
        }
        wait_deleted(&definitions, &definition).await?;
        restore(rig, vec![definition]).await?;
        for (number, agent) in second.into_iter().enumerate() {
            Agent::Fake(agent).power_off().await?;
            delete_node(rig, &format!("late-{number}")).await?;
        }
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_claims_carried(rig).await?;
        Ok((controller, first))
    })
    .await
}

/// The fields that agents use, as the server has them now: as text, so that every byte counts.
async fn allocatable(rig: &Rig) -> Result<BTreeMap<String, (String, String)>> {
    let listed = Kind::CiliumNode.api(&rig.cluster.client).list(&ListParams::default()).await?;
    Ok(listed
        .items
        .into_iter()
        .map(|object| {
            let ipam = &object.data["spec"]["ipam"];
            let shown = (ipam["podCIDRs"].to_string(), ipam["pool"].to_string());
            (object.metadata.name.unwrap_or_default(), shown)
        })
        .collect())
}

async fn holdings(agents: &[Agent]) -> Result<Vec<BTreeSet<String>>> {
    let mut holdings = Vec::new();
    for agent in agents {
        holdings.push(agent.held().await?.into_iter().map(|held| format!("{held:?}")).collect());
    }
    Ok(holdings)
}

/// Removes the finalizers of all objects of a kind, deletes them, and returns when they are gone.
async fn purge(rig: &Rig, kind: Kind) -> Result<()> {
    let api = kind.api(&rig.cluster.client);
    for object in api.list(&ListParams::default()).await? {
        let name = object.metadata.name.unwrap_or_default();
        rig.cluster.patch(kind, &name, json!({"metadata": {"finalizers": null}})).await?;
        rig.cluster.delete(kind, &name).await?;
    }
    let left = api.list(&ListParams::default()).await?.items.len();
    ensure!(left == 0, "{left} {kind:?}s are left");
    Ok(())
}

/// Deletes the definitions, and returns them when they are gone.
async fn delete_definitions(rig: &Rig) -> Result<Vec<CustomResourceDefinition>> {
    let api: Api<CustomResourceDefinition> = Api::all(rig.cluster.client.clone());
    let mut definitions = Vec::new();
    for name in DEFINITIONS {
        let definition = api.get(name).await?;
        api.delete(name, &DeleteParams::default()).await?;
        wait_deleted(&api, &definition).await?;
        definitions.push(definition);
    }
    Ok(definitions)
}

async fn wait_deleted(
    api: &Api<CustomResourceDefinition>,
    definition: &CustomResourceDefinition,
) -> Result<()> {
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    let uid = definition.metadata.uid.as_deref().unwrap_or_default();
    let gone = await_condition(api.clone(), name, conditions::is_deleted(uid));
    tokio::time::timeout(SOON, gone).await.with_context(|| format!("{name} is not deleted"))??;
    Ok(())
}

/// Installs the definitions again, and returns when their objects are available.
async fn restore(rig: &Rig, definitions: Vec<CustomResourceDefinition>) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(rig.cluster.client.clone());
    for definition in definitions {
        let name = &definition.metadata.name.context("its name")?;
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let fresh = CustomResourceDefinition { metadata, spec: definition.spec, status: None };
        api.create(&PostParams::default(), &fresh).await?;
        let established = await_condition(api.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(SOON, established).await.with_context(|| format!("{name} does not come"))??;
    }
    // A definition is established a moment before its objects are served.
    for kind in [Kind::Block, Kind::Pool] {
        let objects = kind.api(&rig.cluster.client);
        let served = async {
            while let Err(error) = objects.list(&ListParams::default().limit(1)).await {
                ensure!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{error}");
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            Ok(())
        };
        tokio::time::timeout(SOON, served).await.with_context(|| format!("{kind:?}s are not served"))??;
    }
    Ok(())
}
