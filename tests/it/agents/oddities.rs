//! The script of failures: the cases in which an agent reports less than the truth, or takes an address that it should
//! not.
//!
//! A controller that relies on any of these is wrong, so the imitation must have them all. In a real cluster each is a
//! race; here each is certain. `min-allocate` delays a start, and the objects that a starting agent finds are written
//! before.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::json;

use super::{Stage, has, without_name};
use crate::scene::{SOON, insist};
use crate::support::agent::Agent;
use crate::support::objects::Kind;

impl Stage<'_> {
    pub(super) async fn oddities(&mut self, agent: &mut Agent) -> Result<()> {
        // The last part removes the address of a pod from its node, to see the reaction of its agent.
        self.rig.control_plane.allow("held-address-withdrawn", Some(&self.name), None).await?;
        self.rig.control_plane.allow("withdrawn-without-consent", Some(&self.name), None).await?;
        agent.start()?;
        self.wait("the CiliumNode", |_| true).await?;
        self.publish(0).await?;
        agent.wait_ready(SOON).await?;
        for pod in ["ns/a", "ns/b", "ns/c"] {
            agent.allocate(pod).await?;
        }
        self.wait("three pods", |seen| has(seen, "ns/a") && has(seen, "ns/b") && has(seen, "ns/c")).await?;
        self.part("three pods").await?;

        self.early_use_is_empty(agent).await?;
        self.a_new_object_is_silent(agent).await?;
        self.an_owner_beats_the_handshake(agent).await?;
        self.restarts_lose_pods(agent).await
    }

    /// An answer that needs no pool is given before the pods are restored, with a `used` that has none of them.
    async fn early_use_is_empty(&mut self, agent: &mut Agent) -> Result<()> {
        agent.stop().await?;
        self.patch(json!({"spec": {"ipam": {"min-allocate": 100}}})).await?;
        self.mark("0.0.0.0", "marked-for-release").await?;
        agent.start()?;
        self.wait("an early answer", |seen| {
            seen.release.get("0.0.0.0").is_some_and(|state| state == "do-not-release")
        })
        .await?;
        self.part("a restarting agent answers before it has restored").await?;
        self.patch(json!({"spec": {"ipam": {"min-allocate": null}}})).await?;
        agent.wait_ready(SOON).await?;
        self.wait("restored pods", |seen| has(seen, "ns/c [restored]")).await?;
        self.part("it restores").await?;
        self.patch_status(json!({"status": {"ipam": {"release-ips": null}}})).await?;
        self.part("the answer is cleaned up").await
    }

    /// A CiliumNode that is recreated while its agent runs says nothing about use until a pod comes or is deleted.
    async fn a_new_object_is_silent(&mut self, agent: &Agent) -> Result<()> {
        let carried = self.rig.cluster.read(Kind::CiliumNode, &self.name).await?.data["spec"]["ipam"].clone();
        self.rig.cluster.delete(Kind::CiliumNode, &self.name).await?;
        let gone = async || Ok(self.rig.cluster.published(&self.name).is_none());
        self.rig.cluster.wait_until("the end of the CiliumNode", SOON, gone).await?;
        agent.touch_node().await?;
        self.wait("a new CiliumNode", |_| true).await?;
        self.patch(json!({"spec": {"ipam": carried}})).await?;
        self.part("the CiliumNode is recreated").await?;

        self.ask_until(agent, "ns/d", |_| true).await?;
        self.wait("use", |seen| has(seen, "ns/d") && has(seen, "ns/a [restored]")).await?;
        self.part("use is told with the next pod").await
    }

    /// The pod that owns an entry by name gets it, released or not.
    async fn an_owner_beats_the_handshake(&mut self, agent: &Agent) -> Result<()> {
        let published = self.rig.cluster.published(&self.name).unwrap_or_default();
        let used = published.used.unwrap_or_default();
        let free =
            published.pool.into_keys().find(|address| !used.contains_key(address)).context("none is free")?;
        self.mark(&free, "marked-for-release").await?;
        self.wait("consent", |seen| {
            seen.release.get(&free).is_some_and(|state| state == "ready-for-release")
        })
        .await?;
        self.part("an unused address is marked").await?;
        self.patch(json!({"spec": {"ipam": {"pool": {&free: {"owner": "ns/s-0"}}}}})).await?;
        self.ask_until(agent, "ns/s-0", |got| got.to_string() == free).await?;
        self.wait("the pod", |seen| {
            seen.used.iter().flatten().any(|(address, by)| *address == free && by == "ns/s-0")
        })
        .await?;
        self.part("its owner gets it all the same").await?;
        agent.release("ns/s-0").await?;
        self.wait("the end of the pod", |seen| !has(seen, "ns/s-0")).await?;
        self.patch(json!({"spec": {"ipam": {"pool": {&free: {"owner": null}}}}})).await?;
        self.patch_status(json!({"status": {"ipam": {"release-ips": null}}})).await?;
        self.part("the pod goes").await
    }

    /// At a restart a pod loses its network if its address is marked, or has left the pool.
    async fn restarts_lose_pods(&mut self, agent: &mut Agent) -> Result<()> {
        agent.stop().await?;
        let (marked, gone) = (self.address_of("ns/a [restored]")?, self.address_of("ns/b [restored]")?);
        self.mark(&marked, "marked-for-release").await?;
        self.patch(json!({"spec": {"ipam": {"pool": {&gone: null}}}})).await?;
        let started = agent.restart(SOON).await?;
        let lost: BTreeMap<_, _> = started
            .lost
            .iter()
            .map(|(owner, why)| (owner, why.replace(&marked, "(marked)").replace(&gone, "(gone)")))
            .collect();
        self.recorder.note(&format!("lost: {lost:?}"));
        self.wait("use without the lost pods", |seen| {
            has(seen, "ns/c [restored]") && !has(seen, "ns/a [restored]") && !has(seen, "ns/b [restored]")
        })
        .await?;
        self.wait("an answer", |seen| {
            seen.release.get(&marked).is_some_and(|state| state == "ready-for-release")
        })
        .await?;
        // A free address is released at once, so the answer may come before the pods are restored or with them.
        self.outcome("a marked address and one that is gone are not restored").await
    }

    /// A change of metadata alone makes an agent forget the answer that it has not written yet.
    pub(super) async fn lost_answer(&mut self, agent: &mut Agent) -> Result<()> {
        agent.start()?;
        self.wait("the CiliumNode", |_| true).await?;
        self.publish(0).await?;
        agent.wait_ready(SOON).await?;
        self.wait("use", |seen| seen.n_used() == 2).await?;
        let published = self.rig.cluster.published(&self.name).unwrap_or_default();
        let used = published.used.unwrap_or_default();
        let free =
            published.pool.into_keys().find(|address| !used.contains_key(address)).context("none is free")?;
        // Fenced, so that no pod gets it meanwhile.
        self.patch(json!({"spec": {"ipam": {"pool": {&free: {"owner": "nodeipam.io/fenced"}}}}})).await?;
        self.probe().await?;
        self.part("an address is fenced").await?;

        // The agent has just written its status, so it does not write again for one update rate.
        self.mark(&free, "marked-for-release").await?;
        self.patch(json!({"metadata": {"annotations": {"example.com/touched": "yes"}}})).await?;
        // The next write contains this allocation, and not the answer.
        agent.allocate("ns/b").await?;
        self.wait("an answer", |seen| {
            seen.release.get(&free).is_some_and(|state| state == "ready-for-release")
        })
        .await?;
        self.part("the first answer is lost, the next write repeats it").await
    }

    async fn mark(&self, address: &str, state: &str) -> Result<()> {
        self.patch_status(json!({"status": {"ipam": {"release-ips": {address: state}}}})).await
    }

    fn address_of(&self, owner: &str) -> Result<String> {
        let used = self.rig.cluster.published(&self.name).unwrap_or_default().used.unwrap_or_default();
        used.into_iter()
            .find(|(_, by)| by == owner)
            .map(|(address, _)| address)
            .with_context(|| owner.to_owned())
    }

    /// Asks for an address until it is one that `fits`; others are given back. No event reports when the agent has seen
    /// the change that makes it fit.
    async fn ask_until(&self, agent: &Agent, owner: &str, fits: impl Fn(IpAddr) -> bool) -> Result<()> {
        let asked = insist(self.rig, async || {
            if agent.allocate(owner).await?.each().any(&fits) {
                return Ok(());
            }
            agent.release(owner).await?;
            bail!("{owner} got another address")
        });
        asked.await.map_err(|error| anyhow!(without_name(&error.to_string())))
    }
}
