//! Cilium's own agent as a process: the wrapper that speaks its protocol and remembers the state of its machine.
//!
//! A machine keeps its pods and the agent's state directory when the agent restarts. The process gets both.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::host::Host;
use super::{Addresses, Filled, Losses, Release, Settings, Started, plain};
use crate::support::control_plane::tool;
use crate::support::peer::{Heard, Peer, Speaker};
use crate::support::signals;

/// For any command but start. Four thousand allocations take seconds.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// The start waits for addresses. The test decides how long it waits for the start.
const START_TIMEOUT: Duration = Duration::from_secs(600);

/// One agent process, or the machine on which it could run.
pub(crate) struct RealAgent {
    name: String,
    settings: Settings,
    host: Arc<Host>,
    kubeconfig: PathBuf,
    log: PathBuf,
    process: Option<Peer>,
    starting: JoinSet<Result<Value>>,
    /// The events of the present process, by name.
    events: Arc<Mutex<BTreeSet<String>>>,
    machine: Mutex<Machine>,
}

/// The state that outlives the process.
#[derive(Default)]
struct Machine {
    pods: BTreeMap<String, Addresses>,
    /// The Cilium pools of pods that have asked for one.
    pools: BTreeMap<String, String>,
    infra: Started,
}

impl RealAgent {
    pub(super) fn new(
        name: &str,
        settings: Settings,
        host: Arc<Host>,
        kubeconfig: PathBuf,
        logs: &Path,
    ) -> Self {
        Self {
            name: name.to_owned(),
            settings,
            host,
            kubeconfig,
            log: logs.join(format!("agent-{name}.log")),
            process: None,
            starting: JoinSet::new(),
            events: Arc::default(),
            machine: Mutex::default(),
        }
    }

    /// # Panics
    /// If the agent's program was not built.
    pub(crate) fn start(&mut self) -> Result<()> {
        let command = self.start_command();
        self.start_by(command)
    }

    /// Starts it by this command of the protocol (`tests/agent/README.md`), which includes the state of the machine.
    /// The pods of such an agent are the business of the caller of [`Self::ask`].
    pub(crate) fn start_by(&mut self, command: Value) -> Result<()> {
        if self.process.is_some() {
            bail!("{}: already started", self.name);
        }
        let (name, alarm) = (self.name.clone(), self.host.alarm.clone());
        self.events = Arc::default();
        let events = Arc::clone(&self.events);
        let peer = Peer::start(format!("agent of {name}"), self.command(), &self.log, move |heard| {
            let Heard::Event(event) = heard else { return };
            if event["event"] == "fatal" {
                alarm.raise(format!("the agent of {name} has ended itself: {}", event["message"]));
            }
            let event = event["event"].as_str().unwrap_or_default().to_owned();
            events.lock().unwrap_or_else(PoisonError::into_inner).insert(event);
        })?;
        let speaker = Arc::clone(peer.speaker());
        self.starting = JoinSet::new();
        self.starting.spawn(async move { speaker.ask(command, START_TIMEOUT).await });
        self.process = Some(peer);
        Ok(())
    }

    pub(crate) async fn wait_ready(&mut self, deadline: Duration) -> Result<Started> {
        let alarm = self.host.alarm.clone();
        let answer = alarm.over(async { self.starting.join_next().await.context("not started")?? });
        let Ok(answer) = tokio::time::timeout(deadline, answer).await else {
            bail!("the agent of {} was not ready in {deadline:?}", self.name);
        };
        let answer = answer?;
        let started = Started {
            router: addresses(&answer["router"]),
            health: addresses(&answer["health"]),
            ingress: addresses(&answer["ingress"]),
            lost: losses(&answer["lost"]),
        };
        self.take_over(&started);
        Ok(started)
    }

    /// The answer to the start, if it has come.
    pub(crate) fn started(&mut self) -> Option<Result<Value>> {
        self.starting.try_join_next().map(|answer| answer?)
    }

    /// Whether its present process has reported such an event (`tests/agent/README.md`).
    pub(crate) fn has_reported(&self, event: &str) -> bool {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).contains(event)
    }

    /// Sends a command of the protocol. A refusal is an answer too.
    pub(crate) async fn ask(&self, command: Value) -> Result<Value> {
        self.speaker()?.ask_leniently(command, ASK_TIMEOUT).await
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.starting = JoinSet::new();
        match self.process.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.process.as_ref().and_then(Peer::pid).context("the agent does not run")?;
        signals::send(pid, signal).await
    }

    pub(crate) fn change_mode(&mut self, ipam: &'static str) {
        self.settings.ipam = ipam;
    }

    /// From now on pods may be lost.
    pub(crate) fn expect_losses(&mut self) {
        self.settings.losses = Losses::Expected;
    }

    /// Sets the default pool for the next start. Pods keep theirs, which an agent remembers of each.
    pub(crate) fn change_default_pool(&mut self, name: &'static str) {
        let before = std::mem::replace(&mut self.settings.default_pool, name);
        let mut machine = self.machine();
        let Machine { pods, pools, .. } = &mut *machine;
        for owner in pods.keys() {
            pools.entry(owner.clone()).or_insert_with(|| before.to_owned());
        }
    }

    /// Loses the machine with its pods.
    pub(crate) async fn power_off(mut self) -> Result<()> {
        self.stop().await?;
        self.host.holdings.lose(&self.name);
        Ok(())
    }

    pub(crate) async fn allocate(&self, owner: &str) -> Result<Addresses> {
        let answer = self.speaker()?.ask(json!({"cmd": "allocate", "owner": owner}), ASK_TIMEOUT).await?;
        Ok(self.record(owner, &answer))
    }

    /// An address of every family from this Cilium pool.
    pub(crate) async fn allocate_from(&self, pool: &str, owner: &str) -> Result<Addresses> {
        let command = json!({"cmd": "allocate", "owner": owner, "pool": pool});
        let answer = self.speaker()?.ask(command, ASK_TIMEOUT).await?;
        self.machine().pools.insert(owner.to_owned(), pool.to_owned());
        Ok(self.record(owner, &answer))
    }

    pub(crate) async fn allocate_many(&self, prefix: &str, count: usize) -> Result<Filled> {
        let command = json!({"cmd": "allocate-many", "prefix": prefix, "count": count});
        let answer = self.speaker()?.ask_leniently(command, ASK_TIMEOUT).await?;
        let allocated = answer["allocations"].as_array().into_iter().flatten().map(|allocation| {
            let owner = allocation["owner"].as_str().unwrap_or_default();
            (owner.to_owned(), self.record(owner, allocation))
        });
        Ok(Filled { allocated: allocated.collect(), error: answer["error"].as_str().map(str::to_owned) })
    }

    pub(crate) async fn release(&self, owner: &str) -> Result<()> {
        let owner = plain(owner);
        self.speaker()?.ask(json!({"cmd": "release", "owner": owner}), ASK_TIMEOUT).await?;
        let pod =
            self.machine().pods.remove(owner).with_context(|| format!("{}: no pod {owner}", self.name))?;
        // After the answer: the address may be in use until then.
        pod.each().for_each(|address| self.host.holdings.give_back(&self.name, address));
        Ok(())
    }

    pub(crate) async fn touch_node(&self) -> Result<()> {
        self.speaker()?.ask(json!({"cmd": "touch-node"}), ASK_TIMEOUT).await.map(drop)
    }

    pub(crate) async fn held(&self) -> Result<BTreeMap<IpAddr, String>> {
        let answer = self.speaker()?.ask(json!({"cmd": "dump"}), ASK_TIMEOUT).await?;
        let mut held = BTreeMap::new();
        for allocation in answer["allocations"].as_array().into_iter().flatten() {
            let owner = allocation["owner"].as_str().unwrap_or_default();
            held.extend(addresses(allocation).each().map(|address| (address, owner.to_owned())));
        }
        Ok(held)
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn speaker(&self) -> Result<&Arc<Speaker>> {
        self.process
            .as_ref()
            .map(Peer::speaker)
            .with_context(|| format!("the agent of {} does not run", self.name))
    }

    fn command(&self) -> Command {
        let Settings {
            families, ipam, default_pool, annotate, release, health, ingress, update_rate, ..
        } = &self.settings;
        let program = match release {
            Release::Oldest => tool("NODEIPAM_OLDEST_AGENT", "agent-1.14"),
            Release::V1_17 => tool("NODEIPAM_AGENT_1_17", "agent-1.17"),
            Release::Newest => tool("NODEIPAM_AGENT", "agent-1.20"),
        };
        let mut command = Command::new(program);
        let kubeconfig = self.settings.server.as_ref().unwrap_or(&self.kubeconfig);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--node").arg(&self.name);
        command.arg(format!("--ipv4={}", families.ipv4())).arg(format!("--ipv6={}", families.ipv6()));
        command.arg(format!("--health={health}")).arg(format!("--ingress={ingress}"));
        if *ipam != "crd" {
            command.arg("--ipam").arg(ipam);
        }
        if *default_pool != "default" {
            command.arg("--default-pool").arg(default_pool);
        }
        if *annotate {
            command.arg("--annotate-k8s-node");
        }
        command.arg("--update-rate").arg(format!("{}ms", update_rate.as_millis()));
        command
    }

    fn start_command(&self) -> Value {
        let machine = self.machine();
        let restore: Vec<_> = machine
            .pods
            .iter()
            .map(|(owner, pod)| {
                let mut entry = texts(*pod);
                entry["owner"] = owner.as_str().into();
                entry["pool"] = machine.pools.get(owner).map_or("", String::as_str).into();
                entry
            })
            .collect();
        json!({
            "cmd": "start",
            "restore": restore,
            "router": texts(machine.infra.router),
            "ingress": texts(machine.infra.ingress),
        })
    }

    fn record(&self, owner: &str, allocation: &Value) -> Addresses {
        let got = addresses(allocation);
        got.each().for_each(|address| self.host.holdings.take(&self.name, address, owner));
        self.machine().pods.insert(owner.to_owned(), got);
        got
    }

    /// The changes by a start: pods without network, and addresses of the agent itself.
    fn take_over(&self, started: &Started) {
        let mut machine = self.machine();
        let holdings = &self.host.holdings;
        for (owner, why) in &started.lost {
            let pod = machine.pods.remove(owner).unwrap_or_default();
            pod.each().for_each(|address| holdings.give_back(&self.name, address));
            if self.settings.losses == Losses::Alarm {
                self.host.alarm.raise(format!("{owner} on {} has lost its network: {why}", self.name));
            }
        }
        let before =
            std::mem::replace(&mut machine.infra, Started { lost: BTreeMap::new(), ..started.clone() });
        let roles = |infra: &Started| {
            [("router", infra.router), ("ingress", infra.ingress), ("health", infra.health)]
        };
        for ((owner, had), (_, got)) in roles(&before).into_iter().zip(roles(started)) {
            let moved = had.each().filter(|old| !got.each().any(|new| new == *old));
            moved.for_each(|old| holdings.give_back(&self.name, old));
            got.each().for_each(|address| holdings.take(&self.name, address, owner));
        }
    }
}

fn addresses(answer: &Value) -> Addresses {
    let address = |family: &str| answer[family].as_str().and_then(|text| text.parse().ok());
    Addresses { ipv4: address("ipv4"), ipv6: address("ipv6") }
}

fn texts(addresses: Addresses) -> Value {
    let text = |address: Option<IpAddr>| address.map(|address| address.to_string()).unwrap_or_default();
    json!({"ipv4": text(addresses.ipv4), "ipv6": text(addresses.ipv6)})
}

fn losses(lost: &Value) -> BTreeMap<String, String> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    lost.as_array().into_iter().flatten().map(|entry| (text(entry, "owner"), text(entry, "error"))).collect()
}
