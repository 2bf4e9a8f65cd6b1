//! Routes in a real router: frr-k8s's own daemons turn FRRConfigurations into FRR's configuration. The nodes are
//! network namespaces, with a BIRD as their peer.
//!
//! At each quiet point the router has exactly the prefixes that the claims say, by the right nodes. Its log says that
//! it never had one by way of two.

mod at_length;
mod incident;
pub(crate) mod oracle;
mod racks;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::process::Command;
use tokio::sync::watch;

use self::oracle::{assert_never_two_ways, assert_no_flap, wait_right};
use crate::agent_pods::{self, create_agent_pod, report};
use crate::routes::{NAMESPACE, create_configuration, flags, node, options};
use crate::scene::{insist, insist_for};
use crate::support::agent::Agent;
use crate::support::control_plane::{Options, tool};
use crate::support::controller::Controller;
use crate::support::families::Families;
use crate::support::kubelet::Health;
use crate::support::lab::{Lab, ROUTER, Sessions};
use crate::support::objects::PoolSpec;
use crate::support::peer::{Heard, Peer};
use crate::support::rig::{Rig, under_oracle};

/// A daemon reports its configuration every 30 s, so a release takes longer than elsewhere.
const RELEASES_WITHIN: Duration = Duration::from_secs(300);

/// Until another node has the blocks of one that lost them: the proof that the route is gone, and the cooling.
const MOVES_WITHIN: Duration = Duration::from_secs(150);

/// The cluster, the network, and the programs of frr-k8s.
struct Scene {
    lab: Lab,
    _frr_k8s: Peer,
    agents: BTreeMap<String, Agent>,
}

impl Scene {
    async fn start(rig: &Rig) -> Result<Self> {
        Self::start_with(rig, Sessions::Drop).await
    }

    async fn start_with(rig: &Rig, sessions: Sessions) -> Result<Self> {
        rig.control_plane.limit_releasing(RELEASES_WITHIN).await?;
        let frr_k8s = frr_k8s(rig).await?;
        create_template(rig).await?;
        Ok(Self { lab: Lab::start(rig, sessions).await?, _frr_k8s: frr_k8s, agents: BTreeMap::new() })
    }

    /// A node joins, with the Pod of frr-k8s and Cilium's agent.
    async fn join(&mut self, rig: &Rig, name: &str) -> Result<()> {
        self.join_without_agent(rig, name).await?;
        self.start_agent(rig, name).await
    }

    async fn start_agent(&mut self, rig: &Rig, name: &str) -> Result<()> {
        let mut agent = rig.agents.fake(name);
        agent.start()?;
        let pod = format!("cilium-{name}");
        create_agent_pod(rig, &pod, name, rig.agents.settings().release.as_str()).await?;
        report(rig, &pod, 0, Health::Ready).await?;
        self.agents.insert(name.to_owned(), Agent::Fake(agent));
        Ok(())
    }

    async fn join_without_agent(&self, rig: &Rig, name: &str) -> Result<()> {
        rig.cluster.create_node(&node(name)).await?;
        create_frr_k8s_pod(rig, name).await?;
        self.lab.power_on(rig, name).await
    }

    /// A node is lost with its pods, and its Node and Pods are deleted.
    async fn lose(&mut self, rig: &Rig, name: &str) -> Result<()> {
        self.lab.act("stop", name).await?;
        match self.agents.remove(name).with_context(|| format!("{name} has no agent"))? {
            Agent::Fake(agent) => agent.power_off().await,
            Agent::Real(_) => unreachable!("all agents here are imitations"),
        }
        rig.cluster.delete_node(name).await?;
        let now = DeleteParams::default().grace_period(0);
        pods(rig).delete(&format!("frr-k8s-{name}"), &now).await?;
        agent_pods::delete_at_once(rig, &format!("cilium-{name}")).await
    }

    /// Starts pods on a node until it has this number of blocks of each family. Returns the number of its pods
    /// `ns/many-0`, ….
    async fn grow(&self, rig: &Rig, name: &str, n_blocks: usize) -> Result<usize> {
        let agent = self.agents.get(name).with_context(|| format!("{name} has no agent"))?;
        let n_pods = Cell::new(0);
        insist_for(rig, MOVES_WITHIN, async || {
            let blocks = rig.cluster.published(name).unwrap_or_default().pod_cidrs;
            let n_families = rig.control_plane.options.families.each().count();
            if blocks.len() >= n_blocks * n_families {
                return Ok(());
            }
            // One more than there is room for makes the node grow.
            if agent.allocate(&format!("ns/many-{}", n_pods.get())).await.is_ok() {
                n_pods.set(n_pods.get() + 1);
            }
            bail!("{name} has {blocks:?} and {} pods", n_pods.get())
        })
        .await?;
        Ok(n_pods.get())
    }
}

/// The Pod of the frr-k8s daemon of a node. The webhook looks for it.
async fn create_frr_k8s_pod(rig: &Rig, node: &str) -> Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": format!("frr-k8s-{node}"), "labels": {"app.kubernetes.io/component": "frr-k8s"}},
        "spec": {"nodeName": node, "containers": [{"name": "frr", "image": "frr"}]},
    }))?;
    pods(rig).create(&PostParams::default(), &pod).await?;
    Ok(())
}

fn pods(rig: &Rig) -> Api<Pod> {
    Api::namespaced(rig.cluster.client.clone(), NAMESPACE)
}

/// The webhook of frr-k8s, and its cleaner of FRRNodeStates.
async fn frr_k8s(rig: &Rig) -> Result<Peer> {
    rig.control_plane.keep_to_this_test();
    let mut command = Command::new(tool("NODEIPAM_FRR_K8S_WEBHOOK", "frr-k8s-webhook"));
    command.arg("serve").arg(&rig.control_plane.admin_kubeconfig).arg(NAMESPACE);
    let (said, mut saying) = watch::channel(false);
    let alarm = rig.control_plane.alarm.clone();
    let log = rig.control_plane.dir().join("frr-k8s-webhook.log");
    let peer = Peer::start("frr-k8s's webhook", command, &log, move |heard| match heard {
        Heard::Event(_) => drop(said.send_replace(true)),
        Heard::Ended => alarm.raise("frr-k8s's webhook has ended by itself"),
    })?;
    let ready = async { saying.wait_for(|ready| *ready).await.context("it has ended").map(drop) };
    rig.control_plane.alarm.over(ready).await?;
    Ok(peer)
}

async fn create_template(rig: &Rig) -> Result<()> {
    let neighbors: Vec<_> = ROUTER
        .iter()
        .map(|address| {
            json!({"address": address, "asn": 64513, "holdTime": "30s", "keepaliveTime": "10s", "connectTime": "1s"})
        })
        .collect();
    let spec = json!({
        "nodeSelector": {"matchLabels": {"nodeipam.io/template": "true"}},
        "bgp": {"routers": [{"asn": 64512, "neighbors": neighbors}]},
    });
    // The webhook serves when its watches are up.
    insist(rig, async || create_configuration(rig, "template", spec.clone()).await).await.map(drop)
}

fn dual() -> Options {
    Options { families: Families::Dual, ..options() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_has_what_nodes_hold() -> Result<()> {
    under_oracle(dual(), async |rig| {
        let mut scene = Scene::start(rig).await?;
        // Six blocks of each family; a node has two at most.
        let pool = PoolSpec::new("p")
            .ipv4(28, &["10.1.0.0/27", "10.1.0.64/26"])
            .ipv6(124, &["fd00:1::/123", "fd00:1::40/122"])
            .with("perNode", json!({"maxBlocks": 2}))
            // Longer than the session of a lost node lasts.
            .with("reuseAfterNodeLoss", "45s");
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        for name in ["a", "b", "c"] {
            scene.join(rig, name).await?;
        }
        wait_right(rig, &scene.lab, 3).await?;
        let before = assert_never_two_ways(&scene.lab).await?;

        // Nodes grow.
        for name in ["a", "b", "c"] {
            scene.grow(rig, name, 2).await?;
        }
        // Each into the buddy of its first block, so the router still has one route per node and family.
        let routes = wait_right(rig, &scene.lab, 3).await?;
        ensure!(routes.len() == 6, "{routes:#?}");

        // The controller is killed. The next one finds all as it should be.
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;

        // A node is lost, and another takes its place. It gets the blocks of the lost one, because there are no others.
        rig.excuse("d");
        scene.join(rig, "d").await?;
        let of_lost = rig.cluster.claims_of("a");
        scene.lose(rig, "a").await?;
        insist_for(rig, MOVES_WITHIN, async || {
            let claims = rig.cluster.claims_of("d");
            let are_its = claims.iter().all(|claim| of_lost.iter().any(|lost| lost.cidr == claim.cidr));
            ensure!(claims.len() >= 2 && are_its, "{claims:?} of {of_lost:?}");
            Ok(())
        })
        .await?;
        wait_right(rig, &scene.lab, 3).await?;
        for name in ["b", "c"] {
            assert_no_flap(&scene.lab, name, before).await?;
        }
        assert_never_two_ways(&scene.lab).await?;
        Ok((controller, scene))
    })
    .await
}
