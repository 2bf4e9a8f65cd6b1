//! The machines of a playground: kubelet, scheduler and Cilium's own agent, for Nodes and Pods that a person creates
//! with kubectl.
//!
//! Each Node gets a machine with an agent of the newest version. A Pod is bound to the Node with the fewest Pods. It
//! gets an address of the agent there, and keeps it until it is deleted. No container runs. The product is not known
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::{self, Store, reflector};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::agent::{AgentHost, RealAgent, Release};
use super::alarm::{Alarm, Bell};
use super::cache::Cache;
use super::kubelet::{self, Health};
use super::objects::{Kind, node_addresses};
use super::rig::Rig;

/// How long an agent may wait for its first addresses: until a person has created a pool.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The pause before an agent is asked again for an address that it did not have. No event announces one.
const RETRY: Duration = Duration::from_millis(500);

/// All machines. Dropping this stops them.
pub(crate) struct Machines {
    _tasks: JoinSet<()>,
}

impl Machines {
    /// Serves all Nodes and Pods from now on. A failure raises the alarm.
    pub(crate) fn start(rig: &Rig) -> Self {
        let site = Site {
            client: rig.cluster.client.clone(),
            cache: Arc::clone(rig.cluster.cache()),
            bell: rig.cluster.bell.clone(),
            alarm: rig.cluster.alarm.clone(),
            agents: rig.agents.clone(),
            next_node: Arc::new(AtomicU32::new(0)),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = site.run().await {
                site.alarm.raise(format!("the machines: {error:#}"));
            }
        });
        Self { _tasks: tasks }
    }
}

/// The parts that all machines share.
#[derive(Clone)]
struct Site {
    client: Client,
    cache: Arc<Cache>,
    bell: Bell,
    alarm: Alarm,
    agents: AgentHost,
    next_node: Arc<AtomicU32>,
}

impl Site {
    /// Follows Pods and Nodes: gives each Node a machine, and each Pod a Node.
    async fn run(&self) -> Result<()> {
        let all: Api<Pod> = Api::all(self.client.clone());
        let (store, writer) = reflector::store();
        let mut events = pin!(reflector(writer, watcher(all, watcher::Config::default())));
        let (mut machines, mut bound) = (BTreeSet::new(), BTreeSet::new());
        let mut tasks = JoinSet::new();
        let mut news = self.bell.listen();
        loop {
            news.mark_unchanged();
            let nodes = self.cache.objects(Kind::Node);
            for node in &nodes {
                if machines.insert(node.uid().unwrap_or_default()) {
                    tasks.spawn(self.clone().power_on(Arc::clone(node), store.clone()));
                }
            }
            self.bind(&nodes, &store, &mut bound).await?;
            tokio::select! {
                // An error is one of the connection, which the watch makes anew.
                _ = events.next() => self.bell.ring(),
                changed = news.changed() => changed?,
            }
        }
    }

    /// Binds each Pod without a Node to the Node with the fewest Pods.
    async fn bind(
        &self,
        nodes: &[Arc<DynamicObject>],
        store: &Store<Pod>,
        bound: &mut BTreeSet<String>,
    ) -> Result<()> {
        let open = |node: &&Arc<DynamicObject>| node.data["spec"]["unschedulable"] != true;
        let mut n_pods: BTreeMap<String, usize> =
            nodes.iter().filter(open).map(|node| (node.name_any(), 0)).collect();
        let (unbound, placed): (Vec<_>, Vec<_>) =
            store.state().into_iter().partition(|pod| node_of(pod).is_none());
        for pod in placed {
            if let Some(n_pods) = node_of(&pod).and_then(|node| n_pods.get_mut(node)) {
                *n_pods += 1;
            }
        }
        for pod in unbound {
            let emptiest = n_pods.iter_mut().min_by_key(|(_, n_pods)| **n_pods);
            let Some((node, n_pods)) = emptiest else { return Ok(()) };
            if pod.metadata.deletion_timestamp.is_some() || !bound.insert(pod.uid().unwrap_or_default()) {
                continue;
            }
            *n_pods += 1;
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            let params = PostParams::default();
            let answer: kube::Result<Value> = self
                .pods_beside(&pod)
                .create_subresource("binding", &pod.name_any(), &params, &binding)
                .await;
            unless_gone(answer).context("binding a Pod")?;
        }
        Ok(())
    }

    fn pods_beside(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Runs a machine until its Node is deleted.
    async fn power_on(self, node: Arc<DynamicObject>, store: Store<Pod>) {
        let name = node.name_any();
        if let Err(error) = self.live(&node, &store).await {
            self.alarm.raise(format!("the machine of {name}: {error:#}"));
        }
    }

    async fn live(&self, node: &DynamicObject, store: &Store<Pod>) -> Result<()> {
        let name = node.name_any();
        self.report_node(&name).await?;
        let mut agent = self.agents.real_with(&name, self.agents.settings());
        let agent_pod = format!("cilium-{name}");
        kubelet::create_agent_pod(&self.client, &agent_pod, &name, Release::Newest.as_str()).await?;
        agent.start()?;
        tokio::select! {
            ready = agent.wait_ready(PATIENCE) => drop(ready?),
            () = self.wait_deleted(node) => return agent.power_off().await,
        }
        kubelet::report(&self.client, &agent_pod, 0, Health::Ready).await?;
        let mut kubelet = Kubelet { site: self, node: name, agent_pod, agent, pods: BTreeMap::new() };
        let mut news = self.bell.listen();
        loop {
            news.mark_unchanged();
            if self.is_deleted(node) {
                return kubelet.agent.power_off().await;
            }
            let waiting = kubelet.sync(store).await?;
            tokio::select! {
                changed = news.changed() => changed?,
                () = tokio::time::sleep(RETRY), if waiting => {}
            }
        }
    }

    /// Reports the Node as the kubelet does: its addresses, and that it is ready.
    async fn report_node(&self, name: &str) -> Result<()> {
        let [ipv4, ipv6] = node_addresses(self.next_node.fetch_add(1, Ordering::Relaxed));
        let status = json!({"status": {
            "addresses": [
                {"type": "InternalIP", "address": ipv4.to_string()},
                {"type": "InternalIP", "address": ipv6.to_string()},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        }});
        let nodes = Kind::Node.api(&self.client);
        unless_gone(nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await)
            .context("reporting the Node")
    }

    fn is_deleted(&self, node: &DynamicObject) -> bool {
        self.cache.object(Kind::Node, &node.name_any()).is_none_or(|now| now.uid() != node.uid())
    }

    async fn wait_deleted(&self, node: &DynamicObject) {
        let mut news = self.bell.listen();
        while !self.is_deleted(node) && news.changed().await.is_ok() {}
    }
}

/// The kubelet of a machine, with the CNI plugin.
struct Kubelet<'a> {
    site: &'a Site,
    node: String,
    agent_pod: String,
    agent: RealAgent,
    /// The Pods that have addresses, by the owner that the agent knows, and their uids.
    pods: BTreeMap<String, String>,
}

impl Kubelet<'_> {
    /// Serves the Pods of this Node once. Whether one still waits for an address.
    async fn sync(&mut self, store: &Store<Pod>) -> Result<bool> {
        let pods: BTreeMap<String, Arc<Pod>> = store
            .state()
            .into_iter()
            .filter(|pod| node_of(pod) == Some(&self.node) && pod.name_any() != self.agent_pod)
            .map(|pod| (owner(&pod), pod))
            .collect();
        // Deleted without a kubelet's consent, or in the place of another one.
        let stale =
            |owner: &str, uid: &String| pods.get(owner).is_none_or(|pod| pod.uid().as_ref() != Some(uid));
        let gone: Vec<_> = self
            .pods
            .iter()
            .filter(|(owner, uid)| stale(owner, uid))
            .map(|(owner, _)| owner.clone())
            .collect();
        for owner in gone {
            self.release(&owner).await?;
        }
        let mut waiting = false;
        for (owner, pod) in pods {
            if pod.metadata.deletion_timestamp.is_some() {
                self.release(&owner).await?;
                self.delete(&pod).await?;
            } else if !self.pods.contains_key(&owner) {
                waiting |= !self.start(&owner, &pod).await?;
            }
        }
        Ok(waiting)
    }

    /// Starts a Pod if the agent has an address for it. Whether it has.
    async fn start(&mut self, owner: &str, pod: &Pod) -> Result<bool> {
        let Ok(addresses) = self.agent.allocate(owner).await else {
            let creating = json!({"waiting": {"reason": "ContainerCreating"}});
            self.report(pod, "Pending", "False", &creating, &json!({})).await?;
            return Ok(false);
        };
        self.pods.insert(owner.to_owned(), pod.uid().unwrap_or_default());
        let addresses: Vec<_> = addresses.each().map(|address| address.to_string()).collect();
        let ips: Vec<_> = addresses.iter().map(|address| json!({"ip": address})).collect();
        let network = json!({"podIP": addresses.first(), "podIPs": ips});
        self.report(pod, "Running", "True", &json!({"running": {}}), &network).await?;
        Ok(true)
    }

    async fn report(&self, pod: &Pod, phase: &str, ready: &str, state: &Value, more: &Value) -> Result<()> {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("no container")?;
        let mut status = json!({
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
                "ready": ready == "True", "state": state,
            }],
        });
        if let (Some(status), Some(more)) = (status.as_object_mut(), more.as_object()) {
            status.extend(more.clone());
        }
        let patch = Patch::Merge(json!({"status": status}));
        let pods = self.site.pods_beside(pod);
        unless_gone(pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await)
            .context("reporting a Pod")
    }

    async fn release(&mut self, owner: &str) -> Result<()> {
        match self.pods.remove(owner) {
            Some(_) => self.agent.release(owner).await,
            None => Ok(()),
        }
    }

    /// Deletes a Pod whose containers have exited.
    async fn delete(&self, pod: &Pod) -> Result<()> {
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        unless_gone(self.site.pods_beside(pod).delete(&pod.name_any(), &params).await)
            .context("deleting a Pod")
    }
}

fn node_of(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.node_name.as_ref().filter(|node| !node.is_empty())
}

/// The name under which an agent knows a Pod.
fn owner(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// A deleted object, or another one of its name, is no failure: a person has deleted it meanwhile.
fn unless_gone<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}
