//! A node with Cilium's own agent that grows by a block and no longer needs it, for the tests of this folder.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde_json::json;

use crate::agent_pods::{create_agent_pod, report};
use crate::scene::{SOON, ask, ask_many, wait_use_written};
use crate::support::agent::{Agent, Make, Settings, plain};
use crate::support::controller::Controller;
use crate::support::kubelet::Health;
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim_name};
use crate::support::rig::Rig;
use crate::support::views::{Claim, Published};

/// The pause between two writes to a node is long enough to kill a controller between two steps. Agents answer within a
/// few of their periods, so usage queries may be sent often.
pub(super) const FLAGS: &[&str] = &["--min-write-interval", "300ms", "--usage-query-interval", "5s"];

/// The time between two reports of an agent. Cilium's default is 15 s.
pub(super) const PERIOD: Duration = Duration::from_millis(500);

/// For tests that count periods, or cause an event within one: all other delays are short beside it.
pub(super) const LONG_PERIOD: Duration = Duration::from_secs(6);

/// Addresses of a block; all are offered.
pub(super) const BLOCK: usize = 16;

/// Router and health.
pub(super) const OWN: usize = 2;

/// Pods that stay.
pub(super) const KEPT: usize = 4;

/// A usage query is repeated, and after a block was kept its node starts no drain for twice as long.
pub(super) const LATE: Duration = Duration::from_secs(120);

/// The owner that keeps new pods out of a block, and the address of a usage query.
pub(super) const FENCE: &str = "nodeipam.io/fenced";
pub(super) const QUESTION: &str = "0.0.0.0";

/// A pool from which a full node takes a block. It reclaims the block when half of the rest holds all used addresses.
pub(super) fn pool(name: &str, range: &str) -> PoolSpec {
    PoolSpec::new(name)
        .ipv4(28, &[range])
        .with("allowFirstLastIPs", true)
        .with("expand", json!({"usedAbove": 100, "freeBelow": 1}))
        .with("reclaim", json!({"mode": "Enabled", "usedBelow": 80, "after": "1s"}))
        .with("reuseAfter", "1s")
}

/// A node with its agent, and the Pod of that agent as the kubelet reports it.
pub(super) struct Scene {
    pub(super) node: String,
    pub(super) agent: Agent,
    n_restarts: u32,
    n_families: usize,
}

impl Scene {
    /// A pool, a controller, and node n of that pool, which has just grown. The second block of the node is returned
    /// too.
    pub(super) async fn grown(rig: &Rig) -> Result<(Controller, Self, String)> {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let scene = Self::join(rig, "n").await?;
        let block = scene.grow(rig).await?;
        Ok((controller, scene, block))
    }

    /// A node joins, with one agent that serves pods.
    pub(super) async fn join(rig: &Rig, node: &str) -> Result<Self> {
        Self::join_with(rig, node, Settings { update_rate: PERIOD, ..rig.agents.settings() }).await
    }

    pub(super) async fn join_with(rig: &Rig, node: &str, settings: Settings) -> Result<Self> {
        rig.cluster.create_node(&NodeSpec::new(node)).await?;
        create_agent_pod(rig, &pod_of(node), node, settings.release.as_str()).await?;
        let n_families = settings.families.each().count();
        let mut agent = rig.agents.agent_with(Make::Real, node, settings);
        agent.start()?;
        agent.wait_ready(SOON).await?;
        report(rig, &pod_of(node), 0, Health::Ready).await?;
        Ok(Self { node: node.to_owned(), agent, n_restarts: 0, n_families })
    }

    /// The node fills up and takes a second block. Three pods get addresses of it. Returns that block.
    pub(super) async fn grow(&self, rig: &Rig) -> Result<String> {
        self.grow_each(rig).await?.pop().context("a second block")
    }

    /// As [`Self::grow`], with one block per family.
    pub(super) async fn grow_each(&self, rig: &Rig) -> Result<Vec<String>> {
        for number in 0..KEPT {
            ask(rig, &self.agent, &format!("ns/kept-{number}")).await?;
        }
        let blocks = self.fill_each(rig).await?;
        for number in 0..3 {
            ask(rig, &self.agent, &format!("ns/second-{number}")).await?;
        }
        wait_use_written(rig, &self.agent, &self.node).await?;
        Ok(blocks)
    }

    /// The whole first block is given out, and the node takes a second one, which is returned.
    pub(super) async fn fill(&self, rig: &Rig) -> Result<String> {
        self.fill_each(rig).await?.pop().context("a second block")
    }

    /// As [`Self::fill`], with one block per family.
    async fn fill_each(&self, rig: &Rig) -> Result<Vec<String>> {
        let filled = self.agent.allocate_many("ns/first-", BLOCK).await?;
        ensure!(filled.error.is_some(), "{filled:?}");
        let first = self.n_families;
        let two =
            |seen: &Published| seen.pod_cidrs.len() == 2 * first && seen.pool.len() == 2 * first * BLOCK;
        let seen = rig.cluster.wait_published(&self.node, "two blocks per family", SOON, two).await?;
        Ok(seen.pod_cidrs[first..].to_vec())
    }

    /// Every address of two blocks is given to a pod: both are open.
    pub(super) async fn fill_both(&self, rig: &Rig) -> Result<()> {
        let n_free = 2 * BLOCK - self.held().await?.len();
        ask_many(rig, &self.agent, "ns/again-", n_free).await.context("not all addresses are open")
    }

    /// Deletes all pods except those that stay.
    pub(super) async fn shrink(&self) -> Result<()> {
        let owners: BTreeSet<String> = self.held().await?.into_values().collect();
        for owner in owners.iter().filter(|owner| owner.starts_with("ns/") && !owner.contains("kept")) {
            self.agent.release(owner).await?;
        }
        Ok(())
    }

    /// The addresses that the agent has given out, without the text that a restart adds to the owners.
    pub(super) async fn held(&self) -> Result<BTreeMap<IpAddr, String>> {
        let held = self.agent.held().await?;
        Ok(held.into_iter().map(|(address, owner)| (address, plain(&owner).to_owned())).collect())
    }

    /// The agent restarts, and its pods keep their addresses. The kubelet reports the restart when the agent is up
    /// again.
    pub(super) async fn restart(&mut self, rig: &Rig) -> Result<()> {
        let before = self.held().await?;
        self.agent.restart_and_restore(SOON).await?;
        self.n_restarts += 1;
        report(rig, &pod_of(&self.node), self.n_restarts, Health::Ready).await?;
        let after = self.held().await?;
        ensure!(before == after, "{before:?} became {after:?}");
        Ok(())
    }

    pub(super) fn claim(&self, rig: &Rig, block: &str) -> Option<Claim> {
        rig.cluster.claims_of(&self.node).into_iter().find(|claim| claim.cidr == block)
    }

    /// Returns when the status of the block's claim says this of its drain: the cause, the number of addresses that
    /// pods have (`?` if there is none), and the pods with known names. `nothing` means that it says nothing.
    pub(super) async fn wait_reported(&self, rig: &Rig, block: &str, expected: &str) -> Result<()> {
        let reported = || {
            let claim = rig.cluster.object(Kind::Block, &claim_name(block))?;
            let drain = &claim.data["status"]["drain"];
            if drain.is_null() {
                return Some("nothing".to_owned());
            }
            let pods = drain["pods"].as_array().into_iter().flatten();
            let pods: Vec<&str> = pods.filter_map(|pod| pod["pod"].as_str()).collect();
            let n_pods = drain["podCount"].as_u64().map_or("?".to_owned(), |count| count.to_string());
            Some(format!("{} ({n_pods}: {})", drain["waitingFor"].as_str()?, pods.join(" ")))
        };
        let is_reported = async || Ok(reported().as_deref() == Some(expected));
        let waited = rig.cluster.wait_until("the status of the claim", LATE, is_reported).await;
        waited.with_context(|| format!("{block}: {expected}, and not {:?}", reported()))
    }

    /// Returns when the block is free, and the CiliumNode shows nothing of it.
    pub(super) async fn wait_free(&self, rig: &Rig, block: &str) -> Result<()> {
        let cidr: IpNet = block.parse()?;
        let gone = async || {
            let seen = rig.cluster.published(&self.node).unwrap_or_default();
            Ok(self.claim(rig, block).is_none()
                && !seen.pod_cidrs.iter().any(|listed| listed == block)
                && !has_any(&seen.pool, cidr)
                && !has_any(&seen.release, cidr))
        };
        let waited =
            rig.cluster.wait_until(&format!("{block} of {} to be free", self.node), LATE, gone).await;
        waited.with_context(|| self.reported(rig, block))
    }

    /// Returns when the block is held and no address of it is kept from pods.
    pub(super) async fn wait_whole(&self, rig: &Rig, block: &str) -> Result<()> {
        let cidr: IpNet = block.parse()?;
        let whole = async || {
            let seen = rig.cluster.published(&self.node).unwrap_or_default();
            let open = of_block(&seen.pool, cidr).all(String::is_empty);
            let claim = self.claim(rig, block);
            Ok(claim.is_some_and(|claim| claim.state == "Held")
                && of_block(&seen.pool, cidr).count() == BLOCK
                && open
                && !has_any(&seen.release, cidr))
        };
        let waited = rig.cluster.wait_until(&format!("{block} to be held whole"), LATE, whole).await;
        waited.with_context(|| self.reported(rig, block))
    }

    /// The state of the block in the objects, for the message of a failure.
    pub(super) fn reported(&self, rig: &Rig, block: &str) -> String {
        let seen = rig.cluster.published(&self.node).unwrap_or_default();
        let state = self.claim(rig, block).map(|claim| claim.state);
        format!(
            "the claim of {block} is {state:?}, and {} has {:?}, {:?}, used {:?}, release {:?}",
            self.node, seen.pod_cidrs, seen.pool, seen.used, seen.release
        )
    }
}

/// The name of the Pod of the agent on a node.
pub(super) fn pod_of(node: &str) -> String {
    format!("cilium-{node}")
}

pub(super) fn of_block(map: &BTreeMap<String, String>, block: IpNet) -> impl Iterator<Item = &String> {
    let lies_in =
        move |address: &str| address.parse::<IpAddr>().is_ok_and(|address| block.contains(&address));
    map.iter().filter(move |(address, _)| lies_in(address)).map(|(_, value)| value)
}

pub(super) fn has_any(map: &BTreeMap<String, String>, block: IpNet) -> bool {
    of_block(map, block).next().is_some()
}
