//! The agents of all nodes, and the pods on them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::script::Member;
use crate::support::agent::{Agent, AgentHost};
use crate::support::cluster::Cluster;

/// From a served node to an agent that serves pods. Cilium's own agent looks for its addresses every 5 s.
const READY: Duration = Duration::from_secs(60);

/// Every machine of the cluster.
#[derive(Default)]
pub(crate) struct Fleet {
    machines: BTreeMap<String, Machine>,
    refused: Vec<String>,
}

struct Machine {
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
            self.machines.insert(member.node.name.clone(), Machine { agent, serves: false, n_pods: 0 });
        }
        let nodes: Vec<_> = members.iter().map(|member| member.node.clone()).collect();
        cluster.create_nodes(&nodes).await
    }

    /// Powers machines off and deletes their Nodes; the garbage collector then deletes their CiliumNodes.
    pub(crate) async fn lose(&mut self, members: &[Member], cluster: &Cluster) -> Result<()> {
        for Member { node, .. } in members {
            let Some(machine) = self.machines.remove(&node.name) else {
                bail!("{} is no machine of the fleet", node.name)
            };
            machine.agent.power_off().await?;
            cluster.delete_node(&node.name).await?;
        }
        Ok(())
    }

    /// Starts or stops pods until each node has this many.
    pub(crate) async fn load(&mut self, n_pods: usize) -> Result<()> {
        for (name, machine) in &mut self.machines {
            if let Err(refusal) = machine.load(n_pods).await {
                self.refused.push(format!("{name}: {refusal:#}"));
            }
            // Imitations never wait for anything: let the screen have its turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The same, on these nodes alone.
    pub(crate) async fn load_only(
        &mut self,
        members: impl Iterator<Item = &Member>,
        n_pods: usize,
    ) -> Result<()> {
        for member in members {
            let name = &member.node.name;
            let machine =
                self.machines.get_mut(name).with_context(|| format!("no machine is called {name}"))?;
            if let Err(refusal) = machine.load(n_pods).await {
                self.refused.push(format!("{name}: {refusal:#}"));
            }
        }
        Ok(())
    }

    /// Pods that could not start, each with the reason.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// All pods.
    pub(crate) fn n_pods(&self) -> usize {
        self.machines.values().map(|machine| machine.n_pods).sum()
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
            self.agent.allocate(&pod).await.with_context(|| pod)?;
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
