//! The imitated agent compared with Cilium's own: both play one script, and their CiliumNodes must show the same story.
//!
//! The script plays the controller too, in the simplest way, so that the product has no part in it.

mod oddities;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::scene::{SOON, ask};
use crate::support::agent::{Agent, Losses, Make, Settings, plain};
use crate::support::control_plane::Options;
use crate::support::families::Families;
use crate::support::objects::{Kind, NodeSpec, claim, node_addresses};
use crate::support::rig::{Rig, without_product};
use crate::support::transcript::Recorder;
use crate::support::views::Published;

#[tokio::test(flavor = "multi_thread")]
async fn imitation_and_cilium_write_the_same_ipv4() -> Result<()> {
    compare(Script::Life, Families::V4, |settings| settings).await
}

#[tokio::test(flavor = "multi_thread")]
async fn imitation_and_cilium_write_the_same_ipv6() -> Result<()> {
    compare(Script::Life, Families::V6, |settings| Settings { health: false, ..settings }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn imitation_and_cilium_write_the_same_dual_stack() -> Result<()> {
    compare(Script::Life, Families::Dual, |settings| Settings { ingress: true, ..settings }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn imitation_and_cilium_have_the_same_oddities() -> Result<()> {
    compare(Script::Oddities, Families::V4, |settings| Settings { losses: Losses::Expected, ..settings })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn imitation_and_cilium_lose_the_same_answers() -> Result<()> {
    // Long enough for three requests between two writes of the agent on a busy machine.
    let update_rate = Duration::from_secs(6);
    compare(Script::LostAnswer, Families::V4, |settings| Settings { update_rate, ..settings }).await
}

/// Three seeds unless `AGENT_SEED` names one. A failure prints its seed.
#[tokio::test(flavor = "multi_thread")]
async fn imitation_and_cilium_obey_random_commands_alike() -> Result<()> {
    let named = std::env::var("AGENT_SEED").ok().map(|text| text.parse()).transpose()?;
    let seeds: Vec<u64> = named.map_or_else(|| vec![1, 2, 3], |seed| vec![seed]);
    for seed in seeds {
        let losses = Losses::Expected;
        compare(Script::Random(seed), Families::V4, |settings| Settings { losses, ..settings }).await?;
    }
    Ok(())
}

/// The script for both agents.
#[derive(Clone, Copy)]
enum Script {
    /// Start, pods, growth, handshake, restart.
    Life,
    /// Failures, and the cases on which a controller must not rely.
    Oddities,
    /// An answer of the handshake that never comes.
    LostAnswer,
    /// Commands drawn from this seed.
    Random(u64),
}

/// Plays the script to both and compares their writes.
async fn compare(script: Script, families: Families, change: impl Fn(Settings) -> Settings) -> Result<()> {
    without_product(Options::without_product(families), async |rig| {
        let settings = change(Settings { update_rate: Duration::from_millis(200), ..rig.agents.settings() });
        let fake = Stage::new(rig, families, 0, "fake");
        let real = Stage::new(rig, families, 1, "real");
        // One after the other, because the order determines the addresses.
        rig.cluster.create_node(&fake.node()).await?;
        rig.cluster.create_node(&real.node()).await?;
        let (fake, real) = tokio::try_join!(
            fake.play(script, Make::Fake, settings.clone()),
            real.play(script, Make::Real, settings)
        )?;
        ensure!(
            fake == real,
            "the imitation wrote:\n{fake}\nCilium wrote:\n{real}\n{}",
            first_difference(&fake, &real)
        );
        // Two empty stories would be equal too.
        ensure!(real.contains("ready-for-release"), "not much was written:\n{real}");
        Ok(())
    })
    .await
}

/// One agent's stage: its node, its blocks, and the recorder.
struct Stage<'a> {
    rig: &'a Rig,
    name: String,
    families: Families,
    number: u8,
    recorder: Recorder,
}

impl<'a> Stage<'a> {
    fn new(rig: &'a Rig, families: Families, number: u8, name: &str) -> Self {
        let mut recorder = Recorder::start(&rig.cluster.client, rig.cluster.bell.clone(), name);
        for (word, index) in [("block A", 0), ("block B", 1)] {
            for block in blocks(families, number, index) {
                recorder.name(block, word);
            }
        }
        for address in node_addresses(number.into()) {
            recorder.name(address.into(), "address of the Node");
        }
        Self { rig, name: name.to_owned(), families, number, recorder }
    }

    fn node(&self) -> NodeSpec {
        let node = NodeSpec::new(&self.name).label("zone", "a");
        node.annotation("network.cilium.io/x", "Cilium's").annotation("example.com/x", "not Cilium's")
    }

    async fn play(mut self, script: Script, make: Make, settings: Settings) -> Result<String> {
        let mut agent = self.rig.agents.agent_with(make, &self.name, settings.clone());
        match script {
            Script::Life => self.life(&mut agent, &settings).await?,
            Script::Oddities => self.oddities(&mut agent).await?,
            Script::LostAnswer => self.lost_answer(&mut agent).await?,
            Script::Random(seed) => {
                let story = self.random(&mut agent, seed).await?;
                agent.stop().await?;
                return Ok(story);
            }
        }
        agent.stop().await?;
        Ok(self.recorder.into_text())
    }

    async fn life(&mut self, agent: &mut Agent, settings: &Settings) -> Result<()> {
        let infra = 1 + usize::from(settings.health) + usize::from(settings.ingress);
        let families = self.families.each().count();

        agent.start()?;
        self.wait("the CiliumNode", |_| true).await?;
        self.part("it makes its CiliumNode").await?;

        self.publish(0).await?;
        let started = agent.wait_ready(SOON).await?;
        self.wait("the agent's own addresses", |seen| seen.n_used() == infra * families).await?;
        let roles = [started.router, started.health, started.ingress].map(|role| role.each().count());
        self.recorder.note(&format!("router, health, ingress: {roles:?}"));
        self.part("a block comes, it takes its own addresses").await?;

        agent.allocate("ns/first").await?;
        self.wait("the first pod", |seen| has(seen, "ns/first")).await?;
        self.part("a pod").await?;

        let filled = agent.allocate_many("ns/fill-", 8).await?;
        ensure!(filled.allocated.len() == 8 - infra - 1, "{} of a block of 8", filled.allocated.len());
        self.recorder.note(&without_name(&filled.error.unwrap_or_default()));
        self.wait("a full block", |seen| seen.n_used() == 8 * families).await?;
        self.part("pods until the block is full").await?;

        agent.release("ns/first").await?;
        self.wait("the release", |seen| !has(seen, "ns/first")).await?;
        agent.allocate("ns/second").await?;
        self.wait("the next pod", |seen| has(seen, "ns/second")).await?;
        self.part("a pod goes, another comes").await?;

        self.publish(1).await?;
        // No event reports that the agent has seen it.
        ask(self.rig, agent, "ns/third").await?;
        let pods = agent.allocate_many("ns/more-", 2).await?;
        ensure!(pods.error.is_none(), "with a second block: {pods:?}");
        self.wait("use of the second block", |seen| seen.n_used() == 11 * families).await?;
        self.part("a second block comes, three pods use it").await?;

        self.rig.cluster.relabel_node(&self.name, &[("zone", Some("b")), ("rack", Some("7"))]).await?;
        let copied = async || Ok(label(self.rig, &self.name, "zone").as_deref() == Some("b"));
        self.rig.cluster.wait_until("the labels on the CiliumNode", SOON, copied).await?;
        self.part("the Node gets labels").await?;

        self.release_by_handshake(agent).await?;

        agent.touch_node().await?;
        self.part("nothing to say").await?;

        let before = agent.held().await?;
        agent.restart_and_restore(SOON).await?;
        let after = agent.held().await?;
        let whose = |held: &BTreeMap<IpAddr, String>| -> BTreeSet<(IpAddr, String)> {
            held.iter().map(|(address, owner)| (*address, plain(owner).to_owned())).collect()
        };
        ensure!(whose(&before) == whose(&after), "the restart moved addresses:\n{before:?}\n{after:?}");
        self.wait("restored pods", |seen| has(seen, "ns/third [restored]")).await?;
        self.part("it restarts and restores").await?;

        agent.release("ns/third").await?;
        agent.allocate("ns/last").await?;
        self.wait("the last pod", |seen| has(seen, "ns/last") && !has(seen, "ns/third [restored]")).await?;
        self.part("a restored pod goes, a new one comes").await
    }

    /// Fences the second block, then marks every address of it, and one that is in no pool.
    async fn release_by_handshake(&mut self, agent: &Agent) -> Result<()> {
        let second: Vec<_> =
            blocks(self.families, self.number, 1).into_iter().flat_map(|block| block.hosts_all()).collect();
        let mut pool = json!({});
        let mut marks = json!({});
        for address in second.iter().map(ToString::to_string) {
            pool[&address] = json!({"owner": "nodeipam.io/fenced"});
            marks[&address] = "marked-for-release".into();
        }
        self.patch(json!({"spec": {"ipam": {"pool": pool}}})).await?;
        self.probe().await?;
        let refused =
            agent.allocate("ns/fenced").await.err().map(|error| error.to_string()).unwrap_or_default();
        self.recorder.note(&without_name(&refused));
        self.part("the second block is fenced").await?;

        self.patch_status(json!({"status": {"ipam": {"release-ips": marks}}})).await?;
        let answered = |seen: &Published| {
            let open = seen.release.values().any(|state| state == "marked-for-release");
            // The answer to the usage query is beside them.
            seen.release.len() == second.len() + 1 && !open
        };
        self.wait("answers to all marks", answered).await?;
        self.part("the second block is marked").await?;

        // Aborted: the fence and the answers are removed. An address given up leaves with the answer "released".
        let free = second.iter().map(ToString::to_string).find(|address| {
            let published = self.rig.cluster.published(&self.name).unwrap_or_default();
            !published.used.unwrap_or_default().contains_key(address)
        });
        let free = free.unwrap_or_default();
        let mut answers = json!({"0.0.0.0": null});
        let mut unfenced = json!({});
        for address in second.iter().map(ToString::to_string) {
            answers[&address] = if address == free { "released".into() } else { Value::Null };
            unfenced[&address] = if address == free { Value::Null } else { json!({"owner": null}) };
        }
        self.patch_status(json!({"status": {"ipam": {"release-ips": answers}}})).await?;
        self.patch(json!({"spec": {"ipam": {"pool": unfenced}}})).await?;
        self.wait("the end of the handshake", |seen| seen.release.is_empty()).await?;
        self.part("one address is released, the others stay").await
    }

    /// Marks an address that is in no pool. The answer proves that the agent has seen everything before it.
    async fn probe(&self) -> Result<()> {
        self.patch_status(json!({"status": {"ipam": {"release-ips": {"0.0.0.0": "marked-for-release"}}}}))
            .await?;
        self.wait("the answer to a probe", |seen| {
            seen.release.get("0.0.0.0").is_some_and(|state| state == "do-not-release")
        })
        .await
    }

    /// Claims the blocks of this number in every family, and publishes them after the ones that the node carries.
    async fn publish(&self, index: u8) -> Result<()> {
        let carried = self.rig.cluster.published(&self.name).unwrap_or_default().pod_cidrs;
        let new = blocks(self.families, self.number, index);
        let mut pool = json!({});
        for block in &new {
            let claim = claim(&block.to_string(), "pool", &self.name, "uid", "Held");
            self.rig.cluster.create(&claim, Kind::Block).await?;
            for address in block.hosts_all() {
                pool[address.to_string()] = json!({});
            }
        }
        let cidrs: Vec<_> = carried.into_iter().chain(new.iter().map(ToString::to_string)).collect();
        self.patch(json!({"spec": {"ipam": {"podCIDRs": cidrs, "pool": pool}}})).await
    }

    async fn patch(&self, patch: Value) -> Result<()> {
        self.rig.cluster.patch(Kind::CiliumNode, &self.name, patch).await.map(drop)
    }

    async fn patch_status(&self, patch: Value) -> Result<()> {
        self.rig.cluster.patch_status(Kind::CiliumNode, &self.name, patch).await.map(drop)
    }

    async fn wait(&self, what: &str, look: impl FnMut(&Published) -> bool) -> Result<()> {
        self.rig.cluster.wait_published(&self.name, what, SOON, look).await.map(drop)
    }

    async fn part(&mut self, title: &str) -> Result<()> {
        self.recorder.part(&self.rig.cluster, title).await
    }

    async fn outcome(&mut self, title: &str) -> Result<()> {
        self.recorder.outcome(&self.rig.cluster, title).await
    }
}

/// Every address of a block, including the first and the last.
trait Addresses {
    fn hosts_all(&self) -> Vec<IpAddr>;
}

impl Addresses for IpNet {
    fn hosts_all(&self) -> Vec<IpAddr> {
        match self {
            Self::V4(net) => {
                ipnet::Ipv4AddrRange::new(net.network(), net.broadcast()).map(IpAddr::V4).collect()
            }
            Self::V6(net) => {
                ipnet::Ipv6AddrRange::new(net.network(), net.broadcast()).map(IpAddr::V6).collect()
            }
        }
    }
}

/// The blocks of eight addresses, one per family, that the stage publishes in its turn `index`.
fn blocks(families: Families, stage: u8, index: u8) -> Vec<IpNet> {
    use crate::support::families::Family::{V4, V6};

    let block = |family| match family {
        V4 => format!("10.{stage}.{index}.0/29"),
        V6 => format!("fd00:{stage}:{index}::/125"),
    };
    families.each().filter_map(|family| block(family).parse().ok()).collect()
}

fn has(seen: &Published, owner: &str) -> bool {
    seen.used.iter().flatten().any(|(_, by)| by == owner)
}

fn label(rig: &Rig, node: &str, key: &str) -> Option<String> {
    rig.cluster.object(Kind::CiliumNode, node)?.metadata.labels.as_ref()?.get(key).cloned()
}

/// The part of an error that is Cilium's text.
fn without_name(error: &str) -> String {
    let text = error.find("no IPs currently").map_or(error, |start| &error[start..]);
    format!("refused: {text}")
}

fn first_difference(fake: &str, real: &str) -> String {
    let different = fake.lines().zip(real.lines()).find(|(fake, real)| fake != real);
    different
        .map_or_else(|| "one is longer".to_owned(), |(fake, real)| format!("first: {fake:?} and {real:?}"))
}
