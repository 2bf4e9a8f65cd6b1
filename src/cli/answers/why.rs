//! `cilium-node-ipam why`: the reasons for the blocks of a node, and for its wait.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use serde_json::{Value, json};

use super::super::object;
use super::super::screen::{self, Line};
use super::around::Objects;
use super::pods::{add_pods, is_of_pods};
use super::status::since;
use super::{Cluster, Listed, Live, Source, Verdict, block_on, fields};
use crate::model::claim::{Claim, ClaimState, block_name};
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName, ten_of};
use crate::model::node::Node;
use crate::model::plan::{self, NodePlan, Refusal, WhyNot};
use crate::model::pool::{Pool, SizeSource};
use crate::model::request::Request;
use crate::model::surroundings::{Surroundings, WaitingPod};
use crate::model::time::Timestamp;
use crate::net::cidr::Cidr;
use crate::plan::{why_no_block, why_no_pool};
use crate::view::duplicates::{DUPLICATE_ADDRESSES, duplicates};
use crate::view::findings::of_world;
use crate::view::max_pods::{self, Excess, MAX_PODS};
use crate::view::overview::remedy_for;
use crate::view::waiting_pods::{self, WAITING_PODS};
use crate::view::{failures, late, waits, who};
use crate::world::World;

/// Explain one node: its labels, its pools and their verdicts, its blocks, and the reason why it waits.
///
/// It reads the cluster once and decides with the controller's own planner.
///
/// Exit codes: 0 the node has all its blocks, 1 it waits for one, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam why worker-17")]
pub struct Args {
    /// The name of the Node, or `node/NAME`.
    #[arg(value_name = "NODE", value_parser = object::node)]
    node: String,

    #[command(flatten)]
    cluster: Source,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let listed = args.cluster.list().await?;
        let node = NodeName::from(args.node.as_str());
        let mut objects = match &listed.live {
            Live::Cluster(_) => Objects::default(),
            Live::Files { objects, .. } => objects.clone(),
        };
        add_pods(&listed.live, &[node.clone()].into(), &BTreeSet::new(), &mut objects).await?;
        let cilium_namespace = match &listed.live {
            Live::Cluster(_) => &args.cluster.access.cilium_namespace,
            Live::Files { cilium_namespace, .. } => cilium_namespace,
        };
        let Some(reason) = Reason::of(&listed, &node, &objects.around, cilium_namespace) else {
            bail!("neither Node {node} nor a claim of it exists: kubectl get nodes");
        };
        for skipped in objects.skipped.iter().filter(|skipped| is_of_pods(skipped)) {
            screen::note(format_args!("not seen: {skipped}"));
        }
        args.cluster.print("Why", fields(reason.object()), || reason.text(&args.cluster, listed.now.wall))?;
        Ok(if reason.waits.is_empty() { Verdict::Fine } else { Verdict::Found })
    })
}

/// The width of a label.
const LABEL: usize = 10;

/// The answer for one node.
struct Reason {
    node: NodeName,
    labels: Vec<String>,
    /// The pools that select it, in the order in which it asks them.
    pools: Vec<String>,
    /// Its blocks, each with its state and a sentence. The addresses on its carrier without a claim follow.
    blocks: Vec<who::Answer>,
    carrier: Option<&'static str>,
    agent: String,
    /// Since when each of its blocks is in its state.
    since: BTreeMap<Cidr, Timestamp>,
    /// The causes of its waits, the most specific first.
    waits: Vec<String>,
    /// Since when it waits, and the object that says so.
    waits_since: Option<(Timestamp, String)>,
    /// Why each pool gives nothing.
    refusals: Vec<String>,
    /// Those of them that `waits` does not name.
    further_refusals: Vec<String>,
    findings: Vec<String>,
    /// The findings about the node that are information.
    notes: Vec<String>,
    /// The next steps of the controller.
    next: Vec<String>,
    /// The commands that a person may run next.
    commands: Vec<String>,
    /// The Pods that are bound to it and have had no address for too long.
    waiting_pods: Vec<WaitingPod>,
}

/// The agent of a node: its version, or why it can't be asked.
fn agent(world: &World, node: &NodeName) -> String {
    match world.agent_on(node) {
        Ok(_) => match world.support(node).1 {
            Some(release) => format!("Cilium {release}, ready"),
            None => "ready, of unknown version".to_owned(),
        },
        Err(why) => why.to_string(),
    }
}

/// All problems of a node, with these of its plan.
fn problems(
    world: &World,
    node: &NodeName,
    of_plan: Vec<String>,
    waiting_pods: &[WaitingPod],
) -> Vec<String> {
    let shared = duplicates(world).into_iter().filter(|found| [&found.node, &found.other].contains(&node));
    let shared = shared.map(|found| format!("{DUPLICATE_ADDRESSES}: {}", found.seen_from(node, world)));
    // Writes that fail are in the plan already, with those that come next.
    let is_of_node = |finding: &Finding| {
        finding.name == node.as_str()
            && (finding.subject == Kind::CiliumNode.into() || finding.subject == Kind::Node.into())
            && finding.kind != FindingKind::WriteFailed
    };
    let of_world = of_world(world).filter(is_of_node);
    let of_world = of_world.map(|finding| format!("{}: {}", finding.kind.as_str(), finding.message));
    let excess = max_pods::excess(world, node);
    let excess = excess.map(|excess| format!("{MAX_PODS}: {excess}; {}", Excess::remedy()));
    shared.chain(of_plan).chain(of_world).chain(excess).chain(hanging(waiting_pods)).collect()
}

/// The sentence about the Pods of a node that have no address.
fn hanging(pods: &[WaitingPod]) -> Option<String> {
    let names = ten_of(pods.iter().map(|pod| &pod.name));
    let (n_pods, within) = (counted(pods.len(), "pod"), waiting_pods::WITHIN.as_secs());
    (!pods.is_empty()).then(|| {
        format!(
            "{WAITING_PODS}: {n_pods} without an address, more than {within} s after the binding: {names}"
        )
    })
}

/// The pools that give no node anything, because they can't be read.
fn unreadable_pools(world: &World) -> impl Iterator<Item = Refusal> {
    let unreadable = world.pool_objects().filter(|object| object.pool.is_err());
    unreadable.map(|object| Refusal { pool: object.name.clone(), family: None, reason: WhyNot::Invalid })
}

/// Whether one of these waits names a refusal.
fn names(waits: &[String], refusal: &Refusal) -> bool {
    let named = format!("pool {} ({})", refusal.pool, refusal.reason);
    waits.iter().any(|wait| wait.contains(&named))
}

impl Reason {
    fn of(listed: &Listed, node: &NodeName, around: &Surroundings, cilium_namespace: &str) -> Option<Self> {
        let world = &listed.world;
        let pods = &around.by_address();
        let object = world.node(node);
        let plan: Option<&NodePlan> = listed.plans.iter().find(|plan| plan.node == *node);
        if object.is_none() && world.claims_of(node).next().is_none() {
            return None;
        }
        let labels = object.into_iter().flat_map(|node| &node.labels);
        let labels = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let mut waits = Vec::new();
        let (mut refusals, mut further_refusals) = (Vec::new(), Vec::new());
        let (mut findings, mut next, mut commands) = (Vec::new(), Vec::new(), Vec::new());
        let mut notes = Vec::new();
        if let Some(plan) = plan {
            let has_no_pool = world.pools_of(node).next().is_none();
            if has_no_pool && object.is_some_and(Node::runs_linux) {
                waits.push(why_no_pool(world, node));
                commands.push("kubectl get nip -o wide".to_owned());
            }
            if plan.unmet.iter().any(|unmet| matches!(unmet, plan::Unmet::NoCapacity(_))) {
                let pools: Vec<PoolName> = world.pools_of(node).map(|pool| pool.name.clone()).collect();
                commands.extend(remedy_for(world, &pools).1);
            }
            waits.extend(plan.unmet.iter().map(|unmet| match unmet {
                plan::Unmet::NoCapacity(class) => why_no_block(world, node, class),
                plan::Unmet::AtLimit(_) | plan::Unmet::Held(_) => unmet.to_string(),
            }));
            if let plan::Verdict::Wait(wait) = &plan.verdict
                && waits.is_empty()
            {
                waits.push(wait.to_string());
            }
            waits.extend(late::of_node(world, plan, listed.now.wall));
            // Those of other pools are in the sentence about the pools of the node.
            let of_others =
                |refusal: &&Refusal| matches!(refusal.reason, WhyNot::NotSelected(_) | WhyNot::Invalid);
            let asked = plan.refusals.iter().filter(|refusal| !of_others(refusal)).cloned();
            let asked: Vec<Refusal> = unreadable_pools(world).chain(asked).collect();
            refusals = asked.iter().map(ToString::to_string).collect();
            let further = asked.iter().filter(|refusal| !names(&waits, refusal));
            further_refusals = further.map(ToString::to_string).collect();
            let line = |finding: &Finding| format!("{}: {}", finding.kind.as_str(), finding.message);
            // The wait for a pool says more.
            let is_reported = |finding: &&Finding| finding.kind == FindingKind::NoPool && has_no_pool;
            let (wrong, information): (Vec<&Finding>, Vec<&Finding>) = plan
                .findings
                .iter()
                .filter(|finding| !is_reported(finding))
                .partition(|finding| finding.kind.is_wrong());
            findings = wrong.into_iter().map(line).collect();
            notes = information.into_iter().map(line).collect();
            let kind = FindingKind::WriteFailed.as_str();
            let failures = failures::of_node(world, plan);
            findings.extend(failures.iter().map(|failure| format!("{kind}: {}", failure.description())));
            next = plan.requests().iter().map(step).collect();
        }
        let waiting_pods = waiting_pods::overdue(world, &around.waiting, listed.now.wall).remove(node);
        let waiting_pods: Vec<WaitingPod> = waiting_pods.into_iter().flatten().cloned().collect();
        let findings = problems(world, node, findings, &waiting_pods);
        let claims: Vec<&Claim> = world.claims_of(node).map(|known| &known.claim).collect();
        let claimed = claims.iter().flat_map(|claim| who::who(world, &[], pods, claim.cidr));
        let of_node = format!("-o wide --field-selector spec.nodeName={node}");
        let has_draining = claims.iter().any(|claim| matches!(claim.state, ClaimState::Draining(_)));
        if has_draining || !waiting_pods.is_empty() {
            commands.push(format!("kubectl get pods -A {of_node}"));
        }
        if world.agent_on(node).is_err() && !(waits.is_empty() && findings.is_empty()) {
            commands.push(format!("kubectl -n {cilium_namespace} get pods -l k8s-app=cilium {of_node}"));
        }
        Some(Self {
            node: node.clone(),
            labels,
            pools: world.pools_of(node).map(|pool| of_pool(pool, object)).collect(),
            blocks: claimed.chain(who::unclaimed(world, node)).collect(),
            since: claims.iter().map(|claim| (claim.cidr, claim.since)).collect(),
            carrier: world.carrier(node).map(|carrier| carrier.kind().as_str()),
            agent: agent(world, node),
            waits_since: waits::of_node(world, node).filter(|_| !waits.is_empty()),
            waits,
            refusals,
            further_refusals,
            findings,
            notes,
            next,
            commands,
            waiting_pods,
        })
    }

    fn text(&self, cluster: &Cluster, now: Timestamp) -> Vec<Line> {
        let part = |label: &str, text: &str| Line::labelled(label, LABEL, text);
        let or_none = |list: &[String]| if list.is_empty() { "none".to_owned() } else { ten_of(list) };
        let carrier = self.carrier.unwrap_or("none: the agent has not created the CiliumNode yet");
        let mut lines = vec![
            part("node", self.node.as_str()),
            part("labels", &or_none(&self.labels)),
            part("pools", &or_none(&self.pools)),
            part("carrier", carrier),
            part("agent", &self.agent),
            Line::default(),
        ];
        if self.blocks.is_empty() {
            lines.push("The node has no blocks.".into());
        } else {
            let row = |answer: &who::Answer| {
                let pool = answer.pool.as_ref().map_or("-".to_owned(), ToString::to_string);
                let until = answer.until.map_or("-".to_owned(), |until| until.to_string());
                let age = self.since.get(&answer.range).and_then(|at| since(*at, now));
                let age = age.unwrap_or_else(|| "-".to_owned());
                let mut row = vec![answer.range.to_string(), answer.word.as_str().to_owned(), pool, age];
                row.extend(cluster.wide([block_name(answer.range), until]));
                row.push(answer.detail.clone());
                row
            };
            let headers = ["BLOCK", "IS", "POOL", "FOR"].into_iter();
            let headers = headers.chain(cluster.wide(["CLAIM", "UNTIL"])).chain(["WHY"]);
            lines.extend(cluster.table(headers, self.blocks.iter().map(row)));
        }
        let waits_since = self.waits_since.iter().map(|(at, what)| {
            let age = since(*at, now).map_or(String::new(), |age| format!(" ({age})"));
            format!("{at:.0}{age}: {what}")
        });
        let parts = [
            ("waits", &self.waits),
            ("since", &waits_since.collect()),
            ("refused", &self.further_refusals),
            ("problem", &self.findings),
            ("note", &self.notes),
            ("next", &self.next),
            ("run", &self.commands),
        ];
        for (what, sentences) in parts.into_iter().filter(|(_, sentences)| !sentences.is_empty()) {
            // The time is that of the wait above.
            lines.extend((what != "since").then(Line::default));
            lines.extend(sentences.iter().map(|sentence| part(what, sentence)));
        }
        if self.waits.is_empty() && self.findings.is_empty() && self.next.is_empty() {
            lines.extend([Line::default(), "The node has everything that it asks for.".into()]);
        }
        lines
    }

    fn object(&self) -> Value {
        let blocks = self.blocks.iter().map(|answer| {
            json!({
                "cidr": answer.range.to_string(), "is": answer.word.as_str(),
                "pool": answer.pool.as_ref().map(ToString::to_string), "why": answer.detail, "pods": answer.pods,
                "since": self.since.get(&answer.range).map(ToString::to_string),
            })
        });
        let waiting_pods =
            self.waiting_pods.iter().map(|pod| json!({"name": pod.name, "since": pod.since.to_string()}));
        json!({
            "waitingPods": waiting_pods.collect::<Vec<_>>(),
            "node": self.node.as_str(), "labels": self.labels, "pools": self.pools,
            "carrier": self.carrier, "agent": self.agent, "blocks": blocks.collect::<Vec<_>>(),
            "waits": self.waits, "refusals": self.refusals, "findings": self.findings, "notes": self.notes, "next": self.next,
            "waitsSince": self.waits_since.as_ref().map(|(at, _)| at.to_string()), "commands": self.commands,
        })
    }
}

/// A pool that selects a node, and the size of the block that the node gets, where nodes get blocks of several sizes.
fn of_pool(pool: &Pool, node: Option<&Node>) -> String {
    let sizes = pool.families.keys().filter_map(|family| {
        let (size, source) = pool.size_for(node?, *family)?;
        let why = match source {
            SizeSource::Pool => return None,
            SizeSource::Entry => "by blockSizes".to_owned(),
            SizeSource::MaxPods(max_pods) => format!("for {}", counted(max_pods, "pod")),
            SizeSource::UnknownMaxPods => "while kubelet reports no number of pods".to_owned(),
        };
        Some(format!(", {family} /{size} {why}"))
    });
    format!("{} (priority {}{})", pool.name, pool.priority, sizes.collect::<String>())
}

fn step(request: &Request) -> String {
    match request {
        Request::Write(write) => format!("the controller will {write}"),
        Request::Read(read) => format!("the controller will first {read}"),
    }
}
