//! A fleet: nodes with imitated agents that join, fill up, leave and return, for tests under load.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::agent::FakeAgent;
use super::objects::{Kind, NodeSpec};
use super::rig::Rig;
use super::views::Claim;

/// The nodes of a test that run, all in zone `a`.
pub(crate) struct Fleet<'a> {
    rig: &'a Rig,
    agents: BTreeMap<String, FakeAgent>,
    n_fills: usize,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(rig: &'a Rig) -> Self {
        Self { rig, agents: BTreeMap::new(), n_fills: 0 }
    }

    /// The names of the nodes with these numbers.
    pub(crate) fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("n{number:03}")).collect()
    }

    /// Makes Nodes, and starts their agents.
    pub(crate) async fn join(&mut self, names: &[String]) -> Result<()> {
        let nodes: Vec<_> = names.iter().map(|name| NodeSpec::new(name).label("zone", "a")).collect();
        self.rig.cluster.create_nodes(&nodes).await?;
        for name in names {
            let mut agent = self.rig.agents.fake(name);
            agent.start()?;
            self.agents.insert(name.clone(), agent);
        }
        Ok(())
    }

    /// The agents, to run until the end of the test.
    pub(crate) fn into_agents(self) -> BTreeMap<String, FakeAgent> {
        self.agents
    }

    /// Waits until all agents serve pods.
    pub(crate) async fn wait_ready(&self, deadline: Duration) -> Result<()> {
        for agent in self.agents.values() {
            agent.wait_ready(deadline).await?;
        }
        Ok(())
    }

    /// Waits until all agents serve pods, or for this long. Replicas without an election promise only that no address
    /// is on two nodes.
    pub(crate) async fn wait_ready_or(&self, at_most: Duration) -> Result<()> {
        let late = tokio::time::timeout(at_most, self.wait_ready(at_most * 2)).await.is_err();
        if late {
            eprintln!("after {at_most:?} some agents wait for their addresses");
        }
        self.rig.cluster.alarm.check()
    }

    /// Starts up to `count` pods on each of these nodes; one that is full starts none.
    pub(crate) fn fill(&mut self, names: &[String], count: usize) {
        self.n_fills += 1;
        for agent in names.iter().filter_map(|name| self.agents.get(name)) {
            agent.allocate_many(&format!("ns/pod-{}-", self.n_fills), count);
        }
    }

    /// Loses these machines with their pods, and deletes their Nodes. Their CiliumNodes follow.
    pub(crate) async fn leave(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            if let Some(agent) = self.agents.remove(name) {
                agent.power_off().await;
            }
            self.rig.cluster.delete_node(name).await?;
        }
        Ok(())
    }

    /// Waits until the CiliumNodes of these are deleted: a machine does not return faster.
    pub(crate) async fn wait_gone(&self, names: &[String], deadline: Duration) -> Result<()> {
        let gone = async || Ok(names.iter().all(|name| self.rig.cluster.published(name).is_none()));
        self.rig.cluster.wait_until("CiliumNodes to be collected", deadline, gone).await
    }

    /// Waits until each of these nodes has at least this number of published blocks.
    pub(crate) async fn wait_blocks(&self, names: &[String], count: usize, deadline: Duration) -> Result<()> {
        let n_blocks =
            |name: &String| self.rig.cluster.published(name).map_or(0, |published| published.pod_cidrs.len());
        let what = format!("{count} blocks on each of {} nodes", names.len());
        let have = async || Ok(names.iter().all(|name| n_blocks(name) >= count));
        self.rig.cluster.wait_until(&what, deadline, have).await
    }

    /// As [`Fleet::wait_blocks`], or for this long, like [`Fleet::wait_ready_or`].
    pub(crate) async fn wait_blocks_or(
        &self,
        names: &[String],
        count: usize,
        at_most: Duration,
    ) -> Result<()> {
        if tokio::time::timeout(at_most, self.wait_blocks(names, count, at_most * 2)).await.is_err() {
            eprintln!("after {at_most:?} some nodes have fewer than {count} blocks");
        }
        self.rig.cluster.alarm.check()
    }

    /// Waits until no work is half done: every claim is on its CiliumNode, or cools.
    pub(crate) async fn wait_nothing_leaks(&self, deadline: Duration) -> Result<()> {
        let settled = async || Ok(self.unsettled().is_empty());
        let waited = self
            .rig
            .cluster
            .wait_until("every claim to be on its CiliumNode or to cool", deadline, settled)
            .await;
        waited.with_context(|| format!("neither on a CiliumNode nor cooling: {:?}", self.unsettled()))
    }

    /// As [`Fleet::wait_nothing_leaks`], and every block of a deleted node is free again. Otherwise a cooling block
    /// would be due at some time after the end of the test.
    pub(crate) async fn wait_all_cooled(&self, deadline: Duration) -> Result<()> {
        self.wait_nothing_leaks(deadline).await?;
        let all_held = async || {
            Ok(self.rig.cluster.objects(Kind::Block).iter().all(|block| Claim::of(block).state == "Held"))
        };
        self.rig.cluster.wait_until("blocks of lost nodes to be free again", deadline, all_held).await?;
        self.wait_nothing_leaks(deadline).await
    }

    fn unsettled(&self) -> Vec<String> {
        let claims = self.rig.cluster.objects(Kind::Block).into_iter().map(|block| Claim::of(&block));
        let unsettled = claims.filter(|claim| match claim.state.as_str() {
            "Held" => !self
                .rig
                .cluster
                .published(&claim.node)
                .is_some_and(|node| node.pod_cidrs.contains(&claim.cidr)),
            "Cooling" => false,
            _ => true,
        });
        unsettled.map(|claim| format!("{} {} of {}", claim.state, claim.cidr, claim.node)).collect()
    }

    /// Starts one more pod on every node, which grows where it must: the promised addresses can be used.
    pub(crate) async fn wait_one_more_pod_each(&mut self, deadline: Duration) -> Result<()> {
        self.n_fills += 1;
        for (name, agent) in &self.agents {
            let owner = format!("ns/last-{}", self.n_fills);
            let started = async || Ok(agent.allocate(&owner).is_ok());
            self.rig.cluster.wait_until(&format!("one more pod on {name}"), deadline, started).await?;
        }
        Ok(())
    }
}
