//! The mode multi-pool. Pods come and are deleted, CIDRs are given, removed and moved, usage queries are sent,
//! CiliumNodes are deleted, and agents restart. Their pods are restored one by one while all of that happens.
//!
//! Some things are made the same on purpose:
//!
//! - A pod without an address asks again under the name that its agent waits for, and is never deleted. Cilium's agent
//!   counts a refused pod for five minutes, the model for the life of the pod.
//! - For the model the router is a pod like any other.
//! - An agent of 1.20 with a conflict in its first update waits for its tick of a minute. Here it restarts instead.
//! - No CIDR with pods moves to another name. Its agent would have it under both names and give out its addresses
//!   twice. The model does not, and no writer of the simulation moves such a CIDR.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use cilium_node_ipam::net::cidr::Family;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::machine::Machine;
use super::{COMMANDS, PATIENCE, Phase, compare, version};
use crate::multi_pool::create_pod_ip_pool;
use crate::scene::KUBELET_PAUSE;
use crate::simulation::agent::bench::Bench;
use crate::support::agent::Settings;
use crate::support::control_plane::Options;
use crate::support::families::Families;
use crate::support::objects::Kind;
use crate::support::rig::Rig;

mod command;
mod seen;

use command::Command;
use seen::{Seen, allocated, memory, pools_of};

/// The names of the Cilium pools, as the model has them.
const NAMES: [&str; 2] = ["default", "mars"];

/// An entry of `requested` that no agent makes.
const QUESTION: &str = "nodeipam.io-question";

/// An address of no pod. Its release makes an agent check its pools.
const NOBODY: &str = "0.0.0.0";

const MAX_PODS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_a_multi_pool_agent_does_what_cilium_does() -> Result<()> {
    let options = Options { ipam: "multi-pool", ..Options::without_product(Families::V4) };
    compare(options, async |rig, seed| {
        let mut scene = Scene::new(rig, seed).await?;
        let played = scene.play().await;
        played.with_context(|| format!("what was done:\n{}", scene.machine.story))
    })
    .await
}

/// A pod that has an address, or waits for one.
#[derive(Clone, Debug)]
struct Pod {
    owner: String,
    pool: usize,
}

/// One node, and everything that is known of it.
struct Scene<'a> {
    machine: Machine<'a>,
    /// The pods with an address, except the router. After a restart the restored ones.
    pods: BTreeMap<IpAddr, Pod>,
    /// The pods that are not restored yet.
    left: BTreeMap<IpAddr, Pod>,
    waiting: Vec<Pod>,
    /// The waiting pods that the present process knows.
    known: BTreeSet<String>,
    router: Option<IpAddr>,
    /// The number of pods so far.
    n_pods: usize,
    blocks: Vec<String>,
}

impl<'a> Scene<'a> {
    async fn new(rig: &'a Rig, seed: u64) -> Result<Self> {
        for name in NAMES {
            // Another sequence may have created it.
            drop(create_pod_ip_pool(rig, name).await);
        }
        let prompt =
            Settings { health: false, update_rate: std::time::Duration::ZERO, ..rig.agents.settings() };
        let mut blocks: Vec<String> = (0..6).map(|n| format!("10.{}.{n}.0/28", seed % 256)).collect();
        let smaller = [("6.0", 29), ("7.0", 29), ("8.0", 30), ("9.0", 31), ("10.7", 32)];
        blocks.extend(smaller.map(|(at, length)| format!("10.{}.{at}/{length}", seed % 256)));
        Ok(Self {
            machine: Machine::new(rig, seed, vec![Family::V4], prompt).await?,
            pods: BTreeMap::new(),
            left: BTreeMap::new(),
            waiting: Vec::new(),
            known: BTreeSet::new(),
            router: None,
            n_pods: 0,
            blocks,
        })
    }

    async fn play(&mut self) -> Result<()> {
        self.starts()?;
        self.machine.wait_cilium_node().await?;
        self.settle().await?;
        for number in 0..COMMANDS {
            let waits_for = self.waiting.first().map(|pod| pod.pool);
            let command = Command::draw(self.machine.phase, waits_for, &mut self.machine.rng);
            writeln!(self.machine.story, "{number} {:?} {command:?}", self.machine.phase)?;
            self.obey(command).await.with_context(|| format!("at {number} {command:?}"))?;
            self.settle().await.with_context(|| format!("after {number} {command:?}"))?;
            self.ask_again().await.with_context(|| format!("pods ask again after {number} {command:?}"))?;
        }
        self.machine.agent.stop().await
    }

    async fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::PodsCome(n) => {
                for _ in 0..n {
                    self.pod_comes().await?;
                    self.settle_many().await?;
                }
                Ok(())
            }
            Command::PodsGo(n) => {
                for _ in 0..n {
                    self.pod_goes().await?;
                    self.settle_many().await?;
                }
                Ok(())
            }
            Command::Touches => self.machine.ask(json!({"cmd": "touch-node"})).await.map(drop),
            Command::LosesCiliumNode => self.machine.loses_cilium_node().await.map(drop),
            Command::Stops => self.stops().await,
            Command::Starts => self.starts(),
            Command::RestoresOne => self.restores_one().await,
            Command::RestoresAll => {
                while !self.left.is_empty() {
                    self.restores_one().await?;
                    // Each of them changes the next writes.
                    self.settle().await?;
                }
                self.runs().await
            }
            _ => self.writes(command).await,
        }
    }

    fn n_running(&self) -> usize {
        usize::from(self.router.is_some()) + self.pods.len() + self.left.len() + self.waiting.len()
    }

    async fn pod_comes(&mut self) -> Result<()> {
        if self.n_running() == MAX_PODS {
            return Ok(());
        }
        let pool = usize::from(self.machine.rng.u8(..3) == 0);
        let pod = Pod { owner: format!("ns/p{}", self.n_pods), pool };
        self.n_pods += 1;
        self.pod_asks(pod, false).await
    }

    async fn pod_asks(&mut self, pod: Pod, is_again: bool) -> Result<()> {
        let pool = NAMES[pod.pool];
        let answer =
            self.machine.agent.ask(json!({"cmd": "allocate", "owner": pod.owner, "pool": pool})).await?;
        if answer["ok"] == true {
            let address: IpAddr = answer["ipv4"].as_str().context("no address")?.parse()?;
            self.machine.say(&format!("{} gets {address} of {pool}", pod.owner));
            let had_asked = self.known.remove(&pod.owner);
            self.machine.worlds.apply(&format!("{address} of {pool} for a pod"), |bench| {
                let is_given = bench.gives(pool, address);
                if had_asked {
                    bench.asked_with_success(pool, Family::V4);
                }
                is_given
            })?;
            self.pods.insert(address, pod);
        } else {
            if !is_again {
                self.machine.say(&format!("{} gets nothing of {pool}: {}", pod.owner, answer["error"]));
            }
            let is_new = self.known.insert(pod.owner.clone());
            self.machine.worlds.apply(&format!("nothing of {pool} for a pod"), |bench| {
                let has_none = !bench.has_free(pool, Family::V4);
                if is_new {
                    bench.asks_without_answer(pool, Family::V4);
                }
                has_none
            })?;
            self.waiting.push(pod);
        }
        Ok(())
    }

    /// The pods without an address ask again, as the kubelet makes them.
    async fn ask_again(&mut self) -> Result<()> {
        if self.machine.phase != Phase::Running {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        for pod in waiting {
            self.pod_asks(pod, true).await?;
        }
        self.settle().await
    }

    async fn pod_goes(&mut self) -> Result<()> {
        let drawn = self.machine.rng.usize(..);
        let Some(at) = drawn.checked_rem(self.pods.len()) else { return Ok(()) };
        let Some((address, pod)) = self.pods.iter().nth(at).map(|(address, pod)| (*address, pod.clone()))
        else {
            return Ok(());
        };
        self.machine.say(&format!("{address} goes"));
        let command = json!({"cmd": "release", "ipv4": address.to_string(), "pool": NAMES[pod.pool]});
        self.machine.ask(command).await?;
        self.pods.remove(&address);
        self.machine.worlds.apply("a pod goes", |bench| {
            bench.ends(address);
            true
        })
    }

    async fn stops(&mut self) -> Result<()> {
        self.machine.agent.stop().await?;
        self.machine.phase = Phase::Down;
        self.left.append(&mut self.pods);
        self.known.clear();
        self.machine.worlds.apply("it restarts", |bench| {
            bench.restarts();
            true
        })
    }

    fn starts(&mut self) -> Result<()> {
        let router = self.router.map(|address| address.to_string()).unwrap_or_default();
        self.machine.starts(&json!({"ipv4": router}))
    }

    async fn restores_one(&mut self) -> Result<()> {
        let Some((address, mut pod)) = self.left.pop_first() else { return self.runs().await };
        let pool = NAMES[pod.pool];
        let command = json!({
            "cmd": "restore", "owner": pod.owner.trim_end_matches(RESTORED), "ipv4": address.to_string(), "pool": pool,
        });
        let is_restored = self.machine.agent.ask(command).await?["ok"] == true;
        self.machine.say(&format!("{address} of {pool} is restored: {is_restored}"));
        let what = format!("{address} of {pool} is restored: {is_restored}");
        self.machine.worlds.apply(&what, |bench| bench.restores(address) == is_restored)?;
        if is_restored {
            self.pods.insert(address, pod);
        } else {
            // It waits under this name.
            pod.owner = format!("{}{RESTORED}", pod.owner.trim_end_matches(RESTORED));
            self.known.insert(pod.owner.clone());
            self.waiting.push(pod);
        }
        Ok(())
    }

    /// All pods are restored. The agent takes its own address, and its start is complete.
    async fn runs(&mut self) -> Result<()> {
        let answer = self.machine.agent.ask(json!({"cmd": "restored"})).await?;
        let before = self.router.take();
        if answer["ok"] != true {
            self.machine.say(&format!("the start fails: {}", answer["error"]));
            // Without an address for the router the process exits.
            self.machine.agent.stop().await?;
            self.machine.phase = Phase::Down;
            self.left.append(&mut self.pods);
            self.known.clear();
            self.machine.worlds.apply("the start fails", |bench| {
                let is_restored = before.is_some_and(|address| bench.restores(address));
                let fails = !is_restored && !bench.has_free(NAMES[0], Family::V4);
                bench.restarts();
                fails
            })?;
            return Ok(());
        }
        let router: IpAddr = answer["router"]["ipv4"].as_str().context("no router")?.parse()?;
        self.router = Some(router);
        self.machine.phase = Phase::Running;
        self.machine.say(&format!("it runs, with {router}"));
        self.machine.worlds.apply(&format!("it runs with {router}, before with {before:?}"), |bench| {
            let is_restored = before.is_some_and(|address| bench.restores(address));
            let is_same = if is_restored { before == Some(router) } else { bench.gives(NAMES[0], router) };
            if before.is_some() && !is_restored {
                // It has asked for another under the same name.
                bench.asked_with_success(NAMES[0], Family::V4);
            }
            bench.begins();
            is_same
        })?;
        // From now on its shortage consists of the requests of pods.
        for pod in std::mem::take(&mut self.waiting) {
            self.pod_asks(pod, true).await?;
        }
        Ok(())
    }

    /// Another writer changes the CiliumNode, as it was when the command was drawn.
    async fn writes(&mut self, command: Command) -> Result<()> {
        let drawn = self.machine.rng.u32(..);
        loop {
            let seen = self.machine.rig.cluster.read(Kind::CiliumNode, &self.machine.name).await?;
            let before = pools_of(&seen.data);
            let after = self.edited(&before, command, drawn);
            let patch = json!({
                "metadata": {"resourceVersion": seen.metadata.resource_version},
                "spec": {"ipam": {"pools": after}},
            });
            match self.machine.rig.cluster.patch(Kind::CiliumNode, &self.machine.name, patch).await {
                Ok(written) => self.machine.written = version(&written),
                Err(error) => {
                    ensure!(format!("{error:#}").contains("Conflict"), "{error:#}");
                    continue;
                }
            }
            self.machine.say(&format!("{before} becomes {after}"));
            return self.machine.worlds.apply(&format!("a write onto {before}"), |bench| {
                let is_same = pools_of(&bench.object()) == before;
                bench.edit(|json| json["spec"]["ipam"]["pools"] = after.clone());
                is_same
            });
        }
    }

    fn is_used(&self, cidr: &str) -> bool {
        let cidr: Option<IpNet> = cidr.parse().ok();
        let mut addresses = self.pods.keys().chain(self.left.keys()).chain(&self.router);
        cidr.is_none_or(|cidr| addresses.any(|address| cidr.contains(address)))
    }

    fn edited(&self, before: &Value, command: Command, drawn: u32) -> Value {
        let mut requested = before["requested"].as_array().cloned().unwrap_or_default();
        let mut allocated: BTreeMap<String, Vec<String>> = allocated(before);
        let drawn = usize::try_from(drawn).unwrap_or_default();
        let listed: Vec<(String, String)> = allocated
            .iter()
            .flat_map(|(name, cidrs)| cidrs.iter().map(move |cidr| (name.clone(), cidr.clone())))
            .collect();
        let some = drawn.checked_rem(listed.len()).map(|at| listed[at].clone());
        let asks = match command {
            Command::Gives(of) => {
                let is_listed = |block: &&String| listed.iter().any(|(_, cidr)| cidr == *block);
                let others: Vec<&String> = self.blocks.iter().filter(|block| !is_listed(block)).collect();
                if let Some(at) = drawn.checked_rem(others.len()) {
                    allocated.entry(NAMES[of].to_owned()).or_default().push(others[at].clone());
                }
                false
            }
            Command::Removes { asks } => {
                if let Some((name, cidr)) = some {
                    allocated.entry(name).or_default().retain(|other| *other != cidr);
                }
                asks
            }
            Command::Empties { of, stays, asks } => {
                if allocated.remove(NAMES[of]).is_some() && stays {
                    allocated.insert(NAMES[of].to_owned(), Vec::new());
                }
                asks
            }
            Command::Moves => {
                if let Some((name, cidr)) = some.filter(|(_, cidr)| !self.is_used(cidr)) {
                    let other = NAMES[usize::from(name == NAMES[0])];
                    allocated.entry(name).or_default().retain(|other| *other != cidr);
                    allocated.entry(other.to_owned()).or_default().push(cidr);
                }
                false
            }
            _ => true,
        };
        if asks && !requested.iter().any(|entry| entry["pool"] == QUESTION) {
            requested.push(json!({"pool": QUESTION, "needed": {}}));
        }
        let allocated: Vec<Value> =
            allocated.iter().map(|(name, cidrs)| json!({"pool": name, "cidrs": cidrs})).collect();
        json!({"requested": requested, "allocated": allocated})
    }

    /// Returns when the agent shows a state of the model. A running agent is made to check its pools meanwhile. A
    /// starting one checks them once and then each minute, so it may show an intermediate state of the model.
    async fn settle(&mut self) -> Result<()> {
        let limit = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut news = self.machine.rig.cluster.bell.listen();
            news.mark_unchanged();
            self.machine.rig.control_plane.alarm.check()?;
            self.look_for_start().await?;
            let seen = self.observe().await?;
            let must_go_on =
                self.machine.phase == Phase::Waiting && self.machine.worlds.come_to(Bench::goes_on)?;
            let phase = self.machine.phase;
            let is_seen = |bench: &Bench| {
                (phase != Phase::Running || bench.is_at_rest())
                    && seen.as_ref().is_some_and(|seen| seen.is_of(bench))
            };
            if !must_go_on && self.machine.worlds.saw(is_seen)? {
                return Ok(());
            }
            if tokio::time::Instant::now() > limit {
                bail!(
                    "the agent is {:?} and shows {seen:?}\nthe model shows {}",
                    self.machine.phase,
                    self.machine.worlds.expected()?
                );
            }
            if self.machine.phase == Phase::Running {
                self.machine.agent.ask(json!({"cmd": "release", "ipv4": NOBODY, "pool": NAMES[0]})).await?;
            }
            // No event reports that an agent has seen a write.
            drop(tokio::time::timeout(KUBELET_PAUSE, news.changed()).await);
        }
    }

    /// Pods come and are deleted at once, unless that leaves too many states possible.
    async fn settle_many(&mut self) -> Result<()> {
        if self.machine.worlds.are_many() { self.settle().await } else { Ok(()) }
    }

    /// A waiting agent continues as soon as it can.
    async fn look_for_start(&mut self) -> Result<()> {
        if self.machine.phase != Phase::Waiting {
            return Ok(());
        }
        let Some(answer) = self.machine.agent.started() else {
            // It retries a minute later, and waits for that too. Another process need not.
            if self.machine.agent.has_reported("pools-update-failed") {
                self.machine.say("its first update meets a conflict");
                self.stops().await?;
                self.starts()?;
            }
            return Ok(());
        };
        answer?;
        self.machine.restores()
    }

    /// `None` until the last write is seen.
    async fn observe(&self) -> Result<Option<Seen>> {
        let object = self.machine.rig.cluster.object(Kind::CiliumNode, &self.machine.name);
        let Some(object) = object.filter(|object| version(object) >= self.machine.written) else {
            return Ok(None);
        };
        let object = pools_of(&object.data);
        let has_memory = matches!(self.machine.phase, Phase::Restoring | Phase::Running);
        let memory =
            if has_memory { Some(memory(&self.machine.ask(json!({"cmd": "dump"})).await?)) } else { None };
        Ok(Some(Seen { object, memory }))
    }
}

const RESTORED: &str = " [restored]";
