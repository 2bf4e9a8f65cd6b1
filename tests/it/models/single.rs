//! The modes without Cilium pools.
//!
//! - In crd mode addresses join the pool and leave it, with the handshake and without. Marks of every kind are written
//!   and removed, addresses are fenced or kept for the agent itself, and answers get lost.
//! - In the modes cluster-pool and kubernetes the CIDRs are set and replaced. Where agents use annotations, these are
//!   added, changed and removed, under the new names and the old, also with texts that are no CIDRs.
//! - In all of them pods come and are deleted, CiliumNodes are deleted, and agents restart. Their pods are restored one
//!   by one while all of that happens.
//!
//! Some things are made the same on purpose:
//!
//! - In crd mode the agent gets a usage query after each command, as from the controller (`docs/cilium.md`, Ping). Its
//!   answer shows that it has seen the command.
//! - A new CiliumNode has a pool before that query: a write of the agent in flight may or may not report its use there.
//! - While an agent starts, every pool has at least two addresses of its node. Without its own addresses Cilium's
//!   process exits, and the model keeps starting.
//! - In the other modes the router is a pod like any other for the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cilium_node_ipam::net::cidr::Family;
use serde_json::{Value, json};

use super::machine::Machine;
use super::{PATIENCE, Phase, compare, version};
use crate::scene::KUBELET_PAUSE;
use crate::simulation::agent::bench::Bench;
use crate::support::agent::Settings;
use crate::support::control_plane::Options;
use crate::support::families::Families;
use crate::support::objects::Kind;
use crate::support::rig::Rig;

mod writes;

use writes::NOBODY;

/// Commands of a sequence.
const COMMANDS: usize = 40;

const MAX_PODS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_a_crd_agent_does_what_cilium_does() -> Result<()> {
    compare_in("crd", Families::V4).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_a_cluster_pool_agent_does_what_cilium_does() -> Result<()> {
    compare_in("cluster-pool", Families::Dual).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_a_kubernetes_agent_does_what_cilium_does() -> Result<()> {
    compare_in("kubernetes", Families::Dual).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_an_agent_that_uses_annotations_does_what_cilium_does() -> Result<()> {
    let options = Options { ipam: "kubernetes", ..Options::without_product(Families::Dual) };
    compare_with(Options { annotations: true, ..options }).await
}

async fn compare_in(ipam: &'static str, families: Families) -> Result<()> {
    compare_with(Options { ipam, ..Options::without_product(families) }).await
}

async fn compare_with(options: Options) -> Result<()> {
    compare(options, async |rig, seed| {
        let mut scene = Scene::new(rig, seed).await?;
        let played = scene.play().await;
        played.with_context(|| format!("what was done:\n{}", scene.machine.story))
    })
    .await
}

#[derive(Clone, Copy, Debug)]
enum Command {
    PodsCome(usize),
    PodsGo(usize),
    Writes,
    LosesCiliumNode,
    Stops,
    Starts,
    RestoresOne,
    RestoresAll,
}

impl Command {
    fn draw(phase: Phase, rng: &mut fastrand::Rng) -> Self {
        match (phase, rng.u32(..100)) {
            (Phase::Down, 0..50) => Self::Starts,
            (Phase::Waiting | Phase::Restoring, 95..) | (Phase::Running, 45..55) => Self::Stops,
            (Phase::Restoring, 0..30) => Self::RestoresOne,
            (Phase::Restoring, 30..50) => Self::RestoresAll,
            (Phase::Running, 0..25) => Self::PodsCome(rng.usize(1..4)),
            (Phase::Running, 25..40) => Self::PodsGo(rng.usize(1..3)),
            (Phase::Running, 40..45) => Self::LosesCiliumNode,
            _ => Self::Writes,
        }
    }
}

/// The addresses of a pod, or of the agent itself.
type Addresses = Vec<IpAddr>;

/// One node, and everything that is known of it.
struct Scene<'a> {
    machine: Machine<'a>,
    ipam: &'static str,
    /// Whether its agent uses annotations.
    annotates: bool,
    families: Vec<Family>,
    number: u64,
    /// The pods with addresses. After a restart the restored ones.
    pods: BTreeMap<String, Addresses>,
    /// The pods that are not restored yet.
    left: BTreeMap<String, Addresses>,
    /// The answer to the last start, with the addresses of router and health.
    own: Value,
    n_pods: usize,
}

impl<'a> Scene<'a> {
    async fn new(rig: &'a Rig, seed: u64) -> Result<Self> {
        let ipam = rig.control_plane.options.ipam;
        let prompt = Settings {
            health: ipam == "crd",
            update_rate: Duration::from_millis(200),
            ..rig.agents.settings()
        };
        let of = |(is_on, family): (bool, Family)| is_on.then_some(family);
        let options = rig.control_plane.options.families;
        let families: Vec<Family> =
            [(options.ipv4(), Family::V4), (options.ipv6(), Family::V6)].into_iter().filter_map(of).collect();
        Ok(Self {
            machine: Machine::new(rig, seed, families.clone(), prompt).await?,
            ipam,
            annotates: rig.control_plane.options.annotations,
            families,
            number: seed % 200,
            pods: BTreeMap::new(),
            left: BTreeMap::new(),
            own: Value::Null,
            n_pods: 0,
        })
    }

    async fn play(&mut self) -> Result<()> {
        self.starts()?;
        if self.ipam != "kubernetes" {
            self.machine.wait_cilium_node().await?;
        }
        for number in 0..COMMANDS {
            let command = Command::draw(self.machine.phase, &mut self.machine.rng);
            writeln!(self.machine.story, "{number} {:?} {command:?}", self.machine.phase)?;
            self.obey(command).await.with_context(|| format!("at {number} {command:?}"))?;
            self.settle().await.with_context(|| format!("after {number} {command:?}"))?;
        }
        self.machine.agent.stop().await
    }

    async fn obey(&mut self, command: Command) -> Result<()> {
        match command {
            Command::PodsCome(n) => {
                for _ in 0..n {
                    self.pod_comes().await?;
                }
                Ok(())
            }
            Command::PodsGo(n) => {
                for _ in 0..n {
                    self.pod_goes().await?;
                }
                Ok(())
            }
            Command::Writes => self.writes().await,
            Command::LosesCiliumNode => self.loses_cilium_node().await,
            Command::Stops => self.stops().await,
            Command::Starts => self.starts(),
            Command::RestoresOne => self.restores_one().await,
            Command::RestoresAll => {
                while !self.left.is_empty() {
                    self.restores_one().await?;
                }
                self.runs().await
            }
        }
    }

    async fn pod_comes(&mut self) -> Result<()> {
        if self.pods.len() == MAX_PODS {
            return Ok(());
        }
        let owner = format!("ns/p{}", self.n_pods);
        self.n_pods += 1;
        let answer = self.machine.agent.ask(json!({"cmd": "allocate", "owner": owner})).await?;
        if answer["ok"] == true {
            let got = addresses(&answer);
            self.machine.say(&format!("{owner} gets {got:?}"));
            self.machine.worlds.apply(&format!("{got:?} for a pod"), |bench| {
                got.iter().all(|address| bench.gives("", *address))
            })?;
            self.pods.insert(owner, got);
            return Ok(());
        }
        self.machine.say(&format!("{owner} gets nothing: {}", answer["error"]));
        let families = &self.families;
        self.machine.worlds.apply("nothing for a pod", |bench| {
            // A pod gets both families or none.
            !families.iter().all(|family| bench.has_free("", *family))
        })
    }

    async fn pod_goes(&mut self) -> Result<()> {
        let drawn = self.machine.rng.usize(..);
        let Some(at) = drawn.checked_rem(self.pods.len()) else { return Ok(()) };
        let Some(owner) = self.pods.keys().nth(at).cloned() else { return Ok(()) };
        let had = self.pods.remove(&owner).unwrap_or_default();
        self.machine.say(&format!("{owner} with {had:?} goes"));
        for address in &had {
            let family = Family::of(*address).as_str();
            let answer =
                self.machine.agent.ask(json!({"cmd": "release", family: address.to_string()})).await?;
            ensure!(answer["ok"] == true, "{}", answer["error"]);
        }
        self.machine.worlds.apply("a pod goes", |bench| {
            for address in &had {
                bench.ends(*address);
            }
            true
        })
    }

    async fn loses_cilium_node(&mut self) -> Result<()> {
        let before = self.machine.loses_cilium_node().await?;
        if self.ipam == "crd" { self.gives_again(&before.data).await } else { Ok(()) }
    }

    async fn stops(&mut self) -> Result<()> {
        self.machine.agent.stop().await?;
        self.falls("it restarts", |_| true)
    }

    fn falls(&mut self, what: &str, may: impl Fn(&mut Bench) -> bool) -> Result<()> {
        self.machine.phase = Phase::Down;
        self.left.append(&mut self.pods);
        self.machine.worlds.apply(what, |bench| {
            let does = may(bench);
            bench.restarts();
            does
        })
    }

    fn starts(&mut self) -> Result<()> {
        let router = if self.own["router"].is_null() { json!({}) } else { self.own["router"].clone() };
        self.machine.starts(&router)
    }

    async fn restores_one(&mut self) -> Result<()> {
        let Some((owner, had)) = self.left.pop_first() else { return self.runs().await };
        let mut command = json!({"cmd": "restore", "owner": owner});
        for address in &had {
            command[Family::of(*address).as_str()] = address.to_string().into();
        }
        let is_restored = self.machine.agent.ask(command).await?["ok"] == true;
        let what = format!("{owner} with {had:?} is restored: {is_restored}");
        self.machine.say(&what);
        self.machine.worlds.apply(&what, |bench| {
            let mut each: Vec<bool> = had.iter().map(|address| bench.restores(*address)).collect();
            if !each.iter().all(|is_restored| *is_restored) {
                // A pod gets both families or none.
                for address in &had {
                    bench.ends(*address);
                }
                each.clear();
            }
            is_restored != each.is_empty()
        })?;
        if is_restored {
            self.pods.insert(owner, had);
        }
        self.settle().await
    }

    /// All pods are restored. The agent takes its own addresses, and its start is complete.
    async fn runs(&mut self) -> Result<()> {
        let answer = self.machine.agent.ask(json!({"cmd": "restored"})).await?;
        let before = addresses(&self.own["router"]);
        let (is_crd, families) = (self.ipam == "crd", self.families.clone());
        let restores_own = |bench: &mut Bench| {
            let is_restored = before.iter().filter(|address| bench.restores(**address)).count();
            !before.is_empty() && is_restored == before.len()
        };
        if answer["ok"] != true {
            self.machine.say(&format!("the start fails: {}", answer["error"]));
            // Without addresses of its own the process exits.
            self.machine.agent.stop().await?;
            return self.falls("the start fails", |bench| {
                let has_free = |bench: &Bench| families.iter().all(|family| bench.has_free("", *family));
                if is_crd { !bench.begins() } else { !restores_own(bench) && !has_free(bench) }
            });
        }
        self.machine.say(&format!("it runs, with {} and {}", answer["router"], answer["health"]));
        self.own = answer;
        self.machine.phase = Phase::Running;
        let (router, health) = (addresses(&self.own["router"]), addresses(&self.own["health"]));
        self.machine.worlds.apply(&format!("it runs with {router:?} and {health:?}"), |bench| {
            if is_crd {
                let own = [("router", &router), ("health", &health)];
                let own: BTreeMap<&str, IpAddr> =
                    own.into_iter().filter_map(|(name, got)| Some((name, *got.first()?))).collect();
                return bench.begins_with(&own);
            }
            let is_restored = restores_own(bench);
            let is_same = if is_restored {
                before == router
            } else {
                for address in &before {
                    bench.ends(*address);
                }
                router.iter().all(|address| bench.gives("", *address))
            };
            bench.begins();
            is_same
        })
    }

    /// Returns when the agent shows a state of the model.
    async fn settle(&mut self) -> Result<()> {
        if self.ipam == "crd" && matches!(self.machine.phase, Phase::Restoring | Phase::Running) {
            self.mark(NOBODY, "marked-for-release").await?;
        }
        let limit = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut news = self.machine.rig.cluster.bell.listen();
            news.mark_unchanged();
            self.machine.rig.control_plane.alarm.check()?;
            self.look_for_start()?;
            let seen = self.observe().await?;
            let phase = self.machine.phase;
            let must_go_on = phase == Phase::Waiting && self.machine.worlds.come_to(Bench::goes_on)?;
            // A starting agent writes now or later.
            let is_done =
                |bench: &Bench| !matches!(phase, Phase::Restoring | Phase::Running) || bench.is_at_rest();
            let is_seen =
                |bench: &Bench| is_done(bench) && seen.as_ref().is_some_and(|seen| seen.is_of(bench));
            if !must_go_on && self.machine.worlds.saw(is_seen)? {
                return Ok(());
            }
            if tokio::time::Instant::now() > limit {
                let expected = self.machine.worlds.expected()?;
                bail!("the agent is {phase:?} and shows {seen:?}\nthe model shows {expected}");
            }
            if self.ipam == "kubernetes" && phase == Phase::Running {
                // It writes its CiliumNode when its Node changes.
                self.machine.agent.ask(json!({"cmd": "touch-node"})).await?;
            }
            // No event reports that an agent has seen a write.
            drop(tokio::time::timeout(KUBELET_PAUSE, news.changed()).await);
        }
    }

    /// A waiting agent continues as soon as it can.
    fn look_for_start(&mut self) -> Result<()> {
        if self.machine.phase != Phase::Waiting {
            return Ok(());
        }
        let Some(answer) = self.machine.agent.started() else { return Ok(()) };
        answer?;
        self.machine.restores()
    }

    /// `None` until the last write is seen.
    async fn observe(&self) -> Result<Option<Seen>> {
        let object = self.machine.rig.cluster.object(Kind::CiliumNode, &self.machine.name);
        let object = match object {
            Some(object) if version(&object) >= self.machine.written => said(self.ipam, &object.data),
            // In kubernetes mode an agent creates its CiliumNode when it runs.
            None if self.ipam == "kubernetes" && self.machine.phase != Phase::Running => Value::Null,
            _ => return Ok(None),
        };
        let mut allocated = None;
        if matches!(self.machine.phase, Phase::Restoring | Phase::Running) {
            let dump = self.machine.agent.ask(json!({"cmd": "dump"})).await?;
            let each = dump["allocations"].as_array().into_iter().flatten();
            allocated = Some(each.flat_map(addresses).collect());
        }
        let is_shown = self.ipam != "kubernetes" || self.machine.phase == Phase::Running;
        let annotated = if self.annotates && is_shown {
            let node = self.machine.rig.cluster.read(Kind::Node, &self.machine.name).await?;
            Some(annotated(&json!(node.metadata.annotations)))
        } else {
            None
        };
        Ok(Some(Seen { ipam: self.ipam, object: is_shown.then_some(object), annotated, allocated }))
    }
}

/// The observed state of an agent.
#[derive(Debug)]
struct Seen {
    ipam: &'static str,
    /// The relevant part of its CiliumNode, if it must have one.
    object: Option<Value>,
    /// The CIDRs in the annotations of its Node, if it must have written them.
    annotated: Option<BTreeMap<String, Value>>,
    /// The addresses that it has given out. `None` if it can't be asked.
    allocated: Option<BTreeSet<IpAddr>>,
}

impl Seen {
    fn is_of(&self, bench: &Bench) -> bool {
        let of_model: BTreeSet<IpAddr> = texts(&bench.memory()["allocated"]).collect();
        let of_node = || annotated(&bench.node()["metadata"]["annotations"]);
        self.object.as_ref().is_none_or(|object| *object == said(self.ipam, &bench.object()))
            && self.annotated.as_ref().is_none_or(|seen| *seen == of_node())
            && self.allocated.as_ref().is_none_or(|allocated| *allocated == of_model)
    }
}

/// The addresses on a CiliumNode: in crd mode those in use and the states of releases, otherwise its CIDRs.
fn said(ipam: &str, cilium_node: &Value) -> Value {
    let (spec, status) = (&cilium_node["spec"]["ipam"], &cilium_node["status"]["ipam"]);
    if ipam == "crd" {
        let used: Vec<&String> =
            status["used"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
        let marks = status["release-ips"].as_object().cloned().unwrap_or_default();
        json!({"used": used, "marks": marks})
    } else {
        json!(spec["podCIDRs"].as_array().cloned().unwrap_or_default())
    }
}

/// The CIDRs in annotations, by their names.
fn annotated(annotations: &Value) -> BTreeMap<String, Value> {
    let names = Family::ALL.into_iter().flat_map(Bench::annotations_of);
    names.filter_map(|name| Some((name.to_owned(), annotations.get(name)?.clone()))).collect()
}

fn addresses(answer: &Value) -> Addresses {
    let of_family = |family: &str| answer[family].as_str()?.parse().ok();
    ["ipv4", "ipv6"].into_iter().filter_map(of_family).collect()
}

fn texts(list: &Value) -> impl Iterator<Item = IpAddr> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str()?.parse().ok())
}
