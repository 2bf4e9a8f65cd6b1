//! The imitation of one agent: its life from start to ready, its two writers, and the requests of the CNI plugin.
//!
//! A start has the order of Cilium's `configureDaemon`: the agent writes the CiliumNode, waits for the pool, restores
//! the pods, takes its own addresses, and writes the CiliumNode again. Only then does it write `used` unasked. Both
//! writers PUT whole objects.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::FutureExt as _;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::discovery::{LocalNode, left_behind};
use super::host::Host;
use super::ipam::{Ipam, Report};
use super::{Addresses, Filled, GivesUp, Losses, RESTORED, Settings, Started, plain};
use crate::support::families::Family;
use crate::support::objects::Kind;

/// How often node discovery tries a write before the agent exits.
const DISCOVERY_TRIES: u32 = 10;

/// The pause between two such tries.
const DISCOVERY_BACKOFF: Duration = Duration::from_millis(500);

/// The pause after a failed write of the status when the update rate is faster: time for the watch to bring the version
/// that was missed.
const STATUS_RETRY: Duration = Duration::from_millis(20);

/// One imitated agent. Dropping it stops the imitated process; its pods keep holding their addresses.
pub(crate) struct FakeAgent {
    inner: Arc<Inner>,
    life: JoinSet<()>,
}

/// The state that the agent's tasks and the shared watches share.
pub(super) struct Inner {
    name: String,
    host: Arc<Host>,
    settings: Settings,
    state: Mutex<State>,
    phase: watch::Sender<Phase>,
    /// The pool may have changed.
    received: Notify,
    /// A field of the Node that the agent copies has changed.
    node_changed: Notify,
    /// The status must be written.
    status_wanted: Notify,
}

struct State {
    ipam: Ipam,
    node: Option<LocalNode>,
    /// The pods on this machine, which outlive the agent's process.
    pods: BTreeMap<String, Addresses>,
    infra: Started,
    restarts: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    Stopped,
    Starting,
    Ready(Started),
    Failed(String),
}

impl FakeAgent {
    pub(super) fn new(name: &str, settings: Settings, host: &Arc<Host>) -> Self {
        let state = State {
            ipam: Ipam::new(&settings, fastrand::Rng::with_seed(seed(&settings, name, 0))),
            node: None,
            pods: BTreeMap::new(),
            infra: Started::default(),
            restarts: 0,
        };
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            host: Arc::clone(host),
            settings,
            state: Mutex::new(state),
            phase: watch::Sender::new(Phase::Stopped),
            received: Notify::new(),
            node_changed: Notify::new(),
            status_wanted: Notify::new(),
        });
        host.enlist(name, &inner);
        Self { inner, life: JoinSet::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn start(&mut self) -> Result<()> {
        if !matches!(*self.inner.phase.borrow(), Phase::Stopped) {
            bail!("{}: already started", self.inner.name);
        }
        self.inner.phase.send_replace(Phase::Starting);
        self.inner.begin();
        let (inner, writer) = (Arc::clone(&self.inner), Arc::clone(&self.inner));
        self.life.spawn(async move { inner.live().await });
        self.life.spawn(async move { writer.write_status().await });
        Ok(())
    }

    pub(crate) async fn wait_ready(&self, deadline: Duration) -> Result<Started> {
        let mut phase = self.inner.phase.subscribe();
        let settled = async {
            let phase = phase.wait_for(|phase| matches!(phase, Phase::Ready(_) | Phase::Failed(_))).await?;
            match &*phase {
                Phase::Ready(started) => Ok(started.clone()),
                Phase::Failed(why) => Err(anyhow!("{}: {why}", self.inner.name)),
                Phase::Stopped | Phase::Starting => Err(anyhow!("not reached")),
            }
        };
        match tokio::time::timeout(deadline, self.inner.host.alarm.over(settled)).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("the agent of {} was not ready in {deadline:?}", self.inner.name),
        }
    }

    /// Stops the process; the pods stay. After this returns it writes nothing more.
    pub(crate) async fn stop(&mut self) {
        self.life.shutdown().await;
        self.inner.phase.send_replace(Phase::Stopped);
    }

    /// Loses the machine with its pods.
    pub(crate) async fn power_off(mut self) {
        self.stop().await;
        self.inner.host.holdings.lose(&self.inner.name);
    }

    pub(crate) fn allocate(&self, owner: &str) -> Result<Addresses> {
        self.inner.serving()?;
        let mut state = self.inner.state();
        let got = self
            .inner
            .allocate(&mut state, owner)
            .map_err(|error| anyhow!("{}: {error}", self.inner.name))?;
        state.pods.insert(owner.to_owned(), got);
        drop(state);
        self.inner.status_wanted.notify_one();
        Ok(got)
    }

    pub(crate) fn allocate_many(&self, prefix: &str, count: usize) -> Filled {
        let mut filled = Filled::default();
        for number in 0..count {
            let owner = format!("{prefix}{number}");
            match self.allocate(&owner) {
                Ok(got) => filled.allocated.push((owner, got)),
                Err(error) => {
                    filled.error = Some(error.to_string());
                    break;
                }
            }
        }
        filled
    }

    pub(crate) fn release(&self, owner: &str) -> Result<()> {
        self.inner.serving()?;
        let mut state = self.inner.state();
        let owner = plain(owner);
        let addresses =
            state.pods.remove(owner).with_context(|| format!("{}: no pod {owner}", self.inner.name))?;
        for address in addresses.each() {
            state.ipam.release(address).map_err(|error| anyhow!("{}: {error}", self.inner.name))?;
            self.inner.host.holdings.give_back(&self.inner.name, address);
        }
        drop(state);
        self.inner.status_wanted.notify_one();
        Ok(())
    }

    pub(crate) async fn touch_node(&self) -> Result<()> {
        self.inner.serving()?;
        self.inner.write_cilium_node().await
    }

    pub(crate) fn held(&self) -> BTreeMap<IpAddr, String> {
        let state = self.inner.state();
        let allocated = state.ipam.allocated().into_iter();
        allocated.map(|(address, owner)| (address, owner.to_owned())).collect()
    }
}

impl Inner {
    /// Takes over a version of the CiliumNode from the shared watch.
    pub(super) fn cilium_node(&self, object: Option<&Arc<DynamicObject>>) {
        if self.state().ipam.receive(object) {
            self.status_wanted.notify_one();
        }
        self.received.notify_one();
    }

    /// Takes over a version of the Node from the shared watch. A deleted Node is not news to its agent.
    pub(super) fn node(&self, object: &DynamicObject) {
        let node = Some(LocalNode::of(object));
        let mut state = self.state();
        if state.node != node {
            if let Some(node) = &node {
                state.ipam.receive_node(node);
            }
            state.node = node;
            drop(state);
            self.node_changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serving(&self) -> Result<()> {
        match &*self.phase.borrow() {
            Phase::Ready(_) => Ok(()),
            phase => bail!("the agent of {} does not serve pods: {phase:?}", self.name),
        }
    }

    /// Forgets the state of the last process, and reads the objects that a new one reads.
    fn begin(&self) {
        // The new process does not want a write that the last one wanted.
        let _ = self.status_wanted.notified().now_or_never();
        {
            let mut state = self.state();
            let rng = fastrand::Rng::with_seed(seed(&self.settings, &self.name, state.restarts));
            state.ipam = Ipam::new(&self.settings, rng);
            state.restarts += 1;
        }
        // A new process has seen nothing yet.
        self.state().node = None;
        self.host.cache.show(&[Kind::Node, Kind::CiliumNode], &self.name, |kind, object| match kind {
            Kind::Node => self.node(object),
            _ => self.cilium_node(Some(object)),
        });
    }

    /// From start to the end of the process.
    async fn live(&self) {
        if let Err(error) = self.come_up().await {
            self.fail(&error);
            return;
        }
        loop {
            self.node_changed.notified().await;
            if let Err(error) = self.write_cilium_node().await {
                self.fail(&error);
                return;
            }
        }
    }

    fn fail(&self, error: &anyhow::Error) {
        self.phase.send_replace(Phase::Failed(format!("{error:#}")));
        if self.settings.gives_up == GivesUp::Alarm {
            self.host.alarm.raise(format!("the agent of {} has ended itself: {error:#}", self.name));
        }
    }

    async fn come_up(&self) -> Result<()> {
        while self.state().node.is_none() {
            self.node_changed.notified().await;
        }
        let begins_with_cilium_node = self.state().ipam.begins_with_cilium_node();
        if begins_with_cilium_node {
            self.write_cilium_node().await?;
        }
        while !self.state().ipam.has_minimum(self.settings.health) {
            match self.settings.poll {
                None if begins_with_cilium_node => self.received.notified().await,
                None => self.node_changed.notified().await,
                // A version that polls does so by time alone.
                Some(pause) => tokio::time::sleep(pause).await,
            }
        }
        let started = {
            let mut state = self.state();
            let own = state.node.as_ref().map(LocalNode::own_addresses).unwrap_or_default();
            state.ipam.register(own);
            let lost = self.restore_pods(&mut state);
            self.take_infra(&mut state)?;
            state.ipam.finish_restoring();
            Started { lost, ..state.infra.clone() }
        };
        // This write includes every earlier change. `live` writes the later ones.
        let _ = self.node_changed.notified().now_or_never();
        self.write_cilium_node().await?;
        self.status_wanted.notify_one();
        self.phase.send_replace(Phase::Ready(started));
        Ok(())
    }

    /// Restores the addresses of every pod of the machine. A pod whose addresses can't be restored loses its network.
    fn restore_pods(&self, state: &mut State) -> BTreeMap<String, String> {
        let mut lost = BTreeMap::new();
        for (owner, addresses) in state.pods.clone() {
            let mut restored = Vec::new();
            let outcome = addresses.each().try_for_each(|address| {
                let restore = state.ipam.allocate(address, &format!("{owner}{RESTORED}"));
                restore.map(|()| restored.push(address)).map_err(|error| {
                    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                    format!("unable to reallocate {address} {family} address: {error}")
                })
            });
            let Err(why) = outcome else { continue };
            for address in restored {
                // It was allocated a moment ago.
                let _ = state.ipam.release(address);
            }
            addresses.each().for_each(|address| self.host.holdings.give_back(&self.name, address));
            state.pods.remove(&owner);
            if self.settings.losses == Losses::Alarm {
                self.host.alarm.raise(format!("{owner} on {} has lost its network: {why}", self.name));
            }
            lost.insert(owner, why);
        }
        lost
    }

    /// Takes the agent's own addresses: those that it had, or new ones.
    fn take_infra(&self, state: &mut State) -> Result<()> {
        let before = state.infra.clone();
        let left = state.ipam.seen().map(|object| left_behind(object)).unwrap_or_default();
        let mut infra = Started::default();
        let wanted = [
            ("router", true, before.router, left.router),
            ("ingress", self.settings.ingress, before.ingress, Addresses::default()),
            ("health", self.settings.health, before.health, left.health),
        ];
        for (owner, _, had, left) in wanted.into_iter().filter(|(_, on, ..)| *on) {
            let mut got = Addresses::default();
            for family in self.settings.families.each() {
                let address = retake(&mut state.ipam, owner, family, [had.of(family), left.of(family)]);
                let address =
                    address.map_err(|error| anyhow!("unable to allocate the {owner} address: {error}"))?;
                if let Some(old) = had.of(family).filter(|&old| old != address) {
                    self.host.holdings.give_back(&self.name, old);
                }
                self.host.holdings.take(&self.name, address, owner);
                got.set(family, Some(address));
            }
            match owner {
                "router" => infra.router = got,
                "ingress" => infra.ingress = got,
                _ => infra.health = got,
            }
        }
        state.infra = infra;
        Ok(())
    }

    /// Both families or neither, IPv6 first.
    fn allocate(&self, state: &mut State, owner: &str) -> Result<Addresses, String> {
        let mut got = Addresses::default();
        for family in self.settings.families.each() {
            match state.ipam.allocate_next(family, owner) {
                Ok(address) => got.set(family, Some(address)),
                Err(error) => {
                    for address in got.each() {
                        state.ipam.release(address)?;
                    }
                    return Err(error);
                }
            }
        }
        for address in got.each() {
            self.host.holdings.take(&self.name, address, owner);
        }
        Ok(got)
    }

    /// Creates the CiliumNode, or replaces it with the agent's version. The agent exits after ten failures.
    async fn write_cilium_node(&self) -> Result<()> {
        let mut last = anyhow!("no Node");
        for _ in 0..DISCOVERY_TRIES {
            let (object, create) = {
                let state = self.state();
                let node = state.node.as_ref().context("no Node")?;
                let seen = state.ipam.seen();
                let mut object = seen.map_or_else(|| self.blank(), |seen| DynamicObject::clone(seen));
                node.mutate(&mut object, &state.infra, self.settings.families);
                if state.ipam.copies_pod_cidrs() {
                    object.data["spec"]["ipam"]["podCIDRs"] = node.pod_cidrs.clone().into();
                }
                (object, seen.is_none())
            };
            let written = {
                let _turn = self.host.turn().await;
                if create {
                    self.host.cilium_nodes.create(&manager(), &object).await
                } else {
                    self.host.cilium_nodes.replace(&self.name, &manager(), &object).await
                }
            };
            match written {
                Ok(_) => return Ok(()),
                Err(error) => last = error.into(),
            }
            // Cilium's agent waits as long before it retries.
            tokio::time::sleep(DISCOVERY_BACKOFF).await;
        }
        Err(last.context(format!(
            "could not create or update CiliumNode resource, despite {DISCOVERY_TRIES} retries"
        )))
    }

    fn blank(&self) -> DynamicObject {
        Kind::CiliumNode.object(&self.name, json!({"spec": {"ipam": {}}}))
    }

    /// Writes its report each time that one is wanted, with pauses.
    async fn write_status(&self) {
        let mut last: Option<Instant> = None;
        loop {
            self.status_wanted.notified().await;
            if let Some(last) = last {
                tokio::time::sleep_until(last + self.settings.update_rate).await;
            }
            last = Some(Instant::now());
            let Some(report) = self.state().ipam.report() else { continue };
            if matches!(report, Report::Whole(_)) && self.host.holdings.caught_up().await.is_err() {
                // The alarm is raised. Otherwise the oracle now knows which addresses were given back, before it sees a
                // block removed.
                return;
            }
            let written = {
                let _turn = self.host.turn().await;
                let (api, manager) = (&self.host.cilium_nodes, manager());
                match &report {
                    Report::Status(object) => api.replace_status(&self.name, &manager, object).await,
                    Report::Whole(object) => api.replace(&self.name, &manager, object).await,
                }
            };
            if written.is_err() {
                // Retried after the same pause, from the version that the watch brings meanwhile.
                tokio::time::sleep(STATUS_RETRY.saturating_sub(self.settings.update_rate)).await;
                self.status_wanted.notify_one();
            }
        }
    }
}

/// One of the addresses that the agent had, or else any.
fn retake(ipam: &mut Ipam, owner: &str, family: Family, had: [Option<IpAddr>; 2]) -> Result<IpAddr, String> {
    let kept = had.into_iter().flatten().find(|&old| ipam.allocate(old, owner).is_ok());
    kept.map_or_else(|| ipam.allocate_next(family, owner), Ok)
}

/// The name under which the API server knows Cilium's agents.
fn manager() -> PostParams {
    PostParams { field_manager: Some("cilium-agent".to_owned()), ..PostParams::default() }
}

/// The agents of one test choose differently, and each agent chooses the same in every run.
fn seed(settings: &Settings, name: &str, restarts: u64) -> u64 {
    // FNV-1a: the standard library's hashes may change with its version.
    name.bytes().fold(settings.seed.wrapping_mul(31).wrapping_add(restarts), |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
