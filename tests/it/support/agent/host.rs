//! The source of agents. All imitations of a test share one client, and one list and watch per kind. It also starts
//! Cilium's own agents.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kube::Api;
use kube::api::DynamicObject;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::fake::{FakeAgent, Inner};
use super::{Agent, RealAgent, Settings};
use crate::support::alarm::Alarm;
use crate::support::cache::Cache;
use crate::support::cluster::Cluster;
use crate::support::control_plane::ControlPlane;
use crate::support::holdings::Holdings;
use crate::support::objects::Kind;

/// The maximum number of writes of all imitations in flight. Each real agent has a connection of its own, but the
/// server has two cores here, and beyond this number only the latency grows.
const PARALLEL: usize = 32;

/// Makes agents. Clones make agents of one test.
#[derive(Clone)]
pub(crate) struct AgentHost {
    host: Arc<Host>,
    settings: Settings,
    kubeconfig: PathBuf,
    logs: PathBuf,
}

/// The parts that all agents of a test share.
pub(super) struct Host {
    pub(super) cilium_nodes: Api<DynamicObject>,
    pub(super) cache: Arc<Cache>,
    pub(super) holdings: Holdings,
    pub(super) alarm: Alarm,
    writers: Semaphore,
    enlisted: Arc<Mutex<HashMap<String, Weak<Inner>>>>,
}

impl AgentHost {
    pub(crate) fn new(
        control_plane: &ControlPlane,
        cluster: &Cluster,
        holdings: Holdings,
        settings: Settings,
    ) -> Self {
        let enlisted = Arc::new(Mutex::new(HashMap::<String, Weak<Inner>>::new()));
        let listening = Arc::clone(&enlisted);
        cluster.cache().subscribe(Box::new(move |kind, name, object| {
            let agent =
                listening.lock().unwrap_or_else(PoisonError::into_inner).get(name).and_then(Weak::upgrade);
            match (agent, kind, object) {
                (Some(agent), Kind::CiliumNode, object) => agent.cilium_node(object),
                (Some(agent), Kind::Node, Some(object)) => agent.node(object),
                _ => {}
            }
        }));
        let host = Host {
            cilium_nodes: Kind::CiliumNode.api(&cluster.client),
            cache: Arc::clone(cluster.cache()),
            holdings,
            alarm: cluster.alarm.clone(),
            writers: Semaphore::new(PARALLEL),
            enlisted,
        };
        Self {
            host: Arc::new(host),
            settings,
            kubeconfig: control_plane.admin_kubeconfig.clone(),
            logs: control_plane.dir().to_owned(),
        }
    }

    /// The configuration of agents that are made without one.
    pub(crate) fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// An imitation for the node of this name. It is not started yet.
    pub(crate) fn fake(&self, node: &str) -> FakeAgent {
        self.fake_with(node, self.settings())
    }

    pub(crate) fn fake_with(&self, node: &str, settings: Settings) -> FakeAgent {
        FakeAgent::new(node, settings, &self.host)
    }

    pub(crate) fn real_with(&self, node: &str, settings: Settings) -> RealAgent {
        RealAgent::new(node, settings, Arc::clone(&self.host), self.kubeconfig.clone(), &self.logs)
    }

    /// An agent of the kind with which a script runs.
    pub(crate) fn agent_with(&self, make: Make, node: &str, settings: Settings) -> Agent {
        match make {
            Make::Fake => Agent::Fake(self.fake_with(node, settings)),
            Make::Real => Agent::Real(Box::new(self.real_with(node, settings))),
        }
    }
}

/// The kind of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Fake,
    Real,
}

impl Host {
    /// Sends news of the objects of its name to the agent, in place of an earlier agent.
    pub(super) fn enlist(&self, name: &str, agent: &Arc<Inner>) {
        let mut enlisted = self.enlisted.lock().unwrap_or_else(PoisonError::into_inner);
        enlisted.insert(name.to_owned(), Arc::downgrade(agent));
    }

    /// Waits for permission to write. `None` would mean that the semaphore is closed, which does not happen.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.writers.acquire().await.ok()
    }
}
