//! One node with a real agent, the worlds that the model may be in, and the actions so far.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::net::cidr::Family;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::worlds::Worlds;
use super::{PATIENCE, Phase};
use crate::simulation::agent::bench::Bench;
use crate::support::agent::{RealAgent, Settings};
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::Rig;

pub(super) struct Machine<'a> {
    pub(super) rig: &'a Rig,
    pub(super) name: String,
    pub(super) agent: RealAgent,
    pub(super) worlds: Worlds,
    pub(super) rng: fastrand::Rng,
    pub(super) phase: Phase,
    /// The last written version of its CiliumNode. Observations of earlier versions do not count.
    pub(super) written: u64,
    pub(super) story: String,
}

impl<'a> Machine<'a> {
    pub(super) async fn new(
        rig: &'a Rig,
        seed: u64,
        families: Vec<Family>,
        settings: Settings,
    ) -> Result<Self> {
        let name = format!("n{seed}");
        rig.cluster.create_node(&NodeSpec::new(&name)).await?;
        Ok(Self {
            agent: rig.agents.real_with(&name, settings),
            rig,
            name,
            worlds: Worlds::new(&rig.control_plane.options, families),
            rng: fastrand::Rng::with_seed(seed),
            phase: Phase::Down,
            written: 0,
            story: String::new(),
        })
    }

    pub(super) fn say(&mut self, what: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.story, "    {what}");
    }

    /// A command that its agent obeys.
    pub(super) async fn ask(&self, command: Value) -> Result<Value> {
        let answer = self.agent.ask(command.clone()).await?;
        ensure!(answer["ok"] == true, "{command}: {}", answer["error"]);
        Ok(answer)
    }

    /// Its agent starts, and takes these addresses for the router if it can.
    pub(super) fn starts(&mut self, router: &Value) -> Result<()> {
        self.agent.start_by(json!({"cmd": "start", "hold": true, "router": router}))?;
        self.phase = Phase::Waiting;
        Ok(())
    }

    /// Returns when its agent has made its CiliumNode.
    pub(super) async fn wait_cilium_node(&self) -> Result<()> {
        let made = async || Ok(self.rig.cluster.object(Kind::CiliumNode, &self.name).is_some());
        self.rig.cluster.wait_until("a CiliumNode", PATIENCE, made).await
    }

    /// Returns when this CiliumNode is deleted. Its agent may have created another one.
    async fn wait_end_of(&self, before: &DynamicObject) -> Result<()> {
        let cluster = &self.rig.cluster;
        let gone = async || {
            let now = cluster.object(Kind::CiliumNode, &self.name);
            Ok(now.is_none_or(|now| now.metadata.uid != before.metadata.uid))
        };
        cluster.wait_until("the end of the CiliumNode", PATIENCE, gone).await
    }

    /// Its Node is recreated, without CIDRs. The CiliumNode of the old Node is deleted with it.
    pub(super) async fn loses_node(&mut self) -> Result<()> {
        self.say("its Node is made anew");
        let cluster = &self.rig.cluster;
        let before = cluster.object(Kind::CiliumNode, &self.name);
        cluster.delete_node(&self.name).await?;
        if let Some(before) = before.filter(|before| before.metadata.owner_references.is_some()) {
            self.wait_end_of(&before).await?;
        }
        cluster.create_node(&NodeSpec::new(&self.name)).await?;
        self.worlds.apply("its Node is made anew", |bench| {
            bench.registers();
            true
        })
    }

    /// Its CiliumNode. The agent may have created one for the old Node before it saw the deletion of that Node. Such a
    /// CiliumNode is deleted with the old Node, and the agent creates another one.
    async fn cilium_node(&self) -> Result<Arc<DynamicObject>> {
        let cluster = &self.rig.cluster;
        let of_its_node = || {
            let node = cluster.object(Kind::Node, &self.name)?;
            let made = cluster.object(Kind::CiliumNode, &self.name)?;
            let mut owners = made.metadata.owner_references.iter().flatten();
            let is_of_it = owners.all(|owner| Some(&owner.uid) == node.metadata.uid.as_ref());
            is_of_it.then_some(made)
        };
        let made = async || {
            let is_made = of_its_node().is_some();
            if !is_made {
                self.ask(json!({"cmd": "touch-node"})).await?;
            }
            Ok(is_made)
        };
        cluster.wait_until("a CiliumNode of its Node", PATIENCE, made).await?;
        of_its_node().context("its CiliumNode")
    }

    /// Its CiliumNode is deleted, and its agent creates another one. Returns the deleted one.
    pub(super) async fn loses_cilium_node(&mut self) -> Result<Arc<DynamicObject>> {
        let before = self.cilium_node().await?;
        let cluster = &self.rig.cluster;
        cluster.delete(Kind::CiliumNode, &self.name).await?;
        self.wait_end_of(&before).await?;
        self.ask(json!({"cmd": "touch-node"})).await?;
        let made = async || {
            let now = cluster.object(Kind::CiliumNode, &self.name);
            Ok(now.is_some_and(|now| now.metadata.uid != before.metadata.uid))
        };
        cluster.wait_until("another CiliumNode", PATIENCE, made).await?;
        self.worlds.apply("another CiliumNode", |bench| {
            bench.loses();
            bench.creates();
            true
        })?;
        Ok(before)
    }

    /// The start of its agent has its addresses, and continues with its pods.
    pub(super) fn restores(&mut self) -> Result<()> {
        self.say("its start goes on");
        self.phase = Phase::Restoring;
        self.worlds.apply("the start goes on", Bench::has_begun)
    }
}
