//! `migrate next`, `migrate back` and `migrate commit`: the steps of single nodes.
//!
//! Without --yes they print the gates of a step and its commands. With --yes they write labels and annotations of Nodes
//! and delete Pods of agents, and nothing else. The gates are read anew before each write.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::check::failures;
use super::look::{Look, Reached, note};
use crate::cli::acts::{patch_params, within};
use crate::cli::answers::{Live, Source, Verdict, block_on, fields};
use crate::cli::object as names;
use crate::cli::program::program;
use crate::cli::screen::{self, Line};
use crate::cli::selector::{self, NodeSelector};
use crate::controller::client::Clients;
use crate::model::names::{NodeName, PodName, Uid, ten_of};
use crate::model::node::{self as read, HOLD_GROWTH};
use crate::publisher::ipam_mode::IpamMode;
use crate::view::moving::{Direction, Move, State, Step};

/// The pause between two looks at a node that changes.
const PAUSE: Duration = Duration::from_secs(1);

/// The writes of a step, and how long it may take.
#[derive(Debug, Clone, clap::Args)]
struct Consent {
    /// Make the steps: change labels and annotations of Nodes, and delete Pods of agents. Otherwise the commands are
    /// printed.
    #[arg(short, long)]
    yes: bool,

    /// Move nodes although `migrate check` has failures, because you know them.
    #[arg(long)]
    skip_check: bool,

    /// Stop waiting for a node after this time.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    cluster: Source,
}

/// Move nodes forward: print the gates of their next step, and its commands. With --yes, move them until they are Moved.
///
/// Without a node it takes those that are nearest to the end. With --yes it moves one after the other, reads the gates
/// anew before each write, and stops at the first node that has a closed gate or is not Moved in time.
///
/// Exit codes: 0 all gates are open or the nodes have moved, 1 a gate is closed or a node has not moved in time, 2 the
/// cluster could not be read or written.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam migrate next worker-17\n  cilium-node-ipam migrate next --batch 10 --yes\n  \
                  cilium-node-ipam migrate next --batch 10 -l topology.kubernetes.io/zone=rack-1 --yes"
)]
pub(super) struct Next {
    /// The nodes, each as a name or `node/NAME`.
    #[arg(value_name = "NODE", value_parser = names::node)]
    nodes: Vec<String>,

    /// How many nodes, where none is named.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "nodes")]
    batch: usize,

    /// Only nodes with these labels, as kubectl takes them: `KEY=VALUE`, `KEY in (VALUE, VALUE)`, `!KEY`.
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = selector::nodes, conflicts_with = "nodes")]
    selector: Option<NodeSelector>,

    #[command(flatten)]
    consent: Consent,
}

/// Return a node to its former mode: print the pods that would lose their network, and the commands.
///
/// With --yes the node returns, unless a pod would lose its network.
///
/// Exit codes: 0 it can go back or is back, 1 a gate is closed or it is not back in time, 2 the cluster could not be read
/// or written.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam migrate back worker-17 --yes")]
pub(super) struct Back {
    /// The node, as a name or `node/NAME`.
    #[arg(value_name = "NODE", value_parser = names::node)]
    node: String,

    #[command(flatten)]
    consent: Consent,
}

/// End the move of nodes: let them grow. After that, a node can go back only when its further blocks are empty.
///
/// Exit codes: 0 all of them are committed or can be, 1 one has not moved, 2 the cluster could not be read or written.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam migrate commit worker-17 --yes\n  cilium-node-ipam migrate commit -l \
                  topology.kubernetes.io/zone=rack-1 --yes\n  cilium-node-ipam migrate commit --all --yes"
)]
pub(super) struct Commit {
    /// The nodes, each as a name or `node/NAME`.
    #[arg(value_name = "NODE", value_parser = names::node, required_unless_present_any = ["all", "selector"])]
    nodes: Vec<String>,

    /// All nodes that have moved.
    #[arg(long, conflicts_with = "nodes")]
    all: bool,

    /// The nodes with these labels that have moved, as kubectl takes labels.
    #[arg(
        short = 'l', long, value_name = "LABELS", value_parser = selector::nodes, conflicts_with_all = ["nodes", "all"]
    )]
    selector: Option<NodeSelector>,

    #[command(flatten)]
    consent: Consent,
}

pub(super) fn next(args: Next) -> anyhow::Result<Verdict> {
    block_on(async move {
        let nodes: Vec<NodeName> = if args.nodes.is_empty() {
            let look = Look::at(&args.consent.cluster, None).await?;
            nearest(&look.found(args.selector.as_ref())?, args.batch)
        } else {
            args.nodes.iter().map(|name| name.as_str().into()).collect()
        };
        if nodes.is_empty() {
            let (which, flag) = match &args.selector {
                Some(selector) => (format!(" with {selector}"), format!(" -l '{selector}'")),
                None => Default::default(),
            };
            screen::note(format_args!(
                "no node{which} can make a step now: {} migrate status{flag}",
                program()
            ));
        }
        args.consent.walk(&nodes, Direction::Forth).await
    })
}

pub(super) fn back(args: Back) -> anyhow::Result<Verdict> {
    block_on(async move { args.consent.walk(&[args.node.as_str().into()], Direction::Back).await })
}

pub(super) fn commit(args: Commit) -> anyhow::Result<Verdict> {
    block_on(async move {
        let named: BTreeSet<NodeName> = args.nodes.iter().map(|name| name.as_str().into()).collect();
        let look = Look::at(&args.consent.cluster, (!named.is_empty()).then_some(&named)).await?;
        let found = look.found(args.selector.as_ref())?;
        let is_meant = |found: &&Move| {
            if named.is_empty() { found.state == State::Moved } else { named.contains(&found.node) }
        };
        let meant: Vec<&Move> = found.iter().filter(is_meant).collect();
        if let Some(missing) = named.iter().find(|name| meant.iter().all(|found| found.node != **name)) {
            bail!("Node {missing} does not exist: kubectl get nodes");
        }
        let early: Vec<&Move> = meant
            .iter()
            .copied()
            .filter(|found| !matches!(found.state, State::Moved | State::Committed))
            .collect();
        if !early.is_empty() {
            let shown = early.iter().map(|found| format!("{} is {}", found.node, found.state.as_str()));
            screen::note(format_args!("nothing was written: not moved yet: {}", ten_of(shown)));
            return Ok(Verdict::Found);
        }
        let is_left_out = |found: &&Move| {
            named.is_empty()
                && found.is_held
                && found.mode == Ok(IpamMode::Crd)
                && found.state != State::Moved
        };
        let left_out: Vec<&Move> = found.iter().filter(is_left_out).collect();
        if !left_out.is_empty() {
            let shown = left_out.iter().map(|found| format!("{} is {}", found.node, found.state.as_str()));
            screen::note(format_args!("left out, because they have not moved: {}", ten_of(shown)));
        }
        let is_in_scope = |found: &&Move| named.is_empty() || named.contains(&found.node);
        let are_committed = found.iter().filter(is_in_scope).all(|found| found.state == State::Committed);
        let moved: Vec<&Move> = meant.into_iter().filter(|found| found.state == State::Moved).collect();
        let commands: Vec<String> = moved
            .iter()
            .flat_map(|found| {
                Step::Commit.commands(&found.node, &args.consent.cluster.access.cilium_namespace)
            })
            .collect();
        if args.consent.yes {
            let clients = clients(&look.listed.live)?;
            for found in &moved {
                let node = look.listed.world.node(&found.node).context("it was listed")?;
                if !patch(clients, node, json!({"annotations": {HOLD_GROWTH: null}})).await? {
                    bail!("Node {} has changed since it was read: run the command again", node.name);
                }
                note(&found.node, "Committed");
            }
        }
        let object = json!({
            "nodes": moved.iter().map(|found| found.node.as_str()).collect::<Vec<_>>(), "commands": commands,
            "written": args.consent.yes && !moved.is_empty(),
        });
        args.consent.cluster.print("MigrationCommit", fields(object), || {
            match (moved.is_empty(), args.consent.yes) {
                (true, _) if are_committed => vec![Line::from("All of them are committed.")],
                (true, _) => vec![Line::from("None of them is Moved.")],
                (false, true) => Vec::new(),
                (false, false) => commands.iter().map(|command| Line::from(format!("  {command}"))).collect(),
            }
        })?;
        Ok(if left_out.is_empty() { Verdict::Fine } else { Verdict::Found })
    })
}

/// The nodes that are nearest to the end, of those whose next step a person makes.
fn nearest(found: &[Move], n_most: usize) -> Vec<NodeName> {
    let of_state = |state: State| found.iter().filter(move |found| found.state == state);
    of_state(State::Prepared)
        .chain(of_state(State::Claimed))
        .take(n_most)
        .map(|found| found.node.clone())
        .collect()
}

impl Consent {
    /// The steps of these nodes: printed, or made one node after the other.
    async fn walk(&self, nodes: &[NodeName], direction: Direction) -> anyhow::Result<Verdict> {
        if self.yes && direction == Direction::Forth && !self.skip_check && !nodes.is_empty() {
            let failed = failures(&self.cluster.cluster).await?;
            if !failed.is_empty() {
                screen::note(format_args!(
                    "nothing was written: {} migrate check fails at {}; --skip-check moves the nodes all the same",
                    program(),
                    ten_of(failed.iter().map(|line| line.point.as_str()))
                ));
                return Ok(Verdict::Found);
            }
        }
        let (mut lines, mut objects) = (Vec::new(), Vec::new());
        let mut verdict = Verdict::Fine;
        for node in nodes {
            let reached = if self.yes {
                self.make_steps(node, direction).await?
            } else {
                self.look_at(node, direction).await?.1
            };
            let is_done = match reached.step {
                Step::Rest | Step::Commit | Step::Rejoin(_) => true,
                Step::Label(..) | Step::Restart(..) | Step::Await(_) => !self.yes,
                Step::Act(_) => false,
            };
            lines.extend(reached.lines(&self.cluster.access.cilium_namespace));
            objects.push(reached.object(&self.cluster.access.cilium_namespace));
            if !is_done || !reached.is_open() {
                verdict = Verdict::Found;
                if self.yes {
                    break;
                }
            }
        }
        let shown = json!({"nodes": objects});
        self.cluster.print("MigrationStep", fields(shown), || lines)?;
        Ok(verdict)
    }

    async fn look_at(&self, name: &NodeName, direction: Direction) -> anyhow::Result<(Box<Look>, Reached)> {
        // A future of every step would have it otherwise.
        let look = Box::new(Box::pin(Look::at(&self.cluster, Some(&[name.clone()].into()))).await?);
        let Some(node) = look.listed.world.node(name) else {
            bail!("Node {name} does not exist: kubectl get nodes")
        };
        let found = look.moves()?.of_node(node, &look.pods);
        let rejoined = |name: &NodeName| {
            look.listed.rejoined(std::slice::from_ref(name)).remove(name).unwrap_or_default()
        };
        let reached = Reached::of(&look, found, direction, rejoined)?.context("the Node was listed")?;
        Ok((look, reached))
    }

    /// Makes steps until none is left that a person makes, a gate is closed, or the time is over.
    async fn make_steps(&self, node: &NodeName, direction: Direction) -> anyhow::Result<Reached> {
        let began = tokio::time::Instant::now();
        let mut noted = String::new();
        loop {
            let (look, next) = self.look_at(node, direction).await?;
            let closed = next.gates.iter().filter(|gate| !gate.is_open());
            let closed: Vec<String> = closed.map(|gate| format!("; {}: {}", gate.name, gate.text)).collect();
            let closed = closed.concat();
            let now = format!("{}, {}{closed}", next.found.state.as_str(), next.step.in_words());
            if now != noted {
                note(node, &now);
                noted = now;
            }
            let clients = clients(&look.listed.live)?;
            let object = look.listed.world.node(node).context("it was listed")?;
            match &next.step {
                _ if !next.is_open() && !matches!(next.step, Step::Await(_)) => return Ok(next),
                // Also a write that other writers overtake again and again.
                Step::Await(_) | Step::Label(..) | Step::Restart(..) if began.elapsed() >= self.timeout => {
                    return Ok(next);
                }
                Step::Await(_) => {}
                // The node is back, and nothing holds its growth any more.
                Step::Commit if direction == Direction::Back => {
                    patch(clients, object, json!({"annotations": {HOLD_GROWTH: null}})).await?;
                }
                Step::Rest | Step::Commit | Step::Rejoin(_) | Step::Act(_) => return Ok(next),
                Step::Label(change, before) => {
                    let metadata = json!({
                        "labels": {change.key.as_str(): change.value},
                        "annotations": {HOLD_GROWTH: before.to_string()},
                    });
                    patch(clients, object, metadata).await?;
                }
                Step::Restart(pod, before) => {
                    let hold = before.to_string();
                    let namespace = &self.cluster.access.cilium_namespace;
                    // The gates are read again behind the write.
                    if object.growth_hold.as_ref() != Some(&hold) {
                        patch(clients, object, json!({"annotations": {HOLD_GROWTH: hold}})).await?;
                    } else if let Some(uid) = &before.pod
                        && delete_agent(clients, namespace, pod, uid).await?
                    {
                        self.until_gone(node, uid, began).await?;
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until this Pod of the agent is gone: until then it is not deleted again.
    async fn until_gone(
        &self,
        node: &NodeName,
        uid: &Uid,
        began: tokio::time::Instant,
    ) -> anyhow::Result<()> {
        loop {
            let look = Look::at(&self.cluster, Some(&[node.clone()].into())).await?;
            let is_gone = look.listed.world.agents_on(node).all(|pod| pod.uid != *uid);
            if is_gone {
                return Ok(());
            }
            if began.elapsed() >= self.timeout {
                bail!(
                    "the Pod of the agent of {node} was deleted and does not end: kubectl get pods -o wide"
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The clients of a cluster, which a step writes to.
fn clients(live: &Live) -> anyhow::Result<&Clients> {
    match live {
        Live::Cluster(clients) => Ok(clients),
        Live::Files { .. } => bail!("--yes writes to a cluster, and --from reads files: leave one out"),
    }
}

/// Changes the metadata of a Node in the version that was read. Returns `false` if it has changed since.
async fn patch(clients: &Clients, node: &read::Node, mut metadata: Value) -> anyhow::Result<bool> {
    metadata["uid"] = node.uid.as_str().into();
    metadata["resourceVersion"] = node.revision.to_string().into();
    let api: Api<Node> = Api::all(clients.writes.clone());
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let params = patch_params();
    let write = async {
        match api.patch(node.name.as_str(), &params, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            answer => answer.map(|_| true),
        }
    };
    within(clients, &format!("Node {}", node.name), write).await
}

/// Deletes the Pod of an agent. Returns `false` if another one has taken its place.
async fn delete_agent(clients: &Clients, namespace: &str, pod: &PodName, uid: &Uid) -> anyhow::Result<bool> {
    let api: Api<Pod> = Api::namespaced(clients.writes.clone(), namespace);
    let preconditions = Preconditions { uid: Some(uid.as_str().to_owned()), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let delete = async {
        match api.delete(pod.as_str(), &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            answer => answer.map(|_| true),
        }
    };
    within(clients, &format!("Pod {namespace}/{pod}"), delete).await
}
