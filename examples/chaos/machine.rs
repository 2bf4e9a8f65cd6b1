//! The life of one machine: its Node is created, its agent starts, pods come and leave, the agent restarts, and at some
//! time the machine is lost. It returns as another Node of the same name.
//!
//! The API server may be away at any time, so every request of a person or a kubelet is repeated.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use tokio::time::sleep;

use crate::summary::Summary;
use crate::support::agent::{FakeAgent, GivesUp, Losses, Settings};
use crate::support::kubelet::{self, Health};
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::Rig;
use crate::support::views::Claim;
use crate::world::Over;

/// The pause before a request is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// How long an agent waits for addresses before it is started again. Servers and leaders are away for seconds at a time.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the CiliumNode of a lost machine may take to be collected.
const COLLECTED: Duration = Duration::from_secs(180);

/// The maximum number of pods that come one after the other: more than a block has.
const PODS: usize = 20;

/// One machine.
pub(crate) struct Machine<'a> {
    rig: &'a Rig,
    summary: &'a Summary,
    name: String,
    rng: fastrand::Rng,
    /// Its pods, each with its addresses.
    pods: BTreeMap<String, Vec<IpAddr>>,
    n_pods: usize,
    /// How often it has joined. Each time its agent has another Pod.
    n_joined: usize,
    /// How often its agent has started again since then.
    n_restarts: u32,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(rig: &'a Rig, summary: &'a Summary, name: String, rng: fastrand::Rng) -> Self {
        Self { rig, summary, name, rng, pods: BTreeMap::new(), n_pods: 0, n_joined: 0, n_restarts: 0 }
    }

    /// Lives until the chaos is over. Returns the agent of the machine, which is running.
    pub(crate) async fn live(mut self, over: &Over) -> Result<FakeAgent> {
        // Not all machines join at once.
        over.within(Duration::from_millis(self.rng.u64(..10_000))).await;
        loop {
            let mut agent = self.join().await?;
            let n_acts = self.rng.u8(2..12);
            for _ in 0..n_acts {
                if over.within(Duration::from_millis(self.rng.u64(2000..40_000))).await {
                    self.wait_serving(&mut agent).await?;
                    return Ok(agent);
                }
                self.act(&mut agent).await?;
            }
            self.wait_serving(&mut agent).await?;
            self.leave(agent).await?;
        }
    }

    async fn join(&mut self) -> Result<FakeAgent> {
        let node = NodeSpec::new(&self.name).label("zone", "a");
        while let Err(error) = self.rig.cluster.create_node(&node).await {
            self.rig.control_plane.alarm.check()?;
            self.summary.count("machine: requests repeated");
            // It may exist in part: a Node without the status of its kubelet.
            let delete = Kind::Node.api(&self.rig.cluster.client);
            let _ = delete.delete(&self.name, &DeleteParams::default()).await;
            drop(error);
            sleep(RETRY).await;
        }
        let losses = if self.takes_whole_blocks() { Losses::Expected } else { Losses::Alarm };
        let settings = Settings { gives_up: GivesUp::Expected, losses, ..self.rig.agents.settings() };
        (self.n_joined, self.n_restarts) = (self.n_joined + 1, 0);
        let (client, pod, release) = (&self.rig.cluster.client, self.agent_pod(), settings.release.as_str());
        self.repeat(async || created(kubelet::create_agent_pod(client, &pod, &self.name, release).await))
            .await?;
        let mut agent = self.rig.agents.fake_with(&self.name, settings);
        agent.start()?;
        wait_ready(self.rig, self.summary, &mut agent).await?;
        self.report(Health::Ready).await?;
        self.summary.count("machine: joined");
        Ok(agent)
    }

    /// The name of the Pod of its agent.
    fn agent_pod(&self) -> String {
        format!("cilium-{}-{}", self.name, self.n_joined)
    }

    /// The name of the Pod of a workload.
    fn workload(&self, owner: &str) -> String {
        format!("{}-{}", self.name, owner.trim_start_matches("ns/"))
    }

    /// Deletes the Pod of a workload.
    async fn end_workload(&self, owner: &str) -> Result<()> {
        let (pods, name) = (workloads(self.rig), self.workload(owner));
        self.repeat(async || delete(pods.delete(&name, &at_once()).await)).await
    }

    /// A pod starts, in the order of a real one: its Pod is bound to the node, the agent gives it addresses, and the
    /// kubelet reports them. Returns false, without the Pod, if the agent has no addresses.
    async fn start_pod(&mut self, agent: &FakeAgent) -> Result<bool> {
        self.n_pods += 1;
        let owner = format!("ns/pod-{}", self.n_pods);
        let (pods, name) = (workloads(self.rig), self.workload(&owner));
        self.repeat(async || created(kubelet::create_bound(&pods, &name, &self.name).await)).await?;
        let Ok(addresses) = agent.allocate(&owner) else {
            self.end_workload(&owner).await?;
            return Ok(false);
        };
        let addresses: Vec<_> = addresses.each().collect();
        self.pods.insert(owner, addresses.clone());
        self.repeat(async || kubelet::report_addresses(&pods, &name, &addresses).await).await?;
        self.summary.count("machine: pods started");
        Ok(true)
    }

    /// The kubelet reports the agent.
    async fn report(&self, health: Health) -> Result<()> {
        let (client, pod) = (&self.rig.cluster.client, self.agent_pod());
        self.repeat(async || kubelet::report(client, &pod, self.n_restarts, health).await).await
    }

    /// Makes a request until the server carries it out.
    async fn repeat<T>(&self, request: impl AsyncFn() -> Result<T>) -> Result<T> {
        loop {
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.rig.control_plane.alarm.check().with_context(|| format!("{error:#}"))?,
            }
            self.summary.count("machine: requests repeated");
            sleep(RETRY).await;
        }
    }

    /// Waits until the agent serves pods. It may have given up and started again, so its pods are compared.
    async fn wait_serving(&mut self, agent: &mut FakeAgent) -> Result<()> {
        wait_ready(self.rig, self.summary, agent).await?;
        self.end_lost_pods(agent).await
    }

    async fn act(&mut self, agent: &mut FakeAgent) -> Result<()> {
        self.wait_serving(agent).await?;
        match self.rng.u8(..10) {
            0..4 => {
                for _ in 0..self.rng.usize(1..PODS) {
                    if !self.start_pod(agent).await? {
                        break;
                    }
                }
            }
            4..8 => {
                let share = self.rng.f64();
                let leaving: Vec<String> =
                    self.pods.keys().filter(|_| self.rng.f64() < share).cloned().collect();
                for owner in leaving {
                    if agent.release(&owner).is_err() {
                        // It has given up since the last look, and its pods stay.
                        break;
                    }
                    self.end_workload(&owner).await?;
                    self.pods.remove(&owner);
                    self.summary.count("machine: pods stopped");
                }
            }
            8 => {
                agent.stop().await;
                self.n_restarts += 1;
                self.report(Health::Starting).await?;
                agent.start()?;
                wait_ready(self.rig, self.summary, agent).await?;
                self.report(Health::Ready).await?;
                self.summary.count("machine: agent restarted");
                self.end_lost_pods(agent).await?;
            }
            _ => {
                // It fails while the server is away, as the agent's own writes do.
                let _ = agent.touch_node().await;
            }
        }
        Ok(())
    }

    /// Whether its mode is the one in which a pod may lose its network, because its agent restarts while a block is
    /// removed in which the pod has just got an address (Known gaps of `docs/invariants.md`).
    fn takes_whole_blocks(&self) -> bool {
        self.rig.control_plane.options.ipam == "multi-pool"
    }

    /// Pods that their agent has not restored end. It is an error if none of their addresses is in a block that is
    /// being removed. Such a block stays so as long as the Pod exists.
    async fn end_lost_pods(&mut self, agent: &FakeAgent) -> Result<()> {
        let held = agent.held();
        let is_lost = |addresses: &Vec<IpAddr>| !addresses.iter().all(|address| held.contains_key(address));
        let lost: BTreeMap<_, _> = self.pods.clone().into_iter().filter(|(_, had)| is_lost(had)).collect();
        for (owner, had) in lost {
            let releasing = self.releasing().await?;
            ensure!(
                had.iter().any(|address| releasing.iter().any(|block| block.contains(address))),
                "{owner} on {} has lost {had:?}, and only these blocks are Releasing: {releasing:?}",
                self.name
            );
            self.summary.count("machine: pods lost in a known gap of multi-pool");
            self.end_workload(&owner).await?;
            self.pods.remove(&owner);
        }
        Ok(())
    }

    /// The blocks of the machine that are Releasing, as the server has them now.
    async fn releasing(&self) -> Result<Vec<IpNet>> {
        let claims = Kind::Block.api(&self.rig.cluster.client);
        let own = ListParams::default().fields(&format!("spec.node={}", self.name));
        let found = self.repeat(async || Ok(claims.list(&own).await?)).await?;
        let found = found.items.iter().map(Claim::of).filter(|claim| claim.state == "Releasing");
        found.map(|claim| Ok(claim.cidr.parse()?)).collect()
    }

    async fn leave(&mut self, agent: FakeAgent) -> Result<()> {
        agent.power_off().await;
        self.pods.clear();
        let nodes = Kind::Node.api(&self.rig.cluster.client);
        self.repeat(async || delete(nodes.delete(&self.name, &DeleteParams::default()).await)).await?;
        let (agents, workloads) = (kubelet::pods(&self.rig.cluster.client), workloads(self.rig));
        self.repeat(async || delete(agents.delete(&self.agent_pod(), &at_once()).await)).await?;
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        self.repeat(async || delete(workloads.delete_collection(&at_once(), &own).await)).await?;
        let gone = async || Ok(self.rig.cluster.object(Kind::CiliumNode, &self.name).is_none());
        self.rig.cluster.wait_until("a CiliumNode to be collected", COLLECTED, gone).await?;
        self.summary.count("machine: lost");
        Ok(())
    }
}

/// The code of the server's refusal.
fn code_of(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref()? {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The Pods of all workloads, in a namespace with no other Pods.
pub(crate) fn workloads(rig: &Rig) -> Api<Pod> {
    Api::namespaced(rig.cluster.client.clone(), "default")
}

/// An object that is there counts as created: the answer to an earlier request may have been lost.
fn created(answer: Result<()>) -> Result<()> {
    match answer {
        Err(error) if code_of(&error) == Some(409) => Ok(()),
        other => other,
    }
}

/// Pods end at once: no kubelet confirms their end.
fn at_once() -> DeleteParams {
    DeleteParams::default().grace_period(0)
}

/// A missing object counts as deleted.
fn delete<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Waits until the agent serves pods. One that gives up is started again, as kubelet does.
pub(crate) async fn wait_ready(rig: &Rig, summary: &Summary, agent: &mut FakeAgent) -> Result<()> {
    while let Err(error) = agent.wait_ready(PATIENCE).await {
        rig.control_plane.alarm.check().with_context(|| format!("{error:#}"))?;
        summary.count("machine: agent started again after it gave up");
        agent.stop().await;
        agent.start()?;
    }
    Ok(())
}
