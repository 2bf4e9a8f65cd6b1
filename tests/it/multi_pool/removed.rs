//! Blocks that drain from a node whose agent has complete CIDRs. They are removed in one write with a usage query, and
//! Cilium's own agent decides by its answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde_json::json;

use super::{SLOW, by_name, carried, create_pod_ip_pool, multi_pool};
use crate::agent_pods::{create_agent_pod, delete_at_once, pods, report};
use crate::chronicle::Chronicle;
use crate::scene::{SOON, ask, wait_claims_carried};
use crate::support::agent::{Agent, Make};
use crate::support::controller::Controller;
use crate::support::kubelet::{Health, create_running};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// A drain that the agent refused is tried again soon.
const FLAGS: &[&str] = &["--min-write-interval", "300ms", "--usage-query-interval", "5s"];

const POD: &str = "cilium-n";

/// The pool that will be emptied, and its range.
pub(super) const LEAVING: &str = "q";
pub(super) const RANGE: &str = "10.2.0.0/24";

/// A node with an agent. It has a block of a pool that will be emptied soon, besides its first block of another pool.
pub(super) struct Scene {
    pub(super) agent: Agent,
    n_restarts: u32,
    pub(super) block: String,
}

impl Scene {
    pub(super) async fn grown(rig: &Rig) -> Result<(Controller, Self)> {
        rig.control_plane.limit_releasing(SLOW).await?;
        create_pod_ip_pool(rig, "default").await?;
        let pool = |name: &str, range: &str| PoolSpec::new(name).ipv4(28, &[range]).with("reuseAfter", "1s");
        // One block, so that the second one comes from the other pool even if the agent asks for it at once.
        rig.cluster.create_pool(&pool("p", "10.1.0.0/28")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        rig.cluster.create_node(&NodeSpec::new("n")).await?;
        create_agent_pod(rig, POD, "n", "1.20.2").await?;
        let mut agent = rig.agents.agent_with(Make::Real, "n", rig.agents.settings());
        agent.start()?;
        agent.wait_ready(SLOW).await?;
        report(rig, POD, 0, Health::Ready).await?;
        rig.cluster.create_pool(&pool(LEAVING, RANGE).with("priority", 10)).await?;
        for number in 0..10 {
            ask(rig, &agent, &format!("ns/kept-{number}")).await?;
        }
        let grown = |seen: &Published| seen.pod_cidrs.iter().any(|cidr| cidr.starts_with("10.2.0."));
        rig.cluster.wait_published("n", "a block of the pool that is to be emptied", SLOW, grown).await?;
        let wide = json!({"ipv4": {"cidrs": [{"cidr": "10.1.0.0/24"}]}});
        rig.cluster.patch_pool("p", wide).await?;
        wait_claims_carried(rig).await?;
        let block = carried(rig, "n").into_iter().find(|cidr| cidr.starts_with("10.2.0."));
        Ok((controller, Self { agent, n_restarts: 0, block: block.context("it is there")? }))
    }

    /// Pods start until one has an address of the block; returns it and its address.
    pub(super) async fn use_block(&self, rig: &Rig) -> Result<(String, IpAddr)> {
        let block: IpNet = self.block.parse()?;
        for number in 0..super::BLOCK {
            ask(rig, &self.agent, &format!("ns/more-{number}")).await?;
            let held = self.agent.held().await?;
            if let Some((address, owner)) = held.into_iter().find(|(address, _)| block.contains(address)) {
                return Ok((owner, address));
            }
        }
        anyhow::bail!("no pod has an address of {block}: {:?}", self.agent.held().await?)
    }

    /// All pods with addresses of the block terminate.
    pub(super) async fn end_pods(&self) -> Result<()> {
        let block: IpNet = self.block.parse()?;
        let held = self.agent.held().await?;
        for (_, owner) in held.into_iter().filter(|(address, _)| block.contains(address)) {
            self.agent.release(&owner).await?;
        }
        Ok(())
    }

    async fn drain(rig: &Rig) -> Result<()> {
        let drains = json!({"ipv4": {"cidrs": [{"cidr": RANGE, "state": "Draining"}]}});
        rig.cluster.patch_pool(LEAVING, drains).await?;
        Ok(())
    }

    /// The agent restarts, and every pod keeps its address.
    pub(super) async fn restart(&mut self, rig: &Rig) -> Result<()> {
        let held = self.agent.held().await?;
        self.agent.restart_and_restore(SLOW).await?;
        self.n_restarts += 1;
        report(rig, POD, self.n_restarts, Health::Ready).await?;
        let addresses =
            |held: std::collections::BTreeMap<IpAddr, String>| held.into_keys().collect::<BTreeSet<_>>();
        let (before, after) = (addresses(held), addresses(self.agent.held().await?));
        ensure!(before == after, "{before:?} became {after:?}");
        Ok(())
    }

    pub(super) fn state(&self, rig: &Rig) -> Option<String> {
        let claims = rig.cluster.claims_of("n");
        claims.into_iter().find(|claim| claim.cidr == self.block).map(|claim| claim.state)
    }

    async fn wait_state(&self, rig: &Rig, state: Option<&str>) -> Result<()> {
        let is = async || Ok(self.state(rig).as_deref() == state);
        let waited = rig.cluster.wait_until(&format!("{} to be {state:?}", self.block), SLOW, is).await;
        waited.with_context(|| format!("it is {:?}, and listed are {:?}", self.state(rig), by_name(rig, "n")))
    }

    /// Returns when the block is free, and the node has others for its need.
    async fn wait_free(&self, rig: &Rig) -> Result<()> {
        self.wait_state(rig, None).await?;
        let is_off = |seen: &Published| !seen.pod_cidrs.contains(&self.block);
        rig.cluster.wait_published("n", "the block to be off", SOON, is_off).await?;
        ask(rig, &self.agent, "ns/last").await?;
        wait_claims_carried(rig).await
    }

    /// Watches from now on whether a version of the CiliumNode is without the block.
    fn watch_for_its_absence(&self, rig: &Rig) -> Arc<Mutex<bool>> {
        let absent = Arc::new(Mutex::new(false));
        let (noted, block) = (Arc::clone(&absent), self.block.clone());
        rig.cluster.cache().subscribe(Box::new(move |kind, _, object| {
            let lacks =
                |object: &Arc<kube::api::DynamicObject>| !Published::of(object).pod_cidrs.contains(&block);
            if kind == Kind::CiliumNode && object.is_some_and(lacks) {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = true;
            }
        }));
        absent
    }
}

fn is_set(flag: &Mutex<bool>) -> bool {
    *flag.lock().unwrap_or_else(PoisonError::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_block_of_a_pool_that_drains_goes() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut scene) = Scene::grown(rig).await?;
        Scene::drain(rig).await?;
        scene.wait_free(rig).await?;
        scene.restart(rig).await?;
        Ok((controller, scene.agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_blocks_of_a_deleted_pool_go_and_the_pool_with_them() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut scene) = Scene::grown(rig).await?;
        rig.cluster.delete_pool(LEAVING).await?;
        scene.wait_free(rig).await?;
        let gone = async || Ok(rig.cluster.object(Kind::Pool, LEAVING).is_none());
        rig.cluster.wait_until("the pool to be gone", SOON, gone).await?;
        scene.restart(rig).await?;
        Ok((controller, scene.agent))
    })
    .await
}

/// No Pod shows the address, as of a pod that has just got it.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_its_agent_goes_on_with_drains_and_goes_with_its_last_pod() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut scene) = Scene::grown(rig).await?;
        let (owner, address) = scene.use_block(rig).await?;
        rig.control_plane.allow("held-address-withdrawn", Some("n"), Some(&scene.block)).await?;
        Scene::drain(rig).await?;
        scene.wait_state(rig, Some("Draining")).await?;
        // The controller removes it again now and then. Its pods keep their addresses, and new pods get others.
        let block: IpNet = scene.block.parse()?;
        let before: BTreeSet<IpAddr> = scene.agent.held().await?.into_keys().collect();
        for number in 0..super::BLOCK {
            ask(rig, &scene.agent, &format!("ns/late-{number}")).await?;
        }
        let held = scene.agent.held().await?;
        let new = held.keys().filter(|address| !before.contains(*address));
        let of_block: Vec<&IpAddr> = new.filter(|address| block.contains(*address)).collect();
        ensure!(of_block.is_empty(), "new pods have {of_block:?}");
        ensure!(held.get(&address) == Some(&owner), "{owner} had {address}: {held:?}");
        ensure!(scene.state(rig).is_some(), "the block is free");

        scene.end_pods().await?;
        scene.wait_free(rig).await?;
        scene.restart(rig).await?;
        Ok((controller, scene.agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_with_a_pod_in_it_stays_until_the_pod_ends() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut scene) = Scene::grown(rig).await?;
        let (owner, address) = scene.use_block(rig).await?;
        create_running(&pods(rig), "web", "n", &[address]).await?;
        let absent = scene.watch_for_its_absence(rig);
        Scene::drain(rig).await?;
        controller.wait_logged("these pods have addresses of it: kube-system/web", SOON).await?;
        scene.restart(rig).await?;
        ensure!(!is_set(&absent), "it was taken off");
        ensure!(scene.state(rig).as_deref() == Some("Held"), "it is {:?}", scene.state(rig));

        delete_at_once(rig, "web").await?;
        let held = scene.agent.held().await?;
        ensure!(held.contains_key(&address), "{owner} had it: {held:?}");
        scene.end_pods().await?;
        scene.wait_free(rig).await?;
        scene.restart(rig).await?;
        Ok((controller, scene.agent))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_restarts_behind_the_question_answers_it() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let (controller, mut scene) = Scene::grown(rig).await?;
        let (chronicle, block) = (Chronicle::start(rig), scene.block.clone());
        Scene::drain(rig).await?;
        let off = |seen: &Published| !seen.pod_cidrs.contains(&block);
        rig.cluster.wait_published("n", "the block to be off", SLOW, off).await?;
        let withdrawn =
            async || Ok(chronicle.of_block(&block).iter().any(|words| words == "n Releasing Reclaimed"));
        let waited = rig.cluster.wait_until("its claim to be Releasing", SOON, withdrawn).await;
        waited.with_context(|| format!("it was {:?}", chronicle.of_block(&block)))?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        scene.restart(rig).await?;
        scene.wait_free(rig).await?;
        Ok((controller, scene.agent))
    })
    .await
}
