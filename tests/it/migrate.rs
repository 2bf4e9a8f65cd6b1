//! A running cluster moves from cluster-pool or kubernetes to crd by the commands of `migrate`, node by node, with Cilium's
//! own operator and agents. No pod loses its network.
//!
//! No DaemonSet runs here, so each test plays its part: it replaces a Pod of an agent that was deleted, with an agent in
//! the mode that the label of its Node says.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::agent_pods::{create_agent_pod, delete_at_once, pods, report};
use crate::answers::{Said, ask as run};
use crate::migration::{set_ipam, wait_passive};
use crate::multi_pool::SLOW;
use crate::scene::{PROMPT, SOON, ask, wait_claims_carried};
use crate::support::agent::{Agent, Make, Release, Settings};
use crate::support::cilium_operator::CiliumOperator;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::{Health, create_running};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::KUBERNETES_MODE;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

const CLUSTER_POOL: &str = "cluster-pool";
const KUBERNETES: &str = "kubernetes";
const CRD: &str = "crd";
const NODES: [&str; 3] = ["a", "b", "c"];

/// The ranges of the operator, as flags and as `cilium-config` has them.
const RANGES: [(&str, &str); 4] = [
    ("cluster-pool-ipv4-cidr", "10.9.0.0/16"),
    ("cluster-pool-ipv4-mask-size", "27"),
    ("cluster-pool-ipv6-cidr", "fd00:9::/112"),
    ("cluster-pool-ipv6-mask-size", "123"),
];

/// The settings of Cilium with which agents can run in the mode crd.
const FOR_CRD: [(&str, &str); 6] = [
    ("routing-mode", "native"),
    ("enable-endpoint-routes", "true"),
    ("enable-ipv4-masquerade", "false"),
    ("enable-ipv6-masquerade", "false"),
    ("ipv4-native-routing-cidr", "10.0.0.0/8"),
    ("ipv6-native-routing-cidr", "fd00::/16"),
];

/// The agent of a node, and the number of its Pods so far.
struct Daemon {
    agent: Agent,
    /// The mode in which it runs without a label.
    from: &'static str,
    release: Release,
    n_pods: usize,
}

type Daemons = BTreeMap<&'static str, Daemon>;

impl Daemon {
    fn pod(node: &str, number: usize) -> String {
        format!("cilium-{node}-{number}")
    }

    async fn create_pod(&mut self, rig: &Rig, node: &str) -> Result<()> {
        self.n_pods += 1;
        let pod = Self::pod(node, self.n_pods);
        create_agent_pod(rig, &pod, node, self.release.as_str()).await?;
        report(rig, &pod, 0, Health::Ready).await
    }

    /// Waits until the Pod of the agent is deleted, and starts the next one.
    async fn replace(&mut self, rig: &Rig, node: &str) -> Result<()> {
        let pod = Self::pod(node, self.n_pods);
        eventually(SLOW, async || {
            let found = pods(rig).get(&pod).await?;
            ensure!(found.metadata.deletion_timestamp.is_some(), "Pod {pod} is not deleted");
            Ok(())
        })
        .await?;
        let labels = rig.cluster.read(Kind::Node, node).await?.metadata.labels.unwrap_or_default();
        let mode =
            if labels.get("nodeipam.io/ipam").is_some_and(|mode| mode == CRD) { CRD } else { self.from };
        self.agent.change_mode(mode)?;
        delete_at_once(rig, &pod).await?;
        self.agent.restart_and_restore(SLOW).await?;
        self.create_pod(rig, node).await
    }
}

/// Runs a command, while the Pods of these agents are replaced in turn.
async fn run_while(
    rig: &Rig,
    daemons: &mut Daemons,
    command: &[&str],
    restarts: &[&'static str],
) -> Result<Said> {
    let replaced = async {
        for node in restarts {
            daemons.get_mut(node).context("no such node")?.replace(rig, node).await?;
        }
        Ok::<(), anyhow::Error>(())
    };
    let said = run(&rig.control_plane, command);
    tokio::pin!(said, replaced);
    tokio::select! {
        said = &mut said => {
            let said = said?;
            if said.code == Some(0) {
                replaced.await.with_context(|| format!("{command:?}: {}{}", said.text, said.errors))?;
            }
            Ok(said)
        }
        replaced = &mut replaced => {
            replaced?;
            said.await
        }
    }
}

/// Runs a command that has to end with this code.
async fn expect(rig: &Rig, command: &[&str], code: i32) -> Result<Said> {
    let said = run(&rig.control_plane, command).await?;
    ensure!(said.code == Some(code), "{command:?}: {:?} {}{}", said.code, said.text, said.errors);
    Ok(said)
}

/// Fails unless this text was printed.
fn says(said: &Said, text: &str) -> Result<()> {
    ensure!(said.says(text), "no {text:?} in:\n{}{}", said.text, said.errors);
    Ok(())
}

/// A pod with the addresses that the agent of its node gives it, as agent and API server know it.
async fn start_pod(rig: &Rig, daemons: &Daemons, node: &'static str, name: &str) -> Result<()> {
    let agent = &daemons[node].agent;
    let addresses: Vec<_> = ask(rig, agent, &format!("default/{name}")).await?.each().collect();
    let of_default: Api<Pod> = Api::default_namespaced(rig.cluster.client.clone());
    create_running(&of_default, name, node, &addresses).await
}

/// Sets these keys of `cilium-config`.
async fn configure(rig: &Rig, data: BTreeMap<&str, &str>) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    api.patch("cilium-config", &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await?;
    Ok(())
}

/// Nodes with blocks of another allocator, agents in the mode of that allocator, and pods.
async fn served_before(rig: &Rig, from: &'static str, release: Release) -> Result<Daemons> {
    set_ipam(rig, from).await?;
    configure(rig, RANGES.into()).await?;
    let flags: Vec<String> =
        RANGES.iter().flat_map(|(key, value)| [format!("--{key}"), (*value).to_owned()]).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let operator = match from {
        CLUSTER_POOL => Some(CiliumOperator::start(rig, CLUSTER_POOL, &flags).await?),
        _ => None,
    };
    let mut daemons = Daemons::new();
    for (number, node) in NODES.into_iter().enumerate() {
        rig.cluster.create_node(&NodeSpec::new(node)).await?;
        if from == KUBERNETES {
            // As kube-controller-manager does it.
            let first = 32 * (number + 1);
            let cidrs = [format!("10.9.0.{first}/27"), format!("fd00:9::{first:x}/123")];
            let given = json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}});
            rig.cluster.patch(Kind::Node, node, given).await?;
        }
        let settings = Settings { ipam: from, release, ..rig.agents.settings() };
        let mut agent = rig.agents.agent_with(Make::Real, node, settings);
        agent.start()?;
        agent.wait_ready(SLOW).await?;
        let mut daemon = Daemon { agent, from, release, n_pods: 0 };
        daemon.create_pod(rig, node).await?;
        daemons.insert(node, daemon);
        for number in 0..4 {
            start_pod(rig, &daemons, node, &format!("{node}-{number}")).await?;
        }
    }
    if let Some(operator) = operator {
        operator.end().await?;
    }
    Ok(daemons)
}

/// The agent of a node restarts by chance, when the addresses of the node are on its CiliumNode.
async fn restarts_by_chance(rig: &Rig, daemons: &mut Daemons, node: &'static str) -> Result<()> {
    let hold = ["annotate", "node", node, "nodeipam.io/hold-growth="];
    kubectl(&rig.control_plane, &hold).await?;
    kubectl(&rig.control_plane, &["label", "node", node, "nodeipam.io/ipam=crd"]).await?;
    rig.cluster.wait_published(node, "its addresses", SOON, |seen: &Published| !seen.pool.is_empty()).await?;
    let daemon = daemons.get_mut(node).context("no such node")?;
    let pod = Daemon::pod(node, daemon.n_pods);
    pods(rig).delete(&pod, &DeleteParams::default()).await?;
    daemon.replace(rig, node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_moves_and_one_node_goes_back_in_between() -> Result<()> {
    moves(CLUSTER_POOL, Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_mode_kubernetes_moves() -> Result<()> {
    moves(KUBERNETES, Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_moves_with_agents_of_1_17() -> Result<()> {
    moves(CLUSTER_POOL, Release::V1_17).await
}

async fn moves(from: &'static str, release: Release) -> Result<()> {
    under_oracle(Options { ipam: CRD, families: Families::Dual, ..Options::default() }, async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        if from == KUBERNETES {
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", KUBERNETES_MODE];
            kubectl(&rig.control_plane, &apply).await?;
        }
        let mut daemons = served_before(rig, from, release).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Foreign")?;

        let folder = tempfile::tempdir()?;
        let out = folder.path().join("move").to_string_lossy().into_owned();
        expect(rig, &["migrate", "init", "--out", &out], 0).await?;
        let pools = std::fs::read_to_string(folder.path().join("move/pools.yaml"))?;
        for part in ["blockSize: 27", "10.9.0.", "blockSize: 123", "fd00:9::", "state: Cordoned"] {
            ensure!(pools.contains(part), "no {part:?} in {pools}");
        }
        let again = expect(rig, &["migrate", "init", "--out", &out], 2).await?;
        ensure!(again.errors.contains("can't create"), "{}", again.errors);
        let files = [format!("{out}/pools.yaml"), format!("{out}/ciliumnodeconfig.yaml")];
        kubectl(&rig.control_plane, &["apply", "-f", &files[0], "-f", &files[1]]).await?;
        rig.cluster
            .create_pool(&PoolSpec::new("rack").ipv4(28, &["10.64.0.0/24"]).ipv6(124, &["fd00:64::/112"]))
            .await?;
        let flags = [PROMPT, &["--modes", from, "--modes", CRD]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        wait_claims_carried(rig).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Claimed")?;
        let shown = expect(rig, &["migrate", "next", "a"], 0).await?;
        says(&shown, "kubectl label node a --overwrite nodeipam.io/ipam=crd")?;

        // The settings of Cilium must fit the mode crd.
        configure(rig, [("enable-endpoint-routes", "false")].into()).await?;
        let refused = expect(rig, &["migrate", "next", "a", "--yes", "--timeout", "20s"], 1).await?;
        ensure!(refused.errors.contains("migrate check fails at endpoint-routes"), "{}", refused.errors);
        expect(rig, &["migrate", "check"], 1).await?;
        configure(rig, FOR_CRD.into()).await?;

        // Forth, back, and forth again.
        let next = ["migrate", "next", "a", "--yes", "--timeout", "150s"];
        let back = ["migrate", "back", "a", "--yes", "--timeout", "150s"];
        for (command, state) in [(next, "a: Moved"), (back, "a: Claimed"), (next, "a: Moved")] {
            let said = run_while(rig, &mut daemons, &command, &["a"]).await?;
            ensure!(said.code == Some(0) && said.text.contains(state), "{}{}", said.text, said.errors);
        }
        restarts_by_chance(rig, &mut daemons, "b").await?;
        let batch = ["migrate", "next", "--batch", "2", "--yes", "--timeout", "150s"];
        // The controller may be gone at any time.
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let said = run_while(rig, &mut daemons, &batch, &["b", "c"]).await?;
        ensure!(said.code == Some(0), "{}{}", said.text, said.errors);
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Moved")?;

        // A full node grows when a person commits its move.
        let a = &daemons["a"].agent;
        while a.allocate_many("default/more-", 1).await?.error.is_none() {}
        eventually(SOON, async || {
            let full = expect(rig, &["migrate", "status"], 1).await?;
            says(&full, "a: it needs more addresses, and its growth is held")
        })
        .await?;
        ensure!(rig.cluster.claims_of("a").len() == 2, "{:?}", rig.cluster.claims_of("a"));
        expect(rig, &["migrate", "commit", "--all", "--yes"], 0).await?;
        start_pod(rig, &daemons, "a", "grown").await?;
        let lost = expect(rig, &["migrate", "back", "a"], 1).await?;
        says(&lost, "1 pod would lose their network: default/grown")?;

        // Now all nodes have the mode that `cilium-config` says.
        set_ipam(rig, CRD).await?;
        wait_passive(rig, &controller, from, CRD).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        for node in NODES {
            daemons.get_mut(node).context("it is there")?.agent.restart_and_restore(SLOW).await?;
        }
        wait_claims_carried(rig).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Committed")?;
        let agents: Vec<Agent> = daemons.into_values().map(|daemon| daemon.agent).collect();
        Ok((controller, agents))
    })
    .await
}
