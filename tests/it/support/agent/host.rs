//! Where agents come from: one client and one list and watch per kind for all imitations of a test, and the way to
//! start Cilium's own.

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

/// Writes of all imitations in flight. Each real agent has a connection of its own, but the server has two cores here,
/// and latency only grows beyond this.
const PARALLEL: usize = 32;

/// Makes agents. Clones make agents of one test.
#[derive(Clone)]
pub(crate) struct AgentHost {
    host: Arc<Host>,
    settings: Settings,
    kubeconfig: PathBuf,
    logs: PathBuf,
}

/// What all agents of a test share.
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

    /// An agent of the kind that a script is run with.
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
    /// Lets the agent hear of the objects of its name, in place of an earlier one.
    pub(super) fn enlist(&self, name: &str, agent: &Arc<Inner>) {
        let mut enlisted = self.enlisted.lock().unwrap_or_else(PoisonError::into_inner);
        enlisted.insert(name.to_owned(), Arc::downgrade(agent));
    }

    /// Waits for leave to write. `None` would mean that the semaphore is closed, which nobody does.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.writers.acquire().await.ok()
    }
}
