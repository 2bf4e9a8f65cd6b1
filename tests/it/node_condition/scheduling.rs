//! Pods, a real kube-scheduler and Cilium's own agents: the condition keeps pods off nodes that can't give them addresses.
//!
//! [`super::readiness`] plays the Node Readiness Controller, and this file the kubelets: it asks the agent of
//! a pod's node for an address, and reports the pod as running when it has one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::readiness::{self, Rule};
use super::{install, wait_shown};
use crate::answers::ask as ask_command;
use crate::scene::{PROMPT, SOON, ask, wait_use_written};
use crate::support::agent::{Addresses, Agent, Make};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};
use crate::support::scheduler::Scheduler;

/// The nodes. Each has 14 addresses, and its agent takes two of them: 36 pods can have one.
const NODES: [&str; 3] = ["a", "b", "c"];

/// More pods than addresses.
const N_PODS: usize = 40;

/// Three served nodes and a pool without a free block, with a controller, a scheduler and the rule.
struct Scene {
    agents: BTreeMap<&'static str, Agent>,
    pods: Api<Pod>,
    rule: Rule,
    _readiness: JoinSet<()>,
    _scheduler: Scheduler,
    _controller: Controller,
}

impl Scene {
    async fn start(rig: &Rig) -> Result<Self> {
        install(&rig.control_plane).await?;
        // The fourth block of the range belongs to nothing.
        let cidrs = ["10.1.0.0/27", "10.1.0.32/28"];
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &cidrs)).await?;
        let flags = [PROMPT, &["--node-condition"]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let mut agents = BTreeMap::new();
        for name in NODES {
            let node = NodeSpec::new(name).label("kubernetes.io/os", "linux").label("node", name);
            rig.cluster.create_node(&node).await?;
            become_ready(rig, name).await?;
            let mut agent = rig.agents.agent_with(Make::Real, name, rig.agents.settings());
            agent.start()?;
            agents.insert(name, agent);
        }
        for (name, agent) in &mut agents {
            agent.wait_ready(SOON).await?;
            wait_shown(rig, name, "True AddressesFree").await?;
        }
        Ok(Self {
            agents,
            pods: Api::namespaced(rig.control_plane.admin.clone(), "default"),
            rule: Rule::of_examples()?,
            _readiness: readiness::start(rig)?,
            _scheduler: Scheduler::start(rig)?,
            _controller: controller,
        })
    }

    fn agent(&self, node: &str) -> Result<&Agent> {
        self.agents.get(node).with_context(|| format!("no node {node}"))
    }

    async fn create(&self, name: &str, more: Value) -> Result<()> {
        let mut spec = more;
        spec["containers"] = json!([{"name": "app", "image": "app"}]);
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    /// The node to which the scheduler has bound a pod; `None` if it has found none.
    async fn placement(&self, rig: &Rig, name: &str) -> Result<Option<String>> {
        let look = async || {
            let pod = self.pods.get(name).await?;
            if let Some(node) = pod.spec.and_then(|spec| spec.node_name) {
                return Ok(Some(node));
            }
            let mut conditions = pod.status.into_iter().filter_map(|status| status.conditions).flatten();
            let is_refused = conditions.any(|condition| condition.reason.as_deref() == Some("Unschedulable"));
            ensure!(is_refused, "the scheduler has not seen pod {name} yet");
            Ok(None)
        };
        rig.control_plane.alarm.over(eventually(SOON, look)).await
    }

    /// Returns when the scheduler has bound a pod.
    async fn wait_bound(&self, rig: &Rig, name: &str) -> Result<String> {
        let look = async || {
            self.pods.get(name).await?.spec.and_then(|spec| spec.node_name).context("it is not bound")
        };
        rig.control_plane.alarm.over(eventually(SOON, look)).await.context(name.to_owned())
    }

    /// The kubelet of the node reports that a pod has these addresses.
    async fn report_running(&self, name: &str, got: Addresses) -> Result<()> {
        let ips: Vec<IpAddr> = got.each().collect();
        let listed: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({"status": {"phase": "Running", "podIP": ips.first(), "podIPs": listed}});
        self.pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// Asks the agent of the node until the pod has an address. An error if it hangs without one.
    async fn run(&self, rig: &Rig, name: &str, node: &str) -> Result<()> {
        let got = ask(rig, self.agent(node)?, &format!("default/{name}")).await;
        self.report_running(name, got.with_context(|| format!("pod {name} hangs on node {node}"))?).await
    }

    /// Returns when the taint of a node has reached the scheduler: it refuses a pod that can run nowhere else.
    async fn wait_refused(&self, rig: &Rig, node: &str) -> Result<()> {
        let is_tainted = async || {
            let seen = rig.cluster.object(Kind::Node, node);
            Ok(seen.is_some_and(|seen| self.rule.has_tainted(&seen)))
        };
        rig.cluster.wait_until(&format!("the taint of node {node}"), SOON, is_tainted).await?;
        for round in 0.. {
            let name = format!("probe-{node}-{round}");
            self.create(&name, json!({"nodeSelector": {"node": node}})).await?;
            let placement = self.placement(rig, &name).await?;
            self.pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            if placement.is_none() {
                return Ok(());
            }
        }
        bail!("not reached")
    }

    /// The pool gets another CIDR. Returns when no node has the taint.
    async fn extend_pool(&self, rig: &Rig) -> Result<()> {
        let cidrs = json!([{"cidr": "10.1.0.0/27"}, {"cidr": "10.1.0.32/28"}, {"cidr": "10.2.0.0/24"}]);
        rig.cluster.patch_pool("p", json!({"ipv4": {"blockSize": 28, "cidrs": cidrs}})).await?;
        let is_untainted = async || {
            Ok(NODES.iter().all(|node| {
                let seen = rig.cluster.object(Kind::Node, node);
                seen.is_some_and(|seen| !self.rule.has_tainted(&seen))
            }))
        };
        rig.cluster.wait_until("all taints to be removed", SOON, is_untainted).await
    }

    /// Fails unless all pods run.
    async fn assert_all_run(&self) -> Result<()> {
        let all = self.pods.list(&kube::api::ListParams::default()).await?;
        let runs = |pod: &&Pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
        let n_running = all.items.iter().filter(runs).count();
        ensure!(n_running == N_PODS && all.items.len() == N_PODS, "{n_running} of {} run", all.items.len());
        Ok(())
    }
}

/// The steps of a kubelet and of the node lifecycle controller when a node has become ready.
async fn become_ready(rig: &Rig, name: &str) -> Result<()> {
    let allocatable = json!({"pods": "110", "cpu": "16", "memory": "64Gi"});
    let status = json!({"status": {"allocatable": allocatable, "capacity": allocatable}});
    rig.cluster.patch_status(Kind::Node, name, status).await?;
    rig.cluster.patch(Kind::Node, name, json!({"spec": {"taints": null}})).await.map(drop)
}

/// Whether a node is short of addresses, as `docs/how-to/node-condition.md` says it.
fn is_short(rig: &Rig, node: &str) -> bool {
    let published = rig.cluster.published(node).unwrap_or_default();
    let n_addresses = published.pool.len();
    n_addresses.saturating_sub(published.n_used()) < (n_addresses / 4).min(4)
}

/// A specification of pods that go to node `a` as long as they may.
fn preferring_a() -> Value {
    let is_a = json!({"matchExpressions": [{"key": "node", "operator": "In", "values": ["a"]}]});
    let preferred = json!([{"weight": 100, "preference": is_a}]);
    json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
}

/// Without the taint all pods would be bound to node `a`, and most would hang there. So each pod comes after the agents
/// have reported the last one.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_come_slowly_go_to_nodes_with_addresses_and_wait_unbound_when_none_has() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let scene = Scene::start(rig).await?;
        let (mut refused, mut tainted) = (Vec::new(), BTreeSet::new());
        let mut running: BTreeMap<String, usize> = BTreeMap::new();
        for number in 0..N_PODS {
            let name = format!("web-{number}");
            scene.create(&name, preferring_a()).await?;
            let Some(node) = scene.placement(rig, &name).await? else {
                refused.push(name);
                continue;
            };
            scene.run(rig, &name, &node).await?;
            wait_use_written(rig, scene.agent(&node)?, &node).await?;
            *running.entry(node.clone()).or_default() += 1;
            if is_short(rig, &node) && tainted.insert(node.clone()) {
                wait_shown(rig, &node, "False PoolExhausted").await?;
                scene.wait_refused(rig, &node).await?;
            }
        }
        eprintln!("{running:?} run, and {} wait unbound", refused.len());
        // A node is tainted with two free addresses, and gets no pod from then on.
        ensure!(running == NODES.map(|node| (node.to_owned(), 10)).into(), "{running:?}");
        ensure!(refused.len() == N_PODS - 30, "{refused:?}");

        scene.extend_pool(rig).await?;
        for name in &refused {
            let node = scene.wait_bound(rig, name).await?;
            scene.run(rig, name, &node).await?;
        }
        scene.assert_all_run().await?;
        Ok(scene)
    })
    .await
}

/// The scheduler binds a burst before an agent reports, so some pods hang. `status` and `why` name exactly these.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_burst_that_hang_are_named_and_run_when_the_pool_grows() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let scene = Scene::start(rig).await?;
        let names: Vec<String> = (0..N_PODS).map(|number| format!("burst-{number}")).collect();
        try_join_all(names.iter().map(|name| scene.create(name, json!({})))).await?;
        let mut hanging: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut bound = Vec::new();
        for name in &names {
            bound.push((name, scene.wait_bound(rig, name).await?));
        }
        for (name, node) in bound {
            match scene.agent(&node)?.allocate(&format!("default/{name}")).await {
                Ok(got) => scene.report_running(name, got).await?,
                Err(_full) => drop(hanging.entry(node).or_default().insert(name.clone())),
            }
        }
        let n_hanging = hanging.values().map(BTreeSet::len).sum::<usize>();
        eprintln!("{n_hanging} of {N_PODS} pods hang: {hanging:?}");
        ensure!(n_hanging >= 4, "the nodes have addresses for 36 pods: {hanging:?}");

        // A minute has passed for them.
        let since = (Timestamp::now() - SignedDuration::from_secs(120)).to_string();
        let bound = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": since});
        let patch = Patch::Strategic(json!({"status": {"conditions": [bound]}}));
        for name in hanging.values().flatten() {
            scene.pods.patch_status(name, &PatchParams::default(), &patch).await?;
        }
        let plane = &rig.control_plane;
        let status = ask_command(plane, &["status"]).await?;
        let n_pods = format!("WaitingPods: {n_hanging} pods on ");
        ensure!(status.says(&n_pods), "{}{}", status.text, status.errors);
        for node in NODES {
            let why = ask_command(plane, &["why", node, "-o", "json"]).await?.json()?;
            let found: BTreeSet<String> = why["waitingPods"]
                .as_array()
                .context("no Pods")?
                .iter()
                .filter_map(|pod| pod["name"].as_str()?.strip_prefix("default/").map(str::to_owned))
                .collect();
            ensure!(
                found == hanging.get(node).cloned().unwrap_or_default(),
                "{node}: {found:?}, {hanging:?}"
            );
        }

        scene.extend_pool(rig).await?;
        for (node, names) in &hanging {
            for name in names {
                scene.run(rig, name, node).await?;
            }
        }
        scene.assert_all_run().await?;
        Ok(scene)
    })
    .await
}
