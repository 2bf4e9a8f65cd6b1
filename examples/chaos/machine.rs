//! The life of one machine: its Node is created, its agent starts, pods come and leave, the agent restarts, and at some
//! time the machine is lost. It returns as another Node of the same name.
//!
//! The API server may be away at any time, so every request of a person or a kubelet is repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::DeleteParams;
use tokio::time::sleep;

use crate::summary::Summary;
use crate::support::agent::{FakeAgent, GivesUp, Settings};
use crate::support::kubelet::{self, Health};
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::Rig;
use crate::world::Over;

/// The pause before a request is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// How long an agent waits for addresses before it is started again. Servers and leaders are away for seconds at a time.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the CiliumNode of a lost machine may take to be collected.
const COLLECTED: Duration = Duration::from_secs(180);

/// The maximum number of pods that come at once: more than a block has.
const PODS: usize = 20;

/// One machine.
pub(crate) struct Machine<'a> {
    rig: &'a Rig,
    summary: &'a Summary,
    name: String,
    rng: fastrand::Rng,
    pods: BTreeSet<String>,
    n_pods: usize,
    /// How often it has joined. Each time its agent has another Pod.
    n_joined: usize,
    /// How often its agent has started again since then.
    n_restarts: u32,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(rig: &'a Rig, summary: &'a Summary, name: String, rng: fastrand::Rng) -> Self {
        Self { rig, summary, name, rng, pods: BTreeSet::new(), n_pods: 0, n_joined: 0, n_restarts: 0 }
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
                    return Ok(agent);
                }
                self.act(&mut agent).await?;
            }
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
        let settings = Settings { gives_up: GivesUp::Expected, ..self.rig.agents.settings() };
        (self.n_joined, self.n_restarts) = (self.n_joined + 1, 0);
        let (client, pod, release) = (&self.rig.cluster.client, self.agent_pod(), settings.release.as_str());
        self.repeat(async || match kubelet::create_agent_pod(client, &pod, &self.name, release).await {
            Err(error) if code_of(&error) == Some(409) => Ok(()),
            other => other,
        })
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

    /// The kubelet reports the agent.
    async fn report(&self, health: Health) -> Result<()> {
        let (client, pod) = (&self.rig.cluster.client, self.agent_pod());
        self.repeat(async || kubelet::report(client, &pod, self.n_restarts, health).await).await
    }

    /// Makes a request until the server carries it out.
    async fn repeat(&self, request: impl AsyncFn() -> Result<()>) -> Result<()> {
        while let Err(error) = request().await {
            self.rig.control_plane.alarm.check().with_context(|| format!("{error:#}"))?;
            self.summary.count("machine: requests repeated");
            sleep(RETRY).await;
        }
        Ok(())
    }

    async fn act(&mut self, agent: &mut FakeAgent) -> Result<()> {
        wait_ready(self.rig, self.summary, agent).await?;
        match self.rng.u8(..10) {
            0..4 => {
                self.n_pods += 1;
                let filled =
                    agent.allocate_many(&format!("ns/pod-{}-", self.n_pods), self.rng.usize(1..PODS));
                self.summary.add("machine: pods started", filled.allocated.len() as u64);
                self.pods.extend(filled.allocated.into_iter().map(|(owner, _)| owner));
            }
            4..8 => {
                let share = self.rng.f64();
                let leaving: Vec<String> =
                    self.pods.iter().filter(|_| self.rng.f64() < share).cloned().collect();
                for owner in leaving {
                    if agent.release(&owner).is_err() {
                        // It has given up since the last look, and its pods stay.
                        break;
                    }
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
            }
            _ => {
                // It fails while the server is away, as the agent's own writes do.
                let _ = agent.touch_node().await;
            }
        }
        Ok(())
    }

    async fn leave(&mut self, agent: FakeAgent) -> Result<()> {
        agent.power_off().await;
        self.pods.clear();
        let nodes = Kind::Node.api(&self.rig.cluster.client);
        self.repeat(async || delete(nodes.delete(&self.name, &DeleteParams::default()).await)).await?;
        let (pods, at_once) =
            (kubelet::pods(&self.rig.cluster.client), DeleteParams::default().grace_period(0));
        self.repeat(async || delete(pods.delete(&self.agent_pod(), &at_once).await)).await?;
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
