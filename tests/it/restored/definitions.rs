//! A user deletes the definitions of pools and claims. An administrator follows `docs/how-to/definition-deleted.md`,
//! with the commands of the page.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::page::{Page, Shell};
use crate::chronicle::{delete_node, wait_all};
use crate::scene::{PROMPT, SOON, ask, join, nodes, wait_ready, wait_status};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::objects::{Kind, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const PAGE: &str = include_str!("../../../docs/how-to/definition-deleted.md");

#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_from_deleted_definitions_keeps_every_claim_and_its_cooling() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // The definitions of the page have the marks of Helm.
        rig.control_plane.keep_to_this_test();
        let (mut page, shell) = (Page::of(PAGE), Shell::new(&rig.control_plane)?);
        // Four blocks: for two nodes, a lost one, and one that joins.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"]).with("perNode", json!({"maxBlocks": 1}));
        rig.cluster.create_pool(&pool).await?;
        let mut controller = start(rig)?;
        controller.wait_ready().await?;
        let agents = join(rig, &nodes("n", 3)).await?;
        wait_ready(rig, &agents).await?;
        let mut agents: Vec<Agent> = agents.into_iter().map(Agent::Fake).collect();
        agents.pop().context("an agent")?.power_off().await?;
        delete_node(rig, "n2").await?;
        wait_all(rig, "n2", 1, "Cooling").await?;
        let (claims, pools) = (specs(rig, Kind::Block).await?, specs(rig, Kind::Pool).await?);
        ensure!(claims.len() == 3, "{claims:?}");

        shell.run("kubectl delete crd nodeipblocks.nodeipam.io nodeippools.nodeipam.io --wait=false").await?;
        controller.wait_logged("the definition nodeipblocks.nodeipam.io is being deleted", SOON).await?;
        let joining = join(rig, &nodes("late", 1)).await?;
        let (_, seen) = shell.answer(&page.next()?).await?;
        let (_, audit) = shell.answer("cilium-node-ipam check").await?;
        for report in [seen, audit] {
            let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
            for name in ["nodeipblocks", "nodeippools"] {
                let sentence = format!("the definition {name}.nodeipam.io is being deleted");
                ensure!(report.contains(&sentence), "{report}");
            }
            ensure!(report.contains("docs/how-to/definition-deleted.md"), "{report}");
        }

        page.stand_in_for(&[
            "kubectl -n kube-system scale deployment cilium-node-ipam --replicas=0",
            "kubectl -n kube-system wait --for=delete pod -l app.kubernetes.io/name=cilium-node-ipam --timeout=2m",
        ])?;
        let status = controller.sigterm_and_wait().await?;
        ensure!(status.success(), "{status}");
        // The page removes the finalizers while CiliumNodes have the blocks.
        rig.control_plane.allow("claim-deleted-while-carried", None, None).await?;
        let deleted = page.next()?;
        let run = async |commands: String| shell.run(&format!("{deleted}\n{commands}")).await;
        for _step in ["save", "let the deletion finish"] {
            run(page.next()?).await?;
        }
        for command in ["status", "check"] {
            let (status, report) = shell.answer(&format!("cilium-node-ipam {command}")).await?;
            let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
            ensure!(!status.success() && report.contains(".nodeipam.io is missing"), "{report}");
        }
        for _step in ["install", "give back to Helm", "create"] {
            run(page.next()?).await?;
        }
        let numbers = run(page.next()?).await?;
        ensure!(numbers == "nodeippools: 1 of 1\nnodeipblocks: 3 of 3\n", "{numbers}");
        ensure!(specs(rig, Kind::Block).await? == claims, "{claims:?}, then {:?}", specs(rig, Kind::Block).await?);
        ensure!(specs(rig, Kind::Pool).await? == pools, "{pools:?}");

        page.stand_in_for(&["kubectl -n kube-system scale deployment cilium-node-ipam --replicas=2"])?;
        let mut controller = start(rig)?;
        controller.wait_ready().await?;
        wait_ready(rig, &joining).await?;
        let settled = shell.run(&page.next()?).await?;
        ensure!(!settled.contains("DefinitionDeleted"), "{settled}");
        page.assert_done()?;

        // Only the block of the lost machine is left, and no node gets it. The oracle knows the addresses of pods.
        let waiting = join(rig, &nodes("waits", 1)).await?;
        wait_status(rig, "p", "a node that waits", |status| status["nodes"]["waiting"] == 1).await?;
        let cooling = claims.iter().filter(|(_, spec)| spec["state"] == "Cooling");
        let now = specs(rig, Kind::Block).await?;
        for (name, spec) in cooling {
            ensure!(now.get(name) == Some(spec), "{name}: {spec}, then {now:?}");
        }
        agents.extend(joining.into_iter().map(Agent::Fake));
        for agent in &mut agents {
            ask(rig, agent, "ns/afterwards").await?;
            agent.restart_and_restore(SOON).await?;
        }
        for agent in waiting {
            Agent::Fake(agent).power_off().await?;
            delete_node(rig, "waits0").await?;
        }
        Ok((controller, agents))
    })
    .await
}

/// A replica with election, as an installation has it.
fn start(rig: &Rig) -> Result<Controller> {
    Controller::start(&rig.control_plane, &[PROMPT, &[ELECTED]].concat())
}

/// The `spec` of each object, by name, as the server has it now.
async fn specs(rig: &Rig, kind: Kind) -> Result<BTreeMap<String, Value>> {
    let listed = kind.api(&rig.cluster.client).list(&ListParams::default()).await?;
    let of = |object: kube::api::DynamicObject| {
        (object.metadata.name.unwrap_or_default(), object.data["spec"].clone())
    };
    Ok(listed.items.into_iter().map(of).collect())
}
