//! The agents of all nodes, and the pods on them.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::script::Member;
use crate::support::agent::{Agent, AgentHost};
use crate::support::cluster::Cluster;

/// From a served node to an agent that serves pods. Cilium's own looks for its addresses each 5 s.
const READY: Duration = Duration::from_secs(60);

/// Every machine of the cluster.
#[derive(Default)]
pub(crate) struct Fleet {
    machines: Vec<Machine>,
    refused: Vec<String>,
}

struct Machine {
    name: String,
    agent: Agent,
    serves: bool,
    n_pods: usize,
}

impl Fleet {
    /// Makes the Nodes and starts an agent on each.
    pub(crate) async fn join(
        &mut self,
        members: &[Member],
        cluster: &Cluster,
        agents: &AgentHost,
    ) -> Result<()> {
        for member in members {
            let mut agent = agents.agent_with(member.make, &member.node.name, agents.settings());
            // It waits for its Node, as on a real machine.
            agent.start()?;
            self.machines.push(Machine { name: member.node.name.clone(), agent, serves: false, n_pods: 0 });
        }
        let nodes: Vec<_> = members.iter().map(|member| member.node.clone()).collect();
        cluster.create_nodes(&nodes).await
    }

    /// Starts or ends pods until each node has that many.
    pub(crate) async fn load(&mut self, n_pods: usize) -> Result<()> {
        for machine in &mut self.machines {
            if let Err(refusal) = machine.load(n_pods).await {
                self.refused.push(format!("{refusal:#}"));
            }
            // Imitations never wait for anything: let the screen have its turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Pods that could not start, each with the reason.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// All pods.
    pub(crate) fn n_pods(&self) -> usize {
        self.machines.iter().map(|machine| machine.n_pods).sum()
    }
}

impl Machine {
    async fn load(&mut self, n_pods: usize) -> Result<()> {
        if !self.serves {
            self.agent.wait_ready(READY).await?;
            self.serves = true;
        }
        while self.n_pods < n_pods {
            let pod = pod(self.n_pods);
            self.agent.allocate(&pod).await.with_context(|| format!("{pod} on {}", self.name))?;
            self.n_pods += 1;
        }
        while self.n_pods > n_pods {
            self.agent.release(&pod(self.n_pods - 1)).await?;
            self.n_pods -= 1;
        }
        Ok(())
    }
}

fn pod(number: usize) -> String {
    format!("demo/pod-{number}")
}
